"""Names of parties, alternatives, files and Python modules in a job or a private file."""

from __future__ import annotations

import re
import reprlib
from collections import Counter
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo

from cutlayer.config.identities import federation_name, valid_identity
from cutlayer.config.remote import RemotePath
from cutlayer.consent import DOTTED_NAME

PROTECT_CHOICES = ("labels", "columns", "both", "proof", "nothing")
"""What `init` and `compare` protect, in one word."""
GRADE_CHOICES = ("both", "proof")
"""Those of which partners release grades where the rows suffice, and protect their columns by noise where not."""
AUTO = "auto"
"""In place of such a word, and the default: labels and columns by grades where the rows suffice, else labels alone."""
MAX_NAME_LENGTH = 64
MAX_JOB_NAME_LENGTH = 100
FOLDER = "folder"
"""Key of the validation context: the folder of the file that is read, which its relative paths start from."""


def module_name(name: str) -> str:
    """Return the dotted name of a Python module if it is one.

    Raises:
        ValueError: It is of another form.

    >>> module_name("my_package.models")
    'my_package.models'
    """
    if not re.fullmatch(DOTTED_NAME, name):
        raise ValueError(f"the name of a module, such as my_package.models, got {reprlib.repr(name)}")
    return name


ModuleName = Annotated[str, AfterValidator(module_name)]


def party_name(name: str) -> str:
    """Return the name of a party if it can name files, folders and messages too.

    Raises:
        ValueError: Other characters, a leading dot or dash, too long, or `kind`, which `model.bottom` has for itself.

    >>> party_name("bank-2")
    'bank-2'
    """
    if name == "kind" or len(name) > MAX_NAME_LENGTH or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
        raise ValueError(
            "a party name of letters a-z, digits, _ - and . that starts with neither . nor -, "
            f"of {MAX_NAME_LENGTH} characters at most, and not 'kind'"
        )
    return name


def alternative_name(name: str) -> str:
    """Return the name of an alternative if it can name a folder and a row of a table too.

    Raises:
        ValueError: Other characters, or too long.
    """
    if len(name) > MAX_NAME_LENGTH or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 _.-]*", name):
        raise ValueError(f"a name of letters a-z, digits, spaces, _ - and ., of {MAX_NAME_LENGTH} characters at most")
    return name


def job_name(name: str) -> str:
    r"""Return the name of a job if it is a line: a partner wrote it, and it stands on pages that others sign.

    Raises:
        ValueError: Empty, too long, or with line breaks or other characters that no page shows.

    >>> job_name("credit\n\n## Guarantees")
    Traceback (most recent call last):
    ...
    ValueError: a name of 1 to 100 printable characters, got 'credit\n\n## Guarantees'
    """
    if not 0 < len(name) <= MAX_JOB_NAME_LENGTH or not name.isprintable():
        raise ValueError(f"a name of 1 to {MAX_JOB_NAME_LENGTH} printable characters, got {reprlib.repr(name)}")
    return name


def label_name(name: str) -> str:
    """Return the name of a further label if it can name a folder and columns of predictions too.

    Raises:
        ValueError: Other characters, or too long.
    """
    if len(name) > MAX_NAME_LENGTH or not re.fullmatch(r"\w(?:[\w -]|\.(?!\.))*(?<![ .])", name):
        wanted = "a further label of letters, digits, spaces, _ - and single ., that ends with neither space nor ."
        raise ValueError(f"{wanted}, of {MAX_NAME_LENGTH} characters at most, got {reprlib.repr(name)}; rename it")
    return name


def each_once(values: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a list that has a name or value twice.

    >>> each_once(("a", "b"))
    ('a', 'b')
    """
    if twice := [value for value, count in Counter(values).items() if count > 1]:
        raise ValueError(f"every value once, got {', '.join(map(repr, twice))} more than once")
    return values


def file_path(path: Path, info: ValidationInfo) -> Path:
    """Return a path if it can name a file or a folder; one in a file is relative to the file's folder.

    Raises:
        ValueError: It is a root folder, or has a character that no name has.
    """
    if isinstance(path, RemotePath):
        return path
    if not path.name or "\0" in str(path):
        raise ValueError(f"the path of a file or folder, got {reprlib.repr(str(path))}")
    return in_folder(path, info)


def in_folder(path: Path, info: ValidationInfo) -> Path:
    """A path from the folder of the file that is read, if a file is read."""
    folder: Path | None = (info.context or {}).get(FOLDER)
    return path if folder is None else folder / path


FilePath = Annotated[Path, AfterValidator(file_path)]
"""A path that a file names; `reaches` finds it by this type."""
PartyName = Annotated[str, AfterValidator(party_name)]
JobName = Annotated[str, AfterValidator(job_name)]
AlternativeName = Annotated[str, AfterValidator(alternative_name)]
FederationName = Annotated[str, AfterValidator(federation_name)]
Identity = Annotated[str, AfterValidator(valid_identity)]
