"""The page of the study of malicious parties: claims, and what each attacker gains."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from scipy.stats import binomtest

from studies.claims import Claim, Kind, Verdict, above, all_hold, below
from studies.malicious.settings import (
    ADAPTED,
    ADULT,
    BACKDOORS,
    BLURRED,
    CIFAR,
    COVERED,
    COVERS,
    FEW,
    FRESH,
    HALVES,
    HIJACKS,
    LINEAR_URVFL,
    OF_FEATURES,
    OF_LABELS,
    OF_RELEASES,
    PROBES,
    URVFL,
)
from studies.page import ClaimsTable, Page, Section, Table, table
from studies.results import Condition, Results, SeedMean, TrialResult, formatted, measured, metric, seed_mean_of

GROUPS = (ADULT, *HALVES)
HONEST, BLANK = "honest", "–"
LINKS = {"census office": "leak of census_office", "employer": "leak of employer", "together": "together"}
MOST_FALSE = 0.01
REPEATED = ("honest, backdoor", "honest, probed; none")
"""The trainings of `honest` once more, of which other things are read."""
ENOUGH = 20
_R2, _AT_ALARM, _SDAR = measured("r2"), measured("r2_alarm"), measured("r2_sdar")
_DECODED = measured("r2_decoder")


def _covers(name: str) -> str:
    """The covers of a hijack in words."""
    return ", ".join(f"{cover:.0%} on {group}" for group, cover in COVERS[name].items())


SETTINGS = (
    "Adult is `examples/adult.yaml` on 3,000 rows drawn once, 5 epochs in batches of 128, embeddings of 16 columns, "
    "three parties. The halves are those of 2,000 MNIST digits (perceptrons of 32 columns, 5 epochs) and of 1,500 "
    "CIFAR-10 images (`lenet5`, 4 epochs), both in batches of 128. A fifth of the rows is for testing; no attacker has "
    "a protection, and all parties have guards that go on after an alarm.\n\n"
    "A hijacker knows the columns of 240 training rows of each partner; `inversion` knows the same rows in the honest "
    "training, and all others are attacked. `sdar` knows 600 other rows of Adult with their labels, 400 of MNIST and "
    "300 of CIFAR-10, reads the final models and was run with five seeds. `hijack 0.25` has a quarter of the strength. "
    "The next three have half the strength. `covered hijack` gives each false gradient a part of its energy in the "
    f"direction of the row's honest one: {_covers(COVERED)}. `hidden hijack` knows the guard, and so gives it "
    f"{_covers(ADAPTED)}. So does `blurred hijack`: it gives every honest gradient 15% of its energy in a random "
    f"direction, so that false ones stand out less, and these {_covers(BLURRED)} in the honest direction. "
    "`hijack of 24 rows` sends false gradients for these rows alone. "
    "`URVFL` sends the gradients of a discriminator that knows the labels, for every row of both partners, and "
    "rebuilds by a decoder that was trained before the run. The discriminator of `linear URVFL` has no hidden layer. "
    "Each is read by `inversion` too, which knows the same rows as in the honest training. Runs have 40 to 100 steps, "
    "where the paper has thousands. *At the alarm* is the reconstruction of "
    "all rows from what was sent until the alarm, where a row that was not yet sent counts as rebuilt by the mean of "
    "the known rows. The honest training that it is compared with is read after 3 to 10, 12, 14 "
    "and 16 steps, and taken to be on a line between these. Of the sent rows alone no alarm comes before half of the "
    "final R²: untrained embeddings of Adult give 0.46 of 0.74 (20 seeds, an earlier form of this study at commit "
    "`3232a876`). `once` is a single release of a sketch, after which no "
    "gradient comes back: nothing can be hijacked.\n\n"
    "All partners probe at once. They are read by `norm`, `direction`, `spectral`, `joint_spectral`, `off_norm` and "
    "`mixture`, and by `mean_gradient` and `sign_changes` over all epochs, on Adult; the last two by both partners "
    "*together* too. Without a protection every label leaks already, and no probe can gain. "
    "`probing 0.6` leaves 0.6 of the distances, "
    "`scaling` multiplies them by 10, `scaling 1.5` by 1.5. A backdoor knows 20 training rows of class 1, "
    "and sends the trigger from the second epoch on, `early` from the first. *Success* is "
    "the share of test rows of other classes that get class 1 when one partner, or all, send the trigger or the mean "
    "embedding of those rows, whichever does more."
)

OF_A_SEED = (
    "All trainings of one seed and data set start from the same weights, so that their alarms are not independent. The "
    "limits were set on other rows of the same data, with seeds 101 to 260: on 14 honest trainings of Adult without a "
    "protection, 14 under `nopeek`, 26 with protected labels, 140 first epochs, and 56 honest trainings on halves. Of "
    "313 further honest trainings with seeds 21 to 45 they were wrong in eight. Five were partners whose penalty drew "
    "all embeddings together; three had a few more rows off the directions, as had one on CIFAR-10 halves before. So "
    "the limits were widened (commits `38c6f347`, `e7b58507` and `f2c0d982`). With two classes the second is 0.011, "
    "since two of these had 0.0103 and 0.0107. With ten classes the first is 0.012, after a look at the hijacks above: "
    "0.014 misses two of 20 on CIFAR-10 halves, and an honest training there has 0.017. Then eleven of 1,560 trainings "
    "with seeds 61 to 180 had an alarm, nine by a row that moved far, all on Adult. Such a row is compared with the "
    "farthest rows of former batches now (commit `eaf3f308`). *Fresh* trainings have other seeds, and their alarms are "
    "all that is read of them. The claim counts these alone."
)
TRIED = (
    "What an attacker that knows the code can do, as far as it was thought of:\n\n"
    "- *Stronger or weaker false gradients.* They are seen: rows are judged by their direction alone.\n"
    "- *Cover.* A part of each false gradient's energy in the honest direction: less than half is seen on Adult, "
    "and two thirds are seen on MNIST halves (`covered hijack`); more is not (`hidden hijack`).\n"
    "- *Cover and blur.* A row is compared with the usual row of its batch. An attacker that bends all rows can cover "
    "less of the false ones (`blurred hijack`).\n"
    "- *Few rows.* About half of the rows that were hijacked count as off the directions. So false gradients "
    "for few rows are missed at times on Adult, and seen on the halves of images (`hijack of 24 rows`). An attack in "
    "one step of many is often not seen.\n"
    "- *Gradients by class.* `URVFL` pulls every row of a class alike, so that few rows are off the directions. The "
    "table has how often it is seen, what it gains, and what it costs the model, which the label owner sees.\n"
    "- *False labels.* Their gradients are honest ones of another task: not seen, `chosen labels` above.\n"
    "- *A pretended protection.* A label owner that says it adds noise has the weaker test of predicted energy alone, "
    "a partner that says so those of the batch's mean, and of a variance that rises.\n"
    "- *Smaller changes of embeddings.* Variances within a factor of five, a slope or a correlation of 0.35 or more, a "
    "trigger no farther than 3.7 to 4.5 times the usual distance or, where it was sent in the first epoch too "
    "(`backdoor, early`), 6.3 times, a replay with noise, and anything in the first epoch: not seen.\n"
    "- *The guard's directions.* The four in which the label owner remembers rows are drawn by its own key.\n"
    "- *Killing the victim.* What a guard has seen is in its checkpoint; steps after that are judged again.\n\n"
    "So a guard is no protection. What holds against any partner is a single release and `label_dp` on training rows, "
    "for labels, and noise on embeddings as far as its condition reaches, for columns."
)


def malicious_page(results: Results) -> Page:
    """Claims, then features, labels, predictions and false alarms."""
    claims = (*_hijack_claims(results), *_label_claims(results), *_backdoor_claims(results), _false_alarms(results))
    return Page(
        (
            Section("", (ClaimsTable(claims),)),
            Section("Hijack", tuple(_features(results, group) for group in GROUPS)),
            Section("Probing", (_labels(results),)),
            Section("Backdoor", tuple(_predictions(results, group) for group in GROUPS if group != CIFAR)),
            Section("False alarms", (OF_A_SEED, _honest(results))),
            Section("What the guard does not see", (TRIED,)),
        )
    )


def _hijack_claims(results: Results) -> list[Claim]:
    claims = []
    for group in GROUPS:
        honest, hijack, weak = ((group, name) for name in (HONEST, "hijack", "hijack 0.25"))
        for reader, value in (("inversion", _R2), ("sdar", _SDAR)):
            gain = results.difference(hijack, honest, _R2, value)
            claims.append(_own(f"{group}: a hijack rebuilds more than `{reader}` (R²)", gain, above(gain, 0.0)))
        claims.append(_often(f"{group}: the partner's guard sees the hijack", results.all(hijack), _alarmed))
        claims.append(_often(f"{group}: and at a quarter of the strength", results.all(weak), _alarmed))
        if group in COVERS[COVERED]:
            claims.append(_often(f"{group}: and a `{COVERED}`", results.all((group, COVERED)), _alarmed))
        text = f"{group}: until the alarm less than half of the final R² is reached"
        claims.append(_often(text, results.all(hijack), _below_half))
        half = _gain_at_alarm(results, group, 0.5)
        text = f"{group}: until the alarm a hijack has gained less than half of its gain (excess of R²)"
        claims.append(_own(text, half, below(half, 0.0)))
        for name in (ADAPTED, BLURRED, FEW):
            left = results.difference((group, name), honest, _R2)
            text = f"{group}: a hijack that knows the guard (`{name}`) gains nothing (below 0.01)"
            claims.append(_own(text, left, below(left, 0.01)))
        claims += _urvfl_claims(results, group)
        for defence in OF_FEATURES:
            bound = results.difference((group, f"hijack; {defence}"), (group, f"{HONEST}; {defence}"), _R2)
            text = f"{group}: under `{defence}` a hijack gains nothing (below 0.01)"
            claims.append(_own(text, bound, below(bound, 0.01)))
        for release in OF_RELEASES:
            less = results.difference((group, f"{HONEST}; {release}"), hijack, _R2)
            text = f"{group}: of a single release (`{release}`) `inversion` rebuilds less than a hijack (R²)"
            claims.append(_own(text, less, below(less, 0.0)))
    return claims


def _urvfl_claims(results: Results, group: str) -> list[Claim]:
    honest = (group, HONEST)
    if not results.all((group, URVFL)):
        return []
    own = results.difference((group, URVFL), honest, _DECODED, _SDAR)
    text = f"{group}: `{URVFL}` rebuilds more by its decoder than `sdar` of an honest training (R²)"
    claims = [Claim(text, "yes (Yao et al.)", formatted(own), above(own, 0.0))]
    claims.append(_often(f"{group}: the partner's guard sees `{URVFL}`", results.all((group, URVFL)), _alarmed))
    for name in (URVFL, LINEAR_URVFL):
        gain = results.difference((group, name), honest, _best, _R2)
        text = f"{group}: `{name}` gains nothing over `inversion` of an honest training (below 0.01)"
        claims.append(_own(text, gain, below(gain, 0.01)))
    return claims


def _best(result: TrialResult) -> float | None:
    """R² of `inversion`, or of the attacker's own decoder where that rebuilds more."""
    return max(float(result.measured["r2"]), float(result.measured.get("r2_decoder", 0.0)))


