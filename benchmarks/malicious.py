"""What malicious parties gain on Adult and on MNIST halves, what the guards see of it, and how often they are wrong.

Jobs of `examples/adult.yaml` on 8,000 rows drawn once, in batches of 256, with embeddings of 16 columns; and halves of
4,000 MNIST digits, where `data/mnist/mnist.npz` is in the current folder, with perceptrons of 32 columns. All parties
have guards that go on after an alarm. Each attack is measured as the audit does: a hijack by `inversion` of the last
recorded epoch, of the rows whose features the attacker does not know; probing by the attacks `READERS`. The attacker
has no protection.

- `hijacks`: by strength, and by the protection of the victim; the curious values are of the honest training.
- `probes`: by the spread that remains, and by the protection of the label owner.
- `whole_runs`: probing as an audit runs it, read by `WHOLE_READERS` too, which use the messages of all epochs.
- `honest`: trainings without an attack, for false alarms: seeds 1 to 20 for each protection, 1 to 10 on digits.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet

from benchmarks.adult import adult_job, scratch_keys
from cutlayer.attacks.feature.inversion import Inversion
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Auxiliary, Knowledge
from cutlayer.attacks.malicious.base import Tampering
from cutlayer.attacks.malicious.hijack import Hijack
from cutlayer.attacks.malicious.probing import Probing
from cutlayer.audit.features import release_cases
from cutlayer.audit.features.measures import Case, measure_reconstruction
from cutlayer.audit.watch import Watcher
from cutlayer.channel.transcript import read_epochs
from cutlayer.config import Job, validated
from cutlayer.config.guard import Alarm
from cutlayer.data.store import Store
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.results.audit import RunAudit
from cutlayer.results.malicious import MaliciousResult
from cutlayer.training.attacked import auxiliary_indices, known_rows
from cutlayer.training.folder import RunFolder
from cutlayer.training.tables import open_table
from cutlayer.training.together import train_together
from studies.datasets import ADULT_TABLE
from studies.image_halves import ImageHalves

ROWS, EPOCHS, BATCH, WIDTH = 8_000, 6, 256, 16
HONEST_ROWS = 4_000
HONEST_SEEDS = {"adult": 20, "mnist halves": 10}
READERS = ("norm", "direction", "spectral", "joint_spectral", "off_norm", "mixture")
WHOLE_READERS = ("mean_gradient", "sign_changes")
STRENGTHS, SPREADS = (1.0, 0.25), (0.0, 0.6)
OF_LABELS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "max_norm": {"max_norm": {}},
    "marvell 0.16": {"marvell": {"sum_kl": 0.16}},
    "iso_noise 12": {"iso_noise": {"ratio": 12}},
    "label_dp 1": {"label_dp": {"eps": 1.0}},
}
OF_FEATURES: Mapping[str, Mapping[str, Any]] = {
    "dp_embedding 8": {"dp_embedding": {"clip": 1.0, "epsilon": 8.0, "delta": 1e-5}},
}
DATA = Path("data")
MNIST = ImageHalves("mnist", "mnist/mnist.npz", {"kind": "mlp", "hidden": [64, 32]}, EPOCHS, BATCH, rows=4_000)
ADULT, HALVES = "adult", "mnist halves"


@dataclass(frozen=True)
class Hijacked:
    """A hijack of all partners, read at the first of them; values are means over the seeds.

    Attributes:
        table: `adult` or `mnist halves`.
        defence: Protection of the partner.
        strength: Strength of the hijack.
        party: The partner.
        curious: R² of `inversion` in the honest training.
        malicious: R² of `inversion` in the hijacked training.
        curious_first: R² of `inversion` of the first epoch's embeddings in the honest training.
        malicious_first: The same in the hijacked training: about what has leaked when the alarm is raised.
        alarms: Number of trainings with an alarm.
        first: Largest number of steps until the alarm, in those trainings; `None` without any.
        metric_lost: Headline metric of the honest model minus that of the hijacked one.
    """

    table: str
    defence: str
    strength: float
    party: str
    curious: float
    malicious: float
    curious_first: float
    malicious_first: float
    alarms: int
    first: int | None
    metric_lost: float


@dataclass(frozen=True)
class Probed:
    """Probing by one partner; values are means over the seeds.

    Attributes:
        defence: Protection of the label owner.
        spread: Part of the distances that remains.
        party: The partner.
        curious: Leak of its gradients in the honest training.
        malicious: Leak of its gradients in the probed training.
        alarms: Number of trainings with an alarm about it.
        metric_lost: Headline metric of the honest model minus that of the probed one.
    """

    defence: str
    spread: float
    party: str
    curious: float
    malicious: float
    alarms: int
    metric_lost: float


@dataclass(frozen=True)
class WholeRun:
    """Probing with a spread of 0, read over the whole run; values are means over the seeds.

    Attributes:
        defence: Protection of the label owner.
        party: The partner.
        curious: Leak of its gradients in the honest training, to the strongest reader.
        malicious: The same in the probed training.
    """

    defence: str
    party: str
    curious: float
    malicious: float


@dataclass(frozen=True)
class Honest:
    """Honest trainings with guards at all parties.

    Attributes:
        table: `adult` or `mnist halves`.
        defence: Protection of the label owner.
        trainings: Number of trainings.
        alarms: Number of those with an alarm.
    """

    table: str
    defence: str
    trainings: int
    alarms: int


@dataclass(frozen=True)
class Malicious:
    """All trainings."""

    name: str
    seeds: int
    hijacks: tuple[Hijacked, ...]
    probes: tuple[Probed, ...]
    whole_runs: tuple[WholeRun, ...]
    honest: tuple[Honest, ...]


@dataclass(frozen=True)
class Outcome:
    """One training.

    Attributes:
        metric: Headline metric.
        alarms: What the guards saw.
        steps: Steps of an epoch.
        audit: Attacks on labels.
        rebuilt: R² of `inversion` of the first partner in the last epoch, by name; empty unless it was asked for.
        rebuilt_first: The same in the first epoch.
    """

    metric: float
    alarms: Sequence[Alarm]
    steps: int
    audit: RunAudit | None
    rebuilt: Mapping[str, float]
    rebuilt_first: Mapping[str, float]

    def steps_until(self, party: str, peer: str) -> int | None:
        """Number of steps until the first alarm of a party about a peer."""
        seen = [alarm for alarm in self.alarms if (alarm.party, alarm.peer) == (party, peer)]
        return seen[0].epoch * self.steps + seen[0].step + 1 if seen else None


def malicious(seeds: int) -> Malicious:
    """Train everything with the seeds 1, 2, ..."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*as in an honest training")
        tables = (ADULT, HALVES) if (DATA / MNIST.path).exists() else (ADULT,)
        hijacks = [row for table in tables for row in _hijacks(table, seeds)]
        probed, whole = _probes(seeds), _whole_runs(seeds)
        return Malicious("malicious", seeds, tuple(hijacks), tuple(probed), tuple(whole), tuple(_honest(tables)))


