"""The macro one-vs-rest AUC against scikit-learn, and its resampling against drawing the rows themselves."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from cutlayer.errors import DataError
from cutlayer.problem.metrics.bootstrap import auc_replicates
from cutlayer.problem.metrics.roc import auc_variance, macro_auc


def drawn(n=300, classes=4, signal=1.0, ties=False, seed=0):
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(classes, (n,), generator=generator)
    scores = torch.randn(n, classes, generator=generator, dtype=torch.float64)
    scores[torch.arange(n), codes] += signal
    return (scores.round() if ties else scores), codes


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("ties", [False, True])
def test_equals_scikit_learn(classes, ties):
    scores, codes = drawn(classes=classes, ties=ties)
    one_hot = torch.nn.functional.one_hot(codes, classes)
    assert macro_auc(scores, codes) == pytest.approx(roc_auc_score(one_hot, scores, average="macro"), abs=1e-12)


def test_turning_the_scores_round_turns_the_figure_round():
    scores, codes = drawn()
    assert macro_auc(-scores, codes) == pytest.approx(1 - macro_auc(scores, codes))


def test_a_class_without_rows_is_left_out():
    scores, codes = drawn(classes=3)
    kept = codes != 1
    two = np.mean([roc_auc_score(codes[kept] == code, scores[kept, code]) for code in (0, 2)])
    assert macro_auc(scores[kept], codes[kept]) == pytest.approx(two)


def test_one_class_only_has_no_figure():
    scores = torch.randn(5, 3)
    codes = torch.full((5,), 2)
    assert np.isnan(macro_auc(scores, codes))
    assert np.isnan(auc_variance(scores.numpy(), codes.numpy())).all()


@pytest.mark.parametrize("ties", [False, True])
def test_the_variance_is_that_of_rows_drawn_one_by_one(ties):
    """Rows must keep their scores together: drawn per class the spread would come out a fifth too small."""
    scores, codes = drawn(n=200, classes=3, ties=ties)
    generator = np.random.default_rng(1)
    rows = [torch.from_numpy(generator.integers(200, size=200)) for _ in range(800)]
    plain = np.array([macro_auc(scores[row], codes[row]) for row in rows])
    auc, variance = auc_variance(scores.numpy(), codes.numpy())
    assert auc == pytest.approx(macro_auc(scores, codes))
    assert np.sqrt(variance) == pytest.approx(plain.std(), rel=0.08)


def test_of_two_mirrored_columns_it_is_that_of_two_classes():
    scores, codes = drawn(n=1000, classes=2)
    values = scores[:, 1].numpy()
    mirrored = auc_variance(np.stack([-values, values], axis=1), codes.numpy())
    assert mirrored == pytest.approx(auc_variance(values, codes.numpy()))
    assert np.sqrt(mirrored[1]) == pytest.approx(auc_replicates(values, codes, repeats=2000).std(), rel=0.1)


def test_bad_input_is_refused():
    scores, codes = drawn()
    with pytest.raises(DataError, match="without NaN"):
        macro_auc(scores * float("nan"), codes)
    with pytest.raises(DataError, match=r"codes \(n,\)"):
        macro_auc(scores[:-1], codes)
