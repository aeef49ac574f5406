"""Halves of images through the protocol: the same network in one place, a resume, labels alone, the layer audit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from cutlayer.data.partition import halves
from cutlayer.data.store import Store
from cutlayer.errors import ConfigError
from cutlayer.training.keys import starting_keys
from cutlayer.training.references import train_reference
from tests.parties.interruptions import Dying, assert_equal, interrupted
from tests.parties.runs import ACTIVE, PASSIVES, make_job, run, unaudited_job

TELCO = PASSIVES[0]
BOTTOMS: dict[str, dict[str, Any]] = {
    "cnn": {"kind": "cnn", "channels": [3, 4], "width": 5},
    "lenet5": {"kind": "lenet5", "width": 5},
    "resnet18": {"kind": "resnet18", "channels": 4, "width": 5},
}


@pytest.fixture(autouse=True)
def _few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second block of a stage takes as long as the first, and is trained, kept and resumed like it."""
    monkeypatch.setattr("cutlayer.models.resnet18._BLOCKS", 1)


def digits(rows: int = 180, channels: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Images with a bright bar whose place is the class."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, rows)
    images = draw.integers(0, 60, (rows, 12, 24, channels), dtype=np.uint8)
    for label in range(3):
        images[labels == label, 4 * label : 4 * label + 3, 3:21] += 120
    return images, labels


def tables(channels: int = 1) -> dict[str, Any]:
    images, labels = digits(channels=channels)
    parts = halves(images)
    ids = np.arange(len(labels))
    return {
        ACTIVE: {"id": ids, "label": labels, "image": parts["left"]},
        TELCO: {"id": ids[::-1].copy(), "image": parts["right"][::-1].copy()},
    }


@pytest.mark.parametrize(("kind", "channels"), [("cnn", 3), ("lenet5", 1), ("resnet18", 3)])
def test_halves_train_as_the_same_network_in_one_place(tmp_path: Path, kind: str, channels: int) -> None:
    epochs = 2 if kind == "resnet18" else 5
    job = make_job("multiclass", bottom=BOTTOMS[kind], audit={"attacks": ["spectral"], "layers": False}, epochs=epochs)
    trained = run(job, tables(channels), tmp_path)
    stores = {name: Store.open(tmp_path / "data" / name) for name in job.parties}
    active = trained.active
    truth = load_file(tmp_path / "transcript" / ACTIVE / "truth.safetensors")["truth"]
    keys = starting_keys(tmp_path, job.parties)
    reference = train_reference(job, stores, active, truth, keys)
    torch.testing.assert_close(active.logits, reference.logits, rtol=1e-3, atol=1e-4)
    assert active.metrics["accuracy"] > 0.5
    assert (active.numeric, active.categorical) == (12 * 12 * channels, 0)


def test_labels_alone_at_the_active_party(tmp_path: Path) -> None:
    job = unaudited_job("multiclass", bottom=BOTTOMS["cnn"], active_features=False, epochs=5)
    trained = run(job, tables(), tmp_path)
    assert trained.active.widths == {TELCO: 5}
    assert trained.active.metrics["accuracy"] > 0.5


def test_a_resume_brings_back_what_batch_normalisation_remembers(tmp_path: Path) -> None:
    audit = {"rows": 64, "attacks": ["spectral"], "layers": False}
    job = make_job("multiclass", bottom=BOTTOMS["resnet18"], audit=audit)
    whole = run(job, tables(), tmp_path / "whole")
    saved = load_file(tmp_path / "whole" / "checkpoint" / TELCO / "epoch-0001.safetensors")
    counted = saved["module/bottom.stem.norm.num_batches_tracked"]
    assert (counted.dtype, counted.shape, int(counted)) == (torch.int64, (), 2 * 3)
    interrupted(job, tables(), tmp_path / "again", Dying(4))
    again = run(job, tables(), tmp_path / "again", resume=True)
    assert_equal(tmp_path / "again", again, tmp_path / "whole", whole, job)


def test_the_layers_of_images_are_audited(tmp_path: Path) -> None:
    job = make_job("multiclass", bottom=BOTTOMS["lenet5"], audit={"rows": 64, "attacks": ["spectral"]})
    trained = run(job, tables(), tmp_path)
    assert trained.auditor is not None
    layers = {(cell.party, cell.layer) for cell in trained.auditor.series if cell.layer}
    assert {(TELCO, f"{name}") for name in ("maps.0", "maps.1", "layers.0", "layers.1")} <= layers


def test_a_party_without_an_image_is_named(tmp_path: Path) -> None:
    given = tables()
    given[TELCO] = {"id": np.arange(240), "age": np.arange(240.0)}
    job = make_job("multiclass", bottom=BOTTOMS["cnn"])
    with pytest.raises(ConfigError, match=r"model\.bottom \(telco\): expected an image for a bottom model of kind cnn"):
        run(job, given, tmp_path)
