"""Images from an npz file through the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.cli.jobs import changed

ROWS = 200
IMAGES: Mapping[str, Any] = {"path": "digits.npz", "arrays": {"image": ["x_train", "x_test"]}}
UNAUDITED = {"parties.bank.audit": {"every": "never"}}
LABELLED = {"path": "digits.npz", "arrays": {**IMAGES["arrays"], "digit": ["y_train", "y_test"]}}
JOB: Mapping[str, Any] = {
    "task": "multiclass",
    "parties": {
        "bank": {"role": "active", "table": {**LABELLED, "part": "left"}, "id": "@row", "label": "digit"},
        "telco": {"role": "passive", "table": {**IMAGES, "part": "right"}, "id": "@row"},
    },
    "model": {"bottom": {"kind": "lenet5", "width": 6}},
    "train": {"epochs": 1, "batch_size": 64, "seed": 1},
}
WIDTH, HEIGHT = 12, 16


@pytest.fixture
def digits(place):
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (ROWS, HEIGHT, 2 * WIDTH), dtype=np.uint8)
    labels = draw.integers(0, 4, ROWS)
    np.savez(
        place.folder / "digits.npz",
        x_train=images[:150],
        x_test=images[150:],
        y_train=labels[:150],
        y_test=labels[150:],
    )
    place.write(JOB)
    return place


def test_check_forecasts_images(digits):
    result = digits.call("check", digits.file, "--json").document()
    assert result["rows"] == ROWS
    for party in result["parties"]:
        assert (party["numeric"], party["categorical"], party["width"]) == (WIDTH * HEIGHT, 0, 6)
        assert party["store_bytes"] == ROWS * WIDTH * HEIGHT
    maps = 6 * HEIGHT * WIDTH + 16 * (HEIGHT // 2 - 4) * (WIDTH // 2 - 4)
    assert result["memory_bytes"] > 2 * 4 * 64 * 2 * maps, "the maps of both parties, forwards and backwards"
    assert digits.call("check", digits.file).code == 0


def test_run_trains_on_images(digits):
    digits.write(changed(JOB, {"parties.bank.audit": {"attacks": ["spectral"]}}))
    assert digits.call("run", digits.file, "--json").code == 0
    assert (digits.run_folder / "data" / "telco" / "images.npy").stat().st_size < ROWS * WIDTH * HEIGHT + 300
    assert digits.call("audit", digits.run_folder).code == 0


def test_the_active_party_may_hold_labels_alone(digits):
    digits.write(
        changed(JOB, {"parties.bank.features": {"include": "none"}, "parties.bank.table": LABELLED, **UNAUDITED})
    )
    assert digits.call("run", digits.file, "--json").code == 0
    assert not (digits.run_folder / "data" / "bank").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parties.telco.table": "digits.npz"}, "parties.telco.table: expected arrays of an npz file, such as {image:"),
        ({"parties.telco.table.arrays": {"image": "x_tran"}}, "digits.npz: no array 'x_tran'; did you mean 'x_train'?"),
        ({"parties.telco.table.part": "center"}, "parties.telco.table.part: expected 'all', 'left'"),
        (
            {"parties.telco.table.arrays": {"image": "x_test"}, "parties.telco.id": None},
            "expected an id column, got none",
        ),
        ({"model.bottom": {"kind": "resnet18", "width": 0}}, "model.bottom"),
    ],
)
def test_jobs_that_are_wrong(digits, changes, message):
    digits.write(changed(JOB, changes))
    digits.refused(message)


def test_tables_of_other_lengths(digits):
    digits.write(changed(JOB, {"parties.telco.table.arrays": {"image": "x_test"}}))
    digits.refused("200", "50")
