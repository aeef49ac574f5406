"""A party that is killed under load fails no request and comes back; the benchmark measures it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from benchmarks.serving import forward_speed
from benchmarks.serving_kills import kill_under_load, wait_until_whole
from benchmarks.serving_parties import start_parties
from benchmarks.serving_plain import plain_app
from tests.serving.world import ACTIVE, MISSING_AT_SHOP, PASSIVES, train


def test_a_killed_party_fails_no_request_and_comes_back(tmp_path: Path) -> None:
    run = train(tmp_path)
    parties = start_parties(run, ACTIVE, PASSIVES, deadline_ms=2000)
    try:
        wait_until_whole(parties[ACTIVE].started["url"])
        seen = kill_under_load(parties, (ACTIVE, "telco"), 2, range(1, MISSING_AT_SHOP))
        assert seen.failures == 0
        assert 0 < seen.degraded < seen.answers
        assert seen.descriptors_grown <= 4
    finally:
        for party in parties.values():
            party.kill()


def test_the_forward_pass_of_the_comparison_runs(tmp_path: Path) -> None:
    assert forward_speed(train(tmp_path), 64, 0.05, MISSING_AT_SHOP) > 0


def test_the_plain_service_of_the_comparison_answers(tmp_path: Path) -> None:
    app = plain_app(train(tmp_path))

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://plain") as client:
            return await client.post("/v1/predict", json={"ids": [3, 4]})

    answer = asyncio.run(ask())
    assert answer.status_code == 200
    assert len(answer.json()["predictions"]) == 2
