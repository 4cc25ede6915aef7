"""Python state that a step changes: attributes of modules and of the optimiser, put back after its traces."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

from popsr.bridge.torch._ranks.same import key_of
from popsr.bridge.torch._user.locations import is_users

__all__ = [
    "add_plain",
    "captured",
    "functions_of",
    "is_of_user",
    "is_plain",
    "kept_attributes",
    "kept_variables",
    "name_of_kept",
    "plain_values",
]

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


@contextlib.contextmanager
def kept_variables(model: Any, step: Any, states: Iterable[Any] = ()) -> Iterator[None]:
    """Put back variables that functions of the user name: numbers, and what is in lists and dictionaries.

    Args:
        model: the module.
        step: the user's function.
        states: lists of tensors that are states, which are no logs.
    """
    own = {id(each) for each in states}
    kept: dict[int, tuple[Any, Any]] = {}
    variables = list(_variables(functions_of(model, step)))
    values = [(holder, key, value) for holder, key, value in variables if isinstance(value, _PLAIN)]
    for _, _, value in variables:
        if type(value) in _CONTAINERS:
            _keep(value, kept)
        elif is_of_user(value):
            _keep(vars(value), kept)
    values += [each for each in variables if type(each[2]) is list]
    try:
        for holder, key, value in variables:
            if type(value) is list and id(value) not in own:
                _set(holder, key, _log(value))
        for container, _ in list(kept.values()):
            if isinstance(container, dict):
                lists = [(key, each) for key, each in container.items() if type(each) is list]
                container.update({key: _log(each) for key, each in lists if id(each) not in own})
        yield
    finally:
        for holder, key, value in values:
            _set(holder, key, value)
        for container, content in kept.values():
            container.clear()
            (container.extend if isinstance(container, list | deque) else container.update)(content)


def _set(holder: Any, name: str, value: Any) -> None:
    """Give a variable of a module, or a captured one, a value."""
    if isinstance(holder, dict):
        holder[name] = value
    else:
        holder.cell_contents = value


def _log(value: list[Any]) -> Log:
    made = Log(value)
    made.start = list.__len__(made)
    return made


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
    for name, value in captured(functions_of(model, step)):
        if is_plain(value):
            found[name] = key_of(value)
        elif type(value) in (*_CONTAINERS, Log):
            add_plain("", {name: value}, found)
        elif is_of_user(value) and not isinstance(value, type(model)):
            add_plain(f"{name}.", vars(value), found)
    return found


def is_plain(value: Any) -> bool:
    """True for numbers, texts and None."""
    return isinstance(value, _PLAIN)


def is_of_user(value: Any) -> bool:
    """True for an object with attributes of a class of the user."""
    import torch

    module = sys.modules.get(type(value).__module__)
    file = getattr(module, "__file__", None) or "<made up>"
    is_plain = not isinstance(value, type | torch.nn.Module | torch.optim.Optimizer)
    return is_plain and hasattr(value, "__dict__") and type(value).__module__ != "builtins" and is_users(file)


class Log(list):  # type: ignore[type-arg]
    """A list of the user that a step only adds to, as logs are; one that it reads counts the steps.

    Attributes:
        is_read: True once something else than ``append`` and ``extend`` was asked.
        start: number of entries before the step.
    """

    is_read = False
    start = 0


def _reading(name: str) -> Any:
    method = getattr(list, name)

    def read(self: Log, *args: Any) -> Any:
        self.is_read = True
        return method(self, *args)

    return read


for _name in (
    "__len__",
    "__iter__",
    "__getitem__",
    "__contains__",
    "__eq__",
    "__reversed__",
    "count",
    "index",
    "pop",
):
    setattr(Log, _name, _reading(_name))


def add_plain(prefix: str, items: Mapping[Any, Any], found: dict[str, Hashable]) -> None:
    """Add numbers and texts among some items, and those in lists and dictionaries of them, whose lengths count, too."""
    waiting = [(f"{prefix}{name}", value) for name, value in items.items()]
    seen: set[int] = set()
    while waiting:
        name, value = waiting.pop()
        if is_plain(value):
            found[name] = key_of(value)
        elif isinstance(value, Log):
            length = list.__len__(value)
            found[f"len({name})"] = length if value.is_read else 0
            waiting += [
                (f"{name}[{i}]", each) for i, each in enumerate(list.__iter__(value)) if i < value.start
            ]
        elif type(value) in (*_CONTAINERS, tuple) and id(value) not in seen:
            seen.add(id(value))
            found[f"len({name})"] = len(value)
            inner = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += [(f"{name}[{key!r:.40}]", each) for key, each in inner]


def functions_of(model: Any, step: Any) -> list[Any]:
    """The step's function, and methods of the model's classes."""
    classes = {each for module in model.modules() for each in type(module).__mro__}
    methods = [each for kind in classes for each in vars(kind).values() if inspect.isfunction(each)]
    return [inspect.unwrap(step), *methods]


def captured(functions: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Variables around functions of the user and those that they call, with their names; of methods their object."""
    for _, key, value in _variables(functions):
        yield key, value


def _variables(functions: Iterable[Any]) -> Iterator[tuple[Any, str, Any]]:
    """Variables around functions: captured ones, and those of their modules; where they are, their name and value."""
    waiting, seen = list(functions), set[tuple[int, int]]()
    while waiting:
        function = waiting.pop()
        own = getattr(function, "__self__", None)
        identity = id(getattr(function, "__func__", function)), id(own)
        code = getattr(function, "__code__", None)
        if code is None or identity in seen or not is_users(code.co_filename):
            continue
        seen.add(identity)
        names = [name for name in code.co_names if name in function.__globals__]
        found = [(function.__globals__, name, function.__globals__[name]) for name in names]
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # of a cell that is still empty
                found.append((cell, name, cell.cell_contents))
        if own is not None:
            found.append(({}, "self", own))
        waiting += [each for *_, value in found for each in _functions_in(value)]
        yield from found


def _functions_in(value: Any) -> Iterator[Any]:
    """A function or method, that of a partial one, or those in a container."""
    if isinstance(value, functools.partial):
        value = value.func
    inner: Iterable[Any] = ()
    if inspect.isfunction(value) or inspect.ismethod(value):
        yield value
    elif isinstance(value, list):
        inner = list.__iter__(value)  # not a read of a log
    elif type(value) in (*_CONTAINERS, tuple):
        inner = value.values() if isinstance(value, dict) else value
    for each in inner:
        if not isinstance(each, (*_CONTAINERS, tuple)):
            yield from _functions_in(each)


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
