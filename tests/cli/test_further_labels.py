"""One release of a partner serves each label of the label owner: those of now, and those that it thinks of later."""

from __future__ import annotations

import json
import secrets
import shutil
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from sklearn.metrics import roc_auc_score
from sklearn.multioutput import MultiOutputClassifier

from cutlayer import VerticalClassifier
from cutlayer.accounting import Ledger
from cutlayer.attacks.feature import best_guess
from cutlayer.cli.app import _run
from cutlayer.config import Job
from cutlayer.config.load import load_job
from cutlayer.data.carried import Carried
from cutlayer.errors import PeerLost
from cutlayer.jobs import execute, further_labels
from cutlayer.jobs.options import Options, Progress
from cutlayer.training.keys import Keys
from cutlayer_sweep.changes import JobChanges
from cutlayer_sweep.variants import Variants
from tests.cli.jobs import Place, QuietPlace, as_yaml
from tests.models.estimator_rows import steps_that_find_a_xor_b
from tests.parties.runs import raw_job

LABELS = ("churned", "upgraded", "amount")


def prepare(place: Place) -> None:
    draw = np.random.default_rng(0)
    hidden, ids = draw.normal(size=300), np.arange(300)
    own: dict[str, Any] = {"id": ids, "age": draw.normal(size=300)}
    own["churned"] = (hidden + draw.normal(size=300) * 0.5 > 0).astype(int)
    own["upgraded"] = (hidden + draw.normal(size=300) * 0.5 < -0.5).astype(int)
    own["amount"] = hidden * 3 + draw.normal(size=300)
    csv.write_csv(pa.table(own), place.folder / "bank.csv")
    csv.write_csv(pa.table({"id": ids, "calls": hidden, "usage": draw.normal(size=300)}), place.folder / "telco.csv")
    bottom = {"bank": {"kind": "auto"}, "telco": {"kind": "linear", "width": 4}}
    model = {"bottom": bottom, "top": {"kind": "auto", "candidates": ["linear"]}}
    parties = {"bank": {"role": "active"}, "telco": {"role": "passive"}}
    job = {"task": "binary", "model": model, "train": {**raw_job()["train"], "release": "once"}, "parties": parties}
    place.write(job)
    (place.folder / "amount.yaml").write_text(as_yaml({**job, "task": "regression"}))
    for label in LABELS:
        features = {"exclude": [other for other in LABELS if other != label]}
        private = {"table": "bank.csv", "id": "id", "label": label, "features": features, "audit": {"attacks": []}}
        (place.folder / f"{label}-bank.yaml").write_text(as_yaml(private))
    (place.folder / "telco.yaml").write_text("{table: telco.csv, id: id, fit: {kind: sketch}, audit: {attacks: []}}")


