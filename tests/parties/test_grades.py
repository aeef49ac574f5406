"""Grades of rows: labels are drawn and sent once, each row's grade is drawn once, and nothing else crosses."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from ruamel.yaml import YAML
from safetensors.torch import load_file
from sklearn.metrics import mutual_info_score
from torch import Tensor

from cutlayer.channel import Kind, Message
from cutlayer.channel.compression import GradeBytes
from cutlayer.channel.parcel import ParcelWriter
from cutlayer.config import CategoriesConfig, Job, LimitsConfig, NumbersConfig, validated
from cutlayer.data.categories import FIRST_VALUE_CODE, CategoryEncoder
from cutlayer.data.encoded import Encoded
from cutlayer.data.encoding import Encoder
from cutlayer.data.numbers import NumberEncoder
from cutlayer.data.store import Store
from cutlayer.errors import ConfigError, DataError, PeerLost, ProtocolError
from cutlayer.jobs.audit import audit_again
from cutlayer.jobs.check import check_job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.kernels.noise.label_levels import levels_for
from cutlayer.kernels.noise.randomized_response import drawn_rate
from cutlayer.kernels.noise.score_bands import draw_channel, information
from cutlayer.kernels.rows.grade_columns import columns_of_grades, grades_of_columns
from cutlayer.models.bottom_fits.base import DrawnLabels
from cutlayer.parties.carried import grade_information
from cutlayer.parties.carried_limits import check_limits
from cutlayer.parties.faults import FaultPoint
from cutlayer.parties.phases import labels as label_phase
from cutlayer.results.leaks import LeakResult
from cutlayer.serving import PredictionReleases
from cutlayer.serving.between import PredictionSide
from cutlayer.serving.by_file import release_prediction, with_agreed_rows
from cutlayer.serving.predict import PredictionRequest, predict
from cutlayer.training.comparisons import compared_jobs, undefended_job
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.recorder import read_truth
from cutlayer.training.run_ledger import chain_of, ledger_after, ledger_of, planned_entries
from cutlayer.training.training_folder import training_folder
from tests.channel.links import refuses
from tests.parties.interruptions import Fails, assert_equal, crashes_at_rename, left_at_renames
from tests.parties.mutants import tamper, with_fields, with_tensors
from tests.parties.processes import Site, fork, lay_out, wait_for
from tests.parties.recorded import Recording
from tests.parties.runs import ACTIVE, BRIEF, KEY, PASSIVES, UNAUDITED, raw_job, record, run, tables
from tests.parties.threads import run_apart
from tests.training.test_all_runs import World

TELCO = PASSIVES[0]
ROWS = 2400
GRADE = {"kind": "grade", "least_rows": 0}
FIT = {"kind": "grade", "candidates": ["linear"], "folds": 2, "least_z": 0}
SPLIT = {"test": 0.3, "validation": 0.0}
GIVEN = tables(rows=ROWS)
FEW = tables(rows=300)


def raw(
    fit: Mapping[str, Any] | None = None,
    *,
    task: str = "binary",
    eps: float = 3.0,
    epsilon: float | None = 8.0,
    bottom: Mapping[str, Any] = GRADE,
    **options: Any,
) -> dict[str, Any]:
    """A partner whose rows get a grade of a linear model of drawn labels."""
    made = raw_job(
        task,
        bottom={ACTIVE: {"kind": "auto"}, TELCO: bottom},
        top={"kind": "linear", "folds": 1},
        release="once",
        split={**SPLIT},  # a test may add to it
        privacy={"label_dp": {"eps": eps} | ({"range": [-4, 6]} if task == "regression" else {})},
        **({"audit": UNAUDITED} | options),
    )
    made["parties"][TELCO]["fit"] = FIT | (fit or {})
    if epsilon is not None:
        made["parties"][TELCO]["privacy"] = {"grade_dp": {"epsilon": epsilon}}
    return made


def graded(*args: Any, **options: Any) -> Job:
    return validated(Job, raw(*args, **options), "")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patched:
        messages = record(patched)
        trained = run(graded(), GIVEN, folder)
    return folder, trained, messages


def kept(folder: Path, name: str) -> Mapping[str, Tensor]:
    return load_file(folder / "checkpoint" / TELCO / f"{name}.safetensors")


def test_a_byte_a_row_crosses_each_way_once(whole: Any) -> None:
    _, trained, messages = whole
    split = trained.active.split
    labels = [message for message in messages if message.kind is Kind.LABELS]
    grades = [message for message in messages if message.kind is Kind.RELEASE]
    assert {message.sender for message in labels} == {ACTIVE}
    assert {message.sender for message in grades} == {TELCO}
    assert sum(message.nbytes for message in labels) == len(split.train)
    assert sum(message.nbytes for message in grades) == len(split.train) + len(split.test)
    assert not [message for message in messages if message.kind in (Kind.GRADIENT, Kind.EMBEDDING)]


def test_the_labels_that_cross_are_drawn_ones(whole: Any) -> None:
    """At eps 3 about 5 % of them are not the true ones."""
    (sent,) = [message.tensors["labels"] for message in whole[2] if message.kind is Kind.LABELS]
    share = float((sent.long() != _truth(whole)).double().mean())
    assert 0.02 < share < 0.09


def _truth(whole: Any) -> Tensor:
    """True labels of the training rows in the common order, int64 (t,)."""
    folder, trained, _ = whole
    truth, _ = read_truth(folder / "transcript" / ACTIVE)
    return truth[torch.from_numpy(trained.active.split.train)].long()


def test_it_adds_to_the_label_owners_columns(whole: Any) -> None:
    _, trained, _ = whole
    alone = trained.active.task.evaluate(trained.active.logits_without[TELCO,], trained.active.labels)
    assert trained.active.metrics["auc"] > alone["auc"] + 0.05


def test_grades_are_those_of_the_job(whole: Any) -> None:
    columns = kept(whole[0], "released")["released"]
    grades = grades_of_columns(columns)
    assert columns.shape[1] == 16
    assert torch.equal(columns_of_grades(grades, 16), columns)
    assert len(grades.unique()) == 16


def test_the_account_is_one_draw_of_a_label_and_one_of_a_grade() -> None:
    totals = {total.protects: total for total in ledger_of(graded(eps=1.0, epsilon=4.0)).totals}
    assert (totals["labels"].epsilon, totals["labels"].delta) == (1.0, 0.0)
    assert (totals["features"].epsilon, totals["features"].delta) == (4.0, 0.0)
    assert totals["features"].auc_bound == pytest.approx(1 / (1 + np.exp(-4.0)))
    assert "conditional on the bottom model" in totals["features"].condition
    entries = ledger_of(graded()).entries
    assert {entry.protection for entry in entries} == {"label_dp", "grade_dp", "refusal"}


def test_labels_are_counted_in_the_ledger_of_all_runs_before_they_leave(tmp_path: Path) -> None:
    """Also in that of a run that ends there: no other message of the label owner depends on labels."""
    world = World(tmp_path)
    with pytest.raises(ConfigError, match="standard errors"):
        world.run(graded({"least_z": 1000.0}, eps=1.0), tables(rows=300))
    (line,) = world.lines(ACTIVE)
    (entry,) = line.ledger.entries
    assert (entry.protection, entry.event.eps, entry.towards) == ("label_dp", 1.0, (TELCO,))  # type: ignore[union-attr]
    with pytest.warns(UserWarning, match="labels of the same rows were drawn before"):
        world.run(graded(eps=2.0), tables(rows=300))
    assert world.total(ACTIVE) == 3.0


@pytest.mark.filterwarnings("ignore:labels of the same rows were drawn before")
def test_labels_of_two_jobs_add_up_at_both_sides(tmp_path: Path) -> None:
    """Although the shared job is the same: which column the labels are, only their owner knows."""
    world, given = World(tmp_path), tables(rows=300)
    other = pa.array(np.where(given[ACTIVE]["bank_1"].to_numpy() > 0, "yes", "no"))
    given[ACTIVE] = given[ACTIVE].append_column("attribute", other)
    made = raw(eps=1.0)
    made["parties"][ACTIVE]["features"] = {"exclude": ["label", "attribute"]}
    jobs = []
    for label in ("label", "attribute"):
        made["parties"][ACTIVE]["label"] = label
        jobs.append(validated(Job, made, ""))
    assert jobs[0].digest() == jobs[1].digest()
    drawn = []
    for nth, job in enumerate([*jobs, jobs[0]]):
        drawn.append(kept(world.run(job, given), "released")["released"])
        assert (world.total(ACTIVE), world.total(TELCO)) == ((1.0, 8.0), (2.0, 16.0))[min(nth, 1)]
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[0], drawn[2])


def test_without_noise_columns_have_no_guarantee() -> None:
    job = graded({"least_z": 3.0}, epsilon=None)
    assert not [total for total in ledger_of(job).totals if total.protects == "features"]
    assert [entry.protection for entry in planned_entries(job, TELCO, chain_of(job, TELCO))] == ["none"]


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_grades_of_every_task(tmp_path: Path, task: str) -> None:
    """A number is sent as one of the levels of its epsilon, which is in the ledger."""
    job = graded(task=task, eps=4.0, epsilon=4.0)
    trained = run(job, tables(task, rows=900), tmp_path)
    columns = kept(tmp_path, "released")["released"]
    assert len(grades_of_columns(columns).unique()) <= 4
    assert trained.active.metrics[trained.active.task.metric] > (0.5 if task == "regression" else 0.6)
    (entry,) = [entry for entry in ledger_after(job, trained.active).entries if entry.protection == "label_dp"]
    assert entry.event.classes == {"binary": 2, "multiclass": 3, "regression": 5}[task]  # type: ignore[union-attr]
    assert levels_for(4.0) == 5


@pytest.mark.parametrize("width", [2, 16])
def test_a_row_alone_crosses_as_it_does_among_others(width: int) -> None:
    """Grades of several classes too: which models read them must not depend on what a batch has besides."""
    link, grades = GradeBytes(width), torch.arange(width)
    columns = columns_of_grades(grades, width)
    assert len(columns.unique(dim=0)) == width
    assert torch.equal(grades_of_columns(columns), grades)
    assert columns.any(dim=1).all()  # a row of zeros is one of which nothing was sent
    for rows in (columns, *columns[:, None], columns[:0]):
        message = Message(Kind.RELEASE, TELCO, ACTIVE, "run", -1, 0, 0, tensors={"embedding": rows})
        packed = link.packed(message)
        assert packed.tensors["embedding"].shape == (len(rows), 1)
        assert torch.equal(link.unpacked(packed).tensors["embedding"], rows)


def test_bytes_of_grades_are_counted_before_they_are_columns() -> None:
    """A frame of 64 MB would be one of 4 GB, before its receiver compares the rows with those it asked for."""
    packed = {"embedding": torch.zeros((1 << 20) + 1, 1, dtype=torch.uint8)}
    message = Message(Kind.RELEASE, TELCO, ACTIVE, "run", -1, 0, 0, tensors=packed)
    with pytest.raises(
        ProtocolError,
        match="of 1,048,576 rows at most",
    ):
        GradeBytes(16).unpacked(message)


def test_a_run_that_is_begun_again_draws_no_row_again(tmp_path: Path) -> None:
    """In another folder, under other keys of the run: one draw of each row, which costs once over all runs."""
    world, given, job = World(tmp_path), tables(rows=300), graded(epsilon=2.0)
    folders, died = [], 0
    for nth in (12, 30, 36, 1000):
        out = f"{nth} {len(folders)}"
        died += crashes_at_rename(nth, lambda out=out: world.run(job, given, out=out), after=nth % 4 == 0)
        folders.append(tmp_path / out)
    drawn = [kept(folder, "released")["released"] for folder in folders if _has_released(folder)]
    assert died == 3
    assert len(drawn) > 1
    assert all(torch.equal(each, drawn[0]) for each in drawn)
    assert world.total(TELCO) == 2.0
    assert len(world.lines(TELCO)) > 1
    other = world.run(graded(epsilon=2.0, seed=4), given)  # another job draws independently, and is counted
    changed = grades_of_columns(kept(other, "released")["released"]) != grades_of_columns(drawn[0])
    assert float(changed.double().mean()) > 0.02
    assert world.total(TELCO) == 4.0


def test_the_same_settings_written_otherwise_are_one_draw(tmp_path: Path) -> None:
    world, given = World(tmp_path), tables(rows=300)
    once, again = (
        kept(world.run(graded(fit, epsilon=epsilon), given), "released")["released"]
        for fit, epsilon in (({"limits": {"other": 1}}, 2), ({"limits": {"other": 1.0}, "least_z": 0.0}, 2.0))
    )
    assert torch.equal(once, again)
    assert world.total(TELCO) == 2.0


def _has_released(folder: Path) -> bool:
    return (folder / "checkpoint" / TELCO / "released.safetensors").exists()


def test_other_rows_are_drawn_by_another_key(tmp_path: Path) -> None:
    """One changed value: were the others drawn as before, the changed row would show."""
    world, given, job = World(tmp_path), tables(rows=300), graded(epsilon=1.0)
    first = world.run(job, given)
    values = given[TELCO]["telco_0"].to_numpy().copy()
    held_out = 7
    values[held_out] += 1e-6
    other = {**given, TELCO: given[TELCO].set_column(1, "telco_0", pa.array(values))}
    second = world.run(job, other)
    a, b = (grades_of_columns(kept(folder, "released")["released"]) for folder in (first, second))
    assert float((a != b).double().mean()) > 0.2
    assert world.total(TELCO) == 2.0


def test_a_refusal_is_counted(tmp_path: Path) -> None:
    """The label owner sees it: with other labels each time, it would read a bit of the columns in every run."""
    world, given = World(tmp_path), tables(rows=900)
    entries = {entry.protection: entry for entry in ledger_of(graded({"limits": {"telco_0": 0.05}})).entries}
    assert "tells one bit about all rows" in entries["refusal"].event.why  # type: ignore[union-attr]
    allowed = graded({"limits": {"other": 1.0}})
    assert "refusal" not in {entry.protection for entry in ledger_of(allowed).entries}
    for job in (graded({"limits": {"telco_0": 0.05}}), graded({"least_z": 1000.0})):
        before = len(world.lines(TELCO))
        with pytest.raises(ConfigError, match="expected"):
            world.run(job, given)
        assert len(world.lines(TELCO)) == before + 1
    names = {entry.protection for line in world.lines(TELCO) for entry in line.ledger.entries}
    assert names == {"grade_dp", "refusal"}
    assert world.total(TELCO) == 16.0
    with pytest.raises(DataError, match="limits of columns"):  # no bit of any row
        world.run(graded({"limits": {"none": 0.05}}), given)
    assert len(world.lines(TELCO)) == 2


@pytest.mark.parametrize("failure", [PeerLost("gone", peer=TELCO), KeyboardInterrupt()])
def test_a_run_that_is_lost_while_a_partner_fits_goes_on(
    tmp_path: Path, recorded: Recording, failure: BaseException
) -> None:
    """The label owner may stop between the two rounds: its folder stays, with the draws of the labels."""
    path, job, given = tmp_path / "run", graded(audit=BRIEF["binary"]), FEW
    lost = Fails(FaultPoint.PHASE, TELCO, when=lambda phase: phase == "release", failure=failure)  # type: ignore[arg-type]
    with pytest.raises(type(failure)), training_folder(path, job, resume=False):
        run(job, given, path, faults=lost)
    with training_folder(path, job, resume=True):
        run(job, given, path, resume=True)
    whole = recorded(job, given).folder
    assert torch.equal(kept(path, "released")["released"], kept(whole, "released")["released"])


def test_a_kill_at_any_time_resumes_to_the_same_draws(tmp_path: Path, recorded: Recording) -> None:
    given, job = FEW, graded(audit=BRIEF["binary"])
    whole = recorded(job, given)
    left = left_at_renames(tmp_path / "run", lambda: run(job, given, tmp_path / "run"), range(0, 100, 15))
    assert 3 <= len(left) < 12
    for folder in left.values():
        assert_equal(folder, run(job, given, folder, resume=True), whole.folder, whole.trained, job)
        assert torch.equal(kept(folder, "released")["released"], kept(whole.folder, "released")["released"])


def test_processes_have_the_same_grades_and_no_port_is_open_while_a_partner_fits(tmp_path: Path) -> None:
    """Also after the partner was killed in its fit: both go on with the draws of before."""
    given = tables(rows=300)
    slow = raw({"candidates": ["boosting"]})
    run(validated(Job, slow, ""), given, tmp_path / "whole")
    sites = lay_out(tmp_path, slow, given)
    processes = {name: fork(site) for name, site in sites.items()}
    checkpoint, address = sites[TELCO].run / "checkpoint" / TELCO, str(_shared(sites[ACTIVE])["address"])
    wait_for(lambda: (checkpoint / "drawn.safetensors").exists(), "labels that were sent")
    processes[TELCO].signal(signal.SIGSTOP)
    assert not (checkpoint / "released.safetensors").exists()
    assert refuses(address)
    labels = load_file(checkpoint / "drawn.safetensors")["labels"]
    processes[TELCO].kill()
    assert processes[ACTIVE].wait() == 3
    run_apart(sites, resume=True)
    assert torch.equal(load_file(checkpoint / "drawn.safetensors")["labels"], labels)
    mine = load_file(checkpoint / "released.safetensors")["released"]
    assert torch.equal(mine, kept(tmp_path / "whole", "released")["released"])


def _shared(site: Site) -> Mapping[str, Any]:
    job: Mapping[str, Any] = YAML(typ="safe").load(site.folder / "job.yaml")
    return dict(job["parties"][site.name])


def test_a_prediction_repeats_the_draws_of_the_training(tmp_path: Path) -> None:
    """Of the same ids and values: the draws of the training would else be joined by others, at the same cost again."""
    job, given = graded(epsilon=2.0), tables(rows=600)
    folder = RunFolder(tmp_path / "run")
    execute(job, folder.path, Options(Keys(tmp_path, KEY), tables=given), Progress())
    answers = []
    for number, rows in enumerate((None, given, {name: table.slice(0, 400) for name, table in given.items()})):
        out = tmp_path / f"{number}.csv"
        predict(job, folder, out, PredictionRequest(rows or {}, key=KEY))
        lines = (line.split(",") for line in out.read_text().splitlines()[1:])
        answers.append({line[0]: float(line[1]) for line in lines})
    tested, every, some = answers
    assert 100 < len(tested) < 300
    assert {row: every[row] for row in tested} == pytest.approx(tested, rel=1e-9)
    assert {row: every[row] for row in some} == pytest.approx(some, rel=1e-9)


def test_rows_without_ids_are_drawn_once_for_each_table(tmp_path: Path) -> None:
    """Row numbers name other rows in another table: with the same draws, a known row of one tells of the other's."""
    made = raw(epsilon=0.5)
    for party in made["parties"].values():
        party["id"] = "@row"
    named = {name: table.sort_by("id").slice(0, 590) for name, table in tables(rows=600).items()}
    given = {name: table.drop_columns(["id"]) for name, table in named.items()}
    job, folder = validated(Job, made, ""), RunFolder(tmp_path / "run")
    execute(job, folder.path, Options(Keys(tmp_path, KEY), tables=given), Progress())
    other = {name: pa.concat_tables([table.slice(0, 589), table.slice(0, 1)]) for name, table in given.items()}
    answers = []
    for number, rows in enumerate((given, given, other)):
        predict(job, folder, tmp_path / f"{number}.csv", PredictionRequest(rows, key=KEY))
        answers.append((tmp_path / f"{number}.csv").read_text().splitlines()[1:590])
    first, again, changed = answers
    assert first == again
    assert 0.2 < np.mean([mine != theirs for mine, theirs in zip(first, changed, strict=True)]) < 0.8


