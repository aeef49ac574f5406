"""What the verbs between organisations share: the options, the private file, and how to connect."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from cutlayer.cli.app import notify
from cutlayer.errors import ConfigError

if TYPE_CHECKING:
    from cutlayer.config import Job, PrivateFile
    from cutlayer.jobs.links import LinkOptions

Name = Annotated[str, typer.Option("--as", help="The party of the job that this process runs.", show_default=False)]
LocalFile = Annotated[Path, typer.Option("--local", help="This organisation's private party file.", show_default=False)]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds to wait for the other parties to connect.")]
Deadline = Annotated[
    float, typer.Option("--deadline", help="Seconds that a connected party may take for a single step.")
]
Reconnect = Annotated[
    float | None,
    typer.Option(
        "--reconnect",
        help="Seconds within which a broken connection may be replaced; default: 30, and 0 with --plaintext.",
        show_default=False,
    ),
]
Plaintext = Annotated[
    bool, typer.Option("--plaintext", help="Link without TLS and certificates; only between processes of this machine.")
]


Address = Annotated[
    str | None,
    typer.Option(
        "--address", help="HOST:PORT of the active party, if not the one in the job: a tunnel.", show_default=False
    ),
]
Kit = Annotated[
    Path | None,
    typer.Option(
        "--kit", help="NVFlare startup kit (its folder startup) whose certificate to use.", show_default=False
    ),
]
Releases = Annotated[
    list[Path] | None,
    typer.Option(
        "--release",
        help="A file of cutlayer release, one of each partner, in place of connections; at the label owner.",
        show_default=False,
    ),
]
Rows = Annotated[
    Path | None,
    typer.Option("--rows", help="With files: the common rows, by the CSV file of cutlayer align. Default: all rows."),
]
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


class Organisation(NamedTuple):
    """One organisation's part of a job.

    Attributes:
        job: The job with this party's private part in it.
        private: The private party file.
        links: How to connect to the other parties.
    """

    job: Job
    private: PrivateFile
    links: LinkOptions


def organisation(
    job: Path,
    name: str,
    local: Path,
    *,
    plaintext: bool,
    timeout: float,
    deadline: float,
    reconnect: float | None,
    address: str | None = None,
    kit: Path | None = None,
) -> Organisation:
    """Read the job and the private file of a party, and find how it connects, by both and the command line.

    Raises:
        CutlayerError: A file cannot be read or does not fit, or the certificates are missing or not accepted.
    """
    from cutlayer.config.load import load_job, load_private_part, with_private_part
    from cutlayer.config.party import TlsConfig

    private = load_private_part(local)
    read = with_private_part(load_job(job), name, private)
    from cutlayer.jobs.links import LinkOptions, at_address, security_of, trail_folder  # with gRPC and PyTorch

    whole = at_address(read, address)
    listen = private.listen
    if kit is not None:
        tls = TlsConfig(ca=kit / "rootCA.pem", cert=kit / "client.crt", key=kit / "client.key")
        private = private.model_copy(update={"tls": tls})
        listen = listen or (None if whole.parties[whole.active].address else LOOPBACK)
    links = LinkOptions(
        trail=trail_folder(private, name, local.parent),
        security=None if plaintext else security_of(whole, name, private, local.parent, notify),
        listen=listen,
        timeout=timeout,
        deadline=deadline,
        reconnect=reconnect,
        notify=notify,
    )
    return Organisation(whole, private, links)
