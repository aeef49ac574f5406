"""Completion attacks of a departed party after one training of the model-completion study."""

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
from torch import Tensor, nn

from cutlayer.attacks.completion.active import ActiveModelCompletion
from cutlayer.attacks.completion.base import EMBEDDED_ROWS, Completion, CompletionAttack, DepartedView, Variant
from cutlayer.attacks.completion.passive import ModelCompletion
from cutlayer.attacks.completion.training import CompletionTrainer
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.audit.completion import DepartedParty
from cutlayer.parties.session.observer import Observer
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.tables import open_table
from cutlayer.training.together import train_together
from cutlayer.training.trained import Run
from studies.image_halves import PASSIVE
from studies.trials import Trial, study_key

FEW, MORE, ALL = "few", "more", "all"
MORE_PER_CLASS = 40
"""400 labels of ten classes, the number of the paper's figure."""
FROZEN = tuple(variant for variant in ModelCompletion.variants if not variant.trains_extractor)
TUNED = tuple(it for it in ModelCompletion.variants if it.trains_extractor and it.head == "MLP")
"""Variants that train the extractor too: with all labels each pass costs as much as an epoch of training."""
SUPERVISED = tuple(variant for variant in FROZEN if not variant.uses_unlabelled)
Accuracies = dict[str, dict[str, float]]


class PlainCompletion(ModelCompletion):
    """Supervised heads on the columns of a frozen extractor as they are, as published, and not standardised."""

    def run(self, view: DepartedView, knowledge: Knowledge) -> Completion:
        """Train the variant."""
        indices, labels = knowledge.labels_among(view.rows)
        trainer = CompletionTrainer(view, self.variant.head, tuned=False, training=self.training)
        trainer.head[0] = nn.Identity()  # in place of the standardised columns
        return Completion(view.task, trainer.train_supervised(indices, labels))