def _hijacks(table: str, seeds: int) -> list[Hijacked]:
    settings = [("none", strength) for strength in STRENGTHS]
    if table == ADULT:
        settings += [(defence, 1.0) for defence in OF_FEATURES]
    rows = []
    honest: dict[tuple[str, int], Outcome] = {}
    for defence, strength in settings:
        made = []
        for seed in range(1, seeds + 1):
            job = _job(table, seed, victims=OF_FEATURES.get(defence, {}))
            if (defence, seed) not in honest:
                honest[defence, seed] = _trained(job, table, reads_features=True)
            made.append((honest[defence, seed], _trained(job, table, strength=strength, reads_features=True)))
        for party in job.passives[:1]:
            until = [attacked.steps_until(party, job.active) for _, attacked in made]
            seen = [step for step in until if step is not None]
            rows.append(
                Hijacked(
                    table, defence, strength, party,
                    statistics.mean(curious.rebuilt[party] for curious, _ in made),
                    statistics.mean(attacked.rebuilt[party] for _, attacked in made),
                    statistics.mean(curious.rebuilt_first[party] for curious, _ in made),
                    statistics.mean(attacked.rebuilt_first[party] for _, attacked in made),
                    len(seen), max(seen, default=None),
                    statistics.mean(curious.metric - attacked.metric for curious, attacked in made),
                )
            )  # fmt: skip
    return rows


