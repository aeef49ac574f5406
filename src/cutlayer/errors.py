"""Errors that this package raises on purpose: what was expected, what came, and the remedy."""

from __future__ import annotations

from typing import Self


class CutlayerError(Exception):
    """Base of all errors this package raises on purpose.

    Attributes:
        exit_code: Exit code of the command line (1 a gate failed, 2 bad input, 3 a peer was lost, 4 nothing meets the
            limits of a search, 6 drift is above a limit, 7 an approval is missing, 130 interrupted; the command line
            exits with 128 + the signal's number where a signal other than Ctrl-C interrupted it).
    """

    exit_code = 2

    @classmethod
    def expected(cls, wanted: str, got: object, remedy: str = "") -> Self:
        """Build the standard sentence of all errors.

        >>> str(ConfigError.expected("eps >= 0", -1.0, "0 is a coin flip"))
        'expected eps >= 0, got -1.0; 0 is a coin flip'
        """
        return cls(f"expected {wanted}, got {got}" + (f"; {remedy}" if remedy else ""))


class ConfigError(CutlayerError):
    """A job or party file says something that cannot be run."""


class DataError(CutlayerError):
    """A table does not hold what the job says it holds."""


class AlignmentError(DataError):
    """The parties' rows cannot be put into one order."""


class NothingInCommon(AlignmentError):
    """There is no row that all parties have."""


class CheckpointError(CutlayerError):
    """A checkpoint is damaged, incomplete or belongs to another job."""


class RunFolderError(CutlayerError):
    """A run folder exists already, or is not one."""


class LockHeld(RunFolderError):
    """Another process works in the folder."""


class ProtocolError(CutlayerError):
    """A message broke the protocol: wrong kind, step, rows, shape or sequence."""


class TrustError(CutlayerError):
    """A certificate is not accepted: this party's own, or that of a peer."""


class PeerLost(CutlayerError):
    """Another party stopped answering.

    Attributes:
        peer: Name of that party; empty where several are lost, or a peer reports a loss of its own.
    """

    exit_code = 3

    def __init__(self, message: str, peer: str = "") -> None:
        super().__init__(message)
        self.peer = peer


class NotApplied(CutlayerError):
    """A protection covered fewer messages or rows than were sent."""

    exit_code = 1


class BudgetExceeded(CutlayerError):
    """A run would cost more privacy than its owner allows: it is not started, or stopped before the release."""


class NotApplicable(CutlayerError):
    """An attack or protection cannot be used on this task or view."""


class LimitsNotMet(CutlayerError):
    """Nothing that a search may try stays within the limits that were asked for."""

    exit_code = 4


class DriftExceeded(CutlayerError):
    """Rows to predict have drifted from the training by more than their owner allows."""

    exit_code = 6


class NotApproved(CutlayerError):
    """A party has not approved what a job reveals, or no longer does, or its approval is not accepted."""

    exit_code = 7


class Diverged(CutlayerError):
    """Training left the range of numbers: the model's outputs are no longer finite."""


class Interrupted(CutlayerError):
    """The user stopped the run."""

    exit_code = 130
