"""Label DP called on arrays and tensors: recognised, kept in form, and as random as it says."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from cutlayer.errors import ConfigError, DataError
from cutlayer.protections import build
from cutlayer.protections.label_dp import LabelDP, LabelDPConfig

KEY = bytes(range(32))
N = 20_000
DTYPES = [np.bool_, np.int8, np.uint8, np.int64, np.float32, np.float64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(N,), (N, 1)])
def test_binary_arrays_keep_their_form(dtype, shape):
    labels = (np.arange(N) % 3 == 0).astype(dtype).reshape(shape)
    drawn = LabelDP(1.0)(labels)
    assert (type(drawn), drawn.dtype, drawn.shape) == (np.ndarray, labels.dtype, shape)
    low, high = stats.binom.interval(1 - 1e-6, N, 1 / (1 + math.e))
    assert low <= int((drawn != labels).sum()) <= high
    assert set(np.unique(drawn).astype(int)) == {0, 1}


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(N,), (N, 1)])
def test_binary_tensors_keep_their_form(dtype, shape):
    labels = (torch.arange(N) % 3 == 0).to(dtype).reshape(shape)
    drawn = LabelDP(1.0)(labels)
    assert isinstance(drawn, torch.Tensor)
    assert (drawn.dtype, drawn.shape) == (dtype, labels.shape)
    assert 0.25 < float((drawn != labels).double().mean()) < 0.29


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_one_hot_rows_stay_one_hot(classes):
    codes = np.arange(N) % classes
    labels = np.eye(classes, dtype=np.float32)[codes]
    drawn = LabelDP(1.0)(labels)
    assert (drawn.dtype, drawn.shape) == (labels.dtype, labels.shape)
    assert bool((drawn.sum(1) == 1).all())
    flips = int((drawn.argmax(1) != codes).sum())
    low, high = stats.binom.interval(1 - 1e-6, N, (classes - 1) / (classes - 1 + math.e))
    assert low <= flips <= high
    assert torch.equal(LabelDP(9.0, KEY)(torch.from_numpy(labels)).sum(1), torch.ones(N))


def test_with_ids_a_key_repeats_and_without_every_call_is_fresh():
    labels, ids = np.zeros(N), [f"row-{index}" for index in range(N)]
    first = LabelDP(1.0, KEY)(labels, ids)
    assert np.array_equal(LabelDP(1.0, KEY)(labels, ids), first)
    assert np.array_equal(LabelDP(1.0, KEY)(labels[::-1], ids[::-1]), first[::-1])
    for other in (LabelDP(1.0), LabelDP(1.0, bytes(32)), LabelDP(1.5, KEY)):
        assert not np.array_equal(other(labels, ids), first)
    for fresh in (LabelDP(1.0), LabelDP(1.0, KEY)):
        assert not np.array_equal(fresh(labels), fresh(labels))


def test_whole_numbers_are_ids_too():
    labels = torch.zeros(100)
    assert torch.equal(
        LabelDP(1.0, KEY)(labels, np.arange(100)), LabelDP(1.0, KEY)(labels, [str(i) for i in range(100)])
    )


def test_redrawing_recovers_the_labels_and_ids_do_not():
    labels, label_dp = np.arange(N) % 2, LabelDP(1.0, KEY)
    redrawn = np.mean([label_dp(labels) for _ in range(15)], axis=0) > 0.5
    assert (redrawn == labels).mean() > 0.96
    kept = np.mean([label_dp(labels, np.arange(N)) for _ in range(5)], axis=0) > 0.5  # .88 right of five fresh draws
    assert (kept == labels).mean() == pytest.approx(math.e / (1 + math.e), abs=0.02)


def test_eps_zero_warns_and_tells_nothing():
    with pytest.warns(UserWarning, match="coin flip"):
        label_dp = LabelDP(0)
    assert label_dp(np.zeros(N)).mean() == pytest.approx(0.5, abs=0.02)


def test_no_rows_no_draws():
    assert LabelDP(1.0)(np.zeros((0, 1), np.int32)).shape == (0, 1)
    assert LabelDP(1.0)(torch.zeros(0)).shape == (0,)


@pytest.mark.parametrize(
    "labels",
    [
        np.array([0, 1, 2]),
        np.array([-1, 1]),
        np.array([0.5, 1.0]),
        np.array([0.0, math.nan]),
        np.array([[1, 1, 0]]),
        np.array([[0, 0]]),
        np.zeros((2, 0)),
        np.zeros((0, 0)),
        np.zeros((2, 2, 1)),
        np.array(["yes", "no"]),
    ],
)
def test_other_labels_are_refused(labels):
    with pytest.raises(DataError, match="expected labels of shape"):
        LabelDP(1.0)(labels)


def test_bad_ids_keys_and_eps_are_refused():
    with pytest.raises(DataError, match="expected 2 ids, one per label, got 3"):
        LabelDP(1.0)(np.zeros(2), [1, 2, 3])
    with pytest.raises(DataError):
        LabelDP(1.0)(np.zeros(2), [1, 1])
    with pytest.raises(ConfigError, match="16 bytes"):
        LabelDP(1.0, b"short")(np.zeros(2))
    for eps in (-1.0, math.nan, "1"):
        with pytest.raises(ConfigError, match=r"label_dp\.eps"):
            LabelDP(eps)


def test_the_settings_still_build_it():
    assert (
        LabelDP(LabelDPConfig(eps=2.0)).settings == LabelDP(2.0).settings == build("label_dp", {"eps": 2}, "p").settings
    )


def test_eps_is_named_as_in_mindspore_or_given_first() -> None:
    labels = np.arange(N) % 2
    assert np.array_equal(LabelDP(eps=1.0, key=KEY)(labels, np.arange(N)), LabelDP(1.0, KEY)(labels, np.arange(N)))
    with pytest.raises(ConfigError, match=r"LabelDP\(eps=1.0\)"):
        LabelDP()
    with pytest.raises(ConfigError, match="got both"):
        LabelDP(1.0, eps=1.0)
    with pytest.raises(ConfigError, match="eps"):
        LabelDP(eps=-1.0)
