"""Refused calls, with error and text; nothing is written."""

from __future__ import annotations

import inspect
import re
import typing
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from popsr import errors, sr
from tests_py.sr.refused import ARGUMENT, DTYPE, F32, KEY, SHAPE, VALUE, N, frozen, sevens
from tests_py.support.unchecked import unchecked

BF16 = ml_dtypes.bfloat16

# One row a mistake: call with the array that must stay as it is, error, beginning of the message.
BAD = {
    "no key": (
        lambda w: unchecked(sr.add_)(w, F32),
        ARGUMENT,
        "add_: key is missing or of the wrong type, got none, expected",
    ),
    "key None": (
        lambda w: unchecked(sr.add)(F32, F32, key=None, out=w),
        ARGUMENT,
        "add: key is missing or of the wrong type, got n",
    ),
    "key is a seed": (
        lambda w: unchecked(sr.add)(F32, F32, key=3, out=w),
        ARGUMENT,
        "add: key is missing or of the wrong type, got i",
    ),
    "no key in cast": (lambda w: unchecked(sr.cast)(F32, "float32", out=w), ARGUMENT, "cast: key is missing"),
    "no key in sum": (lambda w: unchecked(sr.sum)(F32), ARGUMENT, "sum: key is missing"),
    "no key in adamw_": (
        lambda w: unchecked(sr.adamw_)(w, F32, F32 * 0, F32 * 0, step=1),
        ARGUMENT,
        "adamw_: key is missing",
    ),
    "no key in uniform_bits": (
        lambda w: sr.uniform_bits(unchecked(3), 4),
        ARGUMENT,
        "uniform_bits: key is missing or of the wrong",
    ),
    "integers": (
        lambda w: sr.add_(w, np.ones(N, np.int32), key=KEY),
        DTYPE,
        "add_: u has no supported dtype, got int32, expected one of float64, float32",
    ),
    "booleans": (
        lambda w: sr.add_(w, np.ones(N, bool), key=KEY),
        DTYPE,
        "add_: u has no supported dtype, got bool",
    ),
    "complex": (
        lambda w: sr.add_(w, F32 * 1j, key=KEY),
        DTYPE,
        "add_: u has no supported dtype, got complex64",
    ),
    "objects": (
        lambda w: sr.add_(w, F32.astype(object), key=KEY),
        DTYPE,
        "add_: u has no supported dtype, got object",
    ),
    "long doubles": (
        lambda w: sr.add_(w, np.ones(N, np.longdouble), key=KEY),
        DTYPE,
        "add_: u has no supported dtype",
    ),
    "another byte order": (
        lambda w: sr.add_(w, F32.astype(">f4"), key=KEY),
        DTYPE,
        "add_: u has no supported dtype, got >f4, expected one of",
    ),
    "structures": (
        lambda w: sr.add_(w, np.zeros(N, [("a", "f4")]), key=KEY),
        DTYPE,
        "add_: u has no supported dtype, got [('a', '<f4')]",
    ),
    "a list": (
        lambda w: unchecked(sr.add_)(w, [1.0] * N, key=KEY),
        ARGUMENT,
        "add_: u is not an array, got list",
    ),
    "a string": (
        lambda w: unchecked(sr.add_)(w, "abcdef", key=KEY),
        ARGUMENT,
        "add_: u is not an array, got str",
    ),
    "None": (
        lambda w: unchecked(sr.add_)(w, None, key=KEY),
        ARGUMENT,
        "add_: u is not an array, got NoneType",
    ),
    "an object": (
        lambda w: unchecked(sr.add_)(w, object(), key=KEY),
        ARGUMENT,
        "add_: u is not an array, got object",
    ),
    "a masked array": (lambda w: sr.add_(w, np.ma.ones(N), key=KEY), ARGUMENT, "add_: u is a masked array"),
    "a large int": (
        lambda w: sr.add_(w, 2**53 + 1, key=KEY),
        DTYPE,
        "add_: u is not a float64, got 9007199254740993",
    ),
    "a huge int": (lambda w: sr.add_(w, 10**400, key=KEY), DTYPE, "add_: u is not a float64, got 1000000000"),
    "raw without dtype": (
        lambda w: sr.add_(w, np.ones(N, np.uint16), key=KEY),
        DTYPE,
        "add_: u is a buffer of integers, got uint16 and no dtype=, expected dtype= of a format of 16 bits",
    ),
    "raw of another size": (
        lambda w: sr.add_(w, np.ones(N, np.uint8), key=KEY, dtype="bfloat16"),
        DTYPE,
        "add_: u is a buffer of integers, got uint8 and dtype bfloat16, expected dtype= of a format of 8 bits",
    ),
    "raw cast": (
        lambda w: sr.cast(np.ones(N, np.uint16), "float32", key=KEY, out=w),
        DTYPE,
        "cast: x is a buffer of in",
    ),
    "dtype of another format": (
        lambda w: sr.add_(w, F32, key=KEY, dtype="bfloat16"),
        DTYPE,
        "add_: w has another dtype, got float32, expected bfloat16",
    ),
    "unknown dtype": (
        lambda w: sr.cast(F32, "float31", key=KEY, out=w),
        DTYPE,
        "cast: unknown dtype, got 'float31', expected one of float64, float32, float16, bfloat16, float8_e4m3fn",
    ),
    "dtype of integers": (
        lambda w: sr.cast(F32, np.int8, key=KEY, out=w),
        DTYPE,
        "cast: unknown dtype, got <class 'num",
    ),
    "dtype of another byte order": (
        lambda w: sr.cast(F32, np.dtype(">f4"), key=KEY, out=w),
        DTYPE,
        "cast: unknown dtype",
    ),
    "dtype is not a dtype": (
        lambda w: unchecked(sr.cast)(F32, 3, key=KEY, out=w),
        ARGUMENT,
        "cast: dtype is not a dtype, got 3",
    ),
    "dtype is an array": (
        lambda w: sr.cast(F32, F32[:1], key=KEY, out=w),
        ARGUMENT,
        "cast: dtype is not a dtype, got arr",
    ),
    "out of another dtype": (
        lambda w: sr.add(F32.astype(BF16), F32, key=KEY, out=w),
        DTYPE,
        "add: out has another dtype, got float32, expected bfloat16",
    ),
    "out of cast": (
        lambda w: sr.cast(F32, "bfloat16", key=KEY, out=w),
        DTYPE,
        "cast: out has another dtype, got float32",
    ),
    "raw out without dtype": (
        lambda w: sr.add(F32.astype(BF16), F32, key=KEY, out=w.view(np.uint16)[::2]),
        DTYPE,
        "add: out is a buffer of integers, got uint16 and no dtype=",
    ),
    "read-only out": (
        lambda w: sr.add(F32, F32, key=KEY, out=frozen(w)),
        ARGUMENT,
        "add: out is read-only, expected a wr",
    ),
    "read-only w": (
        lambda w: sr.add_(frozen(w), F32, key=KEY),
        ARGUMENT,
        "add_: w is read-only, expected a writable array",
    ),
    "bytes as out": (
        lambda w: unchecked(sr.add)(F32, F32, key=KEY, out=b"abc"),
        (ARGUMENT, DTYPE),
        "add: out is ",
    ),
    "number as out": (
        lambda w: unchecked(sr.add)(F32, F32, key=KEY, out=1.0),
        DTYPE,
        "add: out has another dtype",
    ),
    "scalar as out": (
        lambda w: sr.add(F32[0], F32[0], key=KEY, out=F32[0]),
        ARGUMENT,
        "add: out is immutable, got float32",
    ),
    "out of another shape": (
        lambda w: sr.add(F32, F32, key=KEY, out=w.reshape(2, 3)),
        SHAPE,
        "add: shapes differ, got out of (2, 3), expected (6,)",
    ),
    "shapes": (
        lambda w: sr.add(w, F32[:4], key=KEY, out=w),
        SHAPE,
        "add: shapes do not broadcast, got (6,) and (4,), expected extents that are equal or 1",
    ),
    "three shapes": (
        lambda w: sr.fma_(w, F32, F32[:4], key=KEY),
        SHAPE,
        "fma_: shapes do not broadcast, got (6,) and (6,)",
    ),
    "w that would grow": (
        lambda w: sr.add_(w, np.ones((2, N), np.float32), key=KEY),
        SHAPE,
        "add_: shapes differ, got w of (6,), expected (2, 6)",
    ),
    "partial overlap": (
        lambda w: sr.add_(w[1:], w[:-1], key=KEY),
        VALUE,
        "add_: w overlaps u, got strides (4,) and (4,), expected the same view or disjoint memory",
    ),
    "reversed out": (
        lambda w: sr.add(w, F32, key=KEY, out=w[::-1]),
        VALUE,
        "add: out overlaps x, got strides (-4,) and (4",
    ),
    "negative offset": (
        lambda w: sr.add_(w, F32, key=KEY, offset=-1),
        VALUE,
        "add_: offset: got -1, expected an int from 0 to 18446744073709551615",
    ),
    "fractional offset": (
        lambda w: unchecked(sr.add_)(w, F32, key=KEY, offset=1.5),
        ARGUMENT,
        "add_: offset is not an int, got 1.5, expected an int",
    ),
    "textual offset": (
        lambda w: unchecked(sr.add_)(w, F32, key=KEY, offset="1"),
        ARGUMENT,
        "add_: offset is not an int, got '1', expected an int",
    ),
    "offset too large": (
        lambda w: sr.add_(w, F32, key=KEY, offset=2**64 - 5),
        VALUE,
        "add_: offset is too large, got 1844",
    ),
    "offset beyond": (
        lambda w: sr.add_(w, F32, key=KEY, offset=2**64),
        VALUE,
        "add_: offset: got 18446744073709551616",
    ),
    "offset of sum": (
        lambda w: sr.sum(F32, key=KEY, offset=2**64 - 5),
        VALUE,
        "sum: offset is too large, got 18446744073",
    ),
    "unknown mode": (
        lambda w: unchecked(sr.add_)(w, F32, key=KEY, mode="up"),
        VALUE,
        "add_: unknown mode, got 'up', expected one of 'sr', 'sr_equal', 'rn', 'ru', 'rd', 'rz' or 'sr_bits=r'",
    ),
    "no bits": (
        lambda w: unchecked(sr.add_)(w, F32, key=KEY, mode="sr_bits=0"),
        VALUE,
        "add_: unknown mode, got 'sr_bits=0'",
    ),
    "too many bits": (
        lambda w: unchecked(sr.add_)(w, F32, key=KEY, mode="sr_bits=33"),
        VALUE,
        "add_: unknown mode, got 'sr_bits=33'",
    ),
    "bits spelt otherwise": (
        lambda w: unchecked(sr.add_)(w, F32, key=KEY, mode="sr_bits=+4"),
        VALUE,
        "add_: unknown mode, got 'sr_",
    ),
    "bits alone": (
        lambda w: unchecked(sr.add_)(w, F32, key=KEY, mode="4"),
        VALUE,
        "add_: unknown mode, got '4'",
    ),
    "mode is not a string": (
        lambda w: unchecked(sr.add_)(w, F32, key=KEY, mode=3),
        VALUE,
        "add_: unknown mode, got 3",
    ),
    "mode None": (
        lambda w: unchecked(sr.add)(F32, F32, key=KEY, mode=None, out=w),
        VALUE,
        "add: unknown mode, got None",
    ),
    "unknown overflow": (
        lambda w: unchecked(sr.add_)(w, F32, key=KEY, overflow="wrap"),
        VALUE,
        "add_: unknown overflow, got 'wrap', expected one of 'ieee', 'saturate'",
    ),
    "no threads": (
        lambda w: sr.add_(w, F32, key=KEY, num_threads=0),
        VALUE,
        "add_: num_threads: got 0, expected an int from",
    ),
    "alpha is not a number": (
        lambda w: unchecked(sr.add_)(w, F32, key=KEY, alpha="1"),
        ARGUMENT,
        "add_: alpha is not a number, got str",
    ),
    "alpha is an array": (
        lambda w: unchecked(sr.addcmul_)(w, F32, F32, F32, key=KEY),
        ARGUMENT,
        "addcmul_: alpha is not a number, got",
    ),
    "alpha is an array in add_": (
        lambda w: unchecked(sr.add_)(w, F32, key=KEY, alpha=F32),
        ARGUMENT,
        "add_: alpha is not a number",
    ),
    "offset is an array": (
        lambda w: unchecked(sr.add)(w, F32, key=KEY, offset=F32, out=w),
        ARGUMENT,
        "add: offset is not an int, got array(",
    ),
    "mode is an array": (
        lambda w: unchecked(sr.add)(w, F32, key=KEY, mode=F32, out=w),
        VALUE,
        "add: unknown mode, got array(",
    ),
    "overflow is a list": (
        lambda w: unchecked(sr.add)(w, F32, key=KEY, overflow=[], out=w),
        VALUE,
        "add: unknown overflow, got []",
    ),
    "overflow is an array": (
        lambda w: unchecked(sr.add)(w, F32, key=KEY, overflow=F32, out=w),
        VALUE,
        "add: unknown overflow, got a",
    ),
    "alpha of axpy": (
        lambda w: unchecked(sr.axpy_)(None, F32, w, key=KEY),
        ARGUMENT,
        "axpy_: alpha is not a number, got None",
    ),
    "complex alpha": (
        lambda w: unchecked(sr.addcdiv_)(w, F32, F32, 1j, key=KEY),
        ARGUMENT,
        "addcdiv_: alpha is not a number, got com",
    ),
    "weight of lerp": (
        lambda w: unchecked(sr.lerp_)(w, F32, "x", key=KEY),
        ARGUMENT,
        "lerp_: t is not a number, got str",
    ),
    "axis too large": (
        lambda w: sr.sum(F32, key=KEY, axis=1),
        VALUE,
        "sum: axis is out of range or repeated, got 1, expected",
    ),
    "axis too small": (
        lambda w: sr.sum(F32, key=KEY, axis=-2),
        VALUE,
        "sum: axis is out of range or repeated, got -2",
    ),
    "axis twice": (
        lambda w: sr.sum(F32, key=KEY, axis=(0, -1)),
        VALUE,
        "sum: axis is out of range or repeated, got (0, -1)",
    ),
    "axis is not an int": (
        lambda w: unchecked(sr.sum)(F32, key=KEY, axis=0.0),
        ARGUMENT,
        "sum: axis is not an int, got",
    ),
    "raw sum into another dtype": (
        lambda w: sr.sum(np.ones(3, np.uint16), "float32", key=KEY),
        DTYPE,
        "sum: x is a buffer of integers, got uint16 and dtype float32, expected dtype= of a format of 16 bits",
    ),
    "negative n": (
        lambda w: sr.uniform_bits(KEY, -1),
        VALUE,
        "uniform_bits: n: got -1, expected an int from 0",
    ),
    "fractional n": (
        lambda w: sr.uniform_bits(KEY, unchecked(1.0)),
        ARGUMENT,
        "uniform_bits: n is not an int, got 1.0, expected an int",
    ),
    "offset of uniform_bits": (
        lambda w: sr.uniform_bits(KEY, 2, 2**64 - 1),
        VALUE,
        "uniform_bits: offset: got 1844674407",
    ),
    "a keyword spelt wrong": (
        lambda w: unchecked(sr.mul)(w, F32, key=KEY, moed="rn", out=w),
        ARGUMENT,
        "mul() got an unexpected keyword argument 'moed', expected 'mode'",
    ),
    "a keyword of the function below": (
        lambda w: unchecked(sr.fma_)(w, F32, F32, key=KEY, factors=(("a", 1.0),)),
        ARGUMENT,
        "fma_() got an unexpected keyword argument 'factors', expected",
    ),
    "out in place": (
        lambda w: unchecked(sr.sub_)(w, F32, key=KEY, out=w),
        ARGUMENT,
        "sub_() got an unexpected keyword argument 'out', expected",
    ),
    "bracket of lists": (
        lambda w: unchecked(sr.bracket)([1.0], [2.0]),
        ARGUMENT,
        "bracket: x is not an array, got list",
    ),
    "bracket of shapes": (
        lambda w: sr.bracket(F32, F32[:4]),
        SHAPE,
        "bracket: shapes do not broadcast, got (6,) and (4,)",
    ),
    "bracket in another dtype": (
        lambda w: sr.bracket(F32, F32, dtype="float16"),
        DTYPE,
        "bracket: x has another dtype, got float32, expected float16",
    ),
}


