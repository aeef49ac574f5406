"""The joint cost of releases, as the ledger states it."""

from __future__ import annotations

from typing import Literal

from cutlayer.config import FrozenModel

Asset = Literal["labels", "features", "model"]


class Total(FrozenModel):
    """The joint cost of all releases of a party about an asset, towards a receiver.

    Attributes:
        party: Owner of the asset.
        protects: Protected asset.
        towards: Receivers; the total holds for each of them alone.
        epsilon: Epsilon at `delta`; `None` if no theorem holds.
        delta: Delta of the total; 0 if epsilon is pure.
        accountant: Method of the account: `pure`, `exact Gaussian` or `PLD`.
        rdp_epsilon: Looser epsilon by Renyi differential privacy, for comparison; `None` if not known.
        condition: `unconditional`; or given the bottom model, the encoding of the columns, or both; of labels, what
            partners learn by design (`AboutLabels.given`). A plugin that states a guarantee is part of it.
        curve: Further pairs (epsilon, delta) that hold.
        auc_bound: Bound on the ROC AUC of every test between two values of one row, all else known; for Gaussian
            releases.
        releases: Number of releases of the row that is released most often, if rows are released with noise.
        why: Reason why no theorem holds.
        statement: The total as a sentence.
        stated_by: Plugins whose protections state a guarantee that counts here.
    """

    party: str
    protects: Asset
    towards: tuple[str, ...]
    epsilon: float | None = None
    delta: float
    accountant: str = ""
    rdp_epsilon: float | None = None
    condition: str = "unconditional"
    curve: tuple[tuple[float, float], ...] = ()
    auc_bound: float | None = None
    releases: int | None = None
    why: str = ""
    statement: str = ""
    stated_by: str = ""
