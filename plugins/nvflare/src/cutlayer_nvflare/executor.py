"""Executor that NVFlare starts at a site: checks the job against its copy, runs the party, and stops it on abort."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from cutlayer.channel.address import split_address
from cutlayer.channel.tls.names import fingerprint
from cutlayer.channel.tls.probe import probe
from cutlayer.errors import ConfigError, CutlayerError, PeerLost, TrustError
from cutlayer.version import __version__
from cutlayer_nvflare.export import CHECK, PAYLOAD, SHARED_JOB, START, TRAIN, valid_run
from cutlayer_nvflare.process import PartyProcess
from cutlayer_nvflare.route import Route
from cutlayer_nvflare.site import AgreedJob, agreed_job
from cutlayer_nvflare.tunnel import Segment, Tunnel

TOPIC = "cutlayer.tunnel"
RECONNECT_SECONDS = 10.0
"""Seconds within which a broken connection may be replaced: a killed site ends the job soon after."""
_LISTEN_SECONDS = 120.0
_PROBE_SECONDS = 5.0
_ANSWER_SECONDS = 6.0
_POLL_SECONDS = 0.2


class CutlayerExecutor(Executor):  # type: ignore[misc]
    """Runs this site's party of a job.

    Args:
        job: Name of the job, which the site has a folder for.
        route: How a passive party reaches the active one; see `Route`.
        resume: NVFlare's id of the job whose run is continued; empty for a new run.
    """

    def __init__(self, job: str, route: str = "auto", resume: str = "") -> None:
        super().__init__()
        self._name = job
        self._route = Route(route)
        self._resume = valid_run(resume) if resume else ""
        self._agreement: AgreedJob | None = None
        self._process: PartyProcess | None = None
        self._tunnel: Tunnel | None = None
        self._engine: Any = None
        self._starting = threading.Lock()
        self.register_event_handler(EventType.START_RUN, self._begin)
        self.register_event_handler([EventType.ABORT_TASK, EventType.END_RUN], self._end)

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Do a task; failures are in the answer, in words that may leave the site."""
        tasks: Mapping[str, Callable[[Any, FLContext, Signal], dict[str, Any]]] = {
            CHECK: self._check,
            START: self._start,
            TRAIN: self._train,
        }
        if task_name not in tasks:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        try:
            answer = tasks[task_name](_request(shareable), fl_ctx, abort_signal)
        except CutlayerError as failure:
            answer = {"error": str(failure)}
            for note in getattr(failure, "__notes__", ()):
                self.logger.info(note)
        if abort_signal.triggered:
            self._stop()
            return make_reply(ReturnCode.TASK_ABORTED)
        if answer.get("error"):
            self.log_warning(fl_ctx, answer["error"], fire_event=False)
        reply = make_reply(ReturnCode.OK)
        reply[PAYLOAD] = json.dumps(answer)
        return reply

    def _check(self, request: Any, fl_ctx: FLContext, abort_signal: Signal) -> dict[str, Any]:
        workspace, run = fl_ctx.get_workspace(), fl_ctx.get_job_id()
        self._agreement = agreed = agreed_job(
            Path(workspace.get_site_config_dir()),
            Path(workspace.get_startup_kit_dir()),
            self._name,
            Path(workspace.get_app_config_dir(run)) / SHARED_JOB,
            fl_ctx.get_identity_name(),
        )
        return {"party": agreed.party, "version": __version__, "fingerprint": agreed.fingerprint()}

    def _start(self, request: Any, fl_ctx: FLContext, abort_signal: Signal) -> dict[str, Any]:
        """Start the active party; returns where it listens."""
        agreed = self._agreed()
        if not agreed.is_active:  # the tunnel of a passive site leads nowhere, whatever the server asks for
            return {"error": "only the active party is started before the others"}
        process = self._launch(agreed, fl_ctx, None)
        for _ in range(int(_LISTEN_SECONDS / _POLL_SECONDS)):
            if process.wait_until_listening(_POLL_SECONDS) or process.ended or abort_signal.triggered:
                break
        if not process.address:
            return {"error": process.problem() if process.ended else f"it does not listen after {_LISTEN_SECONDS:g} s"}
        host, port = split_address(process.address)
        # A wildcard address is for listening; this machine's own party is at the loopback then.
        self._opened_tunnel().lead_to({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)  # noqa: S104
        return {"address": process.address}

    def _train(self, request: Any, fl_ctx: FLContext, abort_signal: Signal) -> dict[str, Any]:
        """Run the party to its end."""
        agreed = self._agreed()
        route = ""
        if agreed.is_active:
            process = self._process
            if process is None:
                return {"error": "it was not started"}
        else:
            self._check_first_start()  # before a way is opened, of which a hub could ask for any number
            route, address = self._way(agreed, str(request.get("fingerprint", "")), fl_ctx)
            process = self._launch(agreed, fl_ctx, address)
        while not process.wait(_POLL_SECONDS) and not abort_signal.triggered:
            pass
        if abort_signal.triggered:
            return {"error": "aborted"}
        return {"party": agreed.party, "route": route, "error": process.problem(), "run": self._run(fl_ctx)}

    def _way(self, agreed: AgreedJob, wanted: str, fl_ctx: FLContext) -> tuple[str, str]:
        """How this passive party reaches the active one: the route, and the address to connect to.

        Raises:
            PeerLost: The direct route was asked for, and nobody answers.
            TrustError: Its certificate, or this site's, is refused; or it is not the one that was announced.
        """
        address = agreed.job.parties[agreed.job.active].address
        identity = agreed.job.identities[agreed.job.active]
        if self._route is not Route.HUB and address is not None:
            try:
                actual = fingerprint(probe(*split_address(address), agreed.credentials(), identity, _PROBE_SECONDS))
                if actual != wanted:
                    raise TrustError.expected(f"the certificate {wanted} at {address}", actual)
                return Route.DIRECT, address
            except (PeerLost, TrustError) as failure:
                # The hub's route has the same checks of certificates, between the same two ends.
                if self._route is Route.DIRECT:
                    raise
                self.log_info(fl_ctx, f"no direct link, so tensors take the hub's messages, encrypted: {failure}")
        return Route.HUB, self._opened_tunnel().entrance(agreed.site_of(agreed.job.active))

    def _launch(self, agreed: AgreedJob, fl_ctx: FLContext, address: str | None) -> PartyProcess:
        self._check_first_start()
        folder = agreed.run_folder(self._run(fl_ctx))
        arguments = agreed.arguments(folder, resume=bool(self._resume), address=address, reconnect=RECONNECT_SECONDS)
        # Not `log_info`: its context is of this task, and lines come from another thread.
        self._process = PartyProcess(arguments, folder.with_name(f"{folder.name}.log"), self.logger.info)
        return self._process

    def _check_first_start(self) -> None:
        if self._process is not None:  # an abort ends the one that it knows
            raise ConfigError.expected("one start of the party in a job", "another")

    def _run(self, fl_ctx: FLContext) -> str:
        return self._resume or valid_run(str(fl_ctx.get_job_id()))

    def _agreed(self) -> AgreedJob:
        if self._agreement is None:
            raise CutlayerError("the job was not checked")
        return self._agreement

    def _opened_tunnel(self) -> Tunnel:
        with self._starting:
            if self._tunnel is None:
                self._tunnel = Tunnel(self._send, self.logger.info)
            return self._tunnel

    def _send(self, site: str, piece: Segment) -> bool:
        request = Shareable()
        request["connection"] = piece.connection
        request["number"] = piece.number
        request["content"] = piece.content
        with self._engine.new_context() as fl_ctx:
            replies = self._engine.send_aux_request([site], TOPIC, request, _ANSWER_SECONDS, fl_ctx, optional=True)
        reply = replies.get(site)
        if reply is None or reply.get_return_code() != ReturnCode.OK:
            raise OSError(f"{site} did not answer")
        return bool(reply.get("taken"))

    def _receive(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        piece = Segment(request.get("connection"), request.get("number"), request.get("content"))
        site = fl_ctx.get_peer_context().get_identity_name()
        tunnel = self._tunnel
        reply = make_reply(ReturnCode.OK)
        reply["taken"] = tunnel is not None and self._is_partner(site) and tunnel.receive(site, piece)
        return reply

    def _is_partner(self, site: str) -> bool:
        agreed = self._agreement
        return agreed is not None and site in {agreed.site_of(party) for party in agreed.job.parties}

    def _begin(self, event_type: str, fl_ctx: FLContext) -> None:
        self._engine = fl_ctx.get_engine()
        self._engine.register_aux_message_handler(TOPIC, self._receive)

    def _end(self, event_type: str, fl_ctx: FLContext) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._process is not None:
            self._process.stop()
        if self._tunnel is not None:
            self._tunnel.close()


def _request(task: Shareable) -> Mapping[str, Any]:
    """The JSON object of a task.

    Raises:
        ConfigError: The server sent something else.
    """
    try:
        request = json.loads(task.get(PAYLOAD, "{}"))
    except (TypeError, ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        raise ConfigError.expected("a task as this version's controller sends it", "another")
    return request
