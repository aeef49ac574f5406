"""Utility and leak of one training, by which settings of a job are compared."""

from __future__ import annotations

from dataclasses import dataclass

CHOICE_IS_NOT_COUNTED = (
    "The trials ran on private data, and choosing among them depends on it: no ledger counts the trials together, or "
    "the choice (Papernot and Steinke 2022)."
)
"""Limit of the guarantees of single runs."""


@dataclass(frozen=True)
class TrialMetrics:
    """Utility and leak of one trial.

    Attributes:
        utility: Headline metric on the rows that the knee is chosen by: the validation rows, or without any the test
            rows.
        test: Headline metric on the rows that the report shows.
        low: Lower end of the 95 % bootstrap interval of `test`.
        high: Upper end of the 95 % bootstrap interval of `test`.
        leak: max(AUC, 1 - AUC) of the strongest attack at its worst epoch, 0.5 to 1.
        leak_low: Lower end of the 95 % interval of `leak`.
        leak_high: Upper end of the 95 % interval of `leak`.
        where: The strongest attack, as `party/message/attack`.
        epoch: Worst epoch of the strongest attack, from 1.
        seconds: Wall-clock time of training.
        columns: What the columns of the attacking party reveal by themselves; `None` where that is not defined.
        excess: Largest leak minus what the party's own columns reveal; `None` where that is not defined.
        rebuilt: Largest R², or share of values read exactly, of an attack on the columns of a passive party; `None`
            where none is attacked.
        rebuilt_by: That attack, as `party/attack`.
    """

    utility: float
    test: float
    low: float | None
    high: float | None
    leak: float
    leak_low: float | None
    leak_high: float | None
    where: str
    epoch: int
    seconds: float
    columns: float | None = None
    excess: float | None = None
    rebuilt: float | None = None
    rebuilt_by: str = ""

    @property
    def columns_read(self) -> float:
        """`rebuilt`, 0 to 1, as an objective: what no attack was tried on may be read whole."""
        return 1.0 if self.rebuilt is None else max(0.0, self.rebuilt)
