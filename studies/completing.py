"""What a quitter's model is worth to it after one training of the model-completion study."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from cutlayer.attacks import ActiveModelCompletion, ModelCompletion
from cutlayer.attacks.completion_base import CHUNK, CompletionAttack, QuitterView
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.parties.observer import Observer
from cutlayer.runs.completion import Quitter
from cutlayer.runs.folder import RunFolder
from cutlayer.runs.together import Keys, open_table, train_together
from cutlayer.tasks import Task
from studies.base import Cell, study_key
from studies.halves import PASSIVE

FEW, MORE, ALL = "few", "more", "all"
MORE_PER_CLASS = 40
"""400 labels of ten classes, the number of the paper's own figure."""
FROZEN = tuple(variant for variant in ModelCompletion.variants if variant.startswith("frozen"))
TUNED = ("tuned MLP, MixMatch", "tuned MLP, supervised")
"""Variants that train the extractor too: with all labels each pass costs as much as an epoch of training."""
Values = dict[str, dict[str, float]]


class Completing:
    """Completes the passive party's model of one finished run, and of its malicious twin.

    Args:
        cell: the training. folder: of its run.
    """

    def __init__(self, cell: Cell, folder: RunFolder) -> None:
        self.cell, self.folder = cell, folder
        self.summary = folder.read_json("summary.json")
        task = Task(cell.job.task, tuple(self.summary["task"]["classes"]))
        self.quitter = Quitter(cell.job, folder, PASSIVE, task)
        few, everything = self.quitter.knowledge()
        self.known = {FEW: few, ALL: everything}

    def measured(self, *, controls: bool) -> dict[str, Any]:
        """Accuracy of every completed model, by number of labels and variant, and the state of the embedding.

        Args:
            controls: also from scratch, with `MORE_PER_CLASS` labels of each class, and by a linear probe; these
                need one run of each seed.
        """
        view = self.quitter.kept(self.folder)
        (own,) = [row for row in self.summary["quitting"]["rows"] if row["absent"] == [PASSIVE]]
        found: dict[str, Any] = {
            "labels": {name: len(known.known) for name, known in self.known.items()},
            "after": own["metrics"]["accuracy"],
            "references": self._references(),
            "honest": self._values(ModelCompletion(), view, {FEW: (*FROZEN, *TUNED), ALL: FROZEN}),
            **embedding_size(view.embeddings),
        }
        if controls:
            self.known[MORE] = self._more()
            found["labels"][MORE] = len(self.known[MORE].known)
            wider = self._values(ModelCompletion(), view, {MORE: (*FROZEN, *TUNED), ALL: TUNED})
            found["honest"][MORE] = wider[MORE]
            found["honest"][ALL] |= wider[ALL]
            controls_of = dict.fromkeys(self.known, TUNED)
            found["scratch"] = self._values(ModelCompletion(), self.quitter.untrained(), controls_of)
            found["probe"] = self._probe(view)
        return {**found, **self._malicious()}

    def glimpsed(self) -> dict[str, Any]:
        """Accuracy of the model completed on the frozen extractor with few labels alone, and the embedding's state."""
        view = self.quitter.kept(self.folder)
        return {
            "references": self._references(),
            "honest": self._values(ModelCompletion(), view, {FEW: FROZEN}),
            **embedding_size(view.embeddings),
        }

    def _references(self) -> dict[str, float]:
        return {row["name"]: row["metrics"]["accuracy"] for row in self.summary["utility"]["rows"]}

    def _malicious(self) -> dict[str, Any]:
        """Train the same job with the malicious optimiser at the passive party, and complete what comes of it."""
        cell, twin = self.cell, RunFolder.create(self.folder.path / "malicious", resume=False)
        tables = {name: open_table(cell.job, name, cell.tables) for name in cell.job.parties}
        attack = ActiveModelCompletion()
        keys = Keys(self.folder.path.parent / "keys", study_key(cell.job), simulated=True)
        data, wraps = self.folder.path / "data", {PASSIVE: attack.optimizer_hook()}
        trained = train_together(cell.job, twin, tables, keys, Observer(), data=data, origin=self.folder, wraps=wraps)
        return {
            "malicious": self._values(attack, self.quitter.kept(twin), {FEW: FROZEN, ALL: FROZEN}),
            "malicious_accuracy": trained.active.metrics["accuracy"],
        }

    def _values(self, attack: CompletionAttack, view: QuitterView, tried: Mapping[str, Sequence[str]]) -> Values:
        """Accuracy by number of labels and variant; `tried` names the variants by number of labels."""
        return {
            labels: {
                worth.variant: worth.value for worth in self.quitter.try_all(attack, view, self.known[labels], variants)
            }
            for labels, variants in tried.items()
        }

    def _more(self) -> Knowledge:
        """`MORE_PER_CLASS` labels of each class, drawn at random."""
        truth, training = self.quitter.truth, self.quitter.training.numpy()
        draw, codes = np.random.default_rng([self.cell.seed, MORE_PER_CLASS]), truth[training].numpy()
        rows = {
            int(row): code
            for code in range(len(self.quitter.task.classes))
            for row in draw.permutation(training[codes == code])[:MORE_PER_CLASS]
        }
        return Knowledge(known=rows)

    def _probe(self, view: QuitterView) -> float:
        """Accuracy of a logistic regression on the embeddings, with all labels."""
        quitter = self.quitter
        with torch.no_grad():
            parts = [view.bottom.eval()(*view.encoded(rows)) for rows in torch.split(quitter.held_out, CHUNK)]
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # it is near its best long before
            model.fit(view.embeddings.numpy(), quitter.truth[quitter.training].numpy())
        return float(model.score(torch.cat(parts).numpy(), quitter.truth[quitter.held_out].numpy()))


def embedding_size(embeddings: Tensor) -> dict[str, float]:
    """Mean length of the rows, and their root mean square distance from the mean row: 0 if they are all alike.

    Args:
        embeddings: float32 (n, width).

    >>> embedding_size(torch.tensor([[3.0, 4.0], [3.0, 4.0]]))
    {'norm': 5.0, 'spread': 0.0}
    """
    centred = embeddings - embeddings.mean(dim=0)
    return {
        "norm": float(embeddings.norm(dim=1).mean()),
        "spread": float(centred.square().sum(dim=1).mean().sqrt()),
    }
