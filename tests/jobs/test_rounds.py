"""Rounds by files: two files each way, a sealed release, and the refusal of every file that is not of the round."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutlayer.alignment import buckets
from cutlayer.alignment.intersection import Alignment, Purpose
from cutlayer.alignment.row_proof import SealingProof
from cutlayer.channel import Kind, link
from cutlayer.channel.grpc_files import FileClient, FileServer
from cutlayer.channel.parcel import Parcel, ParcelWriter
from cutlayer.channel.receipts import Deletion, Receipt
from cutlayer.channel.receiving import receive
from cutlayer.channel.trail import verify_trail
from cutlayer.config import Job, LimitsConfig, validated
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import (
    AlignmentError,
    ConfigError,
    CutlayerError,
    LockHeld,
    NotApproved,
    ProtocolError,
    RunFolderError,
)
from cutlayer.jobs.exchange import RECORD_FILE, RoundRecord, WaitingForFile, exchange_result
from cutlayer.jobs.expiry import check_not_expired, delete_expired
from cutlayer.jobs.links import LinkOptions, open_trail, trail_of
from cutlayer.jobs.rounds import PIECE_BYTES, Round, receive_file, send_file
from cutlayer.parties.agreement.handshake import SavedPoints, agree_active, agree_passive
from cutlayer.parties.drive.drive import drive_together
from cutlayer.parties.session.checkpoint import DRAWN_LABELS_FILE, RELEASED_FILE
from cutlayer.storage.durable import replace_whole
from cutlayer.training.latest import checked_name, latest_run, run_of, set_latest
from tests.channel.certificates import Federation
from tests.parties.runs import ACTIVE, PASSIVES, raw_job, tables

TELCO = PASSIVES[0]
NAMES = (ACTIVE, TELCO)
GIVEN = tables()
JOB = validated(Job, raw_job(bottom={"kind": "linear", "width": 4}, release="once"), "")
CONTENT = bytes(range(256)) * 5000  # more than a piece


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("keys"), TELCO)


class Rounds:
    """A round of two parties, whose release is made up."""

    def __init__(self, base: Path, federation: Federation, place: str = "predict-1-june", job: Job = JOB) -> None:
        self.base, self.federation, self.place, self.job = base, federation, place, job

    def side(self, name: str) -> Round:
        table = PartyTable(name, GIVEN[name], "id")
        folder, private = self.base / "shared" / self.place, self.base / name / self.place
        peers = self.job.peers_of(name)
        return Round(self.job, name, table, LimitsConfig(), Purpose.PREDICT, folder, private, peers)

    def links(self, name: str) -> LinkOptions:
        return LinkOptions(security=self.federation.security(name), trail=self.base / f"{name}.trail")

    def step(self, name: str) -> bool:
        """One start of a party; whether it has ended."""
        side = self.side(name)
        if exchange_result(side.private) is not None:
            return True
        try:
            with side.open(self.links(name), 0.0) as files:
                if name == ACTIVE:
                    side.lead(files)
                else:
                    side.follow(files, lambda _: side.release_of(name).write_bytes(CONTENT) and None)
                files.end({})
        except WaitingForFile:
            return False
        return True

    def until(self, *names: str) -> None:
        for name in names:
            self.step(name)


def test_a_round_is_two_files_each_way_and_the_release_is_sealed(tmp_path: Path, federation: Federation) -> None:
    rounds = Rounds(tmp_path, federation)
    assert [rounds.step(name) for name in (*NAMES, *NAMES, ACTIVE, TELCO)] == [False, False, False, True, True, True]
    files = sorted((tmp_path / "shared" / rounds.place).iterdir())
    assert [path.name for path in files] == [f"{a}~{b}~{n}.cutlayer" for a, b in (NAMES, NAMES[::-1]) for n in (0, 1)]
    assert rounds.side(ACTIVE).release_of(TELCO).read_bytes() == CONTENT
    sent = b"".join(path.read_bytes() for path in files)
    assert CONTENT[:200] not in sent
    ids = PartyTable(TELCO, GIVEN[TELCO], "id").digests
    assert not any(digest.tobytes() in sent for digest in ids)
    for name in NAMES:
        assert not verify_trail(tmp_path / f"{name}.trail").problems
    kinds = {kind for _, kind in verify_trail(tmp_path / f"{TELCO}.trail").files[-1].sent}
    assert {"proof", "file"} <= kinds
    assert rounds.side(ACTIVE).rows.read_text().count("\n") == rounds.side(TELCO).rows.read_text().count("\n")


def proofs(orders: dict[str, bytes], run: str = "run") -> tuple[SealingProof, SealingProof, Any, Any]:
    here, there = link(ACTIVE, TELCO, run)
    random = np.random.default_rng(0).bytes
    active = SealingProof(here, orders[ACTIVE], active=True, random=random)
    return active, SealingProof(there, orders[TELCO], active=False, random=random), here, there


def ended(proof: SealingProof) -> Any:
    yield from proof.begin()
    return (yield from proof.end())


def test_both_halves_of_a_proof_give_one_key_and_other_rows_give_none() -> None:
    active, passive, _, _ = proofs(dict.fromkeys(NAMES, bytes(16)))
    keys = drive_together({ACTIVE: ended(active), TELCO: ended(passive)})
    assert keys[ACTIVE] == keys[TELCO]
    assert len(keys[ACTIVE]) == 64
    active, passive, _, _ = proofs({ACTIVE: bytes(16), TELCO: bytes(15) + b"\1"})
    with pytest.raises(AlignmentError, match="other rows than it named"):
        drive_together({ACTIVE: ended(active), TELCO: ended(passive)})
    active, passive, _, _ = proofs(dict.fromkeys(NAMES, bytes(16)), run="another")
    assert drive_together({ACTIVE: ended(active), TELCO: ended(passive)})[ACTIVE] != keys[ACTIVE]


def test_rows_that_the_label_owner_does_not_hold_are_not_released_to_it(tmp_path: Path) -> None:
    """It names rows of which it does not know the ids: the partner answers, and the answer cannot be opened."""
    (tmp_path / "release").write_bytes(CONTENT)
    active, passive, here, there = proofs({ACTIVE: bytes(16), TELCO: b"\1" * 16})

    def dishonest() -> Any:
        yield from active.begin()
        for _ in range(2):  # the partner's half of the proof, which it does not compare
            proof = yield from receive(here, Kind.PROOF)
            active._theirs = active._theirs or proof.tensors["proof"].numpy().tobytes()
        # The key by the order that it guesses, and by any order that it thinks of later.
        for guess in (bytes(16), b"\1" * 16):
            guessed = SealingProof(here, guess, active=True, random=lambda count: active._scalar * 2)
            guessed._scalar, guessed._theirs = active._scalar, active._theirs
            yield from receive_file(here, tmp_path / "opened", keyed(guessed))

    def keyed(guess: SealingProof) -> bytes:
        from hashlib import blake2b

        from cutlayer.alignment.ristretto255 import multiply
        from cutlayer.alignment.row_proof import _as_point

        secret = multiply(_as_point(guess._theirs), guess._scalar).tobytes()
        return blake2b(guess._mine + guess._theirs + b"seal", key=secret, digest_size=64).digest()

    def honest() -> Any:
        yield from passive.begin()
        send_file(there, tmp_path / "release", (yield from passive.end()))

    with pytest.raises(ProtocolError, match="a file of telco that is sealed for this round"):
        drive_together({ACTIVE: dishonest(), TELCO: honest()})
    assert not (tmp_path / "opened").exists()


@pytest.mark.parametrize("key", [None, bytes(64)], ids=["open", "sealed"])
def test_a_file_arrives_as_it_was_and_no_piece_can_move(tmp_path: Path, key: bytes | None) -> None:
    (tmp_path / "sent").write_bytes(CONTENT)
    here, there = link(ACTIVE, TELCO, "run")
    send_file(there, tmp_path / "sent", key)
    assert len(here.arrived) == 2

    def reads() -> Any:
        yield from receive_file(here, tmp_path / "came", key)

    messages = [*here.arrived]
    drive_together({ACTIVE: reads()})
    assert (tmp_path / "came").read_bytes() == CONTENT
    short = replace(messages[0], fields={"last": True})
    here, there = link(ACTIVE, TELCO, "run")
    there.send(Kind.FILE, step=0, tensors=dict(short.tensors), fields=dict(short.fields))
    if key is None:  # the signature of the whole file, and the parcel in it, show that it was cut
        drive_together({ACTIVE: reads()})
        assert len((tmp_path / "came").read_bytes()) == PIECE_BYTES
    else:
        with pytest.raises(ProtocolError, match="sealed for this round"):
            drive_together({ACTIVE: reads()})


def test_files_of_another_round_or_job_are_refused(tmp_path: Path, federation: Federation) -> None:
    may, june = Rounds(tmp_path, federation, "predict-1-may"), Rounds(tmp_path, federation)
    may.until(*NAMES, *NAMES, ACTIVE)
    june.until(*NAMES, ACTIVE)
    shared = tmp_path / "shared"
    name = f"{TELCO}~{ACTIVE}~1.cutlayer"
    shutil.copy(shared / may.place / name, shared / june.place / name)  # a courier brings last month's again
    with pytest.raises(ProtocolError, match=r"number 1 of telco, run .*, got number 1 of telco, run"):
        june.step(ACTIVE)
    (shared / june.place / name).unlink()
    (shared / june.place / name).symlink_to(shared / may.place / name)
    with pytest.raises(ProtocolError, match="number 1 of telco, run"):
        june.step(ACTIVE)
    (shared / june.place / name).unlink()
    assert june.step(TELCO)
    assert june.step(ACTIVE)
    other = validated(Job, raw_job(bottom={"kind": "linear", "width": 4}, release="once", seed=9), "")
    Rounds(tmp_path, federation, "predict-1-july").step(ACTIVE)
    with pytest.raises(ProtocolError, match="holds another job than telco"):
        Rounds(tmp_path, federation, "predict-1-july", other).step(TELCO)
    with pytest.raises(ProtocolError, match="expected job 'cards' at bank, as at telco, got 'job'"):
        Rounds(tmp_path, federation, "predict-1-july", JOB.model_copy(update={"name": "cards"})).step(TELCO)
    # Nothing was sent, so that nothing binds it: the round goes on with the job and the file that fit.
    again = Rounds(tmp_path, federation, "predict-1-july")
    again.step(TELCO)
    assert (shared / again.place / f"{TELCO}~{ACTIVE}~0.cutlayer").exists()


def test_a_file_that_was_read_stays_as_it_was(tmp_path: Path, federation: Federation) -> None:
    rounds = Rounds(tmp_path, federation)
    rounds.until(*NAMES, ACTIVE)
    path = tmp_path / "shared" / rounds.place / f"{TELCO}~{ACTIVE}~0.cutlayer"
    parcel = Parcel(path, ACTIVE, None)
    messages = [*parcel.messages()]
    path.unlink()
    with ParcelWriter(path, replace(parcel.head, made="2026-01-01 00:00:00"), federation.security(TELCO)) as writer:
        for message in messages:
            writer.add(message)
    with pytest.raises(ProtocolError, match="as it was when it came, got another file"):
        rounds.step(ACTIVE)


def test_a_kill_between_a_file_and_its_record_leaves_the_file(
    tmp_path: Path, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The label owner may have read it: the same messages under another time would be another file to it."""
    rounds = Rounds(tmp_path, federation)
    rounds.step(ACTIVE)
    path = tmp_path / "shared" / rounds.place / f"{TELCO}~{ACTIVE}~0.cutlayer"

    def killed(given: object, *_: object, **__: object) -> None:
        if isinstance(given, ParcelWriter) and given._file is not None:
            given._file.close()  # as the system closes the files of a process that is killed
        raise KeyboardInterrupt

    def published_and_killed(*given: Any) -> None:
        replace_whole(*given)
        raise KeyboardInterrupt

    leave = ParcelWriter.__exit__

    def written_and_killed(*given: Any) -> None:
        leave(*given)
        raise KeyboardInterrupt

    kills = {
        "ParcelWriter.__exit__": written_and_killed,  # not noted: written again
        "check_output": killed,  # noted, and not published
        "replace_whole": published_and_killed,
    }
    for where, kill in kills.items():
        with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
            patched.setattr(f"cutlayer.jobs.exchange.{where}", kill)
            rounds.step(TELCO)
    written = path.read_bytes()
    path.rename(tmp_path / "moved")  # by a courier, before the file was noted as published
    rounds.step(TELCO)
    assert path.read_bytes() == written
    rounds.until(ACTIVE, TELCO)
    assert path.read_bytes() == written
    assert rounds.step(ACTIVE)


