"""Grades by files: one with drawn labels, one with grades; the run is that of one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import csv, parquet
from safetensors.torch import load_file

from cutlayer.channel import Kind, Message
from cutlayer.channel.parcel import Head, Parcel, ParcelWriter
from cutlayer.channel.trail import verify_trail
from cutlayer.config import Job, validated
from cutlayer.data.align import intersect, intersect_each
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import ConfigError, CutlayerError, ProtocolError, RunFolderError
from cutlayer.jobs.courier import open_labels, open_releases
from cutlayer.jobs.links import LinkOptions
from cutlayer.jobs.options import Options, Progress
from cutlayer.jobs.party import run_party
from cutlayer.jobs.release_file import release_labels, release_training
from cutlayer.kernels.rows.grade_columns import grades_of_columns
from cutlayer.parties.drive.by_links import drive_over_links
from cutlayer.serving.between import PredictionSide, request_predictions
from cutlayer.serving.by_file import release_prediction, with_agreed_rows
from cutlayer.serving.prediction_release import PredictionReleases
from cutlayer.training.folder import RunFolder
from cutlayer.training.held_out_predictions import predictions_path
from cutlayer.training.keys import Keys
from tests.channel.certificates import Federation
from tests.jobs.test_keys import same_halves
from tests.parties.runs import ACTIVE, KEY, raw_job, run, tables
from tests.parties.test_grades import TELCO, raw
from tests.parties.test_private_grades import FIXED, PRIVATE

NAMES = (ACTIVE, TELCO)
LABELS, RELEASE = "bank.labels", "telco.release"
GIVEN = tables(rows=300)
GIVEN[TELCO] = GIVEN[TELCO].slice(0, 250)


def job_of(rows: str, by: str | None = None, *, private: bool = False) -> Job:
    made = raw(epsilon=2.0)
    made["rows"] = rows
    if private:
        made["parties"][TELCO] |= {"fit": PRIVATE, "features": FIXED}
    if by is not None:
        made["train"]["split"] |= {"by": by, "public": True}
    return validated(Job, made, "")


COMMON = job_of("common")


def write_rows(folder: Path, rows: str) -> None:
    """The rows of the run, as `cutlayer align` writes them at each party."""
    opened = {name: PartyTable(name, GIVEN[name], "id") for name in NAMES}
    digests = {name: table.digests for name, table in opened.items()}
    positions, held = intersect_each(ACTIVE, digests) if rows == "all" else (intersect(digests), {})
    for name, of_table in positions.items():
        columns: dict[str, Any] = {"row": of_table, "id": opened[name].ids(of_table)}
        if name == ACTIVE and rows == "all":
            there = np.zeros(len(of_table), dtype=bool)
            there[held[TELCO]] = True
            columns[TELCO] = there
        csv.write_csv(pa.table(columns), folder / f"{name}-rows.csv")


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("keys"), TELCO)


def links_of(folder: Path, federation: Federation | None, name: str, **more: Any) -> LinkOptions:
    security = None if federation is None else federation.security(name)
    trail = folder / f"{name}.trail"
    return LinkOptions(security=security, rows=folder / f"{name}-rows.csv", trail=trail, **more)


def options_of(folder: Path, **more: Any) -> Options:
    return Options(Keys(folder, KEY), tables=GIVEN, **more)


def by_files(job: Job, folder: Path, federation: Federation | None = None) -> None:
    """All of it: labels, grades, and the label owner's model."""
    options = options_of(folder)
    release_labels(job, folder / LABELS, folder / ACTIVE, options, links_of(folder, federation, ACTIVE))
    links = links_of(folder, federation, TELCO)
    release_training(job, TELCO, folder / RELEASE, folder / TELCO, options, links, folder / LABELS)
    links = links_of(folder, federation, ACTIVE, releases=(folder / RELEASE,))
    run_party(job, ACTIVE, folder / ACTIVE, options, Progress(), links)


@pytest.fixture(scope="module")
def filed(tmp_path_factory: pytest.TempPathFactory, federation: Federation) -> Path:
    folder = tmp_path_factory.mktemp("filed")
    write_rows(folder, "common")
    by_files(COMMON, folder, federation)
    return folder


def grades(folder: Path) -> torch.Tensor:
    return grades_of_columns(load_file(folder / "checkpoint" / TELCO / "released.safetensors")["released"])


def kinds(path: Path, receiver: str) -> list[Kind]:
    return [message.kind for message in Parcel(path, receiver, None).messages()]


def test_one_file_each_way_has_a_byte_a_row(filed: Path) -> None:
    assert kinds(filed / LABELS, TELCO) == ["hello", "ready", "labels"]
    assert kinds(filed / RELEASE, ACTIVE) == ["hello", "ready", *["release"] * 2, "evidence", "close"]
    (labels,) = [each for each in Parcel(filed / LABELS, TELCO, None).messages() if each.kind is Kind.LABELS]
    sent = [each for each in Parcel(filed / RELEASE, ACTIVE, None).messages() if each.kind is Kind.RELEASE]
    assert sum(each.nbytes for each in sent) == len(grades(filed / TELCO))
    assert labels.nbytes == len(sent[0].tensors["embedding"])
    assert not verify_trail(filed / f"{ACTIVE}.trail").problems
    counted = {kind: count for (_, kind), (count, _) in verify_trail(filed / f"{ACTIVE}.trail").files[0].sent.items()}
    assert counted == {"hello": 1, "ready": 1, "labels": 1}


