"""Runs whose rows several keys identify: in one process, between processes and by files the same to the bit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from cutlayer.alignment.agreed_rows import agreed_rows
from cutlayer.alignment.intersection import Purpose
from cutlayer.channel.port import link
from cutlayer.config import IdConfig, Job, TableConfig, validated
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import AlignmentError, ConfigError, DataError
from cutlayer.jobs import align as aligning
from cutlayer.jobs.exchange import WaitingForFile
from cutlayer.jobs.execute import execute
from cutlayer.jobs.forecast import forecast
from cutlayer.jobs.links import LinkOptions
from cutlayer.jobs.options import Options, Progress
from cutlayer.jobs.party import run_party
from cutlayer.jobs.release_file import release_training
from cutlayer.parties.drive.drive import drive_together
from cutlayer.parties.session.local import LocalSide
from cutlayer.report.passive.build import build_passive
from cutlayer.report.passive.page import passive_html
from cutlayer.serving.between import PredictionSide, request_predictions, serve_requests
from cutlayer.serving.predict import PredictionRequest, predict
from cutlayer.serving.prediction_release import PredictionReleases
from cutlayer.training.folder import RunFolder
from cutlayer.training.held_out_predictions import predictions_path
from cutlayer.training.keys import Keys
from cutlayer.training.together import TrainedRun
from cutlayer_serve.features import FeatureStore
from tests.parties.interruptions import crashes_at_rename, halves, history
from tests.parties.processes import fork, lay_out
from tests.parties.runs import ACTIVE, KEY, run
from tests.parties.test_all_rows import NAMES, SHOP, TELCO, partial
from tests.parties.test_all_rows import raw as raw_all

LACKS = {ACTIVE: (3, 7), TELCO: (5, 4), SHOP: (4, 6)}
"""A party lacks the first key of every so many ids, and the second."""
IDS = {"column": [["national"], ["phone", "born"]], "normalise": [["strip"], ["e164", "strip"]]}


def keyed(table: pa.Table, name: str) -> pa.Table:
    ids, (first, second) = table["id"].to_pylist(), LACKS[name]
    columns = {
        "national": [None if row % first == 0 else f"N{row}" for row in ids],
        "phone": [None if row % second == 0 else f"+49 30 {100000 + row}" for row in ids],
        "born": [f"1990-01-{row % 28 + 1:02d}" for row in ids],
    }
    return pa.table({**{name: pa.array(values) for name, values in columns.items()}, **_without_id(table)})


def _without_id(table: pa.Table) -> dict[str, Any]:
    return {name: table[name] for name in table.column_names if name != "id"}


def raw(**options: Any) -> dict[str, Any]:
    made = raw_all(batch_size=16, **options)
    for name in NAMES:
        made["parties"][name]["id"] = IDS
    return made


WITH_IDS = partial(rows=240)
GIVEN = {name: keyed(table, name) for name, table in WITH_IDS.items()}
JOB = validated(Job, raw(), "")
COMMON = validated(Job, raw() | {"rows": "common"}, "")


def matched(name: str) -> set[int]:
    """The bank's rows that a party has, by a reference of sets; no phone of one person is another's."""
    has = {party: {*WITH_IDS[party]["id"].to_pylist()} for party in (ACTIVE, name)}
    both = has[ACTIVE] & has[name]
    return {row for row in both if any(row % LACKS[ACTIVE][key] and row % LACKS[name][key] for key in range(2))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainedRun]:
    """The run on all rows with all parties in this process."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(JOB, GIVEN, folder)


