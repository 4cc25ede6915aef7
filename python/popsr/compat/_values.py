"""What an expression of a program stands for in popsr, as far as that can be told without running the program.

A value is something of popsr, an object of a class of popsr, something that popsr lacks, or None: unknown.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

import popsr
from popsr.compat._finder import ALIASES, popsr_name
from popsr.options import Options

__all__ = ["Instance", "Known", "Missing", "Value"]


@dataclass(frozen=True)
class Known:
    """A module, class or function of popsr, and how programs spell it: popxl.ops.add."""

    path: str
    object: Any


@dataclass(frozen=True)
class Instance:
    """Some object of a class."""

    path: str
    cls: type


@dataclass(frozen=True)
class Missing:
    """A name that popsr lacks; ``is_module``: all that is below it is missing too, each by its own name."""

    path: str
    is_module: bool = False


# Packages whose base classes give objects no fields.
_PLAIN = {"pybind11_builtins", *sys.stdlib_module_names}

Value: TypeAlias = Known | Instance | Missing | None


def join(values: Iterable[Value]) -> Value:
    """What a name stands for that is bound to all these: unknown unless they are the same."""
    distinct = {_identity(value): value for value in values}
    return distinct.popitem()[1] if len(distinct) == 1 else None


def _identity(value: Value) -> object:
    if isinstance(value, Known):
        return Known, id(value.object)
    return (Instance, value.cls) if isinstance(value, Instance) else value


def module(name: str) -> Value:
    """What ``import name`` finds."""
    root = name.partition(".")[0]
    if root not in ALIASES and root != "popsr":
        return None
    known_as = popsr_name(name) or name
    try:
        return Known(name, importlib.import_module(known_as))
    except ModuleNotFoundError as error:
        is_there = error.name is None or not f"{known_as}.".startswith(f"{error.name}.")
        return None if is_there else Missing(name, is_module=True)
    except ImportError:  # of an optional package
        return None


def member(found: Value, name: str) -> Value:
    """What ``from module import name`` finds."""
    value = attribute(found, name)
    if isinstance(found, Known) and isinstance(value, Missing):
        submodule = module(f"{found.path}.{name}")
        return value if isinstance(submodule, Missing) else submodule
    return value


def public_names(found: Known) -> list[str]:
    """What ``from module import *`` binds."""
    names = [name for name in vars(found.object) if not name.startswith("_")]
    return list(getattr(found.object, "__all__", names))


def attribute(owner: Value, name: str) -> Value:
    """What ``owner.name`` stands for."""
    if isinstance(owner, Missing):
        return Missing(f"{owner.path}.{name}", True) if owner.is_module else owner
    if isinstance(owner, Known):
        return _attribute_of_object(owner, name)
    return None if owner is None else _attribute_of_instance(owner, name)


def _attribute_of_object(owner: Known, name: str) -> Value:
    path = f"{owner.path}.{name}"
    try:
        value = getattr(owner.object, name)
    except AttributeError:
        return Missing(path) if _is_ours(owner.object) else None
    except ImportError:  # of an optional package
        return None
    return Known(path, value)


def _is_ours(value: object) -> bool:
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return str(home).partition(".")[0] == "popsr"


def _attribute_of_instance(owner: Instance, name: str) -> Value:
    path = f"{owner.path}.{name}"
    if owner.cls is Options:
        return None if hasattr(Options(), name) else Missing(f"option {name}")
    if inspect.getattr_static(owner.cls, name, None) is not None:
        value = getattr(owner.cls, name, None)  # None: of an object of an enum
        if isinstance(value, property):
            return _annotated(_return_annotation(value.fget), value.fget, owner, path)
        return Known(path, value) if inspect.isroutine(value) or isinstance(value, type) else None
    if name in _fields(owner.cls):
        made_by = _fields(owner.cls)[name]
        return None if made_by is None else Instance(path, made_by)
    return (
        None if any(_may_have(cls, name) for cls in (owner.cls, *_subclasses(owner.cls))) else Missing(path)
    )


def _may_have(cls: type, name: str) -> bool:
    """Whether objects may have an attribute; the fields of classes of other packages are not known."""
    is_known = all(_is_ours(base) or base.__module__.partition(".")[0] in _PLAIN for base in cls.__mro__)
    return (
        not is_known
        or hasattr(cls, name)
        or name in _fields(cls)
        or (hasattr(cls, "__getattr__") and not hasattr(cls, "fixed_names"))
    )


def _subclasses(cls: type) -> Iterator[type]:
    subclasses: list[type] = cls.__subclasses__()
    for each in subclasses:
        yield each
        yield from _subclasses(each)


@functools.cache
def _fields(cls: type) -> dict[str, type | None]:
    """Attributes that methods set, with their class where a call of a class makes them."""
    fields: dict[str, type | None] = {}
    for base in reversed(cls.__mro__):
        fields |= dict.fromkeys((*vars(base).get("__annotations__", ()), *vars(base).get("__slots__", ())))
        if not _is_ours(base) or base.__module__ == "popsr._core":
            continue
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(base)))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                fields.setdefault(node.attr, None)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
                fields[node.targets[0].attr] = _made_by(node.value, base)
    return fields


def _made_by(node: ast.expr, owner: type) -> type | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return None
    found = getattr(sys.modules[owner.__module__], node.func.id, None)
    return found if isinstance(found, type) else None


def call(function: Value) -> Value:
    """What a call returns."""
    if not isinstance(function, Known):
        return None
    if isinstance(function.object, type):
        return instance(function)
    annotation = _return_annotation(function.object)
    return _annotated(annotation, function.object, function, f"{function.path}()")


def enter(manager: Value) -> Value:
    """What ``with manager as name`` binds."""
    return call(attribute(manager, "__enter__")) if isinstance(manager, Instance) else None


def instance(cls: Value) -> Value:
    """An object of what a program names as a class."""
    return Instance(cls.path, cls.object) if isinstance(cls, Known) and isinstance(cls.object, type) else None


def _return_annotation(function: object) -> object:
    return getattr(function, "__annotations__", {}).get("return")


def _annotated(annotation: object, function: object, owner: Known | Instance, path: str) -> Value:
    """An object of the class that an annotation of popsr names; ``path`` is how programs reach it."""
    cls = annotation
    if isinstance(annotation, str):
        of_module = vars(sys.modules.get(getattr(function, "__module__", ""), builtins))
        cls = of_module.get(annotation, _classes().get(annotation))
    if not isinstance(cls, type) or not _is_ours(cls):
        return None
    root = owner.path.partition(".")[0]
    is_exported = getattr(popsr, cls.__name__, None) is cls
    return Instance(f"{root}.{cls.__name__}" if is_exported else path, cls)


@functools.cache
def _classes() -> dict[str, type]:
    """All classes of popsr by name: annotations may name what a module imports for type checkers only."""
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "popsr"]
    values = [value for module in modules for value in vars(module).values()]
    return {value.__name__: value for value in values if isinstance(value, type) and _is_ours(value)}


def unknown_keywords(function: Value, keywords: Iterable[str]) -> list[str]:
    """Those of the keywords that a call of the function does not take."""
    if not isinstance(function, Known) or not _is_ours(function.object) or not callable(function.object):
        return []
    try:
        parameters = inspect.signature(function.object).parameters.values()
    except (TypeError, ValueError):  # of the core
        return []
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return []
    taken = {each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    return [keyword for keyword in keywords if keyword not in taken]
