"""The attacks that know labels or the top model, on cases made by hand."""

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label import direct, hint, probe
from cutlayer.attacks.label.base import LabelView, Target
from cutlayer.channel.transcript import Step
from cutlayer.errors import NotApplicable
from cutlayer.problem.metrics.roc import macro_auc, roc_auc
from cutlayer.problem.task import Task

BINARY, DIGITS = Task("binary", ("no", "yes")), Task("multiclass", ("a", "b", "c"))
GRADIENT, EMBEDDING = Target.GRADIENT, Target.EMBEDDING


def view_of(*batches, task=BINARY, target=GRADIENT):
    kind = "embeddings" if target is EMBEDDING else "gradients"
    starts = torch.tensor([0, *(len(batch) for batch in batches)]).cumsum(0)
    steps = [
        Step(0, number, torch.arange(len(batch)) + starts[number], **{kind: {"telco": batch}})
        for number, batch in enumerate(batches)
    ]
    return LabelView("telco", task, steps, target)


def embedded(n=3000, classes=2, gap=2.0, d=10, seed=0):
    """Classes apart along a direction of little variance, which no attack without labels would look at."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(classes, (n,), generator=generator)
    x = torch.randn(n, d, generator=generator) * torch.linspace(5, 1, d)
    x[:, -1] += gap * codes
    return x, codes


def known_of(codes, count):
    return {int(row): code for code in codes.unique().tolist() for row in (codes == code).nonzero()[:count]}


def test_hint_scores_by_the_nearest_known_positive():
    g = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0], [3.0, 0.0], [-3.0, -4.0]])
    scores = hint.Hint()(view_of(g), Knowledge(known={0: 1, 1: 1}))
    assert scores.rows.tolist() == [2, 3, 4]
    assert scores.values.tolist() == pytest.approx([-1.0, -3.0, -5.0])


def test_hint_projects_on_the_longest_known_positive_beside_it():
    g = torch.tensor([[0.0, 1.0], [6.0, 8.0], [5.0, 0.0], [-6.0, -8.0]])
    scores = hint.Hint()(view_of(g), Knowledge(known={0: 1, 1: 1}))
    assert scores.also["projection"].tolist() == pytest.approx([3.0, -10.0])


def test_hint_keeps_units_and_bears_tiny_gradients():
    """Pooled scores of two batches compare only if no batch was rescaled."""
    g = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    scores = hint.Hint()(view_of(g, 1e-30 * g), Knowledge(known={3: 1, 53: 1}))
    torch.testing.assert_close(scores.values[49:], 1e-30 * scores.values[:49], rtol=1e-5, atol=0)
    torch.testing.assert_close(
        scores.also["projection"][49:], 1e-30 * scores.also["projection"][:49], rtol=1e-5, atol=0
    )


def test_hint_uses_only_the_hints_of_the_same_batch():
    first, second = torch.eye(3), 2 * torch.eye(3)
    scores = hint.Hint()(view_of(first, second), Knowledge(known={4: 1}))
    assert scores.batch.tolist() == [1, 1]
    with pytest.raises(NotApplicable, match="a sampled step"):
        hint.Hint()(view_of(first), Knowledge(known={99: 1}))


def test_direct_reads_the_label_off_the_logit_gradient():
    """p - y of any logits has the sign of the label, whatever the other parties add."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (500,), generator=generator)
    logits = torch.randn(500, 1, generator=generator, requires_grad=True)
    BINARY.loss(4 * torch.randn(500, 1, generator=generator) + logits, labels).backward()
    scores = direct.Direct()(view_of(logits.grad), Knowledge())
    assert torch.equal(scores.hard, labels == 1)
    assert roc_auc(scores.values, labels) == 1.0


def test_direct_takes_the_most_negative_column_of_several():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (500,), generator=generator)
    logits = torch.randn(500, 3, generator=generator, requires_grad=True)
    DIGITS.loss(3 * logits, labels).backward()
    scores = direct.Direct()(view_of(logits.grad, task=DIGITS), Knowledge())
    assert torch.equal(scores.hard, labels)
    assert macro_auc(scores.values, labels) == 1.0


