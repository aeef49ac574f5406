"""Devices of a machine: which one a setting names, what it cannot be used with; and trainings in mixed precision."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cutlayer.config import Job, validated
from cutlayer.config.load import with_device
from cutlayer.errors import ConfigError
from cutlayer.jobs import forecast as forecast_module
from cutlayer.jobs.check import check_job
from cutlayer.jobs.forecast import with_chosen_devices
from cutlayer.kernels.rows.to_device import to_device
from cutlayer.parties.compute import device as device_module
from cutlayer.parties.compute.device import CPU, chosen_device, device_of, device_text
from cutlayer.parties.drive.random_state import RandomState, random_state, with_own_random_state
from cutlayer.training.process import repeatable_kernels
from cutlayer.training.tables import open_table
from tests.parties.interruptions import Crash, Dying
from tests.parties.runs import KEY, make_job, raw_job, run, tables

GPU = torch.device("cuda", 1)


def machine(monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
    """Pretend that PyTorch finds a number of GPUs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)


@pytest.mark.parametrize(
    ("setting", "gpus", "device"),
    [("cpu", 0, "cpu"), ("auto", 0, "cpu"), ("cpu", 2, "cpu"), ("auto", 2, "cuda:0"), ("cuda", 2, "cuda:0"),
     ("cuda:1", 2, "cuda:1")],
)  # fmt: skip
def test_a_setting_names_a_device(monkeypatch: pytest.MonkeyPatch, setting: str, gpus: int, device: str) -> None:
    machine(monkeypatch, gpus)
    assert device_of(setting, "parties.bank.device") == torch.device(device)


@pytest.mark.parametrize(
    ("setting", "gpus", "message"),
    [
        ("cuda", 0, "expected parties.bank.device: a device of this machine, got cuda where PyTorch .* finds no GPU"),
        ("cuda:0", 0, "got cuda:0 where PyTorch"),
        ("cuda:7", 2, "expected parties.bank.device: cuda:0 to cuda:1, got cuda:7; GPUs are counted from 0"),
        ("cuda:1", 1, "expected parties.bank.device: cuda:0, got cuda:1"),
    ],
)
def test_a_device_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, setting: str, gpus: int, message: str
) -> None:
    machine(monkeypatch, gpus)
    with pytest.raises(ConfigError, match=message):
        check_job(with_device(make_job(), setting, "bank"))


@pytest.mark.parametrize(
    ("setting", "gpus", "operations", "text"),
    [
        ("cpu", 1, 1e12, "cpu"),
        ("auto", 0, 1e12, "cpu: no accelerator"),
        ("auto", 1, 1e8, "cpu: a step has 1.0e+08 operations, and a GPU gains from 1e+09 on"),
        ("auto", 1, 1e12, "cuda:0 (NVIDIA H200): a step has 1.0e+12 operations"),
        ("auto", 1, None, "cuda:0 (NVIDIA H200)"),
        ("cuda", 1, 1e8, "cuda:0 (NVIDIA H200)"),
    ],
)
def test_auto_chooses_by_the_forecast_and_says_why(
    monkeypatch: pytest.MonkeyPatch, setting: str, gpus: int, operations: float | None, text: str
) -> None:
    machine(monkeypatch, gpus)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    device, stated = chosen_device(setting, "parties.bank.device", operations)
    assert stated == text
    assert device.type == text[: len(device.type)]


def test_a_gpu_that_pytorch_counts_and_cannot_use_is_no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert chosen_device("auto", "parties.bank.device", None) == (torch.device("cpu"), "cpu: no accelerator")


