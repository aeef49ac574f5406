"""What stands for a module imports it at its first use, and then reads its names as the module has them."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from cutlayer import lazy
from cutlayer.models import Inputs, build_bottom

LATE = """
value = 1

def __getattr__(name):
    if name == "made":
        return 2
    raise AttributeError(f"no {name}")
"""


def test_a_module_is_imported_at_its_first_use_and_read_as_it_is_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_names.py").write_text(LATE)
    monkeypatch.syspath_prepend(tmp_path)
    stands = type(lazy.torch)("late_names")
    assert "late_names" not in sys.modules
    assert stands.value == 1
    module = sys.modules.pop("late_names")
    assert vars(stands) is vars(module)
    module.value = 3
    assert (stands.value, vars(stands).get("made")) == (3, None)


def test_names_that_a_module_makes_are_asked_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "later_names.py").write_text(LATE)
    monkeypatch.syspath_prepend(tmp_path)
    stands = type(lazy.torch)("later_names")
    try:
        assert [stands.made, stands.value, stands.made] == [2, 1, 2]
        with pytest.raises(AttributeError, match="no other"):
            _ = stands.other
    finally:
        del sys.modules["later_names"]


def test_a_subclass_of_module_is_one_of_pytorch_from_its_first_instance_on() -> None:
    class Scale(lazy.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.tensor(factor))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    class Twice(Scale):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(super().forward(x))

    assert nn.Module not in Twice.__mro__
    model = nn.Sequential(Twice(3.0), Scale(2.0))
    assert isinstance(model[0], nn.Module)
    assert isinstance(model[0], Scale)
    assert type(model[0]) is type(Twice(1.0))
    assert (type(model[0]).__name__, type(model[0]).__qualname__) == (Twice.__name__, Twice.__qualname__)
    assert copy.deepcopy(model)(torch.ones(())).item() == 18
    assert [*model.state_dict()] == ["0.factor", "1.factor"]


def test_a_model_is_pickled_by_the_class_of_its_file() -> None:
    """As an estimator is by its user, or by scikit-learn."""
    model = build_bottom({"kind": "linear", "width": 2}, Inputs(numbers=3))
    again = pickle.loads(pickle.dumps(model))
    assert type(again) is type(model)
    assert torch.equal(again.numbers.weight, model.numbers.weight)