def _label_claims(results: Results) -> list[Claim]:
    claims = []
    for defence in (name for name in OF_LABELS if name != "none"):
        honest = (ADULT, f"honest, probed; {defence}")
        gains = {
            (probe, link): results.difference((ADULT, f"{probe}; {defence}"), honest, measured(key))
            for probe in PROBES
            for link, key in LINKS.items()
        }
        known = {key: gain for key, gain in gains.items() if gain is not None}
        best = max(known, key=lambda key: known[key].value, default=None)
        text = f"label owner with {defence}: no probe gains 0.03 of leak; here the largest gain"
        verdict = all_hold(below(gain, 0.03) for gain in gains.values())
        ours = "–" if best is None else f"{known[best]} ({best[0]}, {best[1]})"
        claims.append(Claim(text, BLANK, ours, verdict))
    return claims


def _backdoor_claims(results: Results) -> list[Claim]:
    claims = []
    for group in (ADULT, *(name for name in HALVES if name != CIFAR)):
        gain = results.difference((group, "backdoor"), (group, "honest, backdoor"), measured("success of 1"))
        claims.append(_own(f"{group}: a backdoor of one partner succeeds more often", gain, above(gain, 0.0)))
        for name in BACKDOORS:
            text = f"{group}: the label owner's guard sees `{name}`"
            claims.append(_often(text, results.all((group, name)), _active_alarmed))
    return claims


