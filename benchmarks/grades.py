"""`python -m benchmarks grades --data DIR`: what one drawn grade a row keeps of what a partner adds, and reveals.

Each job is that of `init`, with labels drawn and grades released in place of the partner's columns. Results are
appended to a file, one line for each data set and seed; what is there is not measured again.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from ruamel.yaml import YAML
from scipy import stats

from benchmarks.utility.__main__ import METRICS, lines_of
from benchmarks.utility.datasets import LOADERS, WHOLE, DataSet, load
from benchmarks.utility.sides import LABEL, TEST, table_in, test_rows, write_tables
from cutlayer.attacks import knowledge
from cutlayer.cli.init import init
from cutlayer.config import validated
from cutlayer.config.job import Job
from cutlayer.data.carried import Carried
from cutlayer.errors import ConfigError
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.kernels.noise.informative_rows import AMPLE_ROWS, informative_rows
from cutlayer.kernels.noise.label_levels import levels_for
from cutlayer.parties.session.checkpoint import CARRIED_FILE
from cutlayer.results.run import RunId, RunKind
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from studies.provenance import provenance

EPSILONS = (8.0, 4.0, 2.0)
"""Privacy of a row's grade."""
LABEL_EPSILONS = (0.5, 1.0, 2.0)
LAST_RESORT = 4.0
"""Label epsilon where no smaller one leaves enough informative rows; drawn labels are then hardly hidden."""
KNOWN = 512
"""Number of rows whose columns `inversion` knows, or a quarter if that is less."""
ADDS = 0.02
"""Least value that a partner adds for its data set to count in the median."""
ORDER = (
    *("adult", "bank", "credit", "bank-2000", "credit-1000", "adult-2000", "motor", "friedman", "diabetes", "breast"),
    *("iris", "wine", "limit", "movies"),
)
STUDIES = ("tables", "rule", "front", "demo", "draws", "rows", "tried", "private")
"""What each data set keeps; the loss by informative rows; other releases beside grades; the demo's table; the draw;
what grades tell of other rows and of rare values; what was tried and is not built in; a private fit."""
RESULTS = Path(__file__).parent / "results" / "grades.jsonl"
TABLES = (*ORDER, *(name for name in LOADERS if name not in ORDER))


def label_epsilon(data: DataSet, rows: int) -> tuple[float, float]:
    """The least label epsilon that leaves enough informative rows, or the last resort; and the number of these rows."""
    worth = {epsilon: _worth(data, rows, epsilon) for epsilon in (*LABEL_EPSILONS, LAST_RESORT)}
    chosen = next((epsilon for epsilon in LABEL_EPSILONS if worth[epsilon] >= AMPLE_ROWS), LAST_RESORT)
    return chosen, worth[chosen]


def _worth(data: DataSet, rows: int, epsilon: float) -> float:
    if data.task != "regression":
        shares = np.unique(data.labels, return_counts=True)[1] / len(data.labels)
        return informative_rows(rows, shares.tolist(), epsilon)
    # The share of the variance of an unbiased estimate that is the number's: rounding costs as well as the draw.
    levels, (low, high) = levels_for(epsilon), span_of(data)
    place = (np.clip(data.labels, low, high) - low) / (high - low) * (levels - 1)
    near = np.maximum(1 - np.abs(place[:, None] - np.arange(levels)), 0)
    other = 1 / (math.exp(epsilon) + levels - 1)
    kept = 1 - levels * other
    drawn = other + kept * near
    noise = (drawn @ np.arange(levels) ** 2 - (drawn @ np.arange(levels)) ** 2).mean() / kept**2
    return float(rows * place.var() / (place.var() + noise))


def span_of(data: DataSet) -> tuple[float, float]:
    """The range that stands for public knowledge of a number: 98 % of the values lie in it."""
    low, high = np.quantile(data.labels.astype(float), [0.01, 0.99])
    return float(low), float(high)