@pytest.mark.parametrize("row", BAD.values(), ids=BAD.keys())
def test_refused(row: Any) -> None:
    call, error, text = row
    array = sevens()
    with pytest.raises(error) as caught:
        call(array)
    assert isinstance(caught.value, errors.Error)
    assert str(caught.value).startswith(text), str(caught.value)
    assert "\n" not in str(caught.value)
    assert not str(caught.value).endswith(".")
    assert np.all(array == 7), "the buffer was written"


def test_the_fast_path_checks_as_the_slow_one() -> None:
    """Two equal arrays with defaults take another way through the core; mistakes must not."""
    x, out = np.ones(8, np.float32), np.full(8, 7, np.float32)
    for key, target, error in (
        (None, out, ARGUMENT),
        (KEY, out[:7], SHAPE),
        (KEY, out.astype(np.float64), DTYPE),
        (KEY, [0.0] * 8, ARGUMENT),
        (KEY, frozen(np.full(8, 7, np.float32)), ARGUMENT),
    ):
        with pytest.raises(error):
            sr.add(x, x, key=unchecked(key), out=unchecked(target))
    with pytest.raises(VALUE, match="out overlaps x"):
        sr.add(out[:4], x[:4], key=KEY, out=out[1:5])
    assert np.all(out == 7)


