"""A passive party with a malicious optimiser: it takes other steps, and a resume goes on with what it remembers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cutlayer.attacks.completion.active import PREVIOUS_GRADIENT, make_malicious
from cutlayer.config import Job
from cutlayer.parties.session.observer import Observer
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.tables import open_table
from cutlayer.training.together import TrainedRun, train_together
from tests.parties.interruptions import Crash, Dying, halves
from tests.parties.runs import ACTIVE, KEY, PASSIVES, make_job, tables

GIVEN = tables(passives=2)


def job_of(kind: str = "adam") -> Job:
    return make_job(passives=2, epochs=3, optimizer={"kind": kind, "lr": 0.05}, audit={"every": "never"})


def trained(
    folder: Path, wrapped: tuple[str, ...], *, resume: bool = False, stop: int = 0, kind: str = "adam"
) -> TrainedRun:
    job = job_of(kind)
    opened = {name: open_table(job, name, GIVEN) for name in job.parties}
    folder.mkdir(exist_ok=True)
    wraps = dict.fromkeys(wrapped, make_malicious)
    progress = Dying(stop) if stop else Observer()
    keys = Keys(folder / "keys", KEY)
    return train_together(job, RunFolder(folder), opened, keys, progress, wraps=wraps, resume=resume)


@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_a_resumed_malicious_run_ends_as_one_that_was_not_interrupted(tmp_path: Path, kind: str) -> None:
    trained(tmp_path / "whole", PASSIVES[:2], kind=kind)
    with pytest.raises(Crash):
        trained(tmp_path / "cut", PASSIVES[:2], stop=6, kind=kind)
    trained(tmp_path / "cut", PASSIVES[:2], resume=True, kind=kind)
    whole, cut = (halves(tmp_path / name, job_of(kind)) for name in ("whole", "cut"))
    assert whole.keys() == cut.keys()
    for name, tensors in whole.items():
        assert tensors.keys() == cut[name].keys()
        assert all(torch.equal(tensor, cut[name][key]) for key, tensor in tensors.items())


def test_the_checkpoint_of_the_wrapped_party_alone_holds_its_previous_gradients(tmp_path: Path) -> None:
    trained(tmp_path, PASSIVES[:1])
    held = {
        name: any(key.endswith(PREVIOUS_GRADIENT) for key in tensors)
        for name, tensors in halves(tmp_path, job_of()).items()
    }
    assert held == {ACTIVE: False, PASSIVES[0]: True, PASSIVES[1]: False}


def test_only_the_wrapped_party_takes_other_first_steps(tmp_path: Path) -> None:
    """The first step of all is honest; from the second on the attacker's weights differ, and so do the losses."""
    honest, attacked = trained(tmp_path / "a", ()), trained(tmp_path / "b", PASSIVES[:1])
    assert honest.active.step_losses[:2] == attacked.active.step_losses[:2]
    assert honest.active.step_losses[2:] != attacked.active.step_losses[2:]
