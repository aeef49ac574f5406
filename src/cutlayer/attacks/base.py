"""The contract of every attack: one view in, one result out, and a call that validates before it runs."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar, final

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.errors import NotApplicable
from cutlayer.lazy import torch

View = TypeVar("View")
Result = TypeVar("Result")


class Attack(ABC, Generic[View, Result]):
    """A computation of a curious party. The call is final and validates; subclasses implement `run`.

    Each attack belongs to a family: `LabelAttack`, `CompletionAttack` or `FeatureAttack`. The family fixes the view and
    what the audit does with the result, so that the audit runs all attacks of a family in the same way.

    Class attributes:
        name: Name of the attack in `audit.attacks`.
        reference: Paper and section.
        reads: What the attack reads of its view.
        needs: Knowledge that it must be given.
        tasks: Kinds of task that it is defined for.
        live: Whether `auto` includes it: cheap, and defined at any cut.
        live_tasks: Kinds of task for which `auto` includes it in any case: those with few other attacks.
        quick: Whether `auto` includes it at `depth: quick` too.
        thorough: Whether `full` includes it although `auto` does not.
        graded: Whether `auto` runs it on a party that releases grades, in place of what is live.
        costly: Whether a catalogue runs it last, and only on messages that no other attack reads nearly whole.
    """

    name: ClassVar[str]
    reference: ClassVar[str]
    reads: ClassVar[tuple[str, ...]]
    needs: ClassVar[frozenset[Need]] = frozenset()
    tasks: ClassVar[frozenset[str]]
    live: ClassVar[bool] = False
    live_tasks: ClassVar[frozenset[str]] = frozenset()
    quick: ClassVar[bool] = True
    thorough: ClassVar[bool] = False
    graded: ClassVar[bool] = False
    costly: ClassVar[bool] = False

    @final
    def __call__(self, view: View, knowledge: Knowledge, seed: int = 0) -> Result:
        """Check view and knowledge, then attack.

        Args:
            view: What the attacker legitimately holds.
            knowledge: What it is assumed to know besides; all that the attack needs.
            seed: Seed of every random draw; the process's random state is restored afterwards.

        Raises:
            NotApplicable: The view or the knowledge does not fit; the message names the attack and what is missing.
        """
        self.check(view, knowledge)
        with torch.random.fork_rng(devices=[]):
            # Not `torch.manual_seed`, which also seeds every other device, for good.
            torch.default_generator.manual_seed(seed)
            return self.finish(self.run(view, knowledge))

    @classmethod
    def check_task(cls, kind: str) -> None:
        """Raise `NotApplicable` if the attack is not defined for this kind of task."""
        if kind not in cls.tasks:
            wanted = f"a task of kind {' or '.join(sorted(cls.tasks))} for the attack {cls.name}"
            raise NotApplicable.expected(wanted, kind, "leave it out")

    def check(self, view: View, knowledge: Knowledge) -> None:
        """Raise `NotApplicable` unless the attack can run; overriding methods call this one too."""
        if missing := sorted(self.needs - knowledge.held()):
            raise NotApplicable.expected(f"{self.name} with knowledge of {', '.join(missing)}", "none of it")

    @classmethod
    def in_auto(cls, kind: str) -> bool:
        """Whether `auto` includes the attack for this kind of task."""
        return kind in cls.tasks and (cls.live or kind in cls.live_tasks)

    @classmethod
    def purpose(cls) -> str:
        """Description of the attack: the first paragraph of its docstring."""
        return " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].split())

    @abstractmethod
    def run(self, view: View, knowledge: Knowledge) -> Result:
        """Attack; random draws come from torch's global generator, which `__call__` has seeded."""

    def finish(self, result: Result) -> Result:
        """Post-process a result of the family before it is returned."""
        return result
