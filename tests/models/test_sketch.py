"""The sketch of a linear bottom model: against its definition computed one row at a time, and its limits."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from cutlayer.errors import ConfigError
from cutlayer.models import Inputs, build_bottom
from cutlayer.models.bottom_fits import TrainingColumns, check_columns, check_fit, fit_bottom
from cutlayer.models.bottom_fits.sketch import orthogonal
from cutlayer.parties.drive.random_state import random_state_under

ROWS, CARDS = 400, (30, 6)
TRAINING = torch.arange(0, ROWS, 2)


def drawn() -> tuple[Tensor, Tensor]:
    """Codes, some of them rare or only in held-out rows, and numbers of different scales."""
    draw = np.random.default_rng(5)
    codes = np.stack([np.minimum(draw.geometric(0.15, ROWS), 29), draw.integers(5, size=ROWS)], axis=1)
    codes[1::2, 1][:20] = 5
    numbers = draw.normal(size=(ROWS, 2)) * [3.0, 0.1] + [10, 0]
    return torch.from_numpy(codes).int(), torch.from_numpy(numbers).float()


CODES, NUMBERS = drawn()
COLUMNS = TrainingColumns(Inputs(CARDS, 2), TRAINING, lambda rows: (CODES[rows], NUMBERS[rows]))


def sketched(width: int, key: int = 1, **options: Any) -> npt.NDArray[np.float64]:
    with random_state_under(bytes([key]) * 32):
        bottom = build_bottom({"kind": "linear", "width": width}, COLUMNS.inputs)
        assert fit_bottom({"kind": "sketch", **options}, bottom, COLUMNS, "fit") == ()
    with torch.no_grad():
        embedding: npt.NDArray[np.float64] = bottom(CODES, NUMBERS).double().numpy()
    return embedding


def by_definition(min_count: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Standardised numbers and log counts of every row, and its one-hot frequent categories, one row at a time."""
    train = TRAINING.tolist()
    counts = [Counter(CODES[train, column].tolist()) for column in range(2)]
    frequent = [(c, code) for c in range(2) for code in sorted(counts[c]) if counts[c][code] >= min_count]
    dense, hot = [], []
    for row in range(ROWS):
        logs = [math.log(1 + counts[c][int(CODES[row, c])]) for c in range(2)]
        dense.append([*NUMBERS[row].tolist(), *logs])
        hot.append([float(int(CODES[row, c]) == code) for c, code in frequent])
    values = np.array(dense)
    return (values - values[train].mean(0)) / values[train].std(0), np.array(hot)


