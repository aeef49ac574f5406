"""The page of the study of reasons: a section for each reason."""

from __future__ import annotations

from studies.departures.claims import HALVES as DEPARTURE
from studies.departures.claims import PAPER, before, heads_claims
from studies.feature_privacy.claims import attacked
from studies.feature_privacy.settings import ADJUST
from studies.forward_leakage.claims import CUT, GRADIENT
from studies.forward_leakage.study import BEST, dcor_setting
from studies.model_completion.attacks import FEW
from studies.model_completion.claims import alone, completed
from studies.page import ClaimsTable, Page, Section, Table, table
from studies.reasons.claims import (
    attacker_claims,
    depth_claims,
    held_out_claims,
    masked_claims,
    members_claims,
    model_name,
    models_of,
    noise_claims,
    steps_claims,
)
from studies.reasons.settings import (
    ALPHAS,
    FEWER,
    FEWER_ROWS,
    HALVES,
    LEFT,
    LEFT_SETTINGS,
    MASKED,
    NOISE,
    SHALLOW,
    STEPS,
    rows_setting,
)
from studies.results import UNDEFENDED, Results, formatted, leak, measured, metric

LAST = leak("embedding/spectral", "last")
_HELD_OUT = (
    "In [label leakage from forward embeddings](forward-leakage.md) the undefended leak is up to 0.15 above the test "
    "AUC, where the paper has it bounded by that. *Suspected reason*: the leak is measured on the rows that were "
    "trained on, as in the paper, and with so few rows the model fits these better than others. *Control*: the same "
    "attack on the embeddings of the test rows, and on as many training rows, both as one batch and by the weights "
    "that are kept, those of the best epoch, beside the AUC of the model on the same rows. That page counts the leak "
    "at its worst epoch; where that is far from the best one, the last epoch is attacked too."
)
_STEPS = (
    "In [label leakage from forward embeddings](forward-leakage.md) distance correlation at alpha 0.03 does not hide "
    "the labels of Avazu, and costs 0.055 of test AUC. *Suspected reason*: 144 optimiser steps are too few; the paper "
    "has 1,500 to 15,000. *Control*: twelve times the steps."
)
_NOISE = (
    "In [label leakage from gradients](gradient-leakage.md) Marvell's noise costs two to three times what the report "
    "has. *Suspected reason*: few rows, or few steps over which noise averages out. Rows: on that page 0.16 costs less "
    "on Criteo, which has most rows, than on Avazu, and 0.01 costs the same on both and on a third of Avazu's rows. "
    "*Control* here: twelve times the steps on Avazu."
)
_DEPTH = (
    "In [label leakage from forward embeddings](forward-leakage.md) three top layers have no higher test AUC than one. "
    "*Suspected reason*: at these weights the form with a floor costs nothing, so that nothing can be saved. "
    "*Control*: Avazu with twelve times the steps, at a weight that costs more."
)
_ATTACKER = (
    "In [model completion by a departed party](model-completion.md) no weight of DIMIP brings the attack near chance "
    "and keeps what the party adds. *Suspected reason*: the attacker standardises the columns of the embedding, so "
    "that it reads one that has all but collapsed; that of the paper does not. *Control*: the same heads on the "
    "columns as they are. Both are supervised, by the best of the heads."
)
_MEMBERS = (
    "In [private embeddings as published](feature-privacy.md) members among 8,000 rows of CIFAR-10 are recognised "
    "under `full` with accuracy 0.571, where the paper has at most 0.5523 of 50,000. *Suspected reason*: fewer rows "
    "are easier to remember. *Control*: half and a quarter of these rows, the epochs as they are. More rows were not "
    "tried."
)
_MASKED = (
    "In [private embeddings as published](feature-privacy.md) adjusting does not gather the classes of MNIST in two "
    "components. *Suspected reason*: the default fuzzifier leaves out hardly any row, so that rows of no clear "
    "cluster are moved too. *Control*: the fuzzifier and threshold of [the bound C](clip-bound.md). *Kept*: share of "
    "rows whose membership reaches the threshold in the last epoch."
)
_HEADS = (
    "In [utility after parties have departed](departures.md) party dropout of 0.3 is not better than further heads on "
    "CIFAR-100. *Suspected reason*: Adam, which takes steps of the same size for a sum of losses as for one; by the "
    "paper's SGD the sum of losses of the heads makes larger steps. *Control*: SGD of rate 0.01 and momentum 0.9, as "
    "in the paper."
)
_ELSEWHERE = Table(
    ("claims that do not hold", "suspected reason", "tested in", "outcome"),
    (
        (
            "private embeddings: no room for rescaling, and no gain from it or from both terms",
            "a linear cut, C 1 and a high rate, under which training fills the ball",
            "[the bound C](clip-bound.md)",
            "with a ReLU, C 10 and a low rate there is room; a gain on the digits and on all of MNIST, however its "
            "images are cut, none that is settled on CIFAR-10; on Adult 0.012 ± 0.010 is lost at the paper's rate of "
            "1e-3, by which rows reach even that C, and 0.009 ± 0.017 gained at 1e-4, which 5 seeds do not settle",
        ),
        (
            "private embeddings: distances between rows are close to a normal",
            "the same: rows at the ball of radius C",
            "[the bound C](clip-bound.md)",
            "with a ReLU, C 10 and a low rate: holds on MNIST, not settled on the digits; not on Adult, whose rows "
            "reach even that C",
        ),
        (
            "distance correlation, paper's form at alpha 0.005",
            "180 optimiser steps",
            "[embeddings](forward-leakage.md), batch 1024",
            "with ten times the steps, at a tenth of the rate, it holds",
        ),
        (
            "distance correlation with a floor at alpha 0.002 to 0.005",
            "180 optimiser steps, or the floor",
            "[embeddings](forward-leakage.md), batch 1024",
            "the floor: with ten times the steps it hides nothing still, where the paper's form at 0.005 hides",
        ),
        (
            "distance correlation, paper's form at alpha 0.03",
            "180 optimiser steps",
            "[embeddings](forward-leakage.md), batch 1024",
            "another one: with ten times the steps the model still learns nothing",
        ),
        (
            "distance correlation at 0.03 beside Marvell's noise costs less than 0.01 more",
            "180 optimiser steps, in which the noise does not average out",
            "[embeddings](forward-leakage.md), batch 1024",
            "another one: with ten times the steps it still costs 0.047 ± 0.036 more",
        ),
        (
            "DIMIP hides and keeps what the party adds",
            "no normalisation below the cut, so that norms run away",
            "[model completion](model-completion.md), batch, group and no norm",
            "another one: after 110 steps norms have not run away without normalisation either, and a completion gets "
            "more with it than without",
        ),
        (
            "DIMIP hides and keeps what the party adds, MNIST",
            "Adam, where the paper trains by SGD",
            "[model completion](model-completion.md), by SGD",
            "another one: at three weights by SGD a completion gets 0.199 to 0.328, of a model with 0.937 to 0.939, "
            "where the active party alone has 0.934",
        ),
        (
            "completion with 40 labels of each class on MNIST ends near training on all labels",
            "the figure of the paper is of another data set",
            "[model completion](model-completion.md), CIFAR-10",
            "not settled on CIFAR-10",
        ),
    ),
)


