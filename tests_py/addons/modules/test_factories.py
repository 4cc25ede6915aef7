"""Factories of variables: what they read and when, and the inputs and variables that they make."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors
from popsr._program.context import get_current_context
from popsr.addons.remote import NamedRemoteBuffers, named_variable_buffers
from popsr.addons.variable_factory import (
    NamedVariableFactories,
    VariableFactory,
    add_replica_sharded_variable_input,
    add_variable_input,
)
from tests_py.support.helpers import Array, assert_same_bits

F32 = popsr.float32
Make: Any = VariableFactory  # also of what the types forbid
ONE: Any = [1.0]
Value, Kind, Replica = errors.AttributeValueError, errors.ArgumentTypeError, errors.ReplicaError


@pytest.fixture
def ir() -> Iterator[popsr.Ir]:
    """Of 4 replicas, with its main graph entered."""
    program = popsr.Ir(4)
    with program.main_graph:
        yield program


def values_of(ir: popsr.Ir, *tensors: Any) -> list[Array]:
    """Initial values as the host sees them; the program is complete then."""
    if not ir.main_graph.ops:  # sessions run something
        popsr.ops.relu(popsr.constant(0.0))
    data = popsr.Session(ir).get_tensors_data(tensors)
    return [data[t] for t in tensors]


class Counted:
    """A function that returns arrays of 0, 1, 2 … and counts its calls."""

    def __init__(self, shape: tuple[int, ...] = (2,)) -> None:
        self.calls, self.shape = 0, shape

    def __call__(self) -> Array:
        self.calls += 1
        return np.full(self.shape, self.calls - 1, np.float32)


# Numbers of each draw


def test_functions_are_called_twice_by_the_time_that_they_are_looked_at(ir: popsr.Ir) -> None:
    draw = Counted()
    factory = VariableFactory(draw, name="w")
    assert draw.calls == 2
    variables = [factory.create_tensor(name) for name in "abc"]
    assert draw.calls == 4
    # The first call is thrown away, the second is the first value.
    assert [v[0] for v in values_of(ir, *variables)] == [1, 2, 3]


def test_weights_of_a_seed_take_two_draws_each(ir: popsr.Ir) -> None:
    rng, twin = np.random.default_rng(3), np.random.default_rng(3)
    draw = partial(rng.normal, size=(2, 3))
    a, b = Make(draw, F32, "a"), Make(draw, F32, "b")
    made, again = NamedVariableFactories(b=b, a=a).init(), NamedVariableFactories(a=a).init("p")
    draws = [twin.normal(size=(2, 3)).astype(np.float32) for _ in range(5)]
    for value, draw_of_it in zip(values_of(ir, made.a, made.b, again.a), (1, 3, 4), strict=True):
        assert_same_bits(value, draws[draw_of_it])


def test_iterables_run_out(ir: popsr.Ir) -> None:
    for items in (
        [np.zeros(2), np.ones(2)],
        iter([np.zeros(2), np.ones(2)]),
        iter(np.array([[0.0, 0], [1, 1]])),
    ):
        factory = VariableFactory(items, F32)
        assert factory.shape == (2,)
        found = [np.asarray(factory.next_data())[0] for _ in range(2)]
        assert found == [0, 1]
        with pytest.raises(StopIteration):
            factory.next_data()


def test_nothing_is_made_when_a_factory_has_run_out(ir: popsr.Ir) -> None:
    factories = NamedVariableFactories(
        a=VariableFactory(Counted(), F32), b=VariableFactory(iter([np.zeros(2)]), F32)
    )
    factories.init()
    before = len(ir.main_graph.variables)
    with pytest.raises(
        StopIteration, match=r"VariableFactory 'again\.b': data_iter has no more items, expected 1"
    ):
        factories.init("again")
    assert len(ir.main_graph.variables) == before
    assert factories.init("empty", empty=True).b.shape == (2,)


def test_items_are_let_go_when_their_variable_is_made(ir: popsr.Ir) -> None:
    """They are as large as the weights, or larger: float64 for a bfloat16."""
    made = []

    def item() -> Any:
        array = np.zeros(4)
        made.append(weakref.ref(array))
        return array

    factory = VariableFactory(item, popsr.bfloat16)
    for number in range(40):
        factory.create_tensor(f"w{number}")
    assert sum(each() is not None for each in made) <= 1  # the last one may be in use


def test_groups_take_an_item_each_in_order(ir: popsr.Ir) -> None:
    pairs = ir.replica_grouping(group_size=2)
    shards = [np.full((2, 3), i, np.float32) for i in range(4)]
    factory = VariableFactory(iter(shards), replica_grouping=pairs)
    assert factory.shape == (2, 3)
    first, second = factory.create_tensor("a"), factory.create_tensor("b")
    assert first.shape == (2, 3)
    assert first.shape_on_host == (2, 2, 3)
    strided = VariableFactory(iter(shards), replica_grouping=ir.replica_grouping(stride=2, group_size=2))
    assert_same_bits(np.asarray(strided.next_data()), np.stack(shards[:2]))
    found = values_of(ir, first, second)
    assert_same_bits(found[0], np.stack(shards[:2]))
    assert_same_bits(found[1], np.stack(shards[2:]))


def test_items_that_run_out_within_groups(ir: popsr.Ir) -> None:
    factory = VariableFactory([np.zeros(2)] * 3, F32, replica_grouping=ir.replica_grouping(group_size=2))
    factory.next_data()
    with pytest.raises(StopIteration):
        factory.next_data()


# Types and shapes

TYPES: dict[str, tuple[Any, Any, Any, tuple[int, ...]]] = {
    "float32": (partial(np.zeros, (2, 3), np.float32), None, F32, (2, 3)),
    "float64 stays": (partial(np.zeros, 2), None, popsr.float64, (2,)),
    "int32": (partial(np.zeros, (), np.int32), None, popsr.int32, ()),
    "converted": (partial(np.zeros, 2), popsr.float16, popsr.float16, (2,)),
    "bfloat16": (partial(np.zeros, 2), popsr.bfloat16, popsr.bfloat16, (2,)),
    "NumPy's type": (partial(np.zeros, 2), np.float32, F32, (2,)),
    "numbers": ([1.5, 2.5], F32, F32, ()),
    "lists": ([[1.5, 2.5], [3.0, 4.0]], F32, F32, (2,)),
    "rows of an array": (iter(np.zeros((5, 2, 3), np.float32)), None, F32, (2, 3)),
}


@pytest.mark.parametrize("name", TYPES)
def test_types_and_shapes(name: str, ir: popsr.Ir) -> None:
    data, dtype, expected, shape = TYPES[name]
    factory = VariableFactory(data, dtype, "w")
    assert factory.dtype is expected
    assert factory.shape == shape
    assert factory.meta_shape is None
    made = factory.create_tensor()
    assert (made.name, made.dtype, made.shape) == ("w", expected, shape)
    zeros = factory.create_tensor("zeros", empty=True)
    assert (zeros.dtype, zeros.shape) == (expected, shape)
    with ir.create_empty_graph() as graph:
        assert factory.create_input().dtype is expected
    assert graph.inputs[0].shape == shape
    assert not values_of(ir, zeros)[0].any()


def test_inputs(ir: popsr.Ir) -> None:
    by_value, by_ref = VariableFactory(Counted(), name="w"), VariableFactory(Counted(), name="v", by_ref=True)
    target = by_ref.create_tensor()
    with ir.create_empty_graph() as graph:
        assert by_value.create_input().name == "w"
        assert by_value.create_input("outer.inner").name == "outer.inner.w"
        popsr.ops.add_(by_ref.create_input(), popsr.constant(5.0))
        unnamed = VariableFactory(Counted()).create_input("p")
        assert unnamed.name == "p"
    with popsr.in_sequence():
        popsr.ops.call(graph, np.zeros(2), np.zeros(2), target, np.zeros(2))
    with popsr.Session(ir) as session:
        session.run()
        assert session.get_tensor_data(target).tolist() == [6, 6]


SHARDS: dict[str, tuple[tuple[int, ...], int, tuple[int, ...], Any]] = {
    "none": ((4, 2), 1, (4, 2), None),
    "2": ((4, 2), 2, (4,), (4, 2)),
    "4": ((4, 2), 4, (2,), (4, 2)),
    "padded": ((3, 3), 4, (3,), (3, 3)),
}


@pytest.mark.parametrize("name", SHARDS)
def test_shards(name: str, ir: popsr.Ir) -> None:
    whole, over, shape, meta_shape = SHARDS[name]
    factory = VariableFactory(Counted(whole), name="w", shard_over=over)
    assert (factory.shape, factory.meta_shape) == (shape, meta_shape)
    assert factory.create_tensor().shape == whole
    with ir.create_empty_graph():
        shard = factory.create_input()
        assert (shard.shape, shard.meta_shape or None) == (shape, meta_shape)
        named = NamedVariableFactories(x=factory)
        for made in (named.init_zero().x, named.init_undef().x):
            assert (made.shape, made.meta_shape or None, made.dtype) == (shape, meta_shape, F32)


def test_inputs_and_factories_at_once(ir: popsr.Ir) -> None:
    pairs = ir.replica_grouping(group_size=2)
    with ir.create_empty_graph() as graph:
        whole, f = add_variable_input("a", Counted((4,)), popsr.float16, True, pairs)
        shard, g = add_replica_sharded_variable_input("b", Counted((4,)), replica_grouping=pairs)
        other, h = add_replica_sharded_variable_input("c", Counted((4,)), shard_over=2)
        every, _ = add_replica_sharded_variable_input("d", Counted((4,)))
    assert graph.inputs == (whole, shard, other, every)
    assert [t.name for t in graph.inputs] == ["a", "b", "c", "d"]
    assert [t.shape for t in graph.inputs] == [(4,), (2,), (2,), (1,)]
    assert (f.dtype, f.by_ref, f.replica_grouping) == (popsr.float16, True, pairs)
    assert (g.shard_over, h.shard_over, g.by_ref) == (2, 2, False)


def test_both_names_of_the_grouping(ir: popsr.Ir) -> None:
    pairs = ir.replica_grouping(group_size=2)
    a = VariableFactory(Counted(), replica_group=pairs)
    b = VariableFactory(Counted(), replica_grouping=pairs)
    assert a.replica_grouping == a.replica_group == b.replica_group == pairs
    assert VariableFactory(Counted()).replica_group == ir.replica_grouping()
    with ir.create_empty_graph():
        _, c = add_variable_input("a", Counted(), replica_group=pairs)
        _, d = add_replica_sharded_variable_input("b", Counted((4,)), replica_group=pairs)
    assert (c.replica_grouping, d.replica_grouping, d.shard_over) == (pairs, pairs, 2)


# Trees of factories


def make_tree(shape: tuple[int, ...] = (2,)) -> tuple[Counted, NamedVariableFactories]:
    """Factories that read one counter, in another order than their keys."""
    draw = Counted(shape)
    keys = ("b.x", "10", "a", "9")
    return draw, NamedVariableFactories.from_dict({key: VariableFactory(draw, name="leaf") for key in keys})


def test_init(ir: popsr.Ir) -> None:
    _, factories = make_tree()
    # While they were made each took two: 1, 3, 5 and 7 are first values.
    made = factories.init()
    assert made.keys_flat() == ["b.x", "10", "a", "9"]
    assert {key: t.name for key, t in made.to_dict().items()} == {key: key for key in made.keys_flat()}
    assert all(isinstance(t, popsr.Variable) for t in made.values_flat())
    again = factories.init("outer")
    assert again["b.x"].name == "outer.b.x"
    # In the order of sorted keys: "10", "9", "a", "b.x".
    names = ("10", "9", "a", "b.x")
    found = values_of(ir, *(made[k] for k in names), *(again[k] for k in names))
    assert [v[0] for v in found] == [3, 7, 5, 1, 8, 9, 10, 11]


def test_groupings_of_a_tree(ir: popsr.Ir) -> None:
    pairs = ir.replica_grouping(group_size=2)
    factories = NamedVariableFactories.from_dict(
        {"a": VariableFactory(Counted()), "b.c": VariableFactory(Counted(), replica_grouping=pairs)}
    )
    assert factories.replica_groupings.to_dict() == {"a": ir.replica_grouping(), "b.c": pairs}


def test_tensors_in_any_graph(ir: popsr.Ir) -> None:
    draw, factories = make_tree()
    calls = draw.calls
    with ir.create_empty_graph() as graph, popsr.in_sequence():
        zeros = factories.init_zero()
        assert zeros.keys_flat() == factories.keys_flat()
        assert not any(isinstance(t, popsr.Variable) for t in zeros.values_flat())
        popsr.graph_output(zeros["b.x"])
        assert factories.init_undef().keys_flat() == factories.keys_flat()
    assert draw.calls == calls
    out = popsr.d2h_stream((2,), F32)
    with popsr.in_sequence():
        popsr.ops.host_store(out, popsr.ops.call(graph)[0])
    with popsr.Session(ir) as session:
        assert not session.run()[out].any()


@pytest.mark.parametrize("over", [True, False, 2, {"b.x": 1}], ids=str)
def test_init_remote(over: Any, ir: popsr.Ir) -> None:
    _, factories = make_tree((4,))
    buffers = named_variable_buffers(factories, 2, over)
    first, second = factories.init_remote(buffers), factories.init_remote(buffers, 1, "second")
    assert first.keys_flat() == factories.keys_flat()
    assert second["b.x"].name == "second.b.x"
    single = factories.pop("a").create_remote_tensor(named_variable_buffers(factories).b.x, 0, empty=True)
    assert single.name == "leaf"
    names = ("10", "9", "a", "b.x")
    found = values_of(ir, *(first[k] for k in names), *(second[k] for k in names), single)
    assert [v[0] for v in found] == [3, 7, 5, 1, 8, 9, 10, 11, 0]


def test_missing_buffers_are_found_before_anything_is_made(ir: popsr.Ir) -> None:
    _, factories = make_tree((4,))
    buffers = NamedRemoteBuffers.from_dict(
        {k: b for k, b in named_variable_buffers(factories).to_dict().items() if k != "b.x"}
    )
    with pytest.raises(errors.UnknownNameError, match=r"init_remote: no buffer for 'b\.x'"):
        factories.init_remote(buffers)
    assert not ir.main_graph.variables


# Files


def test_files_hold_the_data(tmp_path: Path, ir: popsr.Ir) -> None:
    pairs = ir.replica_grouping(group_size=2)
    draw = Counted((3,))
    factories = NamedVariableFactories.from_dict(
        {"a.b": VariableFactory(draw, name="x"), "c": VariableFactory(draw, replica_grouping=pairs)}
    )
    made = factories.init("p", memmap_dir=str(tmp_path))
    files = {path.name: np.fromfile(path, np.float32) for path in tmp_path.iterdir()}
    assert {name: data.tolist() for name, data in files.items()} == {
        "p.a.b.npy": [1] * 3,
        "p.c.npy": [3] * 3 + [4] * 3,
    }
    assert made.c.shape_on_host == (2, 3)
    np.array([7, 8, 9], np.float32).tofile(tmp_path / "p.a.b.npy")
    calls = draw.calls
    opened = factories.init("p", memmap_dir=tmp_path, read_only_if_exists=True)
    assert draw.calls == calls
    found = values_of(ir, opened.a.b, opened.c)
    assert [a.tolist() for a in found] == [[7, 8, 9], [[3] * 3, [4] * 3]]
    assert not found[0].flags.writeable


def test_files_opened_for_writing_get_what_comes_back(tmp_path: Path, ir: popsr.Ir) -> None:
    factory = VariableFactory(Counted((3,)), name="x")
    variable = factory.create_tensor(memmap_dir=tmp_path, empty=True)
    with popsr.in_sequence():
        popsr.ops.add_(variable, popsr.constant(5.0))
    with popsr.Session(ir) as session:
        session.run()
    assert np.fromfile(tmp_path / "x.npy", np.float32).tolist() == [5, 5, 5]


BAD_FILES: dict[str, tuple[Callable[[Path, VariableFactory], Any], type[Exception], str]] = {
    "size": (
        lambda d, f: f.next_memmap(d, "short"),
        errors.FileError,
        r"file of another size, got 4 bytes.*expected 12",
    ),
    "no folder": (lambda d, f: f.next_memmap(d / "none", "x"), errors.FileError, "cannot open"),
    "no name": (
        lambda d, f: VariableFactory(Counted()).create_tensor(memmap_dir=d),
        Value,
        "file needs a name",
    ),
    "a folder": (lambda d, f: f.next_memmap(d, "folder"), errors.FileError, "another size|cannot open"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_refused_files(name: str, tmp_path: Path, ir: popsr.Ir) -> None:
    build, error, match = BAD_FILES[name]
    (tmp_path / "short.npy").write_bytes(b"1234")
    (tmp_path / "folder.npy").mkdir()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(error, match=match) as caught:
        build(tmp_path, VariableFactory(Counted((3,)), name="w"))
    assert isinstance(caught.value, popsr.Error)
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before
    assert not ir.main_graph.variables


def test_a_file_is_not_made_when_its_data_is_refused(tmp_path: Path, ir: popsr.Ir) -> None:
    factory = VariableFactory(itertools.chain([np.zeros(2)], [np.zeros(3)]), F32, "w")
    factory.next_data()
    for error in (errors.ShapeError, StopIteration):
        with pytest.raises(error):
            factory.next_memmap(tmp_path, "w")
    assert not list(tmp_path.iterdir())


# Refusals


def fails() -> Array:
    raise RuntimeError("two\nlines")


BAD: dict[str, tuple[Callable[[popsr.Ir], Any], type[Exception], str]] = {
    "no iterable": (lambda ir: Make(3), Value, "not a function or iterable, got 3"),
    "text": (lambda ir: Make("abc"), Value, "not a function or iterable, got 'abc'"),
    "scalar array": (lambda ir: Make(np.float32(1)), Value, "not a function or iterable"),
    "array without dimensions": (lambda ir: Make(np.zeros(())), Value, "not a function or iterable"),
    "empty": (lambda ir: Make([]), Value, "no items"),
    "fails": (lambda ir: Make(fails, name="w"), Value, "'w': data_iter fails, got RuntimeError: two lines"),
    "takes an argument": (lambda ir: Make(np.sin), Value, "data_iter fails, got TypeError"),
    "strings": (lambda ir: Make(["a"]), Kind, "not an array of numbers, got"),
    "objects": (lambda ir: Make([None]), Kind, "not an array of numbers"),
    "ragged": (lambda ir: Make([[[1], [1, 2]]]), errors.ShapeError, "item of data_iter"),
    "complex": (lambda ir: Make([1j]), errors.DTypeError, "complex128"),
    "dtype": (lambda ir: Make(ONE, "x"), errors.DTypeError, "got 'x'"),
    "name": (lambda ir: Make(ONE, name=3), Kind, "name is not a str, got 3"),
    "grouping": (lambda ir: Make(ONE, replica_grouping=2), Kind, "not a ReplicaGrouping, got 2"),
    "grouping 0": (lambda ir: Make(ONE, replica_grouping=0), Kind, "not a ReplicaGrouping, got 0"),
    "other replicas": (
        lambda ir: Make(ONE, replica_grouping=popsr.Ir(2).replica_grouping()),
        Replica,
        "replica count, got 2, expected 4",
    ),
    "both groupings": (
        lambda ir: Make(ONE, replica_grouping=ir.replica_grouping(), replica_group=ir.replica_grouping()),
        Value,
        "given twice",
    ),
    "no shards": (lambda ir: Make(ONE, shard_over=0), Value, "shard_over: got 0"),
    "shards of a text": (
        lambda ir: Make(ONE, shard_over="2"),
        TypeError,
        "shard_over is not an int, got '2'",
    ),
    "too many shards": (
        lambda ir: Make(ONE, shard_over=8),
        Replica,
        "got shard_over 8, expected a divisor of 4",
    ),
    "uneven shards": (lambda ir: Make(ONE, shard_over=3), Replica, "got shard_over 3"),
    "shape of an item": (
        lambda ir: [f := Make([np.zeros(2), np.zeros(3)]), f.next_data(), f.next_data()],
        errors.ShapeError,
        r"another shape, got \(3,\), expected \(2,\)",
    ),
    "buffer": (
        lambda ir: Make(ONE, F32).create_remote_tensor(popsr.remote_buffer((2,), F32), 0),
        errors.ShapeError,
        "does not match|another",
    ),
    "entry": (
        lambda ir: Make(ONE, F32).create_remote_tensor(popsr.remote_buffer((), F32), 1),
        errors.OutOfRangeError,
        "1",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_refused(name: str, ir: popsr.Ir) -> None:
    build, error, match = BAD[name]
    with pytest.raises(error, match=match) as caught:
        build(ir)
    assert isinstance(caught.value, popsr.Error)
    assert "\n" not in str(caught.value)
    assert not ir.main_graph.variables
    assert not ir.main_graph.ops


def test_variables_are_of_the_main_graph(ir: popsr.Ir) -> None:
    factory = Make(ONE, F32, "w")
    with ir.create_empty_graph(), pytest.raises(errors.GraphError, match="expected the main graph"):
        factory.create_tensor()
    with pytest.raises(errors.StateError, match="no graph is current"):
        _outside(factory)


def _outside(factory: VariableFactory) -> None:
    graph = get_current_context().pop_graph()
    try:
        Make(ONE)
    finally:
        get_current_context().push_graph(graph)
