"""Sessions: attaching, streams, variables between host and device, host data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.utils import to_numpy
from tests_py.support.helpers import (
    ALL_DTYPES,
    Array,
    Streams,
    assert_same_bits,
    dtype,
    make_variable,
    random_array,
)
from tests_py.support.unchecked import unchecked

F32 = popsr.float32


class Counter:
    """A variable ``v`` that grows by the stream ``x`` each run, and ``w`` that doubles; ``v`` is stored."""

    def __init__(self, replication: int = 1, **options: Any) -> None:
        self.ir = popsr.Ir(replication=replication)
        with self.ir.main_graph, popsr.in_sequence():
            self.x = popsr.h2d_stream((2,), F32, "x")
            self.out = popsr.d2h_stream((2,), F32, "out")
            self.v = make_variable(np.array([1, 2], np.float32), "v")
            self.w = make_variable(np.array([1, 1], np.float32), "w")
            self.c = popsr.constant([5.0, 6.0])
            ops.add_(self.v, ops.host_load(self.x))
            ops.add_(self.w, self.w)
            ops.host_store(self.out, ops.add(self.v, self.c))
        self.data = {self.x: np.array([10, 20], np.float32)}

    def session(self, **options: Any) -> popsr.Session:
        return popsr.Session(self.ir, **options)


# Attaching


def test_detached_until_entered() -> None:
    program = Counter()
    session = program.session()
    assert not session.is_attached
    for call in (
        lambda: session.run(program.data),
        lambda: session.run_with_outputs(program.data, session.create_host_outputs()),
        session.weights_to_host,
        session.weights_from_host,
    ):
        with pytest.raises(ValueError, match="the session is detached"):
            call()
    assert set(session.expected_inputs()) == {program.x}
    assert session.get_tensor_data(program.v).tolist() == [1, 2]
    with session as entered:
        assert entered is session
        assert unchecked(session).is_attached
        assert session.run(program.data)[program.out].tolist() == [16, 28]
    assert not session.is_attached
    assert session.get_tensor_data(program.v).tolist() == [11, 22]
    with pytest.raises(ValueError, match=r"^run: the session is detached"):
        session.run(program.data)


def test_entering_again_continues() -> None:
    program = Counter()
    session = program.session()
    for i in (1, 2):
        with session:
            session.run(program.data)
        assert session.get_tensor_data(program.v).tolist() == [1 + 10 * i, 2 + 20 * i]


def test_nested_entries_do_nothing() -> None:
    program = Counter()
    with program.session() as session:
        with session:
            session.run(program.data)
        assert session.is_attached
        assert not program.v.in_sync_with_ipu
        assert session.run(program.data)[program.out].tolist() == [26, 48]


def test_exit_downloads_unless_told_or_an_error_leaves() -> None:
    program = Counter()
    session = program.session(weights_to_host_on_exit=False)
    with session:
        session.run(program.data)
    assert session.get_tensor_data(program.v).tolist() == [1, 2]
    program = Counter()
    session = program.session()

    def use() -> None:
        with session:
            session.run(program.data)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use()
    assert not session.is_attached
    assert session.get_tensor_data(program.v).tolist() == [1, 2]


@pytest.mark.parametrize("device", ["cpu", "ipu_model", "ipu_hw"])
@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # v takes what each replica loads
def test_devices(device: str) -> None:
    program = Counter(replication=3)
    with program.session(device_desc=device) as session:
        out = session.run({program.x: np.ones((3, 2), np.float32)})[program.out]
    assert out.shape == (3, 2)


def test_two_sessions_of_one_program() -> None:
    program = Counter()
    with program.session() as first, program.session() as second:
        first.run(program.data)
        assert second.get_tensor_data(program.v).tolist() == [1, 2]
        assert second.run(program.data)[program.out].tolist() == [16, 28]


# Variables


def test_in_sync_flag() -> None:
    program = Counter()
    assert unchecked(program.v).in_sync_with_ipu
    with program.session() as session:
        assert unchecked(program.v).in_sync_with_ipu
        session.run(program.data)
        assert not program.v.in_sync_with_ipu
        assert not program.w.in_sync_with_ipu
        session.get_tensor_data(program.c)
        assert not program.v.in_sync_with_ipu
        session.get_tensor_data(program.v)
        assert program.w.in_sync_with_ipu


def test_written_variables_do_not_revert_others() -> None:
    program = Counter()
    with program.session() as session:
        session.run(program.data)
        session.write_variable_data(program.v, np.array([100, 200], np.float32))
        assert session.get_tensor_data(program.w).tolist() == [2, 2]
        session.run(program.data)
        assert session.get_tensors_data([program.v, program.w])[program.w].tolist() == [4, 4]
        assert session.get_tensor_data(program.v).tolist() == [110, 220]


def test_write_while_detached() -> None:
    program = Counter()
    session = program.session()
    session.write_variable_data(program.v, np.array([7, 8], np.float32))
    with session:
        assert session.run(program.data)[program.out].tolist() == [22, 34]


def test_weights_from_host_restores() -> None:
    program = Counter()
    with program.session() as session:
        session.run(program.data)
        session.weights_from_host()
        assert session.get_tensor_data(program.v).tolist() == [1, 2]
        session.run(program.data)
        session.weights_to_host()
        session.run(program.data)
        session.weights_from_host()
        assert session.get_tensor_data(program.v).tolist() == [11, 22]


def test_returned_data_is_a_copy() -> None:
    program = Counter()
    with program.session() as session:
        before = session.get_tensor_data(program.v)
        before[:] = 0
        session.run(program.data)
        assert session.get_tensor_data(program.v).tolist() == [11, 22]
        assert before.tolist() == [0, 0]


def test_constants_are_copied_and_never_downloaded_for() -> None:
    program = Counter()
    with program.session() as session:
        session.run(program.data)
        data = session.get_tensor_data(program.c)
        data[:] = 0
        assert not program.v.in_sync_with_ipu
        assert session.get_tensor_data(program.c).tolist() == [5, 6]
        assert session.run(program.data)[program.out].tolist() == [26, 48]


def test_data_is_downloaded_before_it_is_written() -> None:
    """Also the others': what was not written keeps its value when the host copies are uploaded."""
    program = Counter()
    with program.session() as session:
        session.run(program.data)
        session.write_variables_data({program.v: [0.0, 0.0]})
        session.weights_from_host()
        assert session.get_tensor_data(program.w).tolist() == [2, 2]
        session.run(program.data)
    assert session.get_tensor_data(program.v).tolist() == [10, 20]


