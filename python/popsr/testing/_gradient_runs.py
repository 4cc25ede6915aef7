"""Runs of a program from one state, and the values that they end with; the program is as before afterwards."""

from __future__ import annotations

import contextlib
import functools
import operator
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from popsr._program.building.op_hooks import OpHooks
from popsr._program.building.transaction import transactional
from popsr._program.context import _context, in_sequence
from popsr._program.ir import Ir
from popsr._program.op import Op
from popsr._program.streams import DeviceToHostStream, d2h_stream
from popsr._program.tensor import Tensor, Variable
from popsr._program.variables.remote_variables import replica_sharded_variable
from popsr._program.variables.variables import variable as make_variable
from popsr._session.session import Session
from popsr._support.text.shown import shown
from popsr.analysis import PartitionAnalysis
from popsr.errors import GraphError, ReplicaError, ReplicaWarning
from popsr.ops.program.host_io import host_store
from popsr.ops.program.remote import remote_store
from popsr.ops.var_updates import copy_var_update_
from popsr.replicas import Partition, ReplicaGrouping

__all__ = ["Array", "Runs", "Value", "first_run_partitions", "undone"]

Array = NDArray[Any]
Value = Tensor | DeviceToHostStream
T = TypeVar("T")


class _Undo(Exception):
    """Ends a call that changes a program, so that it is as before."""


def undone(ir: Ir, measure: Callable[[], T]) -> T:
    """Call a function that may add to a program and run it, and take back all that it did to the program.

    Warnings about replicas are left to the user's own sessions, and hooks are not called with ops that will be gone.
    """
    results: list[T] = []

    @transactional
    def check_gradients() -> None:
        settings = ir._settings()
        before = {name: getattr(ir, name) for name in ("_warned", "_in_sync", "_mapped")}
        ir._warned, ir._mapped = set(ir._warned), {}  # without mapped files, which sessions write to
        ir._op_hooks, _context._op_hooks = {}, OpHooks()
        try:
            results.append(measure())
        finally:
            vars(ir).update(before)
            ir._set_back(settings)
        raise _Undo

    with warnings.catch_warnings(), contextlib.suppress(_Undo):
        warnings.simplefilter("ignore", ReplicaWarning)
        check_gradients()
    return results[0]


def first_run_partitions(ir: Ir, values: Iterable[tuple[str, Value]]) -> list[Partition]:
    """The replicas that are proved to hold the same values at the end of the first run, or to store the same.

    Facts of a program hold in all runs: a wrong gradient that lets replicas drift would hide that they hold the same
    loss as long as they have not drifted. The first run starts with variables that are equal as declared, so those that
    drift are set to equal values at the end of the program that is analysed.

    Args:
        ir: the program.
        values: names, for messages, and values.
    Raises:
        GraphError: no op that runs stores to a stream.
        ReplicaError: a stream has a row for each group, and members of a group are not proved to store the same.
    """
    facts = PartitionAnalysis(ir)
    drifting = [drift.variable for drift in facts.drifting()]
    if not drifting:
        return [_partition_of(where, facts, value, None) for where, value in values]

    def without_drift() -> list[Partition]:
        graph = ir.main_graph
        end = len(graph.ops)
        with graph, in_sequence():
            for each in drifting:
                _set_equal(each)
        facts = PartitionAnalysis(ir)
        return [_partition_of(where, facts, value, graph.ops[end]) for where, value in values]

    return undone(ir, without_drift)


def _set_equal(variable: Variable) -> None:
    """Append ops that make the members of each group of a variable hold the same value."""
    ir = variable._ir
    grouping, home = variable.replica_grouping, ir._core.home(variable._id)
    zeros = np.zeros(variable.shape_on_host, variable.dtype.as_numpy())
    shards = 1 if home is None else home.shard_over
    if shards > 1:
        _, equal = replica_sharded_variable(zeros, variable.dtype, None, False, grouping, shards)
    else:
        equal = make_variable(zeros, variable.dtype, None, False, grouping)
    for (buffer, entry), resident in ir._residents.items():
        if resident is variable:
            remote_store(ir._remote_cache[buffer], entry, equal)
            return
    copy_var_update_(variable if home is None else ir._tensor(home.tensor), equal)


