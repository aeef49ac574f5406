"""A pilot: a few rows of a partner, chosen by a key of its secret, and no other, whatever a label owner repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from cutlayer.accounting.run_store import LEDGER_FILE, RunStore
from cutlayer.alignment.held_rows import ALL_HAVE_ALL, HeldRows, read_held, store_held
from cutlayer.alignment.intersection import Alignment
from cutlayer.channel import Kind, Message
from cutlayer.cli.report import write_report
from cutlayer.config import Job, LimitsConfig, validated
from cutlayer.data.align import intersect
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import CheckpointError, ConfigError, DataError, ProtocolError
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.jobs.pilot import check_pilot
from cutlayer.models.top_estimators.result import PartnerPilot
from cutlayer.parties.agreement.handshake import check_hello, hello_fields
from cutlayer.parties.agreement.pilot import pilot_key, pilot_rows, read_key
from cutlayer.report.sections import sections_of, verdict
from cutlayer.results.pilot import verdict_of, wanted_rows
from cutlayer.serving.between import PredictionSide
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from tests.parties.interruptions import left_at_renames
from tests.parties.mutants import tamper, with_fields
from tests.parties.runs import ACTIVE, KEY, record, run, tables
from tests.parties.test_grades import GIVEN, TELCO, graded, raw
from tests.training.test_all_runs import World

COUNT = 150
SOME = tables(rows=600)


def released(folder: Path) -> Tensor:
    return load_file(folder / "checkpoint" / TELCO / "released.safetensors")["released"]


def sent_rows(folder: Path) -> list[int]:
    return torch.nonzero(~released(folder)[:, 0].isnan())[:, 0].tolist()


def executed(job: Job, folder: Path, given: Any = GIVEN, **options: Any) -> RunFolder:
    return execute(job, folder / "run", Options(Keys(folder, KEY), tables=given, **options), Progress())


@pytest.fixture(scope="module")
def piloted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("pilot")
    with pytest.MonkeyPatch.context() as patched:
        messages = record(patched)
        done = executed(graded(), folder, pilot=COUNT)
    return done, messages


def test_only_the_pilots_rows_cross(piloted: Any) -> None:
    done, messages = piloted
    grades = [message for message in messages if message.kind is Kind.RELEASE]
    labels = [message for message in messages if message.kind is Kind.LABELS]
    assert sum(message.nbytes for message in grades) == COUNT == len(sent_rows(done.path))
    assert sum(message.nbytes for message in labels) == done.summary.data.train > COUNT
    assert done.summary.data.held == {TELCO: COUNT}


def test_the_rows_are_those_of_the_smallest_hashes(piloted: Any) -> None:
    opened = {name: PartyTable(name, table, "id") for name, table in GIVEN.items()}
    positions = intersect({name: table.digests for name, table in opened.items()})
    rows = pilot_rows(opened[TELCO].digests[positions[TELCO]], pilot_key(KEY), COUNT)
    assert sent_rows(piloted[0].path) == rows.tolist()


def test_it_tells_what_the_full_run_adds(piloted: Any) -> None:
    (found,) = piloted[0].summary.pilot
    assert (found.party, found.rows) == (TELCO, COUNT)
    assert found.low is not None
    assert found.high is not None
    assert 0 < found.low < found.value < found.high
    assert len(found.curve) == 3
    assert [each.grades for each in found.fewer] == [8, 4, 2]


def test_the_report_says_it_first(piloted: Any) -> None:
    """In place of what the test rows show, of which the partner released few."""
    report = write_report(piloted[0].path)
    (found,) = report.pilot
    said = f"Pilot: {TELCO} would add {found.value:.3f}"
    assert said in verdict(report)
    assert f"{COUNT} of {report.data.common:,} rows were released" in verdict(report).replace("\u202f", ",")
    (section,) = [section for section in sections_of(report) if section.anchor == "pilot"]
    assert [row.cells[0].text for row in section.blocks[1].rows] == [TELCO]
    assert said in (piloted[0].path / "report.html").read_text()


@pytest.mark.parametrize(
    ("value", "low", "high", "said"),
    [
        (0.03, 0.01, 0.05, "adds"),
        (0.01, -0.01, 0.019, "nothing"),
        (-0.001, -0.05, 0.05, "nothing"),
        (0.01, -0.01, 0.05, "unclear"),
        (0.01, None, None, "unclear"),
    ],
)
def test_verdicts(value: float, low: float | None, high: float | None, said: str) -> None:
    found = PartnerPilot(party=TELCO, rows=100, own=0.8, value=value, low=low, high=high, further=0.0, curve=())
    assert verdict_of(found, 0.02) == said


@pytest.mark.parametrize(
    ("value", "low", "high", "rows"),
    [
        (0.04, 0.02, 0.06, 400),
        (0.04, -0.2, 0.3, 62500),
        (0.04, 0.031, 0.049, None),
        (-0.01, -0.03, 0.01, None),
        (0.04, None, None, None),
    ],
)
def test_a_pilot_with_half_as_wide_an_interval(
    value: float, low: float | None, high: float | None, rows: int | None, piloted: Any
) -> None:
    """Of four times the rows an interval is half as wide; the report names the number, if there are so many."""
    found = PartnerPilot(party=TELCO, rows=100, own=0.8, value=value, low=low, high=high, further=0.0, curve=())
    assert wanted_rows(found) == rows
    report = write_report(piloted[0].path)
    (section,) = [
        section for section in sections_of(report.model_copy(update={"pilot": (found,)})) if section.anchor == "pilot"
    ]
    takes = {None: "", 400: "takes about 400 rows"}.get(rows, "takes more rows than there are")
    assert takes in section.blocks[0].text
    assert bool(takes) == ("half as wide" in section.blocks[0].text)


class Repeated(NamedTuple):
    """A pilot, a larger one and a full run of one job, and the sums of epsilon of both parties after these."""

    world: World
    folders: list[Path]
    totals: dict[str, float | None]


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Repeated:
    world = World(tmp_path_factory.mktemp("repeated"))
    folders = [world.run(graded(epsilon=2.0), SOME, pilot=count) for count in (100, 200, 0)]
    return Repeated(world, folders, {name: world.total(name) for name in (TELCO, ACTIVE)})


def test_a_full_run_repeats_the_draws_and_costs_once(repeated: Repeated) -> None:
    """Also a larger pilot: its rows contain those of the smaller one."""
    few, more, every = map(released, repeated.folders)
    for smaller, larger in ((few, more), (more, every)):
        there = ~smaller[:, 0].isnan()
        assert torch.equal(smaller[there], larger[there])
    lines = RunStore(repeated.world.secrets / LEDGER_FILE).lines()
    assert [line.count for line in lines if line.party == TELCO][:2] == [100, 200]
    assert repeated.totals == {TELCO: 2.0, ACTIVE: 3.0}


def test_other_jobs_and_names_see_the_same_rows(repeated: Repeated) -> None:
    """A label owner that repeats pilots with another seed or other settings learns of no further row."""
    with pytest.warns(UserWarning, match="labels"):
        other = repeated.world.run(graded(seed=9, eps=2.0), SOME, out="other", pilot=100)
    assert sent_rows(other) == sent_rows(repeated.folders[0])


def test_the_key_of_the_rows_which_the_label_owner_is_sent_is_not_the_secret() -> None:
    assert len(pilot_key(KEY)) == len(KEY) == 32
    assert pilot_key(KEY) != KEY
    assert pilot_key(KEY) != pilot_key(KEY[::-1])


def test_a_sketch_of_some_rows(tmp_path: Path) -> None:
    """Without labels at the partner, in a run on all rows, with the audit of what was sent."""
    made = raw(epsilon=None)
    made["rows"] = "all"
    made["model"]["bottom"][TELCO] = {"kind": "linear", "width": 4}
    made["parties"][TELCO] |= {"fit": {"kind": "sketch"}, "audit": {"attacks": ["inversion"]}}
    made["parties"][ACTIVE]["privacy"] = {"label_free": {}}
    given = tables(rows=900)
    given[TELCO] = given[TELCO].slice(0, 700)
    done = executed(validated(Job, made, ""), tmp_path, given, pilot=COUNT)
    (found,) = done.summary.pilot
    assert (found.rows, found.fewer) == (COUNT, ())
    assert done.audit.features


def test_a_partner_predicts_nothing_with_a_pilot(piloted: Any) -> None:
    """Its rows would be released that the pilot held back."""
    job = graded()
    with pytest.raises(ConfigError, match="a pilot, in which telco released 150 rows alone"):
        PredictionSide.open(job, piloted[0], TELCO, GIVEN[TELCO], LimitsConfig())


def test_a_partner_that_is_asked_for_other_rows_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The label owner computes the rows by another key than the partner's: digests of a batch differ."""
    tamper(monkeypatch, Kind.READY, with_fields(pilot="ab" * 32))
    with pytest.raises(ProtocolError, match="which holds other rows here"):
        executed(graded(), tmp_path, tables(rows=600), pilot=100)


