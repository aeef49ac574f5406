"""Runs on all rows of the active party, each with the passive parties that have it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from pyarrow import csv, parquet

from cutlayer.alignment.intersection import Alignment, Purpose
from cutlayer.channel import Kind, Message
from cutlayer.config import Job, SplitConfig, validated
from cutlayer.data.align import intersect
from cutlayer.data.party_data import PartyTable
from cutlayer.data.split import check_no_empty_part, split_by_id
from cutlayer.errors import AlignmentError, ConfigError, DataError
from cutlayer.jobs.courier import open_releases
from cutlayer.jobs.execute import execute
from cutlayer.jobs.links import LinkOptions
from cutlayer.jobs.options import Options, Progress
from cutlayer.jobs.party import run_party
from cutlayer.jobs.release_file import release_training
from cutlayer.parties.agreement.partners import Partners
from cutlayer.parties.drive.by_links import drive_over_links
from cutlayer.parties.phases.close import absences_to_show
from cutlayer.parties.session.checkpoint import RELEASED_FILE, Checkpoints
from cutlayer.serving.between import PredictionSide, request_predictions
from cutlayer.serving.by_file import release_prediction, with_agreed_rows
from cutlayer.serving.predict import PredictionRequest, predict
from cutlayer.serving.prediction_release import PredictionReleases
from cutlayer.training.folder import RunFolder
from cutlayer.training.held_out_predictions import predictions_path
from cutlayer.training.keys import Keys
from cutlayer.training.together import TrainedRun
from tests.alignment.psi_runs import BANK, aligned, table
from tests.channel.certificates import Federation
from tests.parties.interruptions import halves, history, left_at_renames
from tests.parties.processes import lay_out
from tests.parties.recorded import Recording
from tests.parties.runs import ACTIVE, KEY, PASSIVES, UNAUDITED, raw_job, run, tables
from tests.parties.test_label_free import permuted
from tests.parties.threads import run_apart

TELCO, SHOP = PASSIVES[:2]
NAMES = (ACTIVE, TELCO, SHOP)
LINEAR = {"kind": "linear", "width": 4}
LINEAR_TOP = {"kind": "linear", "folds": 1}


def partial(rows: int = 400, share: float = 0.5, task: str = "binary") -> dict[str, pa.Table]:
    """The bank has all rows; each partner has a part of them, and 20 rows of its own."""
    given, draw = tables(task, passives=2, rows=rows), np.random.default_rng(1)
    for name in (TELCO, SHOP):
        own = given[name].filter(pa.array(draw.random(given[name].num_rows) < share))
        strangers = own.slice(0, 20)
        ids = pa.array(np.arange(20) + 9000 + 100 * (name == SHOP))
        given[name] = pa.concat_tables([own, strangers.set_column(0, "id", ids)])
    return given


def raw(**options: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bottom": {ACTIVE: {"kind": "auto"}, TELCO: LINEAR, SHOP: LINEAR},
        "top": LINEAR_TOP,  # its fit takes the least time, and no message or file depends on the kind
        "privacy": {"label_free": {}},
        "audit": UNAUDITED,
        "release": "once",
        "split": {"test": 0.2, "validation": 0.1},
    }
    made = raw_job(passives=2, **(settings | options)) | {"rows": "all"}
    for name in (TELCO, SHOP):
        made["parties"][name]["fit"] = {"kind": "sketch"}
    return made


GIVEN = partial()
JOB = validated(Job, raw(), "")


def ids_of(given: Mapping[str, pa.Table], name: str) -> set[int]:
    return set(given[name].column("id").to_pylist())


@pytest.fixture(scope="module")
def whole(recorded: Recording) -> tuple[Path, TrainedRun]:
    """The run with all parties in this process."""
    done = recorded(JOB, GIVEN)
    return done.folder, done.trained


def partners(folder: Path) -> Partners:
    found = Partners.load(Checkpoints(folder / "checkpoint" / ACTIVE, ACTIVE, JOB.digest()))
    assert found is not None
    return found


@pytest.mark.parametrize("method", ["psi", "plain"])
def test_each_partner_learns_which_of_its_rows_the_active_party_has(method: str) -> None:
    bank, telco, shop = [3, 1, 4, 5, 9, 2, 6], [9, 2, 77, 1], [5, 88, 1]
    opened = {TELCO: table(telco, TELCO), SHOP: table(shop, SHOP)}
    found = aligned(table(bank), opened, Alignment(method, processes=1), all_rows=True)
    order = [bank[row] for row in found[BANK].positions]
    assert sorted(order) == sorted(bank)
    held = {name: [order[row] for row in found[BANK].held.places(name)] for name in (TELCO, SHOP)}
    for name, ids in ((TELCO, telco), (SHOP, shop)):
        assert held[name] == [ids[row] for row in found[name].positions]
        assert set(held[name]) == set(ids) & set(bank)
    everyone = intersect({BANK: table(bank).digests})[BANK]
    assert found[BANK].positions.tolist() == everyone.tolist()
    assert found[BANK].sizes == {TELCO: 3, SHOP: 2}


@pytest.mark.parametrize("method", ["psi", "plain"])
def test_a_partner_without_a_row_of_the_active_party_is_named(method: str) -> None:
    opened = {TELCO: table([1, 2], TELCO), SHOP: table([7, 8], SHOP)}
    with pytest.raises(AlignmentError, match="none of 3 at bank, 2 at shop"):
        aligned(table([1, 2, 3]), opened, Alignment(method, processes=1), all_rows=True)


def test_every_row_is_trained_on_or_held_out_and_missing_releases_are_nan(whole: tuple[Path, TrainedRun]) -> None:
    folder, trained = whole
    split, record_ = trained.active.split, partners(folder)
    assert record_.record == trained.active.alignment, "a resume without the partners states the same"
    assert record_.record is not None
    assert {link.party: link.common for link in record_.record.links} == trained.active.held_rows
    assert len(split.train) + len(split.validation) + len(split.test) == GIVEN[ACTIVE].num_rows == 400
    stored = Checkpoints(folder / "checkpoint" / ACTIVE, ACTIVE, JOB.digest()).read_state(RELEASED_FILE)
    assert stored is not None
    opened = PartyTable(ACTIVE, GIVEN[ACTIVE], "id")
    ids = opened.ids(record_.positions).to_pylist()
    for name in (TELCO, SHOP):
        has = [row in ids_of(GIVEN, name) for row in ids]
        assert 0.3 < np.mean(has) < 0.7
        assert (~stored[0][name].isnan().any(dim=1)).tolist() == has
        assert stored[0][name].isnan().all(dim=1).tolist() == [not there for there in has]
        assert trained.active.held_rows[name] == sum(has)
    present = trained.active.present
    tested = trained.active.ids.to_pylist()
    assert present[TELCO].tolist() == [row in ids_of(GIVEN, TELCO) for row in tested]


def test_a_partner_is_asked_for_its_own_rows_alone(recorded: Recording) -> None:
    messages = recorded(JOB, GIVEN).messages
    for name in (TELCO, SHOP):
        sent = [m for m in messages if m.sender == name and m.kind == Kind.RELEASE]
        assert sum(len(m.tensors["embedding"]) for m in sent) == len(ids_of(GIVEN, name) & ids_of(GIVEN, ACTIVE))


def crossed(messages: list[Message]) -> list[Any]:
    tensors = [{key: t.numpy().tobytes() for key, t in m.tensors.items()} for m in messages]
    heads = [(m.kind, m.sender, m.epoch, m.step, m.sequence, m.rows, dict(m.fields)) for m in messages]
    return [*zip(heads, tensors, strict=True)]


def test_no_message_depends_on_a_label(recorded: Recording) -> None:
    true, other = (recorded(JOB, given) for given in (GIVEN, permuted(GIVEN, 2)))
    assert crossed(true.messages) == crossed(other.messages)
    assert not torch.equal(true.trained.active.logits, other.trained.active.logits)


def test_no_message_depends_on_the_rows_that_nobody_else_has(recorded: Recording) -> None:
    """But the number of rows that the active party states, and the order of its digests in one process."""
    shared = pa.array([row in ids_of(GIVEN, TELCO) | ids_of(GIVEN, SHOP) for row in GIVEN[ACTIVE]["id"].to_pylist()])
    renamed = pc.if_else(shared, GIVEN[ACTIVE]["id"], pc.add(GIVEN[ACTIVE]["id"], 50_000))
    other = {**GIVEN, ACTIVE: GIVEN[ACTIVE].set_column(0, "id", renamed)}
    runs = [crossed(recorded(JOB, given).messages) for given in (GIVEN, other)]
    one, theirs = ([m for m in messages if m[0][0] != Kind.IDS] for messages in runs)
    assert one == theirs


def test_rows_with_a_partner_are_predicted_better(tmp_path: Path) -> None:
    job = validated(Job, raw(), "")
    active = run(job, partial(rows=2_000), tmp_path).active
    both, none = active.present[TELCO] & active.present[SHOP], ~active.present[TELCO] & ~active.present[SHOP]
    alone = active.logits_without[TELCO, SHOP]

    def auc(logits: torch.Tensor, rows: torch.Tensor) -> float:
        return active.task.evaluate(logits[rows], active.labels[rows])["auc"]

    assert int(both.sum()) > 80
    assert auc(active.logits, both) > auc(alone, both) + 0.1
    # The rows that nobody else has are answered by own columns alone.
    assert torch.equal(active.logits[none], alone[none])


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The run with its conclusions; not to be changed."""
    base = tmp_path_factory.mktemp("executed")
    return execute(JOB, base / "run", Options(Keys(base / "keys", KEY), tables=GIVEN), Progress())


