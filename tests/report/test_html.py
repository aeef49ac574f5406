from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from cutlayer.accounting import Entry, LabelFree, Ledger
from cutlayer.attacks.knowledge import Need
from cutlayer.audit.findings import CHECKS
from cutlayer.report.html import render_html, write_html
from cutlayer.report.section import Table
from cutlayer.report.sections.run import parties_section
from cutlayer.results.report import Report
from tests.report.conftest import Sample
from tests.report.reading import Page, blocks_of, leaves, section_of, shown, visible
from tests.report.samples import HOSTILE, binary, short

OTHERS = {
    "selected": "last",
    "kind": "multiclass",
    "run_kind": "malicious",
    "role": "passive",
    "side": "active",
    "message": "embedding",
    "protects": "features",
    "unit": "embeddings",
    "severity": "warning",
}
TWO_MEGABYTES = 2_000_000


def changed(key: Any, value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return OTHERS.get(key, value + "x")
    if value is None:
        return 7
    return 2 * value + 1 if isinstance(value, int) else value * 0.8 + 0.0123


ELSEWHERE = ("history", "features", "completions", "quality", "layers", "departures")
"""Parts that a report may lack: a page with one of them at most takes half the time of one with all."""


def with_part(part: str) -> dict[str, Any]:
    """A short report with one of the parts above."""
    report, absent = short(), {"quality": None, "departures": None}
    return report | {name: absent.get(name, []) for name in ELSEWHERE if name != part}


@functools.cache
def untouched(part: str) -> str:
    """The words of the page before anything changed."""
    return visible(render_html(Report.model_validate(with_part(part))))


def first_leaves() -> list[tuple[Any, ...]]:
    """The path of every kind of value: the first item stands for its list."""
    paths = [path for path, _ in leaves(binary())]
    return [path for path in paths if not any(place for place in path if isinstance(place, int))]


@pytest.mark.parametrize("path", first_leaves(), ids=lambda path: ".".join(map(str, path)))
def test_every_value_is_seen_on_the_page(path: tuple[Any, ...]) -> None:
    other = with_part(str(path[0]))
    holder: Any = other
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = Need.SIMULATOR if "knowledge" in path else changed(path[-1], holder[path[-1]])
    if path[-1] == "role":
        other["parties"][1]["role"] = "active"  # each job has one
    assert visible(render_html(Report.model_validate(other))) != untouched(str(path[0]))


def test_every_figure_is_written_on_the_page(any_sample: Sample) -> None:
    text = any_sample.page.text
    numbers = [
        (path, value)
        for path, value in leaves(any_sample.report.model_dump(mode="json"))
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    missing = [(path, value) for path, value in numbers if not shown(value, text)]
    assert not missing


def test_every_word_is_written_on_the_page(sample: Sample) -> None:
    text, report = sample.page.text, sample.report
    words = (
        [protection.statement for protection in report.protections]
        + [gate.where for gate in report.gates]
        + list(report.limits)
    )
    words += [
        word for finding in report.findings for word in (finding.code, finding.title, finding.detail, finding.remedy)
    ]
    words = [word.replace("`", "") for word in words]  # what stands in them is set as code
    words += [row.note for row in report.utility.rows] + [line.strip() for line in report.job.splitlines()]
    assert [word for word in words if " ".join(word.split()) not in text] == []


def test_the_page_is_small_and_loads_nothing(any_sample: Sample) -> None:
    page = any_sample.html
    assert len(page.encode()) < TWO_MEGABYTES
    for tag, attributes in any_sample.page.tags:
        assert tag not in {"img", "iframe", "object", "embed", "audio", "video", "base", "form"}
        for name in ("src", "href", "action", "srcset", "data", "poster"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,")), (tag, name)
    style = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert "http" not in style


def test_the_policy_admits_only_the_script_of_the_page(sample: Sample) -> None:
    page = sample.html
    policy = next(tag["content"] for _, tag in sample.page.tags if tag.get("http-equiv") == "Content-Security-Policy")
    script = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(script) == 1
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert f"script-src 'sha256-{digest}'" in policy


def test_the_json_inside_is_the_report(any_sample: Sample) -> None:
    page = any_sample.page
    assert Report.model_validate(json.loads(page.json)) == any_sample.report
    assert "<" not in page.json


def test_names_cannot_break_the_page(hostile_sample: Sample) -> None:
    text, page = hostile_sample.html, hostile_sample.page
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "report"}, {}]
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert "alert(1)" not in text[text.index("<script>") :]
    assert HOSTILE in page.text
    assert "{{ 7 * 7 }}" in page.text
    assert "\x1b" not in text


def test_code_and_pages_of_the_documentation_are_set_as_code(brief: Report) -> None:
    remedies = {check.code: check.remedy for check in CHECKS}
    finding = brief.findings[0].model_copy(
        update={"detail": "`<b>1</b>` and `docs/concepts.md", "remedy": remedies["CL111"]}
    )
    page = render_html(brief.model_copy(update={"findings": (finding,)}))
    assert "<p><code>&lt;b&gt;1&lt;/b&gt;</code> and `<code>docs/concepts.md</code></p>" in page
    assert "<code>cutlayer list protections</code>" in page
    assert "<code>docs/how-to/which-protection.md</code>" in page


def test_every_page_that_a_remedy_names_exists() -> None:
    named = [page for check in CHECKS for page in re.findall(r"docs/[\w/.-]+", check.remedy)]
    assert named
    assert [page for page in named if not (Path(__file__).parents[2] / page).is_file()] == []


def test_a_line_goes_on_over_epochs_that_were_not_recorded(report: Report) -> None:
    """As those of the training that a single release is compared with, of which one epoch in five is recorded."""

    def paths(kept: int) -> list[str]:
        history = [
            epoch if (epoch.epoch - 1) % kept == 0 else epoch.model_copy(update={"leak": {}})
            for epoch in report.history
        ]
        page = render_html(report.model_copy(update={"history": tuple(history)}))
        panels = page[page.index(">Leak per epoch<") :]
        return re.findall(r'<path class="line[^>]* d="([^"]*)"', panels[: panels.index("</section>")])

    whole, few = paths(1), paths(3)
    assert [path.count("M") for path in few] == [path.count("M") for path in whole]
    assert sum(path.count("L") for path in few) < sum(path.count("L") for path in whole)


def test_a_leak_of_the_history_that_names_no_target_breaks_nothing(brief: Report) -> None:
    epoch = brief.history[0].model_copy(update={"leak": {"<script>": 0.7}})
    page = render_html(brief.model_copy(update={"history": (epoch, *brief.history[1:])}))
    assert '<script>"' not in page


def test_the_page_follows_dark_mode_phones_and_print(sample: Sample) -> None:
    page = sample.html
    assert "@media screen and (prefers-color-scheme: dark)" in page
    assert "@media print" in page
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page


def test_the_page_can_be_read_aloud(any_sample: Sample) -> None:
    page, tags = any_sample.html, any_sample.page.tags
    assert page.count("<table") == page.count("<caption>")
    for tag, attributes in tags:
        if tag == "svg":
            assert attributes.get("aria-hidden") or (attributes["role"] == "img" and attributes["aria-label"])
        if attributes.get("class") == "scroll":
            assert attributes["aria-label"]
            assert attributes["tabindex"] == "0"
    ranks = [int(tag[1]) for tag, _ in tags if re.fullmatch("h[1-6]", tag)]
    assert ranks.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(ranks))
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {attributes["href"] for tag, attributes in tags if tag == "a"}
    assert targets <= {f"#{name}" for name in ids}


