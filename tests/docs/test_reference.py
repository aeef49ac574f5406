"""The reference is complete: what the code knows, the pages describe, with the same defaults."""

from __future__ import annotations

import importlib
import re

from cutlayer.audit import findings
from cutlayer.channel.message import Kind
from cutlayer.config import PartyConfig, PrivateFile
from cutlayer.protections import REGISTRY as PROTECTIONS
from cutlayer.protections.contract.hooks import HOOKS
from cutlayer.results.run_files import CHANGED
from tests.docs.reading import ROOT, shown, table_rows

DOCS = ROOT / "docs"
HOOKS_OF_ALL = {"setup", "event", "metrics", "state_dict", "load_state_dict"}


def text_of(page: str) -> str:
    return shown(DOCS / page)


def cells_of(page: str) -> dict[str, list[str]]:
    """Rows of all tables of a page by their first cell."""
    return {row[0].strip("`"): row[1:] for row in table_rows(text_of(page))}


def test_every_key_of_a_private_file_alone_is_described() -> None:
    part = text_of("reference/job.md").partition("\n### A private file\n")[2].partition("\n##")[0]
    alone = PrivateFile.model_fields.keys() - PartyConfig.model_fields.keys()
    assert {row[0].strip("`") for row in table_rows(part)} == alone


def test_the_guarantees_of_all_protections_are_in_one_table() -> None:
    rows = {key.partition("`")[2].partition("`")[0]: cells for key, cells in cells_of("guarantees.md").items()}
    assert PROTECTIONS.keys() <= rows.keys()
    formal = {name for name in PROTECTIONS if not rows[name][1].startswith("none, empirical")}
    assert formal == {name for name, kind in PROTECTIONS.items() if "Guarantee: none" not in (kind.__doc__ or "")}


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
    checks = (*findings.CHECKS, CHANGED)
    page = text_of("reference/findings.md")
    described = {(key[1:6], *cells[:2]) for key, cells in cells_of("reference/findings.md").items()}
    assert described == {(check.code, check.severity, check.title) for check in checks}
    assert (
        re.findall(r"^## (CL\d+)$", page, re.M)
        == [check.code for check in checks]
        == sorted({check.code for check in checks})
    )
    assert f"fewer than {findings.MIN_CLASS_ROWS} positives" in page


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
