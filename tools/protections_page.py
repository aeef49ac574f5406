"""Write `docs/reference/protections.md` from the registered protections and the conformance table.

    python -m tools.protections_page

`tests/docs/test_protections_page.py` checks that the page is the one that this writes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from cutlayer.attacks import REGISTRY as ATTACKS
from cutlayer.protections import REGISTRY
from cutlayer.protections.base import Asset, Protection
from tests.conformance.table import PROTECTIONS

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "protections.md"
HEAD = """# All protections

One section for each protection that a job may name under `privacy`, generated from its class. *Tested against* lists
the strongest attacks that the conformance suite runs against it on a small data set. How to choose is on [a page of its
own](../how-to/which-protection.md); how leaks are measured on your data, on [concepts](../concepts.md).

![One training step: embeddings go from a passive party to the active one, cut gradients come back; protections act at
five places](../figures/step.svg)

`label_free` is a condition, not a protection: no message to a passive party may depend on a label. See [protect the
labels](../how-to/protect-labels.md).
"""
STARTS: Mapping[str, tuple[str, str]] = {
    "dcor": (
        "dcor: {alpha: 0.03}",
        "gradients are not changed: add a protection of gradients ([results](../results/forward-leakage.md))",
    ),
    "dimip": ("dimip: {lam: 0.3}", "costs most of what the party adds ([results](../results/model-completion.md))"),
    "discrete_sgd": ("discrete_sgd: {levels: 6}", "hides little ([results](../results/model-completion.md))"),
    "dp_bottom": (
        "dp_bottom: {clip: 1.0, noise_multiplier: 1.0}",
        "has a total only with `dp_embedding` ([protect features](../how-to/protect-features.md))",
    ),
    "dp_embedding": (
        "dp_embedding: {clip: 1.0, epsilon: 8.0, delta: 1.0e-5}",
        "a total budget is best spent on a single release ([results](../results/embedding-budget.md))",
    ),
    "gradient_compression": (
        "gradient_compression: {keep: 0.1}",
        "hides little ([results](../results/model-completion.md))",
    ),
    "iso_noise": ("iso_noise: {ratio: 4.0}", "noise in all directions ([results](../results/gradient-leakage.md))"),
    "label_dp": ("label_dp: {eps: 1.0}", "the only noise on labels with a theorem ([results](../results/label-dp.md))"),
    "marvell": (
        "marvell: {sum_kl: 0.16}",
        "both forms under attacks on the whole run: [results](../results/adaptive-audit.md)",
    ),
    "max_norm": ("max_norm:", "both forms under attacks on the whole run: [results](../results/adaptive-audit.md)"),
    "noisy_gradient": (
        "noisy_gradient: {scale: 0.01}",
        "measured against model completion ([results](../results/model-completion.md))",
    ),
    "nopeek": ("nopeek: {alpha: 0.1}", "a penalty bounds nothing ([how](../how-to/protect-features.md))"),
    "party_dropout": (
        "party_dropout: {rate: 0.1}",
        "costs little or nothing at low rates ([results](../results/departures.md))",
    ),
    "ppdl": (
        "ppdl: {theta: 0.001, scale: 1.0e-4, tau: 1.0e-3, gamma: 1.0e-3}",
        "measured against model completion ([results](../results/model-completion.md))",
    ),
}
"""Settings to start with, and a note, by protection."""
FEATURES = "attacks on features: [measure feature leakage](../how-to/audit-features.md)"


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(section(name, kind) for name, kind in sorted(REGISTRY.items()))])


def section(name: str, kind: type[Protection[Any]]) -> str:
    """One protection."""
    text = inspect.getdoc(kind) or ""
    does, _, rest = text.partition("\n\n")
    start, note = STARTS[name]
    facts = [
        ("acts at", f"the {kind.side} party, which it protects: {kind.protects}"),
        ("tasks", ", ".join(sorted(kind.tasks))),
        ("start with", f"`privacy: {{{start}}}`" if not start.endswith(":") else f"`privacy: {{{start} }}`"),
        ("note", note),
        ("tested against", tested(name, kind)),
        ("guarantee", joined(part(rest, "Guarantee"))),
        ("paper", kind.reference),
    ]
    lines = [f"## `{name}` {{#{name}}}", "", joined(does), "", "| property | value |", "|---|---|"]
    lines += [f"| {word} | {cell(value)} |" for word, value in facts]
    settings = list(options(kind))
    if settings:
        lines += ["", "| setting | default | meaning |", "|---|---|---|"]
        lines += [f"| `{key}` | {default} | {cell(meaning)} |" for key, default, meaning in settings]
    return "\n".join([*lines, ""])


def options(kind: type[Protection[Any]]) -> Iterator[tuple[str, str, str]]:
    """Name, default and meaning of each setting."""
    documented = attributes(inspect.getdoc(kind.config) or "")
    for key, field in kind.config.model_fields.items():
        yield key, shown(field, kind.name), documented.get(key, "")


def shown(field: FieldInfo, name: str) -> str:
    """The default of a setting as a job would write it."""
    if field.is_required():
        return "required"
    if field.default_factory is not None:
        return f"[see there](job.md#{name})"
    if field.default is None:
        return "none"
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def attributes(text: str) -> dict[str, str]:
    """The entries of a docstring's list of attributes."""
    listed = text.partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", listed, re.M | re.S)
    return {key: joined(meaning) for key, meaning in entries}


def tested(name: str, kind: type[Protection[Any]]) -> str:
    """What a protection is tested against; the suite has attacks on labels alone."""
    if kind.protects == Asset.FEATURES:
        return f"on labels: {', '.join(attacks(name))}; {FEATURES}"
    return ", ".join(attacks(name)) or "the loss of utility when a party leaves"


def attacks(name: str) -> list[str]:
    """The attacks of the conformance suite on a protection: the adaptive ones if there are any."""
    case = PROTECTIONS[name]
    named = [attack for attack, _, _ in case.adaptive] or [attack for attack, *_ in getattr(case, "lowers", ())]
    return [f"`{attack}`" for attack in dict.fromkeys(named) if attack in ATTACKS]


def part(text: str, word: str) -> str:
    """The paragraph of a docstring that begins with a word and a colon."""
    paragraph = re.search(rf"^{word}: (.*?)(?=\n\n|\Z)", text, re.M | re.S)
    return paragraph[1] if paragraph else ""


def joined(text: str) -> str:
    """A paragraph on one line."""
    return " ".join(text.split())


def cell(text: str) -> str:
    """Text that cannot end a cell of a table."""
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
