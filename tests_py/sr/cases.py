"""Inputs of the tests of ``popsr.sr``: bit patterns that matter, arrays of them, and what the oracle makes of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from popsr import sr
from tests_py.support.oracles import rounding as oracle
from tests_py.support.oracles.rounding import FORMATS

Array = NDArray[Any]

NAMES = tuple(FORMATS)
NARROW = ("float16", "bfloat16")
FP8 = tuple(name for name in NAMES if name.startswith("float8"))
MODES = oracle.MODES
SCALARS = {"axpy": (0.3,), "lerp": (0.7,), "addcmul": (-1.7,), "addcdiv": (0.1,)}
OPERANDS = {
    "add": 2,
    "sub": 2,
    "mul": 2,
    "fma": 3,
    "axpy": 2,
    "lerp": 2,
    "addcmul": 3,
    "addcdiv": 3,
    "cast": 1,
}


def np_dtype(name: str) -> np.dtype[Any]:
    """The dtype of arrays of that format."""
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def raw_dtype(name: str) -> np.dtype[Any]:
    """Unsigned integers of the same size."""
    return np.dtype(f"u{FORMATS[name].bits // 8}")


def from_bits(bits: Any, name: str) -> Array:
    """An array with those bits."""
    return np.array(bits, raw_dtype(name)).view(np_dtype(name))


def bits_of(array: Any) -> Array:
    """The bits as unsigned integers; every NaN is the format's canonical one."""
    array = np.array(array)
    form, raw = FORMATS[array.dtype.name], array.view(f"u{array.dtype.itemsize}")
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return np.where(array != array, np.array(form.nan, raw.dtype), raw)


def to_bits(array: Any, name: str) -> list[int]:
    """The bits of each element, in C order."""
    assert array.dtype == np_dtype(name)
    found: list[int] = bits_of(array).reshape(-1).tolist()
    return found


def specials(name: str) -> list[int]:
    """Zeros, subnormals, powers of two and their neighbours, the largest values, infinities, NaN; both signs."""
    form = FORMATS[name]
    one = form.bias << form.fraction_bits
    normal = 1 << form.fraction_bits
    codes = [0, 1, 2, normal - 1, normal, normal + 1, one - 1, one, one + 1, one + normal, form.max_code - 1]
    codes += [form.max_code, *([form.infinity] if form.infinity else [])]
    codes += [form.nan] if form.negative_zero else []
    both = [code | sign for code in codes for sign in (0, form.sign)]
    return [b for b in both if form.negative_zero or b != form.sign] + (
        [] if form.negative_zero else [form.nan]
    )


def random_bits(name: str, n: int, rng: np.random.Generator) -> list[int]:
    """Any bits at all."""
    size = FORMATS[name].bits // 8
    return np.frombuffer(rng.bytes(size * n), raw_dtype(name)).tolist()


def near(bits: Sequence[int], source: str, name: str, rng: np.random.Generator) -> list[int]:
    """For each number one of format ``name`` whose last places overlap the sum's, where the format can."""
    form, out = FORMATS[name], []
    for b in bits:
        x = oracle.decode(b, source)
        exponent = math.frexp(float(x.value))[1] - 1 if x.kind == "finite" else 0
        exponent += int(rng.integers(-2 * FORMATS[source].fraction_bits - 8, 4))
        field = min(max(exponent + form.bias, 0), form.max_code >> form.fraction_bits)
        code = min(field << form.fraction_bits | int(rng.integers(1 << form.fraction_bits)), form.max_code)
        out.append(code | (form.sign if rng.integers(2) else 0))
    return out


def operand_bits(names: Sequence[str], n: int, rng: np.random.Generator) -> list[list[int]]:
    """Bits for the operands of one operation: all pairs of specials, then random ones, then overlapping ones."""
    first, *rest = names
    pairs = [(a, b) for a in specials(first) for b in specials(names[-1])]
    columns = [[a for a, _ in pairs] + random_bits(first, n, rng) + random_bits(first, n, rng)]
    for k, name in enumerate(rest):
        if k == len(rest) - 1:
            known = [b for _, b in pairs]
        else:
            known = [specials(name)[int(i)] for i in rng.integers(len(specials(name)), size=len(pairs))]
        columns.append([*known, *random_bits(name, n, rng), *near(columns[0][-n:], first, name, rng)])
    return columns


def exact_results(
    op: str, columns: Sequence[Sequence[int]], names: Sequence[str], scalars: Sequence[float] = ()
) -> list[oracle.Number]:
    """The exact result of each row."""
    factors = [oracle.number(s) for s in scalars]
    tables: list[dict[int, oracle.Number]] = [{} for _ in names]
    results = []
    for row in zip(*columns, strict=True):
        numbers = []
        for b, name, table in zip(row, names, tables, strict=True):
            if b not in table:
                table[b] = oracle.decode(b, name)
            numbers.append(table[b])
        results.append(oracle.exact(op, *numbers, *factors))
    return results


def rounded(
    exact: Sequence[oracle.Number], name: str, us: Sequence[int], mode: str = "sr", overflow: str = "ieee"
) -> list[int]:
    """The bits of each, rounded by the oracle."""
    return [oracle.round_bits(x, name, mode, u, overflow) for x, u in zip(exact, us, strict=True)]


def call(op: str, arrays: Sequence[Any], scalars: Sequence[float] = (), **options: Any) -> Any:
    """The public function with its arguments in their order."""
    function = getattr(sr, op)
    return function(*scalars, *arrays, **options) if op == "axpy" else function(*arrays, *scalars, **options)


def numbers_of(key: sr.Key, n: int, offset: int = 0) -> list[int]:
    """The random numbers of n elements."""
    return sr.uniform_bits(key, n, offset).tolist()


def describe_difference(
    got: Sequence[int], expect: Sequence[int], columns: Sequence[Sequence[int]], us: Any
) -> str:
    """The first row that differs."""
    for i, (g, e) in enumerate(zip(got, expect, strict=True)):
        if g != e:
            wrong = sum(a != b for a, b in zip(got, expect, strict=True))
            row = ", ".join(hex(column[i]) for column in columns)
            return f"{wrong} of {len(got)} differ; row {i}: operands {row}, U {us[i]:#x}: got {g:#x}, expected {e:#x}"
    return ""


def named_calls(float16: Any) -> dict[str, Any]:
    """Calls of the operations of a module on x, y and z, with options; ``float16``: the library's dtype."""
    return {
        "add": lambda m, x, y, z, **o: m.add(x, y, **o),
        "add number": lambda m, x, y, z, **o: m.add(x, 1e-3, **o),
        "sub": lambda m, x, y, z, **o: m.sub(x, y, **o),
        "mul": lambda m, x, y, z, **o: m.mul(x, y, **o),
        "fma": lambda m, x, y, z, **o: m.fma(x, y, z, **o),
        "axpy": lambda m, x, y, z, **o: m.axpy(0.3, x, y, **o),
        "lerp": lambda m, x, y, z, **o: m.lerp(x, y, 0.7, **o),
        "lerp array": lambda m, x, y, z, **o: m.lerp(x, y, z, **o),
        "addcmul": lambda m, x, y, z, **o: m.addcmul(x, y, z, -1.7, **o),
        "addcdiv": lambda m, x, y, z, **o: m.addcdiv(x, y, z, 0.1, **o),
        "cast": lambda m, x, y, z, **o: m.cast(y, float16, **o),
        "sum": lambda m, x, y, z, **o: m.sum(x, float16, axis=1, **o),
        "sum all": lambda m, x, y, z, **o: m.sum(x, **o),
    }
