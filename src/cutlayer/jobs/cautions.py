"""Warnings about settings of a valid job that its author may not have meant; none of them stops a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cutlayer.accounting import Ledger, NoFormalGuarantee
from cutlayer.accounting.ledger import REFUSAL_ENTRY
from cutlayer.config import Job
from cutlayer.config.aggregate import UNDATED, undated
from cutlayer.config.phases import Phase, grades_rows, reads_labels
from cutlayer.data.categories import are_categories_rare
from cutlayer.data.profile import ColumnProfile
from cutlayer.kernels.noise.informative_rows import (
    AMPLE_ROWS,
    MAX_EPSILON,
    RARE_CATEGORY_COST,
    expected_loss,
    informative_rows,
)
from cutlayer.kernels.noise.score_bands import MIN_EPSILON
from cutlayer.models.bottom_fits import grade_limits_of, label_epsilon_of, lower_epsilons_of, private_fit
from cutlayer.protections import REGISTRY
from cutlayer.protections.contract.base import Asset
from cutlayer.protections.grade_dp import epsilon_of
from cutlayer.report.carried import CELLS
from cutlayer.training.run_ledger import chain_of, ledger_of

if TYPE_CHECKING:
    from cutlayer.alignment.held_rows import HeldRows
    from cutlayer.data.split import Split

MAX_SHARED_TEST_SHARE = 0.5
"""Share of test rows whose row of a partner trains too, above which a test says little of rows of others."""
MIN_NETWORK_ROWS = 1000
DISCLOSING_EPSILON = 3.0
"""Label epsilon from which a draw keeps 95 % of binary labels."""
WEAK_EPSILON = 10.0
"""Epsilon above which a guarantee is hardly one: an odds ratio of e^10 is 22,000 to 1."""
MIN_RARER_TEST_ROWS = 30
"""Test rows of the rarer label below which the 95 % interval of the AUC is wider than about 0.1 to either side."""
CHANCE_DISTANCE, CATALOGUE_ERRORS = 0.02, 2.6
"""Distance from 0.5 that a catalogue should keep where labels are permuted, and the standard errors of a single AUC by
which its largest leak lies above 0.5 there: on Adult 2.6, on Bank 2.6 (docs/results/adaptive-audit.md)."""
EXAMPLE_AUCS = (0.8, 0.6)
"""AUC of a partner's columns that say much of a label, and of such that say little: a loss is stated for both."""
CHANCE_TOLERANCE = 0.005
"""By how much the distance may exceed `CHANCE_DISTANCE` without a warning."""


def leak_notes(job: Job) -> tuple[str, ...]:
    """Notes on the leaks of a valid job, each after the name of the setting that it is about.

    A term on the embeddings (`dcor`) protects no gradient: without another protection of labels, those that its party
    is sent reveal them.
    """
    notes = list[str]()
    if job.alignment == "plain":
        notes.append(
            f"alignment: plain shows {job.active} a digest of every id of the other parties, and with it all ids that "
            "can be guessed; write alignment: psi for parties in processes of their own"
        )
    owner = job.parties[job.active]
    if owner.unlabelled == "drop":
        notes.append(f"{job.active}.unlabelled: drop shows passive parties which of their rows have a label")
    hiding = sorted(name for name, kind in REGISTRY.items() if kind.hides_lengths)
    if owner.weight is not None and Phase.LEAVE not in job.phases and not {*hiding} & {*owner.protections}:
        notes.append(
            f"{job.active}.weight: a row's weight multiplies its cut gradient, so that passive parties can read the "
            f"column {owner.weight!r} by the length; train.release: once sends none, and {', '.join(hiding)} hide it"
        )
    for name in job.passives:
        most = label_epsilon_of(job.bottom_of(name))
        if reads_labels(job, name) and most > MAX_EPSILON:
            notes.append(
                f"model.bottom.{name}.label_epsilon: {most:g} lets {job.active} send {name} labels of any rates; up to "
                f"{MAX_EPSILON:g} rates that no draw gives are refused"
            )
    for name in job.parties:
        chain = chain_of(job, name)
        hidden = chain.acts_at("gradient_out", "labels")
        for protection in chain.protections:
            notes += [f"{protection.name}: {note}" for note in protection.notes(job.train.max_epochs)]
            if protection.protects is Asset.LABELS and protection.acts_at("cut_gradient") and not hidden:
                notes.append(
                    f"{protection.name}: acts on embeddings only, and the cut gradients of the same party reveal every "
                    "label; add a protection of gradients or label_dp"
                )
    return tuple(notes)


