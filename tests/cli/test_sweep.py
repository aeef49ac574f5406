"""`cutlayer sweep`: a grid and a search on a small job, shared, resumed, interrupted, and refused."""

from __future__ import annotations

import html.parser
import itertools
import json
import math
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

from cutlayer.cli.app import _run
from cutlayer.config.load import load_closed_job
from cutlayer.errors import Diverged
from cutlayer.results.audit import RunAudit
from cutlayer.results.features import FeatureResult
from cutlayer.results.leaks import Attempt, LayerLeak
from cutlayer_sweep import measure, shared, variants, worker
from cutlayer_sweep.leak_kind import LeakKind
from cutlayer_sweep.metrics import TrialMetrics
from cutlayer_sweep.pareto import knee, pareto_front
from tests.cli.jobs import JOB, as_yaml, changed, write_tables
from tests.parties.processes import forked, run_in
from tests.results.leaks import leak_result

LR = "train.optimizer.lr"
SCALE = "parties.bank.privacy.noisy_gradient.scale"
SHORT = {"train.epochs": 1}
SMALL = ("--vary", f"{LR}=0.001,0.01", "--vary", f"{SCALE}=0.1,1,10", "--allow-model", "cutlayer_published")
THREE = ("--vary", f"{LR}=0.001,0.01,0.1")


@pytest.fixture
def folder(place):
    """Where a sweep goes if nothing else is said."""
    place.change(SHORT)
    return place.folder / "runs" / "job-sweep"


@pytest.fixture
def stated(monkeypatch):
    return without_training(monkeypatch)


def without_training(monkeypatch):
    """Figures of a job's learning rate stand for those of a training, each time others, and a file for its folder.

    Noise costs utility and hides as much.
    """
    ran = itertools.count()

    def trained(job, path, *_):
        rate = job.train.optimizer.lr
        noise = job.parties["bank"].privacy.get("noisy_gradient", {"scale": 0.0})["scale"] / 1000
        path.mkdir(parents=True)
        (path / "job.yaml").touch()
        utility, leak = rate - noise, 1 - rate - noise
        return TrialMetrics(utility, utility, None, None, leak, None, None, "telco/gradient/norm", 1, float(next(ran)))

    monkeypatch.setattr(worker, "measure", trained)
    return trained


def trials_of(message):
    return {trial["number"]: trial for trial in message["trials"]}


@dataclass(frozen=True)
class Grid:
    """A grid of six trials: its folder, what was printed, and how many trials each page that was drawn had."""

    folder: Path
    code: int
    out: str
    pages: list[int]


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    folder, pages, render = tmp_path_factory.mktemp("grid"), [], worker.render_page
    write_tables(folder)
    (folder / "job.yaml").write_text(as_yaml(changed(JOB, SHORT)))
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(StringIO()) as out:
        without_training(patched)
        patched.setattr(worker, "render_page", lambda result: pages.append(len(result.complete)) or render(result))
        patched.setattr(worker, "WRITE_SECONDS", math.inf)
        code = _run(["sweep", str(folder / "job.yaml"), *SMALL])
    return Grid(folder / "runs" / "job-sweep", code, out.getvalue(), pages)


def test_a_grid_is_run_drawn_and_its_knee_named(grid):
    assert grid.code == 0
    assert grid.pages == [1, 6], "the results so far, unless they were written just before, and those of all"
    result = json.loads((grid.folder / "sweep.json").read_text())
    trials = result["trials"]
    points = [(trial["values"][LR], trial["values"][SCALE]) for trial in trials]
    assert sorted(points) == [(lr, scale) for lr in (0.001, 0.01) for scale in (0.1, 1, 10)]
    assert {trial["state"] for trial in trials} == {"complete"}
    figures = [trial["measured"] for trial in trials]
    utility, leak = [figure["utility"] for figure in figures], [item["leak"] for item in figures]
    assert result["front"] == [trials[spot]["number"] for spot in pareto_front(utility, leak)]
    assert result["knee"] == (None if (spot := knee(utility, leak)) is None else trials[spot]["number"])
    assert (result["metric"], result["rows"], result["leak"]) == ("auc", "validation", "all")
    words = re.sub(r"\s+", " ", grid.out)
    assert "validation" in words
    assert words.count("front") + words.count("knee ") >= len(result["front"])
    assert str(grid.folder / "sweep.html") in words
    for text in (words, result["uncounted"], (grid.folder / "sweep.html").read_text()):
        assert "no ledger counts the trials together, or the choice (Papernot and Steinke 2022)" in text


