"""A GPT-like training program as PopXL's models write it, with ``popsr.addons``; a run is one update on 8 replicas.

Modules, autodiff with accumulation and recomputation, serialised batches, a mean of gradients, Adam.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

import popsr
from popsr import addons, ops
from popsr.addons import NamedTensors, batch_serial_buffer, batch_serialise, batch_serialise_fwd_and_grad
from popsr.addons.layers import LayerNorm, Linear
from popsr.addons.optimizers import AdamOptimizerStep
from popsr.addons.transforms.batch_serialisation import RemoteHandle


@dataclass(frozen=True)
class Config:
    """Of the model and its training."""

    layers: int = 9
    hidden: int = 64
    heads: int = 4
    vocab: int = 128
    sequence: int = 32
    micro_batch: int = 2
    accumulation: int = 4
    replicas: int = 8
    dropout: float = 0.1
    dtype: popsr.dtypes.dtype = popsr.float16

    @property
    def tokens(self) -> int:
        return self.micro_batch * self.sequence


def normal(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.02, shape).astype(np.float32)


class Embedding(addons.Module):
    """Of words and their places."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    def build(self, tokens: popsr.Tensor) -> popsr.Tensor:
        c = self.config
        words = self.add_variable_input("words", partial(normal, (c.vocab, c.hidden)), c.dtype)
        places = self.add_variable_input("places", partial(normal, (c.sequence, c.hidden)), c.dtype)
        x = ops.gather(words, tokens).reshape((c.micro_batch, c.sequence, c.hidden)) + places
        return x.reshape((c.tokens, c.hidden))


class Attention(addons.Module):
    """Causal, of several heads."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.qkv, self.output = Linear(3 * config.hidden), Linear(config.hidden)

    def build(self, x: popsr.Tensor, seed: popsr.Tensor) -> popsr.Tensor:
        c = self.config
        heads = (c.micro_batch, c.sequence, c.heads, c.hidden // c.heads)
        q, k, v = (t.reshape(heads).transpose((0, 2, 1, 3)) for t in ops.split(self.qkv(x), 3, axis=-1))
        scores = (q @ k.transpose((0, 1, 3, 2))) * float(1 / np.sqrt(heads[-1]))
        future = np.triu(np.full((c.sequence, c.sequence), -1e4, np.float32), 1)
        weights = ops.softmax(scores + popsr.constant(future, x.dtype), axis=-1)
        weights = ops.dropout(weights, seed, p=c.dropout)
        return self.output((weights @ v).transpose((0, 2, 1, 3)).reshape((c.tokens, c.hidden)))


class Block(addons.Module):
    """One layer: both parts after a norm, with a residual each."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.norm1, self.norm2 = LayerNorm(), LayerNorm()
        self.attention = Attention(config)
        self.wide, self.back = Linear(4 * config.hidden), Linear(config.hidden)

    def build(self, x: popsr.Tensor, seed: popsr.Tensor) -> popsr.Tensor:
        seed1, seed2, seed3 = ops.split_random_seed(seed, 3)
        x = x + ops.dropout(self.attention(self.norm1(x), seed1), seed2, p=self.dropout)
        return x + ops.dropout(self.back(ops.gelu(self.wide(self.norm2(x)))), seed3, p=self.dropout)


class Body(addons.Module):
    """All layers, written out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.count = config.layers
        self.layers = addons.Module.from_list([Block(config) for _ in range(config.layers)])

    def build(self, x: popsr.Tensor, seed: popsr.Tensor) -> popsr.Tensor:
        for layer, one in zip(self.layers, ops.split_random_seed(seed, self.count), strict=True):
            x = layer(x, one)
        return x


class Scores(addons.Module):
    """Of the next token."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, self.norm = config, LayerNorm()

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        c = self.config
        return self.norm(x) @ self.add_variable_input("weight", partial(normal, (c.hidden, c.vocab)), c.dtype)