def measured(
    name: str,
    data: DataSet,
    seed: int,
    epsilons: Sequence[float] = EPSILONS,
    fit: Mapping[str, Any] | None = None,
    stated: float | None = None,
) -> dict[str, Any]:
    """Run the job with the sketch and those with grades, and return a line of the file of results.

    Args:
        name: Name of the data set.
        data: Columns by party, and labels.
        seed: Seed of the jobs; those of seed 0 alone are attacked.
        epsilons: Privacy of a row's grade.
        fit: Settings of the fit of the partner's model in which others are tried.
        stated: Label epsilon in place of that of the rule.
    """
    fitted = len(data.labels) - len(test_rows(len(data.labels), seed))
    label, worth = (stated, _worth(data, fitted, stated)) if stated else label_epsilon(data, fitted)
    line: dict[str, Any] = {"data": name, "seed": seed, "rows": len(data.labels), "metric": METRICS[data.task]}
    line |= {"label_epsilon": label, "informative": round(worth), "commit": provenance()["commit"]}
    with tempfile.TemporaryDirectory(prefix="cutlayer-grades-") as scratch:
        folder = Path(scratch)
        write_tables(data, folder)
        with redirect_stdout(io.StringIO()):
            init(folder, label=LABEL, protect="labels", yes=True)
        sketch = ran(written(folder, seed), folder / "sketch")
        line |= {"sketch": utility(sketch), "own": own_columns(sketch), "seconds": round(sketch.summary.run.seconds, 2)}
        drawn = {"eps": label, **({"range": [*span_of(data)]} if data.task == "regression" else {})}
        for epsilon in epsilons:
            raw = written(folder, seed)
            raw["parties"]["bank"]["privacy"] = {"label_dp": drawn}
            if epsilon == epsilons[0] and not seed:  # all jobs send the same labels
                raw["parties"]["bank"]["audit"] = {"attacks": ["sent_labels"]}
            attacks = [] if seed else ["inversion"]
            raw["parties"]["partner"] |= {"fit": {"kind": "grade", **(fit or {})}, "audit": {"attacks": attacks}}
            if "epsilon" in (fit or {}):  # a private fit reads numbers as they are
                features = raw["parties"]["partner"].get("features") or {}
                fixed = {"scale": "none", "missing": "zero"}
                raw["parties"]["partner"]["features"] = {**features, "numbers": fixed}
            raw["parties"]["partner"]["privacy"] = {"grade_dp": {"epsilon": epsilon}}
            raw["model"]["bottom"]["partner"] = {"kind": "grade", "least_rows": 0}
            run, refused = ran_or_insisted(raw, folder / f"grade-{epsilon:g}")
            line[f"{epsilon:g}"] = _graded(run) | {"refused": refused or ""}
    return line


def written(folder: Path, seed: int) -> dict[str, Any]:
    """The job that `init` wrote, with a seed and a fifth of the rows for testing."""
    raw: dict[str, Any] = YAML(typ="safe").load(folder / "job.yaml")
    for party in raw["parties"].values():
        party["table"] = table_in(folder, party["table"])
    raw["compare"] = ["alone"]
    raw["parties"]["bank"]["audit"] = {"attacks": [], "every": "never"}
    raw["train"] |= {"seed": seed, "threads": 1, "split": {"test": TEST}}
    return raw


def ran(raw: Mapping[str, Any], out: Path) -> RunFolder:
    """Run a job."""
    return execute(validated(Job, raw, "job"), out, Options(Keys(out.parent / "keys")), Progress())


def ran_or_insisted(raw: Mapping[str, Any], out: Path) -> tuple[RunFolder, str | None]:
    """Run a job, and where the default limits refuse its grades once more without limits; and why it was refused.

    An honest job that the default limits refuse is a result too. The second run has the same drawn labels, and other
    folds and draws of the partner's, which depend on its settings.
    """
    try:
        return ran(raw, out), None
    except ConfigError as error:
        section = raw["parties"]["partner"]
        if section.get("fit", {}).get("kind") != "grade" or "grades that carry" not in str(error):
            raise
        section["fit"] = {**section["fit"], "limits": {"other": 1}}
        return ran(raw, out.with_name(f"{out.name}-insisted")), str(error)


def utility(run: RunFolder) -> float | None:
    """The headline metric of a run."""
    found = run.summary.utility
    row = found.row(RunKind.THIS_RUN)
    return None if row is None else row.metrics[found.metric]


def own_columns(run: RunFolder) -> float | None:
    """The metric of the bank's own columns."""
    value, gain = utility(run), run.summary.utility.gain
    return None if value is None or gain is None or gain.value is None else value - gain.value


