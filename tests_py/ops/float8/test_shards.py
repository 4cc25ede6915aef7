"""Variables of float8 in parts on the members of a group, and gathers of them: bits are only moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, ops
from popsr.addons.remote import load_remote, named_variable_buffers
from popsr.addons.rts import gather_replica_sharded_tensor
from popsr.ops import collectives
from tests_py.support.helpers import FLOAT8, Array, codes, dtype
from tests_py.support.oracles.float8 import nearest
from tests_py.support.unchecked import unchecked

CODES = np.arange(256, dtype=np.uint8)


def data(name: str, shape: tuple[int, ...], first: int = 0) -> Array:
    """All codes, NaN and the greatest numbers among them."""
    rolled = np.resize(np.roll(CODES, -first), shape)
    return rolled.view(dtype(name).as_numpy()).reshape(shape)


def sharded(value: Array) -> tuple[popsr.Variable, popsr.Tensor]:
    return popsr.replica_sharded_variable(value, unchecked(value.dtype), "v")


def remote(value: Array) -> tuple[popsr.Variable, popsr.Tensor]:
    buffer = popsr.replica_sharded_buffer(value.shape, popsr.dtypes.dtype.as_dtype(value.dtype))
    variable = popsr.remote_replica_sharded_variable(value, buffer)
    return variable, ops.remote_load(buffer, 0)


def factory(value: Array) -> tuple[popsr.Variable, popsr.Tensor]:
    facts = addons.NamedVariableFactories(w=addons.VariableFactory(lambda: value, shard_over=4))
    buffers = named_variable_buffers(facts, shard_over_dict=False)
    variables = facts.init_remote(buffers)
    assert buffers.w.tensor_shape == facts.w.shape
    return variables.w, load_remote(buffers).w


@pytest.mark.parametrize("make", [sharded, remote, factory], ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", FLOAT8)
def test_shards_are_gathered_bit_for_bit(name: str, make: Callable[..., Any]) -> None:
    value, later = data(name, (4, 72)), data(name, (4, 72), 100)
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        variable, shard = make(value)
        assert (shard.shape, shard.meta_shape, shard.dtype) == ((72,), (4, 72), dtype(name))
        whole = gather_replica_sharded_tensor(shard)
        again = collectives.replica_sharded_slice(whole)
        outs = [popsr.d2h_stream(t.shape, t.dtype) for t in (shard, whole, again)]
        for out, t in zip(outs, (shard, whole, again), strict=True):
            ops.host_store(out, t)
    with popsr.Session(ir, "ipu_hw") as session:
        for expect in (value, later):
            parts, wholes, slices = (codes(session.run()[out]) for out in outs)
            assert np.array_equal(parts.reshape(4, 72), codes(expect))
            assert np.array_equal(slices, parts)
            assert all(np.array_equal(each, codes(expect)) for each in wholes)
            assert np.array_equal(codes(session.get_tensor_data(variable)), codes(expect))
            session.write_variable_data(variable, later)


@pytest.mark.parametrize("name", FLOAT8)
def test_floats_are_encoded_before_they_are_sharded(name: str) -> None:
    ir = popsr.Ir(replication=2)
    numbers = np.array([0.5, -1.0, 3.0, 1e9, np.nan, 0.0], np.float32)
    with ir.main_graph, popsr.in_sequence():
        whole = popsr.variable(numbers, dtype(name), "whole")
        variable, shard = popsr.replica_sharded_variable(numbers, dtype(name), "parts")
        ops.relu(popsr.constant(1.0))
        gathered = gather_replica_sharded_tensor(shard)
        out = popsr.d2h_stream(gathered.shape, gathered.dtype)
        ops.host_store(out, gathered)
    with popsr.Session(ir, "ipu_hw") as session:
        expect = codes(session.get_tensor_data(whole))
        assert np.array_equal(codes(session.run()[out])[1], expect)
        assert np.array_equal(codes(session.get_tensor_data(variable)), expect)


@pytest.mark.parametrize("name", FLOAT8)
def test_gathers_and_indices_move_codes(name: str) -> None:
    value = data(name, (16, 16))
    rows = np.array([[3, 0], [15, 3]], np.int32)
    calls: list[tuple[Callable[[Any], Any], Array]] = [
        (lambda t: ops.gather(t, popsr.constant(rows)), codes(value)[rows]),
        (lambda t: ops.tied_gather(t, popsr.constant(rows)), codes(value)[rows]),
        (lambda t: ops.gather(t, popsr.constant(rows), axis=1), np.take(codes(value), rows, 1)),
        (
            lambda t: ops.gather(t, popsr.constant(np.array([1, 99])), zero_OOR=True),
            codes(value)[[1, 0]] * [[1], [0]],
        ),
        (lambda t: t[5:1:-2, ::3], codes(value)[5:1:-2, ::3]),
        (lambda t: t[([True, False] * 8, 3)], codes(value)[::2, 3]),
        (lambda t: t[[[True], [False]] * 8], codes(value) * np.array([[1], [0]] * 8)),
        (
            lambda t: collectives.replicated_all_gather(t, output_shape="new_axis"),
            codes(value)[None].repeat(2, 0),
        ),
    ]
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        variable = popsr.variable(value)
        results = [call(variable) for call, _ in calls]
        outs = [popsr.d2h_stream(t.shape, t.dtype) for t in results]
        for out, t in zip(outs, results, strict=True):
            ops.host_store(out, t)
    with popsr.Session(ir, "ipu_hw") as session:
        got = session.run()
    for i, (out, (_, expect)) in enumerate(zip(outs, calls, strict=True)):
        assert np.array_equal(codes(got[out])[1], expect), i


def _remote_entry(value: Any, **options: Any) -> tuple[popsr.Variable, popsr.Tensor]:
    """The second entry of a buffer, by an offset that a tensor holds."""
    kind = options.get("dtype") or popsr.dtypes.dtype.as_dtype(value.dtype)
    buffer = popsr.replica_sharded_buffer(
        value.shape, kind, shard_over=options.pop("shard_over", None), entries=2
    )
    variable = popsr.remote_replica_sharded_variable(value, buffer, 1, **options)
    return variable, ops.remote_load(buffer, popsr.constant(1, popsr.uint32))


MAKERS: dict[str, Callable[..., Any]] = {
    "sharded": popsr.replica_sharded_variable,
    "remote": _remote_entry,
}


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("shard_over", [2, 4])
def test_few_elements_are_gathered(make: str, shard_over: int) -> None:
    """Fewer than shards, or as many as do not divide: padding is gathered where the parts are asked for."""
    ir = popsr.Ir(replication=4)
    group = ir.replica_grouping(group_size=shard_over)
    outs, expected = [], []
    with ir.main_graph, popsr.in_sequence():
        for name in FLOAT8:
            for shape in ((1,), (3,), (3, 5)):
                value = data(name, shape, 113)
                _, shard = MAKERS[make](value, shard_over=shard_over)
                parts = np.zeros((shard_over, -(-value.size // shard_over)), np.uint8)
                parts.reshape(-1)[: value.size] = codes(value).reshape(-1)
                assert shard.shape == parts.shape[1:]
                shapes: dict[Any, Array] = {
                    "auto": codes(value),
                    "meta_shape": codes(value),
                    "concat": parts.reshape(-1),
                    "new_axis": parts,
                }
                for output_shape, expect in shapes.items():
                    t = collectives.replicated_all_gather(shard, group=group, output_shape=output_shape)
                    assert (t.shape, t.dtype) == (expect.shape, dtype(name))
                    outs.append(popsr.d2h_stream(t.shape, t.dtype))
                    expected.append(expect)
                    ops.host_store(outs[-1], t)
    with popsr.Session(ir, "ipu_hw") as session:
        got = session.run()
    for out, expect in zip(outs, expected, strict=True):
        assert all(np.array_equal(each, expect) for each in codes(got[out])), out.tensor_id


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("log2_scale", [None, -3, 2])
@pytest.mark.parametrize("nan_on_overflow", [None, False])
def test_scaled_floats_are_gathered(make: str, log2_scale: int | None, nan_on_overflow: bool | None) -> None:
    numbers = np.array([0.5, -3.0, 1e9, 7.0, np.nan, -2.2, 0.0], np.float32)
    ir = popsr.Ir(replication=2)
    outs = {}
    with ir.main_graph, popsr.in_sequence():
        for name in FLOAT8:
            options = {"dtype": dtype(name), "log2_scale": log2_scale, "nan_on_overflow": nan_on_overflow}
            whole = gather_replica_sharded_tensor(MAKERS[make](numbers, **options)[1])
            outs[name] = popsr.d2h_stream(whole.shape, whole.dtype)
            ops.host_store(outs[name], whole)
    with popsr.Session(ir, "ipu_hw") as session:
        got = session.run()
    for name, out in outs.items():
        scaled = np.ldexp(numbers.astype(np.float64), log2_scale or 0)
        expect = nearest(scaled, name, nan_on_overflow=nan_on_overflow is None)
        assert all(np.array_equal(each, expect) for each in codes(got[out])), name
