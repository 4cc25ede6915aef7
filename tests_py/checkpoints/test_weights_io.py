"""Weights between a session and the caller's buffers: shapes, kinds of memory, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.io import PyWeightsIO
from popsr.replicas import CommGroup, CommGroupType, VariableRetrievalMode, VariableSettings
from tests_py.support.helpers import ALL_DTYPES, Array, assert_same_bits, dtype, random_array, run_python
from tests_py.support.unchecked import unchecked

F32 = popsr.float32
Shape, DType, Attr = errors.ShapeError, errors.DTypeError, errors.AttributeValueError
Replica, Argument, Unknown = errors.ReplicaError, errors.ArgumentTypeError, errors.UnknownNameError

ALL, PAIRS = CommGroup(CommGroupType.All, 0), CommGroup(CommGroupType.Consecutive, 2)
ACROSS, OWN = CommGroup(CommGroupType.Orthogonal, 2), CommGroup(CommGroupType.Ungrouped, 0)
ONE, EVERY = VariableRetrievalMode.OnePerGroup, VariableRetrievalMode.AllReplicas


class Program:
    """Four replicas; ``layer/w`` has two groups, ``layer/b`` one, of ``other/b`` all replicas are read; runs add 1."""

    def __init__(self) -> None:
        self.ir = popsr.Ir(replication=4)
        pairs = self.ir.replica_grouping(group_size=2)
        self.data = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
        with self.ir.main_graph, popsr.in_sequence():
            with popsr.name_scope("layer"):
                self.w = popsr.variable(self.data, name="w", replica_grouping=pairs)
                self.b = popsr.variable(np.array([1, 2, 3], np.float32), name="b")
            with popsr.name_scope("other"):
                self.e = popsr.variable(
                    self.data, name="b", replica_grouping=pairs, retrieval_mode="all_replicas"
                )
            for v in (self.w, self.b, self.e):
                ops.add_(v, popsr.constant(1.0))
        self.session = popsr.Session(self.ir)

    def read(self, key: Any, shape: tuple[int, ...]) -> Array:
        buffer = np.full(shape, -1, np.float32)
        self.session.read_weights(PyWeightsIO({key: buffer}))
        return buffer


# Shapes


@pytest.mark.parametrize(
    ("group", "mode", "shape"),
    [
        (PAIRS, ONE, (2, 2, 3, 4)),
        (PAIRS, EVERY, (4, 2, 3, 4)),
        (ACROSS, ONE, (2, 2, 3, 4)),
        (ACROSS, EVERY, (4, 2, 3, 4)),
        (ALL, ONE, (2, 3, 4)),
        (ALL, ONE, (1, 2, 3, 4)),
        (ALL, EVERY, (4, 2, 3, 4)),
        (OWN, ONE, (4, 2, 3, 4)),
        (OWN, EVERY, (4, 2, 3, 4)),
    ],
    ids=str,
)
@pytest.mark.parametrize("attached", [False, True], ids=["detached", "attached"])
def test_buffers_of_a_2_3_4_tensor_on_four_replicas(
    group: Any, mode: Any, shape: Any, attached: bool
) -> None:
    ir = popsr.Ir(replication=4)
    grouping = group.to_replica_grouping(4)
    groups = grouping.num_groups
    data = np.arange(24 * groups, dtype=np.float32).reshape(groups, 2, 3, 4)
    v = ir.add_initialized_input(data if groups > 1 else data[0], VariableSettings(group, mode), "v")
    with ir.main_graph:
        ops.add_(v, popsr.constant(100.0))
    session = popsr.Session(ir)
    expected = data
    buffer = np.full(shape, -1, np.float32)
    io = PyWeightsIO({v: buffer})
    if attached:
        with session:
            session.run()
            session.read_weights(io)
        expected = data + 100
    else:
        session.read_weights(io)
    rows = expected[grouping.assignment] if len(shape) == 4 and shape[0] == 4 else expected
    assert_same_bits(buffer, rows.reshape(shape))
    buffer += 1
    session.write_weights(io)
    assert_same_bits(session._access.rows(v), (expected + 1).reshape(v.shape_on_host))


@pytest.mark.parametrize("shape", [(2, 2, 3), (4, 2, 3)], ids=str)
@pytest.mark.parametrize("name", ["w", "e"])
def test_weights_are_written_from_rows_of_groups_or_replicas(name: str, shape: tuple[int, ...]) -> None:
    program = Program()
    v = getattr(program, name)
    rows = -program.data
    program.session.write_weights(PyWeightsIO({v: rows if shape[0] == 2 else rows[[0, 0, 1, 1]]}))
    assert_same_bits(program.session._access.rows(v), rows)
    with program.session:
        program.session.run()
        assert_same_bits(program.session._access.rows(v), rows + 1)


def test_one_replica() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        v = popsr.variable([1.0, 2.0], retrieval_mode="all_replicas")
        ops.relu(v)
    session = popsr.Session(ir)
    for shape in ((2,), (1, 2)):
        buffer = np.zeros(shape, np.float32)
        session.read_weights(PyWeightsIO({v: buffer}))
        assert buffer.reshape(-1).tolist() == [1, 2]
        session.write_weights(PyWeightsIO({v: buffer}))


def test_scalars_and_empty_tensors() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        s, z = popsr.variable(5.0, name="s"), popsr.variable(np.zeros((0, 3), np.float32), name="z")
        ops.relu(s)
        ops.relu(z)
    session = popsr.Session(ir)
    buffers = {"s": np.zeros((), np.float32), "z": np.zeros((1, 0, 3), np.float32)}
    session.read_weights(PyWeightsIO(buffers))
    assert buffers["s"] == 5
    session.write_weights(PyWeightsIO({"s": np.array([6], np.float32)}))
    assert session.get_tensor_data(s) == 6


# Memory


def _strided(shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
    return np.zeros((*shape[:-1], 2 * shape[-1]), kind)[..., ::2]


BUFFERS: dict[str, Callable[[tuple[int, ...], Any], Array]] = {
    "contiguous": np.zeros,
    "strided": _strided,
    "fortran": lambda shape, kind: np.zeros(shape, kind, order="F"),
    "reversed": lambda shape, kind: np.zeros(shape, kind)[::-1],
    "unaligned": lambda shape, kind: (
        np.zeros(int(np.prod(shape)) * kind.itemsize + 1, np.uint8)[1:].view(kind).reshape(shape)
    ),
}


@pytest.mark.parametrize("form", BUFFERS)
@pytest.mark.parametrize("name", ALL_DTYPES)
def test_buffers_of_every_dtype_and_layout(name: str, form: str) -> None:
    rng = np.random.default_rng(3)
    data, other = random_array(rng, (2, 3, 4), name), random_array(rng, (2, 3, 4), name)
    ir = popsr.Ir(replication=4)
    with ir.main_graph:
        v = popsr.variable(data, dtype(name), replica_grouping=ir.replica_grouping(group_size=2))
        ops.reshape(v, (12,))
    session = popsr.Session(ir)
    buffer = BUFFERS[form](data.shape, data.dtype)
    io = PyWeightsIO({v: buffer})
    session.read_weights(io)
    assert_same_bits(np.ascontiguousarray(buffer), data)
    buffer[...] = other
    session.write_weights(io)
    assert_same_bits(session.get_tensor_data(v), other)


def test_a_mapped_buffer(tmp_path: Path) -> None:
    program = Program()
    buffer = np.memmap(tmp_path / "w", np.float32, "w+", shape=(2, 2, 3))
    program.session.read_weights(PyWeightsIO({"w": buffer}))
    buffer.flush()
    assert_same_bits(np.fromfile(tmp_path / "w", np.float32).reshape(2, 2, 3), program.data)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int8", "bool"])
def test_torch_tensors_share_their_memory(name: str) -> None:
    torch = pytest.importorskip("torch")
    data = random_array(np.random.default_rng(4), (3, 2), name)
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        v = popsr.variable(data, dtype(name))
        ops.reshape(v, (6,))
    session = popsr.Session(ir)
    buffer = torch.zeros((2, 3), dtype=getattr(torch, name)).T  # not contiguous
    if name in ("float32", "bfloat16"):
        buffer.requires_grad_()
    session.read_weights(PyWeightsIO({v: buffer}))
    assert buffer.to(torch.float64).tolist() == data.astype(np.float64).tolist()
    session.write_variable_data(v, np.zeros_like(data))
    session.write_weights(PyWeightsIO({v: buffer}))
    assert_same_bits(session.get_tensor_data(v), data)


# Synchronisation


def test_reading_downloads_first_and_writing_keeps_other_values() -> None:
    program = Program()
    session = program.session
    with session:
        session.run()
        assert not program.w.in_sync_with_ipu
        assert_same_bits(program.read("layer/w", (2, 2, 3)), program.data + 1)
        assert program.b.in_sync_with_ipu
        session.run()
        session.write_weights(PyWeightsIO({"w": -program.data}))
        assert session.get_tensor_data(program.b).tolist() == [3, 4, 5]
        session.run()
        assert_same_bits(program.read("w", (2, 2, 3)), 1 - program.data)
        session.run()
        session.weights_from_host()
        assert_same_bits(program.read("w", (2, 2, 3)), 1 - program.data)
        assert session.get_tensor_data(program.b).tolist() == [4, 5, 6]


def test_detached_sessions_read_and_write_host_copies() -> None:
    program = Program()
    session = popsr.Session(program.ir, weights_to_host_on_exit=False)
    with session:
        session.run()
    buffer = np.zeros(3, np.float32)
    io = PyWeightsIO({program.b: buffer})
    session.read_weights(io)
    assert buffer.tolist() == [1, 2, 3]
    buffer[:] = 9
    session.write_weights(io)
    with session:
        session.run()
        assert session.get_tensor_data(program.b).tolist() == [10, 10, 10]


def test_names_of_popart() -> None:
    program = Program()
    io = PyWeightsIO({"w": np.zeros((2, 2, 3), np.float32)})
    program.session.readWeights(io)  # type: ignore[attr-defined]
    program.session.writeWeights(io)  # type: ignore[attr-defined]
    assert_same_bits(program.session.get_tensor_data(program.w), program.data)
    assert repr(PyWeightsIO(unchecked({program.w: 0, "b": 0}))) == "PyWeightsIO(layer/w, b)"


# Bad input


def _read_only(shape: tuple[int, ...]) -> Array:
    array = np.zeros(shape, np.float32)
    array.flags.writeable = False
    return array


def _foreign() -> popsr.Variable:
    with popsr.Ir().main_graph:
        return popsr.variable(np.zeros(3, np.float32), name="foreign")


Z = np.zeros
Bad = tuple[str, Callable[[Program], Any], type[Exception], str]

# Refused by reading and by writing.
BAD: list[Bad] = [
    ("rank", lambda p: {p.w: Z((2, 3), "f4")}, Shape, r"'layer/w', got \(2, 3\), expected \(2, 2, 3\)"),
    ("no-group-dimension", lambda p: {p.w: Z(6, "f4")}, Shape, r"got \(6,\), expected \(2, 2, 3\)"),
    ("too-small", lambda p: {p.w: Z((1, 2, 3), "f4")}, Shape, r"got \(1, 2, 3\), expected \(2, 2, 3\)"),
    ("too-large", lambda p: {p.w: Z((3, 2, 3), "f4")}, Shape, r"got \(3, 2, 3\), expected \(2, 2, 3\)"),
    ("one-dimension-more", lambda p: {p.w: Z((2, 1, 2, 3), "f4")}, Shape, r"2 groups on 4 replicas"),
    ("last-extent", lambda p: {p.w: Z((2, 2, 2), "f4")}, Shape, r"retrieval_mode 'one_per_group'"),
    ("one-group", lambda p: {p.b: Z((2, 3), "f4")}, Shape, r"'layer/b', got \(2, 3\), expected \(3,\)"),
    (
        "all-replicas",
        lambda p: {p.e: Z((3, 2, 3), "f4")},
        Shape,
        r"'other/b', got \(3, 2, 3\), .*\(4, 2, 3\)",
    ),
    ("dtype", lambda p: {p.w: Z((2, 2, 3), "f8")}, DType, r"'layer/w', got float64, expected float32"),
    ("same-size", lambda p: {p.w: Z((2, 2, 3), "i4")}, DType, r"got int32, expected float32"),
    ("byte-order", lambda p: {p.w: Z((2, 2, 3), ">f4")}, DType, r"got >f4, expected float32"),
    ("list", lambda p: {p.b: [0.0] * 3}, Argument, r"buffer of 'layer/b' is not an array, got list"),
    ("bytes", lambda p: {p.b: bytearray(12)}, Argument, r"is not an array, got bytearray"),
    ("none", lambda p: {p.b: None}, Argument, r"is not an array, got NoneType"),
    ("unknown", lambda p: {"layer/v": Z(3, "f4")}, Unknown, r"got 'layer/v', expected one of 'layer/w'"),
    ("unknown-short", lambda p: {"x": Z(3, "f4")}, Unknown, r"unknown variable, got 'x', expected one of '"),
    ("part-of-a-name", lambda p: {"ayer/w": Z(3, "f4")}, Unknown, r"unknown variable, got 'ayer/w'"),
    ("ambiguous", lambda p: {"b": Z(3, "f4")}, Unknown, r"name of several .*'layer/b', 'other/b'"),
    ("twice", lambda p: {p.b: Z(3, "f4"), "layer/b": Z(3, "f4")}, Attr, r"two buffers for 'layer/b'"),
    ("other-ir", lambda p: {_foreign(): Z(3, "f4")}, errors.SessionError, r"tensor of another Ir"),
]
BAD_READS: list[Bad] = [
    ("read-only", lambda p: {p.b: _read_only((3,))}, errors.SessionError, r"'layer/b' is read-only"),
    ("replicas", lambda p: {p.w: Z((4, 2, 3), "f4")}, Shape, r"got \(4, 2, 3\), expected \(2, 2, 3\)"),
    ("groups", lambda p: {p.e: Z((2, 2, 3), "f4")}, Shape, r"got \(2, 2, 3\), expected \(4, 2, 3\)"),
]


def _unequal(program: Program, value: float) -> Array:
    rows = program.data[[0, 0, 1, 1]]
    rows[3, 1, 2] = value
    return rows


BAD_WRITES: list[Bad] = [
    (
        "unequal-rows",
        lambda p: {p.w: _unequal(p, 7)},
        Replica,
        r"'layer/w', got replicas 2 and 3 of group 1 differing at element 5, expected bitwise equal",
    ),
    ("unequal-rows-of-all", lambda p: {p.e: _unequal(p, 7)}, Replica, r"'other/b', got replicas 2 and 3 of"),
    (
        "minus-zero",
        lambda p: {p.b: np.array([[0] * 3, [0] * 3, [0, -0.0, 0], [0] * 3], np.float32)},
        Replica,
        r"'layer/b', got replicas 0 and 2 of group 0 differing at element 1",
    ),
    (
        "expects",
        lambda p: {p.e: Z((3, 2, 3), "f4")},
        Shape,
        r"expected \(4, 2, 3\) or \(2, 2, 3\): 2 groups on 4 replicas, retrieval_mode 'all_replicas'",
    ),
]


@pytest.mark.parametrize("attached", [False, True], ids=["detached", "attached"])
@pytest.mark.parametrize(
    ("call", "buffers", "error", "text"),
    [("read_weights", *case[1:]) for case in BAD + BAD_READS]
    + [("write_weights", *case[1:]) for case in BAD + BAD_WRITES],
    ids=[f"read-{case[0]}" for case in BAD + BAD_READS] + [f"write-{case[0]}" for case in BAD + BAD_WRITES],
)
def test_bad_buffers_are_refused_before_anything_is_written(
    call: str, buffers: Callable[[Program], Any], error: type[Exception], text: str, attached: bool
) -> None:
    program = Program()
    session = program.session
    given = buffers(program)
    good = "w" if not any(key is program.w for key in given) else "layer/b"
    fine = np.full((2, 2, 3) if good == "w" else (3,), -7, np.float32)
    io = PyWeightsIO({good: fine, **given}) if given.keys() != {program.b, "layer/b"} else PyWeightsIO(given)

    def use() -> None:
        before = session.get_tensors_data([program.w, program.b, program.e])
        with pytest.raises(error, match=rf"^{call}: .*{text}") as raised:
            getattr(session, call)(io)
        assert "\n" not in str(raised.value)
        assert np.all(fine == -7)
        for v, data in before.items():
            assert_same_bits(session.get_tensor_data(v), data)
        if attached:
            session.weights_from_host()
            session.run()
            for v, data in before.items():
                assert_same_bits(session.get_tensor_data(v), data + 1)

    if attached:
        with session:
            session.run()
            use()
    else:
        use()


def test_mappings_of_variables_or_names_only() -> None:
    program = Program()
    with program.ir.main_graph:
        constant = popsr.constant(1.0)
    for given, text in [
        ([1], r"^PyWeightsIO: buffers is not a mapping, got \[1\]"),
        ({1: 2}, r"^PyWeightsIO: key is not a Variable or name, got 1"),
        ({constant: 2}, r"^PyWeightsIO: key is not a Variable or name, got Constant\["),
    ]:
        with pytest.raises(Argument, match=text):
            PyWeightsIO(given)  # type: ignore[arg-type]
    for call in ("read_weights", "write_weights"):
        with pytest.raises(Argument, match=rf"^{call}: io is not a PyWeightsIO, got \{{\}}"):
            getattr(program.session, call)({})
        getattr(program.session, call)(PyWeightsIO({}))


def test_variables_newer_than_the_session() -> None:
    program = Program()
    with program.ir.main_graph:
        late = popsr.variable([1.0], name="late")
    for key, error in ((late, errors.SessionError), ("late", Unknown)):
        with pytest.raises(error):
            program.session.read_weights(PyWeightsIO({key: Z(1, "f4")}))


def test_torch_tensors_elsewhere_are_refused() -> None:
    torch = pytest.importorskip("torch")
    program = Program()
    for buffer, error, text in [
        (torch.zeros(3, device="meta"), Argument, "not in the CPU's memory, got meta"),
        (torch.zeros(3).to_sparse(), Argument, "expected a strided tensor"),
        (torch.zeros(3, dtype=torch.complex64), DType, "got complex64, expected float32"),
        (torch.zeros(3, dtype=torch.float64), DType, "got float64, expected float32"),
    ]:
        with pytest.raises(error, match=text):
            program.session.read_weights(PyWeightsIO({program.b: buffer}))


def test_io_is_an_attribute_of_the_package_that_is_imported_at_the_first_use() -> None:
    code = (
        "import sys, popsr; assert 'popsr.io' not in sys.modules; "
        "print(popsr.io.PyWeightsIO.__name__); popsr.nothing"
    )
    with pytest.raises(AssertionError, match="module 'popsr' has no attribute 'nothing'"):
        run_python(code)
    assert run_python(code.removesuffix("popsr.nothing")) == "PyWeightsIO\n"
