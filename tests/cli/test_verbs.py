"""Every verb on a good job: what it prints, what it writes, and its exit code."""

from __future__ import annotations

import json
import shutil
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cutlayer import demo
from cutlayer.cli.app import _run
from cutlayer.config.load import dump_job, load_job
from cutlayer.consent import allowed
from tests.cli.jobs import BOTH, JOB, ROWS, as_yaml, changed, write_tables

UNAUDITED = {"parties.bank.audit": {"every": "never"}}
PROTECTED = {
    "parties.bank.audit": BOTH,
    "parties.bank.privacy": {"label_dp": {"eps": 2.0}, "max_norm": None},
    "compare": ["undefended"],
}


@dataclass(frozen=True)
class Ran:
    """A protected run with its undefended twin, and what was printed."""

    folder: Path
    code: int
    out: str
    err: str

    @property
    def run_folder(self) -> Path:
        return self.folder / "runs" / "job"


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Not to be changed."""
    folder = tmp_path_factory.mktemp("protected")
    write_tables(folder)
    job = changed(JOB, {**PROTECTED, "parties.telco.features": {"include": ["usage", "plan"]}})
    (folder / "job.yaml").write_text(as_yaml(job))
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = _run(["run", str(folder / "job.yaml")])
    return Ran(folder, code, out.getvalue(), err.getvalue())


def test_run_trains_audits_and_reports(protected):
    assert protected.code == 0
    assert protected.err.count("epoch ") == 4, "one line per epoch of both trainings, on standard error"
    shown = " ".join(protected.out.split())
    for part in (
        "Utility on 20 test rows",
        "undefended",
        "Strongest attack on each kind of message",
        f"report {protected.run_folder}/report.html",
    ):
        assert part in shown
    written = {path.name for path in protected.run_folder.iterdir()}
    assert written >= {
        "job.yaml",
        "history.jsonl",
        "checkpoint",
        "transcript",
        "ledger.json",
        "audit.json",
        "report.html",
    }
    assert "gates.xml" not in written


def test_run_as_json_is_the_report_alone_and_one_resumed_ends_with_the_same(place):
    result = place.call("run", place.file, "--json")
    assert (result.code, result.err) == (0, "")
    first = result.document()
    assert first == place.call("report", place.run_folder, "--json").document()
    second = place.call("run", place.file, "--resume", "--json").document()
    assert second["utility"] == first["utility"]


def test_the_same_key_repeats_a_run_and_is_marked(place):
    place.change({**PROTECTED, "compare": [], "train.epochs": 1})
    (place.folder / "k").write_bytes(bytes(range(32)))
    (place.folder / "k").chmod(0o600)
    runs = [place.call("run", place.file, "--out", out, "--key", "k", "--json").document() for out in ("a", "b")]
    assert runs[0]["leaks"] == runs[1]["leaks"]
    assert runs[0]["run"]["reproducible_noise"]
    fresh = place.call("run", place.file, "--out", "c", "--json").document()
    assert not fresh["run"]["reproducible_noise"]
    assert fresh["leaks"] != runs[0]["leaks"]


def test_long_lived_secrets_are_made_once_and_readable_by_their_owner_alone(place, protected):
    made = protected.folder / ".cutlayer" / "bank.key"
    assert len(made.read_bytes()) == 32
    assert made.stat().st_mode & 0o777 == 0o600
    key = Path(shutil.copytree(made.parent, place.folder / ".cutlayer")) / made.name
    place.change({**UNAUDITED, "train.epochs": 1})
    assert place.call("run", place.file, "--json").code == 0
    assert key.read_bytes() == made.read_bytes()


def test_check_forecasts_the_bytes_that_a_run_then_sends(place):
    for held_out, audit in (({"test": 0.1, "validation": 0.2}, {}), ({"test": 0.2, "validation": 0.0}, UNAUDITED)):
        place.change({**audit, "train.split": held_out, "train.epochs": 2})
        forecast = {party["name"]: party for party in place.call("check", place.file, "--json").document()["parties"]}
        sent = []
        for epochs in (1, 2):
            place.change({**audit, "train.split": held_out, "train.epochs": epochs})
            out = f"of-{epochs}-{held_out['test']}"
            report = place.call("run", place.file, "--out", out, "--json").document()
            sent.append({party["name"]: party["bytes_sent"] for party in report["parties"]})
        for name, party in forecast.items():
            assert sent[1][name] - sent[0][name] == party["bytes_per_epoch"], name
            assert party["bytes_per_epoch"] > 0


def test_check_forecasts_the_bytes_of_warmup_epochs(place):
    sent = []
    for warmup in (1, 2):
        phases = {"train.release": "once", "train.warmup_epochs": warmup, "train.epochs": 1 + warmup}
        place.change({**UNAUDITED, "parties.telco.audit": {"attacks": []}, **phases})
        report = place.call("run", place.file, "--out", f"warmup-{warmup}", "--json").document()
        sent.append({party["name"]: party["bytes_sent"] for party in report["parties"]})
    result = place.call("check", place.file, "--json").document()
    assert result["warmup_epochs"] == 2
    for party in result["parties"]:
        assert sent[1][party["name"]] - sent[0][party["name"]] == party["bytes_warmup"]
        assert (party["bytes_warmup"] > 0) == (party["role"] == "active")
    assert "the first 2 epochs; in each bank sends" in " ".join(place.call("check", place.file).out.split())


def test_check_says_what_the_run_then_has(place, protected):
    result = place.call("check", protected.folder / "job.yaml", "--json").document()
    report = place.call("report", protected.run_folder, "--json").document()
    for key in ("train", "validation", "test"):
        assert result[key] == report["data"][key]
    assert result["rows"] == report["data"]["common"] == ROWS
    for key in ("threads", "devices", "precision"):
        assert result[key] == report["run"][key]
    for mine, theirs in zip(result["parties"], report["parties"], strict=True):
        for key in ("name", "role", "categorical", "numeric", "width", "parameters"):
            assert mine[key] == theirs[key], key
    assert result["steps_per_epoch"] == -(-result["train"] // 64)
    assert result["seconds_per_epoch"] > 0
    assert result["memory_bytes"] > sum(party["store_bytes"] for party in result["parties"])
    assert [line.split(":")[0] for line in result["guarantees"]] == ["label_dp", "max_norm"]


def test_the_forecast_of_memory_grows_with_the_rows_and_their_columns(place):
    """By one to four times what they are in memory: as read, their digests while ids are matched, and as encoded."""
    forecast = []
    for rows in (1_000, 4_000):
        for party, columns in (("bank", 30), ("telco", 40)):
            values = {f"x{column}": np.arange(rows) * 0.5 + column for column in range(columns)}
            table = pa.table({"id": np.arange(rows), **values, "default": np.arange(rows) % 2})
            pq.write_table(table, place.folder / f"{party}.parquet")
        place.change({"parties.bank.table": "bank.parquet", "parties.telco.table": "telco.parquet"})
        forecast.append(place.call("check", place.file, "--json").document()["memory_bytes"])
    added = 3_000 * 8 * (30 + 40)
    assert added < forecast[1] - forecast[0] < 4 * added


def test_check_counts_the_columns_of_the_table_and_not_the_quantiles_of_a_number(place):
    place.change({"parties.telco.features": {"include": ["usage", "plan"], "numbers": {"quantiles": 10}}})
    result = place.call("check", place.file)
    assert result.code == 0
    head, *rows = [line.split() for line in result.out[result.out.index("party ") :].splitlines()]
    assert head[3:5] == ["cat.", "num."]
    assert next(row for row in rows if row[:1] == ["telco"])[3:5] == ["1", "1"]


def test_check_leaves_nothing(place):
    result = place.call("check", place.file)
    assert result.code == 0
    assert f"{ROWS} common rows: 160 train, 20 validation, 20 test" in result.out
    assert place.left() == set()
    assert not (place.folder / ".cutlayer").exists()


def test_report_is_built_again(place, finished):
    (finished / "report.html").unlink()
    assert place.call("report", finished).code == 0
    assert (finished / "report.html").stat().st_size > 10_000
    markdown = place.call("report", finished, "--markdown")
    assert markdown.code == 0
    assert "### Leaks at the cut layer\n" in markdown.out
    assert "\n| Message | Strongest attack | Leak |" in markdown.out


@pytest.fixture(scope="module")
def audited(finished_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A finished run that was audited again by the whole catalogue, with a gate."""
    folder = tmp_path_factory.mktemp("audited")
    run = shutil.copytree(finished_once, folder / "runs" / "job")
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = _run(["audit", str(run), "--fail-above", "1.0", "--json"])
    return Ran(folder, code, out.getvalue(), err.getvalue())


