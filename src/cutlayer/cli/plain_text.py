"""Output where the terminal, or the file behind it, has only ASCII or another small set of characters."""

from __future__ import annotations

import codecs
import io
from typing import TextIO

ERROR_HANDLER = "cutlayer.spelled"
"""Name of the error handler that writes other characters in place of missing ones."""
_OTHERS = {"²": "2", "−": "-", "–": "-", "±": "+-", "≈": "~", "…": "...", "✓": "+", "✕": "x", "\u00a0": " "}


def spell_out(stream: TextIO) -> None:
    """Make a stream write other characters where its encoding lacks some, R2 for R² and ? where there is none.

    Args:
        stream: Standard output or error; a stream that holds text alone stays as it is.
    """
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors=ERROR_HANDLER)


def _spelled(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_OTHERS.get(character, "?") for character in error.object[error.start : error.end]), error.end


codecs.register_error(ERROR_HANDLER, _spelled)
