"""The same bits for any number of threads, split, instruction set, alignment, stride and state of the FPU."""

from __future__ import annotations

import ctypes
import itertools
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import sr
from tests_py.sr import golden as sr_golden
from tests_py.sr.cases import NAMES, OPERANDS, SCALARS, call, from_bits, np_dtype, operand_bits, to_bits
from tests_py.support.unchecked import unchecked

KEY = sr.Key(6).fold_in("determinism")
BIG = 300_000  # several tiles for each of several threads


@pytest.fixture(scope="module")
def golden() -> Any:
    return sr_golden.digest(sr_golden.results())


def arrays_of(op: Any, name: Any, n: Any = 2000, seed: Any = 0) -> Any:
    names = (name,) * OPERANDS[op]
    columns = operand_bits(names, n, np.random.default_rng(seed))
    return [from_bits(column, name) for column in columns]


# Threads and splits


def test_twice_the_same(golden: Any) -> None:
    assert sr_golden.digest(sr_golden.results()) == golden


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_threads(golden: Any, threads: Any) -> None:
    assert sr_golden.digest(sr_golden.results(threads)) == golden


@pytest.mark.parametrize("op", ["add", "fma", "addcdiv", "cast"])
def test_threads_on_large_arrays(op: Any) -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(BIG).astype(np.float32) for _ in range(OPERANDS[op])]
    scalars = ("bfloat16",) if op == "cast" else SCALARS.get(op, ())
    one, *others = (call(op, arrays, unchecked(scalars), key=KEY, num_threads=t) for t in (1, 2, 3, 5, 7))
    assert all(np.array_equal(one.view(np.uint8), other.view(np.uint8)) for other in others)


def test_default_threads() -> None:
    x = np.random.default_rng(1).standard_normal(BIG).astype(ml_dtypes.bfloat16)
    before = popsr.num_threads()
    found = []
    try:
        for threads in (1, 2, 4):
            popsr.set_num_threads(threads)
            found.append(sr.add(x, x[::-1], key=KEY).view(np.uint16))
    finally:
        popsr.set_num_threads(before)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("op", list(OPERANDS))
def test_parts_with_offsets_are_the_whole(op: Any, name: Any) -> None:
    arrays = arrays_of(op, name, 300)
    n = len(arrays[0])
    scalars = ("float8_e5m2",) if op == "cast" else SCALARS.get(op, ())
    whole = call(op, arrays, unchecked(scalars), key=KEY, offset=5)
    cuts = [0, 1, 2, 9, 16, 33, 150, 151, n // 2, n]
    for start, stop in itertools.pairwise(cuts):
        part = call(op, [a[start:stop] for a in arrays], unchecked(scalars), key=KEY, offset=5 + start)
        assert part.tobytes() == whole[start:stop].tobytes() or to_bits(part, part.dtype.name) == to_bits(
            whole[start:stop], part.dtype.name
        )


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(["float64", "float32", "bfloat16"]),
    st.integers(0, 5000),
    st.integers(0, 5000),
    st.integers(0, 2**50),
)
def test_any_split(name: Any, a: Any, b: Any, offset: Any) -> None:
    start, stop = sorted((a, b))
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(5000).astype(np_dtype(name)) for _ in range(2))
    whole = sr.add(x, y, key=KEY, offset=offset)
    part = sr.add(x[start:stop], y[start:stop], key=KEY, offset=offset + start)
    assert part.tobytes() == whole[start:stop].tobytes()


def test_calls_from_several_python_threads() -> None:
    rng = np.random.default_rng(3)
    x, y = (rng.standard_normal(BIG).astype(np.float32) for _ in range(2))
    expect = sr.cast(sr.add(x, y, key=KEY), "bfloat16", key=KEY).tobytes()
    with ThreadPoolExecutor(4) as pool:
        work = lambda k: sr.cast(sr.add(x, y, key=KEY, num_threads=k % 3 + 1), "bfloat16", key=KEY).tobytes()  # noqa: E731
        assert set(pool.map(work, range(24))) == {expect}


FORK = """
import os, sys
import numpy as np
from popsr import sr
x = np.linspace(0, 1, 300_000, dtype=np.float32)
key = sr.Key(1)
add = lambda: sr.add(x, x[::-1], key=key, num_threads=2).tobytes()
expect = add()
child = os.fork()
if child == 0:
    os._exit(0 if add() == expect else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or add() != expect)
"""


