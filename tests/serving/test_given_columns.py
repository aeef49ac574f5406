"""Columns in a request: dates, durations and booleans as in the table, and a published example that is answered."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from cutlayer.config import CallerConfig, validated
from cutlayer.config.ids import Rule
from cutlayer.errors import ConfigError
from cutlayer_serve.published_columns import request_example
from cutlayer_serve.schema import digests_of
from tests.serving.test_requests import CALLER, KEY
from tests.serving.world import ACTIVE, ROWS, World, probabilities, train, world

IDS = [5, 80, 31, 12]
OPS = "cut_ops"
CALLERS = [CALLER, {"name": "prometheus", "sha256": sha256(OPS.encode()).hexdigest(), "may": "metrics"}]
BERLIN = ZoneInfo("Europe/Berlin")
NAMES = ("income", "colour", "city", "opened", "seen", "lag", "member")


@pytest.fixture(scope="module")
def rows() -> dict[int, dict[str, Any]]:
    """The bank's own columns by id."""
    draw = np.random.default_rng(8)
    start = datetime(2024, 2, 1, 12, 30, tzinfo=BERLIN)
    return {
        id_: {
            "income": float(draw.normal()),
            "colour": str(draw.choice(["red", "green"])),
            "city": str(draw.choice(["Ulm", "Bonn"])),
            "opened": date(2019, 1, 1) + timedelta(days=int(draw.integers(0, 2000))),
            "seen": start + timedelta(seconds=int(draw.integers(0, 10_000_000))),
            "lag": timedelta(hours=int(draw.integers(0, 500))),
            "member": bool(draw.integers(0, 2)),
        }
        for id_ in range(ROWS)
    }


@pytest.fixture(scope="module")
def dated(tmp_path_factory: pytest.TempPathFactory, rows: dict[int, dict[str, Any]]) -> Path:
    """A run whose bank has columns of all kinds; the range and the vocabulary of two are stated."""
    folder = tmp_path_factory.mktemp("dated")
    types = {"seen": pa.timestamp("us", tz="Europe/Berlin"), "lag": pa.duration("s")}
    arrays = {name: pa.array([row[name] for row in rows.values()], types.get(name)) for name in NAMES}
    labels = [int(row["income"] > 0) for row in rows.values()]
    parquet.write_table(pa.table({"id": [*rows], **arrays, "default": labels}), folder / "dated.parquet")
    features = {"ranges": {"income": [5, 10]}, "vocabulary": {"colour": ["red", "green", "blue"]}}
    return train(folder, parties={ACTIVE: {"table": str(folder / "dated.parquet"), "features": features}})


