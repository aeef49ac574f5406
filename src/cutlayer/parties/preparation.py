"""Steps of a bottom model before its party sends an embedding, on losses that need no gradient of the task."""

from __future__ import annotations

from itertools import chain, count, islice

from cutlayer.config import Job
from cutlayer.data.batches import Schedule
from cutlayer.parties.passive_setup import PassiveSetup
from cutlayer.parties.state import build_optimizer
from cutlayer.protections.views import Mode, PassiveView


def prepare_bottom(job: Job, setup: PassiveSetup, schedule: Schedule) -> None:
    """Take the first steps that the party's protections ask for.

    They use an optimiser of their own: its moments are of another loss than those of training.

    Args:
        job: The shared job.
        setup: Columns, bottom model and protections.
        schedule: Batches of the training rows.
    """
    protections, bottom = setup.state.chain, setup.bottom
    optimizer = build_optimizer(job.train.optimizer, list(bottom.parameters()))
    if optimizer is None or not protections.first_steps:
        return
    bottom.train()
    batches = chain.from_iterable(schedule.epoch(epoch) for epoch in count())
    for step, rows in enumerate(islice(batches, protections.first_steps)):
        embedding = setup.embed(rows)
        view = PassiveView(Mode.TRAIN, -1, step, rows, setup.embed, embedding, inputs=setup.columns, part="train")
        loss = protections.prepare(view)
        if loss is not None:
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    optimizer.zero_grad()
