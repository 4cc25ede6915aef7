"""Arrays in and out: the kind that comes in comes back, zero-copy where it can be, and ``out`` is the caller's."""

from __future__ import annotations

import array
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import popsr
from popsr import errors, sr
from tests_py.sr.cases import NAMES, from_bits, np_dtype, operand_bits, raw_dtype, to_bits
from tests_py.support.unchecked import unchecked

KEY = sr.Key(12)
BF16 = ml_dtypes.bfloat16


def pair(name: Any, n: Any = 200) -> Any:
    return tuple(
        from_bits(column, name) for column in operand_bits((name, name), n, np.random.default_rng(0))
    )


def torch_or_skip() -> Any:
    return pytest.importorskip("torch")


def to_torch(array: Any) -> Any:
    torch = torch_or_skip()
    name = array.dtype.name
    if not hasattr(torch, name):
        pytest.skip(f"this torch has no {name}")
    if array.dtype.kind == "f" and array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    integers = array.view(np.int16 if array.itemsize == 2 else np.uint8)
    return torch.from_numpy(integers).view(getattr(torch, name))


def from_torch(tensor: Any, name: Any) -> Any:
    torch = torch_or_skip()
    assert str(tensor.dtype) == f"torch.{name}"
    size = tensor.element_size()
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    return tensor.detach().contiguous().view(integers).numpy().view(np_dtype(name))


# NumPy and ml_dtypes


@pytest.mark.parametrize("name", NAMES)
def test_numpy(name: Any) -> None:
    x, y = pair(name)
    got = sr.add(x, y, key=KEY)
    assert type(got) is np.ndarray
    assert got.dtype == x.dtype
    assert got.flags.c_contiguous
    assert got.flags.writeable
    assert not np.shares_memory(got, x)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("spelling", ["name", "numpy", "type", "torch", "popsr"])
def test_spellings_of_dtypes(name: Any, spelling: Any) -> None:
    if spelling == "torch":
        dtype = getattr(torch_or_skip(), name, None)
        if dtype is None:
            pytest.skip(f"this torch has no {name}")
    elif spelling == "popsr":
        if name in ("float8_e4m3fn", "float8_e5m2"):
            pytest.skip("popsr.dtypes has the 8-bit floats without infinities alone")
        dtype = popsr.dtypes.dtype.as_dtype(np_dtype(name))
    else:
        dtype = {"name": name, "numpy": np_dtype(name), "type": np_dtype(name).type}[spelling]
    x = np.linspace(-2, 2, 50)
    assert sr.cast(x, dtype, key=KEY).tobytes() == sr.cast(x, name, key=KEY).tobytes()
    assert sr.sum(x, dtype, key=KEY).dtype == np_dtype(name)
    assert popsr.StochasticAdder(dtype, 1).dtype == name


def test_short_names_of_dtypes() -> None:
    short = {
        "bf16": "bfloat16",
        "fp16": "float16",
        "half": "float16",
        "e4m3fn": "float8_e4m3fn",
        "fp64": "float64",
    }
    for alias, name in short.items():
        assert sr.cast(np.ones(2), alias, key=KEY).dtype == np_dtype(name)
    assert sr.cast(np.ones(2), float, key=KEY).dtype == np.float64


@pytest.mark.parametrize("name", [n for n in NAMES if raw_dtype(n).itemsize <= 2])
def test_raw_buffers(name: Any) -> None:
    x, y = pair(name)
    raw_x, raw_y = (a.view(raw_dtype(name)) for a in (x, y))
    expect = to_bits(sr.add(x, y, key=KEY), name)
    got = sr.add(raw_x, raw_y, key=KEY, dtype=name)
    assert got.dtype == raw_dtype(name)
    assert to_bits(got.view(x.dtype), name) == expect
    assert to_bits(sr.add(x, raw_y, key=KEY, dtype=name), name) == expect
    out = np.empty_like(raw_x)
    assert sr.add(x, y, key=KEY, dtype=name, out=out) is out
    assert to_bits(out.view(x.dtype), name) == expect
    assert sr.add_(raw_x, raw_y, key=KEY, dtype=name) is raw_x
    assert to_bits(x, name) == expect
    wide = np.full(len(y), 2.0**-20)
    assert sr.add(raw_y, wide, key=KEY, dtype=name).tobytes() == sr.add(y, wide, key=KEY).tobytes()
    assert sr.add(wide, raw_y, key=KEY, dtype=name).tobytes() == sr.add(wide, y, key=KEY).tobytes()
    target = np.empty(len(wide), raw_dtype(name))
    assert sr.cast(wide, name, key=KEY, out=target) is target
    assert target.tobytes() == sr.cast(wide, name, key=KEY).tobytes()
    assert sr.sum(raw_y[:9], name, key=KEY).tobytes() == sr.sum(y[:9], key=KEY).tobytes()