def as_given(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table as JSON has it."""
    return {
        **row,
        "opened": row["opened"].isoformat(),
        "seen": row["seen"].isoformat(),
        "lag": row["lag"] / timedelta(days=1),
    }


def columns_of(given: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in given] for name in NAMES}


def test_columns_as_the_table_has_them_are_answered_as_its_rows(dated: Path, rows: dict[int, dict[str, Any]]) -> None:
    given = [as_given(rows[id_]) for id_ in IDS]
    elsewhere = [
        {**row, "seen": rows[id_]["seen"].astimezone(UTC).isoformat()} for id_, row in zip(IDS, given, strict=True)
    ]
    other = [
        {**row, "seen": rows[id_]["seen"].replace(tzinfo=None).isoformat()} for id_, row in zip(IDS, given, strict=True)
    ]

    async def check() -> None:
        async with world(dated) as served:
            looked_up = probabilities(await served.predict(IDS))
            for sent in (given, elsewhere):
                answer = await served.predict(IDS, columns=columns_of(sent))
                np.testing.assert_allclose(probabilities(answer), looked_up, atol=1e-7)
            answer = await served.predict(IDS, columns=columns_of(other))
            assert abs(probabilities(answer) - looked_up).max() > 1e-7, "a time without a zone is of UTC"

    asyncio.run(check())


WRONG: dict[str, tuple[Any, str]] = {
    "opened": ("31.03.2024", "dates and times of ISO 8601"),
    "seen": (19_000, "dates and times of ISO 8601"),
    "lag": ("P1D", "numbers of days"),
    "member": ("yes", "true and false"),
    "income": (True, "numbers in column"),
    "city": (2.5, "text in column"),
}


def test_a_value_of_another_kind_is_refused_with_its_column_and_row(
    dated: Path, rows: dict[int, dict[str, Any]]
) -> None:
    async def check() -> None:
        async with world(dated, ()) as served:
            for name, (value, wanted) in WRONG.items():
                columns = columns_of([as_given(rows[id_]) for id_ in IDS])
                columns[name][2] = value
                problem = (await served.predict(IDS, columns=columns, status=422))["error"]
                for words in (wanted, f"column '{name}'", f"{value!r} in row 2"):
                    assert words in problem, problem
            schema = (await served.client.get("/v1/schema")).json()
            kinds = "number", "category", "category", "date", "date", "days", "boolean"
            assert schema["columns"] == dict(zip(NAMES, kinds, strict=True))

    asyncio.run(check())


async def published(served: World, key: str | None = KEY) -> tuple[str, Any]:
    """The OpenAPI document, as text too, and the content that it describes of a request."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    response = await served.client.get("/openapi.json", headers=headers)
    paths = response.json()["paths"]
    return response.text, paths["/v1/predict"]["post"]["requestBody"]["content"]["application/json"]


def test_the_published_example_is_answered_and_is_nobody_s_row(dated: Path) -> None:
    async def check() -> None:
        async with world(dated, http={"callers": CALLERS}) as served:
            text, content = await published(served)
            sent = {"json": content["example"], "headers": {"Authorization": f"Bearer {KEY}"}}
            response = await served.client.post("/v1/predict", **sent)
            assert response.status_code == 200, response.text
            (row,) = response.json()["predictions"]
            assert 0 < row["probability"] < 1
            assert response.json()["subsets"][0]["contributed"] == [ACTIVE]
            stated = {"income": [5], "colour": ["blue"], "city": ["example"]}
            constant = {"opened": ["2000-01-01"], "seen": ["2000-01-01"], "lag": [0], "member": [True]}
            assert content["example"]["columns"] == stated | constant
            given = content["schema"]["properties"]["columns"]["anyOf"][0]
            assert given["required"] == [*NAMES]
            assert {"type": "string", "format": "date"} in given["properties"]["opened"]["items"]["anyOf"]
            assert "Ulm" not in text, "a category of the training"
            for key in (None, OPS, "wrong"):
                text, content = await published(served, key)
                assert "example" not in content
                assert "income" not in text

    asyncio.run(check())


@pytest.mark.parametrize("rule", ["strip", "lower", "e164", "integer", "none"])
def test_the_id_of_the_example_fits_every_rule(rule: Rule) -> None:
    assert digests_of(tuple(request_example(None, rule)["ids"]), rule).shape == (1, 16)


def test_a_monitor_reads_metrics_and_the_status_and_nothing_else(dated: Path) -> None:
    async def check() -> None:
        async with world(dated, (), http={"callers": CALLERS}, required=["telco"]) as served:
            monitor = {"Authorization": f"Bearer {OPS}"}
            for path, status in (("/metrics", 200), ("/v1/status", 200), ("/v1/schema", 403)):
                assert (await served.client.get(path, headers=monitor)).status_code == status, path
            for path, body in (("predict", {"ids": [1]}), ("admin/switch", {"version": "x"})):
                refused = await served.client.post(f"/v1/{path}", json=body, headers=monitor)
                assert refused.status_code == 403
                assert "prometheus may read /metrics and /v1/status" in refused.json()["error"]
            assert (await served.client.get("/readyz")).json() == {"status": "not ready"}
            named = await served.client.get("/readyz", headers=monitor)
            assert (named.status_code, named.json()["missing"]) == (503, ["telco"])
            assert (await served.client.get("/healthz")).json() == {"status": "ok"}

    asyncio.run(check())
    with pytest.raises(ConfigError, match="may: metrics"):
        validated(CallerConfig, {**CALLER, "admin": True, "may": "metrics"}, "caller")
