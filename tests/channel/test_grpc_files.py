"""Files of an exchange over TLS: repeated, cut off, of strangers, and of partners that do not behave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cutlayer.channel import grpc_files
from cutlayer.channel.contract import Contract
from cutlayer.channel.grpc_files import BRING_METHOD, END_METHOD, FETCH_METHOD, PIECE_BYTES, FileClient, FileServer
from cutlayer.channel.parcel import parcel_name
from cutlayer.errors import NotApproved, PeerLost, ProtocolError, RunFolderError, TrustError
from cutlayer.storage import durable
from tests.channel.certificates import Federation

BANK, TELCO, SHOP = "bank", "telco", "shop"
ROUND = "predict-1~june"
CONTENT = bytes(range(256)) * (PIECE_BYTES // 100)  # more than two pieces
JOB = Contract({"rows": "all"})


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("keys"), TELCO, SHOP)


class Bank:
    """The label owner's end, which has begun a round with the telco."""

    def __init__(self, base: Path, federation: Federation) -> None:
        self.base, self.federation = base, federation
        self.withdrawn = False
        self.folder = base / BANK
        self.round = self.folder / ROUND
        self.round.mkdir(parents=True)
        (self.round / parcel_name(BANK, TELCO, 0)).write_bytes(CONTENT)
        security, peers = federation.security(BANK), (TELCO, SHOP)
        self.server = FileServer("127.0.0.1:0", BANK, peers, self.folder, self._hold, security=security, contract=JOB)

    def _hold(self) -> None:
        if self.withdrawn:
            raise NotApproved("bank has withdrawn its approval")

    def client(self, name: str = TELCO, contract: Contract = JOB) -> FileClient:
        security = self.federation.security(name)
        return FileClient(self.server.address, name, BANK, self._hold, security=security, contract=contract)

    def at(self, name: str) -> Path:
        """The folder of the round at a partner."""
        folder = self.base / name / ROUND
        folder.mkdir(parents=True, exist_ok=True)
        return folder


@pytest.fixture
def bank(tmp_path: Path, federation: Federation) -> Iterator[Bank]:
    opened = Bank(tmp_path, federation)
    with opened.server:
        yield opened


def test_files_go_both_ways_once_and_repeated(bank: Bank) -> None:
    folder = bank.at(TELCO)
    wanted, own = folder / parcel_name(BANK, TELCO, 0), folder / parcel_name(TELCO, BANK, 0)
    with bank.client() as client:
        assert client.carry(folder, wanted)
        assert wanted.read_bytes() == CONTENT
        own.write_bytes(CONTENT[::-1])
        assert client.carry(folder, folder / parcel_name(BANK, TELCO, 1))
        assert "bank has not written file 1" in client.missing_reason(BANK)
    assert (bank.round / own.name).read_bytes() == CONTENT[::-1]
    own.write_bytes(b"another")  # a partner that changes what it has sent
    with bank.client() as client:
        assert client.carry(folder)
        client.finish(folder, (BANK,), 0)
    assert (bank.round / own.name).read_bytes() == CONTENT[::-1], "the first one counts"
    bank.server.finish(bank.round, (TELCO,), 60)  # at once
    assert not [*bank.base.rglob("*.partial")]


def test_a_partner_gets_its_own_files_alone_whatever_name_it_states(bank: Bank) -> None:
    folder = bank.at(SHOP)
    with bank.client(SHOP) as client:
        client._me = TELCO
        (folder / parcel_name(TELCO, BANK, 0)).write_bytes(CONTENT)
        assert not client.carry(folder, folder / parcel_name(BANK, TELCO, 0))
        assert "bank has not written file 0" in client.missing_reason(BANK)
    assert [path.name for path in folder.iterdir()] == [parcel_name(TELCO, BANK, 0)]
    assert [path.name for path in bank.round.iterdir()] == [parcel_name(BANK, TELCO, 0)]


@pytest.mark.parametrize("name", ["../telco", "..", ".", "", "/etc", "a/b", "a\0b", "x" * 101])
def test_a_round_is_no_path(bank: Bank, name: str) -> None:
    class Named:
        """A folder that states another name."""

        def __init__(self, name: str) -> None:
            self.name = name

    with bank.client() as client, pytest.raises(ProtocolError, match="the name of a round"):
        [*client._call(BRING_METHOD, Named(name), 0, [b"x", b""])]  # type: ignore[arg-type]
    assert sorted(path.name for path in bank.base.rglob("*.cutlayer")) == [parcel_name(BANK, TELCO, 0)]


