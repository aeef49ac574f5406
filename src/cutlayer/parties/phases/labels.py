"""The drawn labels of the training rows: sent once, to the partners that fit a model of their own to them."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.receiving import receive_chunks, send_in_chunks
from cutlayer.config import Job
from cutlayer.config.phases import reads_labels
from cutlayer.errors import ConfigError, PeerLost, ProtocolError
from cutlayer.kernels.noise.informative_rows import MIN_USEFUL_ROWS
from cutlayer.kernels.noise.label_levels import levels_for
from cutlayer.models.bottom_fits import label_epsilon_of
from cutlayer.models.bottom_fits.base import DrawnLabels
from cutlayer.parties.label_rows import label_rows
from cutlayer.parties.session.checkpoint import DRAWN_LABELS_FILE, SENT_LABELS_FILE
from cutlayer.protections.label_dp import LabelDP
from cutlayer.storage.row_tensors import rows_of

if TYPE_CHECKING:
    from cutlayer.parties.phases.active_side import ActiveSide
    from cutlayer.parties.phases.passive_side import PassiveSide

MAX_CLASSES = 256
"""Maximum number of classes: a drawn label is one byte."""


def lead(side: ActiveSide) -> Generator[Port, Message, None]:
    """Send each party the labels of its training rows as they were drawn, one byte each; never the true ones.

    A resume repeats the message with the same draws. A run that is refused for what they are worth is counted as one
    that sends them: that it is refused follows from the draws, and the partners see it.

    Raises:
        ConfigError: Labels are not drawn, or of more classes than a byte has values, or worth too few rows.
    """
    drawing = next((p for p in side.local.chain.protections if isinstance(p, LabelDP)), None)
    epsilon, classes = (None, 0) if drawing is None else (drawing.settings.eps, drawing.values)
    if epsilon is None or classes > MAX_CLASSES:
        wanted = f"label_dp at {side.local.name} and up to {MAX_CLASSES} classes, to send drawn labels"
        got = "no label_dp" if epsilon is None else f"{classes} classes"
        raise ConfigError.expected(wanted, got, "write privacy: {label_dp: {eps: 1.0}}")
    readers = [name for name in side.ports if reads_labels(side.job, name) and name not in side.presence.lost]
    labels = {name: _labels_of(side, name) for name in readers}
    try:
        for name, (of_party, known) in labels.items():
            _check_worth(side, name, of_party, int(known.sum()), float(epsilon), classes)
    except ConfigError:
        side.state.charge()
        raise
    about = {"epsilon": float(epsilon), "classes": classes}
    side.checkpoints.write_state(SENT_LABELS_FILE, ({name: of_party for name, (of_party, _) in labels.items()}, about))
    for name, (of_party, _) in labels.items():
        try:
            send_in_chunks(side.ports[name], Kind.LABELS, "labels", of_party, about)
        except PeerLost as lost:
            side.presence.go_on_without(name, lost)
    yield from ()


def _labels_of(side: ActiveSide, name: str) -> tuple[Tensor, Tensor]:
    """The drawn labels of a party's training rows, uint8 (t,), and whether each is of a row that has it, bool (t,)."""
    held, drawn = side.passives.held, side.setup.drawn_labels
    train = held.split(name, side.split, side.job.train).part("train")
    known = torch.ones(len(train), dtype=torch.bool)
    if name in held.ids:
        rows, refers = label_rows(
            held.numbers(name),
            held.ids[name],
            side.prepared.digests,
            side.split.train,
            train.numpy(),
            side.local.secret,
        )
        return rows_of(drawn, torch.from_numpy(rows)).to(torch.uint8), torch.from_numpy(refers)
    if name in held.by_party:
        drawn = rows_of(drawn, torch.from_numpy(held.places(name)))
    return rows_of(drawn, train).to(torch.uint8), known


def _check_worth(side: ActiveSide, name: str, labels: Tensor, known: int, epsilon: float, classes: int) -> None:
    """Refuse labels of which a partner would learn too little.

    Their worth is that of the drawn ones, so that a refusal reveals nothing more.

    Raises:
        ConfigError: They are worth fewer informative rows than the job asks for.
    """
    drawn = DrawnLabels(labels.long(), epsilon, classes, side.job.task == "regression")
    worth, least = drawn.informative_rows(known), _least_worth(side.job, name)
    if worth < least:
        wanted = f"drawn labels worth {least:,} rows or more to {name}"
        got = f"about {worth:,.0f} by {known:,} training rows at label epsilon {epsilon:g}"
        remedy = f"raise label_dp.eps, take more rows, or write model.bottom.{name}: {{kind: grade, least_rows: 0}}"
        raise ConfigError.expected(wanted, got, remedy)


def _least_worth(job: Job, name: str) -> int:
    """Informative rows that the job asks of drawn labels for a party."""
    return int(job.bottom_of(name).get("least_rows", MIN_USEFUL_ROWS))


def follow(side: PassiveSide) -> Generator[Port, Message, None]:
    """Receive the drawn labels of this party's training rows; after an interruption, the same ones again.

    Raises:
        ProtocolError: They are not one for each training row, no draws of the stated kind, or other ones than before.
    """
    rows, stated = len(side.split.train), set[tuple[float, int]]()
    values = yield from receive_chunks(
        side.port,
        Kind.LABELS,
        "labels",
        rows,
        check=lambda message: stated.add((float(message.fields["epsilon"]), int(message.fields["classes"]))),
    )
    epsilon, classes = min(stated)
    drawn = DrawnLabels(values.long(), epsilon, classes, are_numbers=side.job.task == "regression")
    got, most = drawn.fault(), label_epsilon_of(side.job.bottom_of(side.local.name))
    if epsilon > most:
        # Otherwise its sender would choose what the rates of the labels are compared with.
        remedy = f"agree on one, and write model.bottom.{side.local.name}.label_epsilon"
        wanted = f"drawn labels from {side.port.peer} of epsilon {most:g} at most"
        raise ProtocolError.expected(wanted, f"{epsilon:g}", remedy)
    agreed = 2 if side.job.task == "binary" else levels_for(epsilon) if drawn.are_numbers else classes
    if classes != agreed:
        got = got or f"some of {classes} classes"
    if len(stated) > 1 or len(values) != rows:
        got = f"{len(values):,} of {len(stated)} kinds"
    if not got:
        # No rates tell an attribute that is spread over many classes. Of so many its sender would have sent none.
        worth, least = drawn.informative_rows(rows), _least_worth(side.job, side.local.name)
        got = f"some worth {worth:,.0f} rows, of {least:,} that the job asks for" if worth < least else ""
    if got:
        raise ProtocolError.expected(f"{rows:,} drawn labels from {side.port.peer}", got)
    stored = side.checkpoints.read_state(DRAWN_LABELS_FILE) if side.local.resume else None
    if stored is not None and not torch.equal(stored[0]["labels"], values):
        remedy = "start a new run; grades of other labels would be a second release"
        raise ProtocolError.expected(f"the labels that {side.port.peer} sent before", "others", remedy)
    if stored is None:
        side.checkpoints.write_state(DRAWN_LABELS_FILE, drawn.state())
    side.drawn_labels = drawn
