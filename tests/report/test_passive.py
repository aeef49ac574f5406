"""The report of a passive party: each figure with the weakest knowledge, its files alone, no name that breaks it."""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from cutlayer.accounting import Entry, GaussianRelease, Ledger, ReleasePlan
from cutlayer.attacks.knowledge import Need
from cutlayer.errors import ConfigError, CutlayerError, RunFolderError
from cutlayer.report.card import build_card
from cutlayer.report.passive.build import build_passive
from cutlayer.report.passive.headline import passive_headline
from cutlayer.report.passive.page import passive_html, passive_markdown, print_passive
from cutlayer.report.passive.reach import weakest_first
from cutlayer.results.audit import PassiveAudit, SkippedAttack
from cutlayer.training.folder import RunFolder
from tests.report.passive_samples import exact, passive_report, passive_run, rebuilt

POPULATION = (Need.POSITIVE_SHARE,)
"""Stands for knowledge of the population alone."""
NOISE = Entry(
    "dp_embedding",
    "telco",
    "features",
    ("bank",),
    GaussianRelease(noise_multiplier=4.0, releases=ReleasePlan(training=1, test=1, once=True)),
)


def test_a_figure_stands_with_the_weakest_knowledge_that_reaches_it() -> None:
    known, free, more = exact(42, 50, (Need.AUXILIARY_FEATURES,)), exact(42, 50), exact(45, 50, POPULATION)
    inverted = rebuilt(0.97)
    assert weakest_first([inverted, known, more, free]) == [free, more, inverted]
    page = passive_html(passive_report(features=(inverted, known, more, free)))
    lines = [text.split() for text in re.findall(r"<th scope=\"row\"[^>]*>([^<]*)<", page)]
    order = [" ".join(words) for words in lines]
    assert order.index("nothing but what it received") < order.index("the features of 512 released rows")
    assert "read 42 of 50 columns exactly" in page
    assert "84.0\u00a0% of values exact" in page
    assert "84.0\u00a0% to 100\u00a0%" in page  # in the unit of the figure, as what a constant answer gives
    assert "10.0\u00a0%" in page


@pytest.mark.parametrize(
    ("features", "sentence"),
    [
        ((), "No attack on the columns of telco was run: this page cannot say what bank can read of them."),
        ((rebuilt(0.05),), "No attack that was run read more than a little of the columns of telco."),
        ((rebuilt(0.97),), "bank can rebuild nearly all of the columns of telco with 512 known rows."),
        ((exact(50, 50), rebuilt(0.99)), "bank can read 50 of 50 columns of telco exactly without any knowledge."),
        (
            (exact(42, 50), rebuilt(0.97)),
            "bank can read 42 of 50 columns of telco exactly without any knowledge, and with 512 known rows rebuild "
            "nearly all of the columns.",
        ),
    ],
)
def test_the_headline_is_two_short_sentences(features: tuple[object, ...], sentence: str) -> None:
    for ledger in (Ledger(()), Ledger((NOISE,))):
        text = passive_headline(passive_report(features=features, ledger=ledger))
        assert text.startswith(f"{sentence} ")
        sentences = re.split(r"(?<=[.]) (?=[A-Z])", text)
        assert len(sentences) == 2
        assert max(len(each.split()) for each in sentences) <= 25
        assert ("No theorem" in text) == (not ledger.entries)
        assert "bank knows 180 ids of telco" in text


def test_a_party_that_was_not_attacked_is_told_so_and_how() -> None:
    page = passive_html(passive_report())
    assert ("calls, minutes" in page, "Columns available" in page) == (True, False)
    assert "Not attacked: this party&#39;s audit names no attack on its columns" in page
    assert "cutlayer audit runs/loans-telco --attack inversion" in page
    skipped = SkippedAttack(party="telco", message="embedding", attack="inversion", reason="nothing was recorded")
    page = passive_html(passive_report(asked=("inversion",), skipped=(skipped,)))
    assert "gave a figure (inversion): nothing is known of what bank can read" in page
    assert "telco/embedding/inversion: nothing was recorded." in page