@pytest.mark.parametrize("key", ["", "zz" * 32, "ab" * 31, "ab " * 21 + "a"])
def test_a_key_that_is_none_is_refused(key: str) -> None:
    with pytest.raises(ProtocolError, match="the key of the pilot's rows from telco"):
        read_key(key, TELCO)


def test_a_pilot_at_one_side_alone_is_refused() -> None:
    job, table = graded(), PartyTable(TELCO, GIVEN[TELCO], "id")
    mine, theirs = (dict(hello_fields(job, table, (0, 0), Alignment(pilot=count))) for count in (0, 100))
    message = Message(Kind.HELLO, TELCO, ACTIVE, "run", -1, -1, 0, fields=theirs)
    with pytest.raises(ProtocolError, match="to train, got to pilot 100; start all parties with --pilot"):
        check_hello(mine, message, job.parties[ACTIVE].limits)


def test_a_refused_pilot_is_counted_on_all_rows(tmp_path: Path) -> None:
    """It says one bit about all of them: each pilot of other labels would else have one for free."""
    world = World(tmp_path)
    with pytest.raises(ConfigError, match="standard errors"):
        world.run(graded({"least_z": 1000.0}), tables(rows=600), pilot=100)
    (line,) = world.lines(TELCO)
    assert line.count > 400


