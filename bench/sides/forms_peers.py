"""The training step of forms.py in PyTorch and in JAX, on all samples of a step in one batch.

Sides of bench/processes.py, as ``forms.turn``: a call takes as many samples and returns the loss of each step.
"""

import os
from collections.abc import Callable

import numpy as np

from bench.programs import basic
from bench.programs.forms import SAMPLES, THREADS


def _batches(samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Of a turn; ``samples``: of a step."""
    steps = SAMPLES // samples
    x, y = basic.batches(1, samples, 1, steps)
    return x.reshape(steps, samples, -1), y.reshape(steps, samples)


def torch_turn(samples: int, *, compiled: bool) -> Callable[[], list[float]]:
    """Eager or compiled; the update is one kernel in both."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no processes that wait for work
    import torch

    torch.set_num_threads(THREADS)
    x, y = map(torch.from_numpy, _batches(samples))
    batches = list(zip(x, y.long(), strict=True))
    layers = []
    for w, b in zip(basic.weights()[::2], basic.weights()[1::2], strict=True):
        linear = torch.nn.Linear(*w.shape)
        linear.weight.data, linear.bias.data = torch.from_numpy(w.T.copy()), torch.from_numpy(b)
        layers += [linear, torch.nn.GELU(approximate="tanh")]
    model = torch.nn.Sequential(*layers[:-1])
    optimiser = torch.optim.SGD(model.parameters(), basic.RATE, fused=True)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(x), y)

    function = torch.compile(loss_of) if compiled else loss_of

    def make() -> list[float]:
        losses = []
        for x, y in batches:
            optimiser.zero_grad(set_to_none=True)
            loss = function(x, y)
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
        return torch.stack(losses).tolist()

    return make


def jax_turn(samples: int) -> Callable[[], list[float]]:
    """One jitted function a step, which is given the buffers of the weights."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.sched_setaffinity(
        0, sorted(os.sched_getaffinity(0))[:THREADS]
    )  # XLA takes a thread for each processor
    import jax
    import jax.numpy as jnp

    def loss_of(params: list[jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
        *hidden, (w, b) = zip(params[::2], params[1::2], strict=True)
        for weight, bias in hidden:
            x = jax.nn.gelu(x @ weight + bias)
        rows = jax.nn.log_softmax(x @ w + b)
        return -jnp.take_along_axis(rows, y[:, None], axis=1).mean()

    def step(params: list[jax.Array], x: jax.Array, y: jax.Array) -> tuple[list[jax.Array], jax.Array]:
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        return [p - basic.RATE * g for p, g in zip(params, grads, strict=True)], loss

    jitted = jax.jit(step, donate_argnums=0)
    params = [jnp.array(w) for w in basic.weights()]
    batches = [(jnp.array(x), jnp.array(y)) for x, y in zip(*_batches(samples), strict=True)]

    def make() -> list[float]:
        nonlocal params
        losses = []
        for x, y in batches:
            params, loss = jitted(params, x, y)
            losses.append(loss)
        jax.block_until_ready(params)
        return [float(loss) for loss in losses]

    return make
