"""Ten paths of arrays into popsr and out of it. Each checks one dtype bitwise."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import popsr
from popsr import io, ops, sr
from tests_py.support.helpers import Array

__all__ = ["CARRIERS", "DTYPES", "PATHS", "DLPackOnly", "bits_of", "numpy_of", "sample", "sr_result"]

DTYPES = [
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn",
]
CARRIERS = DTYPES[-2:]
KEY = sr.Key(3)


def numpy_of(name: str) -> np.dtype[Any]:
    """NumPy's or ml_dtypes' type."""
    return np.dtype(getattr(ml_dtypes, name, name))


def bits_of(array: Array) -> Array:
    """The bits of an array of any dtype."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)


def sample(name: str) -> Array:
    """Values that every dtype has, 2 x 4 of them."""
    return np.array([[1, 2, 0.5, 4], [2, 2, 1, 4]], np.float32).astype(numpy_of(name))


def expected_result(name: str) -> Array:
    """The result of ``sr_result`` for the sample: doubled where that is arithmetic."""
    x = sample(name)
    return x if name in CARRIERS else (x.astype(np.float32) * 2).astype(x.dtype)


def sr_result(x: Any, name: str, **options: Any) -> Any:
    """``x + x``; a carrier goes to float32 and back, and its arithmetic is refused."""
    if name not in CARRIERS:
        return sr.add(x, x, key=KEY, **options)
    with pytest.raises(popsr.errors.DTypeError, match=r"no arithmetic.*popsr\.sr\.cast"):
        sr.add(x, x, key=KEY)
    return sr.cast(sr.cast(x, np.float32, key=KEY), name, key=KEY, mode="rn")


def check(got: Any, want: Array) -> None:
    """The same type, shape and bits."""
    assert type(got) is np.ndarray
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(bits_of(got), bits_of(want))


def check_program(data: Any, want: Array, told: popsr.dtype | None = None) -> None:
    """A variable and a stream of the data, and what comes back."""
    dtype = popsr.dtype.as_dtype(want.dtype)
    ir = popsr.Ir()
    with ir.main_graph:
        variable = popsr.variable(data, told, name="v")
        stream = popsr.h2d_stream(want.shape, dtype)
        out = popsr.d2h_stream(want.shape, dtype)
        ops.host_store(out, ops.host_load(stream))
    with popsr.Session(ir) as session:
        outputs = session.run({stream: data})
        assert variable.dtype is dtype
        for got in (session.get_tensor_data(variable), outputs[out]):
            assert got.dtype == dtype.as_numpy()
            check(got.view(dtype.as_ml_dtypes()), want)


def _numpy(name: str, _: Path) -> None:
    check(sr_result(sample(name), name), expected_result(name))
    check_program(sample(name), sample(name))


def to_torch(x: Array) -> Any:
    """The tensor of torch; of 4-bit floats pairs."""
    torch = pytest.importorskip("torch")
    return torch.from_dlpack(popsr.to_dlpack(x, lanes=2 if x.dtype.name == "float4_e2m1fn" else 1))


def _torch(name: str, _: Path) -> None:
    tensor = to_torch(sample(name))
    assert str(tensor.dtype).startswith(f"torch.{name}")
    result = sr_result(tensor, name)
    assert result.dtype == tensor.dtype
    check(popsr.from_dlpack(result), expected_result(name))
    check_program(tensor, sample(name))


def _jax(name: str, _: Path) -> None:
    jnp = pytest.importorskip("jax.numpy")
    x = jnp.asarray(sample(name))
    result = sr_result(x, name)
    assert result.dtype == x.dtype
    assert type(result) is type(x)
    check(np.asarray(result), expected_result(name))
    check_program(x, sample(name))


def view_of(array: Any) -> memoryview:
    """The buffer of an array."""
    return memoryview(array)


def _buffer(name: str, _: Path) -> None:
    """Bits as a memoryview, with the dtype told."""
    x = sample(name)
    if name in CARRIERS:
        told = popsr.dtype.as_dtype(name)
        ir, variable = program_of(view_of(bits_of(x)), "v", told)
        with popsr.Session(ir) as session:
            check(session.get_tensor_data(variable), x)
    elif hasattr(ml_dtypes, name):
        got = sr.add(view_of(bits_of(x)), view_of(bits_of(x)), key=KEY, dtype=name)
        check(np.asarray(got).view(x.dtype), expected_result(name))
    else:
        check(sr_result(view_of(x), name), expected_result(name))


