"""What attacks on a party's features compare with: the same attack without the release, and on the ideal output.

Each is the same attack, with the same known rows, on other input in place of the embeddings. What an embedding adds to
the columns of all other parties is what the protocol leaks. The ideal output is the score of a model of all columns,
which is what a computation that reveals nothing else would hand to the label owner: no protocol reveals less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from cutlayer.alignment.held_rows import PartOfBatch, held_of_run
from cutlayer.attacks.feature.base import FeatureAttack, encoded_matrix
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.audit.features.measures import FeatureCase, measure_feature_attack
from cutlayer.audit.own_columns import MAX_ROWS, predict_from_columns
from cutlayer.config import Job
from cutlayer.config.phases import grades_rows
from cutlayer.data.store import Store
from cutlayer.errors import Diverged, NotApplicable
from cutlayer.parties.session.checkpoint import RELEASED_FILE, Checkpoints
from cutlayer.results.features import FeatureResult
from cutlayer.storage.row_tensors import first_column, rows_of
from cutlayer.training.folder import RunFolder
from cutlayer.training.trained import Run, stores_of

MIN_LOG_PROBABILITY = -20.0
"""Least log probability of a class in a score."""


class OtherColumns:
    """Runs attacks on the columns of the other parties, and on the ideal output; each attack once for the same rows.

    Args:
        job: The job as run.
        folder: Folder of the run that holds the encoded rows.
        party: Owner of the attacked features.
        classes: Classes of the task; `None` where the other parties ran elsewhere.
    """

    def __init__(self, job: Job, folder: RunFolder, party: str, classes: tuple[str, ...] | None) -> None:
        self._job = job
        self._folder = folder
        self._party = party
        self._held = held_of_run(job, folder.path)
        self._run = None if classes is None else Run(job, folder, classes=classes)
        self._results: dict[tuple[str, int, int], tuple[tuple[FeatureResult, ...], ...]] = {}

    def held_with(self, case: FeatureCase) -> FeatureCase:
        """A case in which the attacker also has its own columns, labels and the other parties' releases.

        It is that of a party that releases grades: a grade adds to what is known of a row. Elsewhere, and where the
        attacker's columns are not here, the case as it is. Of several rows of one id it has the mean and the number.
        """
        run, active = self._run, self._job.active
        if run is None or not grades_rows(self._job, self._party) or active not in self._stores:
            return case
        rows, part = self._every(case.view.rows)
        labels = rows_of(first_column(run.truth), rows)
        parts = [functional.one_hot(labels.long(), len(run.task.classes)) if run.task.classes else labels[:, None]]
        parts.append(encoded_matrix(self._stores[active].columns, *self._stores[active].gather(rows)))
        kept = Checkpoints.of_run(self._job, self._folder.path, active).read_state(RELEASED_FILE)
        released = {} if kept is None else kept[0]
        parts += [released[name][rows].nan_to_num(0.0) for name in released if name != self._party]
        own = torch.cat([each.float() for each in parts], dim=1)
        if part is not None and part.owner is not None:
            count = part.summed(torch.ones(len(rows), 1))
            own = torch.cat([part.summed(own) / count, count.log()], dim=1)
        own = own if part is None else own[torch.searchsorted(part.rows, case.view.rows)]
        return replace(case, view=replace(case.view, own=own))

    def _every(self, rows: Tensor) -> tuple[Tensor, PartOfBatch | None]:
        """All rows of the common order that belong to some rows of the party, and which; `None` where they are these.

        Args:
            rows: The party's own numbers, int64 (m,), different.
        """
        if self._party not in self._held.by_party:
            return rows, None
        numbers = torch.from_numpy(self._held.by_party[self._party])
        every = torch.isin(numbers, rows).nonzero().flatten()
        return every, PartOfBatch.of(numbers[every])

    def compared(
        self, results: Iterable[FeatureResult], attack: FeatureAttack[object], case: FeatureCase
    ) -> Iterator[FeatureResult]:
        """The results, one by one, with what the same attack reaches on the other parties' columns.

        Of a party that releases grades also with what it reaches on the ideal output.
        """
        key = attack.name, len(case.view.rows), int(case.view.rows.sum())
        if key not in self._results:
            views = (replace(case.view, embeddings=embeddings) for embeddings in self._inputs(case.view))
            self._results[key] = tuple(tuple(self._attacked(attack, case, view)) for view in views)
        control, *ideal = self._results[key]
        pooled = [(*self._attacked(attack, case, view),) for view in self._pooled(case.view)]
        for result in results:
            compared = _with_control(
                _with_control(result, control, "other_columns"), ideal[0] if ideal else (), "ideal"
            )
            values = {name: _value(result, of) for name, of in zip(("pooled", "pooled_without"), pooled, strict=False)}
            yield compared.model_copy(update=values)

    @cached_property
    def _stores(self) -> dict[str, Store]:
        """Encoded columns of the other parties that are here; none where one of them has images."""
        stores = stores_of(self._job, self._folder, self._held)
        del stores[self._party]
        return {} if any(store.images is not None for store in stores.values()) else stores

    def _inputs(self, view: FeatureView) -> Iterator[Tensor]:
        """What stands for the embeddings: the other parties' columns; or nothing, then the ideal output."""
        rows = self._common(view.rows)
        if view.own is None:
            parts = [encoded_matrix(store.columns, *store.gather(rows)) for store in self._stores.values()]
            yield torch.cat(parts, dim=1).float() if parts else torch.empty(len(rows), 0)
        else:
            yield torch.empty(len(rows), 0)
            yield self._ideal(rows)

    def _pooled(self, view: FeatureView) -> Iterator[FeatureView]:
        """What the label owner holds together with all other partners: with the party's grades, and without them."""
        job = self._job
        partners = [store for name, store in self._stores.items() if name != job.active]
        if view.own is None or not partners or not job.parties[job.active].audit.collusion:
            return
        rows = self._common(view.rows)
        theirs = [encoded_matrix(store.columns, *store.gather(rows)).float() for store in partners]
        pooled = replace(view, own=torch.cat([view.own, *theirs], dim=1))
        yield from (pooled, replace(pooled, embeddings=view.embeddings[:, :0]))

    def _attacked(self, attack: FeatureAttack[object], case: FeatureCase, view: FeatureView) -> Iterator[FeatureResult]:
        if not self._stores:
            return
        about = {"run": "", "party": case.view.party, "attack": attack.name}
        with suppress(NotApplicable, Diverged):
            yield from measure_feature_attack(attack(view, case.knowledge, self._job.train.seed), case, about)

    def _ideal(self, rows: Tensor) -> Tensor:
        """Scores of rows of the common order by a model of all columns that did not see them, float32 (n, scores)."""
        run = self._run
        if run is None:
            return torch.empty(len(rows), 0)
        others = run.training[~torch.isin(run.training, rows)]
        fitted = torch.cat([rows, others])[:MAX_ROWS]
        classes = 2 if run.task.kind == "binary" else len(run.task.classes)
        stores = [run.stores[name] for name in run.job.parties if name in run.stores]
        ids = self._held.shared_numbers([self._party])
        model = predict_from_columns(stores, fitted, run.leak_labels, classes, run.job.train.seed, ids=ids)
        order = model.rows.argsort()
        scores = model.scores[order[torch.searchsorted(model.rows[order], rows)]].clamp_min(MIN_LOG_PROBABILITY)
        return (scores[:, 1:] - scores[:, :1] if classes == 2 else scores).float()

    def _common(self, rows: Tensor) -> Tensor:
        """Numbers in the common order of rows of the party, int64 (n,)."""
        if self._party in self._held.by_party:
            return torch.from_numpy(self._held.places(self._party))[rows]
        return rows


def _with_control(result: FeatureResult, control: tuple[FeatureResult, ...], name: str) -> FeatureResult:
    """A result with the values of a control, of the same column where it is of one, as the attribute of this name."""
    by_name = _by_column(result, control)
    columns = [column.model_copy(update={name: by_name.get(column.column)}) for column in result.columns]
    return result.model_copy(update={name: _value(result, control), "columns": tuple(columns)})


def _value(result: FeatureResult, control: tuple[FeatureResult, ...]) -> float | None:
    """The value of a control that a result compares with: of its column, if it is of one."""
    if result.column:
        return _by_column(result, control).get(result.column)
    return next((part.value for part in control if part.metric == result.metric), None)


def _by_column(result: FeatureResult, control: tuple[FeatureResult, ...]) -> dict[str, float | None]:
    same = (part for part in control if part.metric == result.metric)
    return {column.column: column.value for part in same for column in part.columns}
