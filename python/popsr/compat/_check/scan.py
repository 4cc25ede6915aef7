"""Names of a module that popsr lacks, and names of Python and NumPy that are gone, found without running it."""

from __future__ import annotations

import ast
import builtins
import re
import sys
import tokenize
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path

from popsr._support.text.nearest import nearest
from popsr.compat._check import gone as _gone
from popsr.compat._check import native as _native
from popsr.compat._check import probes as _probes
from popsr.compat._check import values as _values
from popsr.compat._check.dataclass_fields import unhashable_defaults
from popsr.compat._check.project import OwnModule, Project
from popsr.compat._check.scopes import Scope, Walker, text_of
from popsr.compat._check.values import Foreign, Instance, Known, Missing, TooManySteps, Value

__all__ = ["Finding", "Findings", "scan"]


@dataclass(frozen=True, order=True)
class Finding:
    """Something at a place of a file.

    Attributes:
        path: the file.
        line: from 1.
        column: in characters, from 1.
        kind: "name", "module", "parameter", "option", "value", "removed", "sdk", "library" or "syntax"; of notes
            "dataclass", "operator" or "not installed".
        text: what it is.
        suggestion: the nearest names that exist, or what to write now; empty without one.
        note: True if it does not keep the program from running.
    """

    path: Path
    line: int
    column: int
    kind: str
    text: str
    suggestion: str = ""
    note: bool = False


@dataclass
class Findings:
    """The result: what was found, and all names of popsr that were looked up."""

    found: list[Finding] = field(default_factory=list)
    used: set[str] = field(default_factory=set)


def scan(project: Project) -> Findings:
    """Look up all names of all modules of a program."""
    project.is_complete = True
    try:
        stored, added = _stored_on_popsrs(project), _added_by_subclasses(project)
    except TooManySteps:  # again where a module is read
        stored, added = set(), set()
    result = Findings()
    for module in project.modules.values():
        if module.tree is None:
            continue
        reader = _Reader(module, project, stored, added)
        try:
            reader.visit(module.tree)
        except RecursionError:
            project.problems.append((module.path, SyntaxError("nested too deeply")))
            continue
        except TooManySteps as error:
            project.problems.append((module.path, error))
            continue
        result.found += reader.findings()
        result.used |= reader.used
    return result


def _stored_on_popsrs(project: Project) -> set[str]:
    """Attributes that the program sets on objects of popsr and of other packages, and may read afterwards."""
    kinds = (Known, Instance, Missing, Foreign)
    found: set[str] = set()
    for name, stores in project.index.stores.items():
        for each in stores:
            try:
                if isinstance(each.scope.value(each.owner), kinds):
                    found.add(name)
                    break
            except RecursionError:  # found again where the module is read
                break
    return found


def _added_by_subclasses(project: Project) -> set[str]:
    """Attributes of the program's own subclasses of popsr's: an object that is annotated as the base may have them."""
    classes = [
        cls for cls in project.index.classes.values() if any(isinstance(each, Known) for each in cls.mro())
    ]
    found = {name for cls in classes for name in cls.inner.bindings}
    for name in project.index.stores if classes else ():
        stores = project.index.stores_of(name)
        if any(cls.object in stores for cls in classes):
            found.add(name)
    return found


