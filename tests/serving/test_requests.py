"""Hostile callers: every bad request is a 4xx with a message, never a 500, and no limit is evaded."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import SkipTest

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from cutlayer.config import CallerConfig, validated
from cutlayer.errors import ConfigError, DataError
from cutlayer_serve.audit_log import read_log
from cutlayer_serve.body import parse_body
from cutlayer_serve.callers import Caller, CallerRefused
from cutlayer_serve.process import audit_path
from cutlayer_serve.schema import PredictRequest, digests_of
from cutlayer_serve.trained_party import TrainedParty
from tests.serving.world import ACTIVE, ROWS, World, world

KEY = "cut_secret"
CALLER = {"name": "crm", "sha256": sha256(KEY.encode()).hexdigest()}

BAD: dict[str, tuple[bytes, int]] = {
    "no JSON": (b"ids=1", 422),
    "nothing": (b"", 422),
    "a list": (b"[1]", 422),
    "no ids": (b'{"ids": []}', 422),
    "ids as text": (b'{"ids": "1,2"}', 422),
    "NaN as an id": (b'{"ids": [NaN]}', 422),
    "a fraction as an id": (b'{"ids": [1.5]}', 422),
    "null as an id": (b'{"ids": [null]}', 422),
    "true as an id": (b'{"ids": [true]}', 422),
    "an empty id": (b'{"ids": [""]}', 422),
    "a blank id": (b'{"ids": ["  "]}', 422),
    "an id twice": (b'{"ids": [1, 1]}', 422),
    "an id twice in two spellings": (b'{"ids": [1, " 1"]}', 422),
    "half a surrogate": (b'{"ids": ["\\ud800"]}', 422),
    "no UTF-8": (b'{"ids": ["\xff"]}', 422),
    "a huge number": (b'{"ids": [' + b"9" * 400 + b"]}", 422),
    "a long id": (b'{"ids": ["' + b"x" * 300 + b'"]}', 422),
    "deep nesting": (b'{"ids": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 422),
    "an unknown key": (b'{"ids": [1], "limit": 3}', 422),
    "a key twice": (b'{"ids": [1], "ids": [2], "columns": 7}', 422),
    "an id that a required party has not": (b'{"ids": [1, 155], "required": ["shop"]}', 404),
    "too many ids": (json.dumps({"ids": [*range(2000)]}).encode(), 413),
    "an unknown required party": (b'{"ids": [1], "required": ["bank"]}', 422),
    "no time": (b'{"ids": [1], "deadline_ms": 0}', 422),
    "endless time": (b'{"ids": [1], "deadline_ms": 1e300}', 422),
    "NaN as a time": (b'{"ids": [1], "deadline_ms": NaN}', 422),
    "an unknown column": (b'{"ids": [1], "columns": {"spent": [1]}}', 422),
    "a column short": (b'{"ids": [1], "columns": {"income": [1]}}', 422),
    "too few values": (b'{"ids": [1], "columns": {"income": [], "colour": []}}', 422),
    "NaN in a column": (b'{"ids": [1], "columns": {"income": [NaN], "colour": ["red"]}}', 422),
    "infinity in a column": (b'{"ids": [1], "columns": {"income": [1e400], "colour": ["red"]}}', 422),
    "beyond float32": (b'{"ids": [1], "columns": {"income": [1e300], "colour": ["red"]}}', 422),
    "text for numbers": (b'{"ids": [1], "columns": {"income": ["1"], "colour": ["red"]}}', 422),
    "a list for a value": (b'{"ids": [1], "columns": {"income": [[1]], "colour": ["red"]}}', 422),
}


async def post(served: World, body: bytes, **headers: str) -> tuple[int, Any]:
    response = await served.client.post("/v1/predict", content=body, headers=headers)
    return response.status_code, response.json()


def test_bad_requests_get_a_message(plain: Path) -> None:
    async def check() -> None:
        async with world(plain) as served:
            for what, (body, wanted) in BAD.items():
                status, problem = await post(served, body)
                assert status == wanted, (what, status, problem)
                assert problem["error"], what
                assert problem["error"].isprintable(), what
            assert (await post(served, b'{"ids": [1]}'))[0] == 200
            required = {"ids": ["Café-1\u202e"], "columns": {"income": [1], "colour": ["red"]}, "required": ["telco"]}
            refused = (await post(served, json.dumps(required).encode()))[1]["error"]
            assert "'Café-1\\u202e'" in refused, "as it is written, but what reverses the text"

    asyncio.run(check())


def test_ids_that_do_not_fit_have_a_remedy_of_a_caller_and_not_of_a_table() -> None:
    with pytest.raises(DataError, match=r"ids: expected whole numbers, .*counted from 0\); fix them$"):
        digests_of(("7", "x"), "integer")


@pytest.mark.parametrize("ids", [(1, 1), ("7", " 7")])
def test_an_id_twice_has_a_remedy_of_a_caller_and_not_of_a_table(ids: tuple[str | int, ...]) -> None:
    with pytest.raises(DataError, match="every id once, got 1 different ones of 2; ask for each once, in one spelling"):
        digests_of(ids)


WORDS = {
    b'{"id": [1]}': ("id: unknown key; did you mean 'ids'?", "ids: missing"),
    b'{"ids": []}': ("ids: expected a list of 1 or more, got []",),
    b'{"ids": [1], "answer": "column"}': ("did you mean 'columns'?",),
    b'{"ids": [': ("body: expected JSON with the keys ids, columns,",),
    b'{"ids": [{}]}': ("ids.0: expected a whole number or text, got keys and values",),
    '{"ids": [1], "größe": 1}'.encode(): ("größe: unknown key",),
    b"[1]": ("body: expected keys and values, got [1]",),
    b'{"ids": ' + b"1" * 5000 + b"}": ("number out of range",),
}


@pytest.mark.parametrize("body", WORDS, ids=lambda body: ascii(body[:20]))
def test_a_bad_body_is_said_in_the_words_of_the_errors_of_files(body: bytes) -> None:
    with pytest.raises(CallerRefused) as refused:
        parse_body(PredictRequest, body)
    assert refused.value.status == 422
    for words in WORDS[body]:
        assert words in str(refused.value)
    assert "Field required" not in str(refused.value)


def test_a_body_of_ten_megabytes_is_refused_before_it_is_read(plain: Path) -> None:
    async def endless() -> Any:
        for _ in range(160):
            yield b" " * 65_536
        raise AssertionError("everything was read")

    async def check() -> None:
        async with world(plain) as served:
            assert (await post(served, b" " * 10_000_000))[0] == 413
            response = await served.client.post("/v1/predict", content=endless())  # no stated length
            assert response.status_code == 413

    asyncio.run(check())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
requests = st.fixed_dictionaries(
    {"ids": st.lists(st.integers(-2, ROWS + 2) | st.text(max_size=3), max_size=4) | json_values},
    optional={
        "columns": st.fixed_dictionaries({"income": json_values, "colour": json_values}) | json_values,
        "required": st.lists(st.sampled_from(["telco", "shop", "bank", ""]), max_size=2) | json_values,
        "deadline_ms": json_values,
        "more": json_values,
    },
)


def test_no_request_at_all_is_a_fault_of_the_service(plain: Path) -> None:
    """A fuzz of the request's schema, and of anything around it."""
    bodies: list[bytes] = []

    @settings(max_examples=80, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.one_of(requests.map(lambda value: json.dumps(value).encode()), st.binary(max_size=40)))
    def collect(body: bytes) -> None:
        bodies.append(body)

    collect()

    async def check() -> None:
        async with world(plain) as served:
            for body in bodies:
                response = await served.client.post("/v1/predict", content=body)
                assert response.status_code in (200, 404, 413, 422), (body, response.text)
                parsed = json.loads(response.content, parse_constant=lambda name: pytest.fail(name))
                assert "predictions" in parsed or parsed["error"]

    asyncio.run(check())


