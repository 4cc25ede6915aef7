"""What a program uses of PopXL and popsr lacks, found without running it."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field

from popsr.compat import _values
from popsr.compat._binder import Binder
from popsr.compat._scopes import Scope, Walker
from popsr.compat._values import Instance, Known, Missing, Value
from popsr.options import Options

__all__ = ["Findings", "scan"]


@dataclass
class Findings:
    """The result: what is missing, with its line, and all names that were looked up."""

    missing: set[tuple[int, str]] = field(default_factory=set)
    used: set[str] = field(default_factory=set)


def scan(program: ast.Module) -> Findings:
    """What a program names of popxl, popxl_addons, popart, stochastorch and popsr, and what is missing of it."""
    scopes = Binder.scopes_of(program)
    stores = _Stores(scopes)
    stores.visit(program)
    reader = _Reader(scopes, stores.names, set(_asked_for(program)))
    reader.visit(program)
    return reader.findings


class _Stores(Walker):
    """Finds the attributes that a program sets on objects of popsr: these are there when it reads them."""

    def __init__(self, scopes: dict[ast.AST, Scope]) -> None:
        super().__init__(scopes)
        self.names: set[str] = set()

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Store) and self.scope.value(node.value) is not None:
            self.names.add(node.attr)
        self.generic_visit(node)


def _asked_for(program: ast.Module) -> Iterator[str]:
    """Names that the program asks for with ``hasattr`` before it uses them."""
    for node in ast.walk(program):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hasattr":
            yield from (text for text in map(_text, node.args) if text is not None)


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


class _Reader(Walker):
    """Looks up every name."""

    def __init__(self, scopes: dict[ast.AST, Scope], stored: set[str], asked_for: set[str]) -> None:
        super().__init__(scopes)
        self.findings = Findings()
        self._stored = stored
        self._asked_for = asked_for

    def _report(self, node: ast.AST, what: str, error: str = "AttributeError") -> None:
        """Something is missing, which the program notices by this error."""
        if not self.handles(error):
            self.findings.missing.add((getattr(node, "lineno", 1), f"no {what}"))
            self.findings.used.add(what)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            value = _values.module(alias.name)
            if isinstance(value, Missing):
                self._report(alias, f"module {value.path}", "ImportError")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        found = _values.module(node.module or "") if node.level == 0 else None
        for alias in node.names:
            value = found if alias.name == "*" else _values.member(found, alias.name)
            if isinstance(value, Missing):
                self._report(alias, f"module {value.path}" if value is found else value.path, "ImportError")
            elif isinstance(value, Known) and alias.name != "*":
                self.findings.used.add(value.path)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        value, below = self.scope.value(node), node.value
        is_missing = isinstance(value, Missing) and self._is_expected(node, self.scope.value(node.value))
        if isinstance(value, Missing) and is_missing:
            self._report(node, value.path)
        elif isinstance(value, Known):
            self.findings.used.add(value.path)
        while (is_missing or isinstance(value, Known)) and isinstance(below, ast.Attribute):
            below = below.value  # its path is the beginning of the one above
        self.visit(below)

    def _is_expected(self, node: ast.Attribute, owner: Value) -> bool:
        """Whether popsr should have it: no part to its left is missing, and the program does not make it itself."""
        if node.attr in self._asked_for or (isinstance(owner, Missing) and not owner.is_module):
            return False
        if isinstance(owner, Instance) and owner.cls is Options:
            return True  # options cannot be made up
        return isinstance(node.ctx, ast.Load) and node.attr not in self._stored

    def visit_Call(self, node: ast.Call) -> None:
        function = self.scope.value(node.func)
        named = {keyword.arg: keyword for keyword in node.keywords if keyword.arg is not None}
        for name in _values.unknown_keywords(function, named):
            assert isinstance(function, Known)
            self._report(named[name], f"parameter {name} of {function.path}", "TypeError")
        if isinstance(node.func, ast.Name) and self.scope.home(node.func.id) is None:
            self._read_builtin(node.func.id, node.args)
        self.generic_visit(node)

    def _read_builtin(self, name: str, args: list[ast.expr]) -> None:
        """``getattr(owner, "name")`` is ``owner.name``, and so with ``setattr``."""
        if (name, len(args)) not in (("getattr", 2), ("setattr", 3)):
            return
        attribute = _text(args[1])
        if attribute is not None:
            ctx = ast.Load() if name == "getattr" else ast.Store()
            self.visit_Attribute(ast.copy_location(ast.Attribute(args[0], attribute, ctx), args[1]))

    def visit_Name(self, node: ast.Name) -> None:
        """Names that only ``from module import *`` could have bound."""
        sources = self.scope.all_imported_all()
        known = hasattr(builtins, node.id) or node.id.startswith("__") or self.scope.home(node.id) is not None
        if sources and "" not in sources and not known and isinstance(node.ctx, ast.Load):
            self._report(node, f"{sources[-1]}.{node.id}", "NameError")
