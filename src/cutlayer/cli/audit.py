"""`cutlayer audit`: attack a recorded transcript again, and test the ledger's guarantees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from cutlayer.cli.app import emit, say
from cutlayer.cli.report import GATE_FAILED, finish
from cutlayer.cli.verb import verb
from cutlayer.errors import ConfigError

if TYPE_CHECKING:
    from cutlayer.training.folder import RunFolder


@verb(consent=("model", "path"))
def audit(
    path: Path,
    *,
    attack: list[str] | None = None,
    fail_above: float | None = None,
    empirical_epsilon: bool = False,
    canaries: int | None = None,
    served: bool = False,
    json: bool = False,
) -> None:
    """Repeat the audit of a run, of either side, from its recorded transcript, with intervals, findings and gates.

    Args:
        attack: An attack to run; may be repeated. Default: the job's.
        fail_above: Exit with code 1 if the leak, max(AUC, 1 - AUC), of any attack on labels is above this.
        empirical_epsilon: Also test the ledger's guarantees on canaries; exit with code 1 if one does not hold.
        canaries: Number of canaries; more can detect a larger epsilon. Default: 50,000.
        served: Attack a sample of the served rows instead of the messages of the training.

    Example: cutlayer audit runs/job --attack spectral --fail-above 0.6
    """
    from cutlayer.training.folder import RunFolder

    folder = RunFolder.open(path)
    if served:
        raise typer.Exit(_served(folder, tuple(attack or ()), fail_above, as_json=json))
    from cutlayer.audit.guarantees import CANARIES, check_guarantees
    from cutlayer.jobs.audit import audit_again, audit_passive_again
    from cutlayer.training.process import one_blas_thread

    number = CANARIES if canaries is None else canaries
    with folder.locked("an audit"), one_blas_thread():
        tested = check_guarantees(folder, number) if empirical_epsilon else None
        if folder.of_passive:
            if fail_above is not None:
                raise ConfigError.expected("--fail-above at the active party, which has the labels", fail_above)
            audit_passive_again(folder, tuple(attack or ()), tested)
        else:
            audit_again(folder, tuple(attack or ()), fail_above, tested)
    raise typer.Exit(finish(folder, as_json=json))


def _served(folder: RunFolder, attacks: tuple[str, ...], limit: float | None, *, as_json: bool) -> int:
    """Attack the samples of what was served, and show what was reached."""
    from cutlayer.config.load import load_closed_job
    from cutlayer.jobs.audit import with_attacks
    from cutlayer.report.sections.served import served_sections
    from cutlayer.report.terminal import print_section
    from cutlayer.serving.served_audit import audit_served
    from cutlayer.training.process import one_blas_thread

    if limit is not None and not 0.5 < limit <= 1:
        raise ConfigError.expected("--fail-above in (0.5, 1]", limit, "0.5 is chance")
    with folder.locked("an audit"), one_blas_thread():
        result = audit_served(folder, with_attacks(load_closed_job(folder.path / "job.yaml"), attacks))
        result.write(folder.path / "serving" / "audit.json")
    if as_json:
        emit(result.model_dump(mode="json"))
    else:
        console = Console()
        say(*(f"served rows of {name}: {rows:,}" for name, rows in result.rows.items()))
        for section in served_sections(result):
            print_section(section, console)
        say(*(f"  {attack.label}: {attack.reason}" for attack in result.skipped))
    return GATE_FAILED if limit is not None and result.worst > limit else 0
