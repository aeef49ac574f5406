"""Attacks of the suite are trained less than those of an audit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cutlayer.attacks.completion.base import HEADS
from cutlayer.attacks.feature import best_guess, decoder, exact, kernel_ridge
from cutlayer.attacks.label import exploit, feature_prior, gradient_match, probe, strong_probe
from cutlayer_published.attacks import lira, sdar
from tests.models.estimator_rows import few_strengths


@pytest.fixture(scope="module", autouse=True)
def _smaller_models() -> Iterator[None]:
    """The limits of the table are reached with fewer trees, units, folds and steps than an audit takes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(strong_probe, "TREES", 10)
        patched.setattr(feature_prior, "FOLDS", 3)
        patched.setattr(exploit, "STEPS", 60)
        patched.setattr(probe, "FOLDS", 2)
        patched.setattr(probe, "STRENGTHS", (0.1, 1.0))
        patched.setattr(gradient_match, "ROUNDS", 60)
        patched.setattr(exact, "STEPS", 30)
        patched.setattr(kernel_ridge, "SCALES", (1.0,))
        patched.setitem(best_guess.FOREST_SETTINGS, "n_estimators", 20)
        patched.setattr(best_guess, "BOOSTING_SETTINGS", best_guess.BOOSTING_SETTINGS._replace(trees=10))
        patched.setitem(best_guess.RESIDUAL_TREES, "max_iter", 10)
        patched.setattr(lira, "SHADOW_PAIRS", 4)
        patched.setattr(lira, "TREES", 20)
        for name, value in {"PASSES": 40, "HIDDEN": 64}.items():
            patched.setattr(sdar, name, value)
        for name in ("LR", "SIMULATOR_LR", "DISCRIMINATOR_LR"):
            patched.setattr(sdar, name, 3 * getattr(sdar, name))
        patched.setattr(decoder, "EPOCHS", 30)
        patched.setattr(decoder, "HIDDEN", 64)
        patched.setitem(HEADS, "MLP", (64, 32))
        few_strengths(patched)
        yield
