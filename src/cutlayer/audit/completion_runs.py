"""Attacks on what a quitter keeps: every passive party's trained bottom model, completed and tried on held-out rows.

This needs the party's own rows and the labels they are scored against in one place, so it is done only where all
parties ran in one process: between organisations the truth stays with its owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from cutlayer.attacks import REGISTRY, ModelCompletion, resolve_completions
from cutlayer.attacks.completion.base import CHUNK, Completion, CompletionAttack, QuitterView
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.audit.completion import CompletionFigure, Worth, auxiliary
from cutlayer.config import Job
from cutlayer.data.split import Split, split_rows
from cutlayer.data.store import Store
from cutlayer.errors import Diverged, NotApplicable
from cutlayer.models import BottomModel, build_bottom
from cutlayer.parties.random_state import drawn_under
from cutlayer.tasks import Task
from cutlayer.training.comparisons import malicious_run
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import starting_keys
from cutlayer.training.recorder import read_truth
from cutlayer.training.trained import load_bottom
from cutlayer.training.utility import interval

APART = "its rows and model are with {}; between organisations truth stays with its owner, so it needs one process"
UNTRAINED = "no run with a malicious optimiser was trained; name it in audit.attacks and run the job again"
SCRATCH = tuple(variant for variant in ModelCompletion.variants if variant.startswith("tuned"))
"""How the from-scratch controls are trained: as the variants that train the bottom model too."""


@dataclass(frozen=True)
class Completed:
    """Figures of all completion attacks, and those that could not be run, with the reason."""

    figures: list[CompletionFigure] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> list[dict[str, Any]]:
        """The `completions` of `audit.json`, each with what its attack knows."""
        return [{**asdict(one), "knowledge": sorted(REGISTRY[one.attack].needs)} for one in self.figures]


class Quitter:
    """One passive party of a finished run, and the rows that its completed models are tried on.

    Args:
        job: as run. folder: of the run. party: which.
        task: with its classes.
    """

    def __init__(self, job: Job, folder: RunFolder, party: str, task: Task) -> None:
        self.job, self.folder, self.party, self.task = job, folder, party, task
        self.store = Store.open(folder.data(party))
        self.inputs = self.store.columns.inputs
        self.truth, self.training = read_truth(folder.transcript(job.active))
        split: Split = split_rows(len(self.truth), job.train.split, job.train.seed)
        self.held_out = split.part("test" if len(split.test) else "validation")

    def kept(self, folder: RunFolder) -> QuitterView:
        """What the party keeps of a run in `folder`, on the same rows."""
        return self._view(load_bottom(self.job, folder, self.party, self.inputs), trained=True)

    def untrained(self) -> QuitterView:
        """The same party with the bottom model it began with."""
        with drawn_under(starting_keys(self.folder.path, [self.party])[self.party]):
            bottom = build_bottom(self.job.model.bottom_of(self.party), self.inputs)
        return self._view(bottom, trained=False)

    def knowledge(self) -> tuple[Knowledge, ...]:
        """The labels it may have: few, and all."""
        return auxiliary(self.truth, self.training, len(self.task.classes), self.job.train.seed)

    def worth(self, completion: Completion, variant: str) -> Worth:
        """A completed model on the held-out rows, against their true labels."""
        logits = torch.cat([completion.logits(*self.store.gather(rows)) for rows in torch.split(self.held_out, CHUNK)])
        labels: Tensor = self.truth[self.held_out]
        low, high = interval(self.task, logits, labels, self.job.train.seed)
        return Worth(variant, self.task.evaluate(logits, labels)[self.task.metric], low, high)

    def try_all(
        self, attack: CompletionAttack, view: QuitterView, knowledge: Knowledge, variants: Sequence[str]
    ) -> tuple[Worth, ...]:
        """Each variant that fits the number of labels."""
        everything = len(knowledge.known) == len(self.training)
        fitting = [variant for variant in variants if not (everything and variant in attack.few_only)]
        return tuple(self.worth(attack(view, knowledge, one, self.job.train.seed), one) for one in fitting)

    def _view(self, bottom: BottomModel, *, trained: bool) -> QuitterView:
        return QuitterView(self.party, self.task, bottom, self.store.gather, self.training, trained)


def complete_runs(
    job: Job, runs: Mapping[str, RunFolder], folder: RunFolder, names: Literal["auto"] | Sequence[str], task: Task
) -> Completed:
    """Run the named completion attacks on every passive party's model of every run.

    Args:
        job: as run.
        runs: folders of this run and of those it is compared with, by name.
        folder: of this run, which holds the encoded rows.
        names: `audit.attacks`; others than completion attacks are passed over.
        task: with its classes.
    """
    attacks = resolve_completions(names, job.task)
    found = Completed()
    if job.parties[job.active].audit.every == "never":
        return found
    for party in job.passives if attacks else ():
        if (folder.data(party) / "store.json").exists():
            _complete_party(Quitter(job, folder, party, task), runs, attacks, found)
        else:
            found.skipped.update({_label(party, attack): APART.format(party) for attack in attacks})
    return found


def _complete_party(
    quitter: Quitter, runs: Mapping[str, RunFolder], attacks: Iterable[CompletionAttack], found: Completed
) -> None:
    views = {name: quitter.kept(folder) for name, folder in runs.items()}
    marked = malicious_run(quitter.job)
    pairs = [(attack, name) for attack in attacks for name in runs if _is_active(attack) == (name == marked)]
    for attack in attacks:
        if attack not in [one for one, _ in pairs]:
            found.skipped[_label(quitter.party, attack)] = UNTRAINED
    try:
        for knowledge in quitter.knowledge() if pairs else ():
            scratch = quitter.try_all(ModelCompletion(), quitter.untrained(), knowledge, SCRATCH)
            for attack, name in pairs:
                worths = quitter.try_all(attack, views[name], knowledge, attack.variants)
                count = len(knowledge.known)
                everything = count == len(quitter.training)
                found.figures.append(
                    CompletionFigure(name, quitter.party, attack.name, count, everything, worths, scratch)
                )
    except (NotApplicable, Diverged) as reason:
        found.skipped.update({_label(quitter.party, attack): str(reason) for attack, _ in pairs})


def _is_active(attack: CompletionAttack) -> bool:
    """Whether the attack needs a run in which the party's optimiser was wrapped."""
    return attack.optimizer_hook() is not None


def _label(party: str, attack: CompletionAttack) -> str:
    return f"{party}/{attack.reads[0]}/{attack.name}"
