"""The demo's two programs: data-parallel training of a small network, and its evaluation."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import popsr
from popsr import ops
from popsr.demo.data import Floats

HIDDEN = (128, 128)
CLASSES = 10
REPLICAS = 4
ACCUMULATION = 2
MICRO_BATCH = 8
BATCH = REPLICAS * ACCUMULATION * MICRO_BATCH


@dataclass(frozen=True)
class Recipe:
    """Storage and rounding of weights, activations and gradients. Losses and gradient sums are fp32."""

    name: str
    dtype: popsr.dtype
    stochastic: bool


RECIPES = (
    Recipe("fp32", popsr.float32, False),
    Recipe("bf16 nearest", popsr.bfloat16, False),
    Recipe("bf16 stochastic", popsr.bfloat16, True),
)


@dataclass(frozen=True)
class Training:
    """A program whose run is one epoch: ``steps`` steps of BATCH images."""

    ir: popsr.Ir
    params: list[popsr.Variable]
    images: popsr.HostToDeviceStream
    labels: popsr.HostToDeviceStream
    losses: popsr.DeviceToHostStream
    probes: dict[str, popsr.Tensor]
    steps: int


@dataclass(frozen=True)
class Evaluation:
    """A program whose run gives fp32 logits of all test images."""

    ir: popsr.Ir
    params: list[popsr.Variable]
    images: popsr.HostToDeviceStream
    logits: popsr.DeviceToHostStream


def initial_weights(features: int, key: int) -> list[Floats]:
    """Weight and bias of every layer, in turn: He's normal distribution, and zeros."""
    rng = np.random.default_rng((key, 0))
    layers = itertools.pairwise((features, *HIDDEN, CLASSES))
    pairs = (
        (rng.standard_normal((n, m), np.float32) * np.float32(np.sqrt(2 / n)), np.zeros(m, np.float32))
        for n, m in layers
    )
    return list(itertools.chain.from_iterable(pairs))


def mlp(x: popsr.Tensor, params: Sequence[popsr.Tensor], probes: dict[str, popsr.Tensor]) -> popsr.Tensor:
    """Logits in fp32 of a network with gelu between its layers."""
    for i, (w, b) in enumerate(zip(params[::2], params[1::2], strict=True)):
        x = x @ w + b
        if 2 * i + 2 < len(params):
            x = probes[f"h{i}"] = ops.gelu(x)
    return ops.cast(x, popsr.float32) if x.dtype != popsr.float32 else x


def build_training(
    features: int, recipe: Recipe, learning_rate: float, steps: int, *, reduced: bool = True
) -> Training:
    """Stochastic gradient descent, data parallel with accumulated gradients; not ``reduced`` forgets their mean."""
    ir = popsr.Ir(replication=REPLICAS)
    ir.num_host_transfers = steps * ACCUMULATION
    ir.options.enable_stochastic_rounding = recipe.stochastic
    probes: dict[str, popsr.Tensor] = {}

    with ir.main_graph, popsr.in_sequence():
        images = popsr.h2d_stream((MICRO_BATCH, features), popsr.float32, "images")
        labels = popsr.h2d_stream((MICRO_BATCH,), popsr.int32, "labels")
        losses = popsr.d2h_stream((), popsr.float32, "losses")
        weights = initial_weights(features, key=0)
        names = [f"{kind}{layer}" for layer in range(len(HIDDEN) + 1) for kind in "wb"]
        params = [popsr.variable(w, recipe.dtype, name) for w, name in zip(weights, names, strict=True)]
        sums = [
            popsr.variable(np.zeros_like(w), popsr.float32, f"sum_d{name}")
            for w, name in zip(weights, names, strict=True)
        ]

        def loss_of(x: popsr.Tensor, y: popsr.Tensor, params: list[popsr.Tensor]) -> popsr.Tensor:
            return ops.nll_loss(ops.softmax(mlp(x, params, probes), axis=1), y)

        x_spec = popsr.TensorSpec((MICRO_BATCH, features), recipe.dtype)
        y_spec = popsr.TensorSpec((MICRO_BATCH,), popsr.int32)
        forward = ir.create_graph(loss_of, x_spec, y_spec, params)
        backward = popsr.transforms.autodiff(forward, grads_required=forward.inputs[2:])

        def micro_batch(params: list[popsr.Tensor], sums: list[popsr.TensorByRef]) -> None:
            x = probes["x"] = ops.host_load(images, "x")
            y = ops.host_load(labels, "y")
            if recipe.dtype != popsr.float32:
                x = ops.cast(x, recipe.dtype)
            call = ops.call_with_info(forward, x, y, params)
            grads = ops.call(backward.graph, 1.0, inputs_dict=backward.inputs_dict(call))
            for name, total, grad in zip(names, sums, grads, strict=True):
                probes[f"d{name}"] = grad
                ops.var_updates.accumulate_(total, grad)
            ops.host_store(losses, call.outputs[0])

        micro = ir.create_graph(micro_batch, params, sums)

        def step(params: list[popsr.TensorByRef], sums: list[popsr.TensorByRef]) -> None:
            ops.repeat(micro, ACCUMULATION, params, sums)
            for name, param, total in zip(names, params, sums, strict=True):
                mean = ops.collectives.replicated_all_reduce(total, "mean") if reduced else total
                probes[f"mean_d{name}"] = mean
                ops.scaled_add_(param, mean, b=-learning_rate / ACCUMULATION)
                ops.var_updates.accumulator_zero_(total)

        ops.repeat(ir.create_graph(step, params, sums), steps, params, sums)
        probes |= dict(zip(names, params, strict=True))
    return Training(ir, params, images, labels, losses, probes, steps)


def build_evaluation(features: int, count: int) -> Evaluation:
    """The forward pass of ``count`` images on one replica, in fp32 whatever the weights were stored as."""
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        images = popsr.h2d_stream((count, features), popsr.float32, "images")
        logits = popsr.d2h_stream((count, CLASSES), popsr.float32, "logits")
        params = [popsr.variable(w, popsr.float32) for w in initial_weights(features, key=0)]
        ops.host_store(logits, mlp(ops.host_load(images), params, {}))
    return Evaluation(ir, params, images, logits)
