from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score, roc_curve

from cutlayer.attacks.catalogue import Membership
from cutlayer.attacks.feature.membership import row_signals
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Knowledge, Shadows
from cutlayer.attacks.label.base import Scores
from cutlayer.audit.features.measures import measure_membership
from cutlayer.errors import NotApplicable
from cutlayer.problem.metrics.roc import true_positive_rate
from cutlayer.problem.task import Task

ABOUT = {"run": "this run", "party": "telco", "attack": "membership", "release": "toy", "known": 0, "rows": 0}
BINARY = Task("binary", ("no", "yes"))


def view(rows: torch.Tensor, off: torch.Tensor, draw: torch.Generator) -> FeatureView:
    """Rows whose label is given the more odds the more members they are."""
    labels = torch.randint(0, 2, (len(rows),), generator=draw)
    odds = (1 + off + torch.randn(len(rows), generator=draw)) * (2 * labels - 1)
    return FeatureView("telco", rows, torch.randn(len(rows), 3, generator=draw), odds[:, None].float(), labels)


def world(gap: float) -> tuple[FeatureView, Shadows, torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    member = torch.arange(600) < 300

    def train(inside: torch.Tensor, number: int):
        own = torch.Generator().manual_seed(number)
        return lambda rows: view(rows, gap * torch.isin(rows, inside), own)

    return view(torch.arange(600), gap * member, draw), Shadows(BINARY, torch.arange(600, 1600), train, 300), member


@pytest.mark.parametrize(("gap", "expected"), [(2.0, 0.921), (0.0, 0.5)])  # 0.921 = Phi(2 / sqrt 2)
def test_the_likelihood_of_two_normals_is_told_apart_as_well_as_can_be(gap: float, expected: float) -> None:
    seen, shadows, member = world(gap)
    scores = Membership()(seen, Knowledge(shadow_rows=shadows))
    found = measure_membership(scores, member, ABOUT)
    assert found.value == pytest.approx(expected, abs=0.05)
    assert found.value == pytest.approx(roc_auc_score(member.numpy(), scores.values.numpy()))
    assert found.metrics["accuracy"] == pytest.approx(float((scores.hard == member).double().mean()))
    assert found.gains == (gap > 0)


@pytest.mark.parametrize("ties", [False, True])
def test_the_rate_at_few_false_positives_is_that_of_the_roc_curve(ties: bool) -> None:
    draw = np.random.default_rng(1)
    truth = draw.integers(0, 2, 500).astype(bool)
    scores = draw.normal(size=500) + truth
    scores = np.round(scores, 1) if ties else scores
    fpr, tpr, _ = roc_curve(truth, scores, drop_intermediate=False)
    for most in (0.0, 0.01, 0.1, 1.0):
        assert true_positive_rate(scores, truth, most) == pytest.approx(tpr[fpr <= most].max())
    assert np.isnan(true_positive_rate(scores, np.ones(500, bool)))


def test_the_figures_of_a_row_do_not_depend_on_the_models_coordinates() -> None:
    draw = torch.Generator().manual_seed(5)
    seen = FeatureView(
        "telco",
        torch.arange(40),
        torch.randn(40, 4, generator=draw),
        torch.randn(40, 3, generator=draw),
        torch.randint(0, 3, (40,), generator=draw),
    )
    turn = torch.linalg.qr(torch.randn(4, 4, generator=draw)).Q
    task = Task("multiclass", ("a", "b", "c"))
    other = replace(seen, embeddings=seen.embeddings @ turn, logits=seen.logits + 2)
    figures, turned = row_signals(seen, task), row_signals(other, task)
    assert torch.allclose(figures, turned, atol=1e-5)
    loss = torch.nn.functional.cross_entropy(seen.logits.double(), seen.labels, reduction="none")
    assert torch.allclose(figures[:, 0], loss)
    values = Task("regression", (), 2.0, 4.0)
    exact = FeatureView(
        "telco", torch.arange(2), torch.zeros(2, 1), torch.tensor([[0.5], [0.0]]), torch.tensor([4.0, 6.0])
    )
    assert row_signals(exact, values)[:, 0].tolist() == pytest.approx([0.0, -1.0])


def test_what_it_cannot_do_without() -> None:
    seen, shadows, _ = world(1.0)
    with pytest.raises(NotApplicable, match="logits and labels of the rows for membership"):
        Membership()(replace(seen, logits=None), Knowledge(shadow_rows=shadows))
    with pytest.raises(NotApplicable, match="not attacked"):
        Membership()(seen, Knowledge(shadow_rows=replace(shadows, rows=torch.arange(590, 1600))))


def test_scores_are_held_against_the_row_that_they_are_of() -> None:
    scores = Scores(torch.tensor([900, 7, 30]), torch.tensor([3.0, 2.0, 1.0]), torch.zeros(3, dtype=torch.int64), None)
    found = measure_membership(scores, torch.tensor([True, True, False]), ABOUT)
    assert found.value == 1.0
