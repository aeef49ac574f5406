"""The sentence and the picture that a report begins with."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from cutlayer.accounting import Entry, LabelFree, Ledger
from cutlayer.attacks.knowledge import Need
from cutlayer.report.glance import glance, glances
from cutlayer.report.headline import headline
from cutlayer.report.html import render_html
from cutlayer.report.sections import verdict
from cutlayer.report.story import print_story
from cutlayer.results.features import FeatureResult
from cutlayer.results.report import Report
from cutlayer.results.utility import Gain
from tests.report.reading import answers
from tests.report.samples import binary


def changed(**updates: object) -> Report:
    return Report.model_validate(binary()).model_copy(update=updates)


def with_leak(report: Report, run: str, leak: float) -> Report:
    leaks = tuple(item.model_copy(update={"leak": leak}) if item.run == run else item for item in report.leaks)
    return report.model_copy(update={"leaks": leaks})


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (1.0, "with it they can read every label, and"),
        (0.92, "with it they can infer nearly every label, and"),
        (0.8, "with it they can guess labels far better than chance, and"),
        (0.51, "with it they did not read labels better than chance by any attack tried, and"),
    ],
)
def test_the_sentence_says_what_the_leak_means(now: float, words: str) -> None:
    report = with_leak(with_leak(changed(baselines=()), "this run", now), "undefended", 0.995)
    text = headline(report)
    assert text.startswith("Without protection the partners can read every label; ")
    assert words in text
    assert "the model predicts as well (test AUC 0.904, undefended 0.913)" in text


def knowing(report: Report, run: str, *needs: Need) -> Report:
    """A report whose attacks on one run have this knowledge, and none the own columns to compare with."""
    leaks = tuple(leak.model_copy(update={"knowledge": needs}) if leak.run == run else leak for leak in report.leaks)
    return report.model_copy(update={"leaks": leaks, "baselines": ()})


def test_the_sentence_is_about_every_partner() -> None:
    """One that is sent no label, or reads no more than its columns, says nothing of another."""
    report = changed()
    free, *sent = [party.name for party in report.parties if party.role == "passive"]
    entries = (Entry("label_free", "bank", "labels", (free,), LabelFree()),)
    own = [leak for leak in report.leaks if leak.run == "this run"]
    leaks = tuple(item.model_copy(update={"leak": 0.86 if item.party == free else 0.8}) for item in own)
    baselines = tuple(
        baseline.model_copy(update={"own_columns": 0.86 if baseline.party == free else 0.55})
        for baseline in report.baselines
    )
    report = report.model_copy(update={"leaks": leaks, "ledger": Ledger(entries=entries), "baselines": baselines})
    assert "own columns reveal" not in headline(report)
    unknown = tuple(each for each in baselines if each.party == free)
    assert "own columns reveal" not in headline(report.model_copy(update={"baselines": unknown}))
    both = (Entry("label_free", "bank", "labels", (free, *sent), LabelFree()),)
    assert "learn no more" in headline(report.model_copy(update={"ledger": Ledger(entries=both)}))
    # The parts of a split that a column orders may show what no own column does.
    ordered = (Entry("label_free", "bank", "labels", (free, *sent), LabelFree(split_by="capital_gain")),)
    assert "learn no more" not in headline(report.model_copy(update={"ledger": Ledger(entries=ordered)}))


def test_a_narrower_audit_says_so_first() -> None:
    report = with_leak(changed(left_out=("few_labels", "similarity"), baselines=()), "this run", 0.51)
    assert headline(report).startswith("By a part of the attacks alone (2 left out), ")


def test_the_sentence_says_which_labels_the_attacker_must_know() -> None:
    report = with_leak(with_leak(changed(), "this run", 0.8), "undefended", 0.995)
    few = knowing(report, "this run", Need.FEW_LABELS)
    assert "with it they can guess labels far better than chance with up to 200 known labels, and" in headline(few)
    assert "Without protection the partners can read every label;" in headline(few)
    assert verdict(few).startswith("Worst leak 0.800, with up to 200 known labels")
    assert "The attacker has up to 200 known labels." in next(
        answer.text for answer in answers(few) if answer.question == "Worst leak"
    )
    # Another attack reads as much and knows no label.
    (first, *others) = few.leaks
    free = few.model_copy(update={"leaks": (first.model_copy(update={"knowledge": (), "leak": 0.79}), *others)})
    assert first.run == "this run"
    assert "far better than chance, and" in headline(free)
    assert "known" not in headline(with_leak(few, "this run", 0.51))
    # Of attacks that read the same to three digits the one that knows least is named.
    equal = few.model_copy(update={"leaks": (first.model_copy(update={"knowledge": (), "leak": 0.7996}), *others)})
    assert verdict(equal).startswith("Worst leak 0.800 (undefended")


def test_the_sentence_says_which_rows_the_active_party_must_know() -> None:
    report = changed()
    features = tuple(
        feature_result.model_copy(update={"knowledge": (Need.AUXILIARY_FEATURES,), "known": 512})
        for feature_result in report.features
    )
    text = headline(report.model_copy(update={"features": features}))
    assert re.search(r"; (but )?\w+, with 512 known rows, can rebuild ", text)
    assert "known rows" not in headline(report)


def test_a_mark_that_another_would_hide_is_larger_than_it(report: Report) -> None:
    """Two runs with nearly the same values: both remain visible, this run on top."""
    runs = ("this run", "undefended")
    rows = tuple(
        row.model_copy(update={"metrics": {"auc": 0.9}}) if row.name in runs else row for row in report.utility.rows
    )
    same = with_leak(with_leak(report, "this run", 0.8), "undefended", 0.801)
    same = same.model_copy(update={"utility": report.utility.model_copy(update={"rows": rows})})
    picture = re.findall(r"<svg class=\"chart\".*?</svg>", render_html(same), re.S)[0]
    sizes = {
        int(style): float(size)
        for style, size in re.findall(r'class="mark s(\d)" transform="[^"]*scale\((.*?)\)', picture)
    }
    assert sizes[1] > 1.5 * sizes[0]
    assert picture.index('class="mark s1"') < picture.index('class="mark s0"')


def test_a_loss_is_not_called_none() -> None:
    report = changed()
    rows = [
        row.model_copy(update={"metrics": {"auc": 0.7}}) if row.name == "this run" else row
        for row in report.utility.rows
    ]
    lossy = report.model_copy(update={"utility": report.utility.model_copy(update={"rows": tuple(rows)})})
    assert "the model predicts worse (test AUC 0.700, undefended 0.913)" in headline(lossy)


def test_a_model_without_an_interval_is_not_compared() -> None:
    """On two test rows AUCs of 0 and 0 were "as well", and the partner took 0.5 from the own columns' AUC."""
    report = changed()
    rows = [
        row.model_copy(update={"low": None, "high": None}) if row.name == "this run" else row
        for row in report.utility.rows
    ]
    few = report.model_copy(update={"utility": report.utility.model_copy(update={"rows": tuple(rows)})})
    assert "test rows are too few to compare predictions (test AUC" in headline(few)


