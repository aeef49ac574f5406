"""The workers of a party after the first: they compute their part of every batch, and hold none of the party's keys."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.compression import Compression
from cutlayer.channel.receiving import DONE, receive
from cutlayer.config import Job
from cutlayer.config.size import in_bytes
from cutlayer.data.store import Store
from cutlayer.data.typed_table import SHARE
from cutlayer.errors import DataError, ProtocolError
from cutlayer.kernels.noise.aes import derive
from cutlayer.models import bottom_of, top_of
from cutlayer.parties.active_model import ActiveModel
from cutlayer.parties.agreement.handshake import compare_orders
from cutlayer.parties.compute.team import Team
from cutlayer.parties.drive.random_state import random_state
from cutlayer.parties.session.state import build_optimizer, load_optimizer
from cutlayer.parties.team.lanes import ActiveLanes, PassiveLanes
from cutlayer.parties.team.leading import SharedLabels
from cutlayer.parties.team.needs import Needs


class FurtherWorker:
    """A worker after the first.

    Args:
        job: The shared job, with the party's private part.
        name: Name of the party.
        team: This worker and the others of its party.
        ports: Ports to the same worker of each other party, by name.
        data: Folder of the party's encoded rows, which the leader writes.
    """

    def __init__(self, job: Job, name: str, team: Team, ports: Mapping[str, Port], data: Path) -> None:
        self.job, self.name, self.team, self.ports, self.data = job, name, team, ports, data

    def run(self) -> Generator[Port, Message, None]:
        """Take every step that the leader orders.

        Raises:
            PeerLost: The leader or the same worker of another party ended.
            ProtocolError: The same worker of another party is at another point, or holds other rows.
        """
        tensors, plain = self.team.shared()
        rank = b"%d" % self.team.rank
        dropout, rounding = (derive(bytes.fromhex(plain[name]), rank) for name in ("dropout", "rounding"))
        for port in self.ports.values():
            form = self.job.channel.compress
            port.compression = None if form is None else Compression(form, rounding)
        lanes = yield from (self._lead_lanes if self.name == self.job.active else self._follow_lanes)(tensors, plain)
        while (order := self.team.follow()) is not None:
            # By the step, so that a resume repeats the masks of dropout; by the worker, so that no two draw the same.
            torch.set_rng_state(random_state(derive(dropout, b"%d" % order.global_step)))
            yield from lanes.step(order)
        for port in self.ports.values():
            port.send(Kind.CLOSE, fields={"reason": DONE})
        for port in self.ports.values():
            yield from receive(port, Kind.CLOSE)

    def _lead_lanes(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> Generator[Port, Message, ActiveLanes]:
        """The lanes of a worker of the active party."""
        widths: dict[str, int] = {}
        for name, port in self.ports.items():
            widths[name] = yield from compare_orders(port, plain["rows"], 0)
            if widths[name] != plain["widths"][name]:
                raise ProtocolError.expected(f"a width of {plain['widths'][name]} at {name}", widths[name])
        store = self._store() if plain["features"] else None
        modules: dict[str, nn.Module] = {}
        all_widths = {name: int(width) for name, width in plain["widths"].items()}
        if store is not None:
            modules["bottom"] = bottom_of(self.job, self.name, store.columns.inputs)
        labels = SharedLabels(tensors, plain).labels()
        modules["top"] = top_of(self.job, all_widths, labels.loss.task.outputs)
        modules_by_name = nn.ModuleDict(modules)
        return ActiveLanes(
            self.ports,
            ActiveModel(modules_by_name, self.name, tuple(all_widths)),
            store,
            widths,
            labels,
            **self._common(modules_by_name, tensors, plain),
        )

    def _follow_lanes(
        self, tensors: dict[str, Tensor], plain: dict[str, Any]
    ) -> Generator[Port, Message, PassiveLanes]:
        """The lanes of a worker of a passive party."""
        (port,) = self.ports.values()
        store = self._store()
        bottom = bottom_of(self.job, self.name, store.columns.inputs)
        yield from compare_orders(port, plain["rows"], bottom.width)
        return PassiveLanes(port, bottom, store, **self._common(nn.ModuleDict({"bottom": bottom}), tensors, plain))

    def _common(self, modules: nn.Module, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> dict[str, Any]:
        optimizer = build_optimizer(self.job.train.optimizer, list(modules.parameters()))
        if optimizer is not None:
            load_optimizer(optimizer, tensors)
        limits = self.job.parties[self.name].limits
        needs = Needs(plain["out"], plain["shown"])
        return {"team": self.team, "name": self.name, "optimizer": optimizer, "limits": limits, "needs": needs}

    def _store(self) -> Store:
        try:
            return Store.open(self.data, in_bytes(self.job.parties[self.name].memory) // SHARE)
        except DataError as missing:
            raise DataError(f"{missing}; all workers of a party need its run folder (--out) at the same path") from None
