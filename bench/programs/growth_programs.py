"""The training steps whose growth bench_growth.py measures, as sides of processes.py, and their FLOPs.

FLOPs are of the products: two for each multiplication and addition. What is element-wise is not counted.
"""

import itertools
import math
import time
from collections.abc import Callable

import numpy as np

import popsr
from bench.programs import basic
from popsr import ops

TURN = 0.05  # seconds that a turn takes at least
TILE = 64  # queries that attention computes at a time
RATE = 0.1

Weights = list[np.ndarray]


def mlp(replicas: int, sizes: list[int], threads: int = 1) -> Callable[[], dict]:
    """Steps of ``basic.training`` with micro batch 1; a run makes 64 samples or more."""
    steps = max(1, 64 // replicas)
    program = basic.training(replicas, 1, 1, steps, tuple(sizes))
    # The first sample is the same for any number of replicas.
    shape = tuple(n for n in (steps, replicas) if n > 1)
    images = np.random.default_rng(1).random((*shape, sizes[0]), np.float32)
    labels = np.random.default_rng(2).integers(0, sizes[-1], shape, np.int32)
    inputs = {program.images: images[..., None, :], program.labels: labels[..., None]}
    return side(program.ir, inputs, [program.losses], threads, steps)


def mlp_flops(sizes: list[int]) -> int:
    """Of a sample: each product, the gradient of its weights and, but for the first, of its operand."""
    first, *others = (n * m for n, m in itertools.pairwise(sizes))
    return 2 * (2 * first + 3 * sum(others))


def gpt(layers: int, hidden: int, heads: int, sequence: int, threads: int = 1) -> Callable[[], dict]:
    """Steps of blocks as GPT has them, written out, on two replicas with a sequence each."""
    rng = np.random.default_rng(0)
    shapes = ((hidden, 3 * hidden), (hidden, hidden), (hidden, 4 * hidden), (4 * hidden, hidden))
    weights: Weights = []
    for _ in range(layers):
        weights += [normal(rng, *shape, scale=0.02) for shape in shapes]
        weights += [np.ones(hidden, np.float32), np.zeros(hidden, np.float32)] * 2

    def model(x: popsr.Tensor, *tensors: popsr.Tensor) -> popsr.Tensor:
        for i in range(0, len(tensors), 8):
            qkv, out, wide, back, scale1, shift1, scale2, shift2 = tensors[i : i + 8]
            x = x + attention_of(ops.layer_norm(x, scale1, shift1), qkv, out, heads)
            x = x + ops.gelu(ops.layer_norm(x, scale2, shift2) @ wide) @ back
        return x

    return training(model, weights, 2, sequence, hidden, threads)


def gpt_flops(layers: int, hidden: int, sequence: int) -> int:
    """Of a step: three products for each of the forward pass, and two replicas."""
    products = 3 * 2 * 12 * hidden**2 * sequence
    return 2 * layers * (products + attention_flops(hidden, sequence))


def attention(sequence: int, hidden: int, heads: int, threads: int = 1) -> Callable[[], dict]:
    """Steps of one attention layer, on one replica."""
    rng = np.random.default_rng(0)
    weights = [normal(rng, hidden, n * hidden, scale=hidden**-0.5) for n in (3, 1)]

    def model(x: popsr.Tensor, qkv: popsr.Tensor, out: popsr.Tensor) -> popsr.Tensor:
        return attention_of(x, qkv, out, heads)

    return training(model, weights, 1, sequence, hidden, threads)


def attention_layer_flops(hidden: int, sequence: int) -> tuple[int, int]:
    """Of a step of ``attention``: what grows with the sequence, and what grows with its square."""
    # Three times the projection of the result, twice those of queries, keys and values: their operand is data.
    projections = 2 * (3 + 2 * 3) * hidden**2 * sequence
    quadratic = 7 * hidden * sequence**2
    return projections + attention_flops(hidden, sequence) - quadratic, quadratic


def attention_flops(hidden: int, sequence: int) -> int:
    """Of a causal ``ops.attention`` and its gradients: two products and five, each of the tiles that are seen."""
    return 7 * hidden * sequence * (sequence + TILE)


def attention_of(x: popsr.Tensor, qkv: popsr.Tensor, out: popsr.Tensor, heads: int) -> popsr.Tensor:
    """Causal attention of several heads, between two projections."""
    sequence, hidden = x.shape
    parts = ops.split(x @ qkv, 3, axis=-1)
    q, k, v = (t.reshape((sequence, heads, hidden // heads)).transpose((1, 0, 2)) for t in parts)
    y = ops.attention(q, k, v, is_causal=True)
    return y.transpose((1, 0, 2)).reshape((sequence, hidden)) @ out


def training(
    model: Callable, weights: Weights, replicas: int, sequence: int, hidden: int, threads: int
) -> Callable[[], dict]:
    """Steps of SGD that bring a model's result near given numbers; a run makes one."""
    ir = popsr.Ir(replication=replicas)
    with ir.main_graph, popsr.in_sequence():
        shape = (sequence, hidden)
        streams = [popsr.h2d_stream(shape, popsr.float32, name) for name in ("x", "target")]
        losses = popsr.d2h_stream((), popsr.float32, "losses")
        row = popsr.d2h_stream((hidden,), popsr.float32, "row")
        variables = [popsr.variable(w, popsr.float32, f"weight{i}") for i, w in enumerate(weights)]
        x, target = map(ops.host_load, streams)
        graph = ir.create_graph(model, x, *variables)
        call = ops.call_with_info(graph, x, *variables)
        [y] = call.outputs
        error = y - target
        ops.host_store(losses, ops.mean(ops.square(error)))
        ops.host_store(row, y[TILE - 1])
        backward = popsr.transforms.autodiff(graph, grads_required=graph.inputs[1:])
        gradients = ops.call(
            backward.graph, error * (2 / error.nelms), inputs_dict=backward.inputs_dict(call)
        )
        for variable, gradient in zip(variables, gradients, strict=True):
            mean = ops.collectives.replicated_all_reduce(gradient, "mean")
            ops.scaled_add_(variable, mean, b=-RATE)
    leading = (replicas,) if replicas > 1 else ()
    # The first rows are the same for any length.
    inputs = {
        stream: np.random.default_rng(seed).standard_normal((*leading, *shape), np.float32)
        for seed, stream in enumerate(streams)
    }
    return side(ir, inputs, [losses, row], threads)


def normal(rng: np.random.Generator, *shape: int, scale: float) -> np.ndarray:
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def side(
    ir: popsr.Ir,
    inputs: dict[popsr.HostToDeviceStream, np.ndarray],
    outputs: list[popsr.DeviceToHostStream],
    threads: int,
    steps: int = 1,
) -> Callable[[], dict]:
    """Makes as many runs as fill TURN. Results: the steps of a turn, and outputs of the first two runs."""
    session = popsr.Session(ir, num_threads=threads)
    session.__enter__()  # until the process ends
    first = session.run(inputs)
    start = time.perf_counter()
    second = session.run(inputs)
    runs = math.ceil(TURN / (time.perf_counter() - start))
    results = {
        "steps": runs * steps,
        "first": float(first[outputs[0]].flat[0]),
        "means": [float(np.mean(run[outputs[0]], dtype=np.float64)) for run in (first, second)],
        "row": [float(x) for stream in outputs[1:] for x in np.ravel(first[stream])],
    }

    def turn() -> dict:
        for _ in range(runs):
            session.run(inputs)
        return results

    return turn
