"""Bad calls, generated: a call that works, with one argument spoiled.

``targets()`` are public functions, methods and constructors. ``hostile_calls(target, world, count)`` yields calls of
one of them: its arguments come from a table, from the rows of ``op_cases`` where it is an op, or from its signature;
then one of them is replaced by a value of ``VALUES``, left out, or doubled. The same seed gives the same calls.

A ``World`` is what the values are made of: a program with something of every kind, and another one. What calls make
stays in it, so take a new one now and then.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from typing import Any

from tests_py.support.hostile.called import Call, Target, targets
from tests_py.support.hostile.working import INSIDE, arguments_of, bound_arguments
from tests_py.support.hostile.world import EVIL, VALUES, Evil, World

__all__ = ["EVIL", "VALUES", "Call", "Evil", "Target", "World", "hostile_calls", "targets", "valid_call"]


def hostile_calls(
    target: Target,
    world: World,
    count: int = 10,
    seed: int = 0,
    *,
    values: dict[str, Callable[[World], Any]] | None = None,
) -> Iterator[Call]:
    """So many calls of the target, each with one thing wrong. The main graph of the world is to be current.

    Args:
        target: what is called.
        world: what arguments are made of.
        count: how many calls.
        seed: other calls.
        values: what spoils arguments. Default: ``VALUES``.
    """
    rng = random.Random(f"{target.name} {seed}")
    table = VALUES if values is None else values
    is_inside = target.name.rpartition(".")[2] in INSIDE
    for _ in range(count):
        inside = world.empty_graph if is_inside else world.ir.main_graph
        fn = target.get(world)
        given, parameters = arguments_of(target, fn, world)
        name, value = rng.choice([*parameters] or [""]), rng.choice(list(table))
        kind = rng.random()
        args, kwargs = bound_arguments(given, parameters)
        if not name or kind < 0.06:
            yield Call(target, fn, (*args, table[value](world)), kwargs, f"{value} as one more", inside)
        elif kind < 0.1:
            yield Call(target, fn, args, {**kwargs, "no_such_name": 1}, "no_such_name=1", inside)
        elif kind < 0.14 and name in given:
            args, kwargs = bound_arguments(
                {key: item for key, item in given.items() if key != name}, parameters
            )
            yield Call(target, fn, args, kwargs, f"no {name}", inside)
        else:
            spoiled = _spoiled(given.get(name), parameters[name], table[value](world), rng)
            args, kwargs = bound_arguments({**given, name: spoiled}, parameters)
            yield Call(target, fn, args, kwargs, f"{name}={value}", inside)


def valid_call(target: Target, world: World) -> Call:
    """The call that ``hostile_calls`` spoils; not of all targets it is one that works."""
    fn = target.get(world)
    args, kwargs = bound_arguments(*arguments_of(target, fn, world))
    is_inside = target.name.rpartition(".")[2] in INSIDE
    return Call(target, fn, args, kwargs, "", world.empty_graph if is_inside else world.ir.main_graph)


def _spoiled(given: Any, parameter: inspect.Parameter, value: Any, rng: random.Random) -> Any:
    """Value passed in place of an argument."""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return (*(given or ()), value) if rng.random() < 0.5 else (value,)
    if parameter.kind is parameter.VAR_KEYWORD:
        return {"unknown": value}
    if isinstance(given, (list, tuple)) and given and rng.random() < 0.4:  # one of several
        items = list(given)
        items[rng.randrange(len(items))] = value
        return type(given)(items)
    if isinstance(given, dict) and given and rng.random() < 0.6:
        key = rng.choice(list(given))
        return {**given, key: value}
    return value
