"""Tasks and parties of other kinds: classes, values, an active party without features; and HTTPS with certificates."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import httpx
import numpy as np
import pytest

from benchmarks.serving_parties import Party
from tests.channel.certificates import Federation
from tests.serving.world import ACTIVE, MISSING_AT_SHOP, PASSIVES, train, world


def test_several_classes_have_a_probability_each(tmp_path: Path) -> None:
    run = train(tmp_path, task="multiclass", parties={ACTIVE: {"label": "colour"}})

    async def check() -> None:
        async with world(run) as served:
            answer = await served.predict([1, 2])
            for row in answer["predictions"]:
                assert row["probabilities"].keys() == {"blue", "green", "red"}
                assert abs(sum(row["probabilities"].values()) - 1) < 1e-6
            assert answer["subsets"][0]["expected"]["metric"] == "accuracy"
            columns = (await served.predict([1, 2], answer="columns"))["predictions"]["probabilities"]
            assert columns == {
                name: [row["probabilities"][name] for row in answer["predictions"]] for name in ("blue", "green", "red")
            }
            rows = (await served.predict([1, 999]))["predictions"]
            assert [row["probabilities"] is None for row in rows] == [False, True]
            columns = (await served.predict([1, 999], answer="columns"))["predictions"]["probabilities"]
            assert [[value is None for value in values] for values in columns.values()] == [[False, True]] * 3

    asyncio.run(check())


def test_a_regression_has_a_value(tmp_path: Path) -> None:
    run = train(tmp_path, task="regression")

    async def check() -> None:
        async with world(run) as served:
            answer = await served.predict([1, 2])
            values = [row["value"] for row in answer["predictions"]]
            assert np.isfinite(values).all()
            assert len(set(values)) == 2
            assert (await served.predict([1, 2], answer="columns"))["predictions"]["value"] == values
            unknown, known = (await served.predict([999, 1], answer="columns"))["predictions"]["value"]
            assert unknown is None
            assert abs(known - values[0]) < 1e-6

    asyncio.run(check())


def test_an_active_party_without_features_needs_somebody_to_contribute(tmp_path: Path) -> None:
    run = train(tmp_path, parties={ACTIVE: {"features": {"include": "none"}}})

    async def check() -> None:
        async with world(run) as served:
            answer = await served.predict([1, MISSING_AT_SHOP])
            subsets = [answer["subsets"][row["subset"]]["contributed"] for row in answer["predictions"]]
            assert subsets == [[*PASSIVES], ["telco"]]
            for ids in ([999], [999, 1]):
                row = (await served.predict(ids))["predictions"][0]
                assert (row["id"], row["probability"]) == (999, None)
                assert row["reason"].startswith("no party contributes: telco: it has no row of this id; shop: ")
            await served.predict([1], status=422, columns={"income": [1.0]})
        async with world(run, ()) as served:
            assert "not connected" in (await served.predict([1], status=503))["error"]
            assert (await served.client.get("/readyz")).status_code == 503
            assert (await served.client.get("/healthz")).status_code == 200
        async with world(run, ("shop",)) as served:
            rows = (await served.predict([1, MISSING_AT_SHOP]))["predictions"]
            assert [row["probability"] is None for row in rows] == [False, True]
            assert "telco: it is not connected" in rows[1]["reason"]
            assert "not connected" in (await served.predict([MISSING_AT_SHOP], status=503))["error"], "it may be later"

    asyncio.run(check())


def test_https_with_certificates_of_the_callers(plain: Path, tmp_path: Path) -> None:
    made = Federation(tmp_path, "telco")
    made.publish()
    server, caller = made.files("bank"), made.files("telco")
    http = {
        "address": "127.0.0.1:0",
        "certificate": str(server.cert),
        "key": str(server.key),
        "callers_ca": str(server.ca),
    }
    party = Party(plain, ACTIVE, {"address": "127.0.0.1:0", "http": http})
    try:
        url = party.start()["url"]
        assert url.startswith("https://")
        trusting = ssl.create_default_context(cafile=str(server.ca))
        trusting.check_hostname = False
        with httpx.Client(verify=trusting) as stranger, pytest.raises(httpx.TransportError):
            stranger.get(f"{url}/healthz")
        trusting.load_cert_chain(caller.cert, caller.key)
        with httpx.Client(verify=trusting) as known:
            assert known.post(f"{url}/v1/predict", json={"ids": [1]}).status_code == 200
    finally:
        party.kill()
