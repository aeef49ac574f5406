"""The image kinds against their layers written out, their sizes, and what the audit reads of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from cutlayer.errors import ConfigError
from cutlayer.models import BottomModel, Inputs, build_bottom, collect_layer_outputs, layers_of
from cutlayer.models.base import MAP_COLUMNS
from cutlayer.models.image import EVALUATION_ROWS

SMALL: Mapping[str, dict[str, Any]] = {"cnn": {"width": 6}, "lenet5": {"width": 6}, "resnet18": {"channels": 4}}
DIGIT_HALF, COLOUR_HALF, COLOUR = (1, 28, 14), (3, 32, 16), (3, 32, 32)


def inputs(*shape: int) -> Inputs:
    return Inputs((), math.prod(shape), (shape[0], shape[1], shape[2]))


def model_of(kind: str, shape: tuple[int, ...] = COLOUR_HALF, **options: Any) -> BottomModel:
    torch.manual_seed(0)
    return build_bottom({"kind": kind, **SMALL[kind], **options}, inputs(*shape))


def batch(rows: int, shape: tuple[int, ...] = COLOUR_HALF, seed: int = 0) -> tuple[Tensor, Tensor]:
    numbers = torch.randn(rows, math.prod(shape), generator=torch.Generator().manual_seed(seed))
    return torch.zeros(rows, 0, dtype=torch.int32), numbers


def parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def resnet18_parameters(colours: int, first: int) -> int:
    """Counted from table 1 of He et al. 2016, and not from the code."""
    total, before = 9 * colours * first + 2 * first, first
    for stage in range(4):
        now = first * 2**stage
        for block in range(2):
            entering = before if block == 0 else now
            total += 9 * entering * now + 9 * now * now + 4 * now
            total += entering * now + 2 * now if block == 0 and stage else 0
        before = now
    return total


def test_resnet18_has_the_published_number_of_parameters() -> None:
    model = build_bottom({"kind": "resnet18"}, inputs(*COLOUR))
    assert parameters(model) == resnet18_parameters(3, 64) == 11_168_832  # 11,173,962 with a classifier of ten classes
    assert model.width == 512
    assert parameters(model) + 10 * 512 + 10 == 11_173_962
    narrow = model_of("resnet18", width=7)
    assert parameters(narrow) == resnet18_parameters(3, 4) + 7 * 32 + 7
    assert narrow.width == 7


def test_lenet5_has_the_papers_layers() -> None:
    model = build_bottom({"kind": "lenet5"}, inputs(1, 28, 28))
    # C1, C3 with all connections, C5 and F6 of LeCun et al. 1998
    assert parameters(model) == 156 + (150 * 16 + 16) + (400 * 120 + 120) + (120 * 84 + 84)
    assert model.width == 84


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("shape", [DIGIT_HALF, (1, 14, 28), COLOUR_HALF, COLOUR, (4, 33, 19)])
@pytest.mark.parametrize("rows", [1, 5])
def test_an_image_kind_embeds_halves_of_every_usual_size(kind: str, shape: tuple[int, ...], rows: int) -> None:
    model = model_of(kind, shape)
    embedding = model(*batch(rows, shape))
    assert embedding.shape == (rows, model.width)
    assert bool(embedding.isfinite().all())
    assert model.eval()(*batch(0, shape)).shape == (0, model.width)


@pytest.mark.parametrize("kind", ["batch", "group", "none"])
def test_resnet18_is_its_layers_written_out(kind: str) -> None:
    model = model_of("resnet18", width=5, norm=kind)
    for module in model.modules():
        if kind == "none" and isinstance(module, torch.nn.Conv2d):
            assert module.bias is not None
            assert not module.bias.any()
            torch.nn.init.uniform_(module.bias, -0.5, 0.5)
        if isinstance(module, torch.nn.BatchNorm2d | torch.nn.GroupNorm):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.uniform_(module.bias, -0.5, 0.5)
    state = {name: tensor.double() for name, tensor in model.state_dict().items()}
    x = batch(6)[1].double().reshape(6, 3, 32, 16)

    def norm(maps: Tensor, name: str) -> Tensor:
        if kind == "none":
            return maps + state[f"{name}.convolution.bias"].reshape(1, -1, 1, 1)
        weight, bias = (state[f"{name}.norm.{part}"].reshape(1, -1, 1, 1) for part in ("weight", "bias"))
        groups, over = maps, (0, 2, 3)
        if kind == "group":  # with 4 to 32 channels, two in each group
            groups, over = maps.unflatten(1, (-1, 2)), (2, 3, 4)
        mean, variance = groups.mean(over, keepdim=True), groups.var(over, unbiased=False, keepdim=True)
        return ((groups - mean) / (variance + 1e-5).sqrt()).reshape(maps.shape) * weight + bias

    def convolved(maps: Tensor, name: str, stride: int) -> Tensor:
        """A convolution as a product of patches and weights."""
        weight = state[f"{name}.convolution.weight"]
        side = weight.shape[2]
        patches = functional.unfold(maps, side, padding=side // 2, stride=stride)
        height, width = (math.ceil(size / stride) for size in maps.shape[2:])
        product = (weight.flatten(1) @ patches).reshape(len(maps), len(weight), height, width)
        return norm(product, name)

    x = convolved(x, "stem", 1).clamp(min=0)
    for index in range(8):
        stride = 2 if index in (2, 4, 6) else 1
        inner = convolved(x, f"blocks.{index}.first", stride).clamp(min=0)
        shortcut = convolved(x, f"blocks.{index}.shortcut", stride) if stride == 2 else x
        x = (convolved(inner, f"blocks.{index}.second", 1) + shortcut).clamp(min=0)
    assert x.shape == (6, 32, 4, 2)
    wanted = x.mean((2, 3)) @ state["projection.weight"].T + state["projection.bias"]
    torch.testing.assert_close(model(*batch(6)).double(), wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("kind", "padding"), [("cnn", (1, 1)), ("lenet5", (2, 0))])
def test_the_small_kinds_are_their_layers_written_out(kind: str, padding: tuple[int, int]) -> None:
    model = model_of(kind, DIGIT_HALF)
    state = model.state_dict()
    codes, numbers = batch(3, DIGIT_HALF)
    x = numbers.reshape(3, 1, 28, 14)
    for index, pad in enumerate(padding):
        name = f"maps.{index}.convolution"
        x = functional.conv2d(x, state[f"{name}.weight"], state[f"{name}.bias"], padding=pad)
        x = functional.max_pool2d(x.clamp(min=0), 2)
    x = x.reshape(3, -1)
    for name in ("dense",) if kind == "cnn" else ("layers.0", "layers.1"):
        x = (x @ state[f"{name}.linear.weight"].T + state[f"{name}.linear.bias"]).clamp(min=0)
    torch.testing.assert_close(model(codes, numbers), x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", SMALL)
def test_evaluation_goes_by_parts_and_rows_do_not_feel_each_other(kind: str) -> None:
    model = model_of(kind, (1, 12, 12))
    codes, numbers = batch(EVALUATION_ROWS + 3, (1, 12, 12))
    model(codes, numbers)
    model.eval()
    seen: list[int] = []
    embed = model.embed  # type: ignore[attr-defined]
    model.embed = lambda images: seen.append(len(images)) or embed(images)  # type: ignore[method-assign, assignment]
    whole = model(codes, numbers)
    assert seen == [EVALUATION_ROWS, 3]
    torch.testing.assert_close(whole[:5], model(codes[:5], numbers[:5]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(whole, embed(numbers.unflatten(1, (1, 12, 12))), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            Inputs((4,), 3),
            "expected an image for a bottom model of kind .*, got columns; use mlp, wide_deep or tabular",
        ),
        (
            Inputs((), 3 * 32 * 16 + 2, COLOUR_HALF),
            "expected an image and no other column .*, got 2 more; name the image alone",
        ),
        (Inputs((5,), 3 * 32 * 16, COLOUR_HALF), "expected an image and no other column .*, got 1 more"),
        (
            inputs(1, 3, 30),
            "expected an image of at least .* pixels .*, got 3 x 30; use mlp, or pad the images",
        ),
        (inputs(1, 30, 3), "expected an image of at least .* pixels for a bottom model of kind .*, got 30 x 3"),
    ],
)
def test_what_an_image_kind_cannot_read(kind: str, given: Inputs, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"model\.bottom \(telco\): {message}"):
        build_bottom({"kind": kind}, given, "model.bottom (telco)")


@pytest.mark.parametrize(("kind", "smallest"), [("cnn", 4), ("lenet5", 12), ("resnet18", 9)])
def test_the_smallest_image_is_as_said(kind: str, smallest: int) -> None:
    shape = (1, smallest, smallest)
    model = model_of(kind, shape)
    assert model(*batch(1, shape)).shape == (1, model.width)
    with pytest.raises(ConfigError, match=f"at least {smallest} x {smallest} pixels"):
        model_of(kind, (1, smallest, smallest - 1))


@pytest.mark.parametrize(
    "raw",
    [
        {"kind": "cnn", "channels": [4]},
        {"kind": "cnn", "channels": [4, 0]},
        {"kind": "cnn", "width": 0},
        {"kind": "lenet5", "width": 0},
        {"kind": "lenet5", "activation": "sigmoid"},
        {"kind": "resnet18", "channels": 0},
        {"kind": "resnet18", "width": 0},
        {"kind": "resnet18", "blocks": 3},
        {"kind": "resnet18", "norm": "layer"},
    ],
)
def test_options_out_of_range(raw: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"model\.bottom\."):
        build_bottom(raw, inputs(*COLOUR_HALF))


def test_the_layers_of_the_image_kinds_are_blocks() -> None:
    names = {kind: [name for name, _ in layers_of(model_of(kind))] for kind in SMALL}
    assert names["cnn"] == ["maps.0", "maps.1", "dense"]
    assert names["lenet5"] == ["maps.0", "maps.1", "layers.0", "layers.1"]
    assert names["resnet18"] == ["stem", *(f"blocks.{index}" for index in range(8)), "pool"]


def test_maps_are_read_as_means_over_equal_areas() -> None:
    model = build_bottom({"kind": "resnet18"}, inputs(*COLOUR_HALF))
    seen: dict[str, Tensor] = {}
    layers = dict(layers_of(model))
    layers["blocks.2"].register_forward_hook(lambda _m, _i, output: seen.update(maps=output.detach()))
    with collect_layer_outputs(model, 3) as outputs:
        model(*batch(4))
    assert all(output.shape[0] == 3 and output.shape[1] <= MAP_COLUMNS for output in outputs.values())
    assert {name: output.shape[1] for name, output in outputs.items()} == {
        **dict.fromkeys(("stem", "blocks.0", "blocks.1"), 64 * 2 * 2),
        **dict.fromkeys(("blocks.2", "blocks.3"), 128 * 2 * 2),
        **dict.fromkeys(("blocks.4", "blocks.5"), 256),
        **dict.fromkeys(("blocks.6", "blocks.7", "pool"), 512),
    }
    maps = seen["maps"][:3]
    areas = [maps[:, :, top : top + 8, left : left + 4].mean((2, 3)) for top in (0, 8) for left in (0, 4)]
    wanted = torch.stack(areas, dim=2).flatten(1)
    torch.testing.assert_close(outputs["blocks.2"], wanted)


def test_small_maps_are_read_as_they_are() -> None:
    model = model_of("cnn", (1, 8, 8), channels=[2, 3])
    with collect_layer_outputs(model, 9) as outputs:
        model(*batch(2, (1, 8, 8)))
    assert outputs["maps.0"].shape == (2, 2 * 4 * 4)
    x = batch(2, (1, 8, 8))[1].reshape(2, 1, 8, 8)
    torch.testing.assert_close(outputs["maps.0"], dict(layers_of(model))["maps.0"](x).flatten(1))
