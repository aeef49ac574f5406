"""Models in mixed precision: float32 results, the same weights, and the row independence check in that precision."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from cutlayer.errors import ConfigError
from cutlayer.kernels.gradients.row_gradients import row_gradients
from cutlayer.models import BottomModel, Inputs, build_bottom, build_top
from cutlayer.models.precision import at_precision
from cutlayer.models.row_independence import check_row_independence

INPUTS = Inputs((4,), 3)
_DRAW = torch.Generator().manual_seed(1)
CODES = torch.randint(4, (32, 1), dtype=torch.int32, generator=_DRAW)
NUMBERS = torch.randn(32, 3, generator=_DRAW)
MLP = {"kind": "mlp", "hidden": [16, 8]}


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Weights are drawn from the global random state."""
    torch.manual_seed(1)


class Mixing(BottomModel):
    """Embeds every row on its own, but not in mixed precision."""

    width = 3

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        embedding: Tensor = self.linear(numbers)
        return embedding - embedding.mean(0) if torch.is_autocast_enabled("cpu") else embedding


def both() -> tuple[BottomModel, BottomModel]:
    """One model in float32, and a copy in bf16."""
    exact = build_bottom(MLP, INPUTS)
    return exact, at_precision(copy.deepcopy(exact), "bf16")


def test_results_and_gradients_are_float32_and_near() -> None:
    exact, mixed = both()
    expected, got = exact(CODES, NUMBERS), mixed(CODES, NUMBERS)
    assert got.dtype == torch.float32
    assert not torch.equal(got, expected)
    assert torch.allclose(got, expected, atol=0.05)
    got.square().mean().backward()  # type: ignore[no-untyped-call]
    assert {p.grad.dtype for p in mixed.parameters() if p.grad is not None} == {torch.float32}
    assert all(p.dtype == torch.float32 for p in mixed.parameters())


@pytest.mark.parametrize("kind", ["mlp", "wide_deep", "multi_head", "laser"])
def test_all_heads_of_a_top_model_have_its_precision(kind: str) -> None:
    widths = {"bank": 8, "telco": 8}
    top = build_top({"kind": kind, "hidden": [6]}, widths, 1, may_leave=["telco"], precision="bf16")
    embeddings = {name: torch.randn(5, 8) for name in widths}
    dtypes = set()
    layers = [layer for layer in top.modules() if isinstance(layer, nn.Linear)]
    handles = [layer.register_forward_hook(lambda *seen: dtypes.add(seen[2].dtype)) for layer in layers]
    for answer in (top(embeddings), top.answer(embeddings, ["bank"])):
        assert answer.dtype == torch.float32
    assert dtypes == {torch.bfloat16}
    assert handles


def test_row_gradients_are_those_of_mixed_precision_in_float32() -> None:
    exact, mixed = both()
    upstream = torch.randn(32, exact.width)
    expected, got = (torch.cat([*row_gradients(model, (CODES, NUMBERS), upstream)]) for model in (exact, mixed))
    assert got.dtype == torch.float32
    assert not torch.equal(got, expected)
    assert float((got - expected).norm() / expected.norm()) < 0.1


def test_rows_are_checked_in_the_precision_of_the_training() -> None:
    model = Mixing()
    check_row_independence(model, Inputs((), 3), "telco")
    with pytest.raises(ConfigError, match="embeds every row on its own"):
        check_row_independence(at_precision(model, "bf16"), Inputs((), 3), "telco")