def test_requests_of_the_published_schema_get_answers_that_it_describes(plain: Path) -> None:
    """Requests that fit the OpenAPI document, and others that do not; statuses and answers are those that it lists."""

    async def check() -> None:
        async with world(plain) as served:
            document = (await served.client.get("/openapi.json")).json()
            seen = set[int]()
            for method, path, body in generated(document):
                response = await served.client.request(method, path, json=body)
                where = (method, path, body, response.text[:200])
                assert response.status_code < 500, where
                described = document["paths"][path][method.lower()]["responses"].get(str(response.status_code))
                assert described is not None, where
                schema = described.get("content", {}).get("application/json", {}).get("schema", {})
                whole = {**schema, "components": document["components"]}
                if schema:
                    jsonschema_rs.validator_for(whole).validate(response.json())
                seen.add(response.status_code)
            assert seen >= {200, 404, 422}

    asyncio.run(check())


def generated(document: Any) -> list[tuple[str, str, Any]]:
    """Method, path and body of requests for every operation of an OpenAPI document."""
    found: list[tuple[str, str, Any]] = []
    for result in schemathesis.openapi.from_dict(document).get_all_operations():
        for mode in schemathesis.GenerationMode:

            @settings(max_examples=8, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
            @given(result.ok().as_strategy(generation_mode=mode))
            def collect(case: Any) -> None:
                body = None if isinstance(case.body, schemathesis.core.NotSet) else case.body
                if not isinstance(body, bytes):
                    found.append((case.method, case.path, body))

            with suppress(Unsatisfiable, SkipTest):  # an operation without a body has no request that is wrong
                collect()
    known = [{"ids": [1, 2], "answer": shape} for shape in ("rows", "columns")]
    return [*found, *(("POST", "/v1/predict", body) for body in known)]


def test_other_paths_methods_and_keys(plain: Path) -> None:
    async def check() -> None:
        async with world(plain, http={"callers": [CALLER]}) as served:
            good = {"Authorization": f"Bearer {KEY}"}
            missing = await served.client.get("/nothing")
            assert (missing.status_code, "got GET /nothing" in missing.json()["error"]) == (404, True)
            other = await served.client.get("/v1/predict")
            assert (other.status_code, other.headers["allow"]) == (405, "POST")
            assert other.json()["error"] == "expected POST /v1/predict, got GET"
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": KEY}, {"X-API-Key": "\u00e9"}):
                encoded = {name: value.encode() for name, value in headers.items()}
                response = await served.client.post("/v1/predict", content=b'{"ids": [1]}', headers=encoded)
                assert response.status_code == 401, headers
                assert response.headers["www-authenticate"] == "Bearer"
            for path in ("/metrics", "/v1/status", "/v1/schema"):
                assert (await served.client.get(path)).status_code == 401
                assert (await served.client.get(path, headers=good)).status_code == 200
            for path in ("/healthz", "/readyz", "/", "/page.js", "/page.css", "/openapi.json"):
                assert (await served.client.get(path)).status_code == 200
            assert (await post(served, b'{"ids": [1]}', **good))[0] == 200
            assert (await post(served, b'{"ids": [1]}', **{"X-API-Key": KEY}))[0] == 200
            status, _ = (
                (await served.client.post("/v1/admin/switch", content=b'{"version": "x"}', headers=good)).status_code,
                None,
            )
            assert status == 403

    asyncio.run(check())


def test_rates_and_totals_hold_over_restarts(run: Path) -> None:
    caller = {**CALLER, "rows_per_minute": 3, "max_rows": 5}
    good = {"Authorization": f"Bearer {KEY}"}

    async def check() -> None:
        async with world(run, http={"callers": [caller]}) as served:
            assert (await post(served, b'{"ids": [1, 2, 3]}', **good))[0] == 200
            response = await served.client.post("/v1/predict", content=b'{"ids": [4]}', headers=good)
            assert response.status_code == 429
            assert int(response.headers["retry-after"]) >= 1
            assert (await post(served, b'{"ids": [1, 2, 3, 4]}', **good))[0] in (403, 413)
        async with world(run, http={"callers": [caller]}) as served:  # a restart refills the rate, not the total
            status, problem = await post(served, b'{"ids": [1, 2, 3]}', **good)
            assert status == 403
            assert "2 are left" in problem["error"]
            assert (await post(served, b'{"ids": [1, 2]}', **good))[0] == 200

    asyncio.run(check())


def test_no_minute_has_more_rows_than_the_rate() -> None:
    """Whenever it begins, and however the requests are spread."""
    now, asked = 0.0, list[tuple[float, int]]()
    caller = Caller(validated(CallerConfig, {**CALLER, "rows_per_minute": 600}, ""), clock=lambda: now)
    for step in range(2000):
        now, rows = step * 0.11, (600, 100, 37, 1)[step % 4]
        with suppress(CallerRefused):
            caller.take(rows)
            asked.append((now, rows))
    most = max(sum(rows for at, rows in asked if begin <= at < begin + 60) for begin, _ in asked)
    assert most == 600
    assert sum(rows for _, rows in asked) > 3 * 600, "and a minute later it may ask again"


def test_a_caller_over_its_rate_learns_when_it_may_ask_again() -> None:
    now = 0.0
    caller = Caller(validated(CallerConfig, {**CALLER, "rows_per_minute": 10}, ""), clock=lambda: now)
    caller.take(4)
    now = 20.0
    caller.take(6)
    now = 30.0
    for rows, wait in ((4, 30.0), (5, 50.0)):
        with pytest.raises(CallerRefused) as refused:
            caller.take(rows)
        assert refused.value.wait == pytest.approx(wait)
    now = 60.0
    caller.take(4)


def test_requests_at_once_do_not_share_what_is_left(run: Path) -> None:
    async def check() -> None:
        async with world(run, http={"callers": [{**CALLER, "max_rows": 4}]}) as served:
            good = {"Authorization": f"Bearer {KEY}"}
            answers = await asyncio.gather(*(post(served, b'{"ids": [1]}', **good) for _ in range(12)))
            assert sorted(status for status, _ in answers) == [200] * 4 + [403] * 8

    asyncio.run(check())


def test_every_release_leaves_a_line_at_both_parties(run: Path) -> None:
    async def check() -> None:
        async with world(run) as served:
            await served.predict([1, 2])
            await served.predict([155])
            await served.predict([155], required=["shop"], status=404)

    asyncio.run(check())
    lines = list(read_log(audit_path(TrainedParty.open(run, ACTIVE))))
    assert [(line["caller"], line["rows"], line["released"]) for line in lines] == [
        ("local", 2, {"telco": 2, "shop": 2}),
        ("local", 1, {"telco": 1, "shop": 0}),
        ("local", 1, {"telco": 1, "shop": 0}),
    ]
    at_telco = list(read_log(audit_path(TrainedParty.open(run, "telco"))))
    assert [line["ids"] for line in at_telco] == [line["ids"] for line in lines]
    assert all("1" not in line["ids"].split() for line in lines)


def test_required_parties_are_waited_for_in_vain_with_a_reason(plain: Path) -> None:
    async def check() -> None:
        async with world(plain, ("shop",), required=["telco"]) as served:
            problem = await served.predict([1], status=503)
            assert "telco is required" in problem["error"]
            assert "not connected" in problem["error"]
            assert (await served.client.get("/readyz")).status_code == 503
        async with world(plain, ("shop",)) as served:
            assert (await served.predict([1]))["degraded"]
            await served.predict([1], required=["telco"], status=503)
            assert (await served.client.get("/readyz")).status_code == 200

    asyncio.run(check())


def test_off_the_loopback_keys_and_a_certificate_are_needed(plain: Path) -> None:
    async def check() -> None:
        for http in ({"address": "0.0.0.0:0"}, {"address": "0.0.0.0:0", "callers": [CALLER]}, {"address": "nowhere"}):
            with pytest.raises(ConfigError, match=r"serve\.http"):
                async with world(plain, (), http=http):
                    pass

    asyncio.run(check())


def test_a_page_from_elsewhere_asks_nothing_where_there_are_no_keys(plain: Path) -> None:
    """A site that the user visits can send requests to the loopback, and point its own name there."""

    async def check() -> None:
        async with world(plain, ()) as served:
            body = b'{"ids": [1]}'
            assert (await post(served, body, Host="rebound.example"))[0] == 403
            assert (await post(served, body, Host="rebound.example:8080"))[0] == 403
            assert (await post(served, body, Origin="http://evil.example"))[0] == 403
            assert (await post(served, body, Origin="null"))[0] == 403
            assert (await post(served, body, Host="localhost:8080", Origin="http://localhost:8080"))[0] == 200
        async with world(plain, (), http={"callers": [CALLER]}) as served:  # a key proves the caller
            good = {"Authorization": f"Bearer {KEY}", "Host": "bank.example", "Origin": "https://crm.example"}
            assert (await post(served, body, **good))[0] == 200

    asyncio.run(check())


def test_a_body_that_does_not_come_is_not_waited_for(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutlayer_serve.http.BODY_SECONDS", 0.05)

    async def slow() -> Any:
        yield b'{"ids": '
        await asyncio.sleep(5)

    async def check() -> None:
        async with world(plain, ()) as served:
            response = await served.client.post("/v1/predict", content=slow())
            assert response.status_code == 408

    asyncio.run(check())
