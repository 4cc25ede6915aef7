"""Calls of everything public with arguments that do not fit, made from signatures; the same calls in every run."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import operator
import pkgutil
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

import popsr
from popsr._program.popxl_modules import POPXL_MODULES
from tests_py.support.hostile.one_of_each import World
from tests_py.support.hostile.values import hostile

__all__ = ["Target", "calls", "modules", "targets"]

# Not called: functions that change the process, train for seconds, or are not popsr's own.
SKIPPED_MODULES = (
    *("popsr.compat", "popsr.demo", "popsr.testing", "popsr.popsr_kernels"),
    *("popsr.sr.jax", "popsr.sr.optax", "popsr.sr.torch"),
)
SKIPPED = {"NameScopeMeta", "HostScalarTensor", "as_torch"}
# Special methods, as the expressions that call them.
EXPRESSIONS: dict[str, Callable[..., Any]] = {
    "__call__": lambda self, *args, **kwargs: self(*args, **kwargs),
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
    "__delitem__": operator.delitem,
    "__contains__": operator.contains,
    # The other one is not asked.
    "__eq__": lambda self, other: type(self).__eq__(self, other),  # type: ignore[call-arg]
    "__add__": operator.add,
    "__radd__": lambda self, other: other + self,
    "__sub__": operator.sub,
    "__mul__": operator.mul,
    "__truediv__": operator.truediv,
    "__mod__": operator.mod,
    "__pow__": operator.pow,
    "__matmul__": operator.matmul,
    "__and__": operator.and_,
    "__or__": operator.or_,
    "__iadd__": operator.iadd,
}
# Names of attributes are always str.
ATTRIBUTES: dict[str, Callable[..., Any]] = {
    "__getattr__": lambda self, name: getattr(self, name if type(name) is str else "unknown"),
    "__setattr__": lambda self, name, value: setattr(self, name if type(name) is str else "unknown", value),
}


@dataclasses.dataclass(frozen=True)
class Target:
    """Something public that can be called, on objects of a class or alone.

    Attributes:
        name: how a program would write it.
        function: takes what it is called on, if anything, and the arguments.
        parameters: the arguments' parameters; None where no signature is known.
        owner: the object that a method is called on.
    """

    name: str
    function: Callable[..., Any]
    parameters: tuple[inspect.Parameter, ...] | None
    owner: Any = None


def modules() -> list[str]:
    """The public modules, and those of PopXL's names, without those that need a package which is not installed."""
    found = ["popsr", "popsr._program.options.options", "popsr._support.settings", "popsr.sr._adder"]
    found += POPXL_MODULES.values()
    for each in pkgutil.walk_packages(popsr.__path__, "popsr."):
        hidden = any(part.startswith("_") for part in each.name.split("."))
        if not hidden and not each.name.startswith(SKIPPED_MODULES):
            with suppress(popsr.errors.MissingPackageError):  # one that stands for a package
                importlib.import_module(each.name)
                found.append(each.name)
    return found


def targets(world: World) -> Iterator[Target]:
    """Public functions, constructors, and methods, expressions and settable properties of each class."""
    seen: set[int] = set()
    for module in modules():
        for name in getattr(importlib.import_module(module), "__all__", ()):
            value = getattr(sys.modules[module], name)
            internal = name.startswith("read_")  # takes the name of its caller
            if id(value) in seen or name in SKIPPED or internal or not callable(value):
                continue
            seen.add(id(value))
            is_made = inspect.isclass(value) and not issubclass(value, (enum.Enum, BaseException))
            if is_made or inspect.isroutine(value):  # no aliases of types
                yield Target(f"{module}.{name}", value, _parameters(value))
    for owner in world.instances:
        yield from _members(owner, seen)


