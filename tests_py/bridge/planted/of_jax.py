"""Steps of JAX: `step(state, batch) -> state, outputs` under `shard_map`, with specs."""

from __future__ import annotations

from tests_py.bridge.planted.cases import Case

__all__ = ["CASES", "PRELUDE"]

PRELUDE = """
import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AbstractMesh, PartitionSpec as P
"""

_MLP = """
mesh = AbstractMesh((4,), ("data",))
params = {"w1": np.ones((4, 8), np.float32) / 8, "b1": np.zeros(8, np.float32), "w2": np.ones((8, 2), np.float32)}
x, y = np.ones((8, 4), np.float32), np.zeros((8, 2), np.float32)


def predict(p, x):
    return jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"]


def loss_of(p, x, y):
    return jnp.mean((predict(p, x) - y) ** 2)

"""

_SGD = (
    _MLP
    + """
def step(p, x, y):
    loss, g = jax.value_and_grad(loss_of)(p, x, y)
    {{}}
    return jax.tree.map(lambda p, g: p - 0.1 * g, p, g), lax.pmean(loss, "data")


args, specs, out_specs, states = (params, x, y), (P(), P("data"), P("data")), (P(), P()), 1
"""
)

_UPDATE = _SGD.replace("{{}}", "loss = lax.pmean(loss, 'data')").replace(
    'return jax.tree.map(lambda p, g: p - 0.1 * g, p, g), lax.pmean(loss, "data")', "{{}}\n    return p, loss"
)
_UPDATE_EACH = _SGD.replace("{{}}", "loss = lax.pmean(loss, 'data')").replace(
    'return jax.tree.map(lambda p, g: p - 0.1 * g, p, g), lax.pmean(loss, "data")',
    """w1 = p["w1"] - 0.1 * lax.pmean(g["w1"], "data")
    {{}}
    w2 = p["w2"] - 0.1 * lax.pmean(g["w2"], "data")
    return {"w1": w1, "b1": b1, "w2": w2}, loss""",
)

_ADAM = (
    _MLP
    + """
moments = {k: np.zeros_like(v) for k, v in params.items()}


def step(p, m, v, count, x, y):
    loss, g = jax.value_and_grad(loss_of)(p, x, y)
    local = g
    g = lax.pmean(g, "data")
    {{}}
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
    count = count + 1
    p = jax.tree.map(
        lambda p, m, v: p - 1e-3 * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8), p, m, v
    )
    return p, m, v, count, lax.pmean(loss, "data")


args = params, moments, moments, np.float32(0), x, y
specs, out_specs, states = (P(), P(), P(), P(), P("data"), P("data")), (P(),) * 5, 4
"""
)

_NORM = """
mesh = AbstractMesh((4,), ("data",))
params = {"scale": np.ones(4, np.float32), "w": np.ones((4, 2), np.float32)}
stats = {"mean": np.zeros(4, np.float32), "var": np.ones(4, np.float32)}
x, y = np.ones((8, 4), np.float32), np.zeros((8, 2), np.float32)


def loss_of(p, stats, x, y):
    mean, var = jnp.mean(x, 0), jnp.var(x, 0)
    {{}}
    new = {"mean": 0.9 * stats["mean"] + 0.1 * mean, "var": 0.9 * stats["var"] + 0.1 * var}
    h = (x - mean) * lax.rsqrt(var + 1e-5) * p["scale"]
    return jnp.mean((h @ p["w"] - y) ** 2), new


def step(p, stats, x, y):
    (loss, stats), g = jax.value_and_grad(loss_of, has_aux=True)(p, stats, x, y)
    g = lax.pmean(g, "data")
    return jax.tree.map(lambda p, g: p - 0.1 * g, p, g), stats, lax.pmean(loss, "data")


args, specs = (params, stats, x, y), (P(), P(), P("data"), P("data"))
out_specs, states = (P(), P(), P()), 2
"""

_CLIP = (
    _MLP
    + """
def step(p, x, y):
    loss, g = jax.value_and_grad(loss_of)(p, x, y)
    local = g
    g = lax.pmean(g, "data")
    {{}}
    g = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / norm), g)
    return jax.tree.map(lambda p, g: p - 0.1 * g, p, g), lax.pmean(loss, "data")


args, specs, out_specs, states = (params, x, y), (P(), P("data"), P("data")), (P(), P()), 1
"""
)

