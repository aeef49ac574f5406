"""Parties in threads of this process, each with the files of its own organisation, linked as processes are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch

from cutlayer.channel.grpc_client import ClientLink
from cutlayer.channel.grpc_link import Links
from cutlayer.channel.grpc_server import ServerLinks
from cutlayer.cli.organisation import load_party
from cutlayer.consent import allowed
from cutlayer.jobs.options import Options, Progress
from cutlayer.jobs.party import run_party
from cutlayer.training.keys import Keys
from tests.parties.interruptions import Crash
from tests.parties.processes import Site
from tests.parties.runs import KEY

WAITS: tuple[tuple[type, str], ...] = (
    (Links, "receive"),
    (ServerLinks, "wait_for_peers"),
    (ServerLinks, "close"),
    (ClientLink, "open"),
    (ClientLink, "close"),
)
"""Where a party waits for another one."""


def run_apart(
    sites: Mapping[str, Site],
    *models: str,
    tls: bool = False,
    resume: bool = False,
    progress: Mapping[str, Progress] | None = None,
) -> None:
    """Run the part of each organisation to its end, as `cutlayer party` does in a process of its own.

    One runs at a time, until it waits for another, with a random state of its own, as a process has. Signals and what
    is printed are of processes, as in `tests/jobs/test_processes.py`. A party that dies of a `Crash` is started again,
    to resume.

    Args:
        sites: The organisations.
        models: Modules that all allow, beside those of their private files.
        tls: Whether each has a certificate in its folder `keys`.
        resume: Whether their runs go on from what is in their folders.
        progress: What is called at every stage, by party.
    """
    turn = threading.Lock()

    def waiting(wait: Callable[..., Any]) -> Callable[..., Any]:
        def waits(*args: Any, **options: Any) -> Any:
            mine = torch.get_rng_state()
            turn.release()
            try:
                return wait(*args, **options)
            finally:
                turn.acquire()
                torch.set_rng_state(mine)

        return waits

    def run_one(site: Site) -> None:
        with turn:
            found = load_party(
                site.folder / "job.yaml",
                site.name,
                site.folder / "party.yaml",
                plaintext=not tls,
                timeout=60,
                deadline=60,
            )
            watched = (progress or {}).get(site.name, Progress())
            options = Options(Keys(site.folder, KEY), resume=resume)
            with allowed(*found.private.allow_models, *models):
                try:
                    run_party(found.job, site.name, site.run, options, watched, found.links)
                except Crash:
                    options = replace(options, resume=True)
                    run_party(found.job, site.name, site.run, options, Progress(), found.links)

    with pytest.MonkeyPatch.context() as patched, ThreadPoolExecutor(len(sites)) as threads:
        for owner, name in WAITS:
            patched.setattr(owner, name, waiting(vars(owner)[name]))
        for ran in [threads.submit(run_one, site) for site in sites.values()]:
            ran.result()
