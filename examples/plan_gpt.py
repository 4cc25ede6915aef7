"""One training step of a GPT, tensor and data parallel; of the size of GPT-3 only its messages are planned.

    python -m popsr plan examples/plan_gpt.py gpt3 --ranks 1024 --bandwidth 25e9 --latency 2e-6

prints what a step of 175 billion weights on 1,024 replicas would move between ranks, without making its session: parts
of a model on 8 neighbours, 128 models. Its weights are a sparse file, as of a checkpoint that is mapped into memory, so
that planning takes neither their memory nor their space on the disk. Without "gpt3" a tiny model makes a step on 4
replicas.
"""

import math
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import popsr
from popsr import ops
from popsr.ops import collectives
from popsr.transforms import GradGraphInfo, autodiff


@dataclass(frozen=True)
class Config:
    """Sizes of GPT-3 with 175 billion weights; a batch of 1,536 sequences."""

    layers: int = 96
    hidden: int = 12288
    heads: int = 96
    sequence: int = 2048
    vocab: int = 51200
    tensor_parallel: int = 8
    data_parallel: int = 128
    micro_batches: int = 12
    dtype: popsr.dtype = popsr.bfloat16

    @property
    def parts(self) -> dict[str, tuple[int, ...]]:
        """Shapes of one replica's weights of a layer."""
        part, hidden = self.hidden // self.tensor_parallel, self.hidden
        return {
            **dict.fromkeys(("scale1", "shift1", "scale2", "shift2"), (hidden,)),
            "qkv": (hidden, 3 * part),
            "out": (part, hidden),
            "wide": (hidden, 4 * part),
            "back": (4 * part, hidden),
        }


TINY = Config(
    layers=2,
    hidden=32,
    heads=4,
    sequence=16,
    vocab=64,
    tensor_parallel=2,
    data_parallel=2,
    micro_batches=3,
)


