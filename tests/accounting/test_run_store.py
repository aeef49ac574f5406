"""The ledger of all runs on disk: what it keeps of a run that is noted twice, and digests that later versions read."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cutlayer.accounting import Ledger
from cutlayer.accounting.run_store import RunLine, RunStore, new_source, row_words, rows_digest
from cutlayer.errors import CheckpointError

WORDS = row_words(np.arange(48, dtype=np.uint8).reshape(3, 16))
LINE = RunLine("a", "bank", "job 1.0", "s", rows_digest(WORDS), 3, "p", Ledger(()))


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "all.sqlite")


def noted(store: RunStore, line: RunLine, **options: bool) -> list[tuple[int, str, str]]:
    """All rows of the table of runs after a line was added."""
    store.add(line, WORDS, store.path.with_name("mark.json"), lambda others: None, **options)
    with sqlite3.connect(store.path) as database:
        return database.execute("SELECT * FROM runs ORDER BY number").fetchall()


def test_a_run_is_noted_once_and_again_only_beyond_its_plan(store: RunStore) -> None:
    other = replace(LINE, count=4)
    assert len(noted(store, LINE)) == 1
    assert len(noted(store, other)) == 1, "as it was planned, it is there"
    assert len(noted(store, LINE, beyond_plan=True)) == 1, "nothing is new"
    rows = noted(store, other, beyond_plan=True)
    assert [number for number, _, _ in rows] == [1, 2]
    assert [json.loads(entry)["count"] for _, entry, _ in rows] == [3, 4]


def test_digests_are_those_that_are_on_disk_already(store: RunStore) -> None:
    """By another implementation: a ledger that an earlier version wrote stays readable, and its runs are recognised."""

    def of(content: bytes, size: int, label: bytes) -> str:
        return hashlib.blake2b(content, digest_size=size, person=label).hexdigest()

    assert rows_digest(WORDS) == of(WORDS.astype("<u8").tobytes(), 16, b"ledger rows")
    assert new_source(b"secret") == of(b"secret", 8, b"ledger source")
    ((number, entry, digest),) = noted(store, LINE)
    assert digest == of(f" {number} {entry}".encode(), 16, b"ledger chain")


def test_lines_of_other_runs_parties_rows_or_plans_add_up(store: RunStore) -> None:
    """A resume of the same run, on the same rows and plan, is the line that is there; all else is a further one."""
    others = row_words(np.arange(64, dtype=np.uint8).reshape(4, 16))
    lines = [LINE, *(replace(LINE, **{name: "x"}) for name in ("run", "party", "plan"))]
    for line in [*lines, *lines]:
        noted(store, line)
    store.add(replace(LINE, rows=rows_digest(others)), others, store.path.with_name("m"), lambda others: None)
    found = store.lines()
    assert [replace(line, time="") for line in found] == [*lines, replace(LINE, rows=rows_digest(others))]


def test_one_row_in_both_is_enough_for_two_runs_to_share_rows(store: RunStore) -> None:
    ids = np.arange(7 * 16, dtype=np.uint8).reshape(7, 16)
    parts = {"a": row_words(ids[:4]), "b": row_words(ids[3:6]), "c": row_words(ids[6:])}
    seen: dict[str, list[str]] = {}
    for run, words in parts.items():
        line = replace(LINE, run=run, rows=rows_digest(words), count=len(words))
        store.add(
            line, words, store.path.with_name(run), lambda lines, run=run: seen.update({run: [x.run for x in lines]})
        )
    assert seen == {"a": [], "b": ["a"], "c": []}
    sharing = {run: [line.run for line in store.sharing_rows(words)] for run, words in parts.items()}
    assert sharing == {"a": ["a", "b"], "b": ["a", "b"], "c": ["c"]}
    assert [line.run for line in store.sharing_rows(row_words(ids[[2, 6]]))] == ["a", "c"]
    assert store.sharing_rows(row_words(ids[:0])) == []


def test_the_check_has_all_other_lines_also_those_of_the_same_run(store: RunStore) -> None:
    """A split that was sent, and the draws that came later, are of one run."""
    seen: list[RunLine] = []
    noted(store, LINE)
    later = replace(LINE, plan="later")
    for _ in range(2):
        store.add(later, WORDS, store.path.with_name("mark.json"), seen.extend)
    assert [replace(line, time="") for line in seen] == [LINE, LINE]


@pytest.mark.parametrize(
    "statement",
    [
        "drop table runs; create view runs as select 1 as number, zeroblob(100000000) as entry, 'x' as hash",
        "create trigger hidden after insert on runs begin delete from runs; end",
        "create table more (number integer)",
        "drop table runs; create table runs (number integer, entry text as (hex(zeroblob(9000000))), hash text)",
    ],
)
def test_a_ledger_with_other_tables_is_not_read(store: RunStore, statement: str) -> None:
    """What a view or a computed column stands for takes any memory, and a trigger changes what is written."""
    noted(store, LINE)
    with sqlite3.connect(store.path) as database:
        database.executescript(statement)
    database.close()
    with pytest.raises(CheckpointError, match="other tables than a ledger; restore the latest copy"):
        store.lines()