class _Reader(Walker):
    """Looks up every name of a module."""

    def __init__(self, module: OwnModule, project: Project, stored: set[str], added: set[str]) -> None:
        super().__init__(module.scopes, project.index.budget)
        self._added = added
        self.used: set[str] = set()
        self._module = module
        self._index = project.index
        self._stems = {each.path.stem for each in project.modules.values()}
        self._stored = stored
        self._registers = any(b"custom_op(" in each.source for each in project.modules.values())
        self._annotations_wait = sys.version_info >= (3, 14) or any(
            isinstance(each, ast.ImportFrom)
            and each.module == "__future__"
            and each.names[0].name == "annotations"
            for each in (module.tree.body if module.tree is not None else ())
        )
        self._places: dict[tuple[int, str], tuple[int, Finding]] = {}  # with the column in bytes
        self._texts: set[str] = set()
        self._sources: dict[Scope, str] = {}

    def findings(self) -> list[Finding]:
        """In the order of their places."""
        lines = _lines(self._module.source) if self._places else []
        return sorted(_in_characters(each, column, lines) for column, each in self._places.values())

    def _report(
        self,
        node: ast.AST,
        kind: str,
        text: str,
        *,
        error: str = "AttributeError",
        suggestion: str = "",
        note: bool = False,
    ) -> None:
        """Something is wrong, which the program notices by this error."""
        if self.handles(error):
            return
        line, column = _place(node)
        finding = Finding(self._module.path, line, 0, kind, text, suggestion, note)
        self._texts.add(text)
        before = self._places.get((line, text))
        if before is None or before[0] > column:
            self._places[line, text] = column, finding

    def _report_missing(self, node: ast.AST, kind: str, what: str, error: str, suggestion: str) -> None:
        self.used.add(what)
        self._report(node, kind, f"no {what}", error=error, suggestion=suggestion)

    # Imports

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._read_module(alias, alias.name)

    def _read_module(self, node: ast.AST, name: str) -> Value:
        """Look up a module by its whole name."""
        value = self._module.imported(name, 0)
        if isinstance(value, Missing):
            suggestion = _values.suggested_module(value.path)
            self._report_missing(node, "module", f"module {value.path}", "ImportError", suggestion)
        elif isinstance(value, Foreign):
            self._read_foreign(node, name)
        return value

    def _read_foreign(self, node: ast.AST, name: str) -> None:
        root = name.partition(".")[0]
        if self._module.own_module(root, 0) is not None or (root in self._stems and not _gone.is_found(root)):
            return
        version = _gone.removed_module(name)
        if _gone.is_of_sdk(name) and not _gone.is_found(root):
            text = f"no module {name}: a module of the SDK that popsr does not stand in for"
            self._report(node, "sdk", text, error="ImportError")
        elif version is not None and not _gone.is_found(root):
            text = f"no module {name}: removed in Python {version}"
            self._report(node, "removed", text, error="ImportError")
        elif not _gone.is_found(root):
            text = f"no module {root}: not installed here"
            if text not in self._texts:
                self._report(node, "not installed", text, error="ImportError", note=True)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level:
            return
        found = self._module.imported(node.module or "", 0)
        if isinstance(found, Foreign):
            self._read_foreign(node, found.path)
        for alias in node.names:
            value = found if alias.name == "*" else _values.member(found, alias.name)
            if isinstance(found, Missing) and value is found:
                self._read_module(alias, found.path)
            elif isinstance(found, (Known, Missing)) and isinstance(value, Missing):
                suggestion = _values.suggestion(found, alias.name)
                self._report_missing(alias, "name", value.path, "ImportError", suggestion)
            elif isinstance(value, Known) and alias.name != "*":
                self.used.add(value.path)
            self._read_gone(alias, value, "ImportError")

    def _read_gone(self, node: ast.AST, value: Value, error: str) -> None:
        """Names that other packages no longer have."""
        if not isinstance(value, Foreign) or value.path.rpartition(".")[2] in self._index.asked_for:
            return
        instead = _gone.gone_name(value.path)
        if instead is not None and value.path.rpartition(".")[2] not in self._stored:
            self._report(node, "removed", f"no {value.path}", error=error, suggestion=repr(instead))

    # Attributes

    def visit_Attribute(self, node: ast.Attribute) -> None:
        owner = self.scope.value(node.value)
        value, below = self.scope.attribute(owner, node.attr), node.value
        is_missing = isinstance(value, Missing) and self._is_expected(node, owner)
        if isinstance(value, Missing) and is_missing:
            self._report_attribute(node, value, owner)
        elif isinstance(value, Known):
            self.used.add(value.path)
        elif isinstance(value, Foreign):
            self._read_gone(node, value, "AttributeError")
        while (is_missing or isinstance(value, Known)) and isinstance(below, ast.Attribute):
            below = below.value  # its path is the beginning of the one above
        self.visit(below)

    def _report_attribute(self, node: ast.Attribute, value: Missing, owner: Value) -> None:
        what = f"attribute {value.path}" if owner is None else value.path
        suggestion = (
            nearest(node.attr, _values.private_names())
            if owner is None
            else _values.suggestion(owner, node.attr)
        )
        kind = "option" if _values.is_option(owner) else "name"
        self._report_missing(node, kind, what, "AttributeError", suggestion)

    def _is_expected(self, node: ast.Attribute, owner: Value) -> bool:
        """True if popsr should have it: no part to its left is missing, and the program does not make it itself."""
        if node.attr in self._index.asked_for or (isinstance(owner, Missing) and not owner.is_module):
            return False
        if _values.is_option(owner):
            return True
        if isinstance(owner, Instance) and node.attr in self._added:
            return False
        if owner is None and (node.attr in self._index.stores or node.attr in self._index.defined):
            return False
        return isinstance(node.ctx, ast.Load) and node.attr not in self._stored

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Attribute):
                self._read_option(target, target.value, target.attr, node.value)
        self.generic_visit(node)

    def _read_option(self, node: ast.AST, owner: ast.expr, name: str, value: ast.expr) -> None:
        error = _probes.refused_option(self.scope.value(owner), name, value)
        if error is not None:
            self._report(node, "value", f"refused value: {error}")

    # Calls

    def visit_Call(self, node: ast.Call) -> None:
        function = self.scope.value(node.func)
        named = {keyword.arg: keyword for keyword in node.keywords if keyword.arg is not None}
        for name in _values.unknown_keywords(function, named) if named else ():
            assert isinstance(function, Known)
            suggestion = nearest(name, _values.parameters(function) or ())
            what = f"parameter {name} of {function.path}"
            self._report_missing(named[name], "parameter", what, "TypeError", suggestion)
        refused = _probes.refused_argument(function, node)
        if refused is not None:
            self._report(refused[0], "value", f"refused value: {refused[1]}", error="ValueError")
        self._read_native(function, node)
        missing = _probes.missing_op(node)
        if missing is not None:
            self._report(node.func, "name", missing[0], suggestion=missing[1])
        if isinstance(function, Foreign) and function.path == "importlib.import_module" and node.args:
            self._read_module(node.args[0], text_of(node.args[0]) or "sys")
        if isinstance(node.func, ast.Name) and self.scope.home(node.func.id) is None:
            self._read_builtin(node.func.id, node.args)
        self.generic_visit(node)

    def _read_native(self, function: Value, node: ast.Call) -> None:
        """Libraries and operators of C++."""
        found = _native.missing_library(function, node, self._module.path)
        if found is None and not self._registers:
            found = _native.operator_without_entry(node)
        if found is not None:
            self._report(found.node, found.kind, found.text, error="OSError", note=found.note)

    def _read_builtin(self, name: str, args: list[ast.expr]) -> None:
        """``getattr(owner, "name")`` is ``owner.name``, and so with ``setattr``."""
        attribute = text_of(args[1]) if (name, len(args)) in (("getattr", 2), ("setattr", 3)) else None
        if attribute is None:
            return
        ctx = ast.Load() if name == "getattr" else ast.Store()
        self.visit_Attribute(ast.copy_location(_Spelled(args[0], attribute, ctx), args[1]))
        if name == "setattr":
            self._read_option(args[1], args[0], attribute, args[2])

    # Annotations, names and classes

    def visit_annotation(self, node: ast.expr | None) -> None:
        """Annotations that are never evaluated cannot fail."""
        if not self._annotations_wait:
            self.visit_all(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if not isinstance(self.scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.visit_annotation(node.annotation)
        self.visit_all(node.target, node.value)

    def visit_Name(self, node: ast.Name) -> None:
        """Names that only ``from module import *`` could have bound."""
        if not isinstance(node.ctx, ast.Load) or self.scope.home(node.id) is not None:
            return
        source = self._last_source()
        known = hasattr(builtins, node.id) or node.id.startswith("__")
        if source and not known:
            suggestion = _values.suggestion(_values.module(source), node.id)
            self._report_missing(node, "name", f"{source}.{node.id}", "NameError", suggestion)

    def _last_source(self) -> str:
        """The last module whose names are all imported; empty without one, or if one of them is not popsr's."""
        if self.scope not in self._sources:
            sources = self.scope.all_imported_all()
            self._sources[self.scope] = sources[-1] if sources and "" not in sources else ""
        return self._sources[self.scope]

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        cls = self._index.classes.get(node)
        for default, name, made_of in unhashable_defaults(cls) if cls is not None else ():
            text = (
                f"field {name} of {node.name} defaults to an instance of {made_of}, which Python 3.11 refuses: "
                "python -m popsr run and popsr.compat.install() let it default to a copy"
            )
            self._report(default, "dataclass", text, error="ValueError", note=True)
        super().visit_ClassDef(node)


class _Spelled(ast.Attribute):
    """An attribute that a program names by a string; its place is the place of the string."""


def _place(node: ast.AST) -> tuple[int, int]:
    """Line and column in bytes, from 0; of an attribute where its name stands."""
    if isinstance(node, ast.Attribute) and not isinstance(node, _Spelled) and node.end_col_offset is not None:
        name = len(node.attr.encode())
        return node.end_lineno or node.lineno, max(node.end_col_offset - name, 0)
    return getattr(node, "lineno", 1), getattr(node, "col_offset", 0)


def _lines(source: bytes) -> list[bytes]:
    """The lines of a file as the parser counts them, in UTF-8."""
    encoding, _ = tokenize.detect_encoding(BytesIO(source).readline)
    text = source.decode(encoding, "replace")
    return [line.encode() for line in re.split(r"\r\n|\r|\n", text)]


def _in_characters(finding: Finding, column: int, lines: list[bytes]) -> Finding:
    line = lines[finding.line - 1] if finding.line <= len(lines) else b""
    return replace(finding, column=len(line[:column].decode(errors="replace")) + 1)