def test_the_permissions_are_those_of_the_folder_that_is_shared(tmp_path: Path, federation: Federation) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o770)
    rounds = Rounds(tmp_path, federation)
    rounds.until(*NAMES)
    place = tmp_path / "shared" / rounds.place
    assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o660}
    assert place.stat().st_mode & 0o777 == 0o770
    assert (tmp_path / ACTIVE / rounds.place).stat().st_mode & 0o077 == 0


def test_points_of_all_buckets_are_sent_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "BUCKET_ROWS", 64)
    opened = {name: PartyTable(name, GIVEN[name], "id") for name in NAMES}
    found, turns = {}, {}
    for ahead in (False, True):
        here, there = link(ACTIVE, TELCO, "run")
        how = Alignment("psi", Purpose.ALIGN, processes=1, sends_ahead=ahead)
        waits: list[str] = []
        active = agree_active(JOB, opened[ACTIVE], ACTIVE, {TELCO: here}, [], LimitsConfig(), how)
        passive = agree_passive(JOB, opened[TELCO], there, SavedPoints(), LimitsConfig(), how)
        both = drive_together({ACTIVE: counted(active, here, waits), TELCO: passive})
        found[ahead] = both[ACTIVE].positions.tolist(), both[TELCO].positions.tolist()
        assert here.sent[Kind.MASKED] == 4
        turns[ahead] = len(waits)
    assert found[False] == found[True]
    assert turns[True] < turns[False], "turns of the active party, in which it waits"


