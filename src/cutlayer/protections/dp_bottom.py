"""A bottom model trained privately: each row's gradient clipped, Gaussian noise on their sum (DP-SGD)."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from cutlayer.accounting import DPSGD, Event, ReleasePlan
from cutlayer.errors import ConfigError
from cutlayer.kernels.noise import gaussian_mechanism
from cutlayer.kernels.noise.rounded_normal import rounded_normal
from cutlayer.lazy import torch
from cutlayer.protections.contract.base import FeatureProtection
from cutlayer.protections.contract.views import PassiveView, Update
from cutlayer.protections.noise_budget import NoiseBudget


class DPBottomConfig(NoiseBudget):
    """Clipping norm of a row's gradient, and noise of the sum.

    Attributes:
        clip: C, the norm that no row's gradient of its own loss exceeds; all weights together.
        epsilon: Cost of the training of the bottom model over the whole run.
        delta: Probability with which that epsilon may not hold.
        noise_multiplier: Standard deviation of the noise over C, in place of epsilon and delta.
    """

    clip: float = Field(gt=0, strict=True, description="the norm that no row's gradient exceeds")

    def multiplier(self, plan: ReleasePlan) -> float:
        """Standard deviation of the noise over C; a replaced row moves the sum by 2C, in one step of every epoch."""
        if self.epsilon is None or self.delta is None:
            return float(self.noise_multiplier or 0.0)
        return 2 * gaussian_mechanism.noise_multiplier(self.epsilon, self.delta, plan.training)


class DPBottom(FeatureProtection[DPBottomConfig]):
    """Take each optimiser step of the bottom model on (sum of clipped row gradients + N(0, sigma^2)) / n.

    A row's gradient is that of its own loss, n times its share of the batch's mean, by the cut gradient that came back;
    it is clipped to norm C over all weights, and sigma = multiplier x C. The noise is keyed like all other noise, so
    that a resume repeats it. Differs from its paper: batches come in the job's fixed order and are not drawn, so there
    is no credit for sampling, and neighbours differ in a replaced row, which moves the sum by up to 2C. Row gradients
    are truncated towards zero onto a lattice, and the noise rounded to it, so that sum and noise add up exactly:
    rounding in floating point would reveal rows (`kernels.lattice`).

    Row gradients come from a second pass by `torch.func`, which works on any module as it is. One that mixes the rows
    of a batch has no row gradients, and one that draws random numbers would draw others in the second pass; both are
    refused before training.

    Reference: Abadi et al. 2016, Deep learning with differential privacy (arXiv 1607.00133), algorithm 1.

    Guarantee: (epsilon, delta)-differential privacy of a row's features in the weights of the bottom model, given what
    the active party sends back. Neighbours differ in one row, replaced. A row is in one step of each epoch, whose noise
    is that of a Gaussian mechanism. Steps compose adaptively, those of one epoch in parallel. It holds together with
    embeddings that are released with noise themselves, and says nothing of others.

    Advice: has a total only with `dp_embedding` (docs/how-to/protect-features.md).
    """

    name = "dp_bottom"
    config = DPBottomConfig
    reference = "Abadi et al. 2016 (arXiv 1607.00133), algorithm 1"
    start = DPBottomConfig(clip=1.0, noise_multiplier=1.0)
    rank = 20
    excludes = frozenset({"nopeek"})
    needs_row_independence = True
    needs_no_random_draws = True
    counters = ("steps",)

    def update(self, update: Update, view: PassiveView) -> None:
        """Replace the gradient by the noisy mean of the clipped row gradients."""
        from cutlayer.kernels.gradients.row_gradients import row_gradients
        from cutlayer.kernels.noise.lattice import lattice_sum
        from cutlayer.kernels.rows.row_norms import clip_rows

        rows = len(update.upstream)
        sigma, step = self._scale(self.context.plan, rows)
        total = torch.zeros((), dtype=torch.float64)
        for chunk in row_gradients(update.bottom, update.columns, rows * update.upstream):
            # On the CPU wherever the model is; exact, in whatever order.
            total = total + lattice_sum(clip_rows(chunk.cpu(), self.settings.clip), step)
        # With sigma: one draw at two scales would cancel between two runs with one key.
        hook = f"dp_bottom {sigma.hex()}"
        key = self.context.noise.key(hook=hook, peer=self.context.peers[0], step=view.step, content=total)
        noise = rounded_normal(key, b"dp_bottom", tuple(total.shape), sigma, step)
        noisy = ((total + noise) / rows).float()
        parameters = [parameter for parameter in update.bottom.parameters() if parameter.requires_grad]
        for parameter, part in zip(parameters, torch.split(noisy, [p.numel() for p in parameters]), strict=True):
            parameter.grad = part.view_as(parameter).clone().to(parameter.device)
        self.count(steps=1)

    def _scale(self, plan: ReleasePlan, rows: int) -> tuple[float, float]:
        """Standard deviation of the noise, and the step of a lattice on which sums of so many rows are exact."""
        from cutlayer.kernels.noise.lattice import FLOAT64_INTEGERS, lattice_step

        clip = self.settings.clip
        sigma = self.settings.multiplier(plan) * clip
        return sigma, lattice_step(sigma, rows * clip, FLOAT64_INTEGERS)

    def event(self, plan: ReleasePlan) -> Event:
        """A noisy sum about a row in every epoch.

        Raises:
            ConfigError: Rows are released once, before training, and the bottom model is not trained; or clip or noise
                is beyond what float32 can hold.
        """
        self._scale(plan, rows=1)
        if plan.once:
            raise ConfigError.expected("a release in every step with dp_bottom", "one release", "leave dp_bottom out")
        return DPSGD(self.settings.multiplier(plan), plan.training, self.settings.delta)

    def metrics(self) -> Mapping[str, float]:
        """Steps and noise, without the number of clipped rows, which would be a further release."""
        noise = self.settings.multiplier(self.context.plan)
        return {**super().metrics(), "clip": self.settings.clip, "noise_multiplier": noise}
