"""How often a party has its way with a prediction, by the trigger of a backdoor or without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cutlayer.attacks.malicious.backdoor import trigger_of
from cutlayer.config import Job
from cutlayer.config.load import load_closed_job
from cutlayer.parties.session.local import EVALUATION_ROWS
from cutlayer.results.number import Number
from cutlayer.results.run import RunId
from cutlayer.training.finetuning import logits_without
from cutlayer.training.folder import RunFolder
from cutlayer.training.malicious_runs import target_rows
from cutlayer.training.trained import Run

TARGET_CLASS = 1
"""Class that the attacker wants: the positive one of a binary task, else the second."""


@dataclass(frozen=True)
class AttackReach:
    """An attacker's success rate, with a 95 % interval, and its means."""

    value: Number
    low: Number
    high: Number
    by: str


def backdoor_success(
    job: Job, folder: RunFolder, run: RunId, parties: Sequence[str], classes: tuple[str, ...]
) -> Mapping[str, tuple[AttackReach | None, AttackReach | None]]:
    """Success after the malicious training and in this run, by party and, of several, of all of them at once.

    In both runs the better of two means is taken: the trigger, and the mean embedding of the rows that the attacker
    knows to be of the class.

    Args:
        job: The job as run.
        folder: Folder of this run, which holds the encoded rows.
        run: The malicious training.
        parties: Names of the attackers.
        classes: Classes of the task.
    """
    malicious = folder.of_run(run.label)
    attacked = Run(load_closed_job(malicious.path / "job.yaml"), malicious, origin=folder, classes=classes)
    honest = Run(job, folder, classes=classes)
    links = {name: (name,) for name in parties} | ({"+".join(parties): tuple(parties)} if len(parties) > 1 else {})
    return {link: (success_rate(attacked, names), success_rate(honest, names)) for link, names in links.items()}


def success_rate(run: Run, attackers: Sequence[str]) -> AttackReach | None:
    """The better means of some parties that send at once, on the held-out rows of other classes."""
    rows = run.reported_rows[run.truth[run.reported_rows] != TARGET_CLASS]
    known = target_rows(run.truth, run.training, run.job.train.seed)
    if not len(rows) or not len(known):
        return None
    bottoms = {name: run.bottom(name) for name in run.stores}
    top = run.top({name: bottom.width for name, bottom in bottoms.items()})

    def embedded(name: str, chosen: Tensor) -> Tensor:
        with torch.no_grad():
            parts = torch.split(chosen, EVALUATION_ROWS)
            return torch.cat([bottoms[name](*run.stores[name].gather(part)) for part in parts])

    honest = {name: embedded(name, rows) for name in run.stores}
    forged = {
        "trigger": {name: trigger_of(bottoms[name].width) for name in attackers},
        "mean embedding": {name: embedded(name, known).flatten(1).mean(dim=0) for name in attackers},
    }
    from scipy.stats import binomtest  # an import of a part of a second, for this attack alone

    reached = []
    for means, sent in forged.items():
        made = {name: e.view(1, *honest[name].shape[1:]).expand_as(honest[name]) for name, e in sent.items()}
        predicted = run.task.predict(logits_without(top, honest | made, ())).argmax(dim=1)
        hits = int((predicted == TARGET_CLASS).sum())
        interval = binomtest(hits, len(rows)).proportion_ci(method="wilson")
        reached.append(AttackReach(hits / len(rows), float(interval.low), float(interval.high), means))
    return max(reached, key=lambda each: each.value or 0.0)
