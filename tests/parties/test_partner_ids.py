"""Runs in which the label owner's rows refer to those of each partner by columns of their own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from pyarrow import parquet

from cutlayer.alignment.intersection import Alignment, Purpose
from cutlayer.channel import Kind, Message, link
from cutlayer.config import IdConfig, Job, LimitsConfig, validated
from cutlayer.config.serve import ServeConfig
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import AlignmentError, ConfigError, DataError
from cutlayer.jobs.align import alignment_result
from cutlayer.jobs.check import check_job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.forecast import forecast
from cutlayer.jobs.links import LinkOptions
from cutlayer.jobs.options import Options, Progress
from cutlayer.jobs.party import run_party
from cutlayer.jobs.release_file import release_training
from cutlayer.parties.agreement.handshake import Agreement, SavedPoints, agree_active, agree_passive
from cutlayer.parties.agreement.partners import Partners
from cutlayer.parties.drive.drive import drive_together
from cutlayer.parties.session.checkpoint import RELEASED_FILE, Checkpoints
from cutlayer.report.alignment import alignment_sentences
from cutlayer.serving.between import PredictionSide, request_predictions, serve_requests
from cutlayer.serving.new_rows import new_table
from cutlayer.serving.predict import PredictionRequest, predict
from cutlayer.serving.prediction_release import PredictionReleases
from cutlayer.training.folder import RunFolder
from cutlayer.training.held_out_predictions import predictions_path
from cutlayer.training.keys import Keys
from cutlayer.training.tables import open_table
from cutlayer.training.together import TrainedRun
from cutlayer_batches import identifier
from cutlayer_serve.served_model import ServedModel
from cutlayer_serve.trained_party import TrainedParty
from tests.channel.certificates import FEDERATION, Federation
from tests.parties.interruptions import halves, history, left_at_renames
from tests.parties.processes import lay_out
from tests.parties.runs import ACTIVE, KEY, record, run
from tests.parties.stars import LAND, LOANS, NAMES, TELCO, held_by, keys_of, raw_star, star, star_job
from tests.parties.threads import run_apart

GIVEN = star()
JOB = star_job()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainedRun]:
    """The run with all parties in this process."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(JOB, GIVEN, folder)


def agreed(
    given: Mapping[str, pa.Table], method: str, purpose: Purpose = Purpose.TRAIN, job: Job = JOB
) -> tuple[dict[str, PartyTable], dict[str, Agreement], list[Message]]:
    """The tables, what each party agrees to, and the messages."""
    opened = {name: open_table(job, name, given) for name in job.parties}
    ends = {name: link(ACTIVE, name, "run") for name in job.passives}
    messages: list[Message] = []
    for pair in ends.values():
        for port in pair:
            port.inspect = messages.append
    random = np.random.default_rng(0).bytes  # the masks of two alignments can be compared
    alignment, limits = Alignment(method, purpose, processes=1, random=random), LimitsConfig()
    here = {name: pair[0] for name, pair in ends.items()}
    parties: dict[str, Any] = {ACTIVE: agree_active(job, opened[ACTIVE], ACTIVE, here, [], limits, alignment)}
    for name, (_, there) in ends.items():
        parties[name] = agree_passive(job, opened[name], there, SavedPoints(), limits, alignment)
    return opened, drive_together(parties), messages


@pytest.mark.parametrize("method", ["psi", "plain"])
def test_each_partner_learns_which_of_its_rows_any_row_of_the_owner_refers_to(method: str) -> None:
    opened, found, _ = agreed(GIVEN, method)
    owner = found[ACTIVE]
    for name in (TELCO, LAND):
        own = keys_of(GIVEN, name, of=name)
        common = [own[row] for row in found[name].positions]
        assert len(common) == len(set(common))
        assert set(common) == set(own) & set(keys_of(GIVEN, name))
        # The same rows in the same order at both sides, and each of the owner's rows with its own.
        held = owner.aligned.held
        assert (held.digests(name, opened[ACTIVE].digests) == found[name].row_ids(opened[name])).all()
        refers = [keys_of(GIVEN, name)[row] for row in owner.positions]
        for key, number in zip(refers, held.by_party[name].tolist(), strict=True):
            assert (number < 0 and key not in common) or common[number] == key
        assert held.count(name, LOANS) == len(common) == owner.aligned.sizes[name]
    assert sorted(owner.positions.tolist()) == list(range(LOANS))


