"""The repairs of `max_norm` change what their names say, and only while they are measured."""

import torch

from benchmarks.max_norm_repairs import POSITIVE_SIGNS, REPAIRS, SETTINGS, TABLES, repaired
from cutlayer.kernels.rows.row_norms import row_norms
from cutlayer.protections import max_norm


def test_fixed_signs_depend_on_no_length():
    draw = torch.Generator().manual_seed(1)
    uniform = torch.rand(4000, generator=draw)
    lines = torch.nn.functional.normalize(torch.randn(4000, 5, generator=draw), dim=1)
    before = max_norm.aligned_rows
    with repaired(None):
        sent = []
        for _ in range(2):
            gradients = lines * (0.1 + torch.rand(4000, 1, generator=draw))
            sent.append(max_norm.aligned_rows(gradients, row_norms(gradients), uniform, gradients[:0], 4.0))
    assert max_norm.aligned_rows is before
    torch.testing.assert_close(sent[0], sent[1])
    torch.testing.assert_close(row_norms(sent[0]).double(), torch.full((4000,), 2.0, dtype=torch.float64))
    kept = (sent[0] * lines).sum(dim=1) > 0
    assert torch.equal(kept, uniform < POSITIVE_SIGNS)


def test_rows_of_zeros_take_another_line():
    gradients = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    with repaired(None):
        sent = max_norm.aligned_rows(
            gradients, row_norms(gradients), torch.tensor([0.9, 0.9]), torch.tensor([[0.0, 5.0]]), 2.0
        )
    torch.testing.assert_close(sent, torch.tensor([[0.0, 1.0], [-0.6, -0.8]]))


def test_a_longer_length_holds_while_it_is_measured():
    usual = max_norm._LENGTH_FACTOR
    with repaired(8.0):
        assert max_norm._LENGTH_FACTOR == 8.0
    assert max_norm._LENGTH_FACTOR == usual == REPAIRS["past"]
    assert len(SETTINGS) == len(REPAIRS) * len(TABLES)
