"""Values of expressions of a program, as far as they can be told without running it.

A value is something of popsr, an object of a class of popsr, something that popsr lacks, something of another package,
something that the program itself defines, or None: unknown.
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import warnings
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

import popsr
from popsr._program.options.options import Options
from popsr._support.extensions import resolve
from popsr._support.text.nearest import nearest
from popsr.compat._check import classes as _classes
from popsr.compat._finder import ALIASES, popsr_name
from popsr.compat._module_paths import MODULE_PATHS, module_of_path

__all__ = ["Foreign", "Instance", "Items", "Known", "Missing", "Own", "Value"]


@dataclass(frozen=True)
class Known:
    """A module, class or function of popsr, and how programs spell it: popxl.ops.add."""

    path: str
    object: Any


@dataclass(frozen=True)
class Instance:
    """Some object of a class of popsr."""

    path: str
    cls: type


@dataclass(frozen=True)
class Missing:
    """A name that popsr lacks; ``is_module``: all that is below it is missing too, each by its own name."""

    path: str
    is_module: bool = False


@dataclass(frozen=True)
class Foreign:
    """A module of Python or of another package, or something in it: numpy.float32."""

    path: str


@dataclass(frozen=True)
class Items:
    """A tuple or list of known length."""

    values: tuple[Value, ...]

    @functools.cached_property
    def first(self) -> Items:
        """The first that was made of the same values; found once, as each may hold another many times."""
        return _items.setdefault(tuple(map(_identity, self.values)), self)


class Own:
    """Something that the program defines: a module, function, class or object of such a class."""

    def attribute(self, name: str) -> Value:
        """The value of ``own.name``; never Missing because of the name."""
        del name
        return None

    def call(self) -> Value:
        """The value of a call."""
        return None

    def enter(self) -> Value:
        """The value that ``with own as name`` binds."""
        return None

    def instance(self) -> Value:
        """An object of it, where it is a class."""
        return None


Value: TypeAlias = Known | Instance | Missing | Foreign | Items | Own | None
_items: dict[tuple[object, ...], Items] = {}


class TooManySteps(SyntaxError):
    """The values of a program's names are made of each other too often."""


class Budget:
    """Steps that reading a program may take, in proportion to its bytes: programs take 0.1 a byte.

    Lines of a program may double the work of the lines before them.
    """

    def __init__(self) -> None:
        self._left = 200_000

    def add_source(self, source: bytes) -> None:
        """A file of the program."""
        self._left += 2 * len(source)

    def take(self, steps: int = 1) -> None:
        """Count steps.

        Raises:
            TooManySteps: none are left.
        """
        self._left -= steps
        if self._left < 0:
            raise TooManySteps("names that are made of each other too often")


def join(values: Iterable[Value]) -> Value:
    """The value of a name that is bound to all these: unknown unless they are the same."""
    distinct = {_identity(value): value for value in values}
    return distinct.popitem()[1] if len(distinct) == 1 else None


def _identity(value: Value) -> object:
    if isinstance(value, Known):
        return Known, id(value.object)
    if isinstance(value, Items):
        return Items, id(value.first)
    return (Instance, value.cls) if isinstance(value, Instance) else value


def is_popsrs(name: str) -> bool:
    """True if popsr answers imports of a module of this name, or says that it is missing."""
    root = name.partition(".")[0]
    return root in ALIASES or root == "popsr"


@functools.cache
def _imported(known_as: str, name: str, root: str | None) -> Value:
    """``root``: what the first part is an alias of; part of the key because tables of aliases may change."""
    del root
    if name in MODULE_PATHS:
        return Known(name, module_of_path(name))
    try:
        return Known(name, importlib.import_module(known_as))
    except ModuleNotFoundError as error:
        is_there = error.name is None or not f"{known_as}.".startswith(f"{error.name}.")
        return None if is_there else Missing(name, is_module=True)
    except ImportError:  # of an optional package
        return None


def module(name: str) -> Value:
    """The module that ``import name`` finds, but for modules of the program's own."""
    if not name:
        return None
    if not is_popsrs(name):
        return Foreign(name)
    return _imported(popsr_name(name) or name, name, ALIASES.get(name.partition(".")[0]))


