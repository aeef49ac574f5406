"""Hostile and broken passive parties: refused, absent for their rows, and asked again once they answer."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc.aio
import httpx
import numpy as np
import pytest
import torch

from cutlayer.channel import Kind, Message
from cutlayer.channel.codec import WIRE_VERSION, decode, encode
from cutlayer.channel.grpc_link import FROM_KEY, RUN_KEY, TO_KEY, WIRE_KEY
from cutlayer.channel.trail import Trail, read_lines
from cutlayer.config import PrivateFile, validated
from cutlayer.errors import NotApproved, PeerLost
from cutlayer_serve.breaker import MAX_MISSES
from cutlayer_serve.link import METHOD, SERVICE, message
from cutlayer_serve.passive import LookupCounts, PassiveService
from cutlayer_serve.process import active_service, listening_address
from tests.serving.world import ACTIVE, PATIENCE, World, offline, own_table, passive, private, probabilities, world

IDS = [3, 77, 12]
Answer = Callable[[Message], bytes | None]


@asynccontextmanager
async def impostor(
    served: World, answer: Answer, *, name: str = "telco", part: str | None = None, **offer: Any
) -> AsyncIterator[Any]:
    """A stream that offers telco's part and answers as it likes."""
    tag = served.active.versions.current.model.tags["telco"]
    stated = {"version": tag, "width": 4, **offer}
    async with grpc.aio.insecure_channel(served.active.peers.address) as channel:
        names = (FROM_KEY, name.encode()), (TO_KEY, ACTIVE.encode()), (RUN_KEY, (part or tag).encode())
        metadata = (*names, (WIRE_KEY, str(WIRE_VERSION)))
        call = channel.stream_stream(f"/{SERVICE}/{METHOD}")(metadata=metadata)
        with suppress(grpc.aio.AioRpcError):  # refused before the offer
            await call.write(encode(message(Kind.OFFER, name, ACTIVE, tag, 0, fields=stated)))

        async def run() -> None:
            while (frame := await call.read()) is not grpc.aio.EOF:
                reply = answer(decode(frame))
                if reply is not None:
                    await call.write(reply)

        task = asyncio.create_task(run())
        try:
            yield call
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            call.cancel()


def looked_up(asked: Message, embedding: torch.Tensor, status: list[int], **changed: Any) -> bytes:
    tensors = {"embedding": embedding, "status": torch.tensor(status, dtype=torch.uint8)}
    values = {"sender": asked.receiver, "receiver": ACTIVE, "version": asked.run, "number": asked.sequence, **changed}
    return encode(message(Kind.LOOKED_UP, tensors=tensors, **values))


LIES: dict[str, Callable[[Message], bytes]] = {
    "another width": lambda asked: looked_up(asked, torch.ones(3, 5), [0] * 3),
    "too few rows": lambda asked: looked_up(asked, torch.ones(2, 4), [0] * 2),
    "too few statuses": lambda asked: looked_up(asked, torch.ones(3, 4), [0] * 2),
    "an unknown status": lambda asked: looked_up(asked, torch.ones(3, 4), [0, 9, 0]),
    "NaN": lambda asked: looked_up(asked, torch.full((3, 4), float("nan")), [0] * 3),
    "huge numbers": lambda asked: looked_up(asked, torch.full((3, 4), 1e30), [0] * 3),
    "NaN in an absent row": lambda asked: looked_up(asked, torch.full((3, 4), float("nan")), [1] * 3),
    "another version": lambda asked: looked_up(asked, torch.ones(3, 4), [0] * 3, version="other"),
    "another party": lambda asked: looked_up(asked, torch.ones(3, 4), [0] * 3, sender="shop"),
    "another kind": lambda asked: encode(message(Kind.PROBE, "telco", ACTIVE, asked.run, asked.sequence)),
    "no frame": lambda asked: b"\x00" * 40,
}


def test_a_lie_ends_the_stream_and_the_party_is_absent(plain: Path) -> None:
    async def check() -> None:
        async with world(plain, ("shop",)) as served:
            expected = offline(plain, IDS, ("telco",))
            for what, lie in LIES.items():
                async with impostor(served, lie):
                    await served.wait(("telco", "shop"))
                    answer = await served.predict(IDS)
                    assert answer["degraded"], what
                    np.testing.assert_allclose(probabilities(answer), expected, atol=1e-6)
                    await served.wait(("shop",))

    asyncio.run(check())


def test_what_comes_with_an_absent_row_does_not_count(plain: Path) -> None:
    async def check() -> None:
        def absent(asked: Message) -> bytes:
            return looked_up(asked, torch.ones(3, 4), [1, 1, 1])

        async with world(plain, ("shop",)) as served, impostor(served, absent):
            await served.wait(("telco", "shop"))
            answer = await served.predict(IDS)
            np.testing.assert_allclose(probabilities(answer), offline(plain, IDS, ("telco",)), atol=1e-6)

    asyncio.run(check())