def readable_columns(job: Job, name: str) -> str:
    """What the active party can read of a passive party's columns, with the least knowledge that this takes.

    And the limits that the passive party sets for it, at that party alone.
    """
    limits = grade_limits_of(job.parties[name].fit, "fit") if grades_rows(job, name) else {}
    stated = ", ".join(f"{column} {most:g}" for column, most in limits.items() if most < 1)
    return _readable(job, name) + f"; of an attribute of a column grades carry at most: {stated}" * bool(stated)


def _readable(job: Job, name: str) -> str:
    ledger = ledger_of(job)
    totals = [total for total in ledger.totals if (total.party, total.protects) == (name, Asset.FEATURES)]
    if any(total.epsilon is not None for total in totals):
        private = private_fit(job.parties[name].fit) is not None
        if grades_rows(job, name) and reads_labels(job, name) and not private:
            return (
                f"from a row's own grade {job.active} learns what the guarantee of {name} allows; grades of other rows "
                f"may tell of it through the model, without a bound; {job.active} chooses by its labels what grades "
                "are of"
            )
        cells = f"; {CELLS}" if grades_rows(job, name) and not private else ""
        sent = " and sends" * private
        mine = (entry.event for entry in ledger.entries if (entry.party, entry.protection) == (name, REFUSAL_ENTRY))
        bits = [event.why for event in mine if private and isinstance(event, NoFormalGuarantee)]
        refused = f"; {bits[0]}, which no epsilon covers" if bits else ""
        return f"{job.active} learns what the guarantee of {name} allows, whatever it knows{sent}{cells}{refused}"
    fit = job.parties[name].fit or {}
    if fit.get("kind") != "sketch":
        return f"{job.active} receives an embedding of every common row, and may rebuild columns of {name} from it"
    exact = f"{job.active} can read columns of {name} exactly from its release, without a known row:"
    if fit.get("map") != "permutation":
        return f"{exact} most categories, if it is as wide as the encoded table; a few known rows give the rest"
    intervals = "the interval of each number" if fit.get("numbers") is False else "whole numbers up to an offset"
    return f"{exact} categories, and {intervals}; it names them by how they are distributed"


def job_cautions(
    job: Job,
    rows: Mapping[str, int],
    common: int,
    training: int,
    tested: int,
    columns: tuple[ColumnProfile, ...],
    ledger: Ledger,
    drawn: tuple[str, bool] = ("", False),
) -> Iterator[str]:
    """Warnings about a valid job and its tables, each after the name of what it is about.

    Args:
        job: The job.
        rows: Number of rows of each party's own table.
        common: Number of common rows.
        training: Number of training rows.
        tested: Number of rows that the final metrics are of.
        columns: Profiles of the columns of all tables here.
        ledger: Planned releases of the job.
        drawn: What `drawn_labels_worth` returned.
    """
    for name in undated(job):
        yield f"{name}.table.aggregate: {UNDATED}; name a column by as_of"
    for column in columns:
        for note in column.notes:
            yield f"{column.party}.{column.name}: {note}"
    smallest = min(rows, key=lambda name: rows[name])
    if common < rows[smallest] / 2:
        met = f"{common:,} of the {rows[smallest]:,} rows of {smallest}"
        yield f"rows: only {met} are in common; do all parties write their ids in the same form?"
    for label in (column for column in columns if column.role == "label"):
        if job.task == "regression" and label.distinct == 2:
            yield f"task: the label {label.name} has two values only; write task: binary"
        if job.task == "binary" and len(label.classes) == 2:
            share = min(label.classes.values()) / sum(label.classes.values())
            yield from _followed_rows_caution(job, training, share)
            yield from _test_rows_caution(tested, share)
    if training < MIN_NETWORK_ROWS and not job.fits_top:
        shows = "compare: [boosting]" if job.rows == "common" else "train.release: once, with model.top: {kind: auto},"
        yield (
            f"rows: {training:,} training rows are few for a network, and fewer yet choose its epoch; {shows} shows "
            "what trees reach, which may be better by more than 0.01"
        )
    yield from _drawn_label_cautions(job, drawn)
    yield from private_fit_cautions(job, dict.fromkeys(job.parties, training), columns)
    unscaled = [
        name
        for name in job.passives
        if job.parties[name].features.numbers.scale == "none" and private_fit(job.parties[name].fit) is not None
    ]
    if "undefended" in job.compare and unscaled:
        yield (
            f"compare: undefended trains a network by the numbers of {', '.join(unscaled)} as they are, without a "
            "scale, which predicts less than it could: leave it out, or compare with --protect nothing"
        )
    yield from column_cautions(job, columns)
    yield from _ledger_cautions(ledger, training)


