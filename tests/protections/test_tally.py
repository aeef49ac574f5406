"""Sums that stay on a device: exact in whole numbers, and the same whenever they are read."""

import pytest
import torch

from cutlayer.protections.contract.tally import Tally

AMOUNTS = (0.1, 0.7, 1e9, 0.3)


def added(reads_at: int) -> float:
    tally = Tally({"sum": 0.2})
    for index, amount in enumerate(AMOUNTS):
        tally.add("sum", torch.tensor(amount, dtype=torch.float64))
        if index == reads_at:
            _ = tally.sums
    return tally.sums["sum"]


def test_a_sum_does_not_depend_on_when_it_is_read() -> None:
    one_by_one = 0.2
    for amount in AMOUNTS:
        one_by_one += amount
    assert {added(reads_at) for reads_at in range(5)} == {one_by_one}


def test_a_sum_goes_on_from_what_was_read() -> None:
    tally = Tally({"sum": 0.2})
    for amount in AMOUNTS:
        tally.add("sum", torch.tensor(amount, dtype=torch.float64))
        tally = Tally(dict(tally.sums))
    assert tally.sums["sum"] == added(9)


def test_counts_stay_whole_numbers_and_may_come_both_ways() -> None:
    tally = Tally({"rows": 0})
    tally.add("rows", 2)
    tally.add("rows", torch.tensor([True, False, True]).sum())
    tally.add("rows", torch.tensor(True))
    tally.add("rows", 2**60)
    assert tally.sums == {"rows": 2**60 + 5}
    assert isinstance(tally.sums["rows"], int)


def test_an_amount_of_another_name_is_refused() -> None:
    tally = Tally({"rows": 0})
    for amount in (1, torch.tensor(1)):
        with pytest.raises(KeyError):
            tally.add("other", amount)
