"""Executors in workspaces as NVFlare lays them out, and an engine that carries their messages within one process.

Importing NVFlare takes a second: tests import this module when they run, so that collecting them does not.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.apis.workspace import Workspace

from cutlayer_nvflare.controller import CutlayerController, failure_reason
from cutlayer_nvflare.executor import PAYLOAD, CutlayerExecutor

__all__ = [
    "PAYLOAD",
    "RUN",
    "CutlayerController",
    "Engine",
    "EventType",
    "FLContext",
    "ReturnCode",
    "Shareable",
    "Signal",
    "Site",
    "failure_reason",
]

RUN = "01234567-89ab-cdef-0123-456789abcdef"


class Engine:
    """Carries messages between the executors of this process."""

    def __init__(self) -> None:
        self.handlers: dict[str, Any] = {}
        self.crossed: list[bytes] = []

    def of(self, site: str, workspace: Workspace) -> SimpleNamespace:
        @contextmanager
        def new_context():
            yield None

        return SimpleNamespace(
            new_context=new_context,
            get_workspace=lambda: workspace,
            register_aux_message_handler=lambda topic, handler: self.handlers.update({site: handler}),
            send_aux_request=lambda targets, topic, request, timeout, context, optional: {
                target: self.carry(site, target, topic, request) for target in targets
            },
        )

    def carry(self, sender: str, target: str, topic: str, request: Shareable) -> Shareable:
        self.crossed.append(request["content"])
        peer = SimpleNamespace(get_identity_name=lambda: sender)
        reply: Shareable = self.handlers[target](topic, request, SimpleNamespace(get_peer_context=lambda: peer))
        return reply


class Site:
    """An executor in a workspace as NVFlare lays it out."""

    def __init__(self, kits: Path, name: str, base: Path, job: Path, engine: Engine) -> None:
        root = base / name
        (root / "local").mkdir(parents=True)
        (root / "startup").symlink_to(kits / name / "startup")
        workspace = Workspace(str(root), name)
        config = Path(workspace.get_app_config_dir(RUN))
        config.mkdir(parents=True)
        (config / "job.yaml").write_bytes((job / "app" / "config" / "job.yaml").read_bytes())
        self.own = root / "local" / "cutlayer" / "job"
        self.own.mkdir(parents=True)
        (self.own / "job.yaml").write_bytes((job / "app" / "config" / "job.yaml").read_bytes())
        (self.own / "noise.key").write_bytes(bytes(range(32)))
        (self.own / "noise.key").chmod(0o600)
        (client,) = json.loads((job / "app" / "config" / "config_fed_client.json").read_text())["executors"]
        self.executor = CutlayerExecutor(**client["executor"]["args"])
        self.abort = Signal()
        self.context = FLContext()
        for key, value in (
            (ReservedKey.RUN_NUM, RUN),
            (ReservedKey.IDENTITY_NAME, name),
            (ReservedKey.ENGINE, engine.of(name, workspace)),
        ):
            self.context.put(key, value, private=True, sticky=False)
        self.executor._begin(EventType.START_RUN, self.context)

    def task(self, name: str, **request: Any) -> Any:
        data = Shareable()
        data[PAYLOAD] = json.dumps(request)
        reply = self.executor.execute(name, data, self.context, self.abort)
        if reply.get_return_code() != ReturnCode.OK:
            return reply.get_return_code()
        return json.loads(reply[PAYLOAD])
