"""The drawn labels of the training rows: sent once, to the partners that fit a model of their own to them."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import torch

from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.receiving import receive_chunks, send_in_chunks
from cutlayer.config.phases import reads_labels
from cutlayer.errors import ConfigError, PeerLost, ProtocolError
from cutlayer.kernels.noise.informative_rows import FEW, informative_numbers, informative_rows, true_shares
from cutlayer.models.bottom_fits.base import DrawnLabels
from cutlayer.parties.session.checkpoint import DRAWN, SENT
from cutlayer.protections.label_dp import LabelDP
from cutlayer.storage.row_tensors import rows_of

if TYPE_CHECKING:
    from cutlayer.parties.phases.active_side import ActiveSide
    from cutlayer.parties.phases.passive_side import PassiveSide

MAX_CLASSES = 256
"""Maximum number of classes: a drawn label is one byte."""


def lead(side: ActiveSide) -> Generator[Port, Message, None]:
    """Send each party the labels of its training rows as they were drawn, one byte each; never the true ones.

    A resume repeats the message with the same draws.

    Raises:
        ConfigError: Labels are not drawn, or of more classes than a byte has values.
    """
    drawing = next((p for p in side.local.chain.protections if isinstance(p, LabelDP)), None)
    epsilon, classes = (None, 0) if drawing is None else (drawing.settings.eps, drawing.values)
    if epsilon is None or classes > MAX_CLASSES:
        wanted = f"label_dp at {side.local.name} and up to {MAX_CLASSES} classes, to send drawn labels"
        got = "no label_dp" if epsilon is None else f"{classes} classes"
        raise ConfigError.expected(wanted, got, "write privacy: {label_dp: {eps: 1.0}}")
    held = side.passives.held
    for name, port in side.ports.items():
        if not reads_labels(side.job, name) or name in side.presence.left:
            continue
        places = torch.from_numpy(held.places(name)) if name in held.by_party else None
        of_rows = side.setup.drawn if places is None else rows_of(side.setup.drawn, places)
        labels = rows_of(of_rows, held.split(name, side.split).part("train")).to(torch.uint8)
        drawn = (torch.bincount(labels.long(), minlength=classes).double() / max(len(labels), 1)).tolist()
        if side.job.task == "regression":
            worth = informative_numbers(len(labels), drawn, float(epsilon))
        else:
            worth = informative_rows(len(labels), true_shares(drawn, float(epsilon)), float(epsilon))
        _check_worth(worth, len(labels), float(epsilon), name, int(side.job.bottom_of(name).get("least_rows", FEW)))
        side.checkpoints.keep(SENT, ({}, {"rows": side.rows}))
        try:
            send_in_chunks(port, Kind.LABELS, "labels", labels, {"epsilon": float(epsilon), "classes": classes})
        except PeerLost as lost:
            side.presence.leave(name, lost)
    yield from ()


def _check_worth(worth: float, rows: int, epsilon: float, name: str, least: int) -> None:
    """Refuse labels of which a partner would learn too little.

    Their worth is that of the drawn ones, so that a refusal reveals nothing more.

    Raises:
        ConfigError: They are worth fewer informative rows than the job asks for.
    """
    if worth < least:
        wanted = f"drawn labels worth {least:,} rows or more to {name}"
        got = f"about {worth:,.0f} by {rows:,} training rows at label epsilon {epsilon:g}"
        remedy = f"raise label_dp.eps, take more rows, or write model.bottom.{name}: {{kind: grade, least_rows: 0}}"
        raise ConfigError.expected(wanted, got, remedy)


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
    got = drawn.fault()
    if side.job.task == "binary" and classes != 2:
        got = f"some of {classes} classes"
    if len(stated) > 1 or len(values) != rows:
        got = f"{len(values):,} of {len(stated)} kinds"
    if got:
        raise ProtocolError.expected(f"{rows:,} drawn labels from {side.port.peer}", got)
    stored = side.checkpoints.kept(DRAWN) if side.local.resume else None
    if stored is not None and not torch.equal(stored[0]["labels"], values):
        remedy = "start a new run; grades of other labels would be a second release"
        raise ProtocolError.expected(f"the labels that {side.port.peer} sent before", "others", remedy)
    if stored is None:
        side.checkpoints.keep(DRAWN, drawn.state())
    side.drawn = drawn
