"""Bottom models that let one row move what is released of others are refused, however they do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from cutlayer.errors import ConfigError
from cutlayer.kernels.rows.row_norms import clip_rows
from cutlayer.models import BottomModel, Inputs, build_bottom
from cutlayer.models.row_independence import check_row_independence
from cutlayer.protections import build_chain

TABLE, IMAGE = Inputs((5, 3), 6), Inputs((), 3 * 16 * 16, (3, 16, 16))
SMALL_IMAGE = Inputs((), 3 * 9 * 9, (3, 9, 9))
DP = {"dp_embedding": {"clip": 1.0, "epsilon": 1.0, "delta": 1e-5}}


class Own(BottomModel):
    """A user's bottom model: layers over the numbers, or over the embedded first category."""

    def __init__(self, *layers: nn.Module, categories: bool = False) -> None:
        super().__init__()
        self.width = 6
        self.layers = nn.Sequential(*layers)
        self.table = nn.Embedding(5, 6) if categories else None

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        result: Tensor = self.layers(numbers if self.table is None else self.table(codes[:, 0]))
        return result


class Map(nn.Module):
    """A function of the batch; `mode` says in which mode it is applied, both by default."""

    def __init__(self, function: Callable[[Tensor], Tensor], mode: bool | None = None) -> None:
        super().__init__()
        self.function, self.mode = function, mode

    def forward(self, x: Tensor) -> Tensor:
        return x if self.mode not in (None, self.training) else self.function(x)


class Attention(nn.Module):
    """Rows attend to each other; the gate begins at zero, where it does nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gate * torch.softmax(x @ x.T, dim=1) @ x


class Running(nn.Module):
    """Moves every batch by the mean of those before, and never by its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        result = x - self.mean
        if self.training:
            self.mean += x.mean(0)
        return result


class Instances(nn.Module):
    """Instance normalisation of rows as one channel."""

    def __init__(self, *, running: bool) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm1d(1, track_running_stats=running)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.norm(x[:, None])[:, 0]
        return result


class Counting(nn.Module):
    """Leaves the first batch as it is, and centres every later one."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x - x.mean(0) if self.calls > 1 else x


class Remembered(torch.autograd.Function):
    """Adds the mean size of the gradients that pass back to a buffer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: Tensor) -> Tensor:
        ctx.size = size
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        ctx.size.add_(upstream[0].abs().mean())
        return upstream[0], None


class FromGradients(nn.Module):
    """Scales by the gradients of earlier batches."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("size", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        scaled = x / (1 + self.size.clone())
        result: Tensor = Remembered.apply(scaled, self.size)  # type: ignore[no-untyped-call]
        return result


class Keeping(nn.Module):
    """Keeps its last output with its graph, as modules do that show their attention; it uses it for nothing."""

    last: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.last = 2 * x
        return self.last


class Counted(nn.Module):
    """Counts the training passes in a buffer, which no row decides on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.passes += self.training
        return x


def draws_by_rows(x: Tensor) -> Tensor:
    """Dropout, and then as many random numbers as there are rows with a positive first column: later masks move."""
    dropped = functional.dropout(x, 0.5)
    torch.rand(int((x[:, 0] > 0).sum()))
    return dropped


MIXING = {
    "batch norm": Own(nn.Linear(6, 6), nn.BatchNorm1d(6)),
    "batch norm without statistics": Own(nn.BatchNorm1d(6, track_running_stats=False)),
    "batch norm of categories": Own(nn.BatchNorm1d(6), categories=True),
    "batch norm that starts at zero": Own(nn.BatchNorm1d(6)),
    "instance norm with running statistics": Own(Instances(running=True)),
    "minus the mean": Own(Map(lambda x: x - x.mean(0))),
    "minus the mean in evaluation alone": Own(Map(lambda x: x - x.mean(0), mode=False)),
    "over the largest": Own(Map(lambda x: x / x.abs().max())),
    "each row plus the next": Own(Map(lambda x: x + x.roll(1, 0))),
    "attention over the batch": Own(nn.Linear(6, 6), Attention()),
    "running mean": Own(Running()),
    "minus the mean where gradients are taken": Own(Map(lambda x: x - x.mean(0) if torch.is_grad_enabled() else x)),
    "minus the mean in batches of 8 or more": Own(Map(lambda x: x - x.mean(0) if len(x) >= 8 else x)),
    "minus the mean from the second batch on": Own(Counting()),
    "what gradients left behind": Own(nn.Linear(6, 6), FromGradients()),
    "as many random numbers as rows ask for": Own(Map(draws_by_rows)),
}
nn.init.zeros_(MIXING["batch norm that starts at zero"].layers[0].weight)

