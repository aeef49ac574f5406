"""Spans and metrics by OpenTelemetry: what they hold, and what they do not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.serving.world import world

sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="no opentelemetry (extra otel)")


def test_a_request_has_a_span_below_that_of_its_caller_and_counts(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans, reader, provider = InMemorySpanExporter(), InMemoryMetricReader(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    meters = MeterProvider([reader])
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    monkeypatch.setattr(metrics, "get_meter", meters.get_meter)
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    async def check() -> None:
        async with world(run, ("telco",), telemetry=True) as up:
            request = {"ids": [3, 77]}
            answer = await up.client.post("/v1/predict", json=request, headers={"traceparent": caller})
            assert answer.status_code == 200
            assert (await up.client.post("/v1/predict", json={"ids": 3})).status_code == 422
            await up.client.get("/metrics")  # no prediction, no span
            first, second = spans.get_finished_spans()
            assert f"{first.context.trace_id:032x}" in caller
            assert f"{second.context.trace_id:032x}" not in caller
            assert second.attributes == {"http.response.status_code": 422}
            version = up.active.versions.current.model.version
            assert {**first.attributes} == {
                "http.response.status_code": 200,
                "cutlayer.version": version,
                "cutlayer.rows": 2,
                "cutlayer.degraded_rows": 2,
                "cutlayer.absent": ("shop",),
            }
            data = reader.get_metrics_data()
            assert data is not None
            (scope,) = data.resource_metrics[0].scope_metrics
            points = {each.name: [*each.data.data_points] for each in scope.metrics}
            rows = {(p.attributes["party"], p.attributes["status"]): p.value for p in points["cutlayer_rows"]}
            assert (rows["telco", "present"], rows["shop", "absent"]) == (2, 2)
            connected = {p.attributes["party"]: p.value for p in points["cutlayer_party_connected"]}
            assert connected == {"telco": 1, "shop": 0}
            assert {p.attributes["of"] for p in points["cutlayer_answer_seconds"]} == {"sum", "count"}

    asyncio.run(check())
    provider.shutdown()
    meters.shutdown()