def test_the_summary_has_utility_by_the_partners_of_a_row(executed: RunFolder) -> None:
    summary = executed.summary
    assert summary.data.common == 400
    assert summary.data.held == {name: len(ids_of(GIVEN, name) & ids_of(GIVEN, ACTIVE)) for name in (TELCO, SHOP)}
    patterns = {pattern.parties: pattern for pattern in summary.utility.patterns}
    assert [*patterns] == [(TELCO, SHOP), (TELCO,), (SHOP,), ()]
    assert sum(pattern.rows for pattern in patterns.values()) == summary.data.test
    assert patterns[()].gain is None
    assert patterns[TELCO,].gain is not None
    # 16 rows have the shop alone; with those of both hidden, too, no figure of the 16 follows from that of all rows.
    assert {names for names, pattern in patterns.items() if pattern.value is None} == {(SHOP,), (TELCO, SHOP)}


def test_losses_without_a_column_are_of_no_few_rows_alone(whole: tuple[Path, TrainedRun], tmp_path: Path) -> None:
    """Of a few rows with all partners, which a loss of each column is measured on, labels could be read from it."""
    for active, is_shown in ((whole[1].active, True), (run(JOB, partial(share=0.4), tmp_path).active, False)):
        assert 0 < int((active.present[TELCO] & active.present[SHOP]).sum()) < (80 if is_shown else 20)
        assert bool(active.columns()) == is_shown


