"""Which replicas hold bitwise the same value, proved for every tensor of a program."""

from __future__ import annotations

from typing import Literal, overload

from popsr._popart_mode import PopartAnalysis
from popsr.errors import ArgumentTypeError, GraphError
from popsr.ir import Ir
from popsr.op import Op
from popsr.replicas import Partition, ReplicaGrouping
from popsr.tensor import Tensor
from popsr.utils import read_choice

__all__ = ["PartitionAnalysis", "PopartAnalysis", "analyze"]


class PartitionAnalysis:
    """Facts of a program; made by ``analyze``. They are refused once the program has changed."""

    def __init__(self, ir: Ir) -> None:
        """Analyse the main graph and all that it calls."""
        self._ir = ir
        self._core = ir._facts()

    @property
    def ir(self) -> Ir:
        """The program."""
        return self._ir

    def partition(self, t: Tensor) -> Partition:
        """Replicas that agree on the last value of a tensor in its graph, wherever the graph is called."""
        return self._core.partition(self._id("partition", t))

    def values(self, t: Tensor) -> list[tuple[int, Op | None, Partition]]:
        """All values that a tensor takes: (time, op that wrote it, partition); time -1 is the initial value."""
        return [
            (time, None if op is None else Op(self._ir, op), partition)
            for time, op, partition in self._core.values(self._id("values", t))
        ]

    def is_equal(self, t: Tensor, grouping: ReplicaGrouping | None = None) -> bool:
        """Do all replicas agree on a tensor, or those of each group of ``grouping``?"""
        if grouping is None:
            return self.partition(t).num_blocks == 1
        return self._core.is_equal(self._id("is_equal", t), grouping)

    def _id(self, where: str, t: Tensor) -> int:
        if not isinstance(t, Tensor):
            raise ArgumentTypeError(f"{where}: t is not a Tensor, got {t!r}")
        if t._ir is not self._ir:
            raise GraphError(f"{where}: tensor of another Ir, got {t!r} of {t._ir!r}, expected {self._ir!r}")
        return t._id

    def __repr__(self) -> str:
        return f"PartitionAnalysis[{self._ir!r}]"


@overload
def analyze(ir: Ir, mode: Literal["partition"] = "partition") -> PartitionAnalysis: ...
@overload
def analyze(ir: Ir, mode: Literal["popart"]) -> PopartAnalysis: ...


def analyze(ir: Ir, mode: Literal["partition", "popart"] = "partition") -> PartitionAnalysis | PopartAnalysis:
    """Prove which replicas agree.

    Args:
        ir: the program.
        mode: "partition"; or "popart": what PopART's analysis says, for comparison. It proves nothing.
    Raises:
        GraphError: the order of a write in place and another use of the same tensor is not fixed; or, in mode
            "popart", a graph without inputs is called for a result: PopART stops there.
    """
    if not isinstance(ir, Ir):
        raise ArgumentTypeError(f"analyze: ir is not an Ir, got {ir!r}")
    read_choice("analyze", "mode", mode, ("partition", "popart"))
    return PartitionAnalysis(ir) if mode == "partition" else PopartAnalysis(ir)
