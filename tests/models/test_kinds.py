"""Kinds of models: their settings, their shapes and gradients; `tests/conformance` has what every bottom model does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutlayer.consent import allowed
from cutlayer.errors import ConfigError
from cutlayer.models import (
    TOPS,
    BottomModel,
    Inputs,
    TopModel,
    build_bottom,
    build_top,
    check_models,
)
from cutlayer.problem.task import Task
from cutlayer.problem.training_loss import TrainingLoss
from tests.conformance.model_suite import INPUTS, batch, built
from tests.conformance.table import MODELS

MIXED, HALF = INPUTS["mixed"], INPUTS["image"]
WIDTHS = {"bank": 5, "telco": 3, "shop": 4}


class UserBottom(nn.Module):
    """The least a user's bottom model must have."""

    def __init__(self, inputs: Inputs, width: int = 4) -> None:
        super().__init__()
        self.width = width
        self.categories = nn.ModuleList(nn.Embedding(count, 2) for count in inputs.cardinalities)
        self.linear = nn.Linear(2 * len(inputs.cardinalities) + inputs.numbers, width)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        parts = [table(codes[:, index]) for index, table in enumerate(self.categories)]
        result: Tensor = self.linear(torch.cat([*parts, numbers], dim=1))
        return result


class UserTop(nn.Module):
    """The least a user's top model must have."""

    def __init__(self, widths: Mapping[str, int], outputs: int) -> None:
        super().__init__()
        self.linear = nn.ModuleDict({name: nn.Linear(width, outputs) for name, width in widths.items()})

    def forward(self, embeddings: Mapping[str, Tensor]) -> Tensor:
        return torch.stack([self.linear[name](e) for name, e in embeddings.items()]).sum(0)


class NoWidth(UserBottom):
    """Does not say how wide its embedding is."""

    def __init__(self, inputs: Inputs, width: Any = None) -> None:
        super().__init__(inputs)
        self.width = width


class NoModule:
    """Not a module at all."""

    def __init__(self, *_: object) -> None:
        self.width = 3


@pytest.fixture(autouse=True)
def _consent() -> Iterator[None]:
    """The classes of this file may be imported."""
    with allowed(__name__, "no_such_module_here"):
        yield


LEARNED = [name for name, case in MODELS.items() if case.learns]
"""Bottom models with parameters."""
STEPPED = [name for name, kind in TOPS.items() if not kind.is_fitted]
"""Top models that gradient steps train."""
TOP_CASES: dict[str, dict[str, Any]] = {name: {} for name in STEPPED} | {"python": {"path": f"{__name__}:UserTop"}}


def bottom_of(kind: str, inputs: Inputs | None = None, **options: Any) -> BottomModel:
    return built(kind, MODELS[kind], inputs, **options)


def inputs_of(kind: str) -> Inputs:
    return INPUTS[MODELS[kind].reads]


def top_of(kind: str, outputs: int = 1, **options: Any) -> TopModel:
    return build_top({"kind": kind, **TOP_CASES[kind], **options}, widths_of(kind), outputs)


def widths_of(kind: str) -> dict[str, int]:
    return dict.fromkeys(WIDTHS, 4) if kind == "laser" else WIDTHS


def embeddings(kind: str, rows: int = 9) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(1)
    return {name: torch.randn(rows, width, generator=draw).requires_grad_() for name, width in widths_of(kind).items()}


@pytest.mark.parametrize("kind", [kind for kind, case in MODELS.items() if case.reads == "mixed"])
@pytest.mark.parametrize(
    "inputs", [MIXED, Inputs((5,), 0), Inputs((), 2)], ids=["mixed", "one category", "numbers alone"]
)
@pytest.mark.parametrize("rows", [1, 9])
def test_a_bottom_model_embeds_whatever_columns_a_party_has(kind: str, inputs: Inputs, rows: int) -> None:
    model = bottom_of(kind, inputs)
    embedding = model(*batch(inputs, rows))
    assert embedding.shape == (rows, model.width)
    assert embedding.dtype == torch.float32
    assert bool(embedding.isfinite().all())