def test_a_run_trains_where_the_forecast_said(monkeypatch: pytest.MonkeyPatch) -> None:
    job, given = with_device(make_job(), "auto", "bank"), tables()
    assert with_chosen_devices(job, given) is job
    machine(monkeypatch, 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    devices = []
    for least in (1e9, 1.0):
        monkeypatch.setattr(device_module, "MIN_OPERATIONS", least)
        parties = with_chosen_devices(job, given).parties
        devices.append({name: party.device for name, party in parties.items()})
    assert devices == [{"bank": "cpu", "telco": "cpu"}, {"bank": "cuda:0", "telco": "cpu"}]


def test_a_forecast_of_long_steps_computes_a_few_rows_in_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of convolutions in bfloat16 takes minutes on a CPU that does not have it."""
    sizes, mixed = list[int](), list[bool]()
    forward = torch.nn.Linear.forward

    def watched(self: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
        sizes.append(len(x))
        mixed.append(torch.is_autocast_enabled("cpu"))
        return forward(self, x)

    monkeypatch.setattr(torch.nn.Linear, "forward", watched)
    monkeypatch.setattr(forecast_module, "LONG_STEP_SECONDS", 0.0)
    job, given = make_job(precision="bf16"), tables()
    opened = {name: open_table(job, name, given) for name in job.parties}
    found = forecast_module._forecast(job, opened, 1, None)
    assert max(sizes) == forecast_module.SHORT_STEP_ROWS < job.train.batch_size
    assert not any(mixed)
    assert found.seconds_per_epoch > 0
    assert found.precision == "bf16"


def test_the_operations_of_a_step_are_those_of_its_matrices() -> None:
    job, given = make_job(), tables()
    opened = {name: open_table(job, name, given) for name in job.parties}
    found = forecast_module._forecast(job, opened, 1, None)
    inputs = [party.categorical * 4 + party.numeric for party in found.parties]
    products = sum(width * 8 + 8 * 6 for width in inputs) + 12 * 5 + 5 * 1
    assert found.step_operations == 6 * products * job.train.batch_size


def test_a_device_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    assert (device_text(GPU), device_text(CPU)) == ("cuda:1 (NVIDIA H200)", "cpu")


def test_a_tensor_that_is_there_is_not_copied() -> None:
    tensor = torch.zeros(2)
    assert to_device(tensor, CPU) is tensor


def test_the_generator_of_a_gpu_is_swapped_with_that_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {GPU: torch.tensor([7])}
    own = RandomState(random_state(KEY), torch.tensor([1]))
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: states[device])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: states.update({device: state}))
    monkeypatch.setattr(RandomState, "of_key", classmethod(lambda *_: own))
    seen = []

    def party() -> Generator[Any, Any, str]:
        for _ in range(2):
            seen.append(int(states[GPU]))
            states[GPU] = states[GPU] + 1
            yield None
        return "done"

    steps = with_own_random_state(party(), KEY, GPU)
    next(steps)
    assert int(states[GPU]) == 7
    steps.send(SimpleNamespace(receiver="bank"))  # type: ignore[arg-type]
    assert (seen, int(states[GPU])) == ([1, 2], 7)


def test_kernels_repeat_themselves_on_gpus_alone() -> None:
    with repeatable_kernels([CPU]):
        assert not torch.are_deterministic_algorithms_enabled()
    with repeatable_kernels([CPU, GPU]):
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


def test_mixed_precision_trains_and_resumes_to_the_bit(tmp_path: Path) -> None:
    given = tables()
    exact = run(make_job(epochs=3, audit={"every": "never"}), given, tmp_path / "float32").active
    job = make_job(epochs=3, audit={"every": "never"}, precision="bf16", privacy={"max_norm": {}})
    plain = make_job(epochs=3, audit={"every": "never"}, precision="bf16")
    mixed = run(plain, given, tmp_path / "bf16").active
    assert mixed.step_losses != exact.step_losses
    assert mixed.step_losses == pytest.approx(exact.step_losses, abs=0.02)
    assert mixed.logits.dtype == torch.float32
    whole = run(job, given, tmp_path / "whole").active
    with pytest.raises(Crash):
        run(job, given, tmp_path / "broken", progress=Dying(5))
    resumed = run(job, given, tmp_path / "broken", resume=True).active
    assert torch.equal(whole.logits, resumed.logits)
    assert whole.step_losses[-len(resumed.step_losses) :] == resumed.step_losses


def test_private_noise_is_the_same_mechanism_in_mixed_precision(tmp_path: Path) -> None:
    raw = raw_job(epochs=1, audit={"every": "never"}, precision="bf16")
    raw["parties"]["telco"]["privacy"] = {
        "dp_embedding": {"clip": 1.0, "noise_multiplier": 1.0},
        "dp_bottom": {"clip": 1.0, "noise_multiplier": 1.0},
    }
    released = []
    from cutlayer.protections.dp_embedding import DPEmbedding

    hook = DPEmbedding.embedding_out
    with pytest.MonkeyPatch.context() as patched:

        def watched(self: DPEmbedding, e: torch.Tensor, view: Any) -> torch.Tensor:
            released.append((e.detach(), hook(self, e, view)))
            return released[-1][1]

        patched.setattr(DPEmbedding, "embedding_out", watched)
        run(validated(Job, raw, ""), tables(), tmp_path)
    for e, sent in released:
        assert e.dtype == sent.dtype == torch.float32
        steps = sent.detach().double() / 2.0**-17  # the lattice of sigma 2: 2^(1 - 18)
        assert torch.equal(steps, steps.round())