# Signatures

OPTIONS = ["key", "dtype", "out", "mode", "overflow", "offset", "num_threads"]
POSITIONAL = {
    "add": ["x", "y"],
    "sub": ["x", "y"],
    "mul": ["x", "y"],
    "axpy": ["alpha", "x", "y"],
    "fma": ["x", "y", "z"],
    "lerp": ["x", "y", "t"],
    "addcdiv": ["x", "t1", "t2", "alpha"],
    "addcmul": ["x", "t1", "t2", "alpha"],
    "cast": ["x", "dtype"],
}


@pytest.mark.parametrize("name", POSITIONAL)
def test_signatures(name: Any) -> None:
    def split(function: Any) -> Any:
        parameters = inspect.signature(function).parameters.values()
        keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD], keywords

    positional, keywords = split(getattr(sr, name))
    assert positional == POSITIONAL[name]
    assert keywords == [o for o in OPTIONS if not (name == "cast" and o == "dtype")]
    if name != "cast":
        positional, keywords = split(getattr(sr, name + "_"))
        assert len(positional) == len(POSITIONAL[name])
        alpha = ["alpha"] if name in ("add", "sub") else []
        assert keywords == ["key", *alpha, *[o for o in OPTIONS[1:] if o != "out"]]


def test_every_public_name_is_documented() -> None:
    for name in sr.__all__:
        assert inspect.getdoc(getattr(sr, name)), name


SHARED = ["axpy", "fma", "lerp", "mul", "sub", "addcdiv", "addcmul"]


@pytest.mark.parametrize("name", [*SHARED, *(f"{name}_" for name in SHARED)])
def test_docstrings_describe_the_keywords_that_are_handed_on(name: str) -> None:
    """Keywords stand in the order of the signature, and type hints name the same ones."""
    function = getattr(sr, name)
    parameters = list(inspect.signature(function).parameters)
    lines = (inspect.getdoc(function) or "").split("\n")
    assert [line.strip().partition(":")[0] for line in lines if re.match(r"    \w+: ", line)] == parameters
    assert typing.get_type_hints(inspect.unwrap(function)).keys() == {*parameters, "return"}