class Gpt:
    """The program of a step."""

    def __init__(self, config: Config, data: np.ndarray) -> None:
        """Weights are taken from ``data``, which is long enough for the largest."""
        self.config, self.data = config, data
        self.ir = popsr.Ir(replication=config.tensor_parallel * config.data_parallel)
        self.same = self.ir.replica_grouping(
            stride=config.tensor_parallel
        )  # replicas with equal parts of weights
        self.model = self.same.transpose()  # replicas with the parts of one model
        self.all = self.ir.replica_grouping()
        with self.ir.main_graph, popsr.in_sequence():
            self.build()

    def variables(self, prefix: str) -> Iterator[popsr.Tensor]:
        """A variable for each weight: the words, then layer by layer."""
        c = self.config
        yield self.variable(f"{prefix}words", (c.vocab, c.hidden), self.all)
        for layer in range(c.layers):
            for name, shape in c.parts.items():
                yield self.variable(
                    f"{prefix}{name}_{layer}", shape, self.same if len(shape) > 1 else self.all
                )

    def variable(self, name: str, shape: tuple[int, ...], group: popsr.ReplicaGrouping) -> popsr.Tensor:
        """Of this shape in each group."""
        full = shape if group.num_groups == 1 else (group.num_groups, *shape)
        data = self.data[: math.prod(full)].reshape(full)
        return popsr.variable(data, self.config.dtype, name=name, replica_grouping=group)

    def layer(self, x: popsr.Tensor, *weights: popsr.Tensor) -> popsr.Tensor:
        """Attention and two products, a residual each. Members of a model exchange twice, and twice backwards."""
        c = self.config
        w = dict(zip(c.parts, weights, strict=True))
        heads = (c.sequence, c.heads // c.tensor_parallel, c.hidden // c.heads)
        y = self.enter(ops.layer_norm(x, w["scale1"], w["shift1"]))
        q, k, v = (t.reshape(heads).transpose((1, 0, 2)) for t in ops.split(y @ w["qkv"], 3, axis=1))
        y = ops.attention(q, k, v, is_causal=True).transpose((1, 0, 2)).reshape((c.sequence, -1))
        x = x + self.leave(y @ w["out"])
        y = self.enter(ops.layer_norm(x, w["scale2"], w["shift2"]))
        return x + self.leave(ops.gelu(y @ w["wide"]) @ w["back"])

    def enter(self, x: popsr.Tensor) -> popsr.Tensor:
        """The same value for all parts of a model: backwards their gradients are added."""
        return collectives.replicated_all_reduce_identical_inputs(x, group=self.model)

    def leave(self, x: popsr.Tensor) -> popsr.Tensor:
        """The sum over the parts of a model."""
        return collectives.replicated_all_reduce_identical_grad_inputs(x, group=self.model)

    def build(self) -> None:
        """Micro batches one after another, then each gradient's sum over all models, and the update."""
        c = self.config
        self.ir.num_host_transfers = c.micro_batches
        streams = (popsr.h2d_stream((c.sequence,), popsr.int32, name) for name in ("tokens", "labels"))
        self.tokens, self.labels = streams
        self.losses = popsr.d2h_stream((), c.dtype, "losses")
        weights, totals = list(self.variables("")), list(self.variables("gradient_of_"))
        hidden = popsr.TensorSpec((c.sequence, c.hidden), c.dtype)
        of_layer = [weight.spec for weight in weights[1 : 1 + len(c.parts)]]
        self.layers = self.with_gradient(self.layer, hidden, *of_layer)
        self.words = self.with_gradient(ops.gather, weights[0].spec, self.tokens.spec)
        step = self.ir.create_graph(self.micro_batch, weights, totals)
        ops.repeat(step, c.micro_batches, weights, totals)
        for weight, total in zip(weights, totals, strict=True):
            gradient = collectives.replicated_all_reduce(total, group=self.same)
            ops.scaled_add_(weight, gradient, b=-1e-4)  # optimisers move nothing between ranks
            ops.var_updates.accumulator_zero_(total)

    def with_gradient(self, function: Any, *inputs: Any) -> tuple[popsr.Graph, GradGraphInfo]:
        """The graph of a function and that of its gradient."""
        graph = self.ir.create_graph(function, *inputs)
        return graph, autodiff(
            graph, grads_required=[t for t in graph.inputs if t.dtype == self.config.dtype]
        )

    def micro_batch(self, weights: list[popsr.TensorByRef], totals: list[popsr.TensorByRef]) -> None:
        """One sequence forward and backward: gradients are added to totals."""
        width = len(self.config.parts)
        slices = [slice(first, first + width) for first in range(1, len(weights), width)]
        embed = ops.call_with_info(self.words[0], weights[0], ops.host_load(self.tokens))
        calls = [embed]
        for at in slices:
            calls.append(ops.call_with_info(self.layers[0], calls[-1].outputs[0], *weights[at]))
        x = calls[-1].outputs[0]
        probs = ops.softmax(x @ weights[0].transpose(), axis=1)
        loss, dlogits = ops.nll_loss_with_softmax_grad(probs, ops.host_load(self.labels))
        ops.host_store(self.losses, loss)
        ops.add_(totals[0], dlogits.transpose() @ x)
        dx = dlogits @ weights[0]
        for at, call in zip(reversed(slices), reversed(calls), strict=False):
            gradient = self.layers[1]
            dx, *gradients = ops.call(gradient.graph, dx, inputs_dict=gradient.inputs_dict(call))
            for total, each in zip(totals[at], gradients, strict=True):
                ops.add_(total, each)
        gradient = self.words[1]
        ops.add_(totals[0], *ops.call(gradient.graph, dx, inputs_dict=gradient.inputs_dict(embed)))


def zeros(config: Config) -> np.ndarray:
    """Mapped zeros, enough for the largest weight in all groups."""
    shapes = [(config.vocab, config.hidden), *config.parts.values()]
    largest = max(math.prod(shape) for shape in shapes) * config.tensor_parallel
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, config.dtype.as_numpy(), "w+", shape=(largest,))


if __name__ == "__main__":
    if "gpt3" in sys.argv[1:]:
        gpt = Gpt(Config(), zeros(Config()))
    else:
        gpt = Gpt(TINY, np.random.default_rng(0).normal(0, 0.1, 100_000).astype(np.float32))
    rng = np.random.default_rng(1)
    with popsr.Session(gpt.ir) as session:
        # Replicas of a model see the same tokens.
        shape = (gpt.config.micro_batches, gpt.config.data_parallel, gpt.config.sequence)
        batch = (rng.integers(0, gpt.config.vocab, shape, np.int32) for _ in range(2))
        tokens, labels = (np.repeat(each, gpt.config.tensor_parallel, axis=1) for each in batch)
        losses = session.run({gpt.tokens: tokens, gpt.labels: labels})[gpt.losses]
        print("losses of the micro batches:", np.float32(losses).mean(axis=1).round(2))
        print(session.plan.communication(ranks=4))