@pytest.mark.parametrize("method", ["psi", "plain"])
def test_a_partner_is_stated_the_number_of_different_ids_and_no_more(method: str) -> None:
    _, found, messages = agreed(GIVEN, method)
    stated = {m.receiver: m.fields["rows"] for m in messages if m.kind == Kind.HELLO and m.sender == ACTIVE}
    assert stated == {name: len({*keys_of(GIVEN, name)} - {None}) for name in (TELCO, LAND)}
    record_ = found[ACTIVE].record
    assert record_ is not None
    for known in record_.disclosures:
        partner = next(iter({known.learner, *known.about} - {ACTIVE}))
        ids, own = {*keys_of(GIVEN, partner)} - {None}, keys_of(GIVEN, partner, of=partner)
        wanted = (len(ids), len(ids & {*own})) if known.learner == ACTIVE else (len(own), len(ids & {*own}))
        assert (known.own_ids, known.present_ids) == wanted


def repeated() -> pa.Table:
    """The bank's loans with the same different ids, of which each is in other and in more rows, and other labels."""
    draw = np.random.default_rng(5)
    again = GIVEN[ACTIVE].take(pa.array(np.r_[np.arange(LOANS), draw.integers(LOANS, size=250)]))
    labels = again["label"].to_numpy(zero_copy_only=False)
    again = again.set_column(0, "id", pa.array(draw.permutation(len(again)) + 90_000))
    return again.set_column(5, "label", pa.array(draw.permutation(labels)))


def read(messages: list[Message]) -> list[Any]:
    heads = [(m.kind, m.sender, m.receiver, m.step, m.rows, dict(m.fields)) for m in messages]
    tensors = [{name: tensor.tolist() for name, tensor in m.tensors.items()} for m in messages]
    return [*zip(heads, tensors, strict=True)]


@pytest.mark.parametrize("method", ["psi", "plain"])
def test_how_often_and_which_rows_refer_to_a_partners_row_changes_no_message_of_the_alignment(method: str) -> None:
    one, other = (agreed({**GIVEN, ACTIVE: bank}, method)[2] for bank in (GIVEN[ACTIVE], repeated()))
    assert read(one) == read(other)


def test_how_often_and_which_rows_refer_to_a_partners_row_changes_no_message_of_a_run(tmp_path: Path) -> None:
    sent = []
    for name, given in (("one", GIVEN), ("other", {**GIVEN, ACTIVE: repeated()})):
        with pytest.MonkeyPatch.context() as patched:
            messages = record(patched)
            run(JOB, given, tmp_path / name)
        sent.append(messages)
    for party in (TELCO, LAND):
        one, other = ([m for m in each if party in (m.sender, m.receiver)] for each in sent)
        assert read(one) == read(other)


