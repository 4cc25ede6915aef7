"""The modules of a program: the files that are given, and what they import from beside them."""

from __future__ import annotations

import ast
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from popsr._support.host.regular_files import open_regular
from popsr._support.text.shown import shown
from popsr.compat._check import values as _values
from popsr.compat._check.binder import Binder
from popsr.compat._check.own import Index
from popsr.compat._check.scopes import ModuleSource, Scope, text_of
from popsr.compat._check.values import Value
from popsr.errors import FileError

__all__ = ["OwnModule", "Project", "python_files"]

_INSTALLED = {
    "site-packages",
    "dist-packages",
}  # folders of packages that are installed: not the program's own
_SKIPPED = {"__pycache__", "node_modules", *_INSTALLED}


def python_files(path: Path) -> Iterator[Path]:
    """The file, or all files below a folder; hidden folders and virtual environments are left out.

    Raises:
        FileError: it is a folder without Python files.
    """
    if not path.is_dir():
        yield path
        return
    found = False
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(each for each in folders if _is_searched(folder, each))
        for name in sorted(names):
            if name.endswith(".py"):
                found = True
                yield Path(folder, name)
    if not found:
        raise FileError(f"check: no Python files below {shown(str(path))}, expected scripts")


def _is_searched(folder: str, name: str) -> bool:
    if name.startswith(".") or name in _SKIPPED:
        return False
    return not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))


class OwnModule(ModuleSource):
    """A module of the program, or a folder of modules without a file of its own."""

    def __init__(self, project: Project, path: Path, folder: Path | None, roots: Iterable[Path]) -> None:
        """``folder``: of its submodules; ``roots``: folders in which it finds absolute imports."""
        self.path = path
        self.folder = folder
        self.roots = list(dict.fromkeys(roots))
        self.source = b""
        self.tree: ast.Module | None = None
        self.scopes: dict[ast.AST, Scope] = {}
        self._project = project
        self._is_busy = False

    @property
    def scope(self) -> Scope | None:
        """Of its top level; None of a folder and before it is bound."""
        return self.scopes.get(self.tree) if self.tree is not None else None

    def bind(self) -> None:
        """Read the file.

        Raises:
            FileError: it cannot be read.
            SyntaxError: it is not a program.
        """
        with open_regular(self.path, "check") as file:
            self.source = file.read()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the program's style
            tree = ast.parse(self.source)
        self._project.index.budget.add_source(self.source)
        self.scopes = Binder(self.imported, self._project.index).bind_all(tree)
        self.tree = tree

    def imported(self, name: str, level: int) -> Value:
        """The module that ``import name`` finds; ``level``: number of dots before it."""
        if level == 0 and (_values.is_popsrs(name) or not name):
            return _values.module(name)
        found = self.own_module(name, level)
        return found if found is not None or level else _values.module(name)

    def own_module(self, name: str, level: int) -> OwnModule | None:
        """The module of the program that ``import name`` finds."""
        parts = name.split(".") if name else []
        if level:
            folder = self.path.parent
            for _ in range(level - 1):
                folder = folder.parent
            return self._project.module(folder, parts, self)
        if parts[0] in sys.stdlib_module_names:
            return None
        roots = (
            root for root in self.roots if root.name not in _INSTALLED or root / parts[0] in self.path.parents
        )
        found = (self._project.module(root, parts, self) for root in roots)
        return next((each for each in found if each is not None), None)

    def attribute(self, name: str) -> Value:
        """A name of its top level, or a submodule."""
        if self.scope is not None and self.scope.home(name) is not None:
            return None if self in self._project.index.stores_of(name) else self.scope.name(name)
        return self._project.module(self.folder, [name], self) if self.folder is not None else None

    def load(self, name: str) -> None:
        """Read the submodule of a name, if there is one."""
        if self.folder is not None:
            self._project.module(self.folder, [name], self)

    def exports(self, name: str) -> bool:
        """True if ``from module import *`` binds the name."""
        if self.scope is None or self._is_busy:  # modules may import each other's names
            return False
        public = self._all()
        if name not in public if public is not None else name.startswith("_"):
            return False
        self._is_busy = True
        try:
            return self.scope.home(name) is not None
        finally:
            self._is_busy = False

    def _all(self) -> list[str] | None:
        """Its ``__all__``; None without one."""
        for each in self.tree.body if self.tree is not None else ():
            targets = each.targets if isinstance(each, ast.Assign) else []
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                elements = getattr(getattr(each, "value", None), "elts", None)
                return None if elements is None else [text for text in map(text_of, elements) if text]
        return None

    def unknown_sources(self) -> list[str]:
        """As of a scope; one that cannot be read may bind any name."""
        if self._is_busy:
            return []
        self._is_busy = True
        try:
            return [""] if self.scope is None else self.scope.all_imported_all()
        finally:
            self._is_busy = False


