"""A training step of a GPT-like model in popsr, written plainly: loss, autodiff, mean over replicas, update."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import popsr
from bench.sides.compared_models import STEPS, Gpt, weights_of
from bench.sides.popsr_sides import memory_before
from popsr import ops

Named = dict[str, popsr.Tensor]


@dataclass(frozen=True)
class Program:
    """A run is one step of all replicas."""

    ir: popsr.Ir
    tokens: popsr.HostToDeviceStream
    labels: popsr.HostToDeviceStream
    losses: popsr.DeviceToHostStream


def _linear(p: Named, name: str, x: popsr.Tensor) -> popsr.Tensor:
    return x @ p[f"{name}.weight"] + p[f"{name}.bias"]


def _norm(p: Named, name: str, x: popsr.Tensor) -> popsr.Tensor:
    return ops.layer_norm(x, p[f"{name}.weight"], p[f"{name}.bias"])


def _attend(q: popsr.Tensor, k: popsr.Tensor, v: popsr.Tensor, attention: str) -> popsr.Tensor:
    """Causal attention: the op, or its parts."""
    if attention == "op":
        return ops.attention(q, k, v, is_causal=True)
    scores = (q @ k.transpose((0, 1, 3, 2))) * q.shape[-1] ** -0.5
    seen = popsr.constant(np.tri(q.shape[-2], dtype=bool))
    return ops.softmax(ops.where(seen, scores, popsr.constant(-np.inf, q.dtype)), axis=-1) @ v


def _attention_layer(
    model: Gpt, p: Named, name: str, x: popsr.Tensor, samples: int, attention: str
) -> popsr.Tensor:
    heads = (samples, model.sequence, model.heads, model.hidden // model.heads)
    parts = ops.split(_linear(p, f"{name}.qkv", x), 3, axis=-1)
    q, k, v = (each.reshape(heads).transpose((0, 2, 1, 3)) for each in parts)
    mixed = _attend(q, k, v, attention).transpose((0, 2, 1, 3)).reshape(x.shape)
    return _linear(p, f"{name}.output", mixed)


def gpt_step(model: Gpt, replicas: int, dtype: popsr.dtypes.dtype, attention: str) -> Program:
    """Each replica has its share of the samples; ``attention``: "op" or "parts"."""
    samples = model.samples // replicas
    ir = popsr.Ir(replication=replicas)
    with ir.main_graph, popsr.in_sequence():
        tokens = popsr.h2d_stream((samples, model.sequence), popsr.int32, "tokens")
        labels = popsr.h2d_stream((samples * model.sequence,), popsr.int32, "labels")
        losses = popsr.d2h_stream((), dtype, "losses")
        named = {name: popsr.variable(value, dtype, name) for name, value in weights_of(model).items()}
        params = list(named.values())

        def loss_of(x: popsr.Tensor, y: popsr.Tensor, params: list[popsr.Tensor]) -> popsr.Tensor:
            p = dict(zip(named, params, strict=True))
            h = ops.gather(p["words.weight"], x) + p["places"]
            h = h.reshape((samples * model.sequence, model.hidden))
            for i in range(model.layers):
                name = f"layers.{i}"
                h = h + _attention_layer(model, p, name, _norm(p, f"{name}.norm1", h), samples, attention)
                wide = ops.gelu(_linear(p, f"{name}.wide", _norm(p, f"{name}.norm2", h)))
                h = h + _linear(p, f"{name}.back", wide)
            scores = _norm(p, "norm", h) @ p["head.weight"]
            return ops.nll_loss(ops.softmax(scores, axis=-1), y)

        forward = ir.create_graph(loss_of, tokens.spec, labels.spec, params)
        backward = popsr.transforms.autodiff(forward, grads_required=forward.inputs[2:])
        call = ops.call_with_info(forward, ops.host_load(tokens), ops.host_load(labels), params)
        ops.host_store(losses, call.outputs[0])
        gradients = ops.call(backward.graph, popsr.constant(1, dtype), inputs_dict=backward.inputs_dict(call))
        for param, gradient in zip(params, gradients, strict=True):
            mean = ops.collectives.replicated_all_reduce(gradient, "mean")
            ops.scaled_add_(param, mean, b=-model.rate)
    return Program(ir, tokens, labels, losses)


def side(replicas: int, dtype: str, attention: str, **sizes: int) -> Callable[[], dict]:
    """Some steps; losses are means over the replicas."""
    model = Gpt(**sizes)
    before = memory_before(model)
    program = gpt_step(model, replicas, getattr(popsr, dtype), attention)
    session = popsr.Session(program.ir, num_threads=2).__enter__()
    inputs = {
        stream: each.reshape(session._full_input_shape(stream.shape))
        for stream, each in zip((program.tokens, program.labels), model.batch(), strict=True)
    }
    memory = session.memory()

    def turn() -> dict:
        losses = [np.float32(session.run(inputs)[program.losses]).mean() for _ in range(STEPS)]
        return {"values": [[float(loss) for loss in losses]], "before": before, "memory": memory}

    return turn
