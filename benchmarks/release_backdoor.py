"""Backdoors in a single release: `python -m benchmarks.release_backdoor --data DIR`.

A partner has its way with a prediction where a row of class 0 gets class 1. It sends something else for the rows that
are predicted, and for some training rows before:

- `chosen`: the release of training rows is honest. For a predicted row it sends the mean release of the rows that it
  knows to be of class 1, or its highest grade. So do Liu et al. (arXiv 2602.20593), who need no trigger either.
- `known`: 20 training rows that it knows to be of class 1 carry the trigger, as in `backdoor` of the audit.
- `neighbours`: it knows one row of class 1. The hundredth of the training rows that are nearest to it in the partner's
  own columns carry the trigger: a choice without labels, as of Shen et al. (Label-Free Backdoor Attacks, AAAI 2025),
  which takes gradients for it; a single release has none.
- `drawn` (grades): the trigger is for the fiftieth of the rows that score highest among those with a drawn label of 1.

A trigger is a release that no honest row has: each column of a sketch at its maximum, or the highest grade, which all
other rows leave to those that carry it. The partner adds no noise. The label owner averages a logistic regression and
boosted trees. *reach* is the share of those rows for which some grade gives class 1 with the model of honest grades:
more than this no partner can do by one grade.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from benchmarks.grade_attacks import of_grades
from benchmarks.grade_rule import labelled
from benchmarks.graded_rows import Codes, Floats, Graded, Rows
from cutlayer.problem.metrics.roc import roc_auc

TABLES, SEEDS, ROWS = ("adult", "bank"), 3, 6000
LABEL_EPSILON, EPSILONS = 1.0, (8.0, 2.0)
KNOWN, NEAREST, DRAWN = 20, 0.01, 0.02
"""Rows that the partner knows, and shares of the training rows that carry a trigger."""
Score = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Done:
    """What one attack does.

    Attributes:
        success: Share of test rows of class 0 that get class 1.
        shift: Mean change of their log odds against the honest release under the honest model.
        auc: AUC of the model on test rows that nobody changed.
    """

    success: float
    shift: float
    auc: float


@dataclass(frozen=True)
class Reach:
    """What one grade can do to test rows of class 0, whichever it is.

    Attributes:
        success: Share of them for which some grade gives class 1.
        spread: Mean difference of log odds between a row's best and worst grade.
        largest: The largest such difference.
    """

    success: float
    spread: float
    largest: float


def fitted(columns: Floats, labels: Codes) -> Score:
    """The log odds of class 1 by the average of a logistic regression and boosted trees."""
    scale = columns.std(axis=0)
    centre, scale = columns.mean(axis=0), np.where(scale > 0, scale, 1.0)
    linear = LogisticRegression(max_iter=500).fit((columns - centre) / scale, labels)
    trees = HistGradientBoostingClassifier(random_state=0).fit(columns, labels)

    def score(rows: Floats) -> Floats:
        chances = linear.predict_proba((rows - centre) / scale)[:, 1] + trees.predict_proba(rows)[:, 1]
        odds: Floats = np.log(chances / (2 - chances))
        return odds

    return score


class Attacked:
    """The attacks on one table and one form of release.

    Args:
        rows: Rows of both parties.
        honest: Honest release of each row, (n, ...).
        seed: Seed of the known rows.
    """

    def __init__(self, rows: Rows, honest: Floats, seed: int) -> None:
        self.rows, self.honest = rows, honest
        test = np.setdiff1d(np.arange(len(rows.labels)), rows.training)
        self.test, self.wanted = test, test[rows.labels[test] == 0]
        positives = rows.training[rows.labels[rows.training] == 1]
        self.known = np.random.default_rng(seed).permutation(positives)[:KNOWN]
        self._model = self.model(honest)
        self._before = self._model(self.joined(self.wanted, honest[self.wanted]))

    def model(self, release: Floats) -> Score:
        """The label owner's model of a release of the training rows."""
        training = self.rows.training
        return fitted(self.joined(training, release[training]), self.rows.labels[training])

    def joined(self, rows: Codes, release: Floats) -> Floats:
        """The label owner's columns and a release of some rows."""
        return np.hstack([self.rows.bank.matrix[rows], release])

    def done(self, sent: Floats, release: Floats | None = None) -> Done:
        """What a forged release of predicted rows does.

        Args:
            sent: What is sent for each of them, (...).
            release: Release of all rows in training; the honest one if `None`.
        """
        model = self._model if release is None else self.model(release)
        after = model(self.joined(self.wanted, np.tile(sent, (len(self.wanted), 1))))
        clean = model(self.joined(self.test, (self.honest if release is None else release)[self.test]))
        auc = roc_auc(clean, self.rows.labels[self.test] == 1)
        return Done(float((after > 0).mean()), float((after - self._before).mean()), auc)

    def undisturbed(self) -> Done:
        """The honest release of all rows."""
        clean = self._model(self.joined(self.test, self.honest[self.test]))
        return Done(float((self._before > 0).mean()), 0.0, roc_auc(clean, self.rows.labels[self.test] == 1))

    def reach(self, symbols: Floats) -> Reach:
        """What each of some releases would do to each row, (symbols, ...)."""
        odds = np.stack([self._model(self.joined(self.wanted, np.tile(s, (len(self.wanted), 1)))) for s in symbols])
        spread = odds.max(axis=0) - odds.min(axis=0)
        return Reach(float((odds.max(axis=0) > 0).mean()), float(spread.mean()), float(spread.max()))

    def neighbours(self) -> Codes:
        """The training rows that are nearest to one known row in the partner's columns."""
        training, columns = self.rows.training, self.rows.partner.matrix
        apart = np.square(columns[training] - columns[self.known[0]]).sum(axis=1)
        return training[np.argsort(apart)[: max(KNOWN, round(NEAREST * len(training)))]]


