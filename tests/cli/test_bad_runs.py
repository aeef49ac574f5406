"""Folders, keys, checkpoints and models that are no good: refused with exit code 2, and what stands stays as it is."""

from __future__ import annotations

import secrets
import shutil
import sys
from pathlib import Path

import pytest

from cutlayer.cli.app import _run
from cutlayer.config.load import dump_job, load_job
from cutlayer.jobs.forecast import SHORT_STEP_ROWS
from tests.cli.jobs import BOTH, JOB, Place, as_yaml, changed, write_tables

PROTECTED = {"parties.bank.privacy": {"label_dp": {"eps": 2.0}, "max_norm": None}, "parties.bank.audit": BOTH}


@pytest.fixture(scope="module")
def run_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a job, its tables and a finished, protected run; not to be changed."""
    folder = tmp_path_factory.mktemp("run")
    write_tables(folder)
    (folder / "job.yaml").write_text(as_yaml(changed(JOB, PROTECTED)))
    assert _run(["run", str(folder / "job.yaml"), "--json"]) == 0
    return folder


@pytest.fixture
def run(place: Place, run_once: Path) -> Place:
    """A place with a finished, protected run in it."""
    shutil.copytree(run_once, place.folder, dirs_exist_ok=True)
    (place.run_folder / "job.yaml").write_text(dump_job(load_job(place.file)))  # it names the tables' paths
    (place.run_folder / "files.json").unlink()  # of another job.yaml, by which no resume would begin
    return place


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("**/*") if path.is_file()}


def refused(place: Place, *arguments: object, message: str, keeps: Path | None = None) -> None:
    """The verb refuses in one sentence, and what lies in `keeps` is as before."""
    before = files(keeps) if keeps else {}
    result = place.call(*arguments)
    assert (result.code, result.out) == (2, ""), result
    assert message in result.error
    assert "Traceback" not in result.err
    assert (files(keeps) if keeps else {}) == before


def test_a_run_folder_that_exists(run):
    refused(
        run, "run", run.file, message="runs/job exists already; choose another folder with --out", keeps=run.run_folder
    )


def test_a_folder_with_something_else_in_it(place):
    (place.folder / "full").mkdir()
    (place.folder / "full" / "thesis.tex").write_text("x")
    refused(
        place, "run", place.file, "--out", "full", message="a new or empty folder at full", keeps=place.folder / "full"
    )


def test_an_empty_folder_is_taken_and_after_an_error_left_as_empty(place):
    (place.folder / "empty").mkdir()
    place.change({"train.batch_size": 4096})
    refused(place, "run", place.file, "--out", "empty", message="4096", keeps=place.folder / "empty")
    assert (place.folder / "empty").is_dir()
    place.write(JOB)
    assert place.call("run", place.file, "--out", "empty", "--json").code == 0


@pytest.mark.parametrize("out", ["bank.csv", "bank.csv/deeper", "/proc/nope/run", "/sys/run"])
def test_a_folder_that_cannot_be_made(place, out):
    refused(place, "run", place.file, "--out", out, message=f"{out} cannot be created: ", keeps=place.folder)


def test_what_another_run_has_put_beside_a_failed_one_stays(place):
    other = place.folder / "runs" / "other"
    place.change({"train.batch_size": 4096})
    assert place.call("run", place.file).code == 2
    assert not (place.folder / "runs").exists()
    other.mkdir(parents=True)
    assert place.call("run", place.file).code == 2
    assert other.is_dir()
    assert not place.run_folder.exists()


@pytest.mark.parametrize("content", [None, b"", b"x" * 31, b"x" * 33])
def test_a_wrong_key_file(place, content):
    if content is not None:
        (place.folder / "k").write_bytes(content)
    result = (
        "the key k cannot be read: No such file"
        if content is None
        else f"32 bytes of key in k, got {len(content)} bytes"
    )
    refused(place, "run", place.file, "--key", "k", message=result)
    refused(place, "run", place.file, "--key", ".", message="the key . cannot be read: Is a directory")
    assert place.left() == ({"k"} if content is not None else set())


def test_a_damaged_long_lived_secret(place):
    (place.folder / "short").write_bytes(b"x")
    place.change({"parties.bank.secret": "short"})
    refused(place, "run", place.file, message="32 bytes of key in")
    assert place.left() == {"short"}


def test_resume_without_a_run(place):
    refused(place, "run", place.file, "--resume", message="expected a run to resume at", keeps=place.folder)
    assert "leave --resume out" in place.call("run", place.file, "--resume").error


def test_resume_of_a_finished_run_changes_no_figure(run):
    first = run.call("report", run.run_folder, "--json").document()
    again = run.call("run", run.file, "--resume", "--json").document()
    for part in ("utility", "leaks", "layers", "history", "data", "protections"):
        assert again[part] == first[part], part


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train.seed": 2}, "the parties' names, roles or order, task, model or train changed"),
        (
            {"model.top": {"kind": "mlp", "hidden": [5]}},
            "the parties' names, roles or order, task, model or train changed",
        ),
        ({"parties.bank.privacy": {"label_dp": {"eps": 1.0}, "max_norm": None}}, "parties.bank.privacy changed"),
        ({"parties.bank.privacy": {}}, "parties.bank.privacy changed"),
        ({"parties.telco.features": {"include": ["usage"]}}, "parties.telco.features changed"),
        ({"parties.bank.label": "balance"}, "parties.bank.label changed"),
    ],
)
def test_resume_with_another_job(run, changes, message):
    run.write(changed(JOB, {**PROTECTED, **changes}))
    refused(run, "run", run.file, "--resume", message=message, keeps=run.run_folder)


def test_resume_may_move_files_and_change_the_audit(run):
    shutil.move(run.folder / "telco.csv", run.folder / "moved.csv")
    changes = {"parties.telco.table": "moved.csv", "parties.bank.audit": {**BOTH, "fail_above": {"label_auc": 1.0}}}
    run.write(changed(JOB, {**PROTECTED, **changes}))
    assert run.call("run", run.file, "--resume", "--json").document()["gates"]


def test_resume_with_another_key_would_draw_the_labels_again(run):
    (run.folder / "k").write_bytes(secrets.token_bytes(32))
    (run.folder / "k").chmod(0o600)
    refused(run, "run", run.file, "--resume", "--key", "k", message="expected the keys the run was begun with")
    (run.folder / ".cutlayer" / "bank.key").unlink()
    refused(run, "run", run.file, "--resume", message="resume with the same --key and secret, or start a new run")


def truncated(path: Path, keep: int = 20) -> None:
    """Cut a file short."""
    path.write_bytes(path.read_bytes()[:keep])


@pytest.mark.parametrize(
    "name",
    [
        "checkpoint/bank/committed.json",
        "checkpoint/bank/noise.key",
        "transcript/bank/epoch-0000.safetensors",
        "job.yaml",
    ],
)
def test_resume_of_a_damaged_run(run, name):
    truncated(run.run_folder / name)
    result = run.call("run", run.file, "--resume")
    assert (result.code, result.out) == (2, "")
    assert name in result.error
    assert run.run_folder.exists()


@pytest.mark.parametrize("party", ["bank", "telco"])
def test_a_damaged_last_half_repeats_its_epoch_with_a_warning(run, party):
    first = run.call("report", run.run_folder, "--json").document()
    name = f"checkpoint/{party}/epoch-0001.safetensors"
    truncated(run.run_folder / name)
    result = run.call("run", run.file, "--resume", "--json")
    assert result.code == 0
    assert name in result.err
    assert "the run can resume from the checkpoint before" in result.err
    assert result.document()["leaks"] == first["leaks"]
    truncated(run.run_folder / name)
    truncated(run.run_folder / name.replace("0001", "0000"))
    result = run.call("run", run.file, "--resume")
    assert (result.code, result.out) == (2, "")
    assert "restore" in result.err


def test_resume_with_the_checkpoint_of_another_party_or_job(run):
    mine, theirs = (run.run_folder / "checkpoint" / name / "epoch-0001.safetensors" for name in ("bank", "telco"))
    kept = mine.read_bytes()
    shutil.copy(theirs, mine)
    refused(run, "run", run.file, "--resume", message="expected a checkpoint of bank for job", keeps=run.run_folder)
    run.write(changed(JOB, {**PROTECTED, "train.seed": 2, "parties.bank.audit": {"every": "never"}}))
    assert run.call("run", run.file, "--out", "other", "--json").code == 0
    run.write(changed(JOB, PROTECTED))
    mine.write_bytes(kept)
    shutil.copy(run.folder / "other" / "checkpoint" / "telco" / "epoch-0001.safetensors", theirs)
    refused(run, "run", run.file, "--resume", message="expected a checkpoint of telco for job", keeps=run.run_folder)


def test_a_store_that_was_damaged_is_encoded_again(run):
    truncated(run.run_folder / "data" / "bank" / "numbers.npy")
    assert run.call("run", run.file, "--resume", "--json").code == 0


@pytest.mark.parametrize("verb", ["report", "audit"])
@pytest.mark.parametrize("name", ["summary.json", "audit.json", "history.jsonl"])
def test_a_damaged_file_of_a_finished_run(place, finished, verb, name):
    truncated(finished / name)
    refused(place, verb, finished, message=f"{finished / name} is damaged")


@pytest.mark.parametrize("verb", ["report", "audit"])
def test_a_run_that_has_not_ended(place, finished, verb):
    (finished / "summary.json").unlink()
    message = f"expected a run that has ended, got one without summary.json at {finished}; the command that began it"
    refused(place, verb, finished, message=message, keeps=finished)


@pytest.mark.parametrize("verb", ["report", "audit"])
def test_what_is_no_run_folder(place, verb):
    for path in (".", "nowhere", "bank.csv"):
        (place.folder / "job.yaml").unlink(missing_ok=True)
        refused(place, verb, path, message=f"expected a run folder at {path}, got none (no job.yaml in it)")
    (place.folder / "runs" / "first").mkdir(parents=True)
    (place.folder / "runs" / "first" / "job.yaml").touch()
    refused(place, verb, "runs/frist", message="got none (no job.yaml in it); did you mean 'first'?")


def test_an_audit_without_its_transcript(place, finished):
    truncated(finished / "transcript" / "bank" / "epoch-0000.safetensors")
    refused(place, "audit", finished, message="epoch-0000.safetensors is not a readable transcript", keeps=finished)
    shutil.rmtree(finished / "transcript")
    refused(place, "audit", finished, message="truth.safetensors: its labels cannot be read", keeps=finished)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--attack", "nrom"], "audit.attacks: unknown attack 'nrom'; did you mean 'norm'?"),
        (["--fail-above", "1.5"], "expected --fail-above in (0.5, 1], got 1.5; 0.5 is chance"),
        (["--fail-above", "0.5"], "expected --fail-above in (0.5, 1], got 0.5; 0.5 is chance"),
        (["--fail-above", "nan"], "expected --fail-above in (0.5, 1], got nan"),
        (["--fail-above", "high"], "expected a number, such as 0.25, for --fail-above, got 'high'"),
    ],
)
def test_an_audit_that_cannot_be_made(place, finished, arguments, message):
    refused(place, "audit", finished, *arguments, message=message, keeps=finished)


MODULES = """
import torch

