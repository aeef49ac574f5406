"""A partner's own limits hold wherever its table is read for predictions: the strictest of those it stated."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cutlayer.config import Job
from cutlayer.errors import CheckpointError, ConfigError
from cutlayer.serving.predict import PredictionRequest, predict
from cutlayer.training.folder import RunFolder
from tests.models.estimator_rows import steps_that_find_a_xor_b
from tests.parties.runs import ACTIVE, KEY, run
from tests.parties.test_carried_together import GIVEN, TELCO, World, made
from tests.parties.test_predicted_grades import FIRST, LATER, Saved, Start, predicted, served, trained

OPEN = {"b": 1.0, "a": 1.0, "other": 1.0}
COPIED = GIVEN[TELCO].set_column(1, "a", GIVEN[TELCO]["b"])
"""Rows whose a is b, of which the labels are."""
REFUSED = r"0\.1 of an attribute of a at most.*nothing was sent"


@pytest.fixture(autouse=True)
def _enough_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps_that_find_a_xor_b(monkeypatch)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Saved, Job, Path]]:
    """Worlds with a run, of open limits and of one for a, with the job and the folder of the run."""
    made = {}
    with pytest.MonkeyPatch.context() as patched:
        steps_that_find_a_xor_b(patched)
        for name, limits in {"open": OPEN, "strict": {**OPEN, "a": 0.1}}.items():
            saved = Saved(World(tmp_path_factory.mktemp(name)), tmp_path_factory.mktemp("copies"))
            made[name] = saved, *trained(saved.world, "one", FIRST, limits)
            saved.save("trained")
    return made


@pytest.fixture
def opened(worlds: dict[str, tuple[Saved, Job, Path]]) -> Start:
    """The world of open limits, its job and its run."""
    saved, job, folder = worlds["open"]
    return saved.restored("trained"), job, folder


@pytest.fixture
def strict(worlds: dict[str, tuple[Saved, Job, Path]]) -> Start:
    """The world of a limit for a."""
    saved, job, folder = worlds["strict"]
    return saved.restored("trained"), job, folder


def in_one_process(job: Job, folder: Path, rows: slice = slice(None), key: bytes | None = None) -> int:
    tables: dict[str, Any] = {TELCO: COPIED, ACTIVE: GIVEN[ACTIVE].take(LATER)[rows]}
    made = PredictionRequest(tables, key=key, overwrite=True)
    return predict(job, RunFolder(folder), folder.parent / "scores.csv", made).rows


def limited(job: Job, limits: dict[str, float]) -> Job:
    return job.with_parties({TELCO: {"fit": {**(job.parties[TELCO].fit or {}), "limits": limits}}})


@pytest.mark.parametrize("how", ["file", "service"])
def test_a_limit_of_the_private_file_holds_in_one_process_too(opened: Start, how: str) -> None:
    """Which reads the limits of the training alone: those that were refused by are noted beside the secret."""
    _, job, folder = opened
    strict = limited(job, {**OPEN, "a": 0.1})
    asked = (
        partial(predicted, strict, folder, LATER, COPIED) if how == "file" else served(strict, folder, COPIED).__enter__
    )
    with pytest.raises(ConfigError, match=REFUSED):
        asked()
    with pytest.raises(ConfigError, match=REFUSED):
        in_one_process(job, folder)
    predicted(limited(job, OPEN), folder, FIRST, GIVEN[TELCO].slice(0, 1000))  # its own to raise
    assert in_one_process(job, folder) == len(LATER)


def test_a_limit_of_the_training_holds_although_the_private_file_has_a_higher_one(strict: Start) -> None:
    _, job, folder = strict
    predicted(limited(job, OPEN), folder, FIRST, GIVEN[TELCO].slice(0, 1000))
    with pytest.raises(ConfigError, match=REFUSED):
        in_one_process(job, folder)


def test_limits_are_of_the_whole_table_in_one_process_too(strict: Start) -> None:
    """The attack: to ask for 79 rows at a time, of which too little is known."""
    _, job, folder = strict
    for rows in (slice(79, 158), slice(5, 6)):
        with pytest.raises(ConfigError, match=REFUSED):
            in_one_process(job, folder, rows)


def test_limits_hold_where_the_key_is_supplied(tmp_path: Path) -> None:
    """No grades are noted, since anybody can repeat the noise; what these carry is known all the same."""
    job = made("one", {**OPEN, "a": 0.1})
    folder = tmp_path / "run"
    run(job, {TELCO: GIVEN[TELCO], ACTIVE: GIVEN[ACTIVE].take(FIRST)}, folder, key=KEY)
    for rows in (slice(None), slice(0, 79)):
        with pytest.raises(ConfigError, match=REFUSED):
            in_one_process(job, folder, rows, KEY)
    assert in_one_process(limited(job, OPEN), folder, key=KEY) == len(LATER)


def test_a_damaged_note_of_limits_is_refused(opened: Start) -> None:
    world, job, folder = opened
    (world.secrets / f"{TELCO}.key.grades" / "limits.json").write_text("[1]")
    with pytest.raises(CheckpointError, match=r"limits\.json cannot be read"):
        in_one_process(job, folder)
