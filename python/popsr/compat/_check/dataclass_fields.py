"""Fields of dataclasses that default to an instance of another dataclass, which Python 3.11 refuses."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from popsr.compat._check.own import DATACLASS, OwnClass, OwnObject, decorator_path
from popsr.compat._check.values import Foreign, Value

__all__ = ["unhashable_defaults"]

_NO_FIELDS = {"typing.ClassVar", "dataclasses.InitVar"}


def unhashable_defaults(cls: OwnClass) -> Iterator[tuple[ast.expr, str, str]]:
    """Default, name of the field, and name of the class that the default is an instance of."""
    if _decorator(cls) is None:
        return
    for each in cls.node.body:
        if not isinstance(each, ast.AnnAssign) or not isinstance(each.target, ast.Name) or each.value is None:
            continue
        default = _default(cls, each.value)
        value = cls.inner.value(default)
        if isinstance(value, OwnObject) and _is_field(cls, each.annotation) and _is_unhashable(value.cls):
            yield each.value, each.target.id, value.cls.node.name


def _decorator(cls: OwnClass) -> ast.expr | None:
    found = (each for each in cls.node.decorator_list if decorator_path(cls.outer, each) == DATACLASS)
    return next(found, None)


def _default(cls: OwnClass, value: ast.expr) -> ast.expr | None:
    """The default in ``field(default=...)``, or the value itself."""
    if isinstance(value, ast.Call) and cls.inner.value(value.func) == Foreign("dataclasses.field"):
        return next((each.value for each in value.keywords if each.arg == "default"), None)
    return value


def _is_field(cls: OwnClass, annotation: ast.expr) -> bool:
    if isinstance(annotation, ast.Constant):  # as a string
        return not any(name.rpartition(".")[2] in str(annotation.value) for name in _NO_FIELDS)
    outer = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    value: Value = cls.inner.value(outer)
    return not (isinstance(value, Foreign) and value.path in _NO_FIELDS)


def _is_unhashable(cls: OwnClass) -> bool:
    """True if the class is a dataclass with ``__eq__`` and without ``__hash__``, as far as can be told."""
    for each in cls.mro():
        if not isinstance(each, OwnClass):
            return False
        if "__hash__" in each.inner.bindings:
            return False
        decorator = _decorator(each)
        if decorator is not None:
            return _makes_unhashable(decorator)
        if "__eq__" in each.inner.bindings:
            return False  # unhashable, but not a dataclass of its own
    return False


def _makes_unhashable(decorator: ast.expr) -> bool:
    options: dict[str | None, object] = {}
    for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
        options[keyword.arg] = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
    return (
        options.get("eq", True) is True
        and options.get("frozen", False) is False
        and options.get("unsafe_hash", False) is False
        and None not in options
    )
