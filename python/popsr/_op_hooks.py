"""Functions that are called with each op that is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from popsr.errors import ArgumentTypeError, AttributeValueError

if TYPE_CHECKING:
    from popsr.op import Op

__all__ = ["OpHooks"]


class OpHooks:
    """The hooks of a graph or of the context, by handle; called in the order in which they were registered."""

    def __init__(self) -> None:
        """No hooks."""
        self.hooks: dict[int, Callable[[Op], Any]] = {}
        self._next = 0

    def register(self, fn: Callable[[Op], Any]) -> int:
        """Add a hook; returns its handle.

        Raises:
            TypeError: it cannot be called.
        """
        if not callable(fn):
            raise ArgumentTypeError(f"register_op_created_hook: fn cannot be called, got {fn!r}")
        handle = self._next
        self._next += 1
        self.hooks[handle] = fn
        return handle

    def remove(self, handle: int) -> None:
        """Remove a hook.

        Raises:
            ValueError: the handle is unknown.
        """
        if self.hooks.pop(handle, None) is None:
            raise AttributeValueError(f"remove_op_created_hook: unknown handle, got {handle!r}")

    def _snapshot(self) -> tuple[dict[int, Callable[[Op], Any]], int]:
        return self.hooks.copy(), self._next

    def _restore(self, before: tuple[dict[int, Callable[[Op], Any]], int]) -> None:
        self.hooks, self._next = before[0].copy(), before[1]

    def run(self, op: Op) -> None:
        """Call the hooks that are there now, also if one removes another."""
        for hook in list(self.hooks.values()):
            hook(op)
