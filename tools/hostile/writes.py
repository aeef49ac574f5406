"""What turns a copy of honest files into a hostile one."""

from __future__ import annotations

import io
import os
import sqlite3
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet

from cutlayer.config.load import as_yaml, read_yaml
from cutlayer.storage.tensor_file import read_tensors, write_tensors
from tools.hostile.keys import with_value

Write = Callable[[Path, Mapping[str, str]], None]
"""Changes a folder; strings have the names of the bait in braces."""


def _filled(value: Any, bait: Mapping[str, str]) -> Any:
    if isinstance(value, str) and ("{outside}" in value or "{trap}" in value):
        return value.replace("{outside}", bait["outside"]).replace("{trap}", bait["trap"])
    if isinstance(value, Mapping):
        return {key: _filled(part, bait) for key, part in value.items()}
    return [_filled(part, bait) for part in value] if isinstance(value, tuple) else value


def set_key(file: str, key: tuple[str, ...], value: Any, folder: Path, bait: Mapping[str, str]) -> None:
    """Set a key of a YAML file."""
    path = folder / file
    path.write_text(as_yaml(with_value(read_yaml(path), key, _filled(value, bait))))


def set_query(file: str, query: str, text: str, place: str, folder: Path, bait: Mapping[str, str]) -> None:
    """Have a party's table be the rows of a query, on a database inside or outside of the folder."""
    (folder / query).write_text(_filled(text, bait))
    database = f"{bait['outside']}/bait.db" if place == "outside" else str(folder / "telco.db")
    table = {"path": str(folder / query), "url": f"sqlite:///{database}"}
    set_key(file, ("parties", "telco", "table"), table, folder, bait)


def write_text(file: str, text: str, folder: Path, bait: Mapping[str, str]) -> None:
    """Write a text in place of a file."""
    (folder / file).write_text(_filled(text, bait))


def write_bytes(file: str, content: bytes, folder: Path, bait: Mapping[str, str]) -> None:
    """Write bytes in place of a file."""
    path = folder / file
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def link(file: str, folder: Path, bait: Mapping[str, str]) -> None:
    """Put a link to the bait in place of a file."""
    (folder / file).unlink()
    (folder / file).symlink_to(Path(bait["outside"]) / "bait.csv")


def write_odd_tensors(
    file: str, tensors: Mapping[str, Any], header: Mapping[str, str], folder: Path, bait: Mapping[str, str]
) -> None:
    """Write tensors, with the right checksum, in place of a file."""
    (folder / file).unlink()
    write_tensors(folder / file, tensors, header)


def write_pickle(file: str) -> Write:
    """What writes an array that runs a program when it is unpickled."""

    class Payload:
        def __reduce__(self) -> Any:
            return os.system, ("true hostile",)

    def write(folder: Path, bait: Mapping[str, str]) -> None:
        np.save(folder / file, np.array([[Payload()]], dtype=object), allow_pickle=True)

    return write


def write_parquet(file: str, table: pa.Table, folder: Path, bait: Mapping[str, str]) -> None:
    """Write a table in place of a file."""
    parquet.write_table(table, folder / file)


def write_bomb(file: str, names: list[str], folder: Path, bait: Mapping[str, str]) -> None:
    """Seventy million equal rows in some kilobytes."""
    with parquet.ParquetWriter(folder / file, pa.schema([(name, pa.float64()) for name in names])) as writer:
        piece = pa.table({name: np.zeros(10_000_000) for name in names})
        for _ in range(7):
            writer.write_table(piece)


def write_view(folder: Path, bait: Mapping[str, str]) -> None:
    """A ledger whose table is a view that never ends."""
    path = folder / ".cutlayer" / "ledger.sqlite"
    with sqlite3.connect(path) as database:
        names = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        for name in names:
            columns = [row[1] for row in database.execute(f"pragma table_info({name})")]
            database.execute(f"drop table {name}")
            selected = ", ".join(f"zeroblob(100000000) as {column}" for column in columns)
            database.execute(f"create view {name} as select {selected} from sqlite_master, sqlite_master")
    database.close()


def swap_estimator(program: str, folder: Path, bait: Mapping[str, str]) -> None:
    """Put a pipeline that calls a program in place of the fitted estimator."""
    from sklearn.dummy import DummyClassifier
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer
    from sklearn.utils import _testing
    from skops.io import dumps

    dummy = DummyClassifier(strategy="constant", constant="true hostile").fit([[0]], ["true hostile"])
    function = os.system if program == "os.system" else _testing.check_output
    module = program.rpartition(".")[0]
    steps = [("text", FunctionTransformer(dummy.predict)), ("call", FunctionTransformer(function))]
    if function is not os.system:
        steps[1] = ("call", FunctionTransformer(function, kw_args={"shell": True}))
    steps.append(("answer", dummy))
    content = _renamed(dumps(Pipeline(steps)), function.__module__, module)
    _swap_content(folder, lambda head: head + b"\n" + content)


def _renamed(archive: bytes, was: str, now: str) -> bytes:
    """An archive whose schema has an object under the name of a module that merely imports it."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(made, "w") as target:
        for name in source.namelist():
            text = source.read(name)
            target.writestr(name, text.replace(f'"{was}"'.encode(), f'"{now}"'.encode()))
    return made.getvalue()


def swap_form(form: str, folder: Path, bait: Mapping[str, str]) -> None:
    """Name another library in place of that of the fitted estimator."""
    _swap_content(folder, lambda head: form.encode() + b" " + head.partition(b" ")[2] + b"\nnothing of this form")


def _swap_content(folder: Path, change: Callable[[bytes], bytes]) -> None:
    for path in sorted((folder / "checkpoint" / "bank").glob("*.safetensors")):
        tensors, header = read_tensors(path)
        for key, tensor in tensors.items():
            if key.endswith(".content"):
                head = bytes(tensor.numpy()).partition(b"\n")[0]
                tensors[key] = torch.frombuffer(bytearray(change(head)), dtype=torch.uint8)
        path.unlink()
        write_tensors(path, tensors, header)
