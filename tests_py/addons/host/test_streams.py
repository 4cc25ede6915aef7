"""popsr.addons: streams with names, streams beside their ops, and seeds that stay on the device."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.addons.ops.streams import host_load, host_store
from popsr.addons.seed_variable import seed_variable
from popsr.addons.streams import InputStreams, OutputStreams
from tests_py.support.helpers import assert_refused, assert_same_bits
from tests_py.support.unchecked import unchecked

Argument, Attr, DType = errors.ArgumentTypeError, errors.AttributeValueError, errors.DTypeError
F32, I32 = popsr.float32, popsr.int32


# Streams with names


@pytest.mark.parametrize(
    ("kind", "cls"),
    [(InputStreams, popsr.HostToDeviceStream), (OutputStreams, popsr.DeviceToHostStream)],
)
def test_streams_are_found_by_name_and_position(kind: Any, cls: type[Any]) -> None:
    with popsr.Ir().main_graph:
        streams = kind(x=((2, 4), F32), labels=([2], I32), scale=((), popsr.float16))
        made = list(streams)
    assert [type(each) for each in made] == [cls] * 3
    assert [each.tensor_id for each in made] == ["x", "labels", "scale"]
    assert [(each.shape, each.dtype) for each in made] == [((2, 4), F32), ((2,), I32), ((), popsr.float16)]
    assert [streams.x, streams.labels, streams.scale] == made
    assert [streams["x"], streams["labels"], streams["scale"]] == made
    assert [streams[i] for i in range(-3, 3)] == made * 2
    assert (streams[1:], streams[::-1], streams[5:]) == (made[1:], made[::-1], [])
    assert streams.keys() == ["x", "labels", "scale"]
    assert len(streams) == 3
    assert "x" in streams
    assert made[0] in streams
    assert "y" not in streams
    assert 0 not in streams
    assert not hasattr(streams, "y")
    assert repr(streams).startswith(
        f"{kind.__name__}({{\nx: {cls.__name__}[x popsr.dtypes.float32 (2, 4)],\nlabels: "
    )


def test_streams_that_exist_are_named_by_their_ids() -> None:
    with popsr.Ir().main_graph:
        with popsr.name_scope("layer"):
            x = popsr.h2d_stream((2,), F32, "x")
        y = popsr.h2d_stream((2,), F32, "y")
        streams = InputStreams.from_streams(iter([x, y]))
        assert list(InputStreams()) == list(InputStreams.from_streams([])) == []
    assert (streams["layer/x"], streams.y) == (x, y)
    assert streams.keys() == ["layer/x", "y"]
    assert list(InputStreams.from_streams(streams)) == [x, y]


def test_names_are_scoped_and_unique_as_those_of_other_streams() -> None:
    with popsr.Ir().main_graph, popsr.name_scope("layer"):
        streams, again = InputStreams(x=((2,), F32)), InputStreams(x=((2,), F32))
        other = popsr.h2d_stream((2,), F32, "x")
    assert streams.x.tensor_id == "layer/x"
    assert len({streams.x.tensor_id, again.x.tensor_id, other.tensor_id}) == 3


def test_a_program_runs_with_named_streams() -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        inputs, outputs = InputStreams(a=((2,), F32), b=((2,), F32)), OutputStreams(total=((2,), F32))
        ops.host_store(outputs.total, ops.host_load(inputs.a) + ops.host_load(inputs.b))
    data = [np.array([1, 2], np.float32), np.array([10, 20], np.float32)]
    with popsr.Session(ir) as session:
        result = session.run(dict(zip(inputs, data, strict=True)))
    assert_same_bits(result[outputs.total], np.array([11, 22], np.float32))


@pytest.mark.parametrize(
    ("access", "error"),
    [(lambda s: s.y, AttributeError), (lambda s: s["y"], KeyError)],
    ids=["attribute", "key"],
)
def test_missing_names_are_listed(access: Callable[[Any], Any], error: type[Exception]) -> None:
    with popsr.Ir().main_graph:
        streams = InputStreams(x=((2,), F32), labels=((2,), I32))
    wanted = r"^InputStreams: no such stream, got 'y', expected one of \['x', 'labels'\]$"
    with pytest.raises(error, match=wanted):
        access(streams)


def test_shallow_copies_work() -> None:
    with popsr.Ir().main_graph:
        streams = InputStreams(x=((2,), F32))
    assert list(copy.copy(streams)) == [streams.x]


# Streams beside their ops


@pytest.mark.parametrize(
    ("data", "dtype", "wanted"),
    [
        (np.arange(6.0).reshape(2, 3), F32, np.arange(6, dtype=np.float32).reshape(2, 3)),
        ([1, 2, 3], popsr.float16, np.array([1, 2, 3], np.float16)),
        (7, popsr.uint32, np.array(7, np.uint32)),
    ],
)
def test_data_is_loaded_and_stored(data: Any, dtype: Any, wanted: Any) -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        array, h2d, tensor = host_load(data, dtype, "x")
        d2h = host_store(ops.rename(tensor, "y"))
    assert_same_bits(array, wanted)
    assert (h2d.tensor_id, h2d.shape, h2d.dtype) == ("x_stream", wanted.shape, dtype)
    assert (d2h.tensor_id, d2h.shape, d2h.dtype) == ("y_stream", wanted.shape, dtype)
    assert (tensor.name, tensor.shape, tensor.dtype) == ("x", wanted.shape, dtype)
    with popsr.Session(ir) as session:
        assert_same_bits(session.run({h2d: array})[d2h], wanted)


# Seeds


@pytest.mark.parametrize(("group_size", "groups"), [(None, 4), (1, 4), (2, 2), (4, 1)])
def test_every_group_has_its_seed(group_size: int | None, groups: int) -> None:
    ir = popsr.Ir(replication=4)
    grouping = None if group_size is None else ir.replica_grouping(group_size=group_size)
    with ir.main_graph, popsr.in_sequence():
        variable, tensor = seed_variable(5, grouping)
        out = host_store(tensor)
    wanted = popsr.create_seeds(5, replicas=groups)
    assert (tensor.shape, tensor.dtype) == ((2,), popsr.uint32)
    with popsr.Session(ir, check=True) as session:
        assert_same_bits(session.get_tensor_data(variable), wanted)
        assert_same_bits(session.run()[out], np.repeat(wanted.reshape(groups, 2), 4 // groups, 0))


def test_seeds_made_by_ops_are_read_by_the_host_and_start_the_next_run() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        variable, tensor = seed_variable(3)
        this, following = ops.split_random_seed(tensor)
        ops.var_updates.copy_var_update_(tensor, following)
        out, kept = host_store(ops.random_uniform(this, (4,))), host_store(tensor)
    seeds = popsr.create_seeds(3, replicas=2)
    with popsr.Session(ir) as session:
        first = session.run()
        assert_same_bits(session.get_tensor_data(variable), first[kept])
        second = session.run()
    draws = [*first[out], *second[out]]
    assert len({draw.tobytes() for draw in draws}) == 4, "other numbers on each replica and in each run"
    assert_same_bits(session.get_tensor_data(variable), second[kept])
    session.write_variable_data(variable, seeds)
    with session:
        assert_same_bits(session.run()[out], first[out])


# Refused


def _streams() -> InputStreams:
    return InputStreams(x=((2,), F32))


REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (
        lambda: InputStreams(x=unchecked(F32)),
        Argument,
        "^InputStreams: x: not a shape and a dtype, got .*, expected a tuple",
    ),
    (
        lambda: InputStreams(x=unchecked(((2,), F32, 1))),
        Argument,
        "^InputStreams: x: not a shape and a dtype",
    ),
    (
        lambda: OutputStreams(x=unchecked((2, F32))),
        Argument,
        "^OutputStreams: x: shape is not a sequence of ints, got 2",
    ),
    (
        lambda: OutputStreams(x=((-2,), F32)),
        errors.ShapeError,
        r"^OutputStreams: x: negative extent, got \(-2,\)",
    ),
    (lambda: OutputStreams(x=unchecked(((2,), "f"))), DType, "^OutputStreams: x: "),
    (
        lambda: InputStreams.from_streams([unchecked(1)]),
        Argument,
        "^InputStreams.from_streams: not a HostToDeviceStream, got 1",
    ),
    (
        lambda: OutputStreams.from_streams(unchecked(_streams())),
        Argument,
        "^OutputStreams.from_streams: not a DeviceToHostStream, got HostToDeviceStream",
    ),
    (lambda: InputStreams.from_streams([*_streams()] * 2), Attr, "two streams of one name, got 'x' twice"),
    (
        lambda: _streams()[1],
        errors.OutOfRangeError,
        "no such position, got 1, expected -1 <= position < 1",
    ),
    (
        lambda: unchecked(_streams())[None],
        errors.OutOfRangeError,
        "^InputStreams: no such position, got None",
    ),
    (lambda: _streams()["y"], errors.UnknownNameError, "^InputStreams: no such stream, got 'y'"),
    (lambda: host_load([1.0], F32, unchecked(3)), Argument, "^host_load: name is not a str, got 3"),
    (lambda: host_load([1.0], unchecked("f"), "x"), DType, "^host_load: "),
    (lambda: host_load(["a"], F32, "x"), TypeError, "got"),
    (lambda: host_store(unchecked(1)), Argument, "^host_store: t is not a Tensor, got 1"),
    (
        lambda: seed_variable(1),
        errors.GraphError,
        "^variable: made in graph '.*', expected the main graph",
    ),
    (lambda: seed_variable(unchecked("1")), Argument, "^create_seeds: seed is not an int, got '1'"),
    (lambda: seed_variable(-1), Attr, r"^create_seeds: seed \+ offset is out of range, got -1"),
]


@pytest.mark.parametrize(("call", "error", "match"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_refused(call: Callable[[], Any], error: type[Exception], match: str) -> None:
    assert_refused(call, error, match)


@pytest.mark.parametrize(
    ("grouping", "error", "match"),
    [
        (
            "all",
            Argument,
            r"^variable: replica_grouping is not a ReplicaGrouping, got 'all'\nin variable\(\) at .*\.py:\d+$",
        ),
        (
            popsr.Ir(4).replica_grouping(),
            errors.ReplicaError,
            "^variable: grouping of another replica count, got 4",
        ),
    ],
)
def test_groups_of_seeds_are_those_of_the_program(grouping: Any, error: type[Exception], match: str) -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, pytest.raises(error, match=match):
        seed_variable(1, grouping)
    assert ir.main_graph.tensors == ()


def test_no_stream_is_made_when_one_is_refused() -> None:
    with popsr.Ir().main_graph:
        with pytest.raises(errors.Error):
            InputStreams(x=((2,), F32), y=((-2,), F32))
        assert popsr.h2d_stream((2,), F32, "x").tensor_id == "x"
