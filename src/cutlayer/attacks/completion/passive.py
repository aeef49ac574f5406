"""Passive model completion: a head on the bottom model of a departed party, trained on some labels."""

from __future__ import annotations

from itertools import product

from cutlayer.attacks.completion.base import HEADS, Completion, CompletionAttack, DepartedView, Variant
from cutlayer.attacks.knowledge import Knowledge


def _variant(trains_extractor: bool, head: str, uses_unlabelled: bool) -> Variant:
    extractor = "tuned" if trains_extractor else "frozen"
    training = "MixMatch" if uses_unlabelled else "supervised"
    return Variant(f"{extractor} {head}, {training}", trains_extractor, uses_unlabelled, head)


class ModelCompletion(CompletionAttack):
    """Train a head on the departed party's bottom model.

    The variants: the extractor is frozen, or fine-tuned with the head; the head is `MLP` (512-256) or `MLP_sim` (one
    layer), each over standardised columns; the training is plain supervised, or MixMatch with the party's training rows
    as rows without labels. The number of steps is fixed beforehand.

    Where this differs from the papers: `CompletionTrainer` says how rows are augmented and where they are mixed. The
    well-known implementation makes one guess without augmentation, and chooses the epoch by the true labels of all
    training rows.

    Reference: Fu et al., Label inference attacks against vertical federated learning (USENIX Security 2022), the
    passive attack with model completion; Berthelot et al., MixMatch (arXiv 1905.02249), section 3.
    """

    name = "model_completion"
    reference = "Fu et al. 2022 (USENIX Security), passive label inference attack"
    variants = tuple(_variant(*options) for options in product((False, True), HEADS, (True, False)))

    def run(self, view: DepartedView, knowledge: Knowledge) -> Completion:
        """Train the variant."""
        from cutlayer.attacks.completion.training import CompletionTrainer

        variant = self.variant
        indices, labels = knowledge.labels_among(view.rows)
        trainer = CompletionTrainer(view, variant.head, tuned=variant.trains_extractor, training=self.training)
        train = trainer.train_with_mixmatch if variant.uses_unlabelled else trainer.train_supervised
        return Completion(view.task, train(indices, labels))
