"""The phases of a training: which a job has, in which order, and for which party."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutlayer.config.job import Job

FITTED_TOPS = frozenset({"auto", "boosting", "linear", "sklearn"})
"""Kinds of top models that are fitted at once, to all rows, where the active party trains alone."""


GRADE_KIND = "grade"
"""Kind of the bottom model of a party that releases a grade of each row."""


class Phase(StrEnum):
    """A part of a party's protocol.

    Attributes:
        SET_UP: The active party draws the training labels, and builds its models.
        WARM_UP: Epochs before the single release. The parties that will release once send nothing, zeros stand for
            their rows, and they are sent the gradients at those zeros.
        RELEASE: The parties that release once fix their bottom models, and each of their rows crosses a single time.
        LABELS: The active party sends the drawn training labels, once, to the parties that release grades of them.
        LEAVE: The passive parties' part of the run ends.
        END_TO_END: Epochs in which gradients train the bottom models of the parties that have not released.
        TRAIN_ALONE: Epochs of the active party alone.
        FIT: The active party fits its top model at once to all training rows.
    """

    SET_UP = "set up"
    WARM_UP = "warm up"
    LABELS = "labels"
    RELEASE = "release"
    LEAVE = "leave"
    END_TO_END = "end to end"
    TRAIN_ALONE = "train alone"
    FIT = "fit"


def grades_rows(job: Job, party: str) -> bool:
    """Whether a passive party releases a grade of each row."""
    return job.model.bottom_of(party).get("kind") == GRADE_KIND


def reads_labels(job: Job, party: str) -> bool:
    """Whether a passive party is sent drawn labels, which its grades are of; cells are of its columns alone."""
    return grades_rows(job, party) and job.model.bottom_of(party).get("of", "labels") == "labels"


def phases_of(job: Job, party: str | None = None) -> tuple[Phase, ...]:
    """The phases of a passive party, or of the active one, between the agreement of all parties and the close.

    Where the active party trains alone, all others leave before any label is drawn, counted or trained on: neither the
    content nor the time of a message, nor a failure, can depend on what labels are used for.
    """
    once = {name: job.train.release_of(name) == "once" for name in job.passives}
    graded = [name for name in once if reads_labels(job, name)]
    warm_up = (Phase.WARM_UP,) if job.train.warmup_epochs else ()
    alone = all(once.values()) and not warm_up
    if party in once:  # a passive party
        if not once[party]:
            return (Phase.END_TO_END,)
        labels = (Phase.LABELS,) if party in graded else ()
        return (*labels, Phase.RELEASE, Phase.LEAVE) if alone else (*warm_up, Phase.RELEASE, Phase.END_TO_END)
    if alone:
        last = Phase.FIT if job.model.top.get("kind") in FITTED_TOPS else Phase.TRAIN_ALONE
        if graded:  # labels are drawn before they are sent; only drawn ones leave
            return Phase.SET_UP, Phase.LABELS, Phase.RELEASE, Phase.LEAVE, last
        return Phase.RELEASE, Phase.LEAVE, Phase.SET_UP, last
    release = (Phase.RELEASE,) if warm_up or any(once.values()) else ()
    return (Phase.SET_UP, *warm_up, *release, Phase.END_TO_END)