SEPARATE = {
    "linear": Own(nn.Linear(6, 6)),
    "layer norm": Own(nn.Linear(6, 6), nn.LayerNorm(6)),
    "dropout": Own(nn.Linear(6, 6), nn.Dropout(0.5)),
    "instance norm": Own(Instances(running=False)),
    "categories": Own(nn.ReLU(), categories=True),
    "keeps its output": Own(nn.Linear(6, 6), Keeping()),
    "without weights": Own(nn.ReLU()),
    "functional dropout": Own(Map(lambda x: functional.dropout(x, 0.5))),
}


@pytest.mark.parametrize("name", MIXING)
def test_models_that_mix_rows_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"a replaced row moves .* for telco|for telco, got one in which"):
        check_row_independence(MIXING[name], TABLE, "telco")


@pytest.mark.parametrize("name", SEPARATE)
def test_models_that_embed_every_row_on_its_own_pass(name: str) -> None:
    check_row_independence(SEPARATE[name], TABLE, "telco")


@pytest.mark.parametrize("name", ["dropout", "functional dropout"])
def test_random_numbers_are_refused_where_a_second_pass_must_repeat_the_first(name: str) -> None:
    with pytest.raises(ConfigError, match="draws no random numbers"):
        check_row_independence(SEPARATE[name], TABLE, "telco", repeatable=True)


@pytest.mark.parametrize("kind", ["mlp", "wide_deep", "linear", "tabular"])
def test_our_models_over_columns_pass(kind: str) -> None:
    section = {"kind": kind, "dropout": 0} if kind == "tabular" else {"kind": kind}
    check_row_independence(build_bottom(section, TABLE), TABLE, "telco", repeatable=True)
    check_row_independence(build_bottom({"kind": kind}, TABLE), TABLE, "telco")


@pytest.mark.parametrize("kind", ["mlp", "cnn", "lenet5"])
def test_our_models_over_images_pass(kind: str) -> None:
    check_row_independence(build_bottom({"kind": kind}, IMAGE), IMAGE, "telco", repeatable=True)


def test_a_model_that_never_repeats_itself_cannot_be_checked() -> None:
    def fresh(x: Tensor) -> Tensor:
        return x + torch.rand(6, generator=source)

    source = torch.Generator().manual_seed(1)
    with pytest.raises(ConfigError, match="repeats itself"):
        check_row_independence(Own(Map(fresh)), TABLE, "telco")


def test_the_check_leaves_all_as_it_was() -> None:
    """Of a model with weights, a buffer that training passes write, and random numbers, in either mode."""
    for training in (False, True):
        bottom = Own(nn.Linear(6, 6), nn.Dropout(0.5), Counted()).train(training)
        before, state = {name: t.clone() for name, t in bottom.state_dict().items()}, torch.get_rng_state()
        check_row_independence(bottom, TABLE, "telco")
        assert torch.equal(state, torch.get_rng_state())
        assert bottom.training == training
        assert all(torch.equal(before[name], t) for name, t in bottom.state_dict().items())


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
def test_one_row_moves_a_whole_release_under_batch_normalisation_alone(norm: str) -> None:
    """The attack: the noise covers a release that moves by 2 C, of one row; batch normalisation moves all rows."""
    torch.manual_seed(0)
    bottom = build_bottom({"kind": "resnet18", "channels": 4, "width": 8, "norm": norm}, SMALL_IMAGE).train()
    x = torch.rand(32, SMALL_IMAGE.numbers)
    y, codes = x.clone(), torch.zeros(32, 0, dtype=torch.int32)
    y[5] = 50 * torch.randn(SMALL_IMAGE.numbers)
    with torch.no_grad():
        first, second = (clip_rows(bottom(codes, given), 1.0) for given in (x, y))
    influence, others = float((first - second).norm()), torch.arange(32) != 5
    chain = build_chain("lab", "passive", DP, "privacy")
    if norm != "batch":
        assert influence <= 2.0
        assert torch.equal(first[others], second[others])
        if norm == "group":  # the check makes many passes; it knows no names of normalisations
            chain.check_bottom(bottom, SMALL_IMAGE)
    else:
        assert influence > 3.0
        with pytest.raises(ConfigError, match=r"dp_embedding of lab, .* group normalisation"):
            chain.check_bottom(bottom, SMALL_IMAGE)
