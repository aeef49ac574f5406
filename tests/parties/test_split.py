"""Splits that the active party sends: by a column, and stratified by the labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from torch import Tensor

from cutlayer.channel import Kind
from cutlayer.config import Job, SplitConfig, validated
from cutlayer.data.shuffling import permutation
from cutlayer.data.split import Split, split_stratified
from cutlayer.data.streams import RandomStream
from cutlayer.errors import CheckpointError, ConfigError, DataError, Interrupted, ProtocolError
from cutlayer.jobs.check import check_job
from cutlayer.parties.agreement.split import SPLIT_FILE, draw_split, split_of_run
from cutlayer.parties.session.checkpoint import TABLE_FILE
from cutlayer.parties.session.observer import Observer
from cutlayer.training.folder import RunFolder
from cutlayer.training.run_ledger import ledger_of
from cutlayer.training.tables import open_table
from cutlayer.training.trained import Run
from tests.alignment.test_psi_hostile import tamper
from tests.parties.runs import ACTIVE, KEY, PASSIVES, make_job, raw_job, run, tables

STRATIFIED = {"test": 0.2, "validation": 0.2, "stratify": True}
BY_DATE = {"test": 0.2, "validation": 0.2, "by": "since"}


def dated(task: str = "binary") -> dict[str, pa.Table]:
    """The tables of `tables`, the bank's with a date of each row, at random."""
    given = tables(task)
    bank = given[ACTIVE]
    days = np.random.default_rng(5).integers(0, 60, bank.num_rows)
    dates = pa.array([f"2024-{1 + day // 28:02}-{1 + day % 28:02}" for day in days])
    given[ACTIVE] = bank.append_column("since", dates)
    return given


def job_of(split: Mapping[str, Any], **more: Any) -> Job:
    return make_job(split=split, **{"audit": {"every": "never"}, "epochs": 1} | more)


@pytest.mark.parametrize("split", [STRATIFIED, BY_DATE], ids=["stratified", "by date"])
def test_all_parties_have_the_split_that_the_active_party_sent(split: Mapping[str, Any], tmp_path: Path) -> None:
    job, given = job_of(split), dated()
    outcome = run(job, given, tmp_path).active
    sent = [split_of_run(job, tmp_path, name, len(outcome.split.codes)).codes for name in job.parties]
    assert all(torch.equal(codes, outcome.split.codes) for codes in sent)
    assert torch.equal(Run(job, RunFolder(tmp_path), classes=outcome.task.classes).split.codes, sent[0])
    rows = {name: len(getattr(outcome.split, name)) for name in ("train", "validation", "test")}
    assert sum(rows.values()) == 235
    assert abs(rows["test"] - 47) <= 6
    assert abs(rows["validation"] - 47) <= 6


def test_the_newest_rows_are_tested_on_and_no_day_is_in_two_parts(tmp_path: Path) -> None:
    job, given = job_of(BY_DATE), dated()
    split = run(job, given, tmp_path).active.split
    days = common(job, given, tmp_path).column("since").to_numpy(zero_copy_only=False)
    assert max(days[split.train]) < min(days[split.validation])
    assert max(days[split.validation]) < min(days[split.test])


def common(job: Job, given: Mapping[str, pa.Table], folder: Path) -> pa.Table:
    """The bank's rows in the common order."""
    table = open_table(job, ACTIVE, given)
    here = {ids.tobytes(): row for row, ids in enumerate(table.digests)}
    order = sorted(set(here) & {ids.tobytes() for ids in open_table(job, PASSIVES[0], given).digests})
    return given[ACTIVE].take([here[ids] for ids in order])


