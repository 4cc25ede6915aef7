"""Rows of rules that move, reduce and multiply elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests_py.bridge.jax.rows_of.row import Row, flags, floats, ints

__all__ = ["indexing", "linear", "reductions", "shape"]


def shape() -> list[Row]:
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


def reductions() -> list[Row]:
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


def linear() -> list[Row]:
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


def indexing() -> list[Row]:
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