def _partition_of(where: str, facts: PartitionAnalysis, value: Value, end: Op | None) -> Partition:
    """The partition at the end of the main graph, or before an op of it."""
    if isinstance(value, Tensor):
        return facts.partition(value, before=end)
    found = list(_stored_partitions(facts, value))
    if not found:
        raise GraphError(
            f"{where} is a stream that nothing is stored to, got {shown(value)}, expected ops.host_store(stream, t)"
        )
    result = functools.reduce(operator.and_, found)
    mode = value.replicated_stream_mode
    if isinstance(mode, ReplicaGrouping) and not mode.partition.refines(result):
        raise ReplicaError(
            f"{where} is a stream with a row for each group, whose members are not proved to store the same, got "
            f"{result} for groups {mode.partition}, expected a stream with a row for each replica"
        )
    return result


def _stored_partitions(facts: PartitionAnalysis, stream: DeviceToHostStream) -> Iterable[Partition]:
    """Of each store, in each context of its graph: replicas that run it together and store the same."""
    ir = facts.ir
    for graph in (ir._graph(id_) for id_ in range(ir._core.num_graphs)):
        for op in graph.ops:
            for store in op.parts or (op,):
                if store.attributes.get("d2h_stream") != stream._id:
                    continue
                stored = store.inputs[0]
                assert stored is not None
                for context in facts.contexts(graph):
                    yield facts.partition(stored, before=op, context=context) & context.execution


@dataclass(frozen=True)
class _Reading:
    """A stream that carries a value to the host."""

    stream: DeviceToHostStream
    transfers: int

    def by_replica(self, stored: Mapping[DeviceToHostStream, Array]) -> Array:
        """The sum over the transfers, a row for each replica, in float64."""
        stream = self.stream
        rows = stored[stream].reshape(self.transfers, stream.num_rows, *stream.shape)
        total: Array = rows.astype(np.float64).sum(axis=0)
        mode = stream.replicated_stream_mode
        return total[list(mode.assignment)] if isinstance(mode, ReplicaGrouping) else total


class Runs:
    """Runs of a program from the state that a new session starts with. Used inside ``undone``.

    Args:
        ir: the program; gets a stream for each value that is a tensor.
        values: tensors of the main graph, of which the last value counts, and streams, of which the sum counts.
        inputs: data of its streams, as for ``Session.run``.
    """

    def __init__(self, ir: Ir, values: Iterable[Value], inputs: Mapping[Any, Any] | None) -> None:
        """Add the streams."""
        self._ir = ir
        self._inputs = inputs
        self._readings: dict[Value, _Reading] = {}
        with ir.main_graph, in_sequence():
            for value in values:
                if value not in self._readings:
                    stream = self._stream(value)
                    self._readings[value] = _Reading(stream, ir.num_host_transfers)

    def run(self, changed: Mapping[Variable, Array] | None = None) -> Callable[[Value], Array]:
        """Run once, with other initial rows of some variables; returns what a value was, by replica.

        A session of its own starts without a trace of earlier runs: variables, remote buffers and the seed.
        """
        with Session(self._ir, weights_to_host_on_exit=False) as session:
            if changed:
                session._access.set_rows(changed)
            stored = session.run(self._inputs)
        return lambda value: self._readings[value].by_replica(stored)

    def initial_rows(self, variables: Iterable[Variable]) -> dict[Variable, Array]:
        """Copies of the initial values, of ``(groups, *shape)``."""
        session = Session(self._ir, weights_to_host_on_exit=False)
        return {
            v: session._access.rows(v).reshape(v.replica_grouping.num_groups, *v.shape).copy()
            for v in variables
        }

    @staticmethod
    def _stream(value: Value) -> DeviceToHostStream:
        if isinstance(value, DeviceToHostStream):
            return value
        stream = d2h_stream(value.shape, value.dtype)
        host_store(stream, value)
        return stream
