"""Functions that are called with each op that is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from popsr._support.host.arguments import read_int
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError

__all__ = ["OpHooks"]


@dataclass(frozen=True, slots=True)
class OpHooks:
    """The hooks of a graph or of the context, by handle; called in the order in which they were registered."""

    hooks: Mapping[int, Callable[[Any], Any]] = field(default_factory=dict)
    next: int = 0

    def register(self, fn: Callable[[Any], Any]) -> tuple[OpHooks, int]:
        """With one more hook; and its handle.

        Raises:
            TypeError: it cannot be called.
        """
        if not callable(fn):
            raise ArgumentTypeError(
                f"register_op_created_hook: fn cannot be called, got {shown(fn)}, expected a function of an Op"
            )
        return OpHooks({**self.hooks, self.next: fn}, self.next + 1), self.next

    def remove(self, handle: int) -> OpHooks:
        """Without a hook.

        Raises:
            ValueError: the handle is unknown.
        """
        handle = read_int("remove_op_created_hook: handle", handle)
        if handle not in self.hooks:
            raise AttributeValueError(
                f"remove_op_created_hook: unknown handle, got {shown(handle)}, "
                "expected what register_op_created_hook returned"
            )
        return OpHooks({each: fn for each, fn in self.hooks.items() if each != handle}, self.next)

    def run(self, op: object) -> None:
        """Call the hooks."""
        for hook in self.hooks.values():
            hook(op)