def member(found: Value, name: str) -> Value:
    """The value that ``from module import name`` finds."""
    value = attribute(found, name)
    if isinstance(found, Known) and isinstance(value, Missing):
        submodule = module(f"{found.path}.{name}")
        return value if isinstance(submodule, Missing) else submodule
    return value


def public_names(found: Known) -> list[str]:
    """The names that ``from module import *`` binds."""
    names = [name for name in vars(found.object) if not name.startswith("_")]
    return list(getattr(found.object, "__all__", names))


def attribute(owner: Value, name: str) -> Value:
    """The value of ``owner.name``."""
    if isinstance(owner, Missing):
        return Missing(f"{owner.path}.{name}", True) if owner.is_module else owner
    if isinstance(owner, Known):
        return _attribute_of_object(owner, name)
    if isinstance(owner, Instance):
        return _attribute_of_instance(owner, name)
    if isinstance(owner, Foreign):
        return Foreign(f"{owner.path}.{name}")
    return owner.attribute(name) if isinstance(owner, Own) else None


def _attribute_of_object(owner: Known, name: str) -> Value:
    path = f"{owner.path}.{name}"
    read = _of_module if isinstance(owner.object, ModuleType) else _of_object
    is_there, value = read(owner.object, name)
    if is_there is None:
        return None
    return Known(path, value) if is_there else Missing(path)


