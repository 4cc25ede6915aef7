"""Rows of the table of ops for the ops that convert float8."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests_py.ops.rows.inputs import Case, Draw, Row, normal, special, together
from tests_py.support.helpers import FLOAT8, FLOATS, Array
from tests_py.support.oracles import ops as oracles
from tests_py.support.oracles.float8 import from_float8, to_float8

SCALES = (-32, -7, 0, 3, 31)


def scale(value: int) -> tuple[Draw, str]:
    """A scalar of int32."""
    return lambda *_: [np.array(value, np.int32)], "int32"


def _to_fp8(t: Array, log2_scale: Array, data_type: str) -> Array:
    with np.errstate(all="ignore"):
        return to_float8(np.ldexp(np.asarray(t, np.float64), int(log2_scale)), data_type)


def _from_fp8(t: Array, log2_scale: Array, data_type: str) -> Array:
    return np.ldexp(from_float8(t), int(log2_scale))


def scaled_product(lhs: Array, rhs: Array, log2_scale: Array) -> Array:
    """One chain in float32 an element, then the scale."""
    a, b = from_float8(lhs), from_float8(rhs)
    a, b = a[np.newaxis] if a.ndim == 1 else a, b[:, np.newaxis] if b.ndim == 1 else b
    chain: Any = np.float32(0)
    for k in range(a.shape[-1]):
        chain = oracles.exact_sum(a[..., k, np.newaxis] * b[..., k, np.newaxis, :], chain).astype(np.float32)
    shape = np.matmul(np.zeros(lhs.shape), np.zeros(rhs.shape)).shape
    return np.ldexp(
        np.broadcast_to(chain, np.matmul(a, b).shape).reshape(shape).astype(np.float64), int(log2_scale)
    )


def _numbers(*shapes: tuple[int, ...]) -> Draw:
    """Normal numbers as float8."""

    def draw(rng: np.random.Generator, name: str) -> list[Array]:
        return [to_float8(rng.standard_normal(shape), name) for shape in shapes]

    return draw


def fp8_rows() -> dict[str, Row]:
    """Casts with a scale, and the product."""

    def casts(source: Draw, oracle: Any, label: str, targets: tuple[str, ...], dtypes: Any) -> list[Case]:
        return [
            Case(
                together(source, scale(s)),
                oracle,
                {"data_type": target},
                f"{label}-{target}-{s}",
                dtypes,
            )
            for target in targets
            for s in SCALES
        ]

    def products(a: tuple[int, ...], b: tuple[int, ...], label: str, s: int = 0) -> list[Case]:
        return [
            Case(
                together((_numbers(a), "float8_143"), (_numbers(b), other), scale(s)),
                scaled_product,
                {},
                f"{label}-{other}",
                ("float8_143",),
            )
            for other in FLOAT8
        ]

    to_fp8 = [
        *casts(normal((5, 300)), _to_fp8, "normal", FLOAT8, FLOATS),
        *casts(special(1), _to_fp8, "special", FLOAT8, FLOATS),
        *casts(normal(()), _to_fp8, "scalar", ("float8_143",), FLOATS),
        *casts(normal((2, 0)), _to_fp8, "empty", ("float8_152",), FLOATS),
    ]
    from_fp8 = [
        *casts(special(1), _from_fp8, "all", FLOATS, FLOAT8),
        *casts(normal((3, 0)), _from_fp8, "empty", ("float16",), FLOAT8),
        *casts(normal(()), _from_fp8, "scalar", ("float32",), FLOAT8),
    ]
    product = [
        *products((3, 4), (4, 5), "", 2),
        *products((70, 33), (33, 129), "large", -3),
        *products((2, 3, 7), (7, 5), "stacked", -32),
        *products((2, 1, 3, 4), (5, 4, 2), "batches", 31),
        *products((4,), (4,), "vectors"),
        *products((3, 0), (0, 2), "nothing", 1),
        *(
            Case(
                together((_numbers((5, 4)), name), (_numbers((4, 3)), name), scale(1)),
                scaled_product,
                {},
                f"same-{name}",
                (name,),
            )
            for name in FLOAT8
        ),
        Case(together(normal((40, 30), (30, 20)), scale(0)), scaled_product, {}, "specials", ("float8_152",)),
    ]
    return {
        "pow2scale_cast_to_fp8": Row(tuple(to_fp8), "throws"),
        "pow2scale_cast_from_fp8": Row(tuple(from_fp8), "throws"),
        "matmul_pow2scaled": Row(tuple(product), "throws"),
    }