def test_what_was_sent_learned_proved_and_matched_is_stated() -> None:
    report = passive_report(ledger=Ledger((NOISE,)))
    page = passive_html(report)
    total = report.ledger.totals[0]
    for text in (
        "To bank alone: 180 releases of 180 rows, each row once",
        "50 of the 230 rows of telco took no part: none was sent.",
        "no message that it was sent depends on a label.",
        "bank learned that 180 of the 200 ids that it stated are in the table of telco, and that up to 20 are not.",
        "telco learned that 180 of its 230 ids are in the table of bank, and that 50 are not.",
        total.statement[1:40],
        total.condition,
        "[ for the controller ]",
    ):
        assert text in page, text
    printed = io.StringIO()
    print_passive(report, Console(file=printed, width=200))
    assert "180 of its 230 ids" in printed.getvalue()
    assert "180 of its 230 ids" in passive_markdown(report)


def test_a_constant_column_has_no_figure() -> None:
    nothing = exact(1, 2).model_copy(update={"value": None, "low": None, "metric": "r2"})
    assert "No attack that was run read more than a little" in passive_html(passive_report(features=(nothing,)))


class _Page(HTMLParser):
    """Elements of a page, and the addresses that it names."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses |= {value or "" for name, value in attrs if name in ("src", "href")}


def folder_of(path: Path, **changes: object) -> Path:
    """A passive party's folder, as anybody may have written it."""
    job = {
        "parties": {
            "bank": {"role": "active", "table": "/etc/passwd", "label": "y", "id": "id"},
            "telco": {"role": "passive", "table": "/etc/hostname", "id": "id"},
        },
        "model": {"bottom": {"kind": "mlp", "hidden": [4]}, "top": {"kind": "mlp", "hidden": [4]}},
    }
    path.mkdir()
    (path / "job.yaml").write_text(json.dumps(job))
    passive_run(**changes).write(path / "outcome.json")
    PassiveAudit(features=(exact(1, 2),)).write(path / "audit.json")
    (path / "ledger.json").write_text(json.dumps(Ledger((NOISE,)).to_json()))
    return path


def test_a_hostile_folder_is_shown_escaped_and_reaches_nothing_outside(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script><img src=//x onerror=y>`#"
    path = folder_of(tmp_path / "run", name=evil, device=evil, training=evil, created=evil)
    hostile = exact(1, 2).model_copy(update={"attack": evil, "release": evil})
    columns = tuple(column.model_copy(update={"column": evil}) for column in hostile.columns)
    PassiveAudit(features=(hostile.model_copy(update={"columns": columns}),)).write(path / "audit.json")
    page = _Page()
    page.feed(passive_html(build_passive(path)))
    assert not page.tags & {"script", "img"}
    assert all(address.startswith("#") or address == "data:," for address in page.addresses)
    assert not re.search(r"(?<!\\)<script", passive_markdown(build_passive(path)))
    assert "/etc" not in passive_html(build_passive(path))
    build_card(path)  # with tables that cannot be opened

    with pytest.raises(RunFolderError, match=r"expected a passive party of the job \(telco\) .*, got '../../etc'"):
        build_passive(folder_of(tmp_path / "other", party="../../etc"))
    (tmp_path / "outside").mkdir()
    (path / "data").symlink_to(tmp_path / "outside")
    with pytest.raises((ConfigError, RunFolderError), match="data"):
        RunFolder.open(path)


@pytest.mark.parametrize("name", ["outcome.json", "audit.json", "ledger.json"])
@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema_version": 5}'])
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: str) -> None:
    path = folder_of(tmp_path / "run")
    (path / name).write_text(content)
    if (name, content) == ("audit.json", '{"schema_version": 5}'):
        assert build_passive(path).features == ()
        return
    with pytest.raises(CutlayerError):
        build_passive(path)
