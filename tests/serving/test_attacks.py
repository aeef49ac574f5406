"""Attacks on the service: by a caller with a valid key, by a partner with a certificate, and by a full disk."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
import pytest
import torch

from cutlayer.channel import Kind
from cutlayer.channel.codec import WIRE_VERSION, encode
from cutlayer.channel.grpc_link import FROM_KEY, RUN_KEY, TO_KEY, WIRE_KEY
from cutlayer_serve.audit_log import AuditLog, read_log
from cutlayer_serve.breaker import MAX_MISSES, PROBE_SECONDS, Breaker
from cutlayer_serve.link import METHOD, SERVICE, message
from cutlayer_serve.process import audit_path
from cutlayer_serve.served_model import ServedModel
from cutlayer_serve.trained_party import TrainedParty
from tests.serving.runs import unserved
from tests.serving.test_peer import IDS, impostor, looked_up
from tests.serving.test_requests import CALLER, KEY
from tests.serving.world import ACTIVE, offline, passive, probabilities, world

HEADERS = {"Authorization": f"Bearer {KEY}"}


def test_listing_possible_ids_is_counted_over_restarts(run: Path) -> None:
    """Whether the active party has an id costs as much as an answer."""
    callers = [{**CALLER, "max_rows": 8}]

    async def ask(ids: list[int], status: int) -> None:
        async with world(run, (), http={"callers": callers}) as served:
            answer = await served.client.post("/v1/predict", json={"ids": ids}, headers=HEADERS)
            assert answer.status_code == status, answer.text

    for ids, status in (([900, 901, 902], 200), ([1, 903], 200), ([904, 905, 906, 907], 403), ([1, 2, 3], 200)):
        asyncio.run(ask(ids, status))
    lines = list(read_log(audit_path(TrainedParty.open(run, ACTIVE))))
    assert [line["rows"] for line in lines] == [3, 1, 1, 3], "unknown ids have a line of their own"
    assert [line["released"] for line in lines] == [{"telco": 0, "shop": 0}] * 4


def test_a_guess_of_many_ids_is_held_to_the_rate(run: Path) -> None:
    async def check() -> None:
        async with world(run, (), http={"callers": [{**CALLER, "rows_per_minute": 5}]}) as served:
            for ids, status in (([900, 901, 902], 200), ([903, 904, 905], 429)):
                answer = await served.client.post("/v1/predict", json={"ids": ids}, headers=HEADERS)
                assert answer.status_code == status, answer.text

    asyncio.run(check())


@pytest.mark.parametrize("number", [3e38, -3e38])
def test_huge_numbers_change_nobody_else_s_answer(plain: Path, number: float) -> None:
    async def check() -> None:
        async with world(plain) as served:
            huge = {"ids": [4], "columns": {"income": [number], "colour": ["red"]}}
            first, other, last = await asyncio.gather(
                served.predict(IDS),
                served.client.post("/v1/predict", json=huge),
                served.predict(IDS[::-1]),
            )
            assert other.status_code in (200, 422), other.text
            for answer, ids in ((first, IDS), (last, IDS[::-1])):
                assert abs(probabilities(answer) - offline(plain, ids)).max() < 1e-6

    asyncio.run(check())


def test_an_answer_that_is_no_number_is_refused(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with world(plain) as served:
            answer = ServedModel.answer
            monkeypatch.setattr(ServedModel, "answer", lambda *given: answer(*given) * float("nan"))
            assert "overflow" in (await served.predict(IDS, status=422))["error"]

    asyncio.run(check())


@pytest.mark.parametrize("length", ["9" * 5000, "9" * 19, "-1", "1e3"])
def test_no_stated_length_is_a_fault(plain: Path, length: str) -> None:
    async def check() -> None:
        async with world(plain, ()) as served:
            request = httpx.Request("POST", "http://127.0.0.1/v1/predict", headers={"Content-Length": length})
            assert (await served.client.send(request)).status_code in (413, 422)

    asyncio.run(check())


def test_no_answer_leaves_that_the_log_has_not(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes half of a line: 503, and no damaged line keeps the service from starting again."""
    write = os.write

    async def check() -> None:
        async with world(run) as served:
            await served.predict(IDS)
            log = served.active.versions.audit
            monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:20] if file == log._file else data))
            assert "recorded" in (await served.predict(IDS, status=503))["error"]
            assert "recorded" in (await served.predict([999], status=503))["error"]  # nor that there is no row
            monkeypatch.undo()
            await served.predict(IDS)

    asyncio.run(check())
    assert len(list(read_log(audit_path(TrainedParty.open(run, ACTIVE))))) == 2


