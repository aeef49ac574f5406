"""A party that is killed under load fails no request and comes back; the benchmark measures it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from benchmarks.serving import forward_speed
from benchmarks.serving_kills import kill_under_load, wait_until_whole
from benchmarks.serving_parties import start_parties
from benchmarks.serving_plain import plain_app
from tests.serving.world import ACTIVE, MISSING_AT_SHOP, PASSIVES, train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("run"))


def test_a_killed_party_fails_no_request_and_comes_back(run: Path) -> None:
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


def test_the_forward_pass_of_the_comparison_runs(run: Path) -> None:
    assert forward_speed(run, 64, 0.05, MISSING_AT_SHOP) > 0


def test_the_plain_service_of_the_comparison_answers(run: Path) -> None:
    app = plain_app(run)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://plain") as client:
            return await client.post("/v1/predict", json={"ids": [3, 4]})

    answer = asyncio.run(ask())
    assert answer.status_code == 200
    assert len(answer.json()["predictions"]) == 2
