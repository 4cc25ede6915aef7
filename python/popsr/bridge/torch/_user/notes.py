"""Notes with the nodes of a trace, which further traces of its graph keep."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["is_backward", "note_of", "noted", "noted_backward"]

_BACKWARD = "popsr_backward"


@contextlib.contextmanager
def noted(key: str, value: Any) -> Iterator[None]:
    """Inside, nodes that are traced have a note."""
    import torch.fx.traceback as notes

    meta: dict[str, Any] = notes.current_meta
    kept = meta.get("custom")
    meta["custom"] = {**(kept or {}), key: value}
    try:
        yield
    finally:
        meta.pop("custom")
        if kept is not None:
            meta["custom"] = kept


def note_of(node: Any, key: str) -> Any:
    """The note of a node; None if no trace noted it."""
    return (node.meta.get("custom") or {}).get(key)


def noted_backward() -> contextlib.AbstractContextManager[None]:
    """Inside, nodes are of a backward pass."""
    return noted(_BACKWARD, True)


def is_backward(node: Any) -> bool:
    """True for a node that a backward pass made."""
    return note_of(node, _BACKWARD) is True
