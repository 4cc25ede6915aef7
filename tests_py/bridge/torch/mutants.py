"""Faults of the bridge, each one rule that a proof rests on taken out, to see that tests find them.

A fault replaces functions by worse ones while it is in force; the rules are those that random steps once broke.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

__all__ = ["MUTANTS", "Mutant", "faulty"]

_BRIDGE = "popsr.bridge.torch."


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        places: what is replaced: a module of the bridge and a name in it, with dots for members.
        worse: makes the replacement of what is there.
        kinds: kinds of statements that show it.
        fails: how a program fails with it.
    """

    places: tuple[tuple[str, str], ...]
    worse: Callable[[Any], Any]
    kinds: tuple[str, ...]
    fails: str = "false"

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """Inside, popsr has the fault."""
        with contextlib.ExitStack() as stack:
            for module, name in self.places:
                *path, last = name.split(".")
                home: Any = importlib.import_module(_BRIDGE + module if module else "popsr.bridge._values")
                for each in path:
                    home = getattr(home, each)
                if isinstance(home, dict):
                    stack.enter_context(mock.patch.dict(home, {last: self.worse(home[last])}))
                else:
                    stack.enter_context(mock.patch.object(home, last, self.worse(home.__dict__[last])))
            yield


@contextlib.contextmanager
def faulty(name: str | None) -> Iterator[None]:
    """Inside, popsr has the fault of a name; None: it is as it is."""
    with contextlib.nullcontext() if name is None else MUTANTS[name].in_force():
        yield


def _nothing(_kept: Any) -> Any:
    return lambda *_args, **_options: None


def _key_by_value(key_of: Any) -> Any:
    """A key of numbers and tensors that is equal where ``==`` says so."""
    import torch

    def worse(value: Any, *rest: Any) -> Any:
        if isinstance(value, bool | int | float):
            return ("number", value)
        if type(value) is torch.Tensor:
            return ("tensor", str(value.dtype), tuple(value.reshape(-1).tolist()))
        if isinstance(value, list | tuple):
            return tuple(worse(each, *rest) for each in value)
        return key_of(value, *rest)

    return worse


MUTANTS: dict[str, Mutant] = {}
"""Faults by name."""
