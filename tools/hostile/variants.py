"""The hostile files, each made from an honest one."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet

from cutlayer.config import Job, PrivateFile
from cutlayer.models import BOTTOMS, TOPS
from cutlayer.storage.tensor_file import read_tensors
from tools.hostile.keys import keys_of, values_of
from tools.hostile.writes import (
    Write,
    link,
    set_key,
    set_query,
    swap_estimator,
    swap_form,
    write_bomb,
    write_bytes,
    write_odd_tensors,
    write_parquet,
    write_pickle,
    write_text,
    write_view,
)

JOB_VERBS = ("check", "run", "sweep")
RUN_VERBS = ("report", "dpia", "audit", "predict", "export", "serve", "check-run")
READERS: Mapping[str, tuple[str, ...]] = {
    "checkpoint": ("dpia", "audit", "predict", "export", "serve"),
    "data": ("report", "audit", "predict", "export", "serve"),
    "transcript": ("audit",),
    "": ("report", "dpia", "audit"),
}
"""Verbs that read the files of a run folder, by the folder in it."""
_OF_EACH = ("best.safetensors", "released.safetensors")
"""Files whose content is another one in each kind of run."""
STATEMENTS = (
    "drop table telco",
    "vacuum into '{outside}/copy.db'",
    "attach '{outside}/bait.db' as other",
    "select load_extension('{outside}/x.so') as id",
    "pragma writable_schema = on",
    "with few as (select 1) delete from telco returning id, b, c",
    "select id, b, c from telco; drop table telco",
    "with recursive n(id) as (select 1 union all select id + 1 from n limit 2000) select *, zeroblob(1000000) from n",
    "select id, hex(zeroblob(400000000)) as b from telco",
)


@dataclass(frozen=True)
class Variant:
    """A hostile file.

    Attributes:
        name: What is odd in it.
        base: Folder of the honest files that it is made from.
        write: Writes it into a copy of that folder; strings have the names of the bait in braces.
        verbs: Verbs that read it.
        is_private: Whether it is a private file, which may name any path and host.
    """

    name: str
    base: str
    write: Write
    verbs: tuple[str, ...]
    is_private: bool = False


def variants(world: Path, sample: int) -> Iterator[Variant]:
    """All variants, in an order that does not change.

    Args:
        world: The honest files.
        sample: Number of odd values in each JSON file.
    """
    yield from _jobs()
    yield from _private_files()
    yield from _queries()
    for base in ("net", "fit", "graded"):
        yield from _run_folders(world, base, sample)
    yield from _files(world, "part", ("load_part",), sample)
    yield from _files(world, "telco/runs/job-telco", ("report-passive", "audit-passive"), sample // 2, "telco")
    yield from _estimators()
    yield from _exchanged(world)
    yield from _records(world)


def _jobs() -> Iterator[Variant]:
    """One odd value for every key of a job."""
    seen = set[Any]()
    for key, kinds in keys_of(Job, {"parties": ("bank", "telco"), "alternatives": ()}):
        for number, (value, reaches) in enumerate(values_of(key[-1], kinds)):
            short = tuple(part for part in key if part not in ("bank", "telco"))
            if (short, number) in seen and not reaches:  # what reaches nothing is tried at one party
                continue
            seen.add((short, number))
            verbs = JOB_VERBS[: 2 if number else None] if reaches else ("check",)
            yield Variant(f"job:{'.'.join(key)}:{number}", "job", partial(set_key, "job.yaml", key, value), verbs)
    for where, section in _modules():
        write = partial(set_key, "job.yaml", ("model", where), section)
        yield Variant(f"job:model.{where}:{section['kind']}:{section['path']}", "job", write, JOB_VERBS)
    for name, text in _yaml_texts():
        yield Variant(f"job:text:{name}", "job", partial(write_text, "job.yaml", text), ("check", "run"))


def _modules() -> Iterator[tuple[str, dict[str, Any]]]:
    """Sections that name a module, of every kind of model that has a key `path`."""
    configs = {name: kind.config for name, kind in BOTTOMS.items()} | {name: kind.config for name, kind in TOPS.items()}
    for name, config in configs.items():
        if "path" in config.model_fields:
            for path in ("hostile_model:Model", "this:Model", "os:system", "sklearn.utils._testing:check_output"):
                yield from ((where, {"kind": name, "path": path}) for where in ("bottom", "top"))


def _yaml_texts() -> Iterator[tuple[str, str]]:
    yield "object", "parties: !!python/object/apply:os.system ['touch {outside}/made']\n"
    yield "aliases", "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]\n" for n in range(12))
    yield "nested", "a: " + "[" * 100_000 + "]" * 100_000
    yield "digits", "parties: {bank: " + "9" * 100_000 + "}\n"
    yield "nothing", ""
    yield "bytes", "\x00\x01" * 1000
    yield "long", "name: " + "x" * 3_000_000


def _private_files() -> Iterator[Variant]:
    """One odd value for every key of a private file."""
    for key, kinds in keys_of(PrivateFile, {}):
        for number, (value, reaches) in enumerate(values_of(key[-1], kinds)):
            write, verbs = partial(set_key, "telco.yaml", key, value), ("check-as", "preflight")[: 1 + reaches]
            yield Variant(f"private:{'.'.join(key)}:{number}", "telco", write, verbs, True)


def _queries() -> Iterator[Variant]:
    """Statements in the query of a job, and of a run folder, on a database in its own folder and outside."""
    for number, statement in enumerate(STATEMENTS):
        for place in ("inside", "outside"):
            write = partial(set_query, "job.yaml", "telco.sql", statement, place)
            yield Variant(f"query:{number}:{place}", "job", write, ("check", "run"))
    for number, statement in enumerate(STATEMENTS[:3]):
        write = partial(set_query, "job.yaml", "q.sql", statement, "outside")
        yield Variant(f"net:query:{number}", "net", write, RUN_VERBS)


def _run_folders(world: Path, base: str, sample: int) -> Iterator[Variant]:
    """Odd values in the job of a run folder, and in each of its files."""
    for key, kinds in keys_of(Job, {"parties": ("bank", "telco"), "alternatives": ()}):
        values = [(n, value) for n, (value, reaches) in enumerate(values_of(key[-1], kinds)) if reaches]
        for number, value in values if base == "net" else ():
            write = partial(set_key, "job.yaml", key, value)
            yield Variant(f"net:{'.'.join(key)}:{number}", "net", write, RUN_VERBS)
    for where, section in _modules() if base == "net" else ():
        write = partial(set_key, "job.yaml", ("model", where), section)
        yield Variant(f"net:model.{where}:{section['kind']}:{section['path']}", "net", write, RUN_VERBS)
    yield from _files(world, base, (), sample)


def _files(world: Path, folder: str, verbs: tuple[str, ...], sample: int, base: str = "") -> Iterator[Variant]:
    """Odd content of each file of a folder, by its type."""
    base = base or folder
    for path in sorted((world / folder).rglob("*")):
        name = str(path.relative_to(world / base))
        readers = verbs or READERS.get(name.partition("/")[0], READERS[""])
        if not path.is_file() or path.suffix in (".html", ".md", ".lock", ".yaml", ".key"):
            continue
        others = {"fit": ("net",), "graded": ("net", "fit")}.get(folder, ())
        if path.name not in _OF_EACH and any((world / other / name).exists() for other in others):
            continue  # those of another run are as these
        kinds: Iterator[tuple[str, Write]] = _of_any(name)
        yield from (Variant(f"{base}:{name}:{what}", base, write, readers) for what, write in kinds)
        of_type = {".json": _of_json, ".jsonl": _of_json, ".safetensors": _of_tensors, ".npy": _of_arrays}
        of_type |= {".parquet": _of_parquet, ".path": _of_places}
        if path.suffix in of_type:
            made = of_type[path.suffix](path, name, sample)
            yield from (Variant(f"{base}:{name}:{what}", base, write, readers) for what, write in made)


def _of_any(name: str) -> Iterator[tuple[str, Write]]:
    yield "empty", partial(write_bytes, name, b"")
    yield "link", partial(link, name)


def _of_json(path: Path, name: str, sample: int) -> Iterator[tuple[str, Write]]:
    """Odd values of keys that a hash draws, and odd documents."""
    yield "deep", partial(write_bytes, name, b"[" * 200_000)
    yield "list", partial(write_bytes, name, b"[]")
    text = path.read_text()
    lines = text.splitlines() if path.suffix == ".jsonl" else [text]
    document = json.loads(lines[0])
    places = {_shown(place): place for place in _places(document)}
    drawn = sorted(places, key=lambda shown: blake2b(f"{name}{shown}".encode()).digest())[:sample]
    odd: tuple[Any, ...] = (10**15, "../../../outside/bait", None, -1, "x" * 50_000, [[]] * 1000, {"a": {}}, 1e308)
    for number, shown in enumerate(drawn):
        value = odd[number % len(odd)]
        changed = _replaced(document, places[shown], value)
        content = "\n".join([json.dumps(changed), *lines[1:]])
        yield f"{shown}={str(value)[:20]}", partial(write_bytes, name, content.encode())


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _places(part, (*at, key))
    elif isinstance(value, list) and value:
        yield from _places(value[0], (*at, 0))


def _shown(place: tuple[Any, ...]) -> str:
    return ".".join(map(str, place))


def _replaced(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    first, *rest = place
    if isinstance(document, dict):
        return {**document, first: _replaced(document[first], tuple(rest), value)}
    return [_replaced(part, tuple(rest), value) if number == first else part for number, part in enumerate(document)]


def _of_tensors(path: Path, name: str, sample: int) -> Iterator[tuple[str, Write]]:
    """Odd headers, and odd tensors with the right checksum."""
    tensors, header = read_tensors(path)
    content = path.read_bytes()
    yield "header length", partial(write_bytes, name, (2**60).to_bytes(8, "little") + content[8:])
    yield "cut", partial(write_bytes, name, content[: len(content) // 2])
    stated = json.dumps({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
    yield "shape", partial(write_bytes, name, len(stated).to_bytes(8, "little") + stated)
    drawn = random.Random(name).sample(sorted(tensors), min(len(tensors), max(2, sample // 8)))
    for key in drawn:
        tensor = tensors[key]
        changes = {
            "nan": tensor.float() * float("nan"),
            "huge": tensor.double() + 1e300,
            "text": torch.full_like(tensor, 120).to(torch.uint8),
            "flat": tensor.reshape(-1)[: tensor.numel() // 2].clone(),
            "wide": torch.zeros(1, 65_537),
            "negative": -tensor.long() - 10**9,
        }
        for what, changed in changes.items():
            yield f"{key}:{what}", partial(write_odd_tensors, name, {**tensors, key: changed}, header)
        yield f"{key}:missing", partial(write_odd_tensors, name, {k: t for k, t in tensors.items() if k != key}, header)
    for key in header:
        for number, odd in enumerate(("9" * 30, '{"a": ' + "[" * 50_000, "../../outside")):
            yield f"header {key}:{number}", partial(write_odd_tensors, name, tensors, {**header, key: odd})


def _of_arrays(path: Path, name: str, sample: int) -> Iterator[tuple[str, Write]]:
    """A pickle in an array, and odd shapes."""
    stated = np.load(path)
    form = "{{'descr': '{}', 'fortran_order': False, 'shape': ({}, {}), }}"
    yield "pickle", write_pickle(name)
    for what, shape in {"large": (2**40, 2**20), "negative": (-1, 5), "none": (0, 0)}.items():
        text = form.format(stated.dtype.str, *shape).ljust(117) + "\n"
        content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()
        yield what, partial(write_bytes, name, content)


def _of_places(path: Path, name: str, sample: int) -> Iterator[tuple[str, Write]]:
    """Where a secret is: elsewhere, at what is no file, and at nothing."""
    for place in ("{outside}/bait", "../../../outside/bait", "/dev/zero", "\0"):
        yield f"{place!a}", partial(write_text, name, f"{place}\n{place}\n")


def _of_parquet(path: Path, name: str, sample: int) -> Iterator[tuple[str, Write]]:
    """A small file of many rows, and columns of other types."""
    table = parquet.read_table(path)
    yield "bomb", partial(write_bomb, name, table.column_names)
    texts = pa.table({column: ["x" * 1000] * 10 for column in table.column_names})
    yield "texts", partial(write_parquet, name, texts)
    yield "none", partial(write_parquet, name, table.slice(0, 0))


def _estimators() -> Iterator[Variant]:
    """Archives of estimators that name what is no estimator."""
    for program in ("sklearn.utils._testing.check_output", "os.system"):
        write = partial(swap_estimator, program)
        yield Variant(f"fit:estimator:{program}", "fit", write, ("predict-allowed", "export-allowed", "audit-allowed"))
    for form in ("xgboost", "lightgbm", "catboost", "os", "this", "hostile_model"):
        write = partial(swap_form, form)
        yield Variant(f"fit:form:{form}", "fit", write, ("predict-allowed",))


def _exchanged(world: Path) -> Iterator[Variant]:
    """Files that another organisation has sent: of a release, and of an alignment."""
    release = world / "bank" / "telco.release"
    exchanged = [path for path in sorted((world / "exchange").iterdir()) if path.name.startswith("telco")]
    for path, verbs in ((release, ("party-release",)), *((path, ("align-exchange",)) for path in exchanged)):
        name = str(Path("..") / path.relative_to(world))
        content = path.read_bytes()
        draw = random.Random(path.name)
        changed = {"empty": b"", "zeros": bytes(len(content)), "frames": _frames(content)}
        changed |= {f"cut at {at}": content[:at] for at in (1, 12, 100, len(content) // 2, len(content) - 1)}
        for number in range(12):
            at = draw.randrange(len(content))
            changed[f"byte {at}"] = content[:at] + bytes([content[at] ^ (1 << number % 8)]) + content[at + 1 :]
        for at in (0, 4, 8, 16):
            changed[f"length at {at}"] = content[:at] + b"\xff" * 8 + content[at + 8 :]
        for what, text in changed.items():
            yield Variant(f"courier:{path.name}:{what}", "bank", partial(write_bytes, name, text), verbs)


def _frames(content: bytes) -> bytes:
    """The head of a file, four million frames of one byte, and the digest of all that: nobody has signed it."""
    end = 12 + int.from_bytes(content[8:12], "little")
    body = content[:end] + b"\1\0\0\0x" * 4_000_000 + bytes(4)
    seal: bytes = msgpack.packb({"digest": sha256(body).digest(), "signature": b"", "chain": b""})
    return body + seal


def _records(world: Path) -> Iterator[Variant]:
    """The trail and the ledger of all runs of another organisation."""
    trail = ".cutlayer/telco.key.trail"
    for path in sorted((world / "telco" / trail).glob("*.json*")):
        of_json = [*_of_json(path, f"{trail}/{path.name}", 8), *_of_any(f"{trail}/{path.name}")]
        for what, write in of_json:
            yield Variant(f"trail:{path.name}:{what}", "telco", write, ("trail", "trail-show"))
    name = ".cutlayer/ledger.sqlite"
    ledgers: list[tuple[str, Write]] = [("view", write_view)]
    for file in (name, f"{name}.head"):
        odd: list[tuple[str, Write]] = [*_of_any(file), ("zeros", partial(write_bytes, file, bytes(5000)))]
        ledgers += [(f"{Path(file).suffix[1:]} {what}", write) for what, write in odd]
    yield from (Variant(f"ledger:{what}", "telco", write, ("ledger",)) for what, write in ledgers)


def copy_base(world: Path, base: str, trial: Path) -> None:
    """Copy the honest files of a variant, and those that its verbs read too."""
    for name in {base, *({"exchange"} if base == "bank" else set())}:
        shutil.copytree(world / name, trial / name, symlinks=True)
