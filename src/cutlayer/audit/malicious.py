"""Gains of malicious parties: their trainings beside this run, each by the attacks that read its messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from cutlayer.attacks.malicious import TAMPERINGS, is_by_active_party
from cutlayer.audit.attack_audit import AttackAudit
from cutlayer.audit.backdoor import AttackReach, backdoor_success
from cutlayer.config import Job
from cutlayer.config.guard import Alarm
from cutlayer.results.audit import RunAudit, SkippedAttack
from cutlayer.results.features import FeatureResult
from cutlayer.results.leaks import LeakResult, worst_of
from cutlayer.results.malicious import MaliciousResult
from cutlayer.results.run import RunId, RunKind
from cutlayer.training.folder import RunFolder
from cutlayer.training.malicious_runs import attacked_run, reason_not_attacked, victims

NEEDS_ONE_PROCESS = "a malicious training needs all parties in one process; none was trained"


def audit_malicious(
    job: Job,
    runs: Mapping[str, RunAudit],
    features: Sequence[FeatureResult],
    folder: RunFolder,
    classes: tuple[str, ...],
) -> AttackAudit[MaliciousResult]:
    """Compare each malicious training with this run, on each link that it attacks and on all of them together.

    Args:
        job: The job as run.
        runs: Attacks on labels, by label of the run.
        features: Attacks on features, of all runs.
        folder: Folder of this run.
        classes: Classes of the task.
    """
    audit = AttackAudit[MaliciousResult]()
    for attack in TAMPERINGS:
        run, asked = attacked_run(job, attack), victims(job, attack)
        reasons = {party: reason_not_attacked(job, party) for party in asked}
        if run.label not in runs:
            reasons = {party: reason or NEEDS_ONE_PROCESS for party, reason in reasons.items()}
        attacked = [party for party in asked if not reasons[party]]
        results = {
            result.party: result for result in _results_on_links(job, run, attacked, runs, features, folder, classes)
        }
        for party in (party for party in asked if party not in results):
            reason = reasons[party] or "nothing was read"
            skipped = SkippedAttack(party=party, message="gradient", attack=attack, reason=reason)
            audit.skipped[skipped.label] = skipped
        audit.results.extend(results.values())
    return audit


def _results_on_links(
    job: Job,
    run: RunId,
    attacked: Sequence[str],
    runs: Mapping[str, RunAudit],
    features: Sequence[FeatureResult],
    folder: RunFolder,
    classes: tuple[str, ...],
) -> Iterator[MaliciousResult]:
    """Results on each attacked link in a malicious training and in this run; one of both may be missing."""
    if not attacked:
        return
    target = TAMPERINGS[run.attack].target
    reached: Mapping[str, tuple[AttackReach | None, AttackReach | None]]
    if target == "predictions":
        reached = backdoor_success(job, folder, run, attacked, classes)
    elif target == "features":
        # In this run whichever attack rebuilds most, also those that know more or other things.
        pairs = {party: (_rebuilt(features, run.label, party, "inversion"), party) for party in attacked}
        reached = {party: (own, _rebuilt(features, RunKind.THIS_RUN, party)) for party, (own, _) in pairs.items()}
    else:
        together = (leak.party for leak in runs[run.label].leaks if set(leak.together) == set(attacked))
        links = dict.fromkeys(chain(attacked, together))
        reached = {link: (_leak(runs[run.label], link), _leak(runs[RunKind.THIS_RUN], link)) for link in links}
    alarms = folder.of_run(run.label).summary.alarms
    for link, (malicious, curious) in reached.items():
        if malicious is not None:
            yield MaliciousResult(
                attack=run.attack,
                run=run.label,
                attacker=job.active if is_by_active_party(run.attack) else link.replace("+", " and "),
                party=link,
                secret=target,
                metric={"labels": "leak", "features": "r2", "predictions": "success"}[target],
                value=malicious.value,
                low=malicious.low,
                high=malicious.high,
                reader=malicious.by,
                curious=curious.value if curious else None,
                curious_reader=curious.by if curious else "",
                alarm=_alarm(job, run.attack, link, alarms),
            )


def _alarm(job: Job, attack: str, link: str, alarms: Sequence[Alarm]) -> str:
    """When a victim's guard raised the alarm; empty where it has none."""
    parties = link.split("+")
    pairs = [(party, job.active) if is_by_active_party(attack) else (job.active, party) for party in parties]
    if job.parties[pairs[0][0]].guard is None:
        return ""
    return next((alarm.when for alarm in alarms if (alarm.party, alarm.peer) in pairs), "none")


def _leak(run: RunAudit, link: str) -> AttackReach | None:
    """The largest leak of the gradients of a link; embeddings of an attacked epoch are made up."""
    worst: LeakResult | None = worst_of(leak for leak in run.leaks if (leak.party, leak.message) == (link, "gradient"))
    return None if worst is None else AttackReach(worst.leak, worst.low, worst.high, worst.attack)


def _rebuilt(features: Sequence[FeatureResult], run: str, party: str, attack: str = "") -> AttackReach | None:
    """The largest R² of a party's columns in a run, by one attack or any."""
    of_party = (each for each in features if (each.run, each.party, each.metric) == (run, party, "r2"))
    known = [result for result in of_party if attack in ("", result.attack)]
    best = max(known, key=lambda result: -1.0 if result.value is None else result.value, default=None)
    return None if best is None else AttackReach(best.value, best.low, best.high, best.attack)