def test_audit_of_the_transcript_finds_what_the_live_one_found(place, finished, audited):
    live = place.call("report", finished, "--json").document()
    again = json.loads(audited.out)
    found = {(leak["run"], leak["message"], leak["attack"]): leak["leak"] for leak in live["leaks"]}
    assert len(found) >= 6
    assert {(leak["run"], leak["message"], leak["attack"]): leak["leak"] for leak in again["leaks"]} == found


def test_audit_with_chosen_attacks(place, finished):
    two = place.call("audit", finished, "--attack", "norm", "--attack", "spectral", "--json").document()
    assert {leak["attack"] for leak in two["leaks"]} == {"norm", "spectral"}
    assert {leak["run"] for leak in two["leaks"]} == {"this run", "undefended"}


def test_a_failed_gate_is_exit_code_1_and_a_failed_test_in_xml(place, finished):
    shown = place.call("audit", finished, "--attack", "spectral", "--fail-above", "0.501")
    assert shown.code == 1
    assert any("label_auc" in line and "FAILED" in line for line in shown.out.splitlines())
    result = place.call("report", finished, "--json")
    assert result.code == 1, "an audit's failed gate fails the report too"
    assert {leak["attack"] for leak in result.document()["leaks"]} == {"spectral"}
    (gate,) = result.document()["gates"]
    assert (gate["limit"], gate["passed"]) == (0.501, False)
    suite = ElementTree.parse(finished / "gates.xml").getroot()
    assert len(list(suite.iter("failure"))) == 1