_GUARD = (
    _MLP
    + """
def step(p, skipped, x, y):
    loss, g = jax.value_and_grad(loss_of)(p, x, y)
    local = loss
    loss, g = lax.pmean((loss, g), "data")
    {{}}
    p = lax.cond(
        finite, lambda p, g: jax.tree.map(lambda p, g: p - 0.1 * g, p, g), lambda p, g: p, p, g
    )
    return p, skipped + jnp.where(finite, 0, 1), loss


args, specs = (params, np.int32(0), x, y), (P(), P(), P("data"), P("data"))
out_specs, states = (P(), P(), P()), 2
"""
)

_SCALER = (
    _MLP
    + """
def step(p, scale, x, y):
    loss, g = jax.value_and_grad(lambda p: loss_of(p, x, y) * scale)(p)
    finite = jnp.all(jnp.isfinite(g["w1"]))
    g = lax.pmean(g, "data")
    {{}}
    scale = jnp.where(finite, scale * 1.01, scale * 0.5)
    p = jax.tree.map(lambda p, g: p - 0.1 * g / scale, p, g)
    return p, scale, lax.pmean(loss, "data")


args, specs = (params, np.float32(1024), x, y), (P(), P(), P("data"), P("data"))
out_specs, states = (P(), P(), P()), 2
"""
)

_NOISE = (
    _MLP
    + """
def step(p, key, x, y):
    loss, g = jax.value_and_grad(loss_of)(p, x, y)
    g = lax.pmean(g, "data")
    key, sub = jax.random.split(key)
    {{}}
    noise = jax.random.normal(sub, g["b1"].shape)
    g = {**g, "b1": g["b1"] + 1e-3 * noise}
    return jax.tree.map(lambda p, g: p - 0.1 * g, p, g), key, lax.pmean(loss, "data")


args, specs = (params, np.array([0, 7], np.uint32), x, y), (P(), P(), P("data"), P("data"))
out_specs, states = (P(), P(), P()), 2
"""
)

_TENSOR = """
mesh = AbstractMesh((2, 2), ("data", "model"))
params = {"w1": np.ones((4, 8), np.float32) / 8, "w2": np.ones((8, 2), np.float32) / 8, "b": np.zeros(2, np.float32)}
x, y = np.ones((8, 4), np.float32), np.zeros((8, 2), np.float32)


def step(p, x, y):
    h = jnp.tanh(x @ p["w1"])
    part = h @ p["w2"]
    out = LINE_SUM
    d = 2.0 * (out + p["b"] - y) / out.size
    dh = (d @ p["w2"].T) * (1.0 - h * h)
    g = {"w1": x.T @ dh, "w2": h.T @ d, "b": jnp.sum(d, 0)}
    LINE_MEAN
    loss = lax.pmean(jnp.mean((out + p["b"] - y) ** 2), "data")
    return jax.tree.map(lambda p, g: p - 0.1 * g, p, g), loss


weights = {"w1": P(None, "model"), "w2": P("model", None), "b": P()}
args, specs, out_specs, states = (params, x, y), (weights, P("data"), P("data")), (weights, P()), 1
"""
_TENSOR_SUM = _TENSOR.replace("LINE_SUM", "{{}}").replace("LINE_MEAN", 'g = lax.pmean(g, "data")')
_TENSOR_MEAN = _TENSOR.replace("LINE_SUM", 'lax.psum(part, "model")').replace("LINE_MEAN", "{{}}")


_GATHERED = (
    _MLP
    + """
def step(p, x, y):
    loss, g = jax.value_and_grad(loss_of)(p, x, y)
    everyone = lax.all_gather(g, "data")
    {{}}
    return jax.tree.map(lambda p, g: p - 0.1 * g, p, g), lax.pmean(loss, "data")


args, specs, out_specs, states = (params, x, y), (P(), P("data"), P("data")), (P(), P()), 1
"""
)

_BEST = (
    _MLP
    + """
def step(p, best, x, y):
    loss, g = jax.value_and_grad(loss_of)(p, x, y)
    local = loss
    loss, g = lax.pmean((loss, g), "data")
    {{}}
    return jax.tree.map(lambda p, g: p - 0.1 * g, p, g), best, loss


args, specs = (params, np.float32(np.inf), x, y), (P(), P(), P("data"), P("data"))
out_specs, states = (P(), P(), P()), 2
"""
)

