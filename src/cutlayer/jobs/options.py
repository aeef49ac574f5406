"""How to run a job, and who follows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cutlayer.parties.session.observer import Observer
from cutlayer.training.keys import Keys


class Progress(Observer):
    """Receives the stages of a whole job as well as its steps."""

    def stage(self, name: str) -> None:
        """Called before each training: `this run`, `undefended`, `centralised`, ..."""

    def aligned(self, buckets: int, total: int) -> None:
        """Called during an alignment with other processes, with the number of finished buckets of rows and of all."""


@dataclass(frozen=True)
class Options:
    """How to run a job, apart from the job itself.

    Attributes:
        keys: Source of the secrets.
        resume: Whether to continue an interrupted run.
        forget_peer_progress: Whether to resume although another party has lost its progress; repeated releases count
            again.
        tables: Data in memory, by party, which replaces the files that the job names.
        pilot: Number of rows that each partner releases in a pilot; 0 for the full run.
        forks: Whether compared runs of long tables may be trained in forks of this process, which has no threads that a
            fork must not lack: the command line's.
    """

    keys: Keys
    resume: bool = False
    tables: Mapping[str, Any] = field(default_factory=dict)
    forget_peer_progress: bool = False
    pilot: int = 0
    forks: bool = False
