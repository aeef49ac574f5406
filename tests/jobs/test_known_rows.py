"""Which listed ids a party knows: by its table, the ledger, the grades that it remembers, and its rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cutlayer.accounting.run_store import RUN_MARKER_FILE, RunStore
from cutlayer.config.ids import IdConfig
from cutlayer.data.ids import row_digests
from cutlayer.data.party_data import PartyTable
from cutlayer.jobs.known_rows import unknown_ids
from cutlayer.parties.grade_memory import GradeMemory
from cutlayer.storage.checksum import seal
from cutlayer.storage.durable import write_whole

ROWS = Path("rounds", "predict-1~june", "rows.csv")


def table(*ids: str, rule: Any = "strip") -> PartyTable:
    columns = pa.table({"id": pa.array(ids, pa.string()), "x": np.arange(len(ids))})
    return PartyTable("telco", columns, IdConfig(column="id", normalise=rule))


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger that has B2, remembered grades of C3, and a round with D4; returns the secret."""
    had = {RunStore: "B2", GradeMemory: "C3"}
    for kind, name in had.items():
        plain = row_digests(pa.array([name.lower()]))[0]
        monkeypatch.setattr(kind, "has_rows", lambda _, digests, plain=plain: (digests == plain).all(axis=1))
    (tmp_path / ROWS).parent.mkdir(parents=True)
    (tmp_path / ROWS).write_text("row,id\n0,D4\n")
    return tmp_path / "telco.key"


def test_an_id_is_known_by_each_record(records: Path, tmp_path: Path) -> None:
    listed, rounds = table("A1", "B2", "C3", "D4", "E5"), [tmp_path / ROWS]
    assert unknown_ids(listed, table("A1", "Z9"), records, [], rounds) == {"E5"}
    # By a record an id is known however it was spelled; in the table it must be spelled as it is there.
    assert unknown_ids(table("a1", "b2"), table("A1", "Z9"), records, [], rounds) == {"a1"}
    assert unknown_ids(table("b2"), table("B2"), records, [], rounds) == {"b2"}
    assert unknown_ids(table("a1", rule="lower"), table("A1", rule="lower"), records, [], rounds) == set()


def test_records_that_cannot_tell_leave_no_id_unknown(
    records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, listed, now, files = tmp_path / "run", table("E5"), table("A1"), [tmp_path / ROWS]
    run.mkdir()
    assert unknown_ids(listed, now, records, [run], files) == set()  # as with a supplied key
    write_whole(run / RUN_MARKER_FILE, seal({"number": 1, "hash": "0" * 32}))
    assert unknown_ids(listed, now, records, [run], files) == set()  # as where the secret is beside another ledger
    monkeypatch.setattr(RunStore, "has_run", lambda _, marker: marker.exists())
    assert unknown_ids(listed, now, records, [run], files) == {"E5"}
    files[0].write_bytes(b"\xff\x00,\n")
    assert unknown_ids(listed, now, records, [run], files) == set()