@pytest.mark.parametrize(
    ("offer", "code"),
    [
        ({"name": "stranger"}, "PERMISSION_DENIED"),
        ({"width": 5}, "INVALID_ARGUMENT"),
        ({"version": "another"}, "INVALID_ARGUMENT"),
        ({"part": "another"}, "FAILED_PRECONDITION"),
    ],
)
def test_a_stream_of_nobody_is_refused(plain: Path, offer: dict[str, Any], code: str) -> None:
    async def check() -> None:
        async with world(plain, ("shop",)) as served:
            for _ in range(10):  # gRPC says INTERNAL to a client that still writes when the refusal comes
                async with impostor(served, lambda _: None, **offer) as call:
                    found = (await call.code()).name
                if found != "INTERNAL":
                    break
            assert found == code

    asyncio.run(check())


def test_a_silent_party_costs_a_few_deadlines_and_is_then_probed(plain: Path) -> None:
    awake = False

    def answer(asked: Message) -> bytes | None:
        if not awake:
            return None
        if asked.kind is Kind.PROBE:
            return encode(message(Kind.ALIVE, "telco", ACTIVE, asked.run, asked.sequence))
        return looked_up(asked, torch.ones(3, 4), [0] * 3)

    async def check() -> None:
        nonlocal awake
        async with world(plain, ("shop",), deadline_ms=100) as served, impostor(served, answer):
            await served.wait(("telco", "shop"))
            for _ in range(MAX_MISSES):
                late = await served.predict(IDS)
                assert late["subsets"][0]["absent"] == {"telco": "it did not answer in time"}
            began = time.monotonic()
            for _ in range(20):
                skipped = await served.predict(IDS)
                assert "probed" in skipped["subsets"][0]["absent"]["telco"]
            assert time.monotonic() - began < 20 * 0.1  # no deadline was waited for
            awake = True
            deadline = time.monotonic() + 10
            while (await served.predict(IDS))["degraded"]:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)

    asyncio.run(check())


def test_a_new_stream_replaces_the_old_one(plain: Path) -> None:
    async def check() -> None:
        async with world(plain) as served, impostor(served, lambda _: None) as first:
            await asyncio.sleep(0.2)
            # The party's own service was replaced, and comes back in its turn.
            deadline = time.monotonic() + 10
            while (await served.predict(IDS, deadline_ms=50))["degraded"]:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
            assert await first.code() is not None

    asyncio.run(check())


def test_a_passive_party_answers_its_own_active_party_alone(plain: Path) -> None:
    async def check() -> None:
        async with world(plain) as served:
            service: PassiveService = served.services["telco"]
            ids = {"ids": torch.zeros(1, 16, dtype=torch.uint8)}
            for wrong in ({"sender": "shop"}, {"receiver": "shop"}, {"version": "x"}):
                values = {"sender": ACTIVE, "receiver": "telco", "version": service.tag, **wrong}
                with pytest.raises(Exception, match="expected a message"):
                    service._answer(message(Kind.LOOKUP, number=1, tensors=ids, **values))
            short = {"ids": torch.zeros(1, 15, dtype=torch.uint8)}
            with pytest.raises(Exception, match=r"\(n, 16\)"):
                service._answer(message(Kind.LOOKUP, ACTIVE, "telco", service.tag, 1, short))

    asyncio.run(check())