def test_a_prediction_by_file_has_the_draws_of_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, given = graded(epsilon=2.0), tables(rows=300)
    run(job, given, tmp_path)
    messages: list[Message] = []
    monkeypatch.setattr(ParcelWriter, "add", lambda _, message: messages.append(message))
    shared = np.intersect1d(given[ACTIVE]["id"], given[TELCO]["id"])
    common = given[TELCO].filter(pc.is_in(given[TELCO]["id"], pa.array(shared)))
    side = PredictionSide.open(job, RunFolder(tmp_path), TELCO, common, LimitsConfig())
    serving = PredictionReleases(job, RunFolder(tmp_path), TELCO, side.width, KEY)
    rows = release_prediction(with_agreed_rows(side, None), serving, tmp_path / "release", None, None)
    sent = torch.cat([each.tensors["embedding"][:, 0] for each in messages if each.kind is Kind.EVALUATION])
    trained = grades_of_columns(kept(tmp_path, "released")["released"])
    assert len(sent) == rows == len(trained)
    assert torch.equal(sent.bincount(), trained.bincount())


def test_whether_a_message_was_changed_is_no_secret_of_the_draw(tmp_path: Path) -> None:
    """The evidence is sent: a count of messages that the draw left as they were would state the true grades."""
    trained = run(graded(epsilon=30.0), tables(rows=300), tmp_path)
    (evidence,) = [item for item in trained.active.evidence if item.party == TELCO]
    assert evidence.changed == evidence.covered == evidence.sent


