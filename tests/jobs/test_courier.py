"""Releases and alignments in files: the run of one process, and the refusal of every file that is not what it says."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tracemalloc
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pytest
import torch
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pyarrow import csv, parquet

from cutlayer.accounting import Ledger
from cutlayer.alignment.agreed_rows import agreed_rows
from cutlayer.alignment.intersection import Alignment, Purpose
from cutlayer.channel.parcel import Head, Parcel, ParcelWriter
from cutlayer.channel.tls.names import identity_of, key_fingerprint
from cutlayer.channel.tls.signing import check_signature
from cutlayer.channel.trail import verify_trail
from cutlayer.config import Job, TableConfig, validated
from cutlayer.config.load import load_closed_job
from cutlayer.data.align import intersect
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import (
    AlignmentError,
    CheckpointError,
    ConfigError,
    CutlayerError,
    LockHeld,
    PeerLost,
    ProtocolError,
    RunFolderError,
    TrustError,
)
from cutlayer.jobs import align as aligning
from cutlayer.jobs.audit import audit_again, audit_passive_again
from cutlayer.jobs.courier import check_release_by_file, open_releases
from cutlayer.jobs.exchange import WaitingForFile
from cutlayer.jobs.links import LinkOptions
from cutlayer.jobs.options import Options, Progress
from cutlayer.jobs.party import run_party
from cutlayer.jobs.release_file import release_training
from cutlayer.parties.drive.by_links import drive_over_links
from cutlayer.report.build import build_report
from cutlayer.report.passive.build import build_passive
from cutlayer.report.passive.page import passive_html, passive_markdown
from cutlayer.report.sections.run import job_section as job_section
from cutlayer.results.report import Report
from cutlayer.results.run_files import RunFiles, files_statement
from cutlayer.serving.between import PredictionSide, request_predictions
from cutlayer.serving.by_file import release_prediction, with_agreed_rows
from cutlayer.serving.models import PartyModel
from cutlayer.serving.prediction_release import PredictionReleases
from cutlayer.storage.durable import locked
from cutlayer.training import file_digests
from cutlayer.training.file_digests import DIGESTS_FILE, FileDigests, compare_files, warn_of_changes, write_digests
from cutlayer.training.folder import RunFolder
from cutlayer.training.held_out_predictions import predictions_path
from cutlayer.training.keys import Keys
from cutlayer.training.process import one_blas_thread
from cutlayer.training.training_folder import training_folder
from tests.channel.certificates import Federation
from tests.parties.interruptions import halves, history
from tests.parties.runs import ACTIVE, KEY, PASSIVES, raw_job, run, tables

NAMES = (ACTIVE, *PASSIVES[:2])
TELCO, SHOP = PASSIVES[:2]
GIVEN = tables(passives=2)
SEEN_ON = pa.array([f"2026-01-{row % 28 + 1:02}" for row in range(len(GIVEN[TELCO]))])
GIVEN[TELCO] = GIVEN[TELCO].append_column("seen_on", SEEN_ON)  # dates as text
BOTTOMS = {ACTIVE: {"kind": "auto"}, TELCO: {"kind": "linear", "width": 4}, SHOP: {"kind": "linear", "width": 3}}


def raw(**train: Any) -> dict[str, Any]:
    top = {"kind": "auto", "candidates": ["linear", "boosting"]}
    made = raw_job(passives=2, bottom=BOTTOMS, top=top, privacy={"label_free": {}}, release="once", **train)
    for name in (TELCO, SHOP):
        made["parties"][name] |= {"fit": {"kind": "sketch"}, "features": {"numbers": {"quantiles": 4}}}
    return made


JOB = validated(Job, raw(), "")


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("together")
    run(JOB, GIVEN, folder, key=KEY)
    return folder


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("keys"), TELCO, SHOP)


def write_rows(folder: Path) -> dict[str, Path]:
    """The common rows, as `cutlayer align` writes them at each party."""
    opened = {name: PartyTable(name, GIVEN[name], "id") for name in NAMES}
    files = {}
    for name, positions in intersect({name: table.digests for name, table in opened.items()}).items():
        files[name] = folder / f"{name}-rows.csv"
        csv.write_csv(pa.table({"row": positions, "id": opened[name].ids(positions)}), files[name])
    return files


def options(folder: Path) -> Options:
    return Options(Keys(folder, KEY), tables=GIVEN)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory, federation: Federation) -> Path:
    """A folder with the common rows, the files of both partners, and their run folders."""
    folder = tmp_path_factory.mktemp("released")
    rows = write_rows(folder)
    for name in (TELCO, SHOP):
        links = LinkOptions(security=federation.security(name), rows=rows[name], trail=folder / f"{name}.trail")
        release_training(JOB, name, folder / f"{name}.release", folder / name, options(folder), links)
    return folder


def links_of(released: Path, federation: Federation, *files: Path) -> LinkOptions:
    return LinkOptions(
        security=federation.security(ACTIVE),
        releases=files or tuple(released / f"{name}.release" for name in (TELCO, SHOP)),
        rows=released / f"{ACTIVE}-rows.csv",
    )


@pytest.fixture(scope="module")
def led(released: Path, federation: Federation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of the label owner, who reads the files."""
    out = tmp_path_factory.mktemp("led") / "run"
    run_party(JOB, ACTIVE, out, options(released), Progress(), links_of(released, federation))
    return out


def test_the_run_by_files_is_that_of_one_process_to_the_last_bit(released: Path, led: Path, together: Path) -> None:
    whole = halves(together, JOB)
    for name, folder in {ACTIVE: led, TELCO: released / TELCO, SHOP: released / SHOP}.items():
        one = _half(folder, name)
        assert one.keys() == whole[name].keys()
        different = [key for key, value in whole[name].items() if not bool((one[key] == value).all())]
        assert not different, (name, different)
    assert history(led) == history(together)


