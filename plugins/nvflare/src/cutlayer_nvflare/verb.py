"""`cutlayer nvflare`, which the command line finds by its entry point: a job that NVFlare runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cutlayer.cli.app import print_result
from cutlayer.errors import ConfigError
from cutlayer_nvflare.route import Route


def nvflare(
    job: Path,
    *,
    out: Path,
    site: list[str] | None = None,
    route: Route = Route.AUTO,
    resume_job: str = "",
    json: bool = False,
) -> None:
    """Write a job folder for NVFlare, which starts, aborts and logs the parties, each at its site.

    Args:
        out: The job folder to make.
        site: PARTY=SITE where NVFlare's site has another name; may be repeated.
        route: How passive parties reach the active one: its address, the hub's messages, or auto.
        resume_job: NVFlare's id of the job whose run is continued.

    Example: cutlayer nvflare job.yaml --out nvflare-job --site bank=site-1 --site telco=site-2
    """
    from cutlayer.config.load import load_closed_job
    from cutlayer_nvflare.export import export_job

    exported = export_job(load_closed_job(job), out, _sites(site or ()), route=route, resume=resume_job)
    needed = f"which needs local/cutlayer/{exported.name}/job.yaml and party.yaml"
    sites = [f"  {party}: site {name}, {needed}" for party, name in exported.sites.items()]
    left_out = [f"  left out: {', '.join(exported.left_out)}"] if exported.left_out else []
    print_result(json, {"out": str(out), **exported._asdict()}, f"{out}: job {exported.name}", *sites, *left_out)


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