def test_after_a_fork() -> None:
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], timeout=60).returncode == 0


@pytest.mark.slow
def test_more_than_two_to_the_31_elements() -> None:
    n = 2**31 + 64
    name = "float8_e5m2"
    one = np.ones((), np_dtype(name))
    out = np.zeros(n, one.dtype)
    sr.add(np.broadcast_to(one, n), np.full((), 0.1), key=KEY, out=out)
    for start in (0, 2**31 - 64, 2**31):
        expect = sr.add(np.broadcast_to(one, 64), np.full(64, 0.1), key=KEY, offset=start)
        assert out[start : start + 64].tobytes() == expect.tobytes()


def test_offsets_beyond_two_to_the_32() -> None:
    """Elements of arrays with more than 2^31 elements have numbers of their own."""
    x, y = np.ones(100, np.float32), np.full(100, 2.0**-25, np.float32)
    for offset in (2**31 - 50, 2**32 - 50, 2**40, 2**63 - 50, 2**64 - 100):
        away = sr.uniform_bits(KEY, 100, offset) < np.uint64(1 << 62)
        assert np.array_equal(sr.add(x, y, key=KEY, offset=offset) > 1, away)


# Instruction sets


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other CPUs have one level")
@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
def test_instruction_sets(golden: Any, level: Any) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tests_py.sr.golden"],
        env=os.environ | {"POPSR_ISA": level, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    if "POPSR_ISA" in result.stderr:
        pytest.skip(f"this CPU has no level {level}")
    assert result.returncode == 0, result.stderr
    assert result.stdout == golden


# Layouts


def layouts(array: Any) -> Iterator[Any]:
    """The same values, laid out otherwise: name, view."""
    size = array.itemsize
    yield "contiguous", array.copy()
    for shift in (1, 3, 7):
        buffer = np.zeros(array.nbytes + 64, np.uint8)
        view = (
            buffer[shift : shift + array.nbytes].view(array.dtype) if shift % size == 0 or size == 1 else None
        )
        if view is None:
            view = np.ndarray(array.shape, array.dtype, buffer, shift)
        view[...] = array
        yield f"at {shift} bytes", view
    spaced = np.zeros(3 * array.size, array.dtype)
    spaced[1::3] = array
    yield "every third", spaced[1::3]
    yield "backwards", array[::-1].copy()[::-1]
    records = np.zeros(array.size, [("a", "u1"), ("b", array.dtype), ("c", "u2")])
    records["b"] = array
    yield "in records", records["b"]
    frozen = array.copy()
    frozen.flags.writeable = False
    yield "read-only", frozen


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("op", ["add", "addcmul", "cast"])
def test_layouts_of_operands(op: Any, name: Any) -> None:
    arrays = arrays_of(op, name, 200)
    scalars = ("float8_e5m2",) if op == "cast" else SCALARS.get(op, ())
    expect = call(op, arrays, unchecked(scalars), key=KEY)
    for views in zip(*(layouts(a) for a in arrays), strict=True):
        got = call(op, [view for _, view in views], unchecked(scalars), key=KEY)
        assert to_bits(got, got.dtype.name) == to_bits(expect, got.dtype.name), views[0][0]


@pytest.mark.parametrize("name", NAMES)
def test_layouts_of_results(name: Any) -> None:
    x, y = arrays_of("add", name, 200)
    expect = to_bits(sr.add(x, y, key=KEY), name)
    for what, out in layouts(np.zeros_like(x)):
        if what != "read-only":
            assert sr.add(x, y, key=KEY, out=out) is out
            assert to_bits(out, name) == expect, what
    for what, w in layouts(x):
        if what != "read-only":
            assert sr.add_(w, y, key=KEY) is w
            assert to_bits(w, name) == expect, what


@pytest.mark.parametrize(
    "shape", [(), (1,), (0,), (7, 0, 3), (33,), (5, 7), (3, 1, 4, 5), (1, 1, 1, 1, 9), (2,) * 9]
)
def test_elements_are_numbered_in_c_order(shape: Any) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    flat = sr.cast(sr.add(x.reshape(-1), y.reshape(-1), key=KEY), "bfloat16", key=KEY).view(np.uint16)
    for make in (np.asarray, lambda a: np.array(a, order="F")):
        got = sr.cast(sr.add(make(x), make(y), key=KEY), "bfloat16", key=KEY)
        assert got.shape == shape
        assert np.array_equal(got.reshape(-1).view(np.uint16), flat)
    if x.ndim >= 2:
        turned = sr.cast(
            sr.add(x.T.copy().T, y, key=KEY), "bfloat16", key=KEY, out=np.empty(shape[::-1], np.uint16).T
        )
        assert np.array_equal(turned.reshape(-1), flat)


@pytest.mark.parametrize(
    ("x_shape", "y_shape"),
    [
        ((4, 5), (5,)),
        ((5,), (4, 5)),
        ((4, 1), (1, 5)),
        ((2, 3, 4), (3, 1)),
        ((), (6,)),
        ((3, 0), (1, 1)),
        ((1,), ()),
    ],
)
def test_broadcasting(x_shape: Any, y_shape: Any) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(s).astype(np.float32) for s in (x_shape, y_shape))
    full = [np.ascontiguousarray(a) for a in np.broadcast_arrays(x, y)]
    got = sr.add(x, y, key=KEY)
    assert got.shape == full[0].shape
    assert np.array_equal(got, sr.add(*full, key=KEY))


