"""The split-part attacks: a split that the label owner sends shows what its parts follow."""

from __future__ import annotations

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Scores, Target
from cutlayer.attacks.label.history import HistoryAttack, HistoryView
from cutlayer.lazy import functional, torch

PARTS = 3
"""Training, validation and test, numbered in the order of the values of a column that the split is by."""
PRIOR_ROWS = 1.0
"""Weight of the class shares of all known rows, in rows, within the shares of a part."""


class SplitPart(HistoryAttack):
    """Score a row by its part of the split, as the label owner sent it.

    A split by a column shows which rows have its largest values, which next, and so the label where the column follows
    it. The main score orders the parts as the column does: training, validation, test. The variants `train` and `test`
    have that part between the other two. No label is known; which of the three orders it is, and its direction, is
    granted. Rows of all parts are scored.

    Reference: none; the split as a message about labels is this project's.
    """

    name = "split_part"
    reference = "this project, on the split as it is sent"
    reads = (Target.PART,)
    tasks = frozenset({"binary", "regression"})

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the rows that were sent a part.

        Raises:
            NotApplicable: No split was sent.
        """
        rows, parts = view.sent_parts
        scores, train, test = (torch.tensor(order).double()[parts] for order in ((0, 1, 2), (1, 0, 2), (0, 2, 1)))
        return Scores.of_rows(rows, scores, also={"train": train, "test": test})


class SplitPartOfClasses(HistoryAttack):
    """Score a row for each class by the share of that class among the known rows of its part of the split.

    As `split_part`, for three classes or more, whose parts only labels can name.

    Reference: none; the split as a message about labels is this project's.
    """

    name = "split_part_classes"
    reference = "this project, on the split as it is sent"
    reads = (Target.PART,)
    needs = frozenset({Need.FEW_LABELS})
    tasks = frozenset({"multiclass"})

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the rows that were sent a part and whose label is not known.

        Raises:
            NotApplicable: No split was sent.
        """
        rows, parts = view.sent_parts
        known, labels = knowledge.labels_among(rows)
        hot = functional.one_hot(labels, len(view.task.classes)).double()
        counts = hot.new_zeros(PARTS, hot.shape[1]).index_add_(0, parts[known], hot) + PRIOR_ROWS * hot.mean(dim=0)
        unknown = ~knowledge.known_among(rows)
        return Scores.of_rows(rows[unknown], (counts / counts.sum(dim=1, keepdim=True))[parts[unknown]])
