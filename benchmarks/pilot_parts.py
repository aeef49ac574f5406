"""`python -m benchmarks pilot-parts --data DIR`: what makes the interval of a pilot wide.

The partner of each table releases a grade of every row, so that many pilots of it can be drawn. On each the gain is
estimated by logistic regression of the label on the own score, the grade and their product.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression

from benchmarks.pilot import job_of
from benchmarks.utility.datasets import load
from benchmarks.utility.sides import LABEL, write_tables
from cutlayer.cli.init import init
from cutlayer.config import validated
from cutlayer.config.job import Job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.kernels.rows.grade_columns import grades_of_columns
from cutlayer.kernels.statistics.metric_influence import Influences, auc_influences
from cutlayer.models.top_estimators.pilot import _controlled_gain
from cutlayer.training.keys import Keys

TABLES = ("adult", "avazu", "credit", "bank")
SIZES = (1000, 2000, 4000)
PILOTS, REPEATED, FOLDS = 40, 15, 5
"""Number of pilots; of those whose folds are drawn ten times; of folds."""
Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]


class _Caught(Exception):
    pass


@dataclass(frozen=True)
class Table:
    """Rows whose grades are all known.

    Attributes:
        labels: Whether each row is positive, (n,).
        own: Its score by own columns, cross-fitted, (n,).
        columns: Own score, grade, and their product, standardised, (n, 3).
    """

    labels: npt.NDArray[np.bool_]
    own: Floats
    columns: Floats

    @classmethod
    def of(cls, name: str, data: Path) -> Table:
        """The table of a data set of two classes."""
        found: dict[str, Any] = {}

        def caught(pool: Any, own: Floats, _party: str, released: Any, *_: Any, **__: Any) -> None:
            found.update(labels=pool.labels.numpy() == 1, own=own[:, 1] - own[:, 0], grades=grades_of_columns(released))
            raise _Caught

        rows = load(name, data)
        with tempfile.TemporaryDirectory(prefix="cutlayer-pilot-") as scratch:
            folder = Path(scratch)
            write_tables(rows, folder)
            with redirect_stdout(io.StringIO()):
                init(folder, label=LABEL, protect="labels", yes=True)
            job = validated(Job, job_of(folder, rows, "grades", 0), "job")
            options = Options(Keys(folder / "keys"), pilot=len(rows.labels))
            with patch("cutlayer.parties.active_fit.partner_pilot", caught), suppress(_Caught):
                execute(job, folder / "run", options, Progress())
        grades = found["grades"].numpy().astype(float)
        columns = np.c_[found["own"], grades, grades * found["own"]]
        return cls(found["labels"], found["own"], (columns - columns.mean(0)) / columns.std(0))

    def model(self, rows: Rows) -> LogisticRegression:
        """The model of some rows."""
        return LogisticRegression(max_iter=200).fit(self.columns[rows], self.labels[rows])

    def cross_fitted(self, rows: Rows, seed: int) -> Floats:
        """Scores of some rows by models that were not fitted to them."""
        folds, scores = np.random.default_rng(seed).permutation(len(rows)) % FOLDS, np.empty(len(rows))
        for fold in range(FOLDS):
            scores[folds == fold] = self.model(rows[folds != fold]).decision_function(self.columns[rows[folds == fold]])
        return scores


class Parts(NamedTuple):
    """Standard errors, stated by the estimate or found over pilots, in gains of the full run.

    Attributes:
        plain: Stated without the control variate.
        stated: Stated with it, as the pilot has it.
        richer: Stated with eight functions of label and own score as control variates.
        fixed: Stated of a model of all rows, so that only the rows that it is measured on differ.
        found: Standard deviation of the estimate over pilots.
        training: That of the gain on all other rows by models of the pilots.
        folds: That over folds of the same pilot.
        bias: Mean of the estimate less the gain of the full run.
    """

    plain: float
    stated: float
    richer: float
    fixed: float
    found: float
    training: float
    folds: float
    bias: float


def parts_of(table: Table, count: int) -> tuple[Parts, float]:
    """The parts of a pilot of so many rows, and the gain of the full run."""
    every = np.arange(len(table.labels))
    alone, whole = auc_influences(table.own, table.labels), table.cross_fitted(every, 0)
    gain = auc_influences(whole, table.labels).value - alone.value
    random, found = np.random.default_rng(3), list[list[float]]()
    for number in range(PILOTS):
        at = np.sort(random.permutation(every)[:count])
        before, scores = auc_influences(table.own[at], table.labels[at]), table.cross_fitted(at, number)

        def estimate(of: Floats, at: Rows = at, before: Influences = before) -> tuple[float, float]:
            return _controlled_gain(auc_influences(of, table.labels[at]), before, alone, at)

        both = auc_influences(scores, table.labels[at])
        rest = np.setdiff1d(every, at)
        model = table.model(random.permutation(at)[: count * (FOLDS - 1) // FOLDS])
        others = auc_influences(model.decision_function(table.columns[rest]), table.labels[rest]).value
        others -= auc_influences(table.own[rest], table.labels[rest]).value
        repeated = range(100, 110 if number < REPEATED else 100)
        spread = [estimate(table.cross_fitted(at, seed))[0] for seed in repeated]
        of_folds = float(np.std(spread, ddof=1)) if spread else np.nan
        plain, richer = float(np.linalg.norm(both.rows - before.rows)), _richer(table, alone, both, before, at)
        found.append([*estimate(scores), plain, richer, estimate(whole[at])[1], others, of_folds])
    value, stated, plain, richer, fixed, others, of_folds = np.array(found).T
    errors = (plain.mean(), stated.mean(), richer.mean(), fixed.mean(), value.std(ddof=1), others.std(ddof=1))
    return Parts(*(float(each / gain) for each in (*errors, np.nanmean(of_folds), value.mean() - gain))), gain


def _richer(table: Table, alone: Influences, both: Influences, before: Influences, at: Rows) -> float:
    """The standard error that is left of a gain after a regression on functions of label and own score."""
    share = np.argsort(np.argsort(table.own)) / len(table.own)
    of_score = [alone.rows * len(table.own), share, share**2, share**3]
    known = np.stack([each * side for each in of_score for side in (table.labels, ~table.labels)], axis=1)
    inputs, difference = known[at] - known[at].mean(0), (both.rows - before.rows) * len(at)
    weights = np.linalg.lstsq(inputs, difference, rcond=None)[0]
    left = float((difference - inputs @ weights).var()) / (len(at) - known.shape[1] - 1)
    return float(np.sqrt(left + ((known - known.mean(0)) @ weights).var() / len(known)))


def page(tables: Sequence[str], of: Callable[[str], Table]) -> Iterator[str]:
    """The table as Markdown; widths are those of 95 % intervals over the gain."""
    heads = ("data set", "rows", "gain", "width", "no control", "richer control", "model of all rows")
    yield f"| {' | '.join((*heads, 'training', 'folds', 'bias'))} |"
    yield "|---" * 10 + "|"
    for name in tables:
        table = of(name)
        for count in SIZES:
            parts, gain = parts_of(table, count)
            widths = (f"{3.92 * each:.2f}" for each in (parts.stated, parts.plain, parts.richer, parts.fixed))
            shares = (f"{(each / parts.found) ** 2:.0%}" for each in (parts.training, parts.folds))
            yield f"| {' | '.join((name, f'{count:,}', f'{gain:+.3f}', *widths, *shares, f'{parts.bias:+.2f}'))} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks pilot-parts", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--tables", type=lambda text: text.split(","), default=[*TABLES], help=", ".join(TABLES))
    given = parser.parse_args(arguments)
    for line in page(given.tables, lambda name: Table.of(name, given.data)):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
