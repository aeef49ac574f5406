"""The live attacks on binary labels against their formulas, on batches small enough to see through."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from cutlayer.attacks import REGISTRY, Attack, FeatureAttack, column_attacks, resolve, skipped_attacks
from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label import direction, norm, spectral
from cutlayer.attacks.label.base import LabelView, Target, is_finite
from cutlayer.channel.transcript import Step
from cutlayer.errors import ConfigError, NotApplicable
from cutlayer.problem.metrics.roc import roc_auc
from cutlayer.problem.task import Task

BINARY = Task("binary", ("no", "yes"))
GRADIENT, EMBEDDING, LAYER = Target.GRADIENT, Target.EMBEDDING, Target.LAYER


def view_of(*batches, target=GRADIENT):
    steps, start = [], 0
    for number, batch in enumerate(batches):
        rows = torch.arange(start, start + len(batch))
        kind = "embeddings" if target is EMBEDDING else "gradients"
        steps.append(Step(0, number, rows, **{kind: {"telco": batch}}))
        start += len(batch)
    return LabelView("telco", BINARY, steps, target)


def planted(n=2000, share=0.25, gap=3.0, d=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    truth = torch.rand(n, generator=generator) < share
    x = torch.randn(n, d, generator=generator)
    x[:, 3] += gap * truth
    return x, truth


def test_norm_scores_are_norms_and_hard_labels_the_top_share():
    g = torch.tensor([[3.0, 4.0], [0.0, 1.0], [0.0, 0.0], [2.0, 0.0]])
    guess = norm.guess(g[None], 0.5).of_step(0)
    assert guess.values.tolist() == [5.0, 1.0, 0.0, 2.0]
    assert guess.hard.tolist() == [True, False, False, True]


def test_norm_is_reversed_where_positives_are_the_majority():
    guess = norm.guess(torch.tensor([[[3.0, 4.0], [0.0, 1.0], [0.0, 0.0], [2.0, 0.0]]]), 0.63).of_step(0)
    assert guess.values.tolist() == [-5.0, -1.0, 0.0, -2.0]
    assert guess.hard.tolist() == [False, True, True, True]


def test_norm_of_tiny_gradients_does_not_vanish():
    guess = norm.guess(torch.tensor([[[1e-30, 0.0], [2e-30, 0.0], [3e-30, 0.0]]]), 0.3).of_step(0)
    assert guess.hard.tolist() == [False, False, True]
    assert guess.values.tolist() == pytest.approx([1e-30, 2e-30, 3e-30], rel=1e-6)


@pytest.mark.parametrize("share", [1e-9, 1 - 1e-9])
def test_norm_takes_an_extreme_share(share):
    assert norm.guess(torch.eye(3)[None], share).hard.all()


def test_direction_is_the_cosine_to_the_known_positive_which_is_not_scored():
    g = torch.tensor([[1.0, 0.0], [3.0, 4.0], [-2.0, 0.0], [0.0, 0.0], [0.0, 5.0]])
    scores = resolve(["direction"], "binary").labels[0](view_of(g), Knowledge(known={0: 1}))
    assert scores.rows.tolist() == [1, 2, 3, 4]
    assert scores.values.tolist() == pytest.approx([0.6, -1.0, 0.0, 0.0], abs=1e-7)
    assert scores.hard is None


def test_direction_leaves_out_every_known_row_and_skips_a_known_zero():
    g = torch.tensor([[0.0, 0.0], [1.0, 1.0], [-1.0, -1.0], [2.0, 2.0]])
    scores = direction.Direction()(view_of(g), Knowledge(known={0: 1, 1: 1, 2: 0}))
    assert scores.rows.tolist() == [3]
    assert scores.values.tolist() == pytest.approx([1.0])


def test_direction_leaves_out_batches_without_a_known_positive():
    first, second = torch.eye(3), 2 * torch.eye(3)
    scores = direction.Direction()(view_of(first, second), Knowledge(known={4: 1, 0: 0}))
    assert scores.batch.tolist() == [1, 1]
    assert scores.rows.tolist() == [3, 5]
    with pytest.raises(NotApplicable, match="a sampled step with what the attack needs"):
        direction.Direction()(view_of(first), Knowledge(known={99: 1}))


@pytest.mark.parametrize("attack", [norm.Norm, spectral.Spectral])
def test_gradients_that_are_all_zero_are_named_as_the_reason(attack):
    with pytest.raises(NotApplicable, match="gradient messages that are finite and not all zero"):
        attack()(view_of(torch.zeros(4, 2), torch.zeros(4, 2)), Knowledge(0.25))


def test_direction_of_tiny_gradients_does_not_vanish():
    g = torch.tensor([[1.0, 0.0], [3.0, 4.0], [-2.0, 0.0]]) * 1e-30
    cosines = direction.guess(g, 0, torch.tensor([True, False, False])).values
    assert cosines[1:].tolist() == pytest.approx([0.6, -1.0], abs=1e-6)
    assert bool(cosines[0].isnan())


@pytest.mark.parametrize("share", [0.1, 0.4, 0.6, 0.9])
@pytest.mark.parametrize("sign", [1, -1])
def test_spectral_turns_the_projection_so_that_positives_are_higher(share, sign):
    x, truth = planted(share=share, gap=6.0)
    guess = spectral.guess((sign * x)[None], share).of_step(0)
    assert roc_auc(guess.values, truth) > 0.99
    assert roc_auc(guess.hard.double(), truth) > 0.95


def test_spectral_follows_numpy_and_scikit_learn():
    x, _ = planted(gap=4.0)
    array = x.double().numpy()
    array = array - array.mean(0)
    s = array @ np.linalg.svd(array, full_matrices=False)[2][0]
    fitted = KMeans(2, n_init=10, random_state=0).fit_predict(s[:, None])
    positive = fitted if abs(fitted.mean() - 0.25) < abs(1 - fitted.mean() - 0.25) else 1 - fitted
    s *= np.sign(s[positive == 1].mean() - s[positive == 0].mean())
    guess = spectral.guess(x[None], 0.25).of_step(0)
    np.testing.assert_allclose(guess.values.numpy(), s, atol=1e-3)
    np.testing.assert_allclose(guess.also["absolute"].numpy(), np.abs(s), atol=1e-3)
    assert (guess.hard.numpy() == (positive == 1)).mean() > 0.999


@pytest.mark.parametrize(
    ("known_share", "by_size"),
    [(0.494, True), (0.495, False), (0.5, False), (0.505, False), (0.506, True)],
)
def test_spectral_near_balance_takes_the_cluster_farther_out(known_share, by_size):
    """60 rows at -1 and 40 at 1.5: the smaller cluster is farther from the mean."""
    x = torch.cat([torch.full((60, 1), -1.0), torch.full((40, 1), 1.5)])
    upper_is_positive = spectral.guess(x[None], known_share).values[0, -1] > 0
    fits_by_size = abs(0.4 - known_share) <= abs(0.6 - known_share)
    assert bool(upper_is_positive) == (fits_by_size if by_size else True)


def test_spectral_near_balance_with_the_far_cluster_below():
    x = torch.cat([torch.full((60, 1), 1.0), torch.full((40, 1), -1.5)])
    assert float(spectral.guess(x[None], 0.5).values[0, -1]) > 0
    assert float(spectral.guess(x[None], 0.506).values[0, -1]) < 0


def test_spectral_of_equal_rows_is_all_zero():
    guess = spectral.guess(torch.full((1, 50, 4), 0.3), 0.2).of_step(0)
    assert guess.values.unique().tolist() == [0.0]
    assert not guess.hard.any()


@pytest.mark.parametrize("target", [GRADIENT, EMBEDDING])
def test_spectral_reads_gradients_and_embeddings(target):
    x, truth = planted(gap=4.0)
    scores = spectral.Spectral()(view_of(x, target=target), Knowledge(0.25))
    assert roc_auc(scores.values, truth[scores.rows]) > 0.97


def test_spectral_reads_feature_maps_of_a_layer():
    x, truth = planted(n=600, gap=8.0, d=12)
    step = Step(0, 0, torch.arange(600), layers={"conv": x.reshape(600, 3, 2, 2)})
    scores = spectral.Spectral()(LabelView("telco", BINARY, [step], LAYER, "conv"), Knowledge(0.25))
    assert roc_auc(scores.values, truth) > 0.99


def test_spectral_keeps_the_units_of_the_message():
    """Pooled scores of two batches compare only if no batch was rescaled."""
    x, _ = planted(n=500)
    scores = spectral.Spectral()(view_of(x, 10 * x), Knowledge(0.25))
    torch.testing.assert_close(scores.values[500:], 10 * scores.values[:500], rtol=1e-4, atol=1e-4)


def test_a_step_that_is_not_finite_is_left_out():
    good, bad = torch.eye(3), torch.eye(3)
    bad[1, 1] = float("inf")
    scores = norm.Norm()(view_of(bad, good), Knowledge(0.3))
    assert scores.batch.tolist() == [1, 1, 1]
    assert is_finite(torch.zeros(0, 3))
    assert not is_finite(torch.tensor([[0.0, float("nan")]]))


def test_knowledge_finds_its_rows():
    knowledge = Knowledge(0.2, {7: 1, 3: 0, 5: 1})
    rows = torch.tensor([5, 9, 3, 7, 1])
    assert knowledge.positives_among(rows) == [0, 3]
    assert knowledge.known_among(rows).tolist() == [True, False, True, True, False]
    assert knowledge.held() == set(Need) - {
        Need.AUXILIARY_FEATURES,
        Need.INITIAL_WEIGHTS,
        Need.SIMULATOR,
        Need.SHADOW_ROWS,
        Need.CANDIDATE_ROWS,
        Need.OTHER_ROWS,
    }
    assert Knowledge(known={5: 1}).held() == {Need.KNOWN_POSITIVE, Need.HINTS, Need.FEW_LABELS}
    assert Knowledge(class_shares=(0.2, 0.3, 0.5)).held() == {Need.CLASS_SHARES}
    assert knowledge.shares == (0.8, 0.2)
    assert Knowledge().positives_among(rows) == []
    assert Knowledge(known={3: 0}).held() == {Need.FEW_LABELS}
    with pytest.raises(NotApplicable, match="share of positive rows"):
        _ = Knowledge().share
    with pytest.raises(NotApplicable, match="share of each class"):
        _ = Knowledge().shares


def names_of(attacks):
    return [attack.name for attack in attacks]


def taken(names, kind, family="labels"):
    """Of the attacks that are named below; others may be registered too."""
    listed = {*MESSAGES, *WHOLE_RUN, *KNOWN, *UNNAMED, "self_training", "regression_labels"}
    return [name for name in names_of(getattr(resolve(names, kind), family)) if name in listed]


MESSAGES = ("norm", "direction", "spectral")
WHOLE_RUN = ("directions", "joint_spectral", "mixture", "off_norm", "mean_length", "message_size", "sign_changes",
             "bilinear", "aligned_match")  # fmt: skip
KNOWN = ("feature_prior", "co_training", "drawn_labels", "few_labels", "mean_gradient", "similarity")
UNNAMED = ("hint", "direct", "gradient_match", "probe", "exploit", "strong_probe", "model_completion",
           "active_model_completion")  # fmt: skip
"""Attacks that `auto` leaves out of a binary task."""


def test_auto_takes_what_fits_the_task():
    assert taken("auto", "binary") == [*MESSAGES]
    assert taken("auto", "multiclass") == ["spectral"]
    assert taken("auto", "regression") == []
    expected = ["few_labels", "mean_gradient", "self_training", "strong_probe", "regression_labels"]
    assert taken("auto", "regression", "histories") == expected
    assert taken("quick", "regression", "histories") == ["few_labels", "mean_gradient", "regression_labels"]
    assert {"self_training", "strong_probe"} <= {*skipped_attacks("quick", "regression")}
    assert "self_training" in skipped_attacks("quick", "multiclass")
    assert taken("auto", "binary", "histories") == [*WHOLE_RUN, *KNOWN]
    several = ["few_labels", "mean_gradient", "self_training", "similarity"]
    assert taken("auto", "multiclass", "histories") == several
    assert skipped_attacks("auto", "binary") == ()
    assert {"spectral", *several} <= {*skipped_attacks(["norm", "probe"], "multiclass")}


def test_auto_takes_what_says_so_of_itself():
    for kind in ("binary", "multiclass", "regression"):
        found = resolve("auto", kind)
        names = {*names_of(found.labels), *names_of(found.histories)}
        names |= {*names_of(resolve("auto", kind, "passive").features)}
        assert names == {name for name, attack in REGISTRY.items() if attack.in_auto(kind)}
        assert not found.completions
        assert not found.features  # the active party audits its labels


def test_full_takes_what_takes_longer_too():
    assert taken("full", "binary") == ["norm", "direction", "hint", "spectral", "gradient_match", "probe"]
    thorough = {*taken("full", "binary", "histories")} - {*taken("auto", "binary", "histories")}
    assert thorough == {"exploit", "strong_probe"}
    assert (resolve("full", "binary").completions, skipped_attacks("full", "binary")) == ((), ())


def test_what_auto_leaves_out_runs_when_named():
    found = resolve(UNNAMED, "binary")
    assert [*UNNAMED] == names_of([*found.labels, *found.histories, *found.completions])
    features = [name for name, attack in REGISTRY.items() if issubclass(attack, FeatureAttack)]
    assert names_of(resolve(features, "regression", "passive").features) == features
    live = ["lattice", "two_valued", "components", "naming"]
    assert names_of(resolve("auto", "binary", "passive").features) == live
    assert resolve([], "binary", "passive").features == ()


def test_columns_are_measured_by_inversion_and_what_is_attacked_by_default(monkeypatch):
    by_default = tuple(attack.name for attack in resolve("auto", "binary", "passive").features)
    assert column_attacks("binary", once=False) == ("inversion",)
    assert column_attacks("binary", once=True) == ("inversion", *by_default)
    monkeypatch.setattr(REGISTRY["exact"], "live", True)
    assert {*column_attacks("binary", once=True)} == {"inversion", "exact", *by_default}
    assert column_attacks("binary", once=False) == ("inversion",)


def test_names_keep_their_order():
    assert names_of(resolve(("spectral", "norm"), "binary").labels) == ["spectral", "norm"]
    assert resolve([], "binary").labels == ()


@pytest.mark.parametrize("role", ["active", "passive"])
def test_an_attack_of_no_family_is_refused_and_does_not_vanish(role, monkeypatch):
    class Stray(Attack):
        name, tasks = "stray", frozenset({"binary"})

        def run(self, view, knowledge):
            return None

    monkeypatch.setitem(REGISTRY, "stray", Stray)
    with pytest.raises(ConfigError, match="stray of a family that an audit runs"):
        resolve(["stray"], "binary", role)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["nrom"], r"unknown attack 'nrom'; did you mean 'norm'\?"),
        (
            ["xyz"],
            "known: active_model_completion, aligned_match, attribute, best_guess, bilinear, co_training",
        ),
        (["norm", "norm"], "norm is named twice"),
        ("norm", r"auto, full or a list of names, got 'norm'; write \[norm\]"),
    ],
)
def test_bad_names_are_refused(names, message):
    with pytest.raises(ConfigError, match=message):
        resolve(names, "binary")


def test_a_named_attack_that_does_not_fit_the_task_says_so():
    with pytest.raises(NotApplicable, match="expected a task of kind binary for the attack norm, got regression"):
        resolve(["norm"], "regression")