def test_the_column_of_the_split_is_no_feature(tmp_path: Path) -> None:
    with_column = run(job_of(BY_DATE), dated(), tmp_path / "with").active
    without = run(job_of(STRATIFIED), tables(), tmp_path / "without").active
    assert (with_column.numeric, with_column.categorical) == (without.numeric, without.categorical)


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_every_part_has_the_same_shares_of_the_classes(task: str, tmp_path: Path) -> None:
    outcome = run(job_of(STRATIFIED, task=task), tables(task), tmp_path).active
    truth = Run(job_of(STRATIFIED, task=task), RunFolder(tmp_path), classes=outcome.task.classes).truth
    whole = torch.bincount(truth) / len(truth)
    for name in ("train", "validation", "test"):
        part = truth[outcome.split.part(name)]
        assert (torch.bincount(part, minlength=len(whole)) - whole * len(part)).abs().max() < 1


def test_a_resumed_run_has_the_split_that_it_began_with(tmp_path: Path) -> None:
    class Stops(Observer):
        def ended(self, record: Any) -> None:
            raise Interrupted("by the test")

    job, given = job_of(STRATIFIED, epochs=2), tables()
    with pytest.raises(Interrupted):
        run(job, given, tmp_path / "run", progress=Stops())
    begun = split_of_run(job, tmp_path / "run", ACTIVE, 235)
    changed = given[ACTIVE].column("label").to_pylist()
    changed[:20] = ["yes"] * 20
    index = given[ACTIVE].schema.get_field_index("label")
    again = given | {ACTIVE: given[ACTIVE].set_column(index, "label", pa.array(changed))}
    (tmp_path / "run" / "checkpoint" / ACTIVE / TABLE_FILE).unlink()  # by which other labels are refused
    resumed = run(job, again, tmp_path / "run", resume=True).active.split
    assert torch.equal(resumed.codes, begun.codes)
    # Another split than before would release rows in another part, beyond what was counted.
    with pytest.raises(Interrupted):
        run(job, given, tmp_path / "other", progress=Stops())
    for name in (SPLIT_FILE, TABLE_FILE):
        (tmp_path / "other" / "checkpoint" / ACTIVE / name).unlink()
    with pytest.raises(ProtocolError, match="the split of the run before it was interrupted from bank, got another"):
        run(job, again, tmp_path / "other", resume=True)


def test_the_draw_repeats_with_the_labels_and_is_fresh_otherwise() -> None:
    """Repeated runs reveal no more than one, and the rows that one changed label moves do not reveal its class."""
    job, given = job_of(STRATIFIED), tables()
    table = open_table(job, ACTIVE, given)
    positions = np.arange(table.rows)
    drawn = draw_split(job, table, positions, KEY).codes
    assert torch.equal(draw_split(job, table, positions, KEY).codes, drawn)
    labels = given[ACTIVE].column("label").to_pylist()
    labels[0] = "no" if labels[0] == "yes" else "yes"
    index = given[ACTIVE].schema.get_field_index("label")
    other = open_table(job, ACTIVE, {ACTIVE: given[ACTIVE].set_column(index, "label", pa.array(labels))})
    for fresh in (
        draw_split(job, table, positions, bytes(32)).codes,
        draw_split(job, other, positions, KEY).codes,
        draw_split(job, table, positions[1:], KEY).codes,
    ):
        moved = (fresh != drawn[-len(fresh) :]).double().mean()
        assert moved > 0.4, "of independent draws 0.56 differ"


def guessed_from_the_seed(split: Split, seed: int) -> Tensor:
    """Score of a curious partner: how early a row comes in the order of the job's seed, among those of its part.

    Were the rows of each class taken in this order, the test rows of the class with the later last row would be those
    behind the last row of the other class.
    """
    n = len(split.codes)
    rank = np.empty(n, dtype=np.int64)
    rank[permutation(n, seed, RandomStream.SPLIT)] = np.arange(n)
    return torch.from_numpy(rank)