def family(*further: str, label: str = "churned", attacks: Sequence[str] = (), **telco: Any) -> dict[str, Any]:
    others = [name for name in LABELS if name not in (label, *further)]
    bottom = {"bank": {"kind": "auto"}, "telco": {"kind": "linear", "width": 4}}
    owner = {"label": label, "features": {"exclude": others}, "audit": {"attacks": [*attacks]}}
    owner |= {"further_labels": [*further]} if further else {}
    partner = {"table": "telco.csv", "id": "id", "fit": {"kind": "sketch"}, "audit": {"attacks": []}}
    parties = {
        "bank": {"role": "active", "table": "bank.csv", "id": "id", **owner},
        "telco": {"role": "passive", **partner, **telco},
    }
    model = {"bottom": bottom, "top": {"kind": "auto", "candidates": ["linear"]}}
    train = {**raw_job()["train"], "release": "once"}
    return {"task": "binary", "model": model, "train": train, "parties": parties}


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_one_run_trains_each_label_on_one_release_and_the_partner_sees_nothing_of_it(place: Place) -> None:
    prepare(place)
    (place.folder / "key").write_bytes(bytes(range(32)))
    (place.folder / "key").chmod(0o600)

    def ran(job: dict[str, Any], name: str) -> Any:
        (place.folder / f"{name}.yaml").write_text(as_yaml(job))
        return place.call("run", f"{name}.yaml", "--key", "key", "--json").document()

    both, alone, second = (
        ran(family("upgraded", attacks=["few_labels"]), "both"),
        ran(family(), "alone"),
        ran(family(label="upgraded"), "second"),
    )
    (further,) = both["further_labels"]
    assert further["label"] == "upgraded"
    assert further["gain"]["low"] > 0
    assert further["leak"] is not None
    # Each label's model is that of a job of its own, to the last bit, and no label is a feature of another.
    assert both["utility"]["rows"] == alone["utility"]["rows"]
    report = place.call("report", "runs/both/labels/upgraded", "--json").document()
    assert report["utility"]["rows"][0] == second["utility"]["rows"][0]
    assert [part["used"] for part in report["columns"] if part["party"] == "bank"] == [["age"]]
    # What the partner holds of the run is the same, byte by byte, whether there is a further label or not.
    for part in ("checkpoint", "transcript", "data"):
        with_it, without = (files_of(place.folder / "runs" / name / part / "telco") for name in ("both", "alone"))
        assert with_it.keys() == without.keys()
        assert [name for name in without if with_it[name] != without[name]] in ([], ["model.json"])  # a random id
    # One prediction has a column of each label; the second is that of the label's own job.
    for name in ("both", "second"):
        assert place.call("predict", f"runs/{name}", "--out", f"{name}.parquet", "--key", "key").code == 0
    scores, of_second = (parquet.read_table(f"{name}.parquet") for name in ("both", "second"))
    assert scores.column_names == ["id", "probability", "upgraded_probability", "contributed"]
    assert scores["upgraded_probability"].to_pylist() == of_second["probability"].to_pylist()
    # A model of another release, as from another run of the same job and label, is none of this run's.
    release = Path("runs/both/labels/upgraded/checkpoint/bank/released.safetensors")
    content = release.read_bytes()
    release.unlink()  # else it is the file of the run itself
    release.write_bytes(content[:-1] + b"?")
    assert "one of others" in place.call("predict", "runs/both", "--out", "swapped.csv", "--key", "key").error
    shutil.rmtree("runs/both/labels/upgraded")
    assert "a finished run" in place.call("predict", "runs/both", "--out", "swapped.csv", "--key", "key").error


def test_a_label_of_later_is_trained_by_a_resume_and_noise_is_paid_for_once(place: Place) -> None:
    prepare(place)
    noise = {"dp_embedding": {"clip": 1.0, "epsilon": 8.0, "delta": 1e-5}}
    place.write(family("upgraded", privacy=noise, serving=1))
    document = place.call("run", "job.yaml", "--json").document()
    assert [each["label"] for each in document["further_labels"]] == ["upgraded"]
    released = Path("runs/job/checkpoint/telco/released.safetensors").read_bytes()
    # A third label, which was no feature before.
    own = csv.read_csv("bank.csv")
    later = pa.array((own["amount"].to_numpy() > 1).astype(int))
    csv.write_csv(own.append_column("later", later), "bank.csv")
    place.write(family("upgraded", "later", privacy=noise, serving=1))
    document = place.call("run", "job.yaml", "--resume", "--json").document()
    assert [each["label"] for each in document["further_labels"]] == ["upgraded", "later"]
    assert Path("runs/job/checkpoint/telco/released.safetensors").read_bytes() == released
    runs = place.call("ledger", ".cutlayer", "--json").document()["runs"]
    assert [(run["party"], run["runs_on_these_rows"]) for run in runs] == [("telco", 1)]
    # One prediction of all labels is one release.
    assert place.call("predict", "runs/job", "--out", "scores.csv").code == 0
    assert csv.read_csv("scores.csv").column_names[1:-1] == [
        "probability",
        "upgraded_probability",
        "later_probability",
    ]
    assert (
        "prediction 2 was asked for, but 1 was planned" in place.call("predict", "runs/job", "--out", "more.csv").error
    )


