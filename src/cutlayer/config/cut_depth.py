"""Where the network is cut: layers that move from the bottom models to the top model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Section = Mapping[str, Any]


def moved_cut(bottom: Section, top: Section, depth: int) -> tuple[Section, Section]:
    """The sections of the same network with the cut so many layers earlier.

    The last layers of every bottom model become the `towers` of the top model, which each embedding passes on its own
    before all are joined. The function is the same; the passive parties hold less of it.

    Args:
        bottom: Section of the bottom models: one, or one for each party, all of kind `mlp` or `auto`, which becomes
            `mlp`.
        top: Section of the top model, of kind `mlp`.
        depth: Number of layers that move, 1 or more; one is left below the cut.

    Raises:
        ValueError: The models are of another kind, differ in the layers that move, or have too few.

    Reference: arXiv 2603.18680 (2026), by its abstract: attacks on labels read how late layers align with them.

    >>> moved_cut({"kind": "mlp", "hidden": [64, 32]}, {"kind": "mlp", "hidden": [8]}, 1)
    ({'kind': 'mlp', 'hidden': [64]}, {'kind': 'mlp', 'hidden': [8], 'towers': [32]})
    """
    single = "kind" in bottom
    sections: Mapping[str, Section] = {"": bottom} if single else bottom
    if top.get("kind") != "mlp" or top.get("towers"):
        raise ValueError(
            f"cut_depth with a top model of kind mlp without towers, got {top.get('kind')}; write its towers"
        )
    moved, towers = {}, set()
    for name, section in sections.items():
        if not isinstance(section, Mapping):
            raise ValueError(f"cut_depth with a bottom model for each party, got {section!r}")
        if section.get("kind") == "auto":
            section = {**section, "kind": "mlp"}
        hidden = _movable(section, top, depth)
        moved[name] = {**section, "hidden": hidden[:-depth]}
        towers.add(tuple(hidden[-depth:]))
    if len(towers) > 1:
        raise ValueError(f"cut_depth with bottom models that end in the same {depth} widths, got different ones")
    return moved[""] if single else moved, {**top, "towers": list(towers.pop())}


def _movable(section: Section, top: Section, depth: int) -> list[int]:
    """Widths of the layers of a bottom model from which so many can be moved."""
    kind, activation, cut = (
        section.get(key, default) for key, default in (("kind", None), ("activation", "relu"), ("cut", "activated"))
    )
    if kind != "mlp" or cut != "activated":
        raise ValueError(f"cut_depth with bottom models of kind mlp and cut activated, got {kind}, {cut}; leave it out")
    if activation != top.get("activation", "relu"):
        raise ValueError("cut_depth with the same activation below and above the cut, got two; write the same in both")
    hidden = section.get("hidden", [64, 32])
    if not isinstance(hidden, list | tuple) or len(hidden) <= depth or not all(isinstance(w, int) for w in hidden):
        count = len(hidden) if isinstance(hidden, list | tuple) else 0
        raise ValueError(
            f"cut_depth below the {count} layers of the bottom model, got {depth}; at least one stays below the cut"
        )
    return list(hidden)
