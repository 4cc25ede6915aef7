"""The program of mnist.py in JAX, on as many devices as replicas.

Arguments: replicas, micro batch, accumulation, steps. For each line that it reads, the process makes that many steps
and prints their losses.
"""

import json
import os
import sys
from functools import partial

REPLICAS, MICRO_BATCH, ACCUMULATION, STEPS = map(int, sys.argv[1:5])
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={REPLICAS}"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402 (it reads the variables)
import jax.numpy as jnp  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

from bench.programs import basic, mnist  # noqa: E402

SAME, SPLIT = PartitionSpec(), PartitionSpec(None, "replicas")


def loss_of(params, x, y):
    *hidden, (w, b) = zip(params[::2], params[1::2], strict=True)
    for weight, bias in hidden:
        x = jax.nn.gelu(x @ weight + bias)
    rows = jax.nn.log_softmax(x @ w + b)
    return -jnp.take_along_axis(rows, y[:, None], axis=1).mean()


def gradients(params, x, y):
    """The running mean over the micro batches of a replica, then the mean over replicas."""
    params = [jax.lax.pcast(p, "replicas", to="varying") for p in params]

    def micro(carry, batch):
        means, count = carry
        loss, grads = jax.value_and_grad(loss_of)(params, *batch)
        share = 1.0 / (count + 1.0)
        means = [(1.0 - share) * m + share * g for m, g in zip(means, grads, strict=True)]
        return (means, count + 1.0), loss

    (means, _), losses = jax.lax.scan(micro, ([0.0 * p for p in params], jnp.float32(0)), (x, y))
    return [jax.lax.pmean(m, "replicas") for m in means], losses


def adam(params, first, second, count, grads):
    count = count + 1.0
    first = [mnist.BETA1 * m + (1 - mnist.BETA1) * g for m, g in zip(first, grads, strict=True)]
    second = [mnist.BETA2 * v + (1 - mnist.BETA2) * g * g for v, g in zip(second, grads, strict=True)]
    c1, c2 = 1 - mnist.BETA1**count, 1 - mnist.BETA2**count
    params = [
        p - mnist.RATE * (m / c1) / (jnp.sqrt(v / c2) + mnist.EPSILON)
        for p, m, v in zip(params, first, second, strict=True)
    ]
    return params, first, second, count


def step(state, x, y):
    grads, losses = gradients(state[0], x[:, 0], y[:, 0])
    return adam(*state, grads), losses[:, None]


def main() -> None:
    mesh = jax.make_mesh((REPLICAS,), ("replicas",))
    one = jax.shard_map(step, mesh=mesh, in_specs=(SAME, SPLIT, SPLIT), out_specs=(SAME, SPLIT))
    train = partial(jax.jit, donate_argnums=0)(one)
    params = [jnp.asarray(w) for w in basic.weights()]
    zeros = [[jnp.zeros_like(p) for p in params] for _ in range(2)]
    state = jax.device_put((params, *zeros, jnp.float32(0)), NamedSharding(mesh, SAME))
    # On the devices before time is taken.
    data = mnist.batches(REPLICAS, MICRO_BATCH, ACCUMULATION, STEPS)
    batches = [jax.device_put(each, NamedSharding(mesh, SPLIT)) for each in zip(*data, strict=True)]
    while sys.stdin.readline():
        losses = []
        for x, y in batches:
            state, each = train(state, x, y)
            losses.append(each)
        jax.block_until_ready(state)
        print(json.dumps([each.tolist() for each in losses]), flush=True)


if __name__ == "__main__":
    main()