def test_from_no_two_metrics_of_all_rows_that_of_a_few_follows(tmp_path: Path) -> None:
    """The attack: the shop has 19 held-out rows or fewer, and what it adds there is a difference of two losses."""
    given = partial(rows=600)
    given[SHOP] = given[SHOP].slice(0, 60)
    summary = execute(JOB, tmp_path, Options(Keys(tmp_path / "keys", KEY), tables=given), Progress()).summary
    patterns = {pattern.parties: pattern.rows for pattern in summary.utility.patterns}
    assert 0 < sum(rows for names, rows in patterns.items() if SHOP in names) < 20
    assert [row.absent for row in summary.departures.rows] == [(), (TELCO, SHOP)]
    assert (summary.utility.contributions, summary.utility.gain is None) == ((), False)
    sets, many, few = [(), ("a",), ("b",), ("a", "b")], torch.arange(100) < 50, torch.arange(100) < 19
    assert absences_to_show(sets, {"a": many, "b": few}) == absences_to_show(sets, {"a": many, "b": few.flip(0)})
    assert absences_to_show(sets, {"a": many, "b": few}) == [(), ("a", "b")]
    assert absences_to_show(sets, {"a": few, "b": few}) == [()]
    assert absences_to_show(sets, {"a": many, "b": ~few}) == absences_to_show(sets, {}) == sets


