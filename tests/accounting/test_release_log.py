"""The release log as a file: what a reader finds after a kill, damage, another run and other rows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cutlayer.accounting import Occasion, ReleaseLog, Slot, release_log
from cutlayer.accounting.release_log import log_of_run
from cutlayer.errors import CheckpointError

COSTS = (0.25, 0.0)
IDENTITY = {"party": "telco", "job": "0a", "rows": "0b", "folder": "/runs/first"}


def slot(batch=0, epoch=0, kind="embedding"):
    return Slot(Occasion(kind, "bank", "train", "train", epoch), batch)


def opened(path, costs=COSTS, marker=None, **identity):
    log = ReleaseLog(path, {**IDENTITY, **identity}, marker)
    log.open(*costs)
    return log


@pytest.fixture
def path(tmp_path):
    return tmp_path / "telco.key.releases" / "rows" / "run.jsonl"


def filled(path, epochs=1, batches=3, **options):
    log = opened(path, **options)
    for epoch in range(epochs):
        for batch in range(batches):
            log.append(slot(batch, epoch), f"{epoch:x}{batch:x}", 8)
    return log


def test_a_reader_finds_what_was_written(path):
    log = filled(path, epochs=3)
    again = opened(path)
    assert again.entries == log.entries == 1 + 9
    assert again.tally.highest == log.tally.highest
    for epoch in range(3):
        for batch in range(3):
            assert again.has(slot(batch, epoch), f"{epoch:x}{batch:x}")
            assert not again.has(slot(batch, epoch), "ff")
            assert again.contents(slot(batch, epoch)) == 1
    assert again.contents(slot(3)) == 0


def test_nothing_is_made_before_the_first_release(path):
    opened(path).allow(0, 0)
    opened(path).close()
    assert not path.parent.exists()


@pytest.mark.parametrize("count", [1, 9])
def test_an_occasion_long_ago_is_read_from_the_file_again(path, count, monkeypatch):
    """Memory holds a few occasions; the log holds all, before and after a resume."""
    monkeypatch.setattr(release_log, "_MAX_OCCASIONS", count)
    log = filled(path, epochs=6)
    for reader in (log, opened(path)):
        assert reader.has(slot(1, 0), "01")
        assert reader.contents(slot(1, 0)) == 1
        assert len(reader._seen) <= count
    log.append(slot(1, 0), "ff", 8)
    log.append(slot(1, 5), "ff", 8)
    again = opened(path)
    assert again.contents(slot(1, 0)) == again.contents(slot(1, 5)) == again.tally.highest[slot(1, 0).occasion] == 2
    assert again.tally.releases("embedding") == 6 + 2


@pytest.mark.parametrize("cut", range(1, 400, 23))
def test_a_file_cut_anywhere_loses_whole_lines_at_most(path, cut):
    filled(path)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(whole[:-cut])
    log = opened(path)
    ends = [len(b"".join(lines[: number + 1])) for number in range(len(lines))]
    # A line that lacks nothing but its line break counts.
    assert log.entries == sum(end - 1 <= len(whole) - cut for end in ends)
    log.append(slot(7), "77", 8)
    assert opened(path).has(slot(7), "77")


def test_a_flipped_bit_never_makes_a_reader_count_less(path):
    """A whole line that is not what was written is refused, wherever the bit is."""
    filled(path)
    whole = path.read_bytes()
    for position in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 2]) + whole[position + 1 :])
        with pytest.raises(CheckpointError, match="restore it from a backup"):
            opened(path)


def test_a_flipped_last_line_break_loses_nothing(path):
    filled(path)
    path.write_bytes(path.read_bytes()[:-1] + b"\x0b")
    assert opened(path).entries == 1 + 3


def test_another_job_rows_or_noise_is_refused(path):
    filled(path)
    for options, named in (
        ({"job": "0c"}, "job"),
        ({"rows": "0c", "job": "0c"}, "job, rows"),
        ({"costs": (1.0, 0.0)}, "release_cost"),
    ):
        with pytest.raises(CheckpointError, match=f"got one of another {named}"):
            opened(path, **options)
    assert opened(path, folder="/moved/elsewhere").entries == 1 + 3


def test_a_log_without_its_first_line_is_refused(path):
    filled(path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    with pytest.raises(CheckpointError, match="a first line of"):
        opened(path)


def test_a_marker_without_its_log_is_refused(path, tmp_path):
    marker = tmp_path / "run" / "release_log.json"
    filled(path, marker=marker)
    assert opened(path, marker=marker).entries == 1 + 3
    with pytest.raises(CheckpointError, match="the common rows that the releases in"):
        opened(path, marker=marker, rows="0c")
    with pytest.raises(CheckpointError, match="move both together, or restore it from a backup"):
        opened(tmp_path / "moved" / "rows" / path.name, marker=marker)
    marker.write_text("{")
    with pytest.raises(CheckpointError, match="is damaged"):
        opened(tmp_path / "moved" / "rows" / path.name, marker=marker)


def test_the_marker_is_made_after_the_log_and_before_the_first_entry(path, tmp_path, monkeypatch):
    marker, seen = tmp_path / "run" / "release_log.json", []
    real = release_log.append_line

    def append(at, line):
        seen.append((marker.exists(), path.exists()))
        real(at, line)

    monkeypatch.setattr(release_log, "append_line", append)
    filled(path, marker=marker)
    assert seen[:2] == [(False, False), (True, True)]


def test_a_log_that_a_kill_left_with_its_first_line_alone_still_gets_its_marker(path, tmp_path):
    marker = tmp_path / "run" / "release_log.json"
    filled(path)
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    opened(path, marker=marker).append(slot(), "00", 8)
    assert release_log.log_of_run(marker.parent) == path


def test_the_log_of_a_run_is_found_from_any_working_directory(tmp_path, monkeypatch):
    """A copy of the project in that directory has a log of the same relative path, in which nothing must be counted."""
    marker, here = tmp_path / "run" / "release_log.json", tmp_path / "project"
    here.mkdir()
    monkeypatch.chdir(here)
    filled(Path(".cutlayer") / "log.jsonl", marker=marker)
    monkeypatch.chdir(tmp_path)
    assert release_log.log_of_run(marker.parent) == here / ".cutlayer" / "log.jsonl"


def test_a_damaged_marker_is_refused(tmp_path):
    for content in ("[" * 100_000, "{}", "[]", "null", "x"):
        (tmp_path / "release_log.json").write_text(content)
        with pytest.raises(CheckpointError, match="is damaged"):
            release_log.log_of_run(tmp_path)


@pytest.mark.parametrize("content", ["a token without a line break", '{"a": 1}\n', ""])
def test_a_file_that_a_marker_of_somebody_else_names_is_no_log_and_stays_as_it_is(tmp_path, content):
    victim = tmp_path / "token"
    victim.write_text(content)
    (tmp_path / "release_log.json").write_text(f'{{"log": "{victim}"}}')
    with pytest.raises(CheckpointError, match="expected the release log of the run"):
        log_of_run(tmp_path)
    assert victim.read_text() == content


def test_no_file_behind_a_link_is_cut(path, tmp_path):
    victim = tmp_path / "token"
    victim.write_text("a token without a line break")
    path.parent.mkdir(parents=True)
    path.symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"):
        opened(path)
    assert victim.read_text() == "a token without a line break"


def test_every_line_is_synced_before_append_returns(path, monkeypatch):
    synced = []
    real = os.fdatasync

    def sync(descriptor):
        real(descriptor)
        synced.append(path.read_bytes().count(b"\n"))

    monkeypatch.setattr(os, "fdatasync", sync)
    log = opened(path)
    for batch in range(3):
        log.append(slot(batch), f"{batch:x}", 8)
        assert synced[-1] == 2 + batch


def test_unfinished_runs_are_those_without_a_last_line_that_says_so(path):
    filled(path, epochs=2)
    ended = filled(path.with_name("ended.jsonl"), epochs=5, folder="/runs/ended")
    ended.close()
    ended.close()
    filled(path.with_name("again.jsonl"), folder="/runs/again")
    (path.parent / "empty.jsonl").touch()
    new = opened(path.with_name("new.jsonl"))
    assert new.unfinished() == (3 * COSTS[0], ("/runs/again", "/runs/first"))
    assert opened(path).unfinished() == (1 * COSTS[0], ("/runs/again",))
    ended.append(slot(0, 9), "99", 8)
    assert new.unfinished()[0] == 9 * COSTS[0]
    ended.close()  # the end of a prediction with a run that had ended
    assert new.unfinished()[0] == opened(new.path).unfinished()[0] == 3 * COSTS[0]


def test_a_damaged_log_of_another_run_is_refused_too(path):
    filled(path)
    path.write_bytes(path.read_bytes().replace(b'"rows":8', b'"rows":9', 1))
    with pytest.raises(CheckpointError, match="is damaged at byte"):
        opened(path.with_name("new.jsonl")).unfinished()


def test_another_writer_is_noticed(path):
    first = filled(path)
    second = opened(path)
    second.append(slot(5), "55", 8)
    with pytest.raises(CheckpointError, match="another process runs from a copy of the same run folder"):
        first.append(slot(6), "66", 8)


def test_what_was_accepted_is_found_again(path):
    log = filled(path)
    log.allow(2, 1)
    log.allow(1, 3)
    again = opened(path)
    assert (again.allowed_releases, again.allowed_steps) == (log.allowed_releases, log.allowed_steps) == (3, 4)


def test_a_log_in_memory_counts_as_one_on_disk(path):
    memory, disk = filled(None), filled(path)
    assert memory.tally.highest == disk.tally.highest
    assert memory.unfinished() == (0.0, ())


def test_the_log_of_a_finished_run_is_found_without_a_marker(tmp_path):
    with pytest.raises(CheckpointError, match="got none"):
        log_of_run(tmp_path)
    filled(tmp_path / "releases" / "rows" / "run.jsonl")
    assert log_of_run(tmp_path) == tmp_path / "releases" / "rows" / "run.jsonl"
    filled(tmp_path / "releases" / "other" / "run.jsonl")
    with pytest.raises(CheckpointError, match=r"got .*other/run.jsonl, .*rows/run.jsonl"):
        log_of_run(tmp_path)


def test_a_line_that_was_written_before_is_read(path):
    """The form of a line and its checksum: a log of an earlier version must not count as damaged."""
    ended = '{"check":"d2345434383b74c8","entry":{"end":true}}'
    filled(path).close()
    assert path.read_text().splitlines()[-1] == ended
