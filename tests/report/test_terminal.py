from __future__ import annotations

import io

from rich.cells import cell_len
from rich.console import Console

from cutlayer.report.rounding import auc, interval, metric
from cutlayer.report.section import Table
from cutlayer.report.sections import sections_of
from cutlayer.report.terminal import print_report, rich_table
from cutlayer.results.report import Report
from tests.report.reading import shown
from tests.report.samples import short


def printed(report: Report, width: int = 80, *, colour: bool = False) -> str:
    out = io.StringIO()
    print_report(
        report, Console(file=out, width=width, force_terminal=colour, color_system="truecolor" if colour else None)
    )
    return out.getvalue()


def test_it_fits_eighty_columns(any_report: Report) -> None:
    assert [line for line in printed(any_report).splitlines() if cell_len(line) > 80] == []


def test_the_strongest_attack_on_each_message_stays_in_its_row(report: Report) -> None:
    lines = printed(report).splitlines()
    own = [leak for leak in report.leaks if leak.run == "this run"]
    for party, message in {(leak.party, leak.message) for leak in own}:
        worst = max(
            (leak for leak in own if (leak.party, leak.message) == (party, message)), key=lambda leak: leak.leak
        )
        [first, second] = next(
            lines[index - 1 : index + 1]
            for index, line in enumerate(lines)
            if index and line.split()[:1] == [party] and lines[index - 1].split()[:1] == [f"{message}s"]
        )
        assert first.split()[1:3] == [worst.attack, auc(worst.leak)]
        assert interval(worst.low, worst.high) in second.split()
    assert "…" not in "".join(lines)


def test_it_says_utility_gates_findings_and_places(report: Report) -> None:
    text = printed(report)
    for row in report.utility.rows:
        assert row.name in text
        assert metric(row.metrics["auc"]) in text
    for gate in report.gates:
        assert gate.name in text
        assert gate.worst is not None
        assert shown(gate.worst, text)
        assert gate.where in text
    assert any("label_auc" in line and "FAILED" in line for line in text.splitlines())
    titles = [section.title for section in sections_of(report) if section.brief]
    assert max(titles, key=text.rindex) == "Findings and gates"
    offsets = [text.index(finding.code) for finding in report.findings]
    assert offsets[1] < offsets[2] < offsets[0]
    assert f"run folder {report.run.folder}\n" in text
    assert f"{report.run.folder}/report.html\n" in text


def test_no_column_of_text_is_narrower_than_its_words(any_report: Report) -> None:
    """A long name above numbers left two characters of 80 to the names of attacks."""
    results = tuple(result.model_copy(update={"ideal": 0.4, "metric": "exact"}) for result in any_report.features)
    for section in sections_of(any_report.model_copy(update={"features": results})):
        for block in section.brief:
            if isinstance(block, Table):
                rich = rich_table(block)
                narrow, wide = (
                    rich._calculate_column_widths(Console(width=width), Console(width=width).options)
                    for width in (80, 500)
                )
                assert all(width >= min(8, room) for width, room in zip(narrow, wide, strict=True)), block.caption


def test_every_run_has_a_row() -> None:
    raw = short("leaks")
    own = [leak for leak in raw["leaks"] if leak["run"] == "max_norm"]
    raw["leaks"] += [leak | {"run": f"other protection {number}"} for number in range(3) for leak in own]
    text = printed(Report.model_validate(raw))
    for number in range(3):
        assert any(line.startswith(f" other protection {number}") for line in text.splitlines())
    assert max(map(cell_len, text.splitlines())) <= 80


def test_a_long_path_is_not_broken(brief: Report) -> None:
    folder = "/data/" + "long-" * 30
    text = printed(brief.model_copy(update={"run": brief.run.model_copy(update={"folder": folder})}))
    assert f"{folder}/report.html\n" in text


def test_names_cannot_steer_the_terminal(hostile_report: Report) -> None:
    plain = printed(hostile_report)
    assert "\x1b" not in plain
    assert "\x00" not in plain
    assert "[link=x]y[/link]" in plain
    assert "\x1b[2J" not in printed(hostile_report, colour=True)


def test_rows_that_another_party_lacks_are_counted(brief: Report) -> None:
    active, *others = brief.parties
    more = active.model_copy(update={"rows_own": brief.data.common + 300})
    said = " ".join(printed(brief.model_copy(update={"parties": (more, *others)})).split())
    assert f"300 of the {brief.data.common + 300:,} rows of {active.name} are not with every party: left out." in said
    lacking = brief.data.model_copy(update={"lacking": {"telco": 200, "shop": 120}})
    said = " ".join(printed(brief.model_copy(update={"parties": (more, *others), "data": lacking})).split())
    assert "are not with every party: left out (200 not at telco, 120 not at shop)." in said
    dropped = active.model_copy(update={"left_out": {"without a label": 7}, "rows_own": brief.data.common})
    said = " ".join(printed(brief.model_copy(update={"parties": (dropped, *others)})).split())
    assert f"7 rows of the file of {active.name} are left out, without a label." in said
    same = active.model_copy(update={"rows_own": brief.data.common})
    assert "left out" not in printed(brief.model_copy(update={"parties": (same, *others)}))


def test_a_supplied_key_is_said(brief: Report) -> None:
    run = brief.run.model_copy(update={"reproducible_noise": True})
    assert "reproducible, not private" in printed(brief.model_copy(update={"run": run}))
    assert "not private" not in printed(brief)
