"""A resume on another table is refused, and the error says at which party and in which column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from cutlayer.config import Job, validated
from cutlayer.data.store import Store
from cutlayer.errors import CheckpointError
from cutlayer.parties.session.checkpoint import TABLE_FILE
from cutlayer.parties.session.state import PartyState
from cutlayer.storage.checksum import seal, unseal
from tests.parties.interruptions import Dying, interrupted
from tests.parties.runs import ACTIVE, PASSIVES, UNAUDITED, raw_job, run, tables, unaudited_job

TELCO = PASSIVES[0]
GIVEN = tables()
STEPS = 4
Tables = Mapping[str, pa.Table]


def job_of(weight: str | None = None, **options: Any) -> Job:
    raw = raw_job(audit=UNAUDITED, **options)
    raw["parties"][ACTIVE] |= {"weight": weight} if weight else {}
    return validated(Job, raw, "")


def with_column(party: str, name: str, values: Any, given: Tables = GIVEN) -> dict[str, pa.Table]:
    """The tables with a column of a party replaced."""
    table = given[party]
    return {**given, party: table.set_column(table.column_names.index(name), name, pa.array(values))}


def negated(party: str, name: str, row: slice = slice(None)) -> dict[str, pa.Table]:
    values = GIVEN[party][name].to_numpy().copy()
    values[row] *= -1
    return with_column(party, name, values)


def relabelled(rows: slice = slice(None)) -> dict[str, pa.Table]:
    labels = np.array(GIVEN[ACTIVE]["label"].to_pylist())
    labels[rows] = np.where(labels[rows] == "yes", "no", "yes")
    return with_column(ACTIVE, "label", labels)


def as_text(party: str, name: str) -> dict[str, pa.Table]:
    texts = [f"{value:.0f}" for value in GIVEN[party][name].to_pylist()]
    return with_column(party, name, ["unknown", *texts[1:]])


CHANGES: dict[str, tuple[Callable[[], Tables], str]] = {
    "values": (lambda: negated(TELCO, "telco_1"), "telco .*other values in column 'telco_1';"),
    "own values": (lambda: negated(ACTIVE, "bank_0", slice(7, 8)), "bank .*other values in column 'bank_0';"),
    "categories": (
        lambda: with_column(TELCO, "telco_kind", GIVEN[TELCO]["telco_kind"].to_pylist()[::-1]),
        "telco .*other values in column 'telco_kind';",
    ),
    "several": (
        lambda: with_column(TELCO, "telco_2", np.zeros(235), negated(TELCO, "telco_1")),
        "telco .*other values in columns 'telco_1', 'telco_2';",
    ),
    "type": (
        lambda: as_text(TELCO, "telco_0"),
        "telco that .*got a category in column 'telco_0', which was a number; restore the table, or start a new run",
    ),
    "gone": (lambda: {**GIVEN, TELCO: GIVEN[TELCO].drop_columns("telco_2")}, "telco .*got no column 'telco_2';"),
    "new": (
        lambda: {**GIVEN, TELCO: GIVEN[TELCO].append_column("more", pa.array(range(235)))},
        "telco .*got a new column 'more';",
    ),
    "labels": (relabelled, "bank .*other labels in column 'label';"),
    "one label": (lambda: relabelled(slice(3, 4)), "bank .*other labels in column 'label';"),
    "rows": (lambda: {**GIVEN, TELCO: GIVEN[TELCO].slice(1)}, "in every party's table, got other common rows"),
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was interrupted in its second epoch. No resume that is refused changes it."""
    folder = tmp_path_factory.mktemp("begun")
    interrupted(job_of(), GIVEN, folder, Dying(STEPS + 1))
    return folder


@pytest.mark.parametrize("change", CHANGES)
def test_a_resume_on_another_table_is_refused(begun: Path, change: str) -> None:
    given, message = CHANGES[change]
    stores = {path: path.read_bytes() for path in begun.glob("data/*/*")}
    with pytest.raises(CheckpointError, match=message):
        run(job_of(), given(), begun, resume=True)
    assert {path: path.read_bytes() for path in begun.glob("data/*/*")} == stores, "an audit still reads them"


def test_the_same_table_in_another_order_goes_on(tmp_path: Path) -> None:
    job = job_of()
    interrupted(job, GIVEN, tmp_path / "a", Dying(STEPS + 1))
    turned = {name: table.select(table.column_names[::-1]).sort_by("id") for name, table in GIVEN.items()}
    columns = {name: table.column_names for name, table in GIVEN.items()}
    turned = {name: table.select(columns[name]) for name, table in turned.items()}
    resumed, whole = run(job, turned, tmp_path / "a", resume=True), run(job, GIVEN, tmp_path / "b")
    assert torch.equal(resumed.active.logits, whole.active.logits)