def test_a_run_that_dies_at_any_file_is_resumed_to_the_same_end(whole: tuple[Path, TrainedRun], tmp_path: Path) -> None:
    left = left_at_renames(tmp_path / "run", lambda: run(JOB, GIVEN, tmp_path / "run"), range(0, 100, 24))
    assert 2 <= len(left) < 12
    for folder in left.values():
        again = run(JOB, GIVEN, folder, resume=True)
        assert torch.equal(again.active.logits, whole[1].active.logits)
        assert history(folder) == history(whole[0])
        mine, other = halves(folder, JOB), halves(whole[0], JOB)
        for name in NAMES:
            assert [key for key, value in other[name].items() if not bool((mine[name][key] == value).all())] == []


def test_organisations_with_private_set_intersection_have_the_same_run(
    whole: tuple[Path, TrainedRun], tmp_path: Path
) -> None:
    sites = lay_out(tmp_path, raw(), GIVEN)
    run_apart(sites)
    for name, site in sites.items():
        one = JOB.model_copy(update={"parties": {name: JOB.parties[name]}})
        mine, other = halves(site.run, one)[name], halves(whole[0], JOB)[name]
        assert [key for key, value in other.items() if not bool((mine[key] == value).all())] == []
    assert history(sites[ACTIVE].run) == history(whole[0])


def write_rows(folder: Path) -> dict[str, Path]:
    """The rows, as `cutlayer align` writes them at each party."""
    opened = {name: PartyTable(name, GIVEN[name], "id") for name in NAMES}
    everyone = intersect({ACTIVE: opened[ACTIVE].digests})[ACTIVE]
    columns: dict[str, dict[str, Any]] = {ACTIVE: {"row": everyone, "id": opened[ACTIVE].ids(everyone)}}
    for name in (TELCO, SHOP):
        common = intersect({each: opened[each].digests for each in (ACTIVE, name)})
        columns[ACTIVE][name] = np.isin(everyone, common[ACTIVE])
        columns[name] = {"row": common[name], "id": opened[name].ids(common[name])}
    for name, values in columns.items():
        csv.write_csv(pa.table(values), folder / f"{name}.csv")
    return {name: folder / f"{name}.csv" for name in NAMES}


@pytest.fixture(scope="module")
def by_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Federation, dict[str, Path]]:
    """The run of the label owner, who reads the partners' files."""
    folder = tmp_path_factory.mktemp("files")
    federation, rows = Federation(folder / "keys", TELCO, SHOP), write_rows(folder)
    options = Options(Keys(folder, KEY), tables=GIVEN)
    for name in (TELCO, SHOP):
        links = LinkOptions(security=federation.security(name), rows=rows[name])
        release_training(JOB, name, folder / f"{name}.release", folder / name, options, links)
    releases = tuple(folder / f"{name}.release" for name in (TELCO, SHOP))
    links = LinkOptions(security=federation.security(ACTIVE), releases=releases, rows=rows[ACTIVE])
    run_party(JOB, ACTIVE, folder / ACTIVE, options, Progress(), links)
    return folder, federation, rows


def test_a_run_by_files_is_that_of_one_process(
    by_file: tuple[Path, Federation, dict[str, Path]], whole: tuple[Path, TrainedRun]
) -> None:
    assert history(by_file[0] / ACTIVE) == history(whole[0])
    mine, other = parquet.read_table(predictions_path(RunFolder(by_file[0] / ACTIVE))), whole[1].active.ids
    assert mine.column(0).to_pylist() == other.to_pylist()
    assert mine.column(1).to_pylist() == pytest.approx(whole[1].active.logits.sigmoid().flatten().tolist(), abs=1e-6)


