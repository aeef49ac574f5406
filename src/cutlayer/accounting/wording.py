"""The ledger's sentences: each names the neighbouring relation, the sampling assumption and what it depends on."""

from __future__ import annotations

from collections.abc import Iterable

from cutlayer.accounting.events import (
    DPSGD,
    Event,
    GaussianRelease,
    LabelFree,
    NoFormalGuarantee,
    RandomizedGrade,
    RandomizedResponse,
)
from cutlayer.accounting.plan import ReleasePlan
from cutlayer.accounting.total import Total

LABEL_FREE_TEXT = (
    "no message depends on a label{given}, so the excess of any attack over the receiver's own features{besides} is "
    "zero by construction, also against a malicious partner (each row is released once, before training, and no "
    "gradient is sent; timing is not covered)"
)
MALICIOUS_TEXT = "also against a malicious partner"
"""Stands where the proof assumes nothing of what the receiver sends; docs/guarantees.md has the argument for each."""
STEERED_TEXT = (
    "a malicious partner steers that model by the gradients that it sends, and what the model learns is not covered"
)
CHOSEN_TEXT = (
    "a malicious partner has a part in which rows were fitted to, and what the fit reveals of a row is not covered"
)
RUN_END_TEXT = (
    "no message but the end of the run depends on labels: early stopping ends it by them, and a release with a very "
    "long row can make it fail for one label of that row and not for another; where all passive parties release once, "
    "none of them sees the end"
)
STRATIFIED_TEXT = (
    "every part of the split has the same share of each class, by a secret draw: a party that knows these shares, and "
    "all labels of a part but one, knows the last"
)
ORDERED_TEXT = (
    "the split shows which rows have the largest values of {column}, and which the next{public}; no epsilon covers "
    "what that shows of the labels, if the column follows them"
)
PUBLIC_TEXT = ", which the job states to be public"


def event_text(event: Event) -> str:
    """Description of an event, for readers who do not know the paper."""
    match event:
        case RandomizedResponse():
            return _response_text(event)
        case RandomizedGrade():
            return _grade_text(event)
        case GaussianRelease():
            return _release_text(event)
        case DPSGD():
            return _training_text(event)
        case LabelFree():
            stated = conditions_text(event.given)
            return LABEL_FREE_TEXT.format(given=f", {stated}" if stated else "", besides=" and that" if stated else "")
        case NoFormalGuarantee():
            return f"none, empirical: {event.why}"


def conditions_text(conditions: Iterable[str]) -> str:
    """Conditions of a guarantee of labels as a clause; empty without one.

    >>> conditions_text(["which rows have a label"]), conditions_text([])
    ('given which rows have a label', '')
    """
    return " and ".join(f"given {condition}" for condition in conditions)


def total_text(total: Total) -> str:
    """One line for a terminal."""
    about = f"{asset_text(total.protects, total.party)}, towards {', '.join(total.towards)}"
    if total.epsilon is None:
        return f"{about}: no formal guarantee: {total.why}"
    if total.accountant == "pure":
        condition = "" if total.condition == "unconditional" else f", {total.condition}"
        return f"{about}: epsilon {total.epsilon:.4g} per row{condition}"
    rdp = "" if total.rdp_epsilon is None else f", {total.rdp_epsilon:.4g} by RDP"
    text = f"{about}: epsilon {total.epsilon:.4g} at delta {total.delta:.4g} per row ({total.accountant}{rdp})"
    text += f", {total.condition}"
    return f"{text}; {bounded}" if (bounded := bound_text(total)) else text


def bound_text(total: Total) -> str:
    """What a total says of the best test of one row; empty where no bound is known."""
    if total.auc_bound is None:
        return ""
    digits = 3 if total.auc_bound < 0.9995 else 6  # never rounded to 1, which would be none
    best = f"{total.auc_bound:.{digits}f}"
    return f"so two values of one row, all else known, cannot be distinguished better than AUC {best}"


def with_bound(total: Total) -> str:
    """The statement of a total, and what it bounds of one row; that of other accountants than `pure` has the bound."""
    bound = bound_text(total) if total.accountant == "pure" else ""
    return f"{total.statement}; {bound}" if bound else total.statement


def plugin_text(plugins: str) -> str:
    """Whose word a guarantee is that no proof or test of this project stands behind."""
    return f"as the plugin {plugins} states; Cutlayer has neither proved nor tested it"