def _graded(run: RunFolder) -> dict[str, Any]:
    """What a job with grades keeps, takes and reveals."""
    audit = run.audit
    attacked = audit.runs[RunId(RunKind.THIS_RUN).label]
    leaks = [leak.leak for leak in attacked.leaks if leak.attack == "sent_labels"]
    baseline = attacked.baseline("partner")
    recovered = [result.value for result in audit.features if result.attack == "inversion" and result.value is not None]
    (path,) = run.path.glob(f"checkpoint/partner/{CARRIED_FILE}")
    carried = Carried.model_validate_json(path.read_bytes())
    choice = run.summary.utility.choice
    return {
        "grade": utility(run),
        "seconds": round(run.summary.run.seconds, 2),
        "leak": max(leaks, default=None),
        "own_leak": None if baseline is None else baseline.own_columns,
        "recovered": max(recovered, default=None),
        "bits": carried.bits,
        "epsilon": carried.epsilon,
        "carried": carried.attributes[0].share if carried.attributes else None,
        "attribute": carried.attributes[0].attribute if carried.attributes else "",
        "chosen": None if choice is None else choice.chosen,
    }


def kept(line: Mapping[str, Any], epsilon: float) -> float | None:
    """Share of what the partner's columns add that its grades add; `None` where the columns add too little."""
    added = line["sketch"] - line["own"]
    return (line[f"{epsilon:g}"]["grade"] - line["own"]) / added if added > ADDS else None


def page(lines: Sequence[Mapping[str, Any]], epsilons: Sequence[float] = EPSILONS) -> str:
    """The table as Markdown, each value the mean over the seeds, and the median share that is kept."""
    names = " | ".join(f"{epsilon:g}: kept, R², carried" for epsilon in epsilons)
    head = f"| data set | seeds | own / all | label epsilon (m) | leak; of own columns | {names} | bits | time |"
    out = [head, "|---" * (7 + len(epsilons)) + "|"]
    shares: dict[float, list[float]] = {epsilon: [] for epsilon in epsilons}
    for name in dict.fromkeys(line["data"] for line in lines):
        of_data = [line for line in lines if line["data"] == name]
        whole = mean_of(of_data)
        cells = []
        for epsilon in epsilons:
            each, share = whole[f"{epsilon:g}"], kept(whole, epsilon)
            shares[epsilon] += [] if share is None else [share]
            said = "–" if share is None else f"{share:.2f}"
            cells.append(f"{each['grade']:.3f} ({said}), {rounded(each['recovered'])}, {rounded(each['carried'])}")
        first = whole[f"{epsilons[0]:g}"]
        leaks = f"{rounded(first['leak'])}; {rounded(first['own_leak'])}"
        out.append(
            f"| {name} | {len(of_data)} | {whole['own']:.3f} / {whole['sketch']:.3f} | {whole['label_epsilon']:g} "
            f"({whole['informative']:,.0f}) | {leaks} | {' | '.join(cells)} "
            f"| {first['bits']:.1f} | {first['seconds'] / max(whole['seconds'], 0.01):.2f} |"
        )
    medians = [f"{median(found):.2f} at {epsilon:g}" for epsilon, found in shares.items() if found]
    count = len(shares[epsilons[0]])
    last = f"Median share kept, of {count} data sets where the partner adds more than {ADDS:g}: {', '.join(medians)}."
    return "\n".join([*out, "", last, *_refusals(lines, epsilons), "", *_differences(lines, epsilons)]) + "\n"


def _refusals(lines: Sequence[Mapping[str, Any]], epsilons: Sequence[float]) -> Iterator[str]:
    """Which honest jobs the default limits refused, and which they lowered the epsilon of, of the lines that say so."""
    for name in dict.fromkeys(line["data"] for line in lines):
        for epsilon in epsilons:
            each = [line[f"{epsilon:g}"].get("refused") for line in lines if line["data"] == name]
            if any(each):
                count = f"{sum(map(bool, each))} of {len(each)} seeds"
                yield f"Refused by the default limits: {name} at {epsilon:g}, {count}."
            drawn = [line[f"{epsilon:g}"].get("epsilon") or epsilon for line in lines if line["data"] == name]
            for step in sorted({each for each in drawn if each < epsilon}):
                yield f"Drawn at {step:g} in place of {epsilon:g}: {name}, {drawn.count(step)} of {len(drawn)} seeds."


