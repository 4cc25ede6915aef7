"""Graphs that run another graph for each part of a batch, and keep values between graphs in remote buffers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from popsr import dtypes, ops
from popsr._program.building.location import warn_user
from popsr._program.building.transaction import transactional
from popsr._program.context import in_sequence
from popsr._program.create_graph import graph_input, graph_output
from popsr._program.graph import Graph
from popsr._program.streams import DeviceToHostStream, HostToDeviceStream
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import is_a, read_a, read_choice, read_flag, read_int, read_mapping
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons.graph import GraphWithNamedArgs
from popsr.addons.named_tensors import NamedTensors, TensorMap
from popsr.addons.transforms.serial_io import (
    RemoteBufferWithOffset,
    RemoteHandle,
    StepPlace,
    batch_serial_buffer,
    grow,
    load,
    read_loads,
    read_remote,
    read_streams,
    store,
)
from popsr.addons.utils import null_context, suffix_graph_name
from popsr.errors import ArgumentTypeError, GraphError
from popsr.replicas import ReplicaGrouping
from popsr.transforms import ExpectedConnectionType

__all__ = [
    "BatchSerialResult",
    "RemoteBufferWithOffset",
    "RemoteHandle",
    "batch_serial_buffer",
    "batch_serialise",
    "batch_serialise_fwd_and_grad",
    "batch_serialise_non_overlapped",
    "batch_serialise_overlapped",
    "null_context",
]

Loads = Mapping[Tensor, HostToDeviceStream | RemoteBufferWithOffset | RemoteHandle]
Stores = Mapping[Tensor, RemoteBufferWithOffset | RemoteHandle | ReplicaGrouping]
IoMode = Literal["compute", "io", "io_overlapped"]


@public
class BatchSerialResult:
    """A serialised graph.

    Args:
        graph: it, with the named arguments that are still inputs. Its first input is the row, an int32 scalar.
        stored_buffers: where values of the original graph's tensors are stored, by tensor.
        remap_dict: the original graph's inputs that are still inputs, to the inputs of ``graph``.
    """

    def __init__(
        self,
        graph: GraphWithNamedArgs,
        stored_buffers: Mapping[Tensor, RemoteHandle],
        remap_dict: TensorMap,
    ) -> None:
        """Result of a function of this module."""
        where = "BatchSerialResult"
        read_a(f"{where}: graph", graph, GraphWithNamedArgs)
        self.graph = graph
        self.stored_buffers = dict(read_mapping(where, "stored_buffers", stored_buffers))
        self.remap_dict = dict(read_mapping(where, "remap_dict", remap_dict))

    def remap_tensors(self, ts: NamedTensors) -> NamedTensors:
        """The serialised graph's inputs by the same keys.

        Args:
            ts: inputs of the original graph.
        Raises:
            KeyError: one of them is not an input any more; the message has its key.
        """
        read_a("remap_tensors: ts", ts, NamedTensors)
        return ts.remap(self.remap_dict)


@dataclass
class _Plan:
    """Inputs of a graph in each step, and destinations of its values."""

    where: str
    steps: int
    rows: int
    use_io_tiles: bool
    loads: dict[Tensor, HostToDeviceStream | RemoteHandle] = field(default_factory=dict)
    streams: dict[Tensor, DeviceToHostStream] = field(default_factory=dict)
    buffers: dict[Tensor, RemoteHandle] = field(default_factory=dict)
    groups: dict[Tensor, ReplicaGrouping] = field(default_factory=dict)  # of buffers that are made for it
    seed: Tensor | None = None


@public
@transactional
def batch_serialise_non_overlapped(
    graph: GraphWithNamedArgs,
    steps: int,
    load_handles: Loads,
    store_streams: Mapping[Tensor, DeviceToHostStream],
    store_buffers: Stores,
    seed_input: Tensor | None = None,
    rows: int = 1,
    use_io_tiles: bool = False,
) -> BatchSerialResult:
    """As ``batch_serialise``; loads, the graph and stores of a step are done before the next step.

    Args:
        graph: as for ``batch_serialise``.
        steps: as for ``batch_serialise``.
        load_handles: as for ``batch_serialise``.
        store_streams: as for ``batch_serialise``.
        store_buffers: as for ``batch_serialise``.
        seed_input: as for ``batch_serialise``.
        rows: as for ``batch_serialise``.
        use_io_tiles: load and store on io tiles.
    Raises:
        ValueError: as for ``batch_serialise``.
    """
    plan = _read_plan("batch_serialise", steps, rows, use_io_tiles)
    _check_graph(plan.where, graph)
    plan.loads = read_loads(plan.where, load_handles)
    plan.streams = read_streams(plan.where, "store_streams", DeviceToHostStream, store_streams)
    plan.buffers, plan.groups = _read_buffers(plan.where, store_buffers)
    plan.seed = seed_input
    _check_tensors(graph.graph, plan)
    return _serialise(graph, plan)


@public
@transactional
def batch_serialise_overlapped(
    graph: GraphWithNamedArgs,
    steps: int,
    load_handles: Loads,
    store_streams: Mapping[Tensor, DeviceToHostStream],
    store_buffers: Stores,
    seed_input: Tensor | None = None,
    rows: int = 1,
) -> BatchSerialResult:
    """As ``batch_serialise``, on io tiles. On hardware loads and stores overlap with other steps; here nothing does.

    Args:
        graph: as for ``batch_serialise``.
        steps: as for ``batch_serialise``, at least 2.
        load_handles: as for ``batch_serialise``.
        store_streams: as for ``batch_serialise``.
        store_buffers: as for ``batch_serialise``.
        seed_input: as for ``batch_serialise``.
        rows: as for ``batch_serialise``.
    Raises:
        ValueError: fewer than two steps, or as for ``batch_serialise``.
    """
    read_int("batch_serialise_overlapped: steps", steps, 2)
    return batch_serialise_non_overlapped(
        graph, steps, load_handles, store_streams, store_buffers, seed_input, rows, True
    )


@public
@transactional
def batch_serialise(
    graph: GraphWithNamedArgs,
    steps: int,
    load_handles: Loads,
    store_streams: Mapping[Tensor, DeviceToHostStream],
    store_buffers: Stores,
    seed_input: Tensor | None = None,
    rows: int = 1,
    io_mode: IoMode = "io",
) -> BatchSerialResult:
    """A graph that runs another one for each part of a batch, one after the other.

    In step i of row n it loads what has a handle, runs the graph, and stores what has one. Row n is the first input of
    the new graph, an int32 scalar, and the seed the next, if there is one; entries of remote buffers are numbered as
    :class:`RemoteHandle` says. Inputs without a handle follow as inputs of the new graph in their order, the same in
    each step, by reference where they were; outputs without one are dropped. Buffers get as many entries as are
    needed.

    Args:
        graph: the graph of one part.
        steps: how many parts.
        load_handles: stream, or buffer and row offset, by input of the graph.
        store_streams: stream by input or output of the graph.
        store_buffers: buffer and row offset by input or output of the graph; with a grouping as value, a new buffer
            whose entries it shards.
        seed_input: input that is given number i of ``ops.split_random_seed`` of the seed that the new graph is given.
        rows: how many batches the buffers hold.
        io_mode: "compute"; "io" and "io_overlapped": load and store on io tiles. No value depends on it. With one step
            nothing overlaps: a warning says so.
    Returns:
        The new graph, where values are stored, and which inputs are left.
    Raises:
        AttributeValueError: ``steps`` or ``rows`` is not an int from 1 on, or ``io_mode`` is none of these.
        GraphError: a handle is for neither an input nor an output of the graph; ``seed_input`` is none, or is
            loaded as well; a buffer is of another Ir.
        ShapeError: a handle is of another shape than its tensor.
        DTypeError: a handle is of another dtype than its tensor.
        ArgumentTypeError: something is of another type.
    """
    use_io_tiles = _read_mode("batch_serialise", io_mode, steps)
    return batch_serialise_non_overlapped(
        graph, steps, load_handles, store_streams, store_buffers, seed_input, rows, use_io_tiles
    )


@public
@transactional
def batch_serialise_fwd_and_grad(
    forward_graph: GraphWithNamedArgs,
    gradient_graph: GraphWithNamedArgs,
    named_inputs_for_grad_graph: NamedTensors,
    steps: int,
    load_handles: Loads,
    store_streams: Mapping[Tensor, DeviceToHostStream],
    store_buffers: Stores,
    seed_input: Tensor | None = None,
    rows: int = 1,
    io_mode: IoMode = "io",
) -> tuple[BatchSerialResult, BatchSerialResult]:
    """``batch_serialise`` of a graph and of its gradient graph, which gets what it needs of the forward graph.

    A value of the forward graph that the gradient graph takes is, in this order: loaded by the handle of the gradient
    graph's input; a named input of the gradient graph; loaded again from the remote buffer that the forward graph
    loaded it from; loaded from where it is stored. What is not stored yet is stored in a new buffer. So is the seed of
    each step: the gradient graph has no input for it.

    Args:
        forward_graph: the forward graph.
        gradient_graph: its gradient graph.
        named_inputs_for_grad_graph: tensors of the forward graph, as its named arguments, that are inputs of the
            serialised gradient graph by the same keys.
        steps: how many parts a batch has.
        load_handles: as for ``batch_serialise``, by input of one of the graphs; one for each gradient that the gradient
            graph is given.
        store_streams: as for ``batch_serialise``, by tensor of one of the graphs.
        store_buffers: as for ``batch_serialise``, by tensor of one of the graphs.
        seed_input: input of the forward graph that is a random seed; the gradient graph's steps load the same seeds.
        rows: how many batches the buffers hold.
        io_mode: as for ``batch_serialise``.
    Returns:
        The serialised forward graph and the serialised gradient graph.
    Raises:
        GraphError: a gradient has no load handle; the second graph is not a gradient graph of the first; or as for
            ``batch_serialise``.
        AttributeError: the second graph is not a gradient graph.
        ValueError: as for ``batch_serialise``.
        TypeError: as for ``batch_serialise``.
    """
    where = "batch_serialise_fwd_and_grad"
    use_io_tiles = _read_mode(where, io_mode, steps)
    forward, backward = (_read_plan(where, steps, rows, use_io_tiles) for _ in range(2))
    _check_graph(where, forward_graph)
    _check_graph(where, gradient_graph)
    read_a(f"{where}: named_inputs_for_grad_graph", named_inputs_for_grad_graph, NamedTensors)
    info = gradient_graph.grad_graph_info
    if info.forward_graph is not forward_graph.graph:
        raise GraphError(
            f"{where}: no gradient graph of {shown(forward_graph.graph)}, got the one of {shown(info.forward_graph)}, "
            "expected a gradient graph that was made of it"
        )
    ours = set(forward_graph.graph.tensors)
    _split(forward.loads, backward.loads, read_loads(where, load_handles), ours)
    streams = read_streams(where, "store_streams", DeviceToHostStream, store_streams)
    _split(forward.streams, backward.streams, streams, ours)
    handles, groups = _read_buffers(where, store_buffers)
    _split(forward.buffers, backward.buffers, handles, ours)
    _split(forward.groups, backward.groups, groups, ours)
    forward.seed = seed_input
    _check_tensors(forward_graph.graph, forward)
    _check_tensors(gradient_graph.graph, backward)
    named = {t: key for key, t in named_inputs_for_grad_graph.to_dict().items()}
    needed = _Needed(forward_graph, gradient_graph, forward, backward, named)
    needed.check()
    _add_buffers(forward)
    args = needed.connect()
    first = _serialise(forward_graph, forward)
    second = _serialise(GraphWithNamedArgs(gradient_graph.graph, args), backward)
    return first, second


class _Needed:
    """Forward values that a gradient graph takes."""

    def __init__(
        self,
        forward_graph: GraphWithNamedArgs,
        gradient_graph: GraphWithNamedArgs,
        forward: _Plan,
        backward: _Plan,
        named: Mapping[Tensor, str],
    ) -> None:
        self.forward_graph, self.gradient_graph = forward_graph, gradient_graph
        self.forward, self.backward, self.named = forward, backward, named
        info = gradient_graph.grad_graph_info
        self.inputs = list(zip(gradient_graph.graph.inputs, info.expected_inputs, strict=False))

    def check(self) -> None:
        """Nothing is missing, and nothing is of another graph."""
        where = self.forward.where
        known = set(self.forward_graph.graph.tensors) | set(self.gradient_graph.graph.tensors)
        for t in self.named:
            if t not in known:
                raise GraphError(
                    f"{where}: {shown(t.id)} is not in the graphs, got {shown(t)}, expected one of "
                    f"{shown(self.forward_graph.graph)}"
                )
        for theirs, connection in self.inputs:
            is_gradient = connection.connection_type is ExpectedConnectionType.FwdGrad
            if is_gradient and theirs not in self.backward.loads:
                raise GraphError(
                    f"{where}: a gradient has no load handle, got none for {shown(theirs.id)}, the gradient of "
                    f"{shown(connection.fwd_tensor.id)}, expected one in load_handles"
                )
        twice = set(self.named.values()) & set(self.gradient_graph.args.to_dict())
        if twice:
            raise GraphError(
                f"{where}: names of the gradient graph are taken, got {sorted(twice)} twice, "
                "expected other names in the forward graph"
            )

    def connect(self) -> NamedTensors:
        """Give the gradient graph a source for each value; returns its named inputs."""
        args = dict(self.gradient_graph.args.to_dict())
        for theirs, connection in self.inputs:
            value = connection.fwd_tensor
            if connection.connection_type is ExpectedConnectionType.FwdGrad or theirs in self.backward.loads:
                continue
            if value is not self.forward.seed and value in self.named:
                args[self.named[value]] = theirs
            else:
                self.backward.loads[theirs] = self._kept(value)
        return NamedTensors.from_dict(args)

    def _kept(self, value: Tensor) -> RemoteHandle:
        """Storage of a value of the forward graph."""
        loaded = self.forward.loads.get(value)
        if isinstance(loaded, RemoteHandle):
            return loaded
        if value not in self.forward.buffers:
            buffer = batch_serial_buffer(value, self.forward.steps, self.forward.rows)
            self.forward.buffers[value] = RemoteHandle(buffer)
        return self.forward.buffers[value]


def _read_plan(where: str, steps: int, rows: int, use_io_tiles: bool) -> _Plan:
    return _Plan(
        where,
        read_int(f"{where}: steps", steps, 1),
        read_int(f"{where}: rows", rows, 1),
        read_flag(f"{where}: use_io_tiles", use_io_tiles),
    )


def _read_mode(where: str, io_mode: str, steps: int) -> bool:
    """True if io tiles are used."""
    read_choice(where, "io_mode", io_mode, ("compute", "io", "io_overlapped"))
    if io_mode == "io_overlapped" and read_int(f"{where}: steps", steps, 1) < 2:
        warn_user(f"{where}: one step does not overlap with others, as with io_mode 'io'")
    return io_mode != "compute"


def _check_graph(where: str, graph: Any) -> None:
    if not is_a(graph, GraphWithNamedArgs):
        raise ArgumentTypeError(f"{where}: not a GraphWithNamedArgs, got {shown(graph)}")


def _tensor(where: str, t: Any) -> Tensor:
    if not is_a(t, Tensor):
        raise ArgumentTypeError(
            f"{where}: a handle is not for a tensor, got {shown(t)} as key, expected inputs of the graph as keys"
        )
    assert isinstance(t, Tensor)
    return t


def _read_buffers(
    where: str, buffers: Any
) -> tuple[dict[Tensor, RemoteHandle], dict[Tensor, ReplicaGrouping]]:
    """Handles, and groups of buffers that are to be made."""
    handles, groups = {}, {}
    for t, value in read_mapping(where, "store_buffers", buffers).items():
        if is_a(value, ReplicaGrouping):
            groups[_tensor(where, t)] = value
        else:
            handles[t] = read_remote(where, _tensor(where, t), value)
    return handles, groups


def _add_buffers(plan: _Plan) -> None:
    """Make the buffers of which only groups are known."""
    for t, group in plan.groups.items():
        plan.buffers[t] = RemoteHandle(batch_serial_buffer(t, plan.steps, plan.rows, group), 0, group)
    plan.groups = {}


def _split(
    forward: dict[Tensor, Any], backward: dict[Tensor, Any], both: Mapping[Tensor, Any], ours: set[Tensor]
) -> None:
    for t, value in both.items():
        (forward if t in ours else backward)[t] = value


def _check_tensors(graph: Graph, plan: _Plan) -> None:
    """Handles are for tensors that callers see."""
    inputs, outputs = graph.inputs, graph.outputs
    for name, tensors, known in (
        ("load_handles", plan.loads, inputs),
        ("store_streams", plan.streams, (*inputs, *outputs)),
        ("store_buffers", [*plan.buffers, *plan.groups], (*inputs, *outputs)),
        ("seed_input", [] if plan.seed is None else [plan.seed], inputs),
    ):
        _check_members(plan.where, name, tensors, known)
    if plan.seed is not None and plan.seed in plan.loads:
        raise GraphError(
            f"{plan.where}: the seed is loaded as well, got a load handle for {shown(plan.seed.id)}, "
            "expected a seed or its handle, not both"
        )


def _check_members(where: str, name: str, tensors: Iterable[Tensor], known: tuple[Tensor, ...]) -> None:
    for t in tensors:
        if read_a(f"{where}: an item of {name}", t, Tensor) not in known:
            raise GraphError(
                f"{where}: {name} has a tensor that callers of the graph do not see, got {shown(t)}, expected one of "
                f"{list(known)}"
            )


def _input(t: Tensor) -> Tensor:
    return graph_input(t.shape, t.dtype, t.name, t.ir._core.tensor(t._id).by_ref, t.meta_shape)


def _step_graph(graph: Graph, kept: Iterable[Tensor], plan: _Plan) -> Graph:
    """One step: takes the step, the row, and what is the same in each step; returns the next step."""
    with graph.ir.create_empty_graph(suffix_graph_name(graph.name, "step")) as body, in_sequence(True):
        step, row = (graph_input((), dtypes.int32, name) for name in ("step", "row"))
        place = StepPlace(row, step, plan.steps, plan.use_io_tiles)
        values = {t: _input(t) for t in kept}
        if plan.seed is not None:
            values[plan.seed] = ops.create_random_seed(values[plan.seed], step)
        for t in graph.inputs:
            if t in plan.loads:
                values[t] = load(t, plan.loads[t], place)
        outputs = ops.call(graph, inputs_dict={t: values[t] for t in graph.inputs})
        values = {**dict(zip(graph.outputs, outputs, strict=True)), **values}
        for t, stream in plan.streams.items():
            store(values[t], stream, place)
        for t, handle in plan.buffers.items():
            store(values[t], handle, place)
        graph_output(step + 1)
    return body


def _serialise(graph: GraphWithNamedArgs, plan: _Plan) -> BatchSerialResult:
    """Nothing here is refused."""
    _add_buffers(plan)
    for handle in (*plan.loads.values(), *plan.buffers.values()):
        if isinstance(handle, RemoteHandle):
            grow(handle, plan.steps, plan.rows)
    inner = graph.graph
    kept = [t for t in inner.inputs if t not in plan.loads and t is not plan.seed]
    if plan.seed is not None:
        kept.insert(0, plan.seed)
    body = _step_graph(inner, kept, plan)
    with inner.ir.create_empty_graph(suffix_graph_name(inner.name, "batch_serial")) as outer:
        row = graph_input((), dtypes.int32, "row_offset")
        remapped = {t: _input(t) for t in kept}
        with in_sequence(True):
            ops.repeat(body, plan.steps, 0, row, *remapped.values())
    args = {key: remapped[t] for key, t in graph.args.to_dict().items() if t in remapped}
    named = GraphWithNamedArgs(outer, NamedTensors.from_dict(args))
    return BatchSerialResult(named, plan.buffers, remapped)
