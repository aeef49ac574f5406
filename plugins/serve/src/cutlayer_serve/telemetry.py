"""Spans of requests and the service's metrics through the API of OpenTelemetry (extra `otel`).

The API alone is used: `opentelemetry-instrument cutlayer serve ...` sets up where they go, from its environment. A span
has numbers of rows and names of parties; no id, no score and no caller is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import metrics, propagate, trace
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.trace import Span, SpanKind
from prometheus_client.core import Metric

from cutlayer.version import __version__
from cutlayer_serve.answering import Outcome
from cutlayer_serve.served_model import ServedModel

_NAME = "cutlayer"


class Telemetry:
    """The metrics of a service as instruments of OpenTelemetry, and a span for each request.

    Args:
        collect: Returns all metrics as Prometheus has them; called by a thread of the exporter.
    """

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect
        self._tracer = trace.get_tracer(_NAME, __version__)
        meter = metrics.get_meter(_NAME, __version__)
        for family in collect():
            # Times are in the spans; of a histogram there are sum and count.
            make = meter.create_observable_gauge if family.type == "gauge" else meter.create_observable_counter
            make(family.name, [self._read(family.name)], description=family.documentation)

    def _read(self, name: str) -> Callable[[CallbackOptions], Iterator[Observation]]:
        def observe(_: CallbackOptions) -> Iterator[Observation]:
            for family in self._collect():
                for sample in family.samples if family.name == name else ():
                    kind = sample.name.removeprefix(name)
                    if kind in ("_sum", "_count"):
                        yield Observation(sample.value, {**sample.labels, "of": kind[1:]})
                    elif kind in ("", "_total"):
                        yield Observation(sample.value, sample.labels)

        return observe

    @contextmanager
    def request(self, headers: Mapping[str, str]) -> Iterator[Span]:
        """A span of a request, below the one that its headers name."""
        context = propagate.extract(
            {name: headers[name] for name in propagate.get_global_textmap().fields & {*headers}}
        )
        # A failure's text may have an id of the request.
        opened = self._tracer.start_as_current_span(
            "predict", context, SpanKind.SERVER, record_exception=False, set_status_on_exception=False
        )
        with opened as span:
            yield span

    def answered(self, model: ServedModel, outcome: Outcome) -> None:
        """Note on the span of this request who contributed to how many rows."""
        span = trace.get_current_span()
        if span.is_recording():
            present = outcome.present
            span.set_attribute("cutlayer.version", model.version)
            span.set_attribute("cutlayer.rows", len(present))
            span.set_attribute("cutlayer.degraded_rows", int((~present.all(axis=1)).sum()))
            absent = [name for index, name in enumerate(model.parties) if not present[:, index].all()]
            span.set_attribute("cutlayer.absent", absent)
