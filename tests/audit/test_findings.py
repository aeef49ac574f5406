"""Each coded finding by its least case, their order, and gates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cutlayer.attacks.knowledge import Need, condition
from cutlayer.audit.checks import FindingContext
from cutlayer.audit.findings import CHECKS, column_findings, findings_of
from cutlayer.audit.gates import gates_of
from cutlayer.audit.label_copies import LabelCopy
from cutlayer.config.guard import Alarm
from cutlayer.data.column_note import ColumnNote, OddKind
from cutlayer.results.audit import Audit, RunAudit, SkippedAttack
from cutlayer.results.completion import CompletionResult, VariantValue
from cutlayer.results.features import FeatureResult
from cutlayer.results.finding import Finding
from cutlayer.results.guarantee import GuaranteeTest
from cutlayer.results.leaks import Attempt, Baseline, LeakResult, colluding
from cutlayer.results.protection import ProtectionResult
from cutlayer.results.run import RunId, RunKind
from cutlayer.results.utility import ModelUtility, UtilityResult
from tests.results.leaks import leak_result

Notes = Mapping[str, tuple[ColumnNote, ...]]
UNDEFINED = Attempt(run="this run", party="p", message="gradient", attack="norm", rows=400, positives=100)


def found(
    leaks: list[LeakResult] | None = None,
    *,
    undefined: list[Attempt] | None = None,
    undefended: list[LeakResult] | None = None,
    evidence: list[ProtectionResult] | None = None,
    utility: tuple[float, float, float] = (0.8, 0.75, 0.5),
    skipped: Sequence[SkippedAttack] = (),
    protections: tuple[str, ...] = (),
    label_free: Sequence[str] = (),
    idle_epochs: tuple[int, ...] = (),
    no_common_row: bool = False,
    alarms: tuple[Alarm, ...] = (),
    notes: Notes | None = None,
    copies: tuple[LabelCopy, ...] = (),
    undated: tuple[str, ...] = (),
    graded: frozenset[str] = frozenset(),
    **more: Any,
) -> list[Finding]:
    """Findings of a run without fault but for what is given; `utility` is the value, its lower bound, and chance."""
    own = RunAudit(
        protections=protections,
        baselines=[Baseline(party="p", own_columns=0.68, model="trees", chance=0.52)],
        leaks=[leak_result()] if leaks is None else leaks,
        undefined=undefined or (),
        skipped=skipped,
    )
    runs = {"this run": own} | ({} if undefended is None else {"undefended": RunAudit(leaks=undefended)})
    value, low, chance = utility
    rows = (
        ModelUtility.of(RunId(RunKind.THIS_RUN), {"accuracy": value}, (low, None)),
        ModelUtility.of(RunId(RunKind.CHANCE), {"accuracy": chance}),
    )
    metrics = UtilityResult(metric="accuracy", rows=rows)
    audit = Audit(runs=runs, **more)
    run: dict[str, Any] = {"label_free": frozenset(label_free), "idle_epochs": idle_epochs}
    run |= {"no_common_row": no_common_row, "alarms": alarms, "notes": notes or {}, "copies": copies}
    run |= {"undated": undated, "graded": graded}
    return [*findings_of(FindingContext("bank", metrics, tuple(evidence or ()), audit, **run))]


def odd(*kinds: OddKind) -> Notes:
    """Oddities of columns of telco, one of each kind."""
    return {
        "bank": (),
        "telco": tuple(ColumnNote(column=f"c{i}", kind=kind, text="odd") for i, kind in enumerate(kinds)),
    }


def skipped(party: str, message: str = "", attack: str = "") -> SkippedAttack:
    return SkippedAttack(party=party, message=message, attack=attack, reason="usage has too few rows")


def evidence(changed: int, sent: int = 10) -> ProtectionResult:
    return ProtectionResult(
        name="max_norm",
        party="bank",
        protects="labels",
        reference="",
        unit="gradients",
        covered=sent,
        sent=sent,
        changed=changed,
        formal=False,
        statement="",
    )


def variant(name: str, value: float, low: float, high: float) -> VariantValue:
    return VariantValue(variant=name, value=value, low=low, high=high)


def completed(low: float) -> CompletionResult:
    """A completed model whose strongest variant has that lower bound; from scratch reaches 0.6 at most."""
    return CompletionResult(
        run="this run",
        party="telco",
        attack="model_completion",
        labels=40,
        all_labels=False,
        variants=(variant("frozen MLP, supervised", 0.6, 0.5, 0.7), variant("tuned MLP, supervised", 0.7, low, 0.8)),
        scratch=(variant("tuned", 0.55, 0.5, 0.6),),
    )


def guarantee(bound: float) -> GuaranteeTest:
    """A guarantee of epsilon 1, with that bound."""
    return GuaranteeTest(
        protection="label_dp",
        party="bank",
        protects="labels",
        epsilon=1.0,
        delta=0.0,
        lower_bound=bound,
        detectable=5.0,
        confidence=0.999,
        canaries=1000,
        releases=3,
    )


def codes(findings: list[Finding]) -> list[str]:
    return [finding.code for finding in findings]


def test_a_run_without_fault_has_no_findings() -> None:
    assert found() == []
    assert found(evidence=[evidence(10)], undefended=[leak_result(0.9)]) == []


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "CL119": ({"copies": (LabelCopy("telco", "y2", 1.0, True),)}, {"copies": ()}),
    "CL120": ({"notes": odd("misread")}, {"notes": odd()}),
    "CL121": ({"notes": odd("idle")}, {"notes": odd()}),
    "CL123": ({"notes": odd("unseen")}, {"notes": odd()}),
    "CL101": ({"evidence": [evidence(0)]}, {"evidence": [evidence(1)]}),
    "CL114": (
        {"leaks": [leak_result(rows=199, rows_recorded=400)]},
        {"leaks": [leak_result(rows=200, rows_recorded=400)]},
    ),
    "CL102": ({"undefended": [leak_result(0.52)]}, {"undefended": [leak_result(0.52), leak_result(0.56)]}),
    "CL104": ({"leaks": [leak_result(positives=49)]}, {"leaks": [leak_result(positives=50)]}),
    "CL105": ({"utility": (0.52, 0.49, 0.5)}, {"utility": (0.52, 0.501, 0.5)}),
    "CL106": ({"leaks": []}, {"leaks": [leak_result()]}),
    "CL108": ({"completions": [completed(0.61)]}, {"completions": [completed(0.59)]}),
    "CL109": ({"guarantees": [guarantee(1.01)]}, {"guarantees": [guarantee(1.0)]}),
    "CL111": ({"leaks": [leak_result(0.79)]}, {"leaks": [leak_result(0.77)]}),
    "CL112": (
        {"protections": ("max_norm",), "leaks": [leak_result(0.64), leak_result(0.7, attack="mixture")]},
        {"protections": ("max_norm",), "leaks": [leak_result(0.66), leak_result(0.7, attack="mixture")]},
    ),
    "CL113": ({"leaks": [leak_result(0.67)]}, {"leaks": [leak_result(0.69)]}),
    "CL115": ({"idle_epochs": (1, 2)}, {"idle_epochs": ()}),
    "CL116": ({"utility": (None, None, 0.5)}, {"utility": (0.9, 0.8, 0.5)}),
    "CL117": ({"no_common_row": True}, {"no_common_row": False}),
    "CL118": (
        {"alarms": (Alarm(party="telco", peer="bank", epoch=1, step=16, detail="gradients"),)},
        {"alarms": ()},
    ),
    "CL122": ({"undated": ("telco",)}, {"undated": ()}),
    "CL107": ({"skipped": [skipped("p", "gradient", "direction")]}, {"skipped": []}),
}


@pytest.mark.parametrize("code", CASES)
def test_a_finding_comes_where_it_must_and_not_beyond(code: str) -> None:
    triggers, spares = CASES[code]
    [finding] = found(**triggers)
    assert finding.code == code
    assert finding.title
    assert finding.detail
    assert finding.remedy
    assert found(**spares) == []


def test_idle_epochs_are_named_up_to_a_few() -> None:
    [few] = found(idle_epochs=(1, 2))
    assert "zero in epoch 1, 2:" in few.detail
    [many] = found(idle_epochs=tuple(range(1, 1_008)))
    assert "zero in epoch 1, 2, 3, 4, 5 and 1,002 more:" in many.detail


def test_what_a_party_reads_that_is_sent_nothing_of_labels_is_no_exposure() -> None:
    """Its messages would be the same with other labels: the columns reveal what it reads, measured here or not."""
    assert codes(found([leak_result(0.9)])) == ["CL111"]
    assert found([leak_result(0.9)], label_free=["p"]) == []
    both = leak_result(0.9, **colluding(["p", "q"]))
    assert codes(found([both], label_free=["p"])) == ["CL111"]
    assert found([both], label_free=["p", "q"]) == []


@pytest.mark.parametrize(
    ("leaks", "undefined"),
    [([leak_result(positives=351)], []), ([], [UNDEFINED]), ([], [UNDEFINED.model_copy(update={"positives": 0})])],
    ids=["few negatives", "undefined", "no positive"],
)
def test_few_rows_of_either_class_are_reported(leaks: list[LeakResult], undefined: list[Attempt]) -> None:
    assert codes(found(leaks, undefined=undefined)) == ["CL104"]


def test_an_undefined_baseline_is_no_sign_of_a_powerless_attack() -> None:
    assert found(undefended=[]) == []


@pytest.mark.parametrize("utility", [(0.6, math.nan, 0.5), (0.5, 0.4, 0.5), (0.4, 0.3, 0.5)])
def test_a_model_that_is_not_surely_above_chance_is_told(utility: tuple[float, float, float]) -> None:
    assert codes(found(utility=utility)) == ["CL105"]


def test_a_protection_that_had_nothing_to_cover_is_not_blamed() -> None:
    assert found(evidence=[evidence(0, sent=0)]) == []


def feature(**changed: Any) -> FeatureResult:
    """A reconstruction of telco's columns by a party that knows 512 of its rows."""
    values: dict[str, Any] = {"run": "this run", "party": "telco", "attack": "inversion", "release": "epoch 3"}
    values |= {"known": 512, "rows": 400, "metric": "r2", "value": 0.9, "low": 0.85, "high": 0.95, "baseline": 0.0}
    return FeatureResult(**values | {"knowledge": [Need.AUXILIARY_FEATURES]} | changed)


