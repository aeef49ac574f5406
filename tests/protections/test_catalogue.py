"""Label DP and max norm alignment inside the hooks: formulas, evidence, guarantees."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from cutlayer.accounting import NoFormalGuarantee, RandomizedResponse, ReleasePlan
from cutlayer.errors import ConfigError
from cutlayer.jobs.check import check_job
from cutlayer.kernels.noise.randomized_response import transition_matrix
from cutlayer.kernels.rows.row_norms import row_norms
from cutlayer.problem.task import Task
from cutlayer.protections import build
from cutlayer.protections.contract.base import Asset, Context, Protection, Side
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.contract.keyed_noise import Noise
from cutlayer.protections.contract.views import ActiveView, Mode
from cutlayer.protections.max_norm import MaxNormConfig
from tests.parties.runs import make_job

ROWS = 20_000


def context(classes=2, kind=None, **other):
    kind = kind or ("binary" if classes == 2 else "multiclass")
    base = Context(
        party="bank",
        peers=("telco",),
        widths={"telco": 4},
        task=Task(kind, tuple("abcdefghij"[:classes])),
        labels=None,
        training=torch.arange(ROWS),
        secret=bytes(range(32)),
        noise=Noise(bytes(range(32))),
        label_column="default",
    )
    return replace(base, **other)


def ids():
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (ROWS, 16), dtype=np.uint8))


def label_dp(eps, **kwargs):
    protection = build("label_dp", {"eps": eps}, "privacy")
    protection.setup(context(**kwargs))
    return protection


def view(step=0, n=8):
    return ActiveView(Mode.TRAIN, 0, step, torch.arange(n), torch.zeros(n), {})


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_label_dp_flips_as_often_as_it_says(classes):
    y = torch.randint(0, classes, (ROWS,), generator=torch.Generator().manual_seed(1))
    protection = label_dp(1.0, classes=classes)
    drawn = protection.labels(y, ids())
    probability = (classes - 1) / (classes - 1 + math.e)
    metrics = protection.metrics()
    low, high = stats.binom.interval(1 - 1e-6, ROWS, probability)
    assert low <= int((drawn != y).sum()) <= high
    assert metrics["labels_flipped"] == int((drawn != y).sum())
    assert metrics["flipped_share"] == metrics["labels_flipped"] / ROWS
    assert metrics["expected_share"] == pytest.approx(probability)
    assert protection.event(ReleasePlan(training=2)) == RandomizedResponse(eps=1.0, classes=classes, draws=1)


@pytest.mark.parametrize("classes", [2, 5])
def test_label_dp_states_the_matrix_of_its_draws_unless_it_is_not_to_correct(classes):
    chain = Chain("bank", [build("label_dp", {"eps": 1.0}, "privacy"), build("max_norm", {}, "privacy")])
    chain.setup(context(classes))
    torch.testing.assert_close(chain.transition, transition_matrix(1.0, classes))
    plain = Chain("bank", [build("label_dp", {"eps": 1.0, "correction": "none"}, "privacy")])
    plain.setup(context(classes))
    assert plain.transition is None
    assert Chain("bank", []).transition is None


def test_matrices_of_several_protections_of_labels_are_multiplied_in_their_order():
    steps = [torch.tensor([[0.9, 0.1], [0.3, 0.7]]), None, torch.tensor([[1.0, 0.0], [0.5, 0.5]])]

    class Drawing(Protection):
        name, config, side, protects, reference = "drawing", MaxNormConfig, Side.ACTIVE, Asset.LABELS, ""
        no_guarantee = "a test"

        def __init__(self, step):
            super().__init__(MaxNormConfig())
            self.rank, self.name, self.step = step, f"drawing {step}", steps[step]

        def labels(self, y, ids):
            return y

        @property
        def transition(self):
            return self.step

    drawn = Chain("bank", [Drawing(step) for step in (2, 0, 1)]).transition
    torch.testing.assert_close(drawn, steps[0] @ steps[2])


def test_label_dp_draws_the_same_in_the_next_run_and_another_on_another_secret_or_column():
    y = torch.zeros(ROWS, dtype=torch.int64)
    first = label_dp(1.0).labels(y, ids())
    assert torch.equal(label_dp(1.0).labels(y, ids()), first)
    for other in ({"secret": bytes(32)}, {"label_column": "income"}):
        assert not torch.equal(label_dp(1.0, **other).labels(y, ids()), first)


def test_label_dp_at_zero_is_a_coin_flip_and_says_so():
    with pytest.warns(UserWarning, match="coin flip") as caught:
        protection = label_dp(0)
    protection.setup(context())
    assert len(caught) == 1
    y = torch.zeros(ROWS, dtype=torch.int64)
    assert abs(float(protection.labels(y, ids()).double().mean()) - 0.5) < 0.02


def test_label_dp_refuses_a_regression_without_partners_that_grade_rows():
    with pytest.raises(ConfigError, match="label_dp on a task of kind binary or multiclass, got regression"):
        check_job(make_job("regression", privacy={"label_dp": {"eps": 1.0}}))


def test_label_dp_before_any_label_has_finite_metrics():
    assert label_dp(1.0).metrics()["flipped_share"] == 0


def max_norm(form="once", **kwargs):
    protection = build("max_norm", {"form": form}, "privacy")
    protection.setup(context(**kwargs))
    return protection


def test_max_norm_gives_every_row_the_longest_norm_and_keeps_the_mean():
    protection = max_norm("paper")
    g = torch.tensor([[3.0, 4.0], [0.3, -0.4], [-1.0, 0.0]])
    tall = g.repeat(200, 1)  # many draws in one call; the longest norm is that of the three rows
    steps = [protection.gradient_out(tall, "telco", view(step, n=len(tall))) for step in range(40)]
    sent = torch.cat(steps).reshape(8000, 3, 2).double()
    squares = (sent**2).sum(2)
    error = squares.std(0) / 8000**0.5
    assert bool(((squares.mean(0) - 25).abs()[1:] < 4 * error[1:]).all())
    for wrong in (2 / 3, 3 / 2):
        off = (wrong * (sent - g) + g).pow(2).sum(2)
        assert bool(((off.mean(0) - 25).abs()[1:] > 8 * off.std(0)[1:] / 8000**0.5).all())
    assert bool(((sent.mean(0) - g).norm(dim=1)[1:] < 4 * (sent.var(0).sum(1) / 8000).sqrt()[1:]).all())
    assert torch.equal(sent[0, 0], g[0].double())


def test_max_norm_noise_differs_by_step_and_peer_and_repeats_otherwise():
    g = torch.randn(50, 4, generator=torch.Generator().manual_seed(3))
    first = max_norm("paper").gradient_out(g, "telco", view(5))
    assert torch.equal(max_norm("paper").gradient_out(g.clone(), "telco", view(5)), first)
    assert not torch.equal(max_norm("paper").gradient_out(g, "telco", view(6)), first)
    assert not torch.equal(max_norm("paper").gradient_out(g, "shop", view(5)), first)
    assert not torch.equal(max_norm("paper", noise=Noise(bytes(32))).gradient_out(g, "telco", view(5)), first)


def test_max_norm_hides_zero_rows_and_counts_them():
    protection = max_norm()
    g = torch.zeros(6, 3)
    g[2], g[4] = torch.tensor([0.0, 2.0, 0.0]), torch.tensor([1.0, 0.0, 0.0])
    sent = protection.gradient_out(g, "telco", view(n=6))
    zero = [0, 1, 3, 5]
    torch.testing.assert_close(row_norms(sent)[zero], torch.full((4,), 2.0, dtype=torch.float64), rtol=1e-6, atol=0)
    assert len(sent[zero].unique(dim=0)) == 4
    assert protection.metrics() == {
        "rows": 6,
        "rows_perturbed": 5,
        "zero_norm_rows": 4,
        "rows_shortened": 0,
        "rows_withheld": 0,
        "mean_norm_share": pytest.approx(3 / 6 / 2),
    }


def test_max_norm_leaves_a_batch_of_zeros_and_promises_nothing():
    protection = max_norm()
    g = torch.zeros(6, 3)
    assert torch.equal(protection.gradient_out(g, "telco", view()), g)
    assert protection.metrics()["rows_perturbed"] == 0
    assert isinstance(protection.event(ReleasePlan(training=2)), NoFormalGuarantee)


def test_max_norm_takes_a_single_class_task_of_any_kind():
    for kind in ("binary", "multiclass", "regression"):
        max_norm(kind=kind)