def reasons_page(results: Results) -> Page:
    """A section for each reason that was tested, then the reasons of other studies and what was not tested."""
    sections = [_held_out(results)]
    if any(name in results.settings(STEPS) for name in NOISE):
        sections.append(_noise(results))
    if dcor_setting(ALPHAS[0], BEST) in results.settings(STEPS):
        sections.append(_term(results))
    if results.settings(SHALLOW):
        sections.append(_depth(results))
    if results.settings(HALVES.group):
        sections.append(_attacker(results))
    if results.settings(FEWER):
        sections.append(_members(results))
    if results.settings(MASKED):
        sections.append(_masked(results))
    if results.settings(LEFT.group):
        sections.append(_heads(results))
    return Page((*sections, Section("Reasons tested in other studies, and not tested", (_elsewhere(results),))))


def _elsewhere(results: Results) -> Table:
    """Reasons of other studies, and the controls of this one that have no results."""
    planned = {
        (STEPS, dcor_setting(ALPHAS[0], BEST)): (
            f"distance correlation on Avazu: alpha {ALPHAS[0]:g} hides and costs little",
            "144 optimiser steps",
        ),
        (SHALLOW, UNDEFENDED): (
            "three top layers have a higher test AUC than one",
            "a form and weights that cost nothing, so that nothing can be saved",
        ),
        (HALVES.group, UNDEFENDED): (
            "DIMIP hides and keeps what the party adds, MNIST",
            "an attacker who standardises columns, unlike the paper's",
        ),
        (FEWER, rows_setting(FEWER_ROWS[0])): (
            "private embeddings, CIFAR-10: membership under `full` below 0.5523",
            "8,000 rows, which are easier to remember than 50,000",
        ),
        (MASKED, ADJUST): (
            "private embeddings, MNIST: adjusting moves more of the variance between the classes",
            "a mask that leaves out hardly any row",
        ),
        (LEFT.group, LEFT_SETTINGS[0]): (
            "CIFAR-100 halves: p 0.3 is better than further heads after the departure",
            "Adam, where the paper trains by SGD",
        ),
    }
    rows = [
        (*claim, f"this study, `--group '{own[0]}'`", "not run")
        for own, claim in planned.items()
        if not results.all(own)
    ]
    return Table(_ELSEWHERE.head, (*_ELSEWHERE.rows, *rows))


