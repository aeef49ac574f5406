"""The page of the forward-leakage study: claims, tables and figures from its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from studies.base import table
from studies.claims import Place, Runs, claims_table, layer_leak, leak, metric, shown, verdicts
from studies.figures import Dot, Dots, plot
from studies.forward_claims import (
    ALPHA,
    CUT,
    FIGURE_2,
    GRADIENT,
    PAPER_COST,
    PAPER_PAIRS,
    Forms,
    ForwardClaims,
    family,
)

NAMES = {"tradeoff": "forward-leakage-tradeoff.svg", "layers": "forward-leakage-layers.svg"}
NAMES |= {"cost": "forward-leakage-cost.svg", "forms": "forward-leakage-forms.svg"}


class ForwardPage:
    """What the results say."""

    def __init__(self, runs: Runs, forms: Forms) -> None:
        self.runs, self.forms = runs, forms

    def text(self) -> str:
        """The body of the page."""
        claims = ForwardClaims(self.runs, self.forms).all()
        parts = [
            verdicts(claims),
            claims_table(claims),
            "## Leak against utility (figures 3 to 7)",
            _picture("tradeoff", "Cut leak against test AUC of every defence"),
            "Leak columns: max(AUC, 1 - AUC) of the spectral attack, at the worst epoch of each run unless said. The "
            "gradient column is of the attack on what the active party sends back.",
            *(self._group(group) for group in ("Criteo", "Criteo, 1 top layer", *PAPER_PAIRS)),
            "## Every layer (figure 2)",
            _picture("layers", "Leak of every layer, undefended and defended"),
            self._layers(),
            "## Forms of the distance correlation term at alpha 0.03",
            "The paper's form is alpha log dCor from the first step. `floor` is added inside the logarithm; `ramp` "
            "lets alpha grow over as many epochs; `start` leaves the first epochs open, and what leaks then "
            "has leaked.",
            _picture("forms", "Worst-epoch cut leak and test AUC of each form"),
            self._forms(),
            "## Cost of privacy with one and three top layers (table 1)",
            _picture("cost", "Test AUC by alpha with one and three top layers"),
            self._costs(),
        ]
        return "\n\n".join(part for part in parts if part)

    def figures(self) -> dict[str, str]:
        """The page's figures."""
        return {
            NAMES["tradeoff"]: self._tradeoff_figure(),
            NAMES["layers"]: self._layers_figure(),
            NAMES["forms"]: self._forms_figure(),
            NAMES["cost"]: self._cost_figure(),
        }

    def _group(self, group: str) -> str:
        rows = [
            [
                setting,
                *(shown(self.runs.mean((group, setting), value)) for value in (metric,)),
                shown(self.runs.loss((group, setting))) if setting != "undefended" else "–",
                *(
                    shown(self.runs.mean((group, setting), value))
                    for value in (CUT, leak("embedding/spectral", "last"), GRADIENT)
                ),
            ]
            for setting in self.runs.settings(group)
        ]
        head = ["defence", "test AUC", "lost (paired)", "cut leak", "cut leak, last epoch", "gradient leak"]
        return f"### {group}\n\n{table(head, rows)}" if rows else ""

    def _layer_names(self) -> list[str]:
        """All layers from the input to the output: the publisher's come first."""
        names = dict.fromkeys(
            layer for setting in FIGURE_2 for one in self.runs.all(("Criteo", setting)) for layer in one.layers
        )
        return sorted(names, key=lambda name: name.startswith("advertiser/"))

    def _layers(self) -> str:
        settings = [setting for setting in self._shown_layers() if self.runs.all(("Criteo", setting))]
        rows = [
            [f"`{layer}`", *(shown(self.runs.mean(("Criteo", setting), layer_leak(layer))) for setting in settings)]
            for layer in self._layer_names()
        ]
        return table(["layer", *settings], rows) if rows else ""

    def _shown_layers(self) -> tuple[str, ...]:
        return (*FIGURE_2, self.forms.best(ALPHA))

    def _forms(self) -> str:
        place: Callable[[str], Place] = lambda setting: ("Criteo", setting)  # noqa: E731
        rows = [
            [
                setting.partition(", ")[2],
                shown(self.runs.mean(place(setting), CUT)),
                shown(self.runs.mean(place(setting), leak("embedding/spectral", "last"))),
                shown(self.runs.mean(place(setting), metric)),
                shown(self.runs.loss(place(setting))),
            ]
            for setting in self.forms.others
        ]
        return table(["form", "cut leak, worst epoch", "cut leak, last epoch", "test AUC", "lost (paired)"], rows)

    def _costs(self) -> str:
        rows = []
        for alpha in PAPER_COST["Criteo"]:
            ours = [shown(self.runs.loss((group, self.forms.best(alpha)))) for group in PAPER_COST]
            tests = [shown(self.runs.mean((group, self.forms.best(alpha)), metric)) for group in PAPER_COST]
            rows.append([f"{alpha:g}", *(f"{PAPER_COST[group][alpha]:.4f}" for group in PAPER_COST), *tests, *ours])
        head = ["alpha", "paper, 1 layer", "paper, 3 layers", "here, 1 layer", "here, 3 layers"]
        return table([*head, "lost, 1 layer", "lost, 3 layers"], rows)

    def _tradeoff_figure(self) -> str:
        together = [setting for setting in self.runs.settings("Criteo") if " + " in setting]
        families: Mapping[str, Sequence[str]] = {
            "undefended": ["undefended"],
            "Marvell, s 1 to 16": family(self.runs, "marvell s"),
            "label DP, eps 0.5 to 4": family(self.runs, "label_dp eps"),
            f"dCor with a floor, alpha {min(self.forms.alphas):g} to {max(self.forms.alphas):g}": [
                self.forms.best(a) for a in self.forms.alphas
            ],
            "dCor, the paper's form": [self.forms.paper(alpha) for alpha in (0.005, 0.03)],
            "dCor with Marvell or label DP": together,
        }
        series = [
            Dots(name, self._dots(settings), name != "dCor with Marvell or label DP")
            for name, settings in families.items()
        ]
        return plot(series, ("test AUC", "cut leak AUC, worst epoch"), "Cut leak against test AUC on Criteo", 0.5)

    def _dots(self, settings: Sequence[str]) -> tuple[Dot, ...]:
        pairs = [(s, self.runs.mean(("Criteo", s), metric), self.runs.mean(("Criteo", s), CUT)) for s in settings]
        return tuple(Dot(x.value, y.value, x.half, y.half, s) for s, x, y in pairs if x and y)

    def _layers_figure(self) -> str:
        layers = self._layer_names()
        series = []
        for setting in self._shown_layers():
            means = [self.runs.mean(("Criteo", setting), layer_leak(layer)) for layer in layers]
            dots = tuple(
                Dot(place, mean.value, None, mean.half, layers[place]) for place, mean in enumerate(means) if mean
            )
            series.append(Dots(setting, dots))
        names = [layer.partition("/")[2] for layer in layers]
        return plot(series, ("layer", "leak AUC, worst epoch"), "Leak of every layer on Criteo", 0.5, names)

    def _forms_figure(self) -> str:
        places = list(enumerate(self.forms.others))
        means = [
            [(place, self.runs.mean(("Criteo", form), value)) for place, form in places] for value in (CUT, metric)
        ]
        dots = [
            tuple(Dot(place, m.value, None, m.half, self.forms.others[place]) for place, m in one if m) for one in means
        ]
        series = [
            Dots(name, found, joined=False)
            for name, found in zip(("cut leak, worst epoch", "test AUC"), dots, strict=True)
        ]
        names = [form.partition(", ")[2] for form in self.forms.others]
        return plot(series, ("form", "AUC"), "Forms of the term at alpha 0.03", 0.5, names)

    def _cost_figure(self) -> str:
        names = {"Criteo, 1 top layer": "1 top layer", "Criteo": "3 top layers"}
        series = []
        for group, paper in PAPER_COST.items():
            means = [(alpha, self.runs.mean((group, self.forms.best(alpha)), metric)) for alpha in paper]
            dots = tuple(Dot(alpha, mean.value, None, mean.half, f"alpha {alpha:g}") for alpha, mean in means if mean)
            series.append(Dots(f"here, {names[group]}", dots))
            told = tuple(Dot(alpha, value, tip=f"alpha {alpha:g}") for alpha, value in paper.items())
            series.append(Dots(f"the paper, {names[group]}", told))
        return plot(series, ("alpha", "test AUC"), "Test AUC by alpha with one and three top layers")


def _picture(key: str, text: str) -> str:
    return f"![{text}](figures/{NAMES[key]})"
