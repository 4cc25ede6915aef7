"""Bindings of a C++ file: classes and functions of pybind11 that make operators. The file is read, never compiled."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from popsr._support.text.shown import shown
from popsr._support.text.suggestions import unknown_attribute, unknown_name
from popsr.compat._objects.custom_ops import create
from popsr.compat._objects.identifiers import OperatorIdentifier, graph_of
from popsr.compat._objects.op import CustomOp
from popsr.errors import ArgumentTypeError, FileError, UnknownNameError

__all__ = ["Binding", "read_binding"]

_MAX_BYTES = 1 << 20
_MAX_FILES = 32

_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"\n]+)"', re.MULTILINE)
_SOURCES = re.compile(r"cfg\s*\[\s*['\"](?:sources|dependencies)['\"]\s*\]\s*=\s*\[([^\]]*)\]")
_QUOTED = re.compile(r"['\"]([^'\"\n]+)['\"]")
_IDENTIFIER = re.compile(
    r"\bOperatorIdentifier\b\s*&?\s*\w*\s*=?\s*(?:popart\s*::\s*)?(?:OperatorIdentifier\s*)?[({]\s*"
    r'"([^"\n]*)"\s*,\s*"([^"\n]*)"\s*,\s*(\d+)'
)
_LITERAL = r'("[^"\n]*"|\d+)'
_MACRO = re.compile(rf"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+{_LITERAL}[ \t]*$", re.MULTILINE)
_CONSTANT = re.compile(
    rf"\bconst(?:expr)?\b[^;=(){{}}]*?\b(\w+)\s*(?:\[\s*\]\s*)?(?:=\s*|\{{\s*){_LITERAL}\s*\}}?\s*;"
)
_WORD = re.compile(r'"(?:\\.|[^"\\\n])*"|\b[A-Za-z_]\w*\b')
_CLASS = re.compile(r'\bclass_\s*<\s*([\w:]+)([^;"]*?)>\s*(?:\w+\s*)?\(\s*\w+\s*,\s*"(\w+)"')
_FUNCTION = re.compile(r'\bm\s*\.\s*def\s*\(\s*"(\w+)"')


@dataclass(frozen=True, slots=True)
class Binding:
    """Names that a file binds, with the operator of each; None where the file does not say it."""

    file: str
    classes: Mapping[str, OperatorIdentifier | None] = field(default_factory=dict)
    functions: Mapping[str, OperatorIdentifier | None] = field(default_factory=dict)

    def fill(self, module: ModuleType) -> None:
        """Give a module these names, and an error about others."""
        module.__file__ = self.file
        module.__doc__ = f"Operators that {os.path.basename(self.file)} binds; functions of popsr make them."
        for name, which in self.classes.items():
            setattr(module, name, _op_class(module.__name__, name, which, self.file))
        for name, which in self.functions.items():
            setattr(module, name, _creator(f"{module.__name__}.{name}", which, self.file))
        names = [*self.classes, *self.functions]
        module.__all__ = names  # type: ignore[attr-defined] # of any module
        module.__getattr__ = unknown_attribute(module.__name__, names)  # type: ignore[method-assign] # PEP 562


class _BoundClass(type):
    """Metaclass of bound classes: operators that they made are of them."""

    which: OperatorIdentifier | None

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, CustomOp) and instance.opid == cls.which

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise ArgumentTypeError(
            f"{cls.__name__}: cannot be constructed, got {len(args) + len(kwargs)} arguments, expected "
            f"{cls.__name__}.createOpInGraph(graph, inputs, outputs, ..., settings)"
        )

    def __getattr__(cls, name: str) -> Any:
        """Refuse other names.

        Raises:
            AttributeAccessError: always.
        """
        raise unknown_name(cls.__name__, "name", name, ["createOpInGraph"])


def _op_class(module: str, name: str, which: OperatorIdentifier | None, file: str) -> type:
    creator = staticmethod(_creator(f"{module}.{name}.createOpInGraph", which, file))
    members = {"createOpInGraph": creator, "which": which, "__module__": module}
    return _BoundClass(name, (), members)


def _creator(where: str, which: OperatorIdentifier | None, file: str) -> Callable[..., CustomOp]:
    def create_op(graph: Any, *args: Any, **kwargs: Any) -> CustomOp:
        """Make the operator in a graph: ``(graph, inputs, outputs, ..., settings)``."""
        given = [each for each in args if isinstance(each, OperatorIdentifier)]
        identifier = given[0] if given else which
        if identifier is None:
            raise UnknownNameError(
                f"{where}: {shown(file)} does not say which operator it makes, expected popart::OperatorIdentifier "
                "with a domain, a name and a version as literals"
            )
        rest = [each for each in args if not isinstance(each, OperatorIdentifier)]
        inputs = kwargs.pop("inputs", None) if "inputs" in kwargs else _next(where, "inputs", rest)
        outputs = kwargs.pop("outputs", None) if "outputs" in kwargs else _next(where, "outputs", rest)
        return create(graph_of(where, graph), identifier, inputs, outputs, rest, kwargs)

    create_op.__name__ = create_op.__qualname__ = where.rpartition(".")[2]
    return create_op


def _next(where: str, what: str, args: list[Any]) -> Any:
    if not args:
        raise ArgumentTypeError(
            f"{where}: {what} are missing, expected (graph, inputs, outputs, ..., settings)"
        )
    return args.pop(0)


def read_binding(file: str) -> Binding | None:
    """Bindings of a file; None if it binds no operator of PopART.

    Raises:
        FileError: it cannot be read, or is longer than a mebibyte.
    """
    text = _read(file)
    if "PYBIND11_MODULE" not in text or "popart" not in text:
        return None
    everything = _with_literals("\n".join(_read(each) for each in _files(file, text)))
    found = [OperatorIdentifier(domain, name, int(v)) for domain, name, v in _IDENTIFIER.findall(everything)]
    identifiers = list(dict.fromkeys(found))
    bound = [
        (name, cpp) for cpp, bases, name in _CLASS.findall(text) if "Op" in bases or "createOpInGraph" in text
    ]
    classes = {name: _which((name, cpp), identifiers, len(bound)) for name, cpp in bound}
    names = [name for name in _FUNCTION.findall(text) if name.startswith("create")]
    return Binding(file, classes, {name: _which((name,), identifiers, len(names)) for name in names})


def _with_literals(text: str) -> str:
    """The text with literals in place of macros and constants that stand for one; those of two meanings stay."""
    found: dict[str, set[str]] = {}
    for name, literal in (*_MACRO.findall(text), *_CONSTANT.findall(text)):
        found.setdefault(name, set()).add(literal)
    known = {name: next(iter(literals)) for name, literals in found.items() if len(literals) == 1}
    return _WORD.sub(lambda match: known.get(match[0], match[0]), text)


def _which(
    names: tuple[str, ...], identifiers: list[OperatorIdentifier], how_many: int
) -> OperatorIdentifier | None:
    """The identifier whose name is like a class's, or the only one of a file with one class."""
    if how_many == 1 and len(identifiers) == 1:
        return identifiers[0]
    wanted = {_plain(name) for name in names}
    found = [each for each in identifiers if _plain(each.type) in wanted]
    return found[0] if len(found) == 1 else None


