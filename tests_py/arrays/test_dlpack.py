"""DLPack both ways: every dtype, strides, offsets, flags, ownership; hostile capsules are refused and left alone."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import errors, ops, sr
from tests_py.arrays.capsules import Producer, facts, used
from tests_py.arrays.paths import DTYPES, bits_of, numpy_of, sample
from tests_py.support.helpers import Array

KEY = sr.Key(1)
F32, BF16, FP4 = (2, 32, 1), (4, 16, 1), (17, 4, 1)
CODES = [(0, 32), (2, 32), (2, 16), (4, 16), (10, 8), (11, 8), (12, 8), (13, 8), (14, 8)]
NAMES = ["int32", *DTYPES[:-1]]

Views = tuple[tuple[int, ...], tuple[int, ...], int]


@st.composite
def views(draw: st.DrawFn) -> Views:
    """Shape, strides and offset in elements of views of 64 elements."""
    rank = draw(st.integers(0, 4))
    shape = tuple(draw(st.integers(0, 3)) for _ in range(rank))
    strides = tuple(draw(st.integers(-5, 5)) for _ in range(rank))
    low = sum(min(stride * (extent - 1), 0) for stride, extent in zip(strides, shape, strict=True) if extent)
    high = sum(max(stride * (extent - 1), 0) for stride, extent in zip(strides, shape, strict=True) if extent)
    return shape, strides, draw(st.integers(-low, 63 - high))


@given(views(), st.integers(0, len(CODES) - 1), st.booleans())
@settings(deadline=None, max_examples=150)
def test_views_in(view: Views, which: int, versioned: bool) -> None:
    shape, strides, offset = view
    code, bits = CODES[which]
    memory = np.arange(64 * bits // 8, dtype=np.uint8)
    size = bits // 8
    producer = Producer(memory, (code, bits, 1), shape, strides, offset=offset * size, versioned=versioned)
    got = popsr.from_dlpack(producer)
    index = np.zeros(shape, np.int64)
    for axis, stride in enumerate(strides):
        index += (np.arange(shape[axis]) * stride).reshape([-1] + [1] * (len(shape) - axis - 1))
    assert got.dtype.name == NAMES[which]
    assert got.shape == shape
    np.testing.assert_array_equal(bits_of(got), memory.view(f"u{size}")[offset + index])
    assert got.flags.writeable == versioned
    assert producer.deleted == 0
    del got
    assert producer.deleted == 1


@given(views(), st.sampled_from(DTYPES[:-1]))
@settings(deadline=None, max_examples=100)
def test_views_out(view: Views, name: str) -> None:
    shape, strides, offset = view
    size = numpy_of(name).itemsize
    memory = np.arange(64 * size, dtype=np.uint8).view(f"u{size}")
    x = np.lib.stride_tricks.as_strided(
        memory[offset:], shape, [stride * size for stride in strides], writeable=True
    ).view(numpy_of(name))
    said = facts(popsr.to_dlpack(x).__dlpack__(max_version=(1, 0)))
    assert said["version"] == (1, 1)
    assert said["flags"] == 0
    assert (said["shape"], said["device"]) == (shape, (1, 0))
    assert said["address"] == x.ctypes.data
    assert said["strides"] == tuple(stride // size for stride in x.strides)
    back = popsr.from_dlpack(popsr.to_dlpack(x))
    assert back.dtype == x.dtype
    np.testing.assert_array_equal(bits_of(back), bits_of(x))


@given(st.lists(st.integers(0, 3), max_size=4), st.data())
@settings(deadline=None, max_examples=60)
def test_views_as_torch_and_numpy_see_them(shape: list[int], data: Any) -> None:
    torch = pytest.importorskip("torch")
    x = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    axes = data.draw(st.permutations(range(len(shape))))
    every_other: Any = (..., *(slice(None, None, 2) for _ in shape))
    x = x.transpose(axes)[every_other]
    np.testing.assert_array_equal(np.from_dlpack(popsr.to_dlpack(x)), x)
    tensor = torch.from_dlpack(popsr.to_dlpack(x))
    np.testing.assert_array_equal(tensor.numpy(), x)
    if x.size:
        assert tensor.data_ptr() == x.ctypes.data
    np.testing.assert_array_equal(popsr.from_dlpack(tensor), x)
    narrow = tensor.to(torch.bfloat16)
    np.testing.assert_array_equal(popsr.from_dlpack(narrow).astype(np.float32), x)


@pytest.mark.parametrize("name", DTYPES)
def test_torch_and_jax_take_and_give_every_dtype(name: str) -> None:
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    x = sample(name)
    tensor = torch.from_dlpack(popsr.to_dlpack(x, lanes=2 if name == "float4_e2m1fn" else 1))
    assert str(tensor.dtype).startswith(f"torch.{name}")
    np.testing.assert_array_equal(bits_of(popsr.from_dlpack(tensor)), bits_of(x))
    array = jax.numpy.asarray(x)
    if name != "float4_e2m1fn":  # which JAX exports and does not import
        array = jax.dlpack.from_dlpack(popsr.to_dlpack(x))
        assert array.dtype == x.dtype
    np.testing.assert_array_equal(bits_of(popsr.from_dlpack(array)), bits_of(x))


# 4-bit floats


def test_packed_float4() -> None:
    codes = np.arange(15, dtype=np.uint8).reshape(3, 5)
    x = codes.view(numpy_of("float4_e2m1fn"))
    said = facts(popsr.to_dlpack(x).__dlpack__(max_version=(1, 1)))
    assert (said["dtype"], said["shape"], said["strides"], said["flags"]) == (FP4, (3, 5), (5, 1), 2)
    np.testing.assert_array_equal(popsr.from_dlpack(popsr.to_dlpack(x)).view(np.uint8), codes)
    pairs = popsr.to_dlpack(x[:, :4], lanes=2)
    assert facts(pairs.__dlpack__())["shape"] == (3, 2)
    np.testing.assert_array_equal(popsr.from_dlpack(pairs).view(np.uint8), codes[:, :4])


@pytest.mark.parametrize(
    ("dtype", "shape", "flags", "want"),
    [
        ((17, 4, 1), (5,), 0, [1, 2, 3, 4, 5]),
        ((17, 4, 1), (0, 3), 0, np.zeros((0, 3))),
        ((17, 4, 2), (3,), 0, [1, 2, 3, 4, 5, 6]),
        ((17, 4, 2), (), 0, [1, 2]),
        ((17, 4, 1), (3,), 4, [0x21, 0x43, 0x65]),
    ],
)
def test_layouts_of_float4(dtype: Any, shape: Any, flags: int, want: Any) -> None:
    producer = Producer(np.array([0x21, 0x43, 0x65], np.uint8), dtype, shape, flags=flags)
    got = popsr.from_dlpack(producer)
    assert got.dtype == numpy_of("float4_e2m1fn")
    np.testing.assert_array_equal(got.view(np.uint8), want)
    del got
    assert producer.deleted == 1


# Flags


def test_read_only_memory_stays_read_only() -> None:
    x = np.ones(3, np.float32)
    x.flags.writeable = False
    said = facts(popsr.to_dlpack(x).__dlpack__(max_version=(1, 0)))
    assert said["flags"] == 1
    assert said["address"] == x.ctypes.data
    assert not popsr.from_dlpack(popsr.to_dlpack(x)).flags.writeable
    # A struct without a version cannot say so: the consumer gets a copy.
    assert facts(popsr.to_dlpack(x).__dlpack__())["address"] != x.ctypes.data
    read_only = popsr.from_dlpack(Producer(np.ones(4, np.float32), F32, (4,), flags=1))
    with pytest.raises(errors.ArgumentTypeError, match="read-only"):
        sr.add_(read_only, read_only, key=KEY)


def test_memory_is_shared_both_ways() -> None:
    x = np.ones(4, numpy_of("bfloat16"))
    y = popsr.from_dlpack(popsr.to_dlpack(x))
    y[1] = 3
    assert x[1] == 3
    sr.add_(y, y, key=KEY)
    assert x.tolist() == [2, 6, 2, 2]


def test_copy() -> None:
    x = np.ones(4, np.float32)
    said = facts(popsr.to_dlpack(x).__dlpack__(max_version=(1, 0), copy=True))
    assert said["flags"] == 2
    assert said["address"] != x.ctypes.data
    assert facts(popsr.to_dlpack(x).__dlpack__(copy=False))["address"] == x.ctypes.data


# Ownership


@pytest.mark.parametrize("versioned", [False, True])
def test_the_deleter_is_called_once(versioned: bool) -> None:
    producer = Producer(np.ones(4, np.float32), F32, (4,), versioned=versioned)
    capsule = producer.capsule()
    array = popsr.from_dlpack(capsule)
    assert used(capsule)
    part = array[1:]
    del array, capsule
    gc.collect()
    assert producer.deleted == 0
    del part
    assert producer.deleted == 1


def test_no_deleter() -> None:
    producer = Producer(np.ones(4, np.float32), F32, (4,), deleter=type(Producer(None, F32, ())._deleter)())
    assert popsr.from_dlpack(producer).sum() == 4


def test_a_capsule_is_consumed_once() -> None:
    capsule = popsr.to_dlpack(np.ones(2, np.float32)).__dlpack__()
    assert popsr.from_dlpack(capsule).shape == (2,)
    with pytest.raises(errors.ArgumentTypeError, match=r"x is not an array.*consumed before"):
        popsr.from_dlpack(capsule)


READS_VERSIONS = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


class Once:
    """Hands over one capsule."""

    def __init__(self, capsule: Any) -> None:
        self._capsules = [capsule]

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsules.pop()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize("max_version", [None, (1, 1)][: 1 + READS_VERSIONS])
def test_exports_keep_the_array_as_long_as_they_live(max_version: Any) -> None:
    x = np.ones(4, np.float32)
    before = sys.getrefcount(x)
    exporter = popsr.to_dlpack(x)
    capsule = exporter.__dlpack__(max_version=max_version)
    unread = exporter.__dlpack__(max_version=max_version)
    y = np.from_dlpack(Once(capsule))
    assert sys.getrefcount(x) > before
    del exporter, capsule, unread
    gc.collect()
    assert sys.getrefcount(x) == before + 1
    del y
    gc.collect()
    assert sys.getrefcount(x) == before


def test_deleters_run_in_any_thread() -> None:
    torch = pytest.importorskip("torch")
    x = np.ones(1000, np.float32)
    before = sys.getrefcount(x)
    held = [[torch.from_dlpack(popsr.to_dlpack(x)) for _ in range(50)] for _ in range(4)]
    threads = [threading.Thread(target=each.clear) for each in held]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert sys.getrefcount(x) == before


def test_a_deleter_during_an_exception_leaves_it() -> None:
    producer = Producer(np.ones(4, np.float32), F32, (4,))

    def fails() -> None:
        array = popsr.from_dlpack(producer)
        raise KeyError(array.size)

    with pytest.raises(KeyError):
        fails()
    gc.collect()
    assert producer.deleted == 1


# Refused

ONES = np.ones(4, np.float32)

HOSTILE: list[tuple[str, dict[str, Any], type[errors.Error], str]] = [
    ("negative extent", {"shape": (-1,)}, errors.ShapeError, r"negative extents, got shape \(-1,\)"),
    ("null memory", {"data": None, "shape": (4,)}, errors.ShapeError, "null pointer"),
    ("null shape", {"shape": (4,), "set": {"null_shape": True}}, errors.ShapeError, "no shape"),
    ("negative rank", {"shape": (4,), "set": {"ndim": -1}}, errors.ShapeError, "got -1"),
    ("great rank", {"shape": (4,), "set": {"ndim": 65}}, errors.ShapeError, "got 65"),
    ("too many bytes", {"shape": (2**40, 2**40)}, errors.ShapeError, "more bytes"),
    ("far strides", {"shape": (2, 2), "strides": (2**61, 1)}, errors.ShapeError, "more bytes"),
    ("far offset", {"shape": (1,), "offset": 2**63}, errors.ShapeError, "more bytes"),
    ("complex", {"shape": (2,), "dtype": (5, 64, 1)}, errors.DTypeError, "code 5 of 64 bits"),
    ("unknown code", {"shape": (2,), "dtype": (99, 8, 1)}, errors.DTypeError, "code 99"),
    ("lanes", {"shape": (1,), "dtype": (2, 32, 4)}, errors.DTypeError, "4 lanes"),
    ("no lanes", {"shape": (1,), "dtype": (17, 4, 0)}, errors.DTypeError, "0 lanes"),
    ("another size", {"shape": (1,), "dtype": (10, 16, 1)}, errors.DTypeError, "of 16 bits"),
    ("cuda", {"shape": (4,), "set": {"device_type": 2}}, errors.UnsupportedError, "cuda:0, expected cpu"),
    ("unknown device", {"shape": (4,), "set": {"device_type": 77}}, errors.UnsupportedError, "kind 77"),
    (
        "another version",
        {"shape": (4,), "set": {"major": 2}},
        errors.UnsupportedError,
        "got 2.1, expected 1.x",
    ),
    (
        "packed and strided",
        {"shape": (2, 2), "strides": (1, 2), "dtype": (17, 4, 1)},
        errors.UnsupportedError,
        "expected C order",
    ),
]


@pytest.mark.parametrize(("row"), HOSTILE, ids=[row[0] for row in HOSTILE])
def test_hostile_capsules_are_refused_and_stay_their_producers(row: Any) -> None:
    _, options, error, text = row
    options = dict(options)
    data, shape, dtype = options.pop("data", ONES), options.pop("shape"), options.pop("dtype", F32)
    fields = options.pop("set", {})
    producer = Producer(data, dtype, shape, options.pop("strides", None), **options, **fields)
    capsule = producer.capsule()
    with pytest.raises(error, match=text) as caught:
        popsr.from_dlpack(capsule)
    assert str(caught.value).startswith("from_dlpack: x ")
    assert not used(capsule)
    assert producer.deleted == 0
    with pytest.raises(error, match=r"^add: y "):
        sr.add(ONES, producer, key=KEY)


class Failing:
    """Its methods raise."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __dlpack_device__(self) -> Any:
        if self._where == "device":
            raise RuntimeError("no device")
        return ("cpu", 0) if self._where == "text" else (2, 1) if self._where == "cuda" else (1, 0)

    def __dlpack__(self, **_: Any) -> Any:
        if self._where == "capsule":
            raise BufferError("no capsule\nmore")
        return "text"


