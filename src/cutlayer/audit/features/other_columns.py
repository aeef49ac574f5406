"""Leak about a party's features from the columns of all other parties, without an embedding: an attack's control.

It is the same attack, with the same known rows, on those columns in place of the embeddings. What an embedding adds to
it is what the protocol leaks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from cutlayer.alignment.held_rows import held_of_run
from cutlayer.attacks.feature.base import FeatureAttack, encoded_matrix
from cutlayer.audit.features.measures import Case, measure
from cutlayer.config import Job
from cutlayer.data.store import Store
from cutlayer.errors import Diverged, NotApplicable
from cutlayer.results.features import FeatureResult
from cutlayer.training.folder import RunFolder
from cutlayer.training.trained import stores_of


class OtherColumns:
    """Runs attacks on the columns of the other parties; each attack once for the same rows.

    Args:
        job: The job as run.
        folder: Folder of the run that holds the encoded rows.
        party: Owner of the attacked features.
    """

    def __init__(self, job: Job, folder: RunFolder, party: str) -> None:
        self._job = job
        self._folder = folder
        self._party = party
        self._held = held_of_run(job, folder.path)
        self._seed = job.train.seed
        self._results: dict[tuple[str, int, int], tuple[FeatureResult, ...]] = {}

    def compared(
        self, results: Iterable[FeatureResult], attack: FeatureAttack[object], case: Case
    ) -> Iterator[FeatureResult]:
        """The results, one by one, with what the same attack reaches on the other parties' columns."""
        key = attack.name, len(case.view.rows), int(case.view.rows.sum())
        if key not in self._results:
            self._results[key] = tuple(self._attacked(attack, case))
        for result in results:
            yield _compared(result, self._results[key])

    @cached_property
    def _stores(self) -> list[Store]:
        """Encoded columns of the other parties that are here; none where one of them has images."""
        stores = stores_of(self._job, self._folder, self._held)
        del stores[self._party]
        return [] if any(store.images is not None for store in stores.values()) else [*stores.values()]

    def _attacked(self, attack: FeatureAttack[object], case: Case) -> Iterator[FeatureResult]:
        if not self._stores:
            return
        view = replace(case.view, embeddings=self._matrix(case.view.rows))
        about = {"run": "", "party": case.view.party, "attack": attack.name}
        with suppress(NotApplicable, Diverged):
            yield from measure(attack(view, case.knowledge, self._seed), case, about)

    def _matrix(self, rows: Tensor) -> Tensor:
        if self._party in self._held.by_party:
            rows = torch.from_numpy(self._held.places(self._party))[rows]
        parts = [encoded_matrix(store.columns, *store.gather(rows)) for store in self._stores]
        return torch.cat(parts, dim=1).float()


def _compared(result: FeatureResult, control: tuple[FeatureResult, ...]) -> FeatureResult:
    """A result with the values of the control, of the same column where it is of one."""
    by_name = {column.column: column.value for part in control for column in part.columns}
    whole = by_name.get(result.column) if result.column else next((part.value for part in control), None)
    columns = [column.model_copy(update={"other_columns": by_name.get(column.column)}) for column in result.columns]
    return result.model_copy(update={"other_columns": whole, "columns": tuple(columns)})
