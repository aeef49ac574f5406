"""The sentence and the picture that a report begins with."""

from __future__ import annotations

import io
import random
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from cutlayer.accounting import Entry, LabelFree, Ledger
from cutlayer.attacks.knowledge import Need
from cutlayer.report import rounding
from cutlayer.report.charts import WIDTH, IntervalBar, interval_chart
from cutlayer.report.evidence import evidence_of, learned_sentences
from cutlayer.report.glance import glance_section, run_glances
from cutlayer.report.headline import headline, headline_sentences
from cutlayer.report.html import render_html
from cutlayer.report.markdown import render_markdown
from cutlayer.report.section import Panels, Table
from cutlayer.report.sections import verdict
from cutlayer.report.story import print_story
from cutlayer.results.features import FeatureResult
from cutlayer.results.leaks import Baseline
from cutlayer.results.report import Report
from cutlayer.results.utility import Difference, Gain
from tests.report.reading import Page, answers, cells_of, table_of, visible
from tests.report.samples import binary, short
from tests.report.test_terminal import printed


def changed(**updates: object) -> Report:
    return Report.model_validate(binary()).model_copy(update=updates)


def with_leak(report: Report, run: str, leak: float) -> Report:
    leaks = tuple(item.model_copy(update={"leak": leak}) if item.run == run else item for item in report.leaks)
    return report.model_copy(update={"leaks": leaks})


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (1.0, "can read every label of bank"),
        (0.92, "can infer nearly every label of bank"),
        (0.8, "can guess labels of bank far better than chance"),
    ],
)
def test_the_sentence_says_what_the_leak_means(now: float, words: str) -> None:
    report = with_leak(with_leak(changed(baselines=()), "this run", now), "undefended", 0.995)
    assert headline_sentences(report)[0] in {f"{party} {words}" for party in report.passives}


def test_a_leak_near_chance_is_not_called_none() -> None:
    report = with_leak(changed(baselines=()), "this run", 0.51)
    assert headline(report).startswith("The partners did not read labels of bank better than chance by any attack tri")


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
    assert "learn no more" in headline(report.model_copy(update={"ledger": Ledger(entries=both), "leaks": ()}))
    # The parts of a split that a column orders may show what no own column does.
    ordered = (Entry("label_free", "bank", "labels", (free, *sent), LabelFree(split_by="capital_gain")),)
    assert "learn no more" not in headline(report.model_copy(update={"ledger": Ledger(entries=ordered)}))


def test_a_narrower_audit_says_so_first() -> None:
    report = with_leak(changed(left_out=("few_labels", "similarity"), baselines=()), "this run", 0.51)
    assert headline(report).startswith("In a partial audit, the partners did not read labels of bank")
    assert verdict(report).startswith("Partial audit, 2 attacks left out:")


def test_the_sentence_says_which_labels_the_attacker_must_know() -> None:
    report = with_leak(with_leak(changed(), "this run", 0.8), "undefended", 0.995)
    few = knowing(report, "this run", Need.FEW_LABELS)
    assert headline_sentences(few)[0].endswith(
        " can guess labels of bank far better than chance with up to 200 known labels"
    )
    assert verdict(few).startswith("Worst leak 0.800, with up to 200 known labels")
    assert "The attacker has up to 200 known labels." in next(
        answer.text for answer in answers(few) if answer.question == "Worst leak"
    )
    # Another attack reads as much and knows no label.
    (first, *others) = few.leaks
    free = few.model_copy(update={"leaks": (first.model_copy(update={"knowledge": (), "leak": 0.79}), *others)})
    assert first.run == "this run"
    assert headline_sentences(free)[0].endswith("far better than chance")
    assert "known" not in headline_sentences(with_leak(few, "this run", 0.51))[0]
    # Of attacks that read the same to three digits the one that knows least is named.
    equal = few.model_copy(update={"leaks": (first.model_copy(update={"knowledge": (), "leak": 0.7996}), *others)})
    assert verdict(equal).startswith("Worst leak 0.800 (undefended")


def reads(attack: str, metric: str, value: float, known: int = 0, **more: object) -> FeatureResult:
    """An attack on the columns of census in this run."""
    given = {"run": "this run", "party": "census", "release": "the only release", "rows": 1024, "baseline": 0.0}
    bounds = {"low": value - 0.01, "high": value + 0.01}
    raw = given | bounds | {"attack": attack, "metric": metric, "value": value, "known": known} | more
    return FeatureResult.model_validate(raw)


