"""The claims of Sun et al. 2022 about embeddings, judged by the results of the forward-leakage study."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from studies.claims import Claim, above, all_hold, below
from studies.results import UNDEFENDED, Condition, Results, formatted, layer_leak, leak, metric

CUT, GRADIENT, NORM = leak("embedding/spectral"), leak("gradient/spectral"), leak("gradient/norm")
HIDDEN, COST, LEARNED = 0.55, 0.01, 0.6
"""A leak AUC below this counts as hidden (the worst of twelve epochs of pure chance comes to about 0.52); a loss of
test AUC below this counts as small; a test AUC above the last one as having learned something."""
PAPER_COST = {
    "Criteo, 1 top layer": {0.003: 0.7769, 0.005: 0.7763, 0.02: 0.7528, 0.03: 0.7082, 0.04: 0.5848},
    "Criteo": {0.003: 0.7777, 0.005: 0.7773, 0.02: 0.7645, 0.03: 0.7518, 0.04: 0.7152},
}
"""Test AUC by alpha in table 1 of Sun et al. 2022; `Criteo` has three top layers."""
PAPER_PAIRS = {
    "Avazu": ("table 2", 0.7262, 0.7532, 0.5089, 0.7502),
    "Criteo, 45% positives": ("table 3", 0.7607, 0.7823, 0.5048, 0.7824),
    "Criteo, 49% positives": ("table 4", 0.7814, 0.7849, 0.5069, 0.7837),
    "Criteo, 50% positives": ("table 5", 0.7817, 0.7829, 0.5061, 0.7826),
}
"""Leak and test AUC, undefended and then at alpha 0.03, in tables 2 to 5."""
FIGURE_6 = (("marvell s 1", "marvell s 16"), ("label_dp eps 4", "label_dp eps 0.5"))
"""Weakest and strongest form of either defence of the gradients."""
FIGURE_2 = (UNDEFENDED, "marvell s 8", "label_dp eps 0.5")
COMBINED = "marvell s 8", "label_dp eps 2"
"""Defences of the gradients that the term is combined with."""
HEADLINE = (0.002, 0.003, 0.005)
"""Weights of the term for which the paper says that it hides the labels at hardly any cost."""
MORE_STEPS = "Criteo, batch 1024"
"""Group with ten times the steps."""
BOTH_ATTACKS = "Criteo, both attacks"
"""Group of figure 6: trainings of the defences of the gradients, whose gradients the norm attack reads too."""
LAYERS = "publisher/layers."
TOP_ENDS = "advertiser/top.layers.0", "advertiser/top.logits"
ALPHA = 0.03
"""Weight of the term in tables 2 to 5, and of all forms that are compared."""


@dataclass(frozen=True)
class Forms:
    """The forms of the distance correlation term that were run.

    Attributes:
        best: Name of the setting in the form with a floor, by alpha.
        paper: Name of the setting in the paper's form, by alpha.
        alphas: Weights of the trade-off between leak and utility.
        compared: Settings at alpha 0.03 that are compared with each other.
    """

    best: Callable[[float], str]
    paper: Callable[[float], str]
    alphas: Sequence[float]
    compared: Sequence[str]

    @property
    def figure_7(self) -> tuple[str, ...]:
        """Eight settings: a small and a large alpha, either defence of the gradients, and all pairs of these."""
        alone = self.best(0.005), self.best(ALPHA)
        return (*alone, *COMBINED, *(f"{term} + {defence}" for defence in COMBINED for term in alone))


class ForwardClaims:
    """Judges every claim of the paper.

    Args:
        results: Results of the study.
        forms: Forms of the term that were run.
    """

    def __init__(self, results: Results, forms: Forms) -> None:
        self.results, self.forms = results, forms
        self.settings = results.settings("Criteo")

    def all(self) -> tuple[Claim, ...]:
        """In the order of the paper's figures and tables."""
        return (
            *self._undefended(),
            *self._gradient_defences(),
            *self._figure_6(),
            *self._term(),
            *self._more_steps(),
            *self._combined(),
            self._above_the_cut(),
            *self._table_1(),
            *self._tables_2_to_5(),
        )

    def _undefended(self) -> list[Claim]:
        condition = ("Criteo", UNDEFENDED)
        gap = self.results.difference(condition, condition, CUT, metric)
        layers = {name for result in self.results.all(condition) for name in result.layers if name.startswith(LAYERS)}
        ends = [layer_leak(name) for name in (*sorted(layers)[-1:], *sorted(layers)[:1])]
        growth = self.results.difference(condition, condition, *ends) if ends else None
        leaked, reached = (formatted(self.results.mean(condition, value)) for value in (CUT, metric))
        return [
            Claim(
                "Undefended, the cut leaks what the model predicts: leak AUC at most 0.03 below the test AUC",
                "0.78 at 0.78",
                f"{leaked} at {reached}; difference {formatted(gap)}",
                above(gap, -0.03),
            ),
            *(self._bounded(group) for group in ("Criteo", *PAPER_PAIRS)),
            Claim(
                "Deeper layers leak more: the last layer more than the first",
                "figure 2",
                f"{formatted(growth)} more",
                above(growth, 0.0),
            ),
        ]

    def _bounded(self, group: str) -> Claim:
        condition = (group, UNDEFENDED)
        beyond = self.results.difference(condition, condition, CUT, metric)
        text = f"{group}, undefended: the leak is bounded by the test AUC, at most 0.01 above it"
        return Claim(text, "section 6.2, figure 3", f"{formatted(beyond)} above", below(beyond, 0.01))

    def _gradient_defences(self) -> list[Claim]:
        claims = []
        for setting in FIGURE_2[1:]:
            value = self.results.mean(("Criteo", setting), CUT)
            text = f"`{setting}` does not protect the embedding: cut leak above 0.6"
            claims.append(Claim(text, "about 0.75", formatted(value), above(value, 0.6)))
        cheap = [setting for setting in family(self.results, "marvell s", "label_dp eps") if self._cheap(setting)]
        values = {setting: self.results.mean(("Criteo", setting), CUT) for setting in cheap}
        lowest = min((value.value for value in values.values() if value), default=None)
        text = "No strength of Marvell or label DP that costs less than 0.02 of test AUC brings the cut leak below 0.6"
        ours = f"{len(cheap)} such strengths, least leak {lowest:.3f}" if lowest is not None else "no such strength"
        return [*claims, Claim(text, "figures 3, 6", ours, all_hold(above(value, 0.6) for value in values.values()))]

    def _figure_6(self) -> list[Claim]:
        """Whether the defences of the gradients protect these from either attack, where both were run."""
        claims, group = [], BOTH_ATTACKS
        for weak, strong in FIGURE_6 if self.results.settings(group) else ():
            for name, value in (("norm", NORM), ("spectral", GRADIENT)):
                left = self.results.mean((group, strong), value)
                fall = self.results.difference((group, weak), (group, strong), value)
                text = f"From `{weak}` to `{strong}` gradients leak less to the {name} attack"
                ours = f"{formatted(fall)} less, {formatted(left)} left"
                claims.append(Claim(text, "figure 6", ours, above(fall, 0.0), own=True))
        return claims

    def _term(self) -> list[Claim]:
        claims = []
        for name, form in (("paper's form", self.forms.paper), ("form with a floor", self.forms.best)):
            test, cut = (self.results.mean(("Criteo", form(ALPHA)), value) for value in (metric, CUT))
            claims += [
                Claim(
                    f"dCor at alpha 0.03 from the first step, {name}: trains (test AUC above {LEARNED:g})",
                    "0.7518",
                    formatted(test),
                    above(test, LEARNED),
                ),
                Claim(
                    f"dCor at alpha 0.03, {name}: hides the labels (cut leak below {HIDDEN:g}) of a model that trains",
                    "about 0.5 (figure 5a)",
                    f"leak {formatted(cut)} at a test AUC of {formatted(test)}",
                    all_hold((above(test, LEARNED), below(cut, HIDDEN))),
                ),
            ]
        for form in (self.forms.best, self.forms.paper):
            claims += [self._headline(("Criteo", form(a))) for a in HEADLINE if form(a) in self.settings]
        low, high = min(self.forms.alphas), max(self.forms.alphas)
        fall = self.results.difference(("Criteo", self.forms.best(low)), ("Criteo", self.forms.best(high)), CUT)
        text = f"A larger alpha hides more: cut leak falls from alpha {low:g} to {high:g}"
        return [*claims, Claim(text, "figure 5a", f"falls by {formatted(fall)}", above(fall, 0.0))]

    def _headline(self, condition: Condition, prefix: str = "") -> Claim:
        cut, lost = self.results.mean(condition, CUT), self.results.loss(condition)
        text = f"`{condition[1]}` hides the labels (cut leak below {HIDDEN:g}) and costs less than {COST:g} of test AUC"
        ours = f"leak {formatted(cut)}, {formatted(lost)} lost"
        verdict = all_hold((below(cut, HIDDEN), below(lost, COST)))
        return Claim(f"{prefix}{text}", "about 0.5 at no cost (figures 4a, b)", ours, verdict)

    def _more_steps(self) -> list[Claim]:
        """The same claims about the term where training takes as many steps as the paper's shortest."""
        run = self.results.settings(MORE_STEPS)
        names = [form(alpha) for form in (self.forms.best, self.forms.paper) for alpha in (*HEADLINE, ALPHA)]
        claims = [self._headline((MORE_STEPS, name), f"{MORE_STEPS}: ") for name in names if name in run]
        noisy = COMBINED[0]
        if noisy in run:
            claims.append(self._beside(MORE_STEPS, noisy, f"{MORE_STEPS}: combined with `{noisy}`"))
        return [self._bounded(MORE_STEPS), *claims] if run else []

    def _combined(self) -> list[Claim]:
        claims = []
        for defence in COMBINED:
            alone, both = ("Criteo", self.forms.best(ALPHA)), ("Criteo", f"{self.forms.best(ALPHA)} + {defence}")
            cut, gradient = (self.results.mean(both, value) for value in (CUT, GRADIENT))
            change = self.results.difference(alone, both, GRADIENT)
            paper, prefix = "figures 4c, d; 5c, d; 7", f"Combined with `{defence}`"
            less = f"{formatted(gradient)}, {formatted(change)} less"
            claims += [
                Claim(f"{prefix}: cut leak below {HIDDEN:g}", paper, formatted(cut), below(cut, HIDDEN)),
                Claim(f"{prefix}: gradients leak less than under dCor alone", paper, less, above(change, 0.0)),
                self._beside("Criteo", defence, prefix),
            ]
        return claims

    def _beside(self, group: str, defence: str, prefix: str) -> Claim:
        """What the term costs beside a defence of the gradients."""
        lost = self.results.difference((group, defence), (group, f"{self.forms.best(ALPHA)} + {defence}"), metric)
        text = f"{prefix}: costs less than {COST:g} of test AUC beyond that defence"
        return Claim(text, "figures 5c, d", formatted(lost), below(lost, COST))

    def _above_the_cut(self) -> Claim:
        condition, (first, last) = ("Criteo", self.forms.best(ALPHA)), TOP_ENDS
        growth = self.results.difference(condition, condition, layer_leak(last), layer_leak(first))
        text = "dCor at alpha 0.03: above the cut the leak returns layer by layer, more at the logits than in the first"
        return Claim(f"{text} top layer", "figure 7", f"{formatted(growth)} more", above(growth, 0.0))

    def _table_1(self) -> list[Claim]:
        three, single = PAPER_COST["Criteo"], PAPER_COST["Criteo, 1 top layer"]
        claims = []
        for alpha, paper in three.items():
            setting = self.forms.best(alpha)
            saved = self.results.difference(("Criteo", setting), ("Criteo, 1 top layer", setting), metric)
            theirs = paper - single[alpha]
            text = f"Three top layers have a higher test AUC than one at alpha {alpha:g}, by half of what the paper has"
            claims.append(Claim(text, f"+{theirs:.4f}", formatted(saved), above(saved, theirs / 2)))
        return claims

    def _tables_2_to_5(self) -> list[Claim]:
        claims = []
        for group, (source, leak_0, test_0, leak_1, test_1) in PAPER_PAIRS.items():
            condition = (group, self.forms.best(ALPHA))
            cut, lost = self.results.mean(condition, CUT), self.results.loss(condition)
            undefended = self.results.mean((group, UNDEFENDED), CUT)
            claims += [
                Claim(
                    f"{group}: dCor at alpha 0.03 brings the cut leak below {HIDDEN:g} ({source})",
                    f"{leak_0:.4f} to {leak_1:.4f}",
                    f"{formatted(undefended)} to {formatted(cut)}",
                    below(cut, HIDDEN),
                ),
                Claim(
                    f"{group}: and costs less than {COST:g} of test AUC ({source})",
                    f"{test_0 - test_1:.4f}",
                    formatted(lost),
                    below(lost, COST),
                ),
            ]
        return claims

    def _cheap(self, setting: str) -> bool:
        lost = self.results.loss(("Criteo", setting))
        return lost is not None and lost.value < 0.02


def family(results: Results, *heads: str) -> list[str]:
    """Criteo's settings of one defence alone, in the order they were run."""
    return [name for name in results.settings("Criteo") if name.startswith(heads) and " + " not in name]
