"""Writes the rows that a passive party releases for a prediction to a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from cutlayer.alignment.agreed_before import agreed_alignment
from cutlayer.alignment.intersection import Alignment
from cutlayer.channel import Kind, Port, rows_digest
from cutlayer.channel.receiving import receive, send_done
from cutlayer.channel.security import Security
from cutlayer.channel.trail import Trail
from cutlayer.config.phases import grades_rows
from cutlayer.data.batches import evaluation_batches
from cutlayer.parties.drive.to_file import Asker, answer_hello, confirm_order, run_to_file
from cutlayer.parties.session.local import EVALUATION_ROWS, packing_of
from cutlayer.serving.between import REQUEST_PART, PredictionSide, serve_requests
from cutlayer.serving.prediction_release import PredictionReleases


def with_agreed_rows(side: PredictionSide, rows: Path | None, *, alone: bool = False) -> PredictionSide:
    """A party's side of a prediction of rows that all parties know already.

    Args:
        side: The party's side.
        rows: The CSV file of `cutlayer align`; `None` for all rows of the table.
        alone: Whether no other party takes part: all rows are predicted.

    Raises:
        DataError, AlignmentError: It is no such file, or of another table.
    """
    if alone:
        return replace(side, alignment=Alignment("agreed", side.alignment.purpose))
    alignment = agreed_alignment(side.job, side.name, rows, side.table, side.alignment.purpose)
    return replace(side, alignment=alignment)


def release_prediction(
    side: PredictionSide, serving: PredictionReleases, out: Path, security: Security | None, trail: Trail | None
) -> int:
    """Release rows for a prediction to a file; returns their number.

    Args:
        side: The party's side, from `with_agreed_rows`.
        serving: Counts the prediction.
        out: File to write.
        security: Certificates that sign it; `None` for a file without a signature.
        trail: Egress trail of the party.

    Raises:
        RunFolderError: `out` exists.
        ConfigError, BudgetExceeded: No prediction is left.
    """
    agreed = side.alignment.agreed_positions
    count = side.table.rows if agreed is None else len(agreed)
    released: int = run_to_file(
        side.job,
        side.name,
        out,
        security,
        trail,
        lambda port: serve_requests(side, serving, port),
        lambda port: _ask_for_all(side, port, count),
    )
    return released


def _ask_for_all(side: PredictionSide, port: Port, rows: int) -> Asker:
    port.compression = packing_of(side.job, side.name) if grades_rows(side.job, side.name) else None
    yield from answer_hello(port)
    yield from confirm_order(port)
    offer = yield from receive(port, Kind.OFFER)
    port.send(Kind.OFFER, fields={**offer.fields, "width": 0})
    for number, batch in enumerate(evaluation_batches(torch.arange(rows), EVALUATION_ROWS)):
        digest = rows_digest(batch)
        port.send(Kind.REQUEST, step=number, rows=digest, fields={"part": REQUEST_PART, "batch": number})
        yield from receive(port, Kind.EVALUATION, -1, number, digest)
    send_done(port)
    yield from receive(port, Kind.CLOSE)