def test_a_partner_whose_rows_the_label_owner_all_has_needs_no_file_of_them(
    by_file: tuple[Path, Federation, dict[str, Path]], tmp_path: Path
) -> None:
    folder, federation, rows = by_file
    known = pa.array([row in ids_of(GIVEN, ACTIVE) for row in GIVEN[TELCO]["id"].to_pylist()])
    options = Options(Keys(folder, KEY), tables={**GIVEN, TELCO: GIVEN[TELCO].filter(known)})
    links = LinkOptions(security=federation.security(TELCO))
    release_training(JOB, TELCO, tmp_path / "telco.release", tmp_path / TELCO, options, links)
    releases = (tmp_path / "telco.release", folder / f"{SHOP}.release")
    links = LinkOptions(security=federation.security(ACTIVE), releases=releases, rows=rows[ACTIVE])
    run_party(JOB, ACTIVE, tmp_path / ACTIVE, options, Progress(), links)
    assert history(tmp_path / ACTIVE) == history(folder / ACTIVE)


def test_without_the_file_that_says_who_has_which_row_nothing_is_read(
    by_file: tuple[Path, Federation, dict[str, Path]], tmp_path: Path
) -> None:
    folder, federation, rows = by_file
    options = Options(Keys(folder, KEY), tables=GIVEN)
    releases = tuple(folder / f"{name}.release" for name in (TELCO, SHOP))
    links = LinkOptions(security=federation.security(ACTIVE), releases=releases)
    with pytest.raises(ConfigError, match="which rows each partner has, with rows: all, got none; run cutlayer align"):
        run_party(JOB, ACTIVE, tmp_path / "run", options, Progress(), links)
    links = LinkOptions(security=federation.security(ACTIVE), releases=releases, rows=rows[TELCO])
    with pytest.raises(DataError, match="the columns row, id, telco, shop, as cutlayer align writes them"):
        run_party(JOB, ACTIVE, tmp_path / "other", options, Progress(), links)


def test_new_rows_are_predicted_by_whoever_has_them(
    by_file: tuple[Path, Federation, dict[str, Path]], tmp_path: Path
) -> None:
    folder, federation, rows = by_file
    files = []
    for name in (TELCO, SHOP):
        side = PredictionSide.open(JOB, RunFolder(folder / name), name, GIVEN[name], JOB.parties[name].limits)
        serving = PredictionReleases(JOB, RunFolder(folder / name), name, side.width, KEY)
        files.append(tmp_path / f"{name}.rows")
        release_prediction(with_agreed_rows(side, rows[name]), serving, files[-1], federation.security(name), None)
    side = PredictionSide.open(JOB, RunFolder(folder / ACTIVE), ACTIVE, GIVEN[ACTIVE], JOB.parties[ACTIVE].limits)
    with open_releases(JOB, JOB.passives, files, federation.security(ACTIVE)) as links:
        done = drive_over_links(request_predictions(with_agreed_rows(side, rows[ACTIVE]), links.ports), links, 1.0)
    assert done.ids.to_pylist() == GIVEN[ACTIVE]["id"].to_pylist()
    for name in (TELCO, SHOP):
        assert done.present[name].tolist() == [row in ids_of(GIVEN, name) for row in done.ids.to_pylist()]
    tested = parquet.read_table(predictions_path(RunFolder(folder / ACTIVE)))
    logits = dict(zip(done.ids.to_pylist(), done.logits.flatten().tolist(), strict=True))
    for row, score in zip(tested.column(0).to_pylist(), tested.column(1).to_pylist(), strict=True):
        assert torch.tensor(logits[row], dtype=torch.float64).sigmoid().item() == pytest.approx(score, abs=1e-6)