def test_no_embedding_leaves_that_the_log_has_not(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with world(run) as served:

            def fail(*_: object, **__: object) -> None:
                raise OSError("no space left")

            monkeypatch.setattr(served.services["telco"].audit, "write", fail)
            answer = await served.predict(IDS)
            assert answer["subsets"][0]["absent"] == {"telco": "it failed"}
            assert abs(probabilities(answer) - offline(run, IDS, ("telco",))).max() < 1e-6
            monkeypatch.undo()
            assert not (await served.predict(IDS))["degraded"]

    asyncio.run(check())


def test_what_a_fallback_drops_is_logged_as_released(headed: Path, tmp_path: Path) -> None:
    """Under `active_only` an embedding that arrived is not used; its party released it all the same."""
    unserved(headed, tmp_path / "run")

    async def check() -> None:
        async with world(tmp_path / "run", ("telco",), absent="active_only") as served:
            await served.predict(IDS)

    asyncio.run(check())
    (line,) = read_log(audit_path(TrainedParty.open(tmp_path / "run", ACTIVE)))
    assert line["released"] == {"telco": len(IDS), "shop": 0}


def test_an_answer_that_comes_too_late_is_logged_as_asked_for(run: Path) -> None:
    """A caller's own deadline does not undo what a party releases for it."""

    async def check() -> None:
        async with world(run, ("shop",)) as served, impostor(served, lambda _: None) as call:
            await served.wait(("telco", "shop"))
            await served.predict([1, 2], deadline_ms=1)
            lost = asyncio.create_task(served.predict([3]))
            await asyncio.sleep(0.1)
            call.cancel()
            assert (await lost)["subsets"][0]["absent"] == {"telco": "its connection ended before it answered"}

    asyncio.run(check())
    lines = read_log(audit_path(TrainedParty.open(run, ACTIVE)))
    assert [(line["released"]["telco"], line["unanswered"]["telco"]) for line in lines] == [(0, 2), (0, 1)]


def test_a_log_has_all_lines_of_a_batch_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, write = AuditLog(tmp_path / "log.jsonl"), os.write
    log.write(rows=1)
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:-5]))
    with pytest.raises(OSError, match="cannot be written"):
        log.write_all([{"rows": 2}, {"rows": 3}])
    monkeypatch.undo()
    log.write(rows=4)
    log.close()
    assert [line["rows"] for line in read_log(tmp_path / "log.jsonl")] == [1, 4]


def test_a_party_cannot_say_unasked_that_it_answers_again(plain: Path) -> None:
    async def check() -> None:
        async with world(plain, ("shop",)) as served, impostor(served, lambda _: None) as call:
            await served.wait(("telco", "shop"))
            tag = served.active.versions.current.model.tags["telco"]
            await call.write(encode(message(Kind.ALIVE, "telco", ACTIVE, tag, 1)))
            await served.wait(("shop",))

    asyncio.run(check())


def test_a_party_that_answers_probes_alone_costs_fewer_and_fewer_deadlines() -> None:
    breaker, pauses = Breaker(), []
    for _ in range(MAX_MISSES):
        breaker.missed()
    for _ in range(8):
        assert breaker.open
        breaker.alive()
        assert not breaker.open
        breaker.missed()  # a single one
        pauses.append(breaker.pause)
    assert pauses[:3] == [2 * PROBE_SECONDS, 4 * PROBE_SECONDS, 8 * PROBE_SECONDS]
    assert pauses[-1] == pauses[-2] == 5.0
    breaker.alive()
    breaker.answered()
    assert breaker.pause == PROBE_SECONDS


def test_one_party_s_streams_keep_no_other_party_away(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that never say what they serve are held for seconds each."""
    monkeypatch.setattr("cutlayer_serve.peers._MAX_STREAMS", 4)

    async def check() -> None:
        async with AsyncExitStack() as opened:
            served = await opened.enter_async_context(world(plain, ()))
            address = served.active.peers.address
            channel = await opened.enter_async_context(grpc.aio.insecure_channel(address))
            tag = served.active.versions.current.model.tags["telco"]
            names = (FROM_KEY, b"telco"), (TO_KEY, ACTIVE.encode()), (RUN_KEY, tag.encode())
            metadata = (*names, (WIRE_KEY, str(WIRE_VERSION)))
            calls = [channel.stream_stream(f"/{SERVICE}/{METHOD}")(metadata=metadata) for _ in range(9)]
            codes = asyncio.as_completed([call.code() for call in calls])
            for _ in range(5):  # the others are held
                assert await next(codes) is grpc.StatusCode.RESOURCE_EXHAUSTED
            service = await opened.enter_async_context(passive(plain, "shop", address))
            task = asyncio.create_task(service.run())
            await served.wait(("shop",))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for call in calls:
                call.cancel()

    asyncio.run(check())


def test_what_waits_for_a_party_that_reads_nothing_is_bounded(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutlayer_serve.peers._MAX_QUEUED", 100_000)

    async def check() -> None:
        async with world(plain, ("shop",)) as served, impostor(served, lambda _: None):
            await served.wait(("telco", "shop"))
            (peer,) = (peer for (name, _), peer in served.active.peers.connected.items() if name == "telco")
            asked = message(Kind.LOOKUP, ACTIVE, "telco", peer.version, 1, {"ids": torch.zeros(1000, 16).byte()})
            for _ in range(7):  # 16,000 bytes each
                peer._send(asked)
            with pytest.raises(ConnectionError, match="takes nothing"):
                peer._send(asked)

    asyncio.run(check())


def test_an_answer_to_another_question_is_not_taken(plain: Path) -> None:
    """A party answers the numbers of all lookups to come, in advance, with rows of its choice."""
    sent = False

    def ahead(asked: Any) -> bytes | None:
        nonlocal sent
        if sent:
            return None
        sent = True
        return looked_up(asked, torch.ones(3, 4), [0] * 3, number=asked.sequence + 1)

    async def check() -> None:
        async with world(plain, ("shop",), deadline_ms=200) as served, impostor(served, ahead):
            await served.wait(("telco", "shop"))
            for _ in range(2):
                answer = await served.predict(IDS)
                assert answer["subsets"][0]["absent"] == {"telco": "it did not answer in time"}

    asyncio.run(check())
