"""Time and traffic of a run, summed over all of its starts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cutlayer.channel import Kind, Port

Kinds = dict[str, tuple[int, int]]
"""Bytes sent and received, by kind of message."""


class Usage:
    """Seconds and bytes of one run, as the active party measures them.

    An earlier start counts up to the last epoch that it committed; what it sent of the epoch that was cut off is on no
    record and is not counted.

    Args:
        ports: Ports to the passive parties, by name; none where their releases are stored.
        names: Names of all passive parties.
    """

    def __init__(self, ports: Mapping[str, Port], names: Sequence[str]) -> None:
        self._ports = ports
        self._began = time.perf_counter()
        self._seconds = 0.0
        self._earlier: dict[str, Kinds] = {name: {} for name in names}
        self._epoch: Counter[str] = Counter()

    @property
    def seconds(self) -> float:
        """Wall time of all starts."""
        return self._seconds + time.perf_counter() - self._began

    @property
    def kinds(self) -> dict[str, Kinds]:
        """Bytes that the active party sent to and received from each passive party, by name and kind of message."""
        usage = {}
        for name, earlier in self._earlier.items():
            sent, received = self._ports[name].traffic if name in self._ports else (Counter[Kind](), Counter[Kind]())
            now = {kind.value: (sent[kind], received[kind]) for kind in Kind if sent[kind] or received[kind]}
            usage[name] = _added([earlier, now])
        return usage

    def by_party(self, active: str) -> dict[str, tuple[int, int]]:
        """Bytes sent and received by every party, the active one first."""
        return {name: _total(kinds) for name, kinds in self.kinds_by_party(active).items()}

    def kinds_by_party(self, active: str) -> dict[str, Kinds]:
        """Bytes sent and received by every party, by kind of message, the active party first."""
        links = self.kinds
        swapped = {
            name: {kind: (there, here) for kind, (here, there) in kinds.items()} for name, kinds in links.items()
        }
        return {active: _added(links.values()), **swapped}

    def begin_epoch(self) -> None:
        """Count the bytes of an epoch from here on."""
        self._epoch.clear()

    def count(self, kind: Kind, nbytes: int) -> None:
        """Count bytes of the epoch, when the active party uses what arrived: peers may be ahead of it."""
        self._epoch[kind.value] += nbytes

    def of_epoch(self) -> dict[str, int]:
        """Bytes of the epoch, in both directions on all links, by kind of message."""
        return dict(self._epoch)

    def to_json(self) -> dict[str, Any]:
        """State for a commit."""
        return {"seconds": self.seconds, "kinds": self.kinds, "epoch": self.of_epoch()}

    def add_earlier(self, stored: Mapping[str, Any]) -> None:
        """Add the usage of earlier starts, as `to_json` wrote it."""
        self._seconds += float(stored["seconds"])
        self._epoch.update({kind: int(size) for kind, size in stored["epoch"].items()})
        for name, kinds in stored["kinds"].items():
            before = {kind: (int(sent), int(received)) for kind, (sent, received) in kinds.items()}
            self._earlier[name] = _added([self._earlier[name], before])


def _added(parts: Iterable[Kinds]) -> Kinds:
    total: Kinds = {}
    for part in parts:
        for kind, (sent, received) in part.items():
            before = total.get(kind, (0, 0))
            total[kind] = (before[0] + sent, before[1] + received)
    return total


def _total(kinds: Kinds) -> tuple[int, int]:
    return sum(sent for sent, _ in kinds.values()), sum(received for _, received in kinds.values())
