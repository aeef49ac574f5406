"""A large alignment continues after an interruption, with new masks, on the same tables alone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cutlayer.alignment.buckets as buckets
from cutlayer.alignment.common_rows import CommonRows, rows_active, rows_passive
from cutlayer.alignment.intersection import Alignment, Purpose
from cutlayer.alignment.points import AligningSide, _inputs
from cutlayer.alignment.progress import AlignmentProgress
from cutlayer.channel import Kind, Message, Port, link
from cutlayer.config import LimitsConfig
from cutlayer.data.align import intersect
from cutlayer.errors import PeerLost
from cutlayer.parties.drive.drive import drive_together
from tests.alignment.psi_runs import BANK, PSI, TELCO, table
from tests.alignment.test_keys import keyed

BANK_IDS, TELCO_IDS = list(range(75)), list(range(37, 105))


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch, quick_masks: None) -> None:
    monkeypatch.setattr(buckets, "BUCKET_ROWS", 16)


class Run:
    """Both sides in this process, each with a folder of its own; stops when a message is the n-th of its kind."""

    def __init__(self, base: Path, telco: list[int] | None = None) -> None:
        self.base = base
        self.tables = {BANK: table(BANK_IDS), TELCO: table(TELCO_IDS if telco is None else telco, TELCO)}
        self.masked: list[bytes] = []
        self.buckets = 0

    def go(self, run: str, stop: tuple[Kind, str, int] | None = None) -> dict[str, CommonRows]:
        here, there = link(BANK, TELCO, run)
        count = [0]

        def seen(message: Message) -> None:
            if stop and (message.kind, message.sender) == stop[:2]:
                count[0] += 1
                if count[0] == stop[2]:
                    raise PeerLost("stopped here")
            if message.kind is Kind.MASKED and message.sender == TELCO:
                self.buckets += 1
                self.masked += [bytes(point) for point in message.tensors["points"].numpy()]

        here.inspect = there.inspect = seen
        sides = {name: replace(PSI, folder=self.base / name) for name in self.tables}
        rows = {name: own.stated_rows for name, own in self.tables.items()}
        parties: dict[str, Any] = {
            BANK: rows_active(self.side(BANK, {TELCO: here}, rows, sides)),
            TELCO: rows_passive(self.side(TELCO, {BANK: there}, rows, sides)),
        }
        return drive_together(parties)

    def side(
        self, name: str, ports: dict[str, Port], rows: dict[str, int], sides: dict[str, Alignment]
    ) -> AligningSide:
        stated = {peer: rows[peer] for peer in ports}
        return AligningSide(name, self.tables[name], ports, stated, LimitsConfig(), sides[name])


def check(run: Run, result: dict[str, CommonRows]) -> None:
    plain = intersect({name: own.digests for name, own in run.tables.items()})
    for name in plain:
        assert (result[name].positions == plain[name]).all()  # type: ignore[union-attr]


STOPS = [(Kind.MASKED, TELCO, 4), (Kind.MASKED, BANK, 4), (Kind.REMASKED, TELCO, 4), (Kind.ORDER, BANK, 1)]


@pytest.mark.parametrize("stop", STOPS)
def test_a_stopped_alignment_continues(tmp_path: Path, stop: tuple[Kind, str, int]) -> None:
    run = Run(tmp_path)
    with pytest.raises(PeerLost):
        run.go("one", stop)
    again = Run(tmp_path)
    check(again, again.go("two"))
    assert again.buckets in ((0,) if stop[0] is Kind.ORDER else (5, 6)), "those that both sides have are not done again"
    assert not {*run.masked} & {*again.masked}, "new masks"


@pytest.mark.parametrize("side", [BANK, TELCO])
def test_a_side_that_lost_its_part_begins_again(tmp_path: Path, side: str) -> None:
    with pytest.raises(PeerLost):
        Run(tmp_path).go("one", STOPS[0])
    for file in (tmp_path / side).iterdir():
        file.unlink()
    again = Run(tmp_path)
    check(again, again.go("two"))
    assert again.buckets == 8


@pytest.mark.parametrize("damage", [b"", b"half a file"])
def test_a_damaged_bucket_and_all_after_it_are_done_again(tmp_path: Path, damage: bytes) -> None:
    with pytest.raises(PeerLost):
        Run(tmp_path).go("one", STOPS[3])
    (tmp_path / BANK / "bucket-000002.safetensors").write_bytes(damage)
    again = Run(tmp_path)
    check(again, again.go("two"))
    assert again.buckets == 6


def test_other_rows_begin_again(tmp_path: Path) -> None:
    with pytest.raises(PeerLost):
        Run(tmp_path).go("one", STOPS[0])
    again = Run(tmp_path, telco=[*TELCO_IDS[1:], 9999])
    check(again, again.go("two"))
    assert again.buckets == 8


def test_a_record_is_of_all_that_its_buckets_depend_on(tmp_path: Path) -> None:
    """Buckets of another purpose or table, of another number of rows that a side states, or of other peers."""

    def session(first: int = 0, stated: int = 4, purpose: Purpose = Purpose.ALIGN, **peers: int) -> str:
        digests = np.arange(first, first + 64, dtype=np.uint8).reshape(4, 16)
        own: Any = SimpleNamespace(digests=digests, stated_rows=stated)
        return AlignmentProgress(tmp_path, *_inputs(own, {TELCO: 4} | peers, purpose)).session

    own: Any = SimpleNamespace(digests=np.arange(64, dtype=np.uint8).reshape(4, 16), stated_rows=4)
    AlignmentProgress(tmp_path, *_inputs(own, {TELCO: 4}, Purpose.ALIGN)).begin("one", 2, 0)
    assert session() == "one"
    assert {session(1), session(stated=8), session(purpose=Purpose.SIZE), session(shop=4), session(telco=5)} == {""}
    assert (
        AlignmentProgress(tmp_path / "b", b"ab", b"c")._inputs != AlignmentProgress(tmp_path / "b", b"a", b"bc")._inputs
    )


def test_a_bucket_of_another_session_is_not_continued(tmp_path: Path) -> None:
    """The folder of one session, into which a file of another was copied."""
    progress = AlignmentProgress(tmp_path, b"inputs")
    for session in ("one", "two"):
        progress.begin(session, 2, 0)
        progress.add({"ranks": np.arange(3)})
        (tmp_path / f"{session}.copy").write_bytes((tmp_path / "bucket-000000.safetensors").read_bytes())
    assert AlignmentProgress(tmp_path, b"inputs").done == 1
    shutil.copy(tmp_path / "one.copy", tmp_path / "bucket-000000.safetensors")
    assert AlignmentProgress(tmp_path, b"inputs").done == 0


def test_a_single_bucket_and_the_ids_leave_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path)
    run.go("one")
    digests = table([*BANK_IDS, *TELCO_IDS[38:]]).digests
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("bucket-*"))
    assert stored
    assert not any(digest.tobytes() in stored for digest in digests)
    monkeypatch.setattr(buckets, "BUCKET_ROWS", 1024)
    Run(tmp_path / "other").go("one")
    assert not (tmp_path / "other").exists()


def keyed_run(base: Path) -> Run:
    """Both sides with two keys, of which a third of the rows lack the first."""
    run = Run(base)
    for name, ids in {BANK: BANK_IDS, TELCO: TELCO_IDS}.items():
        run.tables[name] = keyed([(str(n) if n % 3 else None, f"{100000 + n}") for n in ids], name)
    return run


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, CommonRows]]:
    """An alignment by several keys that nothing interrupts."""
    run = keyed_run(tmp_path_factory.mktemp("whole"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(buckets, "BUCKET_ROWS", 16)
        return run, run.go("other")


@pytest.mark.parametrize(
    "stop", [(Kind.MASKED, TELCO, 11), (Kind.ORDER, BANK, 1), (Kind.ORDER, BANK, 2), (Kind.IDS, BANK, 1)]
)
def test_an_alignment_by_several_keys_continues(
    whole: tuple[Run, dict[str, CommonRows]], tmp_path: Path, stop: tuple[Kind, str, int]
) -> None:
    run = keyed_run(tmp_path)
    with pytest.raises(PeerLost):
        run.go("one", stop)
    again = keyed_run(tmp_path)
    result, (uninterrupted, expected) = again.go("two"), whole
    assert result[BANK].by_key == expected[BANK].by_key == {TELCO: (26, 12)}
    for name in (BANK, TELCO):
        assert sorted(result[name].positions) == sorted(expected[name].positions)  # type: ignore[arg-type]
    assert again.buckets < uninterrupted.buckets
    assert not {*run.masked} & {*again.masked}, "new masks"