def test_the_figures_are_those_of_the_runs(place, folder):
    # A linear top model: with four hidden units, in 3 of 250 trainings none is active, and every gradient is zero.
    linear = {"kind": "mlp", "hidden": []}
    place.change({"train.epochs": 3, "parties.telco.audit": {"layers": False}, "model.top": linear})
    assert place.call("sweep", place.file, "--vary", f"{LR}=0.001,0.02", "--leak", "gradient").code == 0
    result = json.loads((folder / "sweep.json").read_text())
    for trial in result["trials"]:
        ran = folder / "trials" / f"{trial['number']:04d}"
        assert trial["folder"] == str(ran), trial
        summary, audit = (json.loads((ran / name).read_text()) for name in ("summary.json", "audit.json"))
        history = [json.loads(line) for line in (ran / "history.jsonl").read_text().splitlines()]
        assert trial["measured"]["utility"] == max(line["metrics"]["auc"] for line in history)
        assert {line["part"] for line in history} == {"validation"}
        (row,) = [row for row in summary["utility"]["rows"] if row["name"] == "this run"]
        assert trial["measured"]["test"] == row["metrics"]["auc"]
        assert (trial["measured"]["low"], trial["measured"]["high"]) == (row["low"], row["high"])
        cells = audit["runs"]["this run"]["leaks"]
        leaks = {cell["attack"]: cell["leak"] for cell in cells if cell["message"] == "gradient"}
        assert trial["measured"]["leak"] == pytest.approx(max(leaks.values()))
        party, message, attack = trial["measured"]["where"].split("/")
        assert (party, message) == ("telco", "gradient")
        assert leaks[attack] == pytest.approx(max(leaks.values()))
        (worst,) = [cell for cell in cells if cell["message"] == "gradient" and cell["attack"] == attack]
        bounds = (trial["measured"]["leak_low"], trial["measured"]["leak_high"])
        assert bounds == (worst["low"], worst["high"])
        assert not [path for path in ran.iterdir() if path.is_dir()], "only small files are kept"
        assert {"ledger.json", "job.yaml"} <= {path.name for path in ran.iterdir()}
        assert place.call("report", ran).code == 0
        assert load_closed_job(ran / "job.yaml").train.optimizer.lr == trial["values"][LR]


@pytest.mark.parametrize("leak", list(LeakKind))
def test_the_leak_is_that_of_the_chosen_messages(leak):
    leaks = (leak_result(0.8), leak_result(0.9, message="embedding"))
    layer = {"run": "this run", "party": "p", "side": "passive", "layer": "x", "index": 0, "attack": "spectral"}
    layers = (LayerLeak(**layer, leak=1.0, epoch=1),)
    undefined = (Attempt(run="this run", party="p", message="gradient", attack="hint", rows=9, positives=0),)
    worst = measure._worst(RunAudit(leaks=leaks, layers=layers, undefined=undefined), leak)
    assert worst.leak == {"all": 0.9, "gradient": 0.8, "embedding": 0.9}[leak]


def feature_result(value, metric="r2", run="this run", attack="inversion"):
    about = {"party": "telco", "release": "end", "known": 9, "rows": 9, "low": None, "high": None, "baseline": 0.0}
    return FeatureResult(run=run, attack=attack, metric=metric, value=value, **about)


def test_the_columns_rebuilt_are_those_of_the_strongest_attack_on_all_columns():
    tried = [
        feature_result(0.4),
        feature_result(0.9, run="undefended"),
        feature_result(0.95, metric="auc", attack="attribute"),
        feature_result(None, metric="exact", attack="quadratic"),
    ]
    assert measure.strongest_on_columns(tried).value == 0.4
    assert (
        measure.strongest_on_columns([*tried, feature_result(0.7, metric="exact", attack="lattice")]).attack
        == "lattice"
    )
    assert measure.strongest_on_columns(tried[1:]) is None


