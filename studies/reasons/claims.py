"""What each control says of the claim that does not hold without it."""

from __future__ import annotations

from studies.claims import NOT_TRIED, Claim, Verdict, above, below, within
from studies.feature_privacy.claims import attacked
from studies.feature_privacy.settings import ADJUST, VANILLA
from studies.forward_leakage.claims import COST, CUT, HIDDEN
from studies.forward_leakage.study import BEST, dcor_setting
from studies.gradient_leakage.claims import LOSSES
from studies.model_completion.attacks import FEW
from studies.model_completion.claims import completed
from studies.model_completion.weights import some_weight_hides
from studies.reasons.settings import (
    ALPHAS,
    FEWER,
    FEWER_ROWS,
    HALVES,
    LAMS,
    MASKED,
    MODELS,
    SHALLOW,
    STEPS,
    rows_setting,
)
from studies.results import UNDEFENDED, Condition, Results, formatted, measured, metric

BOUND = 0.01
"""Distance above the AUC of the model at which a leak no longer counts as bounded by it."""
CHANCE = 0.1
MORE_ROWS, RECOGNISED = 8_000, 0.571
"""Rows of CIFAR-10 in the study of private embeddings, and the accuracy with which members are recognised there."""


def held_out_claims(results: Results) -> list[Claim]:
    """The leak is bounded by the AUC of the model on the same rows, held out or trained on."""
    claims = []
    for part, rows in (("test", "held-out rows"), ("train", "training rows")):
        for own in models_of(results):
            beyond = results.difference(own, own, measured(f"{part}_leak"), measured(f"{part}_auc"))
            text = (
                f"{model_name(own)}, {rows}: the leak is at most {BOUND:g} above the AUC of the model on the same rows"
            )
            claims.append(_own(text, "section 6.2", f"{formatted(beyond)} above", below(beyond, BOUND)))
    return claims


def models_of(results: Results) -> list[Condition]:
    """The conditions of `MODELS` that have results; all of them if none has."""
    return [own for own in MODELS if results.all(own)] or list(MODELS)


def model_name(condition: Condition) -> str:
    """Group, and the epoch where it is not the best one."""
    group, setting = condition
    return group if setting == UNDEFENDED else f"{group}, last epoch"


def steps_claims(results: Results) -> list[Claim]:
    """Table 2 of Sun et al. 2022 with twelve times the steps, at its weight and at a larger one."""
    claims = []
    for alpha, hidden, costs in zip(ALPHAS, ("0.5089", NOT_TRIED), ("0.0030", NOT_TRIED), strict=True):
        own = (STEPS, dcor_setting(alpha, BEST))
        cut, lost = results.mean(own, CUT), results.loss(own)
        prefix, source = f"{STEPS}: dCor at alpha {alpha:g}", "" if costs == NOT_TRIED else " (table 2)"
        leaks = f"{prefix} brings the cut leak below {HIDDEN:g}{source}"
        cheap = f"{prefix} costs less than {COST:g} of test AUC{source}"
        claims += [
            _own(leaks, hidden, formatted(cut), below(cut, HIDDEN)),
            _own(cheap, costs, formatted(lost), below(lost, COST)),
        ]
    return claims


def noise_claims(results: Results) -> list[Claim]:
    """The costs of Marvell's noise in ByteDance's report with twelve times the steps."""
    claims = []
    for setting in ("sum_kl 0.16", "sum_kl 0.01"):
        lost, paper = results.loss((STEPS, setting)), LOSSES[setting]
        text = f"{STEPS}: {setting} costs {paper:g} of test AUC, within 0.01"
        claims.append(_own(text, f"{paper:g}", formatted(lost), within(lost, paper, 0.01)))
    lost = results.loss((STEPS, "sum_kl 0.16"))
    text = f"{STEPS}: sum_kl 0.16 costs less than 0.02 of test AUC"
    return [*claims, _own(text, "under 0.02", formatted(lost), below(lost, 0.02))]


def depth_claims(results: Results) -> list[Claim]:
    """Table 1 of Sun et al. 2022 at weights where the term may cost."""
    claims = []
    for alpha in ALPHAS:
        setting = dcor_setting(alpha, BEST)
        lost = results.loss((SHALLOW, setting))
        saved = results.difference((STEPS, setting), (SHALLOW, setting), metric)
        costs = f"{SHALLOW}: alpha {alpha:g} costs more than {COST:g} of test AUC"
        less = f"{STEPS}: three top layers have a higher test AUC than one at alpha {alpha:g}"
        claims += [
            _own(costs, "table 1", f"{formatted(lost)} lost", above(lost, COST)),
            _own(less, "table 1", formatted(saved), above(saved, 0.0)),
        ]
    return claims


def attacker_claims(results: Results) -> list[Claim]:
    """Whether DIMIP hides from the heads of the paper what standardised columns still show."""
    group, base = HALVES.group, (HALVES.group, UNDEFENDED)
    stronger = results.difference(base, base, completed("supervised", FEW), completed("plain", FEW))
    about, how = f"{group}, columns as they are", "completion with few labels"
    text, found, verdict = some_weight_hides(results, group, about, how, completed("plain", FEW), LAMS, CHANCE)
    return [
        _own(
            f"{group}, undefended: standardised columns help completion by more than 0.05",
            "–",
            f"{formatted(stronger)} more",
            above(stronger, 0.05),
        ),
        _own(text, "0.10 at 74% to 83%", found, verdict),
    ]


def members_claims(results: Results) -> list[Claim]:
    """Whether fewer rows are easier to remember."""
    accuracy = attacked("membership", "accuracy")
    fewer, fewest = ((FEWER, rows_setting(rows)) for rows in FEWER_ROWS)
    reached, more = results.mean(fewer, accuracy), results.difference(fewest, fewer, accuracy)
    first = (
        f"{FEWER}: of {FEWER_ROWS[0]:,} rows members are recognised more often than of {MORE_ROWS:,}, {RECOGNISED:g}"
    )
    second = f"{FEWER}: of {FEWER_ROWS[1]:,} rows more often than of {FEWER_ROWS[0]:,}"
    return [
        _own(first, "–", formatted(reached), above(reached, RECOGNISED)),
        _own(second, "–", f"{formatted(more)} more", above(more, 0.0)),
    ]


def masked_claims(results: Results) -> list[Claim]:
    """Whether adjusting gathers the classes where its mask leaves out rows of no clear cluster."""
    left = results.mean((MASKED, ADJUST), measured("last_kept"))
    more = results.difference((MASKED, ADJUST), (MASKED, VANILLA), measured("class_share"))
    return [
        _own(
            f"{MASKED}: the mask leaves out more than a tenth of the rows in the last epoch",
            "–",
            f"{formatted(left)} kept",
            below(left, 0.9),
        ),
        _own(
            f"{MASKED}: adjusting moves more of the variance in two components between the classes",
            "more",
            f"{formatted(more)} more",
            above(more, 0.0),
        ),
    ]


def _own(text: str, paper: str, ours: str, verdict: Verdict) -> Claim:
    """A claim of a paper in a set-up that is not the paper's counts as ours."""
    return Claim(text, paper, ours, verdict, own=True)
