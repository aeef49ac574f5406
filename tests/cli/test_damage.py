"""Damaged files, a full disk and files that other users can read: exit code 2 with the remedy, never 70."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from pathlib import Path

import pytest

from cutlayer.cli.app import _run
from cutlayer.storage import durable
from cutlayer.storage.tensor_file import read_tensors, write_tensors
from cutlayer.training.folder import RunFolder
from tests.cli.jobs import JOB, Place, as_yaml, write_tables

DEEP = "[" * 100_000
NOT_TEXT = b"\xff\xfe\x80"


@pytest.fixture(scope="module")
def ran_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job, its tables, keys and finished run; not to be changed."""
    folder = tmp_path_factory.mktemp("ran")
    write_tables(folder)
    (folder / "job.yaml").write_text(as_yaml(JOB))
    assert _run(["run", str(folder / "job.yaml"), "--json"]) == 0
    return folder


@pytest.fixture
def ran(place: Place, ran_once: Path) -> Place:
    """The place after a run of its job."""
    shutil.copytree(ran_once, place.folder, dirs_exist_ok=True)
    return place


@pytest.mark.parametrize("content", [DEEP.encode(), NOT_TEXT, b"{}", b"[]", b"null", b"1", b'{"runs": 3}'])
@pytest.mark.parametrize("name", ["summary.json", "audit.json", "history.jsonl"])
@pytest.mark.parametrize("verb", ["report", "audit"])
def test_a_file_with_other_content(place, finished, verb, name, content):
    (finished / name).write_bytes(content + b"\n")
    result = place.call(verb, finished, "--json")
    assert result.code == 2, result
    assert result.err == ""
    assert name in result.document()["error"]


def spoil(path, keys, value):
    """Set one value of a JSON file."""
    document = json.loads(path.read_text())
    inner = document
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    path.write_text(json.dumps(document))


NOISE = {"kind": "GaussianRelease", "noise_multiplier": 1.0, "releases": {"training": 1}}
FLIPS = {"kind": "RandomizedResponse", "eps": 1.0, "classes": 2}


@pytest.mark.parametrize(
    "event",
    [
        *("x", None, 3, [], {}, {"kind": []}, {"kind": {}}),
        *(FLIPS | {"draws": draws} for draws in (1e300, math.nan, 10**25, "x")),
        *(FLIPS | {"eps": eps} for eps in ("x", math.nan, -1)),
        *(NOISE | {"noise_multiplier": multiplier} for multiplier in (1e300, 1e-300, "x", math.inf)),
        *(NOISE | {"releases": {"training": count}} for count in (10**25, "x", 1.5)),
        {"kind": "DPSGD", "noise_multiplier": 1.0, "steps": 10**25},
        {"kind": "NoFormalGuarantee", "why": 3},
    ],
)
def test_an_event_of_the_ledger_that_no_protection_states(place, finished, event):
    spoil(finished / "summary.json", ("ledger", "entries", 0, "event"), event)
    result = place.call("report", finished, "--json")
    assert result.code == 2, result
    assert "summary.json is damaged" in result.document()["error"]


def test_a_run_without_its_headline_metric_is_audited_again_and_reported_as_changed(place, finished):
    spoil(finished / "summary.json", ("utility", "rows", 0, "metrics"), {})
    result = place.call("audit", finished, "--attack", "norm", "--json")
    assert (result.code, result.document()["files"]["changed"]) == (1, ["summary.json"])


def test_a_baseline_without_its_audit_stops_the_resume(place):
    place.change({"parties.bank.privacy": {"max_norm": None}, "compare": ["undefended"], "train.epochs": 1})
    assert place.call("run", place.file, "--json").code == 0
    spoil(place.run_folder / "compare" / "undefended" / "audit.json", ("runs",), {})
    result = place.call("run", place.file, "--resume")
    assert (result.code, result.out) == (2, "")
    assert "got changed: compare/undefended/audit.json" in result.error
    (place.run_folder / "files.json").unlink()
    result = place.call("run", place.file, "--resume")
    assert (result.code, result.out) == (2, "")
    assert "audit.json is damaged (runs: expected undefended)" in result.error


# In lines: on a single one the scanner of YAML takes seconds.
@pytest.mark.parametrize("content", [b"[\n" * 100_000, NOT_TEXT, b"a: 2020-13-45", b"a: !!int x", b"- " * 3000])
def test_a_job_with_other_content(place, finished, content):
    place.file.write_bytes(content)
    assert place.call("check", place.file).code == 2
    (finished / "job.yaml").write_bytes(content)
    assert "job.yaml" in place.call("audit", finished).error
    result = place.call("report", finished)
    assert result.code == (2 if content == NOT_TEXT else 1), "the text is shown as it is, and was changed"


def test_an_encoder_that_is_no_text(place, finished):
    (finished / "data" / "telco" / "encoder.json").write_bytes(NOT_TEXT)
    data = ("--data", f"bank={place.folder / 'bank.csv'}", "--data", f"telco={place.folder / 'telco.csv'}")
    result = place.call("predict", finished, "--out", place.folder / "new.parquet", *data)
    assert result.code == 2, result
    assert "encoder.json" in result.error


