"""The page of all protections is the one that their classes give."""

from __future__ import annotations

import pytest
from ruamel.yaml import YAML

from cutlayer.protections import REGISTRY, build
from tools.protections_page import PAGE, STARTS, attributes, options, page


def test_the_page_is_that_of_the_classes() -> None:
    """`python -m tools.protections_page` writes it again."""
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("name", REGISTRY)
def test_every_start_is_valid_and_every_setting_has_a_meaning(name: str) -> None:
    settings = YAML(typ="safe", pure=True).load(STARTS[name][0])[name]
    build(name, settings, "privacy")
    assert all(meaning for _, _, meaning in options(REGISTRY[name]))


def test_attributes_are_read_from_a_docstring() -> None:
    text = "Words.\n\nAttributes:\n    one: first\n        line.\n    two: second."
    assert attributes(text) == {"one": "first line.", "two": "second."}
