"""Passive model completion: a head on the extractor that a quitter keeps, trained on some labels."""

from __future__ import annotations

from itertools import product

import torch

from cutlayer.attacks.completion.base import Completion, CompletionAttack, QuitterView
from cutlayer.attacks.completion.training import HEADS, Trainee, match, supervise
from cutlayer.attacks.knowledge import Knowledge

TRAININGS = {"MixMatch": match, "supervised": supervise}


class ModelCompletion(CompletionAttack):
    """Train a head on the quitter's bottom model.

    The variants: the extractor is frozen, or fine-tuned with the head; the head is `MLP` (512-256) or `MLP_sim` (one
    layer), each over standardised columns; the training is plain supervised, or MixMatch with the party's training rows
    as rows without labels. The number of steps is fixed beforehand.

    Where this differs from the papers: `completion_training.Trainee` and `match` say how rows are augmented and where
    they are mixed. The well-known implementation makes one guess without augmentation, and picks the epoch by the true
    labels of all training rows.

    Reference: Fu et al., Label inference attacks against vertical federated learning (USENIX Security 2022), the
    passive attack with model completion; Berthelot et al., MixMatch (arXiv 1905.02249), section 3.
    """

    name = "model_completion"
    reference = "Fu et al. 2022 (USENIX Security), passive label inference attack"
    variants = tuple(
        f"{extractor} {head}, {training}"
        for extractor, head, training in product(("frozen", "tuned"), HEADS, TRAININGS)
    )
    few_only = frozenset(variant for variant in variants if variant.endswith("MixMatch"))

    def run(self, view: QuitterView, knowledge: Knowledge, variant: str) -> Completion:
        """Train one variant."""
        model, _, training = variant.partition(", ")
        extractor, _, head = model.partition(" ")
        known = sorted(knowledge.known.items())
        places = torch.searchsorted(view.rows, torch.tensor([row for row, _ in known]))
        labels = torch.tensor([label for _, label in known])
        trainee = Trainee(view, head, tuned=extractor == "tuned", effort=self.effort)
        return Completion(view.task, TRAININGS[training](trainee, places, labels))
