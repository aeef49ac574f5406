"""The links of a party's process: its certificates, addresses and patience."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cutlayer.channel.address import check_fixed_port, split_address
from cutlayer.channel.approvals import Approval
from cutlayer.channel.contract import Contract
from cutlayer.channel.grpc_client import ClientLink
from cutlayer.channel.grpc_link import ENDED_FIELD, RECONNECT_SECONDS, Links
from cutlayer.channel.grpc_server import ServerLinks
from cutlayer.channel.security import Security
from cutlayer.channel.tls.authority import files_in
from cutlayer.channel.tls.files import CertificateFiles, Credentials, LoadedFiles
from cutlayer.channel.trail import Trail
from cutlayer.config import Job, PrivateFile
from cutlayer.config.phases import Phase
from cutlayer.config.serve import ServeConfig
from cutlayer.errors import ConfigError, CutlayerError, NotApproved
from cutlayer.jobs.approval import approvals_of, requires_approval
from cutlayer.training.run_ledger import ledger_of

KEYS_FOLDER = "keys"
"""Folder of the certificate files, next to the private file, unless that names others."""

MAX_SECONDS = 10**7
"""Longest wait: the operating system's clocks of threads take not much more."""

EXPIRY_NOTICE = timedelta(days=14)
"""Time before its end at which a certificate is pointed out."""

DECLINE_SECONDS = 2.0
"""Timeout, in seconds, of the greeting by which a passive party reports that it has ended."""

Notify = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class LinkOptions:
    """How a party connects to the others.

    Attributes:
        security: Certificates and identities; `None` for links without TLS on this machine.
        listen: Address that the active party listens at, if it is not the one that its partners connect to.
        timeout: Seconds to wait for the other parties to connect.
        deadline: Seconds that a connected party may take for a step. It answers pings of the transport meanwhile, so
            that a frozen machine is noticed much earlier.
        reconnect: Seconds within which a broken connection may be replaced; `None` is `RECONNECT_SECONDS` with TLS and
            0 on this machine, where a connection breaks only with its process.
        notify: Called with what happens to connections.
        trail: Folder of the party's egress trail; `None` for none.
        releases: Files of `cutlayer release` that the active party reads in place of connections.
        rows: File of `cutlayer align` with the common rows, where releases are files; `None` for all rows.
        run: Run folder of a trained model that predicts over these links; `None` before a training.
    """

    security: Security | None = None
    listen: str | None = None
    timeout: float = 300.0
    deadline: float = 3600.0
    reconnect: float | None = None
    notify: Notify = logging.getLogger(__name__).info
    trail: Path | None = None
    releases: tuple[Path, ...] = ()
    rows: Path | None = None
    run: Path | None = None

    def __post_init__(self) -> None:
        for name in ("timeout", "deadline", "reconnect"):
            seconds = getattr(self, name)
            if seconds is not None and not 0 <= seconds < MAX_SECONDS:
                raise ConfigError.expected(f"--{name} from 0 to {MAX_SECONDS:,} seconds", seconds)

    @property
    def seconds_to_reconnect(self) -> float:
        """Seconds within which a broken connection may be replaced."""
        if self.reconnect is not None:
            return self.reconnect
        return RECONNECT_SECONDS if self.security is not None else 0.0


def security_of(job: Job, name: str, private: PrivateFile, folder: Path, notify: Notify) -> Security:
    """The certificates of a party, and the identities that the job has for all parties.

    Args:
        job: The job.
        name: Name of the party.
        private: Private file of the party.
        folder: Folder of the private file.
        notify: Called when the certificate files were replaced.

    Raises:
        ConfigError: There are no certificate files.
        TrustError: One of them cannot be used, or is of another party.
    """
    if private.tls is not None:
        files = CertificateFiles(private.tls.ca, private.tls.cert, private.tls.key, private.tls.crl)
    else:
        files = files_in(folder / KEYS_FOLDER, name)
        if not files.cert.exists():
            wanted = f"the certificate of {name} at {files.cert}, or tls in the private file"
            remedy = "see cutlayer keys; --plaintext links parties on this machine without one"
            raise ConfigError.expected(wanted, "none", remedy)
    security = Security(Credentials(files, notify), job.identities)
    security.check_own(name)
    _warn_early(security.credentials.current(), notify)
    return security


def _warn_early(loaded: LoadedFiles, notify: Notify) -> None:
    """Say that the certificate soon expires, and that a revocation list should have been replaced."""
    now = datetime.now(UTC)
    until = loaded.certificate.not_valid_after_utc
    if until - now < EXPIRY_NOTICE:
        notify(f"this party's certificate expires at {until:%Y-%m-%d %H:%M} UTC; have it renewed (cutlayer keys renew)")
    if loaded.lists_until is not None and loaded.lists_until < now:
        notify(f"the revocation list should have been replaced by {loaded.lists_until:%Y-%m-%d}; ask for a new one")


def contract_of(job: Job) -> Contract:
    """The contract of all parties, in a form whose differing keys can be named."""
    shared = job.shared()
    parties = dict(shared.pop("parties"))
    return Contract({"name": job.name, **shared, "parties": parties, "order of parties": list(parties)})


def address_of(job: Job) -> str:
    """Address where the passive parties find the active one.

    Raises:
        ConfigError: The job has none, or one without a port.
    """
    address = job.parties[job.active].address
    if address is None:
        raise ConfigError.expected(f"parties.{job.active}.address", "none", "such as 127.0.0.1:7070")
    check_fixed_port(address)
    return address


def with_address(job: Job, address: str | None) -> Job:
    """The job with another address of the active party, as this party alone reaches it; the job itself for `None`.

    Raises:
        ConfigError: The address has another form than HOST:PORT.
    """
    if address is None:
        return job
    check_fixed_port(address)
    return job.with_parties({job.active: {"address": address}})


