"""`cutlayer study`: a paper's tables, rerun."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cutlayer.cli.app import Json, app, emit
from cutlayer.cli.progress import TerminalProgress
from cutlayer.runs.execute import Progress
from cutlayer.studies import STUDIES, run_study

Name = Annotated[str, typer.Argument(help=f"One of {', '.join(STUDIES)}.", show_default=False)]
Data = Annotated[Path, typer.Option("--data", help="The folder of data sets.", show_default=False)]
Out = Annotated[Path | None, typer.Option("--out", help="Where results are kept; default runs/study-NAME.")]
Seeds = Annotated[int, typer.Option("--seeds", help="Seeds of each setting.")]
Full = Annotated[bool, typer.Option("--full", help="The paper's sizes, where the study has them: days on a CPU.")]


@app.command()
def study(name: Name, data: Data, out: Out = None, seeds: Seeds = 3, full: Full = False, json: Json = False) -> None:
    """Rerun a paper's tables; an interrupted study goes on where it stopped."""
    folder = out or Path("runs") / f"study-{name}{'-full' * full}"
    if json:
        emit([vars(one) for one in run_study(name, data, folder, seeds, Progress(), full=full)])
        return
    with TerminalProgress(Console(stderr=True)) as progress:
        run_study(name, data, folder, seeds, progress, full=full)
    Console().print((folder / "page.md").read_text(), markup=False, highlight=False, soft_wrap=True)
