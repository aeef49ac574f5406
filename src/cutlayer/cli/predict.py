"""`cutlayer predict`: predictions of a finished run, all parties here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cutlayer.cli.app import print_result
from cutlayer.cli.drift import checked_max_drift, drift_lines, exit_if_drifted
from cutlayer.cli.verb import verb
from cutlayer.errors import ConfigError

if TYPE_CHECKING:
    from cutlayer.config import Job, PrivatePart, TableConfig
    from cutlayer.serving.predict import PredictionResult


@verb(consent=("host", "model", "path"))
def predict(
    path: Path,
    *,
    out: str,
    data: list[str] | None = None,
    absent: list[str] | None = None,
    partial: bool = False,
    overwrite: bool = False,
    max_drift: float | None = None,
    key: Path | None = None,
    json: bool = False,
) -> None:
    """Predict rows with the models of a finished run: one row per id, with the parties that contributed.

    Args:
        out: The file to write, .parquet or .csv; or a table of a database, URL#TABLE.
        data: PARTY=FILE, new rows of a party; may be repeated. Default: the run's test rows.
        partial: Predict rows that a party does not have without it, instead of leaving them out.

    Example: cutlayer predict runs/job --data telco=new.csv --out scores.parquet
    """
    from cutlayer.config.load import load_closed_job
    from cutlayer.training.folder import RunFolder
    from cutlayer.training.keys import read_key

    folder = RunFolder.open(path)
    job = load_closed_job(folder.path / "job.yaml")
    tables = tables_of(job, data or ())
    supplied = read_key(key) if key else None
    from cutlayer.models import imports_of
    from cutlayer.results.scores import destination
    from cutlayer.serving.predict import PredictionRequest
    from cutlayer.serving.predict import predict as predict_rows
    from cutlayer.training.process import run_threads

    request = PredictionRequest(tables, absent or (), partial, supplied, overwrite, checked_max_drift(max_drift))
    with run_threads(job.train.threads, 1, scipy=bool(imports_of(job))):
        predicted = predict_rows(job, folder, destination(out, overwrite=overwrite), request)
    print_result(json, {**asdict(predicted), "out": str(predicted.out)}, *_lines(predicted))
    exit_if_drifted(predicted.drift, max_drift, f"{out} is written")


def tables_of(job: Job, options: list[str] | tuple[()]) -> dict[str, TableConfig]:
    """Tables from `PARTY=FILE`, laid out as those that the job was trained on.

    Raises:
        ConfigError: Another form, an unknown party, or a party twice.
    """
    from cutlayer.config import near_miss
    from cutlayer.config.remote import is_address, remote_path

    tables: dict[str, TableConfig] = {}
    for text in options:
        name, sign, path = text.partition("=")
        if not sign or not path:
            raise ConfigError.expected("--data as PARTY=FILE", repr(text), "such as --data telco=new.parquet")
        if name not in job.parties:
            raise ConfigError(f"--data: no party is called {name!r}{near_miss(name, [*job.parties])}")
        if name in tables:
            raise ConfigError.expected(f"--data for {name} once", "it twice", "give one file")
        tables[name] = table_like(job.parties[name], remote_path(path) if is_address(path) else Path(path))
    return tables


def table_like(part: PrivatePart | None, path: Path) -> TableConfig:
    """The table of new rows at a path, with the settings of the training's where it is of the same format.

    Args:
        part: Private part of the party, whose table may be of the training; `None` for no settings.
        path: Path of the new table.
    """
    from cutlayer.config import TableConfig, validated
    from cutlayer.data.sources.csv import unusual_delimiter
    from cutlayer.data.sources.csv_layout import DELIMITERS

    settings = {} if part is None else part.new_rows_settings(path)
    if settings.get("delimiter") in (None, *DELIMITERS) and path.is_file():
        # No option states it, and new rows need not be separated as those of the training.
        settings["delimiter"] = unusual_delimiter(path)
    return validated(TableConfig, {**settings, "path": str(path)}, "--data")


def _lines(predicted: PredictionResult) -> Iterator[str]:
    """Lines on the result of a prediction."""
    from cutlayer.data.forgotten import FORGOTTEN_REASON

    yield f"{predicted.out}: {predicted.rows:,} rows"
    for name, rows in predicted.contributed.items():
        note = " (absent)" if name in predicted.absent else ""
        yield f"  {name} contributed to {'all' if rows == predicted.rows else f'{rows:,}'}{note}"
    for name, rows in predicted.lacking.items():
        yield f"  {name} does not have {rows:,} of the ids"
    for name, rows in predicted.forgotten.items():
        yield f"  {name}: {rows:,} rows {FORGOTTEN_REASON} are left out"
    for name, (made, planned) in predicted.predictions.items():
        yield f"  {name}: prediction {made} of {planned} planned"
    yield from drift_lines(predicted.drift)