@pytest.mark.parametrize(
    ("x", "error", "text"),
    [
        (Failing("device"), errors.ArgumentTypeError, "not an array, got Failing: no device$"),
        (Failing("text"), errors.ArgumentTypeError, "not an array, got Failing: invalid literal"),
        (Failing("cuda"), errors.UnsupportedError, "not on the CPU, got DLPack device cuda:1"),
        (Failing("capsule"), errors.ArgumentTypeError, "not an array, got Failing: no capsule$"),
        (Failing(""), errors.ArgumentTypeError, "not a DLPack capsule"),
        (3, errors.ArgumentTypeError, "not an array, got int"),
    ],
)
def test_objects_that_fail(x: Any, error: type[errors.Error], text: str) -> None:
    with pytest.raises(error, match=text):
        popsr.from_dlpack(x)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"stream": 1}, "the CPU has no streams, got 1"),
        ({"dl_device": (2, 0)}, r"wrong device, got \(2, 0\)"),
        ({"copy": False}, "a copy is needed, got copy=False for a read-only array"),
    ],
)
def test_exports_that_are_refused(options: Any, text: str) -> None:
    x = np.ones(2, np.float32)
    x.flags.writeable = False
    with pytest.raises(errors.UnsupportedError, match=text):
        popsr.to_dlpack(x).__dlpack__(**options)