@pytest.mark.parametrize("content", [NOT_TEXT, DEEP.encode()])
@pytest.mark.parametrize(
    "name", ["checkpoint/bank/keys.fingerprint", "checkpoint/bank/committed.json", "history.jsonl"]
)
def test_a_resume_with_other_content(ran, name, content):
    (ran.run_folder / name).write_bytes(content + b"\n")
    result = ran.call("run", ran.file, "--resume")
    assert (result.code, result.out) == (2, "")
    assert Path(name).name in result.error


def test_a_history_line_that_lost_its_epoch(place, finished):
    lines = (finished / "history.jsonl").read_text().splitlines()
    (finished / "history.jsonl").write_text("\n".join([lines[0], lines[1].replace('"epoch"', '"epoche"')]) + "\n")
    assert "history.jsonl is damaged (line 2: the content does not match its checksum); remove that line" in (
        place.call("report", finished).error
    )


@pytest.mark.parametrize("writing", [False, True])
def test_a_full_disk_says_what_to_free(place, monkeypatch, writing):
    """The error of a write does not name the file."""

    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    sync = durable.sync_file

    def full_at_file(path: Path) -> None:
        if path.suffix == ".partial":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        sync(path)

    if writing:
        monkeypatch.setattr("cutlayer.storage.tensor_file.stream_tensors", full)
    else:
        monkeypatch.setattr(durable, "sync_file", full_at_file)
    result = place.call("run", place.file)
    assert (result.code, result.out) == (2, "")
    assert "No space left on device; free space there" in result.error
    assert not [*place.folder.rglob("*.partial")]


def test_leftovers_of_a_killed_process_are_removed_by_a_resume(ran):
    left = [ran.run_folder / "checkpoint" / "bank" / name for name in (".tmpAbC123", "epoch-0007.safetensors.partial")]
    left += [ran.run_folder / "data" / "telco" / "numbers.npy.partial", ran.run_folder / "report.json.partial"]
    for path in left:
        path.write_bytes(b"half")
    assert ran.call("run", ran.file, "--resume", "--json").code == 0
    assert not [path for path in left if path.exists()]


def test_a_killed_start_that_wrote_no_job_is_started_again(place):
    place.run_folder.mkdir(parents=True)
    (place.run_folder / "run.lock").write_text("a run (process 1)")
    (place.run_folder / "job.yaml.partial").write_text("parti")
    assert "leave --resume out" in place.call("run", place.file, "--resume").error
    assert place.call("run", place.file, "--json").code == 0


@pytest.mark.parametrize("command", ["run", "run --resume", "report", "audit"])
def test_a_second_process_is_told_who_holds_the_folder(place, finished, command):
    verb, *more = command.split()
    shutil.copytree(finished, place.run_folder)
    before = {path: path.read_bytes() for path in place.run_folder.rglob("*") if path.is_file()}
    target = [place.run_folder] if verb in ("report", "audit") else [place.file, "--out", place.run_folder]
    with RunFolder(place.run_folder).locked("a run"):
        result = place.call(verb, *target, *more)
    assert (result.code, result.out) == (2, "")
    expected = "exists already" if command == "run" else f"in use by a run (process {os.getpid()}); wait until it has"
    assert expected in result.error
    assert {path: path.read_bytes() for path in place.run_folder.rglob("*") if path.is_file()} == before


# A mask alone closes files, and opens none: the first closes nothing, also in a folder that its owner made.
@pytest.mark.parametrize(("mask", "folder_mode"), [(0o000, None), (0o000, 0o755), (0o077, None)])
def test_all_files_are_their_owners_alone_whatever_the_umask(place, mask, folder_mode):
    """The report too: in a folder that its owner made with --out it would be readable by every user of the machine."""
    place.change({"parties.bank.privacy": {"label_dp": {"eps": 2.0}}})
    if folder_mode is not None:
        place.run_folder.mkdir(parents=True)
        place.run_folder.chmod(folder_mode)
    before = os.umask(mask)
    try:
        assert place.call("run", place.file, "--json").code == 0
        assert place.call("report", place.run_folder, "--for", "dpia", "--json").code == 0
    finally:
        os.umask(before)
    written = {*place.run_folder.rglob("*"), *(place.folder / ".cutlayer").rglob("*")}
    assert {"report.html", "report.json", "summary.json", "privacy_annex.html"} <= {path.name for path in written}
    for path in (place.run_folder, *written):
        wanted = (folder_mode if path == place.run_folder else None) or (0o700 if path.is_dir() else 0o600)
        assert path.stat().st_mode & 0o777 == wanted, path


def test_a_key_that_others_can_read_is_refused_with_the_command_to_run(place):
    key = place.folder / "my key"
    key.write_bytes(bytes(range(32)))
    key.chmod(0o640)
    result = place.call("run", place.file, "--key", key)
    assert (result.code, result.out) == (2, "")
    assert f"got mode 0640; run chmod 600 '{key}'" in result.error
    key.chmod(0o600)
    assert place.call("run", place.file, "--key", key, "--json").code == 0
    (place.folder / ".cutlayer").mkdir(exist_ok=True)
    secret = place.folder / ".cutlayer" / "bank.key"
    secret.write_bytes(bytes(32))
    secret.chmod(0o604)
    assert f"run chmod 600 {secret}" in place.call("run", place.file, "--out", "other").error.replace("//", "/")