def test_predict_takes_every_row_and_names_who_contributed(executed: RunFolder, tmp_path: Path) -> None:
    folder = RunFolder(Path(shutil.copytree(executed.path, tmp_path / "run")))
    job = JOB
    tested = parquet.read_table(predictions_path(folder))
    predict(job, folder, tmp_path / "test.parquet", PredictionRequest(key=KEY))
    assert parquet.read_table(tmp_path / "test.parquet").equals(tested)
    for row, names in zip(tested["id"].to_pylist(), tested["contributed"].to_pylist(), strict=True):
        assert names == [name for name in NAMES if row in ids_of(GIVEN, name)]
    done = predict(job, folder, tmp_path / "all.parquet", PredictionRequest(tables=GIVEN, key=KEY))
    assert done.rows == 400
    assert done.contributed == {name: len(ids_of(GIVEN, name) & ids_of(GIVEN, ACTIVE)) for name in NAMES}
    again = dict(
        zip(*(column.to_pylist() for column in parquet.read_table(tmp_path / "all.parquet").columns[:2]), strict=True)
    )
    for row, score in zip(tested["id"].to_pylist(), tested.column(1).to_pylist(), strict=True):
        assert again[row] == pytest.approx(score, abs=1e-6)


@pytest.mark.parametrize("task", ["multiclass", "regression"])
def test_other_tasks_and_a_split_that_is_sent(tmp_path: Path, task: str) -> None:
    given = partial(task=task)
    split = {"test": 0.2, "validation": 0.1} | ({"stratify": True} if task == "multiclass" else {"by": "bank_0"})
    top = {"kind": "auto", "candidates": ["linear", "boosting"], "folds": 1}
    made = raw(task=task, split=split, privacy={}, top=top)
    made["parties"][ACTIVE]["features"] = {"exclude": ["bank_0"]}
    outcome = run(validated(Job, made, ""), given, tmp_path).active
    assert len(outcome.split.test) == 80
    assert {"telco": 160, "shop": 160}.keys() == outcome.held_rows.keys()
    assert np.isfinite([*outcome.metrics.values()]).all()


def test_the_part_of_a_row_depends_on_its_id_and_the_seed_alone() -> None:
    digests = PartyTable(ACTIVE, GIVEN[ACTIVE], "id").digests
    split = SplitConfig(test=0.2, validation=0.1, by_id=True)
    codes = split_by_id(digests, split, 3).codes
    some = np.random.default_rng(0).permutation(len(digests))[:150]
    assert torch.equal(split_by_id(digests[some], split, 3).codes, codes[some])
    assert not torch.equal(split_by_id(digests, split, 4).codes, codes)
    many = np.random.default_rng(0).integers(256, size=(40_000, 16), dtype=np.uint8)
    counts = np.bincount(split_by_id(many, split, 3).codes.numpy())
    # Within 4 standard deviations of the shares; those of another share are 20 away.
    assert np.abs(counts - [28_000, 4_000, 8_000]).max() < 4 * (40_000 * 0.7 * 0.3) ** 0.5
    with pytest.raises(DataError, match="a row in each part of the split, got none in validation"):
        check_no_empty_part(split_by_id(digests[:2], SplitConfig(test=0.2, validation=0.01), 3), split)


def test_jobs_that_need_the_common_rows_are_refused() -> None:
    refused = {
        "train.warmup_epochs at its default with rows: all, got 1": raw(top={"kind": "mlp"}, warmup_epochs=1),
        "train.shuffle at its default with rows: all, got blocks": raw(shuffle="blocks"),
        "compare with alone, undefended, each, uncompressed alone with rows: all, got boosting": raw()
        | {"compare": ["boosting", "alone"]},
        "by, stratify or by_id, got stratify and by_id": raw(split={"stratify": True, "by_id": True}),
    }
    for message, made in refused.items():
        with pytest.raises(ConfigError, match=message):
            validated(Job, made, "")
    assert JOB.train.split.by_id
    assert "rows" not in validated(Job, raw() | {"rows": "common"}, "").shared()


def test_purposes_that_reveal_nothing_to_partners_find_the_same_rows() -> None:
    opened = {TELCO: table([1, 2, 9], TELCO), SHOP: table([3], SHOP)}
    alignment = Alignment("psi", Purpose.ALIGN_ACTIVE, processes=1)
    found = aligned(table([1, 2, 3, 4]), opened, alignment, all_rows=True)
    assert {name: found[BANK].held.count(name, 4) for name in (TELCO, SHOP)} == {TELCO: 2, SHOP: 1}
    assert found[TELCO].positions is None