def column_cautions(job: Job, columns: Sequence[ColumnProfile]) -> Iterator[str]:
    """Warnings that need no more than the profiles of columns, so that a party alone has those of its own."""
    yield from label_range_cautions(job, columns)
    for name in job.passives:
        fit = job.parties[name].fit or {}
        features = [column.name for column in columns if (column.party, column.role) == (name, "feature")]
        if len(features) in (1, 2) and reads_labels(job, name) and fit.get("kind") == "grade" and not fit.get("limits"):
            epsilon = epsilon_of(chain_of(job, name).protections)
            if epsilon is not None and epsilon <= MIN_EPSILON:  # all that its noise lets through is within limits
                continue
            kept = epsilon is not None and MIN_EPSILON in lower_epsilons_of(fit, epsilon)
            then = (
                f"then has rows drawn at a lower epsilon, down to {MIN_EPSILON:g}, which keeps less"
                if kept
                else "refuses it once labels were sent, which counts as if grades had been"
            )
            yield (
                f"parties.{name}.fit.limits: where the labels follow {' or '.join(features)} alone, a grade is nearly "
                f"that column, and the default limit {then}. Add columns; or write limits: {{other: 1}}, if "
                f"{job.active} may have {'either' if len(features) == 2 else 'this'} column"
            )


def private_fit_cautions(job: Job, rows: Mapping[str, int], columns: Sequence[ColumnProfile]) -> Iterator[str]:
    """Warnings about private fits whose noise leaves labels worth few rows, by public numbers alone.

    Args:
        job: The job.
        rows: Number of training rows of each party, or of its table.
        columns: Profiles of the columns of the tables here.
    """
    from cutlayer.models.bottom_fits.private_grade import noise_ratio

    known = [column.distinct or 2 for column in columns if column.role == "label" and column.classes]
    classes = max(known, default=3 if job.task == "multiclass" else 2)  # at a partner alone at least so many
    for name in job.passives:
        fit = private_fit(job.parties[name].fit)
        features = sum((column.party, column.role) == (name, "feature") for column in columns)
        if fit is None or not features or not reads_labels(job, name):
            continue
        epsilon = _label_epsilon(job)
        epsilon = label_epsilon_of(job.bottom_of(name)) if epsilon is None else epsilon
        even = informative_rows(rows[name], [1 / classes] * classes, epsilon)
        left = even / (1 + noise_ratio(fit, rows[name], features, classes, epsilon))
        if left < AMPLE_ROWS:
            yield (
                f"parties.{name}.fit.epsilon: with noise at {fit.epsilon:.3g}, labels of {classes} classes drawn at "
                f"{epsilon:g} are worth about {left:,.0f} rows to {rows[name]:,} of {features} columns. Such a model "
                "ranks poorly: more rows, fewer columns or a larger epsilon are worth more"
            )


def label_range_cautions(job: Job, columns: Sequence[ColumnProfile]) -> Iterator[str]:
    """A warning where labels lie outside of the range in which they are drawn; `columns` has their profile."""
    span = (job.parties[job.active].privacy.get("label_dp") or {}).get("range")
    for label in (column for column in columns if column.role == "label" and column.ends is not None):
        low, high = label.ends or (0.0, 0.0)
        if span is not None and not span[0] <= low <= high <= span[1]:
            yield (
                f"parties.{job.active}.privacy.label_dp.range: labels of {label.name} are from {low:g} to {high:g}; "
                f"those beyond {span[0]:g} to {span[1]:g} are drawn as its ends. Widen it by public knowledge alone, "
                "or correct the labels"
            )


def _followed_rows_caution(job: Job, training: int, share: float) -> Iterator[str]:
    """A warning where the largest of many leaks is well above 0.5 by chance alone; `share` is the rarer label's."""
    where = f"parties.{job.active}.audit"
    audit = job.parties[job.active].audit
    followed = audit.followed
    if audit.every == "never" or followed >= training or not share:
        return
    # The variance of the AUC of n rows without a signal is (1 / positives + 1 / negatives) / 12.
    variance = CATALOGUE_ERRORS**2 * (1 / share + 1 / (1 - share)) / 12
    chance = math.sqrt(variance / followed)
    if chance <= CHANCE_DISTANCE + CHANCE_TOLERANCE:
        return
    rows = min(math.ceil(variance / CHANCE_DISTANCE**2 / 1000) * 1000, training)
    yield (
        f"{where}.followed: about {share * followed:,.0f} of the {followed:,} followed rows have the rarer "
        f"label, so that the strongest of all attacks reads about {0.5 + chance:.2f} where nothing leaks; "
        f"followed: {rows} brings this to about {0.5 + math.sqrt(variance / rows):.2f}, at a longer audit"
    )


