from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import norm

from cutlayer.attacks.catalogue import Membership
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Knowledge, Shadows
from cutlayer.problem.metrics.roc import roc_auc
from cutlayer.problem.task import Task
from cutlayer_published.attacks.lira import PRIOR_ROWS, Confidences, Lira, confidence, log_density, statistics
from cutlayer_published.attacks.lira import shadow_confidences as train_pairs

BINARY = Task("binary", ("no", "yes"))
ATTACKED = torch.arange(600)
MEMBER = ATTACKED < 300


def world(gap: float) -> tuple[FeatureView, Shadows]:
    """Rows of very different difficulty, whose log odds are `gap` higher, with unit noise, in training."""
    difficulty = 5 * torch.randn(1600, generator=torch.Generator().manual_seed(1))
    labels = torch.randint(0, 2, (1600,), generator=torch.Generator().manual_seed(2))

    def view(rows: torch.Tensor, member: torch.Tensor, seed: int) -> FeatureView:
        noise = torch.randn(len(rows), generator=torch.Generator().manual_seed(seed))
        odds = (difficulty[rows] + gap * member + noise) * (2 * labels[rows] - 1)
        return FeatureView("telco", rows, torch.zeros(len(rows), 2), odds[:, None], labels[rows])

    def train(inside: torch.Tensor, number: int):
        return lambda rows: view(rows, torch.isin(rows, inside), number)

    return view(ATTACKED, MEMBER, 99), Shadows(BINARY, torch.arange(600, 1600), train, 700)


def test_rows_of_different_difficulty_are_told_apart_where_one_threshold_for_all_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cutlayer_published.attacks.lira.TREES", 30)
    seen, shadows = world(2.0)
    knowledge = Knowledge(shadow_rows=shadows)
    assert roc_auc(Lira()(seen, knowledge).values, MEMBER) > 0.85  # at best Phi(2 / sqrt 2) = 0.921, means known
    assert roc_auc(Membership()(seen, knowledge).values, MEMBER) < 0.7
    seen, shadows = world(0.0)
    assert roc_auc(Lira()(seen, Knowledge(shadow_rows=shadows)).values, MEMBER) == pytest.approx(0.5, abs=0.07)


def test_each_attacked_row_is_in_one_model_of_a_pair_and_models_have_the_real_number_of_rows() -> None:
    _, shadows = world(1.0)
    sizes = []

    def train(inside: torch.Tensor, number: int):
        sizes.append((len(inside), int((inside < 600).sum()), len(inside.unique())))
        return shadows.train(inside, number)

    drawn = train_pairs(ATTACKED, Shadows(BINARY, shadows.rows, train, 700))
    assert sizes == [(700, 300, 700)] * 16
    assert bool((drawn.inside[::2] ^ drawn.inside[1::2]).all())
    others = drawn.without(3)
    assert torch.equal(others.values, torch.cat([drawn.values[:6], drawn.values[8:]]))
    few = train_pairs(ATTACKED, Shadows(BINARY, shadows.rows, train, 100))
    assert few.inside.shape == (16, 600)
    assert sizes[16] == (300, 300, 300)


def test_the_ratio_is_that_of_two_normal_densities_with_shrunk_variances() -> None:
    draw = torch.Generator().manual_seed(4)
    drawn = torch.randn(8, 50, generator=draw, dtype=torch.float64) * torch.linspace(0.5, 2, 50)
    inside = torch.stack([torch.arange(50) % 2 == model % 2 for model in range(8)])
    values = torch.randn(50, generator=draw, dtype=torch.float64)
    found = statistics(values, Confidences(drawn, inside))
    logs, means, x = [], [], values.numpy()
    for chosen in (inside, ~inside):
        parts = [drawn[chosen[:, row], row].numpy() for row in range(50)]
        means.append(np.array([part.mean() for part in parts]))
        variances = np.array([part.var(ddof=1) for part in parts])
        shrunk = (3 * variances + PRIOR_ROWS * variances.mean()) / (3 + PRIOR_ROWS)
        logs.append(norm.logpdf(x, means[-1], np.sqrt(shrunk)))
    wanted = [logs[0] - logs[1], x, *means, x - means[0], x - means[1]]
    np.testing.assert_allclose(found.numpy(), np.stack(wanted, axis=1), rtol=1e-9)


def test_equal_draws_give_a_finite_density() -> None:
    same = torch.ones(2, 3, dtype=torch.float64)
    assert bool(log_density(same[0], same, same.bool())[0].isfinite().all())


def test_the_confidence_is_the_scaled_probability_of_the_label() -> None:
    draw = torch.Generator().manual_seed(5)
    for outputs, task in ((1, BINARY), (4, Task("multiclass", ("a", "b", "c", "d")))):
        logits = torch.randn(30, outputs, generator=draw)
        labels = torch.randint(0, max(outputs, 2), (30,), generator=draw)
        scores = logits if outputs > 1 else torch.cat([torch.zeros(30, 1), logits], dim=1)
        p = scores.double().softmax(dim=1)[torch.arange(30), labels]
        seen = FeatureView("telco", torch.arange(30), torch.zeros(30, 1), logits, labels)
        torch.testing.assert_close(confidence(seen, task), (p / (1 - p)).log())
    values = FeatureView(
        "telco", torch.arange(2), torch.zeros(2, 1), torch.tensor([[0.5], [0.0]]), torch.tensor([4.0, 6.0])
    )
    assert confidence(values, Task("regression", (), 2.0, 4.0)).tolist() == pytest.approx([0.0, -1.0])
