"""Limits of columns that are no features: what grades carry of them through the columns that predict them."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score

from cutlayer.channel import Kind, Message
from cutlayer.config import Job, PartyConfig, TableConfig, validated
from cutlayer.data.id_index import IdIndex
from cutlayer.data.party_data import PartyTable
from cutlayer.data.prepared import beside
from cutlayer.errors import ConfigError, DataError
from cutlayer.jobs.cautions import readable_columns
from cutlayer.parties.carried import grade_information
from cutlayer.report.carried import carried_section
from cutlayer.serving.predict import PredictionRequest, predict
from cutlayer.training.folder import RunFolder
from cutlayer.training.tables import open_table
from tests.parties.runs import ACTIVE, record, run
from tests.parties.test_carried_together import found_in, share
from tests.parties.test_grades import TELCO, kept, raw
from tests.parties.test_lowered_epsilon import released
from tests.parties.test_predicted_grades import predicted, served
from tests.training.test_all_runs import World

ROWS, KNOWN = 2400, 512
DRAW = np.random.default_rng(0)
MARKER = DRAW.normal(size=ROWS)
HEALTH = (MARKER > 0).astype(int)
LABEL = np.where(DRAW.random(ROWS) < 0.25, 1 - HEALTH, HEALTH)
OWN = {"id": np.arange(ROWS), "own": DRAW.normal(size=ROWS), "label": LABEL}
OPEN = {"other": 1.0}
ALL = slice(None)


def given(health: Any = HEALTH, rows: slice = ALL, **more: Any) -> dict[str, pa.Table]:
    """A marker determines the health, which is no feature, and the labels are it in three rows of four."""
    partner = {"id": np.arange(ROWS), "marker": MARKER, "noise": OWN["own"] ** 2, "health": health} | more
    partner = {name: column[rows] for name, column in partner.items() if column is not None}
    return {TELCO: pa.table(partner), ACTIVE: pa.table(OWN)}


def world_in(folder: Path) -> World:
    """Runs whose secrets are the same in each test, and so what is drawn by them."""
    world = World(folder)
    world.secrets.mkdir()
    for name in (ACTIVE, TELCO):
        (world.secrets / f"{name}.key").touch(mode=0o600)
        (world.secrets / f"{name}.key").write_bytes(bytes(range(32)))
    return world


def made(limits: Any = None, fit: Any = None, name: str = "health", **options: Any) -> Job:
    job = raw({"candidates": ["boosting"], "limits": limits or OPEN} | (fit or {}), **options)
    job["parties"][TELCO]["features"] = {"exclude": [name]}
    return validated(Job, job, "")


def stated(limit: float, **options: Any) -> Job:
    return made(OPEN | {"health": limit}, **options)


def frame(message: Message) -> tuple[Any, ...]:
    """All that crosses of a message."""
    tensors = {name: tensor.numpy().tobytes() for name, tensor in message.tensors.items()}
    return message.kind, message.sender, message.step, dict(message.fields), tensors


def guess(folder: Path | None) -> float:
    """AUC at which the label owner, who knows 512 rows, reads the health of all others from all that it has."""
    held = [OWN["own"], LABEL]
    if folder is not None:
        grades, ids = np.full(ROWS, -1), PartyTable(TELCO, given()[TELCO], "id").digests
        grades[IdIndex(ids).find(kept(folder, "released")["ids"].numpy())] = released(folder)
        held.append(grades)
    columns = np.stack(held, axis=1)
    forest = RandomForestClassifier(50, min_samples_leaf=5, random_state=0, n_jobs=1)
    forest.fit(columns[:KNOWN], HEALTH[:KNOWN])
    return float(roc_auc_score(HEALTH[KNOWN:], forest.predict_proba(columns[KNOWN:])[:, 1]))


@pytest.fixture(scope="module")
def open_world(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Path]:
    """A run whose partner says nothing of its column `health`, and one that allows all of it; not to be changed."""
    world = world_in(tmp_path_factory.mktemp("open"))
    return world, world.run(made(), given(), out="open")


def test_grades_carry_a_column_that_is_no_feature_unless_it_has_a_limit(
    open_world: tuple[World, Path], tmp_path: Path
) -> None:
    """The attack, who knows 512 rows, reads it at an AUC of .99; within the limit at .92, beside .73 without grades."""
    assert "health" not in {each.column for each in found_in(open_world[1]).attributes}
    alone, before = guess(None), guess(open_world[1])
    limited = world_in(tmp_path).run(stated(0.5), given())
    after, found = guess(limited), found_in(limited)
    assert (found.epsilon, found.no_features) == (2.0, ("health",))
    assert found.lowered is not None
    assert not found.lowered.by_default
    assert share(found.attributes, "health") <= 0.5 < found.lowered.share
    assert found.lowered.attribute.startswith("health")
    assert before > 0.99
    assert alone < after < 0.95


def test_a_column_that_is_called_as_all_others_has_a_limit(tmp_path: Path) -> None:
    job = made({"other": 1.0, "=other": 0.5}, name="other")
    found = found_in(world_in(tmp_path).run(job, given(None, other=HEALTH)))
    assert (found.epsilon, found.no_features) == (2.0, ("other",))
    assert share(found.attributes, "other") <= 0.5


def test_it_is_computed_as_of_a_feature(open_world: tuple[World, Path], tmp_path: Path) -> None:
    """The same grades carry the same of a feature of the same values."""
    text = np.where(HEALTH == 1, "ill", "well")
    found = found_in(world_in(tmp_path).run(stated(1.0), given(text, twin=(MARKER > 0).astype(str))))
    assert found.no_features == ("health",)
    assert share(found.attributes, "health") == share(found.attributes, "twin") > 0.9


def test_grades_beyond_it_are_refused_before_any_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = record(monkeypatch)
    carried = r"carried: health[^;]* \(no feature\) 0\.[89].*marker .*nothing was sent"
    wanted = rf"carry 0\.2 of an attribute of health at most, got 0\.[89].*{carried}"
    with pytest.raises(ConfigError, match=wanted):
        world_in(tmp_path).run(stated(0.2), given())
    assert Kind.RELEASE not in {message.kind for message in messages}


@pytest.mark.parametrize("how", ["pilot", "private", "rows", "cells"])
def test_it_holds_wherever_a_limit_does(tmp_path: Path, how: str) -> None:
    limits = OPEN | {"health": 0.02}
    job = raw({"candidates": ["boosting"], "limits": limits})
    fixed = {"numbers": {"scale": "none", "missing": "zero"}}
    job["parties"][TELCO]["features"] = {"exclude": ["health", "noise"]} | fixed
    if how == "rows":
        job["rows"] = "all"
    if how == "private":
        job["parties"][TELCO]["fit"] = {"kind": "grade", "epsilon": 50.0, "delta": 1e-4, "limits": limits, "least_z": 0}
    if how == "cells":
        job["parties"][TELCO]["fit"] = {"kind": "cells", "limits": limits}
        job["parties"][ACTIVE]["privacy"] = {"label_free": None}
        job["model"]["bottom"][TELCO] = {"kind": "grade", "of": "columns"}
    with pytest.raises(ConfigError, match=r"carry 0\.02 of an attribute of health at most"):
        world_in(tmp_path).run(validated(Job, job, ""), given(), pilot=300 if how == "pilot" else 0)


def test_it_is_of_all_releases_of_the_same_rows(open_world: tuple[World, Path], tmp_path: Path) -> None:
    """Two grades at 2 tell more than one, and the first was released before the column had a limit: not by the same
    draws, of which the limit is no part.
    """
    world = world_in(tmp_path)
    first = world.run(made(epsilon=2.0), given())
    again = world.run(stated(0.5, epsilon=2.0), given())
    assert torch.equal(released(first), released(again))
    with pytest.raises(ConfigError, match=r"of health.* at most with those of 1 other release of these rows"):
        world.run(stated(0.5, epsilon=2.0, fit={"folds": 3}), given())
    found = found_in(world.run(stated(1.0, epsilon=2.0, fit={"folds": 3}), given()))
    assert share(found.together, "health") > 0.5 > share(found.attributes, "health")


def test_a_prediction_keeps_it(tmp_path: Path) -> None:
    """By the limits of the time, of the whole table; rows without the column are refused."""
    world = world_in(tmp_path)
    some = given(rows=slice(0, 1200))
    folder = world.run(made(), {TELCO: some[TELCO], ACTIVE: given()[ACTIVE].slice(0, 1200)})
    later, whole = np.arange(1200), given(rows=slice(1200, None))[TELCO]
    bare = whole.drop_columns("health")
    wanted = r"carry 0\.3 of an attribute of health at most.*nothing was sent"
    lacking = r"fit\.limits of columns.* got 'health'; its limit holds for these rows"
    with pytest.raises(ConfigError, match=wanted):
        predicted(stated(0.3), folder, later, whole)
    with pytest.raises(DataError, match=lacking):
        predicted(stated(0.3), folder, later, bare)
    with pytest.raises(ConfigError, match=wanted), served(stated(0.3), folder, whole):
        pass
    with pytest.raises(DataError, match=lacking):
        served(stated(0.3), folder, bare)
    request = PredictionRequest({TELCO: whole, ACTIVE: given()[ACTIVE]})
    with pytest.raises(ConfigError, match=wanted):
        predict(stated(0.3), RunFolder(folder), tmp_path / "out.csv", request)
    with pytest.raises(ConfigError, match=r"got 'health'; its private file limits it by now, which one process does"):
        predict(made(), RunFolder(folder), tmp_path / "out.csv", request)
    assert len(predicted(stated(1.0), folder, later, whole)) == 1200


def test_text_in_place_of_numbers_is_refused(tmp_path: Path) -> None:
    """One word in a CSV file makes text of a column, of whose thresholds nothing would be computed."""
    some, later = given(rows=slice(0, 1200)), given(MARKER, rows=slice(1200, None))[TELCO]
    job = stated(1.0)
    folder = world_in(tmp_path).run(job, {TELCO: some[TELCO], ACTIVE: given()[ACTIVE].slice(0, 1200)})
    text = later.set_column(3, "health", pa.array([f"{number!r}" for number in MARKER[1200:]]))
    with pytest.raises(DataError, match=r"expected numbers in column 'health', as in the training, got text"):
        predicted(stated(0.3), folder, np.arange(1200), text)
    assert len(predicted(job, folder, np.arange(1200), later)) == 1200


@pytest.mark.parametrize(
    ("name", "said"), [("helth", "'helth'; did you mean 'health'"), ("id", "no id and no label, got 'id'")]
)
def test_a_limit_of_no_such_column_is_refused_before_labels_are_sent(tmp_path: Path, name: str, said: str) -> None:
    job = made({name: 0.5})
    with pytest.raises(DataError, match=said):
        open_table(job, TELCO, given())


@pytest.mark.parametrize("is_feature", [False, True])
def test_a_limit_of_an_image_is_refused_before_labels_are_sent(is_feature: bool) -> None:
    tables = given()
    images = pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((ROWS, 3, 3), np.uint8))
    tables[TELCO] = tables[TELCO].append_column("scan", images)
    job = made({"scan": 0.5})
    if not is_feature:
        features = job.parties[TELCO].features.model_copy(update={"exclude": ("health", "scan")})
        job = job.with_parties({TELCO: {"features": features}})
    with pytest.raises(DataError, match=r"fit\.limits of columns with categories or numbers, got image 'scan'"):
        open_table(job, TELCO, tables)


def test_a_column_of_one_value_exceeds_no_limit(tmp_path: Path) -> None:
    found = found_in(world_in(tmp_path).run(stated(0.01), given(np.zeros(ROWS))))
    assert (found.epsilon, found.lowered, found.no_features) == (8.0, None, ("health",))
    assert "health" not in {each.column for each in found.attributes}


@pytest.mark.parametrize(
    "health",
    [
        np.where(HEALTH == 1, 1.0, np.nan),
        np.where(np.arange(ROWS) == 7, 1e18, HEALTH),
        np.where(np.arange(ROWS) == 7, np.iinfo(np.int64).min, HEALTH),
        np.where(np.arange(ROWS) == 7, np.inf, HEALTH),
        np.where(HEALTH == 1, np.nan, np.where(np.arange(ROWS) == 7, 1e300, 0.0)),
    ],
    ids=["blank", "huge", "least", "infinite", "both"],
)
def test_blanks_and_huge_numbers_hide_nothing(health: Any) -> None:
    """A mean in place of a missing one is the one value of a flag, and beside 1e18 all others are one number."""
    party = stated(0.5).parties[TELCO]
    opened = PartyTable(TELCO, given(health)[TELCO], "id", features=party.features, limited=party.limited_columns)
    limited = opened.limited_columns()
    assert limited is not None
    assert share(grade_information(*limited, HEALTH, None, 2).attributes, "health") > 0.98


def test_blanks_of_a_feature_with_a_limit_count() -> None:
    """Which the model does not see: the column is one number to it, and others tell which rows have it."""
    flag = np.where(HEALTH == 1, 1.0, np.nan)
    party = validated(Job, raw({"limits": {"health": 0.5}}), "").parties[TELCO]
    opened = PartyTable(TELCO, given(flag)[TELCO], "id", features=party.features, limited=party.limited_columns)
    prepared = opened.prepare(np.arange(ROWS), np.arange(ROWS))
    assert prepared.store is not None
    assert prepared.encoder is not None
    store, encoder = beside(prepared.store, prepared.encoder, prepared.limited)
    assert encoder.names == prepared.encoder.names == ("marker", "noise", "health")
    assert share(grade_information(store, encoder, HEALTH, None, 2).attributes, "health") > 0.98


def test_the_label_owner_is_sent_the_same_whatever_the_column_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as no limit is exceeded: else the epsilon, or a refusal, says that it is."""
    messages, sent = record(monkeypatch), []
    for nth, health in enumerate((HEALTH, np.where(DRAW.random(ROWS) < 0.5, "ill", "well"))):
        run(stated(1.0), given(health), tmp_path / str(nth))
        sent.append([frame(each) for each in messages])
        messages.clear()
    assert sent[0] == sent[1]
    run(stated(0.5), given(), tmp_path / "exceeded")
    assert [frame(each) for each in messages] != sent[0]