@pytest.mark.parametrize(("round_", "number"), [(ROUND, 1), (ROUND, 10**17), (ROUND, -1), ("predict-1~july", 0)])
def test_nothing_is_taken_that_nothing_was_written_for(bank: Bank, round_: str, number: int) -> None:
    """No disk fills with files that no round waits for."""
    for method in (BRING_METHOD, FETCH_METHOD, END_METHOD):
        with bank.client() as client, pytest.raises(PeerLost, match="bank has not written file"):
            [*client._call(method, Path(round_), number, [b"x", b""])]
    assert [path.name for path in bank.folder.rglob("*")] == [ROUND, parcel_name(BANK, TELCO, 0)]


def test_a_file_that_is_cut_off_is_none(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = grpc_files._read_pieces
    monkeypatch.setattr(grpc_files, "_read_pieces", lambda path: [*whole(path)][:-1])
    folder = bank.at(TELCO)
    with bank.client() as client, pytest.raises(ProtocolError, match="expected the whole of bank~telco~0"):
        client.carry(folder, folder / parcel_name(BANK, TELCO, 0))
    (folder / parcel_name(TELCO, BANK, 0)).write_bytes(CONTENT)
    with bank.client() as client, pytest.raises(ProtocolError, match="the whole of telco~bank~0"):
        client.carry(folder)
    names = {path.name for path in (*folder.iterdir(), *bank.round.iterdir())}
    assert names == {parcel_name(TELCO, BANK, 0), parcel_name(BANK, TELCO, 0)}
    assert not (folder / parcel_name(BANK, TELCO, 0)).exists()
    assert not (bank.round / parcel_name(TELCO, BANK, 0)).exists()


def test_a_full_disk_takes_no_file(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "RESERVED_BYTES", 1 << 62)
    folder = bank.at(TELCO)
    with bank.client() as client, pytest.raises(RunFolderError, match="GB free at"):
        client.carry(folder, folder / parcel_name(BANK, TELCO, 0))
    assert not [*folder.iterdir()]
    (folder / parcel_name(TELCO, BANK, 0)).write_bytes(CONTENT)
    with bank.client() as client:
        assert not client.carry(folder)  # it waits, and learns no path of the bank's
        assert "bank has no room for the file" in client.missing_reason(BANK)
        assert str(bank.base) not in client.missing_reason(BANK)
    assert [path.name for path in bank.round.iterdir()] == [parcel_name(BANK, TELCO, 0)]


def test_a_withdrawn_approval_stops_files_that_were_written_before(bank: Bank) -> None:
    folder = bank.at(TELCO)
    bank.withdrawn = True
    with bank.client() as client:
        client.carry(folder, folder / parcel_name(BANK, TELCO, 0))
        assert "withdrawn" in client.missing_reason(BANK)
        assert not [*folder.iterdir()]
        (folder / parcel_name(TELCO, BANK, 0)).write_bytes(CONTENT)
        with pytest.raises(NotApproved):
            client.carry(folder)
    assert [path.name for path in bank.round.iterdir()] == [parcel_name(BANK, TELCO, 0)]


def test_strangers_and_other_jobs_are_refused(bank: Bank, tmp_path: Path) -> None:
    wanted = bank.at(TELCO) / parcel_name(BANK, TELCO, 0)
    with bank.client(contract=Contract({"rows": "common"})) as client, pytest.raises(ProtocolError, match="rows"):
        client.carry(wanted.parent, wanted)
    other = Federation(tmp_path / "others", TELCO)
    security = other.security(TELCO)
    with (
        FileClient(bank.server.address, TELCO, BANK, lambda: None, security=security, contract=JOB) as client,
        pytest.raises(TrustError),
    ):
        client.carry(wanted.parent, wanted)
    assert not wanted.exists()


def test_nobody_there_is_no_error(bank: Bank) -> None:
    folder = bank.at(TELCO)
    (folder / parcel_name(TELCO, BANK, 0)).write_bytes(CONTENT)
    client = bank.client()
    bank.server.end()
    with client:
        assert not client.carry(folder)
        assert client.missing_reason(BANK)
        client.finish(folder, (BANK,), 60)
    bank.server.finish(bank.round, (), 60)  # no partner takes part: at once
