"""The scripted year by files and by TLS, one after the other: `python -m tests.benchmarks.brief_years`, prints JSON.

A process of its own: it forks, which a process with threads of other tests must not. Both share what it imports, and
grades are fitted by the linear candidate alone: what is fitted is no subject of theirs.
"""

from __future__ import annotations

import json

import pytest

from benchmarks import year
from tests.models.estimator_rows import few_strengths

GRADE = "fit: {kind: grade}"
IMPORTED = (
    "cutlayer.cli.exchange",
    "cutlayer.cli.exchange_steps",
    "cutlayer.cli.ledger",
    "cutlayer.jobs.align",
    "cutlayer.jobs.party",
    "cutlayer.report.build",
    "cutlayer.report.html",
    "cutlayer.report.passive.build",
    "cutlayer.report.passive.page",
    "cutlayer.serving.between",
    "cutlayer.serving.by_file",
    "duckdb",
    "encodings.idna",
    "encodings.unicode_escape",
    "encodings.utf_8_sig",
    "grpc._channel",
    "grpc._server",
    "grpc._utilities",
    "importlib.readers",
    "jinja2",
    "rbcl",
    "sklearn.linear_model",
    "torch.utils._device",
    "typer._adapters",
    "typer._click.decorators",
)
"""What the commands of a month import, as far as it is not imported here: a process of its own would find it out."""


def main() -> None:
    """Run a month of each kind, with one kill of each command, and print what was left."""
    brief = year.PRIVATE[year.TELCO].replace(GRADE, "fit: {kind: grade, candidates: [linear], folds: 2}")
    assert brief != year.PRIVATE[year.TELCO]
    year.PRIVATE[year.TELCO] = brief
    year.WAIT = 3  # for a partner that was killed, and comes in the next turn
    few_strengths(pytest.MonkeyPatch())
    year._imported_by_a_month = lambda _place: [*IMPORTED]
    year.import_ahead()
    years = (year.both_years(200, 1, 1, 1, tls=tls) for tls in (False, True))
    print(json.dumps([year.outcome(*pair) for pair in years]))


if __name__ == "__main__":
    main()
