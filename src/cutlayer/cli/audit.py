"""`cutlayer audit`: attack a recorded transcript again, and test the ledger's guarantees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cutlayer.cli.app import Json, app, emit
from cutlayer.cli.report import GATE_FAILED, RunPath, finish
from cutlayer.cli.run import AllowModel

if TYPE_CHECKING:
    from cutlayer.results.guarantee import GuaranteeTest

Attacks = Annotated[
    list[str] | None, typer.Option("--attack", help="An attack to run; may be repeated. Default: the job's.")
]
Limit = Annotated[
    float | None, typer.Option("--fail-above", help="Exit with 1 if max(AUC, 1 - AUC) of any label attack is above.")
]
Empirical = Annotated[
    bool,
    typer.Option(
        "--empirical-epsilon", help="Also test the ledger's guarantees on canaries; exit with 1 if one does not hold."
    ),
]
Canaries = Annotated[
    int | None,
    typer.Option("--canaries", help="How many canaries; more can show a larger epsilon. Default: 50,000."),
]


@app.command()
def audit(
    path: RunPath,
    attack: Attacks = None,
    fail_above: Limit = None,
    empirical_epsilon: Empirical = False,
    canaries: Canaries = None,
    allow_model: AllowModel = None,
    json: Json = False,
) -> None:
    """Repeat the audit of a run from its recorded transcript, with intervals, findings and gates."""
    from cutlayer.audit.guarantees import CANARIES, check_guarantees
    from cutlayer.jobs.audit import audit_again
    from cutlayer.models import allowed_models
    from cutlayer.results.audit import PassiveAudit
    from cutlayer.training.folder import RunFolder

    number = CANARIES if canaries is None else canaries
    folder = RunFolder.open(path)
    with folder.locked("an audit"), allowed_models(*allow_model or ()):
        tested = check_guarantees(folder, number) if empirical_epsilon else None
        if tested is not None and folder.of_passive:
            PassiveAudit(guarantees=tuple(tested)).write(folder.path / "audit.json")
            raise typer.Exit(_show(tested, as_json=json))
        audit_again(folder, tuple(attack or ()), fail_above, tested)
    raise typer.Exit(finish(folder, as_json=json))


def _show(tests: list[GuaranteeTest], *, as_json: bool) -> int:
    """Show the guarantees that a passive party tested; its folder has no report, since the labels are elsewhere."""
    from cutlayer.report.sections.protections import guarantee_tests
    from cutlayer.report.terminal import print_section

    section = guarantee_tests(tests)
    if as_json:
        emit({"guarantees": [test.model_dump(mode="json") for test in tests]})
    elif section is not None:
        print_section(section, Console())
    return GATE_FAILED if any(test.exceeded for test in tests) else 0