def test_every_row_of_a_table_covers_its_columns(any_sample: Sample) -> None:
    for table in re.findall(r"<table.*?</table>", any_sample.html, re.DOTALL):
        rows = [re.findall(r"<t[hd]\b[^>]*>", row) for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL)]
        widths = [sum(int((re.search(r'colspan="(\d+)"', cell) or [0, 1])[1]) for cell in row) for row in rows]
        assert len(set(widths)) == 1


def test_a_guarantee_and_a_leak_never_share_a_table(sample: Sample) -> None:
    tables = sample.page.tables
    for protection in sample.report.protections:
        holding = [table for table in tables if protection.statement in table]
        assert len(holding) == 1
        assert "AUC" not in holding[0]


def test_a_long_run_stays_small(tmp_path: Path) -> None:
    raw = binary()
    line = raw["history"][0]
    raw["history"] = [line | {"run": run, "epoch": e} for run in ("this run", "undefended") for e in range(1, 2001)]
    raw["leaks"][0]["epoch"] = 1234
    path = write_html(Report.model_validate(raw), tmp_path / "report.html")
    assert path.stat().st_size < TWO_MEGABYTES
    page = Page(path.read_text())
    assert "report.json has all" in page.text
    epochs = {part["epoch"] for part in json.loads(page.json)["history"] if part["run"] == "this run"}
    assert {1, 8, 1234, 2000} <= epochs
    assert len(epochs) < 110