def drawn_labels_worth(
    job: Job, training: Mapping[str, int], counts: Sequence[int], columns: Sequence[ColumnProfile]
) -> tuple[str, bool]:
    """What drawn labels are worth to the partners with the fewest rows, and whether that is few rows.

    Args:
        job: The job.
        training: Number of training rows of each party: a partner is sent labels of its own rows alone.
        counts: Number of rows of each class.
        columns: Profiles of the columns of all tables here.

    Returns:
        A sentence, empty where nothing is drawn; a remedy is in it where the rows are few.
    """
    graded = [name for name in job.passives if reads_labels(job, name)]
    epsilon = _label_epsilon(job)
    if not graded or epsilon is None or len(counts) < 2:
        return "", False
    shares = [count / sum(counts) for count in counts]
    rows = min(training[name] for name in graded)
    fewest = [name for name in graded if training[name] == rows]
    worth, true = (informative_rows(rows, shares, each) for each in (epsilon, math.inf))
    rare = any(_has_rare_categories(columns, name, training[name]) for name in graded)
    strong, weak = (expected_loss(worth, true, auc, rare=rare) for auc in EXAMPLE_AUCS)
    few = worth < AMPLE_ROWS * (RARE_CATEGORY_COST if rare else 1)
    more = next((each for each in (0.5, 1.0, 2.0) if each > epsilon), None)
    remedy = f"; eps: {more:g} is worth more" if more is not None else "; more rows are worth more"
    return (
        f"labels drawn at {epsilon:g} are worth {worth:,.0f} rows to {', '.join(fewest)}"
        f"{', and more to the others' if fewest != graded else ''}, which costs a model of them "
        f"about {strong:.3f} of an AUC of {EXAMPLE_AUCS[0]:g}, {weak:.3f} of one of {EXAMPLE_AUCS[1]:g}{remedy * few}"
    ), few


def shared_row_cautions(job: Job, held: HeldRows, split: Split) -> Iterator[str]:
    """Partners whose rows serve test rows and training rows alike, unless the split is by a column."""
    for name in held.ids if job.train.split.by is None else ():
        own = held.by_party[name]
        tested = own[split.test][own[split.test] >= 0]
        share = float(np.isin(tested, own[split.train]).mean()) if len(tested) else 0.0
        if share > MAX_SHARED_TEST_SHARE:
            yield (
                f"train.split: {share:.0%} of the test rows with {name} share its row with a training row. If new rows "
                "will be of others, such as later ones, train.split.by a date tests on these"
            )


def _drawn_label_cautions(job: Job, drawn: tuple[str, bool]) -> Iterator[str]:
    sentence, few = drawn
    epsilon, where = _label_epsilon(job), f"parties.{job.active}.privacy.label_dp.eps"
    if few:
        yield f"{where}: {sentence}"
    if sentence and epsilon is not None and epsilon >= DISCLOSING_EPSILON:
        yield (
            f"{where}: at {epsilon:g} nearly every label can be read from its draw and a partner's own columns; "
            "2 or less hides labels"
        )


def _label_epsilon(job: Job) -> float | None:
    epsilon = (job.parties[job.active].privacy.get("label_dp") or {}).get("eps")
    return epsilon if isinstance(epsilon, float | int) else None


def _has_rare_categories(columns: Sequence[ColumnProfile], party: str, rows: int) -> bool:
    some = (column.distinct for column in columns if column.party == party and column.kind == "category")
    return any(distinct is not None and are_categories_rare(distinct, rows) for distinct in some)


def _test_rows_caution(tested: int, share: float) -> Iterator[str]:
    """A warning where the test rows cannot tell one model from another; `share` is the rarer label's."""
    rarer = share * tested
    if not rarer or rarer >= MIN_RARER_TEST_ROWS:
        return
    wide = 2 * math.sqrt((1 / rarer + 1 / (tested - rarer)) / 12)
    yield (
        f"train.split: about {rarer:,.0f} of the {tested:,} test rows have the rarer label, so that a test AUC of 0.5 "
        f"is known to about {wide:.2f} to either side; smaller differences of models may be chance. More rows, or a "
        "larger split.test, narrow it"
    )


def _ledger_cautions(ledger: Ledger, training: int) -> Iterator[str]:
    for total in ledger.totals:
        if total.epsilon is None:
            continue
        if total.delta * training > 1:
            yield (
                f"{total.party}: delta {total.delta:g} is above 1 / {training:,} training rows, so that a release of "
                "one row in the clear would satisfy it; lower it"
            )
        if total.epsilon > WEAK_EPSILON:
            yield f"{total.party}: an epsilon of {total.epsilon:g} hardly limits what can be inferred; 1 to 3 is common"
