"""What is left of a model when parties leave: the `quitting` section of a run, and the references beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cutlayer.config import Job
from cutlayer.data.store import Store
from cutlayer.models.absence import Names
from cutlayer.parties.outcome import ActiveOutcome
from cutlayer.training.utility import interval

RETRAINED, FINETUNED = "retrained", "fine-tuned"


def quitting_facts(active: ActiveOutcome, seed: int) -> dict[str, Any]:
    """Utility of the finished model for every set of absent parties, nobody first, and what further heads cost."""
    rows = []
    for absent, logits in {(): active.logits, **active.without}.items():
        low, high = interval(active.task, logits, active.labels, seed)
        metrics = dict(active.task.evaluate(logits, active.labels)) if len(logits) else {}
        contributed = [name for name in active.widths if name not in absent]
        rows.append({"absent": list(absent), "contributed": contributed, "metrics": metrics, "low": low, "high": high})
    heads, parameters = len(active.extra_heads), sum(active.extra_heads)
    return {"heads": 1 + heads, "extra_parameters": parameters, "rows": rows}


def with_references(
    facts: Mapping[str, Any],
    twin: Mapping[str, Any] | None,
    references: Mapping[str, Mapping[str, Any]],
    metric: str,
    active: str,
) -> dict[str, Any]:
    """The section with what other models reach without the same parties, by the headline metric.

    Args:
        facts: of this run, from `quitting_facts`.
        twin: the same of its undefended twin.
        references: metrics of the references by name.
        metric: the headline metric.
        active: name of the active party.
    """
    undefended = {tuple(row["absent"]): row["metrics"].get(metric) for row in twin["rows"]} if twin else {}
    rows = []
    for row in facts["rows"]:
        absent = tuple(row["absent"])
        named = {
            RETRAINED: alone_name(active) if row["contributed"] == [active] else retrained_name(absent),
            FINETUNED: finetuned_name(absent),
        }
        beside = {how: references[name]["metrics"].get(metric) for how, name in named.items() if name in references}
        rows.append(
            {**row, "references": ({"undefended": undefended[absent]} if absent in undefended else {}) | beside}
        )
    return {**facts, "rows": rows}


def alone_name(active: str) -> str:
    """What the reference `alone` is called in the report."""
    return f"{active} alone"


def retrained_name(absent: Sequence[str]) -> str:
    """What the reference trained without some parties is called in the report."""
    return f"retrained without {', '.join(absent)}"


def finetuned_name(absent: Sequence[str]) -> str:
    """What the reference fine-tuned without some parties is called in the report."""
    return f"fine-tuned without {', '.join(absent)}"


def retrained_stores(job: Job, stores: Mapping[str, Store]) -> Iterator[tuple[str, dict[str, Store]]]:
    """Names and columns of the networks to train without each single passive party."""
    for name in job.passives:
        left = {other: store for other, store in stores.items() if other != name}
        if left:
            yield (alone_name(job.active) if [*left] == [job.active] else retrained_name([name])), left


def finetuned_sets(job: Job, stores: Mapping[str, Store]) -> Iterator[Names]:
    """Whose absence the top model is fine-tuned for: each single passive party, and all of them."""
    everyone = [(name,) for name in job.passives]
    for absent in dict.fromkeys([*everyone, job.passives]):
        if stores.keys() - set(absent):
            yield absent
