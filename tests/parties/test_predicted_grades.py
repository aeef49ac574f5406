"""Rows that only predictions graded: they are in the limits of later trainings, predictions and services."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from sklearn.metrics import roc_auc_score

from cutlayer.accounting import RandomizedGrade
from cutlayer.channel import Kind, Message
from cutlayer.channel.parcel import ParcelWriter
from cutlayer.config import Job, LimitsConfig
from cutlayer.data.align import intersect
from cutlayer.errors import CheckpointError, ConfigError, DriftExceeded
from cutlayer.parties.carried import grade_information, without_chance
from cutlayer.parties.session.checkpoint import RELEASED_FILE, Checkpoints
from cutlayer.serving.between import PredictionSide
from cutlayer.serving.by_file import release_prediction, with_agreed_rows
from cutlayer.serving.models import PartyModel
from cutlayer.serving.predict import PredictionRequest, predict
from cutlayer.serving.prediction_release import PredictionReleases
from cutlayer.training.folder import RunFolder
from cutlayer_serve.features import FeatureStore
from cutlayer_serve.releases import OnlineReleases
from cutlayer_serve.trained_party import TrainedParty
from tests.models.estimator_rows import steps_that_find_a_xor_b
from tests.parties.runs import ACTIVE
from tests.parties.test_carried_together import GIVEN, TELCO, A, World, codes_store, found_in, made, share

pytestmark = pytest.mark.filterwarnings("ignore:labels of the same rows were drawn before")
FIRST, SECOND, LATER = np.arange(1000), np.arange(1000, 2000), np.arange(2000, 3000)
OPEN = {"b": 1.0, "other": 1.0}
LIMITS = {"b": 1.0, "other": 0.4}
STRICT = {"b": 1.0, "other": 0.2}
"""Limits that no lower epsilon keeps either."""


@pytest.fixture(autouse=True)
def _enough_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps_that_find_a_xor_b(monkeypatch)


def trained(world: World, label: str, rows: np.ndarray, limits: object = None) -> tuple[Job, Path]:
    job = made(label, limits or LIMITS)
    world.secrets.mkdir(exist_ok=True)
    for name in (ACTIVE, TELCO):  # whatever is drawn by chance, each test has the same
        key = world.secrets / f"{name}.key"
        key.write_bytes(bytes(range(32)))
        key.chmod(0o600)
    return job, world.run(job, {TELCO: GIVEN[TELCO], ACTIVE: GIVEN[ACTIVE].take(rows)}, out=f"{label} {rows[0]}")


def predicted(
    job: Job, run: Path, rows: np.ndarray, table: pa.Table = GIVEN[TELCO], max_drift: float | None = None
) -> np.ndarray:
    """Grades that a partner sends for some rows of its table, by their order here, (m,)."""
    sent = list[Message]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ParcelWriter, "add", lambda _, message: sent.append(message))
        side = PredictionSide.open(job, RunFolder(run), TELCO, table, LimitsConfig(), max_drift)
        at = intersect({TELCO: side.table.digests[rows]})[TELCO]
        side = with_agreed_rows(side, None, alone=True)
        object.__setattr__(side.alignment, "agreed_positions", rows[at])
        serving = PredictionReleases(job, RunFolder(run), TELCO, side.width, None)
        release_prediction(side, serving, run / f"release {len(list(run.iterdir()))}", None, None)
    grades = np.zeros(len(rows))
    grades[at] = torch.cat([each.tensors["embedding"][:, 0] for each in sent if each.kind is Kind.EVALUATION]).numpy()
    return grades


class Saved:
    """A world whose runs know where their secrets lie, and copies of its folder, to go on from each in that folder."""

    def __init__(self, world: World, copies: Path) -> None:
        self.world, self._copies = world, copies

    def save(self, name: str) -> None:
        shutil.copytree(self.world.folder, self._copies / name)

    def restored(self, name: str) -> World:
        shutil.rmtree(self.world.folder)
        shutil.copytree(self._copies / name, self.world.folder)
        return self.world


Start = tuple[World, Job, Path]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Saved, dict[str, tuple[Job, Path]], np.ndarray]:
    """Copies after a training, its prediction of rows that it has not seen, and a training of another label.

    Each with its job and run; and the grades that were predicted.
    """
    saved = Saved(World(tmp_path_factory.mktemp("saved")), tmp_path_factory.mktemp("copies"))
    with pytest.MonkeyPatch.context() as patched:
        steps_that_find_a_xor_b(patched)
        first = trained(saved.world, "one", FIRST)
        saved.save("trained")
        drawn = predicted(*first, LATER)
        saved.save("predicted")
        second = trained(saved.world, "other", SECOND)
        saved.save("begun")
    return saved, {"trained": first, "predicted": first, "begun": second}, drawn


@pytest.fixture
def one_trained(saved: Any) -> Start:
    """A world with a run of the label b, which has predicted nothing, its job and its folder."""
    return saved[0].restored("trained"), *saved[1]["trained"]


@pytest.fixture
def one_predicted(saved: Any) -> Start:
    """The same, after it has predicted rows that it was not trained on."""
    return saved[0].restored("predicted"), *saved[1]["predicted"]


@pytest.fixture
def begun(saved: Any) -> Start:
    """The same world after a training of another label and other rows, with the job and the run of that one."""
    return saved[0].restored("begun"), *saved[1]["begun"]


def test_both_only_predicted_tell_a_column(tmp_path: Path) -> None:
    """The attack: allowed to, the label owner reads a of rows that no training had."""
    world = World(tmp_path)
    jobs = (("one", FIRST), ("other", SECOND))
    first, second = (predicted(*trained(world, label, rows, OPEN), LATER) for label, rows in jobs)
    aucs = [roc_auc_score(A[LATER], each) for each in (first, second, (first > 0) ^ (second > 0))]
    assert max(abs(auc - 0.5) for auc in aucs[:2]) < 0.06
    assert max(aucs[2], 1 - aucs[2]) > 0.9


def test_a_training_of_other_rows_counts_none_of_them(begun: Start) -> None:
    assert found_in(begun[2]).former == 0


def test_a_training_counts_rows_that_were_only_predicted(one_predicted: Start) -> None:
    world, *_ = one_predicted
    with pytest.raises(ConfigError, match="of a at most with those of 1 other release of"):
        trained(world, "other", LATER, STRICT)
    allowed = found_in(trained(world, "other", LATER, OPEN)[1])
    assert allowed.former == 1
    assert share(allowed.together, "a") > 0.5


def test_a_training_is_drawn_at_a_lower_epsilon_for_rows_that_were_only_predicted(one_predicted: Start) -> None:
    """Of a, which the new grades alone do not tell, both together would carry more than the limit at 8."""
    world, *_ = one_predicted
    found = found_in(trained(world, "other", LATER, {"b": 1.0, "other": 0.5})[1])
    assert found.lowered is not None
    assert found.epsilon is not None
    assert found.epsilon < found.lowered.epsilon == 8.0
    assert share(found.together, "a") <= 0.5 < found.lowered.share


@pytest.mark.parametrize("count", [1000, 1])
def test_a_prediction_counts_rows_that_were_only_predicted(begun: Start, count: int) -> None:
    """However few rows are asked for: of the whole table of the partner."""
    _, job, run = begun
    with pytest.raises(ConfigError, match=r"of a at most with those of 1 other release.*nothing was sent"):
        predicted(job, run, LATER[:count])
    apart = GIVEN[TELCO].slice(1000, 1000)
    assert len(predicted(job, run, np.arange(1000), apart)) == 1000


def refusals(world: World) -> list[int]:
    """Refused predictions of each run, in the ledger of all runs."""
    events = [entry.event for line in world.lines(TELCO) for entry in line.ledger.entries]
    return [event.refused for event in events if isinstance(event, RandomizedGrade)]


def test_each_refused_prediction_is_counted_and_stated(one_trained: Start, tmp_path: Path) -> None:
    """By drift of the rows that are asked for: each is a bit of these rows, which no epsilon covers."""
    world, job, run = one_trained
    assert refusals(world) == [0]
    some = GIVEN[TELCO].slice(0, 500)
    drifted = some.set_column(some.column_names.index("c"), "c", pa.array(np.full(500, 9.0)))
    for count in (1, 2):
        with pytest.raises(DriftExceeded):
            predicted(job, run, np.arange(500), drifted, max_drift=0.25)
        assert refusals(world) == [count]
    assert len(predicted(job, run, np.arange(500), some, max_drift=9.0)) == 500
    assert refusals(world) == [2]
    (line,) = world.lines(TELCO)
    assert any("refused predictions: 2, each a bit of its rows" in each.statement for each in line.ledger.entries)
    new = {TELCO: drifted, ACTIVE: GIVEN[ACTIVE].slice(0, 500)}
    with pytest.raises(DriftExceeded):  # with all parties in one process
        predict(job, RunFolder(run), tmp_path / "scores.csv", PredictionRequest(tables=new, max_drift=0.25))
    assert refusals(world) == [3]


def test_each_prediction_that_limits_refuse_is_counted(begun: Start) -> None:
    world, job, run = begun
    assert refusals(world) == [0, 0]
    with pytest.raises(ConfigError, match="nothing was sent"):
        predicted(job, run, LATER)
    assert refusals(world) == [0, 1]
    with pytest.raises(ConfigError, match="nothing was sent"), served(job, run):
        pass
    assert refusals(world) == [0, 2]


def served(job: Job, run: Path, table: pa.Table = GIVEN[TELCO]) -> OnlineReleases:
    part = TrainedParty(job, RunFolder(run), TELCO, PartyModel.load(job, RunFolder(run), TELCO))
    assert part.model.encoder is not None
    return OnlineReleases(part, FeatureStore.read(job, TELCO, table, part.model.encoder))  # type: ignore[arg-type]


def test_what_can_be_asked_of_a_service_counts(one_trained: Start) -> None:
    """Before any row is: afterwards no other job could know of it."""
    world, job, run = one_trained
    with served(job, run), pytest.raises(ConfigError, match="with those of 1 other release of"):
        trained(world, "other", LATER, STRICT)


def test_a_service_counts_what_was_predicted(begun: Start) -> None:
    _, job, run = begun
    with pytest.raises(ConfigError, match="with those of 1 other release of"), served(job, run):
        pass


def test_what_was_released_can_be_released_again(one_predicted: Start, saved: Any) -> None:
    """Also after another release of the same rows, with limits of its own: a repeated grade says nothing new."""
    (world, job, run), drawn = one_predicted, saved[-1]
    trained(world, "other", LATER, OPEN)
    carried_before = (run / "checkpoint" / TELCO / "carried.json").read_bytes()
    assert (predicted(job, run, LATER) == drawn).all()
    with pytest.raises(ConfigError, match=r"with those of (1 other release|2 other releases) of"):
        predicted(job, run, SECOND)
    given = {TELCO: GIVEN[TELCO], ACTIVE: GIVEN[ACTIVE].take(FIRST)}
    trained(world, "other", FIRST, OPEN)
    world.run(job, given, out=run.name, resume=True)
    assert (run / "checkpoint" / TELCO / "carried.json").read_bytes() == carried_before


def test_predicted_rows_stay_with_those_of_the_training(one_trained: Start) -> None:
    world, job, run = one_trained
    for part in np.split(LATER, 4):
        predicted(job, run, part)
    (memory,) = (world.secrets / f"{TELCO}.key.grades").glob("*.safetensors")
    with pytest.raises(ConfigError, match="with those of 1 other release of"):
        trained(world, "other", FIRST, STRICT)
    assert memory.stat().st_size > 9 * 2000


def test_a_prediction_alone_is_within_limits(tmp_path: Path) -> None:
    """The attack: a training with rows of which b tells nothing of a, then a prediction of those where it tells all."""
    world = World(tmp_path)
    job, run = trained(world, "one", FIRST, {"b": 1.0, "a": 0.1})
    copied = GIVEN[TELCO].set_column(1, "a", GIVEN[TELCO]["b"])
    for count in (1000, 1):
        with pytest.raises(
            ConfigError,
            match=r"0\.1 of an attribute of a at most.*predict without \w+,.* or train again.*nothing was sent",
        ):
            predicted(job, run, LATER[:count], copied)
    with pytest.raises(ConfigError, match=r"0\.1 of an attribute of a at most"), served(job, run, copied):
        pass
    few = copied.slice(2000, 79)  # as in a training, of few rows nothing is known
    assert len(predicted(job, run, np.arange(79), few)) == 79


@pytest.mark.parametrize("gone", ["grades", "secret", "release", "version"])
def test_a_run_whose_grades_are_not_known_any_more_has_limits(begun: Start, gone: str) -> None:
    """The grades were removed, as the error of a damaged file advises, or are elsewhere."""
    world, job, run = begun
    memory = world.secrets / f"{TELCO}.key.grades"
    path = {
        "grades": max(memory.glob("*.safetensors")),
        "secret": world.secrets / f"{TELCO}.key",
        "release": run / "checkpoint" / TELCO / RELEASED_FILE,
        "version": run / "checkpoint" / TELCO / RELEASED_FILE,
    }[gone]
    if gone == "version":  # of earlier ones none names its draws
        checkpoints = Checkpoints(path.parent, TELCO, job.digest())
        tensors, plain = checkpoints.read_state(RELEASED_FILE) or ({}, {})
        checkpoints.write_state(
            RELEASED_FILE, (tensors, {key: value for key, value in plain.items() if key != "draws"})
        )
    else:
        path.unlink()
    wanted, match = ConfigError if gone == "grades" else CheckpointError, "of a at most with|to know its other grades"
    with pytest.raises(wanted, match=match):
        predicted(job, run, LATER)
    if gone == "grades":
        allowed = job.with_parties({TELCO: {"fit": {**job.parties[TELCO].fit, "limits": OPEN}}})  # type: ignore[dict-item]
        assert len(predicted(allowed, run, FIRST)) == len(FIRST)
        assert len([*memory.glob("*.safetensors")]) == 2


@pytest.mark.parametrize("agreeing", [0.62, 0.98])
def test_months_of_rows_that_carry_what_is_allowed_are_not_refused(agreeing: float) -> None:
    """By chance every other month carries more than all rows do; what carries more than chance is refused."""

    def shares(rows: int, months: int) -> np.ndarray:
        """What the grades of some rows carry of a flag, as it is and as it is compared with a limit, (months, 2)."""
        found = []
        for _ in range(months):
            flag, drawn = draw.integers(2, size=rows), draw.integers(8, size=rows)
            grades = 8 * np.where(draw.random(rows) < agreeing, flag, 1 - flag) + drawn
            one = grade_information(*codes_store(flag[:, None].astype(float)), grades, None, 16)
            found.append([each.attributes[0].share for each in (one, without_chance(one, rows))])
        return np.array(found)

    draw = np.random.default_rng(0)
    limit = 1 + agreeing * np.log2(agreeing) + (1 - agreeing) * np.log2(1 - agreeing)
    over = (shares(800, 60) > limit).mean(axis=0)
    assert over[0] > 0.4
    assert over[1] == 0
    assert (shares(20_000, 4)[:, 1] > limit - 0.08).all()