def asset_text(asset: str, party: str) -> str:
    """The subject of a guarantee. Labels of held-out rows are used to evaluate, and no draw protects them.

    >>> asset_text("labels", "bank"), asset_text("features", "telco")
    ('the labels of the training rows of bank', 'the features of telco')
    """
    return f"the labels of the training rows of {party}" if asset == "labels" else f"the {asset} of {party}"


def releases_text(plan: ReleasePlan) -> str:
    """Number of releases, and their reasons.

    >>> releases_text(ReleasePlan(training=20, validation=20, test=1))
    'a training row 20 times (once in each epoch), a validation row 20 times, a test row once (evaluations)'
    """
    beyond = f", any row {_times_text(plan.beyond)} by runs that did not end or by repetitions" if plan.beyond else ""
    return _schedule_text(plan) + beyond


def _schedule_text(plan: ReleasePlan) -> str:
    if plan.once and not plan.serving:
        return "every row once"
    if plan.once:
        return f"every row once, any row {_times_text(plan.serving)} for predictions"
    parts = [f"a training row {_times_text(plan.training)} (once in each epoch)"] if plan.training else []
    held_out = [
        f"a {part} row {_times_text(count)}"
        for part, count in (("validation", plan.validation), ("test", plan.test))
        if count
    ]
    if held_out:
        parts.append(f"{', '.join(held_out)} (evaluations)")
    if plan.serving:
        parts.append(f"any row {_times_text(plan.serving)} for predictions")
    return ", ".join(parts)


def _response_text(event: RandomizedResponse) -> str:
    if event.draws == 1:
        spent = "1 draw for the whole run, so no epoch adds to it"
    else:
        spent = f"{event.draws} draws of each label, of eps {event.eps:g} each, which add up"
    stages = ""
    if event.stages > 1:
        stages = f" in {event.stages} stages on separate rows, each with a prior from the draws of earlier ones"
    stated = conditions_text(event.given)
    return (
        f"label differential privacy of eps {event.eps * event.draws:g} per row (neighbours differ in one row's label; "
        f"randomised response{stages}, {spent}), {MALICIOUS_TEXT}{', ' * bool(stated)}{stated}"
    )


def _grade_text(event: RandomizedGrade) -> str:
    often = "drawn once" if event.draws == 1 else f"up to {event.draws} draws of a row, which add up"
    often += f", {event.again:,} rows drawn more than once" * bool(event.again)
    often += f"; changed rows of {event.unseen} releases by batches are not counted" * bool(event.unseen)
    often += f"; refused predictions: {event.refused}, each a bit of its rows" * bool(event.refused)
    chosen = MALICIOUS_TEXT if event.condition == "unconditional" else CHOSEN_TEXT
    fit = event.fit
    fitted = ""
    if fit is not None:
        known = (
            "given the types of columns, which of them have more values than max_codes, and that no value ends the run"
        )
        fitted = f", and epsilon {fit.epsilon:.4g} at delta {fit.delta:g} of the model (mu {fit.mu:.4g}), {known}"
    return (
        f"differential privacy of eps {event.eps * event.draws:g} of a row's grade{fitted} (neighbours differ in one "
        f"row's features, replaced by others; randomised response, {often}; given which ids get another grade later, "
        "which shows; rows without ids are drawn once for each table that is predicted), "
        f"{event.condition}; {chosen}"
    )


def _release_text(event: GaussianRelease) -> str:
    if event.releases.once and not event.releases.beyond and not event.releases.serving:
        often = "released once; the epochs after that use it again"
    else:
        spent = f"the cost is that of the {event.releases.whose}"
        often = f"released {_times_text(event.releases.max_releases)} at most: {releases_text(event.releases)}; {spent}"
    return (
        f"Gaussian noise of {event.noise_multiplier:.4g} times the sensitivity (neighbours differ in one row's "
        f"features, replaced by others; {often}; the order is fixed, so no credit for sampling), {event.condition}"
        f"{_against_malicious(event)}"
    )


def _against_malicious(event: GaussianRelease) -> str:
    """A partner's means against the condition: train the bottom model, or offer few rows to the fit."""
    if event.condition == "unconditional":
        return f", {MALICIOUS_TEXT}"
    steered = "bottom model" in event.condition and not event.releases.once
    return f"; {STEERED_TEXT if steered else CHOSEN_TEXT}"


def _training_text(event: DPSGD) -> str:
    return (
        f"DP-SGD of the bottom model, noise of {event.noise_multiplier:.4g} times the clipping norm over "
        f"{event.steps} steps (neighbours differ in one replaced row, given the encoding of the columns; batches in a "
        f"fixed order, so no credit for sampling), {MALICIOUS_TEXT}"
    )


def _times_text(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