class DLPackOnly:
    """An object with nothing but ``__dlpack__``."""

    def __init__(self, x: Any) -> None:
        self._x = x

    def __dlpack__(self, **options: Any) -> Any:
        return self._x.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self._x.__dlpack_device__()
        return device


def _dlpack_in(name: str, _: Path) -> None:
    x = sample(name)
    for producer in (popsr.to_dlpack(x), to_torch(x), pytest.importorskip("jax.numpy").asarray(x)):
        check(sr_result(DLPackOnly(producer), name), expected_result(name))
        check_program(DLPackOnly(producer), x)


def _dlpack_out(name: str, _: Path) -> None:
    x = sample(name)
    result = sr_result(x, name)
    check(popsr.from_dlpack(popsr.to_dlpack(result)), expected_result(name))
    check(popsr.from_dlpack(to_torch(result)), expected_result(name))
    jax = pytest.importorskip("jax")
    if name != "float4_e2m1fn":  # which JAX exports and does not import
        check(np.asarray(jax.dlpack.from_dlpack(popsr.to_dlpack(result))), expected_result(name))


class ArrayOnly:
    """An object with nothing but ``__array__``."""

    def __init__(self, x: Array) -> None:
        self._x = x

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self._x


def _array(name: str, _: Path) -> None:
    check(sr_result(ArrayOnly(sample(name)), name), expected_result(name))
    check_program(ArrayOnly(sample(name)), sample(name))


def program_of(x: Any, name: str, told: popsr.dtype | None = None) -> tuple[popsr.Ir, popsr.Variable]:
    """A program with one variable."""
    ir = popsr.Ir()
    with ir.main_graph:
        variable = popsr.variable(x, told, name)
        ops.host_store(popsr.d2h_stream(variable.shape, variable.dtype), variable)
    return ir, variable


def _safetensors(name: str, folder: Path) -> None:
    """popsr to torch, torch to popsr, into a session."""
    torch, safetensors = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    x, path = sample(name), folder / "x.safetensors"
    io.save_safetensors(program_of(x, "w")[0], path)
    check(io.load_safetensors(path)["w"].view(x.dtype), x)
    if name != "float4_e2m1fn":  # which safetensors' own reader does not know
        tensor = safetensors.load_file(path)["w"]
        assert torch.equal(tensor.view(torch.uint8), to_torch(x).view(torch.uint8))
    safetensors.save_file({"w": to_torch(x)}, path)
    check(io.load_safetensors(path)["w"], x)
    ir, variable = program_of(np.zeros_like(x), "w")
    with popsr.Session(ir) as session:
        session.reset_host_weights(path)
        check(session.get_tensor_data(variable).view(x.dtype), x)


def _onnx(name: str, folder: Path) -> None:
    """popsr to onnx, onnx to popsr."""
    onnx = pytest.importorskip("onnx")
    x, path = sample(name), folder / "x.onnx"
    io.save_onnx(program_of(x, "w")[0], path)
    check(io.load_onnx(path)["w"].view(x.dtype), x)
    model = onnx.load(path)
    check(onnx.numpy_helper.to_array(model.graph.initializer[0]), x)
    for tensor in (
        onnx.numpy_helper.from_array(x, "w"),
        onnx.helper.make_tensor("w", model.graph.initializer[0].data_type, x.shape, x.astype(np.float32)),
    ):
        graph = onnx.helper.make_graph([], "g", [], [], initializer=[tensor])
        onnx.save(onnx.helper.make_model(graph), path)
        check(io.load_onnx(path)["w"], x)


def _pickle(name: str, _: Path) -> None:
    result = sr_result(sample(name), name)
    for again in (pickle.loads(pickle.dumps(result)), copy.copy(result), copy.deepcopy(result)):
        check(again, expected_result(name))
    dtype = popsr.dtype.as_dtype(name)
    assert pickle.loads(pickle.dumps(dtype)) is dtype


PATHS: dict[str, Callable[[str, Path], None]] = {
    "NumPy and ml_dtypes": _numpy,
    "torch": _torch,
    "JAX": _jax,
    "buffer with `dtype`": _buffer,
    "DLPack in": _dlpack_in,
    "DLPack out": _dlpack_out,
    "`__array__`": _array,
    "safetensors": _safetensors,
    "ONNX": _onnx,
    "pickle and copy": _pickle,
}
