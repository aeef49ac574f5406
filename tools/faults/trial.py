"""One trial: two parties exchange tensors through a proxy that harms what passes, and check every number."""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.grpc_client import ClientLink
from cutlayer.channel.grpc_link import Keepalive
from cutlayer.channel.grpc_server import ServerLinks
from cutlayer.channel.security import Security
from cutlayer.channel.tls.authority import Authority, files_in, make_request
from cutlayer.channel.tls.files import Credentials
from cutlayer.errors import CutlayerError
from cutlayer.parties.drive.drive import drive
from tools.faults.proxy import Faults, Proxy

ACTIVE, PASSIVE = "bank", "telco"
STEPS = 12
PATIENCE, RECONNECT = 4.0, 2.0
MAX_SECONDS = 30.0
"""Seconds that a trial may take: more is a hang."""
KEEPALIVE = Keepalive(interval=0.5, timeout=0.5)
Party = Generator[Port, Message, None]


class WrongNumbers(Exception):
    """A message arrived with other numbers than were sent: the one thing that must never happen."""


@dataclass(frozen=True)
class Outcome:
    """What became of a trial.

    Attributes:
        seed: Seed of the schedule.
        ended: By party, `done` or the class of its error.
        errors: By party, the message of its error.
        faults: Faults that happened, in order.
        seconds: Duration.
    """

    seed: int
    ended: dict[str, str]
    errors: dict[str, str]
    faults: list[str]
    seconds: float

    @property
    def healed(self) -> bool:
        """Whether both parties finished."""
        return set(self.ended.values()) == {"done"}

    @property
    def wrong(self) -> str:
        """What a trial must not do; empty if it did none of it."""
        unnamed = [name for name, kind in self.ended.items() if kind not in ("done", *_NAMED)]
        if unnamed or len(self.ended) < 2:
            return f"parties that ended without a named error: {self.ended}"
        return f"took {self.seconds:.0f} s" if self.seconds > MAX_SECONDS else ""


_NAMED = ("PeerLost", "ProtocolError", "TrustError", "Unsuited")


def sent(seed: int, step: int) -> Tensor:
    """The tensor of a step, of a few bytes to 2 MB."""
    draw = torch.Generator().manual_seed(seed * 1000 + step)
    rows = int(torch.randint(1, 2000 if step % 4 else 60_000, (), generator=draw))
    return torch.randn(rows, 8, generator=draw)


def passive(port: Port, seed: int) -> Party:
    """Send each step's tensor and compare the answer."""
    for step in range(STEPS):
        port.send(Kind.EMBEDDING, epoch=0, step=step, tensors={"embedding": sent(seed, step)})
        answer = yield port
        _compare(answer, "gradient", step, -sent(seed, step))


def active(port: Port, seed: int) -> Party:
    """Compare each step's tensor and send its negative back."""
    for step in range(STEPS):
        message = yield port
        _compare(message, "embedding", step, sent(seed, step))
        port.send(Kind.GRADIENT, epoch=0, step=step, tensors={"gradient": -message.tensors["embedding"]})


@contextmanager
def certificates() -> Iterator[dict[str, Security]]:
    """The certificates of both parties, in a folder that is removed."""
    with tempfile.TemporaryDirectory(prefix="cutlayer-faults-") as scratch:
        folder = Path(scratch)
        authority = Authority.create(folder, "faults", ACTIVE)
        authority.invite(PASSIVE)
        authority.sign(make_request(folder, "faults", PASSIVE)[1], 2, folder / f"{PASSIVE}.pem")
        identities = {name: f"spiffe://faults/{name}" for name in (ACTIVE, PASSIVE)}
        yield {name: Security(Credentials(files_in(folder, name)), identities) for name in identities}


def run_trial(seed: int, security: dict[str, Security]) -> Outcome:
    """Draw a schedule of faults and let both parties run through it."""
    draw = random.Random(seed)
    kinds = tuple(draw.sample(Faults.KINDS, draw.randint(1, len(Faults.KINDS))))
    faults = Faults(seed, draw.choice([0.01, 0.03, 0.1, 0.3]), kinds)
    ended: dict[str, str] = {}
    errors: dict[str, str] = {}
    began = time.monotonic()
    options: dict[str, Any] = {"timeout": PATIENCE, "reconnect": RECONNECT, "keepalive": KEEPALIVE, "notify": _quiet}
    with ServerLinks("127.0.0.1:0", ACTIVE, [PASSIVE], "run", security=security[ACTIVE], **options) as bank:
        leading = threading.Thread(target=_ended, args=(ACTIVE, lambda: _lead(bank, seed), ended, errors), daemon=True)
        leading.start()
        with Proxy(bank.address, faults) as proxy:

            def follow() -> None:
                with ClientLink(proxy.address, PASSIVE, ACTIVE, security=security[PASSIVE], **options) as link:
                    link.open(PATIENCE)
                    drive(passive(link.port, seed), link.receive)

            _ended(PASSIVE, follow, ended, errors)
            leading.join(MAX_SECONDS)
    return Outcome(seed, ended, errors, faults.done, time.monotonic() - began)


def _lead(bank: ServerLinks, seed: int) -> None:
    bank.wait_for_peers()
    drive(active(bank.ports[PASSIVE], seed), bank.receive)


def _ended(name: str, party: Any, ended: dict[str, str], errors: dict[str, str]) -> None:
    try:
        party()
        ended[name] = "done"
    except (CutlayerError, WrongNumbers) as failure:
        ended[name], errors[name] = type(failure).__name__, str(failure)


def _compare(message: Message, name: str, step: int, wanted: Tensor) -> None:
    found = message.tensors[name]
    if message.step != step or found.numpy().tobytes() != wanted.numpy().tobytes():
        raise WrongNumbers(f"{message.description} at step {step}")


def _quiet(_text: str) -> None:
    """Print nothing."""
