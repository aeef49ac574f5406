"""A party's part of a run, opened in a worker, and what it makes of a batch of rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from cutlayer.channel import Kind
from cutlayer.config import Job
from cutlayer.config.load import load_closed_job
from cutlayer.config.phases import grades_rows
from cutlayer.data.forgotten import FORGOTTEN_REASON
from cutlayer.data.ids import Digests, digests_of, id_texts
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import ConfigError, DataError, RunFolderError
from cutlayer.kernels.rows.grade_columns import columns_of_grades, grades_of_columns
from cutlayer.models.grade import GradeBottom
from cutlayer.parties.guards.numbers import check_own
from cutlayer.parties.session.local import EVALUATION_ROWS
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.contract.views import Mode, PassiveView
from cutlayer.protections.grade_dp import GradeDP
from cutlayer.results.scores import ScoreWriter, score_columns, score_schema, scores_of
from cutlayer.serving.given_columns import release_columns
from cutlayer.serving.models import PartyModel, RowEmbedder
from cutlayer.serving.new_rows import new_table
from cutlayer.serving.prediction_release import set_up_releases
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import forgotten_rows, read_key
from cutlayer.training.model_record import ModelRecord
from cutlayer.training.process import run_threads
from cutlayer.training.run_ledger import chain_of

ID = "id"
RELEASE_ID = "release_id"
BLOCK_ROWS = EVALUATION_ROWS
"""Rows that a model is always run on, where few are left repeated ones: last bits may depend on their number.

