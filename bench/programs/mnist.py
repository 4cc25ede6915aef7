"""The program of the tutorial on data parallelism and gradient accumulation, with Adam. A run makes one step."""

from dataclasses import dataclass
from functools import partial

import numpy as np

import popsr
from bench.programs import basic
from popsr import addons, ops

RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-5
all_reduce_ = ops.collectives.replicated_all_reduce_


@dataclass(frozen=True)
class Program:
    """``inputs``: images and labels; ``samples`` of one run."""

    ir: popsr.Ir
    inputs: tuple[popsr.HostToDeviceStream, popsr.HostToDeviceStream]
    losses: popsr.DeviceToHostStream
    samples: int


def batches(replicas: int, micro_batch: int, accumulation: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels: step, micro batch, replica, sample."""
    shape = (steps, accumulation, replicas, micro_batch)
    images, labels = basic.batches(replicas, micro_batch, accumulation, steps)
    return images.reshape(*shape, basic.SIZES[0]), labels.reshape(shape)


class Linear(addons.Module):
    """x @ weight + bias, from initial values."""

    def __init__(self, weight: np.ndarray, bias: np.ndarray) -> None:
        super().__init__()
        self.values = {"weight": weight, "bias": bias}

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        w, b = (
            self.add_variable_input(name, lambda value=value: value, popsr.float32)
            for name, value in self.values.items()
        )
        return x @ w + b


class Net(addons.Module):
    """The loss of a micro batch."""

    def __init__(self) -> None:
        super().__init__()
        values = basic.weights()
        self.layers = addons.Module.from_list(
            [Linear(*v) for v in zip(values[::2], values[1::2], strict=True)]
        )

    def build(self, x: popsr.Tensor, y: popsr.Tensor) -> popsr.Tensor:
        *hidden, last = self.layers
        for layer in hidden:
            x = ops.gelu(layer(x))
        return ops.nll_loss(ops.softmax(last(x), axis=1), y)


class Adam(addons.Module):
    """One update of a variable; the state is float32."""

    def build(self, var: popsr.TensorByRef, grad: popsr.Tensor) -> None:
        first, second = (
            self.add_variable_input(name, partial(np.zeros, var.shape), popsr.float32, by_ref=True)
            for name in ("first_order", "second_order")
        )
        step = self.add_variable_input("step", partial(np.zeros, ()), popsr.float32, by_ref=True)
        ops.var_updates.accumulate_moving_average_(first, grad, BETA1)
        ops.var_updates.accumulate_moving_average_square_(second, grad, BETA2)
        x = ops.var_updates.adam_updater(
            first, second, time_step=step, beta1=BETA1, beta2=BETA2, epsilon=EPSILON
        )
        one = popsr.constant(1.0, popsr.float32)
        ops.var_updates.adam_var_update(var, x, one, one, RATE)


def training(replicas: int, micro_batch: int, accumulation: int) -> Program:
    ir = popsr.Ir(replication=replicas)
    ir.num_host_transfers = accumulation
    with ir.main_graph, popsr.in_sequence():
        images = popsr.h2d_stream((micro_batch, basic.SIZES[0]), popsr.float32, "images")
        labels = popsr.h2d_stream((micro_batch,), popsr.int32, "labels")
        losses = popsr.d2h_stream((), popsr.float32, "losses")
        factories, forward = Net().create_graph(images.spec, labels.spec)
        params, adam = factories.init(), Adam(cache=True)
        state = addons.NamedTensors()
        if accumulation == 1:
            backward = addons.transforms.autodiff(forward, grads_required=forward.args.tensors)
        else:
            factories, backward = addons.transforms.autodiff_with_accumulation(forward, forward.args.tensors)
            state = factories.init()
        for _ in range(accumulation):
            call = forward.bind(params).call_with_info(ops.host_load(images), ops.host_load(labels))
            ops.host_store(losses, call.outputs[0])
            grads = backward.bind(state).call(1.0, args=backward.grad_graph_info.inputs_dict(call))
        if accumulation > 1:
            grads = state.accum.tensors
        for param, grad in zip(params.tensors, grads, strict=True):
            mean = all_reduce_(grad, op="mean")
            factories, update = adam.create_graph(param, mean)
            update.bind(factories.init()).call(param, mean)
        if accumulation > 1:
            ops.var_updates.accumulator_scale_(state.mean_accum_counter, 0.0)
    return Program(ir, (images, labels), losses, replicas * micro_batch * accumulation)
