"""`cutlayer forget`: bit by bit the run that never had the rows, what is left of them on disk, and who signs it."""

from __future__ import annotations

import json
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Mapping
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from cutlayer.accounting.release_log import ReleaseLog
from cutlayer.channel.receipts import Receipt
from cutlayer.channel.trail import verify_trail
from cutlayer.cli import report as reporting
from cutlayer.cli import run as running
from cutlayer.cli.forget import _next, _show
from cutlayer.config import Job, validated
from cutlayer.data.carried import Carried
from cutlayer.data.ids import row_digests
from cutlayer.jobs import forget as forgetting
from cutlayer.parties.grade_memory import GradeMemory, JoinKeys
from cutlayer.parties.session.local import LocalSide
from cutlayer.training.forgetting import Forgetting
from cutlayer.training.keys import Keys
from tests.channel.certificates import Federation
from tests.cli.jobs import Place, QuietPlace, Result, as_yaml
from tests.parties.processes import forked, run_in
from tests.parties.runs import raw_job
from tools.ports import free_port

ROWS = 300
ROWS_GONE = (77, 100, 299)
"""One in a hundred."""
DATED = {
    "all_runs.json",
    "committed.json",
    "files.json",
    "store.json",
    "history.jsonl",
    "job.yaml",
    "summary.json",
    "outcome.json",
    "secret.path",
    "release_log.json",
}
"""Files that hold a time, a path, or a digest of the table's file or of one of these."""
LOGS = {".jsonl"}
COUNTED = re.compile(rb'\\"entries\\": \d+|"checksum": "\w+"')
"""Lines of the log of releases, which also counts a training that was killed, and the checksum of a state with them."""
REPORTS = {"report.json", "report.html"}
PRIVATE: Mapping[str, Any] = {
    "bank": {"id": "id", "label": "label", "audit": {"attacks": []}, "privacy": {"label_dp": {"eps": 3.0}}},
    "telco": {
        "id": "id",
        "fit": {"kind": "grade", "candidates": ["linear"], "folds": 2},
        "audit": {"attacks": []},
        "privacy": {"grade_dp": {"epsilon": 8}},
    },
}
PRIVATE = {**PRIVATE, "shop": PRIVATE["telco"]}


@pytest.fixture(autouse=True)
def same_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """All secrets are equal, so that a run that never had the rows has the keys of the one that forgot them."""
    all_keys_equal(monkeypatch)
    named, runs = LocalSide.release_log, count()

    def release_log(party: LocalSide, job: Job, rows: bytes) -> ReleaseLog:
        """A log of its own for each run, as its own key of noise gives it."""
        log = named(party, job, rows)
        if log.path and log.marker:
            of_run = json.loads(log.marker.read_text())["log"] if log.marker.exists() else None
            log.path = Path(of_run) if of_run else log.path.with_stem(f"{log.path.stem}-{next(runs)}")
        return log

    monkeypatch.setattr(LocalSide, "release_log", release_log)


