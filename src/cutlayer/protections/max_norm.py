"""Max norm alignment: noise that hides the label in the length of a gradient."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

from cutlayer.config import FrozenModel
from cutlayer.kernels.noise.max_norm import aligned_rows, max_norm
from cutlayer.kernels.rows.to_device import to_device
from cutlayer.lazy import Tensor, torch
from cutlayer.protections.contract.views import ActiveView
from cutlayer.protections.past_batches import ByPastBatches, follows_batch

_LENGTH_FACTOR = 2.0
"""Length of all rows over that of a batch's longest. At 1 the longest keep their sign, which exposes their class."""


class MaxNormConfig(FrozenModel):
    """Draws of noise, and how often they are made.

    Attributes:
        form: `past`: every row is sent at one length, which comes from past batches, with a random sign. `once`: the
            published factor, with one normal number per row and run. `paper`: another one in every step, whose mean
            over epochs reveals the label.
    """

    form: Literal["past", "once", "paper"] = "past"


class MaxNorm(ByPastBatches[MaxNormConfig]):
    """Stretch every row of the cut gradient at random, so that all have the length of the longest, or expect it.

    `form: past`, the default, is ours: row i becomes s_i M g_i / |g_i|, where the sign s_i is 1 with probability (1 +
    |g_i| / M) / 2, and M is twice the length of the longest row, in the mean over a block of past batches
    (`PastBatches`). That is unbiased, and has the mean and variance of the published factor for the same M. All rows of
    a message have one length, which says nothing of them or of the batch. Longer rows are shortened to M, and a party
    is sent zeros in its first step. The sign comes from one uniform number per row, a keyed function of the row's
    number, the same in every epoch, after a resume and for every party, so that neither epochs nor parties that collude
    have several draws to average. It changes all the same where |g_i| does, and so names long gradients
    (`sign_changes`). Another run draws anew. A sign can turn where |g_i| differs by rounding alone, so that a run on
    another processor or with another number of workers differs by more than rounding.

    `form: paper`: with M the largest row norm of the batch itself, row i becomes g_i (1 + sigma_i eps_i), sigma_i =
    sqrt(max(M^2 / |g_i|^2 - 1, 0)), eps_i ~ N(0, 1) for each row, step and party: unbiased, E|.|^2 = M^2. The mean of
    a row's gradients over the epochs has the label's sign, and their variance its class. `form: once` draws one eps_i
    per row and run. In both the length of a batch's rows tells how many of them are of the rarer class
    (`message_size`), and the longer gradients, of that class, are stretched less, and keep sign and length.

    A row of zero norm gets a vector of norm M: under `past` a random mixture of the other rows' lines, and an isotropic
    one under the other forms, which tells it from rows that have a gradient. `mean_norm_share` of its metrics is the
    mean row norm before, as a share of M.

    Reference: Li, Sun et al., Label leakage and protection in two-party split learning (arXiv 2102.08504), section 4
    (heuristic protection), for the other two forms.

    Guarantee: none, empirical. The direction of a row is kept up to its sign: with several classes that is nearly the
    label (`axis` of `similarity`). With two, the rarer class, whose gradients are longer, keeps its sign more often
    than the other one. With `past` it does so in up to three rows of four, where a half says nothing. Directions that
    depend on the columns expose these. With few positives `sign_changes` reads 0.93 of `past`. Under `once` a reader of
    some labels gets more than one of none, and so does one of the party's own columns (`co_training`). On the demo's
    job it reads 0.82 with half of the labels and 0.69 without; 0.97 and 0.86 in the paper's form (`python -m benchmarks
    label_defences`).

    Advice: both forms under attacks on the whole run (docs/results/adaptive-audit.md).
    """

    name = "max_norm"
    config = MaxNormConfig
    reference = "Li, Sun et al. 2021 (arXiv 2102.08504), section 4"
    start = MaxNormConfig()
    published_against = (("gradient", "norm"),)
    rank = 20
    hides_lengths = True
    keeps_directions = True
    no_guarantee = "max norm alignment hides the length of a gradient and keeps its direction up to a sign"
    counters = ("rows", "rows_perturbed", "zero_norm_rows", "rows_shortened", "rows_withheld")
    means = (("mean_norm_share", "norm_shares", "batches"),)

    def gradient_out(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        """Align the norms of the cut gradient (n, width) of `party`."""
        from cutlayer.kernels.rows.row_norms import row_norms

        norms = row_norms(g)
        # All that the CPU must know of the batch, by one reading: rows of zero norm get draws of their own.
        longest = norms.max() if len(g) else norms.new_zeros(())
        zero, largest = torch.stack([(norms == 0).sum().double(), longest]).tolist()
        zero = int(zero)
        self.count(batches=1, rows=len(g), zero_norm_rows=zero)
        if not largest:
            return g
        if self.settings.form == "past":
            past = self._past.mean(party, view)
            self._past.add(party, view, longest.view(1))
            if past is None:
                self.count(rows_withheld=len(g))
                return torch.zeros_like(g)
            largest = _LENGTH_FACTOR * past
            self.count(rows_shortened=(norms > largest).sum())
        if self.settings.form == "paper":
            normal = self.context.noise.normal((len(g),), hook="max_norm", peer=party, step=view.step, content=g)
        else:
            normal = to_device(self._run_noise[view.rows], g.device)
        isotropic = normal.new_zeros(0, g.shape[1])
        if zero:
            # Mixtures of the other rows' lines: isotropic rows lie off the main directions, and so name the rows whose
            # loss is saturated. These are positives: in float32 sigmoid(x) - 1 is 0 from x = 17 on, sigmoid(x) not
            # before -103.
            other = norms > 0
            lines = g[other].double() / norms[other].unsqueeze(1) if self.settings.form == "past" else None
            shape = (zero, g.shape[1] if lines is None else len(lines))
            isotropic = self.context.noise.normal(shape, hook="max_norm zero", peer=party, step=view.step, content=g)
            if lines is not None:
                isotropic = (isotropic.double() @ lines).to(g.dtype)
        self.count(rows_perturbed=(norms != largest).sum(), norm_shares=norms.mean() / largest)
        if self.settings.form == "past":
            return aligned_rows(g, norms, torch.special.ndtr(normal.double()), isotropic, largest)
        return max_norm(g, norms, normal, isotropic)

    def notes(self, epochs: int) -> Sequence[str]:
        """The weakness of each form over several epochs, and of the forms that follow a batch."""
        notes = list[str]()
        if self.settings.form == "past" and epochs > 1:
            notes.append(
                "the sign of a row changes between epochs where its gradient is long: do not rely on form: past where "
                "one class is rare (sign_changes reads 0.93 with 2 % of positives)"
            )
        if self.settings.form == "paper" and epochs > 1:
            notes.append(
                f"form: paper draws {epochs:,} times for a row, and the mean of its gradients reveals its label"
            )
        if self.settings.form != "past":
            notes.append(follows_batch(self.settings.form))
        return notes

    @cached_property
    def _run_noise(self) -> Tensor:
        """Eps of each row of the common order up to the last training row."""
        training = self.context.training
        count = int(training.max()) + 1 if len(training) else 0
        return self.context.noise.normal((count,), hook="max_norm once", peer="", step=0, content=training)
