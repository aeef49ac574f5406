"""Mutation operators that Cosmic Ray lacks: a statement left out, a call left out, a label used twice.

They have the interface of `cosmic_ray.operators.operator.Operator` and work on parso trees.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Protocol

import parso

Position = tuple[tuple[int, int], tuple[int, int]]


class Operator(Protocol):
    """What Cosmic Ray asks of a mutation operator."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        """Start and end (line, column) of each mutation of this node alone."""

    def mutate(self, node: Any, index: int) -> Any:
        """The node that takes its place."""


_CONVERSIONS = frozenset({"bool", "bytes", "cast", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple"})
"""Calls that change the type of a value: without them little else changes."""

_MODULES = frozenset({"math", "np", "os", "self", "super", "torch"})
"""Names before a dot that are no value to leave alone."""


class DeleteStatement:
    """Leave out a call whose result is not used, an assignment to an attribute or an item, or an augmented one."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        """The whole statement, if leaving it out leaves valid code."""
        if node.type == "expr_stmt":
            target, operation = node.children[0], node.children[1]
            if target.type in {"atom_expr", "power"} or (operation.type == "operator" and operation.value != "="):
                yield node.start_pos, node.end_pos
        elif node.type in {"atom_expr", "power"} and getattr(node.parent, "type", "") == "simple_stmt":
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """The statement `pass`, with the comment and the white space before it."""
        return parso.parse(node.get_first_leaf().prefix + "pass")  # type: ignore[no-untyped-call,unused-ignore]


class OmitCall:
    """Leave out a call: `clip(rows, bound)` becomes `rows`, and `rows.mul(2)` becomes `rows`."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        """Each expression that ends with a call of a method, or that is a call of a function with an argument."""
        if node.type in {"atom_expr", "power"} and self._without_call(node) is not None:
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """The receiver of the last method, or the first argument of the function, in parentheses."""
        code = self._without_call(node)
        return parso.parse(f"{node.get_first_leaf().prefix}({code})")  # type: ignore[no-untyped-call,unused-ignore]

    @staticmethod
    def _without_call(node: Any) -> str | None:
        *before, last = node.children
        if last.type != "trailer" or last.children[0].value != "(" or getattr(node.parent, "type", "") == "simple_stmt":
            return None
        if len(before) > 1 and before[-1].type == "trailer" and before[-1].children[0].value == ".":
            receiver = "".join(child.get_code() for child in before[:-1]).strip()
            if receiver not in _MODULES:
                return receiver
        if before[0].type == "name" and before[0].value in _CONVERSIONS:
            return None
        inside = last.children[1]
        first = inside.children[0] if inside.type == "arglist" else inside
        if first.type in {"argument", "operator"}:  # `**options`, `name=value`, or the closing parenthesis
            return None
        return str(first.get_code().strip())


class ShareLabel:
    """Use one bytes label for two purposes: each literal becomes the next distinct one of its module."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        """Each bytes literal of a module that has two different ones."""
        if self._next_label(node) is not None:
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """The same leaf with the other label."""
        changed = copy.copy(node)
        changed.value = self._next_label(node)
        return changed

    @staticmethod
    def _next_label(node: Any) -> str | None:
        if node.type != "string" or not node.value.startswith("b"):
            return None
        labels = list(dict.fromkeys(_bytes_literals(node.get_root_node())))
        following = labels[(labels.index(node.value) + 1) % len(labels)]
        return following if following != node.value else None


def _bytes_literals(node: Any) -> Iterator[str]:
    if node.type == "string" and node.value.startswith("b"):
        yield node.value
    for child in getattr(node, "children", ()):
        yield from _bytes_literals(child)
