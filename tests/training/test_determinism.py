"""The same seed and key give the same losses to the last bit, whatever the number of parties and the model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from cutlayer.config import Job, validated
from tests.parties.interruptions import Crash, Dying
from tests.parties.runs import (
    ACTIVE,
    DROPOUT,
    KEY,
    MLP,
    PASSIVES,
    UNAUDITED,
    make_job,
    raw_job,
    run,
    tables,
    unaudited_job,
)

WIDE = {"kind": "wide_deep", "hidden": [8, 5]}
WIDE_TOP = {"kind": "wide_deep", "hidden": [5]}
NAMED: dict[str, dict[str, Any]] = {
    "mlp": {},
    "mlp-dropout": {"bottom": {**MLP, "dropout": 0.3}},
    "wide_deep": {"bottom": WIDE, "top": WIDE_TOP},
    "python": {"bottom": DROPOUT},
}


def losses(job: Job, given: Any, folder: Path, key: bytes | None = KEY) -> tuple[float, ...]:
    found = run(job, given, folder, key=key).active.step_losses
    assert len(found) == job.train.epochs * math.ceil(len(found) / job.train.epochs) > 0
    assert all(math.isfinite(loss) for loss in found)
    return found


# Every model, task, optimiser and number of parties, with and without columns of the active party.
CASES: dict[str, tuple[str, int, bool, dict[str, Any]]] = {
    "mlp": ("binary", 3, True, {"optimizer": {"kind": "adam", "lr": 0.01}}),
    "mlp-dropout": ("multiclass", 2, False, {"privacy": {"label_dp": {"eps": 1.0}, "max_norm": {}}}),
    "wide_deep": ("regression", 1, True, {"privacy": {"max_norm": {}}, "optimizer": {"kind": "sgd", "lr": 0.01}}),
    "python": ("binary", 1, False, {"optimizer": {"kind": "adamw", "lr": 0.01, "weight_decay": 0.1}}),
}


@pytest.mark.parametrize("model", CASES)
def test_two_runs_have_equal_losses(tmp_path: Path, model: str) -> None:
    task, passives, active_features, options = CASES[model]
    job = unaudited_job(task, passives, active_features=active_features, epochs=1, **NAMED[model], **options)
    given = tables(task, passives)
    first = losses(job, given, tmp_path / "a")
    torch.manual_seed(99)  # the global random state is nobody's
    assert losses(job, given, tmp_path / "b") == first


def test_defended_runs_repeat_under_one_key_only(tmp_path: Path) -> None:
    job, given = unaudited_job(privacy={"label_dp": {"eps": 1.0}, "max_norm": {}}, epochs=1), tables()
    first = losses(job, given, tmp_path / "a")
    assert losses(job, given, tmp_path / "b") == first
    assert losses(job, given, tmp_path / "c", key=bytes(32)) != first


def test_another_seed_gives_other_losses(tmp_path: Path) -> None:
    given = tables()
    assert losses(unaudited_job(seed=3, epochs=1), given, tmp_path / "a") != losses(
        unaudited_job(seed=4, epochs=1), given, tmp_path / "b"
    )


def test_the_order_of_a_partys_own_rows_does_not_matter(tmp_path: Path) -> None:
    """Only the common order counts: reversing every table changes no loss."""
    job, given = unaudited_job(passives=2, epochs=1), tables(passives=2)
    turned = {name: table.take(list(range(table.num_rows))[::-1]) for name, table in given.items()}
    first = losses(job, given, tmp_path / "a")
    assert losses(job, turned, tmp_path / "b") == first


def test_the_order_of_parties_does_not_touch_a_partys_own_weights(tmp_path: Path) -> None:
    """Compared after an epoch at a learning rate of next to nothing, so at the weights that training started from."""
    raw, given = raw_job(passives=2, epochs=1, audit=UNAUDITED, optimizer={"lr": 1e-12}), tables(passives=2)
    turned = {**raw, "parties": dict(reversed(raw["parties"].items()))}
    for folder, whole in (("a", raw), ("b", turned)):
        run(validated(Job, whole, ""), given, tmp_path / folder)
    for party in raw["parties"]:
        start, other = (_weights(tmp_path / folder, party) for folder in "ab")
        for key, tensor in start.items():
            if party != ACTIVE or key.startswith("module/bottom"):
                torch.testing.assert_close(other[key], tensor, atol=1e-6, rtol=0)
                assert tensor.unique().numel() > 1 or tensor.numel() == 1


def test_parties_of_one_shape_start_from_weights_of_their_own(tmp_path: Path) -> None:
    run(unaudited_job(passives=2, epochs=1, optimizer={"lr": 1e-12}), tables(passives=2), tmp_path)
    telco, shop = (_weights(tmp_path, party) for party in PASSIVES[:2])
    assert telco.keys() == shop.keys()
    assert not any(torch.allclose(tensor, shop[key], atol=1e-3) for key, tensor in telco.items())


def test_losses_do_not_depend_on_whether_anything_is_recorded(tmp_path: Path) -> None:
    given = tables()
    watched = make_job(bottom=DROPOUT, audit={"every": "epoch", "rows": 64, "attacks": ["norm"]})
    unwatched = make_job(bottom=DROPOUT, audit={"every": "never"})
    assert losses(watched, given, tmp_path / "a") == losses(unwatched, given, tmp_path / "b")


def test_the_global_random_state_is_left_alone(tmp_path: Path) -> None:
    """Also by a run that dies between two draws."""
    torch.manual_seed(5)
    before = torch.get_rng_state()
    run(make_job(bottom=DROPOUT, epochs=1), tables(), tmp_path / "a")
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(Crash):
        run(make_job(bottom=DROPOUT, epochs=1), tables(), tmp_path / "b", progress=Dying(2))
    assert torch.equal(torch.get_rng_state(), before)


def _weights(folder: Path, party: str) -> dict[str, torch.Tensor]:
    tensors = load_file(folder / "checkpoint" / party / "epoch-0000.safetensors")
    return {key: tensor for key, tensor in tensors.items() if key.startswith("module/")}
