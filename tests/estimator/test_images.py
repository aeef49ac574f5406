"""Images through the scikit-learn-style door."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cutlayer import VerticalClassifier
from cutlayer.data.partition import halves
from cutlayer.errors import ConfigError, DataError

ROWS = 200


def scans(seed: int = 0) -> tuple[dict[str, Any], np.ndarray]:
    """Two halves of images, of which both together say the class: how bright each half is."""
    draw = np.random.default_rng(seed)
    images = draw.integers(0, 50, (ROWS, 6, 8), dtype=np.uint8)
    left, right = draw.integers(0, 2, (2, ROWS))
    images[:, :, :4] += (80 * left).astype(np.uint8)[:, None, None]
    images[:, :, 4:] += (80 * right).astype(np.uint8)[:, None, None]
    parts = halves(images)
    return {"clinic": parts["left"], "lab": parts["right"]}, np.array(list("abcd"))[2 * left + right]


def classifier(**changes: Any) -> VerticalClassifier:
    options = {"epochs": 6, "batch_size": 32, "lr": 0.02, "attacks": (), "bottom": {"kind": "cnn", "width": 8}}
    options |= {"release": "every_step"}
    options["key"] = bytes(32)  # else every fit starts from other weights
    return VerticalClassifier(**{"active": "clinic", **options, **changes})


def test_fit_and_predict() -> None:
    tables, y = scans()
    model = classifier().fit(tables, y)
    new, truth = scans(seed=1)
    assert np.mean(model.predict(new) == truth) > 0.9
    part = {name: images[:7] for name, images in new.items()}
    np.testing.assert_allclose(model.predict_proba(part), model.predict_proba(new)[:7], atol=1e-5)


def test_labels_alone_at_the_active_party() -> None:
    tables, y = scans()
    model = classifier().fit({**tables, "clinic": None}, y)
    new, truth = scans(seed=1)
    found = model.predict({"lab": new["lab"]})
    assert np.mean(np.isin(found, ["b", "d"]) == np.isin(truth, ["b", "d"])) > 0.9


def test_an_mlp_reads_pixels_too() -> None:
    tables, y = scans()
    model = classifier(bottom={"kind": "mlp", "hidden": [16, 8]}).fit(tables, y)
    new, truth = scans(seed=1)
    assert np.mean(model.predict(new) == truth) > 0.9


def test_what_a_user_gets_wrong() -> None:
    tables, y = scans()
    with pytest.raises(ConfigError, match=r"kind lenet5, got 6 x 4"):
        classifier(bottom={"kind": "lenet5"}).fit(tables, y)
    with pytest.raises(DataError, match="as many rows everywhere"):
        classifier().fit({**tables, "lab": tables["lab"][:-1]}, y)
    model = classifier(epochs=1).fit(tables, y)
    with pytest.raises(DataError, match=r"expected images of shape \(6, 4, 1\) in uint8, got \(6, 5, 1\)"):
        model.predict({**tables, "lab": np.zeros((ROWS, 6, 5), dtype=np.uint8)})
    with pytest.raises(DataError, match=r"in uint8, got \(6, 4, 1\) in float32; as in training"):
        model.predict({**tables, "lab": tables["lab"] / 255})
