"""Answers of the models that a run ended with, with or without some of the parties."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cutlayer.config import Job
from cutlayer.data.encoding import Encoder
from cutlayer.data.party_data import PartyTable
from cutlayer.data.store import Store
from cutlayer.errors import DataError
from cutlayer.estimator.tables import Tables, check_mapping, check_rows, read
from cutlayer.models import BottomModel, TopModel
from cutlayer.serving import Serving
from cutlayer.tasks import Task
from cutlayer.training.finetuning import checked_absent
from cutlayer.training.folder import RunFolder
from cutlayer.training.trained import Run


@dataclass(frozen=True)
class Evaluation:
    """How good the answers to some rows were.

    Attributes:
        metrics: metrics of the task, as in the report.
        contributed: parties whose features the answers rest on, in the job's order.
        absent: passive parties that were left out.
        rows: number of answered rows.
    """

    metrics: Mapping[str, float]
    contributed: tuple[str, ...]
    absent: tuple[str, ...]
    rows: int


@dataclass(frozen=True)
class Models:
    """The trained parts of all parties.

    Attributes:
        active: name of the active party.
        encoders: encoders of the parties that have features, by name in the job's order.
        bottoms: bottom models of the same parties.
        task: task of the run.
        top: top model.
        tuned: top models that were fine-tuned after a departure, by the departed parties.
    """

    active: str
    encoders: Mapping[str, Encoder]
    bottoms: Mapping[str, BottomModel]
    task: Task
    top: TopModel
    tuned: dict[frozenset[str], TopModel] = field(default_factory=dict)

    @classmethod
    def load(cls, job: Job, folder: RunFolder, classes: tuple[str, ...]) -> Models:
        """Take the trained models and fitted encoders out of a run folder."""
        run = Run(job, folder, classes=classes)
        encoders = {name: Encoder.from_json((folder.data(name) / "encoder.json").read_text()) for name in run.stores}
        bottoms = {name: run.bottom(name) for name in run.stores}
        top = run.top({name: bottom.width for name, bottom in bottoms.items()})
        return cls(job.active, encoders, bottoms, run.task, top)

    def absent(self, names: Collection[str], epochs: int = 1) -> tuple[str, ...]:
        """The absent parties in the job's order; see `checked_absent`."""
        return checked_absent(names, [*self.encoders], self.active, epochs)

    @property
    def widths(self) -> dict[str, int]:
        """Width of the embedding of each party that has features, in the job's order."""
        return {name: bottom.width for name, bottom in self.bottoms.items()}

    def encode(self, tables: Tables, absent: Collection[str]) -> dict[str, Store]:
        """Encoded columns of the parties that answer, in the job's order; nothing is released by it.

        Raises:
            DataError: a table is missing or does not hold what was trained on, or the tables differ in their rows.
        """
        check_mapping(tables)
        needed = [name for name in self.encoders if name not in absent]
        missing = [name for name in needed if name not in tables]
        if missing:
            wanted, got = f"a table of {', '.join(needed)}", f"none of {', '.join(missing)}"
            passive = missing != [self.active]
            raise DataError.expected(wanted, got, "name who is absent in `absent`" if passive else "")
        chosen = read(tables, needed)
        check_rows(chosen)
        return {name: PartyTable(name, chosen[name], encoder=self.encoders[name]).encode_all() for name in needed}

    def embed(self, stores: Mapping[str, Store], servings: Mapping[str, Serving]) -> dict[str, Tensor]:
        """Embeddings (n, width) of all parties that have features; zeros for parties without columns here.

        Args:
            stores: Encoded rows by party, from `encode`.
            servings: Releases of the passive parties by name; the embeddings of other parties are not protected.

        Raises:
            ConfigError, BudgetExceeded: a party has no prediction left.
        """
        rows = next(iter(stores.values())).rows
        made: dict[str, Tensor] = {}
        for name, bottom in self.bottoms.items():
            if name not in stores:
                made[name] = torch.zeros(rows, bottom.width)
            elif name in servings:
                made[name] = servings[name].release(_embedding(bottom, stores[name]), rows)
            else:
                with torch.no_grad():
                    made[name] = _embedding(bottom, stores[name])(torch.arange(rows))
        return made

    def answer(self, embeddings: Mapping[str, Tensor], absent: Collection[str]) -> Tensor:
        """Logits (n, outputs), of the top model that was fine-tuned for just these absent parties if there is one."""
        with torch.no_grad():
            if not absent:
                logits: Tensor = self.top(embeddings)
                return logits
            top = self.tuned.get(frozenset(absent), self.top)
            return top.answer(embeddings, embeddings.keys() - set(absent))


def _embedding(bottom: BottomModel, store: Store) -> Callable[[Tensor], Tensor]:
    """The bottom model on some rows of a store, int64 (m,) -> (m, width)."""

    def embed(rows: Tensor) -> Tensor:
        embedding: Tensor = bottom(*store.gather(rows))
        return embedding

    return embed
