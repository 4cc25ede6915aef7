"""A training step of ResNet-18 for small images in popsr, with group norm."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import popsr
from bench.sides.compared_models import STEPS, ResNet, weights_of
from bench.sides.popsr_sides import memory_before
from popsr import ops

Named = dict[str, popsr.Tensor]


@dataclass(frozen=True)
class Program:
    """A run is one step."""

    ir: popsr.Ir
    images: popsr.HostToDeviceStream
    labels: popsr.HostToDeviceStream
    losses: popsr.DeviceToHostStream


def _conv_norm(model: ResNet, p: Named, name: str, x: popsr.Tensor, stride: int) -> popsr.Tensor:
    weight = p[f"{name}.conv.weight"]
    pad = weight.shape[-1] // 2
    y = ops.conv(x, weight, stride=(stride, stride), padding=(pad,) * 4)
    return ops.group_norm(y, p[f"{name}.norm.weight"], p[f"{name}.norm.bias"], model.groups)


def _scores(model: ResNet, p: Named, images: popsr.Tensor) -> popsr.Tensor:
    x = ops.relu(_conv_norm(model, p, "stem", images, 1))
    for i, (_, _, stride) in enumerate(model.blocks()):
        name = f"blocks.{i}"
        inner = ops.relu(_conv_norm(model, p, f"{name}.first", x, stride))
        made = _conv_norm(model, p, f"{name}.second", inner, 1)
        has_side = f"{name}.side.conv.weight" in p
        x = ops.relu(made + (_conv_norm(model, p, f"{name}.side", x, stride) if has_side else x))
    return ops.mean(x, (2, 3)) @ p["last.weight"] + p["last.bias"]


def resnet_step(model: ResNet) -> Program:
    """SGD of all samples on one replica."""
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        shape = (model.samples, 3, model.extent, model.extent)
        images = popsr.h2d_stream(shape, popsr.float32, "images")
        labels = popsr.h2d_stream((model.samples,), popsr.int32, "labels")
        losses = popsr.d2h_stream((), popsr.float32, "losses")
        named = {
            name: popsr.variable(value, popsr.float32, name) for name, value in weights_of(model).items()
        }
        params = list(named.values())

        def loss_of(x: popsr.Tensor, y: popsr.Tensor, params: list[popsr.Tensor]) -> popsr.Tensor:
            p = dict(zip(named, params, strict=True))
            return ops.nll_loss(ops.softmax(_scores(model, p, x), axis=1), y)

        forward = ir.create_graph(loss_of, images.spec, labels.spec, params)
        backward = popsr.transforms.autodiff(forward, grads_required=forward.inputs[2:])
        call = ops.call_with_info(forward, ops.host_load(images), ops.host_load(labels), params)
        ops.host_store(losses, call.outputs[0])
        gradients = ops.call(backward.graph, 1.0, inputs_dict=backward.inputs_dict(call))
        for param, gradient in zip(params, gradients, strict=True):
            ops.scaled_add_(param, gradient, b=-model.rate)
    return Program(ir, images, labels, losses)


def side(**sizes: int) -> Callable[[], dict]:
    """Some steps, and their losses."""
    model = ResNet(**sizes)
    before = memory_before(model)
    program = resnet_step(model)
    session = popsr.Session(program.ir, num_threads=2).__enter__()
    inputs = dict(zip((program.images, program.labels), model.batch(), strict=True))
    memory = session.memory()

    def turn() -> dict:
        losses = [float(np.float32(session.run(inputs)[program.losses])) for _ in range(STEPS)]
        return {"values": [losses], "before": before, "memory": memory}

    return turn
