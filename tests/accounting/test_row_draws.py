"""Draws of rows whose values change: counted once for each value, whoever counts, and never fewer after a fault."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cutlayer.accounting import MARKER, ReleaseLog, row_pairs
from cutlayer.accounting.row_draws import Pairs, RowDraws
from cutlayer.errors import BudgetExceeded, CheckpointError, ConfigError

IDENTITY = {"party": "telco", "job": "j", "rows": "r", "folder": "f"}
NAME = "draws"


def pairs(*drawn: tuple[int, int]) -> Pairs:
    """Pairs of a row number and a value."""
    digests = np.zeros((len(drawn), 16), np.uint8)
    digests[:, 3] = [row for row, _ in drawn]
    return row_pairs(digests, np.array([value for _, value in drawn]))


def opened(path: Path, marker: Path | None = None) -> ReleaseLog:
    log = ReleaseLog(path, IDENTITY, marker)
    log.open(0.0, 0.0)
    return log


def counts(log: ReleaseLog) -> tuple[int, int]:
    return log.draws.most, log.draws.again


def allow(*_: int) -> None:
    pass


def test_counts_are_those_of_sets_of_values() -> None:
    draw, mine, known = np.random.default_rng(0), RowDraws(), dict[int, set[int]]()
    for _ in range(60):
        rows, values = draw.integers(0, 80, 30), draw.integers(0, 3, 30)
        new = mine.new_pairs(batch := pairs(*zip(rows.tolist(), values.tolist(), strict=True)))
        for row, value in zip(rows.tolist(), values.tolist(), strict=True):
            known.setdefault(row, set()).add(value)
        sizes = [len(each) for each in known.values()]
        wanted = max(sizes), sum(size > 1 for size in sizes)
        touched = max((len(known[row]) for row in {*(new >> np.uint64(24)).tolist()}), default=0)
        assert mine.counts_with(new) == (touched, wanted[1])
        mine.add(batch)
        assert (mine.most, mine.again) == wanted
        assert not len(mine.new_pairs(batch))
    assert mine.most == 3


def test_a_value_that_a_pair_has_no_room_for_is_refused() -> None:
    with pytest.raises(ConfigError, match="values from 0 to 15"):
        pairs((1, 16))


def test_a_row_that_alternates_is_two_draws(tmp_path: Path) -> None:
    log = opened(tmp_path / "run.jsonl")
    for value in (1, 2, 1, 2, 1):
        log.count_draws(NAME, pairs((7, value), (8, 3)), allow)
    assert counts(log) == (2, 1)
    log.close()
    assert counts(opened(tmp_path / "run.jsonl")) == (2, 1)


def test_two_processes_count_together(tmp_path: Path) -> None:
    first = opened(tmp_path / "run.jsonl")
    first.count_draws(NAME, pairs((1, 0)), allow)
    second = opened(tmp_path / "run.jsonl")
    second.count_draws(NAME, pairs((1, 1)), allow)
    first.count_draws(NAME, pairs((1, 2)), allow)
    assert counts(first) == (3, 1)
    second.close()
    first.close()
    assert counts(opened(tmp_path / "run.jsonl")) == (3, 1)


def test_a_run_that_is_begun_again_counts_what_the_first_one_drew(tmp_path: Path) -> None:
    opened(tmp_path / "first.jsonl").count_draws(NAME, pairs((1, 0), (2, 0)), allow)
    opened(tmp_path / "other.jsonl").count_draws("other draws", pairs((1, 5)), allow)
    again = opened(tmp_path / "again.jsonl")
    again.count_draws(NAME, pairs((1, 1)), allow)
    assert counts(again) == (2, 1)


def test_a_refused_draw_is_not_counted_and_a_counted_one_is_not_lost(tmp_path: Path) -> None:
    def refuse(most: int, again: int) -> None:
        assert (most, again) == (2, 1)
        raise BudgetExceeded("two draws")

    path = tmp_path / "run.jsonl"
    log = opened(path)
    log.count_draws(NAME, pairs((1, 0)), allow)
    with pytest.raises(BudgetExceeded):
        log.count_draws(NAME, pairs((1, 1)), refuse)
    assert counts(opened(path)) == (1, 0)
    log.count_draws(NAME, pairs((1, 1)), allow)  # and the process is killed before it sends
    with path.open("ab") as file:
        file.write(b'{"check":"0')  # in the middle of the next count
    resumed = opened(path)
    resumed.count_draws(NAME, pairs((1, 1)), refuse)  # the same draw: no further one
    assert counts(resumed) == (2, 1)
    resumed.count_draws(NAME, pairs((2, 0)), refuse)
    with pytest.raises(AssertionError):  # asked of each row that is drawn again, not only of the first
        resumed.count_draws(NAME, pairs((2, 1)), refuse)


def test_a_lost_log_is_refused(tmp_path: Path) -> None:
    path, marker = tmp_path / "keys" / "run.jsonl", tmp_path / "run" / MARKER
    opened(path, marker).count_draws(NAME, pairs((1, 0)), allow)
    path.unlink()
    with pytest.raises(CheckpointError, match="expected the release log"):
        opened(path, marker)


def test_draws_of_another_key_are_refused_in_the_same_log(tmp_path: Path) -> None:
    log = opened(tmp_path / "run.jsonl")
    log.count_draws(NAME, pairs((1, 0)), allow)
    with pytest.raises(CheckpointError, match="draws of one key"):
        log.count_draws("others", pairs((1, 0)), allow)


def test_predictions_without_ids_may_draw_every_row_again(tmp_path: Path) -> None:
    log = opened(tmp_path / "run.jsonl")
    log.count_draws(NAME, pairs((1, 0)), allow)
    for table in (5, 9, 5):  # the third is that of the first, and is not drawn again
        log.count_draws(NAME, pairs((table, 1), (table + 1, 2)), allow, named=False)
    log.count(NAME, "unseen")
    assert (opened(log.path or tmp_path).draws.most, log.draws.unseen) == (3, 1)
