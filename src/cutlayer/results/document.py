"""The files that hold results: strict JSON with a version, validated when they are read."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, ValidationError

from cutlayer.config import FrozenModel
from cutlayer.errors import ConfigError, RunFolderError
from cutlayer.storage.durable import write_whole
from cutlayer.storage.json_values import parse_json

SCHEMA_VERSION = 5


class Document(FrozenModel):
    """A result with a file of its own.

    Attributes:
        schema_version: Version of the names and meanings of all fields.
    """

    title: ClassVar[str] = "results"
    """Name of the file in errors."""
    remedy: ClassVar[str] = "run the job again"
    """Command that writes the file again."""

    schema_version: int = Field(default=SCHEMA_VERSION, description="Version of the names and meanings of all fields.")

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read the file.

        Raises:
            RunFolderError: It is missing, damaged, of another version, or another document.
        """
        path = Path(path)
        try:
            raw = parse_json(path.read_bytes())
        except OSError as failure:
            raise RunFolderError(f"expected {cls.title} at {path}: {failure.strerror}; has the run ended?") from None
        except ValueError as failure:
            raise RunFolderError(f"{path} is damaged (expected JSON: {failure}); {cls.remedy}") from None
        version = raw.get("schema_version", "none") if isinstance(raw, dict) else None
        if version != SCHEMA_VERSION:
            raise RunFolderError.expected(f"schema_version {SCHEMA_VERSION} in {path}", version, cls.remedy)
        try:
            return cls.model_validate(raw)
        except ValidationError as failure:
            fault = failure.errors(include_url=False)[0]
            key = ".".join(str(part) for part in fault["loc"])
            raise RunFolderError(f"{path} is damaged ({key}: {fault['msg']}); {cls.remedy}") from None
        except ConfigError as failure:  # of a ledger
            raise RunFolderError(f"{path} is damaged ({failure})") from None

    def write(self, path: Path | str) -> Path:
        """Write the file whole or not at all, and return its path."""
        path = Path(path)
        write_whole(path, self.model_dump_json(indent=1) + "\n")
        return path