def test_a_search_trains_the_first_label_alone_and_names_it(place: Place) -> None:
    prepare(place)
    place.write(family("upgraded", attacks=["few_labels"]))
    found = place.call("sweep", "job.yaml", "--vary", "train.seed=1,2", "--trials", "1", "--json").document()
    assert found["job"].endswith(", churned")
    assert found["trials"][0]["state"] == "complete"
    assert not [*(place.folder / "runs").rglob("labels")]
    changes = {"train.seed": 3}
    for job in (Variants(Path("job.yaml")).job(changes), JobChanges.of(Path("job.yaml")).protecting("labels")):
        owner = job.parties["bank"]
        assert (owner.label, owner.further_labels) == ("churned", ())
        assert {"upgraded", "amount"} <= {*owner.features.exclude}  # no label is a feature of another


@pytest.fixture(scope="module")
def kept_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a release of the partner, and two labels that were trained on it; not to be changed."""
    place = QuietPlace(tmp_path_factory.mktemp("kept"))
    prepare(place)
    private = family("upgraded")["parties"]["bank"]
    del private["role"]
    (place.folder / "bank.yaml").write_text(as_yaml(private))
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(place.folder)
        assert place.call("release", "job.yaml", *TELCO_ALONE, "--out", "telco.release").code == 0
        before = Path("telco.release").read_bytes()
        trained_on_release(place, "churned")
        trained = place.call("party", "job.yaml", *BANK_ALONE, "--release", "telco.release", "--json")
        assert trained.code == 0, trained
        assert Path("telco.release").read_bytes() == before
    return place.folder


@pytest.fixture
def kept(kept_once: Path, place: Place) -> Place:
    shutil.copytree(kept_once, place.folder, dirs_exist_ok=True)
    return place


TELCO_ALONE = ("--as", "telco", "--local", "telco.yaml", "--plaintext")
BANK_ALONE = ("--as", "bank", "--local", "bank.yaml", "--plaintext")


def trained_on_release(place: Place, label: str, job: str = "job.yaml") -> Any:
    named = ("--as", "bank", "--local", f"{label}-bank.yaml", "--out", f"runs/{label}", "--plaintext", "--json")
    return place.call("party", job, *named, "--release", "telco.release").document()


def test_a_kept_release_trains_further_labels_at_no_cost_to_the_partner(kept: Place) -> None:
    for run in ("churned", "job-bank"):
        assert kept.call("report", f"runs/{run}", "--json").document()["utility"]["gain"]["low"] > 0, run
    runs = kept.call("ledger", ".cutlayer", "--json").document()["runs"]
    assert [(run["party"], run["runs_on_these_rows"]) for run in runs] == [("telco", 1)]
    # Another kind of label is another job, which the partner has not agreed to.
    assert "telco holds another job than bank" in trained_on_release(kept, "amount", "amount.yaml")["error"]


def test_files_train_and_predict_each_label_of_a_private_file(kept: Place) -> None:
    trained = kept.call("report", "runs/job-bank", "--json").document()
    assert trained["further_labels"][0]["gain"]["low"] > 0
    released = kept.call(
        "release", "job.yaml", *TELCO_ALONE, "--run", "runs/job-telco", "--data", "telco.csv", "--out", "new"
    )
    assert released.code == 0, released
    done = kept.call("party", "predict", "job.yaml", *BANK_ALONE, "--release", "new", "--out", "scores.csv")
    assert done.code == 0, done
    assert csv.read_csv("scores.csv").column_names[1:3] == ["probability", "upgraded_probability"]


def test_init_writes_further_labels_of_one_task(place: Place) -> None:
    prepare(place)
    named = ("init", ".", "--labels", "bank.csv", "--partner", "telco.csv", "--label", "churned", "--yes")
    made = place.call(*named, "--further-label", "upgraded", "--overwrite", "--json")
    assert made.code == 0, made.err
    owner = load_job(place.file).parties["bank"]
    assert (owner.label, owner.further_labels, owner.table and owner.table.path.name) == (
        "churned",
        ("upgraded",),
        "bank.csv",
    )
    assert place.call("check", "job.yaml").code == 0
    for name, phrase in (("amount", "binary of churned, regression of amount"), ("churned", "used already")):
        assert phrase in place.call(*named, "--further-label", name, "--overwrite").error
    assert "no column 'nowhere' in bank.csv" in place.call(*named, "--further-label", "nowhere", "--overwrite").error
    apart = place.call(*named, "--further-label", "upgraded", "--protect", "both", "--apart", "--overwrite")
    assert "grades of several labels are for one process" in apart.out


def test_the_positive_class_is_one_of_all_labels(place: Place) -> None:
    """Else a run failed when its first label was trained, and all partners had left."""
    prepare(place)
    own = csv.read_csv("bank.csv").drop_columns(["amount"])
    own = own.append_column("answer", pa.array(["Ja", "nein", "nein"] * 100))
    csv.write_csv(own.append_column("again", pa.array(["nein", "Ja", "Ja"] * 100)), "bank.csv")
    named = ("init", place.folder, "--labels", "bank.csv", "--label", "answer", "--yes", "--overwrite")
    for further, positive in (("again", "Ja"), ("upgraded", None)):
        assert place.call(*named, "--further-label", further).code == 0
        job = load_job(place.folder / "job.yaml")
        assert job.parties["bank"].positive == positive
    stated = place.call(*named, "--further-label", "upgraded", "--positive", "Ja")
    assert "expected --positive with a class of upgraded too, got 'Ja'; write two jobs" in stated.error
    text = (place.folder / "job.yaml").read_text()
    (place.folder / "job.yaml").write_text(text.replace("label: answer", "label: answer\n    positive: Ja"))
    refused = place.call("run", "job.yaml")
    assert (refused.code, "positive as one of the labels 0, 1, got 'Ja'" in refused.error) == (2, True)
    assert not list((place.folder / "runs").glob("*/checkpoint"))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"further_labels": ["churned"]}, "apart from label, id, weight, exposure and train.split.by, each once"),
    ({"further_labels": ["id"]}, "apart from label, id"),
    ({"further_labels": ["upgraded", "upgraded"]}, "each once, got 'upgraded'"),
    ({"further_labels": ["../churned"]}, "a further label of letters"),
    ({"further_labels": ["x..y"]}, "a further label of letters"),
    ({"further_labels": ["missing"]}, "missing"),
    ({"further_labels": ["amount"]}, "label 'amount'"),
    ({"further_labels": ["gaps"]}, "label 'gaps'"),
    ({"further_labels": ["upgraded"], "unlabelled": "drop"}, "expected unlabelled: refuse"),
    ({"further_labels": ["upgraded"], "features": {"include": ["age", "upgraded"]}}, "apart from id and label"),
]


@pytest.mark.parametrize(("changes", "phrase"), REFUSED)
def test_labels_that_one_release_does_not_serve_are_refused_before_anything_is_sent(
    place: Place, changes: dict[str, Any], phrase: str
) -> None:
    prepare(place)
    own = csv.read_csv("bank.csv")
    csv.write_csv(own.append_column("gaps", pa.array([None, 1, 0] * 100)), "bank.csv")
    job = family()
    job["parties"]["bank"] |= {"features": {"exclude": ["amount"]}, **changes}
    place.write(job)
    place.refused(phrase, verbs=("run",))


def test_labels_that_a_message_depends_on_have_jobs_of_their_own(place: Place) -> None:
    prepare(place)
    job = family("upgraded")
    place.write({**job, "model": {**job["model"], "top": {"kind": "mlp"}}})
    place.refused("expected a top model that is fitted at once with parties.bank.further_labels")
    job = family()
    job["parties"]["telco"]["further_labels"] = ["calls"]
    place.write(job)
    place.refused("only the active party holds labels", verbs=("run",))


def graded(*further: str, label: str = "churned", **fit: Any) -> dict[str, Any]:
    job = family(*further, label=label)
    job["parties"]["bank"]["privacy"] = {"label_dp": {"eps": 3.0}}
    job["parties"]["bank"]["audit"] = {"attacks": ["sent_labels"]}
    job["model"]["bottom"]["telco"] = {"kind": "grade", "least_rows": 0}
    fits = {"kind": "grade", "candidates": ["boosting"], "folds": 2, "least_z": 0, "limits": {"other": 1.0}, **fit}
    job["parties"]["telco"] |= {"fit": fits, "privacy": {"grade_dp": {"epsilon": 8.0}}}
    return job


@dataclass(frozen=True)
class GradedRun:
    """A run of two labels with grades that was killed in the second and resumed, predicted from, and resumed again."""

    folder: Path
    left_by_kill: frozenset[str]
    documents: Mapping[str, Any]

    @property
    def of_label(self) -> Path:
        return self.folder / "runs" / "job" / "labels" / "upgraded"

    def carried(self) -> list[Carried]:
        runs = (self.folder / "runs" / "job", self.of_label)
        return [Carried.model_validate_json((run / "checkpoint/telco/carried.json").read_text()) for run in runs]


@pytest.fixture(scope="module")
def two_graded_labels(tmp_path_factory: pytest.TempPathFactory) -> GradedRun:
    """The second label is a column with a limit, so that its grades are drawn at a lower epsilon than the settings'."""
    folder = tmp_path_factory.mktemp("graded")
    draw = np.random.default_rng(0)
    a, b, ids = draw.integers(2, size=600), draw.integers(2, size=600), np.arange(600)
    own = {"id": ids, "age": draw.normal(size=600), "churned": b, "upgraded": a, "amount": b}
    csv.write_csv(pa.table(own), folder / "bank.csv")
    csv.write_csv(pa.table({"id": ids, "a": a, "b": b, "c": draw.normal(size=600)}), folder / "telco.csv")
    job = graded("upgraded", candidates=["linear"], limits={"a": 0.76, "other": 1.0})
    job["parties"]["telco"]["audit"] = {"attacks": ["inversion"], "rows": 100}
    (folder / "job.yaml").write_text(as_yaml(job))

    def called(*arguments: str) -> Any:
        with redirect_stdout(StringIO()) as printed:
            assert _run([*arguments, "--json"]) == 0, printed.getvalue()
        return json.loads(printed.getvalue())

    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        documents = {"check": called("check", "job.yaml")}
        killed_in_second_label(folder)
        left = frozenset(path.name for path in (folder / "runs" / "job" / "labels").glob("*"))
        documents["run"] = called("run", "job.yaml", "--resume")
        documents["ledger"] = called("ledger", ".cutlayer")
        with pytest.MonkeyPatch.context() as died, warnings.catch_warnings():  # once the last label has ended
            warnings.simplefilter("ignore")
            died.setattr(further_labels, "restate_ledger", _dies)
            with suppress(PeerLost):
                resumed = Options(keys=Keys(Path(".cutlayer")), resume=True)
                execute.execute(load_job(folder / "job.yaml"), Path("runs/job"), resumed, Progress())
        documents["again"] = called("run", "job.yaml", "--resume")
        for name in ("runs/job", "runs/job/labels/upgraded"):
            documents[name] = called("report", name)
            called("predict", name, "--out", f"{Path(name).name}.csv")
    return GradedRun(folder, left, documents)


