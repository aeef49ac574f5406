"""`cutlayer nvflare`: a job that NVFlare runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cutlayer.cli.app import Json, answer, app
from cutlayer.cli.run import JobFile
from cutlayer.errors import ConfigError
from cutlayer.nvflare.route import Route

Out = Annotated[Path, typer.Option("--out", help="The job folder to make.", show_default=False)]
Site = Annotated[
    list[str] | None,
    typer.Option("--site", help="PARTY=SITE where NVFlare's site has another name; may be repeated."),
]
Way = Annotated[
    Route,
    typer.Option("--route", help="How passive parties reach the active one: its address, the hub's messages, or auto."),
]
ResumeJob = Annotated[
    str, typer.Option("--resume-job", help="NVFlare's id of the job whose run is continued.", show_default=False)
]


@app.command()
def nvflare(
    job: JobFile,
    out: Out,
    site: Site = None,
    route: Way = Route.AUTO,
    resume_job: ResumeJob = "",
    json: Json = False,
) -> None:
    """Write a job folder for NVFlare, which starts, aborts and logs the parties, each at its site."""
    from cutlayer.config.load import load_job
    from cutlayer.nvflare.export import export_job

    exported = export_job(load_job(job), out, _sites(site or ()), route=route, resume=resume_job)
    needed = f"which needs local/cutlayer/{exported.name}/job.yaml and party.yaml"
    sites = [f"  {party}: site {name}, {needed}" for party, name in exported.sites.items()]
    left_out = [f"  left out: {', '.join(exported.left_out)}"] if exported.left_out else []
    answer(json, {"out": str(out), **exported._asdict()}, f"{out}: job {exported.name}", *sites, *left_out)


def _sites(texts: Sequence[str]) -> dict[str, str]:
    """Site by party, from texts of the form PARTY=SITE."""
    sites = dict[str, str]()
    for text in texts:
        party, equals, name = text.partition("=")
        if not equals:
            raise ConfigError.expected("--site PARTY=SITE", repr(text), "such as --site bank=site-1")
        if party in sites:
            raise ConfigError.expected(f"--site {party}=SITE once", "it twice", "keep one of them")
        sites[party] = name
    return sites
