"""Answers of the models that a run ended with, with or without some of the parties."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cutlayer.config import Job
from cutlayer.data.encoding import Encoder
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import DataError
from cutlayer.estimator.tables import Tables, check_mapping, check_rows, read
from cutlayer.models import BottomModel, TopModel
from cutlayer.runs.finetune import checked_absent
from cutlayer.runs.folder import RunFolder
from cutlayer.runs.trained import load_bottom, load_top
from cutlayer.runs.watch import read_truth
from cutlayer.tasks import Task


@dataclass(frozen=True)
class Evaluation:
    """How good the answers to some rows were.

    Attributes:
        metrics: of the task, as in the report.
        contributed: the parties whose features the answers rest on, in the job's order.
        absent: the passive parties that were left out.
        rows: how many were answered.
    """

    metrics: Mapping[str, float]
    contributed: tuple[str, ...]
    absent: tuple[str, ...]
    rows: int


@dataclass(frozen=True)
class Models:
    """The trained parts of all parties.

    Attributes:
        encoders, bottoms: by party that has features, in the job's order.
        tuned: top models that were trained on after some parties had left, by who.
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
        encoders, bottoms = dict[str, Encoder](), dict[str, BottomModel]()
        for name in job.parties:
            path = folder.data(name) / "encoder.json"
            if path.exists():
                encoders[name] = Encoder.from_json(path.read_text())
                bottoms[name] = load_bottom(job, folder, name, encoders[name].columns.inputs)
        truth, training = read_truth(folder.transcript(job.active))
        task = Task.fitted(job.task, classes, truth[training])
        top = load_top(job, folder, {name: bottom.width for name, bottom in bottoms.items()}, task.outputs)
        return cls(job.active, encoders, bottoms, task, top)

    def absent(self, names: Collection[str], epochs: int = 1) -> tuple[str, ...]:
        """The absent parties in the job's order; see `checked_absent`."""
        return checked_absent(names, [*self.encoders], self.active, epochs)

    def embed(self, tables: Tables, absent: Collection[str]) -> dict[str, Tensor]:
        """Embeddings (n, width) of all parties that have features; zeros for those who are absent.

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
        found = read(tables, needed)
        check_rows(found)
        rows = next(iter(found.values())).num_rows
        made: dict[str, Tensor] = {}
        with torch.no_grad():
            for name, bottom in self.bottoms.items():
                if name in absent:
                    made[name] = torch.zeros(rows, bottom.width)
                    continue
                encoded = PartyTable(name, found[name], encoder=self.encoders[name]).encode_all()
                made[name] = bottom(*encoded.gather(torch.arange(rows)))
        return made

    def answer(self, embeddings: Mapping[str, Tensor], absent: Collection[str]) -> Tensor:
        """Logits (n, outputs), of the top model that was fine-tuned for just these absent parties if there is one."""
        with torch.no_grad():
            if not absent:
                logits: Tensor = self.top(embeddings)
                return logits
            top = self.tuned.get(frozenset(absent), self.top)
            return top.answer(embeddings, embeddings.keys() - set(absent))