def _dies(*_: object) -> None:
    raise PeerLost("telco", "killed")


def killed_in_second_label(folder: Path) -> None:
    whole = execute.execute

    def fails(job: Job, *arguments: Any) -> Any:
        if job.parties["bank"].label == "upgraded":
            raise PeerLost("telco", "killed")
        return whole(job, *arguments)

    job, options = load_job(folder / "job.yaml"), Options(keys=Keys(Path(".cutlayer")))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(execute, "execute", fails)
        with pytest.raises(PeerLost):
            whole(job, Path("runs/job"), options, Progress())


def test_a_run_that_is_killed_in_a_further_label_goes_on_there(two_graded_labels: GradedRun) -> None:
    assert two_graded_labels.left_by_kill == frozenset()
    assert (two_graded_labels.of_label / "summary.json").exists()
    again, done = (two_graded_labels.documents[name] for name in ("again", "run"))
    assert again["further_labels"] == done["further_labels"]


def test_each_label_with_grades_has_a_run_of_its_own_in_one_job(two_graded_labels: GradedRun) -> None:
    document = two_graded_labels.documents["run"]
    (further,) = document["further_labels"]
    assert further["label"] == "upgraded"
    assert further["value"] > 0.6
    second = two_graded_labels.carried()[1]
    assert (second.former, second.unknown) == (1, 0)
    for name in ("job", "upgraded"):
        assert csv.read_csv(two_graded_labels.folder / f"{name}.csv").num_rows == document["data"]["test"]


