from __future__ import annotations

from cutlayer.accounting import Entry, LabelFree, Ledger
from cutlayer.report import Report
from cutlayer.report.rounding import auc, metric
from cutlayer.report.sections import answers, verdict
from cutlayer.results.leaks import LeakResult
from tests.report.samples import broken, multiclass, regression


def answer(report: Report, question: str) -> str:
    return next(one.text for one in answers(report) if one.question == question)


def worst_of(report: Report, run: str) -> LeakResult:
    return max((leak for leak in report.leaks if leak.run == run), key=lambda leak: leak.leak)


def test_the_verdict_has_the_worst_leak_and_the_utility_each_beside_the_undefended_one(report: Report) -> None:
    worst, baseline = worst_of(report, "this run"), worst_of(report, "undefended")
    utility = {row.name: metric(row.metrics["auc"]) for row in report.utility.rows}
    assert verdict(report) == (
        f"Worst leak {auc(worst.leak)} (undefended {auc(baseline.leak)}), "
        f"test AUC {utility['this run']} (undefended {utility['undefended']})"
    )


def test_a_leak_of_a_party_that_no_label_reaches_is_that_of_its_own_columns(report: Report) -> None:
    worst = worst_of(report, "this run")
    entry = Entry("label_free", "bank", "labels", (worst.party,), LabelFree())
    free = report.model_copy(update={"ledger": Ledger((entry,)), "protections": ()})
    assert verdict(free).startswith(f"Worst leak {auc(worst.leak)} from the own columns of {worst.party} alone (")
    undefended = free.model_copy(update={"leaks": (worst,)})
    assert verdict(undefended).startswith(f"Worst leak {auc(worst.leak)} from the own columns of {worst.party} alone, ")
    assert "with no protection" in verdict(undefended.model_copy(update={"ledger": Ledger(())}))


def test_the_same_attack_on_the_undefended_run_is_stated(report: Report) -> None:
    worst = worst_of(report, "this run")
    same = next(
        leak
        for leak in report.leaks
        if (leak.run, leak.party, leak.message, leak.attack) == ("undefended", worst.party, worst.message, worst.attack)
    )
    assert f"On the undefended run the same attack reaches {auc(same.leak)}." in answer(report, "Worst leak")


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


def test_what_was_not_measured_is_said() -> None:
    report = Report.model_validate(regression())
    assert verdict(report) == "No leak was measured in this run"
    assert "need a task of kind binary" in answer(report, "Worst leak")
    assert answer(Report.model_validate(broken()), "Utility") == "Not measured."


def test_gates_findings_protections_and_noise(report: Report) -> None:
    tones = {one.question: one.tone for one in answers(report)}
    assert (tones["Gates"], tones["Findings"], tones["Protections"]) == ("bad", "bad", "plain")
    assert "label_auc is 0.612 (census/gradient/spectral, epoch 3), limit 0.600" in answer(report, "Gates")
    assert answer(report, "Findings") == "1 error, 1 warning, 1 note."
    assert "Noise" not in tones
    assert "not private" in answer(Report.model_validate(multiclass()), "Noise")
    idle = Report.model_validate(broken())
    assert next(one.tone for one in answers(idle) if one.question == "Protections") == "bad"


def test_passed_gates_are_good(report: Report) -> None:
    passed = report.model_copy(update={"gates": report.gates[1:]})
    assert next((one.tone, one.text) for one in answers(passed) if one.question == "Gates") == (
        "good",
        "Passed: 1 gate held.",
    )