def _members(owner: Any, seen: set[int]) -> Iterator[Target]:
    """Methods of the object's class that were not there before; methods of base classes come once."""
    cls = type(owner)
    for name in sorted(set(dir(cls)) - SKIPPED):
        home = next((base for base in cls.__mro__ if name in vars(base)), object)
        static = vars(home).get(name)
        label = f"<{cls.__module__}.{cls.__qualname__}>"
        if not home.__module__.startswith("popsr") or id(static) in seen:
            continue
        if not isinstance(owner, popsr.Module) or name not in ("__call__", "build"):
            seen.add(id(static))
        if name in ATTRIBUTES:
            if not dataclasses.is_dataclass(cls):
                parameters = _parameters(getattr(cls, name))[1:]
                yield Target(f"{label}.{name}", ATTRIBUTES[name], parameters, owner)
        elif name == "__eq__" and dataclasses.is_dataclass(cls):
            continue  # compares the fields
        elif name in EXPRESSIONS:
            expression = EXPRESSIONS[name]
            yield Target(f"{label}.{name}", expression, _parameters(getattr(cls, name))[1:], owner)
        elif name.startswith("_"):
            continue
        elif isinstance(static, property):
            if static.fset is not None:
                value = inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY)
                yield Target(f"{label}.{name} =", static.fset, (value,), owner)
        elif callable(getattr(owner, name, None)):
            yield Target(f"{label}.{name}", getattr(owner, name), _parameters(getattr(owner, name)))


def _parameters(function: Any) -> tuple[inspect.Parameter, ...]:
    try:
        return tuple(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # of the core: any number of arguments
        return (inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),)


def calls(world: World, target: Target, count: int) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Arguments of ``count`` calls of a target, with a text that says which they are."""
    for number in range(count):
        rng = random.Random(f"{target.name} {number}")
        words: list[str] = []
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter in target.parameters or ():
            _add(world, rng, parameter, words, args, kwargs)
        if rng.random() < 0.03:
            kwargs["nonsense"] = 1
            words.append("nonsense=1")
        if rng.random() < 0.03:
            args.append(None)
            words.append("one more")
        yield ", ".join(words), tuple(args), kwargs


def _add(
    world: World,
    rng: random.Random,
    parameter: inspect.Parameter,
    words: list[str],
    args: list[Any],
    kwargs: dict[str, Any],
) -> None:
    if parameter.kind is parameter.VAR_KEYWORD:
        return
    if parameter.kind is parameter.VAR_POSITIONAL:
        for _ in range(rng.randint(0, 3)):
            word, value = _value(world, rng, parameter)
            words.append(f"*{word}")
            args.append(value)
        return
    needed = parameter.default is parameter.empty
    if not needed and rng.random() < 0.6:
        return
    word, value = _value(world, rng, parameter)
    words.append(f"{parameter.name}={word}")
    # Once an optional parameter was left out, the others are given by name.
    if parameter.kind is parameter.POSITIONAL_ONLY or (
        needed and parameter.kind is not parameter.KEYWORD_ONLY
    ):
        args.append(value)
    else:
        kwargs[parameter.name] = value


def _value(world: World, rng: random.Random, parameter: inspect.Parameter) -> tuple[str, Any]:
    if rng.random() < 0.45:
        return "good", _good(world, rng, parameter)
    return hostile(rng)


def _good(world: World, rng: random.Random, parameter: inspect.Parameter) -> Any:
    """A value that often fits, by name and annotation."""
    named = {
        "shape": (2, 3),
        "dtype": popsr.float32,
        "data_type": popsr.float32,
        "graph": world.graph,
        "name": "name",
        "ir": world.ir,
        "key": popsr.sr.Key(1),
        "axis": 0,
        "group": world.grouping,
        "replica_grouping": world.grouping,
        "remote_buffer": world.buffer,
        "seed_tensor": world.seed,
        "fn": lambda *args: args[0] if args else None,
        "session": world.session,
        "source": world.session,
    }
    if parameter.name in named:
        return named[parameter.name]
    text = str(parameter.annotation)
    by_type = (
        ("Iterable[Tensor]", [world.t, world.t]),
        ("Tensor", rng.choice([world.t, world.variable, world.constant])),
        ("NamedVariableFactories", world.net_factories),
        ("NamedTensors", world.net_variables),
        ("GraphWithNamedArgs", world.net),
        ("Graph", world.graph),
        ("CallSiteInfo", world.call),
        ("ReplicaGrouping", world.grouping),
        ("Stream", world.x_stream),
        ("Array", np.ones((2, 3), np.float32)),
        ("Iterable[int]", (0, 1)),
        ("tuple[int", (0, 1)),
        ("bool", True),
        ("int", rng.choice([0, 1, 2])),
        ("float", 0.5),
        ("str", "word"),
    )
    return next((value for word, value in by_type if word in text), np.ones((2, 3), np.float32))
