"""`python -m benchmarks grade_attacks --data DIR`: what a label owner reads from grades, and what checks refuse.

- `chosen`: labels that are an attribute of the partner's, whole and mixed with true ones.
- `reads`: the best guess of the partner's columns, by known rows: from the bank's columns and labels, from grades, from
  several refits, from the ideal output, and from what another partner has; and which rows were in the fit.
- `lowered`: see `benchmarks.grade_lowered`.
- `jobs`, `members`: see `benchmarks.grade_jobs`; `together`: see `benchmarks.grade_together`.

Results are appended to a file, one line for each case; what is there is not measured again. Which honest grades the
default limit refuses is counted from the results of `python -m benchmarks grades`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from benchmarks.grade_limits import of_honest, of_limits
from benchmarks.grade_rule import labelled
from benchmarks.graded_rows import Codes, Floats, Graded, Rows, attributes, rate_bounds, some
from benchmarks.grades import RESULTS as HONEST_RUNS
from benchmarks.utility.__main__ import lines_of
from benchmarks.utility.datasets import DataSet
from cutlayer.attacks.feature.best_guess import BestGuess
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Auxiliary, Knowledge
from cutlayer.audit.features.measures import FeatureCase, measure_feature_attack
from cutlayer.audit.own_columns import predict_from_columns
from cutlayer.kernels.noise.score_bands import bands_for
from cutlayer.models.bottom_fits.base import DrawnLabels
from cutlayer.models.grade import GradeBottomConfig
from cutlayer.parties.carried_limits import default_limit
from cutlayer.problem.metrics.roc import roc_auc
from studies.provenance import provenance

RESULTS = Path(__file__).parent / "results" / "grade_attacks.jsonl"
CHOSEN = ("adult", "bank", "credit")
ATTRIBUTES = 2
"""Attributes of each data set that labels are chosen by."""
KNOWN = (128, 512, 2048)
"""Number of rows of which the label owner knows the attribute."""
TRUE = (0.25, 0.5, 0.75)
"""Shares of true labels among those that are an attribute."""
LABEL_EPSILON = 1.0
EPSILONS = (8.0, 4.0)
"""Privacy of a row's grade."""
KNOWN_READS = (512, 2048)
"""The same, of a label owner that follows the protocol."""
REFITS = 3
"""Jobs with draws and folds of their own."""
ATTACKED = 4000
"""Rows whose columns are guessed."""
LEAST_Z = 3.0
TREES = 100
"""Trees of the forest by which an attribute is read."""


def with_labels(rows: Rows, *more: Floats) -> Floats:
    """What the label owner holds of each row: its columns, the labels of training rows, and more, (n, ...)."""
    known = np.zeros((len(rows.labels), 2))
    known[rows.training] = np.stack([rows.labels[rows.training], np.ones(len(rows.training))], axis=1)
    return np.hstack([rows.bank.matrix, known, *more])


def of_grades(grades: Codes, bands: int) -> Floats:
    """Grades as columns: one for each, and their order, (n, bands + 1)."""
    return np.hstack([np.eye(bands)[grades], grades[:, None] / bands])


def read(held: Floats, attribute: Codes, known: Codes) -> float:
    """AUC of a binary attribute on all other rows, by a logistic regression and a forest of the known ones.

    Args:
        held: What the label owner holds of each row, (n, ...).
        attribute: Attribute of each row, 0 or 1, int64 (n,).
        known: Row numbers of those whose attribute is known.
    """
    scaled = (held - held[known].mean(axis=0)) / np.maximum(held[known].std(axis=0), 1e-9)
    scaled[:, held[known].std(axis=0) == 0] = 0
    models = (
        (LogisticRegression(C=0.1, max_iter=200), scaled),
        (RandomForestClassifier(TREES, min_samples_leaf=5, max_features=0.4, random_state=0), held),
    )
    others = np.setdiff1d(np.arange(len(held)), known)
    scores = [model.fit(of[known], attribute[known]).predict_proba(of[others])[:, 1] for model, of in models]
    return roc_auc(np.mean(scores, axis=0), attribute[others] == 1)


def chosen(name: str, data: Path, seed: int, done: set[str], count: int) -> Iterator[dict[str, Any]]:
    """Labels that are an attribute: what each set of labels reveals, and what the partner's checks see of it."""
    table = labelled(name, data)
    rows = Rows.of(table, seed)
    every = attributes(table.partner)
    for attribute in some([*every], count):
        for known, true, filled in _cases():
            case = f"chosen {name} {seed} {attribute} {known} {true} {filled}"
            if case not in done:
                about = {"case": case, "part": "chosen", "data": name, "seed": seed, "attribute": attribute}
                about |= {"known": known, "true": true, "filled": filled}
                yield about | steered(rows, every[attribute], known, true, filled, seed, attribute.split(" ")[0])