def test_a_partners_row_is_released_once_and_serves_all_rows_that_refer_to_it(whole: tuple[Path, TrainedRun]) -> None:
    folder, trained = whole
    outcome = trained.active
    assert outcome.held_rows == {name: sum(held_by(GIVEN, name)) for name in (TELCO, LAND)}
    assert 0.4 * LOANS < outcome.held_rows[TELCO] < LOANS
    stored = Checkpoints(folder / "checkpoint" / ACTIVE, ACTIVE, JOB.digest()).read_state(RELEASED_FILE)
    assert stored is not None
    partners = Partners.load(Checkpoints(folder / "checkpoint" / ACTIVE, ACTIVE, JOB.digest()))
    assert partners is not None
    order = partners.positions.tolist()
    for name in (TELCO, LAND):
        released: dict[Any, list[float]] = {}
        for row, numbers in zip(order, stored[0][name], strict=True):
            key, has = keys_of(GIVEN, name)[row], held_by(GIVEN, name)[row]
            assert bool(numbers.isnan().all()) is not has
            if has:
                assert released.setdefault(key, numbers.tolist()) == numbers.tolist()
        assert len({tuple(numbers) for numbers in released.values()}) == len(released)


def test_the_model_is_that_of_the_joined_table(tmp_path: Path, whole: tuple[Path, TrainedRun]) -> None:
    """Releases by row number of a joined table give the same model, up to the rows by which a sketch is fitted."""
    given = star(2, 1200)
    apart = run(JOB, given, tmp_path / "apart").active
    bank = given[ACTIVE].append_column("lower", pc.utf8_lower(given[ACTIVE]["district"]))
    land = given[LAND].set_column(0, "lower", pc.utf8_lower(given[LAND]["district"]))
    joined = bank.join(given[TELCO], "phone", "number", "inner").join(land, ["lower", "parcel"], join_type="inner")
    assert apart.metrics["auc"] > apart.task.evaluate(apart.logits_without[TELCO,], apart.labels)["auc"] + 0.05
    assert apart.metrics["auc"] > apart.task.evaluate(apart.logits_without[LAND,], apart.labels)["auc"] + 0.05
    both = apart.present[TELCO] & apart.present[LAND]
    values = {row["id"]: row["amount"] + 1.5 * row["calls"] + 1.5 * row["area"] for row in joined.to_pylist()}
    ids = [row for row, has in zip(apart.ids.to_pylist(), both, strict=True) if has]
    assert {*ids} <= values.keys()
    truth = torch.tensor([[values[row]] for row in ids])
    best = apart.task.evaluate(truth * (1 if apart.task.positive else -1), apart.labels[both])["auc"]
    assert apart.task.evaluate(apart.logits[both], apart.labels[both])["auc"] > max(best, 1 - best) - 0.03


def test_columns_that_refer_to_partners_are_features_only_where_they_are_named() -> None:
    assert open_table(JOB, ACTIVE, GIVEN).profiles(ACTIVE, note_rare=False)[0].name == "amount"
    made = raw_star()
    made["parties"][ACTIVE]["features"] = {"include": ["amount", "district"]}
    named = open_table(validated(Job, made, ""), ACTIVE, GIVEN)
    found = {each.name: each.kind for each in named.profiles(ACTIVE, note_rare=False)}
    assert found == {"amount": "number", "district": "category", "label": found["label"]}


def test_a_run_that_dies_at_any_file_is_resumed_to_the_same_end(whole: tuple[Path, TrainedRun], tmp_path: Path) -> None:
    left = left_at_renames(tmp_path / "run", lambda: run(JOB, GIVEN, tmp_path / "run"), range(0, 100, 18))
    assert 2 <= len(left) < 6
    for folder in left.values():
        again = run(JOB, GIVEN, folder, resume=True)
        assert torch.equal(again.active.logits, whole[1].active.logits)
        assert history(folder) == history(whole[0])