KNOWN = (Need.AUXILIARY_FEATURES,)
EXACT = {"metrics": {"columns_read": 42.0, "columns": 50.0}, "baseline": 0.5}
LATTICE = reads("lattice", "exact", 0.86, **EXACT)
INVERSION = reads("inversion", "r2", 0.97, 512, knowledge=KNOWN)
POPULATION = reads("naming", "exact", 0.9, 1000, knowledge=(Need.SIMULATOR,), **EXACT | {"metrics": {}})


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ((INVERSION, LATTICE), "bank, without a known row, reads 42 of 50 columns of census exactly"),
        ((INVERSION,), "bank, with 512 known rows, can rebuild nearly all of the columns of census"),
        # One that knows nothing and reads little does not stand for one that reads nearly all.
        (
            (INVERSION, reads("lattice", "exact", 0.3, metrics={"columns_read": 3.0, "columns": 50.0})),
            "bank, with 512 known rows, can rebuild nearly all of the columns of census",
        ),
        # To know other rows is less than to know rows that were sent.
        (
            (INVERSION, POPULATION),
            "bank, with 1,000 other rows with their labels, reads 90.0\u00a0% of the values of census exactly",
        ),
        (
            (reads("lattice", "exact", 0.0, metrics={"columns_read": 0.0, "columns": 50.0}),),
            "bank, without a known row, reads none of 50 columns of census exactly",
        ),
    ],
)
def test_the_sentence_on_columns_names_the_weakest_knowledge_that_reaches_its_figure(
    features: tuple[FeatureResult, ...], words: str
) -> None:
    report = changed(features=features)
    assert headline_sentences(report)[1] == f"{words}; 2 others were not attacked"
    (evidence,) = (each for each in evidence_of(report) if each.threat == "reconstruction" and each.strongest)
    (learns,) = learned_sentences([evidence], "binary")
    assert learns.startswith(f"{words} from its embeddings")
    assert f"{words}: " in next(answer.text for answer in answers(report) if answer.question == "Feature leakage")
    own = next(run for run in run_glances(report) if run.name == "this run").features
    assert own is not None
    assert own.attack == evidence.attack


def test_the_columns_of_one_of_several_partners_are_the_worst_ones() -> None:
    others = [LATTICE.model_copy(update={"party": name, "metrics": {}}) for name in ("employer", "insurer")]
    words = "bank, without a known row, reads 42 of 50 columns of census exactly"
    assert headline_sentences(changed(features=(*others, LATTICE)))[1] == f"{words}, the most of 3 partners"
    assert headline_sentences(changed(features=(others[0], LATTICE)))[1] == f"{words}; insurer was not attacked"
    assert headline_sentences(changed(features=()))[1] == "No attack that reads the columns of the partners was run"


def test_what_each_knowledge_reads_has_a_line_and_the_colour_of_a_leak() -> None:
    report = changed(features=(INVERSION, LATTICE, POPULATION, reads("other", "r2", 0.2)))
    table = table_of(report, "features")
    knowing = ["without a known row", "with 1,000 other rows with their labels", "with 512 known rows"]
    assert cells_of(table, "Attacker") == knowing
    assert cells_of(table, "Reads") == ["42 of 50 exactly", "90.0\u00a0% of values", "R\u00b2 0.970"]
    assert [row.cells[-1].tone for row in table.rows] == ["h5", "h5", "h5"]
    little = changed(features=(reads("inversion", "r2", 0.3),))
    assert table_of(little, "features").rows[0].cells[-1].tone == "h2"  # as a leak of 0.65


NAMES = ("bank", "telco", "census", "shop")


def drawn(report: Report, draw: random.Random) -> Report:
    """The report with any number of partners, any leaks and any attacks on columns."""
    partners = NAMES[1 : draw.randint(2, 4)]
    needs = [(), *((need,) for need in Need)]
    parties = [*report.parties[:1]]
    parties += [report.parties[1].model_copy(update={"name": name}) for name in partners]
    leaks = [
        leak.model_copy(update={"party": party, "together": together, "leak": value, "knowledge": draw.choice(needs)})
        for leak in report.leaks[:4]
        for party, together in [(draw.choice(partners), ()), ("+".join(partners), partners)]
        for value in [draw.uniform(0.5, 1.0)]
        if len(partners) > 1 or not together
    ]
    features = [
        draw.choice((LATTICE, INVERSION, POPULATION)).model_copy(
            update={
                "party": draw.choice(partners),
                "value": draw.uniform(-0.1, 1.0),
                "knowledge": draw.choice(needs),
                "known": draw.choice([0, 512, 1000]),
                "metrics": draw.choice([{}, {"columns_read": float(draw.randint(0, 50)), "columns": 50.0}]),
            }
        )
        for _ in range(draw.randint(0, 6))
    ]
    baselines = [Baseline(party=leak.party, own_columns=draw.choice([None, 0.5, 1.0]), model="trees") for leak in leaks]
    free = Entry("label_free", "bank", "labels", partners, LabelFree(unlabelled=draw.random() < 0.5))
    update = {
        "parties": tuple(parties),
        "leaks": tuple(leaks) * (draw.random() < 0.9),
        "features": tuple(features),
        "baselines": tuple(baselines),
        "left_out": ("norm",) * (draw.random() < 0.3),
        "ledger": Ledger((free,) * (draw.random() < 0.3)),
    }
    return report.model_copy(update=update)