def test_a_protection_that_did_not_act_is_marked(brief: Report) -> None:
    idle = brief.protections[0].model_copy(update={"changed": 0, "covered": 12})
    text = Page(render_html(brief.model_copy(update={"protections": (idle,)}))).text
    assert "✕ not all" in text
    assert "✕ nothing" in text


def test_a_leak_whose_interval_includes_chance_is_marked(brief: Report) -> None:
    near = brief.leaks[1].model_copy(update={"leak": 0.504, "low": 0.5, "high": 0.52})
    text = Page(render_html(brief.model_copy(update={"leaks": (brief.leaks[0], near)}))).text
    assert f"epoch {near.epoch}, ≈ chance" in text


def test_the_traffic_of_the_active_party_is_listed_by_kind_the_largest_first(report: Report) -> None:
    (listed,) = (
        each for each in parties_section(report).blocks if isinstance(each, Table) and "by kind" in each.caption
    )
    assert [row.cells[0].text for row in listed.rows] == ["embedding", "gradient", "evaluation"]
    of_training = "numbers computed from the columns of training rows"
    assert [cell.text for cell in listed.rows[0].cells[1:]] == ["0\u00a0B", "81.9\u00a0MB", of_training]
    (sent,) = parties_section(report).answers
    assert sent.text.startswith("bank sent numbers computed from labels and embeddings of training rows (")
    assert f"The partners sent {of_training} (81.9\u00a0MB); " in sent.text


def test_what_crossed_to_match_rows_stands_apart_from_what_is_computed_from_them(report: Report) -> None:
    traffic = {"labels": (100, 0), "masked": (3000, 4000), "release": (0, 200)}
    changed = tuple(each.model_copy(update={"traffic": traffic}) for each in report.parties)
    (sent,) = parties_section(report.model_copy(update={"parties": changed})).answers
    assert sent.text == (
        "bank sent drawn labels of training rows, once, and how they were drawn (100\u00a0B); 3.00\u00a0kB to match "
        "rows (masked). The partners sent numbers computed from the columns of rows, released once (200\u00a0B); "
        "4.00\u00a0kB to match rows (masked)."
    )


def test_the_table_of_all_metrics_is_stacked_on_a_phone(sample: Sample) -> None:
    head, _, _ = sample.html.partition("<caption><span>All metrics on the test rows</span></caption>")
    assert head.rindex('<table class="stack"') == head.rindex("<table")


def test_two_attacks_on_one_kind_of_message_have_rows_of_their_own() -> None:
    """Of `few_labels` and `mean_gradient` on gradients both rows were "gradients, telco"."""
    curve = {"party": "census", "message": "gradient", "points": [{"labels": 5, "leak": 0.7}]}
    raw = binary() | {"curves": [curve | {"attack": name} for name in ("few_labels", "mean_gradient")]}
    section = section_of(Report.model_validate(raw), "leaks")
    assert section is not None
    (drawn,) = (
        block for block in blocks_of(section) if isinstance(block, Table) and "number of labels" in block.caption
    )
    assert [row.cells[0].notes[-1] for row in drawn.rows] == ["few_labels", "mean_gradient"]


@pytest.mark.parametrize(("entries", "words"), [((), "this run"), (("label_free",), "n/a")])
def test_a_release_without_labels_is_not_called_undefended(entries: tuple[str, ...], words: str) -> None:
    ledger = Ledger(tuple(Entry(name, "bank", "labels", ("census",), LabelFree()) for name in entries))
    report = Report.model_validate(binary())
    alone = tuple(leak for leak in report.leaks if leak.run == "this run")
    section = section_of(report.model_copy(update={"leaks": alone, "protections": (), "ledger": ledger}), "leaks")
    strongest = next(block for block in section.blocks if isinstance(block, Table))
    column = [head.name for head in strongest.columns].index("Undefended")
    assert {row.cells[column].text for row in strongest.rows} == {words}
