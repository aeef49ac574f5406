"""Attacks on all blocks of an epoch at once against one block after the other."""

from __future__ import annotations

import torch

from cutlayer.attacks.label.bilinear import RIDGE, _TwoFolds
from cutlayer.attacks.label.blocks import Blocks, nonzero
from cutlayer.attacks.label.history import unit_variance

DRAW = torch.Generator().manual_seed(4)
PARTS = [torch.tensor([7, 2, 9, 4, 11]), torch.tensor([0, 1, 3]), torch.tensor([5, 6, 8, 12])]  # row 10 is in none


def test_what_is_gathered_goes_back() -> None:
    values = torch.randn(13, generator=DRAW, dtype=torch.float64)
    group = Blocks.of(PARTS)
    back = group.scatter(group.gather(values), 13)
    assert float(back[10]) == 0
    assert torch.equal(back[torch.cat(PARTS)], values[torch.cat(PARTS)])
    assert group.gather(values[:, None].expand(13, 2))[1, 3:].eq(0).all()


def test_centring_and_spread_leave_padding_out() -> None:
    values = torch.randn(13, generator=DRAW, dtype=torch.float64) + 5
    group = Blocks.of(PARTS)
    centred = group.centred(group.gather(values))
    for number, part in enumerate(PARTS):
        torch.testing.assert_close(centred[number, : len(part)], values[part] - values[part].mean())
        torch.testing.assert_close(group.deviations(centred)[number, 0], values[part].std(correction=0))
        assert centred[number, len(part) :].eq(0).all()
    assert nonzero(torch.tensor([0.0, 2.0])).tolist() == [1.0, 2.0]


def test_folds_of_all_blocks_are_those_of_each() -> None:
    """The ridge regression of a block's one half on the other, written out for each block."""
    x = torch.randn(13, 3, generator=DRAW)
    targets = torch.randn(13, generator=DRAW, dtype=torch.float64)
    together = _TwoFolds.of(x, PARTS).scores(targets)
    for part in PARTS:
        inputs, wanted = x[part].double(), targets[part] - targets[part].mean()
        fitted, fold = torch.zeros(len(part), dtype=torch.float64), torch.arange(len(part)) % 2
        for own in (0, 1):
            others = inputs[fold != own]
            normal = others.T @ others + RIDGE * torch.eye(3, dtype=torch.float64)
            fitted[fold == own] = inputs[fold == own] @ torch.linalg.solve(normal, others.T @ wanted[fold != own])
        correlation = float(torch.corrcoef(torch.stack([fitted, wanted]))[0, 1])
        torch.testing.assert_close(together[part], unit_variance(fitted) * max(correlation, 1e-3))
