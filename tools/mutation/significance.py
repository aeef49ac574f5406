"""Which changes of the code a test should see: not those of texts for people, of annotations or of decorators."""

from __future__ import annotations

import ast

PROSE = frozenset({"metrics", "__repr__", "__str__"})
"""Functions that only describe."""

_ORDERINGS = frozenset({"__all__", "rank"})
"""Names whose exact values do not matter: ranks are ten apart, and only their order counts."""


def significant(before: str, after: str) -> bool:
    """Whether two versions of a module differ in more than what no test should depend on.

    Texts are left out of the comparison where people alone read them: docstrings, f-strings, the arguments of a raised
    error, calls of a logger or of `Field(description=...)`, and the bodies of `metrics`, `__repr__` and `__str__`.
    So are annotations, decorators, `__all__`, the ranks of protections, and what is imported for annotations only.

    Args:
        before: source of the module.
        after: source of its mutant.

    Returns:
        False also where `after` does not compile.
    """
    try:
        compile(after, "mutant", "exec")
    except (SyntaxError, ValueError):
        return False
    return _normal_form(before) != _normal_form(after)


def _normal_form(source: str) -> str:
    return ast.dump(_Normalised().visit(ast.parse(source)))


class _Normalised(ast.NodeTransformer):
    """Removes what no test should see."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """A function without decorators, annotations and docstring."""
        node.decorator_list, node.returns = [], None
        if node.name in PROSE:
            node.body = [ast.Pass()]
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        return self._without_docstring(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """A class without decorators and docstring."""
        node.decorator_list = []
        return self._without_docstring(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """An error without its arguments: the class alone."""
        raised = node.exc
        while isinstance(raised, ast.Call | ast.Attribute):
            raised = raised.func if isinstance(raised, ast.Call) else raised.value
        return ast.copy_location(ast.Raise(raised, None), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """An assignment without its annotation."""
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """An assignment, unless it lists the public names or sets a rank."""
        if any(isinstance(target, ast.Name) and target.id in _ORDERINGS for target in node.targets):
            return ast.Pass()
        return self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """An f-string as an empty text."""
        return ast.Constant("")

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A call, without arguments where it writes to a log or makes an error, and without a field's description."""
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = getattr(getattr(node.func, "value", None), "id", "")
        if owner in {"log", "logger", "logging", "warnings"} or name == "expected" or name.endswith("Error"):
            return ast.Call(node.func, [], [])
        node.keywords = [keyword for keyword in node.keywords if keyword.arg != "description"]
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        """A condition, unless it guards imports for annotations."""
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return ast.Pass()
        return self.generic_visit(node)

    def _without_docstring(self, node: ast.FunctionDef | ast.ClassDef) -> ast.AST:
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)
