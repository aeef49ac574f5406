"""Loading, switching and unloading of versions while requests are answered."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.errors import CutlayerError
from cutlayer_serve.body import parse_body
from cutlayer_serve.callers import Caller, CallerRefused
from cutlayer_serve.peers import Peers
from cutlayer_serve.served_model import ServedModel
from cutlayer_serve.versions import Versions

R = TypeVar("R", bound=FrozenModel)
_GRACE_SECONDS = 5.0
"""Seconds, in addition to two deadlines, until the streams of an unloaded version end: more than a request takes."""


class LoadRequest(FrozenModel):
    """A run to load next to the others.

    Attributes:
        run: Name of its folder in `serve.runs`.
    """

    run: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$")


class SwitchRequest(FrozenModel):
    """A version to switch to, or to unload.

    Attributes:
        version: A loaded version.
        force: Whether to switch although a party that answers now is not connected for it.
    """

    version: str = Field(max_length=64)
    force: bool = False


class Rollover:
    """Changes the versions on behalf of a caller with `admin: true`.

    Args:
        versions: The loaded versions.
        peers: The passive parties' streams.
    """

    def __init__(self, versions: Versions, peers: Peers) -> None:
        self._versions = versions
        self._peers = peers
        self._loading = asyncio.Lock()

    async def load(self, body: bytes, caller: Caller) -> dict[str, Any]:
        """Load a run, without a pause of the answers; the passive parties then connect for it.

        Raises:
            Refused: No admin, no such run, or a run that does not fit.
        """
        request = _checked(LoadRequest, body, caller)
        folder = self._versions.config.runs
        if folder is None:
            raise CallerRefused(403, "expected serve.runs in the private file, got none; no run can be loaded")
        path = (folder / request.run).resolve()
        if path.parent != folder.resolve():
            raise CallerRefused(403, "expected a folder in serve.runs, got one elsewhere")
        async with self._loading:
            try:
                model = await asyncio.to_thread(self._versions.read, path)
                self._versions.add(model)
            except CutlayerError as failure:
                raise CallerRefused(422, str(failure)[:1000]) from None
        return {"version": model.version, "run": request.run, "current": self._versions.current.model.version}

    async def switch(self, body: bytes, caller: Caller) -> dict[str, Any]:
        """Answer all further requests by another version.

        Raises:
            Refused: No admin, no such version, or a party that answers now would not answer then.
        """
        request = _checked(SwitchRequest, body, caller)
        new = next((b.model for b in self._versions.loaded if b.model.version == request.version), None)
        if new is None:
            raise CallerRefused(404, "expected a loaded version; GET /v1/status lists them")
        now = self._versions.current.model
        missing = [n for n in now.passives if self._is_connected(now, n) and not self._is_connected(new, n)]
        if missing and not request.force:
            names = ", ".join(missing)
            raise CallerRefused(409, f"expected {names} to be connected for version {new.version}; wait, or set force")
        self._versions.switch(new.version)
        return {"version": new.version, "before": now.version}

    async def unload(self, body: bytes, caller: Caller) -> dict[str, Any]:
        """Forget a version that does not answer.

        Raises:
            Refused: No admin, no such version, or the current one.
        """
        request = _checked(SwitchRequest, body, caller)
        try:
            self._versions.unload(request.version)
        except CutlayerError as failure:
            raise CallerRefused(409, str(failure)) from None
        # Requests under way keep their version, and its streams, until they are answered.
        grace = _GRACE_SECONDS + 2 * self._versions.config.deadline_ms / 1000
        asyncio.get_running_loop().call_later(grace, self._peers.end_unloaded)
        return {"unloaded": request.version}

    def _is_connected(self, model: ServedModel, name: str) -> bool:
        return self._peers.get(name, model.tags[name]) is not None


def _checked(kind: type[R], body: bytes, caller: Caller) -> R:
    if not caller.config.admin:
        raise CallerRefused(403, f"{caller.config.name} is not an admin")
    return parse_body(kind, body)
