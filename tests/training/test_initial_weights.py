"""Initial weights come from each party's own key: the job does not give them away, and comparisons share them."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from cutlayer.audit.completion import DepartedParty
from cutlayer.config import Job, validated
from cutlayer.data.store import Store
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.kernels.noise.aes import keystream
from cutlayer.models import build_bottom
from cutlayer.parties.drive.random_state import random_state, random_state_under, starting_key
from cutlayer.problem.task import Task
from cutlayer.training.folder import RunFolder
from cutlayer.training.joint import JointModel
from cutlayer.training.keys import Keys, starting_keys
from cutlayer.training.trained import Run
from tests.parties.runs import ACTIVE, DROPOUT, KEY, PASSIVES, raw_job, run, tables, unaudited_job

TELCO = PASSIVES[0]
UNMOVED = {"epochs": 1, "optimizer": {"lr": 1e-12}}
"""A training that ends, up to rounding, with the weights it began with."""


def weights(folder: Path, party: str) -> dict[str, Tensor]:
    """The weights that a run of one epoch ended with."""
    state = load_file(folder / "checkpoint" / party / "epoch-0000.safetensors")
    return {name.removeprefix("module/"): t for name, t in state.items() if name.startswith("module/")}


def near(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether all matrices are equal up to rounding."""
    return all(torch.allclose(one[name], t, atol=1e-6) for name, t in other.items() if t.ndim == 2)


def guessed_by_the_active_party(job: Job, folder: Path, party: str) -> list[dict[str, Tensor]]:
    """Bottom models that the active party can make from the shared job, the party's name and the public encoding."""
    inputs = Store.open(folder / "data" / party).columns.inputs
    seed = int.from_bytes(hashlib.blake2b(f"{job.train.seed}/{party}".encode(), digest_size=7).digest(), "little")
    states = [torch.Generator().manual_seed(guess).get_state() for guess in (seed, job.train.seed, *range(64))]
    states += [random_state(starting_key(key, party, job.train.seed)) for key in (bytes(32), b"\xff" * 32)]
    found = []
    for state in states:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state)
            bottom = build_bottom(job.model.bottom_of(party), inputs)
        found.append({f"bottom.{name}": t for name, t in bottom.state_dict().items()})
    return found


def test_the_active_party_cannot_make_a_passive_partys_initial_weights_from_the_shared_job(tmp_path: Path) -> None:
    job = unaudited_job(**UNMOVED)
    run(job, tables(), tmp_path, key=None)
    mine = weights(tmp_path, TELCO)
    guesses = guessed_by_the_active_party(job, tmp_path, TELCO)
    assert guesses[0].keys() == mine.keys()
    assert not any(near(mine, guess) for guess in guesses)


def test_two_runs_of_one_job_start_from_different_weights_at_every_party(tmp_path: Path) -> None:
    """What is equal in both runs (job, rows, long-lived secrets) does not give the weights away."""
    job = unaudited_job(**UNMOVED)
    for name in "ab":
        run(job, tables(), tmp_path / name, key=None)
    for party in (ACTIVE, TELCO):
        assert not near(weights(tmp_path / "a", party), weights(tmp_path / "b", party))


def test_a_partys_own_key_gives_its_initial_weights_and_no_other_partys(tmp_path: Path) -> None:
    job = unaudited_job(passives=2, **UNMOVED)
    run(job, tables(passives=2), tmp_path, key=None)
    for party in PASSIVES[:2]:
        bottom = DepartedParty(Run(job, RunFolder(tmp_path), classes=("0", "1")), party).untrained().bottom
        mine = {f"bottom.{name}": t for name, t in bottom.state_dict().items()}
        assert near(weights(tmp_path, party), mine)
    keys = starting_keys(tmp_path, job.parties)
    assert len(set(keys.values())) == 3
    assert len({starting_key(KEY, party, seed) for party in job.parties for seed in range(3)}) == 9
    for party in job.parties:
        path = tmp_path / "checkpoint" / party / "initial.key"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_a_run_is_compared_with_starts_from_its_weights(tmp_path: Path) -> None:
    raw = raw_job(privacy={"label_dp": {"eps": 1.0}, "max_norm": {}}, **UNMOVED)
    raw["compare"] = ["undefended", "each"]
    folder = execute(validated(Job, raw, ""), tmp_path / "run", Options(Keys(tmp_path), tables=tables()), Progress())
    for party in (ACTIVE, TELCO):
        own = weights(folder.path, party)
        for name in ("undefended", "label_dp", "max_norm"):
            assert near(own, weights(folder.of_run(name).path, party))
    job = validated(Job, raw, "")
    stores = {name: Store.open(folder.data(name)) for name in job.parties}
    joint = JointModel(job, stores, Task("binary", ("0", "1")), starting_keys(folder.path, job.parties))
    for bottom, party in zip(joint.bottoms, job.parties, strict=True):
        mine = {f"bottom.{name}": t for name, t in bottom.state_dict().items()}
        assert near(weights(folder.path, party), mine)
    assert near(weights(folder.path, ACTIVE), {f"top.{name}": t for name, t in joint.top.state_dict().items()})


def test_dropout_is_drawn_under_the_partys_key_too(tmp_path: Path) -> None:
    """The same weights and batches under two starting keys lose differently only through what dropout draws."""
    job = unaudited_job(bottom=DROPOUT)
    first = run(job, tables(), tmp_path / "a", key=KEY).active.step_losses
    assert run(job, tables(), tmp_path / "b", key=KEY).active.step_losses == first
    assert run(job, tables(), tmp_path / "c", key=bytes(32)).active.step_losses != first


@pytest.mark.parametrize("key", [KEY, bytes(32)])
def test_the_random_state_is_a_mersenne_twister_under_the_whole_key(key: bytes) -> None:
    """NumPy's generator with the same 624 words draws the same numbers."""
    words = np.frombuffer(keystream(key, b"random state", 4 * 624), "<u4")
    reference = np.random.RandomState()
    reference.set_state(("MT19937", words.copy(), 624))
    drawn = torch.rand(2000, generator=torch.Generator().set_state(random_state(key)))
    expected = (reference.randint(0, 2**32, 2000, dtype=np.uint64) % 2**24) / 2**24
    assert np.array_equal(drawn.numpy(), expected)


def test_protections_that_draw_by_the_initial_seed_draw_by_the_key() -> None:
    """It was 0 under every key: DIMIP's random labels, and who drops out when, were the same in all runs."""
    found = []
    for key in (bytes(32), bytes(32), b"\x01" + bytes(31)):
        with random_state_under(key):
            found.append(torch.initial_seed())
    assert found[0] == found[1] != found[2]
    assert 0 not in found


def test_drawing_under_a_key_leaves_the_global_random_state_alone() -> None:
    def drawn(key: bytes) -> Any:
        with random_state_under(key):
            return torch.rand(1000).tolist()

    torch.manual_seed(5)
    before = torch.get_rng_state()
    assert drawn(KEY) == drawn(KEY)
    assert abs(np.corrcoef(drawn(KEY), drawn(bytes(32)))[0, 1]) < 0.15
    assert np.mean(drawn(KEY)) == pytest.approx(0.5, abs=0.05)
    assert torch.equal(torch.get_rng_state(), before)
