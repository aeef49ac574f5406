"""Time and traffic of a run, summed over all of its starts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from cutlayer.channel import Port


class Usage:
    """Seconds and bytes of one run, as the active party measures them.

    An earlier start counts up to the last epoch that it committed; what it sent of the epoch that was cut off is on no
    record and is not counted.

    Args:
        ports: Ports to the passive parties, by name.
    """

    def __init__(self, ports: Mapping[str, Port]) -> None:
        self._ports = ports
        self._began = time.perf_counter()
        self._seconds = 0.0
        self._traffic = dict.fromkeys(ports, (0, 0))

    @property
    def seconds(self) -> float:
        """Wall time of all starts."""
        return self._seconds + time.perf_counter() - self._began

    @property
    def traffic(self) -> dict[str, tuple[int, int]]:
        """Bytes that the active party sent to and received from each passive party, by name."""
        usage = {}
        for name, port in self._ports.items():
            sent, received = self._traffic[name]
            usage[name] = (sent + port.bytes_sent, received + port.bytes_received)
        return usage

    def by_party(self, active: str) -> dict[str, tuple[int, int]]:
        """Bytes sent and received by every party, the active one first."""
        links = self.traffic
        own = (sum(sent for sent, _ in links.values()), sum(received for _, received in links.values()))
        return {active: own, **{name: (received, sent) for name, (sent, received) in links.items()}}

    def to_json(self) -> dict[str, Any]:
        """State for a commit."""
        return {"seconds": self.seconds, "traffic": self.traffic}

    def add_earlier(self, stored: Mapping[str, Any]) -> None:
        """Add the usage of earlier starts, as `to_json` wrote it."""
        self._seconds += float(stored["seconds"])
        for name, (sent, received) in stored["traffic"].items():
            before = self._traffic[name]
            self._traffic[name] = (before[0] + int(sent), before[1] + int(received))