def _of_object(owner: Any, name: str) -> tuple[bool | None, Any]:
    """True if an object of popsr has an attribute, None where that is not known; and the attribute."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a deprecated name
            return True, getattr(owner, name)
    except AttributeError:
        return (False if _classes.is_ours(owner) else None), None
    except Exception:  # an optional package; an attribute that only a running program has
        return None, None


_of_module = functools.cache(_of_object)  # modules look for the nearest name before they fail


@functools.cache
def _option(name: str) -> Value:
    """An option; where it is a group of options, these are known too."""
    path = f"option {name}"
    try:
        value = getattr(Options(), name)
    except AttributeError:
        return Missing(path)
    is_group = _classes.is_ours(type(value)) and not isinstance(value, enum.Enum)
    return Known(path, value) if is_group else None


def is_option(owner: Value) -> bool:
    """True if attributes of it are options, which a program cannot make up."""
    if isinstance(owner, Known):
        return owner.path.startswith("option ")
    return isinstance(owner, Instance) and owner.cls is Options


def _attribute_of_instance(owner: Instance, name: str) -> Value:
    path = f"{owner.path}.{name}"
    if owner.cls is Options:
        return _option(name)
    if inspect.getattr_static(owner.cls, name, None) is not None:
        value = getattr(owner.cls, name, None)  # None: of an object of an enum
        if isinstance(value, property):
            getter = resolve(value.fget) if value.fget is not None else None
            return _annotated(_return_annotation(getter), getter, owner, path)
        if inspect.isfunction(value):
            return Known(path, resolve(value))
        return Known(path, value) if inspect.isroutine(value) or isinstance(value, type) else None
    fields = _classes.fields(owner.cls)
    if name in fields:
        made_by = fields[name]
        return None if made_by is None else Instance(path, made_by)
    return None if _classes.may_have(owner.cls, name) else Missing(path)


def private_attribute(name: str) -> Value:
    """The value of ``x.name`` when nothing is known of ``x`` and only objects of popsr have such names."""
    owners = _classes.with_private_attribute(name)
    if not owners:
        return Missing(name)
    return join(attribute(Instance(f"popxl.{cls.__name__}", cls), name) for cls in owners)


def call(function: Value) -> Value:
    """The value of a call."""
    if isinstance(function, Own):
        return function.call()
    if not isinstance(function, Known):
        return None
    if isinstance(function.object, type):
        return instance(function)
    annotation = _return_annotation(function.object)
    return _annotated(annotation, function.object, function, f"{function.path}()")


def enter(manager: Value) -> Value:
    """The value that ``with manager as name`` binds."""
    if isinstance(manager, Own):
        return manager.enter()
    if not isinstance(manager, Instance):
        return None
    function = attribute(manager, "__enter__")
    gives_itself = isinstance(function, Known) and _return_annotation(function.object) == "Self"
    return manager if gives_itself else call(function)


def instance(cls: Value) -> Value:
    """An object of what a program names as a class."""
    if isinstance(cls, Own):
        return cls.instance()
    return Instance(cls.path, cls.object) if isinstance(cls, Known) and isinstance(cls.object, type) else None


def item(value: Value, index: int, count: int) -> Value:
    """One of ``count`` names that a value is unpacked to."""
    return value.values[index] if isinstance(value, Items) and len(value.values) == count else None


def _return_annotation(function: object) -> object:
    return getattr(function, "__annotations__", {}).get("return")


def _annotated(annotation: object, function: object, owner: Known | Instance, path: str) -> Value:
    """An object of the class that an annotation of popsr names; ``path`` is how programs reach it."""
    cls = _classes.annotated(annotation, function)
    if cls is None:
        return None
    root = owner.path.partition(".")[0]
    return Instance(f"{root}.{cls.__name__}" if _of_module(popsr, cls.__name__)[1] is cls else path, cls)


def unknown_keywords(function: Value, keywords: Iterable[str]) -> list[str]:
    """The keywords that a call of the function does not take."""
    taken = parameters(function)
    return [] if taken is None else [keyword for keyword in keywords if keyword not in taken]


def parameters(function: Value) -> list[str] | None:
    """Names that a call may give, in order; None where they are not known, or anything may be given."""
    if not isinstance(function, Known) or not isinstance(function.object, Hashable):
        return None
    is_known = callable(function.object) and _classes.is_ours(function.object)
    return _parameters(function.object) if is_known else None


@functools.cache
def _parameters(function: Any) -> list[str] | None:
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of the core
        return None
    if any(each.kind is each.VAR_KEYWORD for each in found):
        return None
    return [each.name for each in found if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]


def suggestion(owner: Value, name: str) -> str:
    """The nearest names that the owner has, quoted; empty when none is like the name."""
    if isinstance(owner, Instance) and owner.cls is Options:
        return _suggested_option(name)
    if isinstance(owner, Known):
        own = getattr(owner.object, "__dict__", ())
        names = (
            _names(owner.object, len(own)) if isinstance(owner.object, Hashable) else _all_names(owner.object)
        )
    elif isinstance(owner, Instance):
        names = _names_of_instances(owner.cls)
    else:
        return ""
    return nearest(name, names[name.startswith("_")])


def _all_names(owner: Any) -> tuple[list[str], list[str]]:
    """Public and private names of an object."""
    own, public = getattr(owner, "__dict__", ()), getattr(owner, "__all__", ())
    return _parted({*dir(owner), *own, *public})


@functools.cache
def _names(owner: Any, number: int) -> tuple[list[str], list[str]]:
    """``number``: of its own names, which grow as its modules are imported."""
    del number
    return _all_names(owner)


@functools.cache
def _names_of_instances(cls: type) -> tuple[list[str], list[str]]:
    return _parted({*dir(cls), *_classes.fields(cls)})


def _parted(names: set[str]) -> tuple[list[str], list[str]]:
    private = {each for each in names if each.startswith("_")}
    return sorted(names - private), sorted(private)


def _suggested_option(name: str) -> str:
    """The error about an unknown option names the nearest: its table is not read a second time."""
    try:
        getattr(Options(), name)
    except AttributeError as error:
        expected = str(error).rpartition(", expected ")[2]
        return expected if expected.startswith("'") else ""
    return ""


def suggested_module(name: str) -> str:
    """The nearest modules or names beside a module that popsr lacks."""
    parent, _, last = name.rpartition(".")
    if not parent:
        return nearest(name, ALIASES)
    found = module(parent)
    if not isinstance(found, Known) or not isinstance(found.object, ModuleType):
        return ""
    return suggestion(found, last)


def private_names() -> list[str]:
    """Names of all attributes that lead to PopART's objects."""
    return sorted(_classes.private_attributes())
