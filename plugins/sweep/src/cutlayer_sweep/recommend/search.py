"""The search: rungs of a sweep over candidates, then the best of the last rung again with fresh seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cutlayer.config import Job
from cutlayer.errors import ConfigError, LimitsNotMet
from cutlayer.jobs.forecast import forecast
from cutlayer.jobs.options import Progress
from cutlayer.problem.task import Task
from cutlayer.storage.durable import make_folder
from cutlayer.training.keys import Keys
from cutlayer_sweep.changes import Value
from cutlayer_sweep.leak_kind import LeakKind
from cutlayer_sweep.measure import check_folder
from cutlayer_sweep.metrics import TrialMetrics
from cutlayer_sweep.recommend.candidates import UNDEFENDED, Candidates
from cutlayer_sweep.recommend.halving import front_of, rungs, sorted_by_nearness, survivors
from cutlayer_sweep.recommend.result import CheckedCandidate, Limits, MeasuredCandidate, Recommendation, names_by_reason
from cutlayer_sweep.result import SweepResult
from cutlayer_sweep.search import identity_of
from cutlayer_sweep.seed_mean import SeedMean, seed_mean_of
from cutlayer_sweep.space import Choices, Point, space_of
from cutlayer_sweep.storage import open_study, without_password

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_FOLLOWED_EARLY = 2048
"""Rows that the audit follows before the last rung, which ranks candidates only."""
MAX_CHECKED = 3
"""Candidates that are trained with fresh seeds before the search gives up."""
_OWN = ("recommend", "rung-", "check-")
_UTILITY, _TEST = "utility", "test"


class SearchRequest(NamedTuple):
    """One search.

    Attributes:
        file: The job file.
        limits: What is asked for.
        out: Folder for the rungs and the result.
        storage: A file or the address of a database; empty takes `recommend.log` in `out`.
        seeds: Number of fresh seeds of the check.
    """

    file: Path
    limits: Limits
    out: Path
    storage: str = ""
    seeds: int = 5


def recommend(request: SearchRequest, keys: Keys, progress: Progress) -> Recommendation:
    """Search protections of a job's labels and columns within limits, or go on with a search.

    The same call on another machine with the same storage shares the work. Every candidate is judged by the whole
    default catalogue of attacks on labels, and by `column_attacks`. Where a theorem states that no message
    depends on a label, the excess is 0, whatever the noise of a measurement. The last rung chooses on validation rows
    with the job's seed; the check uses other seeds and test rows, since the best of many is partly luck.

    Args:
        request: The job, the limits, and where the results go.
        keys: Where secrets come from.
        progress: Shows how far each trial is.

    Raises:
        ConfigError: The job, a limit or the storage is wrong, or every trial failed.
        DataError: The tables are wrong.
        Interrupted: Ctrl-C; the same call goes on.
        LimitsNotMet: No protection fits the job and the guarantee.
    """
    if request.seeds < 2:
        raise ConfigError.expected("--seeds of 2 or more", request.seeds, "an interval needs two")
    check_folder(request.out, "a recommendation", _OWN)
    candidates = Candidates(request.file, request.limits)
    names = list(candidates.by_name)
    if names == [UNDEFENDED]:
        raise LimitsNotMet(f"no protection fits the job and the guarantee: {names_by_reason(candidates.left_out)}")
    forecast(candidates.job({"protection": UNDEFENDED}))
    make_folder(request.out)
    return _Search(request, candidates, keys, progress).run(names)


class _Search:
    """The sweeps of one search, of which the next depends on the results of the last."""

    def __init__(self, request: SearchRequest, candidates: Candidates, keys: Keys, progress: Progress) -> None:
        self.request = request
        self.candidates = candidates
        self.keys = keys
        self.progress = progress
        self.storage = request.storage or str(request.out / "recommend.log")
        self.done: list[tuple[int, SweepResult]] = []

    def run(self, names: Sequence[str]) -> Recommendation:
        limits, base = self.request.limits, self.candidates.base
        measured: Mapping[str, MeasuredCandidate] = {}
        for number, epochs in enumerate(rungs(base.train.step_epochs)):
            if measured:
                names = survivors(measured, limits)
            result = self._sweep(f"rung-{number}", epochs, {"protection": tuple(names)})
            measured = self._single(result)
            if UNDEFENDED not in measured:
                raise ConfigError(f"the undefended job failed: {result.failed[0].reason}")
        nearest = sorted_by_nearness(measured, limits)
        checked = list(self._checks(nearest))
        recommendation = Recommendation(
            job=base.name,
            metric=Task.of(base).metric,
            limits=limits,
            last=measured,
            front=tuple(front_of(measured, limits)),
            nearest=tuple(nearest),
            checked=tuple(checked),
            chosen=next((candidate.name for candidate in checked if candidate.reached), None),
            statements={name: self.candidates.by_name[name].statements for name in measured},
            left_out=dict(self.candidates.left_out),
            trainings=sum(len(result.complete) for _, result in self.done),
            epochs=sum(epochs * len(result.complete) for epochs, result in self.done),
            seconds=sum(metrics.seconds for _, result in self.done for _, metrics in result.complete),
        )
        recommendation.write(self.request.out / "recommend.json")
        return recommendation

    def _checks(self, nearest: Sequence[str]) -> Iterator[CheckedCandidate]:
        """Train the nearest with fresh seeds, then the next, until one holds; give up at the first out of reach."""
        base, limits = self.candidates.base.train, self.request.limits
        seeds = tuple((base.seed + step) % 2**63 for step in range(1, self.request.seeds + 1))
        last = self._single(self.done[-1][1])
        undefended: SweepResult | None = None
        for number, name in enumerate(nearest[:MAX_CHECKED]):
            if number and limits.nearness(last[name])[0] > 0:
                return
            if undefended is None:
                undefended = self._seeds(UNDEFENDED, seeds)
            checked = self._check(name, seeds, self._seeds(name, seeds), undefended)
            yield checked
            if checked.reached:
                return

    def _seeds(self, name: str, seeds: tuple[int, ...]) -> SweepResult:
        epochs = self.candidates.base.train.step_epochs
        return self._sweep("check", epochs, {"protection": (name,), "train.seed": seeds})

    def _sweep(self, stage: str, epochs: int, varied: Mapping[str, tuple[Value, ...]]) -> SweepResult:
        """Run one sweep, or what is left of it, together with other processes.

        Its name states what is varied, so that a search within other limits takes over the sweeps that both need.
        """
        from cutlayer_sweep.shared import SharedTrials
        from cutlayer_sweep.worker import Worker

        base = self.candidates.base
        space = space_of([Choices(path, values) for path, values in varied.items()], base.train.seed)
        folder = f"{stage}-{hashlib.blake2b(repr(space.varied).encode(), digest_size=4).hexdigest()}"
        out = self.request.out / folder
        make_folder(out)
        identity = {**identity_of(base, space, LeakKind.ALL), "--epochs": str(epochs)}
        study = open_study(self.storage, f"cutlayer recommend: {base.name}: {folder}", identity)
        shared = SharedTrials(study, space, space.points or 0)
        followed = MAX_FOLLOWED_EARLY if epochs < base.train.step_epochs else None

        def job(point: Point) -> Job:
            return self.candidates.job({**point, "train.epochs": epochs}, followed)

        result = Worker(base, job, shared, out, self.keys, self.progress, without_password(self.storage)).run()
        self.done.append((epochs, result))
        return result

    def _single(self, result: SweepResult) -> dict[str, MeasuredCandidate]:
        """Each candidate of a rung, on the rows that the search chooses by."""
        metrics = {str(trial.values["protection"]): metrics for trial, metrics in result.complete}
        baseline = metrics.get(UNDEFENDED)
        return {name: self._measured(name, value, baseline, _UTILITY) for name, value in metrics.items()}

    def _measured(
        self, name: str, metrics: TrialMetrics, baseline: TrialMetrics | None, rows: str
    ) -> MeasuredCandidate:
        utility = float(getattr(metrics, rows))
        undefended = utility if baseline is None else float(getattr(baseline, rows))
        excess = 0.0 if self.candidates.by_name[name].adds_nothing else metrics.excess
        return MeasuredCandidate(**asdict(metrics) | {"utility": utility, "excess": excess}, loss=undefended - utility)

    def _check(
        self, name: str, seeds: tuple[int, ...], defended: SweepResult, undefended: SweepResult
    ) -> CheckedCandidate:
        baselines = {trial.values["train.seed"]: metrics for trial, metrics in undefended.complete}
        seeded = ((metrics, baselines.get(trial.values["train.seed"])) for trial, metrics in defended.complete)
        pairs = [self._measured(name, metrics, baseline, _TEST) for metrics, baseline in seeded if baseline]
        if len(pairs) < 2:
            failed = (*defended.failed, *undefended.failed)
            reason = failed[0].reason if failed else "no result"
            raise ConfigError(f"{name} cannot be checked with fresh seeds: {reason}")

        def mean(read: Callable[[MeasuredCandidate], float]) -> SeedMean:
            return seed_mean_of(map(read, pairs)) or SeedMean(0.0, 0.0)

        limits = self.request.limits
        leak, loss = mean(limits.leak), mean(lambda pair: pair.loss)
        rebuilt = mean(lambda pair: pair.columns_read)
        reached = limits.exceeded(leak.value, loss.value, rebuilt.value) == 0
        auc, utility = mean(lambda pair: pair.leak), mean(lambda pair: pair.utility)
        return CheckedCandidate(name, seeds, leak, auc, loss, utility, rebuilt, reached)
