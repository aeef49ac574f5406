"""Forms of a single release: utility, label leak and feature leak of each, on jobs as `init` writes them."""

from __future__ import annotations

import argparse
import io
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks.utility.datasets import DataSet, load
from benchmarks.utility.sides import LABEL, table_in, write_tables
from cutlayer.cli.init import init
from cutlayer.config import validated
from cutlayer.config.job import Job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.results.run import RunId, RunKind
from cutlayer.training.keys import Keys

DATA = ("adult", "bank", "credit", "avazu", "motor")
ROWS = 4_000
INTERVALS = 16
MAX_WIDTH = 256
BINS = {"features": {"numbers": {"quantiles": INTERVALS}}}
FORMS: Mapping[str, Mapping[str, Any]] = {
    "rotation": {"fit": {"kind": "sketch"}},
    "permutation": {"fit": {"kind": "sketch", "map": "permutation"}},
    "rotation of intervals": {"fit": {"kind": "sketch", "numbers": False}, **BINS},
    "permutation of intervals": {"fit": {"kind": "sketch", "map": "permutation", "numbers": False}, **BINS},
    "rotation to 8 columns": {"fit": {"kind": "sketch"}, "width": 8},
}
EPSILONS = (None, 64.0, 8.0)


@dataclass(frozen=True)
class FormOfData:
    """A form of the release of a data set.

    Attributes:
        data: Name of the data set.
        form: Form of the release.
        epsilon: Total epsilon of `dp_embedding`; `None` without it.
    """

    data: str
    form: str
    epsilon: float | None


@dataclass(frozen=True)
class FormResult(FormOfData):
    """One run.

    Attributes:
        metric: Main metric of the task.
        utility: That metric on the test rows.
        own: The same of the bank's own columns.
        label_leak: Strongest attack on the bank's labels by the partner, 0.5 to 1.
        own_columns: The leak of the partner's own columns.
        feature_leak: R² of the partner's columns for a receiver who knows 1,000 rows or a quarter of them.
    """

    metric: str
    utility: float | None
    own: float | None
    label_leak: float | None
    own_columns: float | None
    feature_leak: float | None


def measured(name: str, data: DataSet, form: str, epsilon: float | None, seed: int) -> FormResult:
    """Run the job that `init` writes with another form of the partner's release."""
    with tempfile.TemporaryDirectory(prefix="cutlayer-forms-") as scratch:
        folder = Path(scratch)
        write_tables(data, folder)
        with redirect_stdout(io.StringIO()):
            init(folder, label=LABEL, protect="labels", yes=True)
        run = execute(form_job(folder, form, epsilon, seed), folder / "run", Options(Keys(folder / "keys")), Progress())
        summary, audit = run.summary, run.audit
    utility, attacked = summary.utility, audit.runs[RunId(RunKind.THIS_RUN).label]
    this, gain = utility.row(RunKind.THIS_RUN), utility.gain
    value = None if this is None else this.metrics[utility.metric]
    leaks = [leak.leak for leak in attacked.leaks if leak.party == "partner" and leak.leak is not None]
    baseline = attacked.baseline("partner")
    features = [result.value for result in audit.features if result.attack == "inversion" and result.value is not None]
    return FormResult(
        name,
        form,
        epsilon,
        utility.metric,
        value,
        None if gain is None or gain.value is None or value is None else value - gain.value,
        max(leaks, default=None),
        None if baseline is None else baseline.own_columns,
        max(features, default=None),
    )


def form_job(
    folder: Path,
    form: str,
    epsilon: float | None,
    seed: int,
    parties: Mapping[str, Mapping[str, Any]] | None = None,
    compare: tuple[str, ...] = ("alone",),
) -> Job:
    """The job that `init` wrote into a folder, with another form of each partner's release.

    Args:
        folder: Folder of the job and of the tables.
        form: Name of the form.
        epsilon: Total epsilon of `dp_embedding`; `None` without it.
        seed: Seed of the job.
        parties: Further keys of parties, by name.
        compare: Runs to compare with.
    """
    raw = YAML(typ="safe").load(folder / "job.yaml")
    for name, party in raw["parties"].items():
        party["table"] = table_in(folder, party["table"])
        if party["role"] == "passive":
            raw["model"]["bottom"][name] |= _formed(party, raw["model"]["bottom"][name]["width"], form, epsilon)
    for name, keys in (parties or {}).items():
        raw["parties"][name] |= keys
    raw["compare"] = [*compare]
    raw["train"] |= {"seed": seed, "threads": 1}
    return validated(Job, raw, "job")


def _formed(party: dict[str, Any], width: int, form: str, epsilon: float | None) -> dict[str, int]:
    """Give a partner's section a form; returns the width of its bottom model."""
    changes = dict(FORMS[form])
    stated = changes.pop("width", None)
    if "features" in changes:
        # Each number has as many columns more as it has intervals.
        stated = min(MAX_WIDTH, width + INTERVALS * width)
    party |= changes | {"audit": {"attacks": ["inversion"]}}
    if epsilon is not None:
        party["privacy"] = {"dp_embedding": {"clip": 1.0, "epsilon": epsilon, "delta": 1e-5}}
    return {"width": stated or width}


def release_forms(folder: Path, names: tuple[str, ...] = DATA, rows: int = ROWS, seed: int = 0) -> Iterator[FormResult]:
    """All forms and epsilons on data sets of at most so many rows.

    Args:
        folder: Folder of the data.
        names: Names of data sets.
        rows: Number of rows that a larger data set is reduced to.
        seed: Seed of all jobs.
    """
    for name in names:
        data = load(name, folder).drawn(rows)
        for form in FORMS:
            for epsilon in EPSILONS:
                yield measured(name, data, form, epsilon, seed)


def main() -> None:
    """Print one line of JSON for each run, then a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--names", nargs="*", default=DATA)
    parser.add_argument("--rows", type=int, default=ROWS)
    arguments = parser.parse_args()
    results = []
    for result in release_forms(arguments.data, tuple(arguments.names), arguments.rows):
        print(json.dumps(asdict(result)), flush=True)
        results.append(result)
    print("| data | form | epsilon | metric | utility | own columns | label leak | own columns' leak | columns R² |")
    print("|---|---|---|---|---|---|---|---|---|")
    for result in results:
        print("| " + " | ".join(map(_text, asdict(result).values())) + " |")


def _text(value: object) -> str:
    return "–" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
