"""Names of Python modules in a job or a private file."""

from __future__ import annotations

import re
import reprlib
from typing import Annotated

from pydantic import AfterValidator

NAME = r"[^\W\d]\w*"
"""Pattern of one Python name."""
DOTTED_NAME = rf"{NAME}(?:\.{NAME})*"
"""Pattern of the name of a module within its packages."""


def module_name(name: str) -> str:
    """Return the dotted name of a Python module if it is one.

    Raises:
        ValueError: it is of another form.

    >>> module_name("my_package.models")
    'my_package.models'
    """
    if not re.fullmatch(DOTTED_NAME, name):
        raise ValueError(f"the name of a module, such as my_package.models, got {reprlib.repr(name)}")
    return name


ModuleName = Annotated[str, AfterValidator(module_name)]
