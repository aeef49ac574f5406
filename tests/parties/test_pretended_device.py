"""Whole runs on a device that is not the CPU give the CPU's numbers, and nothing is made or read in the wrong place."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from cutlayer.config import Job, validated
from cutlayer.kernels.noise.lattice import lattice_gaussian
from cutlayer.protections import REGISTRY
from cutlayer.protections.contract.base import Side
from cutlayer.training import together
from cutlayer.training.folder import RunFolder
from tests.conformance.table import PROTECTIONS
from tests.parties.interruptions import Crash, Dying
from tests.parties.recorded import Recording
from tests.parties.runs import ACTIVE, MLP, Watched, raw_job, run, tables
from tests.pretended import ELSEWHERE, Elsewhere, pretending

QUIET: dict[str, Any] = {"every": "never"}
NOISE = {"clip": 1.0, "noise_multiplier": 1.0}


def job_of(
    active: Mapping[str, Any],
    telco: Mapping[str, Any] | None = None,
    shop: Mapping[str, Any] | None = None,
    **more: Any,
) -> Job:
    """A job of three parties with their protections; `more` is of `raw_job`, and `channel` or `fit` of the job."""
    channel, fit = more.pop("channel", None), more.pop("fit", None)
    raw = raw_job(
        more.pop("task", "binary"), 2, privacy=active, **{"epochs": 1, "batch_size": 64, "audit": QUIET, **more}
    )
    raw["parties"]["telco"]["privacy"], raw["parties"]["shop"]["privacy"] = telco or {}, shop or {}
    if channel is not None:
        raw["channel"] = channel
    if fit is not None:
        raw["parties"]["telco"]["fit"] = fit
    return validated(Job, raw, "")


JOBS: dict[str, Job] = {
    "shared": job_of(
        {"label_dp": {"eps": 1.0}, "dcor": {"alpha": 0.01, "form": "whitened"}, "marvell": {"sum_kl": 1.0}},
        {"dp_embedding": {**NOISE, "rescale": "sphere"}},
        {"nopeek": {"alpha": 0.1}},
        audit={"attacks": ["norm"]},
    ),
    "dimip": job_of(
        {
            "dimip": {"lam": 0.1},
            "party_dropout": {"rate": 0.3},
            "gradient_compression": {"keep": 0.3},
            "noisy_gradient": {"scale": 0.01},
        },
        {"dp_bottom": NOISE},
        channel={"compress": "int8"},
    ),
    "paper": job_of(
        {"marvell": {"sum_kl": 0.2, "form": "paper"}, "discrete_sgd": {"levels": 4}},
        bottom={**MLP, "dropout": 0.3},
        top={"kind": "multi_head"},
        task="multiclass",
    ),
    "ppdl": job_of({"ppdl": {"theta": 0.3}}, task="regression", active_features=False),
    "once": job_of(
        {"max_norm": {}},
        release="once",
        warmup_epochs=1,
        epochs=2,
        bottom={**MLP, "cut": "linear"},
        fit={"kind": "gradients"},
        class_weight="balanced",
    ),
    "iso": job_of(
        {"iso_noise": {"ratio": 1.0}}, bottom={"kind": "wide_deep", "hidden": [8, 5]}, optimizer={"kind": "sgd"}
    ),
}

USED = {name for job in JOBS.values() for part in job.parties.values() for name in part.protections}
for name in sorted(REGISTRY.keys() - USED):  # of protections that are in none of these jobs
    options = {name: PROTECTIONS[name].options}
    JOBS[name] = job_of(options) if REGISTRY[name].side is Side.ACTIVE else job_of({}, options)
PLAIN = job_of({"marvell": {"sum_kl": 1.0}, "dimip": {"lam": 0.1}}, epochs=2)
GIVEN = tables(passives=2, rows=160)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """A warning of PyTorch is about the true `meta` device, whose tensors hold no numbers."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*which is a no-op.*")
        yield


def there(job: Job, given: Mapping[str, Any], folder: Path, *parties: str, **options: Any) -> Watched:
    """A run with some parties, by default all, on the pretended device; the others are on the CPU."""
    moved = {
        name: part.model_copy(update={"device": "auto"}) if name in (parties or job.parties) else part
        for name, part in job.parties.items()
    }

    def device_of(setting: str, _where: str) -> torch.device:
        return ELSEWHERE if setting == "auto" else torch.device("cpu")

    with pretending(), mock.patch.object(together, "device_of", device_of):
        return run(job.model_copy(update={"parties": moved}), given, folder, **options)


def same(first: Watched, second: Watched) -> bool:
    """Whether two runs agree to the bit; the second may have been resumed, and then has the losses since."""
    ours, theirs = first.active, second.active
    assert len(theirs.step_losses) > 0
    return (
        ours.step_losses[-len(theirs.step_losses) :] == theirs.step_losses
        and torch.equal(ours.logits, theirs.logits)
        and ours.evidence == theirs.evidence
        and ours.fingerprint == theirs.fingerprint
    )


@pytest.mark.parametrize("name", JOBS)
def test_a_run_on_a_device_equals_that_on_the_cpu(name: str, tmp_path: Path) -> None:
    job, given = JOBS[name], tables(JOBS[name].task, 2, rows=160)
    seen: list[bool] = []
    forward = torch.nn.Linear.forward

    def watched(self: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
        seen.append(isinstance(x, Elsewhere) and isinstance(self.weight, Elsewhere))
        return forward(self, x)

    with mock.patch.object(torch.nn.Linear, "forward", watched):
        moved = there(job, given, tmp_path / "there")
    assert same(run(job, given, tmp_path / "here"), moved)
    assert set(moved.devices.values()) == {"meta"}
    if name == "iso":  # others have models on the CPU too, for what they measure
        assert seen
        assert all(seen)


@pytest.mark.parametrize("party", [ACTIVE, "telco"])
def test_parties_of_one_process_may_be_on_several_devices(party: str, tmp_path: Path, recorded: Recording) -> None:
    mixed = there(PLAIN, GIVEN, tmp_path, party)
    assert same(recorded(PLAIN, GIVEN).trained, mixed)
    assert sorted(mixed.devices.values()) == ["cpu", "cpu", "meta"]


def test_a_checkpoint_has_no_device(tmp_path: Path, recorded: Recording) -> None:
    job, given = PLAIN, GIVEN
    whole = recorded(job, given).trained
    for number, (begun, resumed) in enumerate(((there, run), (run, there))):
        with pytest.raises(Crash):
            begun(job, given, tmp_path / str(number), progress=Dying(3))
        assert RunFolder(tmp_path / str(number)).has_checkpoint
        assert same(whole, resumed(job, given, tmp_path / str(number), resume=True))


def test_the_pretended_device_bites() -> None:
    with pretending():
        there = torch.ones(2, device=ELSEWHERE)
        with pytest.raises(RuntimeError, match="are on the CPU"):
            there + torch.ones(2)
        with pytest.raises(RuntimeError, match="are on the CPU"):
            there[torch.tensor([0])]
        with pytest.raises(TypeError, match="no array"):
            there.numpy()
        # The formal mechanism is not for tensors elsewhere: the chain brings them to the CPU.
        with pytest.raises((RuntimeError, TypeError)):
            lattice_gaussian(torch.ones(2, 2, device=ELSEWHERE), 1.0, 1.0, bytes(32))