def test_no_partner_is_label_free_where_one_is_sent_labels() -> None:
    made = raw()
    made["parties"]["shop"] = {"role": "passive", "id": "id", "fit": {"kind": "none"}}
    made["model"]["bottom"]["shop"] = {"kind": "linear"}
    entries = {entry.protection: entry for entry in ledger_of(validated(Job, made, "")).entries}
    assert "label_free" not in entries
    assert entries["label_dp"].towards == (TELCO, "shop")


def test_other_labels_than_before_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, job = tables(rows=300), graded()
    left = left_at_renames(tmp_path / "run", lambda: run(job, given, tmp_path / "run"), range(10, 60, 3))
    folder = next(each for each in left.values() if (each / "checkpoint" / TELCO / "drawn.safetensors").exists())
    tamper(monkeypatch, Kind.LABELS, with_tensors(lambda labels: 1 - labels))
    with pytest.raises(ProtocolError, match="the labels that bank sent before"):
        run(job, given, folder, resume=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda y: y[:-1], "drawn labels from bank"),
        (lambda y: y + 2, "drawn labels from bank"),
        (lambda y: torch.zeros_like(y), "which no draw at epsilon 1 gives"),
    ],
)
def test_labels_that_no_draw_gives_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, said: str
) -> None:
    tamper(monkeypatch, Kind.LABELS, with_tensors(change))
    with pytest.raises(ProtocolError, match=said):
        run(graded(eps=1.0), tables(rows=300), tmp_path)


