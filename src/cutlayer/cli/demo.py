"""`cutlayer demo`: the main job on embedded real data."""

from __future__ import annotations

from pathlib import Path

import typer

from cutlayer.cli.app import print_result
from cutlayer.cli.report import finish
from cutlayer.cli.run import keys_for, train
from cutlayer.cli.verb import verb


@verb()
def demo(*, out: Path | None = None, copy: Path | None = None, quiet: bool = False, json: bool = False) -> None:
    """Train on UCI Adult split between three organisations, undefended and defended, and audit both.

    Args:
        out: The run folder to create; default: a new one under runs/.
        copy: Only copy the job file and its table there, to edit and run yourself.

    Example: cutlayer demo --copy mine
    """
    from cutlayer.demo import copy_files, demo_job
    from cutlayer.jobs.options import Options
    from cutlayer.report.story import print_story

    if copy is not None:
        copy_files(copy)
        print_result(json, {"job": str(copy / "job.yaml")}, f"now: cutlayer run {copy / 'job.yaml'}")
        return
    folder = out or _unused(Path("runs"))
    ran = train(demo_job(), folder, Options(keys_for(folder.parent, None)), quiet=quiet or json)
    raise typer.Exit(finish(ran, as_json=json, show=print_story))


def _unused(parent: Path) -> Path:
    number = 1
    while (parent / f"demo-{number}").exists():
        number += 1
    return parent / f"demo-{number}"
