"""How often a run releases each row, known before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from cutlayer.config.job import TrainConfig

if TYPE_CHECKING:
    from cutlayer.accounting.events import Condition

Bottom = Literal["independent", "private", "fitted"]
"""What a bottom model owes to the private rows: nothing, a private training whose cost is counted, or a fit."""


@dataclass(frozen=True)
class ReleasePlan:
    """The releases of one row's embedding that the schedule holds, by the part of the rows it belongs to.

    Every epoch releases each training row once at most, in a fixed order: nothing is sampled, so no release is cheaper
    for having been left to chance. Held-out rows are released by evaluations.

    Attributes:
        training: releases of a training row: one in every epoch.
        validation: of a validation row: one evaluation after every epoch; a last one where no test rows are held out.
        test: of a test row: one evaluation of the finished model; one after every epoch too where there are no
            validation rows.
        serving: queries that each row may be asked for, beside these.
        beyond: releases of any row that the schedule does not hold: by runs of the same job that did not come to their
            end, and by repetitions with other content.
        once: every row is released a single time, before the epochs that use it.
        bottom: `independent` where no private row has a part in the bottom model, `private` where it is trained by a
            protection whose cost is counted, else `fitted`. The encoding of the columns counts as public.
    """

    training: int
    validation: int = 0
    test: int = 0
    serving: int = 0
    beyond: int = 0
    once: bool = False
    bottom: Bottom = "fitted"

    @classmethod
    def of(cls, train: TrainConfig, *, once: bool = False, bottom: Bottom = "fitted") -> Self:
        """The plan of a job's schedule; stopping early only releases less."""
        epochs, split = train.epochs, train.split
        if once:
            return cls(1, int(split.validation > 0), int(split.test > 0), once=True, bottom=bottom)
        if not split.validation:
            return cls(epochs, test=epochs + 1, bottom=bottom)
        return cls(epochs, epochs, 1, bottom=bottom) if split.test else cls(epochs, epochs + 1, bottom=bottom)

    @property
    def condition(self) -> Condition:
        """What the privacy of a row's released embedding rests on."""
        return "conditional on the bottom model" if self.bottom == "fitted" else "unconditional"

    @property
    def most(self) -> int:
        """Releases of the row that is released most often, which is the one an epsilon must hold for."""
        return max(self.training, self.validation, self.test) + self.serving + self.beyond

    @property
    def whose(self) -> str:
        """Which rows are released most often.

        >>> ReleasePlan(training=20, validation=20, test=1).whose
        'training and validation rows'
        """
        counts = {"training": self.training, "validation": self.validation, "test": self.test}
        return " and ".join(part for part, count in counts.items() if count == max(counts.values())) + " rows"