@pytest.mark.parametrize(
    ("x", "options", "error", "text"),
    [
        ([1.0], {}, errors.ArgumentTypeError, r"not an array, got \[1.0\]"),
        (np.ones(2, complex), {}, errors.DTypeError, "no supported dtype, got complex128"),
        (np.ones(2, ">f4"), {}, errors.DTypeError, "no supported dtype, got >f4"),
        (np.ones(2, np.float32), {"lanes": 2}, errors.AttributeValueError, "wrong lanes, got 2"),
        (
            np.ones(2, np.float32),
            {"lanes": 3},
            errors.AttributeValueError,
            "lanes: got 3, expected an int from 1 to 2",
        ),
        (np.ones(2, np.float32), {"lanes": [1]}, errors.ArgumentTypeError, "lanes"),
        (np.ones(3, numpy_of("float4_e2m1fn")), {"lanes": 2}, errors.ShapeError, "odd last extent"),
    ],
)
def test_arrays_that_have_no_export(x: Any, options: Any, error: type[errors.Error], text: str) -> None:
    with pytest.raises(error, match=f"^to_dlpack: .*{text}"):
        popsr.to_dlpack(x, **options)


class Interface:
    """An object with nothing but ``__array_interface__``, with the name of a type that NumPy lacks."""

    def __init__(self, x: Array, typestr: str) -> None:
        self.__array_interface__ = {
            **bits_of(x).__array_interface__,
            "typestr": typestr,
            "descr": [("", typestr)],
        }
        self._kept = x


@pytest.mark.parametrize(
    ("name", "typestr"),
    [("bfloat16", "|V2"), ("float8_e4m3fn", "<f1"), ("float8_e5m2", "|V1"), ("float4_e2m1fn", "|V1")],
)
def test_array_interface_with_a_dtype_told(name: str, typestr: str) -> None:
    x = np.ascontiguousarray(sample(name))
    raw = np.ascontiguousarray(bits_of(x))
    source = Interface(raw, typestr)
    ir = popsr.Ir()
    told = popsr.dtype.as_dtype(name)
    with ir.main_graph:
        v = popsr.variable(source, told)
        ops.host_store(popsr.d2h_stream(v.shape, v.dtype), v)
    with popsr.Session(ir) as session:
        got = session.get_tensor_data(v)
    np.testing.assert_array_equal(bits_of(got), raw)
    if name in DTYPES[:-2]:
        got = sr.add(source, source, key=KEY, dtype=name)
        np.testing.assert_array_equal(got, bits_of(x + x))
        with pytest.raises(errors.DTypeError, match=r"buffer of integers.*expected dtype="):
            sr.add(source, source, key=KEY)
