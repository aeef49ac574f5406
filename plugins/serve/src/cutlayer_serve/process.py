"""The processes of the online service: that of the active party and that of a passive one."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch

from cutlayer.channel.address import check_loopback, is_loopback, split_address
from cutlayer.channel.security import Security
from cutlayer.channel.trail import Trail
from cutlayer.config import Job, PrivateFile, ServeConfig
from cutlayer.data.forgotten import ForgottenRows
from cutlayer.errors import ConfigError
from cutlayer.serving.drift import ColumnDrift
from cutlayer.serving.party_drift import column_drift
from cutlayer.training.keys import forgotten_rows
from cutlayer_serve.audit_log import AuditLog, read_log
from cutlayer_serve.callers import Callers
from cutlayer_serve.features import FeatureStore
from cutlayer_serve.passive import PassiveService
from cutlayer_serve.peers import Peers
from cutlayer_serve.releases import OnlineReleases
from cutlayer_serve.sample import ServedSample
from cutlayer_serve.trained_party import TrainedParty
from cutlayer_serve.versions import Versions

logger = logging.getLogger(__name__)

OnStarted = Callable[[Mapping[str, str]], None]
"""Called once everything is loaded, with the addresses."""

_SYNC_SECONDS = 1.0
"""Seconds between two syncs of the audit log."""
_SAMPLE_SECONDS = 30
"""Seconds, a multiple of the above, between two writes of the sample of served rows."""


def audit_path(trained: TrainedParty) -> Path:
    """The audit log of a party that serves a run."""
    return trained.folder.path / audit_file(trained.party)


def audit_file(party: str) -> Path:
    """Path of a party's audit log in a run folder."""
    return Path("serving", party, "releases.jsonl")


def address_of(trained: TrainedParty, config: ServeConfig) -> str:
    """Where the active party listens for the passive ones.

    Raises:
        ConfigError: Neither the private file nor the job states it.
    """
    address = config.address or trained.job.parties[trained.job.active].address
    if address is None:
        raise ConfigError.expected("serve.address in the private file", "none", "such as 127.0.0.1:7071")
    return address


def listening_address(trained: TrainedParty, private: PrivateFile) -> str:
    """Where this active party listens: `serve.address`, else `listen` in place of its address in the job.

    Raises:
        ConfigError: None of them is stated.
    """
    if private.serve.address is None and private.listen is not None:
        return private.listen
    return address_of(trained, private.serve)


async def serve_passive(
    trained: TrainedParty,
    private: PrivateFile,
    key: bytes | None,
    started: OnStarted,
    security: Security | None = None,
    trail: Trail | None = None,
) -> None:
    """Serve a passive party's part until cancelled.

    Args:
        trained: The party's part of the run.
        private: The party's private file.
        key: Key that replaced the keys of the run, 32 bytes; `None` where the party has its own.
        started: Called once the part is loaded.
        security: Certificates and identities; `None` for a stream without TLS on this machine.
        trail: Records every message to the other party before it is sent; `None` for none.

    Raises:
        CutlayerError: Bad input, or a refusal of the active party.
    """
    config = private.served
    address = address_of(trained, config)
    split_address(address) if security is not None else check_loopback(address)
    if trained.model.encoder is None:
        raise ConfigError(f"{trained.party} has no features; nothing of it can be served")
    torch.set_num_threads(1)
    forgotten = _forgotten(trained, trail)
    features = FeatureStore.read(trained.job, trained.party, config.table, trained.model.encoder, forgotten)
    audit = AuditLog(audit_path(trained))
    try:
        with OnlineReleases(trained, features, config.max_ids, key, passes=config.passes) as releases:
            drift = column_drift(trained.job, trained.folder, trained.party)
            sample = trained.sample(trained.party, config.sample_rows)
            service = PassiveService(releases, address, audit, drift, security, trail, sample)
            with _metrics(config, service, drift) as shown:
                about = {"party": trained.party, "connects_to": address, "part": service.tag}
                started({**about, "metrics": shown} if shown else about)
                async with _periodic_sync(audit, lambda: () if sample is None else (sample,)):
                    await service.run()
    finally:
        audit.close()
        if trail is not None:
            trail.close()


def _forgotten(trained: TrainedParty, trail: Trail | None) -> ForgottenRows | None:
    """The rows that the party has forgotten: by its private file, else by the run folder."""
    if trail is None or trail.folder.suffix != ".trail":  # it is named after the secret
        return forgotten_rows(trained.folder.path, trained.party)
    return ForgottenRows.for_trail(trail.folder)


def _metrics(config: ServeConfig, service: PassiveService, drift: ColumnDrift | None) -> AbstractContextManager[str]:
    if config.metrics is None:
        return nullcontext("")
    from cutlayer_serve.metrics import serve_metrics  # it needs the extra `serve`

    return serve_metrics(config.metrics, service.answered, drift)


