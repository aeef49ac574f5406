"""The checks of bottom models. Each takes the name of the kind under test and its line of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from cutlayer.consent import allowed
from cutlayer.errors import ConfigError
from cutlayer.models import BottomModel, Inputs, build_bottom, check_models, layers_of, stated_width

from .table import ModelCase

INPUTS = {"mixed": Inputs((4, 7, 2), 3), "numbers": Inputs((), 3), "image": Inputs((), 16 * 12, (1, 16, 12))}
"""Columns by what a case reads."""


def built(name: str, case: ModelCase, inputs: Inputs | None = None, **options: Any) -> BottomModel:
    """A bottom model with the settings of its line."""
    with allowed("tests.models.test_kinds"):
        return build_bottom({"kind": name, **case.settings, **options}, inputs or INPUTS[case.reads])


def batch(inputs: Inputs, rows: int = 9, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Codes and numbers of random rows."""
    draw = torch.Generator().manual_seed(seed)
    codes = [torch.randint(count, (rows, 1), generator=draw) for count in inputs.cardinalities]
    whole = torch.cat(codes, dim=1) if codes else torch.zeros(rows, 0)
    return whole.to(torch.int32), torch.randn(rows, inputs.numbers, generator=draw)


def refuses_bad_settings(name: str, case: ModelCase) -> None:
    """An unknown key is a `ConfigError` that names it, before anything is built."""
    with pytest.raises(ConfigError, match=r"model\.bottom \(bank\)\.no_such_key"):
        check_models({"bank": {"kind": name, **case.settings, "no_such_key": 1}}, {"kind": "mlp"})


def embeds_rows(name: str, case: ModelCase) -> None:
    """An embedding is finite, float32, and as wide as model and section state."""
    model = built(name, case)
    for rows in (1, 9):
        embedding = model.eval()(*batch(INPUTS[case.reads], rows))
        assert embedding.shape == (rows, model.width), "expected (rows, width)"
        assert embedding.dtype == torch.float32, "expected float32"
        assert bool(embedding.isfinite().all()), "expected finite numbers"
    assert stated_width({"kind": name, **case.settings}) in (None, model.width), "`width` of the kind differs"


def embeds_each_row_on_its_own(name: str, case: ModelCase) -> None:
    """In evaluation other rows of a batch change nothing, and nothing is drawn."""
    model, (codes, numbers) = built(name, case).eval(), batch(INPUTS[case.reads])
    state = torch.get_rng_state()
    torch.testing.assert_close(model(codes, numbers)[2:5], model(codes[2:5], numbers[2:5]))
    assert torch.equal(state, torch.get_rng_state()), "expected no random draws in evaluation"


def learns(name: str, case: ModelCase) -> None:
    """A gradient reaches every parameter, and there is one unless the line says otherwise."""
    model = built(name, case)
    parameters = dict(model.named_parameters())
    assert bool(parameters) == case.learns, "`learns` of the table differs"
    seen = {name: torch.zeros((), dtype=torch.bool) for name in parameters}
    for seed in range(20):
        if all(seen.values()):
            break
        model.zero_grad()
        embedding = model(*batch(INPUTS[case.reads], 64, seed))
        torch.autograd.backward(embedding, torch.randn(embedding.shape, generator=torch.Generator().manual_seed(seed)))
        for key, parameter in parameters.items():
            assert parameter.grad is not None, f"expected a gradient of {key}"
            seen[key] = seen[key] | parameter.grad.any()
    assert all(seen.values()), f"expected a gradient other than 0 of each of {[*seen]}"


def comes_back_from_its_state(name: str, case: ModelCase) -> None:
    """A state that another model of the kind loads gives the same embeddings."""
    torch.manual_seed(0)
    model, other = built(name, case).eval(), built(name, case).eval()
    inputs = batch(INPUTS[case.reads])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1
    assert torch.equal(model(*inputs), other(*inputs)) != case.learns, "expected other weights to give other embeddings"
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(*inputs), other(*inputs)), "expected the embeddings of the model whose state was loaded"


def names_its_layers(name: str, case: ModelCase) -> None:
    """Layers whose outputs an attack reads have a name each."""
    model = built(name, case)
    named = dict(layers_of(model))
    assert bool(named) == case.learns
    assert all(model.get_submodule(path) is layer for path, layer in named.items())


def draws_nothing_without_memory(name: str, case: ModelCase) -> None:
    """To count its numbers a model is built without memory, where these operations import PyTorch's compiler.

    A user's own class may call what it likes.
    """
    if name == "python":
        return

    def called(*_: Any, **__: Any) -> Tensor:
        raise AssertionError("expected neither normal draws nor sums for a model without memory")

    with pytest.MonkeyPatch.context() as patched, torch.device("meta"):
        for owner, operation in ((torch.Tensor, "normal_"), (torch.Tensor, "cumsum"), (torch, "randn")):
            patched.setattr(owner, operation, called)
        assert built(name, case).width


MODEL_CHECKS: tuple[Callable[[str, ModelCase], None], ...] = (
    refuses_bad_settings,
    embeds_rows,
    embeds_each_row_on_its_own,
    learns,
    comes_back_from_its_state,
    names_its_layers,
    draws_nothing_without_memory,
)


def check_model(name: str, case: ModelCase) -> None:
    """Hold one kind of bottom model to all checks."""
    for check in MODEL_CHECKS:
        check(name, case)