def distances(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    squares: npt.NDArray[np.float64] = ((x[:60, None] - x[None, :60]) ** 2).sum(-1)
    return squares


@pytest.mark.parametrize("min_count", [1, 3])
def test_a_wide_sketch_is_a_rotation_of_the_columns(min_count: int) -> None:
    """Distances between rows are those of standardised numbers, log counts and one-hot columns, side by side."""
    whole = np.concatenate(by_definition(min_count), axis=1)
    embedding = sketched(whole.shape[1] + 3, min_count=min_count)
    train = TRAINING.numpy()
    scale = ((whole[train] - whole[train].mean(0)) ** 2).sum(1).mean() / embedding.shape[1]
    np.testing.assert_allclose(distances(embedding) * scale, distances(whole), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("numbers", [True, False])
def test_a_permutation_has_each_column_once_with_a_sign(numbers: bool) -> None:
    dense, hot = by_definition(3)
    whole = np.concatenate([dense if numbers else dense[:, 2:], hot], axis=1)
    embedding = sketched(whole.shape[1] + 3, map="permutation", numbers=numbers)
    correlation = np.corrcoef(whole.T, embedding[:, embedding.std(0) > 0].T)[: whole.shape[1], whole.shape[1] :]
    assert correlation.shape == (whole.shape[1],) * 2
    matched = np.abs(np.abs(correlation) - 1) < 1e-4
    assert matched.any(axis=1).all()
    assert matched.any(axis=0).all()
    assert {-1.0, 1.0} == set(np.sign(correlation[matched]).tolist())


def test_a_narrow_permutation_has_the_most_frequent_categories() -> None:
    embedding = sketched(7, map="permutation")
    counts = [Counter(CODES[TRAINING, column].tolist()) for column in range(2)]
    top = sorted(((n, c, code) for c in range(2) for code, n in counts[c].items()), reverse=True)[:3]
    hot = [np.abs(np.corrcoef(CODES[:, c].numpy() == code, embedding.T)[0, 1:]).max() for _, c, code in top]
    assert hot == pytest.approx([1, 1, 1], abs=1e-4)
    with pytest.raises(ConfigError, match=r"an embedding of 4 columns or more, for a permutation .*, got 3"):
        sketched(3, map="permutation")
    assert not np.array_equal(embedding, sketched(7, key=2, map="permutation"))


@pytest.mark.parametrize("width", [3, 4, 12])
def test_a_narrow_sketch_is_centred_of_size_one_and_of_full_rank(width: int) -> None:
    embedding = sketched(width)[TRAINING]
    np.testing.assert_allclose(embedding.mean(0), 0, atol=1e-5)
    assert (embedding**2).mean() == pytest.approx(1, abs=1e-4)
    assert np.linalg.matrix_rank(embedding, tol=1e-3) == width


def test_dense_columns_survive_exactly_where_the_cut_has_room_for_them() -> None:
    """Numbers and log counts can be read from 12 columns without error; the 30 categories cannot."""
    dense, hot = by_definition(3)
    design = np.concatenate([sketched(12), np.ones((ROWS, 1))], axis=1)
    errors = [target - design @ np.linalg.lstsq(design, target, rcond=None)[0] for target in (dense, hot)]
    assert np.abs(errors[0]).max() < 1e-3
    assert np.abs(errors[1]).max() > 0.1


def test_categories_that_were_not_seen_have_no_vector_of_their_own() -> None:
    """Two codes below `min_count` with the same count are embedded alike; a frequent one is not."""
    with random_state_under(bytes(32)):
        bottom = build_bottom({"kind": "linear", "width": 8}, COLUMNS.inputs)
        fit_bottom({"kind": "sketch"}, bottom, COLUMNS, "fit")
    counts = Counter(CODES[TRAINING, 0].tolist())
    unseen = [code for code in range(30) if code not in counts]
    codes = torch.tensor([[unseen[0], 1], [unseen[1], 1], [counts.most_common(1)[0][0], 1]], dtype=torch.int32)
    with torch.no_grad():
        first, second, frequent = bottom(codes, torch.ones(3, 2))
    assert torch.equal(first, second)
    assert not torch.allclose(first, frequent)


def test_only_the_owner_of_the_key_can_repeat_it() -> None:
    assert np.array_equal(sketched(8, key=1), sketched(8, key=1))
    ours, theirs = sketched(8, key=1), sketched(8, key=2)
    assert np.abs(np.corrcoef(ours.T, theirs.T)[:8, 8:]).max() < 0.99


def test_orthogonal_matrices_are_orthonormal_and_not_biased() -> None:
    torch.manual_seed(0)
    tall, wide = orthogonal(7, 3), orthogonal(3, 7)
    torch.testing.assert_close(tall.T @ tall, torch.eye(3))
    torch.testing.assert_close(wide @ wide.T, torch.eye(3))
    mean = torch.stack([orthogonal(3, 3) for _ in range(2000)]).mean(0)
    assert float(mean.abs().max()) < 0.06  # the deviation of an entry is sqrt(1/3), that of its mean 0.013


@pytest.mark.parametrize(("inputs", "width"), [(Inputs((4,), 0), 5), (Inputs((), 2), 5), (Inputs((4,), 2), 1)])
def test_columns_of_one_kind(inputs: Inputs, width: int) -> None:
    count = len(inputs.cardinalities)
    given = TrainingColumns(inputs, TRAINING, lambda rows: (CODES[rows, :count] % 4, NUMBERS[rows, : inputs.numbers]))
    bottom = build_bottom({"kind": "linear", "width": width}, inputs)
    fit_bottom({"kind": "sketch"}, bottom, given, "fit")
    assert bool(bottom(*given.gather(TRAINING)).isfinite().all())


def test_constant_columns_are_left_out_and_refused_alone() -> None:
    inputs = Inputs((), 2)
    half = TrainingColumns(inputs, TRAINING, lambda rows: (CODES[rows, :0], NUMBERS[rows] * torch.tensor([1.0, 0.0])))
    bottom = build_bottom({"kind": "linear", "width": 1}, inputs)
    fit_bottom({"kind": "sketch"}, bottom, half, "fit")
    assert bool(bottom(*half.gather(TRAINING)).isfinite().all())
    none = TrainingColumns(inputs, TRAINING, lambda rows: (CODES[rows, :0], NUMBERS[rows] * 0))
    with pytest.raises(ConfigError, match="fit: expected a column that varies"):
        fit_bottom({"kind": "sketch"}, bottom, none, "fit")


@pytest.mark.parametrize(
    ("raw", "bottom", "match"),
    [
        ({"kind": "sketch"}, {"kind": "mlp"}, "a bottom model of kind linear for kind sketch, got mlp"),
        ({"kind": "sketch", "min_count": 0}, {"kind": "linear"}, "fit.min_count"),
        ({"kind": "sketch", "width": 3}, {"kind": "linear"}, "fit.width: unknown key"),
    ],
)
def test_bad_sections_are_refused(raw: dict[str, Any], bottom: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        check_fit(raw, bottom, 0, "parties.telco.fit")
    if bottom["kind"] == "mlp":
        with pytest.raises(ConfigError, match="linear for fit sketch"):
            fit_bottom(raw, build_bottom(bottom, COLUMNS.inputs), COLUMNS, "fit")


def test_the_check_refuses_the_columns_that_the_fit_refuses() -> None:
    """On tables of 2 to 9 rows in which much is constant, or as frequent as everything else."""
    draw, refused = np.random.default_rng(8), 0
    for number in range(120):
        rows = int(draw.integers(2, 10))
        kinds = (draw.permutation(9)[:rows], np.full(rows, 2), draw.integers(2, size=rows), np.arange(rows) // 2)
        codes = np.stack([kinds[kind] for kind in draw.integers(4, size=2)], axis=1)
        numbers = draw.integers(2, size=(rows, 1)) * (number % 5 == 0)
        columns = _all_rows(Inputs((9, 9), 1), torch.from_numpy(codes).int(), torch.from_numpy(numbers).float())
        fit = {"kind": "sketch", "numbers": bool(number % 3)}
        with random_state_under(bytes(32)):
            bottom = build_bottom({"kind": "linear", "width": 30}, columns.inputs)
            refusals = [_refusal(check_columns, fit, columns), _refusal(fit_bottom, fit, bottom, columns)]
        assert refusals[0] == refusals[1]
        refused += bool(refusals[0])
    assert 15 < refused < 105


def _all_rows(inputs: Inputs, codes: Tensor, numbers: Tensor) -> TrainingColumns:
    return TrainingColumns(inputs, torch.arange(len(codes)), lambda rows: (codes[rows], numbers[rows]))


def _refusal(call: Any, *args: Any) -> str:
    try:
        call(*args, "parties.shop.fit")
    except ConfigError as failure:
        return str(failure)
    return ""


@pytest.mark.parametrize("numbers", [True, False])
def test_the_check_reads_one_chunk_of_a_table_that_varies(numbers: bool) -> None:
    read = 0

    def gather(rows: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal read
        read += len(rows)
        return (rows % 2)[:, None].int(), rows[:, None].float()

    check_columns(
        {"kind": "sketch", "numbers": numbers}, TrainingColumns(Inputs((2,), 1), torch.arange(50_000), gather), "fit"
    )
    assert 0 < read < 10_000
