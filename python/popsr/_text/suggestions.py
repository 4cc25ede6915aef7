"""Errors about names that do not exist, with the nearest names that do."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

from popsr._text.entry_points import entry_point
from popsr._text.shown import shown
from popsr.errors import AttributeAccessError

__all__ = ["nearest", "unknown_attribute", "unknown_name"]


_MAX_NAME = 100
_LEAST = 0.6  # likeness of a name that is worth a mention
_SPREAD = 0.12  # how much less like the name than the likest one others may be


def nearest(name: str, known: Iterable[str]) -> str:
    """``'a', 'b' or 'c'`` of the known names that are like a name, the likest first; empty when there is none."""
    wanted = name[:_MAX_NAME].lower()
    likeness = {each: difflib.SequenceMatcher(None, wanted, each.lower()).ratio() for each in known}
    best = max(likeness.values(), default=0.0)
    close = [each for each, ratio in likeness.items() if ratio >= max(_LEAST, best - _SPREAD)]
    quoted = [repr(each) for each in sorted(close, key=lambda each: -likeness[each])[:3]]
    return " or ".join(filter(None, (", ".join(quoted[:-1]), *quoted[-1:])))


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

    def fail(name: str) -> object:
        close = "" if name.startswith("_") else nearest(name, names)
        hint = f", expected {close}" if close else ""
        raise AttributeAccessError(f"module '{module}' has no attribute {shown(name)}{hint}")

    return entry_point(fail)
