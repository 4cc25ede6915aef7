"""Errors of public functions say where the user's program called them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

from popsr._program.building.location import describe_location
from popsr._support.text.entry_points import entry_point, has_place, in_its_home
from popsr.errors import Error

__all__ = ["explain_calls"]


def explain_calls(module: MutableMapping[str, Any], names: Iterable[str]) -> None:
    """Make entry points of functions of a module, whose errors have a note with the file and line of the call.

    Errors that have such a note already keep it. The functions are replaced where they are defined too, so that they
    are the same objects everywhere.

    Args:
        module: the module's namespace.
        names: its functions; classes and other values are left as they are.
    """
    for name in names:
        function = module.get(name)
        if inspect.isfunction(function):
            module[name] = in_its_home(function, entry_point(function, _add_place))


def _add_place(fn: Callable[..., Any], error: Error) -> None:
    if not has_place(error):
        error.add_note(f"in {fn.__name__}() at {describe_location()}")
