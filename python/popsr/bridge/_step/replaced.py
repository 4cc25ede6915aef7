"""Attributes of frameworks that are others while a step is read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["replaced"]


@contextlib.contextmanager
def replaced(changes: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Inside, attributes have other values; after it those that they had, however it ends.

    Args:
        changes: a module, class or object each, the name of an attribute, and the value inside. What a class inherits,
            or its objects have, it does not keep.
    """
    with contextlib.ExitStack() as stack:
        for owner, name, value in changes:
            own = getattr(owner, "__dict__", {})
            if isinstance(owner, type) and name not in own:
                stack.callback(delattr, owner, name)
            else:
                stack.callback(setattr, owner, name, own[name] if name in own else getattr(owner, name))
            setattr(owner, name, value)
        yield
