"""Batch, group and no normalisation below the cut: their trainings, the claims about them, and their sections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from studies.claims import Claim, above, below
from studies.image_halves import ImageHalves
from studies.model_completion.attacks import FEW
from studies.model_completion.claims import alone, completed, dimip_setting
from studies.model_completion.weights import share_kept, some_weight_hides, weight_settings
from studies.page import ClaimsTable, Section, table
from studies.results import UNDEFENDED, Results, SeedMean, TrialResult, formatted, measured, metric

BATCH_NORM = ImageHalves(
    "MNIST halves, batch norm",
    "mnist/mnist.npz",
    {"kind": "resnet18", "channels": 16},
    epochs=2,
    batch=32,
    rows=3_000,
    test=0.4,
)
"""The paper's network with a quarter of its channels, on so few rows that a training takes less than a minute."""
GROUP_NORM = replace(
    BATCH_NORM,
    group="MNIST halves, group norm",
    bottom={"kind": "resnet18", "channels": 16, "norm": "group"},
)
"""The same where each row is normalised by itself: what differs from it is due to the batch, not to the size."""
NO_NORM = replace(
    BATCH_NORM,
    group="MNIST halves, no normalisation",
    bottom={"kind": "resnet18", "channels": 16, "norm": "none"},
)
"""The same with nothing that bounds the maps: what differs from both is due to normalisation, not to the network."""
NETWORKS = (BATCH_NORM, GROUP_NORM, NO_NORM)
LAMS = (0.1, 0.5)
"""A weight that hides most on MNIST without normalisation, and one of the paper's."""
CHANCE = 0.1
_RUNAWAY = 2.0
"""Times the undefended norm from which on a norm counts as having run away."""
_COMPARED = {
    GROUP_NORM.group: (BATCH_NORM.group, GROUP_NORM.group),
    NO_NORM.group: (BATCH_NORM.group, NO_NORM.group),
}
"""Networks that are compared, by the section that has the claims: the one that may reveal more first."""
_COLUMNS = {
    "model": metric,
    "after the departure": measured("after"),
    "passive, few, frozen": completed("honest", FEW, "frozen"),
    "supervised": completed("supervised", FEW),
    "not standardised": completed("plain", FEW),
    "norm": measured("norm"),
    "spread": measured("spread"),
}
_TEXT = (
    f"Bottom models `resnet18` of 16 channels; {BATCH_NORM.rows:,} rows of MNIST, {BATCH_NORM.test:.0%} of them for "
    f"testing, {BATCH_NORM.epochs} epochs of batch {BATCH_NORM.batch}, Adam 1e-3: some 110 steps, where the halves of "
    "MNIST above have 1,590. Completed with few labels on the frozen extractor, by the best of all variants. "
    "*Supervised*: by the best of those without unlabelled rows; *not standardised*: by the same with heads on the "
    "columns as they are, which are the paper's. The active attack was not run here."
)
_TEXTS = {
    BATCH_NORM.group: _TEXT,
    GROUP_NORM.group: "The same network with group normalisation, on the same rows.",
    NO_NORM.group: "The same network without normalisation, with biases in its place, on the same rows. It learns less "
    "in these steps, which leaves a completion less to read.",
}


def settings() -> dict[str, Mapping[str, Any]]:
    """Protections of each setting."""
    return weight_settings(LAMS)


def normalised_sections(results: Results) -> list[Section]:
    """Claims and table of each network whose trainings have results."""
    return [_section(results, halves.group) for halves in NETWORKS if results.settings(halves.group)]


def _section(results: Results, group: str) -> Section:
    lost = results.loss_column(blank="")
    columns = {name: results.column(value) for name, value in _COLUMNS.items()}
    rows = table(
        "defence",
        results.conditions(group),
        {**columns, "lost (paired)": lost, "gain kept": lambda own: share_kept(results, own)},
    )
    ends = f"The active party alone: {formatted(results.mean((group, UNDEFENDED), alone))}."
    compared = _compared(results, group)
    return Section(group, (_TEXTS[group], ClaimsTable((*_claims(results, group), *compared)), ends, rows))


def _compared(results: Results, group: str) -> list[Claim]:
    """Whether a completion attack gets more from one network than from another."""
    if group not in _COMPARED:
        return []
    more, less = _COMPARED[group]
    claims = []
    for setting in settings():
        gain = results.difference((more, setting), (less, setting), completed("honest", FEW, "frozen"))
        text = f"{setting}: completion gets more from {_short(more)} than from {_short(less)}"
        claims.append(Claim(text, "–", f"{formatted(gain)} more", above(gain, 0.0)))
    return claims


def _claims(results: Results, group: str) -> list[Claim]:
    base, name = (group, UNDEFENDED), _short(group)
    plain = results.difference(base, base, completed("supervised", FEW), completed("plain", FEW))
    return [
        _chance(results, group),
        *(_bounded(results, group, lam) for lam in LAMS),
        Claim(
            f"{name}: undefended, standardised columns help completion by less than 0.05",
            "–",
            f"{formatted(plain)} more",
            below(plain, 0.05),
        ),
    ]


def _short(group: str) -> str:
    """The name of a network's normalisation."""
    return group.partition(", ")[2]


def _chance(results: Results, group: str) -> Claim:
    about, how = f"{_short(group)}, passive attack", "completion on the frozen extractor with few labels"
    attack = completed("honest", FEW, "frozen")
    text, found, verdict = some_weight_hides(results, group, about, how, attack, LAMS, CHANCE)
    # Two weights cannot refute a claim about some weight, so it is not counted as the paper's.
    return Claim(text, "0.10 at 74% to 83%", found, verdict, own=True)


def _bounded(results: Results, group: str, lam: float) -> Claim:
    own, base = (group, dimip_setting(lam)), (group, UNDEFENDED)
    beyond: SeedMean | None = results.difference(own, base, measured("norm"), _largest)
    text = f"{_short(group)}: at lambda {lam:g} the embedding's norm stays below {_RUNAWAY:g} times the undefended one"
    norms = " against ".join(formatted(results.mean(condition, measured("norm"))) for condition in (own, base))
    return Claim(text, "–", norms, below(beyond, 0.0))


def _largest(undefended: TrialResult) -> float | None:
    norm = measured("norm")(undefended)
    return None if norm is None else _RUNAWAY * norm