def test_a_gate_that_holds_is_exit_code_0(audited):
    assert audited.code == 0
    assert json.loads(audited.out)["gates"][0]["passed"]
    assert not list(ElementTree.parse(audited.run_folder / "gates.xml").getroot().iter("failure"))


def test_a_jobs_own_gate_fails_its_run(place):
    place.change({"parties.bank.audit": {**BOTH, "fail_above": {"label_auc": 0.51}}})
    assert place.call("run", place.file).code == 1
    assert (place.run_folder / "gates.xml").exists()


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("protections", {"label_dp", "max_norm"}),
        ("attacks", {"norm", "direction", "spectral"}),
        ("models", {"mlp", "wide_deep", "python"}),
    ],
)
def test_list_names_what_is_registered(place, what, names):
    rows = place.call("list", what, "--json").document()
    assert {row["name"] for row in rows} >= names
    assert all(row["plugin"] if "plugin" in row else row["description"] for row in rows)
    assert what == "attacks" or "required" in {value for row in rows for value in row.get("settings", {}).values()}
    shown = place.call("list", what)
    assert shown.code == 0
    for name in names:
        assert f"\n{name}\n" in f"\n{shown.out}"


def test_demo_copies_a_job_to_start_from(place):
    result = place.call("demo", "--copy", "mine")
    assert result.code == 0
    assert result.out == "now: cutlayer run mine/job.yaml\n"
    assert (place.folder / "mine" / "job.yaml").read_bytes() == (demo.FOLDER / "job.yaml").read_bytes()
    job = load_job(Path("mine/job.yaml"))
    assert [*job.parties] == ["bank", "census_office", "employer"]
    assert {pq.read_metadata(party.table.path).num_rows for party in job.parties.values()} == {48_842}
    again = place.call("demo", "--copy", "mine")
    assert again.code == 2
    assert (
        "no file at mine/job.yaml, mine/adult.parquet, mine/ATTRIBUTION.md, got one; choose another folder"
        in again.error
    )
    assert place.call("demo", "--copy", "other", "--json").document() == {"job": "other/job.yaml"}
    assert place.call("demo", "--copy", "bank.csv").error.startswith("bank.csv cannot be created: ")


def test_demo_makes_a_new_run_each_time(place, monkeypatch):
    folder = place.folder / "part"
    demo.copy_files(folder)
    table = pq.read_table(folder / "adult.parquet")
    pq.write_table(table.slice(0, 300), folder / "adult.parquet")
    short = load_job(folder / "job.yaml")
    train = short.train.model_copy(update={"epochs": 1, "batch_size": 128})
    parties = {}
    for name, party in short.parties.items():
        audit = party.audit.model_copy(update={"attacks": ("spectral",) if name == "bank" else ()})
        parties[name] = party.model_copy(update={"audit": audit})
    changes = {"train": train, "compare": ("alone",), "parties": parties, "alternatives": {}}  # grades of few rows
    changes["model"] = short.model.model_copy(update={"top": {"kind": "boosting", "max_iter": 5}})
    monkeypatch.setattr(demo, "demo_job", lambda: short.model_copy(update=changes))
    (place.folder / "runs" / "demo-1").mkdir(parents=True)
    (place.folder / "runs" / "demo-1" / "job.yaml").write_text("")
    result = place.call("demo")
    assert result.code == 0
    assert "runs/demo-2/report.html" in result.out
    assert "bank alone" in result.out
    assert place.call("demo", "--out", "runs/demo-1").code == 2
    report = place.call("report", "runs/demo-2", "--json").document()
    assert {leak["message"] for leak in report["leaks"]} == {"embedding"}
    assert [entry["protection"] for entry in report["ledger"]["entries"]] == ["label_free"]


