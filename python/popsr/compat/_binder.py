"""What each name of a program is bound to."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial

from popsr.compat import _values
from popsr.compat._scopes import COMPREHENSIONS, FunctionNode, Scope, Walker
from popsr.compat._values import Known, Missing, Value

__all__ = ["Binder"]


def _unknown() -> Value:
    return None


class Binder(Walker):
    """Finds the scopes of a program, and what is bound in them."""

    def __init__(self) -> None:
        super().__init__({})
        self._told: set[ast.expr] = set()  # targets whose values are bound
        self._shared: set[str] = set()  # names of `global` and `nonlocal`

    @classmethod
    def scopes_of(cls, program: ast.Module) -> dict[ast.AST, Scope]:
        """The scopes of all nodes that have one."""
        binder = cls()
        binder.visit(program)
        for scope in binder.scopes.values():
            for name in binder._shared & scope.bindings.keys():
                scope.bindings[name].append(_unknown)
        return binder.scopes

    def bind(self, name: str, value: Callable[[], Value] = _unknown) -> None:
        """A binding in the scope where the walk is."""
        self.scope.bindings.setdefault(name, []).append(value)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            root, _, rest = alias.name.partition(".")
            if alias.asname is None:
                self._bind_import(root, _values.module(root))
            else:
                value = _values.module(root)
                for part in rest.split(".") if rest else ():
                    value = _values.member(value, part)
                self._bind_import(alias.asname, value)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        found = _values.module(node.module or "") if node.level == 0 else None
        for alias in node.names:
            if alias.name != "*":
                self._bind_import(alias.asname or alias.name, _values.member(found, alias.name))
            elif isinstance(found, Known):
                self.scope.imported_all.append(found.path)
                for name in _values.public_names(found):
                    self._bind_import(name, _values.attribute(found, name))
            else:
                self.scope.imported_all.append(found.path if isinstance(found, Missing) else "")

    def _bind_import(self, name: str, value: Value) -> None:
        found = None if isinstance(value, Missing) and self.handles("ImportError") else value
        self.bind(name, lambda: found)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._bind_target(target, node.value)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):  # in place: what it was it stays
            self._told.add(node.target)
            self.scope.bindings.setdefault(node.target.id, [])
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        scope, value, annotation = self.scope, node.value, node.annotation
        self._bind_name(node.target, lambda: scope.value(value) or _values.instance(scope.value(annotation)))
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        inner = self.scope
        while isinstance(self.scope.node, COMPREHENSIONS) and self.scope.parent is not None:
            self.scope = self.scope.parent
        self._bind_target(node.target, node.value)
        self.scope = inner
        self.generic_visit(node)

    def visit_withitem(self, node: ast.withitem) -> None:
        scope, manager = self.scope, node.context_expr
        if node.optional_vars is not None:
            self._bind_name(node.optional_vars, lambda: _values.enter(scope.value(manager)))
        self.generic_visit(node)

    def _bind_target(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            if len(values) == len(target.elts) and not any(
                isinstance(e, ast.Starred) for e in target.elts + values
            ):
                for each, part in zip(target.elts, values, strict=True):
                    self._bind_target(each, part)
        else:
            scope = self.scope
            self._bind_name(target, lambda: scope.value(value))

    def _bind_name(self, target: ast.expr, value: Callable[[], Value]) -> None:
        if isinstance(target, ast.Name):
            self._told.add(target)
            self.bind(target.id, value)

    def visit_Name(self, node: ast.Name) -> None:
        """Targets of loops, of unpacking and others are unknown."""
        if isinstance(node.ctx, ast.Store) and node not in self._told:
            self.bind(node.id)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.bind(node.name)
        super().visit_FunctionDef(node)
        self._bind_parameters(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        super().visit_Lambda(node)
        self._bind_parameters(node)

    def _bind_parameters(self, node: FunctionNode) -> None:
        outer, args = self.scope, node.args
        with self.inside(node):
            for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs):
                self.bind(arg.arg, partial(_annotated, outer, arg.annotation))
            for rest in (args.vararg, args.kwarg):
                if rest is not None:
                    self.bind(rest.arg)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.bind(node.name)
        super().visit_ClassDef(node)

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        self._shared.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self._shared.update(node.names)

    def generic_visit(self, node: ast.AST) -> None:
        """Names that handlers of exceptions and patterns bind."""
        if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            self.bind(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            self.bind(node.rest)
        super().generic_visit(node)


def _annotated(scope: Scope, annotation: ast.expr | None) -> Value:
    return _values.instance(scope.value(annotation))
