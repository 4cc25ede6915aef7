"""A call that an op must refuse, and the tensors that such calls use."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import popsr


class Operands:
    """Tensors of a graph of 4 replicas by shape: ``t(2, 3)``; integers by ``t.i(2)``, seeds by ``t.seed()``."""

    def __init__(self, ir: popsr.Ir) -> None:
        self.ir = ir
        self.grouping = popsr.Ir(replication=2).replica_grouping()  # of another number of replicas

    def __call__(
        self, *shape: int, kind: Any = popsr.float32, meta: tuple[int, ...] | None = None
    ) -> popsr.Tensor:
        return popsr.graph_input(shape, kind, meta_shape=meta)

    def i(self, *shape: int) -> popsr.Tensor:
        return self(*shape, kind=popsr.int32)

    def seed(self, *shape: int, kind: Any = popsr.uint32) -> popsr.Tensor:
        return self(*(shape or (2,)), kind=kind)


@dataclass(frozen=True)
class Refusal:
    """A call that is refused before anything is appended.

    ``match`` is the beginning of the error's text as a regular expression: the name of the op, a colon, and so on.
    """

    label: str
    build: Callable[[Operands], Any]
    error: type[Exception]
    match: str
    operands: tuple[str, ...] = ()  # kinds of ops that make the operands

    @property
    def op(self) -> str:
        """Name of the function that refuses."""
        found = re.match(r"(\w+): ", self.match)
        assert found, self.match
        return found[1]