def test_organisations_have_the_same_run(whole: tuple[Path, TrainedRun], tmp_path: Path) -> None:
    """By private set intersection over TLS; that a plain comparison finds the same rows is tested above."""
    made = raw_star() | {"alignment": "psi", "federation": FEDERATION}
    sites = lay_out(tmp_path / "sites", made, GIVEN)
    federation = Federation(tmp_path / "keys", TELCO, LAND)
    for name, site in sites.items():
        shutil.copytree(federation.base / name, site.folder / "keys")
    run_apart(sites, tls=True)
    for name, site in sites.items():
        one = validated(Job, made, "")
        one = one.model_copy(update={"parties": {name: one.parties[name]}})
        mine, other = halves(site.run, one)[name], halves(whole[0], JOB)[name]
        assert [key for key, value in other.items() if not bool((mine[key] == value).all())] == []
    assert history(sites[ACTIVE].run) == history(whole[0])
    ids = [str(row) for row in whole[1].active.ids.to_pylist()]
    tested = parquet.read_table(predictions_path(RunFolder(sites[ACTIVE].run)))
    assert tested.column(0).to_pylist() == ids


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished run with the parts of all parties."""
    folder = tmp_path_factory.mktemp("ended")
    execute(JOB, folder / "run", Options(Keys(folder / "keys", KEY), tables=GIVEN), Progress())
    return RunFolder(folder / "run")


def test_new_rows_with_keys_that_no_partner_has_are_answered_without_it(ended: RunFolder, tmp_path: Path) -> None:
    folder = RunFolder(shutil.copytree(ended.path, tmp_path / "run"))
    tested = parquet.read_table(predictions_path(folder))
    predict(JOB, folder, tmp_path / "test.parquet", PredictionRequest(key=KEY))
    assert parquet.read_table(tmp_path / "test.parquet").equals(tested)
    new = star(1)
    bank = new[ACTIVE].set_column(0, "id", pa.array(np.arange(LOANS)))
    strange = pa.array(
        [None if key is None else key + 5000 * (row % 2) for row, key in enumerate(bank["phone"].to_pylist())]
    )
    bank = bank.set_column(1, "phone", strange)
    done = predict(JOB, folder, tmp_path / "new.parquet", PredictionRequest(tables={**new, ACTIVE: bank}, key=KEY))
    given = {**new, ACTIVE: bank}
    assert done.rows == LOANS
    assert done.contributed == {ACTIVE: LOANS, **{name: sum(held_by(given, name)) for name in (TELCO, LAND)}}
    scores = parquet.read_table(tmp_path / "new.parquet")
    assert scores["id"].to_pylist() == list(range(LOANS))
    for row, names in enumerate(scores["contributed"].to_pylist()):
        assert (TELCO in names, LAND in names) == (held_by(given, TELCO)[row], held_by(given, LAND)[row])
    without = predict(
        JOB,
        folder,
        tmp_path / "less.parquet",
        PredictionRequest(tables={ACTIVE: bank, LAND: new[LAND]}, absent=[TELCO], key=KEY),
    )
    assert (without.rows, without.absent) == (LOANS, (TELCO,))


def test_partners_alone_predict_nothing_since_their_ids_are_of_other_things(tmp_path: Path) -> None:
    """Both are whole numbers here: the customer 100 is not the parcel 100."""
    made = raw_star()
    made["parties"][ACTIVE]["features"] = {"include": "none"}
    made["parties"][ACTIVE]["partner_ids"][LAND] = made["parties"][LAND]["id"] = "parcel"
    job, folder = validated(Job, made, ""), RunFolder(tmp_path / "run")
    execute(job, folder.path, Options(Keys(tmp_path / "keys", KEY), tables=GIVEN), Progress())
    alone = {TELCO: GIVEN[TELCO], LAND: GIVEN[LAND].set_column(1, "parcel", pa.array(np.arange(71) + 100))}
    with pytest.raises(DataError, match="a table of bank, telco, shop, got none of bank"):
        predict(job, folder, tmp_path / "alone.parquet", PredictionRequest(tables=alone, key=KEY))


def test_new_rows_may_have_more_ids_than_the_training_stated() -> None:
    refers = {TELCO: IdConfig(column="phone", pad_to=10)}
    table = new_table(ACTIVE, GIVEN[ACTIVE], IdConfig(column="id"), None, partner_ids=refers)
    assert table.ids_for(TELCO).stated_rows == len({*keys_of(GIVEN, TELCO)} - {None})


def test_the_forecast_counts_the_rows_of_each_partner(tmp_path: Path) -> None:
    made = raw_star()
    for name in NAMES:
        parquet.write_table(GIVEN[name], tmp_path / f"{name}.parquet")
        made["parties"][name]["table"] = str(tmp_path / f"{name}.parquet")
    found = forecast(validated(Job, made, ""))
    assert found.lacking == {name: LOANS - sum(held_by(GIVEN, name)) for name in (TELCO, LAND)}
    assert found.common == sum(map(all, zip(held_by(GIVEN, TELCO), held_by(GIVEN, LAND), strict=True)))
    assert found.rows == LOANS
    shared = [each for each in found.warnings if each.startswith("train.split: ")]
    assert [each.split(" share its row")[0].split(" with ")[1] for each in shared] == [TELCO, LAND]
    made["train"]["split"] = {"by": "amount", "public": True}
    made["parties"][ACTIVE]["features"] = {"include": "none"}
    assert not [each for each in forecast(validated(Job, made, "")).warnings if "share its row" in each]


def without(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda made: made["parties"][ACTIVE]["partner_ids"].pop(key)


def changed(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda made: made["parties"][ACTIVE].update(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed(partner_ids={"telcoo": "phone"}), "partner_ids.telcoo: no passive party of that name.*'telco'"),
        (changed(partner_ids={TELCO: {"column": "phone", "duplicates": "first"}}), "columns of a single key"),
        (changed(partner_ids={TELCO: "@row"}), "columns of a single key"),
        (changed(partner_ids={TELCO: {"column": [["phone"], ["id"]]}}), "columns of a single key"),
        (changed(id={"column": "id", "duplicates": "keep"}), "differ in every row"),
        (changed(id="@row"), "differ in every row"),
        (lambda made: made.update(rows="common"), "rows: all with parties.bank.partner_ids, got common"),
        (lambda made: made["train"].update(release={TELCO: "once"}), "gradients to shop; write train.release: once"),
    ],
)
def test_jobs_that_are_refused(change: Callable[[dict[str, Any]], None], message: str) -> None:
    made = raw_star()
    change(made)
    if "gradients" in message:
        made["parties"][ACTIVE]["privacy"], made["model"]["top"] = {}, {"kind": "mlp"}
        del made["parties"][LAND]["fit"]
    with pytest.raises(ConfigError, match=message):
        check_job(validated(Job, made, ""))


def test_a_partner_with_such_columns_is_refused() -> None:
    made = raw_star()
    made["parties"][TELCO]["partner_ids"] = {LAND: "number"}
    with pytest.raises(ConfigError, match=r"no parties.telco.partner_ids.*only its rows refer to those of others"):
        open_table(validated(Job, made, ""), TELCO, GIVEN)


def test_a_label_refers_to_no_partners_rows() -> None:
    made = raw_star()
    made["parties"][ACTIVE]["partner_ids"][TELCO] = "label"
    with pytest.raises(DataError, match="expected columns of partner_ids that are no label, got 'label'"):
        open_table(validated(Job, made, ""), ACTIVE, GIVEN)


def altered(name: str, column: str, values: Any) -> dict[str, pa.Table]:
    table = GIVEN[name]
    return {**GIVEN, name: table.set_column(table.column_names.index(column), column, pa.array(values))}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({**GIVEN, ACTIVE: GIVEN[ACTIVE].drop_columns("phone")}, "no column 'phone'|column 'phone'"),
        (altered(ACTIVE, "phone", [None] * LOANS), "partner_ids.telco: expected an id in some row, got none"),
        (altered(ACTIVE, "id", [1] * LOANS), "expected every id once"),
        (altered(TELCO, "number", [101] * len(GIVEN[TELCO])), "expected every id once"),
        (altered(TELCO, "number", [f"x{n}" for n in range(len(GIVEN[TELCO]))]), "integer.*text|text.*integer"),
        (altered(TELCO, "number", np.arange(len(GIVEN[TELCO])) + 800_000), "none of"),
    ],
)
def test_tables_that_are_refused(given: dict[str, pa.Table], message: str) -> None:
    with pytest.raises((DataError, AlignmentError), match=message):
        agreed(given, "psi")


def test_other_rules_than_the_partners_are_refused() -> None:
    made = raw_star()
    made["parties"][ACTIVE]["partner_ids"][LAND]["normalise"] = "strip"
    with pytest.raises(AlignmentError, match=r"ids of one normal form.*strip\+strip at bank, lower\+strip at shop"):
        agreed(GIVEN, "psi", job=validated(Job, made, ""))


def test_a_partner_without_an_entry_has_the_rows_of_the_id(tmp_path: Path) -> None:
    made = raw_star()
    del made["parties"][ACTIVE]["partner_ids"][TELCO]
    ids = GIVEN[ACTIVE]["id"].slice(0, 200)
    telco = pa.table({"number": ids, "calls": pa.array(np.random.default_rng(0).normal(size=200))})
    given = {**GIVEN, TELCO: telco}
    outcome = run(validated(Job, made, ""), given, tmp_path).active
    assert outcome.held_rows == {TELCO: 200, LAND: sum(held_by(GIVEN, LAND))}


def test_purposes_that_reveal_nothing_to_partners(tmp_path: Path) -> None:
    _, found, _ = agreed(GIVEN, "psi", Purpose.ALIGN_ACTIVE)
    counts = {name: len({*keys_of(GIVEN, name)} & {*keys_of(GIVEN, name, of=name)}) for name in (TELCO, LAND)}
    assert found[ACTIVE].aligned.sizes == counts
    assert {name: found[ACTIVE].aligned.held.count(name, LOANS) for name in counts} == counts
    assert found[TELCO].aligned.positions is None
    _, found, _ = agreed(GIVEN, "psi", Purpose.SIZE)
    assert {name: found[name].aligned.sizes[ACTIVE] for name in counts} == counts
    assert found[ACTIVE].aligned.positions is None


def test_a_split_by_a_column_is_not_what_partners_are_sent(tmp_path: Path) -> None:
    """A partner is sent the parts that its own ids give, so that neither the column nor the labels are in them."""
    made = raw_star(split={"by": "amount", "test": 0.3, "validation": 0.1, "public": True})
    made["parties"][ACTIVE]["features"] = {"include": "none"}
    job = validated(Job, made, "")
    found = []
    for name, amount in (("one", GIVEN[ACTIVE]["amount"]), ("two", pc.negate(GIVEN[ACTIVE]["amount"]))):
        with pytest.MonkeyPatch.context() as patched:
            messages = record(patched)
            outcome = run(job, altered(ACTIVE, "amount", amount.to_numpy()), tmp_path / name).active
        assert len(outcome.split.test) == 120
        found.append([m.tensors["parts"].tolist() for m in messages if m.kind == Kind.SPLIT])
    assert found[0] == found[1]
    assert len(found[0]) == 2


def test_a_network_on_the_releases(tmp_path: Path) -> None:
    outcome = run(star_job(top={"kind": "mlp", "hidden": [4]}), GIVEN, tmp_path).active
    assert np.isfinite(outcome.metrics["auc"])
    assert outcome.held_rows == {name: sum(held_by(GIVEN, name)) for name in (TELCO, LAND)}


@pytest.fixture(scope="module")
def by_file(whole: tuple[Path, TrainedRun], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of the label owner by the files of `cutlayer align` and of the partners' releases."""
    folder = tmp_path_factory.mktemp("files")
    federation = Federation(folder / "keys", TELCO, LAND)
    opened, found, _ = agreed(GIVEN, "psi")
    for name, table in opened.items():
        alignment_result(name, table, found[name], folder / f"{name}.csv")
    options = Options(Keys(folder, KEY), tables=GIVEN)
    releases = tuple(folder / f"{name}.release" for name in (TELCO, LAND))
    for name, release in zip((TELCO, LAND), releases, strict=True):
        links = LinkOptions(security=federation.security(name), rows=folder / f"{name}.csv")
        release_training(JOB, name, release, folder / name, options, links)
    links = LinkOptions(security=federation.security(ACTIVE), releases=releases, rows=folder / f"{ACTIVE}.csv")
    run_party(JOB, ACTIVE, folder / ACTIVE, options, Progress(), links)
    return folder


