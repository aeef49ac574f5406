"""Drawn labels that colluding partners pool, where each has drawn labels of other rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cutlayer.attacks.label.history import HistoryView
from cutlayer.attacks.label.pooled import pool_views
from cutlayer.attacks.label.sent_labels import SentLabels
from cutlayer.problem.task import Task

EPSILON = 1.0


def view(party: str, rows: Tensor, labels: Tensor) -> HistoryView:
    sent = SentLabels(rows, labels, EPSILON, 2, torch.zeros(len(rows), 1, dtype=torch.float64))
    return HistoryView(party, Task("binary", ("no", "yes")), [], {}, sent=sent)


def test_rows_of_which_both_were_sent_a_label_have_the_evidence_of_both() -> None:
    first = view("telco", torch.arange(6), torch.tensor([0, 1, 0, 1, 0, 1]))
    other = view("shop", torch.arange(2, 8), torch.tensor([0, 0, 1, 1, 0, 1]))
    sent = pool_views("both", [first, other]).sent
    assert sent is not None
    assert sent.rows.tolist() == [2, 3, 4, 5]
    assert sent.labels.tolist() == [0, 1, 0, 1]
    both = sent.evidence + sent.scores
    assert both.flatten().tolist() == pytest.approx([-2 * EPSILON, 0.0, 0.0, 2 * EPSILON])


def test_partners_without_a_row_in_common_pool_no_labels() -> None:
    first, other = (
        view(name, rows, torch.ones(3, dtype=torch.int64))
        for name, rows in (("a", torch.arange(3)), ("b", 3 + torch.arange(3)))
    )
    assert pool_views("both", [first, other]).sent is None
