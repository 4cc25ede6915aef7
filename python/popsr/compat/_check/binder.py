"""Bindings of all names of a program, and its stores, calls and tests by name."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial

from popsr.compat._check import values as _values
from popsr.compat._check.own import (
    DefNode,
    Index,
    OwnClass,
    OwnFunction,
    Store,
    decorator_path,
    is_none,
    nothing,
)
from popsr.compat._check.scopes import COMPREHENSIONS, FunctionNode, ModuleSource, Scope, Walker, text_of
from popsr.compat._check.values import Known, Missing, Value

__all__ = ["Binder", "Importer"]

# The value of an `import`, in popsr or in the program, by the name without dots before it, and their number.
Importer = Callable[[str, int], Value]
# Functions that ask what an object is before the program uses it as such.
_TESTS = ("isinstance", "issubclass", "type")


def _unknown() -> Value:
    return None


class Binder(Walker):
    """Finds the scopes of a program, and what is bound in them."""

    def __init__(self, importer: Importer, index: Index) -> None:
        """``index``: of all modules of the program; this one adds itself."""
        super().__init__({}, index.budget)
        self._import = importer
        self._index = index
        self._told: set[ast.expr] = set()  # targets whose values are bound
        self._shared: set[str] = set()  # names of `global` and `nonlocal`
        self._tested: set[tuple[Scope, str]] = set()

    def bind_all(self, program: ast.Module) -> dict[ast.AST, Scope]:
        """The scopes of all nodes that have one."""
        self.visit(program)
        for scope in self.scopes.values():
            for name in self._shared & scope.bindings.keys():
                scope.bindings[name].append(_unknown)
        for scope, name in self._tested:
            home = scope.home(name)
            if home is not None:
                home.bindings.setdefault(name, []).append(_unknown)
        return self.scopes

    def bind(self, name: str, value: Callable[[], Value] = _unknown) -> None:
        """A binding in the scope where the walk is."""
        self.scope.bindings.setdefault(name, []).append(value)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            root, _, rest = alias.name.partition(".")
            value = self._import(root, 0)
            if rest and isinstance(value, ModuleSource):
                self._import(alias.name, 0)
            if alias.asname is not None:
                for part in rest.split(".") if rest else ():
                    value = _values.member(value, part)
            self._bind_import(alias.asname or root, value)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        found = self._import(node.module or "", node.level)
        for alias in node.names:
            if alias.name != "*":
                if isinstance(found, ModuleSource):
                    found.load(alias.name)
                name, handled = alias.name, self.handles("ImportError")
                self.bind(alias.asname or name, partial(_member, found, name, handled))
            elif isinstance(found, Known):
                if found.path not in self.scope.imported_all:
                    for name in _values.public_names(found):
                        self._bind_import(name, _values.attribute(found, name))
                self.scope.imported_all.append(found.path)
            elif isinstance(found, ModuleSource):
                self.scope.stars[found] = None
            else:
                self.scope.imported_all.append(found.path if isinstance(found, Missing) else "")

    def _bind_import(self, name: str, value: Value) -> None:
        found = None if isinstance(value, Missing) and self.handles("ImportError") else value
        self.bind(name, lambda: found)

    def visit_Assign(self, node: ast.Assign) -> None:
        scope, value = self.scope, node.value
        for target in node.targets:
            if is_none(value):
                self._bind_to(target, nothing)
            else:
                self._bind_to(target, lambda: scope.value(value))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):  # in place: what it was it stays
            self._told.add(node.target)
            self.scope.bindings.setdefault(node.target.id, [])
        elif isinstance(node.target, ast.Attribute):
            self._told.add(node.target)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        scope, value, annotation = self.scope, node.value, node.annotation
        self._bind_to(
            node.target, lambda: scope.value(value) or _values.instance(scope.annotation(annotation))
        )
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        inner = self.scope
        while isinstance(self.scope.node, COMPREHENSIONS) and self.scope.parent is not None:
            self.scope = self.scope.parent
        scope = self.scope
        self._bind_to(node.target, lambda: scope.value(node.value))
        self.scope = inner
        self.generic_visit(node)

    def visit_withitem(self, node: ast.withitem) -> None:
        scope, manager = self.scope, node.context_expr
        if node.optional_vars is not None:
            self._bind_to(node.optional_vars, lambda: scope.entered(manager))
        self.generic_visit(node)

    def _bind_to(self, target: ast.expr, value: Callable[[], Value]) -> None:
        if isinstance(target, ast.Name):
            self._told.add(target)
            self.bind(target.id, value)
        elif isinstance(target, ast.Attribute):
            self._told.add(target)
            if value is not nothing:
                self._store(target, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            count = len(target.elts)
            if not any(isinstance(each, ast.Starred) for each in target.elts):
                for i, each in enumerate(target.elts):
                    self._bind_to(each, partial(_item, value, i, count))

    def _store(self, target: ast.Attribute, value: Callable[[], Value]) -> None:
        self._index.stores.setdefault(target.attr, []).append(Store(self.scope, target.value, value))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Store) and node not in self._told:
            self._store(node, _unknown)
        self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        """Targets of loops, of unpacking and others are unknown."""
        if isinstance(node.ctx, ast.Store) and node not in self._told:
            self.bind(node.id)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        called = getattr(function, "id", None) or getattr(function, "attr", None)
        if called is not None:
            self._index.calls.setdefault(called, []).append((self.scope, node))
        if isinstance(function, ast.Name) and node.args:
            if function.id in _TESTS and isinstance(node.args[0], ast.Name):
                self._tested.add((self.scope, node.args[0].id))
            elif function.id == "hasattr":
                self._index.asked_for.update(text for text in map(text_of, node.args) if text is not None)
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        self.scope.returns.append(node.value)
        self.generic_visit(node)

    def visit_Yield(self, node: ast.Yield) -> None:
        self.scope.yields.append(node.value)
        self.generic_visit(node)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        self.scope.yields.append(node)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: DefNode) -> None:
        super().visit_FunctionDef(node)
        outer, inner = self.scope, self.scopes[node]
        cls = self._index.classes.get(outer.node) if outer.node is not None else None
        function = OwnFunction(node, outer, inner, cls, self._index)
        self._index.defined.add(node.name)
        if not any(getattr(each, "attr", "") in ("setter", "deleter") for each in node.decorator_list):
            self.bind(node.name, lambda: function)
        self._bind_parameters(node, function)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        super().visit_Lambda(node)
        self._bind_parameters(node, None)

    def _bind_parameters(self, node: FunctionNode, function: OwnFunction | None) -> None:
        outer, args = self.scope, node.args
        with self.inside(node):
            for i, arg in enumerate((*args.posonlyargs, *args.args, *args.kwonlyargs)):
                self.bind(arg.arg, partial(_parameter, outer, arg, function, is_first=i == 0))
            for rest in (args.vararg, args.kwarg):
                if rest is not None:
                    self.bind(rest.arg)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outer = self.scope
        inner = self.scopes.setdefault(node, Scope(outer, node))
        cls = OwnClass(node, outer, inner, self._index)
        self._index.classes[node] = cls
        self.bind(node.name, lambda: cls if _keeps_class(outer, node) else None)
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


def _item(value: Callable[[], Value], index: int, count: int) -> Value:
    return _values.item(value(), index, count)


def _member(found: Value, name: str, handled: bool) -> Value:
    value = _values.member(found, name)
    return None if isinstance(value, Missing) and handled else value


def _parameter(outer: Scope, arg: ast.arg, function: OwnFunction | None, *, is_first: bool) -> Value:
    if function is not None and is_first and function.receiver() is not None:
        return function.receiver()
    annotated = _values.instance(outer.annotation(arg.annotation))
    return annotated if annotated is not None or function is None else function.parameter(arg.arg)


def _keeps_class(outer: Scope, node: ast.ClassDef) -> bool:
    """True if the decorators return the class itself."""
    if any(keyword.arg == "metaclass" for keyword in node.keywords):
        return False
    paths = [decorator_path(outer, each) for each in node.decorator_list]
    values = [outer.value(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list]
    return all(
        path in ("dataclasses.dataclass", "typing.final", "functools.total_ordering")
        or isinstance(value, Known)
        for path, value in zip(paths, values, strict=True)
    )
