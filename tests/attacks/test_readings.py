"""Attacks that know no row, on small tables whose columns are known here."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cutlayer.attacks.feature.lattice import Lattice
from cutlayer.attacks.feature.readings import Readings
from cutlayer.attacks.feature.two_valued import TwoValued
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.audit.features.exact_share import measure_readings
from cutlayer.config import NumbersConfig
from cutlayer.data.encoded import ColumnSpec
from cutlayer.data.numbers import NumberEncoder
from cutlayer.kernels.fits.two_valued import two_valued_vectors
from cutlayer.kernels.fits.whole_numbers import whole_numbers

ROWS = 1500
ABOUT = {"run": "this run", "party": "telco", "attack": "toy", "release": "toy", "known": 0, "rows": 0}


def read(attack, embeddings):
    view = FeatureView("telco", torch.arange(len(embeddings)), torch.from_numpy(embeddings.astype(np.float32)))
    return attack()(view, Knowledge(), 0)


@pytest.mark.parametrize("scale", ["robust", "standard", "minmax"])
@pytest.mark.parametrize("transform", ["none", "log1p"])
@pytest.mark.parametrize("sign", [1, -1])
def test_whole_numbers_are_exact_under_each_scale(scale, transform, sign):
    true = np.random.default_rng(1).exponential(30, ROWS).round()
    encoder = NumberEncoder.fit("x", true[:1200].copy(), NumbersConfig(scale=scale, transform=transform), "toy")
    encoded = encoder.apply(true)
    np.testing.assert_allclose(encoder.restored(encoded[encoded < 2.9]), true[encoded < 2.9], rtol=1e-3, atol=1e-3)
    sent = (sign * encoded * np.float32(1.7) + np.float32(0.4)).astype(float)
    inside = encoded < (1 if scale == "minmax" else np.inf)  # beyond the training range all is one value
    found = whole_numbers(sent)
    assert found is not None
    shifted = found.values - true if np.corrcoef(found.values, true)[0, 1] > 0 else found.values + true
    assert (shifted[inside] == np.median(shifted)).mean() > 0.99
    assert found.resolved.mean() > 0.95


def test_noise_is_not_taken_for_columns():
    draw = np.random.default_rng(0)
    noise = draw.normal(size=(ROWS, 12))
    assert whole_numbers(noise[:, 0].astype(np.float32).astype(float)) is None
    assert whole_numbers(draw.normal(size=600).astype(np.float32).astype(float)) is None
    assert not read(Lattice, noise).certain.any()
    assert len(read(TwoValued, noise).vectors) == 0


def test_levels_come_out_of_a_rotation_exactly():
    draw = np.random.default_rng(0)
    shares = ([0.8, 0.15, 0.05], [0.4, 0.3, 0.2, 0.1], [0.55, 0.45])
    codes = [draw.choice(len(p), ROWS, p=p) for p in shares]
    levels = np.concatenate([np.eye(len(p))[own] for p, own in zip(shares, codes, strict=True)], axis=1)
    table = np.column_stack([levels, draw.exponential(size=(ROWS, 4))])
    turn = np.linalg.qr(draw.normal(size=(table.shape[1],) * 2))[0]
    found, certain = two_valued_vectors((table @ turn).astype(np.float32).astype(float), np.random.default_rng(0))
    assert certain.all()
    columns = ColumnSpec((3, 4, 2), 0, ("a", "b", "c"), ())
    made = Readings(torch.arange(ROWS), torch.from_numpy(found.T.astype(float)), torch.from_numpy(certain))
    truth = torch.from_numpy(np.stack(codes, axis=1)).int(), torch.zeros(ROWS, 0)
    assert measure_readings(made, columns, truth, truth[1].double(), ABOUT).value == 1


def test_the_share_of_exact_values_is_counted_by_column():
    columns = ColumnSpec((5,), 1, ("plan",), ("age",))
    age = torch.tensor([3.0, 4, 5, 9, 3, 3, 4, 8, 6, 5], dtype=torch.float64)
    plan = torch.tensor([2, 2, 2, 3, 3, 4, 2, 2, 3, 4])
    right = torch.stack([-7 - 2 * age, (plan == 3).double(), (plan == 4).double()])
    half = right.clone()
    half[0, :2] += 3

    def figure(vectors, certain=False):
        made = Readings(torch.arange(10), vectors, torch.full((len(vectors),), certain))
        truth = plan[:, None].int(), age[:, None].float()
        return measure_readings(made, columns, truth, age[:, None], ABOUT)

    whole = figure(right, certain=True)
    assert (whole.metric, whole.value, whole.knowledge, whole.known) == ("exact", 1.0, (), 0)
    assert (whole.metrics["columns_read"], whole.metrics["columns"], whole.metrics["certain"]) == (2, 2, 3)
    assert whole.baseline == pytest.approx((0.3 + 0.5) / 2)
    assert figure(half).columns[0].value == pytest.approx(0.8)
    assert figure(right[:1]).columns[1].value == 0.5  # the commonest plan
    # Quantiles of a number are read apart from it, and are no column of the table.
    columns = ColumnSpec((5, 5), 1, ("age (quantile)", "plan"), ("age",))
    levels = torch.stack([torch.where(age > 4, 3, 2), plan], dim=1).int()
    made = Readings(torch.arange(10), right, torch.full((len(right),), False))
    quantiled = measure_readings(made, columns, (levels, age[:, None].float()), age[:, None], ABOUT)
    assert (quantiled.metrics["columns_read"], quantiled.metrics["columns"]) == (2, 2)
    assert [column.column for column in quantiled.columns] == ["age", "age (quantile)", "plan"]
    columns = ColumnSpec((5,), 1, ("plan",), ("age",))
    nothing = figure(right[:0])
    assert nothing.value == pytest.approx(nothing.baseline)
    assert nothing.metrics["columns_read"] == 0


@pytest.mark.parametrize("wrong", [0.02, 0.05])
def test_a_line_is_found_past_rows_that_are_far_from_it(wrong):
    """The first fits are pulled aside by them, and each of the next leaves more of them out."""
    draw = np.random.default_rng(3)
    age = draw.integers(0, 60, ROWS).astype(float)
    candidate = 3 - 0.7 * age
    off = draw.random(ROWS) < wrong
    candidate[off] += draw.exponential(200, off.sum())
    made = Readings(torch.arange(ROWS), torch.from_numpy(candidate[None]), torch.tensor([False]))
    numbers = torch.from_numpy(age[:, None])
    columns = ColumnSpec((), 1, (), ("age",))
    truth = torch.zeros(ROWS, 0, dtype=torch.int32), numbers.float()
    assert measure_readings(made, columns, truth, numbers, ABOUT).value >= (~off).mean()