@pytest.mark.parametrize(
    ("triggers", "owner"),
    [
        ({"evidence": [evidence(0)]}, "bank"),
        ({"evidence": [evidence(0).model_copy(update={"party": "telco"})]}, "telco"),
        ({"guarantees": [guarantee(1.01).model_copy(update={"party": "telco"})]}, "telco"),
        ({"features": [feature()]}, "telco"),
        ({"skipped": [skipped("telco", "embedding", "attribute")]}, "telco"),
        ({"skipped": [skipped("telco", "gradient", "direction")]}, "bank"),
        ({"skipped": [skipped("telco/a", "embedding", "of another/version")]}, "telco/a"),
        ({"leaks": [leak_result(0.79)]}, "bank"),
        ({"completions": [completed(0.61)]}, "bank"),
        ({"utility": (0.52, 0.49, 0.5)}, ""),
        ({"leaks": []}, ""),
    ],
)
def test_a_finding_is_about_the_party_whose_labels_features_or_protection_it_names(
    triggers: dict[str, Any], owner: str
) -> None:
    [finding] = found(**triggers)
    assert finding.owner == owner


def test_a_finding_says_what_the_attacker_knows_of_rows() -> None:
    [exposed] = found([leak_result(0.79, knowledge=[Need.FEW_LABELS])])
    assert "of the labels with up to 200 known labels; its own" in exposed.detail
    [exposed] = found([leak_result(0.79, knowledge=[Need.POSITIVE_SHARE])])
    assert "of the labels; its own" in exposed.detail
    [rebuilt] = found(features=[feature()])
    assert rebuilt.detail.startswith(
        "inversion on the embeddings of telco (epoch 3), with 512 known rows, reaches R² 0.9"
    )
    [rebuilt] = found(features=[feature()], graded=frozenset({"telco"}))
    assert rebuilt.detail.startswith("inversion on the grades of telco (epoch 3)")
    [inferred] = found(features=[feature(metric="auc", column="usage")])
    assert "reaches AUC 0.900 of usage" in inferred.detail