@dataclass
class Project:
    """All modules, each once. New ones are bound one after another, as imports of modules may form circles."""

    index: Index = field(default_factory=Index)
    modules: dict[Path, OwnModule] = field(default_factory=dict)
    problems: list[tuple[Path, Exception]] = field(default_factory=list)
    is_complete: bool = False  # set when all is bound; no module is read after that
    _waiting: list[OwnModule] = field(default_factory=list)
    _located: dict[tuple[Path, str], tuple[Path, Path | None] | None] = field(default_factory=dict)
    _folders: dict[Path, OwnModule] = field(default_factory=dict)
    _resolved: dict[Path, Path] = field(default_factory=dict)

    def add(self, path: Path, below: Path | None = None) -> None:
        """Add a file and what it imports; ``below``: the folder that is searched."""
        folder = path.parent if path.name == "__init__.py" else None
        roots = [path.parent, _root(path.parent), *([below] if below is not None else [])]
        if below is not None and roots[1] != path.parent:
            del roots[0]  # a module of a package is imported by the package's name
        if self._key(path) not in self.modules:
            self._new(path, folder, roots)
        while self._waiting:
            self._bind(self._waiting.pop(0))

    def _bind(self, module: OwnModule) -> None:
        try:
            module.bind()
        except (SyntaxError, FileError) as error:
            self.problems.append((module.path, error))
        except (MemoryError, RecursionError):
            self.problems.append((module.path, SyntaxError("nested too deeply")))
        except ValueError as error:  # null bytes, for some versions of Python
            self.problems.append((module.path, SyntaxError(str(error))))

    def _key(self, path: Path) -> Path:
        if path not in self._resolved:
            self._resolved[path] = Path(os.path.realpath(path))
        return self._resolved[path]

    def _new(self, path: Path, folder: Path | None, roots: Iterable[Path]) -> OwnModule:
        found = self.modules[self._key(path)] = OwnModule(self, path, folder, roots)
        self._waiting.append(found)
        return found

    def module(self, folder: Path, parts: list[str], importer: OwnModule) -> OwnModule | None:
        """The module of a dotted name below a folder; without parts the package that the folder is."""
        if not parts:
            return self._file(folder / "__init__.py", folder, importer) or self._folder(folder, importer)
        found: OwnModule | None = None
        for i, part in enumerate(parts):
            located = self._locate(folder, part)
            if located is None:
                return None
            path, below = located
            is_last = i == len(parts) - 1
            if path == below:
                found = self._folder(path, importer) if not is_last or _has_modules(path) else None
            else:
                found = self._file(path, below, importer)
            if below is None:
                return found if is_last else None
            folder = below
        return found

    def _locate(self, folder: Path, part: str) -> tuple[Path, Path | None] | None:
        """File and folder of a module, the folder twice where it has no file."""
        if (folder, part) not in self._located:
            package, file = folder / part, folder / f"{part}.py"
            found: tuple[Path, Path | None] | None = None
            if (package / "__init__.py").is_file():
                found = package / "__init__.py", package
            elif file.is_file():
                found = file, None
            elif package.is_dir():
                found = package, package
            self._located[folder, part] = found
        return self._located[folder, part]

    def _file(self, path: Path, folder: Path | None, importer: OwnModule) -> OwnModule | None:
        known = self.modules.get(self._key(path))
        if known is not None or self.is_complete or not path.is_file():
            return known
        return self._new(path, folder, [_root(path.parent), *importer.roots])

    def _folder(self, path: Path, importer: OwnModule) -> OwnModule:
        if path not in self._folders:
            self._folders[path] = OwnModule(self, path / "__init__.py", path, importer.roots)
        return self._folders[path]


def _root(folder: Path) -> Path:
    """The folder that holds the outermost package that a folder belongs to."""
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        folder = folder.parent
    return folder


def _has_modules(folder: Path) -> bool:
    return any(each.suffix == ".py" for each in folder.iterdir())
