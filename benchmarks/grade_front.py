"""The front of what a release keeps and reveals: grades and other releases on the same rows."""

from __future__ import annotations

import io
import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from statistics import NormalDist
from typing import Any

from benchmarks import grades
from benchmarks.utility.datasets import load
from benchmarks.utility.sides import LABEL, write_tables
from cutlayer.cli.init import init
from cutlayer.demo import demo_job
from cutlayer.kernels.noise import gaussian_mechanism
from cutlayer.kernels.noise.randomized_response import flip_probability
from cutlayer.kernels.noise.score_bands import bands_for
from cutlayer.results.run import RunId, RunKind
from studies.provenance import provenance

LABEL_EPSILONS = (0.5, 1.0, 2.0)
EPSILONS = (8.0, 4.0, 2.0, 1.0)
DELTA = 1e-5
MOST = 60.0
"""Largest epsilon of Gaussian noise that is run: at the bound of a grade's AUC at 8 its noise is next to none."""
Change = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
"""Privacy of the bank, the partner's section, and its bottom model; empty parts leave those of `init`."""


def releases() -> Iterator[tuple[str, Change]]:
    """Each release by its name in the table, and how the job that `init` writes is changed."""
    free = {"label_free": None}
    yield "permutation (all columns)", (free, {}, {})
    yield "rotation", (free, {"fit": {"kind": "sketch"}}, {})
    intervals = {"fit": {"kind": "sketch", "numbers": False}, "features": {"numbers": {"quantiles": 8}}}
    yield "intervals", (free, intervals, {})
    for epsilon in EPSILONS:
        for label in LABEL_EPSILONS:
            # Few rows and a small label epsilon are refused by default: the front is of all.
            section = {"fit": {"kind": "grade", "least_z": 0}, "privacy": {"grade_dp": {"epsilon": epsilon}}}
            bottom = {"kind": "grade", "least_rows": 0}
            yield f"grade {epsilon:g}, labels {label:g}", ({"label_dp": {"eps": label}}, section, bottom)
    for epsilon in EPSILONS:
        section = {"fit": {"kind": "cells"}, "privacy": {"grade_dp": {"epsilon": epsilon}}}
        yield f"cells {epsilon:g}", (free, section, {"kind": "grade", "of": "columns"})
    for epsilon in EPSILONS:
        yield f"Gaussian {epsilon:g}", (free, {"privacy": _gaussian(epsilon)}, {})
    for epsilon in EPSILONS:
        same = same_bound(epsilon)
        if same <= MOST:
            name = f"Gaussian {same:.1f}: AUC bound of grade {epsilon:g}"
            yield name, (free, {"privacy": _gaussian(same)}, {})


def _gaussian(epsilon: float) -> dict[str, Any]:
    return {"dp_embedding": {"clip": 1.0, "epsilon": epsilon, "delta": DELTA}}


def best_auc(epsilon: float, bands: int) -> float:
    """ROC AUC of the best test between two given bands of a row, by one draw of randomised response.

    The likelihood ratio of the two has three values: on the one band, on the other, and on all others.

    >>> best_auc(0.0, 16), round(best_auc(2.0, 2), 4)
    (0.5, 0.8808)
    """
    other = flip_probability(epsilon, bands) / (bands - 1)
    kept = 1 - other * (bands - 1)
    rest = (bands - 2) * other
    return kept * (1 - other) + kept * other + rest * kept + rest**2 / 2


def same_bound(epsilon: float) -> float:
    """Epsilon of Gaussian noise at which no test between two rows has a larger AUC than by a grade at an epsilon."""
    mu = math.sqrt(2) * NormalDist().inv_cdf(best_auc(epsilon, bands_for(epsilon, 16)))
    return gaussian_mechanism.epsilon(mu, DELTA)


def run(data: Path, results: Path, tables: Sequence[str], seeds: int, rows: int, lines: list[dict[str, Any]]) -> None:
    """Measure what is missing in the file of results, one line for each table, release and seed."""
    done = {(line["front"], line["release"], line["seed"], line["rows"]) for line in lines if "front" in line}
    for seed in range(seeds):
        for name in tables:
            for release, change in releases():
                if (name, release, seed, rows) in done:
                    continue
                line = {"front": name, "release": release, "seed": seed, "rows": rows}
                lines.append(line | _measured(name, data, seed, rows, change))
                with results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(lines[-1]) + "\n")