_ORDER = (
    _MLP
    + """
def step(p, table, position, x, y):
    loss, g = jax.value_and_grad(loss_of)(p, x, y)
    g = lax.pmean(g, "data")
    {{}}
    rate = lax.dynamic_index_in_dim(table, at % 4, keepdims=False)
    return jax.tree.map(lambda p, g: p - rate * g, p, g), position + 1, lax.pmean(loss, "data")


args = params, np.linspace(0.1, 0.4, 4, dtype=np.float32), np.int32(0), x, y
specs, out_specs, states = (P(), P(), P(), P("data"), P("data")), (P(), P(), P()), (0, None, 1)
"""
)

_CHECKPOINT = (
    _MLP
    + """
def step(p, average, x, y):
    loss, g = jax.value_and_grad(loss_of)(p, x, y)
    mine = jax.tree.map(lambda p, g: p - 0.1 * g, p, g)
    p = jax.tree.map(lambda p, g: p - 0.1 * g, p, lax.pmean(g, "data"))
    {{}}
    return p, average, lax.pmean(loss, "data")


args, specs = (params, params, x, y), (P(), P(), P("data"), P("data"))
out_specs, states = (P(), P(), P()), 2
"""
)

_SCAN = (
    _MLP
    + """
def step(p, x, y):
    def micro(total, batch):
        loss, g = jax.value_and_grad(loss_of)(p, *batch)
        {{}}
        return total, loss

    zeros = jax.tree.map(jnp.zeros_like, p)
    g, losses = lax.scan(micro, zeros, (x.reshape(2, 1, 4), y.reshape(2, 1, 2)))
    return jax.tree.map(lambda p, g: p - 0.05 * g, p, g), lax.pmean(jnp.mean(losses), "data")


args, specs, out_specs, states = (params, x, y), (P(), P("data"), P("data")), (P(), P()), 1
"""
)