def test_a_label_owner_that_was_killed_once_it_had_read_the_files_reads_them_again(
    released: Path, federation: Federation, led: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The releases are stored by then, and the rest of what the files say is not."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    links = links_of(released, federation)
    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr("cutlayer.parties.agreement.partners.Partners.save", killed)
        run_party(JOB, ACTIVE, tmp_path / "run", options(released), Progress(), links)
    assert [*(tmp_path / "run").glob("checkpoint/*/released.safetensors")]
    again = replace(options(released), resume=True)
    run_party(JOB, ACTIVE, tmp_path / "run", again, Progress(), links)
    one, other = _half(tmp_path / "run", ACTIVE), _half(led, ACTIVE)
    assert all(bool((other[key] == value).all()) for key, value in one.items())


def _half(folder: Path, name: str) -> dict[str, Any]:
    alone = JOB.model_copy(update={"parties": {name: JOB.parties[name]}})
    return halves(folder, alone)[name]


def test_the_partner_has_an_account_and_a_trail_of_what_is_in_its_file(released: Path) -> None:
    ledger = Ledger.from_json(RunFolder(released / TELCO).read_json("ledger.json"))
    assert ledger.totals == ()  # nothing protects the columns of this job, and the file says so
    kept = verify_trail(released / "telco.trail")
    assert not kept.problems
    sent = {kind: count for (_, kind), (count, _) in kept.files[0].sent.items()}
    assert sent == {"hello": 1, "ready": 1, "release": 3, "evidence": 1, "close": 1}
    parcel = Parcel(released / "telco.release", ACTIVE, None)
    assert [message.kind for message in parcel.messages()] == ["hello", "ready", *["release"] * 3, "evidence", "close"]


def test_what_is_odd_of_a_column_is_a_finding_at_its_owner_and_nowhere_else(released: Path, led: Path) -> None:
    report = build_passive(released / TELCO)
    [finding] = report.findings
    assert (finding.code, finding.owner) == ("CL120", TELCO)
    assert finding.detail.startswith("telco.seen_on: dates as text: each is a category; ")
    assert "2026-01" not in finding.detail, "no value of the table"
    assert "seen_on" in passive_html(report)
    assert "dates as text: each is a category" in passive_markdown(report)
    audit_passive_again(RunFolder(released / TELCO), ("inversion",))
    assert build_passive(released / TELCO).findings == report.findings
    for file in ("audit.json", "summary.json"):
        assert "seen_on" not in (led / file).read_text()
    assert "seen_on" in (released / TELCO / "outcome.json").read_text()


def test_no_id_is_in_the_file(released: Path) -> None:
    content = (released / "telco.release").read_bytes()
    table = PartyTable(TELCO, GIVEN[TELCO], "id")
    assert not any(digest.tobytes() in content for digest in table.digests)


def changed(path: Path, at: int, to: Path) -> Path:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    to.write_bytes(content)
    return to


def test_a_changed_or_shortened_file_is_refused_whatever_byte_it_is(
    released: Path, federation: Federation, tmp_path: Path
) -> None:
    whole = released / "telco.release"
    size = whole.stat().st_size
    security = federation.security(ACTIVE)
    for at in np.unique(np.linspace(0, size - 1, 150).astype(int)):
        with pytest.raises((ProtocolError, TrustError), match=r"changed\.release"):
            Parcel(changed(whole, int(at), tmp_path / "changed.release"), ACTIVE, security)
        (tmp_path / "short.release").write_bytes(whole.read_bytes()[:at])
        with pytest.raises(ProtocolError, match=r"short\.release.* (cut off|another file)"):
            Parcel(tmp_path / "short.release", ACTIVE, security)
    (tmp_path / "long.release").write_bytes(whole.read_bytes() + b"\0")
    with pytest.raises(ProtocolError, match=r"long\.release"):
        Parcel(tmp_path / "long.release", ACTIVE, security)


def test_a_file_of_somebody_else_is_refused(released: Path, federation: Federation, tmp_path: Path) -> None:
    security = federation.security(ACTIVE)
    telco = released / "telco.release"
    forged = tmp_path / "forged.release"
    # Shop, a party of the job, signs what it says that telco sent.
    messages = list(Parcel(telco, ACTIVE, None).messages())
    with ParcelWriter(forged, Head(TELCO, ACTIVE, messages[0].run), federation.security(SHOP)) as parcel:
        for message in messages:
            parcel.add(message)
    with pytest.raises(TrustError, match=r"forged\.release: the signature of spiffe://loans/telco, got that of .*shop"):
        Parcel(forged, ACTIVE, security)
    unsigned = tmp_path / "unsigned.release"
    with ParcelWriter(unsigned, Head(TELCO, ACTIVE, messages[0].run), None) as parcel:
        parcel.add(messages[0])
    with pytest.raises(TrustError, match=r"unsigned\.release: the signature of telco, got none"):
        Parcel(unsigned, ACTIVE, security)
    with pytest.raises(ProtocolError, match="messages to shop, got messages to bank"):
        Parcel(telco, SHOP, federation.security(SHOP))
    with pytest.raises(RunFolderError, match=r"gone\.release cannot be read"):
        Parcel(tmp_path / "gone.release", ACTIVE, security)
    unknown = tmp_path / "not_of_the_job.release"
    with ParcelWriter(unknown, Head("mobile", ACTIVE, messages[0].run), federation.security(SHOP)):
        pass
    with pytest.raises(TrustError, match="messages of a party of the job, got messages of mobile"):
        Parcel(unknown, ACTIVE, security)
    older = tmp_path / "older_version.release"
    with ParcelWriter(older, Head(TELCO, ACTIVE, messages[0].run, version="0.0.1"), federation.security(TELCO)):
        pass
    with pytest.raises(ProtocolError, match=r"got '0\.0\.1'; install the same version at all parties"):
        Parcel(older, ACTIVE, security)
    strangers = Federation(tmp_path / "others", TELCO)
    with pytest.raises(TrustError, match="a certificate that an authority of the file ca signed"):
        Parcel(telco, ACTIVE, strangers.security(ACTIVE))


def test_nothing_can_be_added_behind_what_the_digest_covers(tmp_path: Path) -> None:
    whole = tmp_path / "whole.release"
    with ParcelWriter(whole, Head(TELCO, ACTIVE, "run"), None):
        pass
    content = whole.read_bytes()
    seal = content[content.index(msgpack.packb("digest")) - 1 :]
    added = msgpack.packb({**msgpack.unpackb(seal), "note": b"unseen"})
    whole.write_bytes(content.removesuffix(seal) + added)
    with pytest.raises(ProtocolError, match=r"whole\.release: it is cut off or was changed"):
        Parcel(whole, ACTIVE, None)


def test_a_revoked_party_is_refused(tmp_path: Path) -> None:
    federation = Federation(tmp_path, TELCO)
    path = tmp_path / "telco.release"
    with ParcelWriter(path, Head(TELCO, ACTIVE, "run"), federation.security(TELCO)):
        pass
    assert Parcel(path, ACTIVE, federation.security(ACTIVE)).head.sender == TELCO
    federation.authority.revoke(TELCO)
    with pytest.raises(TrustError, match=r"telco\.release: the certificate of spiffe://loans/telco is revoked"):
        Parcel(path, ACTIVE, federation.security(ACTIVE))


def test_a_file_twice_none_or_of_nobody_is_refused_by_name(released: Path, federation: Federation) -> None:
    security, telco = federation.security(ACTIVE), released / "telco.release"
    with pytest.raises(ConfigError, match=r"one release of telco, got two: .*telco\.release and .*telco\.release"):
        open_releases(JOB, JOB.passives, [telco, telco], security)
    with pytest.raises(ConfigError, match="a release of telco, shop, got none of shop"):
        open_releases(JOB, JOB.passives, [telco], security)
    with pytest.raises(ConfigError, match=r"telco\.release: a release of shop, got one of 'telco'"):
        open_releases(JOB, [SHOP], [telco], security)


def refused(released: Path, federation: Federation, tmp_path: Path, job: Job = JOB, *files: Path) -> str:
    with pytest.raises(CutlayerError) as refusal:
        run_party(job, ACTIVE, tmp_path / "run", options(released), Progress(), links_of(released, federation, *files))
    return str(refusal.value)


def test_a_release_of_another_job_or_of_other_rows_is_refused(
    released: Path, federation: Federation, tmp_path: Path
) -> None:
    other = validated(Job, raw(seed=4), "")
    assert "holds another job than bank" in refused(released, federation, tmp_path / "job", other)
    shutil.copytree(released, tmp_path / "rows", ignore=lambda *_: [TELCO, SHOP])
    kept = (tmp_path / "rows" / f"{ACTIVE}-rows.csv").read_text().splitlines()
    (tmp_path / "rows" / f"{ACTIVE}-rows.csv").write_text("\n".join([*kept[:-2], kept[-1], kept[-2]]))
    assert "holds the common rows in another order" in refused(tmp_path / "rows", federation, tmp_path / "order")


def test_messages_out_of_order_or_repeated_are_refused(released: Path, federation: Federation, tmp_path: Path) -> None:
    """Even where the sender signs them."""
    messages = list(Parcel(released / "telco.release", ACTIVE, None).messages())
    for name, order in {
        "swapped": [0, 1, 3, 2, *range(4, 7)],
        "repeated": [0, 1, 2, 2, 4, 5, 6],
        "short": [0, 1],
        "longer": [*range(7), 5],  # behind the last message, where nobody would read it
    }.items():
        path = tmp_path / f"{name}.release"
        with ParcelWriter(path, Head(TELCO, ACTIVE, messages[0].run), federation.security(TELCO)) as parcel:
            for index in order:
                parcel.add(messages[index])
        said = refused(released, federation, tmp_path / name, JOB, path, released / "shop.release")
        assert "message" in said


def test_jobs_that_need_a_connection_are_refused() -> None:
    with pytest.raises(ConfigError, match="a job whose partners release each row once and do no more"):
        check_release_by_file(validated(Job, raw_job(passives=2), ""))
    with pytest.raises(ConfigError, match="a split that each party computes, to release by file, got one by day"):
        check_release_by_file(validated(Job, raw(split={"by": "day"}), ""))


def test_common_rows_of_another_table_are_refused(tmp_path: Path) -> None:
    table = PartyTable(TELCO, GIVEN[TELCO], "id")
    path = write_rows(tmp_path)[TELCO]
    rows = agreed_rows(path, table).positions
    assert rows is not None
    assert len(rows) == len(path.read_text().splitlines()) - 1
    with pytest.raises(AlignmentError, match="the ids of"):
        agreed_rows(path, PartyTable(TELCO, GIVEN[TELCO].take(pa.array(np.arange(len(GIVEN[TELCO]))[::-1])), "id"))
    path.write_text("number,name\n1,2\n")
    with pytest.raises(CutlayerError, match="the columns row, id, as"):
        agreed_rows(path, table)


def test_new_rows_by_files_get_the_predictions_of_one_process(
    released: Path, led: Path, federation: Federation, tmp_path: Path
) -> None:
    rows = write_rows(tmp_path)
    files = []
    for name in (TELCO, SHOP):
        folder = RunFolder(released / name)
        side = PredictionSide.open(JOB, folder, name, GIVEN[name], JOB.parties[name].limits)
        serving = PredictionReleases(JOB, folder, name, side.width, KEY)
        files.append(tmp_path / f"{name}.rows")
        side = with_agreed_rows(side, rows[name])
        assert release_prediction(side, serving, files[-1], federation.security(name), None) == 225
    active = PredictionSide.open(JOB, RunFolder(led), ACTIVE, GIVEN[ACTIVE], JOB.parties[ACTIVE].limits)
    active = with_agreed_rows(active, rows[ACTIVE])
    with open_releases(JOB, JOB.passives, files, federation.security(ACTIVE)) as links:
        answered = drive_over_links(request_predictions(active, links.ports), links, 1.0)
    assert [*answered.present] == [*NAMES]
    assert all(mask.all() for mask in answered.present.values())
    logits = dict(zip(answered.ids.to_pylist(), answered.logits.tolist(), strict=True))
    assert len(logits) == 225
    # The rows that the run was tested on got these logits in the process of the run too.
    tested = parquet.read_table(predictions_path(RunFolder(led)))
    assert tested.num_rows > 20
    # The columns of a prediction: id, then the probability of "yes".
    for row, score in zip(tested.column(0).to_pylist(), tested.column(1).to_pylist(), strict=True):
        assert torch.tensor(logits[row], dtype=torch.float64).sigmoid().item() == pytest.approx(score, abs=1e-6)


def test_files_of_two_trainings_do_not_fit(released: Path, led: Path, federation: Federation, tmp_path: Path) -> None:
    """Each partner's release has an id of its own, which the label owner compares when new rows come."""
    rows = write_rows(tmp_path)
    again = tmp_path / "again"
    links = LinkOptions(security=federation.security(TELCO), rows=rows[TELCO])
    folder = release_training(JOB, TELCO, tmp_path / "again.release", again, options(tmp_path), links)
    side = with_agreed_rows(
        PredictionSide.open(JOB, folder, TELCO, GIVEN[TELCO], JOB.parties[TELCO].limits), rows[TELCO]
    )
    path = tmp_path / "telco.rows"
    release_prediction(
        side, PredictionReleases(JOB, folder, TELCO, side.width, KEY), path, federation.security(TELCO), None
    )
    active = PredictionSide.open(JOB, RunFolder(led), ACTIVE, GIVEN[ACTIVE], JOB.parties[ACTIVE].limits)
    active = with_agreed_rows(active, rows[ACTIVE])
    with (
        open_releases(JOB, [TELCO], [path], federation.security(ACTIVE)) as links_,
        pytest.raises(ProtocolError, match=r"a part of training .* at telco, as here, got one of"),
    ):
        drive_over_links(request_predictions(active, links_.ports, [SHOP]), links_, 1.0)


class Courier:
    """Runs the command of each party in turn on one folder, as people who carry files do."""

    def __init__(self, base: Path, federation: Federation, purpose: Purpose = Purpose.ALIGN) -> None:
        self.base, self.federation, self.purpose = base, federation, purpose
        self.tables = dict(GIVEN)

    def step(self, name: str) -> aligning.AlignmentResult | WaitingForFile:
        path = self.base / f"{name}.csv"
        if not path.exists():
            csv.write_csv(self.tables[name], path)
        party = JOB.parties[name].model_copy(update={"table": TableConfig(path=path)})
        job = JOB.model_copy(update={"parties": {**JOB.parties, name: party}})
        links = LinkOptions(security=self.federation.security(name), trail=self.base / f"{name}.trail")
        try:
            return aligning.align_party(
                job, name, self.base / f"{name}-aligned.csv", self.purpose, Progress(), links, self.base / "exchange"
            )
        except WaitingForFile as waiting:
            return waiting

    def all(self) -> Mapping[str, aligning.AlignmentResult]:
        done: dict[str, aligning.AlignmentResult] = {}
        for _ in range(7):
            for name in NAMES:
                if name not in done and isinstance(result := self.step(name), aligning.AlignmentResult):
                    done[name] = result
        return done


@pytest.fixture(scope="module")
def carried(
    tmp_path_factory: pytest.TempPathFactory, federation: Federation
) -> tuple[Path, Mapping[str, aligning.AlignmentResult]]:
    """An alignment of which each party has its rows."""
    folder = tmp_path_factory.mktemp("carried")
    return folder, Courier(folder, federation).all()


def test_an_alignment_by_files_finds_the_common_rows(
    carried: tuple[Path, Mapping[str, aligning.AlignmentResult]],
) -> None:
    folder, done = carried
    assert {name: result.common for name, result in done.items()} == dict.fromkeys(NAMES, 225)
    plain = intersect({name: PartyTable(name, GIVEN[name], "id").digests for name in NAMES})
    for name in NAMES:
        assert csv.read_csv(folder / f"{name}-aligned.csv").column("row").to_pylist() == plain[name].tolist()
        record = json.loads((folder / f"{name}-aligned.csv.progress" / "exchange.json").read_text())
        assert record["ended"]
        assert not record["key"]
    assert len(list((folder / "exchange").iterdir())) == 12, "three from each side of a link"


def test_ids_of_digits_with_leading_zeros_keep_them(tmp_path: Path, federation: Federation) -> None:
    """As account numbers have them: a reader that takes them for whole numbers finds other ids than the table's."""
    courier = Courier(tmp_path, federation)
    for name in NAMES:
        ids = pa.array([f"{number:08}" for number in GIVEN[name]["id"].to_pylist()])
        courier.tables[name] = GIVEN[name].set_column(GIVEN[name].column_names.index("id"), "id", ids)
    courier.all()
    rows = tmp_path / f"{TELCO}-aligned.csv"
    links = LinkOptions(security=federation.security(TELCO), rows=rows)
    given = replace(options(tmp_path), tables=courier.tables)
    release_training(JOB, TELCO, tmp_path / "telco.release", tmp_path / "run", given, links)
    table = PartyTable(TELCO, courier.tables[TELCO], "id")
    assert table.ids(agreed_rows(rows, table).positions)[0].as_py().startswith("0000")


def test_the_trail_of_an_exchange_has_each_message_once_and_is_noted(
    carried: tuple[Path, Mapping[str, aligning.AlignmentResult]],
) -> None:
    """Every start repeats all messages from the first; those of an earlier start left then."""
    folder, _ = carried
    for name in NAMES:
        files = sorted((folder / "exchange").glob(f"{name}~*"))
        left = [
            (message.receiver, message.kind.value)
            for file in files
            for message in Parcel(file, file.name.split("~")[1], None).messages()
        ]
        kept = verify_trail(folder / f"{name}.trail")
        sent = Counter()
        for file in kept.files:
            sent.update({key: count for key, (count, _) in file.sent.items()})
        assert not kept.problems
        assert sent == Counter(left)
        assert {"hello", "masked"} <= {kind for _, kind in sent}
        noted = json.loads((folder / f"{name}.trail" / "head.json").read_text())
        assert sum(lines for lines, _ in noted.values()) == kept.lines, "lines that were cut off the end would show"


def test_a_dry_run_by_files_gives_numbers_alone(tmp_path: Path, federation: Federation) -> None:
    done = Courier(tmp_path, federation, Purpose.SIZE).all()
    assert done[TELCO].common is None
    assert done[TELCO].shared[ACTIVE] == done[ACTIVE].shared[TELCO] == 235


def test_a_replaced_file_gets_no_second_answer(tmp_path: Path, federation: Federation) -> None:
    """The bank sends other points under an old number, to have them masked by the scalar of the first answer."""
    courier = Courier(tmp_path, federation)
    for _ in range(2):
        for name in NAMES:
            courier.step(name)
    old = tmp_path / "exchange" / "bank~telco~0.cutlayer"
    parcel = Parcel(old, TELCO, None)
    messages = list(parcel.messages())
    old.unlink()
    with ParcelWriter(old, parcel.head, federation.security(ACTIVE)) as writer:
        for message in messages:
            for tensor in message.tensors.values():
                tensor[0] = 0
            writer.add(message)
    before = sorted(path.name for path in (tmp_path / "exchange").iterdir())
    with pytest.raises(ProtocolError, match=r"bank~telco~0\.cutlayer as it was when it came, got another file"):
        courier.step(TELCO)
    assert sorted(path.name for path in (tmp_path / "exchange").iterdir()) == before


def test_a_bank_that_begins_again_is_refused_with_a_remedy_that_works(tmp_path: Path, federation: Federation) -> None:
    """The remedy at the bank alone, another folder and record, leaves partners with the record of before."""
    courier = Courier(tmp_path, federation)
    for name in (*NAMES, ACTIVE):
        courier.step(name)
    for folder in (tmp_path / "exchange", tmp_path / f"{ACTIVE}-aligned.csv.progress"):
        shutil.rmtree(folder)
    courier.step(ACTIVE)
    for name in (TELCO, SHOP):
        with pytest.raises(
            ProtocolError, match=r"of another training or round: bring .* began again, remove .* and repeat the command"
        ) as refusal:
            courier.step(name)
        named = str(refusal.value).rsplit("remove ", 1)[1].removesuffix(" and repeat the command")
        shutil.rmtree(named)
    assert courier.all()[ACTIVE].common is not None


def test_another_table_or_a_moved_file_is_refused(tmp_path: Path, federation: Federation) -> None:
    courier = Courier(tmp_path, federation)
    for name in (*NAMES, ACTIVE):
        courier.step(name)
    csv.write_csv(GIVEN[TELCO].slice(1), tmp_path / f"{TELCO}.csv")
    with pytest.raises(RunFolderError, match="the job, table and options that the exchange"):
        courier.step(TELCO)
    folder = tmp_path / "exchange"
    courier.step(SHOP)
    shutil.copy(folder / "bank~shop~0.cutlayer", folder / "bank~shop~2.cutlayer")
    with pytest.raises(ProtocolError, match=r"bank~shop~2\.cutlayer: number 2 of bank.*got number 0 of bank"):
        courier.step(SHOP)


def test_an_exchange_goes_on_with_the_same_inputs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that the messages depend on: other inputs under the same secret numbers would answer other questions."""
    seen: list[str] = []
    monkeypatch.setattr(aligning, "Exchange", lambda *given: seen.append(given[4]))

    def begun(job: Job = JOB, purpose: Purpose = Purpose.ALIGN, rows: int = 5, first: int = 0, keys: int = 0) -> None:
        digests = np.arange(first, first + 80, dtype=np.uint8).reshape(5, 16)
        table: Any = SimpleNamespace(
            digests=digests, keys=(digests + 1,) * bool(keys), stated_rows=rows, partner_ids={}
        )
        if keys == 2:
            table.keys = (digests + 2,)
        alignment = Alignment(purpose=purpose, folder=Path("progress"))
        aligning._exchange(job, TELCO, table, alignment, Path("files"), LinkOptions(), 0.0)

    begun()
    begun()
    assert len({*seen}) == 1
    begun(job=validated(Job, raw(seed=4), ""))
    begun(purpose=Purpose.SIZE)
    begun(rows=8)
    begun(first=1)
    begun(keys=1)
    begun(keys=2)
    assert len({*seen}) == 7


def test_a_start_that_differs_from_an_earlier_one_is_refused(tmp_path: Path, federation: Federation) -> None:
    """Two messages under the same secret numbers, of which the other parties have the first."""
    courier = Courier(tmp_path, federation)
    courier.step(ACTIVE)
    courier.step(TELCO)
    record = tmp_path / f"{TELCO}-aligned.csv.progress" / "exchange.json"
    state = json.loads(record.read_text())
    record.write_text(json.dumps({**state, "sent": {ACTIVE: [*state["sent"][ACTIVE][:-1], "00" * 32]}}))
    with pytest.raises(ProtocolError, match="this start differs from an earlier one"):
        courier.step(TELCO)


def test_a_party_cannot_sign_as_another(federation: Federation, tmp_path: Path) -> None:
    """Shop certifies the name of telco with its own certificate, and signs by that."""
    shop = federation.files(SHOP)
    key = serialization.load_pem_private_key(shop.key.read_bytes(), None)
    issuer = x509.load_pem_x509_certificate(shop.cert.read_bytes())
    forged_key = ec.generate_private_key(ec.SECP256R1())
    made = x509.CertificateBuilder().subject_name(issuer.subject).issuer_name(issuer.subject)
    made = made.public_key(forged_key.public_key()).serial_number(5)
    made = made.not_valid_before(issuer.not_valid_before_utc).not_valid_after(issuer.not_valid_after_utc)
    named = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(federation.identities[TELCO])])
    made = made.add_extension(named, critical=False)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    forged = made.sign(key, hashes.SHA256())
    chain = forged.public_bytes(serialization.Encoding.PEM) + shop.cert.read_bytes()
    signature = forged_key.sign(b"content", ec.ECDSA(hashes.SHA256()))
    loaded = federation.security(ACTIVE).credentials.current()
    with pytest.raises(TrustError, match="a certificate that an authority of the file ca signed"):
        check_signature(chain, signature, b"content", loaded, federation.identities[TELCO], "file")


@pytest.mark.parametrize(
    "fault", ["", "revoked", "expired", "revoked leaf", "revoked authority", "forged", "no authority"]
)
def test_every_certificate_of_a_chain_is_checked(federation: Federation, fault: str) -> None:
    """A party's certificate, that of an authority in between, and the trusted one where the file holds it too."""
    loaded = federation.security(ACTIVE).credentials.current()
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(3)]
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("leaf", "middle", "root")]
    chain = []
    for index, key in enumerate(keys):
        ends = timedelta(days=-1 if index == 1 and fault == "expired" else 1)
        made = x509.CertificateBuilder(names[min(index + 1, 2)], names[index], key.public_key(), index + 1)
        made = made.not_valid_before(datetime.now(UTC) - timedelta(days=2)).not_valid_after(datetime.now(UTC) + ends)
        made = made.add_extension(
            x509.BasicConstraints(ca=index > (fault == "no authority"), path_length=None), critical=True
        )
        named = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(federation.identities[TELCO])])
        made = made.add_extension(named if index == 0 else x509.SubjectKeyIdentifier(bytes(20)), critical=False)
        signing = keys[0] if index == 1 and fault == "forged" else keys[min(index + 1, 2)]
        chain.append(made.sign(signing, hashes.SHA256()))
    which = {"revoked leaf": 0, "revoked": 1, "revoked authority": 2}.get(fault)
    revoked = frozenset() if which is None else frozenset({(names[min(which + 1, 2)].public_bytes(), which + 1)})
    loaded = replace(loaded, authorities=(chain[2],), revoked=revoked)
    pem = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in chain)
    signature = keys[0].sign(b"content", ec.ECDSA(hashes.SHA256()))
    given = pem, signature, b"content", loaded, federation.identities[TELCO], "file"
    if not fault:
        check_signature(*given)
        return
    if fault in ("forged", "no authority"):
        with pytest.raises(TrustError, match="file: a certificate that an authority of the file ca signed"):
            check_signature(*given)
        return
    whose = "certificate of spiffe" if which == 0 else "certificate of an authority of spiffe"
    with pytest.raises(TrustError, match=f"file: the {whose}.* is {fault.split()[0]}"):
        check_signature(*given)


