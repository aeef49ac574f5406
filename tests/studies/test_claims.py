"""Verdicts follow from the results: the same claim holds, fails or stays open as the numbers say."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import pytest
from scipy import stats

from cutlayer.results.leaks import LeakResult
from studies.claims import Claim, Kind, Verdict, above, all_hold, any_holds, below, within
from studies.forward_leakage.claims import BOTH_ATTACKS, PAPER_PAIRS, Forms, ForwardClaims
from studies.gradient_leakage.claims import ORDER, gradient_claims
from studies.label_dp.claims import EPOCHS, label_dp_claims, majority_accuracy, one_draw_auc
from studies.results import Results, SeedMean, TrialResult, leak, metric, seed_mean_of
from studies.trials import worst_leaks
from tests.results.leaks import leak_result

HOLDS, FAILS, OPEN, NOT_RUN = Verdict.HOLDS, Verdict.FAILS, Verdict.OPEN, Verdict.NOT_RUN
KEYS = ("embedding/spectral", "gradient/norm", "gradient/direction", "gradient/hint", "gradient/spectral")
FORMS = Forms(lambda a: f"dcor alpha {a:g}, best", lambda a: f"dcor alpha {a:g}, paper", (0.002, 0.03, 0.05), ())


def runs_of(group: str, settings: dict[str, tuple[float, float]], spread: float = 0.001) -> list[TrialResult]:
    """Three seeds of each setting: test metric and the leak of every attack, give or take the spread."""
    return [
        TrialResult(
            group,
            setting,
            seed,
            test + (seed - 2) * spread,
            1.0,
            {key: {"auc": leaked + (seed - 2) * spread, "epoch": 1, "last": 0.5} for key in KEYS},
            {"publisher/layers.0": {"auc": 0.6 + seed / 1000}, "publisher/layers.4": {"auc": 0.25}},
        )
        for setting, (test, leaked) in settings.items()
        for seed in (1, 2, 3)
    ]


def verdict(claims: list[Claim], *words: str) -> Verdict:
    """Of the one claim that has all these words."""
    (results,) = [claim.verdict for claim in claims if all(word in claim.text for word in words)]
    return results


@pytest.mark.parametrize(
    ("value", "half", "expected"),
    [(0.5, 0.04, HOLDS), (0.5, 0.06, OPEN), (0.6, 0.06, OPEN), (0.6, 0.04, FAILS), (0.5, None, OPEN)],
)
def test_an_interval_decides(value: float, half: float | None, expected: Verdict) -> None:
    assert below(SeedMean(value, half), 0.55) == expected
    assert above(SeedMean(-value, half), -0.55) == expected


def test_an_open_verdict_says_how_many_seeds_would_settle_it() -> None:
    """Of normal values with the same mean and spread, so many seeds settle about half of the open claims, not fewer."""
    value = seed_mean_of([0.50, 0.54, 0.58])
    assert value is not None
    open_at = below(value, 0.56)
    assert (open_at, open_at.seeds) == (OPEN, 3)
    assert open_at.enough is not None
    repeated = [0.54 + 0.04 * stats.norm.ppf((k + 0.5) / open_at.enough) for k in range(open_at.enough)]
    fewer = [0.54 + 0.04 * stats.norm.ppf((k + 0.5) / 8) for k in range(8)]
    assert below(seed_mean_of(repeated), 0.56) == HOLDS
    assert below(seed_mean_of(fewer), 0.56) == OPEN
    assert str(all_hold([HOLDS, open_at, below(seed_mean_of([0.5, 0.55, 0.56]), 0.57)])) == str(open_at)


def test_what_more_seeds_would_not_settle_is_not_open() -> None:
    """An interval within 0.01 of the limit says that the difference is small, whichever way it points."""
    assert below(SeedMean(0.553, 0.006, 5), 0.55).kind is below(SeedMean(0.547, 0.006, 5), 0.55).kind is Kind.LEVEL
    assert below(SeedMean(0.555, 0.008, 5), 0.55) == OPEN  # 0.563 is more than 0.01 away
    beyond = below(SeedMean(0.553, 0.03, 5), 0.55)
    assert (beyond.kind, beyond.enough) == (Kind.BEYOND, None)
    assert below(SeedMean(0.553, 0.03, 4), 0.55) == OPEN  # four values say too little of the spread
    level = below(SeedMean(0.553, 0.006, 5), 0.55)
    assert [all_hold(parts).kind for parts in ([HOLDS, level], [level, OPEN], [level, beyond], [level, FAILS])] == [
        Kind.LEVEL, Kind.OPEN, Kind.BEYOND, Kind.FAILS
    ]  # fmt: skip
    assert [any_holds(parts).kind for parts in ([FAILS, level], [level, HOLDS], [beyond, OPEN])] == [
        Kind.LEVEL, Kind.HOLDS, Kind.OPEN
    ]  # fmt: skip


@pytest.mark.parametrize(("distance", "kind"), [(0.9, Kind.BEYOND), (1.1, Kind.OPEN)])
def test_a_difference_is_out_of_reach_by_what_twenty_seeds_would_resolve(distance: float, kind: Kind) -> None:
    values = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    resolved = stats.t.ppf(0.975, 19) * statistics.stdev(values) / 20**0.5
    unsettled = below(seed_mean_of(values), 0.35 + distance * resolved)
    assert (unsettled.kind, unsettled.seeds) == (kind, 6)
    assert unsettled.resolved == pytest.approx(resolved)
    assert unsettled.distance == pytest.approx(distance * resolved)
    assert unsettled.enough is not None
    assert (unsettled.enough > 20) == (kind is Kind.BEYOND)


def test_a_number_is_the_papers_only_where_the_whole_interval_is_near() -> None:
    assert within(SeedMean(0.75, 0.01), 0.76, 0.03) == HOLDS
    assert within(SeedMean(0.75, 0.03), 0.76, 0.03) == OPEN
    assert within(SeedMean(0.70, 0.01), 0.76, 0.03) == FAILS
    assert within(SeedMean(0.82, 0.01), 0.76, 0.03) == FAILS
    assert within(None, 0.76, 0.03) == NOT_RUN


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([HOLDS, HOLDS], HOLDS),
        ([HOLDS, OPEN], OPEN),
        ([OPEN, FAILS], FAILS),
        ([HOLDS, NOT_RUN], NOT_RUN),
        ([], NOT_RUN),
    ],
)
def test_a_claim_of_parts_holds_where_all_do(parts: list[Verdict], expected: Verdict) -> None:
    assert all_hold(parts) == expected


def test_differences_are_paired_by_seed() -> None:
    """Seeds differ by 0.1, the setting by 0.01: only the paired difference can tell, and only common seeds count."""
    results = runs_of("A", {"undefended": (0.7, 0.8), "noise": (0.69, 0.8)}, spread=0.1)
    lost = Results(results).loss(("A", "noise"))
    assert lost is not None
    assert lost.value == pytest.approx(0.01)
    assert lost.half_width == pytest.approx(0.0, abs=1e-12)
    fewer = Results(results[1:]).loss(("A", "noise"))
    assert fewer is not None
    assert fewer.value == pytest.approx(0.01)
    assert Results(results).loss(("A", "other")) is None


def test_a_leak_counts_whichever_way_it_points() -> None:
    (result, *_) = runs_of("A", {"undefended": (0.7, 0.2)}, spread=0.0)
    assert leak("gradient/norm")(result) == pytest.approx(0.8)
    assert leak("gradient/other")(result) is None
    assert metric(result) == 0.7


def forward(changes: dict[str, tuple[float, float]], spread: float = 0.001) -> list[Claim]:
    settings = {
        "undefended": (0.72, 0.76),
        "marvell s 8": (0.71, 0.74),
        "label_dp eps 0.5": (0.70, 0.26),
        "dcor alpha 0.002, best": (0.72, 0.74),
        "dcor alpha 0.03, best": (0.715, 0.52),
        "dcor alpha 0.05, best": (0.71, 0.51),
        "dcor alpha 0.03, paper": (0.5, 0.51),
        **changes,
    }
    return ForwardClaims(Results(runs_of("Criteo", settings, spread)), FORMS).all()


def test_the_term_is_judged_with_more_steps_too() -> None:
    settings = {
        "undefended": (0.72, 0.76),
        "dcor alpha 0.03, best": (0.715, 0.52),
        "dcor alpha 0.03, paper": (0.5, 0.51),
    }
    claims = ForwardClaims(Results(runs_of("Criteo, batch 1024", settings, 0.001)), FORMS).all()
    assert verdict(claims, "batch 1024: `dcor alpha 0.03, best` hides") == HOLDS
    assert verdict(claims, "batch 1024: `dcor alpha 0.03, paper` hides") == FAILS
    assert verdict(claims, "batch 1024, undefended") == FAILS  # the leak is above the test AUC


def test_what_collapses_does_not_hold() -> None:
    claims = forward({})
    assert verdict(claims, "paper's form", "trains (") == FAILS
    assert verdict(claims, "paper's form", "hides") == FAILS  # what learned nothing has nothing to hide
    assert verdict(forward({"dcor alpha 0.03, paper": (0.7, 0.51)}), "paper's form", "hides") == HOLDS
    assert verdict(claims, "form with a floor", "trains (") == HOLDS
    assert verdict(forward({"dcor alpha 0.03, paper": (0.7, 0.7)}), "paper's form", "hides") == FAILS
    assert verdict(claims, "`marvell s 8` does not protect") == HOLDS
    assert verdict(claims, "`label_dp eps 0.5` does not protect") == HOLDS
    assert verdict(forward({"marvell s 8": (0.71, 0.45)}), "`marvell s 8` does not protect") == FAILS
    assert verdict(claims, "A larger alpha") == HOLDS
    assert verdict(claims, "Deeper layers") == HOLDS
    assert verdict(claims, "Undefended") == HOLDS
    assert verdict(forward({}, spread=0.3), "`marvell s 8` does not protect") == OPEN


def test_only_cheap_strengths_are_asked_whether_they_protect() -> None:
    assert verdict(forward({"marvell s 16": (0.60, 0.5)}), "No strength") == HOLDS
    assert verdict(forward({"marvell s 16": (0.71, 0.5)}), "No strength") == FAILS


def test_the_gradients_are_judged_by_both_attacks_where_both_were_run() -> None:
    settings = {"marvell s 1": (0.72, 0.8), "marvell s 16": (0.68, 0.6)}
    settings |= {"label_dp eps 4": (0.72, 0.6), "label_dp eps 0.5": (0.70, 0.26)}
    claims = ForwardClaims(Results(runs_of(BOTH_ATTACKS, settings, 0.001)), FORMS).all()
    assert verdict(claims, "From `marvell s 1`", "norm attack") == HOLDS
    assert verdict(claims, "From `marvell s 1`", "spectral attack") == HOLDS
    assert verdict(claims, "From `label_dp eps 4`", "norm attack") == FAILS
    assert not [claim for claim in forward({}) if claim.paper == "figure 6"]


def test_tables_2_to_5_are_judged_by_leak_and_by_loss() -> None:
    for group in PAPER_PAIRS:
        results = runs_of(group, {"undefended": (0.72, 0.76), "dcor alpha 0.03, best": (0.70, 0.52)})
        claims = ForwardClaims(Results(results), FORMS).all()
        assert verdict(claims, f"{group}: dCor") == HOLDS
        assert verdict(claims, f"{group}: and costs") == FAILS


def gradient(leaks: Callable[[int], float], tests: dict[str, float]) -> list[Claim]:
    settings = {name: (tests.get(name, 0.7), leaks(index)) for index, name in enumerate(ORDER)}
    return gradient_claims(Results(runs_of("Criteo", settings)), "Criteo")


def test_the_order_of_the_leaks_is_the_reports_or_not() -> None:
    for leaks, expected in (
        (lambda place: 0.95 - 0.06 * place, HOLDS),
        (lambda place: 0.55 + 0.06 * place, FAILS),
        (lambda place: 0.75, Verdict(Kind.LEVEL)),
    ):
        falls = [claim for claim in gradient(leaks, {}) if claim.text.startswith("`norm`: leak falls")]
        assert [claim.verdict for claim in falls] == [expected] * (len(ORDER) - 1)


def test_losses_are_the_reports_or_not() -> None:
    claims = gradient(lambda place: 0.55, {"sum_kl 0.49": 0.69, "sum_kl 0.16": 0.66})
    assert verdict(claims, "sum_kl 0.49 costs 0.012") == HOLDS
    assert verdict(claims, "sum_kl 0.16 costs 0.014") == FAILS
    assert verdict(claims, "sum_kl 0.49 costs less than 0.02") == HOLDS
    assert verdict(claims, "sum_kl 0.16 costs less than 0.02") == FAILS
    assert verdict(claims, "`norm`", "0.16 is below 0.6") == HOLDS


def test_theory_of_a_vote_agrees_with_the_binomial_sum() -> None:
    for eps, draws in ((0.5, 12), (1.0, 15), (2.0, 1)):
        right = one_draw_auc(eps)
        more = sum(stats.binom.pmf(k, draws, right) for k in range(draws // 2 + 1, draws + 1))
        even = stats.binom.pmf(draws // 2, draws, right) / 2 if draws % 2 == 0 else 0
        assert majority_accuracy(eps, draws) == pytest.approx(more + even, rel=1e-12)


def test_the_cost_of_redrawing_is_judged_against_theory() -> None:
    results = [
        TrialResult(
            "Criteo, centralised",
            f"eps 1, {how}",
            seed,
            test + seed / 1e4,
            1.0,
            {},
            {},
            {"right_vote": right, "vote_auc": 0.99},
        )
        for how, test, right in (
            ("drawn once", 0.7, 0.73),
            ("drawn in every epoch", 0.72, majority_accuracy(1, EPOCHS["Criteo"])),
        )
        for seed in (1, 2, 3)
    ]
    claims = label_dp_claims(Results(results))
    assert verdict(claims, "eps 1: a vote") == HOLDS
    assert verdict(claims, "eps 1: the spectral") == HOLDS
    assert verdict(claims, "eps 2: a vote") == NOT_RUN


@pytest.mark.parametrize(("best", "expected"), [(0.71, HOLDS), (0.70, FAILS)])
def test_learning_from_drawn_labels_is_judged_by_half_of_the_cost(best: float, expected: Verdict) -> None:
    """Undefended 0.72, with label DP 0.69: half of the cost is 0.705."""
    metrics = {
        "undefended": (0.72, 0.51),
        "eps 1": (0.69, 0.58),
        "eps 1, corrected loss": (0.69, 0.54),
        "eps 1, corrected loss, weight decay": (best, 0.52),
    }
    results = [
        TrialResult("Criteo, learning", setting, seed, test + seed / 1e4, 1.0, {}, {}, measured_losses(loss, seed))
        for setting, (test, loss) in metrics.items()
        for seed in (1, 2, 3)
    ]
    claims = label_dp_claims(Results(results))
    assert verdict(claims, "less than half") == expected
    assert verdict(claims, "Criteo", "lowers the log loss") == HOLDS
    assert verdict(claims, "handwritten", "lowers the log loss") == NOT_RUN
    assert verdict(claims, "below that of a constant") == HOLDS


def measured_losses(loss: float, seed: int) -> dict[str, float]:
    return {"log_loss": loss + seed / 1e4, "constant_log_loss": 0.57}


def test_of_several_parties_the_one_that_learns_most_counts() -> None:
    def trial(attack: str, auc: float, named: float | None = None) -> LeakResult:
        others = {} if named is None else {"best_assignment": named}
        return leak_result(auc, message="embedding", attack=attack, other_aucs=others)

    trials = [
        trial("spectral", 0.44, 0.93),
        trial("spectral", 0.3, 0.6),
        trial("spectral", 0.6, 0.7),
        trial("norm", 0.51),
    ]
    results = {name: worst["auc"] for name, worst in worst_leaks(trials).items()}
    assert results == {"embedding/spectral": 0.3, "embedding/spectral, best assignment": 0.93, "embedding/norm": 0.51}
    assert worst_leaks(trials)["embedding/spectral"] == {"auc": 0.3, "epoch": 3, "last": 0.5}
