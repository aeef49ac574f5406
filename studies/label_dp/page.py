"""The page of the label-dp study: what eps costs, what still leaks, and what redrawing would cost."""

from __future__ import annotations

from studies.charts import Chart, series_over
from studies.label_dp.claims import (
    ATTACKS,
    DECAYED,
    EACH_EPOCH,
    EPOCHS,
    EPS,
    GROUPS,
    LEARNING,
    ONCE,
    REDRAWN_EPS,
    STAGED,
    label_dp_claims,
    learning,
    redrawn,
)
from studies.page import ClaimsTable, Page, Section, Table, file_name, table
from studies.results import UNDEFENDED, Condition, Results, SeedMean, Value, formatted, leak, measured, metric
from studies.trials import ASSIGNED

_LEAKS = (
    "Leak columns: max(AUC, 1 - AUC), for the passive party that learns most, at its worst epoch. With several "
    "classes the spectral attack computes clusters and assigns them to classes by their size, which is uninformative "
    "if all classes have the same size. The *best assignment* is the assignment that fits the true labels best in each "
    "batch, at the same epoch, as for an attacker who knows a row of each class. It fits chance too: at eps 0.1, where "
    "gradients reveal almost nothing, it is above 0.5."
)
_LEARNING = (
    "The corrected loss is the likelihood of the drawn labels, so that probabilities are those of the true labels. The "
    "labels are drawn as before, and eps is the same. Log loss and AUC are of true labels. With the corrected loss a "
    "gradient's length grows with the predicted probability too, so that `norm` reads the drawn label and the "
    "prediction at once, as an attacker can with either loss who combines both."
)
_STAGES = (
    "Two-stage training (LP-2ST, Ghazi et al. 2021, algorithm 3) on all columns in one place: the first half of the "
    "rows has plain randomised response and trains a model; its predictions are the prior of the second half. There a "
    "label is drawn from its row's likely classes. Both halves then train a new model with the corrected loss. `right` "
    "is the share of drawn labels that are true, `classes` the mean number of likely classes in the second half. For "
    "two classes a prior cannot help: no eps-private draw of a binary label is more informative than randomised "
    "response (Kairouz, Oh and Viswanath 2015, arXiv 1311.0776), and where a class is surer than e^eps / (1 + e^eps), "
    "as the negatives of Criteo are at eps 1 by their share alone, RRWithPrior draws a constant."
)
_REDRAWING = (
    "A run draws each label once, and has no option to draw it again. So these trials train the same network on all "
    "columns in one place, without a cut, from the same weights and on the same batches, on labels drawn once or in "
    "every epoch. `right by vote` is the share of training labels that a majority vote over all draws recovers. The "
    "spectral columns attack the gradient that would have been sent, in the first epoch alone and with its guesses "
    "counted over all epochs."
)


def label_dp_page(results: Results) -> Page:
    """Claims, a section for each data set, and redrawing."""
    return Page(
        (
            Section(
                "",
                (
                    "The reference is the theory of the mechanism unless a source is named.",
                    ClaimsTable(label_dp_claims(results)),
                ),
            ),
            *(_group(results, group) for group in GROUPS),
            Section("Learning from drawn labels", (_LEARNING, *(_learning(results, group) for group in LEARNING))),
            Section("A prior from earlier rows", (_STAGES, _stages(results))),
            Section("What drawing again in every epoch would cost", (_REDRAWING, _redrawing(results))),
        )
    )


def _group(results: Results, group: str) -> Section:
    conditions = results.conditions(group)
    keys = sorted({key for own in conditions.values() for result in results.all(own) for key in result.leaks})
    columns = {
        GROUPS[group]: results.column(metric),
        "lost (paired)": results.loss_column(),
        **results.columns({key.replace("/", ", "): leak(key) for key in keys}),
    }
    return Section(group, (_chart(results, group), _LEAKS, table("setting", conditions, columns)))


def _chart(results: Results, group: str) -> Chart:
    settings = [*(f"eps {eps:g}" for eps in EPS), UNDEFENDED]
    attacks = [f"gradient/{attack}" for attack in ATTACKS] + ["embedding/spectral"]
    attacks += [f"{attack}, {ASSIGNED}" for attack in attacks]
    known = {key for setting in settings for result in results.all((group, setting)) for key in result.leaks}
    values: dict[str, Value] = {GROUPS[group]: metric}
    values |= {f"leak AUC, {key.replace('/', ', ')}": leak(key) for key in attacks if key in known}
    lines = [
        series_over(name, [results.mean((group, setting), value) for setting in settings], settings)
        for name, value in values.items()
    ]
    file, label = file_name("label-dp", group), f"Utility and leak by eps, {group}"
    return Chart(file, label, ("label DP", "metric, leak AUC"), tuple(lines), 0.5, settings)


def _learning(results: Results, group: str) -> Table:
    """A row for each way to learn from the drawn labels of a data set."""
    conditions = results.conditions(learning(group), LEARNING[group])
    leaks = {f"gradient, {attack}": leak(f"gradient/{attack}") for attack in ATTACKS if group == "Criteo"}
    columns = {
        GROUPS[group]: results.column(metric),
        "lost (paired)": results.loss_column(),
        "lost, same weight decay": lambda condition: _loss_at_equal_decay(results, condition),
        "log loss": results.column(measured("log_loss")),
        "constant prediction": results.column(measured("constant_log_loss")),
        **results.columns(leaks),
    }
    return table(group, conditions, columns)


def _loss_at_equal_decay(results: Results, condition: Condition) -> SeedMean | str | None:
    """Loss of test metric against the undefended training with the same weight decay."""
    if condition[1].startswith(UNDEFENDED):
        return "–"
    return results.loss(condition, f"{UNDEFENDED}, {DECAYED}" if DECAYED in condition[1] else UNDEFENDED)


def _stages(results: Results) -> Table:
    """A row for each eps and number of stages."""
    values = {"log loss": measured("log_loss"), "right": measured("right"), "classes": measured("classes")}
    columns = {GROUPS["handwritten"]: results.column(metric), **results.columns(values)}
    return table("setting", results.conditions(STAGED), columns)


def _redrawing(results: Results) -> Table:
    """A row for each data set, eps and way to draw."""
    values = {
        "right in one draw": measured("right_once"),
        "right by vote": measured("right_vote"),
        "spectral AUC, first epoch": measured("once_auc"),
        "spectral AUC, all epochs": measured("vote_auc"),
    }
    rows = []
    for group, eps, draws in [(g, e, d) for g in GROUPS for e in REDRAWN_EPS for d in (ONCE, EACH_EPOCH)]:
        condition = redrawn(group, eps, draws)
        spent = eps * (EPOCHS[group] if draws == EACH_EPOCH else 1)
        test, *others = (formatted(results.mean(condition, value)) for value in (metric, *values.values()))
        rows.append((group, f"{eps:g}", draws, test, f"{spent:g}", *others))
    return Table(("data", "eps of one draw", "labels", "test metric", "eps really spent", *values), tuple(rows))