@pytest.mark.parametrize("which", ["finished", "released once"])
def test_what_has_ended_or_was_released_is_of_its_table(tmp_path: Path, which: str) -> None:
    job = job_of(release="once") if which == "released once" else job_of()
    run(job, GIVEN, tmp_path)
    for change in ("values", "labels"):
        given, message = CHANGES[change]
        with pytest.raises(CheckpointError, match=message):
            run(job, given(), tmp_path, resume=True)
    run(job, GIVEN, tmp_path, resume=True)


def test_other_weights_are_refused(tmp_path: Path) -> None:
    weights = np.linspace(1, 2, 240)
    given = {**GIVEN, ACTIVE: GIVEN[ACTIVE].append_column("weight", pa.array(weights))}
    interrupted(job_of("weight"), given, tmp_path, Dying(STEPS + 1))
    with pytest.raises(CheckpointError, match=r"bank .*other weights in column 'weight';"):
        run(job_of("weight"), with_column(ACTIVE, "weight", weights[::-1], given), tmp_path, resume=True)
    run(job_of("weight"), given, tmp_path, resume=True)


def test_before_anything_was_saved_a_table_may_be_corrected(tmp_path: Path) -> None:
    interrupted(job_of(), GIVEN, tmp_path, Dying(0))
    run(job_of(), relabelled(), tmp_path, resume=True)


@pytest.mark.parametrize("choice", ["refuse", "keep"])
def test_of_remembered_labels_those_that_nothing_remembers_are_compared(tmp_path: Path, choice: str) -> None:
    """`label_dp` judges the labels of training rows; those of held-out rows it does not see."""
    job = job_of(privacy={"label_dp": {"eps": 1.0, "changed_labels": choice}})
    trained = run(job, GIVEN, tmp_path / "whole", key=None)
    ids = set(trained.active.ids.to_pylist())
    (row,) = [row for row, id_ in enumerate(GIVEN[ACTIVE]["id"].to_pylist()) if id_ in ids][:1]
    other = relabelled(slice(row, row + 1))
    if choice == "keep":
        run(job, other, tmp_path / "whole", key=None, resume=True)
        return
    with pytest.raises(CheckpointError, match=r"bank .*other labels in column 'label'"):
        run(job, other, tmp_path / "whole", key=None, resume=True)


def test_labels_of_rows_without_ids_are_compared(tmp_path: Path) -> None:
    """A changed label would draw all of them again, within one run."""
    raw = raw_job(privacy={"label_dp": {"eps": 1.0}}, audit=UNAUDITED)
    sorted_rows = {name: table.sort_by("id").slice(0, 200) for name, table in GIVEN.items()}
    for party in raw["parties"].values():
        party |= {"id": "@row", "features": {"exclude": ["id"]}}
    job = validated(Job, raw, "")
    interrupted(job, sorted_rows, tmp_path, Dying(STEPS + 1))
    labels = sorted_rows[ACTIVE]["label"].to_pylist()
    labels[5] = "no" if labels[5] == "yes" else "yes"
    with pytest.raises(CheckpointError, match=r"bank .*other labels in column 'label'"):
        run(job, with_column(ACTIVE, "label", labels, sorted_rows), tmp_path, resume=True)


def test_a_run_without_checksums_goes_on_and_gets_them(tmp_path: Path) -> None:
    """As one that was begun before there were any."""
    job = unaudited_job(epochs=3)
    interrupted(job, GIVEN, tmp_path, Dying(STEPS + 1))
    for path in tmp_path.glob(f"checkpoint/*/{TABLE_FILE}"):
        path.unlink()
    for path in tmp_path.glob("data/*/store.json"):
        index = unseal(path.read_bytes())
        assert index.pop("column_sums")
        path.write_text(seal(index))
    run(job, GIVEN, tmp_path, resume=True)
    assert len(list(tmp_path.glob(f"checkpoint/*/{TABLE_FILE}"))) == len(job.parties)
    assert Store.open(tmp_path / "data" / TELCO).column_sums
    given, message = CHANGES["values"]
    with pytest.raises(CheckpointError, match=message):
        run(job, given(), tmp_path, resume=True)


def test_weights_of_another_model_are_refused_without_the_words_of_the_library() -> None:
    state: Any = SimpleNamespace(modules=torch.nn.ModuleDict({"bottom": torch.nn.Linear(2, 2)}))
    with pytest.raises(CheckpointError) as refused:
        PartyState.load_weights(state, ({"module/bottom.weight": torch.zeros(3, 2)}, {}))
    assert str(refused.value).startswith(
        "expected the weights of the job's model in the checkpoint, got others; restore"
    )
    assert "state_dict" not in str(refused.value)
