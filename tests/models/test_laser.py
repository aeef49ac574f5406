"""The laser top model: the mean of the present embeddings, trained on sets of parties."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cutlayer.config import Job, validated
from cutlayer.errors import ConfigError
from cutlayer.models import build_top
from cutlayer.problem.task import Task
from cutlayer.problem.training_loss import TrainingLoss
from tests.parties.runs import raw_job, run, tables

WIDTHS = {"telco": 4, "bank": 4, "shop": 4}
LEAVING = ("telco", "shop")
RAW = {"kind": "laser", "hidden": [6]}
TASK = Task("binary", ("n", "y"))
LABELS = torch.arange(7) % 2


def embeddings(names: tuple[str, ...] = tuple(WIDTHS)) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(1)
    return {name: torch.randn(7, 4, generator=draw) for name in names}


@pytest.mark.parametrize("absent", [("telco",), ("shop",), ("telco", "shop")])
def test_the_absent_are_no_part_of_the_mean(absent: tuple[str, ...]) -> None:
    top, given = build_top(RAW, WIDTHS, 2, may_leave=LEAVING), embeddings()
    present = given.keys() - set(absent)
    mean = torch.stack([e for name, e in given.items() if name in present]).mean(dim=0)
    torch.testing.assert_close(top.answer(given, present), top({"mean": mean}))
    other = {name: e if name in present else torch.full_like(e, float("nan")) for name, e in given.items()}
    assert torch.equal(top.answer(other, present), top.answer(given, present))
    assert torch.equal(top.answer(given, given), top(given))


@pytest.mark.parametrize("staying", [(), ("bank",)])
def test_the_objective_is_the_mean_over_all_sets(staying: tuple[str, ...]) -> None:
    """Over many draws, within five standard errors; a set of one size only would be off by more."""
    names = (*staying, "telco", "shop", "power")
    top = build_top(RAW, dict.fromkeys(names, 4), 1, may_leave=("telco", "shop", "power"))
    given, leaving = embeddings(names), names[len(staying) :]
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(3)
        losses = [
            float(TASK.loss(top.answer(given, {*staying, *chosen}), LABELS))
            for size in range(0 if staying else 1, 4)
            for chosen in combinations(leaving, size)
        ]
        drawn = torch.stack([top.objective(given, LABELS, TrainingLoss(TASK)) for _ in range(400)])
    assert len(losses) == 8 - (not staying)
    assert float(drawn.std()) > 0
    assert float(drawn.mean()) == pytest.approx(sum(losses) / len(losses), abs=5 * float(drawn.std()) / 400**0.5)


def test_embeddings_of_several_widths_are_refused() -> None:
    with pytest.raises(ConfigError, match="embeddings of one width, got telco 4, bank 3; end all bottom models alike"):
        build_top(RAW, {"telco": 4, "bank": 3}, 1, may_leave=("telco",))


def test_it_trains_and_answers_without_a_party(tmp_path: Path) -> None:
    raw = raw_job(passives=2, epochs=3)
    raw["model"]["top"] = RAW
    job = validated(Job, raw, "")
    once, again = (run(job, tables(passives=2), tmp_path / name) for name in ("once", "again"))
    assert once.active.metrics == again.active.metrics
    assert once.active.metrics["auc"] > 0.6
    assert once.active.extra_heads == ()
