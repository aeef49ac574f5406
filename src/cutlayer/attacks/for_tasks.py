"""What every kind of attack says of the tasks it is defined for."""

from __future__ import annotations

from typing import ClassVar

from cutlayer.errors import NotApplicable


class ForTasks:
    """An attack by its name and the kinds of task it is defined for.

    Class attributes:
        name: as in `audit.attacks`. tasks: the kinds of task.
    """

    name: ClassVar[str]
    tasks: ClassVar[frozenset[str]]

    @classmethod
    def check_task(cls, kind: str) -> None:
        """Raise `NotApplicable` if the attack is not defined for this kind of task."""
        if kind not in cls.tasks:
            raise NotApplicable.expected(
                f"a task of kind {' or '.join(sorted(cls.tasks))} for the attack {cls.name}", kind, "leave it out"
            )
