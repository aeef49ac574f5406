"""What a receiver reads of a sketch: without a known row, by independent components; and with a few known rows.

A rotation mixes the columns of a table, and independent component analysis (Hyvarinen and Oja 2000) unmixes what is not
Gaussian. That it undoes rotations of private data is shown by Guo and Wu 2007, Deriving private information from
arbitrarily projected data (PAKDD).
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import RidgeCV

from benchmarks.utility.datasets import DataSet, load
from benchmarks.utility.sides import LABEL, write_tables, written_job
from cutlayer.attacks.feature.base import encoded_matrix, encoded_slices
from cutlayer.attacks.feature.inversion import STRENGTHS
from cutlayer.audit.features.releases import released
from cutlayer.cli.init import init
from cutlayer.config import SplitConfig
from cutlayer.data.store import Store
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys

DATA = ("adult", "bank", "credit")
ROWS = 8_000
MAPS = ("rotation", "permutation")
KNOWN = (20, 50, 100)
_SMALLEST = 1e-9
"""Variance of a principal component, over that of the largest, below which it is left out."""
Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Readings:
    """R² of a partner's columns, the mean over those that vary.

    Attributes:
        data: Name of the data set.
        map: Map of the sketch.
        rows: Number of released rows.
        width: Number of released columns.
        as_released: Of the released column that is nearest to each column of the table.
        components: Of the nearest independent component.
        exact: Names of the columns of which a component has an R² of .9 or more.
        known: R² of the rows that are not known, by a ridge regression on so many known rows.
    """

    data: str
    map: str
    rows: int
    width: int
    as_released: float
    components: float
    exact: tuple[str, ...]
    known: dict[int, float]


def readings(name: str, data: DataSet, kind: str, seed: int = 0) -> Readings:
    """Release a partner's table by the job that `init` writes, and read it."""
    with tempfile.TemporaryDirectory(prefix="cutlayer-components-") as scratch:
        folder = Path(scratch)
        write_tables(data, folder)
        with redirect_stdout(io.StringIO()):
            init(folder, label=LABEL, yes=True)
        job = written_job(folder, seed, _changes(kind))
        execute(job, folder / "run", Options(Keys(folder / "keys")), Progress())
        run = RunFolder(folder / "run")
        ((_, rows, embeddings),) = released(job, run, "partner")
        store = Store.open(run.data("partner"))
        table = encoded_matrix(store.columns, *store.gather(rows)).double().numpy()
        slices = {name: entries for name, entries in encoded_slices(store.columns).items() if table[:, entries].var()}
    sent = embeddings.double().numpy()
    best = _nearest(_components(sent), table, slices)
    return Readings(
        data=name,
        map=kind,
        rows=len(sent),
        width=sent.shape[1],
        as_released=_mean(_nearest(sent, table, slices)),
        components=_mean(best),
        exact=tuple(name for name, value in best.items() if value >= 0.9),
        known={count: _mean(_known(sent, table, slices, count, seed)) for count in KNOWN},
    )


def _changes(kind: str) -> dict[str, Any]:
    partner = {"fit": {"kind": "sketch", "map": kind}, "audit": {"every": "never", "attacks": []}}
    split = {"test": SplitConfig().test}
    return {"parties": {"partner": partner}, "model": {"top": {"kind": "linear"}}, "train": {"split": split}}


def _components(sent: Matrix) -> Matrix:
    """Independent components of released rows (n, width), by three contrasts: a receiver tries them all."""
    centred = sent - sent.mean(axis=0)
    variances, directions = np.linalg.eigh(centred.T @ centred / len(centred))
    varies = variances > _SMALLEST * variances[-1]
    white = centred @ directions[:, varies] / np.sqrt(variances[varies])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fits = [FastICA(whiten=False, random_state=0, max_iter=200, fun=contrast) for contrast in _CONTRASTS]
        return np.concatenate([fit.fit_transform(white) for fit in fits], axis=1)


def _skewness(projected: Matrix) -> tuple[Matrix, Matrix]:
    """Derivatives of a contrast that sees asymmetry, where columns are bounded and have no long tails."""
    return np.square(projected), (2 * projected).mean(axis=-1)


_CONTRASTS = ("logcosh", "cube", _skewness)


def _nearest(directions: Matrix, table: Matrix, slices: dict[str, slice]) -> dict[str, float]:
    """R² of each column, from the nearest of some directions (n, k) for each of its entries.

    Which direction an entry is compared with is taken from the truth: a receiver recognises it by how the column is
    distributed, or by a few rows that it knows.
    """
    scaled = [(part - part.mean(axis=0)) / np.maximum(part.std(axis=0), 1e-12) for part in (directions, table)]
    squares = np.square(scaled[0].T @ scaled[1] / len(table)).max(axis=0)
    variances = table.var(axis=0)
    return {name: float(np.average(squares[part], weights=variances[part])) for name, part in slices.items()}


def _known(sent: Matrix, table: Matrix, slices: dict[str, slice], count: int, seed: int) -> dict[str, float]:
    order = np.random.default_rng(seed).permutation(len(sent))
    known, other = order[:count], order[count:]
    errors = np.square(RidgeCV(STRENGTHS).fit(sent[known], table[known]).predict(sent[other]) - table[other]).sum(
        axis=0
    )
    spread = np.square(table[other] - table[other].mean(axis=0)).sum(axis=0)
    return {name: float(1 - errors[part].sum() / spread[part].sum()) for name, part in slices.items()}


def _mean(values: dict[str, float]) -> float:
    return float(np.mean([*values.values()]))


def release_components(folder: Path, names: tuple[str, ...] = DATA, rows: int = ROWS) -> Iterator[Readings]:
    """Both maps on data sets of at most so many rows.

    Args:
        folder: Folder of the data.
        names: Names of data sets.
        rows: Number of rows that a larger data set is reduced to.
    """
    for name in names:
        data = load(name, folder).drawn(rows)
        for kind in MAPS:
            yield readings(name, data, kind)


def main() -> None:
    """Print one line of JSON for each release."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--names", nargs="*", default=DATA)
    parser.add_argument("--rows", type=int, default=ROWS)
    arguments = parser.parse_args()
    for result in release_components(arguments.data, tuple(arguments.names), arguments.rows):
        print(json.dumps(asdict(result)), flush=True)


if __name__ == "__main__":
    main()
