"""Rows of rules that compute each element by itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests_py.bridge.jax.rows_of.row import EDGES, Row, device_grid, flags, floats, ints, words

__all__ = ["bits", "elementwise"]


def elementwise() -> list[Row]:
    import jax
    from jax import lax

    a, b, n, m = floats(3, 4), floats(3, 4), ints(3, 4), ints(3, 4)
    positive = floats(3, 4, low=0.1, high=3.0)
    inner = floats(3, 4, low=-0.95, high=0.95)
    exact = [
        Row(name, getattr(lax, name), (a, b))
        for name in ("add", "sub", "mul", "div", "max", "min", "eq", "ne", "lt", "le", "gt", "ge", "rem")
    ]
    exact += [
        Row(name, getattr(lax, name), (n, m))
        for name in ("add", "sub", "mul", "max", "min", "eq", "ne", "lt", "le", "gt", "ge")
    ]
    exact += [
        Row(name, getattr(lax, name), (EDGES, EDGES[::-1].copy()))
        for name in ("max", "min", "eq", "lt", "ge")
    ]
    exact += [Row(name, getattr(lax, name), (n, np.where(m == 0, 3, m))) for name in ("div", "rem")]
    exact += [
        Row(name, getattr(lax, name), (EDGES,)) for name in ("neg", "abs", "floor", "ceil", "is_finite")
    ]
    exact += [Row(name, getattr(lax, name), (n,)) for name in ("neg", "abs", "sign")]
    exact += [
        Row("sign", lax.sign, (a,)),
        Row("sqrt", lax.sqrt, (positive,), tolerance=1e-6),
        Row("square", lax.square, (a,)),
        Row("integer_pow", lambda x: (x**2, x**3, x**5), (a,), tolerance=1e-6),
        Row(
            "integer_pow",
            lambda x: (lax.integer_pow(x, -1), lax.integer_pow(x, -3)),
            (positive,),
            tolerance=1e-6,
        ),
        Row("integer_pow", lambda x: lax.integer_pow(x, 3), (n,)),
        Row("clamp", lambda x: lax.clamp(np.float32(-1), x, np.float32(1)), (EDGES,)),
        Row("clamp", lambda low, x: lax.clamp(low, x, np.int32(5)), (ints(3, 4, low=-5, high=0), n)),
        Row("select_n", lambda p, x, y: lax.select_n(p, x, y), (flags(3, 4), a, b)),
        Row("select_n", lambda p, x, y: lax.select_n(p, x, y, x + y), (ints(3, 4, low=0, high=3), a, b)),
        Row("select_n", lambda p, x, y: lax.select_n(p, x, y), (np.bool_(True), n, m)),
        Row("convert_element_type", lambda x: x.astype(np.int32), (a,)),
        Row("convert_element_type", lambda x: x.astype(np.float32), (n,)),
        Row("convert_element_type", lambda x: x.astype(bool), (n,)),
        Row("convert_element_type", lambda x: x.astype("bfloat16"), (a,)),
        Row("reduce_precision", lambda x: lax.reduce_precision(x, 5, 10), (a,)),
        Row("reduce_precision", lambda x: lax.reduce_precision(x, 8, 7), (a,)),
        Row("stop_gradient", lambda x: lax.stop_gradient(x) + x, (a,)),
        Row("copy", _copy, (a,)),
        Row("device_put", lambda x: jax.device_put(x) + 1, (a,)),
        Row("sharding_constraint", _constrained, (a,)),
        Row("layout_constraint", _laid_out, (a,)),
        Row("reshard", _resharded, (a,)),
        Row("optimization_barrier", lambda x, y: lax.optimization_barrier((x, y)), (a, b)),
        Row("name", _named, (a,)),
        Row("add_any", _added_gradients, (a,), tolerance=1e-6),
    ]
    near = [
        Row(name, getattr(lax, name), (a,), tolerance=1e-6)
        for name in (
            "exp",
            "tanh",
            "sin",
            "cos",
            "erf",
            "logistic",
            "expm1",
            "exp2",
            "tan",
            "sinh",
            "cosh",
            "asinh",
        )
    ]
    near += [
        Row(name, getattr(lax, name), (positive,), tolerance=1e-6)
        for name in ("log", "rsqrt", "log1p", "cbrt")
    ]
    near += [Row(name, getattr(lax, name), (inner,), tolerance=2e-6) for name in ("erf_inv", "atanh")]
    near += [
        Row("log1p", lax.log1p, (floats(3, 4, low=-1e-4, high=1e-4),), tolerance=1e-6),
        Row("expm1", lax.expm1, (floats(3, 4, low=-1e-4, high=1e-4),), tolerance=1e-6),
        *[Row(name, getattr(lax, name), (inner,), tolerance=1e-6) for name in ("asin", "acos", "atan")],
        Row("atan2", lax.atan2, (a, b), tolerance=1e-6),
        Row("max", lambda p, q: lax.max(p, q), (flags(3, 4), flags(3, 4))),
        Row("min", lambda p, q: lax.min(p, q), (flags(3, 4), flags(3, 4))),
        Row("pow", lax.pow, (positive, b), tolerance=2e-6),
        Row("pow", lax.pow, (positive, n), tolerance=2e-6),
        Row("acosh", lax.acosh, (positive + 1,), tolerance=2e-6),
        Row("erf_inv", lax.erf_inv, (np.array([-1, 0, 1, 0.9999999, 0.999], np.float32),), tolerance=2e-6),
        Row("erfc", lax.erfc, (a,), tolerance=2e-6),
        Row("round", lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), (EDGES * 3,)),
        Row("round", lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), (EDGES * 3,)),
    ]
    return exact + near


def _copy(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.array(x, copy=True)


def _constrained(x: Any) -> Any:
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    return jax.lax.with_sharding_constraint(x * 2, NamedSharding(device_grid(), PartitionSpec()))


def _resharded(x: Any) -> Any:
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((1,), ("a",), axis_types=(jax.sharding.AxisType.Explicit,))
    return jax.sharding.reshard(x * 2, NamedSharding(mesh, PartitionSpec("a")))


def _laid_out(x: Any) -> Any:
    from jax.experimental.layout import Layout, with_layout_constraint

    return with_layout_constraint(x * 2, Layout(major_to_minor=(1, 0)))


def _named(x: Any) -> Any:
    from jax.ad_checkpoint import checkpoint_name

    return checkpoint_name(x * 2, "kept")


def _added_gradients(x: Any) -> Any:
    import jax

    return jax.grad(lambda x: (x * x).sum() + (x * 3).sum())(x)


def bits() -> list[Row]:
    from jax import lax

    u, v, n, m = words(3, 4), words(3, 4), ints(3, 4, low=-1000, high=1000), ints(3, 4, low=-1000, high=1000)
    by = ints(3, 4, low=0, high=31)
    rows = []
    for name, function in (("and", lax.bitwise_and), ("or", lax.bitwise_or), ("xor", lax.bitwise_xor)):
        rows += [Row(name, function, args) for args in ((u, v), (n, m), (flags(3, 4), flags(3, 4)))]
    rows += [Row("not", lax.bitwise_not, (each,)) for each in (u, n, flags(3, 4))]
    rows += [Row("shift_left", lax.shift_left, args) for args in ((u, by.astype(np.uint32)), (n, by))]
    rows += [
        Row("shift_right_logical", lax.shift_right_logical, args)
        for args in ((u, by.astype(np.uint32)), (n, by))
    ]
    rows += [
        Row("shift_right_arithmetic", lax.shift_right_arithmetic, args)
        for args in ((u, by.astype(np.uint32)), (n, by))
    ]
    rows += [Row("shift_left", lax.shift_left, (u, np.full((3, 4), 32, np.uint32)))]
    rows += [Row("shift_right_logical", lax.shift_right_logical, (u, np.full((3, 4), 32, np.uint32)))]
    rows += [
        Row(
            "bitcast_convert_type",
            lambda x: lax.bitcast_convert_type(x, np.float32),
            (words(3, 4) & np.uint32(0x7F7FFFFF),),
        ),
        Row("bitcast_convert_type", lambda x: lax.bitcast_convert_type(x, np.int32), (u,)),
        Row("bitcast_convert_type", _all_halves, (np.arange(1 << 16, dtype=np.uint16),)),
        Row("population_count", lax.population_count, (u,)),
        Row("clz", lax.clz, (u >> by.astype(np.uint32),)),
    ]
    return rows


def _all_halves(x: Any) -> Any:
    from jax import lax

    return lax.bitcast_convert_type(x, "float16"), lax.bitcast_convert_type(x, "bfloat16")
