"""Generators that a step gives to random ops: where they are, and their states while a rank is traced."""

from __future__ import annotations

import collections
import gc
import hashlib
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from popsr.bridge.torch._user.locations import current_place, is_users, shown_place
from popsr.errors import UnsupportedError

__all__ = ["Drawn", "Generators", "check_found", "given_generator", "reachable", "state_of"]

_MOST_OBJECTS = 100_000
_CONTAINERS = (dict, list, tuple, set, frozenset, types.CellType, types.MethodType)


@dataclass(frozen=True)
class Drawn:
    """The draws of one rank from generators that ops are given.

    Attributes:
        labels: by number of the op; ranks of one label draw the same numbers, in this run and in all others.
        lasting: numbers of ops whose generator was there before the step, and goes on from run to run.
        of_torch: numbers of ops whose generator may have its state from torch's own, which ranks need not share.
        met: generators that were not found before the step, with the line of the first op that is given it.
    """

    labels: dict[int, str]
    lasting: frozenset[int]
    of_torch: frozenset[int]
    met: list[tuple[Any, str]]


def state_of(generator: Any) -> str:
    """A generator's state, as a short text."""
    return hashlib.sha256(generator.get_state().numpy().tobytes()).hexdigest()


def _state_of_torch() -> str:
    import torch

    return state_of(torch.default_generator)


def given_generator(op: Any, args: Any, options: Any) -> tuple[Any, Any, Any, Any]:
    """A call without the generator that an op is given: the generator, the op, its operands, and those with names.

    torch's own generator is none that is given.
    """
    import torch

    found: list[Any] = [each for each in (*args, *options.values()) if isinstance(each, torch.Generator)]
    if not found:
        options = {key: value for key, value in options.items() if key != "generator"}
        return (
            None,
            _without_generator(op) if "generator" in getattr(op, "_overloadname", "") else op,
            args,
            options,
        )
    plain = [None if isinstance(each, torch.Generator) else each for each in args]
    others = {key: value for key, value in options.items() if not isinstance(value, torch.Generator)}
    default: Any = torch.default_generator
    is_default = found[0]._cdata == default._cdata
    return None if is_default else found[0], _without_generator(op), tuple(plain), others


def _without_generator(op: Any) -> Any:
    """The overload of a random op that takes no generator."""
    names = op.overloadpacket.overloads()
    rest = "_".join(part for part in op._overloadname.split("_") if part != "generator") or "default"
    return getattr(op.overloadpacket, rest) if rest in names else op


class Generators:
    """The states of generators while one rank is traced; all are put back when it ends.

    Args:
        root: the call of the step, through which those that were there before are found.
    """

    def __init__(self, root: Any) -> None:
        """The generators as they are now."""
        self._root = root

    def __enter__(self) -> Self:
        self._kept = {each._cdata: each for each in _reachable(self._root)}
        self._states = {key: each.get_state() for key, each in self._kept.items()}
        self._start = {key: state_of(each) for key, each in self._kept.items()}
        self._last = dict(self._start)
        self._history = {key: {state} for key, state in self._start.items()}
        self._states_of_torch = {_state_of_torch()}
        self._sources: dict[int, list[int]] = {}
        self._origin = dict.fromkeys(self._kept, "kept")
        self._met: dict[int, tuple[Any, str]] = {}
        self._draws: list[tuple[int, int, str, str, list[int]]] = []
        return self

    def __exit__(self, *error: Any) -> None:
        for key, generator in self._kept.items():
            generator.set_state(self._states[key])

    def note_draw(self, generator: Any, state: str, number: int) -> None:
        """Say that an op draws from a generator in a state."""
        key = generator._cdata  # of one generator torch makes several objects
        if key not in self._kept and key not in self._met:
            self._met[key] = (generator, shown_place(current_place()))
        self._follow(generator, state)
        self._draws.append((number, key, state, self._origin[key], self._sources.get(key, [])))

    def note_state(self, generator: Any) -> None:
        """Say that a generator went on by an op; None: torch's own."""
        if generator is None:
            self._states_of_torch.add(_state_of_torch())
            return
        key, state = generator._cdata, state_of(generator)
        self._last[key] = state
        self._history.setdefault(key, set()).add(state)

    def _follow(self, generator: Any, state: str) -> None:
        """Note where a state comes from that is not the one that the last op left: a seed, or something else."""
        import torch

        key = generator._cdata
        if self._last.get(key) == state:
            return
        fresh = torch.Generator(generator.device).manual_seed(generator.initial_seed())
        others = {other: each for other, each in self._kept.items() if other != key}
        self._sources[key] = [
            other for other, each in others.items() if state in {*self._history[other], state_of(each)}
        ]
        is_of_torch = state in {*self._states_of_torch, _state_of_torch()}
        is_copied, is_seeded = bool(self._sources[key]), state_of(fresh) == state
        self._origin[key] = (
            "torch's" if is_of_torch else "copied" if is_copied else "seeded" if is_seeded else "other"
        )
        self._last[key] = state

    def drawn(self) -> Drawn:
        """The draws, once the step has ended.

        A generator that lasts begins the next run where this one leaves it: ranks draw the same numbers in all runs
        if it begins and ends this one in the same state on them. So it is for copies of its state. One whose
        state comes from elsewhere may depend on any other.
        """
        ends = {key: state_of(each) for key, each in self._kept.items()}
        for key, end in ends.items():
            self._follow(self._kept[key], end)
        lives = {key: f"{self._start[key]}-{end}" for key, end in ends.items()}
        changed = {key for key in self._kept if self._origin[key] in ("copied", "other", "torch's")}
        labels, lasting, of_torch = {}, list[int](), list[int]()
        for number, key, state, origin, sources in self._draws:
            depends = [key, *sources] if origin == "kept" else sources
            if origin == "other" or changed & {key, *depends}:
                depends = list(lives)
            if {origin, *(self._origin[each] for each in depends)} & {"other", "torch's"}:
                of_torch.append(number)
            label = [origin, state, *(lives[each] for each in depends)]
            labels[number] = hashlib.sha256(" ".join(label).encode()).hexdigest()
            if origin != "seeded":
                lasting.append(number)
        return Drawn(labels, frozenset(lasting), frozenset(of_torch), list(self._met.values()))


