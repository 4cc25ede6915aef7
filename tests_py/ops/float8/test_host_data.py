"""float8 as host data of programs, and float8 and complex numbers as dtype objects."""

from __future__ import annotations

import io as text_io
from collections.abc import Callable
from contextlib import redirect_stderr
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import dtypes, errors, ops
from popsr.ops import var_updates
from tests_py.support.helpers import (
    ALL_DTYPES,
    FLOAT8,
    Array,
    assert_same_bits,
    codes,
    dtype,
    np_dtype,
    plain,
)
from tests_py.support.oracles.float8 import nearest
from tests_py.support.unchecked import unchecked

F8, F8W = popsr.float8_143, popsr.float8_152
NUMBERS = (np.random.default_rng(3).standard_normal((3, 50)) * 4).astype(np.float32)


def all_codes(name: str) -> Array:
    """All 256 codes as host data."""
    return np.arange(256, dtype=np.uint8).view(dtype(name).as_numpy())


# Host data


@pytest.mark.parametrize("name", FLOAT8)
@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64, np_dtype("bfloat16")])
def test_variables_and_constants_of_floats(name: str, source: Any) -> None:
    x = (NUMBERS * 40).astype(source)
    ir = popsr.Ir()
    with ir.main_graph:
        made = [
            popsr.variable(x, dtype(name)),
            popsr.variable(x, dtype(name), log2_scale=3),
            popsr.constant(x, dtype(name), log2_scale=6, nan_on_overflow=False),
        ]
        for tensor in made:
            ops.host_store(popsr.d2h_stream(tensor.shape, tensor.dtype), tensor)
    with popsr.Session(ir) as session:
        got = [session.get_tensor_data(unchecked(tensor)) for tensor in made]
        stored = session.run()
    wide = x.astype(np.float64)
    expected = [
        nearest(wide, name),
        nearest(wide * 8, name),
        nearest(wide * 64, name, nan_on_overflow=False),
    ]
    for data, expect in zip([*got, *stored.values()], [*expected, *expected], strict=True):
        assert data.dtype == dtype(name).as_numpy()
        assert np.array_equal(codes(data), expect)


@pytest.mark.parametrize("name", FLOAT8)
def test_host_data_of_float8_keeps_its_bits(name: str) -> None:
    """Structured, of ml_dtypes, and of torch; through variables, streams, and writing."""
    data = all_codes(name)
    given: list[Any] = [data, data.view(np_dtype(name)), data[::-1][::-1]]
    for array in given:
        ir = popsr.Ir()
        with ir.main_graph:
            inferred = popsr.variable(array)
            assert inferred.dtype is dtype(name)
            assert popsr.variable(array, dtype(name), log2_scale=5).dtype is dtype(name), (
                "kept, whatever the scale"
            )
            constant = popsr.constant(array, dtype(name))
            stream = popsr.h2d_stream((256,), dtype(name))
            loaded = ops.host_load(stream)
            out = popsr.d2h_stream((256,), dtype(name))
            ops.host_store(out, loaded)
            var_updates.copy_var_update_(inferred, constant)
        with popsr.Session(ir) as session:
            theirs = np.zeros(256, np_dtype(name))
            session.run_with_outputs({stream: array}, {out: theirs})
            assert_same_bits(theirs, data)
            results = session.run({stream: array})[out]
            assert results.dtype == dtype(name).as_numpy()
            session.write_variable_data(inferred, array)
            for got in (results, session.get_tensor_data(inferred), session.get_tensor_data(constant)):
                assert np.array_equal(codes(got), np.arange(256))


def test_an_iterator_over_groups() -> None:
    rows = [NUMBERS, NUMBERS * 2]
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        v = popsr.variable(iter(rows), F8, replica_grouping=ir.replica_grouping(1, 1), log2_scale=1)
        ops.identity(v)
    assert v.shape == NUMBERS.shape
    with popsr.Session(ir) as session:
        got = session.get_tensor_data(v)["float8_143"]
    assert np.array_equal(got, nearest(np.stack(rows).astype(np.float64) * 2, "float8_143"))


def test_numbers_of_the_data_by_view() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        v = popsr.variable(np.array([0.5, -3.0], np.float32), F8)
        ops.identity(v)
    with popsr.Session(ir) as session:
        assert session.get_tensor_data(v).view(F8.as_ml_dtypes()).astype(np.float32).tolist() == [0.5, -3.0]