def _plain(name: str) -> str:
    """A name of a class or function without what only says that it is an operator."""
    stem = name.rpartition("::")[2].removeprefix("create").removesuffix("InGraph").removesuffix("Op")
    return stem.replace("_", "").lower()


def _files(file: str, text: str) -> Iterator[str]:
    """The file, and those beside it that it includes or is compiled with."""
    folder = os.path.dirname(file)
    with open(file, encoding="utf-8", errors="replace") as opened:
        raw = opened.read(_MAX_BYTES)
    sources = [name for listed in _SOURCES.findall(raw) for name in _QUOTED.findall(listed)]
    yield file
    for name in list(dict.fromkeys([*_INCLUDE.findall(text), *sources]))[:_MAX_FILES]:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            yield path


def _read(file: str) -> str:
    """The text of a file without comments."""
    try:
        with open(file, encoding="utf-8", errors="replace") as opened:
            text = opened.read(_MAX_BYTES + 1)
    except OSError as error:
        raise FileError(f"cppimport: cannot read {shown(file)}: {error.strerror}") from None
    if len(text) > _MAX_BYTES:
        raise FileError(f"cppimport: {shown(file)} is too long, expected at most {_MAX_BYTES} characters")
    return _COMMENT.sub(lambda match: match[1] or " ", text)