def test_a_headline_has_at_most_two_sentences_of_25_words() -> None:
    report, draw, longest, kinds = changed(), random.Random(5), 0, set()
    for _ in range(400):
        sentences = headline_sentences(drawn(report, draw))
        assert 1 <= len(sentences) <= 2
        kinds.add(" ".join(sentences))
        for sentence in sentences:
            assert len(sentence.split()) <= 25, sentence
            longest = max(longest, len(sentence.split()))
    assert longest >= 20
    assert len(kinds) > 200


def beside_undefended(value: float, low: float | None, high: float | None, **utility: object) -> Report:
    """A report whose model is so far ahead of the undefended one."""
    report = Report.model_validate(short())
    ahead = Difference(value=value, low=low, high=high)
    rows = tuple(
        row.model_copy(update={"ahead": ahead}) if row.name == "undefended" else row for row in report.utility.rows
    )
    return report.model_copy(update={"utility": report.utility.model_copy(update={"rows": rows, **utility})})


AS_WELL = (
    "The model predicts as well as without protection (a loss of {} is excluded): test AUC 0.904, undefended 0.913"
)
UNKNOWN = "Whether the model predicts as well as without protection is not decided by 4,884 test rows: test AUC 0.904"
WORSE = "The model predicts worse than without protection: test AUC 0.904"


@pytest.mark.parametrize(
    ("ahead", "settings", "words"),
    [
        ((-0.009, -0.019, 0.002), {}, AS_WELL.format("0.020")),
        ((-0.009, -0.021, 0.002), {}, UNKNOWN),
        ((-0.009, -0.021, 0.002), {"matters": 0.05}, AS_WELL.format("0.050")),
        ((0.05, -0.021, 0.1), {}, UNKNOWN),
        ((-0.09, -0.12, -0.01), {}, WORSE),
        ((-0.009, -0.012, -0.005), {}, AS_WELL.format("0.020")),
        ((-0.009, -0.012, -0.005), {"matters": 0.0}, WORSE),
        ((0.0, None, None), {}, UNKNOWN),
        # Of a metric of which less is better, ahead is worse.
        ((0.03, 0.01, 0.05), {"higher_is_better": False}, WORSE),
        ((-0.03, -0.05, -0.01), {"higher_is_better": False}, AS_WELL.format("0.020")),
    ],
)
def test_as_well_is_said_only_where_a_loss_that_matters_is_excluded(
    ahead: tuple[float, float | None, float | None], settings: dict[str, object], words: str
) -> None:
    assert words in verdict(beside_undefended(*ahead, **settings))


@pytest.mark.parametrize(
    ("ahead", "words"),
    [((-0.009, -0.019, 0.002), AS_WELL), ((-0.009, -0.021, 0.002), UNKNOWN), ((-0.1, -0.12, -0.01), WORSE)],
)
def test_every_view_says_as_well_as_the_headline_does(ahead: tuple[float, float, float], words: str) -> None:
    report = beside_undefended(*ahead)
    views = (visible(render_html(report)), render_markdown(report).replace("\\", ""), printed(report))
    for view in (" ".join(view.split()) for view in views):
        assert ("as well as without protection (" in view) is (words == AS_WELL)
        assert ("is not decided" in view) is (words == UNKNOWN)


def test_without_an_attack_on_labels_what_attacks_on_columns_reach_is_said() -> None:
    """`cutlayer audit RUN --attack inversion` had a finding with R\u00b2 0.944 below "No attack was run"."""
    known = {"knowledge": (Need.AUXILIARY_FEATURES,), "known": 152, "rows": 152, "metric": "r2", "baseline": 0.0}
    found = {"run": "this run", "party": "telco", "attack": "inversion", "release": "epoch 6"}
    report = changed(leaks=(), features=(FeatureResult(**found, **known, value=0.944, low=0.92, high=0.96),))
    start = (
        "No attack on labels was run, so this report says nothing about what leaks of them. bank, with 152 known rows,"
    )
    assert headline(report).startswith(start)
    assert "R\u00b2 0.944" in Page(render_html(report)).text


def test_without_any_attack_nothing_is_claimed() -> None:
    report = changed(leaks=(), features=())
    assert headline(report) == "No attack was run, so this report says nothing about what leaks"
    assert glance_section(report) is None