def _cases() -> Iterator[tuple[int, float, str]]:
    """Number of known rows (0 for all), share of true labels, and what stands for the attribute of unknown rows."""
    yield from product(KNOWN, (0.0,), ("rate",))
    yield 512, 0.0, "zero"
    yield from product((512,), TRUE[:2], ("rate",))
    yield from product((2048,), TRUE, ("rate",))
    yield from product((0,), (0.0, 0.5), ("rate",))
    yield from product((512, 2048), (0.0, 0.25), ("stated",))
    yield from product((2048,), (0.5, 0.85, 0.95, 1.0), ("true",))


def steered(
    rows: Rows,
    attribute: Codes,
    known: int,
    true: float,
    filled: str,
    seed: int,
    column: str,
    epsilons: Sequence[float] = EPSILONS,
) -> dict[str, Any]:
    """Send labels that are an attribute where it is known, and read the grades.

    Labels of unknown rows are zeros, or as many ones as the partner's check of rates asks for. Or they are zeros and
    true labels that are not drawn, and the label owner states the largest epsilon that a partner takes by default. Or
    all but some of the known rows have their true labels, at that epsilon, to stay below a limit.
    """
    is_drawn = filled in ("zero", "rate")
    stated = LABEL_EPSILON if is_drawn else GradeBottomConfig().label_epsilon
    draw = np.random.default_rng([seed, known, int(100 * true), len(filled)])
    order = draw.permutation(rows.training)
    mine = order[: known or len(order)]
    sent = np.zeros(len(rows.labels), dtype=np.int64)
    if filled == "rate":
        low, high = rate_bounds(LABEL_EPSILON)
        sent[:] = draw.random(len(sent)) < low + 0.01
    sent[mine] = attribute[mine]
    if not known and filled == "rate":  # an attribute of few rows, or of most, is flipped as often as the check asks
        share = attribute[mine].mean()
        flip = max(0.0, (low + 0.01 - share) / (1 - share), (share - high + 0.01) / share)
        sent[mine] ^= (draw.random(len(mine)) < flip) & (attribute[mine] == (share > 0.5))
    honest = rows.drawn(rows.labels, LABEL_EPSILON, 2, f"labels {seed}") if is_drawn else rows.labels
    is_true = draw.random(len(sent)) < true
    if filled == "true":
        is_true[np.setdiff1d(np.arange(len(sent)), mine)] = True
    sent = np.where(is_true, honest, sent)
    graded = rows.graded(sent, stated, epsilons[0], seed)
    fault = DrawnLabels(torch.from_numpy(sent[rows.training]), stated, 2).fault()
    line: dict[str, Any] = {"fault": bool(fault), "z": round(graded.z, 2)}
    reader = np.sort(mine[: known or 2048])
    line["own"] = read(with_labels(rows), attribute, reader)
    for epsilon in epsilons:
        each = rows.regraded(graded, epsilon)
        carried = rows.carried(each, epsilon)
        released = of_grades(rows.released(each, epsilon, f"{seed} {known} {true}"), each.bands)
        line[f"{epsilon:g}"] = {
            "auc": read(with_labels(rows, released), attribute, reader),
            "carried": carried.attributes[0].share,
            "of": max((each.share for each in carried.attributes if each.column == column), default=0.0),
        }
    return line


def reads(name: str, data: Path, seed: int, done: set[str], _: int) -> Iterator[dict[str, Any]]:
    """What a curious label owner reads of the partner's columns, by what it holds, and how many rows it knows."""
    case = f"reads {name} {seed}"
    if case in done:
        return
    table = labelled(name, data)
    rows = Rows.of(table, seed)
    fits = [refit(rows, at, seed) for at in range(REFITS)]
    grades = [of_grades(rows.released(each, 8.0, f"grades {at}"), each.bands) for at, each in enumerate(fits)]
    fewer = rows.regraded(fits[0], 4.0)
    held: dict[str, list[Floats]] = {"own": [], "grade 8": grades[:1], f"{REFITS} refits at 8": grades}
    held["grade 4"] = [of_grades(rows.released(fewer, 4.0, "grades 0"), fewer.bands)]
    for ideal, trees in (("linear", False), ("boosted", True)):
        held[f"ideal, {ideal}"] = [_ideal(rows, seed, trees)]
    line: dict[str, Any] = {"case": case, "part": "reads", "data": name, "seed": seed}
    for known in KNOWN_READS:
        line[str(known)] = {what: guessed(rows, parts, known, seed) for what, parts in held.items()}
    yield line | {"collusion": _collusion(table, seed), "membership": _membership(rows, fits[0], seed)}


