"""The reference is complete: what the code knows, the pages describe, with the same defaults."""

from __future__ import annotations

import importlib
import json
import re

import pytest
from pydantic import BaseModel
from ruamel.yaml import YAML

from cutlayer.attacks import REGISTRY as ATTACKS
from cutlayer.audit import findings
from cutlayer.channel.message import Kind
from cutlayer.config import BudgetConfig, FrozenModel, Job, PartyConfig, PrivateFile, ServeConfig
from cutlayer.protections import REGISTRY as PROTECTIONS
from cutlayer.protections.contract.hooks import HOOKS
from tests.docs.reading import ROOT, table_rows

DOCS = ROOT / "docs"
HOOKS_OF_ALL = {"setup", "event", "metrics", "state_dict", "load_state_dict"}


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def cells_of(page: str) -> dict[str, list[str]]:
    """Rows of all tables of a page by their first cell."""
    return {row[0].strip("`"): row[1:] for row in table_rows(text_of(page))}


def sections_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, FrozenModel):
        return [annotation]
    return [item for argument in getattr(annotation, "__args__", ()) for item in sections_in(argument)]


def all_sections() -> dict[str, type[BaseModel]]:
    """Every section of a job that no generated page describes, by the name of its class."""
    found: dict[str, type[BaseModel]] = {}
    waiting: list[type[BaseModel]] = [Job, BudgetConfig, ServeConfig]
    while waiting:
        section = waiting.pop()
        found[section.__name__] = section
        inner = [item for field in section.model_fields.values() for item in sections_in(field.annotation)]
        waiting += [each for each in inner if each.__name__ not in found]
    return found


@pytest.mark.parametrize("name", sorted(all_sections()))
def test_every_key_of_a_job_is_described_with_its_default(name: str) -> None:
    page, mark = text_of("reference/job.md"), f"<!-- fields: {name} -->"
    assert page.count(mark) == 1
    part = re.split(r"\n##|<!-- fields:", page.partition(mark)[2])[0]
    rows = {row[0].strip("`"): row for row in table_rows(part)}
    fields = all_sections()[name].model_fields
    assert rows.keys() == fields.keys()
    for key, field in fields.items():
        stated = rows[key][2].strip("`")
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        if field.is_required() or default is None:
            assert stated == ("required" if field.is_required() else "none"), key
        elif isinstance(default, FrozenModel):
            assert stated == "see there", key
        else:
            assert YAML(typ="safe", pure=True).load(stated) == json.loads(json.dumps(default)), key


def test_every_key_of_a_private_file_alone_is_described() -> None:
    part = text_of("reference/job.md").partition("\n### A private file\n")[2].partition("\n##")[0]
    alone = PrivateFile.model_fields.keys() - PartyConfig.model_fields.keys()
    assert {row[0].strip("`") for row in table_rows(part)} == alone


def test_attacks_are_explained_with_what_they_read() -> None:
    explained = cells_of("concepts.md").keys() & ATTACKS.keys()
    assert len(explained) > 30
    for name in explained:
        reads, knows, _ = cells_of("concepts.md")[name]
        assert reads == ", ".join(ATTACKS[name].reads)
        assert all(need.words in knows for need in ATTACKS[name].needs)


def test_the_threat_model_states_the_guarantees_of_the_classes() -> None:
    rows = cells_of("threat-model.md")
    stated = {name: rows[name][0] for name in rows.keys() & PROTECTIONS.keys()}
    assert len(stated) > 10
    for name, guarantee in stated.items():
        assert guarantee.startswith("none, empirical") == ("Guarantee: none" in (PROTECTIONS[name].__doc__ or ""))


def test_every_hook_is_described_with_who_uses_it() -> None:
    rows = cells_of("concepts.md")
    named = {word.strip("`") for key in rows for word in key.split(", ")}
    assert not HOOKS_OF_ALL - named
    for hook in HOOKS:
        users = {f"`{name}`" for name, kind in PROTECTIONS.items() if hook in vars(kind)}
        stated = rows[hook][2]
        assert stated == "none yet" if not users else set(stated.split(", ")) <= users


def test_every_message_is_described() -> None:
    assert {str(kind) for kind in Kind} <= cells_of("concepts.md").keys()


def test_every_finding_is_described() -> None:
    checks = findings.CHECKS
    page = text_of("reference/findings.md")
    described = {(key[1:6], *cells[:2]) for key, cells in cells_of("reference/findings.md").items()}
    assert described == {(check.code, check.severity, check.title) for check in checks}
    assert (
        re.findall(r"^## (CL\d+)$", page, re.M)
        == [check.code for check in checks]
        == sorted({check.code for check in checks})
    )
    assert f"fewer than {findings.FEW_ROWS} positives" in page


def test_every_name_of_the_python_reference_is_there() -> None:
    for name in re.findall(r"^::: ([\w.]+)$", text_of("reference/api.md"), re.M):
        module, _, member = name.rpartition(".")
        assert hasattr(importlib.import_module(module), member) or importlib.import_module(name)


def test_the_page_of_guarantees_has_mechanisms_with_one_alone_and_names_tests_that_exist() -> None:
    page = text_of("guarantees.md")
    formal = {name for name, known in PROTECTIONS.items() if "Guarantee: none" not in (known.__doc__ or "")}
    assert {"label_dp", "dp_embedding", "dp_bottom"} <= set(re.findall(r"^## `(\w+)`$", page, re.M)) <= formal
    named = re.findall(r"`(tests/[\w/.]+)`", page)
    assert len(named) > 5
    assert all((ROOT / path).is_file() for path in named)
