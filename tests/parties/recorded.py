"""Runs that several tests of a file read, trained once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cutlayer.channel import Message
from cutlayer.config import Job
from tests.parties.runs import Watched, record, run


@dataclass(frozen=True)
class Recorded:
    """A finished run that is not to be changed.

    Attributes:
        folder: Its folder.
        trained: What it returned.
        messages: All that was sent, in order.
    """

    folder: Path
    trained: Watched
    messages: list[Message]


Recording = Callable[[Job, Mapping[str, Any]], Recorded]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Trains a job on tables, once for all tests of a file that read what it left, returned or sent."""
    done: dict[tuple[str, int], tuple[Mapping[str, Any], Recorded]] = {}

    def train(job: Job, given: Mapping[str, Any]) -> Recorded:
        key = job.model_dump_json(), id(given)
        if key not in done:
            folder = tmp_path_factory.mktemp("recorded")
            with pytest.MonkeyPatch.context() as patched:
                messages = record(patched)
                trained = run(job, given, folder)
            done[key] = given, Recorded(folder, trained, messages)
        return done[key][1]

    return train
