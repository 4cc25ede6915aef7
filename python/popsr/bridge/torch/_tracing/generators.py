"""Generators that a step gives to random ops: where they are, and their states while a rank is traced."""

from __future__ import annotations

import collections
import functools
import gc
import hashlib
import inspect
import logging
import re
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from popsr._support.text.frames import library_path
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
        step: the user's function.
    """

    def __init__(self, root: Any, step: Any) -> None:
        """The generators as they are now."""
        self._root, self._step = root, step

    def __enter__(self) -> Self:
        self._kept = {each._cdata: each for each in _reachable(self._root, self._step)}
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


def _reachable(root: Any, step: Any) -> list[Any]:
    """The generators that an object refers to."""
    import torch

    kind: Any = torch.Generator
    return list(
        {each._cdata: each for each in reachable(root, step) if issubclass(type(each), kind)}.values()
    )


def reachable(root: Any, step: Any) -> Iterator[Any]:
    """Objects that an object refers to, itself first, through attributes, containers and functions of the user.

    What functions of installed packages name is not followed, but for the package of the step: from one of
    transformers' classes, all of it would be reached, and from a logger all loggers.
    """
    seen: set[int] = set()
    waiting = collections.deque([root])  # an object with attributes
    readers = _Readers(step)
    while waiting and len(seen) < _MOST_OBJECTS:
        value = waiting.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        waiting += [each for each in readers.of(type(value))(value) if readers.of(type(each)) is not None]


_PLAIN = (
    *(str, bytes, int, float, complex, type(None)),
    *(types.ModuleType, types.BuiltinFunctionType, logging.Logger, re.Pattern),
)
_Reader = Callable[[Any], Iterable[Any]]


class _Readers:
    """Functions that list what an object refers to, by its type.

    Args:
        step: whose package is the user's own, also where it is installed.
    """

    def __init__(self, step: Any) -> None:
        """None is known yet."""
        self._known: dict[type, _Reader | None] = {}
        self._package = _package(_file_of(step))

    def of(self, kind: type) -> Any:
        """The function, if a step may be made of the objects; None if they are plain."""
        if kind not in self._known:
            self._known[kind] = None if issubclass(kind, _PLAIN) else self._made(kind)
        return self._known[kind]

    def _made(self, kind: type) -> _Reader:
        import torch

        closed: Any = (torch.Tensor, torch.Generator, torch.fx.Node, torch.fx.Graph, torch.fx.Tracer)
        if issubclass(kind, closed):
            return lambda _: ()  # graphs of earlier traces refer to much, and to no generator
        if issubclass(kind, types.FunctionType):
            return self._of_function
        if issubclass(kind, functools._lru_cache_wrapper):
            return self._of_cache
        if issubclass(kind, type):
            return lambda each: [x for x in vars(each).values() if isinstance(x, types.FunctionType)]
        if issubclass(kind, _CONTAINERS):
            return lambda each: gc.get_referents(each)
        return lambda each: [*gc.get_referents(each), *kind.__mro__[:-1]] if _has_attributes(each) else ()

    def _is_own(self, file: str) -> bool:
        """Whether a file is the user's, and of no installed package but the step's."""
        return is_users(file) and _package(file) in ("", self._package)

    def _of_function(self, function: Any) -> Iterator[Any]:
        """Objects that a function refers to: captured variables, defaults, and the globals that the user's name."""
        yield from function.__closure__ or ()
        yield function.__defaults__
        yield function.__kwdefaults__
        if self._is_own(function.__code__.co_filename):
            names = set(_names(function.__code__))
            yield from (value for name, value in function.__globals__.items() if name in names)

    def _of_cache(self, cached: Any) -> list[Any]:
        """The function that has a cache, and what it returned before if it is the user's."""
        function = cached.__wrapped__
        return gc.get_referents(cached) if self._is_own(_file_of(function)) else [function]


def _file_of(step: Any) -> str:
    """The file of a function, or of an object that is called."""
    step = inspect.unwrap(step)
    while isinstance(step, functools.partial):
        step = step.func
    code = getattr(step, "__code__", None) or getattr(type(step).__call__, "__code__", None)
    return "" if code is None else str(code.co_filename)


@functools.lru_cache(4096)
def _package(file: str) -> str:
    """The installed package of a file; empty of the user's own files."""
    return library_path(file).partition("/")[0] if file else ""


def _has_attributes(value: Any) -> bool:
    return hasattr(value, "__dict__") or hasattr(type(value), "__slots__")


def _names(code: Any) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _names(each)
