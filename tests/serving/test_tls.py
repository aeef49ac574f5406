"""Streams with mutual TLS: the certificate names the party, whatever a caller says."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import grpc
import grpc.aio
import pytest

from cutlayer.channel import Kind
from cutlayer.channel.codec import WIRE_VERSION, encode
from cutlayer.channel.grpc_link import FROM_KEY, RUN_KEY, TO_KEY, WIRE_KEY
from cutlayer.errors import ProtocolError, TrustError
from cutlayer_serve import link
from cutlayer_serve.process import active_service
from tests.channel.certificates import Federation
from tests.serving.world import ACTIVE, PATIENCE, own_table, passive, private


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    made = Federation(tmp_path / "keys", "telco", "shop")
    made.publish()
    return made


async def connected(active: object, count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while len(active.peers.connected) != count:  # type: ignore[attr-defined]
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def test_parties_connect_by_certificate_and_leave_when_it_is_revoked(
    plain: Path, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link.wait_until_invalid, "__defaults__", (0.05,))

    async def check() -> None:
        async with AsyncExitStack() as opened:
            bank = federation.security("bank")
            config = private(table=str(own_table(plain, ACTIVE)))
            active = await opened.enter_async_context(active_service((plain,), ACTIVE, config, bank))
            address = active.peers.address
            tasks = []
            for name in ("telco", "shop"):
                side = federation.security(name)
                service = await opened.enter_async_context(passive(plain, name, address, security=side))
                tasks.append(asyncio.create_task(service.run()))
                opened.callback(tasks[-1].cancel)
            await connected(active, 2)
            federation.authority.revoke("telco")
            federation.publish()
            await connected(active, 1)
            assert next(iter(active.peers.connected))[0] == "shop"
            with pytest.raises((TrustError, ProtocolError)):  # it is told, and does not try for ever
                await asyncio.wait_for(tasks[0], PATIENCE)

    asyncio.run(check())


def test_another_party_cannot_take_the_name_and_none_without_a_certificate_connects(
    plain: Path, federation: Federation
) -> None:
    async def check() -> None:
        async with AsyncExitStack() as opened:
            bank = federation.security("bank")
            config = private(table=str(own_table(plain, ACTIVE)))
            active = await opened.enter_async_context(active_service((plain,), ACTIVE, config, bank))
            tag = active.versions.current.model.tags["telco"]
            offer = link.message(Kind.OFFER, "telco", ACTIVE, tag, 0, fields={"version": tag, "width": 4})
            names = (FROM_KEY, b"telco"), (TO_KEY, ACTIVE.encode()), (RUN_KEY, tag.encode())
            stated = (*names, (WIRE_KEY, str(WIRE_VERSION)))
            shop = federation.security("shop")
            pinned, named, _ = await asyncio.to_thread(shop.pin_peer, active.peers.address, "bank")
            channels = (
                (grpc.aio.secure_channel(active.peers.address, pinned, options=[*named]), "FAILED_PRECONDITION"),
                (grpc.aio.insecure_channel(active.peers.address), "UNAVAILABLE"),
            )
            for channel, code in channels:
                async with channel:
                    call = channel.stream_stream(f"/{link.SERVICE}/{link.METHOD}")(metadata=stated)
                    with suppress(grpc.aio.AioRpcError):
                        await call.write(encode(offer))
                        await call.read()
                    assert (await call.code()).name == code
            assert not active.peers.connected

    asyncio.run(check())