def test_where_columns_are_attacked_the_front_has_three_objectives(place, folder):
    attacked = {"parties.telco.audit": {"attacks": ["inversion"], "layers": False}}
    path = "parties.telco.privacy.dp_embedding"
    place.change({**SHORT, **attacked, path: {"clip": 1.0, "epsilon": 1.0, "delta": 1e-5}})
    printed = place.call("sweep", place.file, "--vary", f"{path}.epsilon=0.5,1e9")
    assert printed.code == 0
    result = json.loads((folder / "sweep.json").read_text())
    measured = {trial["values"][f"{path}.epsilon"]: trial["measured"] for trial in result["trials"]}
    # Of few rows, by weights that are drawn anew: 1e9 gives -0.05 to 0.95, and 0.5 gives -0.14 to -0.07.
    assert measured[0.5]["rebuilt"] < measured[1e9]["rebuilt"]
    assert {each["rebuilt_by"] for each in measured.values()} == {"telco/inversion"}
    by_number = sorted(result["trials"], key=lambda trial: trial["measured"]["leak"])
    axes = [[trial["measured"][key] for trial in by_number] for key in ("utility", "leak", "rebuilt")]
    assert result["front"] == [by_number[at]["number"] for at in pareto_front(*axes)]
    page = (folder / "sweep.html").read_text()
    assert page.count("<figure") == 2
    assert "columns rebuilt by the strongest attack (1 is all)" in page
    assert "rebuilt" in printed.out


def test_without_validation_rows_the_test_rows_choose(place, folder):
    place.change({**SHORT, "train.split": {"validation": 0.0, "test": 0.3}})
    result = place.call("sweep", place.file, "--vary", f"{LR}=0.001,0.01", "--trials", "1", "--json").document()
    assert result["rows"] == "test"
    assert all(trial["measured"]["utility"] == trial["measured"]["test"] for trial in result["trials"])
    assert "no validation rows" in (folder / "sweep.html").read_text()


def test_a_search_goes_on_to_more_trials_and_repeats_none(place, folder, stated, monkeypatch):
    vary = ("--vary", f"{LR}=0.001..0.1:log", "--vary", "train.epochs=1..3")
    first = trials_of(place.call("sweep", place.file, *vary, "--trials", "2", "--json").document())
    assert all(0.001 <= trial["values"][LR] <= 0.1 for trial in first.values())
    assert all(trial["values"]["train.epochs"] in (1, 2, 3) for trial in first.values())
    more = trials_of(place.call("sweep", place.file, *vary[2:], *vary[:2], "--trials", "4", "--json").document())
    assert len(more) == 4
    assert {number: more[number] for number in first} == first
    monkeypatch.setattr(worker, "measure", None)
    assert trials_of(place.call("sweep", place.file, *vary, "--trials", "4", "--json").document()) == more


def test_two_processes_share_the_trials(place):
    place.change(SHORT)
    command = ["sweep", str(place.file), *THREE, "--storage", str(place.folder / "shared.log"), "--json", "--out"]
    folder = place.folder / "process"
    folder.mkdir()
    other = forked(run_in, folder, [*command, str(place.folder / "two")])
    try:
        printed = place.call(*command, place.folder / "one")
        assert (printed.code, other.wait(), (folder / "errors.txt").read_text()) == (0, 0, "")
    finally:
        other.kill()
    result = [printed.document(), json.loads((folder / "output.json").read_text())]
    assert result[0]["front"] == result[1]["front"]
    assert len(result[0]["trials"]) == len(result[1]["trials"]) == 3
    here, there = (trials_of(item) for item in result)
    assert here.keys() == there.keys()
    for number, trial in here.items():
        assert trial["measured"] == there[number]["measured"]
        assert (trial["folder"] is None) != (there[number]["folder"] is None), "one of the two has its run"
        assert trial["worker"] == there[number]["worker"]


def test_a_failed_trial_is_told_and_the_others_go_on(place, folder, stated, monkeypatch):
    def failing(job, *arguments):
        if job.train.optimizer.lr == 0.01:
            raise Diverged("the outputs are <b>no longer</b> finite")
        return stated(job, *arguments)

    monkeypatch.setattr(worker, "measure", failing)
    result = place.call("sweep", place.file, "--vary", f"{LR}=0.001,0.01,0.002")
    assert result.code == 0
    assert "1 trial failed; the page says why" in result.out
    trials = json.loads((folder / "sweep.json").read_text())["trials"]
    (failed,) = [trial for trial in trials if trial["state"] == "failed"]
    assert (failed["reason"], failed["measured"]) == ("the outputs are <b>no longer</b> finite", None)
    assert "&lt;b&gt;no longer" in (folder / "sweep.html").read_text()
    monkeypatch.setattr(worker, "measure", stated)
    again = place.call("sweep", place.file, "--vary", f"{LR}=0.001,0.01,0.002", "--json").document()
    assert again["trials"] == json.loads(json.dumps(trials)), "a failure is a result, and not tried again"


