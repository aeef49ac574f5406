"""Sizes of repeated alignments name the members: by the attack of the benchmark on the protocol itself."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.overlap_sizes import halved, runs_needed
from cutlayer.alignment.intersection import Purpose
from tests.alignment.psi_runs import BANK, TELCO, two


def test_dry_runs_of_halves_name_every_member() -> None:
    members = {3, 4, 11}

    def size(some: Sequence[int]) -> int:
        found = two(some, sorted(members | {90, 91}), Purpose.SIZE)[BANK].sizes
        assert found is not None
        return found[TELCO]

    found, runs = halved(range(16), size)
    assert found == members
    assert runs < 16


def test_a_list_with_few_members_takes_fewer_runs_than_ids() -> None:
    assert runs_needed(0.01) < runs_needed(0.1) < 1000