class CompletedModels:
    """Completes the passive party's model of a finished run, and of a run with the active attack.

    Args:
        trial: Trial of the study.
        folder: Its run folder.
    """

    def __init__(self, trial: Trial, folder: RunFolder) -> None:
        self.trial, self.folder = trial, folder
        self.summary = folder.summary
        self.departed = DepartedParty(Run(trial.job, folder), PASSIVE)
        few, everything = self.departed.knowledge()
        self.known = {FEW: few, ALL: everything}

    def measured(self, *, controls: bool) -> dict[str, Any]:
        """Accuracy of every completed model, by number of labels and variant, and the size of the embedding.

        Args:
            controls: Whether to train from scratch, with `MORE_PER_CLASS` labels of each class, and a linear probe
                besides; one run of each seed needs these.
        """
        view = self.departed.view(self.folder)
        measured: dict[str, Any] = {
            "labels": {name: len(known.known) for name, known in self.known.items()},
            "after": self._after(),
            "references": self._references(),
            "honest": self._values(ModelCompletion(), view, {FEW: (*FROZEN, *TUNED), ALL: FROZEN}),
            **embedding_size(view.embeddings),
        }
        if controls:
            self.known[MORE] = self._more()
            measured["labels"][MORE] = len(self.known[MORE].known)
            wider = self._values(ModelCompletion(), view, {MORE: (*FROZEN, *TUNED), ALL: TUNED})
            measured["honest"][MORE] = wider[MORE]
            measured["honest"][ALL] |= wider[ALL]
            controls_of = dict.fromkeys(self.known, TUNED)
            measured["scratch"] = self._values(ModelCompletion(), self.departed.untrained(), controls_of)
            measured["probe"] = self._probe(view)
        return {**measured, **self._malicious()}

    def frozen_alone(self) -> dict[str, Any]:
        """Accuracy of the model completed on the frozen extractor with few labels, and the size of the embedding."""
        view = self.departed.view(self.folder)
        return {
            "references": self._references(),
            "honest": self._values(ModelCompletion(), view, {FEW: FROZEN}),
            **embedding_size(view.embeddings),
        }

    def after_departure(self, *, scratch: bool) -> dict[str, Any]:
        """As `frozen_alone`, with the accuracy after the departure, and with training from scratch if `scratch`."""
        untrained = self._values(ModelCompletion(), self.departed.untrained(), {FEW: TUNED}) if scratch else {}
        return {**self.frozen_alone(), "after": self._after(), **({"scratch": untrained} if scratch else {})}

    def frozen_of_both(self) -> dict[str, Any]:
        """As `frozen_alone`, with the active attack beside it."""
        return {**self.frozen_alone(), **self._malicious((FEW,))}

    def few_alone(self) -> dict[str, Any]:
        """As `frozen_alone`, with the accuracy after the departure, and with the plain attacker beside the same head.

        The plain attacker is supervised; `supervised` are the values of its variants on standardised columns.
        """
        measured = self.frozen_alone()
        names = [variant.name for variant in SUPERVISED]
        plain = self._values(PlainCompletion(), self.departed.view(self.folder), {FEW: SUPERVISED})
        same = {FEW: {name: measured["honest"][FEW][name] for name in names}}
        return {**measured, "after": self._after(), "supervised": same, "plain": plain}

    def _after(self) -> float | None:
        """Accuracy of the remaining parties, with zeros in place of the embedding."""
        (own,) = [row for row in self.summary.departures.rows if row.absent == (PASSIVE,)]
        return own.metrics["accuracy"]

    def _references(self) -> dict[str, float | None]:
        return {row.name: row.metrics["accuracy"] for row in self.summary.utility.rows}

    def _malicious(self, labels: Sequence[str] = (FEW, ALL)) -> dict[str, Any]:
        """Train the same job with the malicious optimiser at the passive party, and complete that model."""
        job, folder = self.trial.job, RunFolder.create(self.folder.path / "malicious", resume=False)
        tables = {name: open_table(job, name, self.trial.tables) for name in job.parties}
        attack = ActiveModelCompletion()
        keys = Keys(self.folder.path.parent / "keys", study_key(job), simulated=True)
        data, wraps = self.folder.path / "data", {PASSIVE: attack.optimizer_hook()}
        trained = train_together(job, folder, tables, keys, Observer(), data=data, origin=self.folder, wraps=wraps)
        return {
            "malicious": self._values(attack, self.departed.view(folder), dict.fromkeys(labels, FROZEN)),
            "malicious_accuracy": trained.active.metrics["accuracy"],
        }

    def _values(
        self, attack: CompletionAttack, view: DepartedView, variants: Mapping[str, Sequence[Variant]]
    ) -> Accuracies:
        """Accuracy by number of labels and variant; `variants` are those to train by number of labels."""
        values = {
            labels: self.departed.values(attack, view, self.known[labels], trained)
            for labels, trained in variants.items()
        }
        return {labels: {it.variant: it.value or 0.0 for it in results} for labels, results in values.items()}

    def _more(self) -> Knowledge:
        """`MORE_PER_CLASS` labels of each class, drawn at random."""
        truth, training = self.departed.run.truth, self.departed.run.training.numpy()
        draw, codes = np.random.default_rng([self.trial.seed, MORE_PER_CLASS]), truth[training].numpy()
        rows = {
            int(row): code
            for code in range(len(self.departed.task.classes))
            for row in draw.permutation(training[codes == code])[:MORE_PER_CLASS]
        }
        return Knowledge(known=rows)

    def _probe(self, view: DepartedView) -> float:
        """Accuracy of a logistic regression on the embeddings, with all labels."""
        departed = self.departed
        with torch.no_grad():
            parts = [
                view.bottom.eval()(*view.encoded(rows))
                for rows in torch.split(departed.run.reported_rows, EMBEDDED_ROWS)
            ]
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # its accuracy settles long before
            model.fit(view.embeddings.numpy(), departed.run.truth[departed.run.training].numpy())
        return float(model.score(torch.cat(parts).numpy(), departed.run.truth[departed.run.reported_rows].numpy()))


def embedding_size(embeddings: Tensor) -> dict[str, float]:
    """Mean length of the rows, and their root mean square distance from the mean row: 0 if all rows are equal.

    Args:
        embeddings: Embeddings of training rows, float32 (n, width).

    >>> embedding_size(torch.tensor([[3.0, 4.0], [3.0, 4.0]]))
    {'norm': 5.0, 'spread': 0.0}
    """
    centred = embeddings - embeddings.mean(dim=0)
    return {
        "norm": float(embeddings.norm(dim=1).mean()),
        "spread": float(centred.square().sum(dim=1).mean().sqrt()),
    }