def test_a_kill_at_any_time_resumes_to_the_same_rows_and_draws(tmp_path: Path) -> None:
    given, job, whole = tables(rows=300), graded(), tmp_path / "whole"
    left = left_at_renames(whole, lambda: run(job, given, whole, pilot=100), range(8, 33, 8))
    assert len(left) >= 3
    for folder in left.values():
        run(job, given, folder, resume=True, pilot=100)
        assert torch.equal(released(folder).nan_to_num(-1.0), released(whole).nan_to_num(-1.0))


def test_rows_of_several_keys_have_no_pilot(tmp_path: Path) -> None:
    """The label owner draws their ids, and could choose which rows have the smallest hashes."""
    made, given = raw(), tables(rows=300)
    for name, table in given.items():
        made["parties"][name]["id"] = {"column": [["id"], ["mail"]]}
        given[name] = table.append_column("mail", pc.binary_join_element_wise(table["id"].cast("string"), "@", ""))
    with pytest.raises(ConfigError, match="a pilot of rows with one id"):
        run(validated(Job, made, ""), given, tmp_path, pilot=100)


def test_a_resume_goes_on_as_the_run_began(tmp_path: Path) -> None:
    job, given = graded(), tables(rows=300)
    run(job, given, tmp_path, pilot=100)
    for count in (0, 200):
        with pytest.raises(CheckpointError, match="expected a pilot of 100 rows, as this run began"):
            run(job, given, tmp_path, resume=True, pilot=count)
    run(job, given, tmp_path, resume=True, pilot=100)
    run(job, given, tmp_path / "full")
    with pytest.raises(CheckpointError, match="expected no pilot"):
        run(job, given, tmp_path / "full", resume=True, pilot=100)


def test_bad_pilots() -> None:
    for rows in (99, 1_000_001):
        with pytest.raises(ConfigError, match="a pilot of 100 to 1,000,000 rows"):
            check_pilot(graded(), rows)
    check_pilot(graded(), 1_000_000)
    with pytest.raises(DataError, match="5 common rows or more"):
        pilot_rows(np.zeros((4, 16), np.uint8), KEY, 5)
    made = raw(epsilon=None)
    made["train"]["release"] = "every_step"
    made["model"]["top"] = {"kind": "mlp", "hidden": [4]}
    made["model"]["bottom"][TELCO] = {"kind": "linear", "width": 4}
    made["parties"][TELCO].pop("fit")
    with pytest.raises(ConfigError, match="release once and whose top model is fitted"):
        check_pilot(validated(Job, made, ""), 100)


def test_held_rows_of_a_pilot(tmp_path: Path) -> None:
    """Own numbers stay those of all rows; the file has both."""
    held = HeldRows({TELCO: np.array([-1, 0, 0, -1, 1, 2])}).releasing(TELCO, np.array([0, 2]), 6)
    assert held.by_party[TELCO].tolist() == [-1, 0, 0, -1, -1, 2]
    assert held.places(TELCO).tolist() == [1, 4, 5]
    assert held.count(TELCO, 6) == 3
    rows = held.released(TELCO)
    assert rows is not None
    assert rows.tolist() == [0, 2]
    store_held(tmp_path, held)
    again = read_held(tmp_path)
    assert again.whole[TELCO].tolist() == held.whole[TELCO].tolist()
    assert again.by_party[TELCO].tolist() == held.by_party[TELCO].tolist()
    assert ALL_HAVE_ALL.releasing(TELCO, np.array([2]), 3).by_party[TELCO].tolist() == [-1, -1, 2]
