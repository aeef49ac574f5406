"""The pages of what is registered are those that the classes give."""

from __future__ import annotations

import pytest

from cutlayer.models import BOTTOMS, TOPS
from cutlayer.models.bottom_fits import FITS
from cutlayer.protections import REGISTRY
from tools.reference_pages import REFERENCE, linked, options, pages, settings, values


@pytest.mark.parametrize("name", ["protections.md", "attacks.md", "fits.md", "models.md"])
def test_the_page_is_that_of_the_classes(name: str) -> None:
    same = (REFERENCE / name).read_text(encoding="utf-8") == pages()[name]
    assert same, f"docs/reference/{name} differs from the classes; run: python -m tools.reference_pages"


CONFIGS = [kind.config for kind in (*REGISTRY.values(), *FITS.values(), *BOTTOMS.values(), *TOPS.values())]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.__name__)
def test_every_setting_has_a_meaning(config: type) -> None:
    unknown = [f"{config.__name__}.{key}" for key, _, _, meaning in options(config) if not meaning]
    assert not unknown, f"expected an entry under Attributes in the docstring for {unknown}"
    assert all("| |" not in line for line in settings(config)), "a setting of a section within has no meaning"


def test_values_are_in_words() -> None:
    assert values({"type": "number", "exclusiveMinimum": 0, "maximum": 1e6}) == "above 0, up to 1,000,000"
    assert values({"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]}) == "`a`, `b`"
    assert linked("little (docs/results/completion.md)") == "little ([results](../results/completion.md))"
