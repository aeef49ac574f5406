"""`cutlayer audit`: attack a recorded transcript again."""

from __future__ import annotations

from typing import Annotated

import typer

from cutlayer.cli.app import Json, app
from cutlayer.cli.report import RunPath
from cutlayer.cli.show import finish
from cutlayer.runs.again import audit_again
from cutlayer.runs.folder import RunFolder

Attacks = Annotated[
    list[str] | None, typer.Option("--attack", help="An attack to run; may be repeated. Default: the job's.")
]
Limit = Annotated[
    float | None, typer.Option("--fail-above", help="Exit with 1 if max(AUC, 1 - AUC) of any label attack is above.")
]


@app.command()
def audit(path: RunPath, attack: Attacks = None, fail_above: Limit = None, json: Json = False) -> None:
    """Repeat the audit of a run from its recorded transcript, with intervals, findings and gates."""
    folder = RunFolder.open(path)
    audit_again(folder, tuple(attack or ()), fail_above)
    raise typer.Exit(finish(folder, as_json=json))