def open_server(
    job: Job, options: LinkOptions, *, greet_only: bool = False, peers: Sequence[str] | None = None
) -> ServerLinks:
    """Listen as the active party of a job.

    Args:
        job: The job.
        options: How to connect.
        greet_only: Whether callers are only checked, and none is linked.
        peers: Passive parties that may connect; all of the job by default.
    """
    address = options.listen or address_of(job)
    split_address(address)
    return ServerLinks(
        address,
        job.active,
        job.passives if peers is None else peers,
        secrets.token_hex(8),
        timeout=options.timeout,
        greet_only=greet_only,
        shut_when_complete=Phase.LEAVE in job.phases,
        public_address=job.parties[job.active].address or "",
        **_transport(job, job.active, options),
    )


def make_client(job: Job, name: str, options: LinkOptions) -> ClientLink:
    """A passive party's end of its link, not open yet."""
    return ClientLink(address_of(job), name, job.active, timeout=options.timeout, **_transport(job, name, options))


@contextmanager
def open_links(job: Job, name: str, options: LinkOptions) -> Iterator[Links]:
    """Open links to all peers of a party; a missing one is named here, and not at the first message due from it.

    Args:
        job: The job.
        name: Name of the party that this process is.
        options: How to connect.
    """
    if name == job.active:
        with open_server(job, options) as server:
            server.wait_for_peers()
            yield server
    else:
        with make_client(job, name, options) as client:
            client.open(options.timeout)
            yield client


@contextmanager
def reporting_failure(job: Job, name: str, options: LinkOptions) -> Iterator[None]:
    """Report to the active party that this passive one failed before it connected; the reason is not sent.

    Args:
        job: The job.
        name: Name of the party that this process is.
        options: How to connect.
    """
    try:
        yield
    except CutlayerError:
        if name != job.active and not options.releases:
            with suppress(CutlayerError), make_client(job, name, replace(options, notify=_ignore)) as client:
                client.greet(DECLINE_SECONDS, **{ENDED_FIELD: "yes"})
        raise


def _ignore(_: str) -> None:
    """Discard a message: that the active party does not answer adds nothing to the failure itself."""


def trail_folder(private: PrivateFile, name: str, folder: Path) -> Path:
    """Folder of a party's egress trail, next to its secret.

    Args:
        private: Private file of the party.
        name: Name of the party.
        folder: Folder of the private file.
    """
    secret = private.secret or folder / ".cutlayer" / f"{name}.key"
    return secret.with_name(f"{secret.name}.trail")


def _transport(job: Job, name: str, options: LinkOptions) -> dict[str, Any]:
    """Fields of `Transport` at a party."""
    return {
        "security": options.security,
        "contract": contract_of(job),
        "reconnect": options.seconds_to_reconnect,
        "notify": options.notify,
        "trail": trail_of(job, name, options, options.run),
    }


def trail_of(job: Job, name: str, options: LinkOptions, run: Path | None = None) -> Trail | None:
    """The egress trail of the options, opened; `None` where they have none.

    Args:
        job: As of `open_trail`.
        name: Name of the party.
        options: How it is linked.
        run: As of `open_trail`.

    Raises:
        NotApproved: As `open_trail`, and where approvals are required and the options have no trail.
    """
    if options.trail is not None:
        return open_trail(job, name, options.trail, options.security, run)
    if requires_approval(job, name):
        raise NotApproved.expected("an egress trail, which approvals are noted on", "none", "name LinkOptions.trail")
    return None


def open_trail(
    job: Job,
    name: str,
    folder: Path,
    security: Security | None,
    run: Path | None = None,
    serve: ServeConfig | None = None,
) -> Trail:
    """The egress trail of a party's process, which its first message begins; every way of sending passes it.

    Args:
        job: Job with the party's private part as it is now.
        name: Name of the party.
        folder: Folder of its trail.
        security: Certificates and identities; `None` without TLS.
        run: Run folder of the trained model of which something is sent: the approval must be of what it was trained
            with. `None` before a training.
        serve: Online serving by the private file; `None` where nothing is served.

    Raises:
        NotApproved: The job, or the party, requires approvals, and one of them is missing or not accepted. Later
            messages raise it too, as soon as one is withdrawn.
    """
    approvals = approvals_of(job, name, folder, security, run, serve) if requires_approval(job, name) else None
    approved = () if approvals is None else approvals.check()
    return Trail(folder, _about(job, name, security, approved), approvals)


def notes_trail(job: Job, name: str, folder: Path, security: Security | None) -> Trail:
    """A trail for notes on what was sent before, of a start that sends nothing and so needs no approval."""
    return Trail(folder, _about(job, name, security, ()))


def note_approvals(job: Job, name: str, folder: Path, security: Security, records: Sequence[Approval]) -> None:
    """Write records that were signed or read into the egress trail, as of a start that sends nothing."""
    trail = Trail(folder, _about(job, name, security, records))
    trail.begin("approval")
    trail.close()


def _about(job: Job, name: str, security: Security | None, approved: Sequence[Approval]) -> dict[str, Any]:
    entries = [entry for entry in ledger_of(job).entries if entry.party == name]
    fit = job.parties[name].fit or {}
    return {
        "party": name,
        "job": job.name,
        "digest": job.digest(),
        "identity": job.identities[name] if security is not None else "",
        "limits": [f"{column} {share}" for column, share in (fit.get("limits") or {}).items()],
        "ledger": [f"{entry.protection}: {entry.statement}" for entry in entries],
        "approvals": [record.summary for record in approved],
    }
