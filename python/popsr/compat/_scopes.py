"""The names of a program: where each is bound, and what it stands for.

A name that is bound more than once in its scope stands for something only if all its bindings agree, so the order in
which statements run does not matter.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from popsr.compat import _values
from popsr.compat._values import Value

__all__ = ["COMPREHENSIONS", "FunctionNode", "Scope", "Walker"]

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "__add__",
    ast.Sub: "__sub__",
    ast.Mult: "__mul__",
    ast.Div: "__truediv__",
    ast.MatMult: "__matmul__",
    ast.Pow: "__pow__",
    ast.Mod: "__mod__",
}


class Scope:
    """The names of a module, class, function or comprehension."""

    def __init__(self, parent: Scope | None = None, node: ast.AST | None = None) -> None:
        """``node``: what has the scope."""
        self.parent = parent
        self.node = node
        self.bindings: dict[str, list[Callable[[], Value]]] = {}
        self.imported_all: list[str] = []  # modules of `from module import *`
        self._values: dict[str, Value] = {}

    def home(self, name: str) -> Scope | None:
        """The scope of a name that is used in this one; None when the program does not bind it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bindings and (scope is self or not isinstance(scope.node, ast.ClassDef)):
                return scope
            scope = scope.parent
        return None

    def all_imported_all(self) -> list[str]:
        """Modules of ``from module import *`` here and further out; "" is one that is not popsr's."""
        return (self.parent.all_imported_all() if self.parent else []) + self.imported_all

    def name(self, name: str) -> Value:
        """What a name that is used in this scope stands for."""
        home = self.home(name)
        if home is None:
            return None
        if name not in home._values:
            home._values[name] = None  # of a name that is bound to what is made of itself
            home._values[name] = _values.join(binding() for binding in home.bindings[name])
        return home._values[name]

    def value(self, node: ast.expr | None) -> Value:
        """What an expression in this scope stands for."""
        if isinstance(node, ast.Name):
            return self.name(node.id)
        if isinstance(node, ast.Attribute):
            return _values.attribute(self.value(node.value), node.attr)
        if isinstance(node, ast.Call):
            return _values.call(self.value(node.func))
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            left = self.value(node.left)
            return _values.call(_values.attribute(left, _OPERATORS[type(node.op)])) if left else None
        return self.value(node.value) if isinstance(node, (ast.NamedExpr, ast.Await)) else None


class Walker(ast.NodeVisitor):
    """Walks through a program and knows the scope, and which errors of missing names the program handles."""

    def __init__(self, scopes: dict[ast.AST, Scope]) -> None:
        """``scopes``: of nodes that have one; filled when it is empty."""
        self.scopes = scopes
        self.scope = Scope()
        self._handled: list[set[str]] = []

    def handles(self, error: str) -> bool:
        """Whether the program goes on when this error is raised here."""
        return any(error in names for names in self._handled)

    @contextmanager
    def inside(self, node: ast.AST) -> Iterator[None]:
        """In the scope of a node."""
        outer = self.scope
        self.scope = self.scopes.setdefault(node, Scope(outer, node))
        yield
        self.scope = outer

    def visit_all(self, *nodes: ast.AST | None) -> None:
        """Visit those that are there."""
        for node in nodes:
            if node is not None:
                self.visit(node)

    def visit_Module(self, node: ast.Module) -> None:
        with self.inside(node):
            self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.visit_all(*node.decorator_list, *node.bases, *node.keywords)
        with self.inside(node):
            self.visit_all(*node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.visit_all(*node.decorator_list, node.args, node.returns)
        with self.inside(node):
            self.visit_all(*node.body)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.args)
        with self.inside(node):
            self.visit(node.body)

    def generic_visit(self, node: ast.AST) -> None:
        """Comprehensions have a scope, other nodes are those of their children."""
        if isinstance(node, COMPREHENSIONS):
            with self.inside(node):
                super().generic_visit(node)
        else:
            super().generic_visit(node)

    def visit_Try(self, node: ast.Try | ast.TryStar) -> None:
        caught = {name for handler in node.handlers for name in _names(handler.type)}
        with self._handling(caught | {"ImportError"} if "ModuleNotFoundError" in caught else caught):
            self.visit_all(*node.body)
        self.visit_all(*node.handlers, *node.orelse, *node.finalbody)

    def visit_TryStar(self, node: ast.TryStar) -> None:
        self.visit_Try(node)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        with self._handling(
            {"ImportError", "AttributeError"} if "TYPE_CHECKING" in _names(node.test) else set()
        ):
            self.visit_all(*node.body)
        self.visit_all(*node.orelse)

    @contextmanager
    def _handling(self, errors: set[str]) -> Iterator[None]:
        self._handled.append(errors)
        yield
        self._handled.pop()


def _names(node: ast.expr | None) -> set[str]:
    """The last parts of what a handler catches, or of what a condition tests."""
    nodes = node.elts if isinstance(node, ast.Tuple) else [node]
    return {str(getattr(each, "attr", None) or getattr(each, "id", "")) for each in nodes}