def test_a_run_by_files_of_aligned_rows_is_that_of_one_process(by_file: Path, whole: tuple[Path, TrainedRun]) -> None:
    assert history(by_file / ACTIVE) == history(whole[0])
    summary = RunFolder(by_file / ACTIVE).summary
    assert summary.data.held == whole[1].active.held_rows
    record_ = summary.data.alignment
    assert record_ is not None
    assert (record_.method, record_.referring) == ("agreed", True)
    assert "These refer to each partner's rows by columns of their own" in alignment_sentences(record_)[0]


def test_a_pilot_releases_some_rows_of_each_partner(tmp_path: Path) -> None:
    outcome = run(JOB, GIVEN, tmp_path, pilot=40)
    stored = Checkpoints(tmp_path / "checkpoint" / ACTIVE, ACTIVE, JOB.digest()).read_state(RELEASED_FILE)
    assert stored is not None
    for name in (TELCO, LAND):
        there = ~stored[0][name].isnan().all(dim=1)
        assert len(torch.unique(stored[0][name][there], dim=0)) == 40
        assert int(there.sum()) > 40
    assert outcome.active.held_rows.keys() == {TELCO, LAND}


def test_new_rows_are_predicted_between_organisations_as_by_one(ended: RunFolder, tmp_path: Path) -> None:
    """Over connections, aligned by private set intersection with each partner."""
    new = star(1)
    limits, sides = LimitsConfig(), dict[str, PredictionSide]()
    for name in NAMES:
        sides[name] = PredictionSide.open(JOB, ended, name, new[name], limits)
    ends = {name: link(ACTIVE, name, "new rows") for name in JOB.passives}
    parties: dict[str, Any] = {
        ACTIVE: request_predictions(sides[ACTIVE], {name: pair[0] for name, pair in ends.items()})
    }
    for name, (_, there) in ends.items():
        parties[name] = serve_requests(sides[name], PredictionReleases(JOB, ended, name, sides[name].width, KEY), there)
    done = drive_together(parties)
    predicted = done[ACTIVE]
    assert predicted.ids.to_pylist() == new[ACTIVE]["id"].to_pylist()
    for name in (TELCO, LAND):
        assert predicted.present[name].tolist() == held_by(new, name)
        assert done[name] == len({*keys_of(new, name)} & {*keys_of(new, name, of=name)}), "each row is released once"
    predict(JOB, ended, tmp_path / "here.parquet", PredictionRequest(tables=new, key=KEY))
    here = parquet.read_table(tmp_path / "here.parquet")
    assert here["id"].to_pylist() == predicted.ids.to_pylist()
    chance = predicted.logits.flatten().double().sigmoid()
    assert here.column(1).to_pylist() == pytest.approx(chance.tolist(), abs=1e-6)


def test_a_service_that_is_asked_by_one_id_is_refused(ended: RunFolder) -> None:
    with pytest.raises(ConfigError, match="one id for all partners, to serve, got partner_ids; use cutlayer predict"):
        ServedModel(TrainedParty.open(ended.path, ACTIVE), ServeConfig())
    with pytest.raises(ConfigError, match="one id for all partners, in batches, got partner_ids; use cutlayer predict"):
        identifier(ended.path, ACTIVE)
