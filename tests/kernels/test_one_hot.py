"""Categories as columns: distances between rows are what they should be."""

import torch

from cutlayer.kernels.rows.one_hot import MAX_COLUMNS, one_hot_columns


def test_categories_become_columns_beside_the_numbers():
    codes = torch.tensor([[0, 2], [1, 0]], dtype=torch.int32)
    found = one_hot_columns(codes, torch.tensor([[0.5], [-1.0]]), (2, 3))
    assert found.tolist() == [[0.5, 1, 0, 0, 0, 1], [-1.0, 0, 1, 1, 0, 0]]
    assert found.dtype == torch.float32


def test_a_differing_category_is_the_root_of_two():
    draw = torch.Generator().manual_seed(0)
    codes = torch.stack([torch.randint(count, (40,), generator=draw) for count in (3, 50, 7)], 1).int()
    found = one_hot_columns(codes, torch.zeros(40, 0), (3, 50, 7))
    differing = (codes[:, None] != codes[None]).sum(2)
    assert torch.allclose(torch.cdist(found, found), (2.0 * differing).sqrt(), atol=1e-3)


def test_many_codes_share_few_columns():
    codes = torch.arange(1000, dtype=torch.int32)[:, None]
    found = one_hot_columns(codes, torch.zeros(1000, 2), (1000,))
    assert found.shape == (1000, 2 + MAX_COLUMNS)
    assert torch.equal(found[3], found[3 + MAX_COLUMNS])
    assert not torch.equal(found[3], found[4])


def test_without_categories_the_numbers_stay_as_they_are():
    numbers = torch.randn(4, 2)
    assert torch.equal(one_hot_columns(torch.zeros(4, 0, dtype=torch.int32), numbers, ()), numbers)
