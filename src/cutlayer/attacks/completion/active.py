"""Active model completion: the quitter trained with a malicious optimiser, then completes its model."""

from __future__ import annotations

from cutlayer.attacks.completion.base import Completion, CompletionAttack, OptimizerHook, QuitterView
from cutlayer.attacks.completion.malicious_optimizer import malicious
from cutlayer.attacks.completion.passive import ModelCompletion
from cutlayer.attacks.knowledge import Knowledge


class ActiveModelCompletion(CompletionAttack):
    """Complete a bottom model that was trained with larger local steps, so that the top model leans on it.

    While all parties train, the attacker's own optimiser is wrapped (`malicious_optimizer.malicious`): that is a run of
    its own, trained beside the honest one. Afterwards its bottom model is completed as by `model_completion`.

    Reference: Fu et al., Label inference attacks against vertical federated learning (USENIX Security 2022), the active
    attack with the malicious local optimizer.
    """

    name = "active_model_completion"
    reference = "Fu et al. 2022 (USENIX Security), active label inference attack"
    variants = ModelCompletion.variants
    few_only = ModelCompletion.few_only

    def optimizer_hook(self) -> OptimizerHook:
        """The malicious optimiser."""
        return malicious

    def run(self, view: QuitterView, knowledge: Knowledge, variant: str) -> Completion:
        """Train one variant."""
        return ModelCompletion(self.effort).run(view, knowledge, variant)