def test_scalars_and_python_numbers() -> None:
    x = np.ones(4, BF16)
    assert np.all(sr.add(x, 1, key=KEY).astype(float) == 2)
    assert np.all(sr.add(x, 0.5, key=KEY).astype(float) == 1.5)
    assert np.all(sr.add(x, np.float32(0.5), key=KEY).astype(float) == 1.5)
    got = sr.add(np.float32(1), 2.0, key=KEY)
    assert unchecked((type(got), got)) == (np.float32, 3)
    assert type(sr.add(1.0, 2.0, key=KEY)) is np.float64
    assert sr.cast(1 + 2.0**-20, "bfloat16", key=KEY, mode="rz") == BF16(1)
    zero_d = sr.add(np.array(1, BF16), np.array(2, BF16), key=KEY)
    assert (type(zero_d), zero_d.shape, float(zero_d)) == (np.ndarray, (), 3)


def test_whatever_has_a_buffer() -> None:
    floats = array.array("f", [1, 2, 3])
    assert sr.add(memoryview(floats), floats, key=KEY).tolist() == [2, 4, 6]
    out = array.array("f", [0, 0, 0])
    assert sr.add(floats, floats, key=KEY, out=out) is out
    assert out.tolist() == [2, 4, 6]
    raw = bytearray(np.ones(3, BF16).tobytes())
    got = sr.add(np.frombuffer(raw, np.uint16), np.ones(3, BF16), key=KEY, dtype="bfloat16")
    assert np.all(got.view(BF16).astype(float) == 2)


