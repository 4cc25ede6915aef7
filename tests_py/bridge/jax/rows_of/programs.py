"""Rows of rules that talk to other replicas, branch, loop and draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests_py.bridge.jax.rows_of.row import Row, device_grid, floats, ints, words

__all__ = ["collectives", "control", "random"]


def collectives() -> list[Row]:
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
                    mesh=device_grid(),
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


def control() -> list[Row]:
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


def random() -> list[Row]:
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
