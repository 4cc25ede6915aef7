"""Errors about names that do not exist, with the nearest names that do."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from popsr._support.text.entry_points import public
from popsr._support.text.nearest import nearest
from popsr._support.text.shown import shown
from popsr.errors import AttributeAccessError

__all__ = ["unknown_attribute", "unknown_name"]


def unknown_name(
    where: str, what: str, name: str, known: Iterable[str], others: Iterable[str] = ()
) -> AttributeAccessError:
    """The error about an unknown name of few, which are listed where none is like it.

    Args:
        where: the call, for the message.
        what: what it is a name of, for the message.
        name: the name.
        known: the names that exist.
        others: further names that exist and are not listed.
    """
    names = list(known)
    expected = nearest(name, [*names, *others]) or f"one of {', '.join(names)}"
    return AttributeAccessError(f"{where}: unknown {what}, got {shown(name)}, expected {expected}")


def unknown_attribute(module: str, names: Iterable[str]) -> Callable[[str], object]:
    """``__getattr__`` of a module: the error about a name that it does not have.

    Args:
        module: name of the module.
        names: what it has.
    """

    @public
    def fail(name: str) -> object:
        close = "" if name.startswith("_") else nearest(name, names)
        hint = f", expected {close}" if close else ""
        raise AttributeAccessError(f"module '{module}' has no attribute {shown(name)}{hint}")

    return fail