def test_the_job_a_run_keeps_can_be_run_itself(place, protected):
    with allowed(paths=[protected.folder]):
        kept = load_job(protected.run_folder / "job.yaml")
    assert dump_job(kept) == dump_job(load_job(protected.folder / "job.yaml"))
    assert place.call("check", protected.run_folder / "job.yaml", "--allow-path", protected.folder).code == 0


def test_every_verb_prints_one_document_with_json(place, finished):
    local = place.folder / "party.yaml"
    local.write_text("table: bank.csv\nid: id\nlabel: default\n")
    tables = place.folder / "tables"
    tables.mkdir()
    write_tables(tables)
    arguments = {
        "demo": ("--copy", "copied"),
        "init": (tables,),
        "check": (place.file,),
        "party": (place.file, "--as", "bank", "--local", local, "--plaintext"),
        "party predict": (place.file, "--as", "bank", "--local", local),
        "release": (place.file, "--as", "bank", "--local", local, "--plaintext", "--out", place.folder / "release"),
        "predict": (finished, "--out", place.folder / "scores.parquet"),
        "export": (finished, "--as", "bank", "--out", place.folder / "part"),
        "audit": (finished, "--attack", "norm"),
        "report": (finished,),
        "list": ("attacks",),
        "schema": (),
    }
    for verb, given in arguments.items():
        result = place.call(*verb.split(), *given, "--json")
        assert result.code == (2 if verb.startswith(("party", "release")) else 0), (verb, result)
        assert result.document(), verb
        assert result.err == ""
    assert "parties.bank.address" in place.call("party", *arguments["party"], "--json").document()["error"]


def test_misuse_is_told_with_the_way_to_help(place):
    for arguments, message, help_of in [
        (["rnu"], "No such command 'rnu'. Did you mean 'run'?", "cutlayer"),
        (["run"], "Missing argument", "cutlayer run"),
        (["run", "job.yaml", "--jsn"], "--json", "cutlayer run"),
        (["run", "job.yaml", "another.yaml"], "another.yaml", "cutlayer run"),
        (["list", "protection"], "'attacks', 'models'; did you mean 'protections'?", "cutlayer list"),
        (["party", "job.yaml", "--as", "bank"], "--local", "cutlayer party"),
        (
            ["predict", "x", "--max-drift=0,2"],
            "expected a number, such as 0.25, for --max-drift, got '0,2'",
            "cutlayer predict",
        ),
        (["keys", "sign", "x", "--days", "9.5"], "a whole number for --days, got '9.5'", "cutlayer keys sign"),
    ]:
        result = place.call(*arguments)
        assert (result.code, result.out) == (2, ""), arguments
        assert message in result.error
        assert result.error.endswith(f"see {help_of} --help\n")
    assert place.call("run", "--json").document()["exit_code"] == 2


def test_a_fault_of_the_program_is_told_as_one(place, monkeypatch):
    monkeypatch.setattr("cutlayer.jobs.matching.intersect", lambda _digests: 1 / 0)
    result = place.call("check", place.file)
    assert result.code == 70
    assert result.error.startswith(
        "a fault of cutlayer itself: ZeroDivisionError: division by zero\nset CUTLAYER_DEBUG=1"
    )
    assert "Traceback" not in result.err

    class PanicException(BaseException):
        """As of a library in Rust."""

    def panic(_digests):
        raise PanicException("called unwrap on None")

    monkeypatch.setattr("cutlayer.jobs.matching.intersect", panic)
    panicked = place.call("check", place.file)
    assert (panicked.code, panicked.error.partition("\n")[0]) == (
        70,
        "a fault of cutlayer itself: PanicException: called unwrap on None",
    )
    monkeypatch.setenv("CUTLAYER_DEBUG", "1")
    assert "Traceback" in place.call("check", place.file).err


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (OSError(28, "No space left on device", "x/y"), "x/y: No space left on device; free space there"),
        (OSError(30, "Read-only file system", "x/y"), "x/y: Read-only file system; this command writes there"),
        (OSError(13, "Permission denied", "x/y"), "x/y: Permission denied; look at the permissions"),
        (OSError(5, "Input/output error", "x/y"), "x/y: Input/output error\n"),
        (MemoryError(), "the machine has too little memory for this job\nlower train.batch_size"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "too little memory"),
    ],
)
def test_what_the_machine_refuses_is_bad_input(place, monkeypatch, failure, message):
    def fails(_digests):
        raise failure

    monkeypatch.setattr("cutlayer.jobs.matching.intersect", fails)
    result = place.call("check", place.file)
    assert result.code == 2
    assert message in result.error
