from __future__ import annotations

from cutlayer.accounting import Entry, LabelFree, Ledger
from cutlayer.report.evidence import evidence_of
from cutlayer.report.releases import release_of
from cutlayer.report.rounding import auc, metric
from cutlayer.report.section import Fold, Paragraph, Table
from cutlayer.report.sections import sections_of, verdict
from cutlayer.report.sections.leaks import leaks_section
from cutlayer.report.sections.scope import attack_glossary
from cutlayer.results.leaks import Baseline, LeakResult
from cutlayer.results.report import Report
from tests.report.reading import answers, blocks_of, markdown_of
from tests.report.samples import binary, broken, multiclass, regression


def answer(report: Report, question: str) -> str:
    return next(item.text for item in answers(report) if item.question == question)


def worst_of(report: Report, run: str) -> LeakResult:
    return max((leak for leak in report.leaks if leak.run == run), key=lambda leak: leak.leak)


def test_the_verdict_has_the_worst_leak_and_the_utility_each_beside_the_undefended_one(report: Report) -> None:
    worst, baseline = worst_of(report, "this run"), worst_of(report, "undefended")
    utility = {row.name: metric(row.metrics["auc"]) for row in report.utility.rows}
    assert verdict(report) == (
        f"Worst leak {auc(worst.leak)} (undefended {auc(baseline.leak)}). "
        "Whether the model predicts as well as without protection is not decided by 4,884 test rows: "
        f"test AUC {utility['this run']}, undefended {utility['undefended']}"
    )


def test_a_leak_of_a_party_that_no_label_reaches_is_that_of_its_own_columns(report: Report) -> None:
    worst = worst_of(report, "this run")
    entry = Entry("label_free", "bank", "labels", (worst.party,), LabelFree())
    free = report.model_copy(update={"ledger": Ledger((entry,)), "protections": ()})
    assert verdict(free).startswith(
        f"Worst leak {auc(worst.leak)}, read from what {worst.party} computes from its own columns alone ("
    )
    undefended = free.model_copy(update={"leaks": (worst,)})
    assert verdict(undefended).startswith(
        f"Worst leak {auc(worst.leak)}, read from what {worst.party} computes from its own columns alone. "
    )
    assert "with no protection" in verdict(undefended.model_copy(update={"ledger": Ledger(())}))


def test_the_same_attack_on_the_undefended_run_is_stated(report: Report) -> None:
    worst = worst_of(report, "this run")
    same = next(
        leak
        for leak in report.leaks
        if (leak.run, leak.party, leak.message, leak.attack) == ("undefended", worst.party, worst.message, worst.attack)
    )
    assert f"On the undefended run the same attack reaches {auc(same.leak)}." in answer(report, "Worst leak")


def test_labels_are_sent_to_a_partner_and_not_its_own(report: Report) -> None:
    worst = worst_of(report, "this run")
    drawn = report.model_copy(update={"leaks": (worst.model_copy(update={"message": "label"}),)})
    assert f"on the labels sent to {worst.party}, " in answer(drawn, "Worst leak")
    assert f"on the {worst.message}s of {worst.party}, " in answer(report, "Worst leak")


def test_an_undefended_worst_elsewhere_is_stated(report: Report) -> None:
    assert f": {auc(worst_of(report, 'undefended').leak)}." in answer(report, "Worst leak")


def test_an_interval_over_chance_is_stated(report: Report) -> None:
    own = report.leaks[0].model_copy(update={"leak": 0.502, "low": 0.5, "high": 0.514})
    assert "includes chance" in answer(report.model_copy(update={"leaks": (own,)}), "Worst leak")
    assert "includes chance" not in answer(report, "Worst leak")


def test_utility_is_put_into_words(report: Report) -> None:
    text = answer(report, "Utility")
    assert text.startswith("Test AUC 0.904 (95\u00a0% interval 0.897–0.911): 0.008 below undefended")
    assert "0.073 above bank alone" in text


def test_a_metric_of_which_less_is_better() -> None:
    text = answer(Report.model_validate(regression()), "Utility")
    assert text.startswith("Test MAE 12.417")
    assert text.endswith("Lower is better.")