BAD_DATA: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    (
        "ints",
        lambda: popsr.variable([1, 2], F8),
        TypeError,
        "float8_143 of other data than floats, got int64",
    ),
    ("bools", lambda: popsr.constant(np.zeros(2, bool), F8), TypeError, "other data than floats, got bool"),
    (
        "other",
        lambda: popsr.variable(all_codes("float8_152"), F8),
        TypeError,
        "other data than floats, got .*float8_152",
    ),
    (
        "wider",
        lambda: popsr.variable(all_codes("float8_152"), popsr.float32),
        TypeError,
        "has no plain conversion, got fl",
    ),
    (
        "scale",
        lambda: popsr.variable(NUMBERS, popsr.float32, log2_scale=0),
        RuntimeError,
        "float8 types only, got 0",
    ),
    (
        "inferred",
        lambda: popsr.constant(NUMBERS, nan_on_overflow=True),
        RuntimeError,
        "float8 types only, got None an",
    ),
    (
        "fraction",
        lambda: popsr.variable(NUMBERS, F8, log2_scale=unchecked(0.5)),
        TypeError,
        "log2_scale is not an int, got 0.5",
    ),
    (
        "structured",
        lambda: popsr.constant(all_codes("float8_143")),
        TypeError,
        "structured data without dtype, got",
    ),
    ("operand", lambda: popsr.constant(NUMBERS, F8) + 1, TypeError, "operand: float8_143 of other data"),
    (
        "complex",
        lambda: popsr.variable(np.zeros(2, complex)),
        TypeError,
        "no supported dtype, got complex128",
    ),
    ("to-complex", lambda: popsr.variable([1.0], popsr.complex64), TypeError, "not complex, got complex64"),
    (
        "stream",
        lambda: popsr.h2d_stream((2,), popsr.complex64),
        TypeError,
        "h2d_stream: tensors are not complex",
    ),
    (
        "spec",
        lambda: popsr.TensorSpec((2,), popsr.complex128),
        TypeError,
        "TensorSpec: tensors are not complex",
    ),
    (
        "init",
        lambda: ops.init((2,), popsr.complex64),
        TypeError,
        "init: tensors are not complex, got complex64",
    ),
    ("buffer", lambda: popsr.remote_buffer((2,), popsr.complex64), TypeError, "tensors are not complex"),
]