def _held_out(results: Results) -> Section:
    rows = {model_name(own): own for own in models_of(results) if results.all(own)}
    columns = {
        "AUC, test rows": measured("test_auc"),
        "leak, test rows": measured("test_leak"),
        "AUC, training rows": measured("train_auc"),
        "leak, training rows": measured("train_leak"),
    }
    claims = ClaimsTable(tuple(held_out_claims(results)))
    values = [table("rows of", rows, results.columns(columns))] if rows else []  # without results the claims say so
    return Section("The leak is above the test AUC", (_HELD_OUT, claims, *values))


def _noise(results: Results) -> Section:
    columns = {"test AUC": results.column(metric), "lost (paired)": results.loss_column()}
    rows = results.conditions(STEPS, (UNDEFENDED, *NOISE))
    claims = ClaimsTable(tuple(noise_claims(results)))
    return Section("The costs of Marvell's noise", (_NOISE, claims, table("defence", rows, columns)))


def _term(results: Results) -> Section:
    claims = ClaimsTable(tuple(steps_claims(results)))
    return Section("Distance correlation on Avazu", (_STEPS, claims, _leaks(results, STEPS)))


def _depth(results: Results) -> Section:
    claims = ClaimsTable(tuple(depth_claims(results)))
    return Section("One and three top layers", (_DEPTH, claims, _leaks(results, SHALLOW)))


def _attacker(results: Results) -> Section:
    columns = {
        "model": metric,
        "standardised": completed("supervised", FEW),
        "as they are": completed("plain", FEW),
        "norm": measured("norm"),
        "spread": measured("spread"),
    }
    end = f"The active party alone: {formatted(results.mean((HALVES.group, UNDEFENDED), alone))}."
    rows = table("defence", results.conditions(HALVES.group), results.columns(columns))
    return Section("The attacker of completion", (_ATTACKER, ClaimsTable(tuple(attacker_claims(results))), end, rows))


def _members(results: Results) -> Section:
    columns = {"accuracy": metric, "members recognised": attacked("membership", "accuracy")}
    rows = table("setting", results.conditions(FEWER), results.columns(columns))
    return Section("Rows that are remembered", (_MEMBERS, ClaimsTable(tuple(members_claims(results))), rows))


def _masked(results: Results) -> Section:
    columns = {
        "accuracy": metric,
        "class share": measured("class_share"),
        "purity": measured("last_purity"),
        "above threshold": measured("last_kept_purity"),
        "kept": measured("last_kept"),
    }
    rows = table("setting", results.conditions(MASKED), results.columns(columns))
    return Section("Rows of no clear cluster", (_MASKED, ClaimsTable(tuple(masked_claims(results))), rows))


def _heads(results: Results) -> Section:
    columns = {"before": before(), "after": DEPARTURE.after()}
    rows = table("setting", results.conditions(LEFT.group), results.columns(columns))
    claims = heads_claims(results, LEFT.group, LEFT.group, DEPARTURE, PAPER["CIFAR-100 halves"], own=True)
    return Section("Further heads by SGD", (_HEADS, ClaimsTable(tuple(claims)), rows))


def _leaks(results: Results, group: str) -> Table:
    """The undefended training and those with the term."""
    columns = {
        "test AUC": results.column(metric),
        "lost (paired)": results.loss_column(),
        **results.columns({"cut leak": CUT, "cut leak, last epoch": LAST, "gradient leak": GRADIENT}),
    }
    terms = (UNDEFENDED, *(dcor_setting(alpha, BEST) for alpha in ALPHAS))
    return table("defence", results.conditions(group, terms), columns)
