"""Errors of public functions say where the user's program called them, and which keyword was meant."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

from popsr._program.location import describe_location
from popsr._text.suggestions import nearest
from popsr.errors import ArgumentTypeError, Error

__all__ = ["explain_calls"]

_explained: dict[Callable[..., Any], Callable[..., Any]] = {}


def explain_calls(module: MutableMapping[str, Any], names: Iterable[str]) -> None:
    """Let errors of functions of a module say more.

    An error that has no note yet gets one with the file and line of the call; a keyword that a function does not take
    is answered with the nearest parameter. The functions are replaced where they are defined too, so that they are the
    same objects everywhere.

    Args:
        module: the module's namespace.
        names: its functions; classes and other values are left as they are.
    """
    for name in names:
        function = module.get(name)
        if inspect.isfunction(function) and function not in _explained.values():
            if function not in _explained:
                _explained[function] = _explaining(function)
                home = vars(sys.modules[function.__module__])
                home.update({alias: _explained[function] for alias in list(home) if home[alias] is function})
            module[name] = _explained[function]


def _explaining(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs) if kwargs else fn(*args)
        except Error as error:
            if not hasattr(error, "__notes__"):
                error.add_note(f"in {fn.__name__}() at {describe_location()}")
            raise
        except TypeError as error:
            if kwargs:
                _refuse_keywords(fn, kwargs, error)
            raise

    return call


def _refuse_keywords(fn: Callable[..., Any], kwargs: dict[str, Any], error: TypeError) -> None:
    """Another error for the one that Python raises of a keyword that is not a parameter."""
    parameters = inspect.signature(fn).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return
    known = list(parameters)
    unknown = [name for name in kwargs if name not in known]
    if unknown:
        expected = nearest(unknown[0], known) or f"one of {', '.join(known)}"
        raise ArgumentTypeError(f"{error}, expected {expected}") from None