@pytest.mark.parametrize("attached", [False, True])
def test_written_data_may_change_afterwards(attached: bool) -> None:
    program = Counter()
    session = program.session()
    data = np.array([7, 8], np.float32)
    if attached:
        with session:
            session.write_variable_data(program.v, data)
            data[:] = 0
            assert session.get_tensor_data(program.v).tolist() == [7, 8]
    else:
        session.write_variable_data(program.v, data)
        data[:] = 0
    assert session.get_tensor_data(program.v).tolist() == [7, 8]


def test_the_last_download_comes_back_after_an_error() -> None:
    program = Counter()
    session = program.session()

    def use() -> None:
        with session:
            session.run(program.data)
            session.weights_to_host()
            session.run(program.data)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use()
    assert session.get_tensor_data(program.v).tolist() == [11, 22]
    with session:
        assert session.run(program.data)[program.out].tolist() == [26, 48]


def test_data_given_to_variables_is_copied() -> None:
    data = np.array([1, 2], np.float32)
    ir = popsr.Ir()
    with ir.main_graph:
        v = make_variable(data)
        ops.relu(v)
    data[:] = 9
    assert popsr.Session(ir).get_tensor_data(v).tolist() == [1, 2]


@pytest.mark.parametrize("name", ALL_DTYPES)
def test_variables_of_every_dtype(name: str) -> None:
    data = random_array(np.random.default_rng(1), (3, 5), name)
    ir = popsr.Ir(replication=2)
    io = Streams()
    with ir.main_graph, popsr.in_sequence():
        v = make_variable(data, replica_grouping=None)
        io.fetch(ops.reshape(v, (15,)))
    with popsr.Session(ir) as session:
        assert_same_bits(io.run(session)[0], np.stack([data.reshape(-1)] * 2))
        assert_same_bits(session.get_tensor_data(v), data)
        session.write_variable_data(v, data[::-1].copy())
        assert_same_bits(io.run(session)[0][1], data[::-1].reshape(-1).copy())


# Streams


