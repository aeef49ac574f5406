"""The published rescaling against NumPy, the adjusting against what it is made of, and both after a resume."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist
from scipy.stats import norm

from cutlayer.accounting import NoFormalGuarantee, ReleasePlan
from cutlayer.consent import allowed
from cutlayer.errors import ConfigError
from cutlayer.protections import build_chain
from cutlayer.protections.contract.views import Mode, PassiveView
from cutlayer.testing import check_protection
from cutlayer_published.embedding.adjust import AdjustConfig
from cutlayer_published.embedding.contrastive import contrastive_loss
from cutlayer_published.embedding.fuzzy_c_means import fuzzy_c_means
from cutlayer_published.embedding.protection import AdaptiveEmbedding
from cutlayer_published.embedding.rescale import EstimateConfig
from studies.embedding_noise import ADAPTIVE
from tests.protections.setup import protection, resume, saved

N, WIDTH, CLIP, TAIL = 60, 8, 1.5, 0.05
QUIET = {"clip": CLIP, "noise_multiplier": 1e-12}
ESTIMATE = {"tail": TAIL, "rows": 4000, "every": 3, "weight": 0.5}
PAPER = {**QUIET, "estimate": ESTIMATE}
TABLE = torch.randn(100, WIDTH, generator=torch.Generator().manual_seed(4)) * 0.8


def passive(options):
    with allowed("cutlayer_published"):
        return protection(ADAPTIVE, options, task=None, party="telco", peers=("bank",))


def seen(step=0, mode=Mode.TRAIN, factor=1.0, **other):
    """Rows of the table, embedded as themselves times a factor; with 4,000 draws the sampled batch is all 100 rows."""
    return PassiveView(mode, 0, step, torch.arange(N), lambda some: factor * TABLE[some], **other)


def clipped(rows):
    rows = np.asarray(rows, dtype=np.float64)
    return rows * np.minimum(1, CLIP / np.linalg.norm(rows, axis=1, keepdims=True))


def factor_of(rows):
    """Equations 4 and 5: 2C over the quantile of the normal that the sampled distances are taken for."""
    distances = pdist(clipped(rows))
    return 2 * CLIP / (distances.mean() + norm.ppf(1 - TAIL) * distances.std())


def test_the_papers_factor_is_that_of_numpy():
    e = TABLE[:N]
    released = passive(PAPER).embedding_out(e, seen())
    assert np.allclose(released.numpy(), clipped(e) * factor_of(TABLE), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("per", "words"), [("run", "for the run's together"), ("release", "for one release")])
def test_what_the_authors_claim_is_stated_for_what_they_claim_it(per, words):
    options = {"clip": CLIP, "epsilon": 2.0, "delta": 1e-5, "per": per, "estimate": {}}
    event = passive(options).event(ReleasePlan(training=3))
    assert isinstance(event, NoFormalGuarantee)
    assert "estimated from other rows" in event.why
    assert event.why.endswith(f"; its authors claim epsilon 2 at delta 0.01001 {words}")


def test_no_budget_counts_an_estimated_scale():
    options = {"clip": CLIP, "epsilon": 2.0, "delta": 1e-5, "estimate": {}}
    with allowed("cutlayer_published"):
        chain = build_chain("telco", "passive", {ADAPTIVE: options, "budget": {"epsilon": 8.0}}, "p")
    with pytest.raises(ConfigError, match="whose cost can be counted"):
        chain.account(ReleasePlan(training=3))


@pytest.mark.parametrize(
    ("terms", "plan", "message"),
    [
        ({"adjust": {"classes": 2}}, ReleasePlan(1, 1, 1, once=True), "one release"),
        ({"adjust": {"classes": 2}}, ReleasePlan(3, bottom="private"), "adjust of .* without dp_bottom"),
        ({"estimate": {}}, ReleasePlan(3, bottom="private"), "estimate of .* without dp_bottom"),
    ],
)
def test_terms_without_a_gradient_of_each_row_are_refused(terms, plan, message):
    """Before the run: once it had begun, rows of the first batch were released."""
    with pytest.raises(ConfigError, match=message):
        passive({**QUIET, "noise_multiplier": 1.0, **terms}).event(plan)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimate": {"tail": 1.0}}, r"estimate\.tail: expected less than 1"),
        ({"estimate": {"rows": 1}}, r"estimate\.rows: expected"),
        ({"estimate": {"every": 0}}, r"estimate\.every: expected"),
        ({"estimate": {"weight": -1e-9}}, r"estimate\.weight: expected"),
        ({"adjust": {}}, r"adjust\.classes: missing"),
        ({"adjust": {"classes": 1}}, r"adjust\.classes: expected"),
        ({"adjust": {"classes": 2, "threshold": 1.0}}, r"adjust\.threshold: expected less than 1"),
        ({"adjust": {"classes": 2, "temperature": 0.0}}, r"adjust\.temperature: expected greater than 0"),
        ({"adjust": {"classes": 2, "fuzzifier": 1.0}}, r"adjust\.fuzzifier: expected"),
        ({"adjust": {"classes": 2, "rounds": 0}}, r"adjust\.rounds: expected"),
        ({"adjust": {"classes": 2, "stop": 1.0}}, r"adjust\.stop: expected"),
    ],
)
def test_bad_options_are_errors(options, message):
    with pytest.raises(ConfigError, match=message):
        passive({**QUIET, **options})


def test_the_defaults_are_those_of_the_published_figures():
    estimate, adjust = EstimateConfig(), AdjustConfig(classes=2)
    assert estimate.model_dump() == {"tail": 0.01, "rows": 128, "every": 10, "weight": 0.1}
    assert adjust.model_dump(exclude={"classes"}) == {
        "threshold": 0.7,
        "weight": 0.1,
        "temperature": 0.5,
        "fuzzifier": 1.1,
        "rounds": 20,
        "stop": None,
    }


def test_the_estimate_is_renewed_every_so_many_training_steps():
    one = passive(PAPER)
    e = TABLE[:N]
    for step, mode, factor, used in (
        (0, Mode.TRAIN, 1.0, 1.0),
        (1, Mode.TRAIN, 0.5, 1.0),
        (0, Mode.EVALUATE, 0.5, 1.0),
        (2, Mode.TRAIN, 0.5, 1.0),
        (3, Mode.TRAIN, 0.5, 0.5),
        (4, Mode.TRAIN, 1.0, 0.5),
    ):
        released = one.embedding_out(e, seen(step, mode, factor))
        assert np.allclose(released.numpy(), clipped(e) * factor_of(used * TABLE), rtol=1e-4, atol=1e-6)
    assert one.metrics()["batches_sampled"] == 2
    distances = [2 * CLIP / factor_of(share * TABLE) for share in (1.0, 0.5)]
    assert one.metrics()["mean_estimated_distance"] == pytest.approx(sum(distances) / 2, rel=1e-5)


def test_the_divergence_is_that_of_numpy_and_its_gradient_that_of_autograd():
    """Equation 6, the batch shrunk against the sampled one."""
    e = (0.6 * TABLE[:N]).double().requires_grad_()
    one = passive(PAPER)
    released = one.embedding_out(e, seen())
    loss = one.local_loss(seen(embedding=released, gradient=torch.zeros(N, WIDTH)))
    sampled, batch = pdist(clipped(TABLE)), pdist(clipped(e.detach()))
    ratio = sampled.var() / batch.var()
    expected = 0.5 * (ratio - 1 - math.log(ratio) + (sampled.mean() - batch.mean()) ** 2 / batch.var())
    assert loss.item() == pytest.approx(0.5 * expected, rel=1e-4)
    (found,) = torch.autograd.grad(loss, e)
    lengths = e.norm(dim=1, keepdim=True)
    distances = torch.nn.functional.pdist(e * (CLIP / lengths).clamp(max=1))
    m, v = distances.mean(), distances.var(correction=0)
    by_hand = 0.5 * (sampled.var() / v - 1 - torch.log(sampled.var() / v) + (sampled.mean() - m) ** 2 / v)
    (theirs,) = torch.autograd.grad(0.5 * by_hand, e)
    assert torch.allclose(found, theirs, rtol=1e-3, atol=1e-7)


def test_coinciding_rows_are_left_as_they_are():
    one = passive({**PAPER, "estimate": {"rows": 10}})
    view = PassiveView(Mode.TRAIN, 0, 0, torch.arange(N), lambda some: torch.ones(len(some), WIDTH))
    released = one.embedding_out(torch.full((N, WIDTH), 0.1), view)
    assert torch.allclose(released, torch.tensor(0.1), atol=1e-6)
    loss = one.local_loss(PassiveView(Mode.TRAIN, 0, 0, torch.arange(N), view.embed, released, released))
    assert loss.item() == 0.0


def groups(n=N, width=WIDTH, seed=0, spread=0.1):
    """Gradients in three far groups, and which row is in which."""
    draw = torch.Generator().manual_seed(seed)
    of = torch.randint(0, 3, (n,), generator=draw)
    return 1e-5 * (torch.eye(width)[of] + spread * torch.randn(n, width, generator=draw)), of


TERM = {"classes": 3, "threshold": 0.7, "weight": 0.25, "temperature": 0.4, "fuzzifier": 2.0}
ADJUST = {**QUIET, "adjust": TERM}


def adjusted(one, gradient, e=None, step=0):
    e = TABLE[:N].clone().requires_grad_() if e is None else e
    released = one.embedding_out(e, seen(step))
    return one.local_loss(seen(step, embedding=released, gradient=gradient))


def test_the_adjusting_term_is_the_contrastive_loss_of_the_gradients_groups():
    gradient, of = groups()
    one = passive(ADJUST)
    expected = 0.25 * contrastive_loss(torch.from_numpy(clipped(TABLE[:N])), of, 0.4)
    assert adjusted(one, gradient).item() == pytest.approx(expected.item(), rel=1e-4)
    assert one.metrics()["share_adjusted"] == 1.0


def test_rows_between_the_groups_are_masked():
    gradient, of = groups()
    gradient[:10] = gradient[10:].mean(0)
    one = passive(ADJUST)
    expected = 0.25 * contrastive_loss(torch.from_numpy(clipped(TABLE[10:N])), of[10:], 0.4)
    assert adjusted(one, gradient).item() == pytest.approx(expected.item(), rel=1e-4)
    assert one.metrics()["share_adjusted"] == pytest.approx((N - 10) / N)


def test_without_a_confident_row_there_is_no_term_and_the_next_batch_begins_anew():
    one = passive({**ADJUST, "adjust": {**TERM, "threshold": 0.999}})
    draw = torch.Generator().manual_seed(1)
    assert adjusted(one, torch.randn(N, WIDTH, generator=draw)) is None
    gradient, _ = groups(spread=0.001)
    assert adjusted(one, gradient) is not None


@pytest.mark.parametrize(("fuzzifier", "least", "most"), [({}, 0.5, 1.0), ({"fuzzifier": 2.0}, 0.0, 0.1)])
def test_the_default_finds_groups_in_a_wide_gradient_where_the_usual_fuzzifier_masks_all(fuzzifier, least, most):
    gradient, _ = groups(width=64, spread=0.1)
    one = passive({**QUIET, "adjust": {"classes": 3, **fuzzifier}})
    adjusted(one, gradient)
    assert least <= one.metrics()["share_adjusted"] <= most


def test_confident_rows_that_share_no_group_have_no_term():
    one = passive({**ADJUST, "adjust": {**TERM, "classes": 2}})
    assert adjusted(one, torch.eye(2, WIDTH), TABLE[:2].clone().requires_grad_()) is None
    assert one.metrics()["share_adjusted"] == 1.0


def test_two_rows_of_one_group_have_a_term():
    one = passive({**ADJUST, "adjust": {**TERM, "classes": 2}})
    gradient = torch.eye(2, WIDTH)[torch.tensor([0, 0, 1])]
    gradient[1] += 1e-3
    assert adjusted(one, gradient, TABLE[:3].clone().requires_grad_()) is not None


@pytest.mark.parametrize("rounds", [1, 20])
def test_the_clusters_are_updated_as_often_as_the_rounds_say(rounds):
    draw = torch.Generator().manual_seed(3)
    gradient, start = torch.randn(N, WIDTH, generator=draw), torch.randn(3, WIDTH, generator=draw).double()
    one = passive({**ADJUST, "adjust": {**TERM, "classes": 3, "threshold": 0.1, "rounds": rounds}})
    one.adjustment._centres = start
    adjusted(one, gradient)
    found = fuzzy_c_means(gradient, 3, fuzzifier=2.0, tolerance=1e-3, rounds=rounds, start=start)
    assert found.rounds == rounds
    assert torch.equal(one.adjustment._centres, found.centres)


STOPPING = {**QUIET, "adjust": {**TERM, "stop": 0.05}}


def batches(count, *, shuffled):
    """Embeddings near the direction of their class, and gradients by class or, if shuffled, in any order."""
    draw = torch.Generator().manual_seed(7)
    for _ in range(count):
        gradient, of = groups(seed=int(torch.randint(2**31, (1,), generator=draw)))
        e = torch.eye(WIDTH)[of] + 0.5 * torch.randn(N, WIDTH, generator=draw)
        order = torch.randperm(N, generator=draw) if shuffled else torch.arange(N)
        yield e.requires_grad_(), gradient[order]


def terms(one, count, *, shuffled):
    """Which of the batches had a term."""
    found = []
    for step, (e, gradient) in enumerate(batches(count, shuffled=shuffled)):
        found.append(adjusted(one, gradient, e, step) is not None)
    return found


def test_shuffled_clusters_stop_the_term_and_true_ones_do_not():
    assert terms(passive(STOPPING), 60, shuffled=False) == [True] * 60
    assert terms(passive(STOPPING), 60, shuffled=True) == [True] * 49 + [False] * 11
    assert terms(passive(ADJUST), 60, shuffled=True) == [True] * 60


def test_the_term_stops_for_good_once_the_classes_of_the_last_batches_are_lost():
    one = passive(STOPPING)
    assert all(terms(one, 60, shuffled=False))
    lost = terms(one, 60, shuffled=True)
    stop = lost.index(False)
    assert 25 <= stop <= 49
    assert not any(lost[stop:])
    assert not any(terms(one, 5, shuffled=False))
    again = passive(STOPPING)
    one.adjustment._gains = [1.0] * len(one.adjustment._gains)  # a batch later they may be above the limit again
    resume(again, saved(one))
    assert not any(terms(again, 5, shuffled=False))


def test_where_the_term_stopped_is_in_no_metric():
    one = passive(STOPPING)
    terms(one, 60, shuffled=True)
    assert "share_adjusted" not in one.metrics()


@pytest.mark.parametrize("done", [20, 60])
def test_a_resume_stops_where_the_run_would(done):
    whole = passive(STOPPING)
    expected = terms(whole, done, shuffled=True)
    again = passive(STOPPING)
    resume(again, saved(whole))
    assert terms(again, 60, shuffled=True) == ([True] * (49 - done) + [False] * 60)[:60]
    assert expected == ([True] * 49 + [False] * 60)[:done]


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_dead_gradients_adjust_nothing(value):
    assert adjusted(passive(ADJUST), torch.full((N, WIDTH), value)) is None


def test_evaluations_leave_nothing_to_adjust():
    one = passive(ADJUST)
    released = one.embedding_out(TABLE[:N], seen(mode=Mode.EVALUATE))
    assert one.local_loss(seen(embedding=released, gradient=groups()[0])) is None


def test_both_terms_add_up():
    gradient, _ = groups()
    e = 0.6 * TABLE[:N]
    both, paper, adjust = (passive(options) for options in ({**PAPER, **ADJUST}, PAPER, ADJUST))
    found = [adjusted(item, gradient, e.clone().requires_grad_()).item() for item in (both, paper, adjust)]
    assert found[0] == pytest.approx(found[1] + found[2], rel=1e-5)


def test_a_resume_goes_on_from_the_estimate_and_the_centres():
    options = {**PAPER, **ADJUST, "noise_multiplier": 0.3}
    whole = passive(options)
    gradient, _ = groups()
    adjusted(whole, gradient)
    again = passive(options)
    resume(again, saved(whole))
    later, _ = groups(seed=5, spread=0.3)
    released = [item.embedding_out(TABLE[:N], seen(1, factor=0.3)) for item in (whole, again)]
    assert torch.equal(*released)
    assert torch.equal(whole.state_dict()["adjustment"]["centres"]["last"], again.adjustment._centres)
    terms = [adjusted(each, later, step=1).item() for each in (whole, again)]
    assert terms[0] == terms[1]
    assert whole.metrics() == again.metrics()
    assert whole.state_dict()["adjustment"]["rows"] == again.state_dict()["adjustment"]["rows"] == 2 * N


def test_it_conforms():
    noisy = {"clip": 1.0, "epsilon": 1.0, "delta": 1e-5}
    check_protection(
        AdaptiveEmbedding,
        {**noisy, "adjust": {"classes": 2}},
        lowers=[("spectral", "embedding", 0.6), ("probe", "embedding", 0.6)],
        refused=[{}, {**noisy, "estimate": {"tail": 1.0}}, {**noisy, "adjust": {"classes": 1}}],
    )