def test_a_fault_at_a_party_makes_it_absent(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that cannot be read: the party answers that it failed, and stays connected."""

    async def check() -> None:
        async with world(plain) as served:

            def fail(*_: object) -> None:
                raise OSError("the disk is gone")

            monkeypatch.setattr(served.services["telco"].releases, "release", fail)
            answer = await served.predict(IDS)
            assert answer["subsets"][0]["absent"] == {"telco": "it failed"}
            monkeypatch.undo()
            assert not (await served.predict(IDS))["degraded"]

    asyncio.run(check())


def test_a_caller_in_a_hurry_does_not_have_the_parties_skipped(plain: Path) -> None:
    """Deadlines that no party can meet are the caller's own: they open no circuit."""

    async def check() -> None:
        async with world(plain) as served:
            peers = list(served.active.peers.connected.values())
            for peer in peers:  # answers take longer than these callers wait
                monkey = peer.deliver
                peer.deliver = lambda arrived, on=monkey: asyncio.get_running_loop().call_later(0.05, on, arrived)  # type: ignore[method-assign]
            for _ in range(2 * MAX_MISSES):
                assert (await served.predict(IDS, deadline_ms=1))["degraded"]
            assert not any(peer.breaker.open for peer in peers)
            assert not (await served.predict(IDS))["degraded"]

    asyncio.run(check())


def test_what_leaves_each_party_is_in_its_trail(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: Message) -> None:
        raise NotApproved("telco has withdrawn its approval")

    async def check() -> None:
        async with AsyncExitStack() as opened:
            trails = {name: Trail(tmp_path / name, {"party": name}) for name in (ACTIVE, "telco")}
            config = private(table=str(own_table(plain, ACTIVE)))
            active = await opened.enter_async_context(active_service((plain,), ACTIVE, config, trail=trails[ACTIVE]))
            service = await opened.enter_async_context(passive(plain, "telco", active.peers.address))
            service.trail = trails["telco"]
            task = asyncio.create_task(service.run())
            opened.callback(task.cancel)
            while not active.peers.connected:
                await asyncio.sleep(0.01)
            client = httpx.AsyncClient(transport=httpx.ASGITransport(active.app), base_url="http://127.0.0.1")
            await opened.enter_async_context(client)
            assert (await client.post("/v1/predict", json={"ids": IDS})).status_code == 200
            monkeypatch.setattr(trails[ACTIVE], "record", refuse)
            for _ in range(2):  # and the service says why, once
                (subset,) = (await client.post("/v1/predict", json={"ids": IDS})).json()["subsets"]
                assert subset["absent"]["telco"] == "an approval is missing or withdrawn: nothing is sent to it"
            assert caplog.messages.count("telco has withdrawn its approval") == 1
            for trail in trails.values():
                trail.close()

    asyncio.run(check())
    kinds = {}
    for name in (ACTIVE, "telco"):
        (path,) = (tmp_path / name).glob("*.jsonl")
        kinds[name] = [line.entry["kind"] for line in read_lines(path) if "kind" in line.entry]
    assert kinds == {ACTIVE: ["lookup"], "telco": ["offer", "looked_up"]}


def test_what_reaches_nobody_has_not_left(plain: Path, tmp_path: Path) -> None:
    """A line a second for as long as an outage lasts, of offers that nobody received, was in the trail."""
    with closing(socket.socket()) as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen

        async def check() -> None:
            async with passive(plain, "telco", f"127.0.0.1:{nobody.getsockname()[1]}") as service:
                service.trail = Trail(tmp_path / "telco", {"party": "telco"})
                task = asyncio.create_task(service.run())
                deadline = time.monotonic() + PATIENCE
                while service._outages != {"UNAVAILABLE"}:
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.5)
                task.cancel()
                service.trail.close()

        asyncio.run(check())
    assert not [*tmp_path.glob("telco/*.jsonl")]


def test_a_message_that_breaks_the_protocol_ends_the_stream_and_not_the_passive_party(plain: Path) -> None:
    async def check() -> None:
        async with world(plain) as served:
            tag = served.services["telco"].tag
            before = served.active.peers.connected["telco", tag]
            before._send(message(Kind.ALIVE, ACTIVE, "telco", tag, 0))  # no question
            deadline = time.monotonic() + PATIENCE
            while served.active.peers.get("telco", tag) in (None, before):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            assert not (await served.predict(IDS))["degraded"]
            assert not served.tasks["telco"].done()

    asyncio.run(check())


def test_the_address_of_the_service_goes_before_the_port_of_the_training() -> None:
    job = SimpleNamespace(active="bank", parties={"bank": SimpleNamespace(address="bank.example:7070")})
    trained = SimpleNamespace(job=job)

    def listens(**given: object) -> str:
        return listening_address(trained, validated(PrivateFile, given, "party"))  # type: ignore[arg-type]

    assert listens(listen="0.0.0.0:7070", serve={"address": "0.0.0.0:7071"}) == "0.0.0.0:7071"
    assert listens(listen="0.0.0.0:7070") == "0.0.0.0:7070"
    assert listens() == "bank.example:7070"


def test_an_outage_and_its_end_are_reported_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = object.__new__(PassiveService)
    service.party, service.active, service.address, service.answered = "telco", "bank", "127.0.0.1:1", LookupCounts()
    service._outages = set()
    outcomes = ["lost", "lost", "connected", "lost", "lost", "end"]

    async def session() -> None:
        outcome = outcomes.pop(0)
        if outcome == "end":
            raise asyncio.CancelledError
        if outcome == "connected":
            service._accepted()
        if outcome == "lost":
            raise PeerLost("nobody answers")

    monkeypatch.setattr(service, "_session", session)
    monkeypatch.setattr("cutlayer_serve.passive._BACKOFF", (0.0, 0.0))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(service.run())
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    result = "telco: no stream to bank at 127.0.0.1:1; trying again until it answers: nobody answers"
    assert warnings == [result, "telco: connected to bank at 127.0.0.1:1", result]
