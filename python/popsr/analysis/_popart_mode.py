"""PopART's analysis of a program: mode "popart" of ``popsr.analysis.analyze``."""

from __future__ import annotations

from popsr import _core
from popsr._program.ir import Ir
from popsr._program.op import Op
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_a, read_int
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.analysis._program_analysis import ProgramAnalysis
from popsr.errors import GraphError, OutOfRangeError, ReplicaError
from popsr.replicas import Partition, ReplicaGrouping

__all__ = ["PopartAnalysis"]


@public
class PopartAnalysis(ProgramAnalysis):
    """PopART's answer for a program, its errors included; made by ``analyze(ir, mode="popart")``.

    PopART knows two classes only: a value is equal on all replicas, or it is not. Partitions are one block for the
    first and a block a replica for the second, also with one replica. What it takes for equal may differ: variables
    count as equal whatever their groups are, a loop's body is looked at once, a condition not at all, remote memory
    never. See ``analyze(ir)`` for what is true.
    """

    def __init__(self, ir: Ir) -> None:
        """Analyse the main graph and all that it calls."""
        super().__init__(ir)
        ir._check_program()
        self._core = _core.PopartAnalysis(ir._core)

    def is_equal(self, t: Tensor, grouping: ReplicaGrouping | None = None) -> bool:
        """True if PopART takes a tensor's last value for equal on all replicas.

        Args:
            t: the tensor.
            grouping: as in the other mode; what is unequal is so within groups of two or more.
        Raises:
            ReplicaError: a grouping of another number of replicas.
        """
        replicas = self._ir.replication_factor
        if grouping is not None:
            read_a("is_equal: grouping", grouping, ReplicaGrouping)
        if grouping is not None and grouping.num_replicas != replicas:
            raise ReplicaError(
                f"is_equal: grouping of another replica count, got {grouping.num_replicas} replicas, "
                f"expected {replicas}"
            )
        equal = self._core.is_equal(self._tensor("is_equal", t))
        return equal or (grouping is not None and grouping.group_size == 1)

    def partition(
        self, t: Tensor, *, before: Op | None = None, after: Op | None = None, time: int | None = None
    ) -> Partition:
        """One block when PopART takes a value for equal on all replicas, else a block a replica.

        Args:
            t: the tensor; its last value, ANDed over all calls of its graph.
            before: the value that this op of the tensor's graph finds.
            after: the value that it leaves.
            time: the value after the op at this position of the schedule; -1: the initial value.
        Raises:
            GraphError: the tensor has no value then, its graph is never called, or the program changed.
            IndexError: no such time.
            ValueError: more than one of ``before``, ``after`` and ``time``.
        """
        tensor = self._tensor("partition", t)
        at = self._time(t, before, after, time)
        return self._two_class(
            self._core.is_equal(tensor) if at is None else self._core.is_equal_at(tensor, at)
        )

    def values(self, t: Tensor) -> list[tuple[int, Op | None, Partition]]:
        """All values that a tensor takes: (time, op that made it, partition); time -1 is the initial value.

        An op that shares memory with the tensor makes a value of it, also when it writes nothing.
        """
        return [
            (time, None if op is None else Op(self._ir, op), self._two_class(equal))
            for time, op, equal in self._core.values(self._tensor("values", t))
        ]

    def is_input_equal(self, op: Op, index: int) -> bool:
        """True if PopART takes input ``index`` for equal when the op reads it, or the input is absent."""
        return self._core.is_input_equal(
            self._op("is_input_equal", op), read_int("is_input_equal: index", index, 0)
        )

    def is_output_equal(self, op: Op, index: int = 0) -> bool:
        """True if PopART takes output ``index`` for equal when the op has made it."""
        return self._core.is_output_equal(
            self._op("is_output_equal", op), read_int("is_output_equal: index", index, 0)
        )

    def attributes(self, op: Op) -> dict[str, str]:
        """Attributes that PopART adds to an op: "true" or "false" by "replEqIn0", "replEqOut0" and so on."""
        return self._core.attributes(self._op("attributes", op))

    @property
    def warnings(self) -> tuple[str, ...]:
        """A line for each tensor that is equal at one place and unequal at another, mostly inputs of graphs.

        As PopART's warnings, they name the tensor and nothing else.
        """
        return tuple(
            f"analyze: places disagree on '{self._ir._tensor(id_).id}', got equal and unequal, taken for unequal"
            for id_ in self._core.disagreements()
        )

    def _two_class(self, equal: bool) -> Partition:
        replicas = self._ir.replication_factor
        return Partition.from_labels([0] * replicas if equal else list(range(replicas)))

    def _time(self, t: Tensor, before: Op | None, after: Op | None, time: int | None) -> int | None:
        op = self._at_op("partition", before, after, time)
        if time is not None:
            ops = len(self._ir._graph(t._graph_id).ops)
            if not -1 <= read_int("partition: time", time, -1) < ops:
                raise OutOfRangeError(f"partition: no such time, got {time}, expected -1 to {ops - 1}")
            return time
        if op is None:
            return None
        core = self._ir._core
        if core.op_graph(op) != t._graph_id:
            raise GraphError(
                f"partition: op of another graph, got {shown(Op(self._ir, op))}, expected an op of the graph of "
                f"{shown(t)}"
            )
        return core.op_position(op) - (1 if before is not None else 0)
