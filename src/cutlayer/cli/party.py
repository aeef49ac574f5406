"""`cutlayer party`: one organisation's part of a job, in its own process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape

from cutlayer.cli.app import EXIT_BAD_INPUT, print_json, shortened
from cutlayer.cli.organisation import checked_releases, load_party
from cutlayer.cli.report import finish, print_trail
from cutlayer.cli.run import checked_forget, interruptible, keys_for
from cutlayer.cli.verb import verb
from cutlayer.report.rounding import printable

if TYPE_CHECKING:
    from cutlayer.jobs.one_check import PreflightCheck


@verb(consent=("model", "path"))
def party(
    job: Path,
    *,
    name: str,
    local: Path,
    out: Path | None = None,
    resume: bool = False,
    forget: bool = False,
    key: Path | None = None,
    device: str | None = None,
    timeout: float = 300.0,
    deadline: float = 3600.0,
    reconnect: float | None = None,
    address: str | None = None,
    kit: Path | None = None,
    plaintext: bool = False,
    release: list[Path] | None = None,
    rows: Path | None = None,
    pilot: int = 0,
    preflight: bool = False,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Run one party of a job here; the other parties run elsewhere, linked by TLS with certificates on both sides.

    Args:
        out: The run folder to create; default: runs/JOB-NAME next to the private file.
        address: HOST:PORT of the active party, if not the one in the job: a tunnel.
        kit: NVFlare startup kit (its folder startup) whose certificate to use.
        preflight: Check files, certificates, table and the other parties; do not train.

    Example: cutlayer party job.yaml --as telco --local telco.yaml --preflight
    """
    setup = load_party(
        job,
        name,
        local,
        plaintext=plaintext,
        timeout=timeout,
        deadline=deadline,
        reconnect=reconnect,
        address=address,
        kit=kit,
    )
    from cutlayer.cli.logged import logged
    from cutlayer.cli.progress import progress_for
    from cutlayer.config.lines import locating_errors
    from cutlayer.config.load import with_device
    from cutlayer.consent import allowed
    from cutlayer.jobs.options import Options
    from cutlayer.jobs.party import run_party
    from cutlayer.jobs.preflight import run_preflight

    chosen = with_device(setup.job, device, name)
    folder = out or setup.base
    links = replace(setup.links, releases=checked_releases(setup.job, name, release, rows), rows=rows)
    forgets = checked_forget(forget, resume)
    options = Options(keys_for(local.parent, key), resume, forget_peer_progress=forgets, pilot=pilot)
    lines = locating_errors(job, local)
    models = allowed(*setup.private.allow_models)
    if preflight:
        with models:
            raise typer.Exit(show_checks(run_preflight(chosen, name, options, setup.links), as_json=json))
    with (
        lines,
        interruptible(folder),
        models,
        progress_for(quiet=quiet or json) as progress,
        logged(chosen, name, folder, progress) as watched,
    ):
        ran = run_party(chosen, name, folder, options, watched, links)
    code = finish(ran, as_json=json)
    if name != setup.job.active and not json:
        print_trail(setup.links.trail)
    raise typer.Exit(code)


def show_checks(checks: Sequence[PreflightCheck], *, as_json: bool) -> int:
    """Show the checks of a preflight; returns the exit code."""
    ready = all(not check.problem for check in checks)
    if as_json:
        print_json({"ready": ready, "checks": [asdict(check) for check in checks]})
    else:
        console = Console()
        for check in checks:
            mark, text = ("[red]fix[/]", check.problem) if check.problem else ("[green]ok[/] ", check.result)
            if check.caution:
                mark = "[yellow]warning[/]"
            console.print(mark, escape(f"{check.name}: {printable(shortened(text))}"), highlight=False, soft_wrap=True)
    return 0 if ready else EXIT_BAD_INPUT