def test_a_draw_from_the_seed_of_the_job_would_reveal_labels_and_the_secret_one_does_not() -> None:
    job, labels = job_of(STRATIFIED), np.zeros(2000, dtype=np.int64)
    labels[np.random.default_rng(1).permutation(2000)[:600]] = 1
    config = SplitConfig(**STRATIFIED)
    public = split_stratified(labels, config, permutation(2000, job.train.seed, RandomStream.SPLIT))
    table = pa.table({"id": np.arange(2000), "label": labels, "x": np.zeros(2000)})
    opened = open_table(job, ACTIVE, {ACTIVE: table})
    secret = draw_split(job, opened, np.arange(2000), KEY)

    def overtaken(split: Split) -> int:
        """Rows whose class the partner can tell: not tested, although a later row of the order is."""
        rank = guessed_from_the_seed(split, job.train.seed)
        last = int(rank[split.part("test")].max())
        others = torch.cat([split.part("train"), split.part("validation")])
        return int((rank[others] < last).sum())

    result = overtaken(public)
    rank = guessed_from_the_seed(public, job.train.seed)
    last = public.part("test")[rank[public.part("test")].argmax()]
    others = torch.cat([public.part("train"), public.part("validation")])
    exposed = others[rank[others] < rank[last]]
    assert result > 0
    assert set(labels[exposed].tolist()) == {1 - labels[last]}, "every one of them is of the other class"
    # Under the secret the order of the seed says nothing: nearly all rows come before some test row.
    assert overtaken(secret) > 1500
    ranks = guessed_from_the_seed(secret, job.train.seed).double()
    tested = secret.codes == 2
    means = [ranks[tested & torch.from_numpy(labels == code)].mean() for code in (0, 1)]
    assert abs(means[0] - means[1]) < 4 * 2000 * (1 / 12) ** 0.5 * (1 / 280 + 1 / 120) ** 0.5


def test_who_knows_all_labels_of_a_part_but_one_knows_the_last() -> None:
    """Why a stratified split voids a formal guarantee: one of both values of a label is impossible."""
    labels = np.repeat([0, 1], [700, 300])
    split = split_stratified(labels, SplitConfig(**STRATIFIED), np.random.default_rng(2).permutation(1000))
    known = labels[split.test][1:]
    assert 0.3 * len(split.test) - known.sum() == labels[split.test][0]


@pytest.mark.parametrize(
    ("privacy", "named"),
    [({"label_dp": {"eps": 1.0}}, "label_dp"), ({"label_free": None}, "label_free")],
)
def test_no_split_that_may_follow_labels_with_a_formal_guarantee_of_them(privacy: dict[str, Any], named: str) -> None:
    job = job_of(STRATIFIED, privacy=privacy, release="once")
    with pytest.raises(ConfigError, match=f"no train.split.stratify with {named}, whose guarantee"):
        check_job(job)
    with pytest.raises(ConfigError, match=f"no train.split.by with {named}, .* got since; .* train.split.public: true"):
        check_job(job_of(BY_DATE, privacy=privacy, release="once"))
    check_job(job_of(BY_DATE | {"public": True}, privacy=privacy, release="once"))
    check_job(job_of(BY_DATE, release="once"))


def test_a_run_whose_split_may_follow_labels_is_not_label_free() -> None:
    for split in (STRATIFIED, BY_DATE):
        assert not job_of(split, release="once").train.is_label_free(PASSIVES[0])
    assert job_of(BY_DATE | {"public": True}, release="once").train.is_label_free(PASSIVES[0])
    with pytest.raises(ConfigError, match="public with by, got it alone"):
        job_of({"test": 0.2, "public": True})


def test_the_ledger_states_what_the_split_shows() -> None:
    assert not ledger_of(job_of({"test": 0.2})).entries
    (labels,) = ledger_of(job_of(STRATIFIED)).totals
    assert labels.epsilon is None
    assert "nothing protects the labels, and every part of the split" in labels.statement
    assert "all labels of a part but one, knows the last" in labels.statement
    (hidden,) = ledger_of(job_of(STRATIFIED, privacy={"max_norm": {}})).totals
    assert "nothing protects" not in hidden.statement
    for public in (False, True):
        *_, features = ledger_of(job_of(BY_DATE | {"public": public})).totals
        assert "which rows have the largest values of 'since', and which the next" in features.statement
        assert ("the job states to be public" in features.statement) is public