def _probes(seeds: int) -> list[Probed]:
    rows = []
    for defence, privacy in OF_LABELS.items():
        jobs = [_job(ADULT, seed, privacy=privacy, attacks=READERS) for seed in range(1, seeds + 1)]
        honest = [_trained(job, ADULT) for job in jobs]
        for spread in SPREADS:
            probed = [_trained(job, ADULT, spread=spread) for job in jobs]
            rows += [_probed(defence, spread, party, honest, probed, jobs[0].active) for party in jobs[0].passives]
    return rows


def _probed(
    defence: str, spread: float, party: str, honest: Sequence[Outcome], probed: Sequence[Outcome], active: str
) -> Probed:
    return Probed(
        defence=defence,
        spread=spread,
        party=party,
        curious=statistics.mean(_leak(each, party) for each in honest),
        malicious=statistics.mean(_leak(each, party) for each in probed),
        alarms=sum(each.steps_until(active, party) is not None for each in probed),
        metric_lost=statistics.mean(a.metric - b.metric for a, b in zip(honest, probed, strict=True)),
    )


def _whole_runs(seeds: int) -> list[WholeRun]:
    rows = []
    for defence, privacy in OF_LABELS.items():
        made = [
            _audited(_job(ADULT, seed, privacy=privacy, attacks=(*READERS, *WHOLE_READERS)))
            for seed in range(1, seeds + 1)
        ]
        for index, first in enumerate(made[0]):
            results = [each[index] for each in made]
            curious, malicious = (
                statistics.mean(value or 0.5 for value in values)
                for values in ([r.curious for r in results], [r.value for r in results])
            )
            rows.append(WholeRun(defence, first.party, curious, malicious))
    return rows


def _audited(job: Job) -> tuple[MaliciousResult, ...]:
    """What the audit of a job with probing says, by partner."""
    raw = job.model_dump()
    raw["parties"][job.active]["audit"]["malicious"] = ["probing"]
    with scratch_keys(f"malicious {job.train.seed}") as (scratch, keys):
        asked = validated(Job, raw, ADULT)
        return execute(
            asked, scratch / "run", Options(keys, tables=_tables(job, ADULT, ROWS)), Progress()
        ).audit.malicious


def _honest(tables: Sequence[str]) -> list[Honest]:
    rows = []
    for table in tables:
        for defence, privacy in OF_LABELS.items() if table == ADULT else (("none", {}),):
            seeds = range(1, HONEST_SEEDS[table] + 1)
            made = [_trained(_job(table, seed, privacy=privacy, audited=False), table, HONEST_ROWS) for seed in seeds]
            rows.append(Honest(table, defence, len(made), sum(bool(each.alarms) for each in made)))
    return rows


def _leak(outcome: Outcome, party: str) -> float:
    assert outcome.audit is not None
    return max(leak.leak for leak in outcome.audit.leaks if (leak.party, leak.message) == (party, "gradient"))


