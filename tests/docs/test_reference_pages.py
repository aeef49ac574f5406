"""What is registered, and every key of a job, is on a page of the reference, made from the classes."""

from __future__ import annotations

import re

import pytest

from cutlayer.attacks import REGISTRY as ATTACKS
from cutlayer.models import BOTTOMS, TOPS
from cutlayer.models.bottom_fits import FITS
from cutlayer.protections import REGISTRY
from tests.docs.reading import ROOT
from tools.reference_pages import GENERATED, filled, job_sections, linked, options, settings, values

REFERENCE = ROOT / "docs" / "reference"
LISTED = {
    "protections.md": list(REGISTRY),
    "attacks.md": list(ATTACKS),
    "fits.md": list(FITS),
    "models.md": [*(f"{name}-bottom" for name in BOTTOMS), *(f"{name}-top" for name in TOPS)],
}


def shown(name: str) -> str:
    return filled(f"reference/{name}", (REFERENCE / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", LISTED)
def test_a_page_has_a_section_for_everything_registered(name: str) -> None:
    assert sorted(re.findall(r"^## .* \{#([\w-]+)\}$", shown(name), re.M)) == sorted(LISTED[name])


def test_no_marker_is_left() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        uri = page.relative_to(ROOT / "docs").as_posix()
        text = filled(uri, page.read_text(encoding="utf-8"))
        assert not re.search(rf"<!-- (fields: \w+|{'|'.join(GENERATED)}) -->", text), uri


def test_every_section_of_a_job_is_on_its_page_once() -> None:
    text = (REFERENCE / "job.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"<!-- fields: (\w+) -->", text)) == sorted(job_sections())


def test_a_key_that_is_a_section_leads_to_it() -> None:
    assert "| `optimizer` | [optimizer](#optimizer) | see there |" in shown("job.md")


CONFIGS = [
    *(kind.config for kind in (*REGISTRY.values(), *FITS.values(), *BOTTOMS.values(), *TOPS.values())),
    *job_sections().values(),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.__name__)
def test_every_setting_has_a_meaning(config: type) -> None:
    unknown = [f"{config.__name__}.{key}" for key, _, _, meaning in options(config) if not meaning]
    assert not unknown, f"expected an entry under Attributes in the docstring for {unknown}"
    assert all("| |" not in line for line in settings(config)), "a setting of a section within has no meaning"


def test_values_are_in_words() -> None:
    assert values({"type": "number", "exclusiveMinimum": 0, "maximum": 1e6}) == "above 0, up to 1,000,000"
    assert values({"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]}) == "`a`, `b`"
    assert linked("little (docs/results/completion.md)") == "little ([results](../results/completion.md))"