def _measured(name: str, data: Path, seed: int, rows: int, change: Change) -> dict[str, Any]:
    bank, partner, bottom = change
    with tempfile.TemporaryDirectory(prefix="cutlayer-front-") as scratch:
        folder = Path(scratch)
        write_tables(load(name, data).drawn(rows), folder)
        with redirect_stdout(io.StringIO()):
            init(folder, label=LABEL, protect="labels", yes=True)
        raw = grades.written(folder, seed)
        raw["parties"]["bank"]["privacy"] = bank
        section = raw["parties"]["partner"]
        numbers = {**section.get("features", {}).get("numbers", {}), **partner.get("features", {}).get("numbers", {})}
        section |= {**partner, "audit": {"attacks": ["inversion"]}}
        if numbers:
            section["features"] = {"numbers": numbers}
        if bottom:
            raw["model"]["bottom"]["partner"] = bottom
        run_folder, refused = grades.ran_or_insisted(raw, folder / "run")
        found = [f.value for f in run_folder.audit.features if f.attack == "inversion" and f.value is not None]
        return {
            "utility": grades.utility(run_folder),
            "own": grades.own_columns(run_folder),
            "recovered": max(found, default=None),
            **({} if refused is None else {"refused": refused}),
            "commit": provenance()["commit"],
        }


def run_demo(results: Path, seeds: int, label: float, lines: list[dict[str, Any]]) -> None:
    """Measure the demo's table and parties: all columns, and grades at a label epsilon and column epsilon 8."""
    done = {(line["demo"], line.get("label_epsilon", 1.0)) for line in lines if "demo" in line}
    for seed in range(seeds):
        if (seed, label) not in done:
            lines.append({"demo": seed, "label_epsilon": label, **_demo(seed, label)})
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(lines[-1]) + "\n")


def _demo(seed: int, label: float) -> dict[str, Any]:
    raw: dict[str, Any] = demo_job().model_dump()
    raw |= {"compare": ["alone"], "alternatives": {}}
    raw["train"] |= {"seed": seed, "threads": 1}
    owner, partners = raw["parties"]["bank"], [raw["parties"][name] for name in ("census_office", "employer")]
    owner["audit"] |= {"attacks": []}
    for party in partners:
        party |= {"fit": {"kind": "sketch", "map": "permutation"}, "audit": {"attacks": []}}
    raw["model"]["bottom"] |= {name: {"kind": "linear", "width": 128} for name in ("census_office", "employer")}
    with tempfile.TemporaryDirectory(prefix="cutlayer-demo-") as scratch:
        whole = grades.ran(raw, Path(scratch) / "whole")
        owner["privacy"] = {"label_dp": {"eps": label}}
        owner["audit"] |= {"attacks": ["sent_labels"]}
        for party in partners:
            party |= {"fit": {"kind": "grade"}, "privacy": {"grade_dp": {"epsilon": 8.0}}}
            party["audit"] |= {"attacks": ["inversion"]}
        raw["model"]["bottom"] |= {name: {"kind": "grade"} for name in ("census_office", "employer")}
        graded = grades.ran(raw, Path(scratch) / "graded")
        attacked = graded.audit.runs[RunId(RunKind.THIS_RUN).label]
        leaks = [leak for leak in attacked.leaks if leak.attack == "sent_labels"]
        recovered = [f.value for f in graded.audit.features if f.attack == "inversion" and f.value is not None]
        baselines = [attacked.baseline(name) for name in ("census_office", "employer")]
        return {
            "own": grades.own_columns(graded),
            "whole": grades.utility(whole),
            "grade": grades.utility(graded),
            "leak": max((leak.leak for leak in leaks if leak.leak is not None), default=None),
            "own_leak": max(each.own_columns or 0.5 for each in baselines if each is not None),
            "recovered": recovered,
            "seconds": [whole.summary.run.seconds, graded.summary.run.seconds],
            "commit": provenance()["commit"],
        }


def demo_page(lines: Sequence[Mapping[str, Any]]) -> str:
    """A line for each seed, as Markdown."""
    names = "label epsilon | seed | own | all columns | grades | R² of each partner | leak; of own columns"
    out = [f"| {names} |", "|---" * 7 + "|"]
    for line in (line for line in lines if "demo" in line):
        first = f"{line.get('label_epsilon', 1.0):g} | {line['demo']}"
        recovered = ", ".join(f"{value:.3f}" for value in line["recovered"])
        values = f"{line['own']:.4f} | {line['whole']:.4f} | {line['grade']:.4f}"
        out.append(f"| {first} | {values} | {recovered} | {line['leak']:.3f}; {line['own_leak']:.3f} |")
    return "\n".join(out) + "\n"


def page(lines: Sequence[Mapping[str, Any]]) -> str:
    """A table of the releases, a column for each data set: metric, and R² of the partner's columns."""
    fronts = [line for line in lines if "front" in line]
    names = list(dict.fromkeys(line["front"] for line in fronts))
    out = [f"| release | {' | '.join(names)} |", "|---" * (1 + len(names)) + "|"]
    own = [grades.mean_of([{"own": line["own"]} for line in fronts if line["front"] == name]) for name in names]
    out.append(f"| own columns | {' | '.join(grades.rounded(each['own']) for each in own)} |")
    measured = {line["release"] for line in fronts}
    for release in (name for name, _ in releases() if name in measured):
        cells = [release]
        for name in names:
            some = [line for line in fronts if (line["front"], line["release"]) == (name, release)]
            mean = grades.mean_of(some) if some else None
            cells.append("–" if mean is None else f"{mean['utility']:.3f}, {grades.rounded(mean['recovered'])}")
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out) + "\n"