def test_a_leak_of_a_regression_is_of_pairs() -> None:
    values = {**binary(), "task": regression()["task"]}
    for given, words in ((binary(), "max(AUC, 1\u00a0−\u00a0AUC)"), (values, "pairs of rows")):
        first = next(
            block for block in blocks_of(leaks_section(Report.model_validate(given))) if isinstance(block, Paragraph)
        )
        assert words in first.text


def test_what_was_not_measured_is_said() -> None:
    report = Report.model_validate(regression())
    assert verdict(report) == "No leak of labels was measured in this run. Test MAE 12.417"
    assert "need a task of kind binary" in answer(report, "Worst leak")
    assert answer(Report.model_validate(broken()), "Utility") == "Not measured."


def test_gates_findings_protections_and_noise(report: Report) -> None:
    tones = {item.question: item.tone for item in answers(report)}
    assert (tones["Gates"], tones["Findings"], tones["Protections"]) == ("bad", "bad", "plain")
    assert "label_auc is 0.612 (census/gradient/spectral, epoch 3), limit 0.600" in answer(report, "Gates")
    assert answer(report, "Findings") == "1 error, 1 warning, 1 note."
    assert "Noise" not in tones
    assert "not private" in answer(Report.model_validate(multiclass()), "Noise")
    idle = Report.model_validate(broken())
    assert next(each.tone for each in answers(idle) if each.question == "Protections") == "bad"


def test_passed_gates_are_good(report: Report) -> None:
    passed = report.model_copy(update={"gates": report.gates[1:]})
    assert next((item.tone, item.text) for item in answers(passed) if item.question == "Gates") == (
        "good",
        "Passed: 1 gate held.",
    )


def test_what_was_not_measured_is_named(report: Report) -> None:
    """Silence about a party's columns or about departed models must not read as safety."""
    passive = [party.name for party in report.parties if party.role == "passive"]
    bare = report.model_copy(update={"features": (), "completions": (), "limits": (), "left_out": ()})
    assert answer(bare, "Not measured") == (
        f"Reconstruction of the columns of {', '.join(passive)}; model completion by a departed party; "
        "label inference by passive parties that pool what they hold; inference of the columns of "
        f"{', '.join(passive)} by parties that collude, and attacks that are not known today."
    )
    part = report.features[0].model_copy(update={"run": "this run", "party": passive[0]})
    some = bare.model_copy(update={"features": (part,), "left_out": ("norm",)})
    assert f"Reconstruction of the columns of {', '.join(passive[1:])};" in answer(some, "Not measured")
    assert "1 attack of the default catalogue" in answer(some, "Not measured")


def test_the_guarantee_is_answered_with_what_it_does_not_cover(report: Report) -> None:
    def stated(columns: int | None, *entries: Entry) -> str:
        parties = tuple(party.model_copy(update={"columns": columns}) for party in report.parties)
        changed = report.model_copy(update={"ledger": Ledger(entries), "parties": parties})
        return answer(changed, "Formal guarantees")

    passive = [party.name for party in report.parties if party.role == "passive"]
    entry, columns = (
        Entry("label_free", "bank", "labels", (passive[0],), LabelFree()),
        f"columns of {', '.join(passive)}",
    )
    text = stated(3, entry)
    assert text.startswith(f"The labels of the training rows of bank, towards {passive[0]}: epsilon 0 per row. ")
    others = f"the labels towards {', '.join(passive[1:])} or " if passive[1:] else ""
    assert text.endswith(f"This report states no guarantee for {others}the {columns}.")
    nothing = f"None. This report states no guarantee for the labels towards {', '.join(passive)} or "
    assert stated(3).startswith(nothing)
    assert stated(None, entry).endswith(f"What is proved for the {columns} is in reports of their own.")