def counted(party: Any, port: Any, waits: list[str]) -> Any:
    """Counts how often a party has to wait for something that has not come."""
    event = None
    try:
        while True:
            waited = party.send(event) if event is not None else next(party)
            if not port.arrived:
                waits.append(port.peer)
            event = yield waited
    except StopIteration as end:
        return end.value


@pytest.mark.parametrize(
    ("forgotten", "made", "is_older"),
    [
        ("2026-05-01T10:00:05.400000Z", "2026-05-01 10:00:05.399999", True),
        ("2026-05-01T10:00:05.400000Z", "2026-05-01 10:00:05.400001", False),
        ("2026-05-01T10:00:05Z", "2026-05-01 10:00:05.999999", True),  # by an earlier version, to a second
        ("2026-05-01T10:00:05Z", "2026-05-01 10:00:06", False),
    ],
)
def test_a_release_is_refused_that_its_sender_made_before_it_forgot(
    tmp_path: Path, forgotten: str, made: str, is_older: bool
) -> None:
    stated = {"party": "telco", "job": JOB.digest(), "identities": {}, "time": forgotten}
    deletion = Deletion(**stated, what="rows of telco", rows="0" * 64, deleted=(), remains=())
    Receipt.of(deletion, None).add_to(tmp_path)
    with pytest.raises(ProtocolError, match="a release since telco forgot") if is_older else nullcontext():
        check_not_expired(JOB, made, "june.release", "telco", tmp_path)