def test_where_every_trial_fails_the_first_reason_is_the_error(place, folder, monkeypatch):
    def failing(*_):
        raise Diverged("no longer finite")

    monkeypatch.setattr(measure, "execute", failing)
    result = place.call("sweep", place.file, "--vary", f"{LR}=0.001,0.01")
    assert result.code == 2
    assert re.search(r"no trial could be run; the first, with lr 0\.0\d+, failed: no longer finite", result.error)


def test_an_interrupted_sweep_goes_on(place, folder, stated, monkeypatch):
    ran = []

    def pressed(job, *arguments):
        ran.append(job.train.optimizer.lr)
        if len(ran) == 2:
            raise KeyboardInterrupt
        return stated(job, *arguments)

    monkeypatch.setattr(worker, "measure", pressed)
    vary = ("--vary", f"{LR}=0.001,0.01,0.002")
    result = place.call("sweep", place.file, *vary, "--json")
    assert result.code == 130
    stands = f"interrupted; 1 of 3 trials are saved in {folder / 'sweep.log'}; the same command continues"
    assert result.document() == {"error": stands, "exit_code": 130}
    assert len(list((folder / "trials").iterdir())) == 1
    monkeypatch.setattr(shared.SharedTrials, "release_stale_trials", lambda _: pytest.fail("nothing is waited for"))
    again = place.call("sweep", place.file, *vary, "--json").document()
    assert sorted(trial["values"][LR] for trial in again["trials"]) == [0.001, 0.002, 0.01]
    assert {trial["state"] for trial in again["trials"]} == {"complete"}
    assert sorted(ran) == sorted([0.001, 0.01, 0.002, ran[1]])


def test_a_dead_process_s_trial_is_taken_over(place, folder, stated, monkeypatch):
    keep, remove = shared.SharedTrials.release, worker.shutil.rmtree
    vary = ("--vary", f"{LR}=0.001,0.01")

    def killed(job, path, *arguments):
        path.mkdir(parents=True)
        (path / "job.yaml").write_text("half a run")
        raise SystemExit

    monkeypatch.setattr(worker, "measure", killed)
    monkeypatch.setattr(shared.SharedTrials, "release", lambda *_: None)
    monkeypatch.setattr(worker.shutil, "rmtree", lambda *_, **__: None)
    with pytest.raises(SystemExit):
        place.call("sweep", place.file, *vary)
    monkeypatch.setattr(worker.shutil, "rmtree", remove)
    assert (folder / "trials" / "0000" / "job.yaml").exists()
    monkeypatch.setattr("cutlayer_sweep.shared.STALE_SECONDS", 0.0)
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(worker, "measure", stated)
    monkeypatch.setattr(shared.SharedTrials, "release", keep)
    result = place.call("sweep", place.file, *vary, "--json").document()
    assert sorted(trial["values"][LR] for trial in result["trials"]) == [0.001, 0.01]
    assert not (folder / "trials" / "0000").exists()