@pytest.mark.parametrize("kind", ["csv", "sql"])
def test_it_is_read_with_the_features(tmp_path: Path, kind: str) -> None:
    """Of the rows of one query, whose order may change; codes in a CSV file stay text, as a feature's would."""
    codes = np.array(["007", "7", "7", "07", "0007"] * 40)
    rows = pd.DataFrame({"id": np.arange(200), "marker": np.arange(200.0), "health": codes})
    if kind == "sql":
        with sqlite3.connect(tmp_path / "t.db") as database:
            rows.to_sql("t", database, index=False)
        (tmp_path / "t.sql").write_text("select * from t")
        table = TableConfig(path=tmp_path / "t.sql", url=f"sqlite:///{tmp_path}/t.db")
    else:
        rows.to_csv(tmp_path / "t.csv", index=False)
        table = TableConfig(path=tmp_path / "t.csv")
    party = PartyConfig(
        role="passive",
        features={"exclude": ["health"], "categorical": ["health"]},
        fit={"kind": "grade", "limits": {"health": 0.1, "marker": 0.5, "other": 0.6}},
    )
    opened = PartyTable(TELCO, table, "id", features=party.features, limited=party.limited_columns)
    positions = np.array([7, 3, 0])
    prepared = opened.prepare(positions, positions[:0])
    assert prepared.encoder is not None
    assert prepared.encoder.names == ("marker",)
    assert prepared.limited is not None
    store, encoder = prepared.limited
    assert [encoder.categories[0].values[code - 2] for code in store.codes[:, 0]] == [*codes[positions]]  # type: ignore[union-attr]


def test_its_owner_reads_it_in_the_check_and_in_the_report(tmp_path: Path) -> None:
    assert readable_columns(stated(0.5), TELCO).endswith(
        "; of an attribute of a column grades carry at most: health 0.5"
    )
    assert "at most" not in readable_columns(stated(1.0), TELCO)
    section = carried_section({TELCO: found_in(world_in(tmp_path).run(stated(1.0), given()))})
    assert section is not None
    assert "health (no feature)" in str(section.blocks)
    assert "marker (no feature)" not in str(section.blocks)