@pytest.mark.parametrize(
    "stated", [{"epsilon": value} for value in (float("nan"), float("inf"), -1.0)] + [{"classes": 3}]
)
def test_labels_of_no_draw_of_the_task_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated: Mapping[str, Any]
) -> None:
    tamper(monkeypatch, Kind.LABELS, with_fields(**stated))
    with pytest.raises(ProtocolError, match="drawn labels from bank"):
        run(graded(), tables(rows=300), tmp_path)


def spread(attribute: np.ndarray, codes: int, rng: np.random.Generator) -> torch.Tensor:
    """An attribute in place of labels: as one of so many classes for each of its two values."""
    return torch.from_numpy(codes * attribute + rng.integers(codes, size=len(attribute)))


@pytest.mark.parametrize("rows", [180, 1000, 5000])
def test_an_attribute_in_a_few_of_many_classes_is_no_draw(rows: int) -> None:
    """Each class alone is of as many rows as a draw of 256 classes may give, up to 7,700 rows."""
    rng = np.random.default_rng(0)
    attribute = (rng.random(rows) < 0.3).astype(int)
    assert "too many are in too few rows" in DrawnLabels(spread(attribute, 6, rng), 4.0, 256).fault()
    assert not DrawnLabels(spread(attribute, 128, rng), 4.0, 256).fault()  # of which the rates are those of a draw