def _differences(lines: Sequence[Mapping[str, Any]], epsilons: Sequence[float]) -> Iterator[str]:
    """A table of what grades add to own columns, with intervals, of the data sets of several seeds."""
    yield "| data set | seeds | " + " | ".join(f"{epsilon:g}: to own columns" for epsilon in epsilons) + " |"
    yield "|---" * (2 + len(epsilons)) + "|"
    for name in dict.fromkeys(line["data"] for line in lines):
        of_data = [line for line in lines if line["data"] == name]
        if len(of_data) > 1:
            cells = []
            for epsilon in epsilons:
                added = np.array([line[f"{epsilon:g}"]["grade"] - line["own"] for line in of_data])
                wide = stats.t.ppf(0.975, len(added) - 1) * added.std(ddof=1) / math.sqrt(len(added))
                cells.append(f"{added.mean():+.3f} ± {wide:.3f}")
            yield f"| {name} | {len(of_data)} | {' | '.join(cells)} |"


def mean_of(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means of all numbers over lines of the same keys that know them; `None` where none does."""
    out: dict[str, Any] = {}
    for key, value in lines[0].items():
        values = [line.get(key) for line in lines]
        if isinstance(value, Mapping):
            out[key] = mean_of([line[key] for line in lines if key in line])
        elif isinstance(value, str):
            out[key] = value
        else:
            known = [value for value in values if isinstance(value, int | float)]
            out[key] = fmean(known) if known else None
    return out


def rounded(value: float | None) -> str:
    """A value in a table."""
    return "–" if value is None else f"{value:.3f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing in the file of results, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks grades", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file that results are appended to")
    parser.add_argument(
        "--tables", type=lambda text: text.split(","), default=[*TABLES], help=", ".join((*TABLES, *WHOLE))
    )
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--epsilon", type=_epsilons, default=EPSILONS, help="privacy of a row's grade, such as 8,4,2")
    parser.add_argument("--fit", type=json.loads, default={}, help="settings of the fit, as JSON, to try others")
    parser.add_argument("--study", choices=STUDIES, default=STUDIES[0], help="what is measured")
    parser.add_argument("--label", type=float, help="label epsilon of tables and of the demo")
    parser.add_argument("--rows", type=int, default=4_000, help="rows of a table of the front")
    given = parser.parse_args(arguments)
    knowledge.MAX_AUXILIARY_ROWS = KNOWN
    lines = lines_of(given.results)
    if given.study != STUDIES[0]:
        sys.stdout.write(_other_study(given, lines))
        return
    lines = [line for line in lines if "data" in line]
    done = {(line["data"], line["seed"]) for line in lines}
    for seed in range(given.seeds):
        for name in given.tables:
            if (name, seed) in done:
                continue
            lines.append(measured(name, load(name, given.data), seed, given.epsilon, given.fit, given.label))
            with given.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(lines[-1]) + "\n")
    some = [line for line in lines if line["data"] in given.tables and line["seed"] < given.seeds]
    some = [line for line in some if all(f"{epsilon:g}" in line for epsilon in given.epsilon)]
    sys.stdout.write(page(some, given.epsilon))


def _other_study(given: argparse.Namespace, lines: list[dict[str, Any]]) -> str:
    """Measure what is missing of another study, and return its table."""
    from benchmarks import grade_draws, grade_front, grade_influence, grade_private, grade_rule, grade_tried

    if given.study == "draws":
        return grade_draws.page()
    if given.study == "rows":
        return grade_influence.page(given.seeds)
    if given.study == "tried":
        return grade_tried.page(given.data, given.rows, given.seeds)
    if given.study == "rule":
        names = (*grade_rule.FITTED, *grade_rule.NEW) if [*given.tables] == [*TABLES] else given.tables
        grade_rule.run(given.data, given.results, names, given.seeds, lines)
        return grade_rule.page(lines)
    if given.study == "private":
        names = grade_private.TABLES if [*given.tables] == [*TABLES] else given.tables
        grade_private.run(given.data, given.results, names, given.seeds, lines)
        return grade_private.page(lines)
    if given.study == "demo":
        grade_front.run_demo(given.results, given.seeds, given.label or 1.0, lines)
        return grade_front.demo_page(lines)
    grade_front.run(given.data, given.results, given.tables, given.seeds, given.rows, lines)
    return grade_front.page(lines)


def _epsilons(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split(",")))


if __name__ == "__main__":
    main()