def _job(
    table: str,
    seed: int,
    *,
    privacy: Mapping[str, Any] | None = None,
    victims: Mapping[str, Any] | None = None,
    attacks: Sequence[str] = (),
    audited: bool = True,
) -> Job:
    audit = {"layers": False, "collusion": False, "attacks": attacks} if audited else {"every": "never"}
    if table == ADULT:
        made = adult_job(privacy or {}, audit, epochs=EPOCHS, batch_size=BATCH, seed=seed, keep="last")
        raw = made.model_dump()
        raw["model"]["bottom"]["hidden"] = [64, WIDTH]
    else:
        raw = MNIST.job(seed, privacy or {}).model_dump()
        raw["parties"]["left"]["audit"] = audit
        raw["train"] |= {"keep": "last", "early_stop": None}
    for party in raw["parties"].values():
        if not (victims and party["role"] == "passive"):  # a guard is refused beside noise on embeddings
            party["guard"] = {"on_alarm": "warn", "classes": 2 if table == ADULT else 10}
        if party["role"] == "passive":
            party |= {"privacy": dict(victims or {}), "audit": {"attacks": (), "every": audit.get("every", "epoch")}}
    return validated(Job, raw | {"compare": []}, table)


def _tables(job: Job, table: str, rows: int) -> Mapping[str, pa.Table]:
    if table == HALVES:
        return MNIST.tables(DATA)
    whole = parquet.read_table(ADULT_TABLE)
    chosen = np.sort(np.random.default_rng(0).permutation(len(whole))[:rows])
    return dict.fromkeys(job.parties, whole.take(chosen))


def _trained(
    job: Job,
    table: str,
    rows: int = ROWS,
    *,
    strength: float | None = None,
    spread: float | None = None,
    reads_features: bool = False,
) -> Outcome:
    with scratch_keys(f"malicious {job.train.seed}") as (scratch, keys):
        given = _tables(job, table, rows)
        tables = {name: open_table(job, name, given) for name in job.parties}
        folder = RunFolder.create(scratch / "run", resume=False)
        tampering: dict[str, Tampering] = {}
        if strength is not None:
            tampering[job.active] = Hijack(lambda schedule: known_rows(job, folder, schedule), strength)
        if spread is not None:
            tampering |= {name: Probing(spread) for name in job.passives}
        watcher = Watcher(job, folder, Progress())
        made = train_together(job, folder, tables, keys, watcher, tampering=tampering)
        size = job.train.rows_per_step(len(made.active.split.train))
        alarms = [*made.active.alarms, *(alarm for passive in made.passives.values() for alarm in passive.alarms)]
        return Outcome(
            made.active.metrics[made.active.task.metric],
            alarms,
            -(-len(made.active.split.train) // size),
            watcher.auditor.results("this run", ())
            if watcher.auditor and job.parties[job.active].audit.attacks
            else None,
            *_rebuilt(job, folder, job.passives[:1] if reads_features else ()),
        )


def _rebuilt(job: Job, folder: RunFolder, parties: Sequence[str]) -> tuple[dict[str, float], dict[str, float]]:
    """R² of `inversion` on the last recorded epoch and on the first, by party; the same rows are known in both runs."""
    last, first = {}, {}
    for party in parties:
        case = release_cases(job, folder, folder, party)[0]
        last[party] = _measured(case, party, job.train.seed)
        _, steps = next(read_epochs(folder.transcript(party)))
        rows = torch.cat([step.rows for step in steps])
        sent = torch.cat([step.embeddings[party].flatten(1) for step in steps])
        order = rows.argsort()
        store, indices = Store.open(folder.data(party)), auxiliary_indices(len(rows), job.train.seed)
        rows, sent = rows[order], sent[order]
        known = Auxiliary(store.columns, indices, *store.gather(rows[indices]))
        truth = store.gather(rows[known.unknown(len(rows))])
        view, knowledge = FeatureView(party, rows, sent), Knowledge(auxiliary_rows=known)
        first[party] = _measured(Case("the first epoch", view, knowledge, truth), party, job.train.seed)
    return last, first


def _measured(case: Case, party: str, seed: int) -> float:
    assert not isinstance(case.truth, torch.Tensor)
    about = {"run": "this run", "party": party, "attack": "inversion"} | case.identity()
    made = Inversion()(case.view, case.knowledge, seed)
    return measure_reconstruction(made, case.knowledge.auxiliary, case.truth, about).value or 0.0