def align_by_files(job: Job, folder: Path) -> dict[str, aligning.AlignmentResult]:
    """Align by files, under the secret of the runs."""
    key = folder / "secret.key"
    key.write_bytes(KEY)
    key.chmod(0o600)
    done: dict[str, aligning.AlignmentResult] = {}
    for _ in range(12):
        for name in NAMES:
            if name in done:
                continue
            path = folder / f"{name}.parquet"
            parquet.write_table(GIVEN[name], path)
            party = job.parties[name].model_copy(update={"table": TableConfig(path=path)})
            own = job.model_copy(update={"parties": {**job.parties, name: party}})
            out, files = folder / f"{name}-aligned.csv", folder / "exchange"
            try:
                done[name] = aligning.align_party(
                    own, name, out, Purpose.ALIGN, Progress(), LinkOptions(), files, secret=key
                )
            except WaitingForFile:
                continue
    return done


@pytest.fixture(scope="module")
def by_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, aligning.AlignmentResult]]:
    """The run of the label owner, who reads the partners' files; rows were matched by files too."""
    folder = tmp_path_factory.mktemp("files")
    done = align_by_files(JOB, folder)
    options = Options(Keys(folder, KEY), tables=GIVEN)
    for name in (TELCO, SHOP):
        links = LinkOptions(rows=folder / f"{name}-aligned.csv")
        release_training(JOB, name, folder / f"{name}.release", folder / name, options, links)
    releases = tuple(folder / f"{name}.release" for name in (TELCO, SHOP))
    links = LinkOptions(releases=releases, rows=folder / f"{ACTIVE}-aligned.csv")
    run_party(JOB, ACTIVE, folder / ACTIVE, options, Progress(), links)
    return folder, done


def same_halves(job: Job, folders: Mapping[str, Path], whole: Path) -> None:
    for name, folder in folders.items():
        one = job.model_copy(update={"parties": {name: job.parties[name]}})
        mine, other = halves(folder, one)[name], halves(whole, job)[name]
        assert [key for key, value in other.items() if not bool((mine[key] == value).all())] == []
    assert history(folders[ACTIVE]) == history(whole)


def test_a_run_by_files_is_that_of_one_process(
    by_file: tuple[Path, dict[str, aligning.AlignmentResult]], whole: tuple[Path, TrainedRun]
) -> None:
    folder, done = by_file
    same_halves(JOB, {name: folder / name for name in NAMES}, whole[0])
    for name in (TELCO, SHOP):
        assert done[ACTIVE].shared[name] == sum(done[ACTIVE].by_key[name]) == len(matched(name)) == done[name].common
        assert done[name].by_key == {ACTIVE: done[ACTIVE].by_key[name]}
    assert done[ACTIVE].left_out["without a key that identifies them"] == 12  # ids from 1000 on, by 21


def test_a_partner_is_shown_its_rows_that_took_no_part(
    by_file: tuple[Path, dict[str, aligning.AlignmentResult]],
) -> None:
    said, own = (
        passive_html(build_passive(by_file[0] / TELCO)),
        PartyTable(TELCO, GIVEN[TELCO], IdConfig.model_validate(IDS)),
    )
    left_out = own.left_out["without a key that identifies them"]
    assert f"{left_out} rows of the file of telco were left out, without a key that identifies them" in said
    assert f"{own.rows - len(matched(TELCO))} of the {own.rows} rows of telco took no part" in said


def test_the_rows_with_each_partner_are_those_that_a_key_matches(whole: tuple[Path, TrainedRun]) -> None:
    trained = whole[1].active
    assert trained.held_rows == {name: len(matched(name)) for name in (TELCO, SHOP)}


def test_processes_match_the_common_rows_of_three_parties(tmp_path: Path) -> None:
    together = tmp_path / "whole"
    trained = run(COMMON, GIVEN, together)
    assert sum(len(trained.active.split.part(part)) for part in ("train", "validation", "test")) == len(
        matched(TELCO) & matched(SHOP)
    )
    sites = lay_out(tmp_path / "sites", raw() | {"rows": "common"}, GIVEN)
    processes = {name: fork(site) for name, site in sites.items()}
    assert {name: process.wait() for name, process in processes.items()} == dict.fromkeys(NAMES, 0)
    same_halves(COMMON, {name: site.run for name, site in sites.items()}, together)


