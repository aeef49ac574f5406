"""`cutlayer audit`: attack a recorded transcript again, and test the ledger's guarantees."""

from __future__ import annotations

from pathlib import Path

import typer

from cutlayer.cli.report import finish
from cutlayer.cli.verb import verb
from cutlayer.errors import ConfigError


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
        from cutlayer.config.extras import load_extra_part

        audit_of_served = load_extra_part("serve", "audit", "--served")
        raise typer.Exit(audit_of_served(folder, tuple(attack or ()), fail_above, as_json=json))
    from cutlayer.audit.guarantees import CANARIES, check_guarantees
    from cutlayer.jobs.audit import audit_again, audit_passive_again
    from cutlayer.training.process import one_blas_thread

    number = CANARIES if canaries is None else canaries
    with folder.locked("an audit"), one_blas_thread():
        tested = check_guarantees(folder, number) if empirical_epsilon else None
        if folder.is_passive:
            if fail_above is not None:
                raise ConfigError.expected("--fail-above at the active party, which has the labels", fail_above)
            audit_passive_again(folder, tuple(attack or ()), tested)
        else:
            audit_again(folder, tuple(attack or ()), fail_above, tested)
    raise typer.Exit(finish(folder, as_json=json))