class Bottom(torch.nn.Module):
    def __init__(self, inputs, width=3, wrong=""):
        super().__init__()
        self.width, self.wrong = width, wrong
        self.layer = torch.nn.Linear(inputs.numbers, 3)
        if wrong == "built":
            raise ValueError("not today")

    def forward(self, codes, numbers):
        if self.wrong == "raises":
            raise RuntimeError("forward is broken")
        if self.wrong == "multiplies":
            return self.layer(torch.ones(2, 99))
        return numbers.tolist() if self.wrong == "returns" else self.layer(numbers)

def no_module(inputs):
    return 5
"""


@pytest.mark.parametrize(
    ("path", "arguments", "message"),
    [
        ("cli_user_models:Nope", {}, "expected an importable cli_user_models:Nope, got module"),
        ("cli_nowhere:Bottom", {}, "No module named 'cli_nowhere'; is its folder on PYTHONPATH?"),
        (
            "cli_user_broken:Bottom",
            {},
            "an importable cli_user_broken:Bottom, got SyntaxError: invalid syntax",
        ),
        (
            "cli_user_models:no_module",
            {},
            "expected cli_user_models:no_module to be a subclass of nn.Module, got func",
        ),
        ("cli_user_models:Bottom", {"depth": 2}, "TypeError: "),
        ("cli_user_models:Bottom", {"wrong": "built"}, "cli_user_models.py, line 10: ValueError: not today"),
        ("cli_user_models:Bottom", {"wrong": "raises"}, "cli_user_models.py, line 14: RuntimeError: forward is broken"),
        ("cli_user_models:Bottom", {"wrong": "multiplies"}, "cli_user_models.py, line 16: RuntimeError: "),
        ("cli_user_models:Bottom", {"wrong": "returns"}, "expected cli_user_models:Bottom to return (ROWS, 3) numbers"),
        ("cli_user_models:Bottom", {"width": 4}, "expected cli_user_models:Bottom to return (ROWS, 4) numbers"),
        ("cli_user_models:Bottom", {"width": "4"}, "with an int attribute `width`"),
    ],
)
def test_a_users_module_that_fails(place, monkeypatch, path, arguments, message):
    monkeypatch.syspath_prepend(place.folder)
    for name in ("cli_user_models", "cli_user_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    modules = place.folder / "modules"
    modules.mkdir()
    monkeypatch.syspath_prepend(modules)
    (modules / "cli_user_models.py").write_text(MODULES)
    (modules / "cli_user_broken.py").write_text("def :\n")
    place.change({"model.bottom": {"kind": "python", "path": path, "args": arguments}})
    # Where its module is at fault, and not the path or an argument, a run has it compute more rows than a check.
    for verb, rows in (("check", SHORT_STEP_ROWS), ("run", 64))[: 1 + ("wrong" in arguments)]:
        text = message.replace("ROWS", str(rows))
        place.refused(text, verbs=(verb,), options=("--allow-model", path.partition(":")[0]))


def test_a_users_module_that_works(place, monkeypatch):
    monkeypatch.delitem(sys.modules, "cli_user_models", raising=False)
    monkeypatch.syspath_prepend(place.folder)
    (place.folder / "cli_user_models.py").write_text(MODULES)
    place.change({"model.bottom": {"kind": "python", "path": "cli_user_models:Bottom"}})
    assert place.call("run", place.file, "--json", "--allow-model", "cli_user_models").code == 0


def test_training_that_diverges(place):
    place.change({"train.optimizer": {"lr": 1e25}, "compare": ["centralised"]})
    key = place.folder / "run.key"
    key.write_bytes(bytes(range(32)))  # with some initial weights all activations die, and the loss stays finite
    key.chmod(0o600)
    place.refused("training diverged", "lower train.optimizer.lr", verbs=("run",), options=("--key", str(key)))
