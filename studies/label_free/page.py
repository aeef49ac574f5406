"""The page of the label-free study: what a release that no label has a part in costs, and what it reveals."""

from __future__ import annotations

from studies.claims import Claim, below
from studies.label_free.settings import DATA, EPSILONS, LEARNING_CURVE, SMALL_BATCH, setting_of
from studies.page import ClaimsTable, Page, Section, table
from studies.results import UNDEFENDED, Results, formatted, leak, measured, metric

COST = 0.02
_COLUMNS = (
    "`probe` reads the embedding with the labels of 100 rows of each class: for a sketch that is what the party's own "
    "columns reveal to this attack. `spectral, gradient` is the label leak of the cut gradients without any label; "
    "parties that release once get none. The decoder (`inversion`) and `attribute` know 1,000 rows with their columns "
    "and read the embeddings of the party named in the heading: R² as the mean over its columns, and with each column "
    "weighted by its variance; AUC as the mean over the columns that can be asked about, and of the best. Leaks "
    "are measured on the first seed alone, those of features on Adult and Criteo. The party's columns include their "
    "quantiles only where a setting has them."
)
_CURVE = (
    "A bottom model that is trained end to end learns which categories matter, a sketch does not. The difference is "
    "test AUC of the sketch minus that of end-to-end training on the same rows, with the same batch size."
)


def label_free_page(results: Results) -> Page:
    """Claims, a section for each data set, and the learning curve."""
    return Page(
        (
            Section("", (ClaimsTable(_claims(results)), _COLUMNS)),
            *(_group(results, group) for group in DATA),
            _learning_curve(results),
        )
    )


def _claims(results: Results) -> tuple[Claim, ...]:
    claims = []
    for group, data in DATA.items():
        sketch = (group, setting_of(data.headline))
        cost = results.loss(sketch)
        text = f"{group}: a sketch of width {data.headline} costs less than {COST:g} of test AUC"
        claims.append(Claim(text, "–", formatted(cost), below(cost, COST)))
        private = (group, setting_of(data.headline, EPSILONS[0]))
        noisy = results.loss(private)
        text = f"{group}: with `dp_embedding` of epsilon {EPSILONS[0]:g} it costs less than {COST:g} too"
        claims.append(Claim(text, "–", formatted(noisy), below(noisy, COST)))
    return tuple(claims)


def _group(results: Results, group: str) -> Section:
    columns = {
        "test AUC": results.column(metric),
        "lost (paired)": results.loss_column(),
        "probe, embedding": results.column(leak("embedding/probe")),
        "spectral, gradient": results.column(leak("gradient/spectral")),
        "decoder R²": results.column(measured("r2")),
        "weighted": results.column(measured("weighted_r2")),
        "attribute AUC": results.column(measured("attribute")),
        "best column": results.column(measured("best_attribute")),
    }
    party = DATA[group].party
    title = f"{group}, features of {party}" if party else group
    return Section(title, (table("setting", results.conditions(group), columns),))


def _learning_curve(results: Results) -> Section:
    sketch = setting_of(DATA["Criteo"].headline)
    groups = {group: (group, sketch) for group in ("Criteo", *LEARNING_CURVE)}
    present = {group: condition for group, condition in groups.items() if results.all(condition)}
    columns = {
        SMALL_BATCH: lambda condition: results.mean((condition[0], SMALL_BATCH), metric),
        sketch: results.column(metric),
        "difference (paired)": lambda condition: results.difference(condition, (condition[0], SMALL_BATCH), metric),
        f"difference to {UNDEFENDED}": lambda condition: results.difference(
            condition, (condition[0], UNDEFENDED), metric
        ),
    }
    return Section("With fewer rows", (_CURVE, table("rows", present, columns)))
