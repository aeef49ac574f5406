"""One flipped bit in any file of an interrupted run: refused with a clear error, or the end is the same."""

from __future__ import annotations

import shutil
import warnings
import zlib
from pathlib import Path

import pytest

from cutlayer.errors import CutlayerError
from cutlayer.training.together import TrainedRun
from tests.parties.interruptions import Crash, Dying, assert_equal
from tests.parties.runs import ACTIVE, make_job, run, tables

JOB = make_job(privacy={"label_dp": {"eps": 2.0}, "max_norm": {}}, audit={"rows": 64, "attacks": ["norm"]}, epochs=3)
GIVEN = tables()
STEPS = 4
FILES = 24


class Stages(Dying):
    """Dies in the third epoch, when two are committed."""

    def __init__(self) -> None:
        super().__init__(2 * STEPS + 1)


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, TrainedRun]:
    """A run that was interrupted, and the same one resumed without damage, under keys of its own."""
    half, whole = tmp_path_factory.mktemp("half") / "run", tmp_path_factory.mktemp("whole") / "run"
    with pytest.raises(Crash):
        run(JOB, GIVEN, half, key=None, progress=Stages())
    shutil.copytree(half, whole)
    return half, whole, run(JOB, GIVEN, whole, key=None, resume=True)


def flipped(path: Path) -> None:
    """Flip one bit, at a position that depends on the file's name alone."""
    content = bytearray(path.read_bytes())
    bit = zlib.crc32(str(path.name).encode() + path.parent.name.encode()) % (len(content) * 8)
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def test_a_flipped_bit_is_refused_or_without_effect(ends: tuple[Path, Path, TrainedRun], tmp_path: Path) -> None:
    half, whole, trained = ends
    names = [path.relative_to(half) for path in sorted(half.rglob("*")) if path.is_file() and path.stat().st_size]
    assert {path.name for path in names} >= {"committed.json", "noise.key", "history.jsonl", "numbers.npy"}
    assert len(names) >= FILES, "the run leaves fewer files than it should"
    refused: dict[Path, str] = {}
    for number, name in enumerate(names):
        folder = tmp_path / str(number)
        shutil.copytree(half, folder)
        flipped(folder / name)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*the run can resume from the checkpoint before")
                again = run(JOB, GIVEN, folder, key=None, resume=True)
        except CutlayerError as refusal:
            refused[name] = str(refusal)
        else:
            assert_equal(folder, again, whole, trained, JOB)
        shutil.rmtree(folder)
    assert 3 < len(refused) < len(names) - 8, refused
    clear = ("does not fit", "keys.fingerprint")  # a key is refused by its fingerprint
    unclear = {name: why for name, why in refused.items() if not any(word in why for word in (name.name, *clear))}
    assert not unclear


def test_bytes_and_seconds_are_sums_over_all_starts(ends: tuple[Path, Path, TrainedRun], tmp_path: Path) -> None:
    """Both starts send ids and order; every committed epoch is counted once."""
    plain = run(JOB, GIVEN, tmp_path / "plain")
    _, _, resumed = ends
    handshake = 16 * sum(table.num_rows for name, table in GIVEN.items() if name != ACTIVE)
    for name, (sent, received) in plain.traffic.items():
        more = resumed.traffic[name][0] - sent, resumed.traffic[name][1] - received
        assert 0 < sum(more) <= 2 * handshake, (name, more)
    assert resumed.traffic[ACTIVE][0] == sum(found[1] for name, found in resumed.traffic.items() if name != ACTIVE)
