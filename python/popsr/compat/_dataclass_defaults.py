"""Fields of dataclasses may default to instances of other dataclasses, as up to Python 3.10.

Python 3.11 refuses a default whose class is not hashable, which most dataclasses are. Such a default becomes a factory
that makes a deep copy for each object; the class attribute stays what the program wrote. Lists, dictionaries and sets
stay refused, as they always were.

The standard library offers no way in. ``dataclasses._get_field`` makes each field, has had the same first three
parameters since Python 3.7, and is looked up when a class is made, so modules that imported ``dataclass`` before
:func:`start` are served too.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

__all__ = ["start", "stop"]

_HOOK = "_get_field"
_replaced: list[tuple[Any, Any]] = []  # the function of the standard library and ours


def start() -> None:
    """Let classes that are defined from now on have such fields. Twice is once."""
    original = getattr(dataclasses, _HOOK, None)
    if original is None or _replaced:
        return

    def get_field(cls: type, name: str, kind: Any, *args: Any, **kwargs: Any) -> Any:
        make = partial(original, cls, name, kind, *args, **kwargs)
        try:
            return make()
        except ValueError:
            default = _refused_default(cls, name) if _replaced and _replaced[0][1] is get_field else None
            if default is None:
                raise
        return _with_factory(cls, name, default, make)

    _replaced.append((original, get_field))
    setattr(dataclasses, _HOOK, get_field)


def stop() -> None:
    """Undo :func:`start`; classes that were defined meanwhile keep working."""
    if _replaced:
        original, ours = _replaced.pop()
        if getattr(dataclasses, _HOOK) is ours:  # else another one calls ours, which now does nothing
            setattr(dataclasses, _HOOK, original)


def _refused_default(cls: type, name: str) -> Any:
    """The default of a field if it is an instance of a dataclass, else None."""
    given = getattr(cls, name, None)
    default = given.default if isinstance(given, dataclasses.Field) else given
    is_instance = dataclasses.is_dataclass(default) and not isinstance(default, type)
    return default if is_instance and not isinstance(default, (list, dict, set)) else None


def _with_factory(cls: type, name: str, default: Any, make: Callable[[], Any]) -> Any:
    """Make the field again, from a specification with a factory in the place of the default."""
    given = getattr(cls, name)
    field: Any = given if isinstance(given, dataclasses.Field) else dataclasses.field()
    field.default = dataclasses.MISSING
    field.default_factory = partial(copy.deepcopy, default)
    setattr(cls, name, field)
    try:
        return make()
    finally:
        setattr(cls, name, default)