def test_what_a_job_does_not_keep_is_refused_and_deleted(tmp_path: Path, federation: Federation) -> None:
    job = JOB.model_copy(update={"keep": "400 days"})
    assert job.digest() != JOB.digest()
    check_not_expired(job, "2099-01-01 00:00:00", "june.release")
    with pytest.raises(ProtocolError, match=r"june\.release: a release of the last 400 days.*got one of 2025-01-01"):
        check_not_expired(job, "2025-01-01 00:00:00", "june.release")
    with pytest.raises(ProtocolError, match="the day on which it was made"):
        check_not_expired(job, "soon", "june.release")
    with pytest.raises(ConfigError, match="keep"):
        validated(Job, {**raw_job(), "keep": "for ever"}, "")
    old, new = Rounds(tmp_path, federation, "predict-1-may"), Rounds(tmp_path, federation)
    endless = Rounds(tmp_path, federation, "train-1")
    for rounds in (old, new):
        rounds.until(*NAMES, *NAMES, ACTIVE)
    endless.until(*NAMES, ACTIVE)
    endless.side(ACTIVE).labels_for(TELCO).touch()
    run = tmp_path / f"{ACTIVE}-1" / "checkpoint" / ACTIVE
    run.mkdir(parents=True)
    for name in (DRAWN_LABELS_FILE, RELEASED_FILE, "epoch-3"):
        (run / name).touch()
    further = tmp_path / f"{ACTIVE}-1" / "labels" / "churn" / "checkpoint" / ACTIVE / RELEASED_FILE
    further.parent.mkdir(parents=True)
    further.hardlink_to(run / RELEASED_FILE)
    for rounds in (old, endless):
        record = tmp_path / ACTIVE / rounds.place / "exchange.json"
        text = record.read_text()
        begun = text.index('"begun": "') + len('"begun": "')
        record.write_text(text[:begun] + "2024" + text[begun + 4 :])
    links = old.links(ACTIVE)
    trail = open_trail(job, ACTIVE, tmp_path / f"{ACTIVE}.trail", links.security)
    assert delete_expired(JOB, ACTIVE, tmp_path / ACTIVE, tmp_path / "shared", trail) == []  # no limit
    assert delete_expired(job, ACTIVE, tmp_path / ACTIVE, tmp_path / "shared", trail) == [old.place, endless.place]
    assert delete_expired(job, ACTIVE, tmp_path / ACTIVE, tmp_path / "shared", trail) == []
    trail.close()
    assert not old.side(ACTIVE).release_of(TELCO).exists()
    assert not endless.side(ACTIVE).labels_for(TELCO).exists(), "also of a round that never ended"
    assert [path.name for path in run.iterdir()] == ["epoch-3"]
    assert not further.exists(), "the model of a further label has the same release"
    assert not any((tmp_path / "shared" / rounds.place).exists() for rounds in (old, endless))
    assert new.side(ACTIVE).release_of(TELCO).exists()
    assert exchange_result(tmp_path / ACTIVE / old.place) is not None, "the round stays known as ended"
    noted = verify_trail(tmp_path / f"{ACTIVE}.trail")
    assert not noted.problems
    assert noted.files[-1].sent[(ACTIVE, "expired")] == (2, 0)