async def serve_active(
    paths: tuple[Path, ...],
    party: str,
    private: PrivateFile,
    started: OnStarted,
    security: Security | None = None,
    trail: Trail | None = None,
) -> None:
    """Serve the active party's part of one run or several, the first of which answers, until stopped.

    Args:
        paths: Run folders.
        party: Name of the active party.
        private: Its private file.
        started: Called once it listens.
        security: As in `serve_passive`.
        trail: As in `serve_passive`.

    Raises:
        CutlayerError: Bad input.
    """
    torch.set_num_threads(1)
    async with active_service(paths, party, private, security, trail) as active:
        server = _uvicorn(active.app, private.serve)
        server.config.load()  # which reads the certificate
        address = private.serve.http.address
        host, _, port = address.rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listener = socket.create_server((host.strip("[]"), int(port)), family=family)
        except OSError:
            raise ConfigError(
                f"cannot listen at serve.http.address {address}: it is in use, or not an address of this machine; "
                "stop what listens there, or choose another port"
            ) from None
        url = f"{'https' if private.serve.http.certificate else 'http'}://{host}:{listener.getsockname()[1]}"
        started({"party": party, "url": url, "listens_at": active.peers.address})
        await server.serve([listener])


@dataclass(frozen=True)
class ActiveService:
    """The active party's service without its HTTP server.

    Attributes:
        app: The HTTP application.
        peers: The passive parties' streams.
        versions: The loaded versions.
    """

    app: Any
    peers: Peers
    versions: Versions


@asynccontextmanager
async def active_service(
    paths: tuple[Path, ...],
    party: str,
    private: PrivateFile,
    security: Security | None = None,
    trail: Trail | None = None,
) -> Any:
    """Open the active party's service: load the runs, listen for passive parties, open the audit log."""
    # The extra `serve` is needed at the active party alone.
    from cutlayer_serve.http import build_app
    from cutlayer_serve.metrics import Metrics
    from cutlayer_serve.service import PredictionService

    config = private.served
    first = TrainedParty.open(paths[0], party)
    job: Job = first.job
    _check_http(config)
    before = _rows_before(paths, party, config)
    async with AsyncExitStack() as opened:
        audit = AuditLog(audit_path(first))
        opened.callback(audit.close)
        limit = job.parties[party].limits.embedding_norm
        peers = Peers(party, job.passives, lambda name, tag: versions.width_of(name, tag), limit, security, trail)
        versions = Versions(config, party, audit, peers, _forgotten(first, trail))
        for path in paths:
            versions.load(path)
        await peers.listen(listening_address(first, private))
        if trail is not None:
            opened.callback(trail.close)
        opened.push_async_callback(peers.close)
        await opened.enter_async_context(
            _periodic_sync(audit, lambda: [each for on in versions.loaded for each in on.model.samples.values()])
        )
        service = PredictionService(versions, config, Metrics())
        app = build_app(service, peers, Callers(config.http.callers, before))
        yield ActiveService(app, peers, versions)


def _rows_before(paths: tuple[Path, ...], party: str, config: ServeConfig) -> Counter[str]:
    """Rows of all answers to each caller before this start, some of which are in the log of another run."""
    logs = [path / audit_file(party) for path in paths]
    if config.runs is not None:
        logs += sorted(config.runs.glob(f"*/{audit_file(party)}"))
    before: Counter[str] = Counter()
    for log in dict.fromkeys(path.resolve() for path in logs):
        for entry in read_log(log):
            before[str(entry.get("caller", ""))] += int(entry.get("rows", 0))
    return before


@asynccontextmanager
async def _periodic_sync(audit: AuditLog, samples: Callable[[], Collection[ServedSample]]) -> Any:
    """Sync the audit log to disk every second, and write the samples now and then, and at the end."""

    def write() -> None:
        for sample in samples():
            try:
                sample.write()
            except OSError as failure:  # a service goes on without its sample
                logger.warning("%s cannot be written: %s", sample.path, failure)

    async def sync() -> None:
        lines = 0
        loop = asyncio.get_running_loop()
        for second in count(1):
            await asyncio.sleep(_SYNC_SECONDS)
            if audit.lines != lines:
                lines = audit.lines
                await loop.run_in_executor(None, audit.sync)
            if second % _SAMPLE_SECONDS == 0:
                await loop.run_in_executor(None, write)

    task = asyncio.create_task(sync())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        write()


def _uvicorn(app: Any, config: ServeConfig) -> Any:
    import ssl

    import uvicorn

    from cutlayer_serve.prompt import PromptProtocol

    http = config.http
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=PromptProtocol,
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
            limit_concurrency=4096,
            ssl_certfile=http.certificate,
            ssl_keyfile=http.key,
            ssl_ca_certs=None if http.callers_ca is None else str(http.callers_ca),
            ssl_cert_reqs=ssl.CERT_REQUIRED if http.callers_ca else ssl.CERT_NONE,
        )
    )


def _check_http(config: ServeConfig) -> None:
    """Refuse an HTTP address that others reach without keys or in clear.

    Raises:
        ConfigError: It is off the loopback, and has no callers or no certificate.
    """
    http = config.http
    host, _, port = http.address.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and int(port) < 2**16):
        raise ConfigError.expected("serve.http.address as HOST:PORT", repr(http.address))
    if not is_loopback(host.strip("[]")) and not (http.callers and http.certificate):
        wanted = "serve.http.callers and a certificate where the address is not a loopback one"
        raise ConfigError.expected(wanted, f"{http.address} without them", "add both, or listen at 127.0.0.1")
