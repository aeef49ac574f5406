"""The page of the adaptive-audit study."""

from __future__ import annotations

from collections.abc import Mapping

from studies.adaptive_audit.settings import LABEL_FREE, MORE_STEPS, PAST, READINGS, SETTINGS, Reading
from studies.claims import Claim, Verdict, above, below
from studies.page import ClaimsTable, Page, Section, Table, table
from studies.results import UNDEFENDED, Results, TrialResult, Value, formatted, metric

TOLERANCE = 0.02
"""How far the default audit may read below the outside code, and how much a repaired defence may cost or exceed."""
REPAIRED = (LABEL_FREE, *PAST)
HIDDEN = 0.55
"""A leak below this counts as hidden, as in the study of distance correlation."""


def adaptive_page(results: Results) -> Page:
    """Claims, then a table for each data set."""
    claims = [_claim(results, group, reading) for group, readings in READINGS.items() for reading in readings]
    for group, settings in SETTINGS.items():
        claims += [claim for name in settings if name in REPAIRED for claim in _repaired(results, group, name)]
        claims.append(_null(results, group))
    claims += [_hidden(results, setting) for setting in SETTINGS[MORE_STEPS] if setting != UNDEFENDED]
    sections = (Section("Claims", (ClaimsTable(tuple(claims)),)), _front(results))
    return Page((*sections, *(_group(results, group) for group in SETTINGS)))


def strongest(message: str) -> Value:
    """Leak of the strongest attack on a message of the judged party."""

    def value(result: TrialResult) -> float | None:
        cell = result.measured["strongest"].get(message)
        return None if cell is None else float(cell["leak"])

    return value


def with_labels(message: str, labels: int) -> Value:
    """Leak of a message to a classifier with so many labels."""

    def value(result: TrialResult) -> float | None:
        leak = result.measured["curves"].get(message, {}).get(str(labels))
        return None if leak is None else float(leak)

    return value


def worst(result: TrialResult) -> float | None:
    """Leak of the strongest attack on either message."""
    return max((cell["leak"] for cell in result.measured["strongest"].values()), default=None)


def excess(result: TrialResult) -> float | None:
    """The worst leak minus what the party's own columns reveal."""
    own, leak = result.measured.get("own_columns"), worst(result)
    return None if own is None or leak is None else leak - own


def own_columns(result: TrialResult) -> float | None:
    """What the party's own columns reveal."""
    own: float | None = result.measured.get("own_columns")
    return own


def chance(result: TrialResult) -> float | None:
    """The largest leak of the catalogue under permuted labels."""
    value: float | None = result.measured.get("chance")
    return value


def _claim(results: Results, group: str, reading: Reading) -> Claim:
    value = with_labels(reading.message, reading.labels) if reading.labels else strongest(reading.message)
    ours = results.mean((group, reading.setting), value)
    known = f" with {reading.labels} labels" if reading.labels else ""
    what = f"{group}, {reading.setting}, {reading.message}s{known}"
    text = f"{what}: the audit reads at most {TOLERANCE} less than the outside code"
    return Claim(text, f"{reading.leak:.3f}", formatted(ours), above(ours, reading.leak - TOLERANCE), own=True)


def _repaired(results: Results, group: str, setting: str) -> list[Claim]:
    beyond = results.mean((group, setting), excess)
    lost = results.difference((group, UNDEFENDED), (group, setting), metric)
    claims = (
        (f"{group}, {setting}: the leak exceeds the own columns by less than {TOLERANCE}", beyond),
        (f"{group}, {setting}: test AUC lost against undefended is below {TOLERANCE}", lost),
    )
    return [Claim(text, "–", formatted(value), below(value, TOLERANCE)) for text, value in claims]


def _hidden(results: Results, setting: str) -> Claim:
    """Whether distance correlation hides from all attacks what it hides from its own with more steps."""
    value = results.mean((MORE_STEPS, setting), strongest("embedding"))
    text = f"{MORE_STEPS}, {setting}: the audit reads less than {HIDDEN:g} of the embeddings"
    return Claim(text, "–", formatted(value), below(value, HIDDEN))


def _null(results: Results, group: str) -> Claim:
    values = results.mean((group, UNDEFENDED), chance)
    verdict: Verdict = below(values, 0.5 + TOLERANCE)
    return Claim(f"{group}: with permuted labels the catalogue reads less than 0.52", "–", formatted(values), verdict)


def front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Names of the points that no other equals or betters in both values, where less is better, by the first value.

    >>> front({"a": (0.0, 0.2), "b": (0.1, 0.1), "c": (0.1, 0.2)})
    ['a', 'b']
    """

    def beaten(own: tuple[float, float]) -> bool:
        return any(other != own and other[0] <= own[0] and other[1] <= own[1] for other in points.values())

    return sorted((name for name, own in points.items() if not beaten(own)), key=points.__getitem__)


def _front(results: Results) -> Section:
    """The settings of each data set that no other beats in both utility and leak."""
    rows = []
    for group in SETTINGS:
        found = {}
        for setting, condition in results.conditions(group).items():
            lost, beyond = results.difference((group, UNDEFENDED), condition, metric), results.mean(condition, excess)
            if lost is not None and beyond is not None:
                found[setting] = lost, beyond
        rounded = {name: (round(lost.value, 3), round(beyond.value, 3)) for name, (lost, beyond) in found.items()}
        rows += [(group, name, *map(formatted, found[name])) for name in front(rounded)]
    text = (
        "Utility against the adaptive leak: on each data set the settings that no other beats in both, by the mean "
        "over the seeds. The excess is that of the strongest attack on either message over the party's own columns; "
        "below 0, what was sent reveals less than the columns that it was computed from."
    )
    return Section("The front", (text, Table(("data", "defence", "test AUC lost", "excess"), tuple(rows))))


def _group(results: Results, group: str) -> Section:
    columns: dict[str, Value] = {
        "embedding": strongest("embedding"),
        "gradient": strongest("gradient"),
        "embedding, 20 labels": with_labels("embedding", 20),
        "own columns": own_columns,
        "excess": excess,
        "permuted": chance,
    }
    published = {
        "`spectral` on embeddings": lambda result: _published(result, "embedding/spectral"),
        "`norm` on gradients": lambda result: _published(result, "gradient/norm"),
    }
    return Section(
        group,
        (
            "`embedding` and `gradient`: leak of the strongest attack of the default catalogue on that message. "
            "`spectral` and `norm` are attacks that the defences were published against, at the worst party and epoch.",
            table(
                "defence",
                results.conditions(group),
                {
                    "test AUC": results.column(metric),
                    "lost (paired)": results.loss_column(),
                    **results.columns(published | columns),
                },
            ),
        ),
    )


def _published(result: TrialResult, key: str) -> float | None:
    auc = result.leaks[key]["auc"] if key in result.leaks else None
    return None if auc is None else max(auc, 1 - auc)