@pytest.mark.parametrize(("rows", "by", "private"), [("common", None, False), ("all", "bank_0", True)])
def test_the_run_by_files_is_that_of_one_process(
    filed: Path, tmp_path: Path, rows: str, by: str | None, *, private: bool
) -> None:
    """Rows that the partner lacks, a split that the label owner sends, and a private fit included."""
    job, folder = job_of(rows, by, private=private), filed
    if job != COMMON:
        folder = tmp_path / "files"
        folder.mkdir()
        write_rows(folder, rows)
        by_files(job, folder)
    run(job, GIVEN, tmp_path / "whole")
    same_halves(job, {name: folder / name for name in NAMES}, tmp_path / "whole")
    assert torch.equal(grades(folder / TELCO), grades(tmp_path / "whole"))


def test_new_rows_are_one_file_without_labels(filed: Path, federation: Federation, tmp_path: Path) -> None:
    folder = RunFolder(filed / TELCO)
    side = PredictionSide.open(COMMON, folder, TELCO, GIVEN[TELCO], COMMON.parties[TELCO].limits)
    side = with_agreed_rows(side, filed / f"{TELCO}-rows.csv")
    path = tmp_path / "new.release"
    security = federation.security(TELCO)
    assert (
        release_prediction(side, PredictionReleases(COMMON, folder, TELCO, side.width, KEY), path, security, None)
        == 250
    )
    sent = [each for each in Parcel(path, ACTIVE, None).messages() if each.kind is Kind.EVALUATION]
    assert sum(each.nbytes for each in sent) == 250
    active = PredictionSide.open(
        COMMON, RunFolder(filed / ACTIVE), ACTIVE, GIVEN[ACTIVE], COMMON.parties[ACTIVE].limits
    )
    active = with_agreed_rows(active, filed / f"{ACTIVE}-rows.csv")
    with open_releases(COMMON, [TELCO], [path], federation.security(ACTIVE)) as links:
        answered = drive_over_links(request_predictions(active, links.ports), links, 1.0)
    scores = dict(zip(answered.ids.to_pylist(), answered.logits.sigmoid().flatten().tolist(), strict=True))
    tested = parquet.read_table(predictions_path(RunFolder(filed / ACTIVE)))
    assert tested.num_rows > 50
    for row, score in zip(tested.column(0).to_pylist(), tested.column(1).to_pylist(), strict=True):
        assert scores[row] == pytest.approx(score, abs=1e-6)


def rewritten(
    path: Path, to: Path, change: Any, head: Head | None = None, federation: Federation | None = None
) -> Path:
    """A file with other messages, signed by the one that names itself as its sender."""
    parcel = Parcel(path, TELCO, None)
    head = head or parcel.head
    with ParcelWriter(to, head, None if federation is None else federation.security(head.sender)) as writer:
        for message in change([*parcel.messages()]):
            writer.add(message)
    return to


def refused(filed: Path, folder: Path, labels: Path | None, federation: Federation | None = None) -> str:
    """The refusal of a file of labels at the partner, from which nothing is released then."""
    links = LinkOptions(
        security=None if federation is None else federation.security(TELCO), rows=filed / f"{TELCO}-rows.csv"
    )
    with pytest.raises(CutlayerError) as refusal:
        release_training(COMMON, TELCO, folder / "out", folder / "run", options_of(folder), links, labels)
    assert not (folder / "out").exists()
    return f"{type(refusal.value).__name__}: {refusal.value}"


def again(messages: list[Message]) -> list[Message]:
    return [*messages, messages[-1]]


def asked(messages: list[Message]) -> list[Message]:
    request = Message(Kind.CLOSE, ACTIVE, TELCO, messages[0].run, -1, -1, len(messages), fields={"reason": "done"})
    return [*messages, request]


def of_other_classes(messages: list[Message]) -> list[Message]:
    last = messages[-1]
    return [*messages[:-1], replace(last, tensors={"labels": last.tensors["labels"] + 1})]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (again, "message 3 from bank, got message 2 again"),
        (asked, "a file of cutlayer release with labels, got close"),
        (of_other_classes, "drawn labels from bank"),
        (lambda messages: messages[:1], "expected ready of epoch -1"),
    ],
)
def test_a_file_of_labels_that_is_not_one_is_refused(filed: Path, tmp_path: Path, change: Any, said: str) -> None:
    """Whoever signed it."""
    assert said in refused(filed, tmp_path, rewritten(filed / LABELS, tmp_path / "changed", change))