@pytest.mark.parametrize(("transfers", "replicas"), [(1, 1), (3, 1), (1, 4), (3, 4)])
def test_leading_dimensions(transfers: int, replicas: int) -> None:
    ir = popsr.Ir(replication=replicas)
    ir.num_host_transfers = transfers
    with ir.main_graph, popsr.in_sequence():
        streams = {
            m: popsr.h2d_stream((2,), F32, replicated_stream_mode=m) for m in ("replicate", "broadcast")
        }
        out = popsr.d2h_stream((2,), F32)

        def body() -> None:
            ops.host_store(out, ops.sub(*[ops.host_load(stream) for stream in streams.values()]))

        ops.repeat(ir.create_graph(body), transfers)
    full = np.arange(transfers * replicas * 2, dtype=np.float32).reshape(transfers, replicas, 2)
    shared = 100 * np.arange(transfers * 2, dtype=np.float32).reshape(transfers, 1, 2)
    kept = tuple(extent for extent in (transfers, replicas) if extent > 1)
    with popsr.Session(ir) as session:
        assert session.create_host_outputs()[out].shape == (*kept, 2)
        got = session.run(
            {
                streams["replicate"]: full.reshape(*kept, 2),
                streams["broadcast"]: shared.reshape(*kept[: int(transfers > 1)], 2),
            }
        )[out]
    assert_same_bits(got, (full - shared).reshape(*kept, 2))


def test_uneven_host_loads() -> None:
    """Ten iterations with two loads of one stream: 20 elements; the unused half of the output is left alone."""
    ir = popsr.Ir()
    ir.num_host_transfers = 20
    with ir.main_graph, popsr.in_sequence():
        stream, out = popsr.h2d_stream((), F32), popsr.d2h_stream((), F32)

        def body() -> None:
            a, b = ops.host_load(stream), ops.host_load(stream)
            ops.host_store(out, ops.add(a, ops.mul(b, popsr.constant(100.0, F32))))

        ops.repeat(ir.create_graph(body), 10)
    data = np.arange(20, dtype=np.float32)
    with popsr.Session(ir) as session:
        outputs = session.create_host_outputs()
        outputs[out][:] = -1
        session.run_with_outputs({stream: data}, outputs)
    assert outputs[out][:10].tolist() == (data[0::2] + 100 * data[1::2]).tolist()
    assert outputs[out][10:].tolist() == [-1] * 10


def test_more_rows_than_transfers() -> None:
    program = Counter()
    program.ir.num_host_transfers = 2
    with program.session() as session:
        session.run({program.x: np.ones((5, 2), np.float32)})
        assert session.get_tensor_data(program.v).tolist() == [2, 3]


def test_transfers_may_be_set_when_there_is_a_session() -> None:
    program = Counter()
    with program.session() as session:
        session.ir.num_host_transfers = 3
        stored = session.create_host_outputs()[program.out]
        outputs = session.run({program.x: np.ones((3, *program.x.shape), np.float32)})
        assert outputs[program.out].shape == stored.shape == (3, *program.out.shape)
        assert session._full_input_shape((7,)) == (3, 7)
        with pytest.raises(popsr.errors.ShapeError):
            session.run({program.x: np.ones((2, *program.x.shape), np.float32)})


def test_only_streams_in_use() -> None:
    program = Counter()
    with program.ir.main_graph:
        unused = popsr.h2d_stream((1,), F32)
    assert program.ir.get_all_h2d_streams() == {program.x}
    assert program.ir.get_all_d2h_streams() == {program.out}
    with program.session() as session, pytest.raises(ValueError, match="unexpected"):
        session.run({**program.data, unused: np.zeros(1, np.float32)})


def test_streams_belong_to_the_main_graph() -> None:
    ir = popsr.Ir()
    with ir.create_empty_graph():
        stream = popsr.h2d_stream((1,), F32, "s")
    assert stream.tensor_id == "s"
    assert (stream.shape, stream.dtype) == ((1,), F32)
    with pytest.raises(NotImplementedError):
        popsr.HostToDeviceStream()


def test_not_contiguous_and_python_data() -> None:
    program = Counter()
    wide = np.arange(8, dtype=np.float32).reshape(2, 4)
    with program.session() as session:
        for data in (wide[0, ::2], [1.0, 2.0], [1, 2], np.float64(unchecked([3, 4])), wide[:, 1]):
            before = session.get_tensor_data(program.v)
            session.run({program.x: data})
            assert (
                session.get_tensor_data(program.v).tolist()
                == (before + unchecked(np.float32)(unchecked(data))).tolist()
            )


def test_64_bit_data_is_narrowed_on_demand() -> None:
    program = Counter()
    with program.session() as session:
        session.run({program.x: np.float64(unchecked([1, 2]))})
        with pytest.raises(errors.DTypeError, match=r"stream 'x', got float64, expected float32"):
            session.run({program.x: np.float64(unchecked([1, 2]))}, downcast_inputs=False)


