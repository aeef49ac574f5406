"""Malicious parties on Adult and image halves: what they gain, what guards see of it, and how often they are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cutlayer.jobs.options import Progress
from studies.malicious.page import SETTINGS, malicious_page
from studies.malicious.settings import (
    ADULT,
    FIRST_FRESH,
    HALVES,
    TIMES_FRESH,
    Setting,
    fresh_settings,
    job_of,
    settings_of,
    tables_of,
)
from studies.malicious.training import trained
from studies.page import Page
from studies.results import Results
from studies.trials import Study, Trial


class MaliciousStudy(Study):
    """Hijacks, probes and backdoors, and the guards of both sides."""

    name = "malicious"
    title = "Malicious parties and guards"
    source = (
        "Pasquini et al. 2021 (arXiv 2012.02670); Erdogan et al. 2022 (arXiv 2108.09052); Fu et al. 2023 (NDSS); Zou "
        "et al. 2022 (IEEE Transactions on Big Data); Yao et al. 2025 (NDSS, arXiv 2404.19582)"
    )
    advice = (
        "A guard sees a hijack that does not know it in 59 of 60 trainings, and `URVFL` in none of 13. A hijack that "
        "knows it gains up to 0.045 ± 0.016 of R² on Adult. For labels rely on a single release or "
        "`label_dp`, whose statements hold against any partner. For columns rely on `dp_embedding` alone: a single "
        "release without noise cannot be hijacked, but on Adult it reveals more than a hijack does."
    )
    settings = SETTINGS

    def trials(self, data: Path, seeds: int) -> Iterator[Trial]:
        """All settings of all data sets, seed by seed, so that an interrupted study has whole ones; fresh ones last."""
        for seed in range(1, seeds + 1):
            for group in (ADULT, *HALVES):
                yield from (_trial(group, setting, seed, data) for setting in settings_of(group, seed))
        for seed in range(FIRST_FRESH, FIRST_FRESH + TIMES_FRESH * seeds):
            for group in (ADULT, *HALVES):
                yield from (_trial(group, setting, seed, data) for setting in fresh_settings(group))

    def train(self, trial: Trial, work: Path, progress: Progress) -> dict[str, Any]:
        """A training with the setting's attacker, read as that asks."""
        settings = [*settings_of(trial.group, trial.seed), *fresh_settings(trial.group)]
        setting = next(each for each in settings if each.name == trial.setting)
        values = trained(trial.job, setting, trial.tables, work)
        key = {"group": trial.group, "setting": trial.setting, "seed": trial.seed}
        return {**key, "leaks": {}, "layers": {}, **values}

    def page(self, results: Results) -> Page:
        """Claims, then the attackers of features, of labels and of predictions, and false alarms."""
        return malicious_page(results)


def _trial(group: str, setting: Setting, seed: int, data: Path) -> Trial:
    return Trial(group, setting.name, seed, job_of(group, setting, seed), tables_of(group, data))