def table_of(party: str, without: Collection[int] = ()) -> pa.Table:
    draw = np.random.default_rng(0)
    ids, hidden = np.arange(ROWS), draw.normal(size=ROWS)
    label = (hidden + draw.normal(size=ROWS) * 0.3 > 0).astype(int)
    columns = {
        "bank": {"id": ids, "age": hidden * 0.3 + draw.normal(size=ROWS), "label": label},
        "telco": {"id": ids, "calls": hidden + draw.normal(size=ROWS), "usage": draw.normal(size=ROWS)},
        "shop": {"id": ids, "sales": hidden + draw.normal(size=ROWS), "visits": hidden + draw.normal(size=ROWS)},
    }
    left = ~np.isin(ids, list(without)) & (ids >= (0 if party == "bank" else ROWS // 5))
    return pa.table(columns[party]).filter(pa.array(left))


def job_of(*parties: str, apart: bool = False) -> dict[str, Any]:
    bottom = {name: {"kind": "auto"} if name == "bank" else {"kind": "grade", "least_rows": 0} for name in parties}
    sections = {name: {"role": "active" if name == "bank" else "passive"} for name in parties}
    if not apart:
        sections = {name: {**section, "table": f"{name}.csv", **PRIVATE[name]} for name, section in sections.items()}
    model = {"bottom": bottom, "top": {"kind": "auto", "candidates": ["linear"]}}
    train = {**raw_job()["train"], "release": "once"}
    return {"task": "binary", "rows": "all", "model": model, "train": train, "parties": sections}


def lay_out(folder: Path, *parties: str, without: Collection[int] = ()) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in parties:
        csv.write_csv(table_of(name, without), folder / f"{name}.csv")
    (folder / "job.yaml").write_text(as_yaml(job_of(*parties)))
    return folder / "job.yaml"


def listed(folder: Path, rows: Collection[int]) -> Path:
    csv.write_csv(pa.table({"id": list(rows)}), folder / "withdrawn.csv")
    return folder / "withdrawn.csv"


def contents(folder: Path, ignored: Collection[str] = DATED | REPORTS) -> dict[str, bytes]:
    # A log of releases in the folder names its place.
    files = (path for path in folder.rglob("*") if path.is_file() and not {path.name, path.suffix} & {*ignored, *LOGS})
    return {str(path.relative_to(folder)): _content(path) for path in files}


def _content(path: Path) -> bytes:
    """A file without counts, and what grades carry without the earlier releases, which the partner remembers."""
    content = COUNTED.sub(b"", path.read_bytes())
    if path.name != "carried.json":
        return content
    found = Carried.model_validate_json(content)
    return found.model_copy(update={"former": 0, "together": ()}).model_dump_json().encode()


def same(one: Path, other: Path, random: Collection[str] = ()) -> None:
    mine, theirs = (contents(folder, {*DATED, *REPORTS, *random}) for folder in (one, other))
    assert mine.keys() == theirs.keys()
    assert [name for name in mine if mine[name] != theirs[name]] == []
    assert any("best" in name for name in mine)


def traces_of(rows: Collection[int], folder: Path, run: Path) -> dict[str, bytes]:
    """What a file could hold of the rows: digests of their ids, and their encoded columns, by the run that had them."""
    found: dict[str, bytes] = {}
    for party in ("bank", "telco"):
        kept = table_of(party)["id"].to_numpy()
        store = run / "data" / party
        numbers = np.load(store / "numbers.npy") if (store / "numbers.npy").exists() else None
        for row in rows:
            found[f"digest of {row}"] = row_digests(pa.array([row])).tobytes()
            if numbers is not None and len(numbers) == len(kept):
                found[f"{party}'s columns of {row}"] = numbers[list(kept).index(row)].tobytes()
            for value in table_of(party).filter(pa.array(kept == row)).to_pylist()[0].values():
                if isinstance(value, float):
                    found[f"{value} of {row}"] = str(value)[:12].encode()
                    found[f"double {value} of {row}"] = np.float64(value).tobytes()
    return {what: trace for what, trace in found.items() if len(trace) >= 8}


def holding(folder: Path, traces: Mapping[str, bytes], tables: Collection[str]) -> dict[str, list[str]]:
    """The files in which a trace is found, apart from the owners' tables."""
    held: dict[str, list[str]] = {}
    for name, content in contents(folder, tables).items():
        if hits := [what for what, trace in traces.items() if trace in content]:
            held[name] = hits
    return held


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job of two parties, trained with all rows; not to be changed."""
    folder = tmp_path_factory.mktemp("trained")
    job = lay_out(folder, "bank", "telco")
    with pytest.MonkeyPatch.context() as patched:
        all_keys_equal(patched)
        assert quietly("run", job) == 0
    return folder


def all_keys_equal(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(secrets, "token_bytes", lambda size=32: b"\7" * size)
    patched.setattr(secrets, "token_hex", lambda size=32: "07" * size)


def quietly(verb: str, *options: object) -> int:
    from cutlayer.cli.app import _run

    return _run([verb, *map(str, options), "--json"])


@pytest.fixture(scope="module")
def never(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same job trained by tables that lack these rows; not to be changed."""
    folder = tmp_path_factory.mktemp("never")
    job = lay_out(folder, "bank", "telco", without=ROWS_GONE)
    with pytest.MonkeyPatch.context() as patched:
        all_keys_equal(patched)
        assert quietly("run", job) == 0
    return folder


@pytest.fixture
def world(trained: Path, place: Place) -> Path:
    return Path(shutil.copytree(trained, place.folder / "world"))


def test_forgotten_rows_leave_the_run_that_never_had_them(world: Path, place: Place, never: Path) -> None:
    rows = ROWS_GONE
    traces = traces_of(rows, world, world / "runs" / "job")
    tables = {"bank.csv", "telco.csv", "withdrawn.csv"}
    held = holding(world, traces, tables)
    assert {Path(name).name for name in held} >= {"released.safetensors", "numbers.npy"}, (
        "what files hold is looked for"
    )
    before = place.call("ledger", world / ".cutlayer", "--json").document()
    grades, gone = GradeMemory(world / ".cutlayer" / "telco.key.grades"), row_digests(pa.array(sorted(rows)))
    assert grades.other_releases("", JoinKeys(gone))[0] or max(rows) < ROWS // 5
    done = place.call("forget", world / "job.yaml", "--rows", listed(world, rows), "--json")
    assert done.code == 0, done
    assert not grades.other_releases("", JoinKeys(gone))[0]
    within = sum(row >= ROWS // 5 for row in rows)
    assert json.loads(done.out)["left_out"] == {"bank": len(rows), "telco": within}
    same(world / "runs" / "job", never / "runs" / "job")
    memory = contents(never / ".cutlayer" / "bank.key.labels")
    assert memory == contents(world / ".cutlayer" / "bank.key.labels")
    assert holding(world, traces, tables) == {}
    report = json.loads((world / "runs" / "job" / "report.json").read_text())
    assert report["parties"][0]["left_out"] == {"that were forgotten": len(rows)}
    spent = place.call("ledger", world / ".cutlayer", "--json").document()
    assert [each["what"] for each in spent["forgotten"]] == ["rows of bank, telco"]
    assert {run["count"] for run in spent["runs"]} == {run["count"] for run in before["runs"]} | {
        run["count"] - len(rows) for run in before["runs"]
    }, "what was spent stays spent"


def test_what_a_forgetting_leaves_is_named_and_its_rows_alone_are_no_table(
    world: Path, trained: Path, place: Place
) -> None:
    """The run that was copied is in the ledger of all runs still."""
    done = place.call("forget", world / "job.yaml", "--rows", listed(world, [ROWS - 1]), "--json").document()
    assert done["not_deleted"] == [f"the run in {trained / 'runs' / 'job'}, where --run looks"]
    assert (trained / "runs" / "job" / "job.yaml").exists()
    for name in ("bank", "telco"):
        head, *lines = (world / f"{name}.csv").read_text().splitlines()
        [gone] = [line for line in lines if line.startswith(f"{ROWS - 1},")]
        (world / f"gone-{name}.csv").write_text(f"{head}\n{gone}\n")
    new = [part for name in ("bank", "telco") for part in ("--data", f"{name}={world / f'gone-{name}.csv'}")]
    told = place.call("predict", world / "runs" / "job", "--out", world / "none.csv", *new)
    assert told.code == 2
    assert "expected rows to predict at bank, got 1, all of them that were forgotten" in told.err


def test_a_forgotten_id_takes_all_rows_of_it(place: Place) -> None:
    """Two rows of the bank for each third customer: the choices and draws of the other ids stay as they were."""
    for name, without in (("world", ()), ("never", (77, 99))):
        job = lay_out(place.folder / name, "bank", "telco", without=without)
        document = job_of("bank", "telco")
        document["parties"]["bank"]["id"] = {"column": "id", "duplicates": "keep"}
        job.write_text(as_yaml(document))
        rows = table_of("bank", without)
        more = rows.filter(pa.array(rows["id"].to_numpy() % 3 == 0))
        csv.write_csv(pa.concat_tables([rows, more]), job.parent / "bank.csv")
        assert place.call("run", job).code == 0
    world, never = place.folder / "world", place.folder / "never"
    done = place.call("forget", world / "job.yaml", "--rows", listed(world, (77, 99)), "--json")
    assert json.loads(done.out)["left_out"] == {"bank": 3, "telco": 2}
    same(world / "runs" / "job", never / "runs" / "job")
    assert contents(never / ".cutlayer" / "bank.key.labels") == contents(world / ".cutlayer" / "bank.key.labels")


def test_a_partner_that_is_forgotten_leaves_the_run_that_never_had_it(trained: Path, place: Place) -> None:
    world, never = place.folder / "world", Path(shutil.copytree(trained, place.folder / "never"))
    assert place.call("run", lay_out(world, "bank", "telco", "shop")).code == 0
    shutil.copy(world / "job.yaml", world / "runs" / "job.yaml")  # which is no run, and hides none
    grades = {name: [*(world / ".cutlayer" / f"{name}.key.grades").glob("*.safetensors")] for name in ("telco", "shop")}
    assert all(map(len, grades.values())), grades
    assert place.call("forget", world / "job.yaml", "--party", "shop").code == 0
    assert [path.exists() for name in ("telco", "shop") for path in grades[name]] == [True, False]
    same(world / "runs" / "job", never / "runs" / "job")
    alone = place.call("forget", never / "job.yaml", "--party", "telco")
    assert (alone.code, "no party is left to train with" in alone.out) == (0, True), alone
    assert not (never / "runs" / "job").exists()


def test_a_forgetting_that_is_killed_at_each_of_its_steps_leaves_no_run_and_goes_on(
    world: Path, never: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, (job, run) = ROWS_GONE, (world / "job.yaml", world / "runs" / "job")
    arguments = ("forget", job, "--rows", listed(world, rows), "--json")
    other = (*arguments[:3], listed(place.folder, (5,)), "--json")

    def killed(*_: object, **__: object) -> Any:
        raise KeyboardInterrupt

    places: Mapping[str, tuple[Any, str]] = {
        "mark": (forgetting.JobDeletion, "_forget_rows"),
        "folders": (forgetting.shutil, "rmtree"),
        "trained": (running, "train"),
        "receipt": (Receipt, "add_to"),
    }
    for where, (owner, name) in places.items():
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, killed)
            assert place.call(*arguments).code == 130, where
        assert run.exists() == (where in ("mark", "folders", "receipt")), where
        for verb in ("report", "predict", "audit"):
            options = ("--data", world / "bank.csv", "--out", world / "scores.csv") if verb == "predict" else ()
            assert place.call(verb, run, *options).code == 2, (where, verb)
        assert "end that one first" in place.call(*other).document()["error"], where
    assert place.call(*arguments).code == 0
    same(run, never / "runs" / "job")
    assert place.call("report", run).code == 0


def test_what_is_refused_deletes_nothing(world: Path, place: Place) -> None:
    before, job = contents(world / "runs", ()), world / "job.yaml"
    (world / "empty.csv").write_text("other\n1\n")
    for options, message in (
        ((), "expected --rows, --party or both, or --accept alone"),
        (("--party", "shop"), "expected --party of bank, telco, got shop"),
        (("--rows", world / "empty.csv"), "no column 'id'"),
        (("--rows", world / "gone.csv"), "gone.csv"),
        (("--accept", world / "x.json"), "expected --accept and --folder between organisations"),
        (("--rows", listed(world, (1,)), "--as", "bank"), "--as and --local together"),
    ):
        refused = place.call("forget", job, *options)
        assert (refused.code, message in refused.error) == (2, True), refused
    assert contents(world / "runs", ()) == before
    (world / "telco.csv").write_text((world / "telco.csv").read_text())
    (world / ".cutlayer" / "telco.key.forgotten").write_bytes(bytes(40))
    assert "restore the file" in place.call("run", job, "--out", world / "runs" / "other").error


def test_ids_that_no_record_has_change_nothing_and_an_id_that_was_trained_on_is_forgotten(
    world: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is trained afterwards is not looked at."""
    monkeypatch.setattr(running, "train", lambda *_, **__: None)
    monkeypatch.setattr(reporting, "write_report", lambda *_, **__: None)
    before, job = contents(world, ()), world / "job.yaml"
    (world / "withdrawn.csv").write_text("id\n9901\n9902\n")
    refused = place.call("forget", job, "--rows", world / "withdrawn.csv")
    assert "an id that bank or telco has, or had, got unknown ones (2): 9901, 9902; are they" in refused.error
    assert (refused.code, contents(world, {"withdrawn.csv"})) == (2, before)
    for name in ("bank", "telco"):  # gone from both tables, and trained on
        csv.write_csv(table_of(name, (77,)), world / f"{name}.csv")
    (world / "withdrawn.csv").write_text("id\n0077\n9902\n")
    assert place.call("forget", job, "--rows", world / "withdrawn.csv").code == 0
    (world / "withdrawn.csv").write_text("id\n77\n9902\n")
    done = place.call("forget", job, "--rows", world / "withdrawn.csv", "--json").document()
    assert (done["left_out"], done["unknown"]) == ({"bank": 0, "telco": 0}, ["9902"])
    assert "9902" not in json.dumps(done["receipts"])
    (world / "withdrawn.csv").write_text("id\n9903\n")
    insisted = place.call("forget", job, "--rows", world / "withdrawn.csv", "--unknown")
    assert insisted.code == 0
    assert "1 of the ids were never here, as far as is known: 9903" in insisted.out


class Apart:
    """Two organisations, each with a folder of its own, which exchange files in a third."""

    def __init__(self, base: Path, place: Place, **job: Any) -> None:
        self.base, self.place = base, place
        if base.exists():  # a copy of another
            return
        keys = Federation(base / "keys", "telco")
        for name in ("bank", "telco"):
            home = base / name
            home.mkdir()
            csv.write_csv(table_of(name), home / "own.csv")
            csv.write_csv(table_of(name), home / "new.csv")
            raw = {**job_of("bank", "telco", apart=True), "federation": "loans"}
            raw["parties"]["bank"] |= job
            (home / "job.yaml").write_text(as_yaml(raw))
            (home / f"{name}.yaml").write_text(as_yaml({"table": "own.csv", **PRIVATE[name]}))
            shutil.copytree(keys.base / name, home / "keys")

    def call(self, name: str, verb: str, *options: object) -> Result:
        home = self.base / name
        named = ("--as", name, "--local", home / f"{name}.yaml", "--json")
        return self.place.call(*verb.split(), home / "job.yaml", *named, *options)

    def exchange(self, *options: object, out: Path | None = None) -> None:
        done: dict[str, int] = {}
        for _ in range(3):
            for name in ("bank", "telco"):
                data = ("--data", self.base / name / "new.csv") if out else ()
                more = (*options, *data, *(("--out", out) if out and name == "bank" else ()))
                result = self.call(name, "exchange", "--folder", self.base / "shared", *more)
                assert result.code in (0, 5), result
                done[name] = result.code
            if not any(done.values()):
                break
        assert done == {"bank": 0, "telco": 0}

    def forget(self, asking: str, *options: object) -> tuple[Path, Path]:
        """Both delete and sign; returns the two receipts."""
        other = "bank" if asking == "telco" else "telco"
        shared = ("--folder", self.base / "shared")
        asked = self.call(asking, "forget", *options, *shared)
        assert asked.code == 5, asked
        assert asked.document()["missing"] == [other]
        (request,) = map(Path, asked.document()["written"])
        answered = self.call(other, "forget", "--accept", request, *shared)
        assert answered.code == 0, answered
        (answer,) = map(Path, answered.document()["written"])
        assert self.call(asking, "forget", "--accept", answer, *shared).code == 0
        return request, answer


@pytest.fixture(scope="module")
def exchanged_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of two organisations that have trained version 1; not to be changed."""
    folder = tmp_path_factory.mktemp("exchanged")
    with pytest.MonkeyPatch.context() as patched:
        all_keys_equal(patched)
        Apart(folder / "here", QuietPlace(folder)).exchange("--version", "1")
    return folder / "here"


@pytest.fixture
def exchanged(exchanged_once: Path, place: Place) -> Apart:
    return Apart(Path(shutil.copytree(exchanged_once, place.folder / "here")), place)


def test_by_courier_both_delete_and_sign_and_nothing_of_a_row_is_left(exchanged: Apart, place: Place) -> None:
    rows, here = ROWS_GONE, exchanged
    predictions = here.base / "bank" / "june.parquet"
    here.exchange("--round", "june", out=predictions)
    old_run = shutil.copytree(here.base / "bank" / "runs" / "job-bank-1", place.folder / "old run")
    old = shutil.copytree(here.base / "bank" / "runs" / "job-bank.rounds" / "train-1", place.folder / "old")
    traces = {f"digest of {row}": row_digests(pa.array([row])).tobytes() for row in rows}
    tables = {"own.csv", "new.csv", "withdrawn.csv"}
    assert holding(here.base, traces, tables)
    csv_rows = [path for path in here.base.rglob("rows.csv") if ',"77"' in path.read_text()]
    assert csv_rows
    request, answer = here.forget("telco", "--rows", listed(here.base / "telco", rows))
    left = {path.name for path in here.base.rglob("*") if path.suffix in (".safetensors", ".release", ".parquet")}
    assert not {name for name in left if not name.startswith(tuple("0123456789abcdef"))}, left
    assert not [*here.base.rglob("rows.csv"), *(here.base / "shared").rglob("*.cutlayer")]
    assert holding(here.base, traces, tables) == {}
    for name, file in (("telco", request), ("bank", answer)):
        assert not verify_trail(here.base / name / ".cutlayer" / f"{name}.key.trail").problems
        assert not re.search(r"\b299\b", Receipt.read(file).approval.model_dump_json()), "an id, and no digest"
    refused = here.call("bank", "exchange", "--folder", here.base / "shared")
    assert "a version of job-bank that was not forgotten, got 1; name a new one" in refused.document()["error"]
    copied = ("--release", old / "telco.release", "--rows", old / "rows.csv", "--resume")
    shutil.copytree(old_run, here.base / "bank" / "copied")
    for name in ("checkpoint/bank/partners.safetensors", "files.json"):
        (here.base / "bank" / "copied" / name).unlink()
    again = here.call("bank", "party", *copied, "--out", here.base / "bank" / "copied")
    assert "a release since telco forgot rows of telco" in again.document()["error"]
    for copy in (old, old_run, here.base / "bank" / "copied"):
        shutil.rmtree(copy)
    here.exchange("--version", "2")
    never = Apart(place.folder / "never", place)
    csv.write_csv(table_of("telco", rows), never.base / "telco" / "own.csv")  # the bank has its own rows still
    never.exchange("--version", "2")
    for name in ("bank", "telco"):
        same(here.base / name / "runs" / f"job-{name}-2", never.base / name / "runs" / f"job-{name}-2")
    here.exchange("--round", "july", out=predictions)
    never.exchange("--round", "july", out=never.base / "bank" / "june.parquet")
    after, without = (parquet.read_table(world.base / "bank" / "june.parquet").to_pylist() for world in (here, never))
    changed = {row["id"] for row, other in zip(after, without, strict=True) if row != other}
    assert changed == {*map(str, rows)}, (
        "the partner withholds these from a table of new rows, which the other world releases"
    )


@pytest.mark.parametrize(("asking", "party"), [("telco", "telco"), ("bank", "bank"), ("bank", "telco")])
def test_the_grades_of_a_job_are_forgotten_by_the_wish_of_their_owner_alone(
    exchanged: Apart, asking: str, party: str
) -> None:
    """Else a partner could have what limits hold by forgotten, and be sent in the next job what they refuse."""
    here = exchanged
    memory = here.base / "telco" / ".cutlayer" / "telco.key.grades"
    before = {path.name: path.read_bytes() for path in memory.glob("*.safetensors")}
    assert len(before) == 1
    here.forget(asking, "--party", party)
    after = {path.name: path.read_bytes() for path in memory.glob("*.safetensors")}
    assert after == ({} if asking == "telco" else before)


def test_predictions_are_left_where_nothing_says_that_they_are_of_the_job(tmp_path: Path) -> None:
    job = validated(Job, job_of("bank", "telco"), "")
    deleting = forgetting.JobDeletion(job, ("bank",), tmp_path / "job", None, Keys(tmp_path))
    deleting._remove_predictions(tmp_path / "gone.csv")
    assert deleting.not_deleted == []
    (tmp_path / "june.csv").touch()
    deleting._remove_predictions(tmp_path / "june.csv")
    assert deleting.not_deleted == ["predictions in june.csv"]
    assert (tmp_path / "june.csv").exists()


def test_receipts_that_are_not_the_partners_are_refused(place: Place) -> None:
    here = Apart(place.folder / "here", place)
    rows = listed(here.base / "telco", (77,))
    (request,) = map(Path, here.call("telco", "forget", "--rows", rows).document()["written"])
    raw = json.loads(request.read_text())

    def refusal(change: Callable[[dict[str, Any]], object]) -> str:
        edited = json.loads(request.read_text())
        change(edited)
        path = here.base / "edited.json"
        path.write_text(json.dumps(edited))
        result = here.call("bank", "forget", "--accept", path)
        error = str(result.document()["error"])
        assert result.code == (2 if "a signed record in" in error else 7), result  # no receipt, or one of another
        return error

    assert "a signature of its content" in refusal(lambda r: r["approval"].update(what="all of telco"))
    assert "a signature of its content" in refusal(lambda r: r["approval"].update(deleted=["x"]))
    assert "an acknowledgement of job" in refusal(lambda r: r["approval"].update(job="0" * 32))
    assert "an acknowledgement between" in refusal(lambda r: r["approval"].update(party="../x"))
    assert "a signed record in" in refusal(lambda r: r["approval"].update(request="../../x"))
    # Every later release is compared with it.
    assert "a signed record in" in refusal(lambda r: r["approval"].update(time="2026-99-99T00:00:00Z"))
    # Text of the partner's choice: what the bank would sign as well, and a line that its ledger would show.
    for words in ("that telco owes nothing", "rows of telco; epsilon 0", "rows of telco\n"):
        assert "a signed record in" in refusal(lambda r, words=words: r["approval"].update(what=words))
    for key in ("deleted", "remains"):
        assert "a signed record in" in refusal(
            lambda r, key=key: r["approval"].update({key: ["x\nall runs: epsilon 0"]})
        )
    assert "a signed receipt of a partner" in refusal(lambda r: r["approval"].update(party="bank"))
    assert "the signature cannot be read" in refusal(lambda r: r.update(signature="?"))
    assert len(raw["approval"]["rows"]) == 64
    (answer,) = map(Path, here.call("bank", "forget", "--accept", request).document()["written"])
    again = here.call("bank", "forget", "--accept", request)  # a replay deletes nothing again
    assert (again.code, again.document()["written"]) == (0, [])
    here.exchange("--version", "1")
    assert here.call("bank", "forget", "--accept", request).code == 0
    assert (here.base / "bank" / "runs" / "job-bank-1" / "summary.json").exists()
    orphan = Apart(place.folder / "orphan", place)
    shutil.rmtree(orphan.base / "keys")
    for name in ("bank", "telco"):
        shutil.rmtree(orphan.base / name / "keys")
        shutil.copytree(here.base / name / "keys", orphan.base / name / "keys")
    early = orphan.call("telco", "forget", "--accept", answer)
    assert (early.code, "the request before the receipts" in early.document()["error"]) == (2, True)


def test_between_processes_the_next_run_is_one_that_never_had_the_rows(place: Place) -> None:
    rows, key = ROWS_GONE, bytes(range(32))
    worlds = {}
    for name in ("here", "never"):
        worlds[name] = world = Apart(place.folder / name, place, address=f"127.0.0.1:{free_port()}")
        for party in ("bank", "telco"):
            (world.base / party / "noise.key").write_bytes(key)
            (world.base / party / "noise.key").chmod(0o600)
    csv.write_csv(table_of("telco", rows), worlds["never"].base / "telco" / "own.csv")

    def run(world: Apart) -> None:
        """The partner in a process of its own, and the bank in this one."""
        named = ["party", "job.yaml", "--as", "telco", "--local", "telco.yaml", "--key", "noise.key", "--json"]
        telco, home = forked(run_in, world.base / "telco", named), world.base / "bank"
        try:
            result = world.call("bank", "party", "--key", home / "noise.key", "--out", home / "runs" / "job-bank")
            assert (result.code, telco.wait()) == (0, 0), result
        finally:
            telco.kill()

    worlds["here"].forget("telco", "--rows", listed(worlds["here"].base / "telco", rows))
    run(worlds["here"])
    run(worlds["never"])
    named_by_run = {"model.json", "partners.safetensors"}  # the id of the training, which the server draws
    for party in ("bank", "telco"):
        same(*(world.base / party / "runs" / f"job-{party}" for world in worlds.values()), named_by_run)


def test_a_mark_that_is_damaged_opens_nothing(tmp_path: Path) -> None:
    mark = Forgetting.begin(tmp_path / "job", "rows of bank", b"x", ["job"])
    mark.path.write_text("{}")
    from cutlayer.errors import RunFolderError
    from cutlayer.training.forgetting import check_not_forgetting

    with pytest.raises(RunFolderError, match="the mark of a forgetting"):
        check_not_forgetting(tmp_path / "job")


@pytest.mark.parametrize(
    ("more", "said"), [((), "receipt: r.json, for the other parties"), (("done",), "receipt: r.json\n")]
)
def test_a_receipt_says_for_whom_it_is(more: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    deleting: Any = SimpleNamespace(unknown=[], left_out={}, not_deleted=())
    _show([], deleting, [Path("r.json")], [], *more, as_json=False)
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rounds", "said"),
    [
        ((), "cutlayer party"),
        (("train-1", "predict-1-june"), "cutlayer exchange --version 2"),
        (("train-may", "train-2027"), "cutlayer exchange --version 2028"),
    ],
)
def test_the_next_step_is_the_last_line(
    tmp_path: Path, rounds: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A version that was forgotten would be refused by the next exchange."""
    for name in rounds:
        (tmp_path / "job-bank.rounds" / name).mkdir(parents=True)
    deleting: Any = SimpleNamespace(unknown=[], left_out={}, not_deleted=())
    _show([], deleting, [], [], as_json=False, following=_next(tmp_path / "job-bank"))
    assert capsys.readouterr().out.splitlines()[-1] == f"next: train again, at all parties: {said}"


@pytest.mark.parametrize(("left_out", "asked"), [({}, False), ({"telco": 0}, True), ({"bank": 1, "telco": 0}, False)])
def test_ids_that_no_table_has_are_asked_about(
    left_out: dict[str, int], asked: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    deleting: Any = SimpleNamespace(unknown=[], left_out=left_out, not_deleted=())
    _show([], deleting, [Path("r.json")], [], as_json=False)
    assert ("none of these ids is in a table here now" in capsys.readouterr().out) == asked
