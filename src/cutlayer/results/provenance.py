"""Where predictions come from: which model made them, when, and with whom."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from cutlayer.results.document import Document
from cutlayer.version import __version__


class Provenance(Document):
    """The file beside a file of predictions, `scores.parquet.json` for `scores.parquet`.

    Attributes:
        job: Name of the job.
        run: Name of the run folder of the model.
        training: Id of the training, which is in the run folder of every party.
        trained: Start of the training, ISO 8601; empty where the folder does not say.
        predicted: When the predictions were made, ISO 8601.
        round: Name of the round, where they were made in one.
        rows: Number of predicted rows.
        positive: Of a binary task, the class of which the probability is; `None` of others.
        contributed: Number of rows that each party with features contributed to.
        absent: Parties that were left out.
        warnings: Sentences on columns that are hardly those of the training.
        cutlayer: Version of this package.
    """

    title: ClassVar[str] = "where predictions come from"

    job: str
    run: str
    training: str
    trained: str = ""
    predicted: str
    round: str = ""
    rows: int = Field(ge=0)
    positive: str | None = None
    contributed: Mapping[str, int]
    absent: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    cutlayer: str = __version__


def beside(scores: Path) -> Path:
    """The path of the file beside a file of predictions."""
    return scores.with_name(f"{scores.name}.json")


def is_predictions(path: Path) -> bool:
    """Whether a file holds predictions of a run, by the file beside it: what they are computed from has labels."""
    try:  # the reading of a pipe need not end
        return beside(path).is_file() and bool(Provenance.model_validate_json(beside(path).read_bytes()))
    except (OSError, ValueError):
        return False