def _false_alarms(results: Results) -> Claim:
    trained = [
        each
        for group in GROUPS
        for name in results.settings(group)
        if name.startswith(FRESH)
        for each in _honest_of(results, group, name)
    ]
    false = sum(bool(each.measured["alarms"]) for each in trained)
    text = "Fresh honest trainings raise an alarm in at most 1 of 100 (95 % Clopper-Pearson interval)"
    if not trained:
        return Claim(text, BLANK, BLANK, Verdict.NOT_RUN)
    interval = binomtest(false, len(trained)).proportion_ci()
    kinds = {interval.low > MOST_FALSE: Kind.FAILS, interval.high <= MOST_FALSE: Kind.HOLDS}
    return Claim(text, BLANK, f"{false} of {len(trained)}", Verdict(kinds.get(True, Kind.OPEN), len(trained)))


def _honest_of(results: Results, group: str, name: str) -> list[TrialResult]:
    """Honest trainings with guards, each of them once."""
    counted = name.startswith((HONEST, FRESH)) and name not in REPEATED and name.partition("; ")[2] not in OF_RELEASES
    return _judged(results.all((group, name))) if counted else []


def _judged(trained: list[TrialResult]) -> list[TrialResult]:
    """Trainings whose alarms are known: of others it is known what was read, but not what the present guards say."""
    return [each for each in trained if "alarms" in each.measured]


