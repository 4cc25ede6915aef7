"""Modules of a model whose forward pass is running, as name scopes."""

from __future__ import annotations

import contextlib
import contextvars
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from popsr.bridge.torch._user.notes import note_of, noted

__all__ = ["current_module", "module_of_node", "modules_named", "noted_module"]

_MODULE = "popsr_module"
_named: contextvars.ContextVar[Mapping[int, str] | None] = contextvars.ContextVar("modules", default=None)


@contextlib.contextmanager
def modules_named(model: Any) -> Iterator[None]:
    """Inside, modules of a model have the names that its parameters have."""
    names = {id(module): name for name, module in model.named_modules()}
    token = _named.set(names)
    try:
        yield
    finally:
        _named.reset(token)


def current_module() -> str:
    """Path of the innermost module whose forward pass is running; empty outside of the model."""
    import torch

    names = _named.get()
    call: Any = torch.nn.Module._call_impl
    frame: FrameType | None = sys._getframe(1) if names else None
    while names and frame is not None:
        if frame.f_code is call.__code__:
            name = names.get(id(frame.f_locals["self"]))
            if name is not None:
                return name
        frame = frame.f_back
    return ""


def noted_module(path: str) -> contextlib.AbstractContextManager[None]:
    """Inside, nodes are of the forward pass of a module, or of its gradient."""
    return noted(_MODULE, path) if path else contextlib.nullcontext()


def module_of_node(node: Any) -> tuple[str, ...]:
    """The parts of the path of the module that a node is of, as popsr's trace or ``torch.export`` notes it."""
    stack = node.meta.get("nn_module_stack") or {}
    path = note_of(node, _MODULE) or next((path for path, *_ in reversed(stack.values())), "")
    return tuple(part for part in path.removeprefix("L['self']").split(".") if part)