@pytest.mark.parametrize("nth", [5, 12, 21])
def test_a_run_that_dies_is_resumed_to_the_same_end(whole: tuple[Path, TrainedRun], tmp_path: Path, nth: int) -> None:
    assert crashes_at_rename(nth, lambda: run(JOB, GIVEN, tmp_path), after=bool(nth % 2))
    run(JOB, GIVEN, tmp_path, resume=True)
    assert history(tmp_path) == history(whole[0])


def test_new_rows_are_predicted_as_in_the_run(tmp_path: Path) -> None:
    execute(JOB, tmp_path / "run", Options(Keys(tmp_path / "keys", KEY), tables=GIVEN), Progress())
    folder = RunFolder(tmp_path / "run")
    tested = parquet.read_table(predictions_path(folder))
    done = predict(JOB, folder, tmp_path / "all.parquet", PredictionRequest(tables=GIVEN, key=KEY))
    assert done.rows == 240 - 12  # of the others no key names the row
    assert done.lacking == {name: 228 - len(matched(name)) for name in (TELCO, SHOP)}
    assert {name: done.contributed[name] for name in (TELCO, SHOP)} == {
        name: len(matched(name)) for name in (TELCO, SHOP)
    }
    scores = parquet.read_table(tmp_path / "all.parquet")
    scored = dict(zip(scores["id"].to_pylist(), scores.column(1).to_pylist(), strict=True))
    for row, score in zip(tested.column(0).to_pylist(), tested.column(1).to_pylist(), strict=True):
        assert scored[row] == pytest.approx(score, abs=1e-6)


def test_parties_predict_over_private_set_intersection(
    by_file: tuple[Path, dict[str, aligning.AlignmentResult]],
) -> None:
    sides, servings = {}, {}
    for name in NAMES:
        folder = RunFolder(by_file[0] / name)
        sides[name] = PredictionSide.open(JOB, folder, name, GIVEN[name], JOB.parties[name].limits)
        if name != ACTIVE:
            servings[name] = PredictionReleases(JOB, folder, name, sides[name].width, KEY)
    ends = {name: link(ACTIVE, name, "predict") for name in (TELCO, SHOP)}
    parties: dict[str, Any] = {
        ACTIVE: request_predictions(sides[ACTIVE], {name: pair[0] for name, pair in ends.items()})
    }
    parties |= {name: serve_requests(sides[name], servings[name], ends[name][1]) for name in (TELCO, SHOP)}
    done = drive_together(parties)[ACTIVE]
    tested = parquet.read_table(predictions_path(RunFolder(by_file[0] / ACTIVE)))
    logits = dict(zip(done.ids.to_pylist(), done.logits.sigmoid().flatten().tolist(), strict=True))
    for row, score in zip(tested.column(0).to_pylist(), tested.column(1).to_pylist(), strict=True):
        assert logits[row] == pytest.approx(score, abs=1e-6)


def test_serving_needs_an_id_of_one_column(by_file: tuple[Path, dict[str, aligning.AlignmentResult]]) -> None:
    folder = RunFolder(by_file[0] / TELCO)
    encoder = PredictionSide.open(JOB, folder, TELCO, GIVEN[TELCO], JOB.parties[TELCO].limits).model.encoder
    assert encoder is not None
    with pytest.raises(DataError, match="every id once, to answer for an id, got several keys"):
        FeatureStore.read(JOB, TELCO, TableConfig(path=by_file[0] / f"{TELCO}.parquet"), encoder)


