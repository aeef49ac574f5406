from __future__ import annotations

import pytest

from tests.alignment.quick_masks import mask_quickly


@pytest.fixture
def quick_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks that take no time, for what their group does not decide: counts, sizes, buckets, keys, resumption."""
    mask_quickly(monkeypatch)
