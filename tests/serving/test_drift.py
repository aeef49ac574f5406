"""Drift: no shift on rows of the training's own distribution, a shift where there is one, each at its owner alone."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cutlayer.config import Job, validated
from cutlayer.data.store import Store
from cutlayer.errors import RunFolderError
from cutlayer.serving import party_drift
from cutlayer.serving.drift import MIN_ROWS, WAITING_ROWS, DriftReference
from cutlayer.serving.party_drift import column_drift
from cutlayer.training.folder import RunFolder
from cutlayer_serve.metrics import serve_metrics
from cutlayer_serve.passive import LookupCounts
from cutlayer_serve.trained_party import TrainedParty
from tests.parties.runs import raw_job
from tests.serving.world import ACTIVE, MISSING_AT_SHOP, world

DRAW = np.random.default_rng(5)


def test_psi_of_normal_numbers_equals_that_of_their_shares() -> None:
    reference = DriftReference("x", DRAW.normal(size=200_000))
    reference.add(DRAW.normal(size=200_000))
    assert reference.psi is not None
    assert reference.psi < 1e-3
    shifted = DriftReference("x", DRAW.normal(size=200_000))
    shifted.add(DRAW.normal(loc=1.0, size=200_000))
    # Deciles of N(0, 1) against the shares of N(1, 1) in them, by scipy.stats.norm: 0.9261.
    assert shifted.psi is not None
    assert abs(shifted.psi - 0.9261) < 0.02


def test_psi_of_codes_counts_new_ones_together() -> None:
    codes = np.repeat([2.0, 3.0, 4.0], [500, 300, 200])
    same, other = DriftReference("c", codes, categories=True), DriftReference("c", codes, categories=True)
    same.add(codes)
    other.add(np.full(1000, 77.0))
    assert same.psi == 0.0
    assert other.psi is not None
    assert other.psi > 5


def test_rows_are_counted_as_one_by_one() -> None:
    trained = np.round(DRAW.normal(size=2_000), 1)  # many equal values, also at the edges
    served = np.concatenate([np.round(DRAW.normal(size=900), 1), [np.inf, -np.inf]])
    one, all_, shares = DriftReference("x", trained), DriftReference("x", trained), DriftReference("x", trained)
    for value in served:
        one.add(np.array([value]))
    all_.add(served)
    assert (one.psi, one.rows) == (all_.psi, len(served))
    edges = np.unique(np.quantile(trained, np.linspace(0, 1, 11)[1:-1]))
    expected, of_training = (np.bincount(np.digitize(values, edges), minlength=10) for values in (served, trained))
    p, q = (np.maximum(c / c.sum(), 1e-4) for c in (expected, of_training))
    assert all_.psi == pytest.approx(((p - q) * np.log(p / q)).sum())
    shares.add(trained)
    assert shares.psi == 0.0
    codes = DriftReference("c", np.arange(300.0) % 20, categories=True)
    codes.add(np.repeat(np.arange(25, dtype=np.int32), 20))
    assert codes.rows == 500


@pytest.mark.parametrize("highest", [20, WAITING_ROWS - 1, WAITING_ROWS, 10**7])
def test_codes_count_alike_however_high_they_are(highest: int) -> None:
    codes = np.array([0, 3, highest])
    shares = np.array([0.5, 0.3, 0.2])
    reference = DriftReference("c", np.repeat(codes, (1000 * shares).astype(int)).astype(float), categories=True)
    served = np.repeat([*codes, 1, highest + 1], [100, 200, 300, 150, 250]).astype(np.int32)
    reference.add(DRAW.permutation(served))
    reference.add(served[:0])
    # The last interval has the codes that were not in training.
    p, q = np.array([0.1, 0.2, 0.3, 0.4]), np.maximum([*shares, 0], 1e-4)
    assert reference.rows == 1000
    assert reference.psi == pytest.approx(((p - q) * np.log(p / q)).sum())


def test_rows_of_a_store_count_as_their_columns(plain: Path) -> None:
    trained = TrainedParty.open(plain, ACTIVE)
    part = trained.job, trained.folder, trained.party
    by_row, by_columns = column_drift(*part), column_drift(*part)
    assert by_row is not None
    assert by_columns is not None
    store = Store.open(trained.folder.data(ACTIVE))
    for rows in (np.arange(100), np.array([3, 3, 90]), np.repeat([5], 5_000)):
        by_row.add_rows(store, rows)
        by_columns.add(*store.gather(torch.from_numpy(rows)))
    pairs = [*zip(by_row.references(), by_columns.references(), strict=True)]
    assert {row.name for row, _ in pairs} == {"income", "colour"}
    assert all((row.psi, row.rows) == (column.psi, 5_103) for row, column in pairs)


def test_too_few_rows_give_no_statistic() -> None:
    reference = DriftReference("x", np.arange(50.0))
    reference.add(np.arange(MIN_ROWS - 1.0))
    assert reference.psi is None
    few = DriftReference("x", np.arange(50.0))
    few.add(np.arange(MIN_ROWS * 2.0))
    assert few.psi is None
    constant = DriftReference("x", np.zeros(500))
    constant.add(np.zeros(MIN_ROWS))
    assert constant.psi == 0.0


def test_the_active_party_shows_its_columns_and_scores_and_no_other_party_s(plain: Path) -> None:
    async def check() -> None:
        async with world(plain) as served:
            for _ in range(3):
                await served.predict(range(MISSING_AT_SHOP))
            drift = {row["of"]: row for row in (await served.client.get("/v1/status")).json()["drift"]}
            assert drift.keys() == {"income", "colour", "score probability"}
            assert all(row["rows"] == 3 * MISSING_AT_SHOP for row in drift.values())
            assert drift["income"]["psi"] < 0.1
            given = {"income": [9.0] * 100, "colour": ["violet"] * 100}
            for _ in range(9):
                await served.predict(range(100), columns=given)
            drift = {row["of"]: row for row in (await served.client.get("/v1/status")).json()["drift"]}
            assert drift["income"]["psi"] > 0.25
            assert drift["colour"]["psi"] > 0.25
            metrics = (await served.client.get("/metrics")).text
            assert 'cutlayer_drift_psi{column="income"}' in metrics
            assert "calls" not in metrics

    asyncio.run(check())


def test_a_passive_party_shows_its_own_metrics(plain: Path) -> None:
    trained = TrainedParty.open(plain, "telco")
    drift = column_drift(trained.job, trained.folder, trained.party)
    assert drift is not None
    answered = LookupCounts(lookups=7)
    drift.add(torch.zeros(MIN_ROWS, 0, dtype=torch.int32), torch.full((MIN_ROWS, 2), 9.0))
    with serve_metrics("127.0.0.1:0", answered, drift) as url, urllib.request.urlopen(url) as page:
        text = page.read().decode()
    assert "cutlayer_lookups_total 7.0" in text
    assert 'cutlayer_drift_psi{column="calls"}' in text


@pytest.mark.parametrize(
    "released",
    [torch.ones(300), torch.ones(3, 2), torch.ones(300, 2, dtype=torch.uint8), torch.ones(300, 2, 2), torch.empty(0)],
)
def test_releases_of_another_shape_are_no_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, released: torch.Tensor
) -> None:
    """The file may be of a run folder of somebody else."""
    kept = {ACTIVE: {"telco": released}, "telco": {"released": released} if len(released) else {}}
    stored = SimpleNamespace(read_state=lambda _: (kept[party], {}))
    monkeypatch.setattr(party_drift, "Checkpoints", SimpleNamespace(of_run=lambda *_: stored))
    job = validated(Job, raw_job(), "")
    for party in (ACTIVE, "telco"):
        with pytest.raises(RunFolderError, match="the releases of all rows in"):
            party_drift._release_drift(job, RunFolder(tmp_path), party, torch.arange(300))
