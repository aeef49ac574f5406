"""Fixtures of the protocol's tests."""

from collections.abc import Iterator

import pytest

from tests.models.estimator_rows import one_strength
from tests.parties.recorded import recorded

__all__ = ["recorded"]


@pytest.fixture(scope="module", autouse=True)
def _one_strength(_briefly: None) -> Iterator[None]:
    """No test here is about the strength of a linear model, whose choice takes most of its fit."""
    with pytest.MonkeyPatch.context() as patched:
        one_strength(patched)
        yield
