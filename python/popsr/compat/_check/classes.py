"""Classes of popsr: which attributes their objects have, read from their source."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

__all__ = ["annotated", "fields", "is_ours", "may_have", "with_private_attribute"]

# Packages whose base classes give objects no fields.
_PLAIN = {"pybind11_builtins", *sys.stdlib_module_names}
# Attributes of popsr's objects that begin so lead to PopART's; objects of other packages have none.
PRIVATE_PREFIX = "_pb_"


def is_ours(value: object) -> bool:
    """True for a module, class or function of popsr."""
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return str(home).partition(".")[0] == "popsr"


@functools.cache
def may_have(cls: type, name: str) -> bool:
    """True if an object of a class or of one of its subclasses may have an attribute."""
    return any(_object_may_have(each, name) for each in (cls, *_subclasses(cls)))


def _object_may_have(cls: type, name: str) -> bool:
    """The fields of classes of other packages are not known."""
    is_known = all(is_ours(base) or base.__module__.partition(".")[0] in _PLAIN for base in cls.__mro__)
    # Classes with `fixed_names` say all that they answer; their `__getattr__` raises the error.
    is_open = hasattr(cls, "__getattr__") and not hasattr(cls, "fixed_names")
    return not is_known or is_open or hasattr(cls, name) or name in fields(cls)


def _subclasses(cls: type) -> Iterator[type]:
    subclasses: list[type] = cls.__subclasses__()
    for each in subclasses:
        yield each
        yield from _subclasses(each)


@functools.cache
def fields(cls: type) -> dict[str, type | None]:
    """Attributes that methods set, with their class where a call of a class makes them."""
    found: dict[str, type | None] = {}
    for base in reversed(cls.__mro__):
        found |= dict.fromkeys((*inspect.get_annotations(base), *_slots(base)))
        node = _definition(base) if is_ours(base) and base.__module__ != "popsr._core" else None
        for each in ast.walk(node) if node is not None else ():
            if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
                found.setdefault(each.attr, None)
            elif isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Attribute):
                found[each.targets[0].attr] = _made_by(each.value, base)
    return found


def _slots(cls: type) -> tuple[str, ...]:
    slots = vars(cls).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _definition(cls: type) -> ast.ClassDef | None:
    """Its source; None of a class that is made by a call, whose fields are its attributes."""
    return _definitions(cls.__module__).get(cls.__qualname__)


@functools.cache
def _definitions(module: str) -> dict[str, ast.ClassDef]:
    """The classes of a module by qualified name; each file is parsed once."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):
        return {}
    found: dict[str, ast.ClassDef] = {}
    waiting: list[tuple[str, ast.stmt]] = [("", each) for each in tree.body]
    while waiting:
        above, node = waiting.pop()
        if isinstance(node, ast.ClassDef):
            found[above + node.name] = node
            waiting += [(f"{above}{node.name}.", each) for each in node.body]
    return found


def _made_by(node: ast.expr, owner: type) -> type | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return None
    found = getattr(sys.modules[owner.__module__], node.func.id, None)
    return found if isinstance(found, type) else None


def annotated(annotation: object, function: object) -> type | None:
    """The class of popsr that an annotation of one of its functions names."""
    cls = annotation
    if isinstance(annotation, str):
        of_module = vars(sys.modules.get(getattr(function, "__module__", ""), builtins))
        cls = of_module.get(annotation, _by_name().get(annotation))
    return cls if isinstance(cls, type) and is_ours(cls) else None


@functools.cache
def _all() -> tuple[type, ...]:
    """All classes of popsr that are loaded."""
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "popsr"]
    values = [value for module in modules for value in list(vars(module).values())]
    return tuple({id(each): each for each in values if isinstance(each, type) and is_ours(each)}.values())


@functools.cache
def _by_name() -> dict[str, type]:
    """Classes by name: annotations may name what a module imports for type checkers only.

    Of several with one name it is the one that ``popsr`` itself has, or none.
    """
    found: dict[str, list[type]] = {}
    for cls in _all():
        found.setdefault(cls.__name__, []).append(cls)
    public = {
        name: getattr(sys.modules["popsr"], name, None) for name, each in found.items() if len(each) > 1
    }
    return {name: each[0] for name, each in found.items() if len(each) == 1} | {
        name: cls for name, cls in public.items() if isinstance(cls, type) and cls in found[name]
    }


@functools.cache
def private_attributes() -> dict[str, tuple[type, ...]]:
    """The classes of popsr with attributes of PopART's objects, by attribute."""
    found: dict[str, tuple[type, ...]] = {}
    for cls in _all():
        names: set[str] = {*vars(cls), *_own_stores(cls)}
        for name in sorted(each for each in names if each.startswith(PRIVATE_PREFIX)):
            found[name] = (*found.get(name, ()), cls)
    return found


def _own_stores(cls: type) -> Iterator[str]:
    node: Any = _definition(cls) if _mentions_private(cls.__module__) else None
    for each in ast.walk(node) if node is not None else ():
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            yield each.attr


@functools.cache
def _mentions_private(module: str) -> bool:
    """False for most modules, which then need not be parsed."""
    try:
        return PRIVATE_PREFIX in inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return False


def with_private_attribute(name: str) -> tuple[type, ...]:
    """The classes whose objects have an attribute of this name."""
    return private_attributes().get(name, ())
