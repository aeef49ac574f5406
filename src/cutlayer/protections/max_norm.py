"""Max norm alignment: noise that hides the label in the length of a gradient."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

from torch import Tensor

from cutlayer.config import FrozenModel
from cutlayer.kernels.max_norm import max_norm
from cutlayer.kernels.row_norms import row_norms
from cutlayer.protections.base import Asset, Protection, Side
from cutlayer.protections.views import ActiveView


class MaxNormConfig(FrozenModel):
    """How often noise is drawn.

    Attributes:
        form: `once`: one number per row and run. `paper`: another one in every step, whose mean over epochs reveals the
            label.
    """

    form: Literal["once", "paper"] = "once"


class MaxNorm(Protection[MaxNormConfig]):
    """Stretch every row of the cut gradient at random, so that all have the expected norm of the longest.

    With M the largest row norm of the batch, row i becomes g_i (1 + sigma_i eps_i), sigma_i = sqrt(max(M^2 / |g_i|^2 -
    1, 0)), one eps_i ~ N(0, 1) per row: unbiased, E|.|^2 = M^2. A row of zero norm gets an isotropic vector of norm M.
    `mean_norm_share` of its metrics is the mean row norm before, as a share of the batch's largest.

    `form: once`, the default, is ours: eps_i is a keyed function of the row's number, the same in every epoch, after a
    resume and for every party, so that neither epochs nor parties that collude have several draws to average. Another
    run draws anew. `form: paper` draws in every step for each party: the mean of a row's gradients over the epochs has
    the label's sign, and their variance its class.

    Reference: Li, Sun et al., Label leakage and protection in two-party split learning (arXiv 2102.08504), section 4
    (heuristic protection).

    Guarantee: none, empirical. The direction of a row is kept up to its sign: with several classes that is nearly the
    label (`axis` of `similarity`). One draw exposes labels by itself: the longer gradients, of the rarer class, are
    stretched less, and keep sign and length. How sent lengths change between epochs depends on the class too: a reader
    of some labels gets more (on the demo's job 0.69 without labels and 0.82 with half of them; 0.86 and 0.97 in the
    paper's form; `python -m benchmarks label_defences`), and so does one of the party's own columns (`co_training`).
    With a few positives in a batch the length of its rows tells how many there are (`message_size`).
    """

    name = "max_norm"
    config = MaxNormConfig
    side = Side.ACTIVE
    protects = Asset.LABELS
    reference = "Li, Sun et al. 2021 (arXiv 2102.08504), section 4"
    published_against = (("gradient", "norm"),)
    rank = 20
    no_guarantee = "max norm alignment hides the length of a gradient and keeps its direction up to a sign"
    counters = ("rows", "rows_perturbed", "zero_norm_rows")
    means = (("mean_norm_share", "norm_shares", "batches"),)

    def gradient_out(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        """Align the norms of the cut gradient (n, width) of `party`."""
        norms = row_norms(g)
        zero = int((norms == 0).sum())
        largest = float(norms.max()) if len(g) else 0.0
        self.count(batches=1, rows=len(g), zero_norm_rows=zero)
        if not largest:
            return g
        if self.settings.form == "once":
            normal = self._run_noise[view.rows].to(g.device)
        else:
            normal = self.context.noise.normal((len(g),), hook="max_norm", peer=party, step=view.step, content=g)
        isotropic = normal.new_zeros(0, g.shape[1])
        if zero:
            shape = (zero, g.shape[1])
            isotropic = self.context.noise.normal(shape, hook="max_norm zero", peer=party, step=view.step, content=g)
        self.count(rows_perturbed=int((norms < largest).sum()), norm_shares=float(norms.mean()) / largest)
        return max_norm(g, norms, normal, isotropic)

    def notes(self, epochs: int) -> Sequence[str]:
        """The weakness of the paper's form in a run of several epochs."""
        if self.settings.form == "once" or epochs == 1:
            return ()
        return (f"form: paper draws {epochs:,} times for a row, and the mean of its gradients reveals its label",)

    @cached_property
    def _run_noise(self) -> Tensor:
        """Eps of each row of the common order up to the last training row."""
        training = self.context.training
        count = int(training.max()) + 1 if len(training) else 0
        return self.context.noise.normal((count,), hook="max_norm once", peer="", step=0, content=training)