def test_a_folder_behind_a_link_is_not_removed(place, tmp_path):
    """Clearing a run that failed removes the link, not what it points to."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "thesis.tex").write_text("x")
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    (folder.path / "data").symlink_to(elsewhere)
    folder.clear()
    assert [*folder.path.iterdir()] == []
    assert (elsewhere / "thesis.tex").exists()


def test_every_json_file_of_a_run_is_strict(finished):
    """An attack may make no decisions, and have no value then: it is null, which every program reads."""

    def refuse(constant: str) -> float:
        raise AssertionError(constant)

    for path in finished.rglob("*.json"):
        json.loads(path.read_text(), parse_constant=refuse)
    leaks = json.loads((finished / "audit.json").read_text())["runs"]["this run"]["leaks"]
    assert any(leak["hard_auc"] is None for leak in leaks)


def test_a_number_that_is_not_finite_becomes_null(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_json("x.json", {"a": [float("nan"), {"b": float("inf")}, 1.5], "c": (None, "NaN")})
    assert folder.read_json("x.json") == {"a": [None, {"b": None}, 1.5], "c": [None, "NaN"]}


@pytest.mark.parametrize(("verb", "name"), [("report", "report.html.partial"), ("audit", "audit.json.partial")])
def test_a_run_folder_of_another_user_changes_no_other_file(place, finished, verb, name):
    """Links in it lead to a file of this user, such as a key, which reports and locks would be written into."""
    key = place.folder / "bank.key"
    key.write_text("x" * 32)
    (finished / "run.lock").unlink()
    for link in (name, "run.lock"):
        (finished / link).symlink_to(key)
        result = place.call(verb, finished, "--json")
        assert result.code == 2
        assert f"{link}: expected consent before it leads to {key}" in result.document()["error"]
        (finished / link).unlink()
    assert key.read_text() == "x" * 32
    # With consent to where it leads nothing is written through it all the same.
    (finished / "run.lock").symlink_to(key)
    result = place.call(verb, finished, "--json", "--allow-path", key)
    assert "run.lock: Too many levels of symbolic links; it is a symbolic link" in result.document()["error"]
    assert key.read_text() == "x" * 32


@pytest.mark.parametrize("verb", ["report", "audit", "predict"])
def test_a_pipe_in_a_run_folder_is_refused(place, finished, verb):
    """Whoever reads it waits without an end."""
    (finished / "checkpoint" / "telco" / "model.json").unlink()
    os.mkfifo(finished / "checkpoint" / "telco" / "model.json")
    more = ["--out", place.folder / "p.csv"] if verb == "predict" else []
    result = place.call(verb, finished, *more)
    assert result.code == 2
    assert "a device or pipe at" in result.error


@pytest.mark.parametrize("name", ["audit.json", "history.jsonl"])
def test_a_text_of_zeros_without_a_place_on_the_disk_is_not_read(place, finished, name):
    with (finished / name).open("wb") as file:
        file.truncate(1 << 42)
    result = place.call("report", finished)
    assert (result.code, f"{name} of up to 2 GB, got more" in result.error) == (2, True)


def test_a_part_of_another_party_is_not_taken_for_its_own(place, finished):
    parts = [finished / "checkpoint" / name / "model.json" for name in ("bank", "telco")]
    shutil.copy(*parts)
    result = place.call("predict", finished, "--out", place.folder / "p.csv")
    assert result.code == 2
    assert "the record of telco" in result.error
    assert "got that of 'bank'" in result.error


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_refused(place, finished, value):
    path = finished / "checkpoint" / "telco" / "best.safetensors"
    tensors, header = read_tensors(path)
    name = next(name for name in tensors if name.startswith("module/bottom"))
    tensors[name].fill_(value)
    write_tensors(path, tensors, header)
    result = place.call("predict", finished, "--out", place.folder / "p.csv")
    assert result.code == 2
    assert "got a number that is not finite in" in result.error


def test_a_checkpoint_of_another_model_is_refused(place, finished):
    encoders = [finished / "data" / name / "encoder.json" for name in ("bank", "telco")]
    shutil.copy(*encoders)
    result = place.call("predict", finished, "--out", place.folder / "p.csv")
    assert result.code == 2
    assert "weights of the bottom model of this run, got" in result.error


def test_tensors_of_another_shape_are_no_fault_of_the_audit(place, finished):
    """The checksum of a file has no key: somebody else can write any tensors under it."""
    path = finished / "transcript" / "bank" / "truth.safetensors"
    tensors, header = read_tensors(path)
    write_tensors(path, {name: value[:1] for name, value in tensors.items()}, header)
    result = place.call("audit", finished)
    assert result.code == 2
    assert "expected files of one run in" in result.error