def test_every_kind_of_knowledge_of_rows_has_a_few_words() -> None:
    shares = {Need.POSITIVE_SHARE, Need.CLASS_SHARES, Need.AUXILIARY_LABELS}  # the last is of completions, which say it
    assert {need for need in Need if condition([need])} == set(Need) - shares


def test_errors_come_first_then_warnings_then_notes_by_code() -> None:
    findings = found(
        [leak_result(0.7), leak_result(positives=3)],
        evidence=[evidence(0)],
        skipped=[skipped("x")],
        undefended=[leak_result(0.5)],
    )
    assert codes(findings) == ["CL101", "CL102", "CL104", "CL107"]
    order = [("error", "warning", "note").index(finding.severity) for finding in findings]
    assert order == sorted(order)


def test_every_code_keeps_its_severity() -> None:
    severities = {code: found(**triggers)[0].severity for code, (triggers, _) in CASES.items()}
    assert severities == dict.fromkeys(CASES, "warning") | {
        "CL107": "note",
        "CL109": "error",
        "CL113": "note",
        "CL121": "note",
    }


@pytest.mark.parametrize(
    ("values", "limit", "passed", "worst"),
    [
        ([0.55, 0.59], 0.6, True, 0.59),
        ([0.55, 0.61], 0.6, False, 0.61),
        ([0.61, 0.55], 0.6, False, 0.61),
        ([0.6], 0.6, True, 0.6),
        ([math.nan, 0.55], 0.6, True, 0.55),
        ([1.0], 1.0, True, 1.0),
    ],
)
def test_a_gate_holds_the_worst_leak_against_its_limit(
    values: list[float], limit: float, passed: bool, worst: float
) -> None:
    leaks = [leak_result(value, attack=str(number)) for number, value in enumerate(values) if not math.isnan(value)]
    [gate] = gates_of({"label_auc": limit}, RunAudit(leaks=leaks))
    assert gate.passed is passed
    assert gate.worst == pytest.approx(worst)
    assert gate.where == max(leaks, key=lambda leak: leak.leak).label