def _often(text: str, trained: list[TrialResult], happened: Callable[[TrialResult], bool]) -> Claim:
    """A claim about 19 of 20 trainings: of fewer it is open, unless more than one already fails."""
    trained = _judged(trained)
    hits = sum(map(happened, trained))
    kinds = {not trained: Kind.NOT_RUN, len(trained) - hits > max(1, len(trained) // 20): Kind.FAILS}
    verdict = Verdict(kinds.get(True, Kind.HOLDS if len(trained) >= ENOUGH else Kind.OPEN), len(trained))
    return Claim(f"{text}, in 19 of 20 trainings", BLANK, f"{hits} of {len(trained)}", verdict)


def _own(text: str, value: object, verdict: Verdict) -> Claim:
    return Claim(text, BLANK, formatted(value), verdict)  # type: ignore[arg-type]


def _alarmed(result: TrialResult) -> bool:
    return result.measured["passive_alarm"] is not None


def _active_alarmed(result: TrialResult) -> bool:
    return result.measured["active_alarm"] is not None


def _below_half(result: TrialResult) -> bool:
    reached = result.measured.get("r2_alarm")
    return reached is not None and bool(reached < result.measured["r2"] / 2)


def _gain_at_alarm(results: Results, group: str, share: float = 0.0) -> SeedMean | None:
    """What a hijack has gained until the alarm over an honest training at that step, less a share of its whole gain.

    A training without an alarm counts with its whole gain.
    """
    honest = {each.seed: each for each in results.all((group, HONEST))}
    gains = []
    for hijack in _judged(results.all((group, "hijack"))):
        own = honest.get(hijack.seed)
        if own is not None:
            whole = hijack.measured["r2"] - own.measured["r2"]
            step, reached = hijack.measured["passive_alarm"], hijack.measured.get("r2_alarm")
            then = whole if reached is None else reached - _honest_at(own, step)
            gains.append(then - share * whole)
    return seed_mean_of(gains)


def _honest_at(result: TrialResult, step: int) -> float:
    """R² of an honest training after so many steps, between those at which it was read on a line."""
    known = {int(key): value for key, value in result.measured["r2_first"].items()}
    return float(np.interp(step, sorted(known), [known[key] for key in sorted(known)]))


def _features(results: Results, group: str) -> Table:
    def gain(condition: Condition) -> object:
        name, _, defence = condition[1].partition("; ")
        if name == HONEST:
            return ""
        return results.difference(condition, (group, f"{HONEST}; {defence}" if defence else HONEST), _R2)

    wanted = [HONEST, *HIJACKS]
    wanted += [f"{name}; {defence}" for defence in OF_FEATURES for name in (HONEST, "hijack")]
    wanted += [f"{HONEST}; {release}" for release in OF_RELEASES]
    columns: Mapping[str, Callable[[Condition], object]] = {
        "R²": results.column(_R2),
        "of `sdar`": results.blank_column(_SDAR),
        "of its decoder": results.blank_column(_DECODED),
        "gain": gain,
        "at the alarm": results.blank_column(_AT_ALARM),
        "trainings with an alarm": lambda condition: _counted(results.all(condition), "passive_alarm"),
        "last alarm, step": lambda condition: _latest(results.all(condition)),
        "test metric": results.column(metric),
    }
    return table(group, results.conditions(group, wanted), columns)  # type: ignore[arg-type]


def _counted(trained: list[TrialResult], key: str) -> str:
    judged = _judged(trained)
    return f"{sum(each.measured[key] is not None for each in judged)} of {len(judged)}" if judged else ""


def _latest(trained: list[TrialResult]) -> str:
    steps = [each.measured["passive_alarm"] for each in _judged(trained) if each.measured["passive_alarm"] is not None]
    return str(max(steps)) if steps else ""


def _labels(results: Results) -> Table:
    names = [f"{name}; {defence}" for defence in OF_LABELS for name in ("honest, probed", *PROBES)]
    columns = {heading: results.column(measured(key)) for heading, key in LINKS.items()}
    alarms = {"trainings with an alarm": lambda condition: _counted(results.all(condition), "active_alarm")}
    return table(
        "partners; label owner",
        results.conditions(ADULT, names),
        {**columns, **alarms, "test AUC": results.column(metric)},
    )


def _predictions(results: Results, group: str) -> Table:
    successes = {"by one partner": "success of 1"} | ({"by both": "success of 2"} if group == ADULT else {})
    columns = {heading: results.column(measured(key)) for heading, key in successes.items()}
    alarms = {"trainings with an alarm": lambda condition: _counted(results.all(condition), "active_alarm")}
    wanted = ["honest, backdoor", *BACKDOORS]
    return table(group, results.conditions(group, wanted), {**columns, **alarms, "test metric": results.column(metric)})


def _honest(results: Results) -> Table:
    rows = []
    for group in GROUPS:
        for name in results.settings(group):
            trained = _honest_of(results, group, name)
            if trained:
                false = [each for each in trained if each.measured["alarms"]]
                by = {text.partition(":")[0] for each in false for text in each.measured["alarms"]}
                seeds = ", ".join(str(each.seed) for each in false)
                cells = (str(len(trained)), str(len(false)), ", ".join(sorted(by)), seeds)
                rows.append((f"{group}: {name}", *cells))
    return Table(("honest training", "trainings", "with an alarm", "by the guard of", "seeds"), tuple(rows))
