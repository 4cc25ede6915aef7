"""Python state that a step changes: attributes of modules and of the optimiser, put back after its traces."""

from __future__ import annotations

import contextlib
import inspect
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

from popsr.bridge.torch._locations import is_users
from popsr.bridge.torch._ranks.same import key_of

__all__ = ["add_plain", "captured", "is_plain", "kept_attributes", "name_of_kept", "plain_values"]

_CONTAINERS = (dict, list, set, OrderedDict, defaultdict, deque)
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


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


def plain_values(model: Any, optimizer: Any, step: Any) -> dict[str, Hashable]:
    """Numbers and texts that a step may count with, by name: attributes, and what its function captures.

    Those of modules and of the optimiser are followed into lists and dictionaries, whose lengths count, too.
    """
    found: dict[str, Hashable] = {}
    for prefix, module in model.named_modules():
        add_plain(f"{prefix}." if prefix else "", vars(module), found)
    if optimizer is not None:
        add_plain("optimizer.", vars(optimizer), found)
    classes = {each for module in model.modules() for each in type(module).__mro__}
    functions = [each for kind in classes for each in vars(kind).values() if inspect.isfunction(each)]
    for name, value in captured([inspect.unwrap(step), *functions]):
        if is_plain(value):
            found[name] = key_of(value)
        elif _is_users_object(value):
            add_plain(f"{name}.", vars(value), found)
    return found


def _is_users_object(value: Any) -> bool:
    """True for an object with attributes that is neither of torch's own, as modules are, nor a function or class."""
    import torch

    kinds = (torch.nn.Module, torch.Tensor, torch.optim.Optimizer, type, types.FunctionType, types.ModuleType)
    return not isinstance(value, kinds) and isinstance(getattr(value, "__dict__", None), dict)


def is_plain(value: Any) -> bool:
    """True for numbers, texts and None."""
    return isinstance(value, _PLAIN)


def add_plain(prefix: str, items: Mapping[Any, Any], found: dict[str, Hashable]) -> None:
    """Add numbers and texts among some items, and those in lists and dictionaries of them, whose lengths count, too."""
    waiting = [(f"{prefix}{name}", value) for name, value in items.items()]
    seen: set[int] = set()
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, _PLAIN):
            found[name] = key_of(value)
        elif type(value) in (*_CONTAINERS, tuple) and id(value) not in seen:
            seen.add(id(value))
            found[f"len({name})"] = len(value)
            inner = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += [(f"{name}[{key!r:.40}]", each) for key, each in inner]


def captured(functions: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Variables around functions of the user and those that they call: captured ones, and those of their modules."""
    waiting, seen = list(functions), set[int]()
    while waiting:
        function = waiting.pop()
        code = getattr(function, "__code__", None)
        if code is None or id(function) in seen or not is_users(code.co_filename):
            continue
        seen.add(id(function))
        found = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # of a cell that is still empty
                found[name] = cell.cell_contents
        if hasattr(function, "__self__"):
            found["self"] = function.__self__
        waiting += [value for value in found.values() if inspect.isfunction(value)]
        yield from found.items()


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
