"""The training program of examples/popxl beside twins in NumPy and PyTorch: same weights, same batches, same losses."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from popsr import compat
from tests_py import ROOT
from tests_py.support.helpers import Array
from tests_py.support.unchecked import unchecked

UPDATES, PIXELS = 100, 64


@pytest.fixture(scope="module")
def mnist() -> Iterator[dict[str, Any]]:
    """Names of the program, which imports popxl and popxl_addons."""
    compat.install()
    try:
        yield runpy.run_path(str(ROOT / "examples/popxl/mnist.py"))
    finally:
        compat.uninstall()


def make_data(opts: Any) -> tuple[Array, Array]:
    """Images and labels of all updates, as the program takes them: (updates, accumulation, replicas, batch, ...).

    Classes overlap, so that losses stay far above the spacing of probabilities near 1.
    """
    rng = np.random.default_rng(1)
    shape = (UPDATES, opts.gradient_accumulation, opts.data_parallel, opts.micro_batch_size)
    labels = rng.integers(0, 10, shape).astype(np.int32)
    centres = rng.random((10, PIXELS))
    return (centres[labels] + rng.normal(0, 0.8, (*shape, PIXELS))).astype(np.float32), labels


def run_program(mnist: dict[str, Any], opts: Any, x: Array, y: Array) -> tuple[Array, dict[str, Array]]:
    """Losses by update, micro batch and replica, and the weights before it."""
    program = mnist["train_program"](opts, PIXELS, np.random.default_rng(0))
    weights = {t.name: a for t, a in program.session.get_tensors_data(program.variables.tensors).items()}
    losses = []
    with program.session as session:
        for images, labels in zip(x, y, strict=True):
            inputs = {program.images: images, program.labels: labels}
            out = session.run({s: a.reshape(session._full_input_shape(s.shape)) for s, a in inputs.items()})
            losses.append(out[program.out].reshape(opts.gradient_accumulation, opts.data_parallel))
    return np.array(losses), weights


# The twin in NumPy, in float64


def gelu(x: Array) -> tuple[Array, Array]:
    """The approximation with tanh, and its derivative."""
    a, b = np.sqrt(2 / np.pi), 0.044715
    t = np.tanh(a * (x + b * x**3))
    return x * (1 + t) / 2, (1 + t) / 2 + x * (1 - t**2) * a * (1 + 3 * b * x**2) / 2


def gradients(weights: dict[str, Array], x: Array, y: Array) -> tuple[float, dict[str, Array]]:
    """Mean loss of a micro batch, and its gradients by hand."""
    layers, inputs, slopes = ("fc1", "fc2", "fc3", "fc4"), [], []
    for layer in layers:
        inputs.append(x)
        x = x @ weights[f"{layer}.weight"] + weights[f"{layer}.bias"]
        if layer != "fc4":
            x, slope = gelu(x)
            slopes.append(slope)
    p = np.exp(x - x.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss = float(-np.log(p[rows, y]).mean())
    p[rows, y] -= 1
    d, result = p / len(y), {}
    for i in reversed(range(4)):
        if i < 3:
            d = d * slopes[i]
        result[f"{layers[i]}.weight"], result[f"{layers[i]}.bias"] = inputs[i].T @ d, d.sum(axis=0)
        d = d @ weights[f"{layers[i]}.weight"].T
    return loss, result


def numpy_losses(opts: Any, weights: dict[str, Array], x: Array, y: Array) -> Array:
    """Adam on the mean of all micro batches of an update."""
    w = {name: a.astype(np.float64) for name, a in weights.items()}
    first, second = ({name: np.zeros_like(a) for name, a in w.items()} for _ in range(2))
    losses = []
    for step, (images, labels) in enumerate(zip(x.astype(np.float64), y, strict=True), 1):
        flat = images.reshape(-1, *images.shape[2:]), labels.reshape(-1, labels.shape[-1])
        each = [gradients(w, *batch) for batch in zip(*flat, strict=True)]
        losses.append([loss for loss, _ in each])
        for name in w:
            g = np.mean([grads[name] for _, grads in each], axis=0)
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = 0.999 * second[name] + 0.001 * g * g
            corrected = first[name] / (1 - 0.9**step), second[name] / (1 - 0.999**step)
            w[name] = w[name] - opts.learning_rate * corrected[0] / (np.sqrt(corrected[1]) + 1e-5)
    return np.array(losses).reshape(UPDATES, opts.gradient_accumulation, opts.data_parallel)


# The twin in PyTorch


def torch_losses(opts: Any, weights: dict[str, Array], x: Array, y: Array) -> Array:
    """Eager, with PyTorch's Adam."""
    torch = pytest.importorskip("torch")
    layers = [torch.nn.Linear(*weights[f"fc{i}.weight"].shape) for i in range(1, 5)]
    with torch.no_grad():
        for i, layer in enumerate(layers, 1):
            layer.weight.copy_(torch.from_numpy(weights[f"fc{i}.weight"]).T)
            layer.bias.copy_(torch.from_numpy(weights[f"fc{i}.bias"]))
    gelus = [torch.nn.GELU(approximate="tanh") for _ in range(3)]
    model = torch.nn.Sequential(
        *(part for pair in zip(layers, gelus, strict=False) for part in pair), layers[-1]
    )
    adam = torch.optim.Adam(model.parameters(), lr=opts.learning_rate, eps=1e-5)
    losses = []
    for images, labels in zip(x, y, strict=True):
        adam.zero_grad()
        batches = list(
            zip(images.reshape(-1, *images.shape[2:]), labels.reshape(-1, labels.shape[-1]), strict=True)
        )
        for batch in batches:
            loss = torch.nn.functional.cross_entropy(
                model(torch.from_numpy(batch[0])), torch.from_numpy(batch[1]).long()
            )
            (loss / len(batches)).backward()
            losses.append(loss.item())
        adam.step()
    return np.array(losses).reshape(UPDATES, opts.gradient_accumulation, opts.data_parallel)


VARIANTS = {
    "accumulation 4": {"reset": "zero"},
    "accumulation 4, counter scaled": {"reset": "scale"},
    "no accumulation": {"gradient_accumulation": 1},
    "one replica": {"data_parallel": 1},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("twin", [numpy_losses, torch_losses])
def test_losses_are_those_of_a_twin(mnist: dict[str, Any], twin: Any, variant: str) -> None:
    opts = mnist["Options"](hidden=96, **unchecked(VARIANTS[variant]))
    x, y = make_data(opts)
    losses, weights = run_program(mnist, opts, x, y)
    assert sorted(weights) == sorted(f"fc{i}.{name}" for i in range(1, 5) for name in ("weight", "bias"))
    np.testing.assert_allclose(losses, twin(opts, weights, x, y), rtol=1e-5)
    assert losses[-10:].mean() < 0.6 * losses[:10].mean(), "it learns"
