"""Integers of NumPy wherever ints go: the program, or the answer, is the same as with the int."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, errors, ops
from popsr.addons.layers import Embedding, GroupNorm, Linear
from popsr.addons.transforms.batch_serialisation import RemoteHandle, batch_serialise
from popsr.addons.transforms.serial_io import grow
from tests_py.ops.rows.inputs import Case, call_arguments, written_inputs
from tests_py.ops.rows.table import OPS
from tests_py.support.helpers import PUBLIC, make_variable, python_op
from tests_py.support.unchecked import unchecked

KINDS: tuple[Any, ...] = (np.int64, np.int32, np.uint8, np.int8)
F32 = popsr.float32


def converted(value: Any, kind: Any) -> Any:
    """``value`` with its ints of that kind, where they have one; a list of ints also as array."""
    if type(value) is int:
        limits = np.iinfo(kind)
        return kind(value) if limits.min <= value <= limits.max else value
    if isinstance(value, (list, tuple)):
        items = [converted(item, kind) for item in value]
        if items and all(type(item) is kind for item in items) and kind is np.int64:
            return np.array(value)
        return type(value)(items)
    return value


def text(op: str, case: Case, kind: Any = None) -> str:
    """The program of one call."""
    ir = popsr.Ir(replication=4 if case.group else 1)
    rng = np.random.default_rng(0)
    attrs = call_arguments(case)
    if kind is not None:
        attrs = {name: converted(value, kind) for name, value in attrs.items()}
    name = case.dtypes[0]
    arrays = case.draw(rng, name)
    arrays = [array[0] for array in arrays] if case.group else list(arrays)
    written = written_inputs(op, case)
    with ir.main_graph, popsr.in_sequence():
        if case.group:
            attrs["group"] = ir.replica_grouping(
                *(case.group if kind is None else converted(case.group, kind))
            )
        tensors = [
            make_variable(array)
            if i in written
            else popsr.constant(array, popsr.dtypes.dtype.as_dtype(array.dtype))
            for i, array in enumerate(arrays)
        ]
        fn = python_op(op)
        case.call(fn, *tensors, **attrs) if case.call else fn(*tensors, **attrs)
    return str(ir)


def has_ints(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(has_ints(item) for item in value)
    return type(value) is int


def cases() -> Iterator[Any]:
    """The first case of each op for each set of attributes that holds ints."""
    for op in PUBLIC:
        seen = set()
        for case in OPS[op].cases if op in OPS else ():
            names = frozenset(name for name, value in case.attrs.items() if has_ints(value))
            if (names or case.group) and names not in seen:
                seen.add(names)
                yield pytest.param(op, case, id=f"{op}-{case.label}")


@pytest.mark.parametrize(("op", "case"), list(cases()))
def test_ops_take_them(op: str, case: Case) -> None:
    expect = text(op, case)
    for kind in KINDS:
        assert text(op, case, kind) == expect, kind.__name__


# Everything else


def x(*shape: int) -> popsr.Tensor:
    return popsr.constant(np.zeros(shape, np.float32), name="x")


def new_ir(i: Any) -> popsr.Ir:
    ir = popsr.Ir(replication=i(4))
    ir.num_host_transfers = i(2)
    ir.replication_factor = i(4)
    return ir


def groupings(i: Any) -> list[Any]:
    ir = new_ir(i)
    given = [ir.replica_grouping(i(2)), ir.replica_grouping(stride=i(1), group_size=i(2))]
    return [*given, ir.replica_grouping_from_assignments([i(0), i(1), i(1), i(0)])]


def control(i: Any) -> str:
    ir = popsr.Ir()
    with ir.main_graph, popsr.ipu(i(1)):
        t = x(2)
        graph = ir.create_graph(lambda a: ops.relu(a), t)
        ops.repeat(graph, i(3), t)
        info = ops.call_with_info(graph, t)
        assert info.parent_input(i(0)) is t
        popsr.ops.ipu_copy(t, i(2), i(1))
    return str(ir)


def remote(i: Any) -> str:
    ir = popsr.Ir(replication=i(4))
    with ir.main_graph, popsr.in_sequence():
        buffer = popsr.remote_buffer((i(2), i(3)), F32, i(3))
        buffer.entries = i(4)
        popsr.remote_variable(np.zeros((2, 3), np.float32), buffer, i(1))
        ops.remote_store(buffer, i(2), ops.remote_load(buffer, i(1)))
        ops.remote_load_(buffer, i(2), ops.init([i(2), i(3)], F32))
        shards = popsr.replica_sharded_buffer([i(2), i(3)], F32, shard_over=i(2), entries=i(2))
        popsr.remote_replica_sharded_variable(np.zeros((2, 3), np.float32), shards, i(1))
        popsr.replica_sharded_variable(np.zeros(4, np.float32), shard_over=i(2))
    return str(ir)


def tensors(i: Any) -> str:
    ir = popsr.Ir()
    with ir.main_graph:
        t = x(4, 3)
        shape, axes = np.array([i(3), i(4)]), np.array([i(1), i(0)])
        t.reshape(shape), t.reshape((i(12),)), t.transpose(axes), t.reshape_([i(2), i(6)]), t.transpose_(axes)
        t[i(1)], t[i(0) : i(2) : i(1)], t[i(2), :: i(2)], t[[i(0), i(1)]]
        ops.split(t, i(2)), ops.split(t, [i(1), i(3)]), ops.split(t, unchecked(np.array([1, 3])), i(0))
        ops.sum(t, i(0)), ops.sum(t, [i(0), i(1)]), ops.sum(t, np.array([0, 1])), ops.concat([t, t], i(1))
        ops.init(shape, F32), ops.slice(t, i(0), i(3), i(2), i(0)), ops.subsample(t, i(2))
        (
            ops.slice(t, unchecked(np.array([0, 1])), unchecked(np.array([3, 2]))),
            ops.squeeze(t.reshape((1, 12)), unchecked(np.array([0]))),
        )
        ops.dynamic_slice(
            t, popsr.constant(np.int32(0)), unchecked(np.array([0])), unchecked(np.array([i(2)])), True
        )
        ops.print_tensor(t, digits=i(3), summarise_threshold=i(10), edge_items=i(2), max_line_width=i(40))
        t + i(2), t * i(3), i(4) - t, t ** i(2)
        popsr.h2d_stream(shape, F32), popsr.d2h_stream([i(2)], F32), popsr.TensorSpec(shape, F32)
        seed = popsr.constant(np.zeros(2, np.uint32))
        ops.random_uniform(seed, unchecked(shape)), ops.random_normal(seed, unchecked([i(2)]))
        assert len(ops.split_random_seed(seed, i(3))) == 3
        kernel, signal = x(2, 3, 2), x(1, 3, 5)
        ops.conv(signal, kernel, (i(1), i(1)), unchecked(np.array([0, 0, 0, 0])), unchecked([i(1), i(1)]))
        ops.shaped_dropout(t, seed, np.array([4, 1]), 0.5)
    return str(ir)


def graphs(i: Any) -> str:
    ir = popsr.Ir()

    def body() -> None:
        popsr.graph_input([i(2), i(2)], F32, meta_shape=(i(4), i(2)))

    ir.create_graph(body)
    return str(ir)


def layers(i: Any) -> str:
    ir = popsr.Ir(replication=4)
    with ir.main_graph:
        Linear(i(3)).create_graph(x(2, 3))
        Embedding(F32, i(20), i(4)).create_graph(popsr.constant(np.zeros(3, np.int32)))
        tree = addons.NamedTensors.from_dict({i(0): x(2)})
        tree.insert(i(1), x(2))
        assert tree[i(1)] is tree["1"]
        streams = addons.InputStreams(a=((2,), F32), b=((2,), F32))
        assert streams[i(1)] is streams.b
        grow(RemoteHandle(popsr.remote_buffer((2,), F32), i(3)), i(2), i(2))
        factory = addons.VariableFactory(lambda: np.zeros(4, np.float32), shard_over=i(2))
        with ir.create_empty_graph():
            factory.create_input()
        batch_serialise(GroupNorm(i(2)).create_graph(x(2, 4, 3))[1], i(2), {}, {}, {}, rows=i(2))
    return str(ir)


def options(i: Any) -> Any:
    ir = popsr.Ir(replication=2)
    ir.options.seed = i(5)
    with ir.main_graph:
        ops.relu(x(2))
    session = popsr.Session(ir, seed=i(3), num_threads=i(1))
    session.step = i(4)
    return session.step, ir.options.seed, type(ir.options.seed)


def seeds(i: Any) -> Any:
    return popsr.create_seeds(i(3), i(1), i(2), i(3), i(2)).tolist()


@pytest.mark.parametrize(
    "use", [groupings, control, remote, tensors, graphs, layers, options, seeds], ids=lambda use: use.__name__
)
def test_everything_else_takes_them(use: Callable[[Any], Any]) -> None:
    expect = repr(use(int))
    for kind in KINDS:
        assert repr(use(kind)) == expect, kind.__name__


def test_bools_and_floats_of_numpy_are_not_integers() -> None:
    with popsr.Ir().main_graph:
        t = x(4, 3)
        for wrong in (np.True_, np.float32(1), np.float64(1.0), np.array(1.0)):
            for call in (
                lambda w: ops.sum(t, w),
                lambda w: ops.split(t, w),
                lambda w: popsr.Ir(replication=w),
                lambda w: ops.concat([t, t], w),
                lambda w: popsr.remote_buffer((2,), F32, w),
            ):
                with pytest.raises(errors.Error):
                    call(wrong)
