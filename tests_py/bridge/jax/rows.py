"""A row or several for each rule: a small function that has the primitive in its jaxpr, and what to call it with."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["ROWS", "Row"]

_RNG = np.random.default_rng(20)


@dataclass(frozen=True)
class Row:
    """A function that has a primitive.

    Attributes:
        primitive: its name.
        function: the function.
        args: its arguments.
        sizes: the mesh, for collectives.
        specs: of arguments and of results.
        tolerance: 0: the same bits.
    """

    primitive: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    sizes: Mapping[str, int] | None = None
    specs: Any = None
    tolerance: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)


def floats(*shape: int, low: float = -2.0, high: float = 2.0, dtype: Any = np.float32) -> Any:
    return _RNG.uniform(low, high, shape).astype(dtype)


def ints(*shape: int, low: int = -9, high: int = 9, dtype: Any = np.int32) -> Any:
    return _RNG.integers(low, high, shape).astype(dtype)


def words(*shape: int) -> Any:
    return _RNG.integers(0, 2**32, shape, dtype=np.uint32)


def flags(*shape: int) -> Any:
    return _RNG.integers(0, 2, shape).astype(bool)


EDGES = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, 0.5, -2.5], np.float32)


def _elementwise() -> list[Row]:
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

    return jax.lax.with_sharding_constraint(x * 2, NamedSharding(_grid(), PartitionSpec()))


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


def _bits() -> list[Row]:
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


def _shape() -> list[Row]:
    import jax
    import jax.numpy as jnp
    from jax import lax

    a, n = floats(3, 4), ints(2, 3, 4)
    return [
        Row("reshape", lambda x: jnp.reshape(x, (4, 3)), (a,)),
        Row("reshape", lambda x: lax.reshape(x, (4, 3), (1, 0)), (a,)),
        Row("squeeze", lambda x: jnp.squeeze(x, 1), (floats(3, 1, 4),)),
        Row("transpose", lambda x: x.transpose(2, 0, 1), (n,)),
        Row("broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (2, 3, 4), (1, 2)), (a,)),
        Row("broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (3, 5), (0, 1)), (flags(3, 1),)),
        Row("iota", lambda x: x + lax.broadcasted_iota(np.int32, (600, 700), 1), (np.int32(3),)),
        Row("slice", lambda x: x[1:, 0:4:2], (a,)),
        Row("slice", lambda x: x[:, 1:2, :], (n,)),
        Row("concatenate", lambda x, y: jnp.concatenate([x, y, x], 1), (a, floats(3, 2))),
        Row("concatenate", lambda x: lax.associative_scan(jnp.add, x), (ints(7),)),
        Row("split", lambda x: lax.split(x, (1, 3), 1), (a,)),
        Row("unstack", lambda x: jnp.unstack(x, axis=1), (a,)),
        Row("stack", lambda x, y: jnp.stack([x, y], 1), (a, a + 1)),
        Row("tile", lambda x: jnp.tile(x, (2, 3)), (a,)),
        Row("rev", lambda x: x[::-1, ::-1], (a,)),
        Row("pad", lambda x: lax.pad(x, np.float32(7), ((1, 2, 0), (0, 1, 2))), (a,)),
        Row("pad", lambda x: lax.pad(x, np.float32(7), ((-1, 2, 1), (1, -2, 0))), (a,)),
        Row("jit", lambda x: jax.jit(lambda y: y + 1)(x), (a,)),
    ]


def _reduce() -> list[Row]:
    import jax.numpy as jnp
    from jax import lax

    a, n = floats(3, 5), ints(3, 5)
    rows = [
        Row("reduce_sum", lambda x: (x.sum(0), x.sum()), (a,), tolerance=1e-6),
        Row("reduce_sum", lambda x: x.sum(1), (n,)),
        Row("reduce_max", lambda x: x.max(1), (a,)),
        Row("reduce_min", lambda x: x.min(0), (n,)),
        Row("reduce_prod", lambda x: x.prod(1), (a,), tolerance=1e-6),
        Row("reduce_or", lambda x: x.any(1), (flags(3, 5),)),
        Row("reduce_and", lambda x: x.all(1), (flags(3, 5),)),
        Row("argmax", lambda x: jnp.argmax(x, 1), (ints(3, 5, low=0, high=3),)),
        Row("argmin", lambda x: jnp.argmin(x, 0), (a,)),
        Row("cumsum", lambda x: jnp.cumsum(x, 1), (n,)),
        Row("cumsum", lambda x: lax.cumsum(x, 1, reverse=True), (n,)),
        Row("cumprod", lambda x: lax.cumprod(x, 0), (n,)),
        Row("cumprod", lambda x: lax.cumprod(x, 1, reverse=True), (n,)),
        Row("cummax", lambda x: lax.cummax(x, 1), (a,)),
        Row("cummin", lambda x: lax.cummin(x, 1, reverse=True), (a,)),
        Row("cumlogsumexp", lambda x: lax.cumlogsumexp(x, 1), (a,), tolerance=1e-6),
        Row("reduce", _reduced_by_function, (a,), tolerance=1e-6),
    ]
    for name, start, op in (
        ("reduce_window_sum", np.float32(0), lax.add),
        ("reduce_window_max", np.float32(-np.inf), lax.max),
        ("reduce_window_min", np.float32(np.inf), lax.min),
    ):
        rows += [
            Row(
                name,
                lambda x, s=start, o=op: lax.reduce_window(x, s, o, (2, 3), (1, 2), "SAME"),
                (a,),
                tolerance=1e-6,
            ),
            Row(
                name,
                lambda x, s=start, o=op: lax.reduce_window(
                    x, s, o, (2, 2), (1, 1), ((1, 0), (0, 1)), base_dilation=(2, 1), window_dilation=(1, 2)
                ),
                (a,),
                tolerance=1e-6,
            ),
        ]
    rows += [
        Row(
            "reduce_window", lambda x, o=o: lax.reduce_window(x, np.int32(3), o, (2, 3), (1, 2), "SAME"), (n,)
        )
        for o in (lax.add, lax.max, lax.min)
    ]
    rows += [
        Row(
            "reduce_window",
            lambda x: lax.reduce_window(
                x, np.float32(2), lax.add, (2, 2), (1, 1), ((1, 0), (0, 1)), (2, 1), (1, 2)
            ),
            (a,),
            tolerance=1e-6,
        ),
    ]
    rows += [
        Row("select_and_scatter_add", _max_pool_gradient, (floats(1, 4, 6, 2),), tolerance=1e-6),
        Row(
            "select_and_gather_add",
            _max_pool_tangent,
            (floats(1, 4, 6, 2), floats(1, 4, 6, 2)),
            tolerance=1e-6,
        ),
    ]
    return rows


def _reduced_by_function(x: Any) -> Any:
    from jax import lax

    return lax.reduce(x, np.float32(0), lambda a, b: a + b, (1,))


def _pool(x: Any) -> Any:
    from jax import lax

    return lax.reduce_window(x, np.float32(-np.inf), lax.max, (1, 2, 3, 1), (1, 2, 1, 1), "SAME")


def _max_pool_gradient(x: Any) -> Any:
    import jax

    return jax.grad(lambda x: (_pool(x) ** 2).sum())(x)


def _max_pool_tangent(x: Any, t: Any) -> Any:
    import jax

    return jax.jvp(_pool, (x,), (t,))[1]


def _linear() -> list[Row]:
    import jax.numpy as jnp
    from jax import lax

    def einsum(
        text: str, *shapes: tuple[int, ...], make: Callable[..., Any] = floats, tolerance: float = 1e-6
    ) -> Row:
        return Row(
            "dot_general",
            lambda x, y: jnp.einsum(text, x, y),
            tuple(make(*s) for s in shapes),
            tolerance=tolerance,
        )

    def conv(shapes: Any, strides: Any, padding: Any, **options: Any) -> Row:
        return Row(
            "conv_general_dilated",
            lambda x, y: lax.conv_general_dilated(x, y, strides, padding, **options),
            tuple(floats(*s) for s in shapes),
            tolerance=1e-6,
        )

    def half(*shape: int) -> Any:
        import ml_dtypes

        return floats(*shape).astype(ml_dtypes.bfloat16)

    return [
        einsum("ij,jk->ik", (3, 4), (4, 5)),
        einsum("bij,bkj->bki", (2, 3, 4), (2, 5, 4)),
        einsum("abcd,bdae->abce", (2, 3, 4, 5), (3, 5, 2, 2)),
        einsum("i,i->", (6,), (6,)),
        einsum("i,j->ij", (3,), (4,)),
        einsum("ij,jk->ik", (3, 4), (4, 5), make=ints, tolerance=0),
        einsum("ij,jk->ik", (3, 4), (4, 5), make=half, tolerance=8e-3),
        Row(
            "dot_general",
            lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=np.float32),
            (half(3, 4), half(4, 5)),
            tolerance=1e-6,
        ),
        conv(((2, 3, 5, 6), (4, 3, 2, 3)), (1, 2), "SAME"),
        conv(((2, 5, 6, 3), (2, 3, 3, 4)), (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        conv(((2, 3, 7), (4, 3, 2)), (2,), ((1, 0),), rhs_dilation=(2,)),
        conv(((2, 3, 5, 6), (4, 3, 2, 3)), (1, 1), ((1, 2), (0, 3)), lhs_dilation=(2, 1)),
        conv(((2, 4, 5, 6), (6, 2, 2, 3)), (1, 1), ((-1, 2), (0, 0)), feature_group_count=2),
        conv(((4, 3, 5, 6), (6, 3, 2, 3)), (1, 1), "VALID", batch_group_count=2),
        conv(((2, 3, 3, 4, 3), (4, 3, 2, 2, 2)), (1, 1, 1), "VALID"),
    ]


def _indexing() -> list[Row]:
    import jax
    import jax.numpy as jnp
    from jax import lax

    a, cube = floats(5, 4), floats(2, 5, 4)
    at = np.array([3, -1, 0, 7, 4], np.int32)
    pairs = np.array([[0, 1], [4, 3], [2, 2], [6, 0]], np.int32)
    rows = [
        Row("gather", lambda x, i: x[i], (a, at)),
        Row("gather", lambda x, i: x.at[i].get(mode="clip"), (a, at)),
        Row("gather", lambda x, i: x.at[i].get(mode="fill", fill_value=3), (ints(5, 4), at)),
        Row("gather", lambda x, i: x[:, i], (cube, at)),
        Row("gather", lambda x, i: x[:, :, i], (cube, np.array([[0, 3], [1, 9]], np.int32))),
        Row("gather", lambda x, i: x[i[:, 0], i[:, 1]], (a, pairs)),
        Row("gather", lambda x, i: x[i[:, 0], :, i[:, 1]], (cube, np.array([[0, 1], [1, 3]], np.int32))),
        Row("gather", lambda x, i: jnp.take_along_axis(x, i, 1), (a, ints(5, 2, low=-4, high=4))),
        Row("gather", lambda x, i: jax.vmap(lambda r, k: lax.dynamic_slice(r, (k,), (2,)))(x, i), (a, at)),
        Row("gather", lambda x, i: jnp.take(x, i, axis=0), (flags(5, 4), at)),
        Row("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i, 1), (2, 3)), (a, np.int32(2))),
        Row("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i, i), (2, 3)), (a, np.int32(9))),
        Row("dynamic_slice", lambda x, i: x[i], (a, np.int32(-2))),
        Row(
            "dynamic_update_slice",
            lambda x, y, i: lax.dynamic_update_slice(x, y, (i, 1)),
            (a, floats(2, 2), np.int32(9)),
        ),
        Row(
            "dynamic_update_slice",
            lambda x, y, i: lax.dynamic_update_slice(x, y, (0, i)),
            (a, floats(5, 1), np.int32(2)),
        ),
        Row("top_k", lambda x: lax.top_k(x, 3), (floats(3, 6),)),
        Row("sort", lambda x: jnp.sort(x, 0), (floats(6, 3),)),
        Row("sort", lambda x: jnp.argsort(x, 1), (ints(3, 6, low=0, high=3),)),
        Row(
            "sort",
            lambda x, y: lax.sort((x, y, x + y), num_keys=2),
            (ints(3, 6, low=0, high=2), ints(3, 6, low=0, high=3)),
        ),
        Row(
            "sort",
            lambda x, y: lax.sort((x, y), dimension=0, num_keys=1),
            (ints(6, low=0, high=3), floats(6)),
        ),
    ]
    updates, distinct = floats(5, 4), np.array([3, -1, 0, 7, 1], np.int32)
    for name, kind in (("add", "add"), ("mul", "multiply"), ("min", "min"), ("max", "max")):
        rows += [
            Row(
                f"scatter-{name}",
                lambda x, i, u, k=kind: getattr(x.at[i], k)(u),
                (a, at, updates),
                tolerance=1e-6,
            ),
            Row(
                f"scatter-{name}",
                lambda x, i, u, k=kind: getattr(x.at[i[:, 0], i[:, 1]], k)(u),
                (a, pairs, floats(4)),
                tolerance=1e-6,
            ),
        ]
    rows += [
        Row(
            "scatter-add",
            lambda x, i, u: x.at[i].add(u),
            (ints(5, 4), np.array([1, 1, 1, 0, 9], np.int32), ints(5, 4)),
        ),
        Row("scatter-add", lambda x, i, u: x.at[:, i].add(u), (cube, at, floats(2, 5, 4)), tolerance=1e-6),
        Row("scatter-add", _gradient_of_take_along, (a, ints(5, 3, low=0, high=4)), tolerance=1e-6),
        Row("scatter-sub", lambda x, i, u: x.at[i].subtract(u), (a, at, updates), tolerance=1e-6),
        Row("scatter", lambda x, i, u: x.at[i].set(u), (a, distinct, updates)),
        Row("scatter", lambda x, i, u: x.at[i].set(u), (flags(5, 4), distinct, flags(5, 4))),
        Row("scatter", lambda x, i, u: x.at[i, 1:3].set(u), (a, distinct, floats(5, 2))),
        Row(
            "scatter",
            lambda x, i, u: x.at[i].set(u, mode="clip"),
            (a, np.array([0, 2, 9], np.int32), floats(3, 4)),
        ),
    ]
    return rows


def _gradient_of_take_along(x: Any, i: Any) -> Any:
    import jax
    import jax.numpy as jnp

    return jax.grad(lambda x: (jnp.take_along_axis(x, i, 1) ** 2).sum())(x)


def _collectives() -> list[Row]:
    import jax
    from jax import lax
    from jax.sharding import PartitionSpec as P

    line, grid = {"data": 4}, {"data": 2, "model": 2}
    a, n = floats(8, 4), ints(8, 4)

    def row(
        name: str,
        f: Callable[..., Any],
        x: Any,
        sizes: Any = line,
        spec: Any = None,
        tolerance: float = 0.0,
        **options: Any,
    ) -> Row:
        cut = P(tuple(sizes)) if spec is None else spec
        return Row(name, f, (x,), sizes, ((cut,), P(tuple(sizes))), tolerance, options)

    return [
        row("psum", lambda x: lax.psum(x, "data"), n),
        row("psum", lambda x: lax.psum(x, "data"), a, tolerance=1e-6),
        row("psum", lambda x: lax.psum(x, "model"), n, grid),
        row("psum", lambda x: lax.psum(x, ("model", "data")), n, grid),
        row("psum", lambda x: lax.psum(x, ("a", "c")), n, {"a": 2, "b": 2, "c": 2}),
        row("psum", lambda x: lax.psum(x, "data", axis_index_groups=[[0, 2], [1, 3]]), n),
        row("pmax", lambda x: lax.pmax(x, "data"), a),
        row("pmin", lambda x: lax.pmin(x, "model"), a, grid),
        row("all_gather", lambda x: lax.all_gather(x, "data"), n),
        row("all_gather", lambda x: lax.all_gather(x, "data", axis=1, tiled=True), n),
        row("all_gather", lambda x: lax.all_gather(x, ("model", "data"), axis=1), n, grid),
        row("reduce_scatter", lambda x: lax.psum_scatter(x, "data", scatter_dimension=1, tiled=True), n),
        row("reduce_scatter", lambda x: lax.psum_scatter(x, "model", scatter_dimension=0), n, grid),
        row("all_to_all", lambda x: lax.all_to_all(x, "data", 1, 0, tiled=True), n),
        row("all_to_all", lambda x: lax.all_to_all(x, "data", 1, 1, tiled=True), n),
        row("all_to_all", lambda x: lax.all_to_all(x, "model", 0, 1, tiled=True), n, grid),
        row("all_to_all", lambda x: lax.all_to_all(x, "data", 1, 0), n),
        row("all_to_all", lambda x: lax.all_to_all(x, "data", 1, 2), ints(8, 4, 3)),
        row("all_to_all", lambda x: lax.all_to_all(x, "data", 2, 1, tiled=True), ints(8, 3, 8)),
        row("ppermute", lambda x: lax.ppermute(x, "data", [(0, 1), (1, 2), (2, 3), (3, 0)]), n),
        row("ppermute", lambda x: lax.ppermute(x, "data", [(0, 3), (1, 0)]), n),
        row("ppermute", lambda x: lax.ppermute(x, ("data", "model"), [(0, 3), (1, 2)]), n, grid),
        row("ppermute", lambda x: lax.ppermute(x, "data", [(0, 1), (1, 0)]), n, grid),
        row("ppermute", lambda x: lax.ppermute(x, ("model", "data"), [(0, 1), (1, 2)]), n, grid),
        row(
            "reduce_scatter",
            lambda x: lax.psum_scatter(x, ("model", "data"), scatter_dimension=1, tiled=True),
            n,
            grid,
        ),
        row("all_to_all", lambda x: lax.all_to_all(x, ("model", "data"), 1, 0, tiled=True), n, grid),
        row("axis_index", lambda x: x + lax.axis_index("data") * 10 + lax.axis_index("model"), n, grid),
        row("axis_index", lambda x: x + lax.axis_index(("model", "data")), n, grid),
        row("psum_invariant", lambda x: x + lax.psum(x, "data"), n, check_vma=True),
        row("pvary", lambda x: x + lax.psum(x, "data"), n, check_vma=True),
        row("all_gather_invariant", _gathered_invariant, n, check_vma=True),
        Row(
            "shard_map",
            lambda x: (
                jax.shard_map(
                    lambda y: y + lax.axis_index("data"),
                    mesh=_grid(),
                    in_specs=P("data", "model"),
                    out_specs=P("data", "model"),
                )(x + 1)
                * 2
            ),
            (n,),
        ),
    ]


def _gathered_invariant(x: Any) -> Any:
    from jax._src.lax import parallel

    return x + parallel.all_gather_invariant(x, "data", axis=0, tiled=True)[:2]


@functools.cache
def _grid() -> Any:
    """The mesh, made before a step is traced."""
    from tests_py.bridge.jax.compare import devices

    return devices({"data": 2, "model": 2})


def _control() -> list[Row]:
    import jax
    import jax.numpy as jnp
    from jax import lax
    from jax.sharding import PartitionSpec as P

    a = floats(4, 3)

    @jax.custom_jvp
    def doubled(x: Any) -> Any:
        return x * 2

    doubled.defjvp(lambda primals, tangents: (doubled(*primals), tangents[0] * 2))

    @jax.custom_vjp
    def tripled(x: Any) -> Any:
        return x * 3

    tripled.defvjp(lambda x: (x * 3, None), lambda _, g: (g * 3,))
    return [
        Row("custom_jvp_call", doubled, (a,)),
        Row("custom_vjp_call", tripled, (a,)),
        Row("remat2", jax.checkpoint(lambda x: x * 2), (a,)),
        Row("scan", lambda x: lax.scan(lambda c, r: (c + r, c * 2), x[0], x), (ints(5, 3),)),
        Row("scan", lambda x: lax.scan(lambda c, r: (c - r, c), x[0], x, reverse=True), (ints(5, 3),)),
        Row("scan", lambda x, k: lax.scan(lambda c, _: (c * k, None), x, None, length=4), (ints(3), ints(3))),
        Row("scan", lambda x: lax.scan(lambda c, r: (r, (c, r)), x[0], x), (ints(1, 3),)),
        Row("scan", lambda x: lax.scan(lambda c, r: ((c[1], c[0]), r), (x[0], x[1]), x), (ints(5, 3),)),
        Row("scan", lambda x: lax.map(lambda r: r * 2 + 1, x), (ints(5, 3),)),
        Row("cond", lambda p, x: lax.cond(p, lambda y: y + 1, lambda y: y * 2, x), (np.bool_(True), ints(3))),
        Row(
            "cond",
            lambda p, x: lax.cond(p, lambda y: (y, y + 1), lambda y: (y * 2, y), x),
            (np.bool_(False), ints(3)),
        ),
        *[
            Row(
                "cond",
                lambda i, x: lax.switch(i, [lambda y: y, lambda y: y * 2, lambda y: -y, lambda y: y + 7], x),
                (np.int32(i), ints(3)),
            )
            for i in (-1, 0, 1, 2, 3, 9)
        ],
        Row(
            "while",
            lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 2, c[1] * 2), (jnp.int32(0), x)),
            (ints(3),),
        ),
        Row(
            "while",
            lambda x: lax.while_loop(
                lambda c: c[1] > 3, lambda c: (c[0] + c[0], c[1] - 1), (x, jnp.int32(9))
            ),
            (ints(3),),
        ),
        Row(
            "while",
            lambda x: lax.while_loop(lambda c: c.sum() < 900, lambda c: c * 2 + 1, x),
            (ints(3, low=1),),
        ),
        Row(
            "while",
            lambda x, n: lax.while_loop(
                lambda c: (c[0] != 1) & (c[2] < n),
                lambda c: (jnp.where(c[0] % 2 == 0, c[0] // 2, 3 * c[0] + 1), c[1] + x, c[2] + 1),
                (jnp.int32(27), x, jnp.int32(0)),
            ),
            (ints(3), np.int32(200)),
        ),
        Row(
            "while",
            lambda x: jax.vmap(lambda r: lax.while_loop(lambda c: c < 90, lambda c: c * 2 + 1, r))(x),
            (ints(5, low=1),),
        ),
        Row(
            "while",
            lambda x: lax.while_loop(
                lambda c: c[0] > 0,
                lambda c: (
                    c[0] - 1,
                    lax.while_loop(lambda d: d.sum() < 40, lambda d: d + c[0], c[1]) - 30,
                ),
                (x[0], x),
            ),
            (ints(3, low=1),),
        ),
        Row(
            "while",
            lambda x: lax.while_loop(
                lambda c: lax.psum(c.sum(), "a") < 900, lambda c: c * 2 + lax.pmax(c, "a"), x
            ),
            (ints(4, 3, low=1),),
            {"a": 4},
            (P("a"), P("a")),
        ),
        Row(
            "while",
            lambda x: lax.while_loop(lambda c: c.sum() < 900, lambda c: c * 2 + 1, x),
            (ints(4, 3, low=1),),
            {"a": 4},
            (P("a"), P("a")),
        ),
        Row("closed_call", _closed_call, (a,)),
        Row("custom_vmap_call", _custom_vmap, (a,)),
        Row("composite", lambda x: lax.composite(lambda y: y * 2, "tests.double")(x), (a,)),
    ]


def _closed_call(x: Any) -> Any:
    import jax
    from jax._src import core

    inner = jax.make_jaxpr(lambda y: y * 2)(x)
    return core.closed_call_p.bind(x, **core.closed_call_p.get_bind_params({"call_jaxpr": inner}))[0]


def _custom_vmap(x: Any) -> Any:
    from jax.custom_batching import custom_vmap

    function = custom_vmap(lambda y: y * 2)
    function.def_vmap(lambda size, batched, y: (y * 2, batched[0]))
    return function(x)


def _random() -> list[Row]:
    import jax

    raw = words(2)

    def key(x: Any) -> Any:
        return jax.random.wrap_key_data(x)

    return [
        Row("threefry2x32", _threefry, (raw, words(7), words(7))),
        Row("random_bits", lambda x: jax.random.bits(key(x), (3, 5)), (raw,)),
        Row("random_bits", lambda x: jax.random.bits(key(x), (3, 5), "uint16"), (raw,)),
        Row("random_bits", lambda x: jax.random.bits(key(x), (5,), "uint8"), (raw,)),
        Row("random_bits", lambda x: jax.random.uniform(key(x), (3, 5)), (raw,)),
        Row("random_bits", lambda x: jax.random.randint(key(x), (3, 5), 0, 17), (raw,)),
        Row("random_bits", lambda x: jax.random.bernoulli(key(x), 0.3, (9,)), (raw,)),
        Row("random_bits", lambda x: jax.random.normal(key(x), (3, 5)), (raw,), tolerance=2e-6),
        Row(
            "random_bits",
            lambda x: jax.vmap(lambda k: jax.random.bits(k, (3,)))(jax.random.split(key(x), 4)),
            (raw,),
        ),
        Row("iota_2x32_shape", lambda x: _places(x), (np.uint32(5),)),
        Row("random_split", lambda x: jax.random.key_data(jax.random.split(key(x), 3)), (raw,)),
        Row(
            "random_split", lambda x: [jax.random.bits(k, (2,)) for k in jax.random.split(key(x), 2)], (raw,)
        ),
        Row(
            "random_fold_in",
            lambda x, i: jax.random.key_data(jax.random.fold_in(key(x), i)),
            (raw, np.int32(77)),
        ),
        Row("random_seed", lambda i: jax.random.key_data(jax.random.key(i)), (np.int32(-5),)),
        Row("random_wrap", lambda x: jax.random.key_data(key(x)), (raw,)),
        Row("random_unwrap", lambda x: jax.random.key_data(key(x)) + 1, (raw,)),
        Row("random_clone", lambda x: jax.random.key_data(jax.random.clone(key(x))), (raw,)),
        Row(
            "random_bits",
            lambda i: jax.random.bits(jax.random.fold_in(jax.random.key(3), i), (4,)),
            (np.int32(2),),
        ),
        Row("random_bits", lambda x: jax.random.permutation(key(x), 9), (raw,)),
        Row("random_bits", lambda k: jax.random.bits(k, (4,)), (jax.random.key(11),)),
    ]


def _threefry(key: Any, x: Any, y: Any) -> Any:
    from jax._src.random.threefry2x32 import threefry2x32_p

    return threefry2x32_p.bind(key[0], key[1], x, y)


def _places(x: Any) -> Any:
    from jax._src.random import prng

    return [word + x for word in prng.iota_2x32_shape((3, 4))]


def ROWS() -> list[Row]:  # noqa: N802 - a table that needs jax
    """All rows."""
    from tests_py.bridge.jax.bit_rows import bit_rows

    parts = (
        _elementwise,
        _bits,
        bit_rows,
        _shape,
        _reduce,
        _linear,
        _indexing,
        _collectives,
        _control,
        _random,
    )
    return [row for part in parts for row in part()]