def test_a_loss_within_the_interval_is_not_called_certain() -> None:
    """On 279 test rows with 10 positives 0.717 was "worse" than 0.771, with an interval from 0.516 to 0.887."""
    report = changed()
    rows = [
        row.model_copy(update={"metrics": {"auc": 0.717}, "low": 0.516, "high": 0.92})
        if row.name == "this run"
        else row
        for row in report.utility.rows
    ]
    open_ = report.model_copy(update={"utility": report.utility.model_copy(update={"rows": tuple(rows)})})
    assert "may predict worse (test AUC 0.717, 95 % interval 0.516–0.920, undefended 0.913)" in headline(open_)


def test_the_caption_names_columns_that_the_table_has(report: Report) -> None:
    with_features = glance(report)
    assert with_features is not None
    assert "Columns rebuilt: 0 is none, 1 all" in with_features.brief[0].caption
    without = glance(report.model_copy(update={"features": ()}))
    assert without is not None
    assert "rebuilt" not in without.brief[0].caption


def test_without_an_attack_on_labels_what_attacks_on_columns_reach_is_said() -> None:
    """`cutlayer audit RUN --attack inversion` had a finding with R\u00b2 0.944 below "No attack was run"."""
    known = {"knowledge": (Need.AUXILIARY_FEATURES,), "known": 152, "rows": 152, "metric": "r2", "baseline": 0.0}
    found = {"run": "this run", "party": "telco", "attack": "inversion", "release": "epoch 6"}
    report = changed(leaks=(), features=(FeatureResult(**found, **known, value=0.944, low=0.92, high=0.96),))
    start = (
        "No attack on labels was run, so this report says nothing about what leaks of them; but bank, with 152 known"
    )
    assert headline(report).startswith(start)
    assert "R\u00b2 0.944" in headline(report)


def test_without_any_attack_nothing_is_claimed() -> None:
    report = changed(leaks=(), features=())
    assert headline(report) == "No attack was run, so this report says nothing about what leaks"
    assert glance(report) is None


def test_without_a_baseline_no_protection_is_praised() -> None:
    report = changed()
    alone = report.model_copy(update={"leaks": tuple(leak for leak in report.leaks if leak.run == "this run")})
    assert headline(alone).startswith("The partners ")
    assert "without protection" not in headline(alone).lower()


def test_the_picture_has_a_mark_for_each_run_and_says_it_in_words(report: Report) -> None:
    runs = [run for run in glances(report) if run.leak is not None]
    page = render_html(report)
    picture = page[page.index('class="glance"') : page.index('class="answers"')]
    svg = re.findall(r"<svg class=\"chart\".*?</svg>", picture, re.S)
    assert len(svg) == 1 + any(run.features is not None for run in runs)
    assert svg[0].count('class="mark') == len(runs)
    for run in runs:
        assert f"{run.name}: test AUC" in svg[0]


def test_the_story_fits_eighty_columns(any_report: Report) -> None:
    out = io.StringIO()
    print_story(any_report, Console(file=out, width=80))
    text = out.getvalue()
    assert [line for line in text.splitlines() if cell_len(line) > 80 and "report" not in line] == []
    assert " ".join(text.split()).startswith(" ".join(headline(any_report).split()))


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        ((0.045, 0.031, 0.058), "; telco adds 0.045 (0.031 to 0.058) to the AUC of your own columns"),
        (
            (0.004, -0.002, 0.01),
            "; telco adds nothing that these rows can show (\u22120.002 to 0.010) to the AUC of your",
        ),
        ((-0.02, -0.03, -0.01), "; telco takes 0.020 (\u22120.030 to \u22120.010) from the AUC of your own columns"),
    ],
)
def test_the_sentence_says_what_the_partners_add(gain: tuple[float, float, float], words: str) -> None:
    value, low, high = gain
    report = changed()

    def adding(*parties: str) -> Report:
        found = Gain(parties=parties, value=value, low=low, high=high)
        return report.model_copy(update={"utility": report.utility.model_copy(update={"gain": found})})

    assert words in headline(adding("telco"))
    assert "telco, shop and post " in headline(adding("telco", "shop", "post"))
    assert "your own columns" not in headline(report)