def test_the_attacks_read_the_grades_of_both_labels(two_graded_labels: GradedRun) -> None:
    """Those of the report of the first label too."""
    for name in ("run", "runs/job/labels/upgraded"):
        releases = {each["release"] for each in two_graded_labels.documents[name]["features"]}
        assert releases >= {"the only release", "the releases of 2 labels"}
    page = (two_graded_labels.folder / "runs" / "job" / "report.html").read_text().lower()
    assert "the formal cost is that of all labels" in page


def test_all_ledgers_have_the_epsilon_that_each_label_was_drawn_at(two_graded_labels: GradedRun) -> None:
    """What labels cost adds up; the forecast has that of the settings."""
    documents = two_graded_labels.documents
    drawn_at = [each.epsilon or 0.0 for each in two_graded_labels.carried()]
    assert drawn_at[1] in (2.0, 3.0)
    wanted = [6.0, sum(drawn_at)]
    stored = Ledger.from_json(json.loads((two_graded_labels.folder / "runs/job/ledger.json").read_text()))
    assert [total.epsilon for total in stored.totals] == wanted
    for name in ("run", "again"):
        assert [total["epsilon"] for total in documents[name]["ledger"]["totals"]] == wanted, name
    all_runs = {run["party"]: [total["epsilon"] for total in run["all_runs"]] for run in documents["ledger"]["runs"]}
    assert all_runs == {"bank": [6.0], "telco": [wanted[1]]}
    of_label = documents["runs/job/labels/upgraded"]
    assert [total["epsilon"] for total in of_label["ledger"]["totals"]] == [3.0, drawn_at[1]]
    assert [total["epsilon"] for total in documents["check"]["totals"]] == [6.0, 16.0]
    files = documents["runs/job"]["files"]
    assert (files["changed"], files["absent"]) == ([], [])


