"""The names of a program: where each is bound, and its value.

A name that is bound more than once in its scope stands for something only if all its bindings agree, so the order in
which statements run does not matter.
"""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from popsr.compat._check import values as _values
from popsr.compat._check.classes import PRIVATE_PREFIX
from popsr.compat._check.own import OwnFunction
from popsr.compat._check.values import Budget, Foreign, Items, Own, Value

__all__ = ["COMPREHENSIONS", "FunctionNode", "ModuleSource", "Scope", "Walker", "text_of"]

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
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
# Context managers in which errors are expected: of contextlib, pytest and unittest.
_EXPECTING = {"suppress", "raises", "assertRaises", "assertRaisesRegex"}


def text_of(node: ast.expr) -> str | None:
    """A literal string."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


class ModuleSource(Own):
    """An own module: ``from module import *`` binds its names."""

    def load(self, name: str) -> None:
        """Read the submodule of a name, if there is one."""
        raise NotImplementedError

    def exports(self, name: str) -> bool:
        """True if it binds the name."""
        raise NotImplementedError

    def unknown_sources(self) -> list[str]:
        """As :meth:`Scope.all_imported_all`."""
        raise NotImplementedError


class Scope:
    """The names of a module, class, function or comprehension."""

    def __init__(
        self, parent: Scope | None = None, node: ast.AST | None = None, budget: Budget | None = None
    ) -> None:
        """``node``: what has the scope; ``budget``: of the program, where there is no parent."""
        self.parent = parent
        self.budget: Budget = parent.budget if parent else budget or Budget()
        self.node = node
        self.bindings: dict[str, list[Callable[[], Value]]] = {}
        self.imported_all: list[str] = []  # modules of `from module import *`
        self.stars: dict[ModuleSource, None] = {}  # the program's own such modules
        self.returns: list[ast.expr | None] = []
        self.yields: list[ast.expr | None] = []
        self._values: dict[str, Value] = {}

    def home(self, name: str) -> Scope | None:
        """The scope of a name that is used in this one; None when the program does not bind it."""
        scope: Scope | None = self
        while scope is not None:
            self.budget.take(len(scope.stars))
            is_visible = scope is self or not isinstance(scope.node, ast.ClassDef)
            if is_visible and (name in scope.bindings or any(each.exports(name) for each in scope.stars)):
                return scope
            scope = scope.parent
        return None

    def all_imported_all(self) -> list[str]:
        """Modules of ``from module import *`` here and further out; "" is one that is not popsr's."""
        own = [source for star in self.stars for source in star.unknown_sources()]
        self.budget.take(len(self.imported_all) + len(own))
        return (self.parent.all_imported_all() if self.parent else []) + self.imported_all + own

    def name(self, name: str) -> Value:
        """The value of a name that is used in this scope."""
        home = self.home(name)
        if home is None:
            return None
        if name not in home._values:
            home._values[name] = None  # of a name that is bound to what is made of itself
            try:
                home._values[name] = home._joined(name)
            except RecursionError:  # one name made of another, hundreds of times
                return None
        return home._values[name]

    def _joined(self, name: str) -> Value:
        values = [binding() for binding in self.bindings.get(name, ())]
        return _values.join(values + [star.attribute(name) for star in self.stars if star.exports(name)])

    def value(self, node: ast.expr | None) -> Value:
        """The value of an expression in this scope.

        Raises:
            TooManySteps: the program's budget is used up.
        """
        self.budget.take()
        if isinstance(node, ast.Name):
            return self.name(node.id)
        if isinstance(node, ast.Attribute):
            return self.attribute(self.value(node.value), node.attr)
        if isinstance(node, ast.Call):
            return self._called(node)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            left = self.value(node.left)
            return _values.call(_values.attribute(left, _OPERATORS[type(node.op)])) if left else None
        if isinstance(node, (ast.Tuple, ast.List)):
            return Items(tuple(map(self.value, node.elts)))
        return self.value(node.value) if isinstance(node, (ast.NamedExpr, ast.Await)) else None

    @staticmethod
    def attribute(owner: Value, name: str) -> Value:
        """The value of ``owner.name``; an owner that is not known has PopART's attributes."""
        if owner is None and name.startswith(PRIVATE_PREFIX):
            return _values.private_attribute(name)
        return _values.attribute(owner, name)

    def _called(self, node: ast.Call) -> Value:
        function = self.value(node.func)
        if function is None and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            name = text_of(node.args[1]) if len(node.args) == 2 else None
            return self.attribute(self.value(node.args[0]), name) if name is not None else None
        if isinstance(function, Foreign) and function.path == "importlib.import_module" and node.args:
            return _values.module(text_of(node.args[0]) or "")
        return _values.call(function)

    def entered(self, manager: ast.expr) -> Value:
        """The value that ``with manager as name`` binds."""
        function = self.value(manager.func) if isinstance(manager, ast.Call) else None
        return function.managed() if isinstance(function, OwnFunction) else _values.enter(self.value(manager))

    def annotation(self, node: ast.expr | None) -> Value:
        """The class that an annotation names, also as a string, or beside None."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                return self.annotation(ast.parse(node.value, mode="eval").body)
            except (SyntaxError, ValueError):
                return None
        if isinstance(node, ast.Subscript):
            optional = self.value(node.value) == Foreign("typing.Optional")
            return self.annotation(node.slice) if optional else None
        if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant) and node.right.value is None:
            return self.annotation(node.left)
        return self.value(node)


class Walker(ast.NodeVisitor):
    """Walks through a program and knows the scope, and which errors of missing names the program handles."""

    def __init__(self, scopes: dict[ast.AST, Scope], budget: Budget) -> None:
        """``scopes``: of nodes that have one; filled when it is empty."""
        self.scopes = scopes
        self.scope = Scope(budget=budget)
        self._handled: list[set[str]] = []
        self._visitors: dict[type, Callable[[ast.AST], object]] = {}

    def handles(self, error: str) -> bool:
        """True if the program goes on when this error is raised here."""
        wanted = {error, "Exception", "BaseException", ""}
        return any(wanted & names for names in self._handled)

    @contextmanager
    def inside(self, node: ast.AST) -> Iterator[None]:
        """In the scope of a node."""
        outer = self.scope
        self.scope = self.scopes.setdefault(node, Scope(outer, node))
        yield
        self.scope = outer

    def visit(self, node: ast.AST) -> None:
        """As of any NodeVisitor, which looks the method up for each node again."""
        kind = type(node)
        visitor = self._visitors.get(kind)
        if visitor is None:
            visitor = self._visitors[kind] = getattr(self, f"visit_{kind.__name__}", self.generic_visit)
        visitor(node)

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
        self.visit_all(*node.decorator_list, node.args)
        self.visit_annotation(node.returns)
        with self.inside(node):
            self.visit_all(*node.body)

    def visit_arg(self, node: ast.arg) -> None:
        self.visit_annotation(node.annotation)

    def visit_annotation(self, node: ast.expr | None) -> None:
        """Annotations are read like other expressions."""
        self.visit_all(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.args)
        with self.inside(node):
            self.visit(node.body)

    def generic_visit(self, node: ast.AST) -> None:
        """Comprehensions have a scope, other nodes have their children's."""
        if isinstance(node, COMPREHENSIONS):
            with self.inside(node):
                self._visit_children(node)
        else:
            self._visit_children(node)

    def _visit_children(self, node: ast.AST) -> None:
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                for each in value:
                    if isinstance(each, ast.AST):
                        self.visit(each)
            elif isinstance(value, ast.AST) and not isinstance(value, (ast.expr_context, ast.Constant)):
                self.visit(value)

    def visit_Try(self, node: ast.Try | ast.TryStar) -> None:
        caught = {name for handler in node.handlers for name in _names(handler.type)}
        with self._handling(caught | {"ImportError"} if "ModuleNotFoundError" in caught else caught):
            self.visit_all(*node.body)
        # Handlers of missing names do what older versions of a module need, and seldom run.
        is_fallback = bool(caught & {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", ""})
        with self._handling({"ImportError", "AttributeError"} if is_fallback and node.handlers else set()):
            self.visit_all(*node.handlers)
        self.visit_all(*node.orelse, *node.finalbody)

    def visit_TryStar(self, node: ast.TryStar) -> None:
        self.visit_Try(node)

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        expected: set[str] = set()
        for each in node.items:
            self.visit(each)
            call = each.context_expr
            if isinstance(call, ast.Call) and _names(call.func) & _EXPECTING:
                expected |= {name for arg in call.args for name in _names(arg)}
        if "ModuleNotFoundError" in expected:
            expected.add("ImportError")
        with self._handling(expected - {""}):
            self.visit_all(*node.body)

    def visit_AsyncWith(self, node: ast.AsyncWith) -> None:
        self.visit_With(node)

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        self.visit(node.test)
        body, orelse = ([each] if isinstance(each, ast.expr) else each for each in (node.body, node.orelse))
        runs = _version_test(node.test)
        checked, other = _is_type_checking(node.test)
        if runs is not False:
            with self._handling({"ImportError", "AttributeError"} if checked else set()):
                self.visit_all(*body)
        if runs is not True:
            with self._handling({"ImportError", "AttributeError"} if other else set()):
                self.visit_all(*orelse)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.visit_If(node)

    @contextmanager
    def _handling(self, errors: set[str]) -> Iterator[None]:
        self._handled.append(errors)
        yield
        self._handled.pop()


def _names(node: ast.expr | None) -> set[str]:
    """The last parts of what a handler catches, or of what a condition tests; "" of a handler of everything."""
    nodes = node.elts if isinstance(node, ast.Tuple) else [node]
    return {str(getattr(each, "attr", None) or getattr(each, "id", "")) for each in nodes}


def _is_type_checking(test: ast.expr) -> tuple[bool, bool]:
    """True for the body, and for the other branch, that only type checkers or Python 2 read."""
    is_negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    names = _names(test.operand if isinstance(test, ast.UnaryOp) else test)
    found = bool(names & {"TYPE_CHECKING", "PY2"})
    return found and not is_negated, found and is_negated


def _version_test(test: ast.expr) -> bool | None:
    """The value of ``sys.version_info >= (3, 8)`` and the like; None of other conditions."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or type(test.ops[0]) not in _COMPARISONS:
        return None
    left: object = tuple(sys.version_info)
    node = test.left
    try:
        if isinstance(node, ast.Subscript):
            left = _indexed(node.slice)
            node = node.value
        elif isinstance(node, ast.Attribute) and node.attr in ("major", "minor"):
            left = getattr(sys.version_info, node.attr)
            node = node.value
        if not isinstance(node, ast.Attribute) or node.attr != "version_info":
            return None
        return bool(_COMPARISONS[type(test.ops[0])](left, ast.literal_eval(test.comparators[0])))
    except (ValueError, TypeError, IndexError):
        return None


def _indexed(index: ast.expr) -> object:
    if isinstance(index, ast.Slice):
        stop = None if index.upper is None else ast.literal_eval(index.upper)
        return tuple(sys.version_info)[:stop] if index.lower is None and index.step is None else None
    return tuple(sys.version_info)[ast.literal_eval(index)]
