"""`python -m tools.hostile` in seconds: that it sees what a file must not do, and that a query does none of it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tools.hostile import trial as trials
from tools.hostile.trial import Trials
from tools.hostile.variants import Variant, variants
from tools.hostile.world import write_job


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    folder = tmp_path_factory.mktemp("hostile")
    write_job(folder / "world")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tools.hostile.trial.preload", lambda *_: None)
        made = Trials(folder, folder / "world")
    yield made
    made.close()


def connects(bait: dict[str, str]) -> int:
    socket.create_connection(("127.0.0.1", int(bait["trap"]))).close()
    return 2


def imports(bait: dict[str, str]) -> int:
    return len(__import__("hostile_model").__name__)


def allocates(bait: dict[str, str]) -> int:
    return int(len(b"x" * (trials.MAX_ADDED_BYTES + 2**25)) > 0) + 1


def starts(bait: dict[str, str]) -> int:
    return subprocess.run([sys.executable, "-c", ""]).returncode


def writes(bait: dict[str, str]) -> int:
    os.close(os.open(f"{bait['outside']}/new", os.O_CREAT | os.O_WRONLY))
    return 0


def fails(bait: dict[str, str]) -> int:
    raise KeyError("x")


def reads(bait: dict[str, str]) -> int:
    import pyarrow as pa

    return len(pa.memory_map(f"{bait['outside']}/bait.csv").read()) and 0  # opened by a library, not by Python


def ends(bait: dict[str, str]) -> int:
    return 9


ODD = Variant("odd", "job", lambda *_: None, ("x",))


@pytest.fixture(scope="module")
def seen_of_nothing(tried: Trials) -> list[Any]:
    """What is wrong with a verb that does nothing, with which those of the tests are compared."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trials, "verb_of", lambda name, _, trial: (lambda: 0, trial))
        return tried.run(ODD, "x")


def test_nothing_is_seen_of_a_verb_that_does_nothing(seen_of_nothing: list[Any]) -> None:
    assert seen_of_nothing == []


@pytest.mark.parametrize(
    ("verb", "kind"),
    [
        (connects, "connect"),
        (imports, "import"),
        (allocates, "memory"),
        (starts, "program"),
        (writes, "write"),
        (reads, "read"),
        (fails, "fault"),
        (ends, "exit code"),
    ],
)
@pytest.mark.usefixtures("seen_of_nothing")
def test_it_sees_what_a_verb_does(
    tried: Trials, monkeypatch: pytest.MonkeyPatch, verb: Callable[[Any], int], kind: str
) -> None:
    monkeypatch.setattr(trials, "verb_of", lambda name, _, trial: (lambda: verb(tried.bait), trial))
    assert kind in {what for what, _ in tried.run(ODD, "x")}


@pytest.mark.parametrize("name", ["query:0:inside", "query:1:inside", "query:2:inside", "query:6:inside"])
def test_a_query_does_nothing_but_read(tried: Trials, name: str) -> None:
    """All other hostile files: `python -m tools.hostile`."""
    pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (extra sql)")
    variant = next(variant for variant in variants(tried.world, 1) if variant.name == name)
    assert tried.run(variant, "check") == []