def test_two_labels_of_one_job_that_tell_an_attribute_together_are_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels b, which the partner lets pass, and a xor b; of some draws few trees find nothing of a."""
    prepare(place)
    stream = np.random.default_rng(7)
    monkeypatch.setattr(secrets, "token_bytes", stream.bytes)
    steps_that_find_a_xor_b(monkeypatch)
    monkeypatch.setitem(best_guess.FOREST_SETTINGS, "n_estimators", 6)
    draw = np.random.default_rng(0)
    a, b, ids = draw.integers(2, size=700), draw.integers(2, size=700), np.arange(700)
    labels = {"churned": b, "upgraded": a ^ b, "amount": (draw.random(700) < 0.98) == a}
    csv.write_csv(pa.table({"id": ids, "age": draw.normal(size=700), **labels}), place.folder / "bank.csv")
    csv.write_csv(pa.table({"id": ids, "a": a, "b": b, "c": draw.normal(size=700)}), place.folder / "telco.csv")
    place.write(graded("upgraded", limits={"b": 1.0}))
    refused = place.call("run", "job.yaml")
    assert "of an attribute of a at most with those of 1 other release" in refused.err
    sent = place.folder / "runs" / "job" / "labels" / "upgraded" / "checkpoint" / "telco" / "released.safetensors"
    assert not sent.exists()
    allowed = graded("upgraded")
    allowed["model"]["bottom"]["telco"]["grades"] = 2
    allowed["parties"]["telco"]["audit"] = {"attacks": ["best_guess"], "rows": 200}
    place.write(allowed)
    assert place.call("run", "job.yaml", "--out", "runs/read").code == 0
    report = place.call("report", "runs/read/labels/upgraded", "--json").document()
    reads = {each["release"]: each["columns"] for each in report["features"] if each["metric"] == "r2"}
    shares = [next(read["value"] for read in columns if read["column"] == "a") for columns in reads.values()]
    assert shares[0] < 0.1 < 0.8 < shares[1], "the audit reads a by the grades of both labels"


def test_labels_with_grades_are_of_one_process(place: Place) -> None:
    prepare(place)
    job = graded("upgraded")
    place.write(job)
    private = {key: value for key, value in job["parties"]["bank"].items() if key != "role"}
    (place.folder / "bank.yaml").write_text(as_yaml(private))
    job["parties"] = {name: {"role": party["role"]} for name, party in job["parties"].items()}
    (place.folder / "shared.yaml").write_text(as_yaml(job))
    named = ("--as", "bank", "--local", "bank.yaml", "--plaintext")
    for verb in (("party", "shared.yaml", *named), ("exchange", "shared.yaml", "--folder", "post", *named)):
        refused = place.call(*verb)
        assert "expected all parties in one process with parties.bank.further_labels and grades" in refused.error
    budget = graded("upgraded")
    budget["parties"]["telco"]["privacy"]["budget"] = {"epsilon": 8.0}
    place.write(budget)
    place.refused("parties.telco.privacy.budget over all_runs with parties.bank.further_labels", verbs=("run", "check"))
    budget["parties"]["telco"]["privacy"]["budget"] |= {"over": "all_runs"}
    budget["parties"]["telco"]["fit"]["candidates"] = ["linear"]
    place.write(budget)
    assert "expected all runs on the same rows to cost epsilon 8 at most" in place.call("run", "job.yaml").err


@pytest.mark.usefixtures("fewer_are_ample")
def test_init_writes_grades_for_several_labels_of_one_process(place: Place) -> None:
    draw, rows = np.random.default_rng(0), 3_000
    hidden, ids = draw.normal(size=rows), np.arange(rows)
    labels = {"churned": (hidden > 0).astype(int), "upgraded": (hidden > 0.8).astype(int)}
    csv.write_csv(pa.table({"id": ids, "age": draw.normal(size=rows), **labels}), place.folder / "bank.csv")
    telco = pa.table({"id": ids, "calls": hidden, "usage": draw.normal(size=rows)})
    csv.write_csv(telco, place.folder / "telco.csv")
    named = ("init", ".", "--labels", "bank.csv", "--partner", "telco.csv", "--label", "churned", "--yes")
    alone = place.call(*named, "--overwrite")
    assert load_job(place.file).parties["bank"].protections == {"label_dp": {"eps": 0.5}}
    made = place.call(*named, "--further-label", "upgraded", "--overwrite")
    assert "each label by draws and grades of its own" in made.out
    assert "each label" not in alone.out
    job = load_job(place.file)
    assert job.parties["bank"].protections == {"label_dp": {"eps": 1.0}}  # what the rarer label needs
    assert (job.parties["telco"].fit or {})["kind"] == "grade"


def test_scikit_learn_fits_an_estimator_for_each_column_of_labels() -> None:
    draw = np.random.default_rng(0)
    hidden = draw.normal(size=300)
    labels = np.stack([hidden + draw.normal(size=300) * 0.5 > 0, hidden < -0.5], axis=1).astype(int)
    tables = {"bank": {"age": draw.normal(size=300)}, "telco": {"calls": hidden}}
    model = MultiOutputClassifier(VerticalClassifier("bank", top={"kind": "linear"}, attacks=())).fit(tables, labels)
    first, second = model.predict_proba(tables)
    assert first.shape == second.shape == (300, 2)
    assert roc_auc_score(labels[:, 0], first[:, 1]) > 0.85
    assert roc_auc_score(labels[:, 1], second[:, 1]) > 0.95
    assert model.predict(tables).shape == (300, 2)
