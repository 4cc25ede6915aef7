"""One training step of the network of basic.py in several spellings, and the same step on one batch.

A step has ``ACCUMULATION`` micro batches of ``MICRO_BATCH`` samples on each replica, which are unrolled or looped, and
their gradients are added in different ways. A run makes one step, but in ``MANY``, which loops over steps, too.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import popsr
from bench.programs import basic, mnist
from popsr import addons, ops
from popsr.ops import var_updates

MICRO_BATCH, ACCUMULATION = 8, 4
SAMPLES = 1024  # of a turn
THREADS = 2
Tensors = list[popsr.Tensor]


@dataclass(frozen=True)
class Program:
    """``inputs``: images and labels, ``transfers`` of them in a run, which makes ``steps`` steps."""

    ir: popsr.Ir
    inputs: tuple[popsr.HostToDeviceStream, popsr.HostToDeviceStream]
    losses: popsr.DeviceToHostStream
    transfers: int
    steps: int = 1


def loss_of(x: popsr.Tensor, y: popsr.Tensor, params: Tensors) -> popsr.Tensor:
    for i, (w, b) in enumerate(zip(params[::2], params[1::2], strict=True)):
        x = x @ w + b
        if i + 2 < len(basic.SIZES):
            x = ops.gelu(x)
    return ops.nll_loss(ops.softmax(x, axis=1), y)


class Streams:
    """Of images, labels and losses."""

    def __init__(self, micro_batch: int) -> None:
        self.images = popsr.h2d_stream((micro_batch, basic.SIZES[0]), popsr.float32, "images")
        self.labels = popsr.h2d_stream((micro_batch,), popsr.int32, "labels")
        self.losses = popsr.d2h_stream((), popsr.float32, "losses")


class Network:
    """Weights, and gradients of the next micro batch."""

    def __init__(self, streams: Streams) -> None:
        self.streams = streams
        self.params = self.variables("param", basic.weights())
        self.forward = popsr.gir().create_graph(
            loss_of, streams.images.spec, streams.labels.spec, self.params
        )
        self.backward = popsr.transforms.autodiff(self.forward, grads_required=self.forward.inputs[2:])

    def variables(self, name: str, values: list[np.ndarray]) -> Tensors:
        return [popsr.variable(value, popsr.float32, f"{name}{i}") for i, value in enumerate(values)]

    def zeros(self, name: str) -> Tensors:
        return self.variables(name, [np.zeros_like(w) for w in basic.weights()])

    def gradients(self, params: Tensors) -> tuple[popsr.Tensor, ...]:
        x, y = ops.host_load(self.streams.images), ops.host_load(self.streams.labels)
        call = ops.call_with_info(self.forward, x, y, params)
        ops.host_store(self.streams.losses, call.outputs[0])
        return ops.call(self.backward.graph, 1.0, inputs_dict=self.backward.inputs_dict(call))

    def micro_batches(self) -> list[tuple[popsr.Tensor, ...]]:
        """Gradients of each micro batch of a step, by variable, unrolled."""
        each = [self.gradients(self.params) for _ in range(ACCUMULATION)]
        return list(zip(*each, strict=True))

    def added(self) -> Tensors:
        """The same, added with ``+`` after each micro batch."""
        totals = list(self.gradients(self.params))
        for _ in range(ACCUMULATION - 1):
            totals = [t + grad for t, grad in zip(totals, self.gradients(self.params), strict=True)]
        return totals


# Updates, by a rate. One replica has no collective.

Update = Callable[[Tensors, Tensors, float], None]


def _mean(grad: popsr.Tensor) -> popsr.Tensor:
    if popsr.gir().replication_factor == 1:
        return grad
    return ops.collectives.replicated_all_reduce(grad, "mean")


def scaled_add(params: Tensors, grads: Tensors, rate: float) -> None:
    for param, grad in zip(params, grads, strict=True):
        ops.scaled_add_(param, _mean(grad), b=-rate)


def copied_back(params: Tensors, grads: Tensors, rate: float) -> None:
    for param, grad in zip(params, grads, strict=True):
        var_updates.copy_var_update_(param, param - rate * _mean(grad))


# Steps: all add to the main graph

RATE_OF_SUMS = basic.RATE / ACCUMULATION


def accumulated(streams: Streams, *, looped: bool) -> None:
    network = Network(streams)
    params, sums = network.params, network.zeros("sum")

    def micro(params: Tensors, sums: list[popsr.TensorByRef]) -> None:
        for total, grad in zip(sums, network.gradients(params), strict=True):
            var_updates.accumulate_(total, grad)

    if looped:
        ops.repeat(popsr.gir().create_graph(micro, params, sums), ACCUMULATION, params, sums)
    else:
        for _ in range(ACCUMULATION):
            micro(params, sums)
    scaled_add(params, sums, RATE_OF_SUMS)
    for total in sums:
        var_updates.accumulator_zero_(total)


def looped_mean(streams: Streams) -> None:
    network = Network(streams)
    params, means = network.params, network.zeros("mean")
    counter = popsr.variable(0, popsr.float32, "counter")

    def micro(params: Tensors, means: list[popsr.TensorByRef], counter: popsr.TensorByRef) -> None:
        for mean, grad in zip(means, network.gradients(params), strict=True):
            var_updates.accumulate_mean_(mean, grad, counter)
        ops.add_(counter, popsr.constant(1, popsr.float32))

    ops.repeat(popsr.gir().create_graph(micro, params, means, counter), ACCUMULATION, params, means, counter)
    for param, mean in zip(params, means, strict=True):
        ops.scaled_add_(param, mnist.all_reduce_(mean, op="mean"), b=-basic.RATE)
    var_updates.accumulator_zero_(counter)


def unrolled_plus(streams: Streams, update: Update) -> None:
    network = Network(streams)
    update(network.params, network.added(), RATE_OF_SUMS)


def unrolled_sum(streams: Streams) -> None:
    """``ops.sum`` takes one tensor: gradients are joined along a new axis before."""
    network = Network(streams)
    sums = [
        ops.sum(ops.concat([grad.reshape((1, *grad.shape)) for grad in grads]), axis=0)
        for grads in network.micro_batches()
    ]
    scaled_add(network.params, sums, RATE_OF_SUMS)


def modules(streams: Streams) -> None:
    """Of ``popsr.addons``, as in mnist.py."""
    factories, forward = mnist.Net().create_graph(streams.images.spec, streams.labels.spec)
    params = factories.init()
    factories, backward = addons.autodiff_with_accumulation(forward, forward.args.tensors)
    state = factories.init()
    for _ in range(ACCUMULATION):
        x, y = ops.host_load(streams.images), ops.host_load(streams.labels)
        call = forward.bind(params).call_with_info(x, y)
        ops.host_store(streams.losses, call.outputs[0])
        backward.bind(state).call(1.0, args=backward.grad_graph_info.inputs_dict(call))
    for param, grad in zip(params.tensors, state.accum.tensors, strict=True):
        ops.scaled_add_(param, mnist.all_reduce_(grad, op="mean"), b=-basic.RATE)
    var_updates.accumulator_scale_(state.mean_accum_counter, 0.0)


def whole(streams: Streams, update: Update) -> None:
    """One micro batch."""
    network = Network(streams)
    update(network.params, list(network.gradients(network.params)), basic.RATE)


# Programs


def _program(
    replicas: int, micro_batch: int, accumulation: int, step: Callable[..., None], **how: object
) -> Program:
    ir = popsr.Ir(replication=replicas)
    ir.num_host_transfers = accumulation
    with ir.main_graph, popsr.in_sequence():
        streams = Streams(micro_batch)
        step(streams, **how)
    return Program(ir, (streams.images, streams.labels), streams.losses, accumulation)


def _form(step: Callable[..., None], **how: object) -> Callable[[int], Program]:
    return lambda replicas: _program(replicas, MICRO_BATCH, ACCUMULATION, step, **how)


def _one_batch(update: Update) -> Callable[[int], Program]:
    return lambda replicas: _program(1, samples_of(replicas), 1, whole, update=update)


def _adam(replicas: int, micro_batch: int, accumulation: int) -> Program:
    program = mnist.training(replicas, micro_batch, accumulation)
    return Program(program.ir, program.inputs, program.losses, accumulation)


def _steps(replicas: int, micro_batch: int) -> Program:
    """Looped, as many as a turn makes."""
    steps = SAMPLES // (replicas * micro_batch)
    program = basic.training(replicas, micro_batch, 1, steps)
    return Program(program.ir, (program.images, program.labels), program.losses, steps, steps)


def samples_of(replicas: int) -> int:
    """Samples of a step of a form."""
    return replicas * MICRO_BATCH * ACCUMULATION


# Functions of the number of replicas.
FORMS: dict[str, Callable[[int], Program]] = {
    "looped, `accumulate_`": _form(accumulated, looped=True),
    "unrolled, `accumulate_`": _form(accumulated, looped=False),
    "unrolled, `+`": _form(unrolled_plus, update=scaled_add),
    "unrolled, `ops.sum`": _form(unrolled_sum),
    "looped, `accumulate_mean_`": _form(looped_mean),
    "modules, `autodiff_with_accumulation`": _form(modules),
    "unrolled, `+`, `copy_var_update_`": _form(unrolled_plus, update=copied_back),
}
ADAM_FORMS = {"modules, Adam": lambda replicas: _adam(replicas, MICRO_BATCH, ACCUMULATION)}
ONE_BATCH = {
    "one batch": _one_batch(scaled_add),
    "one batch, `copy_var_update_`": _one_batch(copied_back),
    "one batch, Adam": lambda replicas: _adam(1, samples_of(replicas), 1),
}
# The one-batch form with the update of a form; of all others it is "one batch".
SAME_UPDATE = {
    "unrolled, `+`, `copy_var_update_`": "one batch, `copy_var_update_`",
    "modules, Adam": "one batch, Adam",
}
# Micro batches of one sample, without accumulation.
MANY = {
    "looped steps": lambda replicas: _steps(replicas, 1),
    "looped steps, one batch": lambda replicas: _steps(1, replicas),
}
ALL = FORMS | ADAM_FORMS | ONE_BATCH | MANY


def turn(name: str, replicas: int) -> Callable[[], list[float]]:
    """A side of bench/processes.py: about ``SAMPLES`` samples a call, which returns the loss of each step."""
    program = ALL[name](replicas)
    images, labels = program.inputs
    leading = (program.transfers, program.ir.replication_factor)
    micro_batch = images.shape[0]
    runs = SAMPLES // (leading[0] * leading[1] * micro_batch)
    shape = (runs, *(n for n in leading if n > 1), micro_batch)  # as in PopXL: without axes of extent 1
    x, y = basic.batches(leading[1], micro_batch, program.transfers, runs)
    x, y = x.reshape(*shape, basic.SIZES[0]), y.reshape(shape)
    inputs = [{images: x[i], labels: y[i]} for i in range(runs)]
    session = popsr.Session(program.ir, num_threads=THREADS)
    session.__enter__()

    def make() -> list[float]:
        losses = [session.run(each)[program.losses] for each in inputs]
        return np.reshape(losses, (runs * program.steps, -1)).mean(axis=1, dtype=np.float64).tolist()

    return make