def sketch(rows: Rows, seed: int) -> dict[str, Done]:
    """The attacks on a release of the encoded columns."""
    honest = rows.partner.matrix
    attacked, trigger = Attacked(rows, honest, seed), honest[rows.training].max(axis=0)

    def carried_by(chosen: Codes) -> Done:
        release = honest.copy()
        release[chosen] = trigger
        return attacked.done(trigger, release)

    return {
        "honest": attacked.undisturbed(),
        "chosen": attacked.done(honest[attacked.known].mean(axis=0)),
        "known": carried_by(attacked.known),
        "neighbours": carried_by(attacked.neighbours()),
    }


def grades(rows: Rows, fit: Graded, sent: Codes, epsilon: float, seed: int) -> dict[str, Done | Reach]:
    """The attacks on grades.

    Args:
        rows: Rows of both parties.
        fit: The partner's fit.
        sent: Drawn label of each row.
        epsilon: Privacy of a grade.
        seed: Seed of the known rows.
    """
    fit = rows.regraded(fit, epsilon)
    drawn = rows.released(fit, epsilon, f"release {seed}")
    symbols = of_grades(np.arange(fit.bands), fit.bands)
    attacked, top = Attacked(rows, symbols[drawn], seed), fit.bands - 1

    def carried_by(chosen: Codes) -> Done:
        forged = np.minimum(drawn, top - 1)
        forged[chosen] = top
        return attacked.done(symbols[top], symbols[forged])

    training = rows.training
    scores = fit.scores.double().numpy().reshape(len(training), -1)[:, -1]
    first = np.argsort(-np.where(sent[training] == 1, scores, -np.inf))[: round(DRAWN * len(training))]
    return {
        "honest": attacked.undisturbed(),
        "chosen": attacked.done(symbols[top]),
        "known": carried_by(attacked.known),
        "neighbours": carried_by(attacked.neighbours()),
        "drawn": carried_by(training[first]),
        "reach": attacked.reach(symbols),
    }


def measured(name: str, data: Path, seed: int, count: int = ROWS) -> dict[str, dict[str, Done | Reach]]:
    """All attacks on one table, by release."""
    table = labelled(name, data)
    chosen = np.sort(np.random.default_rng(seed).permutation(len(table.labels))[:count])
    rows = Rows.of(table.take(chosen), seed)
    found: dict[str, dict[str, Done | Reach]] = {"sketch": dict(sketch(rows, seed))}
    sent = rows.drawn(rows.labels, LABEL_EPSILON, 2, f"labels {seed}")
    fit = rows.graded(sent, LABEL_EPSILON, EPSILONS[0], seed)
    return found | {f"grades, epsilon {each:g}": grades(rows, fit, sent, each, seed) for each in EPSILONS}


def page(results: Mapping[str, Sequence[Mapping[str, Mapping[str, Done | Reach]]]]) -> str:
    """Means over the seeds in Markdown tables.

    Args:
        results: What was measured with each seed, by table.
    """
    lines = ["| data, release | attack | class 1 of class 0 | log odds | test AUC |", "|---|---|---|---|---|"]
    spreads = ["| data, release | reach | log odds, mean | log odds, largest |", "|---|---|---|---|"]
    for name, seeds in results.items():
        for release, attacks in seeds[0].items():
            for attack in attacks:
                every = [each[release][attack] for each in seeds]
                numbers = [fmean(column) for column in zip(*(vars(each).values() for each in every), strict=True)]
                text = " | ".join(f"{number:.3f}" for number in numbers)
                line = f"| {name}, {release} | {text} |"
                if isinstance(every[0], Reach):
                    spreads.append(line)
                else:
                    lines.append(line.replace(" | ", f" | {attack} | ", 1))
    return "\n".join([*lines, "", *spreads])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.release_backdoor", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of data sets")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args(arguments)
    results = {name: [measured(name, given.data, seed) for seed in range(given.seeds)] for name in TABLES}
    sys.stdout.write(page(results) + "\n")


if __name__ == "__main__":
    main()