def test_a_digest_has_what_differs_from_the_defaults() -> None:
    assert job_of({"test": 0.2}).shared()["train"]["split"] == {"test": 0.2}
    digests = {job_of(split).digest() for split in ({"test": 0.2, "validation": 0.2}, STRATIFIED, BY_DATE)}
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("split", "task", "wanted"),
    [
        (BY_DATE | {"by": "label"}, "binary", "train.split.by with another column than parties.bank.label, got label"),
        (BY_DATE | {"by": "id"}, "binary", "train.split.by with another column than parties.bank.id, got id"),
        (STRATIFIED, "regression", "train.split.stratify with classes alone, got task regression"),
    ],
)
def test_splits_that_are_refused(split: Mapping[str, Any], task: str, wanted: str) -> None:
    with pytest.raises(ConfigError, match=wanted):
        check_job(job_of(split, task=task))


def test_one_kind_of_split() -> None:
    with pytest.raises(ConfigError, match=r"train\.split: expected by, stratify or by_id, got by and stratify"):
        validated(Job, raw_job(split=BY_DATE | {"stratify": True}), "")


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda dates: ["2024-01-01"] * len(dates), "expected a different value for each part of the split"),
        (lambda dates: ["2024-01-01"] * 20 + ["2024-01-02"] * 5 + ["2024-01-03"] * (len(dates) - 25), "expected about"),
        (lambda dates: [None, *dates[1:]], "expected a value of 'since' in every row, to split by, got none in row"),
        (lambda dates: ["31/12/2023", *dates[1:]], r"dates such as 2024-01-31, in column 'since', to split by"),
    ],
    ids=["one value", "most rows in one", "a missing value", "another form"],
)
def test_columns_that_make_no_split(change: Callable[[list[str]], list[Any]], wanted: str, tmp_path: Path) -> None:
    given = dated()
    index = given[ACTIVE].schema.get_field_index("since")
    dates = pa.array(change(pc.cast(given[ACTIVE].column("since"), pa.string()).to_pylist()))
    given[ACTIVE] = given[ACTIVE].set_column(index, "since", dates)
    with pytest.raises(DataError, match=wanted):
        run(job_of(BY_DATE), given, tmp_path)


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no column 'sinse'; did you mean 'since'"):
        run(job_of(BY_DATE | {"by": "sinse"}), dated(), tmp_path)


def codes_of(change: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    return lambda tensors, fields: {"tensors": {"parts": change(tensors["parts"].clone())}, "fields": fields}


@pytest.mark.parametrize(
    ("split", "change", "wanted"),
    [
        (STRATIFIED, lambda codes: codes[:-1], "a part .0 to 2. of each of the 235 common rows from bank, got 234"),
        (STRATIFIED, lambda codes: codes[:0], "a part .0 to 2. of each of the 235 common rows from bank, got 0"),
        (STRATIFIED, lambda codes: codes.clamp(min=0) + 1, "got 235 with the largest 3"),
        # A training set of one row would expose it in every gradient of the passive party's encoders.
        (
            BY_DATE,
            lambda codes: torch.ones_like(codes).index_fill_(0, torch.tensor([0]), 0),
            "the split that bank sent",
        ),
        (BY_DATE, lambda codes: codes.clamp(max=1), "the split that bank sent: expected about"),
        (STRATIFIED, lambda codes: codes.index_fill_(0, torch.arange(40), 2), "the split that bank sent"),
    ],
    ids=["too few", "none", "no part", "one training row", "no test row", "other sizes"],
)
def test_splits_that_a_passive_party_refuses(
    split: Mapping[str, Any],
    change: Callable[[Tensor], Tensor],
    wanted: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tamper(monkeypatch, Kind.SPLIT, ACTIVE, codes_of(change))
    with pytest.raises(ProtocolError, match=wanted):
        run(job_of(split), dated(), tmp_path)


def test_a_damaged_split_is_no_split(tmp_path: Path) -> None:
    job = job_of(STRATIFIED)
    run(job, tables(), tmp_path)
    path = tmp_path / "checkpoint" / ACTIVE / SPLIT_FILE
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CheckpointError, match="the split of the run cannot be read"):
        split_of_run(job, tmp_path, ACTIVE, 235)