def test_the_guarantees_of_the_alternatives_are_in_the_answer_the_terminal_and_markdown(report: Report) -> None:
    stated = {"private columns": ("the features of census, towards bank: epsilon 8",)}
    other = report.model_copy(update={"alternatives": stated, "ledger": Ledger(())})
    words = "private columns: the features of census, towards bank: epsilon 8"
    assert answer(other, "Formal guarantees").endswith(f". Alternative {words}.")
    assert f"- {words}" in markdown_of(other, "guarantees")
    assert markdown_of(report.model_copy(update={"ledger": Ledger(())}), "guarantees") == ""


def test_one_party_sends_and_several_send(report: Report) -> None:
    for names, words in ((("census",), "what census sends."), (("census", "employer"), "census and employer send.")):
        entry = Entry("label_free", "bank", "labels", names, LabelFree())
        free = report.model_copy(update={"ledger": Ledger((entry,)), "protections": ()})
        assert answer(free, "Protections").endswith(words)


def test_attacks_that_were_not_run_are_counted_in_good_english(report: Report) -> None:
    for limits, words in (
        (("a",), "1 attack that could not be run or was not"),
        (("a", "b"), "2 attacks that could not"),
    ):
        assert words in answer(report.model_copy(update={"limits": limits}), "Not measured")
    assert "run or were not needed" in answer(report.model_copy(update={"limits": ("a", "b")}), "Not measured")


def once(report: Report, *, traffic: dict[str, tuple[int, int]]) -> Report:
    """All passive parties release once, as the condition of the active one demands; few labels are known."""
    parties = [
        party.model_copy(update={"released_once": party.role == "passive", "traffic": traffic})
        for party in report.parties
    ]
    passive = tuple(party.name for party in report.parties if party.role == "passive")
    entry = Entry("label_free", "bank", "labels", passive, LabelFree())
    leaks = tuple(leak for leak in report.leaks if leak.message == "embedding" or leak.run == "undefended")
    return report.model_copy(update={"parties": tuple(parties), "ledger": Ledger((entry,)), "leaks": leaks})


def test_what_was_released_once_has_no_epoch(report: Report) -> None:
    free = once(report, traffic={"release": (10, 0)})
    worst = worst_of(free, "this run")
    assert f"{worst.attack} on the embeddings of {worst.party}, the only release: " in answer(free, "Worst leak")
    for leak in free.leaks:
        assert (release_of(free, leak) == "the only release") is (leak.run != "undefended")
    labels = [each for each in evidence_of(free) if each.threat == "label inference"]
    assert {each.subject for each in labels} == {"embeddings, the only release"}
    warmed = once(report, traffic={"gradient": (0, 10)})
    assert "epoch" in answer(warmed, "Worst leak")


def test_a_difference_that_rounds_to_nothing_is_equal(report: Report) -> None:
    own, other, *rest = report.utility.rows
    close = other.model_copy(update={"metrics": {**other.metrics, "auc": own.metrics["auc"] - 3.1e-4}})
    shown = report.model_copy(update={"utility": report.utility.model_copy(update={"rows": (own, close, *rest)})})
    assert f"equal to {other.name}" in answer(shown, "Utility")
    assert "e-04" not in answer(shown, "Utility")


def test_each_attack_is_explained_by_name(report: Report) -> None:
    leaks = next(section for section in sections_of(report) if section.anchor == "leaks")
    (rows,) = (
        fold.blocks[0] for fold in leaks.blocks if isinstance(fold, Fold) and fold.summary.startswith("What each")
    )
    assert isinstance(rows, Table)
    assert {str(row.cells[0].text) for row in rows.rows} == {leak.attack for leak in report.leaks}
    norm = next(row for row in rows.rows if row.cells[0].text == "norm")
    assert [cell.text for cell in norm.cells[1:3]] == [
        "Score a row by the norm of its gradient.",
        "the share of positive rows",
    ]
    assert not attack_glossary(["an attack of another version"])


def test_a_leak_below_the_own_columns_is_not_above_them_by_less_than_nothing(report: Report) -> None:
    worst = worst_of(report, "this run").leak
    parties = {leak.party for leak in report.leaks}
    baselines = tuple(Baseline(party=party, own_columns=worst + 0.0012, model="trees") for party in parties)
    assert ", 0.001 below a party's own columns" in verdict(report.model_copy(update={"baselines": baselines}))
