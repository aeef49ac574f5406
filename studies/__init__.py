"""The published tables and figures, rerun: one file per study."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from cutlayer.config import near_miss
from cutlayer.errors import ConfigError
from cutlayer.runs.execute import Progress
from cutlayer.version import __version__
from studies.base import Found, Study, run_cells
from studies.embedding_budget import EmbeddingBudgetStudy
from studies.feature_privacy import FeaturePrivacyStudy
from studies.forward_leakage import ForwardLeakage
from studies.gradient_leakage import GradientLeakage
from studies.label_dp import LabelDPStudy
from studies.model_completion import ModelCompletionStudy
from studies.quitting import QuittingStudy

STUDIES: Mapping[str, type[Study]] = {
    study.name: study
    for study in (
        ForwardLeakage,
        GradientLeakage,
        LabelDPStudy,
        QuittingStudy,
        ModelCompletionStudy,
        EmbeddingBudgetStudy,
        FeaturePrivacyStudy,
    )
}


def run_study(name: str, data: Path, out: Path, seeds: int, progress: Progress, *, full: bool = False) -> list[Found]:
    """Run a study, or what is left of it, and write `results.json`, `page.md` and its figures.

    Args:
        name: of a registered study. data: the folder of data sets.
        out: results of finished trainings are kept there and not run again.
        seeds: how many seeds of each setting.
        full: the paper's sizes in place of those for a CPU.

    Raises:
        ConfigError: no such study, no seed, or `full` of a study that has one size.
    """
    if name not in STUDIES:
        raise ConfigError(f"unknown study {name!r}{near_miss(name, list(STUDIES))}")
    if seeds < 1:
        raise ConfigError.expected("--seeds of 1 or more", seeds)
    study = STUDIES[name](full=full)
    found = run_cells(study, data, out, seeds, progress)
    write_page(study, found, out, seeds)
    return found


def write_page(study: Study, found: Sequence[Found], out: Path, seeds: int) -> None:
    """Write `results.json`, `page.md` and the figures of what has been run; settings without results are named so.

    Args:
        out: an existing folder.
        seeds: as the study was asked for.
    """
    (out / "results.json").write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
    hours = sum(one.seconds for one in found) / 3600
    head = (
        f"# {study.title}\n\nAfter {study.source}.\n\n"
        f"`python -m studies {study.name} --data DIR --seeds {seeds}{' --full' * study.full}`, cutlayer {__version__}; "
        f"seeds {_listed(found)}; {len(found)} trainings, {hours:.2f} hours of training on one thread.\n\n"
        f"{study.full_settings if study.full else study.settings}\n"
    )
    (out / "page.md").write_text(_wrapped(f"{head}\n{study.page(found)}\n"))
    (out / "figures").mkdir(exist_ok=True)
    for name, picture in study.figures(found).items():
        (out / "figures" / name).write_text(picture)


def _wrapped(page: str) -> str:
    """The page with its paragraphs in lines of 120 letters; tables, headings and pictures stay in one."""
    lines = page.split("\n")
    return "\n".join(line if line.startswith(("|", "#", "!")) else textwrap.fill(line, 120) for line in lines)


def _listed(found: Sequence[Found]) -> str:
    return ", ".join(str(seed) for seed in sorted({one.seed for one in found})) or "none"
