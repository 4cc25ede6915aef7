"""The replicas that hold bitwise the same value, proved for every tensor of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, overload

from popsr import _core
from popsr._program.building.transaction import transactional
from popsr._program.graph import Graph
from popsr._program.ir import Ir
from popsr._program.op import Op
from popsr._program.streams import HostToDeviceStream
from popsr._program.tensor import Tensor, Variable
from popsr._support.host.arguments import is_a, read_a, read_choice, read_int, read_items, read_mapping
from popsr._support.records import MissingSumInfo
from popsr._support.text.entry_points import public
from popsr._support.text.replica_sets import agreement_text, groups_text
from popsr._support.text.shown import shown
from popsr._support.text.summary import Groups, Summarised, Summary
from popsr.analysis._drift import DriftingVariable, drift_html, drift_table, drifting_variable
from popsr.analysis._explanation import (
    Explanation,
    Lint,
    lint_of,
)
from popsr.analysis._popart_mode import PopartAnalysis
from popsr.analysis._program_analysis import ProgramAnalysis
from popsr.errors import ArgumentTypeError, AttributeValueError, GraphError, ReplicaError, UnsupportedError
from popsr.replicas import Partition, ReplicaGrouping

__all__ = ["CallContext", "PartitionAnalysis", "analyze"]


@public
@dataclass(frozen=True, slots=True)
class CallContext:
    """A graph as some of its calls run it: all that pass inputs on which the same replicas agree.

    Attributes:
        graph: the graph.
        calls: calls from the main graph that lead to it: the shortest of all such paths, the first of these.
        inputs: replicas that agree on each input; of the main graph, on each variable when a run starts.
        execution: replicas that certainly run it together.
    """

    graph: Graph
    calls: tuple[Op, ...]
    inputs: tuple[Partition, ...]
    execution: Partition
    _facts: PartitionAnalysis = field(repr=False)
    _id: int = field(repr=False)


@public
class PartitionAnalysis(Summarised, ProgramAnalysis):
    """Facts of a program; made by ``analyze``.

    They are refused once the program has changed, or an option that decides the seeds of stochastic rounding.
    """

    def __init__(self, ir: Ir) -> None:
        """Analyse the main graph and all that it calls."""
        super().__init__(ir)
        self._take(ir._facts())

    @classmethod
    def _of(cls, ir: Ir, core: _core.PartitionAnalysis) -> PartitionAnalysis:
        """Facts that rest on assumptions."""
        self = cls.__new__(cls)
        ProgramAnalysis.__init__(self, ir)
        self._take(core)
        return self

    @classmethod
    def _of_session(
        cls, ir: Ir, core: _core.PartitionAnalysis, more: Callable[[], list[Lint]]
    ) -> PartitionAnalysis:
        """Facts of a session, and its own lints."""
        self = cls._of(ir, core)
        self._more_lints = more
        return self

    def _take(self, core: _core.PartitionAnalysis) -> None:
        ir = self._ir
        self._core = core
        self._more_lints: Callable[[], list[Lint]] = list
        self._epoch = ir._core.epoch
        self._explanations = _core.Explainer(self._core)
        self._warnings: tuple[Lint, ...] | None = None
        self._drifting: tuple[DriftingVariable, ...] | None = None
        self._overwritten = 0  # variables that would drift but for that every run overwrites them first

    @property
    def _explainer(self) -> _core.Explainer:
        """Answers questions about the facts, which refuse when they are of another version."""
        self._check_seeds()
        return self._explanations

    def _check_seeds(self) -> None:
        """Refuse seeds that the options would not choose now; the core knows by itself of a changed program."""
        if self._ir._core.epoch == self._epoch:
            self._core.check_fresh(self._ir._seed_rules())

    def partition(
        self,
        t: Tensor,
        *,
        before: Op | None = None,
        after: Op | None = None,
        time: int | None = None,
        context: CallContext | Sequence[Op] | None = None,
    ) -> Partition:
        """Replicas that agree on a value of a tensor; of a sharded variable, on the part that each of them holds.

        Args:
            t: the tensor. Default: its last value in its graph.
            before: the value that this op of its graph finds.
            after: the value after this op of its graph.
            time: the value after the op of that number in its graph, as in ``values``; -1 for the initial value.
            context: one of ``contexts``, or calls from the main graph on. Default: what holds in all contexts.
        Raises:
            GraphError: the program has changed; the tensor, op or context does not fit; it has no value at that time.
            IndexError: no such time.
            ValueError: more than one of ``before``, ``after`` and ``time``.
        """
        id_ = self._tensor("partition", t)
        return self._explainer.fact(
            id_, self._time("partition", id_, before, after, time), self._context(id_, context)
        )

    def values(self, t: Tensor) -> list[tuple[int, Op | None, Partition]]:
        """All values that a tensor takes: (time, op that wrote it, partition); time -1 is the initial value."""
        self._check_seeds()
        return [
            (time, None if op is None else Op(self._ir, op), partition)
            for time, op, partition in self._core.values(self._tensor("values", t))
        ]

    def is_equal(self, t: Tensor, grouping: ReplicaGrouping | None = None) -> bool:
        """True if all replicas agree on a tensor's last value, or the replicas of each group of ``grouping``.

        Raises:
            ReplicaError: the grouping is of another number of replicas.
        """
        if grouping is None:
            return self.partition(t).num_blocks == 1
        read_a("is_equal: grouping", grouping, ReplicaGrouping)
        self._check_seeds()
        return self._core.is_equal(self._tensor("is_equal", t), grouping)

    def pending(
        self,
        t: Tensor,
        *,
        before: Op | None = None,
        after: Op | None = None,
        time: int | None = None,
        context: CallContext | Sequence[Op] | None = None,
    ) -> Partition | None:
        """Replicas over which a gradient is still a partial sum: what each of them holds is its part of the derivative.

        A forward value that several replicas share has one derivative, the sum of what they contribute. Shown for
        tensors of the gradient graphs that :func:`popsr.transforms.autodiff` makes and for what becomes of them, where
        the analysis knows it.

        Args:
            t: the tensor, and by default its last value.
            before: as for ``partition``.
            after: as for ``partition``.
            time: as for ``partition``.
            context: as for ``partition``. Default: what all contexts have in common.
        Returns:
            The replicas that share the forward value, as blocks; None where nothing is pending: each replica has the
            whole derivative, the tensor is not a gradient, or a lint L10 tells that it is none.
        Raises:
            GraphError: as for ``partition``.
        """
        id_ = self._tensor("pending", t)
        when = self._time("pending", id_, before, after, time)
        return self._explainer.pending(id_, when, self._context(id_, context))

    def _missing_sum(self, t: Tensor, declared: Partition) -> MissingSumInfo | None:
        """The gradient of a marked backward pass through which a value differs inside groups; None without one."""
        return self._explainer.missing_sum(self._tensor("pending", t), declared)

    def contexts(self, graph: Graph) -> tuple[CallContext, ...]:
        """The contexts in which a graph runs; none when nothing calls it.

        Calls that pass inputs on which the same replicas agree share one.
        """
        if not isinstance(graph, Graph):
            raise ArgumentTypeError(f"contexts: graph is not a Graph, got {shown(graph)}")
        self._require_own("contexts", "graph", graph, graph.ir)
        return tuple(
            CallContext(graph, tuple(Op(self._ir, op) for op in calls), tuple(inputs), execution, self, id_)
            for id_, calls, inputs, execution in self._explainer.contexts(graph._id)
        )

    def explain(
        self,
        t: Tensor,
        r: int,
        s: int,
        *,
        before: Op | None = None,
        after: Op | None = None,
        time: int | None = None,
        context: CallContext | Sequence[Op] | None = None,
    ) -> Explanation:
        """Explain why two replicas are not proved equal: a shortest path from a value to the cause of the difference.

        Args:
            t: the tensor, and by default its last value.
            r: a replica.
            s: another replica.
            before: as for ``partition``.
            after: as for ``partition``.
            time: as for ``partition``.
            context: as for ``partition``. Default: the first one in which they differ.
        Returns:
            The path, the cause and what would help; of replicas that are proved equal, why they are.
        Raises:
            ReplicaError: ``r`` and ``s`` are not two replicas.
            GraphError: as for ``partition``, or nothing calls the tensor's graph.
        """
        id_ = self._tensor("explain", t)
        when = self._time("explain", id_, before, after, time)
        pair = self._pair(r, s)
        found = self._explainer.explain(id_, when, self._context(id_, context), *pair)
        return Explanation(self._ir, t, pair, found)

    @property
    def warnings(self) -> tuple[Lint, ...]:
        """Lints by code and then in program order, each with its cost.

        ==== ============================================================= =====================================
        code what                                                          cost
        ==== ============================================================= =====================================
        L1   a collective or stream that its groups need not run together  groups that may not meet
        L2   a variable whose declared groups a run does not keep equal,   bytes of further copies
             unless every run overwrites it before it reads it
        L3   one value per group is read back of groups not proved equal   replicas that are not seen
        L4   call sites that give a graph inputs with different facts      values with a fact for each of them
        L5   seeds coarser than the outputs need (mode "identical")        seeds that could differ
        L6   a reduction or gather of data that is equal already           times too large; else bytes in vain
        L7   an update reduced over other groups than its variable's       replicas too many or too few
        L8   a read of what nothing was written to                         bytes read
        L9   an op that declares no partition rule                         values that are equal nowhere
        L10  gradients of one value that are sums over different replicas  replicas that share the value
        L11  a variable updated with another sum than its replicas share   replicas that share the variable
        L12  ops that modify and use a tensor in program order alone       pairs of such ops
        L13  of ``Session.facts``: a stream of more than 64 elements that  variables that would stay equal
             was fed equal rows in every run
        ==== ============================================================= =====================================

        ``python -m popsr help L2`` prints what causes a lint and what helps, with an example.

        Sessions warn of L1, L2 and L3 with :class:`popsr.ReplicaWarning`; with ``Session(strict=True)`` they are
        errors.
        """
        self._core.check_fresh()
        self._check_seeds()
        if self._warnings is None:
            self._warnings = tuple(
                lint_of(self._ir, found) for found in self._explainer.lints(self._ir._order)
            )
        return (*self._warnings, *self._more_lints())

    def drifting(self) -> tuple[DriftingVariable, ...]:
        """The variables whose declared groups a run does not keep equal: each lint L2, with its cause.

        Variables that every run overwrites on all replicas before it reads them are left out. ``print(facts)`` shows
        the rest as a table.

        Raises:
            GraphError: the program has changed.
        """
        self._core.check_fresh()
        self._check_seeds()
        if self._drifting is None:
            found = self._explainer.drifts()
            self._drifting = tuple(
                drifting_variable(self._ir, drift) for drift in found if not drift.overwritten
            )
            self._overwritten = len(found) - len(self._drifting)
        return self._drifting

    def __str__(self) -> str:
        drifts = self.drifting()
        return f"{self._drift_title()}\n{drift_table(drifts)}" if drifts else self._drift_title()

    def _repr_html_(self) -> str:
        return drift_html(self._drift_title(), self.drifting())

    def _summary(self) -> Summary:
        """The variables, with the replicas that keep their values equal."""
        variables = self._ir.main_graph.variables
        rows = ((v.name, _declared(v), _kept(self.partition(v))) for v in variables)
        return Summary(repr(self), ("variable", "declared", "kept by a run"), rows, len(variables))

    def _drift_title(self) -> str:
        """The number of variables that drift, in words."""
        drifts, variables = len(self.drifting()), len(self._ir.main_graph.variables)
        counts = f"{_count(variables, 'variable')} on {_count(self._ir.replication_factor, 'replica')}"
        text = f"{drifts} of {counts} drift{'s' if drifts == 1 else ''}"
        if not drifts:
            text = f"no variable drifts, of {counts}"
        if self._overwritten:
            text += f"; {self._overwritten} more would, but every run overwrites them before it reads them"
        return text

    def _time(
        self, where: str, tensor: int, before: Op | None, after: Op | None, time: int | None
    ) -> int | None:
        op = self._at_op(where, before, after, time)
        if time is not None:
            return self._explainer.time_at(tensor, read_int("partition: time", time, -1))
        return None if op is None else self._explainer.time_at_op(tensor, op, after is not None)

    def _pair(self, r: int, s: int) -> tuple[int, int]:
        replicas = self._ir.replication_factor
        try:
            pair = read_int("explain: r", r), read_int("explain: s", s)
        except AttributeValueError:  # more than 64 bits
            pair = (0, 0)
        if pair[0] == pair[1] or not 0 <= min(pair) <= max(pair) < replicas:
            raise ReplicaError(
                f"explain: no two replicas, got {shown(r)} and {shown(s)}, expected two of 0 to {replicas - 1}"
            )
        return pair

    def _context(self, tensor: int, context: CallContext | Sequence[Op] | None) -> int | None:
        if context is None:
            return None
        if isinstance(context, CallContext):
            if context._facts is not self:
                raise GraphError(
                    "context: of another analysis, got one that is not in facts.contexts(graph), "
                    "expected a context of these facts"
                )
            return context._id
        if not is_a(context, Iterable) or is_a(context, str):
            raise ArgumentTypeError(
                f"context: no calls, got {shown(context)}, expected one of facts.contexts(graph) or a sequence of ops"
            )
        calls = read_items("context", "calls", context, kind="ops")
        for op in calls:
            self._op("context", op, "an item")
        return self._explainer.context_at(tensor, [op.id for op in calls])


def _declared(variable: Variable) -> Groups:
    groups = variable.replica_grouping.partition
    return Groups(groups_text(groups), groups)


def _kept(partition: Partition) -> Groups:
    return Groups(agreement_text(partition), partition)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


EqualStreams = Mapping[HostToDeviceStream, ReplicaGrouping | Literal[True] | None]


@overload
def analyze(
    ir: Ir, mode: Literal["partition"] = "partition", *, equal: EqualStreams | None = None
) -> PartitionAnalysis: ...
@overload
def analyze(ir: Ir, mode: Literal["popart"]) -> PopartAnalysis: ...


@public
@transactional
def analyze(
    ir: Ir, mode: Literal["partition", "popart"] = "partition", *, equal: EqualStreams | None = None
) -> PartitionAnalysis | PopartAnalysis:
    """Prove which replicas agree.

    Args:
        ir: the program. Ops that round take the seeds that its options choose, as in a session made now.
        mode: "partition"; or "popart": what PopART's analysis says, for comparison. It proves nothing.
        equal: streams whose rows are taken to be equal whenever they are fed: inside the groups of a grouping, or with
            True or None on all replicas. Nothing is assumed of other streams but what they declare, though a session
            takes seeds of at most 64 elements as equal as long as they are fed so.
    Raises:
        GraphError: the order of a write in place and another use of the same tensor is not fixed; or, in mode
            "popart", a graph without inputs is called for a result: PopART stops there. With the option
            ``stochastic_rounding_mode`` "popart" also an op that rounds in a graph that nobody calls. A stream of
            another program.
        ArgumentTypeError: ``equal`` has keys that are not streams to the device, or values that are not groupings.
        ReplicaError: a grouping of another number of replicas.
        UnsupportedError: ``equal`` in mode "popart".
    """
    if not isinstance(ir, Ir):
        raise ArgumentTypeError(f"analyze: ir is not an Ir, got {shown(ir)}")
    read_choice("analyze", "mode", mode, ("partition", "popart"))
    if equal is None:
        return PartitionAnalysis(ir) if mode == "partition" else PopartAnalysis(ir)
    if mode == "popart":
        raise UnsupportedError(
            "analyze: mode 'popart' assumes nothing of streams, got equal, expected mode 'partition'"
        )
    rows = [
        _equal_stream(ir, stream, groups)
        for stream, groups in read_mapping("analyze", "equal", equal).items()
    ]
    ir._check_program()
    return PartitionAnalysis._of(ir, _core.PartitionAnalysis(ir._core, ir._seed_rules(), rows))


def _equal_stream(ir: Ir, stream: object, groups: object) -> tuple[int, ReplicaGrouping | None]:
    if not isinstance(stream, HostToDeviceStream):
        raise ArgumentTypeError(
            f"analyze: a key of equal is not a stream to the device, got {shown(stream)}, expected one of h2d_stream"
        )
    if stream._ir is not ir:
        raise GraphError(f"analyze: stream of another Ir, got {shown(stream)}, expected one of {shown(ir)}")
    if groups is None or groups is True:
        return stream._id, None
    if not isinstance(groups, ReplicaGrouping):
        raise ArgumentTypeError(
            f"analyze: equal[{shown(stream.tensor_id)}] is not a grouping, got {shown(groups)}, expected a "
            "ReplicaGrouping, True or None"
        )
    if groups.num_replicas != ir.replication_factor:
        raise ReplicaError(
            f"analyze: grouping of another replica count for stream {shown(stream.tensor_id)}, got "
            f"{groups.num_replicas} replicas, expected {ir.replication_factor}"
        )
    return stream._id, groups