def test_without_a_trail_nothing_is_sent_where_approvals_are_required() -> None:
    """They are noted on it, and it is where every message asks for them."""
    assert trail_of(JOB, TELCO, LinkOptions()) is None
    with pytest.raises(NotApproved, match="egress trail"):
        trail_of(validated(Job, {**raw_job(), "approvals": "required"}, ""), TELCO, LinkOptions())


@pytest.mark.parametrize("name", ["", "..", "../telco", "a/b", "-x", "june\n", "x" * 41, "\u00e9t\u00e9"])
def test_names_that_are_no_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="a name of up to 40 letters"):
        checked_name(name)
    if name:
        (tmp_path / "job-bank.latest").write_text(name)
        with pytest.raises(RunFolderError, match="the name of a version of job-bank"):
            latest_run(tmp_path / "job-bank")


def test_the_latest_version_is_the_one_that_was_named_last(tmp_path: Path) -> None:
    base = tmp_path / "job-bank"
    assert latest_run(base) is None
    for version in ("1", "2026-07"):
        set_latest(base, run_of(base, version))
        assert latest_run(base) == tmp_path / f"job-bank-{version}"


def test_a_planted_file_is_not_replaced(tmp_path: Path, federation: Federation) -> None:
    """The partner puts a link to a file of the label owner where its next file goes."""
    rounds = Rounds(tmp_path, federation)
    rounds.until(*NAMES)
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / "shared" / rounds.place / f"{ACTIVE}~{TELCO}~1.cutlayer").symlink_to(mine)
    with pytest.raises(CutlayerError, match="expected no file at"):
        rounds.step(ACTIVE)
    assert mine.read_text() == "mine"


