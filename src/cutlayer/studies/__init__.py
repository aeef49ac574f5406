"""The published tables and figures, rerun: one file per study."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from cutlayer.config import near_miss
from cutlayer.errors import ConfigError
from cutlayer.runs.execute import Progress
from cutlayer.studies.base import Found, Study, run_cells
from cutlayer.studies.forward_leakage import ForwardLeakage
from cutlayer.studies.gradient_leakage import GradientLeakage
from cutlayer.studies.label_dp import LabelDPStudy
from cutlayer.version import __version__

STUDIES: Mapping[str, type[Study]] = {study.name: study for study in (ForwardLeakage, GradientLeakage, LabelDPStudy)}


def run_study(name: str, data: Path, out: Path, seeds: int, progress: Progress) -> list[Found]:
    """Run a study, or what is left of it, and write `results.json` and `page.md`.

    Args:
        name: of a registered study. data: the folder of data sets.
        out: results of finished trainings are kept there and not run again.
        seeds: how many seeds of each setting.

    Raises:
        ConfigError: no such study, or no seed.
    """
    if name not in STUDIES:
        raise ConfigError(f"unknown study {name!r}{near_miss(name, list(STUDIES))}")
    if seeds < 1:
        raise ConfigError.expected("--seeds of 1 or more", seeds)
    study = STUDIES[name]()
    found = run_cells(study, data, out, seeds, progress)
    (out / "results.json").write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
    hours = sum(one.seconds for one in found) / 3600
    head = (
        f"# {study.title}\n\nAfter {study.source}.\n\n`cutlayer study {name} --data DIR --seeds {seeds}`, cutlayer "
        f"{__version__}; {len(found)} trainings, {hours:.2f} hours of training on one thread.\n"
    )
    (out / "page.md").write_text(f"{head}\n{study.page(found)}\n")
    return found
