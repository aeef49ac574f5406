"""Reasons tested: controls for claims of the papers that do not hold in the other studies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cutlayer.training.folder import RunFolder
from studies.departures.study import departure_values
from studies.feature_privacy.study import attack_results
from studies.model_completion.attacks import CompletedModels
from studies.page import Page
from studies.reasons.held_out import held_out_values
from studies.reasons.masked import masked_values
from studies.reasons.page import reasons_page
from studies.reasons.settings import FEWER, HALVES, HELD_OUT, LEFT, MASKED, STEPS_BATCH, STEPS_EPOCHS, trials_of
from studies.results import Results
from studies.trials import Study, Trial


class ReasonsStudy(Study):
    """Trainings of the other studies, each with one thing changed that may be why a claim does not hold."""

    name = "reasons"
    title = "Reasons tested for claims that do not hold"
    source = "the papers of the studies that each section names"
    advice = (
        "Compare the leak of undefended embeddings with the AUC of the model on its training rows, and not on test "
        "rows: it equals the AUC on the same rows. Judge the cost of `dcor` after many steps: on Avazu twelve times "
        "the steps take away what a weight of 0.03 costs, and at 0.1, which hides the labels from the paper's "
        "attack, one layer above the cut loses 0.17 of test AUC, where three lose 0.16 less. Its gradients reveal "
        "every label all the same. Expect Marvell's noise to cost more than its report says where rows are few; more "
        "optimiser steps are no remedy that three seeds show. Do not count on an attacker who leaves columns as they "
        "are: standardising them hardly helps to complete a model, with `dimip` or without. Choose between "
        "`party_dropout` and `multi_head` by your optimiser: on CIFAR-100 dropout of 0.3 predicts better after a "
        "departure by SGD, and further heads by Adam."
    )
    settings = (
        "Each section takes trainings of another study and changes one thing, which may be the reason. Data, networks "
        "and schedules are otherwise those of the study that it names. With more steps: Avazu at batch "
        f"{STEPS_BATCH}, {STEPS_EPOCHS} epochs and Adam 1e-4, 1,691 steps in place of 144. The numbers of seeds "
        "were fixed before the trainings. The end lists what other studies tested, and what none did."
    )

    def trials(self, data: Path, seeds: int) -> Iterator[Trial]:
        """All controls; the seeds outermost."""
        return trials_of(data, seeds)

    def measure(self, trial: Trial, folder: RunFolder) -> dict[str, Any]:
        """What the claims of the trial's group compare."""
        if trial.group == HALVES.group:
            return CompletedModels(trial, folder).few_alone()
        if trial.group == LEFT.group:
            return departure_values(folder)
        if trial.group == MASKED:
            return masked_values(trial.job, folder)
        if trial.group == FEWER:
            return {"attacks": attack_results(folder.audit.features)}
        return held_out_values(trial.job, folder) if trial.group in HELD_OUT else {}

    def page(self, results: Results) -> Page:
        """A section for each reason: the claim, the control, and whether it makes the claim hold."""
        return reasons_page(results)
