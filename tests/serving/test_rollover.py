"""A new run is loaded next to the old one and switched to; no answer mixes versions."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutlayer.channel.trail import Trail
from cutlayer.errors import ConfigError
from cutlayer_serve.trained_party import TrainedParty
from tests.serving.runs import unserved
from tests.serving.test_requests import CALLER, KEY
from tests.serving.world import PASSIVES, PATIENCE, World, offline, passive, probabilities, world

IDS = [3, 77, 12]


@pytest.fixture
def runs(plain: Path, headed: Path, tmp_path: Path) -> Path:
    """A folder with two runs of the same parties, of which none has been served."""
    for name, run in (("old", plain), ("new", headed)):
        unserved(run, tmp_path / name)
    return tmp_path


async def admin(served: World, what: str, status: int = 200, **body: Any) -> Any:
    response = await served.client.post(f"/v1/admin/{what}", json=body)
    assert response.status_code == status, response.text
    return response.json()


def test_a_callers_total_holds_after_a_restart_with_the_new_run(runs: Path) -> None:
    """The answers of the old run are in its own log."""
    caller = {**CALLER, "max_rows": 4}

    async def ask(run: str, ids: list[int], status: int) -> None:
        async with world(runs / run, (), runs_folder=runs, http={"callers": [caller]}) as served:
            answer = await served.client.post(
                "/v1/predict", json={"ids": ids}, headers={"Authorization": f"Bearer {KEY}"}
            )
            assert answer.status_code == status, answer.text

    for run, ids, status in (("old", IDS, 200), ("new", IDS, 403), ("new", [3], 200), ("old", [3], 403)):
        asyncio.run(ask(run, ids, status))


def test_no_answer_mixes_versions_while_they_are_switched(runs: Path, caplog: pytest.LogCaptureFixture) -> None:
    def told_by_parties() -> list[str]:
        return [text for text in (record.getMessage() for record in caplog.records) if "no stream to" in text]

    expected = {name: offline(runs / name, IDS) for name in ("old", "new")}
    assert np.abs(expected["old"] - expected["new"]).min() > 1e-4

    async def check() -> None:
        async with AsyncExitStack() as opened:
            served = await opened.enter_async_context(world(runs / "old", runs_folder=runs))
            loaded = await admin(served, "load", run="new")
            old, new = loaded["current"], loaded["version"]
            await admin(served, "switch", 409, version=new)  # its parties are not connected yet
            for name in PASSIVES:
                service = await opened.enter_async_context(passive(runs / "new", name, served.active.peers.address))
                task = asyncio.create_task(service.run())
                opened.callback(task.cancel)
            while len(served.active.peers.connected) < 4:
                await asyncio.sleep(0.01)
            by_version = {old: expected["old"], new: expected["new"]}
            seen = set()
            for turn in range(20):
                asked = [asyncio.create_task(served.predict(IDS)) for _ in range(5)]
                await asyncio.sleep(0.001 * (turn % 3))
                await admin(served, "switch", version=(new, old)[turn % 2])
                for answer in await asyncio.gather(*asked):
                    assert not answer["degraded"]
                    seen.add(answer["version"])
                    np.testing.assert_allclose(probabilities(answer), by_version[answer["version"]], atol=1e-6)
            assert seen == {old, new}
            await admin(served, "unload", 409, version=old)  # the current one
            await admin(served, "unload", version=new)
            await admin(served, "switch", 404, version=new)
            served.active.peers.end_unloaded()
            while len(served.active.peers.connected) > 2 or len(told_by_parties()) < 2:
                await asyncio.sleep(0.01)
            assert not (await served.predict(IDS))["degraded"]

    asyncio.run(check())
    assert all("it has no run loaded that part " in text for text in told_by_parties())


def test_a_half_of_another_training_is_not_connected(runs: Path, tmp_path: Path) -> None:
    """The halves of two trainings do not fit together, however alike their jobs are.

    Until its run is loaded a half sends no message, so that none fills its trail, a line a second.
    """

    async def check() -> None:
        async with (
            world(runs / "old", ("shop",)) as served,
            passive(runs / "new", "telco", served.active.peers.address) as stranger,
        ):
            stranger.trail = Trail(tmp_path / "telco", {"party": "telco"})
            task = asyncio.create_task(stranger.run())
            deadline = time.monotonic() + PATIENCE
            while not stranger._outages:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            assert stranger._outages == {f"it has no run loaded that part {stranger.tag} belongs to"}
            assert not [*tmp_path.glob("telco/*.jsonl")]
            assert ("telco", stranger.tag) not in served.active.peers.connected
            answer = await served.predict([1])
            assert answer["subsets"][0]["absent"] == {"telco": "it is not connected"}
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(check())


def test_only_runs_of_the_folder_are_loaded(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")

    async def check() -> None:
        async with world(runs / "old", (), runs_folder=runs) as served:
            for name in ("../old", "/etc", ".", "", "a/b", "..%2Fold"):
                await admin(served, "load", 422, run=name)
            refused = await admin(served, "load", 422, run="../old")
            assert refused["error"].startswith("run: expected text of the form")
            assert refused["error"].endswith("got '../old'")
            await admin(served, "load", 403, run="link")
            await admin(served, "load", 422, run="nothing")
        async with world(runs / "old", ()) as served:
            await admin(served, "load", 403, run="new")

    asyncio.run(check())


def test_settings_that_do_not_fit_the_model_are_refused(plain: Path) -> None:
    for serve, words in (
        ({"absent": "multi_head"}, "multi_head"),
        ({"required": ["bank"]}, "required"),
        ({"required": ["nobody"]}, "required"),
    ):

        async def check(serve: dict[str, Any] = serve) -> None:
            async with world(plain, (), **serve):
                pass

        with pytest.raises(ConfigError, match=words):
            asyncio.run(check())
    with pytest.raises(ConfigError, match="party of the run"):
        TrainedParty.open(plain, "nobody")
