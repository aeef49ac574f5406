"""The cut a layer earlier: the same network, trained and swept like any other job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cutlayer.config import Job, validated
from cutlayer.config.load import load_job
from cutlayer.errors import ConfigError
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.models import Inputs, build_bottom, build_top
from cutlayer.sweeps.variants import Variants
from cutlayer.training.keys import Keys
from tests.parties.runs import KEY, raw_job, tables

INPUTS = Inputs((4, 3), 5)
MODEL = {"bottom": {"kind": "mlp", "hidden": [8, 6]}, "top": {"kind": "mlp", "hidden": [5]}}


def job_with(**model: Any) -> Job:
    raw = raw_job(passives=1, epochs=1)
    raw["model"] = {**MODEL, **model}
    return validated(Job, raw, "")


def test_the_function_is_the_same() -> None:
    late, early = job_with(), job_with(cut_depth=1)
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


def test_it_is_an_ordinary_job_that_trains(tmp_path: Path) -> None:
    job = job_with(cut_depth=1)
    assert job.model.cut_depth == 0
    assert job == job_with(bottom={"kind": "mlp", "hidden": [8]}, top={"kind": "mlp", "hidden": [5], "towers": [6]})
    assert job.digest() != job_with().digest()
    assert "cut_depth" not in job_with().shared()["model"]
    folder = execute(job, tmp_path / "run", Options(Keys(tmp_path, KEY), tables=tables(passives=1)), Progress())
    assert load_job(folder.path / "job.yaml").model == job.model


def test_a_sweep_varies_it(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "parties:\n  bank: {role: active, table: b.csv, id: id, label: y}\n"
        "  telco: {role: passive, table: t.csv, id: id}\n"
    )
    variants = Variants(tmp_path / "job.yaml")
    assert variants.job({"model.cut_depth": 1}).model.top == {"kind": "mlp", "hidden": [32], "towers": [32]}
    with pytest.raises(ConfigError, match="cut_depth below the 2 layers of the bottom model, got 2"):
        variants.job({"model.cut_depth": 2})


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"cut_depth": -1}, "cut_depth"),
        ({"cut_depth": 1.5}, "cut_depth"),
        ({"cut_depth": 1, "bottom": {"kind": "linear"}}, "bottom models of kind mlp and cut activated, got linear"),
        ({"cut_depth": 1, "bottom": {"kind": "mlp", "cut": "linear"}}, "cut activated, got mlp, linear"),
        ({"cut_depth": 1, "top": {"kind": "multi_head"}}, "a top model of kind mlp without towers, got multi_head"),
        ({"cut_depth": 1, "top": {"kind": "mlp", "activation": "tanh"}}, "the same activation below and above the cut"),
        ({"cut_depth": 1, "bottom": {"kind": "mlp", "hidden": 3}}, "cut_depth below the 0 layers"),
        ({"cut_depth": 1, "bottom": {"bank": None, "telco": None}}, "a bottom model for each party"),
        (
            {
                "cut_depth": 1,
                "bottom": {name: {"kind": "mlp", "hidden": [4, w]} for name, w in (("bank", 2), ("telco", 3))},
            },
            "end in the same 1 widths",
        ),
    ],
)
def test_what_cannot_be_moved_is_refused(model: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        job_with(**model)
