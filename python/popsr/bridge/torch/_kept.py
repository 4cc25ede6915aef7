"""What a step leaves behind in Python: attributes of modules and of the optimiser, put back after its traces."""

from __future__ import annotations

import contextlib
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any

__all__ = ["kept_attributes", "name_of_kept"]

_CONTAINERS = (dict, list, set, OrderedDict, defaultdict, deque)


@contextlib.contextmanager
def kept_attributes(*objects: Any) -> Iterator[None]:
    """Put the attributes of objects back as they are now, with what is in their lists, sets and dictionaries.

    So are torch's own settings that a step may change: if gradients are made, and the default element type.
    """
    import torch

    enabled, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    kept: dict[int, tuple[Any, Any]] = {}
    for each in objects:
        _keep(vars(each), kept)
    try:
        yield
    finally:
        torch.set_grad_enabled(enabled)
        torch.set_default_dtype(dtype)
        for container, content in kept.values():
            container.clear()
            (container.extend if isinstance(container, list | deque) else container.update)(content)


def _keep(container: Any, kept: dict[int, tuple[Any, Any]]) -> None:
    if id(container) in kept:
        return
    kept[id(container)] = (container, container.copy())
    for value in container.values() if isinstance(container, dict) else container:
        if type(value) in _CONTAINERS:
            _keep(value, kept)


def name_of_kept(model: Any, t: Any) -> str | None:
    """The attribute of a module that is, or has in a list or dictionary, a tensor."""
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if not name.startswith("_") and _has(value, t):
                return f"{prefix}.{name}" if prefix else name
            if name in ("_buffers", "_parameters"):
                inner = next((key for key, each in value.items() if each is t), None)
                if inner is not None:
                    return f"{prefix}.{inner}" if prefix else inner
    return None


def _has(value: Any, t: Any) -> bool:
    if isinstance(value, dict):
        return any(_has(each, t) for each in value.values())
    if isinstance(value, list | tuple | deque):
        return any(_has(each, t) for each in value)
    return value is t
