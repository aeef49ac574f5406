"""Counts of the active party's service, for Prometheus and the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from cutlayer.channel.address import check_loopback
from cutlayer.errors import ConfigError
from cutlayer.serving.drift import ColumnDrift, DriftReference
from cutlayer_serve.answering import Outcome
from cutlayer_serve.passive import LookupCounts
from cutlayer_serve.peers import Peers
from cutlayer_serve.served_model import ServedModel

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """The service's metrics, in a registry of their own.

    Attributes:
        noted: Called with each answer, besides.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        here = self.registry
        self.requests = Counter("cutlayer_requests", "HTTP requests by status.", ["status"], registry=here)
        self.seconds = Histogram("cutlayer_answer_seconds", "Time of an answer.", buckets=_SECONDS, registry=here)
        self.rows = Counter(
            "cutlayer_rows", "Rows by party and whether it contributed.", ["party", "status"], registry=here
        )
        self.degraded = Counter("cutlayer_degraded_rows", "Rows answered without a party.", registry=here)
        self.unanswered = Counter("cutlayer_unanswered_rows", "Rows without a prediction.", registry=here)
        self.connected = Gauge("cutlayer_party_connected", "Whether a party is connected.", ["party"], registry=here)
        self.asked = Gauge(
            "cutlayer_party_asked", "Whether a party is asked, or probed only.", ["party"], registry=here
        )
        self.noted: Callable[[ServedModel, Outcome], None] = lambda _model, _outcome: None
        self._drift: Sequence[DriftReference] = ()
        here.register(_Collector(lambda: drift_metrics(self._drift)))

    def answered(self, model: ServedModel, outcome: Outcome, seconds: float) -> None:
        """Count an answer."""
        self.noted(model, outcome)
        self.seconds.observe(seconds)
        if outcome.whole:
            for name in model.parties:
                self._rows(name, "present").inc(len(outcome.present))
            return
        for index, name in enumerate(model.parties):
            here = int(outcome.present[:, index].sum())
            self._rows(name, "present").inc(here)
            if here < len(outcome.present):
                self._rows(name, "absent").inc(len(outcome.present) - here)
        unanswered = int((~outcome.present.any(axis=1)).sum())
        self.unanswered.inc(unanswered)
        self.degraded.inc(int((~outcome.present.all(axis=1)).sum()) - unanswered)

    def responded(self, status: int) -> None:
        """Count a response by its HTTP status."""
        self._requests(status).inc()

    @cache  # noqa: B019 (lives as long as the process)
    def _requests(self, status: int) -> Counter:
        """The count of one status, whose look-up costs more than the count itself."""
        return self.requests.labels(str(status))

    @cache  # noqa: B019 (lives as long as the process)
    def _rows(self, party: str, status: str) -> Counter:
        """As `_requests`, of one party's rows."""
        return self.rows.labels(party, status)

    def text(self, model: ServedModel, peers: Peers) -> bytes:
        """All metrics in the text format of Prometheus."""
        self._refresh(model, peers)
        return generate_latest(self.registry)

    def collected(self, model: ServedModel, peers: Peers) -> Iterable[Metric]:
        """All metrics as they are now."""
        self._refresh(model, peers)
        return self.registry.collect()

    def _refresh(self, model: ServedModel, peers: Peers) -> None:
        for name in model.passives:
            peer = peers.get(name, model.tags[name])
            self.connected.labels(name).set(int(peer is not None))
            self.asked.labels(name).set(int(peer is not None and not peer.breaker.open))
        self._drift = model.drift.references()


class _Collector:
    """Metrics that are computed when they are asked for, for a registry."""

    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self.collect = collect

    def describe(self) -> list[Metric]:
        """Nothing is collected at registration."""
        return []


def drift_metrics(references: Sequence[DriftReference]) -> Iterator[Metric]:
    """The statistic of all columns that have one."""
    psi = GaugeMetricFamily("cutlayer_drift_psi", "PSI statistic against training.", labels=["column"])
    for reference in references:
        if reference.psi is not None:
            psi.add_metric([reference.name], reference.psi)
    yield psi


def passive_metrics(answered: LookupCounts, drift: ColumnDrift | None) -> Iterator[Metric]:
    """Metrics of a passive party, which it alone sees.

    Args:
        answered: Counts of its service.
        drift: Drift of its columns; `None` where the run left no store.
    """
    rows = CounterMetricFamily("cutlayer_released_rows", "Rows asked for, by status.", labels=["status"])
    for status, count in answered.rows.items():
        rows.add_metric([status.name.lower()], count)
    yield rows
    yield CounterMetricFamily("cutlayer_lookups", "Lookups answered.", value=answered.lookups)
    yield CounterMetricFamily("cutlayer_lookup_seconds", "Time of lookups.", value=answered.seconds)
    yield from drift_metrics(() if drift is None else drift.references())


@contextmanager
def serve_metrics(address: str, answered: LookupCounts, drift: ColumnDrift | None) -> Iterator[str]:
    """Show a passive party's metrics on the loopback; yields the address.

    Args:
        address: Where to listen.
        answered: As in `passive_metrics`.
        drift: As in `passive_metrics`.

    Raises:
        ConfigError: The address is not a loopback one, or is in use.
    """
    host, _, port = check_loopback(address).rpartition(":")
    registry = CollectorRegistry()
    registry.register(_Collector(lambda: passive_metrics(answered, drift)))
    try:
        server, thread = start_http_server(int(port), host.strip("[]"), registry)
    except OSError:
        raise ConfigError(f"cannot listen at {address} (serve.metrics): it is in use") from None
    try:
        yield f"http://{host}:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
