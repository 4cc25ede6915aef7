"""Faults of the bridge, each one rule that a proof rests on taken out, to see that tests find them.

A fault replaces functions by worse ones while it is in force; the rules are those that random steps once broke.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

__all__ = ["MUTANTS", "Mutant", "faulty"]


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        places: what is replaced: a module of the bridge, a name in it with dots for members, and what makes the
            replacement of what is there.
        kinds: kinds of statements that show it.
        wrapper: key of the function that makes the model of programs that show it.
        fails: how a program fails with it.
        seed: of the first program that showed it, from which on tests look.
    """

    places: tuple[tuple[str, str, Callable[[Any], Any]], ...]
    kinds: tuple[str, ...]
    wrapper: str = ""
    fails: str = "false"
    seed: int = 0

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """Inside, popsr has the fault.

        Raises:
            AttributeError: a place has moved; a fault of a name that nothing reads would be none.
        """
        with contextlib.ExitStack() as stack:
            for module, name, worse in self.places:
                *path, last = name.split(".")
                home: Any = importlib.import_module(f"popsr.bridge.{module}")
                for each in path:
                    home = getattr(home, each)
                stack.enter_context(mock.patch.object(home, last, worse(inspect.getattr_static(home, last))))
            yield


@contextlib.contextmanager
def faulty(name: str | None) -> Iterator[None]:
    """Inside, popsr has the fault of a name; None: it is as it is."""
    with contextlib.nullcontext() if name is None else MUTANTS[name].in_force():
        yield


def _nothing(_kept: Any) -> Any:
    return lambda *_args, **_options: None


def _by_value(key_of: Any) -> Any:
    """Key of numbers and tensors that is equal where ``==`` says so."""
    import torch

    def worse(value: Any, *rest: Any) -> Any:
        if isinstance(value, bool | int | float):
            return ("number", value)
        if type(value) is torch.Tensor:
            return ("tensor", str(value.dtype), tuple(value.detach().reshape(-1).tolist()))
        if isinstance(value, list | tuple):
            return tuple(worse(each, *rest) for each in value)
        return key_of(value, *rest)

    return worse


def _without_writes(select: Any) -> Any:
    """Lose writes at places that differ between ranks."""

    def worse(self: Any, merged: Any, called: Any, selection: Any) -> Any:
        if not selection.writes:
            return select(self, merged, called, selection)
        self._replace(merged, merged.args[0])
        return True

    return worse


def _never_shared(_sharing: Any) -> Any:
    from popsr.bridge.torch._states.storage import Sharing

    return lambda _leaves: Sharing(frozenset(), {})


def _nothing_read(_memory: Any) -> Any:
    """Take memory that nothing has written to hold zeros."""

    class Memory:
        def __init__(self, _graph: Any) -> None:
            self.read: set[Any] = set()

    return Memory


def _seeded_alike(drawn: Any) -> Any:
    """Take generators of all ranks to have one state."""

    def worse(self: Any) -> Any:
        found = drawn(self)
        return dataclasses.replace(found, labels=dict.fromkeys(found.labels, "00" * 32))

    return worse


def _at_backward(_ready: Any) -> Any:
    """Ask the wrapper's switch when a gradient is there, not at the forward pass."""
    import torch
    import torch.distributed._functional_collectives as functional

    def worse(self: Any, i: int, _added: Any) -> None:
        p = self._parameters[i]
        if self._wrapper.require_backward_grad_sync and p.grad is not None:
            with torch.no_grad():
                p.grad.copy_(functional.all_reduce(p.grad / self._group.size(), "sum", self._group))

    return worse


def _as_they_are(_launched: Any) -> Any:
    return lambda *_ranks: contextlib.nullcontext()


MUTANTS = {
    "writes at places of ranks are lost": Mutant(
        (("torch._ranks.varying", "Operands._select", _without_writes),), ("write",), seed=8
    ),
    "constants are compared by value": Mutant(
        (("torch._ranks.varying", "key_of", _by_value), ("torch._ranks.merge", "key_of", _by_value)),
        ("constant",),
        seed=6,
    ),
    "shared memory is not followed": Mutant(
        (("torch._states.leaves", "sharing", _never_shared),), ("shared storage",)
    ),
    "data that is set is lost": Mutant(
        (("torch._states.watch", "_set_data", _nothing),), ("data replaced",), seed=2
    ),
    "memory is taken to be zero": Mutant(
        (("torch._tracing.uninitialised", "_Memory", _nothing_read),), ("uninitialised",)
    ),
    "collectives are awaited at once": Mutant(
        (("torch._tracing.collective_calls", "_is_synchronous", lambda _: lambda: True),),
        ("asynchronous",),
        seed=17,  # a race that is lost nearly always; programs that poll a handle, and end never, are far off
    ),
    "seeds of generators are ignored": Mutant(
        (("torch._tracing.generators", "Generators.drawn", _seeded_alike),), ("generator",), seed=1
    ),
    "a step is traced once": Mutant(
        (("torch._states.second_trace", "_check_same", _nothing),), ("python state",), seed=20
    ),
    "the environment has no rank": Mutant(
        (("torch._ranks.job", "_launched", _as_they_are),), ("environment",)
    ),
    "wrappers decide in the backward pass": Mutant(
        (
            ("torch._wrappers.reducer", "Reducer._ready", _at_backward),
            ("torch._wrappers.reducer", "Reducer.check_end", _nothing),
            ("torch._wrappers.reducer", "Reducer._rebuild_buckets", _nothing),
        ),
        ("no_sync",),
        "ddp, no broadcast",
        seed=5,
    ),
    "hooks of parameters are dropped": Mutant(
        (("torch._states.hooks", "Hooks.copy_to", _nothing),), ("writing hook",)
    ),
    "groups of one replica are ok": Mutant(
        (("_proof.proof", "Proof.undeclared", lambda _: property(lambda self: ())),),
        ("training",),
        "other start",
        "false ok",
        seed=8,
    ),
}
"""Faults by name."""