@pytest.mark.parametrize("classes", [2, 3, 16, 256])
def test_no_honest_draw_is_refused(classes: int) -> None:
    """180 draws of shares from one class alone to all alike, of few rows and of many."""
    rng = np.random.default_rng(0)
    for nth in range(180):
        shares = rng.dirichlet(np.full(classes, (0.02, 0.3, 50.0)[nth % 3]))
        epsilon, rows = (0.5, 1.0, 2.0, 4.0)[nth % 4], (60, 300, 3000)[nth // 4 % 3]
        slope, offset = drawn_rate(epsilon, classes)
        labels = rng.choice(classes, size=rows, p=offset + slope * shares)
        assert not DrawnLabels(torch.from_numpy(labels), epsilon, classes).fault()


def test_levels_of_numbers_are_as_many_as_their_epsilon_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attribute in the lower and the upper half of 256 levels has the rates of a draw, too."""
    rng = np.random.default_rng(0)
    attribute = with_tensors(lambda y: spread(y.numpy() % 2, 128, rng).to(torch.uint8))
    tamper(monkeypatch, Kind.LABELS, lambda message: with_fields(classes=256)(attribute(message)[0]))
    with pytest.raises(ProtocolError, match=r"drawn labels from bank, got some of 256 classes"):
        run(graded(task="regression"), tables("regression", rows=300), tmp_path)


def test_a_partner_takes_no_labels_that_an_honest_owner_would_not_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attribute that is spread over so many classes that all rates are those of draws: worth less than a row."""
    monkeypatch.setattr(label_phase, "_check_worth", lambda *_: None)
    rng = np.random.default_rng(0)
    attribute = with_tensors(lambda y: spread(y.numpy() % 2, 128, rng).to(torch.uint8))
    tamper(monkeypatch, Kind.LABELS, lambda message: with_fields(classes=256)(attribute(message)[0]))
    with pytest.raises(ProtocolError, match=r"drawn labels from bank, got some worth 0 rows, of 50 that the job asks"):
        run(graded(task="multiclass", bottom=GRADE | {"least_rows": 50}), tables("multiclass", rows=300), tmp_path)


def test_a_label_owner_does_not_choose_the_epsilon_that_its_labels_are_compared_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends an attribute of few rows, and states an epsilon of which every rate is a rate of draws."""
    attribute = torch.zeros(180, dtype=torch.uint8)
    attribute[:5] = 1
    assert DrawnLabels(attribute, 1.0, 2).fault()
    assert not DrawnLabels(attribute, 50.0, 2).fault()
    tamper(monkeypatch, Kind.LABELS, with_fields(epsilon=50.0))
    with pytest.raises(ProtocolError, match="drawn labels from bank of epsilon 4 at most, got 50"):
        run(graded(), tables(rows=300), tmp_path / "default")
    monkeypatch.undo()
    agreed = graded(bottom=GRADE | {"label_epsilon": 3.0})
    tamper(monkeypatch, Kind.LABELS, with_fields(epsilon=3.5))
    with pytest.raises(ProtocolError, match=r"of epsilon 3 at most, got 3.5; agree on one"):
        run(agreed, tables(rows=300), tmp_path / "agreed")


def test_labels_that_the_columns_do_not_rank_are_refused(tmp_path: Path) -> None:
    """Coin flips, as of a label owner who sends anything at all."""
    with pytest.raises(ConfigError, match=r"rank better than chance by 3 standard errors, got .*; ask"):
        run(graded({"least_z": 3.0}, eps=0.001), tables(rows=300), tmp_path)


def test_few_informative_rows_are_refused_before_labels_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = record(monkeypatch)
    with pytest.raises(ConfigError, match="drawn labels worth 200 rows or more to telco, got about"):
        run(graded(eps=0.5, bottom={"kind": "grade"}), tables(rows=300), tmp_path)
    assert Kind.LABELS not in {message.kind for message in messages}


def test_a_refusal_of_the_label_owner_is_counted(tmp_path: Path) -> None:
    """It follows from the draws: a label owner that is not counted could draw anew until a run is not refused."""
    world, given = World(tmp_path), tables(rows=300)
    with pytest.raises(ConfigError, match="drawn labels worth 200 rows"):
        world.run(graded(eps=0.5, bottom={"kind": "grade"}), given)
    assert world.total(ACTIVE) == 0.5
    assert not world.lines(TELCO)  # nothing of its columns left
    world.run(graded(eps=0.5), given)  # with the same draws
    assert (world.total(ACTIVE), len(world.lines(ACTIVE))) == (0.5, 2)
    with pytest.warns(match="with other draws"), pytest.raises(ConfigError, match="drawn labels worth 200 rows"):
        world.run(graded(eps=0.25, bottom={"kind": "grade"}), given)
    assert world.total(ACTIVE) == 0.75


def test_what_is_carried_is_stated_and_limited(whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads((whole[0] / "checkpoint" / TELCO / "carried.json").read_text())
    assert found["grades"] == 16
    assert {each["column"] for each in found["attributes"]} == {*GIVEN[TELCO].column_names} - {"id"}
    worst = found["attributes"][0]
    assert worst["column"] == "telco_0"  # which the labels follow
    assert 0.1 < worst["share"] < 1
    messages = record(monkeypatch)
    with pytest.raises(ConfigError, match=r"grades that carry 0.05 of an attribute of telco_0 at most, got 0\.\d\d"):
        run(graded({"limits": {"telco_0": 0.05}}), tables(rows=900), tmp_path / "limited")
    assert Kind.RELEASE not in {message.kind for message in messages}


def test_limits_are_those_that_a_party_has_when_it_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the run was stopped before, under other limits: by a grade that the job does not have."""
    given, stop = tables(rows=300), tmp_path / "run"
    tamper(monkeypatch, Kind.RELEASE, with_tensors(lambda grades: grades + 16))
    with pytest.raises(ProtocolError, match="one grade of 16 a row"):
        run(graded(), given, stop)
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=r"grades that carry 0\.05 of an attribute of telco_0 at most"):
        run(graded({"limits": {"telco_0": 0.05}}), given, stop, resume=True)


