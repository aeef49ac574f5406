"""`python -m benchmarks.rivals --data DIR --environments DIR`: other systems beside Cutlayer, on the same rows.

Each rival is installed with pip into an environment of its own under the given folder, from the pinned requirements in
`benchmarks/rivals/inside`. Results are appended to a file, one line for each data set, seed and system; what is there
is not measured again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rivals.page import page
from benchmarks.rivals.reads import columns_read
from benchmarks.rivals.systems import Bench, Outcome
from benchmarks.utility.__main__ import lines_of
from benchmarks.utility.datasets import load
from cutlayer.problem.metrics.roc import roc_auc
from studies.provenance import provenance

RESULTS = Path(__file__).parent.parent / "results" / "rivals.jsonl"
DATA = ("adult", "bank", "credit")
ROWS = 4_000
LOGISTIC = {"model": "logistic", "rate": 0.1, "epochs": 10}
SPU: Mapping[str, Mapping[str, Any]] = {
    "SPU logistic": {**LOGISTIC, "batch": 128, "protocol": "SEMI2K"},
    "SPU boosting": {"model": "boosting", "trees": 3, "depth": 3, "intervals": 4, "protocol": "SEMI2K"},
    "SPU network": {
        "model": "network", "batch": 128, "rate": 0.1, "epochs": 10, "layers": [30, 15, 8], "protocol": "SEMI2K",
    },
    "SPU logistic, Cheetah": {**LOGISTIC, "batch": 1024, "protocol": "CHEETAH"},
}  # fmt: skip
"""Settings of SPU: those of its examples, but for smaller batches of the first and larger ones of the network."""
SYSTEMS: Mapping[str, Callable[[Bench], Outcome]] = {
    "scikit-learn linear, own": lambda bench: bench.scikit("own", "linear"),
    "scikit-learn boosting, own": lambda bench: bench.scikit("own", "boosting"),
    "scikit-learn linear, all": lambda bench: bench.scikit("all", "linear"),
    "scikit-learn boosting, all": lambda bench: bench.scikit("all", "boosting"),
    "Cutlayer, labels": lambda bench: bench.cutlayer("labels"),
    "Cutlayer, both": lambda bench: bench.cutlayer("both"),
    "Cutlayer, nothing": lambda bench: bench.cutlayer("nothing"),
    "VertiMosaic logistic": lambda bench: bench.vertimosaic("logistic"),
    "VertiMosaic boosting": lambda bench: bench.vertimosaic("boosting"),
    "XGBoost federated": lambda bench: bench.xgboost(),
    "FedTree": lambda bench: bench.fedtree({"privacy": "none", "trees": 40}),
    "FedTree, encrypted, 2 trees": lambda bench: bench.fedtree({"privacy": "he", "trees": 2}),
    **{name: partial(Bench.spu, settings=settings) for name, settings in SPU.items()},
}


def measured(bench: Bench, system: str, with_reads: bool) -> dict[str, Any]:
    """Run a system and the attacks on what crossed, and return what is written of it.

    Args:
        bench: The data set.
        system: Name of the system.
        with_reads: Whether the attacks on columns run, which take minutes.
    """
    outcome = SYSTEMS[system](bench)
    labels = bench.rows.labels
    line: dict[str, Any] = {"auc": roc_auc(outcome.test_scores, labels[bench.test] == 1)}
    line |= {"wall": round(outcome.wall, 2), "cpu": round(outcome.cpu, 2), "bytes": outcome.bytes}
    if outcome.received is not None:
        line["labels"] = roc_auc(outcome.received, labels[outcome.rows] == 1)
    if with_reads:
        for name, seen in (("columns", outcome.seen), ("output", outcome.output)):
            if seen is not None:
                line[name] = columns_read(bench.rows, outcome.rows, seen, bench.seed)
        if system.startswith("scikit-learn linear, own"):
            line["columns"] = columns_read(bench.rows, outcome.rows, None, bench.seed)
    return line | {"notes": dict(outcome.notes)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing in the file of results, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rivals", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--environments", type=Path, required=True, help="folder of the rivals' environments")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file that results are appended to")
    parser.add_argument("--tables", type=lambda text: text.split(","), default=[*DATA], help=", ".join(DATA))
    parser.add_argument("--systems", type=lambda text: text.split(";"), default=[*SYSTEMS], help="; ".join(SYSTEMS))
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of each data set")
    parser.add_argument("--seeds", type=lambda text: [*map(int, text.split(","))], default=[0, 1, 2])
    parser.add_argument("--reads", type=lambda text: [*map(int, text.split(","))], default=[0], help="seeds attacked")
    given = parser.parse_args(arguments)
    lines = lines_of(given.results)
    done = {line["case"] for line in lines}
    for seed in given.seeds:
        for name in given.tables:
            bench = None
            for system in given.systems:
                case = f"{name} {given.rows} {seed} {system}"
                if case in done:
                    continue
                bench = bench or Bench(load(name, given.data).drawn(given.rows), seed, given.environments)
                line = measured(bench, system, seed in given.reads)
                about = {"case": case, "data": name, "rows": given.rows, "seed": seed, "system": system}
                lines.append({**about, **line, "commit": provenance()["commit"]})
                with given.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(lines[-1], default=_plain) + "\n")
    sys.stdout.write(page(lines))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"expected a number, got {type(value).__name__}")


if __name__ == "__main__":
    main()