def test_without_a_baseline_no_protection_is_praised() -> None:
    report = changed()
    alone = report.model_copy(update={"leaks": tuple(leak for leak in report.leaks if leak.run == "this run")})
    rows = tuple(row for row in alone.utility.rows if row.name != "undefended")
    alone = alone.model_copy(update={"utility": alone.utility.model_copy(update={"rows": rows})})
    assert "without protection" not in f"{headline(alone)} {verdict(alone)}"


def test_the_picture_has_a_line_for_each_run_and_says_it_in_words(report: Report) -> None:
    runs = [run for run in run_glances(report) if run.leak is not None]
    page = render_html(report)
    picture = page[page.index('class="glance"') : page.index('class="answers"')]
    utility, leak, columns = re.findall(r"<svg class=\"chart\".*?</svg>", picture, re.S)
    read = [run for run in runs if run.features]
    for svg, count in ((utility, len(runs)), (leak, len(runs)), (columns, len(read))):
        assert svg.count('class="at b') == svg.count('class="ci ') == count
        assert svg.count('class="at b0"') == 1
    for run in runs:
        assert f"{run.name}: {rounding.metric(run.value)}, 95 % interval " in utility
    # The active party's own columns are a line.
    assert utility.count('class="chance"') == 1
    assert "dashed: bank&#39;s own columns, 0.831" in picture


def test_no_interval_is_wider_than_its_axis() -> None:
    bars = [IntervalBar("this run", 0.7, (0.516, 0.92), None, True, "tip"), IntervalBar("b", 1.0, None, 5, False, "")]
    wide = beside_undefended(0.0, None, None)
    rows = tuple(row.model_copy(update={"low": 0.2, "high": 1.0}) for row in wide.utility.rows)
    picture = glance_section(wide.model_copy(update={"utility": wide.utility.model_copy(update={"rows": rows})}))
    assert picture is not None
    (panels,) = (block for block in picture.blocks if isinstance(block, Panels))
    svgs = [str(panel.svg) for _, members in panels.groups for panel in members]
    for svg in (*svgs, str(interval_chart(bars, (0.5, 1.0), "leak", 0.5, "label"))):
        drawn = [float(x) for x in re.findall(r'class="ci [bh]\d" x="(.*?)"', svg)]
        widths = [float(x) for x in re.findall(r'class="ci [bh]\d" .*?width="(.*?)"', svg)]
        start = float(re.findall(r'class="grid" d="M([\d.]+)', svg)[0])
        assert drawn
        assert all(x > 12 and x + width <= WIDTH for x, width in zip(drawn, widths, strict=True)), start


def test_own_columns_that_reveal_as_much_are_no_leak_in_colour(report: Report) -> None:
    parties = {leak.party for leak in report.leaks}
    for own, step in ((0.5, True), (0.99, False)):
        baselines = tuple(Baseline(party=party, own_columns=own, model="trees") for party in parties)
        shown = glance_section(with_leak(report.model_copy(update={"baselines": baselines}), "this run", 0.9))
        assert shown is not None
        table = shown.brief[0]
        assert isinstance(table, Table)
        assert (table.rows[0].cells[2].tone == "h5") is step


def test_the_story_fits_eighty_columns(any_report: Report) -> None:
    out = io.StringIO()
    print_story(any_report, Console(file=out, width=80))
    text = out.getvalue()
    assert [line for line in text.splitlines() if cell_len(line) > 80 and "report" not in line] == []
    assert " ".join(text.split()).startswith(" ".join(headline(any_report).split()))


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        ((0.045, 0.031, 0.058), "telco adds 0.045 (0.031 to 0.058) to the AUC of your own columns"),
        ((0.004, -0.002, 0.01), "telco adds less than 0.020 (\u22120.002 to 0.010) to the AUC of your own columns"),
        (
            (0.004, -0.002, 0.03),
            "Whether telco adds anything to the AUC of your own columns is not decided by 4,884 test rows "
            "(\u22120.002 to 0.030)",
        ),
        ((-0.02, -0.03, -0.01), "telco takes 0.020 (\u22120.030 to \u22120.010) from the AUC of your own columns"),
    ],
)
def test_below_the_headline_stands_what_the_partners_add(gain: tuple[float, float, float], words: str) -> None:
    value, low, high = gain
    report = changed()

    def adding(*parties: str) -> Report:
        found = Gain(parties=parties, value=value, low=low, high=high)
        return report.model_copy(update={"utility": report.utility.model_copy(update={"gain": found})})

    assert verdict(adding("telco")).endswith(words)
    assert "telco, shop and post " in verdict(adding("telco", "shop", "post"))
    assert "your own columns" not in verdict(report)
