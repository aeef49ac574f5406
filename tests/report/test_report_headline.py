from __future__ import annotations

from report_samples import broken, multiclass, regression

from cutlayer.report import Report
from cutlayer.report.headline import answers, verdict
from cutlayer.report.leak_parts import LeakPart
from cutlayer.report.rounding import auc


def answer(report: Report, question: str) -> str:
    return next(one.text for one in answers(report) if one.question == question)


def worst_of(report: Report, run: str) -> LeakPart:
    return max((leak for leak in report.leaks if leak.run == run), key=lambda leak: abs(leak.auc - 0.5))


def test_the_verdict_names_the_worst_leak_and_its_undefended_twin(report: Report) -> None:
    worst = worst_of(report, "this run")
    twin = next(
        leak
        for leak in report.leaks
        if (leak.run, leak.party, leak.message, leak.attack) == ("undefended", worst.party, worst.message, worst.attack)
    )
    assert verdict(report) == (
        f"The worst leak of this run is AUC {auc(worst.auc)}; undefended, the same attack reaches {auc(twin.auc)}"
    )


def test_a_leak_far_below_half_is_the_worst(report: Report) -> None:
    turned = report.leaks[3].model_copy(update={"auc": 0.04})
    leaks = (*report.leaks[:3], turned, *report.leaks[4:])
    assert verdict(report.model_copy(update={"leaks": leaks})).startswith(
        "The worst leak of this run is AUC 0.960 (0.040 turned round)"
    )


def test_an_undefended_worst_elsewhere_is_said(report: Report) -> None:
    assert f": AUC {auc(worst_of(report, 'undefended').auc)}." in answer(report, "Worst leak")


def test_an_interval_over_chance_is_said(report: Report) -> None:
    own = report.leaks[0].model_copy(update={"auc": 0.502, "low": 0.49, "high": 0.514})
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
