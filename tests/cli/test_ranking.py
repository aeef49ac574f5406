"""Ranking within groups: from `init` to predictions, what the split must not divide, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet
from sklearn.metrics import ndcg_score

from cutlayer.models.top_estimators import choice
from cutlayer.training.folder import RunFolder
from tests.cli.jobs import Place

SESSIONS, OFFERS = 60, 8


def write(place: Place, group: str = "session") -> None:
    """Offers of sessions, whose grades follow a number of each party and a level that is the session's."""
    draw = np.random.default_rng(3)
    rows = SESSIONS * OFFERS
    own, other, level = (
        draw.normal(size=rows),
        draw.normal(size=rows),
        np.repeat(draw.normal(size=SESSIONS), OFFERS),
    )
    grades = np.clip(np.round(1 + 0.4 * own + 0.9 * other + level + draw.normal(size=rows)), 0, 3).astype(int)
    sessions = np.repeat(np.arange(SESSIONS) + 100, OFFERS)
    names = [f"s{number}" for number in sessions] if group == "text" else sessions
    lines = zip(range(rows), names, own.round(4), grades, sessions // 2, strict=True)
    text = "\n".join(["id,session,own,grade,day", *(",".join(map(str, line)) for line in lines)])
    (place.folder / "bank.csv").write_text(text + "\n")
    partner = [f"{number},{value}" for number, value in enumerate(other.round(4))]
    (place.folder / "telco.csv").write_text("\n".join(["id,other", *partner]) + "\n")


def job(**owner: Any) -> dict[str, Any]:
    """A job of ranking with other keys of its label's owner, and `split` and `top`."""
    split, top = owner.pop("split", {"by": "session"}), owner.pop("top", {"kind": "linear"})
    task = owner.pop("task", "ranking")
    bank = {"role": "active", "table": "bank.csv", "id": "id", "label": "grade", "group": "session", **owner}
    telco = {"role": "passive", "table": "telco.csv", "id": "id", "fit": {"kind": "sketch"}, "audit": {"attacks": []}}
    return {
        "task": task,
        "parties": {"bank": {key: value for key, value in bank.items() if value is not None}, "telco": telco},
        "model": {"bottom": {"bank": {"kind": "auto"}, "telco": {"kind": "linear", "width": 32}}, "top": top},
        "train": {"release": "once", "split": {"validation": 0.1, "test": 0.3, **split}},
    }


def test_rows_are_ranked_within_groups_that_no_part_divides(place: Place) -> None:
    write(place)
    args = (
        "--label",
        "grade",
        "--task",
        "ranking",
        "--group",
        "session",
        "--protect",
        "labels",
        "--yes",
        "--overwrite",
    )
    made = place.call("init", ".", "--labels", "bank.csv", *args)
    assert made.code == 0, made.err
    assert place.call("check", "job.yaml").code == 0
    place.write({**job(audit={"attacks": ["few_labels"]}), "compare": ["alone", "boosting"]})
    result = place.call("run", place.file, "--json")
    assert result.code == 0, result.err
    run = RunFolder.open(place.run_folder)
    metrics = {str(row.name): row.metrics for row in run.summary.utility.rows}
    held_out = parquet.read_table(place.run_folder / "predictions.parquet")
    ids, scores = held_out["id"].to_numpy().astype(int), held_out["value"].to_numpy()
    table = np.genfromtxt(place.folder / "bank.csv", delimiter=",", skip_header=1)
    sessions, grades = table[ids, 1].astype(int), table[ids, 3]
    tested = np.unique(sessions)
    assert len(ids) == len(tested) * OFFERS
    several = [s for s in tested if np.ptp(grades[sessions == s]) > 0]
    expected = [ndcg_score([2 ** grades[sessions == s] - 1], [scores[sessions == s]], k=10) for s in several]
    assert metrics["this run"]["ndcg"] == pytest.approx(np.mean(expected), rel=1e-5)
    this_run, alone = (metrics[name]["ndcg"] or 0 for name in ("this run", "bank alone"))
    assert this_run > alone > (metrics["chance"]["ndcg"] or 1)
    assert 0.6 < (metrics["this run"]["pairs_in_order"] or 0) < 1
    row = run.summary.utility.rows[0]
    assert (row.low or 1) < this_run < (row.high or 0)
    lost = {(column.party, column.column): column.drop for column in run.summary.utility.columns}
    assert lost["bank", "own"] > 0.02, "without its number the order is worse"
    leaks = run.audit.runs["this run"].leaks
    assert [leak.attack for leak in leaks] == ["few_labels"]
    assert place.call("predict", place.run_folder, "--out", "s.csv").code == 0
    assert Path("s.csv").read_text().splitlines()[0] == '"id","value","contributed"'


def test_a_pilot_would_have_some_rows_of_a_group(place: Place) -> None:
    write(place)
    place.write(job())
    refused = place.call("pilot", place.file, "--rows", "100")
    assert "expected a pilot of another task than ranking" in refused.error


def test_models_of_many_rows_are_chosen_on_whole_groups() -> None:
    groups = np.repeat(np.arange(9_000), 3)
    some = choice._sample_rows(len(groups), groups, 0)
    assert choice.MAX_ROWS - 3 < len(some) <= choice.MAX_ROWS
    assert set(np.bincount(groups[some])) == {0, 3}
    assert len(np.unique(choice._sample_rows(len(groups), None, 0))) == choice.MAX_ROWS


def test_groups_may_be_texts_and_lie_within_the_values_that_the_split_is_by(place: Place) -> None:
    write(place, group="text")
    place.write(job(split={"by": "day"}, audit={"attacks": []}))
    assert place.call("run", place.file, "--json").code == 0


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"split": {"by": None}}, "expected train.split.by with task ranking, got rows at random"),
        ({"split": {"by": "own"}}, "expected each group of session in one part of the split"),
        ({"group": None}, "expected parties.bank.group with task ranking, got none"),
        ({"task": "regression"}, "expected parties.bank.group with task ranking alone"),
        ({"coverage": 0.9}, "expected parties.bank.coverage with another task than ranking"),
        (
            {"privacy": {"label_dp": {"eps": 1.0}}, "split": {"by": "session", "public": True}},
            "no parties.bank.privacy.label_dp with parties.bank.group",
        ),
        ({"label": "own"}, "grades of relevance: whole numbers, 0 to 30"),
        ({"group": "nowhere"}, "nowhere"),
        ({"top": {"kind": "mlp"}}, "expected model.top.kind as one of"),
    ],
)
def test_what_does_not_rank_is_refused(place: Place, changes: dict[str, Any], phrase: str) -> None:
    write(place)
    place.write(job(**changes))
    place.refused(phrase, verbs=("run",))
