"""Several rows of the active party with one id: loans of one customer, about whom a partner has one row."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from cutlayer.alignment.held_rows import HeldRows
from cutlayer.alignment.intersection import Alignment
from cutlayer.channel import Kind
from cutlayer.config import IdConfig, Job, TableConfig, validated
from cutlayer.data.distinct_ids import DistinctIds
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import ConfigError, DataError
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.models.top_estimators.choice import choose_candidates
from cutlayer.models.top_estimators.linear import fit_linear
from cutlayer.models.top_estimators.rows import FitRows
from cutlayer.problem.task import Task
from cutlayer.serving.predict import PredictionRequest, predict
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.run_ledger import ledger_after
from cutlayer_serve.features import FeatureStore
from tests.alignment.psi_runs import TELCO, aligned, table
from tests.parties.runs import ACTIVE, KEY, UNAUDITED, raw_job, record, run

CUSTOMERS, LOANS = 400, 3


def loans(seed: int = 0, customers: int = CUSTOMERS) -> dict[str, pa.Table]:
    """Each customer has one to three loans, and one property that only the telco knows, on which its labels depend."""
    draw = np.random.default_rng(seed)
    ids = np.repeat(np.arange(customers) + 500, draw.integers(1, LOANS + 1, size=customers))
    known = draw.normal(size=customers)
    own = draw.normal(size=len(ids))
    odds = own + 1.5 * known[ids - 500]
    label = np.where(odds + draw.logistic(size=len(ids)) > 0, "bad", "good")
    shuffled = draw.permutation(len(ids))
    bank = {"id": ids[shuffled], "amount": own[shuffled], "label": label[shuffled]}
    telco = draw.permutation(customers)[: customers * 3 // 4]
    return {
        ACTIVE: pa.table({name: pa.array(values) for name, values in bank.items()}),
        TELCO: pa.table({"id": pa.array(telco + 500), "calls": pa.array(known[telco])}),
    }


def raw(**options: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bottom": {ACTIVE: {"kind": "auto"}, TELCO: {"kind": "linear", "width": 2}},
        "top": {"kind": "linear", "folds": 1},
        "privacy": {"label_free": {}},
        "audit": UNAUDITED,
        "release": "once",
        "split": {"test": 0.3, "validation": 0.1},
    }
    made = raw_job(passives=1, **(settings | options)) | {"rows": "all"}
    made["parties"][ACTIVE]["id"] = {"column": "id", "duplicates": "keep"}
    made["parties"][TELCO]["fit"] = {"kind": "sketch"}
    return made


JOB = validated(Job, raw(), "")


def test_a_partners_row_serves_every_row_of_its_id_and_is_released_once(tmp_path: Path) -> None:
    given = loans()
    outcome = run(JOB, given, tmp_path).active
    assert sum(map(len, (outcome.split.train, outcome.split.validation, outcome.split.test))) == len(given[ACTIVE])
    known = set(given[TELCO]["id"].to_pylist())
    with_telco = [row in known for row in given[ACTIVE]["id"].to_pylist()]
    assert outcome.held_rows == {TELCO: sum(with_telco)} != {TELCO: len(known)}
    report = RunFolder(tmp_path)
    assert report.path.exists()


def test_no_id_is_in_two_parts_of_the_split(tmp_path: Path) -> None:
    given = loans()
    outcome = run(JOB, given, tmp_path).active
    ids = [row.as_py() for row in outcome.ids]
    codes = {"test": set(ids)}
    tested = pa.compute.is_in(given[ACTIVE]["id"], value_set=pa.array(codes["test"]))
    # All rows of a tested id are tested.
    assert pa.compute.sum(tested).as_py() == len(ids)


def test_a_split_by_row_would_have_measured_what_it_had_learned(tmp_path: Path) -> None:
    """Labels of one customer are alike for a reason that no column has: a model that knows the ids looks better."""
    draw = np.random.default_rng(3)
    ids = np.repeat(np.arange(300), 6)
    label = np.where(draw.normal(size=300)[ids] + 0.3 * draw.normal(size=len(ids)) > 0, "bad", "good")
    # The bank's columns tell customers apart and nothing else.
    columns = {f"c{i}": draw.normal(size=300)[ids] for i in range(6)}
    bank = pa.table({"id": ids, **columns, "label": label})
    numbered = bank.set_column(0, "id", pa.array(np.arange(len(ids))))
    metrics = {}
    for name, owner in (("by id", bank), ("by row", numbered)):
        telco = {"id": np.unique(owner["id"].to_numpy())}
        given = {ACTIVE: owner, TELCO: pa.table({**telco, "noise": draw.normal(size=len(telco["id"]))})}
        job = validated(Job, raw(top={"kind": "boosting", "max_iter": 20, "folds": 1}), "")
        metrics[name] = run(job, given, tmp_path / name).active.metrics["auc"]
    assert metrics["by row"] > 0.9
    assert metrics["by id"] < 0.65


def test_the_model_is_that_of_the_joined_table(tmp_path: Path) -> None:
    """Within the spread over draws of what one table with all columns gives, on the same rows."""
    gaps = []
    for seed in range(2):
        given = loans(seed, 900)
        apart = run(JOB, given, tmp_path / f"apart{seed}").active
        joined = given[ACTIVE].join(given[TELCO], "id", join_type="left outer")
        noise = np.random.default_rng(seed).normal(size=len(given[TELCO]))
        wide = {ACTIVE: joined, TELCO: pa.table({"id": given[TELCO]["id"], "none": pa.array(noise)})}
        together = run(JOB, wide, tmp_path / f"together{seed}").active
        assert sorted(map(str, apart.ids.to_pylist())) == sorted(map(str, together.ids.to_pylist()))
        gaps.append(apart.metrics["auc"] - together.metrics["auc"])
        # Without the partner's column the model is far worse: the join of repeated ids is what gives the rest.
        assert apart.metrics["auc"] > apart.task.evaluate(apart.logits_without[TELCO,], apart.labels)["auc"] + 0.05
    assert np.abs(gaps).max() < 0.01


def test_a_padding_to_the_number_of_rows_is_what_is_stated() -> None:
    """Although as many rows have fewer different ids."""
    assert table([7, 8, 7, 9, 7, 8], duplicates="keep", pad_to=6).id_table.stated_rows == 6


def test_how_often_an_id_repeats_is_stated_to_nobody() -> None:
    bank = table([7, 8, 7, 9, 7, 8], duplicates="keep")
    identified = bank.id_table
    assert isinstance(identified, DistinctIds)
    assert (identified.rows, identified.stated_rows) == (3, 3)
    found = aligned(identified, {TELCO: table([8, 7, 1], TELCO)}, Alignment("psi", processes=1), all_rows=True)
    rows, ids = identified.rows_in_order(found["bank"].positions)
    held = found["bank"].held.repeated(ids)
    digests = bank.digests[rows]
    numbers = held.by_party[TELCO]
    theirs = table([8, 7, 1], TELCO).digests[found[TELCO].positions]
    for row, number in enumerate(numbers):
        assert number < 0 or (digests[row] == theirs[number]).all()
    assert sorted((numbers >= 0).tolist()) == [False] + [True] * 5
    assert (held.digests(TELCO, digests) == theirs).all()
    assert table([1, 2], duplicates="keep").id_table.rows == 2


def test_folds_divide_no_group() -> None:
    draw = np.random.default_rng(0)
    groups = np.repeat(np.arange(60), 5)
    numbers = draw.normal(size=(60, 8))[groups].astype(np.float32)
    y = (draw.random(60) < 0.5)[groups].astype(np.int64)
    rows = FitRows(np.empty((300, 0), np.int64), numbers, (), y, 2)
    import torch

    seen: list[set[int]] = []

    def fit(part: FitRows, seed: int) -> Any:
        seen.append({hash(row.tobytes()) for row in part.numbers})
        return fit_linear(part, seed)

    task = Task("binary", ("a", "b"))
    choose_candidates(rows, torch.from_numpy(y), task, {"linear": fit}, 3, 0, np.ones(300, dtype=bool), groups)
    assert [len(part) for part in seen] == [40, 40, 40]


def test_predictions_of_repeated_ids_have_a_row_each(tmp_path: Path) -> None:
    given = loans()
    execute(JOB, tmp_path / "run", Options(Keys(tmp_path / "keys", KEY), tables=given), Progress())
    done = predict(
        JOB, RunFolder(tmp_path / "run"), tmp_path / "scores.parquet", PredictionRequest(tables=given, key=KEY)
    )
    scores = parquet.read_table(tmp_path / "scores.parquet")
    assert scores["id"].to_pylist() == given[ACTIVE]["id"].to_pylist()
    assert done.rows == len(given[ACTIVE])
    known = set(given[TELCO]["id"].to_pylist())
    assert scores["contributed"].to_pylist() == [
        [ACTIVE, TELCO] if row in known else [ACTIVE] for row in given[ACTIVE]["id"].to_pylist()
    ]


def test_the_latest_row_of_an_id_is_taken_by_a_column() -> None:
    days: list[str | None] = ["2024-01-02", "2024-05-01", "2024-03-01", "2023-01-01", "2024-05-01"]
    rows = pa.table({"id": [1, 2, 1, 1, 2], "day": days})
    config = IdConfig(column="id", duplicates="latest", by="day")
    taken = PartyTable(TELCO, rows, config)
    assert taken.rows == 2
    assert taken.ids(np.arange(2)).to_pylist() == [1, 2]
    assert taken.values("day").to_pylist() == ["2024-03-01", "2024-05-01"]
    for days[1], message in ((None, "a value of 'day' in every row"), ("soon", "dates such as .* in column 'day'")):
        with pytest.raises(DataError, match=f"{message}, to find the latest of an id"):
            PartyTable(TELCO, rows.set_column(1, "day", pa.array(days)), config)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": "common"}, "id.duplicates: keep at the active party of a job with rows: all, got it at bank"),
        ({"split": {"stratify": True}, "privacy": {}}, "a split by_id with id.duplicates: keep, got one by a column"),
    ],
)
def test_jobs_that_repeats_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    made = raw(**{key: value for key, value in changes.items() if key != "rows"}) | {
        key: value for key, value in changes.items() if key == "rows"
    }
    with pytest.raises(ConfigError, match=message):
        validated(Job, made, "")


def test_a_served_table_has_one_row_per_id(tmp_path: Path) -> None:
    given = loans()
    rows = PartyTable(ACTIVE, given[ACTIVE], IdConfig(column="id", duplicates="keep"), label="label")
    encoder = rows.prepare(np.arange(rows.rows), np.arange(rows.rows)).encoder
    assert encoder is not None
    parquet.write_table(given[ACTIVE], tmp_path / "bank.parquet")
    with pytest.raises(DataError, match="every id once, to answer for an id, got repeated ones"):
        FeatureStore.read(JOB, ACTIVE, TableConfig(path=tmp_path / "bank.parquet"), encoder)


def test_a_partner_may_not_keep_repeats() -> None:
    made = raw()
    made["parties"][TELCO]["id"] = {"column": "id", "duplicates": "keep"}
    with pytest.raises(ConfigError, match="got it at telco; take first, latest or drop"):
        validated(Job, made, "")
    with pytest.raises(ConfigError, match="duplicates: latest with by: COLUMN"):
        validated(IdConfig, {"column": "id", "duplicates": "latest"}, "id")


def test_numbers_by_id_become_numbers_by_row() -> None:
    held = HeldRows.of_places({TELCO: np.array([0, 2])}, 3)
    assert held.by_party[TELCO].tolist() == [0, -1, 1]
    rows = held.repeated(np.array([0, 0, 1, 2, 2]))
    assert rows.by_party[TELCO].tolist() == [0, 0, -1, 1, 1]
    assert rows.places(TELCO).tolist() == [0, 3]
    assert rows.count(TELCO, 5) == 2
    assert rows.held_by_all().tolist() == [True, True, False, True, True]


@pytest.mark.parametrize("once", [False, True], ids=["by steps", "released once"])
def test_the_ledger_of_some_loans_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, once: bool) -> None:
    """Customers 1 to 8 have 1, 2, 3, 1, 2, 3, ... loans. The telco has the first five, and two whom the bank lacks.

    So five rows of the telco are released, for 9 loans. By steps each training row is released in both epochs, and each
    held-out row after both of them and at the end: three times. A row that is released r times with noise of 3 times
    what one row changes is N(sqrt(r) / 3, 1) against N(0, 1).
    """
    draw = np.random.default_rng(0)
    ids = np.repeat(np.arange(1, 9), [1, 2, 3, 1, 2, 3, 1, 2])
    bank = {"id": ids, "amount": draw.normal(size=len(ids)), "label": np.where(ids % 2, "bad", "good")}
    telco = {"id": [1, 2, 3, 4, 5, 98, 99], "calls": draw.normal(size=7)}
    given = {ACTIVE: pa.table(bank), TELCO: pa.table(telco)}
    training = {"audit": UNAUDITED, "split": {"test": 0.4, "validation": 0}, "keep": "last", "seed": 1}
    if once:
        made = raw(**training)
        made["parties"][TELCO]["fit"] = {"kind": "none"}
    else:
        made = raw_job(passives=1, epochs=2, batch_size=2, **training) | {"rows": "all"}
        made["parties"][ACTIVE]["id"] = {"column": "id", "duplicates": "keep"}
    made["parties"][TELCO]["privacy"] = {"dp_embedding": {"clip": 1.0, "noise_multiplier": 3.0}}
    job = validated(Job, made, "")
    messages = record(monkeypatch)
    outcome = run(job, given, tmp_path).active
    tested = {row.as_py() for row in outcome.ids} & {1, 2, 3, 4, 5}
    assert 1 <= len(tested) <= 4
    sent = Counter(m.kind for m in messages for t in m.tensors.values() for _ in t if m.sender == TELCO)
    releases = 1 if once else 3
    if once:
        assert sent[Kind.RELEASE] == 5
    else:
        assert (sent[Kind.EMBEDDING], sent[Kind.EVALUATION]) == (2 * (5 - len(tested)), 3 * len(tested))
    (total,) = (each for each in ledger_after(job, outcome).totals if each.protects == "features")
    assert total.releases == releases
    mu = math.sqrt(releases) / 3
    spent = NormalDist().cdf(mu / 2 - total.epsilon / mu) - math.exp(total.epsilon) * NormalDist().cdf(
        -mu / 2 - total.epsilon / mu
    )
    assert spent == pytest.approx(total.delta, rel=1e-3)