def test_run_with_outputs_writes_the_callers_arrays() -> None:
    program = Counter()
    storage = np.zeros((2, 4), np.float32)
    with program.session() as session:
        session.run_with_outputs(program.data, {program.out: storage[:, 1]})
    assert storage.tolist() == [[0, 16, 0, 0], [0, 28, 0, 0]]


# Host data


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (1, "int32"),
        (1.5, "float32"),
        (True, "bool"),
        ([1, 2], "int32"),
        (np.array([1], np.int64), "int32"),
        (np.array([1], np.uint64), "uint32"),
        (np.float64(unchecked([1])), "float32"),
        (np.array([1], np.int8), "int8"),
        (np.array([1], np.float16), "float16"),
    ],
    ids=str,
)
def test_inferred_dtypes(data: Any, kind: str) -> None:
    assert to_numpy(data).dtype.name == kind
    with popsr.Ir().main_graph:
        assert popsr.constant(data).dtype is dtype(kind)
        assert popsr.variable(data).dtype is dtype(kind)


def test_conversion() -> None:
    assert to_numpy(np.float64(unchecked([1])), downcast=False).dtype == np.float64
    assert to_numpy([1.7, -1.7], popsr.int32).tolist() == [1, -1]
    assert to_numpy([300], popsr.int16).tolist() == [300]
    assert to_numpy(np.ones((2, 3)).T).flags.c_contiguous
    with pytest.raises(TypeError):
        to_numpy("text")
    with pytest.raises(ValueError, match="not an array"):
        to_numpy([[1], [1, 2]])
    with popsr.Ir().main_graph, pytest.raises(TypeError, match="has no data"):
        popsr.variable(popsr.constant(1.0))


def test_torch_data() -> None:
    torch = pytest.importorskip("torch")
    program = Counter()
    with program.session() as session:
        session.run({program.x: torch.tensor([1.0, 2.0], requires_grad=True)})
        assert session.get_tensor_data(program.v).tolist() == [2, 4]
    with popsr.Ir().main_graph:
        assert popsr.constant(torch.tensor([1.0, 3.0], dtype=torch.bfloat16)).dtype is popsr.bfloat16


# Operators

OPERATORS: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array]]] = {
    "add": (lambda t: t + 1, lambda a: a + 1),
    "radd": (lambda t: np.array([1, 2], np.float32) + t, lambda a: np.array([1, 2], np.float32) + a),
    "sub": (lambda t: t - t / 4, lambda a: a - a / 4),
    "rsub": (lambda t: 1 - t, lambda a: 1 - a),
    "rdiv": (lambda t: 2 / t, lambda a: 2 / a),
    "pow": (lambda t: t**2, lambda a: a**2),
    "negate": (lambda t: -t * 3, lambda a: -a * 3),
    "matmul": (lambda t: t @ t, lambda a: a @ a),
    "last": (lambda t: t[-1], lambda a: a[-1]),
    "first": (lambda t: t[0], lambda a: a[0]),
    "slice": (lambda t: t[-2:-1], lambda a: a[-2:-1]),
    "reverse": (lambda t: t[::-1], lambda a: a[::-1].copy()),
    "transpose": (lambda t: t.T, lambda a: a.T),
    "reshape": (lambda t: t.reshape((2, 1)).flatten(), lambda a: a),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str) -> None:
    build, expected = OPERATORS[name]
    data = np.array([2, 4], np.float32)
    ir = popsr.Ir()
    io = Streams()
    with ir.main_graph, popsr.in_sequence():
        io.fetch(build(io.feed(data)))
    with popsr.Session(ir) as session:
        assert_same_bits(io.run(session)[0], np.asarray(expected(data), np.float32))


def test_tensors_are_not_containers() -> None:
    with popsr.Ir().main_graph:
        t, scalar = popsr.constant([1.0, 2.0]), popsr.constant(1.0)
        assert len(t) == 2
        assert (t == t, t == scalar, t != scalar) == (True, False, True)
        assert (t.rank, t.nelms, t.strides()) == (1, 2, (4,))
        with pytest.raises(ValueError, match="a scalar has no length"):
            len(scalar)
        for call in (
            lambda: iter(t),
            lambda: 1.0 in t,
            lambda: t[True],
            lambda: unchecked(t)["a"],
            lambda: unchecked(t)[1.0],
        ):
            with pytest.raises(TypeError):
                call()
        original = t2 = ops.add(t, t)
        t2 += 1.0
        assert t2 is original
        with pytest.raises(ValueError, match="inverted"):
            t[1:0]
        with pytest.raises((IndexError, ValueError)):
            t[5]