def refit(rows: Rows, at: int, seed: int) -> Graded:
    """A job with draws of labels and folds of its own."""
    sent = rows.drawn(rows.labels, LABEL_EPSILON, 2, f"labels {seed} {at}")
    return rows.graded(sent, LABEL_EPSILON, EPSILONS[0], seed + at)


def _ideal(rows: Rows, seed: int, trees: bool) -> Floats:
    """Score of each row by a model of all columns, fitted to the true labels of other rows, (n, 1)."""
    every, truth = torch.arange(len(rows.labels)), torch.from_numpy(rows.labels == 1)
    stores = [rows.bank.store, rows.partner.store]
    model = predict_from_columns(stores, every, truth, 2, seed, trees=trees)
    scores = model.scores[model.rows.argsort()].clamp_min(-20.0)
    return (scores[:, 1:] - scores[:, :1]).numpy()


def guessed(rows: Rows, parts: Sequence[Floats], known: int, seed: int) -> dict[str, float]:
    """Mean R² of the partner's columns and mean AUC of their attributes, by the attack `best_guess`."""
    order = np.random.default_rng(seed).permutation(rows.training)[: known + ATTACKED]
    chosen = torch.from_numpy(order)
    store, release = rows.partner.store, np.hstack([np.zeros((len(rows.labels), 0)), *parts])[order]
    own = torch.from_numpy(with_labels(rows)[order]).float()
    indices = torch.arange(known)
    auxiliary = Auxiliary(store.columns, indices, *store.gather(chosen[:known]))
    view = FeatureView("partner", chosen, torch.from_numpy(release).float(), own=own)
    knowledge, truth = Knowledge(auxiliary_rows=auxiliary), store.gather(chosen[known:])
    case = FeatureCase("grades", view, knowledge, truth)
    about = {"run": "", "party": "partner", "attack": "best_guess"}
    results = {each.metric: each for each in measure_feature_attack(BestGuess()(view, knowledge, seed), case, about)}
    aucs = [each.value for each in results["auc"].columns if each.value is not None and each.value == each.value]
    return {"r2": results["r2"].value or 0.0, "auc": float(np.mean(aucs)), "best": results["auc"].value or 0.0}


def _collusion(table: DataSet, seed: int) -> dict[str, dict[str, float]]:
    """The partner's columns divided between two: the guess of the first's, from what the second adds."""
    half = table.partner.shape[1] // 2
    first, second = table.partner.iloc[:, :half], table.partner.iloc[:, half:]
    rows, other = (Rows.of(replace(table, partner=part), seed) for part in (first, second))
    mine, its = refit(rows, 0, seed), refit(other, 0, seed)
    grade = of_grades(rows.released(mine, 8.0, "first"), mine.bands)
    more = {"its grade": of_grades(other.released(its, 8.0, "second"), its.bands), "its columns": other.partner.matrix}
    found = {"own": [], "grade": [grade]} | {name: [grade, part] for name, part in more.items()}
    found["its columns alone"] = [other.partner.matrix]
    return {name: guessed(rows, parts, KNOWN_READS[0], seed) for name, parts in found.items()}


def _membership(rows: Rows, graded: Graded, seed: int) -> dict[str, float]:
    """AUC of how well a row's grade agrees with its drawn label, of training rows against test rows.

    Each row is graded by the models without its fold; beside it stand grades by the mean of all models, which no job
    releases of a row with an id.
    """
    every = np.arange(len(rows.labels))
    drawn = rows.drawn(rows.labels, LABEL_EPSILON, 2, f"labels {seed} 0")
    member = np.isin(every, rows.training)
    signs = 2.0 * drawn - 1
    codes, numbers = rows.partner.store.gather(torch.from_numpy(every))
    with torch.no_grad():
        mean = graded.bottom.grade(codes, numbers, None).numpy()
    found = {"by folds": rows.released(graded, 8.0, "grades 0"), "by all models": mean}
    return {name: roc_auc((grade - grade.mean()) * signs, member) for name, grade in found.items()}


Part = tuple[Callable[[str, Path, int, set[str], int], Iterator[dict[str, Any]]], Sequence[str]]
PARTS = ("chosen", "lowered", "reads", "jobs", "members", "together")


