"""Signs of blocks from the rows that return, against planted ones."""

from __future__ import annotations

import pytest
import torch

from cutlayer.kernels.statistics.sign_alignment import align_signs


def planted(noise: float, epochs: int = 5, rows: int = 600, size: int = 60) -> tuple[torch.Tensor, ...]:
    """True scores, and noisy copies of them in blocks of random signs."""
    draw = torch.Generator().manual_seed(3)
    truth = torch.randn(rows, generator=draw, dtype=torch.float64)
    scores = truth[:, None] + noise * torch.randn(rows, epochs, generator=draw, dtype=torch.float64)
    blocks = [torch.randperm(rows, generator=draw).split(size) for _ in range(epochs)]
    for epoch, parts in enumerate(blocks):
        for part in parts:
            scores[part, epoch] -= scores[part, epoch].mean()
            scores[part, epoch] *= 1 if float(torch.rand((), generator=draw)) < 0.5 else -1
    return truth, scores, blocks


@pytest.mark.parametrize("noise", [0.1, 1.5])
def test_planted_signs_are_restored(noise: float) -> None:
    truth, scores, blocks = planted(noise)
    total = align_signs(scores, blocks).sum(dim=1)
    before = torch.corrcoef(torch.stack([truth, scores.sum(dim=1)]))[0, 1].abs()
    after = torch.corrcoef(torch.stack([truth, total]))[0, 1].abs()
    assert before < 0.3
    assert after > (0.98 if noise < 1 else 0.75)


def test_only_signs_change_and_the_whole_keeps_its_own() -> None:
    _, scores, blocks = planted(0.5)
    aligned = align_signs(scores, blocks)
    assert torch.equal(aligned.abs(), scores.abs())
    assert float((aligned * scores).sum()) >= 0


def test_a_single_epoch_stays_as_it_is() -> None:
    _, scores, blocks = planted(0.5, epochs=1)
    assert torch.equal(align_signs(scores, blocks), scores)


def test_scores_of_nothing_agree_on_nothing() -> None:
    zeros = torch.zeros(10, 2, dtype=torch.float64)
    assert torch.equal(align_signs(zeros, [(torch.arange(10),)] * 2), zeros)