class ByDlpack:
    """An array that speaks nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class ByArray:
    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


@pytest.mark.parametrize("wrapper", [ByDlpack, ByArray])
@pytest.mark.parametrize("name", ["float64", "float32", "float16"])
def test_protocols(wrapper: Any, name: Any) -> None:
    x, y = pair(name)
    got = sr.add(wrapper(x), wrapper(y), key=KEY)
    assert to_bits(got, name) == to_bits(sr.add(x, y, key=KEY), name)
    if wrapper is ByArray:
        out = np.zeros_like(x)
        unchecked(sr.add)(x, y, key=KEY, out=wrapper(out))
        assert to_bits(out, name) == to_bits(got, name)


# Torch


@pytest.mark.parametrize("name", NAMES)
def test_torch(name: Any) -> None:
    torch = torch_or_skip()
    x, y = pair(name)
    expect = to_bits(sr.add(x, y, key=KEY), name)
    tx, ty = to_torch(x.copy()), to_torch(y.copy())
    got = sr.add(tx, ty, key=KEY)
    assert isinstance(got, torch.Tensor)
    assert got.shape == tx.shape
    assert to_bits(from_torch(got, name), name) == expect
    out = torch.empty_like(tx)
    assert sr.add(tx, ty, key=KEY, out=out) is out
    assert to_bits(from_torch(out, name), name) == expect
    address = tx.data_ptr()
    assert sr.add_(tx, ty, key=KEY) is tx
    assert tx.data_ptr() == address
    assert to_bits(from_torch(tx, name), name) == expect
    assert to_bits(from_torch(sr.cast(ty, name, key=KEY), name), name) == to_bits(y, name)


@pytest.mark.parametrize("name", NAMES)
def test_torch_views(name: Any) -> None:
    x, y = pair(name)
    n = len(x) // 6 * 6
    x, y = x[:n].reshape(6, -1), y[:n].reshape(6, -1)
    tx, ty = to_torch(np.ascontiguousarray(x.T)).T, to_torch(np.repeat(y, 2, axis=1))[:, ::2]
    expect = to_bits(sr.add(x, y, key=KEY), name)
    assert to_bits(from_torch(sr.add(tx, ty, key=KEY), name), name) == expect
    assert to_bits(from_torch(sr.add_(tx, ty, key=KEY), name), name) == expect
    zero_d = sr.add(tx[0, 0], ty[0, 0], key=KEY)
    assert zero_d.shape == ()
    expanded = ty[:1].expand(6, -1)
    assert to_bits(from_torch(sr.add(expanded, ty, key=KEY), name), name) == to_bits(
        sr.add(np.broadcast_to(y[:1], y.shape), y, key=KEY), name
    )
    assert sr.add(tx[:0], ty[:0], key=KEY).shape == (0, x.shape[1])


def test_torch_parameters_are_updated_and_autograd_knows() -> None:
    torch = torch_or_skip()
    w = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    version = w._version
    assert sr.add_(w, torch.full((4,), 0.5), key=KEY) is w
    assert w.tolist() == [1.5] * 4
    assert w.requires_grad
    assert w._version > version
    saved = torch.ones(3, requires_grad=True)
    y = (saved * saved).sum()
    sr.add_(saved, torch.ones(3), key=KEY)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
    fresh = sr.add(w, w, key=KEY)
    assert not fresh.requires_grad
    with torch.inference_mode():
        sr.add_(torch.ones(3), torch.ones(3), key=KEY)


def test_torch_raw_buffers_and_mixed_kinds() -> None:
    torch = torch_or_skip()
    x, y = pair("bfloat16")
    expect = sr.add(x, y, key=KEY).view(np.uint16)
    raw = torch.from_numpy(x.view(np.uint16).copy())
    got = sr.add(raw, to_torch(y.copy()), key=KEY, dtype=torch.bfloat16)
    assert got.dtype == torch.uint16
    assert np.array_equal(got.numpy(), expect)
    assert sr.add(to_torch(x.copy()), y, key=KEY).dtype == torch.bfloat16
    assert sr.add(x, to_torch(y.copy()), key=KEY).dtype == BF16


def test_torch_sum_and_bracket() -> None:
    torch = torch_or_skip()
    x = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    assert sr.sum(x, key=KEY, axis=0).tolist() == [12, 15, 18, 21]
    assert sr.sum(x, torch.bfloat16, key=KEY).dtype == torch.bfloat16
    low, high, p = sr.bracket(torch.ones(2, dtype=torch.bfloat16), torch.tensor([2.0**-9, 0]))
    assert low.tolist() == [1, 1]
    assert high.tolist() == [1 + 2.0**-7, 1]
    assert p.tolist() == [0.25, 0]


def test_torch_refuses_what_has_no_memory_here() -> None:
    torch = torch_or_skip()
    for bad in (
        torch.ones(3, device="meta"),
        torch.ones(3).to_sparse(),
        torch.imag(torch.ones(3, dtype=torch.complex64).conj()),
    ):
        with pytest.raises(errors.UnsupportedError, match=r"^add: x is "):
            sr.add(bad, np.ones(3, np.float32), key=KEY)
    with pytest.raises(errors.DTypeError, match=r"^add: x has no supported dtype, got torch\.int64"):
        sr.add(torch.arange(3), torch.arange(3), key=KEY)
    w = torch.zeros(1, dtype=torch.bfloat16).expand(4)
    with pytest.raises(ValueError, match="elements of w overlap each other"):
        sr.add_(w, torch.ones(4), key=KEY)
    assert w.tolist() == [0] * 4


# Jax


@pytest.mark.parametrize("name", [n for n in NAMES if n != "float64"])
def test_jax(name: Any) -> None:
    jax = pytest.importorskip("jax")
    x, y = pair(name)
    jx, jy = jax.device_put(x), jax.device_put(y)
    got = sr.add(jx, jy, key=KEY)
    assert isinstance(got, jax.Array)
    assert got.dtype == x.dtype
    assert to_bits(np.asarray(got), name) == to_bits(sr.add(x, y, key=KEY), name)
    assert sr.cast(jx, jax.numpy.bfloat16, key=KEY).dtype == BF16
    with pytest.raises(errors.ArgumentTypeError, match="out is immutable"):
        sr.add(jx, jy, key=KEY, out=jx)


# Imports


def test_no_library_is_imported_that_the_user_has_not_imported() -> None:
    program = (
        "import sys, popsr; sys.exit(any(name in sys.modules for name in ('torch', 'jax', 'matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
