"""The workers of a party in processes of their own, as `torchrun` starts them: who leads, and where the lanes are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from cutlayer.channel.address import check_loopback, split_address
from cutlayer.config import Job
from cutlayer.errors import ConfigError
from cutlayer.jobs.links import LinkOptions, address_of, at_address, connected
from cutlayer.parties.compute.team import Team, joined
from cutlayer.parties.drive.by_links import driven
from cutlayer.parties.team.further_worker import FurtherWorker
from cutlayer.training.process import run_threads


@contextmanager
def team_of(job: Job, patience: float) -> Iterator[Team | None]:
    """Join the other workers of this party; `None` where the job has one worker.

    Args:
        job: The job.
        patience: Seconds to wait for another worker.

    Raises:
        ConfigError: There are not as many processes as the job says.
        PeerLost: The workers cannot be reached.
    """
    size = _number("WORLD_SIZE", 1)
    rank = rank_here()
    wanted = job.train.workers
    if size != wanted:
        remedy = f"start it by torchrun --nproc-per-node {wanted}" if wanted > 1 else "start it without torchrun"
        raise ConfigError.expected(f"{wanted} processes of this party, as train.workers says", size, remedy)
    with joined(rank, size, patience) if size > 1 else nullcontext() as team:
        yield team


def rank_here() -> int:
    """Number of this process among the workers of its party, 0 for the first or only one."""
    return _number("RANK", 0) if _number("WORLD_SIZE", 1) > 1 else 0


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if not (text.isascii() and text.isdigit()):
        raise ConfigError.expected(f"a number in the environment variable {name}", repr(text), "torchrun sets it")
    return int(text)


def on_lane(job: Job, links: LinkOptions, rank: int) -> tuple[Job, LinkOptions]:
    """The job and the links of a worker: its own address and its own egress trail.

    Args:
        job: The job.
        links: Links of the first worker.
        rank: Number of the worker.

    Raises:
        ConfigError: The lanes that the job names are not as many as the workers after the first.
    """
    if not rank:
        return job, links
    active = job.parties[job.active]
    address = active.lanes[rank - 1] if active.lanes else shifted(address_of(job), rank)
    if links.security is None:
        check_loopback(address)
    listen = None if links.listen is None else shifted(links.listen, rank)
    trail = None if links.trail is None else links.trail.with_name(f"{links.trail.name}.worker{rank}")
    return at_address(job, address), replace(links, listen=listen, trail=trail)


def shifted(address: str, by: int) -> str:
    """The address some ports further.

    >>> shifted("[::1]:7070", 2)
    '[::1]:7072'
    """
    _, port = split_address(address)
    if not 0 < port + by < 2**16:
        raise ConfigError.expected("a port for each worker below 65536", port + by, "lower the port of the address")
    return f"{address.rpartition(':')[0]}:{port + by}"


def run_further_worker(job: Job, name: str, out: Path, links: LinkOptions, team: Team) -> None:
    """Take part in a run as a worker after the first.

    Args:
        job: Job with this party's private part filled in.
        name: Name of the party.
        out: Run folder of the party, which the first worker makes.
        links: How the first worker connects to the other parties.
        team: This worker and the others of its party.

    Raises:
        PeerLost: The first worker, or the same worker of another party, ended.
    """
    job, links = on_lane(job, links, team.rank)
    data = out / "data" / name
    processes = len(job.parties) * workers_here()
    with (
        run_threads(job.train.threads, job.train.batch_size, processes=processes),
        connected(job, name, links) as linked,
    ):
        driven(FurtherWorker(job, name, team, linked.ports, data).run(), linked, links.deadline)


def workers_here() -> int:
    """Number of workers of this party on this machine."""
    return _number("LOCAL_WORLD_SIZE", 1)