def check_found(drawn: Sequence[Drawn]) -> None:
    """Refuse a generator that the traces of several ranks were given, but that was not found before the first.

    Raises:
        UnsupportedError: its state before the step is unknown.
    """
    seen: set[int] = set()
    for each in drawn:
        for generator, place in each.met:
            if generator._cdata in seen:
                raise UnsupportedError(
                    f"trace_step: the generator of the op at {place} cannot be found, got one from outside of the "
                    "step, expected an attribute of the model, a variable of the step's function or module, or one "
                    "that the step makes"
                )
        seen |= {generator._cdata for generator, _ in each.met}


def _reachable(root: Any) -> list[Any]:
    """The generators that an object refers to."""
    import torch

    kind: Any = torch.Generator
    return list({each._cdata: each for each in reachable(root) if issubclass(type(each), kind)}.values())


def reachable(root: Any) -> Iterator[Any]:
    """Objects that an object refers to, itself first, through attributes, containers and functions of the user."""
    seen: set[int] = set()
    waiting = collections.deque([root])  # an object with attributes
    kinds: dict[type, Callable[[Any], Iterable[Any]] | None] = {}
    while waiting and len(seen) < _MOST_OBJECTS:
        value = waiting.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        waiting += [
            each for each in _reader(type(value), kinds)(value) if _reader(type(each), kinds) is not None
        ]


_PLAIN = (str, bytes, int, float, complex, type(None), types.ModuleType, types.BuiltinFunctionType)


def _reader(kind: type, known: dict[type, Any]) -> Any:
    """A function that lists the objects which one of a type refers to, if a step may be made of them; None if plain."""
    if kind not in known:
        known[kind] = None if issubclass(kind, _PLAIN) else _reader_of(kind)
    return known[kind]


def _reader_of(kind: type) -> Callable[[Any], Iterable[Any]]:
    import torch

    closed: Any = (torch.Tensor, torch.Generator, torch.fx.Node, torch.fx.Graph, torch.fx.Tracer)
    if issubclass(kind, closed):
        return lambda _: ()  # graphs of earlier traces refer to much, and to no generator
    if issubclass(kind, types.FunctionType):
        return _of_function
    if issubclass(kind, type):
        return lambda each: [x for x in vars(each).values() if isinstance(x, types.FunctionType)]
    if issubclass(kind, _CONTAINERS):
        return lambda each: gc.get_referents(each)
    return lambda each: [*gc.get_referents(each), *kind.__mro__[:-1]] if _has_attributes(each) else ()


def _has_attributes(value: Any) -> bool:
    return hasattr(value, "__dict__") or hasattr(type(value), "__slots__")


def _of_function(function: Any) -> Iterator[Any]:
    """Objects that a function of the user refers to: captured variables, defaults, and the globals that it names."""
    code = function.__code__
    yield from function.__closure__ or ()
    yield function.__defaults__
    yield function.__kwdefaults__
    if is_users(code.co_filename):
        names = set(_names(code))
        yield from (value for name, value in function.__globals__.items() if name in names)


def _names(code: Any) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _names(each)
