"""What malicious parties gain: their trainings beside this run, each by the attacks that read its messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cutlayer.audit.attack_audit import AttackAudit
from cutlayer.config import Job
from cutlayer.results.alarm import AlarmRecord
from cutlayer.results.audit import RunAudit, SkippedAttack
from cutlayer.results.features import FeatureResult
from cutlayer.results.leaks import worst_of
from cutlayer.results.malicious import MaliciousResult
from cutlayer.results.run import RunKind
from cutlayer.training.attacked import NAMES, attacked_run, not_attacked, victims

NEEDS_ONE_PROCESS = "a malicious training needs all parties in one process; none was trained"


def audit_malicious(
    job: Job,
    runs: Mapping[str, RunAudit],
    features: Sequence[FeatureResult],
    alarms: Mapping[str, Sequence[AlarmRecord]],
) -> AttackAudit[MaliciousResult]:
    """Compare each malicious training with this run, on each link that it attacks.

    Args:
        job: The job as run.
        runs: Attacks on labels, by label of the run.
        features: Attacks on features, of all runs.
        alarms: What the victims' guards saw, by label of the malicious training.
    """
    audit = AttackAudit[MaliciousResult]()
    for attack in NAMES:
        run = attacked_run(job, attack)
        for party in victims(job, attack):
            reason = not_attacked(job, party) or ("" if run.label in runs else NEEDS_ONE_PROCESS)
            result = None if reason else _read(job, run.label, party, runs, features)
            if result is None:
                skipped = SkippedAttack(
                    party=party, message="gradient", attack=attack, reason=reason or "nothing was read"
                )
                audit.skipped[skipped.label] = skipped
            else:
                audit.results.append(result.model_copy(update={"alarm": _alarm(job, attack, party, alarms[run.label])}))
    return audit


def _alarm(job: Job, attack: str, party: str, alarms: Sequence[AlarmRecord]) -> str:
    """When the victim's guard raised the alarm; empty where it has none."""
    pair = (party, job.active) if attack == "hijack" else (job.active, party)
    if job.parties[pair[0]].guard is None:
        return ""
    return next((alarm.when for alarm in alarms if (alarm.party, alarm.peer) == pair), "none")


def _read(
    job: Job, run: str, party: str, runs: Mapping[str, RunAudit], features: Sequence[FeatureResult]
) -> MaliciousResult | None:
    """The strongest reading of one link in the malicious training and in this run."""
    if run == attacked_run(job, "hijack").label:
        return _rebuilt(job, run, party, features)
    # The embeddings of a probed epoch are no message of an honest party; what comes back is read alone.
    found = [
        worst_of(leak for leak in runs[name].leaks if (leak.party, leak.message) == (party, "gradient"))
        for name in (run, RunKind.THIS_RUN)
    ]
    worst, curious = found
    if worst is None:
        return None
    return MaliciousResult(
        attack="probing",
        run=run,
        attacker=party,
        party=party,
        secret="labels",  # noqa: S106 - not a password
        metric="leak",
        value=worst.leak,
        low=worst.low,
        high=worst.high,
        reader=worst.attack,
        curious=curious.leak if curious else None,
        curious_reader=curious.attack if curious else "",
    )


def _rebuilt(job: Job, run: str, party: str, features: Sequence[FeatureResult]) -> MaliciousResult | None:
    def best(name: str, attack: str) -> FeatureResult | None:
        known = [
            result
            for result in features
            if (result.run, result.party, result.metric) == (name, party, "r2") and attack in ("", result.attack)
        ]
        return max(known, key=lambda result: -1.0 if result.value is None else result.value, default=None)

    # Whichever attack of this run rebuilds most, also those that know more or other things.
    hijacked, curious = best(run, "inversion"), best(RunKind.THIS_RUN, "")
    if hijacked is None:
        return None
    return MaliciousResult(
        attack="hijack",
        run=run,
        attacker=job.active,
        party=party,
        secret="features",  # noqa: S106 - not a password
        metric="r2",
        value=hijacked.value,
        low=hijacked.low,
        high=hijacked.high,
        reader=hijacked.attack,
        curious=curious.value if curious else None,
        curious_reader=curious.attack if curious else "",
    )
