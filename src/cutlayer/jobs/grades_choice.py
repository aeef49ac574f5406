"""Whether the partners of a first job release grades of drawn labels, and why where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from cutlayer.config.names import AUTO, GRADE_CHOICES
from cutlayer.config.target import NUMBERS
from cutlayer.kernels.noise.informative_rows import AMPLE_ROWS, MIN_USEFUL_ROWS, informative_rows

LABEL_EPSILONS = (0.5, 1.0, 2.0)
"""Label epsilons of jobs with grades, of which the least is taken that is worth enough rows."""


class GradesChoice(NamedTuple):
    """Whether partners release grades.

    Attributes:
        protect: What is protected: `labels`, `both`, or both by a `proof`.
        epsilon: Epsilon of the labels; `None` where partners release their columns.
        reason: Why they do; empty where they release grades.
    """

    protect: Literal["labels", "both", "proof"]
    epsilon: float | None = None
    reason: str = ""

    @property
    def sentence(self) -> str:
        """What is protected and how, and what is revealed."""
        if self.epsilon is not None:
            model = "; its model is private too" * (self.protect == "proof")
            return f"labels, which are drawn, and columns, of which a partner releases a drawn grade of each row{model}"
        if self.protect == "labels":
            return f"labels alone ({self.reason}). A partner releases its columns, which can be read from it"
        how = f"labels, and columns by noise instead of grades ({self.reason})"
        return f"{how}. It costs most of what a partner adds"


def choose_grades(
    task: str, counts: Sequence[int], rows: int, *, protect: str = AUTO, refused: str = ""
) -> GradesChoice:
    """What is protected: labels and columns by grades, if they lose next to nothing; else labels alone.

    The label epsilon is the least of `LABEL_EPSILONS` at which the drawn labels are worth enough rows. Where `both` or
    `proof` was asked for it is the largest, if they are worth any there. Labels that are numbers need a range, which is
    public and so not in the tables.

    Args:
        task: The task, as a job names it.
        counts: Number of rows of each class.
        rows: Number of training rows.
        protect: `both`, `proof` for grades of private models, or `auto` for what is best.
        refused: Another reason why there are no grades.
    """
    asked = protect in GRADE_CHOICES
    without: Literal["both", "labels"] = "both" if asked else "labels"
    if task in NUMBERS:
        refused = refused or "grades of numbers need a range that partners may know: see docs/how-to/grades.md"
    if refused:
        return GradesChoice(without, None, refused)
    shares = [count / sum(counts) for count in counts] if len(counts) > 1 else [0.5, 0.5]  # refused later
    worth = {epsilon: informative_rows(rows, shares, epsilon) for epsilon in LABEL_EPSILONS}
    enough = next((epsilon for epsilon, found in worth.items() if found >= AMPLE_ROWS), None)
    last = LABEL_EPSILONS[-1]
    chosen = last if enough is None and asked and worth[last] >= MIN_USEFUL_ROWS else enough
    if chosen is None:
        return GradesChoice(without, None, "so few drawn labels cost accuracy")
    return GradesChoice("proof" if protect == "proof" else "both", chosen)
