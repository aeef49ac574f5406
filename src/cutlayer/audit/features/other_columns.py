"""What the columns of all other parties tell of a party's features, without any embedding: the control of an attack.

It is the same attack, with the same known rows, on those columns in place of the embeddings. What an embedding adds to
it is what the protocol leaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor

from cutlayer.attacks.feature.base import FeatureAttack, encoded_matrix
from cutlayer.audit.features.measures import Case, measure
from cutlayer.config import Job
from cutlayer.data.store import Store
from cutlayer.errors import Diverged, NotApplicable
from cutlayer.results.features import FeatureResult
from cutlayer.training.folder import RunFolder

Compared = Callable[[FeatureAttack[object], Case, FeatureResult], FeatureResult]


class OtherColumns:
    """Runs attacks on the columns of the other parties; each attack once for the same rows.

    Args:
        job: The job as run.
        folder: Folder of the run that holds the encoded rows.
        party: Owner of the attacked features.
    """

    def __init__(self, job: Job, folder: RunFolder, party: str) -> None:
        paths = [folder.data(name) for name in job.parties if name != party]
        stores = [Store.open(path) for path in paths if (path / "store.json").exists()]
        self._stores = [] if any(store.images is not None for store in stores) else stores
        self._seed = job.train.seed
        self._found: dict[tuple[str, int, int], tuple[FeatureResult, ...]] = {}

    def beside(
        self, results: Iterable[FeatureResult], attack: FeatureAttack[object], case: Case
    ) -> list[FeatureResult]:
        """The results with what the same attack reaches on the other parties' columns."""
        key = attack.name, len(case.view.rows), int(case.view.rows.sum())
        if key not in self._found:
            self._found[key] = self._attacked(attack, case)
        control = self._found[key]
        return [_compared(result, control) for result in results]

    def _attacked(self, attack: FeatureAttack[object], case: Case) -> tuple[FeatureResult, ...]:
        if not self._stores:
            return ()
        view = replace(case.view, embeddings=self._matrix(case.view.rows))
        about = {"run": "", "party": case.view.party, "attack": attack.name}
        try:
            made = attack(view, case.knowledge, self._seed)
            return tuple(measure(made, case, about, self._seed))
        except (NotApplicable, Diverged):
            return ()

    def _matrix(self, rows: Tensor) -> Tensor:
        parts = [encoded_matrix(store.columns, *store.gather(rows)) for store in self._stores]
        return torch.cat(parts, dim=1).float()


def _compared(result: FeatureResult, control: tuple[FeatureResult, ...]) -> FeatureResult:
    """A result with the values of the control, of the same column where it is of one."""
    by_name = {column.column: column.value for part in control for column in part.columns}
    whole = by_name.get(result.column) if result.column else next((part.value for part in control), None)
    columns = [column.model_copy(update={"other_columns": by_name.get(column.column)}) for column in result.columns]
    return result.model_copy(update={"other_columns": whole, "columns": tuple(columns)})
