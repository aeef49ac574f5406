"""Writes a job as a folder that `nvflare job submit` takes; no code is in it, only which of our classes to start."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cutlayer.config import Job
from cutlayer.config.identities import COMMON_NAME
from cutlayer.config.load import dump_job
from cutlayer.config.party import PartyConfig, PrivatePart
from cutlayer.errors import ConfigError
from cutlayer.storage.durable import check_new, make_folder, write_whole
from cutlayer_nvflare.route import Route

SHARED_JOB = "job.yaml"
"""File with the shared part of the job: in the submitted folder, and each site's own copy."""
CHECK = "cutlayer_check"
"""The first task, at every site."""
START = "cutlayer_start"
"""The second task, at the active party's site."""
TRAIN = "cutlayer_train"
"""The third task, at all sites."""
PAYLOAD = "cutlayer"
"""Key of the JSON text in a task and in its answer."""
_CONTROLLER = "cutlayer_nvflare.controller.CutlayerController"
_EXECUTOR = "cutlayer_nvflare.executor.CutlayerExecutor"
_SITE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_RUN = re.compile(r"[0-9a-fA-F][0-9a-fA-F-]{7,63}")
_PUBLIC = 0o644


class ExportedJob(NamedTuple):
    """A job folder that was written.

    Attributes:
        name: Name of the job, and of the folder that each site has for it.
        files: Files, relative to the folder.
        sites: Site by party.
        left_out: What of the job file is not in it, because it is private or has no meaning between organisations.
    """

    name: str
    files: tuple[str, ...]
    sites: Mapping[str, str]
    left_out: tuple[str, ...]


def export_job(
    job: Job, out: Path, sites: Mapping[str, str] | None = None, *, route: Route = Route.AUTO, resume: str = ""
) -> ExportedJob:
    """Write a job folder for NVFlare 2.9 or newer.

    Args:
        job: Job; private parts in it are left out.
        out: Folder to make; it must not exist, or be empty.
        sites: Site by party, where their names differ.
        route: How a passive party reaches the active one.
        resume: NVFlare's id of an earlier job whose run the parties continue; empty for a new run.

    Raises:
        ConfigError: An unknown party, two parties at one site, a name that NVFlare's certificates cannot have, no
            address for a direct route, or `on_absent: wait`.
        RunFolderError: The folder has something in it.
        CutlayerError: An error of `check_job`.
    """
    site_of = _sites(job, sites or {})
    name = job_folder_name(job.name)
    _check(job, route, resume)
    check_new(out)
    public = public_job(job, site_of)
    args = {"job": name, "route": route.value, "resume": resume}
    controller = {
        "active": site_of[job.active],
        "passives": [site_of[party] for party in job.passives],
        "may_leave": [site_of[party] for party in job.passives if job.parties[party].on_absent == "continue"],
    }
    files = {
        "meta.json": _text(_meta(name, list(site_of.values()))),
        "app/config/config_fed_server.json": _text(
            {"format_version": 2, "workflows": [{"id": "cutlayer", "path": _CONTROLLER, "args": controller}]}
        ),
        "app/config/config_fed_client.json": _text(
            {
                "format_version": 2,
                "executors": [{"tasks": [CHECK, START, TRAIN], "executor": {"path": _EXECUTOR, "args": args}}],
            }
        ),
        f"app/config/{SHARED_JOB}": dump_job(public),
    }
    for path, text in files.items():
        make_folder((out / path).parent)
        write_whole(out / path, text, _PUBLIC)
    return ExportedJob(name, tuple(files), site_of, _left_out(job))


def public_job(job: Job, sites: Mapping[str, str]) -> Job:
    """The shared part of a job, with the sites as identities: no table, column, protection, audit or baseline."""
    parties = {
        name: PartyConfig(
            role=party.role, address=party.address, identity=f"{COMMON_NAME}{sites[name]}", on_absent=party.on_absent
        )
        for name, party in job.parties.items()
    }
    return job.model_copy(update={"parties": parties, "compare": (), "alternatives": {}})


def job_folder_name(name: str) -> str:
    """The name of a job as one that can name a folder at each site.

    >>> job_folder_name("Credit default, 2026")
    'Credit-default-2026'

    Raises:
        ConfigError: Nothing of it is left.
    """
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:64]
    if not _SITE.fullmatch(safe):
        raise ConfigError.expected("a job name with letters or digits", repr(name), "set name in the job")
    return safe


def valid_run(text: str) -> str:
    """Return the id of an NVFlare job, which names a run folder.

    Raises:
        ConfigError: Other characters.
    """
    if not _RUN.fullmatch(text):
        raise ConfigError.expected("the id of an NVFlare job (nvflare job list)", repr(text[:80]))
    return text


def _sites(job: Job, stated: Mapping[str, str]) -> dict[str, str]:
    unknown = [party for party in stated if party not in job.parties]
    if unknown:
        raise ConfigError.expected(f"--site with a party of the job ({', '.join(job.parties)})", ", ".join(unknown))
    sites = {party: stated.get(party, party) for party in job.parties}
    if len(set(sites.values())) < len(sites):
        raise ConfigError.expected("a site of its own for each party", ", ".join(sites.values()))
    for site in sites.values():
        if not _SITE.fullmatch(site) or site.lower() == "server":
            raise ConfigError.expected(
                "the name of an NVFlare site, of letters, digits, _ - and ., that is not the server's", repr(site)
            )
    return sites


def _check(job: Job, route: Route, resume: str) -> None:
    if resume:
        valid_run(resume)
    if route is Route.DIRECT and job.parties[job.active].address is None:
        raise ConfigError.expected(
            f"parties.{job.active}.address with --route direct", "none", "name one, or take --route hub"
        )
    for name, party in job.parties.items():
        if party.on_absent == "wait":
            remedy = "NVFlare starts no site again within a job; take stop, and submit with --resume-job"
            raise ConfigError.expected(f"parties.{name}.on_absent: stop or continue under NVFlare", "wait", remedy)
    from cutlayer.jobs.check import check_job  # loads the tensor library, which the processes of NVFlare do not need

    check_job(job, local_party="")


def _left_out(job: Job) -> tuple[str, ...]:
    private_keys = [
        f"parties.{name}.{key}"
        for name, party in job.parties.items()
        for key in PrivatePart.model_fields
        if getattr(party, key) != PrivatePart.model_fields[key].get_default(call_default_factory=True)
    ]
    return (*private_keys, *(key for key in ("compare", "alternatives") if getattr(job, key)))


def _meta(name: str, sites: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "resource_spec": {},
        "min_clients": len(sites),
        "mandatory_clients": sites,
        "deploy_map": {"app": ["server", *sites]},
    }


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=1) + "\n"
