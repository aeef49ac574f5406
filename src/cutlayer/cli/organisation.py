"""Shared parts of the verbs between organisations: the options, the private file, and how to connect."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cutlayer.cli.app import print_notice
from cutlayer.errors import ConfigError

if TYPE_CHECKING:
    from cutlayer.config import Job, PrivateFile
    from cutlayer.data.forgotten import ForgottenRows
    from cutlayer.jobs.links import LinkOptions


LOOPBACK = "127.0.0.1:0"
"""Where an active party without an address listens under NVFlare, whose messages then reach it."""


def checked_releases(job: Job, name: str, paths: list[Path] | None, rows: Path | None) -> tuple[Path, ...]:
    """The files of partners' releases.

    Raises:
        ConfigError: A passive party names one, or common rows are named without a file.
    """
    if paths and name != job.active:
        remedy = "a passive party writes one with cutlayer release"
        raise ConfigError.expected(f"--release at {job.active} alone", f"one at {name}", remedy)
    if rows is not None and not paths:
        raise ConfigError.expected("--rows with --release", "--rows alone", "parties that connect align by themselves")
    return tuple(paths or ())


def check_scores_options(active: str, name: str, out: str | None, absent: Sequence[str] | None) -> None:
    """Raise unless the options of a prediction fit the party's role.

    Raises:
        ConfigError: The active party has no `--out`, or a passive one has it or names absent parties.
    """
    if name != active and (out is not None or absent):
        raise ConfigError.expected(f"--out and --absent at {active} alone", f"one at {name}", "leave it out")
    if name == active and out is None:
        remedy = "name a .parquet or .csv file, or URL#TABLE"
        raise ConfigError.expected(f"--out at {name}, which has the predictions", "none", remedy)


class Organisation(NamedTuple):
    """One organisation's part of a job.

    Attributes:
        name: Name of the party.
        job: The job with this party's private part in it.
        private: The private party file.
        links: How to connect to the other parties.
        folder: Folder of the private file.
        base: Path of its run folder by default, without a version.
    """

    name: str
    job: Job
    private: PrivateFile
    links: LinkOptions
    folder: Path
    base: Path

    @property
    def forgotten(self) -> ForgottenRows | None:
        """The rows that this party has forgotten."""
        from cutlayer.data.forgotten import ForgottenRows

        return None if self.links.trail is None else ForgottenRows.for_trail(self.links.trail)


def load_party(
    job: Path,
    name: str,
    local: Path,
    *,
    plaintext: bool = False,
    timeout: float = 0,
    deadline: float = 0,
    reconnect: float | None = None,
    address: str | None = None,
    kit: Path | None = None,
) -> Organisation:
    """Read the job and the private file of a party, and find how it connects, by both and the command line.

    Raises:
        CutlayerError: A file cannot be read or does not fit, or the certificates are missing or not accepted.
    """
    from cutlayer.config.load import load_closed_job, load_private_part, with_private_part
    from cutlayer.config.party import TlsConfig

    private = load_private_part(local)
    read = with_private_part(load_closed_job(job), name, private)
    from cutlayer.jobs.links import LinkOptions, security_of, trail_folder, with_address  # with gRPC and PyTorch

    whole = with_address(read, address)
    listen = private.listen
    if kit is not None:
        tls = TlsConfig(ca=kit / "rootCA.pem", cert=kit / "client.crt", key=kit / "client.key")
        private = private.model_copy(update={"tls": tls})
        listen = listen or (None if whole.parties[whole.active].address else LOOPBACK)
    links = LinkOptions(
        trail=trail_folder(private, name, local.parent),
        security=None if plaintext else security_of(whole, name, private, local.parent, print_notice),
        listen=listen,
        timeout=timeout,
        deadline=deadline,
        reconnect=reconnect,
        notify=print_notice,
    )
    base = local.parent / "runs" / f"{job.stem}-{name}"
    return Organisation(name, whole, private, links, local.parent, base)
