"""Variables whose data is a memory-mapped file: shared, written through, never converted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.io import PyWeightsIO
from popsr.utils import to_numpy
from tests_py.support.helpers import Array, assert_same_bits
from tests_py.support.unchecked import unchecked

START = "^When passing a memory-mapped NumPy array"


def _mapped(folder: Path, data: Array, mode: Any = "r+") -> Any:
    data.tofile(folder / "data")
    return np.memmap(folder / "data", data.dtype, mode, shape=data.shape)


def _on_disk(folder: Path, like: Array) -> Array:
    return np.fromfile(folder / "data", like.dtype).reshape(like.shape)


class Program:
    """A variable with mapped data that grows by 1 a run, beside ``plain`` that doubles."""

    def __init__(self, data: Any, grouping: Any = None, replication: int = 4, **options: Any) -> None:
        self.ir = popsr.Ir(replication=replication)
        if grouping is not None:
            grouping = self.ir.replica_grouping_from_assignments(grouping)
        with self.ir.main_graph, popsr.in_sequence():
            self.v = popsr.variable(data, name="v", replica_grouping=grouping, **options)
            self.plain = popsr.variable(np.array([1, 2], np.float32), name="plain")
            self.fixed = popsr.variable(np.array([3], np.float32), name="fixed")
            ops.add_(self.v, popsr.constant(1, self.v.dtype))
            ops.add_(self.plain, self.plain)
            ops.relu(self.fixed)
        self.session = popsr.Session(self.ir)


@pytest.mark.parametrize("grouping", [None, [0, 0, 1, 1], [0, 1, 1, 0]], ids=["one", "const", "non-const"])
def test_a_writable_file_is_the_host_copy(tmp_path: Path, grouping: Any) -> None:
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    mapped = _mapped(tmp_path, data)
    program = Program(mapped, grouping)
    session, v = program.session, program.v
    assert v.shape_on_host == (2, 3)
    with session:
        assert session.get_tensor_data(v) is mapped
        session.run()
        assert_same_bits(_on_disk(tmp_path, data), data)
        session.weights_to_host()
        assert_same_bits(_on_disk(tmp_path, data), data + 1)
        session.run()
        assert session.get_tensor_data(v) is mapped
        assert_same_bits(np.asarray(mapped), data + 2)
        assert_same_bits(session._access.rows(v), data + 2)
        session.run()
    assert_same_bits(_on_disk(tmp_path, data), data + 3)
    assert session.get_tensor_data(program.plain).tolist() == [8, 16]
    assert session.get_tensor_data(v) is mapped


def test_data_is_not_copied_when_a_variable_is_made(tmp_path: Path) -> None:
    mapped = _mapped(tmp_path, np.zeros(3, np.float32))
    program = Program(mapped)
    mapped[:] = [1, 2, 3]  # between sessions the file speaks
    session = popsr.Session(program.ir)
    with session:
        session.run()
    assert mapped.tolist() == [2, 3, 4]
    mapped[:] = 0
    with session:
        session.run()
    assert mapped.tolist() == [1, 1, 1]


def test_the_file_may_change_while_attached(tmp_path: Path) -> None:
    mapped = _mapped(tmp_path, np.zeros(3, np.float32))
    program = Program(mapped)
    with program.session as session:
        mapped[:] = [1, 2, 3]
        assert session.get_tensor_data(program.v).tolist() == [1, 2, 3]
        buffer = np.zeros(3, np.float32)
        session.read_weights(PyWeightsIO({"v": buffer}))
        assert buffer.tolist() == [1, 2, 3]
        session.weights_from_host()
        session.run()
    assert mapped.tolist() == [2, 3, 4]


def test_downloads_and_writes_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = _mapped(tmp_path, np.zeros(3, np.float32))
    program = Program(mapped)
    flushed: list[Any] = []
    monkeypatch.setattr(np.memmap, "flush", lambda self: flushed.append(self[:].tolist()))
    with program.session as session:
        session.run()
        session.weights_to_host()
        assert flushed == [[1, 1, 1]]
        session.write_variable_data(program.v, np.zeros(3, np.float32))
        assert flushed[1:] == [[0, 0, 0]]
    assert flushed[2:] == [[0, 0, 0]]


def test_writing_goes_to_the_file(tmp_path: Path) -> None:
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    program = Program(_mapped(tmp_path, data), [0, 1, 0, 1])
    session = program.session
    session.write_variable_data(program.v, -data)
    assert_same_bits(_on_disk(tmp_path, data), -data)
    with session:
        session.run()
        session.write_weights(PyWeightsIO({"v": (data * 3)[[0, 1, 0, 1]]}))
        assert_same_bits(_on_disk(tmp_path, data), data * 3)
        assert session.get_tensor_data(program.plain).tolist() == [2, 4]
        session._access.set_rows({program.v: data * 5})
        session.run()
        buffer = np.zeros((2, 3), np.float32)
        session.read_weights(PyWeightsIO({"v": buffer}))
    assert_same_bits(buffer, data * 5 + 1)


def test_rows_that_the_device_refuses_do_not_reach_the_file(tmp_path: Path) -> None:
    """Rows that differ for the first time need another plan, which a changed program has not."""
    data = np.ones((2, 3), np.float32)
    program = Program(_mapped(tmp_path, data), [0, 0, 1, 1])
    with program.ir.main_graph:
        ops.relu(program.fixed)
    with pytest.raises(errors.GraphError, match="make the session again"):
        program.session.write_variable_data(program.v, np.arange(6, dtype=np.float32).reshape(2, 3))
    assert_same_bits(_on_disk(tmp_path, data), data)


def test_an_error_leaving_the_session_leaves_the_file_alone(tmp_path: Path) -> None:
    program = Program(_mapped(tmp_path, np.zeros(2, np.float32)))

    def use() -> None:
        with program.session:
            program.session.run()
            raise InterruptedError

    with pytest.raises(InterruptedError):
        use()
    assert _on_disk(tmp_path, np.zeros(2, np.float32)).tolist() == [0, 0]


def test_a_read_only_file_switches_downloads_off(tmp_path: Path) -> None:
    data = np.array([1, 2, 3], np.float32)
    mapped = _mapped(tmp_path, data, "r")
    program = Program(mapped)
    session, v = program.session, program.v
    assert session.get_tensor_data(v) is mapped
    with session:
        session.run()
        with pytest.raises(
            errors.SessionError, match=r"^weights_to_host: 'v' is a read-only memory-mapped array"
        ):
            session.weights_to_host()
        # Reading asks the device, which has newer values than any host copy.
        assert session.get_tensor_data(v).tolist() == [2, 3, 4]
        assert session.get_tensor_data(program.plain).tolist() == [2, 4]
        assert session._access.rows(program.plain).tolist() == [2, 4]
        buffer = np.zeros(3, np.float32)
        session.read_weights(PyWeightsIO({"v": buffer}))
        assert buffer.tolist() == [2, 3, 4]
        session.write_variable_data(program.plain, np.array([5, 6], np.float32))
        session.run()
        assert session.get_tensor_data(program.plain).tolist() == [10, 12]
        assert session.get_tensor_data(v).tolist() == [3, 4, 5]
    assert session.get_tensor_data(v) is mapped
    assert session.get_tensor_data(program.plain).tolist() == [5, 6]
    assert_same_bits(_on_disk(tmp_path, data), data)
    for write in (
        lambda: session.write_variable_data(v, data),
        lambda: session.write_variables_data({program.plain: np.zeros(2, np.float32), v: data}),
        lambda: session.write_weights(PyWeightsIO({"plain": np.zeros(2, np.float32), "v": data})),
        lambda: session._access.set_rows({program.plain: np.zeros(2, np.float32), v: data}),
    ):
        with pytest.raises(errors.SessionError, match="'v' is a read-only memory-mapped array"):
            write()
    assert session.get_tensor_data(program.plain).tolist() == [5, 6]


@pytest.mark.filterwarnings("ignore:L2:popsr.ReplicaWarning")  # w drifts on purpose
@pytest.mark.parametrize("strict", [False, True])
def test_unequal_groups_are_reported_without_downloads(tmp_path: Path, strict: bool) -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        v, w = (
            popsr.variable(_mapped(tmp_path, np.zeros(2, np.float32), "r")),
            popsr.variable([0.0, 0.0], name="w"),
        )
        x = popsr.h2d_stream((2,), popsr.float32)
        ops.add_(w, ops.add(v, ops.host_load(x)))
    with popsr.Session(ir, strict=("L3",) if strict else False) as session:
        session.run({x: np.array([[1, 2], [1, 3]], np.float32)})
        if strict:
            with pytest.raises(
                errors.ReplicaError, match="replicas 0 and 1 of one group of 'w' differ at element 1"
            ):
                session.get_tensor_data(w)
        else:
            with pytest.warns(popsr.ReplicaWarning, match="^L3: get_tensor_data: .* group of 'w' differ"):
                assert session.get_tensor_data(w).tolist() == [1, 2]
        assert session.get_tensor_data(v).tolist() == [0, 0]


def test_a_variable_that_never_changes_may_be_read_only(tmp_path: Path) -> None:
    mapped = _mapped(tmp_path, np.array([1, 2], np.float32), "r")
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        v, w = popsr.variable(mapped), popsr.variable(np.array([0, 0], np.float32))
        ops.add_(w, v)
    with popsr.Session(ir) as session:
        session.run()
        assert session.get_tensor_data(v) is mapped
        assert session.get_tensor_data(w).tolist() == [1, 2]


def test_a_file_changed_privately_stays_as_it_is(tmp_path: Path) -> None:
    data = np.array([1, 2], np.float32)
    mapped = _mapped(tmp_path, data, "c")
    program = Program(mapped)
    with program.session:
        program.session.run()
    assert mapped.tolist() == [2, 3]
    assert_same_bits(_on_disk(tmp_path, data), data)


def test_part_of_a_file(tmp_path: Path) -> None:
    mapped = _mapped(tmp_path, np.zeros((4, 3), np.float32))
    program = Program(mapped[1:3])
    with program.session:
        program.session.run()
    assert mapped.tolist() == [[0] * 3, [1] * 3, [1] * 3, [0] * 3]


def test_rows_of_an_iterator_are_copied(tmp_path: Path) -> None:
    mapped = _mapped(tmp_path, np.zeros((2, 3), np.float32))
    program = Program(iter(mapped), [0, 0, 1, 1])
    with program.session:
        program.session.run()
    assert not mapped.any()


@pytest.mark.parametrize(
    "make", [lambda m: m + 0, lambda m: m.copy(), np.array], ids=["sum", "copy", "array"]
)
def test_values_computed_from_a_file_are_in_memory(tmp_path: Path, make: Callable[[Any], Any]) -> None:
    mapped = _mapped(tmp_path, unchecked(np.float64(unchecked([0, 0]))))
    program = Program(make(mapped))
    assert program.v.dtype is popsr.float32
    with program.session:
        program.session.run()
    assert mapped.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("data", "options", "text"),
    [
        (
            np.zeros(4, np.float32),
            {"dtype": popsr.float16},
            "dtype must be None or the array's, got .*16",
        ),
        (
            np.zeros(4, np.float32),
            {"dtype": popsr.int32},
            "dtype must be None or the array's, got .*int32",
        ),
        (np.zeros(4, np.float64), {}, "it must not need downcasting, got float64, expected downcast=False"),
        (np.zeros(4, np.int64), {}, "it must not need downcasting, got int64"),
        (np.zeros(4, ">f4"), {}, "byte order, got >f4"),
        (np.zeros(4, np.complex64), {}, "its dtype has to be one of popsr"),
    ],
    ids=["dtype", "same-size", "float64", "int64", "byte-order", "complex"],
)
def test_data_that_needs_conversion(tmp_path: Path, data: Array, options: Any, text: str) -> None:
    mapped = _mapped(tmp_path, data)
    with popsr.Ir().main_graph as graph:
        for make in (popsr.variable, popsr.constant, to_numpy):
            with pytest.raises(ValueError, match=f"{START}, .*{text}") as raised:
                make(mapped, **options)
            assert isinstance(raised.value, errors.Error)
        assert graph.tensors == ()


def test_data_that_needs_rearrangement(tmp_path: Path) -> None:
    mapped = _mapped(tmp_path, np.zeros((4, 4), np.float32))
    unaligned = np.memmap(tmp_path / "data", np.float32, "r+", offset=1, shape=(2,))
    with popsr.Ir().main_graph:
        for bad in (mapped.T, mapped[:, 1:], unaligned):
            with pytest.raises(ValueError, match=f"{START}, it must be C-ordered and aligned, got strides"):
                popsr.variable(bad)


@pytest.mark.parametrize("options", [{"downcast": False}, {"dtype": popsr.float64}], ids=str)
def test_64_bits_when_asked_for(tmp_path: Path, options: Any) -> None:
    mapped = _mapped(tmp_path, unchecked(np.float64(unchecked([1, 2]))))
    assert to_numpy(mapped, **options) is mapped
    program = Program(mapped, **options)
    with program.session:
        program.session.run()
    assert mapped.tolist() == [2, 3]


def test_shapes_and_modes_that_do_not_fit(tmp_path: Path) -> None:
    mapped = _mapped(tmp_path, np.zeros((2, 3), np.float32))
    with pytest.raises(errors.ShapeError, match=r"variable 'v': .* got shape \(2, 3\), expected \(4, "):
        Program(mapped, [0, 1, 2, 3])
    with pytest.raises(ValueError, match=f"{START}, .*'all_replicas' for 'v' with groups of 2"):
        Program(mapped, [0, 0, 1, 1], retrieval_mode="all_replicas")
    own = Program(mapped, [0, 1], replication=2, retrieval_mode="all_replicas")
    with own.session:
        own.session.run()
    assert mapped.tolist() == [[1] * 3] * 2


def test_inputs_of_a_run_may_be_mapped_and_converted(tmp_path: Path) -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        x, out = popsr.h2d_stream((2,), popsr.float32), popsr.d2h_stream((2,), popsr.float32)
        ops.host_store(out, ops.host_load(x))
    with popsr.Session(ir) as session:
        assert session.run({x: _mapped(tmp_path, unchecked(np.float64(unchecked([1, 2]))))})[
            out
        ].tolist() == [
            1,
            2,
        ]