def test_a_planted_file_of_any_size_is_refused_unread(tmp_path: Path, federation: Federation) -> None:
    """A sparse file takes no disk, and would take all memory."""
    rounds = Rounds(tmp_path, federation)
    rounds.until(*NAMES)
    planted = tmp_path / "shared" / rounds.place / f"{ACTIVE}~{TELCO}~1.cutlayer"
    with planted.open("wb") as file:
        file.truncate(1 << 43)  # more than any memory, and less than any file system refuses
    with pytest.raises(CutlayerError, match="expected no file at"):
        rounds.step(ACTIVE)


def test_a_round_in_a_link_is_not_begun(tmp_path: Path, federation: Federation) -> None:
    """A partner that may write in the shared folder makes the label owner's next round a link to a place of its own."""
    rounds = Rounds(tmp_path, federation)
    elsewhere = tmp_path / ACTIVE / "empty"
    elsewhere.mkdir(parents=True)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / rounds.place).symlink_to(elsewhere)
    for name in NAMES:
        with pytest.raises(RunFolderError, match="a link, which another party may lead anywhere"):
            rounds.step(name)
    assert not [*elsewhere.iterdir()]


def test_another_rounds_files_begin_no_round(tmp_path: Path, federation: Federation) -> None:
    """Who sees the folder puts a whole round of May, signed by both, in the place of June's."""
    may, june = Rounds(tmp_path, federation, "predict-1-may"), Rounds(tmp_path, federation)
    may.until(*NAMES, *NAMES, ACTIVE)
    shutil.copytree(tmp_path / "shared" / may.place, tmp_path / "shared" / june.place)
    with pytest.raises(RunFolderError, match="an empty folder"):
        june.step(ACTIVE)
    for _ in range(2):
        with pytest.raises(ProtocolError, match="a file of predict-1-june, got one of another"):
            june.step(TELCO)
        for path in (tmp_path / "shared" / june.place).glob(f"{TELCO}~*"):  # those of the label owner alone
            path.unlink()
    assert not june.side(TELCO).release_of(TELCO).exists(), "nothing was released"
    assert not (june.side(TELCO).private / "exchange.json").exists(), "it can begin once June's files are there"


def test_two_starts_of_a_round_exclude_each_other(tmp_path: Path, federation: Federation) -> None:
    rounds = Rounds(tmp_path, federation)
    rounds.step(ACTIVE)
    with rounds.side(ACTIVE).open(rounds.links(ACTIVE), 0.0), pytest.raises(LockHeld, match="another start of this"):
        rounds.step(ACTIVE)


def test_a_clock_that_goes_back_makes_no_release_young(tmp_path: Path, federation: Federation) -> None:
    """A round that began later than now is not deleted before its days are over; nor does it end another's."""
    job = JOB.model_copy(update={"keep": "1 days"})
    rounds = Rounds(tmp_path, federation)
    rounds.until(*NAMES)
    record = tmp_path / ACTIVE / rounds.place / "exchange.json"
    for begun, deleted in (
        ("2999-01-01 00:00:00+00:00", []),
        ("2001-01-01 00:00:00", []),
        (7, []),
        ("x", []),
        ("2001-01-01T00:00:00Z", [rounds.place]),
    ):
        state = json.loads(record.read_text())
        record.write_text(json.dumps({**state, "begun": begun}))
        assert delete_expired(job, ACTIVE, tmp_path / ACTIVE, tmp_path / "shared", None) == deleted