def test_labels_of_somebody_else_are_refused(filed: Path, federation: Federation, tmp_path: Path) -> None:
    whole, unsigned = filed / LABELS, tmp_path / "unsigned"
    rewritten(whole, unsigned, list)
    assert "TrustError" in refused(filed, tmp_path, unsigned, federation)
    own = Head(TELCO, TELCO, Parcel(whole, TELCO, None).head.run)
    forged = rewritten(whole, tmp_path / "forged", list, own, federation)
    assert "messages of bank, got messages of telco" in refused(filed, tmp_path, forged, federation)
    content = bytearray(whole.read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "changed").write_bytes(content)
    assert "was changed on the way" in refused(filed, tmp_path, tmp_path / "changed", federation)
    assert "messages to telco, got messages to bank" in refused(filed, tmp_path, filed / RELEASE, federation)
    assert "drawn labels, which telco grades rows by, got none" in refused(filed, tmp_path, None)
    assert "holds another job than telco" in _of_another_job(filed, tmp_path)


def _of_another_job(filed: Path, folder: Path) -> str:
    other = validated(Job, raw(epsilon=2.0, seed=4), "")
    links = LinkOptions(rows=filed / f"{ACTIVE}-rows.csv")
    (path,) = release_labels(other, folder / "other", folder / "owner", options_of(folder), links).values()
    return refused(filed, folder, path)


def test_grades_by_other_labels_are_refused(filed: Path, tmp_path: Path) -> None:
    """As those of a file that was written before, which a courier may bring in place of the last one."""
    links = LinkOptions(rows=filed / f"{ACTIVE}-rows.csv", releases=(filed / RELEASE,))
    with pytest.raises(ConfigError, match="the run folder from which bank wrote the drawn labels, got"):
        run_party(COMMON, ACTIVE, tmp_path / "run", options_of(tmp_path), Progress(), links)
    release_labels(COMMON, tmp_path / LABELS, tmp_path / "run", options_of(tmp_path), links)
    with pytest.raises(ProtocolError, match="a release of telco by the labels that it was sent for this run"):
        run_party(COMMON, ACTIVE, tmp_path / "run", options_of(tmp_path), Progress(), links)


def test_labels_that_are_written_again_are_the_same(filed: Path, tmp_path: Path) -> None:
    folder, links = tmp_path / "run", LinkOptions(rows=filed / f"{ACTIVE}-rows.csv")
    files = [tmp_path / "first", tmp_path / "second"]
    for path in files:
        release_labels(COMMON, path, folder, options_of(tmp_path, resume=path != files[0]), links)
    with pytest.raises(RunFolderError, match="no file at"):
        release_labels(COMMON, files[0], folder, options_of(tmp_path, resume=True), links)
    sent = [list(Parcel(path, TELCO, None).messages()) for path in (*files, filed / LABELS)]
    assert len({Parcel(path, TELCO, None).head.run for path in files}) == 1
    assert all(torch.equal(each[-1].tensors["labels"], sent[0][-1].tensors["labels"]) for each in sent)


def test_each_partner_has_a_file_of_its_own(tmp_path: Path) -> None:
    made = raw()
    made["parties"]["shop"] = {**made["parties"][TELCO]}
    made["model"]["bottom"]["shop"] = made["model"]["bottom"][TELCO]
    given = {**GIVEN, TELCO: tables(passives=2, rows=300)[TELCO], "shop": tables(passives=2, rows=300)["shop"]}
    job, options = validated(Job, made, ""), Options(Keys(tmp_path, KEY), tables={**given, ACTIVE: given[ACTIVE]})
    same = intersect({name: PartyTable(name, table, "id").digests for name, table in given.items()})
    for name, positions in same.items():
        ids = PartyTable(name, given[name], "id").ids(positions)
        csv.write_csv(pa.table({"row": positions, "id": ids}), tmp_path / f"{name}-rows.csv")
    files = release_labels(
        job, tmp_path / "owner.labels", tmp_path / ACTIVE, options, LinkOptions(rows=tmp_path / f"{ACTIVE}-rows.csv")
    )
    assert {name: path.name for name, path in files.items()} == {
        TELCO: "owner-telco.labels",
        "shop": "owner-shop.labels",
    }
    for name, path in files.items():
        links = LinkOptions(rows=tmp_path / f"{name}-rows.csv")
        release_training(job, name, tmp_path / f"{name}.release", tmp_path / name, options, links, path)
    releases = tuple(tmp_path / f"{name}.release" for name in files)
    links = LinkOptions(rows=tmp_path / f"{ACTIVE}-rows.csv", releases=releases)
    run_party(job, ACTIVE, tmp_path / ACTIVE, options, Progress(), links)
    assert RunFolder(tmp_path / ACTIVE).has_ended


def test_a_partner_that_is_sent_nothing_takes_no_file(tmp_path: Path) -> None:
    job = validated(Job, raw_job(bottom={"kind": "linear", "width": 4}, release="once"), "")
    with pytest.raises(ConfigError, match="no --labels at telco, which grades no rows"):
        open_labels(job, TELCO, tmp_path / "file", None, print)
    with pytest.raises(ConfigError, match="a partner that grades rows by drawn labels, to write them to a file"):
        release_labels(job, tmp_path / "out", tmp_path / "run", options_of(tmp_path), LinkOptions())