def test_an_unmeasured_leak_passes_no_gate() -> None:
    [gate] = gates_of({"label_auc": 1.0}, RunAudit())
    assert not gate.passed
    assert gate.worst is None
    assert gate.where == "nothing measured"


def test_without_limits_there_are_no_gates() -> None:
    assert gates_of({}, RunAudit(leaks=[leak_result()])) == ()


def test_the_excess_is_the_leak_beyond_the_partys_own_columns() -> None:
    leaks = [leak_result(0.9, party="census"), leak_result(0.8, party="employer"), leak_result(1.0, party="elsewhere")]
    own = [Baseline(party="census", own_columns=0.88), Baseline(party="employer", own_columns=0.7)]
    [gate] = gates_of({"excess": 0.09}, RunAudit(leaks=leaks, baselines=own))
    assert gate.worst == pytest.approx(0.1)
    assert gate.where == "employer/gradient/norm"
    assert not gate.passed
    [gate] = gates_of({"excess": 0.11}, RunAudit(leaks=leaks, baselines=own))
    assert gate.passed
    [gate] = gates_of({"excess": 0.5}, RunAudit(leaks=leaks))
    assert not gate.passed, "nothing was measured"


def test_an_audit_that_leaves_attacks_out_can_fail_a_gate_and_not_pass_it() -> None:
    [gate] = gates_of({"label_auc": 0.8}, RunAudit(leaks=[leak_result(0.7)]), ("mixture",))
    assert (gate.passed, gate.undecided) == (False, True)
    [gate] = gates_of({"label_auc": 0.6}, RunAudit(leaks=[leak_result(0.7)]), ("mixture",))
    assert (gate.passed, gate.undecided) == (False, False)


