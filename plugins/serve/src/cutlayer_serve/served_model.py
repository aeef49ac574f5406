"""A served version: the active party's part of a run, and the answers of its top model with some parties absent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.config import IdConfig, ServeConfig
from cutlayer.config.ids import Rule
from cutlayer.config.serve import AbsentAnswer
from cutlayer.data.forgotten import ForgottenRows
from cutlayer.data.id_index import ABSENT
from cutlayer.data.ids import Digests
from cutlayer.errors import ConfigError, DataError
from cutlayer.kernels.rows.patterns import distinct_rows
from cutlayer.models import TopModel
from cutlayer.models.multi_head import MultiHeadTop
from cutlayer.results.departure import AbsenceUtility
from cutlayer.serving.given_columns import request_table
from cutlayer.serving.party_drift import PartyDrift
from cutlayer_serve.features import FeatureStore, is_forgotten_by
from cutlayer_serve.trained_party import TrainedParty

Columns = tuple[Tensor, Tensor]


class Subset(NamedTuple):
    """Parties that contributed to an answer.

    Attributes:
        contributed: Names of the parties, in the job's order.
        utility: The run's held-out metrics with just these; `None` where they were not measured.
    """

    contributed: tuple[str, ...]
    utility: AbsenceUtility | None


class ServedModel:
    """The active party's part of a run, ready to answer.

    Args:
        trained: The party's part of the run.
        config: Settings of the service.
        forgotten: Rows that the party has forgotten, also while it serves: nobody is asked for them.

    Attributes:
        described: What answers say about combinations of statuses, by a byte for each party.

    Raises:
        ConfigError: The settings do not fit the model, or a party is unknown.
        DataError: The party's own table cannot be read.
    """

    def __init__(self, trained: TrainedParty, config: ServeConfig, forgotten: ForgottenRows | None = None) -> None:
        self.trained, self.task, self.top = trained, trained.model.task, trained.model.top_model
        self.active, widths = trained.job.active, trained.model.record.widths
        self.parties = tuple(widths)
        self.passive_indices = tuple((i, name) for i, name in enumerate(self.parties) if name != self.active)
        self.passives = tuple(name for _, name in self.passive_indices)
        self.widths = dict(widths)
        self.tags = {name: trained.tag(name) for name in self.passives}
        if trained.job.parties[self.active].partner_ids:
            raise ConfigError.expected("one id for all partners, to serve", "partner_ids", "use cutlayer predict")
        self.id_rule = _checked_rule(trained.job.parties[self.active].id)
        self.absent = _checked_absent(config.absent, self.top, self.active in self.parties)
        self.required = _checked_required(config.required, self.passives)
        self.version = blake2b(
            repr(sorted(self.tags.items())).encode(), digest_size=6, person=b"served run"
        ).hexdigest()
        self.bottom = trained.model.bottom
        self.features = None
        if trained.model.encoder is not None:
            encoder = trained.model.encoder
            self.features = FeatureStore.read(
                trained.job, self.active, config.table, encoder, forgotten, by_number=True
            )
        self._gone = is_forgotten_by(trained.job, self.active, forgotten)
        self.drift = PartyDrift.of(trained.job, trained.folder, trained.party)
        self.described: dict[bytes, Mapping[str, Any]] = {}
        recorded = {name: trained.sample(name, config.sample_rows) for name in self.passives}
        self.samples = {name: sample for name, sample in recorded.items() if sample is not None}

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the classes; empty for a regression."""
        return self.task.classes

    def known(self, ids: Sequence[str | int]) -> tuple[Digests, npt.NDArray[np.int64]] | None:
        """Digests and row numbers of ids as a caller wrote them, where all are known whole numbers (`NumberIndex`)."""
        numbers = None if self.features is None else self.features.numbers
        return None if numbers is None else numbers.find(ids)

    def gone(self, ids: Digests) -> npt.NDArray[np.bool_]:
        """Whether each of some ids, uint8 (n, 16), was forgotten, (n,).

        Raises:
            RunFolderError: The run was.
        """
        self.trained.check_remembered()
        return self._gone(ids)

    def find(self, ids: Digests) -> npt.NDArray[np.int64]:
        """Row numbers of ids in the active party's own store, `ABSENT` where it has none or no features."""
        if self.features is None:
            return np.full(len(ids), ABSENT, dtype=np.int64)
        return self.features.find(ids)

    def own_columns(self, rows: npt.NDArray[np.int64]) -> Columns:
        """The active party's own columns of rows of its store; zeros for `ABSENT`, to be replaced by those given."""
        if self.features is None:
            raise ConfigError(f"{self.active} has no features")
        return self.features.gather(np.maximum(rows, 0))

    def encoded(self, columns: Mapping[str, Sequence[Any]]) -> Columns:
        """Columns that a caller gave, encoded as in the run.

        Args:
            columns: Values by column, as many of each.

        Raises:
            DataError: A column is missing or unknown, or its values are not of the column's kind.
        """
        encoder = self.trained.model.encoder
        if encoder is None:
            raise DataError.expected(f"no columns: {self.active} has no features in this run", "some", "leave them out")
        unknown = sorted(columns.keys() - {*encoder.names})
        missing = sorted({*encoder.names} - columns.keys())
        if unknown or missing:
            got = "; ".join(
                f"{what} {', '.join(names[:5])}"
                for what, names in (("unknown", unknown), ("none of", missing))
                if names
            )
            raise DataError.expected(f"the columns of {self.active} in this run", got, "GET /v1/schema lists them")
        encoded = encoder.transform(request_table(encoder, columns), "columns")
        return torch.from_numpy(encoded.codes), torch.from_numpy(encoded.numbers)

    def embed(self, columns: Columns) -> Tensor:
        """The active party's own embedding (n, width)."""
        if self.bottom is None:
            raise ConfigError(f"{self.active} has no features")
        with torch.inference_mode():
            return self.bottom(*columns)

    def answer(self, embeddings: Mapping[str, Tensor], present: npt.NDArray[np.bool_]) -> Tensor:
        """Predictions of rows, each from its own present parties.

        Args:
            embeddings: Embeddings by party in the job's order, (n, width); zeros where a party is absent.
            present: Whether each party contributes to each row, (n, parties), as `effective` returns it.

        Returns:
            Probabilities (n, classes), or values (n,) of a regression, float64.
        """
        with torch.inference_mode():
            if present.all():
                return self.task.predict(self.top(embeddings).double())
            logits = torch.zeros(len(present), self.task.outputs)
            for pattern, indices in distinct_rows(present):
                rows = torch.from_numpy(indices)
                logits[rows] = self._logits({name: e[rows] for name, e in embeddings.items()}, pattern)
            return self.task.predict(logits.double())

    def effective(self, present: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """The parties that contribute, (n, parties): under `active_only` the active party alone where one is absent."""
        if self.absent != "active_only":
            return present
        alone = np.array([name == self.active for name in self.parties])
        return np.where(present.all(axis=1, keepdims=True), present, present & alone)

    def subset(self, pattern: npt.NDArray[np.bool_]) -> Subset:
        """The contributing parties of a pattern (parties,), and the utility that the run measured with them."""
        contributed = tuple(name for name, here in zip(self.parties, pattern, strict=True) if here)
        absent = frozenset(name for name in self.passives if name not in contributed)
        known = self.active in contributed or self.active not in self.parties
        return Subset(contributed, self.trained.utility.get(absent) if known else None)

    def _logits(self, embeddings: Mapping[str, Tensor], pattern: npt.NDArray[np.bool_]) -> Tensor:
        if pattern.all():
            return self.top(embeddings)
        present = {name for name, here in zip(self.parties, pattern, strict=True) if here}
        if self.absent == "zeros":
            return TopModel.answer(self.top, embeddings, present)
        return self.top.answer(embeddings, present)


def _checked_rule(ids: IdConfig | None) -> Rule:
    """The normal form of the ids that callers send.

    Raises:
        ConfigError: Ids are of several columns, which a request cannot name.
    """
    if ids is None:
        return "strip"
    if len(ids.columns) > 1:
        raise ConfigError.expected("an id of one column", ", ".join(ids.columns), "join the columns in the tables")
    return ids.rules[0]


def _checked_absent(wanted: AbsentAnswer, top: TopModel, has_features: bool) -> AbsentAnswer:
    if wanted == "multi_head" and not isinstance(top, MultiHeadTop):
        raise ConfigError.expected("serve.absent: multi_head with a multi_head model", "another", "write absent: zeros")
    if wanted == "active_only" and not has_features:
        raise ConfigError.expected("serve.absent: active_only where the active party has features", "it has none")
    return wanted


def _checked_required(names: tuple[str, ...], passives: tuple[str, ...]) -> frozenset[str]:
    unknown = [name for name in names if name not in passives]
    if unknown:
        raise ConfigError.expected(f"serve.required among {', '.join(passives)}", ", ".join(unknown))
    return frozenset(names)
