"""Model completion: every passive party's trained bottom model, completed by attacks and measured on held-out rows.

This needs the party's own rows and the true labels in one place, so it is done only where all parties ran in one
process: between organisations the truth stays with its owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from cutlayer.attacks.completion.base import EMBEDDED_ROWS, Completion, CompletionAttack, DepartedView, Variant
from cutlayer.attacks.completion.passive import ModelCompletion
from cutlayer.attacks.knowledge import AUXILIARY_LABELS, MIN_AUXILIARY_PER_CLASS, Knowledge
from cutlayer.audit.attack_audit import AttackAudit
from cutlayer.config import Job
from cutlayer.data.streams import RandomStream
from cutlayer.models import BottomModel, bottom_of
from cutlayer.parties.drive.random_state import random_state_under
from cutlayer.problem.task import Task
from cutlayer.results.completion import CompletionResult, VariantValue
from cutlayer.training.comparisons import malicious_run
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import starting_keys
from cutlayer.training.trained import Run
from cutlayer.training.utility import interval

NEEDS_ONE_PROCESS = (
    "its rows and model are with {}; between organisations truth stays with its owner, so it needs one process"
)
NOT_TRAINED = "no run with a malicious optimiser was trained; name it in audit.attacks and run the job again"


class DepartedParty:
    """One passive party of a finished run, and the rows on which its completed models are measured.

    Args:
        run: The run, which holds the encoded rows.
        party: Name of the party.
    """

    def __init__(self, run: Run, party: str) -> None:
        self.run = run
        self.job = run.job
        self.party = party
        self.task = run.task
        self.store = run.stores[party]

    def view(self, folder: RunFolder) -> DepartedView:
        """View of the party after a run in `folder`, on the same rows."""
        return self._view(Run(self.job, folder, origin=self.run.folder).bottom(self.party), trained=True)

    def untrained(self) -> DepartedView:
        """View of the party with its initial bottom model, for the training from scratch."""
        with random_state_under(starting_keys(self.run.folder.path, [self.party])[self.party]):
            bottom = bottom_of(self.job, self.party, self.run.inputs(self.party))
        return self._view(bottom, trained=False)

    def knowledge(self) -> tuple[Knowledge, ...]:
        """The labels that the party may have: few, and all."""
        return auxiliary_labels(self.run.truth, self.run.training, len(self.task.classes), self.job.train.seed)

    def knows_all(self, knowledge: Knowledge) -> bool:
        """Whether these are the labels of all training rows."""
        return len(knowledge.known) == len(self.run.training)

    def values(
        self, attack: CompletionAttack, view: DepartedView, knowledge: Knowledge, variants: Iterable[Variant]
    ) -> tuple[VariantValue, ...]:
        """Value of each variant; those that use rows without labels are left out where all labels are known."""
        seed = self.job.train.seed
        all_labels = self.knows_all(knowledge)
        chosen = [variant for variant in variants if not (all_labels and variant.uses_unlabelled)]
        return tuple(self._value(attack.with_variant(it)(view, knowledge, seed), it.name) for it in chosen)

    def from_scratch(self, knowledge: Knowledge) -> tuple[VariantValue, ...]:
        """The baseline: model completion of the initial bottom model, by the variants that train it too."""
        variants = [variant for variant in ModelCompletion.variants if variant.trains_extractor]
        return self.values(ModelCompletion(), self.untrained(), knowledge, variants)

    def _value(self, completion: Completion, variant: str) -> VariantValue:
        """A completed model on the held-out rows, against their true labels."""
        parts = torch.split(self.run.reported_rows, EMBEDDED_ROWS)
        logits = torch.cat([completion.logits(*self.store.gather(rows)) for rows in parts])
        labels = self.run.truth[self.run.reported_rows]
        low, high = interval(self.task, logits, labels, self.job.train.seed)
        value = self.task.evaluate(logits, labels)[self.task.metric]
        return VariantValue(variant=variant, value=value, low=low, high=high)

    def _view(self, bottom: BottomModel, *, trained: bool) -> DepartedView:
        return DepartedView(self.party, self.task, bottom, self.store.gather, self.run.training, trained)


def audit_completions(
    job: Job, runs: Mapping[str, RunFolder], folder: RunFolder, attacks: Sequence[CompletionAttack], task: Task
) -> AttackAudit[CompletionResult]:
    """Run completion attacks on every passive party's model of every run.

    Args:
        job: The job as run.
        runs: Folders of this run and of those it is compared with, by name.
        folder: Folder of this run, which holds the encoded rows.
        attacks: The attacks that the active party's audit names.
        task: Task of the job, with its classes.
    """
    audit = AttackAudit[CompletionResult]()
    if job.parties[job.active].audit.every == "never":
        return audit
    if job.rows == "all" and not len(Run(job, folder, classes=task.classes).reported_rows):
        return audit  # no held-out row is with every party
    for party in job.passives if attacks else ():
        if (folder.data(party) / "store.json").exists():
            _complete_party(DepartedParty(Run(job, folder, classes=task.classes), party), runs, attacks, audit)
        else:
            audit.skip(party, attacks, NEEDS_ONE_PROCESS.format(party))
    return audit


def _complete_party(
    departed: DepartedParty,
    runs: Mapping[str, RunFolder],
    attacks: Sequence[CompletionAttack],
    audit: AttackAudit[CompletionResult],
) -> None:
    views = {name: departed.view(folder) for name, folder in runs.items()}
    # An attack that wraps its party's optimiser reads the run that was trained so; every other attack reads the rest.
    malicious = malicious_run(departed.job).label
    wraps = {attack.name: attack.optimizer_hook() is not None for attack in attacks}
    pairs = [(attack, run) for attack in attacks for run in runs if wraps[attack.name] == (run == malicious)]
    runnable = [attack for attack, _ in pairs]
    audit.skip(departed.party, [attack for attack in attacks if attack not in runnable], NOT_TRAINED)
    for knowledge in departed.knowledge() if pairs else ():
        with audit.skipping(departed.party, runnable):
            scratch = departed.from_scratch(knowledge)
            for attack, run in pairs:
                with audit.skipping(departed.party, [attack]):
                    result = CompletionResult(
                        run=run,
                        party=departed.party,
                        attack=attack.name,
                        labels=len(knowledge.known),
                        all_labels=departed.knows_all(knowledge),
                        variants=departed.values(attack, views[run], knowledge, attack.variants),
                        scratch=scratch,
                        knowledge=tuple(sorted(attack.needs)),
                    )
                    audit.results.append(result)


def auxiliary_labels(truth: Tensor, training: Tensor, classes: int, seed: int) -> tuple[Knowledge, ...]:
    """The labels that a departed party may have: a few of each class, drawn at random, then those of all training rows.

    Few are equally many of each class, 40 in all or just above, and at least 4 of each; of a smaller class, all.

    Args:
        truth: Class codes by row.
        training: Row numbers of the training rows.
        classes: Number of classes.
        seed: Seed of the draw.

    Returns:
        Both kinds of knowledge; the second alone where few would be all.
    """
    per_class = max(MIN_AUXILIARY_PER_CLASS, -(-AUXILIARY_LABELS // classes))
    generator = np.random.default_rng([seed, RandomStream.COMPLETION_LABELS])
    codes = truth[training].long()
    few = {
        int(row): code
        for code in range(classes)
        for row in generator.permutation(training[codes == code].numpy())[:per_class]
    }
    all_labels = Knowledge(known=dict(zip(training.tolist(), codes.tolist(), strict=True)))
    return (Knowledge(known=few), all_labels) if len(few) < len(training) else (all_labels,)