@pytest.mark.parametrize(
    ("call", "error", "message"), [b[1:] for b in BAD_DATA], ids=[b[0] for b in BAD_DATA]
)
def test_bad_data(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with popsr.Ir().main_graph, pytest.raises(error, match=message) as caught:
        call()
    assert isinstance(caught.value, errors.Error)


def test_data_of_sessions_is_float8_or_refused() -> None:
    """Numbers and other dtypes are not converted behind the caller's back: they need a scale."""
    ir = popsr.Ir()
    with ir.main_graph:
        v = popsr.variable(np.zeros(2, np.float32), F8)
        stream = popsr.h2d_stream((2,), F8)
        out = popsr.d2h_stream((2,), F8)
        ops.host_store(out, ops.concat([ops.host_load(stream), v])[:2])
    with popsr.Session(ir) as session:
        for bad in ([1.0, 2.0], np.zeros(2, np.float32), all_codes("float8_152")[:2]):
            with pytest.raises(
                errors.DTypeError, match=r"write_variable_data: dtypes differ for .* expected float8_143"
            ):
                session.write_variable_data(v, bad)
            with pytest.raises(
                errors.DTypeError, match=r"run: dtypes differ for stream .* expected .*float8_143"
            ):
                session.run({stream: bad})
        for other in (np.uint8, np_dtype("float8_152")):
            with pytest.raises(errors.DTypeError, match=r"run_with_outputs: dtypes differ"):
                session.run_with_outputs({stream: all_codes("float8_143")[:2]}, {out: np.zeros(2, other)})


def test_memory_mapped_float8(tmp_path: Any) -> None:
    mapped = np.memmap(tmp_path / "w", F8.as_numpy(), "w+", shape=(256,))
    mapped["float8_143"] = np.arange(256)
    ir = popsr.Ir()
    with ir.main_graph:
        v = popsr.variable(mapped)
        var_updates.copy_var_update_(v, popsr.constant(all_codes("float8_143")[::-1], F8))
        with pytest.raises(
            ValueError, match="When passing a memory-mapped NumPy array, dtype must be None or the array's"
        ):
            popsr.variable(mapped, F8W)
        with pytest.raises(
            ValueError, match="When passing a memory-mapped NumPy array, dtype must be None or the array's"
        ):
            popsr.variable(np.memmap(tmp_path / "x", np.float32, "w+", shape=(2,)), F8)
    with popsr.Session(ir) as session:
        session.run()
        assert session.get_tensor_data(v) is mapped
    assert np.array_equal(mapped["float8_143"], np.arange(256)[::-1])


def test_printing_shows_numbers() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        ops.print_tensor(popsr.constant(np.array([0.5, -240.0, np.inf], np.float32), F8), title="x")
    err = text_io.StringIO()
    with popsr.Session(ir) as session, redirect_stderr(err):
        session.run()
    title, *elements = err.getvalue().replace("[", " ").replace("]", " ").split()
    assert (title, [float(x) for x in elements[:2]], elements[2:]) == ("x:", [0.5, -240.0], ["nan"])


# Dtype objects


def test_float8_and_complex_as_dtypes() -> None:
    assert F8.as_numpy() == dtypes.np_dtype_float8_143 == np.dtype([("float8_143", "u1")])
    assert F8W.as_numpy() == dtypes.np_dtype_float8_152 == np.dtype([("float8_152", "u1")])
    for name in FLOAT8:
        kind = dtype(name)
        assert (kind.is_floating_point, kind.is_signed, kind.is_int, kind.is_complex) == (
            True,
            True,
            False,
            False,
        )
        for alias in (
            name,
            kind.as_numpy(),
            kind.as_ml_dtypes(),
            np.zeros(1, kind.as_numpy()),
            np_dtype(name).name,
        ):
            assert dtypes.dtype.as_dtype(alias) is kind
        assert repr(kind) == f"popsr.dtypes.{name}"
    for kind, plain_type in ((popsr.complex64, np.complex64), (popsr.complex128, np.complex128)):
        assert (kind.is_complex, kind.is_floating_point, kind.is_signed, kind.is_int) == (
            True,
            False,
            True,
            False,
        )
        assert kind.as_numpy() == plain_type
        assert dtypes.dtype.as_dtype(plain_type) is kind
        assert dtypes.dtype.from_name(kind.name) is kind
    assert dtypes.dtype.as_dtype(complex) is popsr.complex128
    for kind in (popsr.float32, popsr.bfloat16, popsr.int8):
        assert kind.as_ml_dtypes() == kind.as_numpy()
    assert plain(all_codes("float8_143")).dtype == np_dtype("float8_143")


def test_lists_of_dtypes() -> None:
    from popsr.testing._dtypes import get_all_dtypes, get_all_int_dtypes

    every = get_all_dtypes()
    assert len(every) == len(set(every))
    others = {popsr.complex64, popsr.complex128, popsr.float8_e8m0fnu, popsr.float4_e2m1fn}
    assert {dtype(name) for name in ALL_DTYPES} | others == set(every)
    signed, unsigned = get_all_int_dtypes(True, False), get_all_int_dtypes(False)
    assert [kind.name for kind in signed] == ["int8", "int16", "int32", "int64"]
    assert [kind.name for kind in unsigned] == ["uint8", "uint16", "uint32", "uint64"]
    assert set(get_all_int_dtypes()) == {*signed, *unsigned}
    assert get_all_int_dtypes(False, False) == []


@pytest.mark.parametrize("name", FLOAT8)
def test_weights_are_read_and_written_in_either_kind_of_array(name: str) -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        v = popsr.variable(all_codes(name), name="v")
        ops.identity(v)
    with popsr.Session(ir) as session:
        for kind in (dtype(name).as_numpy(), np_dtype(name)):
            buffer = np.zeros(256, kind)
            session.weights_to_host()
            session.read_weights(popsr.io.PyWeightsIO({v: buffer}))
            assert_same_bits(buffer, session.get_tensor_data(v))
            session.write_weights(popsr.io.PyWeightsIO({v: buffer[::-1]}))
            assert_same_bits(session.get_tensor_data(v), buffer[::-1])
        with pytest.raises(errors.DTypeError, match="dtypes differ for 'v', got uint8, expected float8"):
            session.read_weights(popsr.io.PyWeightsIO({v: np.zeros(256, np.uint8)}))