def test_a_file_that_is_replaced_after_its_check_is_refused(
    released: Path, federation: Federation, tmp_path: Path
) -> None:
    path = tmp_path / "telco.release"
    shutil.copy(released / "telco.release", path)
    parcel = Parcel(path, ACTIVE, federation.security(ACTIVE))
    messages = list(parcel.messages())
    path.unlink()
    with ParcelWriter(path, parcel.head, None) as writer:
        writer.add(messages[0])
        for message in messages[2:]:
            writer.add(message)
    with pytest.raises(ProtocolError, match=r"telco\.release: it is cut off or was changed"):
        next(parcel.messages())
    path.unlink()
    with pytest.raises(RunFolderError, match=r"telco\.release cannot be read"):
        next(parcel.messages())


def test_two_processes_do_not_work_on_one_exchange(tmp_path: Path, federation: Federation) -> None:
    courier = Courier(tmp_path, federation)
    courier.step(ACTIVE)
    private = tmp_path / f"{TELCO}-aligned.csv.progress"
    private.mkdir()
    with locked(private / "exchange.lock", "another start"), pytest.raises(LockHeld, match="another start"):
        courier.step(TELCO)
    assert isinstance(courier.step(TELCO), WaitingForFile)


@pytest.mark.parametrize("purpose", [Purpose.ALIGN_ACTIVE, Purpose.SIZE])
def test_nothing_is_answered_after_the_end(tmp_path: Path, federation: Federation, purpose: Purpose) -> None:
    courier = Courier(tmp_path, federation, purpose)
    done = courier.all()
    assert set(done) == set(NAMES)
    before = {path: path.read_bytes() for path in (tmp_path / "exchange").iterdir()}
    assert all(courier.step(name) == done[name] for name in NAMES)  # a scheduler repeats its commands
    courier.tables[TELCO] = GIVEN[TELCO].slice(1)
    (tmp_path / f"{TELCO}.csv").unlink()
    with pytest.raises(RunFolderError, match="an exchange that goes on, got one that has ended"):
        courier.step(TELCO)
    assert {path: path.read_bytes() for path in (tmp_path / "exchange").iterdir()} == before