def test_operands_with_stride_zero() -> None:
    x = np.broadcast_to(np.float32(1), (50, 3))
    y = np.broadcast_to(np.arange(3, dtype=np.float32) * 2.0**-25, (50, 3))
    assert np.array_equal(sr.add(x, y, key=KEY), sr.add(x.copy(), y.copy(), key=KEY))


def test_in_place_is_out_of_place() -> None:
    for op in ("add", "sub", "mul", "fma", "lerp", "addcmul", "addcdiv"):
        arrays = arrays_of(op, "bfloat16")
        scalars = SCALARS.get(op, ())
        expect = to_bits(call(op, arrays, scalars, key=KEY), "bfloat16")
        w = arrays[0].copy()
        assert getattr(sr, op + "_")(w, *arrays[1:], *scalars, key=KEY) is w
        assert to_bits(w, "bfloat16") == expect, op
        for k in range(len(arrays)):
            copies = [a.copy() for a in arrays]
            assert call(op, copies, scalars, key=KEY, out=copies[k]) is copies[k]
            assert to_bits(copies[k], "bfloat16") == expect, (op, k)
    x, y = arrays_of("axpy", "bfloat16")
    expect = to_bits(sr.axpy(0.3, x, y, key=KEY), "bfloat16")
    assert sr.axpy_(0.3, x, y, key=KEY) is y
    assert to_bits(y, "bfloat16") == expect


# The caller's floating-point environment

DOWN, UP, TOWARDS_ZERO = 0x400, 0x800, 0xC00  # of x86's fenv.h


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other CPUs number the modes otherwise")
@pytest.mark.parametrize("mode", [DOWN, UP, TOWARDS_ZERO])
def test_rounding_mode_of_the_caller_does_not_matter(mode: Any) -> None:
    libm = ctypes.CDLL("libm.so.6")
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 999))
    narrow = x.astype(ml_dtypes.bfloat16)

    def compute() -> Any:
        return [
            sr.add(x, y, key=KEY).tobytes(),
            sr.add(x, y, key=KEY, mode="rn").tobytes(),
            sr.addcdiv(narrow, x, y, 0.1, key=KEY).tobytes(),
            sr.sum(x, key=KEY, dtype="float16").tobytes(),
            popsr.StochasticAdder("float64", seed=1).add_biased(x, y).tobytes(),
        ]

    expect, before = compute(), libm.fegetround()
    libm.fesetround(mode)
    try:
        got, after = compute(), libm.fegetround()
    finally:
        libm.fesetround(before)
    assert after == mode
    assert got == expect


def test_flushing_of_subnormals_does_not_matter() -> None:
    torch = pytest.importorskip("torch")
    tiny = [from_bits(np.arange(1, 400), name) for name in ("float64", "float32", "float16", "bfloat16")]
    expect = [sr.add(t, t[::-1].copy(), key=KEY).tobytes() for t in tiny]
    halves = [sr.mul(t, 0.5, key=KEY).tobytes() for t in tiny]
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush")
    try:
        got = [sr.add(t, t[::-1].copy(), key=KEY).tobytes() for t in tiny]
        got_halves = [sr.mul(t, 0.5, key=KEY).tobytes() for t in tiny]
    finally:
        torch.set_flush_denormal(False)
    assert got == expect
    assert got_halves == halves
