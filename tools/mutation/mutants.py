"""The mutants of a module: which there are, where they are, and the source of each."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.ast.ast_query import ASTQuery
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_item import MutationSpec, WorkItem

from tools.mutation.operators import DeleteStatement, OmitCall, Operator, ShareLabel

_REPLACEMENTS = {
    "Binary": (
        "Add_Sub Sub_Add Mul_Div Div_Mul FloorDiv_Mul Mod_Mul Pow_Mul "
        "RShift_LShift LShift_RShift BitOr_BitAnd BitAnd_BitOr BitXor_BitAnd"
    ),
    "Comparison": "Eq_NotEq NotEq_Eq Lt_LtE LtE_Lt Gt_GtE GtE_Gt Lt_GtE Gt_LtE Is_IsNot IsNot_Is",
    "Unary": "USub_UAdd Delete_Invert Delete_Not",
}
# Of the many replacements of an operator, one or two: the rest die of the same tests.
_COSMIC_RAY = (
    "AddNot",
    "NumberReplacer",
    "ReplaceAndWithOr",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ReplaceFalseWithTrue",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ZeroIterationForLoop",
    *(f"Replace{kind}Operator_{pair}" for kind, pairs in _REPLACEMENTS.items() for pair in pairs.split()),
)
_OWN: dict[str, type[Operator]] = {
    "DeleteStatement": DeleteStatement,
    "OmitCall": OmitCall,
    "ShareLabel": ShareLabel,
}


@cache
def operators() -> dict[str, Operator]:
    """All mutation operators by name."""
    theirs = {f"core/{name}": get_operator(f"core/{name}")() for name in _COSMIC_RAY}
    return theirs | {f"own/{name}": operator() for name, operator in _OWN.items()}


def work_items(path: str, source: str) -> Iterator[WorkItem]:
    """Every mutant of a module, in the order of its lines.

    The id of a mutant is a digest of the module and the mutation: results outlive changes of other modules, and not
    those of their own.

    Args:
        path: of the module, relative to the root of the repository.
        source: of the module.
    """
    nodes = list(ast_nodes(get_ast(source)))
    specs = []
    for name, operator in operators().items():
        positions = ((node, *ends) for node in nodes for ends in operator.mutation_positions(node))
        for occurrence, (node, start, end) in enumerate(positions):
            specs.append(
                MutationSpec(path, name, occurrence, start, end, definition_name=ASTQuery(node).get_definition_name())
            )
    digest = hashlib.sha256(source.encode()).hexdigest()
    for spec in sorted(specs, key=lambda spec: (spec.start_pos, spec.operator_name, spec.occurrence)):
        identity = f"{path}\n{digest}\n{spec.operator_name}\n{spec.occurrence}\n{spec.start_pos}\n{spec.end_pos}"
        yield WorkItem.single(hashlib.sha256(identity.encode()).hexdigest()[:32], spec)


def mutated(source: str, spec: MutationSpec) -> str | None:
    """Source of the mutant; `None` if there is no such mutation."""
    changed: str | None = mutate_code(source, operators()[spec.operator_name], spec.occurrence)
    return changed


@dataclass(frozen=True)
class Statement:
    """Where a mutation lies.

    Attributes:
        lines: numbers of the lines of the statement, or of its head where it has a body.
        on_import: whether the statement runs when the module is imported, outside of every function.
    """

    lines: frozenset[int]
    on_import: bool


def statement_at(source: str, line: int) -> Statement:
    """The innermost statement that holds a line of a module."""
    lines, on_import = frozenset({line}), True
    pending: list[tuple[ast.AST, bool]] = [(ast.parse(source), True)]
    while pending:
        node, outside = pending.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt) and child.lineno <= line <= (child.end_lineno or child.lineno):
                body = getattr(child, "body", None)
                last = body[0].lineno - 1 if body else child.end_lineno or child.lineno
                if child.lineno <= line <= last:
                    lines, on_import = frozenset(range(child.lineno, last + 1)), outside
            is_function = isinstance(child, ast.FunctionDef | ast.Lambda)
            pending.append((child, outside and not is_function))
    return Statement(lines, on_import)


def sources(root: Path, patterns: tuple[str, ...]) -> dict[str, str]:
    """Path, relative to the root, and source of every module that a pattern names."""
    paths = sorted({path for pattern in patterns for path in root.glob(pattern) if path.name != "__init__.py"})
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}