def test_an_alignment_that_was_killed_before_its_end_writes_the_rows_again(
    tmp_path: Path, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    courier = Courier(tmp_path, federation)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("cutlayer.jobs.exchange.Exchange.end", killed)
        for _ in range(7):
            for name in NAMES:
                with suppress(KeyboardInterrupt):
                    courier.step(name)
    rows = tmp_path / f"{TELCO}-aligned.csv"
    written = rows.read_bytes()
    rows.write_text("row,id\n")
    assert isinstance(courier.step(TELCO), aligning.AlignmentResult)
    assert rows.read_bytes() == written
    rows.unlink()
    with pytest.raises(RunFolderError, match="one that has ended"):  # nothing answers twice, whatever was deleted
        courier.step(TELCO)


def test_an_opening_of_another_party_is_refused(tmp_path: Path, federation: Federation) -> None:
    (tmp_path / "exchange").mkdir()
    path = tmp_path / "exchange" / "bank~telco~0.cutlayer"
    with ParcelWriter(path, Head(SHOP, TELCO, "run"), federation.security(SHOP)):
        pass
    with pytest.raises(ProtocolError, match="number 0 of bank, got number 0 of shop"):
        Courier(tmp_path, federation).step(TELCO)
    assert not (tmp_path / f"{TELCO}-aligned.csv.progress" / "exchange.json").exists()


@pytest.mark.parametrize("text", ["\x1b[2J", "two\nlines", "x" * 65, ""])
def test_a_head_with_a_hostile_text_is_refused(tmp_path: Path, text: str) -> None:
    for head in (Head(text, ACTIVE, "run"), Head(TELCO, text, "run"), Head(TELCO, ACTIVE, text)):
        path = tmp_path / "hostile.release"
        path.unlink(missing_ok=True)
        with ParcelWriter(path, head, None):
            pass
        with pytest.raises(ProtocolError, match=r"hostile\.release: it is cut off or was changed"):
            Parcel(path, ACTIVE, None)


def test_frames_are_checked_before_they_are_decoded_some_at_a_time(
    released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file whose last frames are replaced after its check is read up to these."""
    monkeypatch.setattr("cutlayer.channel.parcel._GROUP_BYTES", 100)
    path = tmp_path / "telco.release"
    shutil.copy(released / "telco.release", path)
    parcel = Parcel(path, ACTIVE, None)
    messages = [message.kind for message in parcel.messages()]
    content = bytearray(path.read_bytes())
    content[content.index(b"evidence")] ^= 1
    path.write_bytes(content)
    read: list[str] = []
    with pytest.raises(ProtocolError, match=r"telco\.release: it is cut off or was changed"):
        read.extend(message.kind for message in parcel.messages())
    assert read == messages[: messages.index("evidence")]


def test_a_file_of_many_frames_takes_no_memory_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutlayer.channel.parcel._GROUP_BYTES", 2**14)
    path, frames = tmp_path / "many.release", 50_000
    with ParcelWriter(path, Head(TELCO, ACTIVE, "run"), None) as writer:
        writer._write(b"\1\0\0\0x" * frames)
    tracemalloc.start()
    try:
        Parcel(path, ACTIVE, None)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 2**20, "all of them take twice as much"


def test_a_report_names_the_files_that_are_not_as_the_run_wrote_them_and_who_signed(
    released: Path, led: Path, federation: Federation, tmp_path: Path
) -> None:
    for folder, name in ((led, ACTIVE), (released / TELCO, TELCO)):
        copied = tmp_path / name
        shutil.copytree(folder, copied)
        report = build_report if name == ACTIVE else build_passive
        files = report(copied).files
        assert files is not None
        assert files.changed == files.absent == ()
        certificate = federation.security(name).credentials.current().certificate
        assert (files.signer, files.key) == (identity_of(certificate), key_fingerprint(certificate.public_key()))
        assert files.key in (_job_section(report(copied)) if name == ACTIVE else passive_html(report(copied)))
        stated = (copied / "audit.json").read_text()
        (copied / "audit.json").write_text(stated.replace('"schema_version": 5', '"schema_version":  5'))
        ledger = copied / "ledger.json"
        ledger.unlink() if name == ACTIVE else ledger.write_text(ledger.read_text() + "\n")
        changed = report(copied)
        assert changed.failed
        assert changed.findings[0].code == "CL124"
        assert changed.findings[0].severity == "error"
        assert changed.findings[0].detail.startswith("not as the run wrote it: audit.json")
        assert ("ledger.json" in changed.findings[0].detail) == (name == TELCO)
        assert changed.files is not None
        assert changed.files.absent == (("ledger.json",) if name == ACTIVE else ())


def _job_section(report: Report) -> str:
    return str(job_section(report).blocks[0])


def test_a_signature_of_other_digests_is_refused(led: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(led, copied)
    digests = json.loads((copied / DIGESTS_FILE).read_text())
    (copied / "audit.json").write_text((copied / "audit.json").read_text() + "\n")
    digests["files"]["audit.json"] = hashlib.sha256((copied / "audit.json").read_bytes()).hexdigest()
    (copied / DIGESTS_FILE).write_text(json.dumps(digests))
    with pytest.raises(TrustError, match=r"expected a signature of the content of .*files\.json, got another"):
        build_report(copied)
    digests["chain"] = "no certificate"
    (copied / DIGESTS_FILE).write_text(json.dumps(digests))
    with pytest.raises(TrustError, match="expected a signature of the content"):
        build_report(copied)
    digests["chain"] = digests["signature"] = ""
    (copied / DIGESTS_FILE).write_text(json.dumps(digests))
    files = build_report(copied).files
    assert files is not None
    assert not files.changed
    assert "whoever changed a file could also" in files_statement(files)
    (copied / DIGESTS_FILE).unlink()
    assert "no digests" in _job_section(build_report(copied))


def test_an_audit_again_restores_a_forged_figure_and_another_audit_is_said_to_be_unsigned(
    led: Path, tmp_path: Path
) -> None:
    copied = tmp_path / "run"
    shutil.copytree(led, copied)
    forged = json.loads((copied / "audit.json").read_text())
    forged["runs"]["this run"]["baselines"][0]["own_columns"] = 0.5
    (copied / "audit.json").write_text(json.dumps(forged))
    assert build_report(copied).failed
    with pytest.warns(UserWarning, match=r"not as the run wrote it: audit\.json \(CL124\)"):
        warn_of_changes(copied)
    with one_blas_thread():
        audit_again(RunFolder.open(copied))
    files = build_report(copied).files
    assert files is not None
    assert not files.changed
    assert not files.audited
    audit_again(RunFolder.open(copied), fail_above=0.9)
    report = build_report(copied)
    assert report.files is not None
    assert report.files.audited == ("audit.json",)
    assert not report.files.changed
    assert report.files.same == files.same - 1
    assert "audit.json of a later audit with an unsigned digest; digests of" in files_statement(report.files)


def test_an_unsigned_digest_counts_for_the_audit_alone(led: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(led, copied)
    for name in ("summary.json", "audit.json"):
        (copied / name).write_text((copied / name).read_text() + "\n")
    forged = {name: hashlib.sha256((copied / name).read_bytes()).hexdigest() for name in ("summary.json", "audit.json")}
    FileDigests.read(copied / DIGESTS_FILE).model_copy(update={"audited": forged}).write(copied / DIGESTS_FILE)
    files = build_report(copied).files
    assert files is not None
    assert (files.changed, files.audited) == (("summary.json",), ("audit.json",))


def test_files_behind_a_link_to_a_folder_count_as_changed(led: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(led, copied)
    (copied / "checkpoint").rename(copied / ".checkpoint")
    (copied / "checkpoint").symlink_to(".checkpoint")
    model = f"checkpoint/{ACTIVE}/model.json"
    assert (copied / model).exists()
    files = compare_files(copied)
    assert files is not None
    assert model in files.changed
    assert not files.absent
    with pytest.warns(UserWarning, match=rf"not as the run wrote it: {model}"):
        warn_of_changes(copied, model)


def test_files_that_vanish_while_they_are_hashed_and_deep_folders_are_no_failure(
    led: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = tmp_path / "run"
    shutil.copytree(led, copied)
    whole = file_digests._digest

    def vanishing(path: Path) -> str:
        if path.name == "ledger.json":
            path.unlink()
        return whole(path)

    (copied / os.fsdecode(b"odd\xff")).write_text("a name that is no UTF-8")
    with monkeypatch.context() as patched:
        patched.setattr(file_digests, "_digest", vanishing)
        write_digests(copied, None)
    names = FileDigests.read(copied / DIGESTS_FILE).files
    assert not [name for name in names if "odd" in name]
    assert "ledger.json" not in names
    assert "audit.json" in names
    deep = copied
    for _ in range(1200):
        deep /= "d"
        deep.mkdir()
    try:
        files = compare_files(copied)
    finally:
        os.removedirs(deep)  # which pytest does by recursion
    assert files is not None
    assert files.same == len(names)


def test_a_resume_that_fails_leaves_no_digests_of_what_it_replaced(led: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(led, copied)
    job = load_closed_job(copied / "job.yaml")

    def resume(job: Job, written: str = "", failure: Exception | None = None) -> None:
        with training_folder(copied, job, resume=True) as folder:
            assert not (copied / DIGESTS_FILE).exists(), "a process that is killed here leaves none"
            if written:
                folder.write_json(written, {})
            if failure:
                raise failure

    lost, other = PeerLost(TELCO, "killed"), job.model_copy(update={"train": job.train.model_copy(update={"seed": 99})})
    with pytest.raises(CheckpointError):
        resume(other)
    with pytest.raises(PeerLost):
        resume(job, failure=lost)
    assert (copied / DIGESTS_FILE).read_bytes() == (led / DIGESTS_FILE).read_bytes(), "nothing was replaced"
    with pytest.raises(PeerLost):
        resume(job, "ledger.json", lost)
    assert not (copied / DIGESTS_FILE).exists()
    resume(job)
    files = compare_files(copied)
    assert files is not None
    assert not files.changed


def test_a_resume_of_an_ended_run_makes_no_changed_file_valid(
    led: Path, federation: Federation, tmp_path: Path
) -> None:
    """The attack: change the figures of a run, and wait for its owner to resume and sign it."""
    security = federation.security(ACTIVE)

    def resumed(name: str, *, forge: bool = False, remove: str = "", add: str = "") -> RunFiles | None:
        copied = tmp_path / name
        shutil.copytree(led, copied)
        if forge:
            (copied / "ledger.json").write_text((copied / "ledger.json").read_text() + "\n")
        if add:
            (copied / add).write_text("")
        if remove == "files":
            (copied / DIGESTS_FILE).unlink()
        elif remove == "signature":
            write_digests(copied, None)
        elif remove:
            (copied / remove).unlink()
        job = load_closed_job(copied / "job.yaml")
        with training_folder(copied, job, resume=True, security=security):
            pass
        return compare_files(copied)

    assert (whole := resumed("whole")) is not None
    assert whole.signer
    for nth, (change, got) in enumerate(
        (
            ({"forge": True}, r"got changed: ledger\.json; restore"),
            ({"remove": "ledger.json"}, r"got missing: ledger\.json"),
            ({"add": f"checkpoint/{ACTIVE}/epoch-9.safetensors"}, r"got not of the run: checkpoint/"),
        )
    ):
        with pytest.raises(CheckpointError, match=got):
            resumed(f"{nth}", **change)  # type: ignore[arg-type]
        assert (tmp_path / f"{nth}" / DIGESTS_FILE).exists()
    for remove in ("files", "signature"):
        with pytest.warns(UserWarning, match="stay unsigned: it had ended, and they were unsigned"):
            forged = resumed(remove, forge=True, remove=remove)
        assert forged is not None
        assert not forged.signer
    for note in ("note.txt", "departures.json"):
        noted = resumed(note, add=note)
        assert noted is not None
        assert (noted.foreign, bool(noted.signer)) == ((note,), True)
    looked_at = resumed("looked at", add=f"checkpoint/{ACTIVE}/.DS_Store")
    assert looked_at is not None
    assert (looked_at.foreign, looked_at.findings) == ((), ())


def test_a_later_audit_stays_unsigned_after_a_resume(led: Path, federation: Federation, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(led, copied)
    (copied / "audit.json").write_text((copied / "audit.json").read_text() + "\n")
    file_digests.note_audited(copied)
    job, security = load_closed_job(copied / "job.yaml"), federation.security(ACTIVE)
    with training_folder(copied, job, resume=True, security=security):
        pass
    files = compare_files(copied)
    assert files is not None
    assert (files.audited, files.changed, bool(files.signer)) == (("audit.json",), (), True)


def test_files_that_the_run_did_not_write_are_named(led: Path, tmp_path: Path) -> None:
    copied, weights = tmp_path / "run", f"checkpoint/{ACTIVE}/epoch-9.safetensors"
    shutil.copytree(led, copied)
    (copied / "note.txt").write_text("")
    report = build_report(copied)
    assert report.files is not None
    assert report.files.foreign == ("note.txt",)
    assert not [each for each in report.findings if each.code == "CL124"]
    assert "note.txt not of the run" in files_statement(report.files)
    (copied / weights).write_text("")
    assert build_report(copied).findings[0].detail == f"not written by the run: {weights}"
    with pytest.warns(UserWarning, match=rf"not written by the run: {weights} \(CL124\)"):
        warn_of_changes(copied, f"checkpoint/{ACTIVE}/epoch*")


def test_further_labels_have_signed_digests_of_their_own_which_the_report_of_the_run_joins(
    released: Path, federation: Federation, tmp_path: Path
) -> None:
    later = pa.array([row % 3 == 0 for row in range(len(GIVEN[ACTIVE]))]).cast(pa.int8())
    asked = replace(options(released), tables={**GIVEN, ACTIVE: GIVEN[ACTIVE].append_column("later", later)})
    job = JOB.with_parties({ACTIVE: {"further_labels": ("later",)}})
    out = tmp_path / "run"
    run_party(job, ACTIVE, out, asked, Progress(), links_of(released, federation))
    place = out / "labels" / "later"
    names = FileDigests.read(out / DIGESTS_FILE).files
    assert not [name for name in names if name.startswith("labels")]
    alone, files = compare_files(place), compare_files(out)
    assert alone is not None
    assert files is not None
    assert files.same == len(names) + alone.same
    assert files.key == alone.key
    assert files.key
    with one_blas_thread():
        audit_again(RunFolder.open(place), fail_above=0.9)
    audited = build_report(out).files
    assert audited is not None
    assert (audited.changed, audited.audited) == ((), ("labels/later/audit.json",))
    (place / "summary.json").write_text((place / "summary.json").read_text() + "\n")
    changed = build_report(out)
    assert changed.findings[0].code == "CL124"
    assert changed.findings[0].detail == "not as the run wrote it: labels/later/summary.json"
    write_digests(place, None)
    forged = compare_files(out)
    assert forged is not None
    assert (forged.changed, forged.signer, forged.key) == ((), "", "")
    assert "or not all by one key" in files_statement(forged)
    (place / DIGESTS_FILE).unlink()
    missing = compare_files(out)
    assert missing is not None
    assert missing.absent == ("labels/later/files.json",)
    shutil.rmtree(place)
    gone = compare_files(out)
    assert gone is not None
    assert gone.absent == ("labels/later",)


def test_digests_read_no_file_outside_of_the_run_folder(led: Path, tmp_path: Path) -> None:
    copied, outside = tmp_path / "run", tmp_path / "outside"
    shutil.copytree(led, copied)
    outside.write_text("secret")
    digests = FileDigests(files={"../outside": hashlib.sha256(b"secret").hexdigest(), str(outside): ""})
    digests.write(copied / DIGESTS_FILE)
    files = build_report(copied).files
    assert files is not None
    assert (files.same, files.absent, files.changed) == (0, ("../outside", str(outside)), ())
    (copied / DIGESTS_FILE).write_text((copied / DIGESTS_FILE).read_text().replace("../outside", "\\ud800"))
    with pytest.raises(RunFolderError, match=r"files\.json is damaged \(files"):
        build_report(copied)


def test_a_prediction_says_that_a_model_was_changed(led: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(led, copied)
    model = copied / "checkpoint" / ACTIVE / "model.json"
    model.write_text(model.read_text() + "\n")
    with pytest.warns(UserWarning, match=rf"not as the run wrote it: checkpoint/{ACTIVE}/model\.json"):
        PartyModel.load(JOB, RunFolder.open(copied), ACTIVE)
