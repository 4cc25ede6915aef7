"""The programs that are timed: data-parallel training of a 784-512-512-512-10 network, and one stream in and out."""

import itertools
from dataclasses import dataclass
from functools import partial

import numpy as np

import popsr
from popsr import ops

SIZES = (784, 512, 512, 512, 10)
RATE = 0.05


@dataclass(frozen=True)
class Training:
    """SGD with ``accumulation`` micro batches on each of ``replicas``; a run makes ``steps`` steps."""

    ir: popsr.Ir
    params: list
    images: popsr.HostToDeviceStream
    labels: popsr.HostToDeviceStream
    losses: popsr.DeviceToHostStream
    samples: int  # of one run


def weights(sizes: tuple[int, ...] = SIZES) -> list[np.ndarray]:
    """Weight and bias of every layer, in turn."""
    rng = np.random.default_rng(0)
    pairs = (
        ((rng.standard_normal((n, m)) * np.sqrt(2 / n)).astype(np.float32), np.zeros(m, np.float32))
        for n, m in itertools.pairwise(sizes)
    )
    return list(itertools.chain.from_iterable(pairs))


def batches(replicas: int, micro_batch: int, accumulation: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of one run, in the layout that streams have."""
    rng = np.random.default_rng(1)
    shape = (steps * accumulation, replicas, micro_batch)
    images = rng.random((*shape, SIZES[0]), dtype=np.float32)
    labels = rng.integers(0, SIZES[-1], shape, dtype=np.int32)
    dropped = tuple(i for i, n in enumerate(shape[:2]) if n == 1)  # as in PopXL: leading dimensions of one
    return images.squeeze(dropped), labels.squeeze(dropped)


def training(
    replicas: int, micro_batch: int, accumulation: int, steps: int, sizes: tuple[int, ...] = SIZES
) -> Training:
    ir = popsr.Ir(replication=replicas)
    ir.num_host_transfers = steps * accumulation
    with ir.main_graph, popsr.in_sequence():
        images = popsr.h2d_stream((micro_batch, sizes[0]), popsr.float32, "images")
        labels = popsr.h2d_stream((micro_batch,), popsr.int32, "labels")
        losses = popsr.d2h_stream((), popsr.float32, "losses")
        params = [popsr.variable(w, popsr.float32, f"param{i}") for i, w in enumerate(weights(sizes))]

        def loss_of(x, y, params):
            for i, (w, b) in enumerate(zip(params[::2], params[1::2], strict=True)):
                x = x @ w + b
                if i + 2 < len(sizes):
                    x = ops.gelu(x)
            return ops.nll_loss(ops.softmax(x, axis=1), y)

        forward = ir.create_graph(loss_of, images.spec, labels.spec, params)
        backward = popsr.transforms.autodiff(forward, grads_required=forward.inputs[2:])

        def gradients(params):
            call = ops.call_with_info(forward, ops.host_load(images), ops.host_load(labels), params)
            ops.host_store(losses, call.outputs[0])
            return ops.call(backward.graph, 1.0, inputs_dict=backward.inputs_dict(call))

        def update(params, grads):
            for param, grad in zip(params, grads, strict=True):
                mean = ops.collectives.replicated_all_reduce(grad, "mean")
                ops.scaled_add_(param, mean, b=-RATE / accumulation)

        if accumulation == 1:

            def step(params: list[popsr.TensorByRef]):
                update(params, gradients(params))

            ops.repeat(ir.create_graph(step, params), steps, params)
        else:
            sums = [
                popsr.variable(np.zeros_like(w), popsr.float32, f"sum{i}")
                for i, w in enumerate(weights(sizes))
            ]

            def micro(params, sums: list[popsr.TensorByRef]):
                for total, grad in zip(sums, gradients(params), strict=True):
                    ops.var_updates.accumulate_(total, grad)

            micro_graph = ir.create_graph(micro, params, sums)

            def step(params: list[popsr.TensorByRef], sums: list[popsr.TensorByRef]):
                ops.repeat(micro_graph, accumulation, params, sums)
                update(params, sums)
                for total in sums:
                    ops.var_updates.accumulator_zero_(total)

            ops.repeat(ir.create_graph(step, params, sums), steps, params, sums)
    samples = replicas * micro_batch * accumulation * steps
    return Training(ir, params, images, labels, losses, samples)


def echo(size: int = 4) -> tuple[popsr.Ir, popsr.HostToDeviceStream]:
    """One stream in, one out."""
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        stream = popsr.h2d_stream((size,), popsr.float32, "in")
        ops.host_store(popsr.d2h_stream((size,), popsr.float32, "out"), ops.host_load(stream))
    return ir, stream


def late_updates(weights: int) -> popsr.Ir:
    """A chain that reads each weight twice and updates all of them at its end: about four ops a weight."""
    ir = popsr.Ir(replication=4)
    zeros = np.zeros(4, np.float32)
    with ir.main_graph, popsr.in_sequence():
        variables = [popsr.variable(zeros) for _ in range(weights)]
        x: popsr.Tensor = popsr.variable(zeros)
        activations = []
        for w in variables:
            activations.append(x)
            x = ops.mul(x, w)
        updates = []
        for w, a in zip(reversed(variables), reversed(activations), strict=True):
            updates.append((w, ops.mul(x, a)))
            x = ops.mul(x, w)
        for w, update in updates:
            ops.scaled_add_(w, update, 1.0, 0.1)
    return ir


def tensor_parallel(layers: int) -> popsr.Ir:
    """A training step of split layers on four pairs of replicas: 25 ops a layer, half of them of the gradients."""
    ir = popsr.Ir(replication=8)
    model = ir.replica_grouping(group_size=2)
    copies = model.transpose()
    enter = ops.collectives.replicated_all_reduce_identical_inputs
    leave = ops.collectives.replicated_all_reduce_identical_grad_inputs

    def forward(x: popsr.Tensor, *weights: popsr.Tensor) -> popsr.Tensor:
        for i in range(0, len(weights), 3):
            scale, a, b = weights[i : i + 3]
            x = x + leave(ops.gelu(enter(x * scale, group=model) @ a) @ b, group=model)
        return ops.sum(ops.tanh(x))

    with ir.main_graph, popsr.in_sequence():
        x = ops.host_load(popsr.h2d_stream((2, 8), popsr.float32, replicated_stream_mode=model))
        weights = []
        for _ in range(layers):
            weights.append(popsr.variable(np.ones(8, np.float32)))
            weights += [
                popsr.variable(np.ones(shape, np.float32), replica_grouping=copies)
                for shape in ((2, 8, 4), (2, 4, 8))
            ]
        graph = ir.create_graph(forward, x, *weights)
        call = ops.call_with_info(graph, x, *weights)
        backward = popsr.transforms.autodiff(graph, grads_required=graph.inputs[1:])
        gradients = ops.call(backward.graph, 1.0, inputs_dict=backward.inputs_dict(call))
        for weight, gradient in zip(weights, gradients, strict=True):
            mean = ops.collectives.replicated_all_reduce(gradient, "mean", copies)
            ops.scaled_add_(weight, mean, b=-0.1)
    return ir


def residual_layers(count: int) -> tuple[popsr.Ir, list[popsr.Tensor]]:
    """Layers of 40 ops on eight replicas that take data of their own; each ends in a sum of pairs and a residual."""
    ir = popsr.Ir(replication=8)
    values = []
    with ir.main_graph:
        weights = [popsr.variable(np.zeros(4, np.float32)) for _ in range(32)]
        pairs = ir.replica_grouping(1, 2)
        x = ops.host_load(popsr.h2d_stream((4,), popsr.float32))
        for layer in range(count // 40):
            w = weights[layer % len(weights)]
            h = ops.mul(x, w)
            for _ in range(18):
                h = ops.add(ops.tanh(h), w)
            h = ops.collectives.replicated_all_reduce(h, "add", pairs)
            x = ops.add(ops.mul(x, w), h)
            values += [h, x]
    return ir, values


def sums_at_once(size: int) -> popsr.Ir:
    """Sums whose operands all live at once: memory is looked for among many buffers."""
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        x = popsr.variable(np.ones(3, np.float32))
        terms = [x + 1.0 for _ in range(size // 2)]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        ops.host_store(popsr.d2h_stream((3,), popsr.float32), total)
    return ir


def products_read_late(size: int) -> popsr.Ir:
    """Products, each read when all others are computed: what reads one is far from it."""
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        x = popsr.variable(np.ones((2, 2), np.float32))
        for product in [x @ x for _ in range(size // 2)]:
            ops.exp(product)
    return ir


def chain(size: int, replicas: int = 1) -> popsr.Ir:
    """Element-wise ops, each of which reads the one before."""
    ir = popsr.Ir(replication=replicas)
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(np.ones(4, np.float32))
        h = w
        for _ in range(size // 2):
            h = ops.add(ops.tanh(h), w)
        ops.host_store(popsr.d2h_stream((4,), popsr.float32), h)
    return ir


def calls(size: int) -> popsr.Ir:
    """Calls of a graph of 16 ops: so many ops when they are written out."""
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(np.ones(4, np.float32))

        def layer(x: popsr.Tensor, y: popsr.Tensor) -> popsr.Tensor:
            for _ in range(8):
                x = ops.add(ops.tanh(x), y)
            return x

        graph = ir.create_graph(layer, w, w)
        h = w
        for _ in range(size // 16):
            (h,) = ops.call_with_info(graph, h, w).outputs
        ops.host_store(popsr.d2h_stream((4,), popsr.float32), h)
    return ir


def many_readers(size: int) -> popsr.Ir:
    """A value that half of the ops read."""
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        y = ops.tanh(popsr.variable(np.ones(3, np.float32)))
        total = y
        for _ in range(size // 2):
            total = ops.add(ops.exp(total), y)
        ops.host_store(popsr.d2h_stream((3,), popsr.float32), total)
    return ir


def many_updates(size: int, replicas: int = 1) -> popsr.Ir:
    """Products that are accumulated into a few weights, again and again."""
    ir = popsr.Ir(replication=replicas)
    with ir.main_graph, popsr.in_sequence():
        weights = [popsr.variable(np.ones((2, 2), np.float32)) for _ in range(64)]
        x = weights[0] @ weights[1]
        for i in range(size // 3):
            w = weights[i % len(weights)]
            x = ops.mul(x, w)
            ops.var_updates.accumulate_(w, x @ w)
    return ir


def nested_loops() -> popsr.Ir:
    """Counts for ever, in a loop of a loop."""
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(np.zeros(1, np.float32))
        inner = ir.create_graph(
            lambda x: ops.var_updates.accumulate_(x, popsr.constant(np.ones(1, np.float32))), w
        )
        outer = ir.create_graph(lambda x: ops.repeat(inner, 10**12, x), w)
        ops.repeat(outer, 10**12, w)
    return ir


def one_long_pass() -> popsr.Ir:
    """Many products of some milliseconds, without a loop."""
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(np.zeros((500, 500), np.float32))
        for _ in range(3000):
            ops.var_updates.copy_var_update_(w, w @ w)
    return ir


LONG_PROGRAMS = {
    "sums that live at once": sums_at_once,
    "products read late": products_read_late,
    "element-wise chain": chain,
    "element-wise chain, R = 4": partial(chain, replicas=4),
    "calls of a graph": calls,
    "many readers": many_readers,
    "many updates": many_updates,
    "many updates, R = 4": partial(many_updates, replicas=4),
}
ENDLESS_PROGRAMS = {"nested loops": nested_loops, "one long pass": one_long_pass}
