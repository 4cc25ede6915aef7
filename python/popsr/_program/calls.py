"""Errors of public functions say where the user's program called them, and which keyword was meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

from popsr._program.location import describe_location
from popsr._text.entry_points import entry_point, has_place, in_its_home
from popsr._text.suggestions import nearest
from popsr.errors import ArgumentTypeError, Error

__all__ = ["explain_calls"]


def explain_calls(module: MutableMapping[str, Any], names: Iterable[str]) -> None:
    """Make entry points of functions of a module, whose errors say more.

    An error that has no note yet gets one with the file and line of the call; a keyword that a function does not take
    is answered with the nearest parameter. The functions are replaced where they are defined too, so that they are the
    same objects everywhere.

    Args:
        module: the module's namespace.
        names: its functions; classes and other values are left as they are.
    """
    for name in names:
        function = module.get(name)
        if inspect.isfunction(function):
            module[name] = in_its_home(function, entry_point(function, _explain))


def _explain(fn: Callable[..., Any], kwargs: dict[str, Any], error: Exception) -> Error | None:
    if isinstance(error, Error):
        if not has_place(error):
            error.add_note(f"in {fn.__name__}() at {describe_location()}")
    elif kwargs and isinstance(error, TypeError):
        return _unknown_keyword(fn, kwargs, error)
    return None


def _unknown_keyword(fn: Callable[..., Any], kwargs: dict[str, Any], error: TypeError) -> Error | None:
    """The error of popsr for Python's about a keyword that is not a parameter."""
    parameters = inspect.signature(fn).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return None
    known = list(parameters)
    unknown = [name for name in kwargs if name not in known]
    if not unknown:
        return None
    expected = nearest(unknown[0], known) or f"one of {', '.join(known)}"
    return ArgumentTypeError(f"{error}, expected {expected}")