def test_a_gate_counts_what_parties_read_together() -> None:
    together = leak_result(0.9, attack="mixture", **colluding(["census", "employer"]))
    leaks = [leak_result(0.7, party="census"), leak_result(0.6, party="employer"), together]
    own = [Baseline(party="census", own_columns=0.65), Baseline(**colluding(["census", "employer"]), own_columns=0.82)]
    audit = RunAudit(leaks=leaks, baselines=own)
    [gate] = gates_of({"label_auc": 0.8}, audit)
    assert (gate.worst, gate.where) == (0.9, "census+employer/gradient/mixture")
    assert not gate.passed
    [gate] = gates_of({"excess": 0.1}, audit)
    assert gate.passed, "parties that pool their messages pool their columns too"
    assert gate.worst == pytest.approx(0.08)


def test_findings_name_parties_that_collude() -> None:
    together = leak_result(0.9, low=0.88, **colluding(["p", "q"]))
    [exposed] = found(leaks=[leak_result(0.7), together])
    assert exposed.code == "CL111"
    assert exposed.detail.startswith("p+q/gradient/norm reads 0.9")
    assert exposed.owner == "bank"


@pytest.mark.parametrize(("rows", "codes_found"), [(199, ["CL114"]), (200, [])])
def test_a_leak_of_fewer_than_half_of_the_rows_is_a_finding(rows: int, codes_found: list[str]) -> None:
    leaks = [leak_result(0.7, rows=rows, rows_recorded=400), leak_result(0.6, attack="probe", rows_recorded=400)]
    findings = found(leaks=leaks)
    assert codes(findings) == codes_found
    for finding in findings:
        assert f"p/gradient/norm reads 0.700 of {rows} of 400 recorded rows" in finding.detail
        assert finding.detail.endswith("of attacks that scored half of them, probe reads 0.600")


def test_the_rows_of_an_attack_that_is_not_the_worst_do_not_matter() -> None:
    narrow = leak_result(0.6, attack="probe", rows=170, rows_recorded=400)
    assert found(leaks=[leak_result(0.7, rows_recorded=400), narrow]) == []
    [finding] = found(leaks=[leak_result(0.7, rows=170, rows_recorded=400)])
    assert finding.detail.endswith("of attacks that scored half of them, there is none")
    assert found(leaks=[leak_result(0.7, rows=170)]) == [], "the number of recorded rows is unknown"


def test_every_check_has_a_code_of_its_own_and_a_case() -> None:
    assert len({check.code for check in CHECKS}) == len(CHECKS)
    assert {check.code for check in CHECKS} - CASES.keys() == {"CL110"}, "features are tested where they are attacked"


def test_each_limit_is_a_gate_of_its_own():
    own = [Baseline(party="p", own_columns=0.6)]
    gates = gates_of({"label_auc": 0.9, "excess": 0.05}, RunAudit(leaks=[leak_result(0.7)], baselines=own))
    assert [(gate.name, gate.passed) for gate in gates] == [("label_auc", True), ("excess", False)]


def test_columns_beyond_some_are_counted_in_one_finding_of_their_party() -> None:
    notes = odd(*["misread"] * 20, "rare")
    *first, rest, rare = found(notes=notes)
    assert [finding.detail for finding in first] == [f"telco.c{number}: odd" for number in range(8)]
    assert rest.detail.startswith("telco: 12 more columns, c8, c9, c10, c11, c12, c13, c14, c15 and 4 others; ")
    assert (rare.code, rare.owner) == ("CL121", "telco")
    assert [*column_findings(notes)] == [*first, rest, rare], "those of a passive party's own folder"
