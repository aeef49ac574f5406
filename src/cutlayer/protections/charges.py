"""The charges for what a chain releases, each made before anything is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cutlayer.accounting import Account, Occasion, Slot
from cutlayer.accounting.slots import ReleaseKind
from cutlayer.lazy import Tensor
from cutlayer.protections.keyed_noise import Noise
from cutlayer.protections.views import ActiveView, PassiveView


class Charges:
    """Charges releases to the account of a run; without an account nothing is counted."""

    def __init__(self) -> None:
        self._account: Account | None = None
        self._before: Callable[[], None] | None = None

    def open(self, account: Account, noise: Noise, receiver: str, before: Callable[[], None] | None = None) -> None:
        """Charge to an account from now on.

        Args:
            account: Account of the run's releases.
            noise: Noise of the run, whose digests tell one content from another.
            receiver: Receiver of what names none.
            before: Called before a release is counted; what it refuses is not counted.
        """
        self._account, self._noise, self._receiver, self._before = account, noise, receiver, before

    def charge(self, kind: ReleaseKind, view: PassiveView | ActiveView, released: Tensor, receiver: str = "") -> None:
        """Count a release by its own content, after the protections and before it is sent.

        Raises:
            BudgetExceeded: A row of it may not be released again.
        """
        if self._account is not None and self._account.counts(kind):
            part = view.part if isinstance(view, PassiveView) else "train"
            if self._before is not None:
                self._before()
            occasion = Occasion(kind, receiver or self._receiver, view.mode.value, part, view.epoch)
            self._account.charge(Slot(occasion, view.step), self._noise.digest(released), len(view.rows))

    def allow_repeats(self, epoch: int) -> None:
        """Accept that the schedule is repeated from an epoch on; see `Account.allow_repeats`."""
        if self._account is not None:
            self._account.allow_repeats(epoch)

    def close(self) -> None:
        """Record that the run has ended; see `Account.close`."""
        if self._account is not None:
            self._account.close()

    def counts(self, *, releases: bool, steps: bool) -> Mapping[str, float]:
        """Maximum number of releases and private steps of a row, as far as they are asked for."""
        if self._account is None:
            return {}
        return {
            **(self._account.release_counts() if releases else {}),
            **(self._account.step_counts() if steps else {}),
        }

    def state_dict(self) -> dict[str, Any]:
        """State for a resume."""
        return self._account.state_dict() if self._account is not None else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        # The account's own counts are in the release log, which may be ahead of the checkpoint: it only compares.
        if self._account is not None:
            self._account.load_state_dict(state)
