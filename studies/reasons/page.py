"""The page of the study of reasons: a section for each reason."""

from __future__ import annotations

from studies.forward_leakage.claims import CUT
from studies.model_completion.attacks import FEW
from studies.model_completion.claims import alone, completed
from studies.page import Block, ClaimsTable, Page, Section, Table, table
from studies.reasons.claims import attacker_claims, depth_claims, held_out_claims, noise_claims, steps_claims
from studies.reasons.settings import HALVES, HELD_OUT, SHALLOW, STEPS
from studies.results import UNDEFENDED, Results, formatted, leak, measured, metric

_HELD_OUT = (
    "In [label leakage from forward embeddings](forward-leakage.md) the undefended leak is up to 0.15 above the test "
    "AUC, where the paper has it bounded by that. *Suspected reason*: the leak is measured on the rows that were "
    "trained on, as in the paper, and with so few rows the model fits these better than others. *Control*: the same "
    "attack on the embeddings of the test rows, and on as many training rows, both as one batch and by the weights of "
    "the best epoch, beside the AUC of the model on the same rows."
)
_STEPS = (
    "In [label leakage from forward embeddings](forward-leakage.md) distance correlation at alpha 0.03 does not hide "
    "the labels of Avazu, and costs 0.055 of test AUC. *Suspected reason*: 132 optimiser steps are too few; the paper "
    "has 1,500 to 15,000. *Control*: ten times the steps."
)
_NOISE = (
    "In [label leakage from gradients](gradient-leakage.md) Marvell's noise costs two to three times what the report "
    "has. *Suspected reason*: few rows, or few steps over which noise averages out. That page has three sizes, with "
    "14,000 to 117,000 training rows, and no difference between their costs. *Control* here: ten times the steps."
)
_DEPTH = (
    "In [label leakage from forward embeddings](forward-leakage.md) three top layers lose no less test AUC than one. "
    "*Suspected reason*: at these weights the form with a floor costs nothing, so that nothing can be saved. "
    "*Control*: Avazu with ten times the steps, at a weight that costs more."
)
_ATTACKER = (
    "In [model completion by a departed party](model-completion.md) no weight of DIMIP brings the attack near chance "
    "and keeps what the party adds. *Suspected reason*: the attacker standardises the columns of the embedding, so "
    "that it reads one that has all but collapsed; that of the paper does not. *Control*: the same heads on the "
    "columns as they are. Both are supervised, by the best of the heads."
)
_ELSEWHERE = Table(
    ("claims", "suspected reason", "tested in"),
    (
        (
            "private embeddings: rescaling and both terms together are no gain; no room for rescaling",
            "linear cut, C 1 and a high learning rate fill the ball",
            "[the bound C](clip-bound.md): with a ReLU, C 10 and a low rate there is room and a gain on the digits",
        ),
        (
            "distance correlation at small weights, and in the paper's form",
            "few optimiser steps",
            "[label leakage from forward embeddings](forward-leakage.md), group with batch 1024",
        ),
        (
            "DIMIP hides and keeps what the party adds",
            "no normalisation below the cut, so that norms run away",
            "[model completion](model-completion.md), networks with batch and group normalisation",
        ),
        (
            "distances between embeddings are close to a normal",
            "none: it is a property of the embeddings, which are measured as they are",
            "[private embeddings as published](feature-privacy.md)",
        ),
        (
            "completion with 40 labels of each class on MNIST ends near training on all labels",
            "the paper's figure is of another data set",
            "not tested",
        ),
        ("membership under `full` below 0.5523", "fewer rows than in the paper", "not tested"),
    ),
)


def reasons_page(results: Results) -> Page:
    """A section for each reason, then those that were tested elsewhere."""
    base = (HALVES.group, UNDEFENDED)
    rows = {f"{group}": (group, UNDEFENDED) for group in HELD_OUT if results.settings(group)}
    columns = {
        "AUC, test rows": measured("test_auc"),
        "leak, test rows": measured("test_leak"),
        "AUC, training rows": measured("train_auc"),
        "leak, training rows": measured("train_leak"),
    }
    completions = {
        "model": metric,
        "standardised": completed("supervised", FEW),
        "as they are": completed("plain", FEW),
        "norm": measured("norm"),
        "spread": measured("spread"),
    }
    end = f"The active party alone: {formatted(results.mean(base, alone))}."
    return Page(
        (
            Section(
                "The leak is above the test AUC",
                (_HELD_OUT, ClaimsTable(tuple(held_out_claims(results))), table("", rows, results.columns(columns))),
            ),
            Section(
                "Distance correlation on Avazu",
                (_STEPS, ClaimsTable(tuple(steps_claims(results))), _steps(results, STEPS)),
            ),
            Section("The costs of Marvell's noise", (_NOISE, ClaimsTable(tuple(noise_claims(results))))),
            Section(
                "One and three top layers",
                (_DEPTH, ClaimsTable(tuple(depth_claims(results))), _steps(results, SHALLOW)),
            ),
            Section(
                "The attacker of completion",
                (
                    _ATTACKER,
                    ClaimsTable(tuple(attacker_claims(results))),
                    end,
                    table("defence", results.conditions(HALVES.group), results.columns(completions)),
                ),
            ),
            Section("Reasons tested in other studies, and not tested", (_ELSEWHERE,)),
        )
    )


def _steps(results: Results, group: str) -> Block:
    leaks = {
        "cut leak": CUT,
        "gradient leak": leak("gradient/spectral"),
    }
    columns = {
        "test AUC": results.column(metric),
        "lost (paired)": results.loss_column(),
        **results.columns(leaks),
    }
    return table("defence", results.conditions(group), columns)