def test_a_check_counts_the_rows_by_key(tmp_path: Path) -> None:
    made = raw()
    for name in NAMES:
        made["parties"][name]["table"] = str(tmp_path / f"{name}.csv")
        csv.write_csv(GIVEN[name], tmp_path / f"{name}.csv")
    result = forecast(validated(Job, made, ""))
    found = {line.party: line for line in result.keys}
    for name in (TELCO, SHOP):
        by_first = {row for row in matched(name) if row % LACKS[ACTIVE][0] and row % LACKS[name][0]}
        assert found[name].matched == (len(by_first), len(matched(name)) - len(by_first))
        assert found[name].conflicts == {ACTIVE: 0, name: 0}
        assert result.lacking[name] == result.rows - len(matched(name))
    made["parties"][TELCO]["id"] = "national"
    with pytest.raises(DataError, match="an id in every row"):
        forecast(validated(Job, made, ""))
    made["parties"][TELCO]["id"] = {"column": [["national"], ["phone"], ["born"]], "normalise": "strip"}
    with pytest.raises(AlignmentError, match="one number of keys at all parties, got 2 at bank, 3 at telco, 2 at shop"):
        forecast(validated(Job, made, ""))


def test_what_several_keys_cannot_be_used_for(tmp_path: Path) -> None:
    path = tmp_path / "bank.parquet"
    parquet.write_table(GIVEN[ACTIVE], path)
    party = JOB.parties[ACTIVE].model_copy(update={"table": TableConfig(path=path)})
    own = JOB.model_copy(update={"parties": {**JOB.parties, ACTIVE: party}})
    for purpose in (Purpose.SIZE, Purpose.ALIGN_ACTIVE):
        with pytest.raises(ConfigError, match=r"both sides learn, with several keys.*leave the option out"):
            aligning.align_party(own, ACTIVE, tmp_path / "out.csv", purpose, Progress(), LinkOptions())
    options = Options(Keys(tmp_path, KEY), tables=GIVEN)
    with pytest.raises(ConfigError, match="which row is which, with several keys, got none"):
        release_training(JOB, TELCO, tmp_path / "out.release", tmp_path / "run", options, LinkOptions())


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["00" * 16, "11" * 16], "an id of each row|every id once"),
        (["11" * 16, "11" * 16], "every id once, got 1 repeated"),
        (["11" * 16, "11" * 15], "the columns row, id, common_id"),
        (["11" * 16, "xy" * 16], "the columns row, id, common_id"),
        (None, "the columns row, id, common_id"),
    ],
)
def test_a_file_of_other_ids(tmp_path: Path, ids: list[str] | None, message: str) -> None:
    table = PartyTable(TELCO, GIVEN[TELCO], IdConfig.model_validate(IDS))
    positions = pa.array([0, 1])
    columns = {"row": positions, "id": table.ids(positions.to_numpy())} | ({} if ids is None else {"common_id": ids})
    csv.write_csv(pa.table(columns), tmp_path / "rows.csv")
    if ids == ["00" * 16, "11" * 16]:
        assert agreed_rows(tmp_path / "rows.csv", table).positions.tolist() == [0, 1]
        return
    with pytest.raises(DataError, match=message):
        agreed_rows(tmp_path / "rows.csv", table)


def test_the_order_is_under_the_secret_of_its_owner_and_no_account_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is counted by row is by the ids of the party's own table: no peer can have it counted as another row."""
    counted: list[tuple[str, frozenset[bytes]]] = []
    real = LocalSide.charge_run

    def charged(local: LocalSide, digests: Any, *more: Any) -> Any:
        counted.append((local.name, frozenset(row.tobytes() for row in digests)))
        return real(local, digests, *more)

    monkeypatch.setattr(LocalSide, "charge_run", charged)
    runs = [run(COMMON, GIVEN, tmp_path / str(n), key=bytes([n]) * 32).active.ids.to_pylist() for n in range(2)]
    assert runs[0] != runs[1]
    assert len(set(counted)) == len(NAMES)
    for name, rows in set(counted):
        own = PartyTable(name, GIVEN[name], IdConfig.model_validate(IDS), "label" if name == ACTIVE else None)
        assert rows < {row.tobytes() for row in own.digests}