@pytest.mark.parametrize("kind", STEPPED)
@pytest.mark.parametrize("outputs", [1, 4])
def test_a_top_model_gives_logits_and_every_party_a_gradient(kind: str, outputs: int) -> None:
    model, given = top_of(kind, outputs), embeddings(kind)
    logits = model(given)
    assert logits.shape == (9, outputs)
    torch.autograd.backward(logits, torch.randn(logits.shape, generator=torch.Generator().manual_seed(0)))
    for name, embedding in given.items():
        assert embedding.grad is not None, name
        assert bool(embedding.grad.any()), name
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("kind", STEPPED)
@pytest.mark.parametrize("rows", [1, 5])
def test_a_top_models_objective_is_the_tasks_loss(kind: str, rows: int) -> None:
    model, given = top_of(kind, 3), embeddings(kind, rows)
    task, labels = Task("multiclass", ("a", "b", "c")), torch.arange(rows) % 3
    torch.testing.assert_close(model.objective(given, labels, TrainingLoss(task)), task.loss(model(given), labels))


@pytest.mark.parametrize("kind", STEPPED)
def test_a_top_model_comes_back_from_its_state(kind: str) -> None:
    torch.manual_seed(0)
    model, other, given = top_of(kind), top_of(kind), embeddings(kind)
    assert not torch.equal(model(given), other(given))
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(given), other(given))


@pytest.mark.parametrize("build", [lambda raw: build_bottom(raw, MIXED), lambda raw: build_top(raw, WIDTHS, 1)])
def test_an_unknown_kind_is_told_with_a_near_miss(build: Any) -> None:
    with pytest.raises(ConfigError, match=r"unknown kind 'mpl'; did you mean 'mlp'\?"):
        build({"kind": "mpl"})
    with pytest.raises(ConfigError, match=r"model\.(bottom|top)\.kind: unknown kind None; known: .*mlp"):
        build({})
    with pytest.raises(ConfigError, match=r"model\.(bottom|top)\.hiden: unknown key; did you mean 'hidden'\?"):
        build({"kind": "mlp", "hiden": [3]})


@pytest.mark.parametrize(
    "raw",
    [
        {"kind": "mlp", "hidden": [0]},
        {"kind": "mlp", "hidden": [-3, 2]},
        {"kind": "mlp", "hidden": "3"},
        {"kind": "mlp", "hidden": []},
        {"kind": "mlp", "dropout": 1.0},
        {"kind": "mlp", "embedding": 0},
        {"kind": "mlp", "activation": "rleu"},
        {"kind": "wide_deep", "wide": 0},
        {"kind": "wide_deep", "hidden": [4.5]},
        {"kind": "tabular", "sigma": 0},
        {"kind": "tabular", "frequencies": 0},
        {"kind": "python"},
        {"kind": "python", "path": "no_colon"},
    ],
)
def test_what_cannot_be_built_is_a_config_error_before_anything_is(raw: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        check_models({"bank": raw}, {"kind": "mlp"})


@pytest.mark.parametrize("width", [None, 0, -2, 3.0, "4"])
def test_a_user_module_must_say_its_width(width: Any) -> None:
    with pytest.raises(ConfigError, match="width"):
        build_bottom({"kind": "python", "path": f"{__name__}:NoWidth", "args": {"width": width}}, MIXED)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module_here:Class", "no_such_module_here"),
        (f"{__name__}:Missing", "Missing"),
        (f"{__name__}:NoModule", "NoModule"),
    ],
)
def test_a_user_module_that_is_none_is_named(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_bottom({"kind": "python", "path": path}, MIXED)
    with pytest.raises(ConfigError, match=message):
        build_top({"kind": "python", "path": path}, WIDTHS, 1)


def test_arguments_of_a_user_module_are_passed_and_checked() -> None:
    assert bottom_of("python", args={"width": 7}).width == 7
    with pytest.raises(ConfigError, match="widht"):
        bottom_of("python", args={"widht": 7})


@pytest.mark.parametrize(
    ("raw", "inputs"),
    [
        ({"kind": "mlp", "hidden": [8, 5]}, MIXED),
        ({"kind": "cnn", "width": 5}, HALF),
        ({"kind": "lenet5", "width": 5}, HALF),
    ],
)
def test_a_linear_cut_is_the_same_layer_without_its_activation(raw: dict[str, Any], inputs: Inputs) -> None:
    codes, numbers = torch.zeros(40, len(inputs.cardinalities), dtype=torch.int32), torch.randn(40, inputs.numbers)
    found = {}
    for cut in ("activated", "linear"):
        torch.manual_seed(0)
        found[cut] = build_bottom({**raw, "cut": cut}, inputs)(codes, numbers)
    assert float(found["linear"].detach().min()) < 0 < float(found["linear"].detach().max())
    assert torch.equal(found["activated"], found["linear"].relu())
