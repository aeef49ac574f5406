"""The check of row independence, once for each architecture in a process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from cutlayer.models import Inputs, row_independence

_passed: set[tuple[str, tuple[torch.Size, ...], Inputs, bool]] = set()


def check_each_architecture_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bottom model of Cutlayer's own that has passed is not tried again, which takes as long as a small training.

    What is tried, and on which models, `tests/models/test_row_independence.py` tests; so are the models of canaries. A
    user's model is always tried: what it prints need not be all that it does.
    """
    check = row_independence.check_row_independence

    def once(bottom: Any, inputs: Inputs, needed_by: str, *, repeatable: bool = False) -> None:
        shapes = tuple(tensor.shape for tensor in bottom.state_dict().values())
        architecture = (repr(bottom), shapes, inputs, repeatable)
        if architecture in _passed:
            return
        check(bottom, inputs, needed_by, repeatable=repeatable)
        if all(_is_built_in(module) for module in bottom.modules()):
            _passed.add(architecture)

    monkeypatch.setattr(row_independence, "check_row_independence", once)


def _is_built_in(module: nn.Module) -> bool:
    return type(module).__module__.startswith(("torch.nn.", "cutlayer.models.", "cutlayer.audit.guarantees."))