CASES = (
    Case(
        "gradients without a mean",
        "forgotten collective",
        _UPDATE,
        'p = jax.tree.map(lambda p, g: p - 0.1 * lax.pmean(g, "data"), p, g)',
        "p = jax.tree.map(lambda p, g: p - 0.1 * g, p, g)",
    ),
    Case(
        "one gradient without a mean",
        "forgotten collective",
        _UPDATE_EACH,
        'b1 = p["b1"] - 0.1 * lax.pmean(g["b1"], "data")',
        'b1 = p["b1"] - 0.1 * g["b1"]',
    ),
    Case(
        "loss without a mean",
        "forgotten collective",
        _SGD.replace('lax.pmean(loss, "data")', "loss")
        .replace("{{}}", 'g = lax.pmean(g, "data"); LOSS')
        .replace("; LOSS", "\n    {{}}"),
        'loss = lax.pmean(loss, "data")',
        "loss = loss * 1.0",
    ),
    Case(
        "partial products without a sum",
        "forgotten collective",
        _TENSOR_SUM,
        'lax.psum(part, "model")',
        "part * 1.0",
    ),
    Case(
        "micro batches without a mean",
        "forgotten collective",
        _SCAN,
        'total = jax.tree.map(lambda t, g: t + lax.pmean(g, "data"), total, g)',
        "total = jax.tree.map(lambda t, g: t + g, total, g)",
    ),
    Case(
        "sum of a sum",
        "doubled collective",
        _SGD,
        'g = lax.pmean(g, "data")',
        'g = lax.psum(lax.pmean(g, "data"), "data")',
    ),
    Case(
        "mean of a mean",
        "doubled collective",
        _SGD,
        'g = lax.pmean(g, "data")',
        'g = lax.pmean(lax.pmean(g, "data"), "data")',
    ),
    Case(
        "sum of a forward sum",
        "doubled collective",
        _TENSOR_SUM,
        'lax.psum(part, "model")',
        'lax.psum(lax.psum(part, "model"), "model")',
    ),
    Case(
        "gradients over the model axis",
        "wrong axis",
        _TENSOR_MEAN,
        'g = lax.pmean(g, "data")',
        'g = lax.pmean(g, "model")',
    ),
    Case(
        "gradients over both axes",
        "wrong axis",
        _TENSOR_MEAN,
        'g = lax.pmean(g, "data")',
        'g = lax.pmean(g, ("data", "model"))',
    ),
    Case(
        "partial products over the data axis",
        "wrong axis",
        _TENSOR_SUM,
        'lax.psum(part, "model")',
        'lax.psum(part, "data")',
    ),
    Case(
        "gradients in pairs",
        "wrong group",
        _SGD,
        'g = lax.pmean(g, "data")',
        'g = jax.tree.map(lambda g: lax.psum(g, "data", axis_index_groups=[[0, 1], [2, 3]]) / 2, g)',
    ),
    Case(
        "gathered gradients of a neighbour",
        "wrong group",
        _GATHERED,
        "g = jax.tree.map(lambda e: jnp.mean(e, 0), everyone)",
        'g = jax.tree.map(lambda e: e[lax.axis_index("data")], everyone)',
    ),
    Case(
        "first replica keeps its gradient",
        "rank-dependent branch",
        _SGD,
        'g = lax.pmean(g, "data")',
        'g = lax.cond(lax.axis_index("data") == 0, lambda g, m: g, lambda g, m: m, g, lax.pmean(g, "data"))',
    ),
    Case(
        "first replica decays its weights",
        "rank-dependent branch",
        _SGD,
        'g = lax.pmean(g, "data")',
        'g = {**lax.pmean(g, "data"), "w1": jnp.where(lax.axis_index("data") == 0, g["w1"] * 0, p["w1"])}',
    ),
    Case(
        "noise of its own",
        "rank-dependent seed",
        _NOISE,
        "sub = jax.random.fold_in(sub, 3)",
        'sub = jax.random.fold_in(sub, lax.axis_index("data"))',
    ),
    Case(
        "key advanced by the replica",
        "rank-dependent seed",
        _NOISE,
        "key = jax.random.fold_in(key, 1)",
        'key = jax.random.fold_in(key, lax.axis_index("data"))',
    ),
    Case(
        "rate looked up by the replica",
        "rank-dependent data order",
        _ORDER,
        "at = position",
        'at = position + lax.axis_index("data")',
    ),
    Case(
        "rate looked up by the batch",
        "rank-dependent data order",
        _ORDER,
        "at = position",
        "at = position + jnp.argmax(x[0])",
    ),
    Case(
        "statistics of the local batch",
        "state not synchronised",
        _NORM,
        'mean, var = lax.pmean((mean, var), "data")',
        "mean, var = mean * 1.0, var * 1.0",
    ),
    Case(
        "variance of the local batch",
        "state not synchronised",
        _NORM,
        'mean, var = lax.pmean((mean, var), "data")',
        'mean, var = lax.pmean(mean, "data"), var * 1.0',
    ),
    Case(
        "moment of local gradients",
        "state not synchronised",
        _ADAM,
        "m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)",
        "m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, local)",
    ),
    Case(
        "best loss of the replica",
        "state not synchronised",
        _BEST,
        "best = jnp.minimum(best, loss)",
        "best = jnp.minimum(best, local)",
    ),
    Case(
        "average of local weights",
        "state not synchronised",
        _CHECKPOINT,
        "average = jax.tree.map(lambda a, p: 0.99 * a + 0.01 * p, average, p)",
        "average = jax.tree.map(lambda a, p: 0.99 * a + 0.01 * p, average, mine)",
    ),
    Case(
        "norm of local gradients",
        "state not synchronised",
        _CLIP,
        "norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(g)))",
        "norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(local)))",
    ),
    Case(
        "update skipped by a local loss",
        "cond on a varying predicate",
        _GUARD,
        "finite = jnp.isfinite(loss)",
        "finite = jnp.isfinite(local)",
    ),
    Case(
        "loss scale of local gradients",
        "cond on a varying predicate",
        _SCALER,
        'finite = lax.pmin(finite.astype(jnp.int32), "data") == 1',
        "finite = finite & True",
    ),
    Case(
        "collective in a branch of some",
        "cond on a varying predicate",
        _SGD,
        'g = lax.cond(lax.pmean(loss, "data") > 0, lambda g: lax.pmean(g, "data"), lambda g: lax.pmin(g, "data"), g)',
        'g = lax.cond(loss > 0, lambda g: lax.pmean(g, "data"), lambda g: lax.pmin(g, "data"), g)',
    ),
    Case(
        "mean of partial products",
        "mean for sum",
        _TENSOR_SUM,
        'lax.psum(part, "model")',
        'lax.pmean(part, "model")',
    ),
    Case(
        "one sum among means",
        "mean for sum",
        _SGD,
        'g = lax.pmean(g, "data")',
        'g = {**lax.pmean(g, "data"), "b1": lax.psum(g["b1"], "data")}',
    ),
)
