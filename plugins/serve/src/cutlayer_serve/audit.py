"""`cutlayer audit --served`: attack the samples of what was served, and show what was reached."""

from __future__ import annotations

from rich.console import Console

from cutlayer.cli.app import print_json, print_lines
from cutlayer.cli.report import EXIT_GATE_FAILED
from cutlayer.config.load import load_closed_job
from cutlayer.errors import ConfigError
from cutlayer.jobs.audit import with_attacks
from cutlayer.report.terminal import print_section
from cutlayer.training.folder import RunFolder
from cutlayer.training.process import one_blas_thread
from cutlayer_serve.served_audit import audit_served
from cutlayer_serve.served_sections import served_sections


def audit(folder: RunFolder, attacks: tuple[str, ...], limit: float | None, *, as_json: bool) -> int:
    """Attack the samples of a run folder; returns the exit code.

    Args:
        folder: The run folder.
        attacks: Names of the attacks; none for those of the job.
        limit: Leak of labels above which the exit code is 1.
        as_json: Whether the result is printed as one JSON document.

    Raises:
        ConfigError: The limit is no leak.
    """
    if limit is not None and not 0.5 < limit <= 1:
        raise ConfigError.expected("--fail-above in (0.5, 1]", limit, "0.5 is chance")
    with folder.locked("an audit"), one_blas_thread():
        result = audit_served(folder, with_attacks(load_closed_job(folder.path / "job.yaml"), attacks))
        result.write(folder.path / "serving" / "audit.json")
    if as_json:
        print_json(result.model_dump(mode="json"))
    else:
        console = Console()
        print_lines(*(f"served rows of {name}: {rows:,}" for name, rows in result.rows.items()))
        for section in served_sections(result):
            print_section(section, console)
        print_lines(*(f"  {attack.label}: {attack.reason}" for attack in result.skipped))
    return EXIT_GATE_FAILED if limit is not None and result.worst > limit else 0