It is the batch of `cutlayer release` and `cutlayer predict`.
"""


def part_at(run: Path, party: str) -> tuple[Job, RunFolder, PartyModel]:
    """A party's part of the run in a folder, with its job.

    Raises:
        ConfigError: No party has the name.
        RunFolderError: The folder does not have its part of a finished run.
    """
    folder = RunFolder.open(run)
    job = load_closed_job(run / "job.yaml")
    if party not in job.parties:
        raise ConfigError.expected(f"one of the parties {', '.join(job.parties)}", repr(party)[:80])
    return job, folder, PartyModel.load(job, folder, party)


@dataclass(frozen=True, eq=False)
class OwnPart:
    """A party's part of a run; what it makes of a batch is the batch with the ids by which rows are compared.

    Attributes:
        job: Job of the run.
        folder: Run folder.
        model: The party's part of the model.
    """

    job: Job
    folder: RunFolder
    model: PartyModel

    @classmethod
    def open(cls, run: Path, party: str, training: str, *rest: object) -> Self:
        """Open a run folder.

        Args:
            run: Path of the folder.
            party: Name of the party.
            training: Id of the training that it must be of.
            rest: Further arguments of the class.

        Raises:
            ConfigError: Rows are identified by their numbers, by several keys, or for each partner.
            RunFolderError: It is of another training.
        """
        job, folder, model = part_at(run, party)
        if model.record.training != training:
            got = f"training {model.record.training}"
            raise RunFolderError.expected(f"training {training} in {run}", got, "make the function again")
        ids = job.parties[party].id
        if ids is None or len(ids.keys) > 1 or "@row" in ids.columns:
            got = "row numbers" if ids is None or len(ids.keys) == 1 else "several keys"
            raise ConfigError.expected("an id column, by which rows of a batch are known", got, "use cutlayer predict")
        if job.parties[party].partner_ids:
            raise ConfigError.expected("one id for all partners, in batches", "partner_ids", "use cutlayer predict")
        return cls(job, folder, model, *rest)

    @property
    def name(self) -> str:
        """Name of the party."""
        return self.model.record.party

    @property
    def record(self) -> ModelRecord:
        """Record of the training."""
        return self.model.record

    @property
    def schema(self) -> pa.Schema:
        """Columns that it adds."""
        return pa.schema([pa.field(RELEASE_ID, pa.string(), nullable=False)])

    def texts(self, rows: pa.Table) -> pa.Array:
        """The ids by which rows are compared, `string` (n,)."""
        ids = self.job.parties[self.name].id
        if ids is None:
            raise ConfigError.expected("an id column", "none")
        missing = [name for name in ids.columns if name not in rows.column_names]
        if missing:
            raise DataError.expected(f"{self._where}: the column {missing[0]!r} of the id", "a batch without it")
        return pc.cast(id_texts(rows, ids, self._where), pa.string()).combine_chunks()

    def apply(self, rows: pa.Table) -> pa.Table:
        """What it makes of a batch."""
        return rows.append_column(self.schema.field(0), self.texts(rows))

    @property
    def _where(self) -> str:
        return f"a batch of {self.name}"

    @property
    def _limit(self) -> float:
        """Bound on the numbers that the party sends and accepts."""
        return self.job.parties[self.name].limits.embedding_norm

    def remaining(self, rows: pa.Table) -> pa.Table:
        """A batch without the rows that the party has forgotten.

        Warns:
            UserWarning: There are some.
        """
        forgotten, ids = forgotten_rows(self.folder.path, self.name), self.job.parties[self.name].id
        if forgotten is None or ids is None or not forgotten.path.exists():
            return rows
        gone = forgotten.contains(digests_of(pa.chunked_array([self.texts(rows)])), ids.rule)
        if gone.any():
            warnings.warn(f"{self._where}: {gone.sum():,} rows {FORGOTTEN_REASON} are left out", stacklevel=2)
        return rows.filter(pa.array(~gone))

    def table(self, rows: pa.Table) -> PartyTable:
        """A batch as a table, read as that of a prediction."""
        return new_table(self.name, rows, self.job.parties[self.name].id, self.model.encoder)


@dataclass(frozen=True, eq=False)
class ReleasingPart(OwnPart):
    """Releases the rows of a batch.

    Attributes:
        key: Path of the key that replaced those of the run; `None` for a run with its own.
    """

    key: str | None = None

    @classmethod
    def open(cls, run: Path, party: str, training: str, *rest: object) -> Self:
        """Open a run folder; see `OwnPart.open`.

        Raises:
            ConfigError: The party has the labels, or a release depends on more than its row.
        """
        part = super().open(run, party, training, *rest)
        if party == part.job.active:
            raise ConfigError.expected(
                "a passive party", f"{party}, which has the labels", "see cutlayer_batches.predictor"
            )
        acting = [each.name for each in chain_of(part.job, party).protections if each.acts_at("embedding_out")]
        if part.graded:
            acting = [name for name in acting if name != GradeDP.name]
        if acting:
            remedy = "use cutlayer release --run, which counts each prediction, or grades (fit.kind: grade)"
            wanted = f"releases of {party} that depend on the row alone"
            raise ConfigError.expected(wanted, f"{acting[0]}, which draws noise for each prediction", remedy)
        part.chain  # noqa: B018 - so that a key that is missing is an error before workers start
        return part

    @cached_property
    def graded(self) -> bool:
        """Whether a release is a grade."""
        return grades_rows(self.job, self.name)

    @cached_property
    def chain(self) -> Chain:
        """The party's protections, as they were at the end of the run."""
        return self.chain_that(counted=None)

    def chain_that(self, *, counted: bool | None) -> Chain:
        """The party's protections, as they were at the end of the run; see `set_up_releases`."""
        chain = chain_of(self.job, self.name)
        supplied = None if self.key is None else read_key(Path(self.key))
        width = self.model.bottom_model.width
        set_up_releases(self.job, self.folder, self.name, chain, width, supplied, counted=counted)
        return chain

    @property
    def schema(self) -> pa.Schema:
        """Columns of a release."""
        width = self.model.bottom_model.width
        return pa.schema([pa.field(ID, pa.string(), nullable=False), *release_fields(self.job, self.name, width)])

    def apply(self, rows: pa.Table) -> pa.Table:
        """Release every row; see `releaser`."""
        rows = self.remaining(rows)
        if not rows.num_rows:
            return self.schema.empty_table()
        texts, table = self.texts(rows), self.table(rows)
        store, digests = table.encode_all(), table.grade_digests(table.digests) if self.graded else table.digests
        if store.rows != len(texts):  # a rule left rows out, and texts are those of the batch
            raise DataError.expected(f"{self._where}: every id once", f"{len(texts) - store.rows:,} rows left out")
        embed, limit = RowEmbedder(self.model.bottom_model, store, digests), self._limit
        released = torch.empty(store.rows, self.model.bottom_model.width)
        with _one_thread():
            for number, (block, count) in enumerate(blocks_of(self._folds(digests))):
                embedding, own = embed(block)[:count].flatten(1), block[:count]
                check_own(embedding, limit, self.name, "release of a batch")
                view = PassiveView(Mode.SERVE, 0, number, own, embed, ids=embed.ids)
                released[own] = sent = self.chain.embedding_out(embedding, view)
                self.chain.sending(Kind.EVALUATION, self.job.active, sent)  # which checks that protections acted
        if self.graded:
            columns = [pa.array(grades_of_columns(released).numpy().astype(np.int8))]
        else:
            columns = [pa.array(column) for column in np.ascontiguousarray(released.numpy().T)]
        return pa.table([texts, *columns], schema=self.schema)

    def _folds(self, digests: Digests) -> Tensor:
        """What divides rows before they are embedded, int64 (n,): a grade is of one model of several, by its fold."""
        bottom = self.model.bottom_model
        if not isinstance(bottom, GradeBottom):
            return torch.zeros(len(digests), dtype=torch.int64)
        return bottom.folds(torch.from_numpy(digests), len(bottom.heads))