def test_a_record_names_the_parties_whose_end_is_waited_for(tmp_path: Path) -> None:
    for content, peers in (({"parcels": {"telco": 0, "shop": 2}}, ("telco", "shop")), ({"ended": True}, ())):
        (tmp_path / RECORD_FILE).write_text(json.dumps(content))
        assert tuple(RoundRecord.read(tmp_path).parcels) == peers


def test_what_cannot_be_deleted_does_not_end_the_months_work(
    tmp_path: Path, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partner's folder within the shared one may be closed to this party."""
    job = JOB.model_copy(update={"keep": "1 days"})
    rounds = Rounds(tmp_path, federation)
    rounds.until(*NAMES, *NAMES, ACTIVE)
    record = tmp_path / ACTIVE / rounds.place / "exchange.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "begun": "2001-01-01 00:00:00+00:00"}))

    def refused(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(shutil, "rmtree", refused)
    [said] = delete_expired(job, ACTIVE, tmp_path / ACTIVE, tmp_path / "shared", None)
    assert said.startswith(f"{rounds.place}, but for {tmp_path / 'shared' / rounds.place}: Permission denied")
    assert not rounds.side(ACTIVE).release_of(TELCO).exists(), "all else is deleted"


def test_a_round_by_tls_is_settled_in_any_later_start(
    tmp_path: Path, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partner is killed when its last file has arrived, before it notes that; the label owner has all it needs."""
    rounds, folders = Rounds(tmp_path, federation), {name: tmp_path / f"{name}-files" for name in NAMES}

    def server() -> FileServer:
        security = federation.security(ACTIVE)
        return FileServer("127.0.0.1:0", ACTIVE, (TELCO,), folders[ACTIVE], lambda: None, security=security)

    def start(name: str, courier: FileServer | FileClient) -> None:
        side = replace(rounds.side(name), folder=folders[name] / rounds.place, courier=courier)
        with side.open(rounds.links(name), 60.0) as files:
            if name == ACTIVE:
                side.lead(files)
            else:
                side.follow(files, lambda _: side.release_of(name).write_bytes(CONTENT) and None)
            files.end({"name": name})

    def client(listening: FileServer) -> FileClient:
        return FileClient(listening.address, TELCO, ACTIVE, lambda: None, security=federation.security(TELCO))

    write = RoundRecord.write

    def killed(record: RoundRecord, private: Path) -> None:
        if record.ended and private == rounds.side(TELCO).private:
            raise KeyboardInterrupt
        write(record, private)

    with server() as first, client(first) as telco, ThreadPoolExecutor(1) as threads:
        leading = threads.submit(start, ACTIVE, first)
        monkeypatch.setattr(RoundRecord, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            start(TELCO, telco)
        leading.result()
        monkeypatch.setattr(RoundRecord, "write", write)
    private = {name: rounds.side(name).private for name in NAMES}
    assert [exchange_result(private[name]) for name in NAMES] == [{"name": ACTIVE}, None]
    assert rounds.side(ACTIVE).release_of(TELCO).read_bytes() == CONTENT
    sent = {path.name: path.read_bytes() for path in folders[ACTIVE].rglob("*.cutlayer")}
    with server() as later, client(later) as telco:
        start(TELCO, telco)
        telco.finish(folders[TELCO] / rounds.place, (ACTIVE,), 0)
        later.finish(folders[ACTIVE] / rounds.place, (TELCO,), 60)
    assert exchange_result(private[TELCO]) == {"name": TELCO}
    assert {path.name: path.read_bytes() for path in folders[ACTIVE].rglob("*.cutlayer")} == sent
    assert {path.name: path.read_bytes() for path in folders[TELCO].rglob("*.cutlayer")} == sent