@pytest.mark.parametrize(
    ("options", "phrases"),
    [
        (["train.optimiser.lr=1,2"], ["--vary train.optimiser.lr=1: train.optimiser: unknown key", "'optimizer'?"]),
        (["parties.bnk.id=1,2"], ["parties.bnk: no such party; did you mean 'bank'?"]),
        (["parties.bank.privacy.marvel.sum_kl=1..2"], ["unknown protection; did you mean 'marvell'?"]),
        ([f"{LR}=0..1"], [f"--vary {LR}=0: {LR}: expected greater than 0, got 0"]),
        ([f"{LR}=1,2", "train.epochs=2,1.5"], ["train.epochs: expected 'auto' or a whole number, got 1.5"]),
        (["model.bottom.hidden.2=1,2"], ["expected an index of the list, 0 to 1, got 2"]),
        (["train.epochs.x=1,2"], ["expected keys above x, got 2; the path is too long"]),
        (["train.batch_size=500,64"], ["training rows, got"]),
        ([f"{LR}=1,2", f"{LR}=3,4"], [f"every path of the job in one --vary, got {LR} in several"]),
        ([f"{LR}=2..1"], ["from a smaller to a larger number, got 2..1"]),
        ([f"{LR}=1,2", "--trials", "0"], ["expected --trials of 1 or more, got 0"]),
        ([f"{LR}=1,2", "--storage", "bank.csv"], ["expected a sweep's storage at bank.csv, got another file"]),
        ([f"{LR}=1,2", "--out", "."], ["expected a new folder or that of a sweep at ., got "]),
        (["parties.bank.audit.every=never"], ["every: epoch or end, got never; a sweep needs a measured leak"]),
        (
            ["parties.bank.audit.attacks.0=norm", "--leak", "embedding"],
            ["an attack on the embedding messages of a binary job in parties.bank.audit.attacks, got norm"],
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_is_wrong_is_told_before_anything_runs(place, monkeypatch, options, phrases):
    if "attacks.0" in options[0]:
        place.change({"parties.bank.audit": {"attacks": ["direction"]}})
    monkeypatch.setattr(measure, "execute", None)
    before = (place.folder / "bank.csv").read_bytes()
    arguments = [part for option in options for part in (["--vary", option] if "=" in option else [option])]
    result = place.call("sweep", place.file, *arguments)
    assert (result.code, result.out) == (2, "")
    for phrase in phrases:
        assert phrase in result.error
    assert place.call("sweep", place.file, *arguments, "--json").document()["exit_code"] == 2
    assert not list(place.folder.glob("**/trials/*"))
    assert (place.folder / "bank.csv").read_bytes() == before


def test_another_job_or_other_values_in_the_same_folder_are_refused(place, folder, stated):
    assert place.call("sweep", place.file, "--vary", f"{LR}=0.001,0.01").code == 0
    result = place.call("sweep", place.file, "--vary", f"{LR}=0.001,0.02")
    assert result.code == 2
    assert "one with another --vary; give another --out or --storage" in result.error
    place.change({**SHORT, "train.epochs": 2})
    assert "one with another job" in place.call("sweep", place.file, "--vary", f"{LR}=0.001,0.01").error


def test_the_same_job_elsewhere_is_the_same_sweep(place, folder, stated, tmp_path):
    """Tables and keys lie at other paths on another machine."""
    shared = ("--vary", f"{LR}=0.001,0.01", "--storage", tmp_path / "shared.log", "--json")
    first = place.call("sweep", place.file, *shared).document()
    other = tmp_path / "elsewhere"
    other.mkdir()
    for name in ("bank.csv", "telco.csv"):
        (place.folder / name).rename(other / name)
    (other / "job.yaml").write_text(place.file.read_text())
    second = place.call("sweep", other / "job.yaml", *shared).document()
    assert [trial["measured"] for trial in second["trials"]] == [trial["measured"] for trial in first["trials"]]
    assert {trial["folder"] for trial in second["trials"]} == {None}


class Loads(html.parser.HTMLParser):
    """Everything a page would load, and its open elements."""

    def __init__(self):
        super().__init__()
        self.loads, self.open = [], []

    def handle_starttag(self, tag, attributes):
        self.loads += [
            value for key, value in attributes if key in ("src", "href") and not value.startswith(("#", "data:"))
        ]
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_stands_alone_and_shows_every_trial(grid):
    result = json.loads((grid.folder / "sweep.json").read_text())
    text = (grid.folder / "sweep.html").read_text()
    page = Loads()
    page.feed(text)
    assert (page.loads, page.open) == ([], [])
    assert "script" not in re.sub(r"description", "", text)
    rows = re.findall(r'<th scope="row" class="n">(\d+)</th>', text)
    assert sorted(map(int, rows)) == sorted(trials_of(result))
    assert len(re.findall(r'class="mark s0"', text)) == len(result["front"])
    assert len(re.findall(r'class="mark s1"', text)) == 6 - len(result["front"])
    assert text.count('class="ring"') == (result["knee"] is not None)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.b", {"a": {"b": 9, "c": [1, 2]}, "x.y": {"z": 3}}),
        ("a.c.1", {"a": {"b": 0, "c": [1, 9]}, "x.y": {"z": 3}}),
        ("a.new.deep", {"a": {"b": 0, "c": [1, 2], "new": {"deep": 9}}, "x.y": {"z": 3}}),
        ("x.y.z", {"a": {"b": 0, "c": [1, 2]}, "x.y": {"z": 9}}),
    ],
)
def test_a_place_is_changed_and_nothing_else(path, expected):
    raw = {"a": {"b": 0, "c": [1, 2]}, "x.y": {"z": 3}}
    assert variants.with_value(raw, path.split("."), 9) == expected
    assert raw == {"a": {"b": 0, "c": [1, 2]}, "x.y": {"z": 3}}