@dataclass(frozen=True, eq=False)
class PredictingPart(OwnPart):
    """Predicts the rows of a batch.

    Attributes:
        released: Columns of the release of each partner, by its name in the job's order.
    """

    released: Mapping[str, tuple[pa.Field, ...]] = field(default_factory=dict)

    @classmethod
    def open(cls, run: Path, party: str, training: str, *rest: object) -> Self:
        """Open a run folder; see `OwnPart.open`.

        Raises:
            ConfigError: The party is a passive one, or one of its columns has the name of a column of a release.
        """
        part = super().open(run, party, training, *rest)
        if party != part.job.active:
            raise ConfigError.expected(f"the label owner {part.job.active}", party, "see cutlayer_batches.releaser")
        widths = {name: width for name, width in part.record.widths.items() if name != party}
        released = {name: release_fields(part.job, name, width) for name, width in widths.items()}
        encoder = part.model.encoder
        names = {each.name for fields in released.values() for each in fields}
        if encoder is not None and (both := names.intersection(encoder.names)):
            raise ConfigError.expected(f"columns of {party} that no release has", min(both), "rename it, and train")
        return cls(part.job, part.folder, part.model, released)

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of predictions, with ids as text; those of a batch have the ids of its table."""
        return score_schema(score_columns(self.model.task), pa.string(), lists=False)

    def apply(self, rows: pa.Table) -> pa.Table:
        """Predict every row; see `predictor`."""
        rows = self.remaining(rows)
        if not rows.num_rows:
            return self.schema.empty_table()
        table = self.table(rows)
        ids = table.ids(np.arange(table.rows))
        if table.rows != rows.num_rows:
            got = f"{rows.num_rows - table.rows:,} rows left out"
            raise DataError.expected(f"{self._where}: rows that are all predicted", got)
        sent = {name: self._sent(name, rows) for name in self.released}
        lacking = {name: columns[:, 0].isnan() for name, columns in sent.items()}
        if not self.job.fits_top:
            sent = {name: columns.nan_to_num(0.0) for name, columns in sent.items()}
        own = None if self.model.bottom is None else RowEmbedder(self.model.bottom, table.encode_all())
        scores = np.empty((rows.num_rows, len(score_columns(self.model.task))))
        with _one_thread():
            pattern = torch.zeros(rows.num_rows, dtype=torch.int64)
            for bit, mask in enumerate(lacking.values()):
                pattern += mask.long() << bit
            for block, count in blocks_of(pattern):
                # Of whole blocks too: an exponential of the last few numbers of an array may have another last bit.
                scores[block[:count]] = scores_of(self.model.task, self._logits(block, sent, lacking, own))[:count]
        present = {name: ~lacking[name].numpy() if name in lacking else np.ones(len(ids), bool) for name in self._named}
        made: list[pa.Table] = []
        schema = score_schema(score_columns(self.model.task), ids.type, lists=False)
        writer = ScoreWriter(_Sink(made.append), schema, self._named)
        writer.write(ids.combine_chunks(), scores, present)
        return made[0]

    @property
    def _named(self) -> tuple[str, ...]:
        return tuple(self.record.widths)

    def _logits(
        self, block: Tensor, sent: Mapping[str, Tensor], lacking: Mapping[str, Tensor], own: RowEmbedder | None
    ) -> Tensor:
        """Logits of a block of rows that the same partners have."""
        columns = {}
        for name in self._named:
            columns[name] = own(block) if name == self.name and own is not None else sent[name][block]
        absent = {name: ~mask[block] for name, mask in lacking.items() if bool(mask[block[0]])}
        return self.model.top_model.answer_rows(columns, columns.keys(), absent)

    def _sent(self, name: str, rows: pa.Table) -> Tensor:
        """What a partner sent of each row, float32 (n, width); NaN of a row that it lacks.

        Raises:
            DataError: A column is absent, of another kind or out of range: it is from another organisation.
        """
        width, parts, graded = self.record.widths[name], [], self._graded(name)
        lowest, highest = (0.0, width - 1.0) if graded else (-self._limit, self._limit)
        for wanted in self.released[name]:
            where = f"{self._where}: the column {wanted.name!r} of {name}'s release"
            if wanted.name not in rows.column_names:
                raise DataError.expected(where, "a batch without it", "join the release to the rows by id")
            given = rows.column(wanted.name)
            if not any(kind(given.type) for kind in (pa.types.is_integer, pa.types.is_floating, pa.types.is_null)):
                raise DataError.expected(f"{where} of type {wanted.type}", f"{given.type}")
            # A join of data frames makes floats of whole numbers, and NaN of what a row lacks.
            values = given.cast(pa.float64(), safe=False).to_numpy()
            sent = values[~np.isnan(values)]
            if not ((sent >= lowest) & (sent <= highest)).all() or (graded and (sent != np.round(sent)).any()):
                raise DataError.expected(f"{where} from {lowest:g} to {highest:g}", "another number")
            parts.append(torch.from_numpy(values.astype(np.float32)))
        columns = torch.stack(parts, dim=1)
        if bool((columns.isnan().any(1) != columns.isnan().all(1)).any()):
            raise DataError.expected(f"{self._where}: all columns of {name}'s release, or none of a row", "some")
        if not graded:
            return columns
        lacks = columns[:, :1].isnan()
        return torch.where(lacks, math.nan, columns_of_grades(columns[:, 0].nan_to_num(0.0).long(), width))

    def _graded(self, name: str) -> bool:
        return grades_rows(self.job, name)


@dataclass(frozen=True)
class _Sink:
    """Takes the predictions of a batch."""

    write_table: Callable[[pa.Table], None]


def release_fields(job: Job, party: str, width: int) -> tuple[pa.Field, ...]:
    """Columns of a party's release besides the id."""
    graded = grades_rows(job, party)
    kind = pa.int8() if graded else pa.float32()
    return tuple(pa.field(name, kind, nullable=False) for name in release_columns(party, width, graded=graded))


def blocks_of(groups: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Row numbers in blocks of `BLOCK_ROWS` rows of one group, and the number of different rows in each.

    Args:
        groups: Group of each row, int64 (n,).

    Yields:
        int64 (BLOCK_ROWS,), of which the last repeat the last row, and how many rows come before these.

    >>> [(len(block), count) for block, count in blocks_of(torch.zeros(BLOCK_ROWS + 3).long())]
    [(4096, 4096), (4096, 3)]
    """
    for group in torch.unique(groups):
        rows = torch.nonzero(groups == group)[:, 0]
        for start in range(0, len(rows), BLOCK_ROWS):
            yield (
                rows[torch.arange(start, start + BLOCK_ROWS).clamp_max(len(rows) - 1)],
                min(BLOCK_ROWS, len(rows) - start),
            )


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread of linear algebra: an engine has a process for each core."""
    with run_threads(1, 1, scipy=False), torch.no_grad():
        yield