def test_a_limit_of_no_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"limits of columns .* got 'telco_O'; did you mean"):
        run(graded({"limits": {"telco_O": 0.05}}), tables(rows=300), tmp_path)


def test_an_attribute_that_no_threshold_tells_is_carried(tmp_path: Path) -> None:
    """The middle of three numbers: a label owner could send it in place of labels."""
    rng = np.random.default_rng(0)
    values, columns = rng.integers(3, size=900), {"x": pa.array(rng.normal(size=900))}
    given = {TELCO: pa.table({"id": np.arange(900), "middle": values.astype(float), **columns})}
    given[ACTIVE] = pa.table({"id": np.arange(900), "own": rng.normal(size=900), "label": (values == 1).astype(int)})
    fit = {"candidates": ["boosting"], "limits": {"middle": 0.6}, "least_epsilon": None}
    with pytest.raises(ConfigError, match=r"0.6 of .* middle at most, got 0.\d\d of middle from 1 to below 2"):
        run(graded(fit), given, tmp_path)


def test_an_interval_of_dates_is_written_in_dates(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    days, columns = rng.integers(3, size=900), {"x": pa.array(rng.normal(size=900))}
    since = pa.array((19_358 + days).astype(np.int32)).cast(pa.date32())
    given = {TELCO: pa.table({"id": np.arange(900), "since": since, **columns})}
    given[ACTIVE] = pa.table({"id": np.arange(900), "own": rng.normal(size=900), "label": (days == 1).astype(int)})
    fit = {"candidates": ["boosting"], "limits": {"since": 0.6}, "least_epsilon": None}
    with pytest.raises(ConfigError, match=r"of since from 2023-01-02 to below 2023-01-03"):
        run(graded(fit), given, tmp_path)


@pytest.mark.parametrize(
    ("values", "attribute"),
    [
        ([0.0] * 92 + [1.0] * 8, 1.0),  # a flag
        ([0.0] * 95 + [1.0] * 2 + [2.0] * 2 + [7.0], 7.0),  # a count
        ([-1.0] * 4 + [0.0] * 93 + [1.0] * 3, 1.0),
        ([0.0] * 50 + [1.0] + [2.0] * 49, 1.0),  # between two frequent values
        ([0.0] * 5 + [1.0] * 95, 0.0),
    ],
)
def test_no_attribute_of_a_number_that_nearly_always_is_one_value_passes_its_limit(
    values: list[float], attribute: float
) -> None:
    """Grades that are nothing but the attribute, of a column of which every decile is the same."""
    column = np.array(values * 80, dtype=np.float32)[:, None]
    encoder = Encoder(encoders=(NumberEncoder.fit("ill", column[:, 0].astype(float), NumbersConfig(), "table"),))
    store = Store(Encoded(np.zeros((len(column), 0), np.int32), column, None), encoder.columns)
    grades = np.where(column[:, 0] == attribute, 15, np.arange(len(column)) % 15)
    with pytest.raises(ConfigError, match=r"an attribute of ill at most, got 0\.9"):
        check_limits(grade_information(store, encoder, grades, 8.0, 16), {"ill": 0.5}, TELCO)


def test_a_set_of_rare_values_is_an_attribute_and_chance_tells_none() -> None:
    """Labels by a set of codes of which each is rare: no value alone has the rows of an attribute."""
    draw = np.random.default_rng(0)
    codes = draw.integers(400, size=4000)
    category = CategoryEncoder.from_vocabulary("icd", [f"C{code}" for code in range(400)], CategoriesConfig())
    encoded = Encoded((codes[:, None] + FIRST_VALUE_CODE).astype(np.int32), np.zeros((len(codes), 0), np.float32), None)
    encoder = Encoder(encoders=(category,))
    store = Store(encoded, encoder.columns)
    grades = np.where(codes < 60, 15, draw.integers(15, size=len(codes)))
    with pytest.raises(ConfigError, match=r"an attribute of icd at most, got 0\.[89]\d of icd in a set of its values"):
        check_limits(grade_information(store, encoder, grades, 8.0, 16), {"icd": 0.5}, TELCO)
    check_limits(grade_information(store, encoder, draw.integers(16, size=len(codes)), 8.0, 16), {"icd": 0.03}, TELCO)


def _numbers(**columns: Any) -> tuple[Encoder, Store]:
    """Columns of numbers by name, as they are encoded."""
    values = np.stack([np.asarray(column, np.float32) for column in columns.values()], axis=1)
    fitted = (
        NumberEncoder.fit(name, np.asarray(each, float), NumbersConfig(), "table") for name, each in columns.items()
    )
    encoder = Encoder(encoders=tuple(fitted))
    return encoder, Store(Encoded(np.zeros((len(values), 0), np.int32), values, None), encoder.columns)


@pytest.mark.parametrize("rows", [6, 12, 45])
def test_a_value_of_few_rows_is_an_attribute_and_chance_tells_none(rows: int) -> None:
    """A grade that only the rows of a rare value have, and thousands of rare values by whose rows nothing is told."""
    draw = np.random.default_rng(0)
    codes = np.r_[np.zeros(rows, np.int64), 1 + np.arange(6000 - rows) // 6]
    category = CategoryEncoder.from_vocabulary(
        "icd", [f"C{code}" for code in range(1 + int(codes.max()))], CategoriesConfig()
    )
    encoded = Encoded((codes[:, None] + FIRST_VALUE_CODE).astype(np.int32), np.zeros((len(codes), 0), np.float32), None)
    encoder = Encoder(encoders=(category,))
    store = Store(encoded, encoder.columns)
    grades = np.where(codes == 0, 15, draw.integers(15, size=len(codes)))
    with pytest.raises(ConfigError, match=r"an attribute of icd at most, got 0\.[6-9]\d of icd = C0"):
        check_limits(grade_information(store, encoder, grades, 8.0, 16), {"icd": 0.5}, TELCO)
    check_limits(grade_information(store, encoder, draw.integers(16, size=len(codes)), 8.0, 16), {"icd": 0.03}, TELCO)


def test_what_is_carried_grows_with_no_leap_where_chance_is_taken_off() -> None:
    """A leap at some number of rows would tell a label owner that knows all holders of a value but one of that one."""

    def carried_of(rows: int) -> float:
        codes = np.r_[np.zeros(rows, np.int64), 1 + np.arange(4000 - rows) // 800]
        category = CategoryEncoder.from_vocabulary("icd", [f"C{code}" for code in range(7)], CategoriesConfig())
        encoded = Encoded(
            (codes[:, None] + FIRST_VALUE_CODE).astype(np.int32), np.zeros((len(codes), 0), np.float32), None
        )
        grades = np.random.default_rng(0).integers(15, size=4000)
        grades[:rows] = np.where(np.arange(rows) % 10 < 8, 15, grades[:rows])
        encoder = Encoder(encoders=(category,))
        (found,) = grade_information(Store(encoded, encoder.columns), encoder, grades, 8.0, 16).attributes
        return found.share

    shares = [carried_of(rows) for rows in range(40, 120, 10)]
    assert shares == sorted(shares)
    assert np.diff(shares).max() < 0.02


@pytest.mark.parametrize("whole", [True, False])
def test_a_set_of_intervals_is_an_attribute_and_chance_tells_none(whole: bool) -> None:
    """Labels by every other part of a number: of no threshold and no part grades carry much."""
    draw = np.random.default_rng(0)
    age = draw.integers(18, 80, 8000) if whole else draw.uniform(18, 80, 8000)
    member = (age // 8) % 2 == 0
    encoder, store = _numbers(age=age)
    grades = np.where(member, draw.integers(8, size=len(age)), 8 + draw.integers(8, size=len(age)))
    with pytest.raises(ConfigError, match=r"attribute of age at most, got 0\.[89]\d of age in a set of inter"):
        check_limits(grade_information(store, encoder, grades, 8.0, 16), {"age": 0.8}, TELCO)
    check_limits(grade_information(store, encoder, draw.integers(16, size=len(age)), 8.0, 16), {"age": 0.03}, TELCO)


def test_no_limit_is_of_an_attribute_of_two_columns() -> None:
    """The page for both sides says so: grades of whether two flags are equal carry nothing of either."""
    draw = np.random.default_rng(0)
    first, second = draw.integers(2, size=(2, 8000))
    encoder, store = _numbers(first=first, second=second)
    found = grade_information(store, encoder, (first == second).astype(np.int64), 8.0, 2)
    assert max(each.share for each in found.attributes) < 0.01


@pytest.mark.parametrize("rows", [20, 90, 400])
def test_a_release_of_few_rows_has_limits_too(rows: int) -> None:
    """A label owner that aligns few rows in each of many runs would else read the attribute of all of them."""
    column = (np.arange(rows, dtype=np.float32) % 4 == 0).astype(np.float32)[:, None]
    encoder = Encoder(encoders=(NumberEncoder.fit("ill", column[:, 0].astype(float), NumbersConfig(), "table"),))
    store = Store(Encoded(np.zeros((rows, 0), np.int32), column, None), encoder.columns)
    with pytest.raises(ConfigError, match="an attribute of ill at most"):
        check_limits(grade_information(store, encoder, column[:, 0].astype(np.int64), 4.0, 2), {"ill": 0.5}, TELCO)


@pytest.mark.parametrize("rows", [107, 112, 123, 124])
def test_a_limit_of_all_refuses_nothing(rows: int) -> None:
    """Of these numbers of rows the quotient of information and entropy has a last bit more than 1."""
    column = (np.arange(rows, dtype=np.float32) < rows // 3).astype(np.float32)[:, None]
    column[: rows // 2] = 1.0 if rows in (107, 123) else column[: rows // 2]
    encoder = Encoder(encoders=(NumberEncoder.fit("ill", column[:, 0].astype(float), NumbersConfig(), "table"),))
    store = Store(Encoded(np.zeros((rows, 0), np.int32), column, None), encoder.columns)
    found = grade_information(store, encoder, column[:, 0].astype(np.int64), None, 2)
    assert found.attributes[0].share == pytest.approx(1.0)
    check_limits(found, {"other": 1.0}, TELCO)


def test_what_is_carried_is_the_information_of_the_drawn_grade() -> None:
    """Against scikit-learn's, of as many draws."""
    rng = np.random.default_rng(0)
    grade = rng.integers(4, size=400_000)
    attribute = (rng.random(len(grade)) < np.array([0.1, 0.4, 0.6, 0.9])[grade]).astype(int)
    noise = draw_channel(3.0, 4)
    drawn = (rng.random((len(grade), 1)) > noise.cumsum(axis=1)[grade]).sum(axis=1)
    sizes, counts = np.bincount(grade, minlength=4), np.bincount(grade, attribute, 4)
    exact = information(noise.T @ np.stack([sizes - counts, counts], axis=1))
    assert exact == pytest.approx(mutual_info_score(drawn, attribute) / np.log(2), rel=0.02)


def _ungraded(made: dict[str, Any]) -> None:
    """The partner releases columns, with the protection of grades."""
    made["model"]["bottom"] |= {TELCO: {"kind": "linear"}}
    made["parties"][TELCO] |= {"fit": {"kind": "sketch"}}
    made["parties"][ACTIVE]["privacy"] = {"label_free": None}


FAULTY: list[tuple[Any, str]] = [
    (lambda made: made["parties"][ACTIVE].update(privacy={"label_free": None}), "label_free"),
    (lambda made: made["train"].update(release="every_step"), "release once with grades of telco"),
    (lambda made: made["train"].update(warmup_epochs=1), "release once with grades of telco"),
    (lambda made: made["model"]["bottom"].update({TELCO: {"kind": "linear"}}), "bottom model of kind grade"),
    (lambda made: made.update(task="regression"), "label_dp.range, the lowest and highest label"),
    (lambda made: made["parties"][ACTIVE]["privacy"]["label_dp"].update(range=[0, 1]), "label_dp.range with classes"),
    (_ungraded, "{kind: grade} with grade_dp, got linear"),
    (lambda made: made["model"]["bottom"].update({TELCO: {"kind": "grade", "grades": 17}}), "less than or equal"),
    (lambda made: made["parties"][ACTIVE]["privacy"]["label_dp"].update(eps=5.0), "label_epsilon of 5 or more"),
]


@pytest.mark.parametrize(("change", "said"), FAULTY, ids=[said for _, said in FAULTY])
def test_jobs_that_do_not_go_together(change: Any, said: str) -> None:
    made = raw()
    change(made)
    with pytest.raises(ConfigError, match=said):
        check_job(validated(Job, made, ""))


def test_the_undefended_baseline_has_an_embedding_and_gradients() -> None:
    other = undefended_job(graded())
    check_job(other)
    assert other.bottom_of(TELCO)["kind"] == "auto"
    assert other.train.release_of(TELCO) == "every_step"


def test_labels_are_drawn_in_every_comparison_in_which_they_are_sent() -> None:
    made = raw()
    made["compare"] = ["each"]
    compared = list(compared_jobs(validated(Job, made, "")))
    assert [run.protection for run, _ in compared] == ["label_dp", "grade_dp"]
    for _, other in compared:
        check_job(other)


@pytest.mark.parametrize("top", [{"kind": "linear", "folds": 1}, {"kind": "mlp", "hidden": [4]}])
def test_rows_that_the_partner_lacks(tmp_path: Path, top: Mapping[str, Any]) -> None:
    """They have a grade of their own, to a network too: the lowest grade is not a row of zeros."""
    made = raw()
    made["rows"], made["model"]["top"] = "all", top
    given = tables(rows=600)
    given[TELCO] = given[TELCO].slice(0, 300)
    trained = run(validated(Job, made, ""), given, tmp_path)
    assert trained.active.metrics["auc"] > 0.6
    sent = kept(tmp_path, "released")["released"]
    assert len(sent) == 300
    assert (grades_of_columns(sent) == 0).any()
    read = load_file(tmp_path / "checkpoint" / ACTIVE / "released.safetensors")[TELCO]
    lacking = (read == 0).all(dim=1) | read.isnan().all(dim=1)
    assert int((~lacking).sum()) == trained.active.held_rows[TELCO] == 300


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder of a run of a task whose sent labels were attacked, once; not to be changed."""

    @cache
    def execute_once(task: str) -> Path:
        base, given = tmp_path_factory.mktemp("attacked"), tables(task, rows=1500)
        job = graded(task=task, eps=2.0, audit={"attacks": ["sent_labels"]})
        return execute(job, base / "run", Options(Keys(base, KEY), tables=given), Progress()).path

    return execute_once


def test_the_sent_labels_are_attacked(attacked: Callable[[str], Path]) -> None:
    """What a partner reads of a label by its draw and its own model: both together more than each alone."""
    leak = _sent_labels_leak(RunFolder(attacked("binary")))
    assert leak.message == "label"
    assert leak.leak > max(leak.other_aucs.values()) > 0.6


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_a_label_owner_without_the_partners_columns_attacks_the_labels_it_sent(
    attacked: Callable[[str], Path], tmp_path: Path, task: str
) -> None:
    """Between organisations grades stand for the partner's model, and read nearly as much of a label."""
    folder = RunFolder(Path(shutil.copytree(attacked(task), tmp_path / "run")))
    with_model = _sent_labels_leak(folder)
    for place in ("data", "checkpoint", "transcript"):
        shutil.rmtree(folder.path / place / TELCO)
    audit_again(folder)
    by_grades = _sent_labels_leak(folder)
    assert by_grades.other_aucs["drawn"] == pytest.approx(with_model.other_aucs["drawn"])
    assert by_grades.leak > by_grades.other_aucs["drawn"] + 0.01
    assert by_grades.leak == pytest.approx(with_model.leak, abs=0.04)
    before = folder.read_json("audit.json")
    with pytest.raises(ConfigError, match="expected an attack that can be run here, of inversion, got "):
        audit_again(folder, ("inversion",))
    assert folder.read_json("audit.json") == before


def _sent_labels_leak(folder: RunFolder) -> LeakResult:
    (leak,) = [leak for leak in folder.audit.runs["this run"].leaks if leak.attack == "sent_labels"]
    return leak
