"""The registry of functions in rooms above the caller's: of members as ``Graph.html`` and ``Session.report``.

A class of the core has the member: a method that uses ``call``, or an attribute that ``member`` makes. The room that
does the work has a row for it in the table ``MEMBERS`` of its module ``_members``: the name of the member, and the
module of the room with the function. A room is imported when one of its members is used first. ``__getattr__`` on the
classes would need no lines there, and make each property of a tensor take two or three times as long.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

from popsr._support.text.entry_points import entry_point

__all__ = ["call", "find", "member", "resolve"]

_members: dict[Callable[..., Any], tuple[str, str]] = {}  # what ``member`` made: room and name


@functools.cache
def find(room: str, name: str) -> Callable[..., Any]:
    """The function of a room that is a member of a class below it.

    Args:
        room: a package in popsr: ``"_tools"``.
        name: the member: ``"Graph.html"``.
    """
    rows: dict[str, str] = importlib.import_module(f"popsr.{room}._members").MEMBERS
    module, _, function = rows[name].partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(f"popsr.{room}.{module}"), function)
    return found


def call(room: str, name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a member; the arguments are those of its function.

    Args:
        room: as for ``find``.
        name: as for ``find``.
        *args: of the function.
        **kwargs: likewise.
    """
    return find(room, name)(*args, **kwargs)


def member(room: str, name: str) -> Callable[..., Any]:
    """A member as a method: for names that are private, of PopART, or called by notebooks.

    Args:
        room: as for ``find``.
        name: as for ``find``.
    """

    def method(*args: Any, **kwargs: Any) -> Any:
        return find(room, name)(*args, **kwargs)

    method.__qualname__, method.__name__ = name, name.rpartition(".")[2]
    _members[method] = room, name
    return entry_point(method)


def resolve(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that a method made by ``member`` calls, which has its signature; other functions as they are."""
    place = _members.get(inspect.unwrap(function))
    return function if place is None else find(*place)
