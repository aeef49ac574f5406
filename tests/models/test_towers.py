"""The cut a layer earlier, by `towers` of the top model: the same network."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from cutlayer.config import Job, validated
from cutlayer.models import Inputs, build_bottom, build_top
from tests.parties.runs import raw_job

INPUTS = Inputs((4, 3), 5)
MODEL = {"bottom": {"kind": "mlp", "hidden": [8, 6]}, "top": {"kind": "mlp", "hidden": [5]}}
EARLIER = {"bottom": {"kind": "mlp", "hidden": [8]}, "top": {"kind": "mlp", "hidden": [5], "towers": [6]}}


def job_with(**model: Any) -> Job:
    raw = raw_job(passives=1, epochs=1)
    raw["model"] = {**MODEL, **model}
    return validated(Job, raw, "")


def test_the_function_is_the_same() -> None:
    late, early = job_with(), job_with(**EARLIER)
    names = ("bank", "telco")
    whole = [build_bottom(late.model.bottom_of(name), INPUTS) for name in names]
    short = [build_bottom(early.model.bottom_of(name), INPUTS) for name in names]
    top, towered = (
        build_top(late.model.top, {"bank": 6, "telco": 6}, 1),
        build_top(early.model.top, {"bank": 8, "telco": 8}, 1),
    )
    with torch.no_grad():
        for module in (*whole, top):
            for weight in module.parameters():
                nn.init.normal_(weight, std=0.3)
    state = top.state_dict()
    for index, (full, part) in enumerate(zip(whole, short, strict=True)):
        weights = full.state_dict()
        part.load_state_dict({name: weights[name] for name in part.state_dict()})
        moved = {
            name.replace("layers.1", f"towers.{index}.0"): weight
            for name, weight in weights.items()
            if "layers.1" in name
        }
        state |= moved
    towered.load_state_dict(state)
    codes, numbers = torch.randint(3, (20, 2), dtype=torch.int32), torch.randn(20, 5)
    expected = top({name: model(codes, numbers) for name, model in zip(names, whole, strict=True)})
    torch.testing.assert_close(
        towered({name: model(codes, numbers) for name, model in zip(names, short, strict=True)}), expected
    )
    assert float(expected.detach().std()) > 0