class Head(addons.Module):
    """Scores, loss and gradients in one graph."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.scores = Scores(config)

    def build(self, x: popsr.Tensor, labels: popsr.Tensor) -> tuple[popsr.Tensor, ...]:
        facts, forward = self.scores.create_graph(x)
        grad_facts, backward = addons.autodiff_with_accumulation(
            forward, forward.args.tensors, grads_required=[forward.graph.inputs[0]]
        )
        variables = self.add_variable_inputs("variables", facts)
        accumulators = self.add_variable_inputs("accumulators", grad_facts)
        call = forward.bind(variables).call_with_info(x)
        loss, dscores = addons.cross_entropy_with_grad(call.outputs[0], labels)
        (dx,) = backward.bind(accumulators).call(dscores, args=backward.grad_graph_info.inputs_dict(call))
        return dx, loss


class Program:
    """The training program; ``ir`` and its streams are what a host needs."""

    def __init__(self, config: Config) -> None:
        self.config, self.ir = config, popsr.Ir(replication=config.replicas)
        np.random.seed(0)  # noqa: NPY002 - layers draw from this state
        self.ir.options.enable_stochastic_rounding = True
        self.ir.num_host_transfers = config.accumulation
        with self.ir.main_graph, popsr.in_sequence():
            self.tokens = popsr.h2d_stream((config.tokens,), popsr.int32, "tokens")
            self.labels = popsr.h2d_stream((config.tokens,), popsr.int32, "labels")
            self.seeds = popsr.h2d_stream((2,), popsr.uint32, "seeds")
            self.losses = popsr.d2h_stream((), config.dtype, "losses")
            with popsr.in_sequence(False):
                self._graphs()
            self._step()

    def _graphs(self) -> None:
        """Of the three phases, each for all micro batches of a batch."""
        c = self.config
        facts, embed = Embedding(c).create_graph(self.tokens.spec)
        grad_facts, embed_grad = addons.autodiff_with_accumulation(embed, embed.args.tensors)
        spec = popsr.TensorSpec((c.tokens, c.hidden), c.dtype)
        body_facts, body = Body(c).create_graph(spec, self.seeds.spec)
        x, seed = body.graph.inputs[:2]
        body_grad_facts, body_grad = addons.autodiff_with_accumulation(
            body, body.args.tensors, grads_required=[x]
        )
        body_grad = addons.recompute_graph(body_grad)
        values = batch_serial_buffer(x, c.accumulation, 2)
        grads = batch_serial_buffer(x, c.accumulation, 2)
        self.body, self.body_grad = batch_serialise_fwd_and_grad(
            body,
            body_grad,
            body.args,
            c.accumulation,
            load_handles={
                x: RemoteHandle(values, 0),
                seed: self.seeds,
                body_grad.graph.inputs[0]: RemoteHandle(grads, 1),
            },
            store_streams={},
            store_buffers={
                seed: (batch_serial_buffer(seed, c.accumulation), 0),
                body.graph.outputs[0]: RemoteHandle(values, 1),
                body_grad.graph.outputs[0]: RemoteHandle(grads, 0),
            },
        )
        kept = batch_serial_buffer(embed.graph.inputs[0], c.accumulation)
        self.embed, self.embed_grad = batch_serialise_fwd_and_grad(
            embed,
            embed_grad,
            embed.args,
            c.accumulation,
            load_handles={embed.graph.inputs[0]: self.tokens, embed_grad.graph.inputs[0]: (grads, 0)},
            store_streams={},
            store_buffers={embed.graph.inputs[0]: (kept, 0), embed.graph.outputs[0]: (values, 0)},
        )
        head_facts, head = Head(c).create_graph(spec, self.labels.spec)
        self.head = batch_serialise(
            head,
            c.accumulation,
            {head.graph.inputs[0]: RemoteHandle(values, 1), head.graph.inputs[1]: self.labels},
            {head.graph.outputs[1]: self.losses},
            {head.graph.outputs[0]: RemoteHandle(grads, 1)},
        )
        self.facts = {"embed": facts, "body": body_facts, "head": head_facts.variables}
        self.grad_facts = {"embed": grad_facts, "body": body_grad_facts, "head": head_facts.accumulators}

    def _step(self) -> None:
        variables = {name: facts.init(name) for name, facts in self.facts.items()}
        sums = {name: facts.init_zero() for name, facts in self.grad_facts.items()}
        self.embed.graph.bind(variables["embed"]).call(0)
        self.body.graph.bind(variables["body"]).call(0)
        self.head.graph.bind(NamedTensors(variables=variables["head"], accumulators=sums["head"])).call(0)
        for name, graph in (("body", self.body_grad), ("embed", self.embed_grad)):
            both = variables[name].copy()
            both.update(sums[name])
            graph.graph.bind(both).call(0)
        self.variables = NamedTensors(**variables)
        optimizer = AdamOptimizerStep(cache=True)
        for name, tree in variables.items():
            gradients = sums[name].accum.to_dict()
            for key, weight in tree.to_dict().items():
                mean = ops.collectives.replicated_all_reduce(gradients[key], "mean")
                facts, graph = optimizer.create_graph(
                    weight, mean, lr=1e-3, weight_decay=0.01, first_order_dtype=popsr.float32
                )
                graph.bind(facts.init(f"adam.{name}.{key}")).call(weight, mean)