def _parts() -> Mapping[str, Part]:
    """How each part is measured, and on which data sets."""
    from benchmarks import grade_jobs, grade_lowered, grade_together

    measures = (chosen, grade_lowered.lowered, reads, grade_jobs.jobs, grade_jobs.members, grade_together.together)
    return {part: (measure, CHOSEN) for part, measure in zip(PARTS, measures, strict=True)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing in the file of results, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks grade_attacks", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file that results are appended to")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=[*PARTS], help=", ".join(PARTS))
    parser.add_argument("--tables", type=lambda text: text.split(","), help="data sets; all of a part by default")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--attributes", type=int, default=ATTRIBUTES, help="attributes that labels are chosen by")
    given = parser.parse_args(arguments)
    lines = lines_of(given.results)
    done = {line["case"] for line in lines}
    for seed, part in product(range(given.seeds), given.parts):
        measure, tables = _parts()[part]
        for name in given.tables or tables:
            for line in measure(name, given.data, seed, done, given.attributes):
                lines.append(line | {"commit": provenance()["commit"]})
                with given.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    sys.stdout.write(page(lines))


def page(lines: Sequence[Mapping[str, Any]]) -> str:
    """The tables of all parts, as Markdown."""
    from benchmarks.grade_jobs import of_jobs, of_members
    from benchmarks.grade_lowered import of_lowered
    from benchmarks.grade_together import of_together

    of = {part: [line for line in lines if line["part"] == part] for part in PARTS}
    return "\n".join(
        [
            *_of_chosen(of["chosen"]),
            "",
            *of_lowered(of["lowered"]),
            "",
            *of_limits(),
            "",
            *of_honest(lines_of(HONEST_RUNS)),
            "",
            *_of_reads(of["reads"]),
            "",
            *of_jobs(of["jobs"]),
            "",
            *of_members(of["members"]),
            "",
            *of_together(of["together"]),
            "",
        ]
    )


def _of_chosen(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| data set, attribute | known | labels | own | AUC at 8; 4 | z | carried at 8; 4 | refused by |"
    yield "|---" * 8 + "|"
    for line in lines:
        aucs, shares = ("; ".join(f"{line[f'{at:g}'][key]:.2f}" for at in EPSILONS) for key in ("auc", "carried"))
        yield f"| {case_of(line)} | {aucs} | {line['z']:.1f} | {shares} | {', '.join(refused(line)) or 'none'} |"


def case_of(line: Mapping[str, Any]) -> str:
    """Cells of a case of labels that are an attribute, and the AUC without grades."""
    known = "all" if not line["known"] else f"{line['known']:,}"
    kind = "others zero" if line["filled"] == "zero" else "others at random"
    kind = kind if not line["true"] else f"{line['true']:g} true"
    if line["filled"] in ("stated", "true"):
        kind = f"{kind if line['true'] else 'others zero'}{', others true' * (line['filled'] == 'true')}, epsilon 4"
    return f"{line['data']}, {line['attribute']} | {known} | {kind} | {line['own']:.2f}"


def refused(line: Mapping[str, Any]) -> Iterator[str]:
    """Which of the partner's checks refuse a case, at their defaults."""
    if line["fault"]:
        yield "rates"
    if line["z"] < LEAST_Z:
        yield "z"
    at = [
        epsilon
        for epsilon in EPSILONS
        if line[f"{epsilon:g}"]["carried"] > default_limit(epsilon, bands_for(epsilon, 16))
    ]
    if at:
        yield "limit" if len(at) == len(EPSILONS) else f"limit at {at[0]:g}"


def _of_reads(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not lines:
        return
    names = [*lines[0][str(KNOWN_READS[0])]]
    yield "| data set, known rows | " + " | ".join(names) + " |"
    yield "|---" * (1 + len(names)) + "|"
    for line in lines:
        for known in map(str, KNOWN_READS):
            cells = (f"{line[known][name]['r2']:.2f}, {line[known][name]['auc']:.3f}" for name in names)
            yield f"| {line['data']}, {int(known):,} | " + " | ".join(cells) + " |"
    yield ""
    names = [*lines[0]["collusion"]]
    yield "| data set | " + " | ".join(names) + " | membership by folds; by all models |"
    yield "|---" * (2 + len(names)) + "|"
    for line in lines:
        figures = [f"{each['r2']:.2f}, {each['auc']:.3f}" for each in line["collusion"].values()]
        members = "; ".join(f"{value:.3f}" for value in line["membership"].values())
        yield f"| {line['data']} | {' | '.join([*figures, members])} |"
