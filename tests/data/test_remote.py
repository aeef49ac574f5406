"""Tables at addresses: fetched once, with consent, and from nowhere else."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from cutlayer.config import TableConfig, validated
from cutlayer.config.reaches import consent_option, is_closed, named_path, reaches
from cutlayer.config.remote import remote_path
from cutlayer.data.sources import open_source
from cutlayer.errors import ConfigError, DataError

fsspec = pytest.importorskip("fsspec")
ROWS = {"id": [1, 2, 3], "plan": ["a", "b", None]}


def config(path: str, **settings: Any) -> TableConfig:
    return validated(TableConfig, {"path": path, **settings}, "table")


def read(path: str, **settings: Any) -> dict[str, Any]:
    return dict(open_source(config(path, **settings), "telco").read_all().to_pydict())


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("aiohttp")
    (tmp_path / "t.csv").write_text("id,plan\n1,a\n2,b\n3,\n")
    parquet.write_table(pa.table(ROWS), tmp_path / "t.parquet")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_file_of_a_web_server(server: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    source = open_source(config(f"{server}/{name}"), "telco")
    assert source.read_all().to_pydict() == ROWS
    (tmp_path / name).unlink()
    assert source.read(["plan"]).to_pydict() == {"plan": ROWS["plan"]}, "of the copy"
    assert [*scratch.glob("cutlayer-table-*")]
    del source
    assert not [*scratch.glob("cutlayer-table-*")]
    with pytest.raises(DataError, match="expected a readable address, got"):
        read(f"{server}/gone.csv")
    assert not [*scratch.glob("cutlayer-table-*")]


@pytest.fixture
def store() -> Iterator[Any]:
    memory = fsspec.filesystem("memory")
    for year, rows in ((2023, "1,a\n"), (2024, "2,b\n3,\n")):
        memory.pipe(f"/shop/year={year}/x.csv", f"id,plan\n{rows}".encode())
    yield memory
    with contextlib.suppress(FileNotFoundError):
        memory.rm("/shop", recursive=True)


def test_folders_and_patterns_of_a_store(store: Any) -> None:
    years = {**ROWS, "year": [2023, 2024, 2024]}
    assert read("memory://shop/year=2024") == {"id": [2, 3], "plan": ["b", None]}
    assert read("memory://shop/year=*/x.csv") == years
    with pytest.raises(DataError, match="a readable address, got no file there"):
        read("memory://shop/*.parquet")


def test_an_address_has_no_more_bytes_than_memory_allows(store: Any) -> None:
    """A server may send without end."""
    with pytest.raises(DataError, match="at most 0 MB once it is fetched and unpacked, got more; raise the party's"):
        open_source(config("memory://shop/year=*/x.csv"), "telco", memory=0)


@pytest.mark.parametrize(
    "address",
    [
        "file:///etc/hosts",
        "ssh://host/x.csv",
        "simplecache::https://host/x.csv",
        "https://host/x.csv::file:///etc/hosts",
        "s3://bucket/../x.csv",
        "https://host",
        "https://reader:secret@host/x.csv",
        "https://host/x.csv?sig=secret",
    ],
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises((ConfigError, DataError)) as caught:
        open_source(config(address), "telco")
    assert "secret" not in str(caught.value)


def test_an_address_needs_consent_to_its_host() -> None:
    table = config("s3://bucket/claims/*.parquet")
    (reach,) = reaches(table, "table")
    assert (reach.where, str(reach.kind), reach.scope) == ("table.path", "host", "bucket")
    assert str(table.path) == "s3://bucket/claims/*.parquet"
    assert table.path.suffix == ".parquet"
    again = validated(TableConfig, table.model_dump(mode="json"), "table")
    assert again.path == table.path
    assert str(again.path) == str(table.path)


def test_a_closed_address_opens_nothing(store: Any) -> None:
    from cutlayer.config.reaches import _closed_path

    shut = _closed_path(remote_path("memory://shop/year=2024/x.csv"))
    assert is_closed(shut)
    assert str(named_path(shut)) == "memory://shop/year=2024/x.csv"
    assert consent_option(named_path(shut)) == "--allow-host shop"
    with pytest.raises(ConfigError, match="allow it by --allow-host shop"):
        open_source(TableConfig(path=shut), "telco")