@pytest.mark.parametrize(("task", "width"), [(BINARY, 2), (DIGITS, 1), (DIGITS, 4)])
def test_direct_refuses_a_cut_that_is_not_the_logits(task, width):
    with pytest.raises(NotApplicable, match=rf"got width {width}; it is defined where the top model is a plain sum"):
        direct.Direct()(view_of(torch.randn(9, width), task=task), Knowledge())


@pytest.mark.parametrize("classes", [2, 3])
def test_probe_finds_what_varies_least(classes):
    x, codes = embedded(classes=classes, gap=4.0)
    task = BINARY if classes == 2 else DIGITS
    knowledge = Knowledge(known=known_of(codes, 40))
    scores = probe.Probe()(view_of(x[:1500], x[1500:], task=task, target=EMBEDDING), knowledge)
    assert len(scores.rows) == 3000 - 40 * classes
    assert not set(scores.rows.tolist()) & knowledge.known.keys()
    auc = roc_auc if classes == 2 else macro_auc
    assert auc(scores.values, codes[scores.rows]) > 0.93


def test_probe_is_a_logistic_regression():
    """At the strength cross-validation chose, the ranking is that of scikit-learn on standardised columns."""
    x, codes = embedded()
    known = known_of(codes, 60)
    scores = probe.Probe()(view_of(x, target=EMBEDDING), Knowledge(known=known))
    fitted, labels = x[list(known)].double(), list(known.values())
    mean, spread = fitted.mean(0), fitted.std(0, correction=0)
    plain = [
        LogisticRegression(C=strength).fit((fitted - mean) / spread, labels).decision_function((x - mean) / spread)
        for strength in probe.STRENGTHS
    ]
    theirs = [roc_auc_score(codes[scores.rows], values[scores.rows]) for values in plain]
    assert min(abs(roc_auc(scores.values, codes[scores.rows]) - auc) for auc in theirs) < 1e-6


@pytest.mark.parametrize("classes", [2, 3])
def test_a_probe_fitted_on_random_labels_is_at_chance(classes):
    """Fitting, choosing the strength and scoring on the same rows would show here."""
    x, _ = embedded()
    random = torch.randint(classes, (3000,), generator=torch.Generator().manual_seed(5))
    task = BINARY if classes == 2 else DIGITS
    knowledge = Knowledge(known=known_of(random, 100))
    scores = probe.Probe()(view_of(x, task=task, target=EMBEDDING), knowledge)
    auc = roc_auc if classes == 2 else macro_auc
    assert auc(scores.values, random[scores.rows]) == pytest.approx(0.5, abs=0.04)


def test_probe_ranks_a_class_it_never_saw_last():
    x, codes = embedded(classes=3, gap=6.0)
    known = {row: code for row, code in known_of(codes, 30).items() if code != 1}
    scores = probe.Probe()(view_of(x, task=DIGITS, target=EMBEDDING), Knowledge(known=known))
    assert 1 not in scores.hard
    assert roc_auc(scores.values[:, 1], codes[scores.rows] == 1) == 0.5
    assert roc_auc(scores.values[:, 2], codes[scores.rows] == 2) > 0.9


def test_probe_takes_a_class_of_one_known_row():
    x, codes = embedded(gap=8.0)
    known = known_of(codes[:1000], 20)
    first = next(row for row, code in known.items() if code == 1)
    known = {row: code for row, code in known.items() if code == 0 or row == first}
    scores = probe.Probe()(view_of(x, target=EMBEDDING), Knowledge(known=known))
    assert bool(scores.values.isfinite().all())


def test_probe_needs_known_rows_in_the_sampled_steps():
    x, _ = embedded(n=50)
    with pytest.raises(NotApplicable, match="known rows of two classes"):
        probe.Probe()(view_of(x, target=EMBEDDING), Knowledge(known={1: 0, 99: 1}))


def test_the_strength_of_the_probe_is_chosen_on_rows_that_each_fit_left_out():
    """Of columns that say nothing the weakest fit is the best; on its own rows the strongest would be."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(80, 120, generator=draw, dtype=torch.float64).numpy()
    labels = torch.randint(2, (80,), generator=draw).numpy()
    assert probe._strength(x, labels) == min(probe.STRENGTHS)
