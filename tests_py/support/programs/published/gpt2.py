"""A small GPT-2 with tied embeddings and dropout, trained data parallel in bfloat16 with stochastic rounding."""

import argparse
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons.layers import LayerNorm, Linear
from popxl_addons.named_replica_grouping import NamedReplicaGrouping
from popxl_addons.named_tensors import NamedTensors


@dataclass
class Config:
    """Of the model and its training."""

    layers: int = 2
    hidden: int = 32
    heads: int = 4
    vocab: int = 48
    sequence: int = 12
    micro_batch: int = 2
    gradient_accumulation: int = 2
    data_parallel: int = 4
    dropout: float = 0.1
    learning_rate: float = 0.2
    dtype: popxl.dtype = popxl.bfloat16
    seed: int = 7

    @property
    def tokens(self) -> int:
        """Rows of all matrices."""
        return self.micro_batch * self.sequence


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Initial weights."""
    return rng.normal(0, 0.1, shape).astype(np.float32)


class Attention(addons.Module):
    """Causal attention of several heads."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.qkv = Linear(3 * config.hidden)
        self.output = Linear(config.hidden)

    def build(self, x: popxl.Tensor, seed: popxl.Tensor) -> popxl.Tensor:
        """``x`` (tokens, hidden)."""
        c = self.config
        heads = (c.micro_batch, c.sequence, c.heads, c.hidden // c.heads)
        q, k, v = (t.reshape(heads).transpose((0, 2, 1, 3)) for t in ops.split(self.qkv(x), 3, axis=-1))
        scores = (q @ k.transpose((0, 1, 3, 2))) * float(1 / np.sqrt(heads[-1]))
        future = np.triu(np.full((c.sequence, c.sequence), -1e4, np.float32), 1)
        weights = ops.softmax(scores + popxl.constant(future, x.dtype), axis=-1)
        if c.dropout:
            weights = ops.dropout(weights, seed, p=c.dropout)
        mixed = (weights @ v).transpose((0, 2, 1, 3)).reshape((c.tokens, c.hidden))
        return self.output(mixed)


class FeedForward(addons.Module):
    """Wide and back."""

    def __init__(self, config: Config):
        super().__init__()
        self.wide = Linear(4 * config.hidden)
        self.back = Linear(config.hidden)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """``x`` (tokens, hidden)."""
        return self.back(ops.gelu(self.wide(x)))


class Block(addons.Module):
    """One layer: both parts after a norm, with a residual each."""

    def __init__(self, config: Config):
        super().__init__()
        self.dropout = config.dropout
        self.norm1, self.norm2 = LayerNorm(), LayerNorm()
        self.attention, self.feed_forward = Attention(config), FeedForward(config)

    def build(self, x: popxl.Tensor, seed: popxl.Tensor) -> popxl.Tensor:
        """``x`` (tokens, hidden)."""
        seed1, seed2, seed3 = ops.split_random_seed(seed, 3)
        x = x + self.drop(self.attention(self.norm1(x), seed1), seed2)
        return x + self.drop(self.feed_forward(self.norm2(x)), seed3)

    def drop(self, x: popxl.Tensor, seed: popxl.Tensor) -> popxl.Tensor:
        """Dropout, where there is one."""
        return ops.dropout(x, seed, p=self.dropout) if self.dropout else x


class GPT2(addons.Module):
    """Scores of the next token."""

    def __init__(self, config: Config, rng: np.random.Generator):
        super().__init__()
        self.config, self.rng = config, rng
        self.norm = LayerNorm()

    def build(self, tokens: popxl.Tensor, seed: popxl.Tensor) -> popxl.Tensor:
        """``tokens`` (micro_batch * sequence,): scores (tokens, vocab)."""
        c = self.config
        table = self.add_variable_input("table", partial(normal, self.rng, c.vocab, c.hidden), c.dtype)
        places = self.add_variable_input("places", partial(normal, self.rng, c.sequence, c.hidden), c.dtype)
        x = ops.gather(table, tokens).reshape((c.micro_batch, c.sequence, c.hidden)) + places
        x = x.reshape((c.tokens, c.hidden))
        facts, block = Block(c).create_graph(x, seed)  # one graph for all layers
        seeds = ops.split_random_seed(seed, c.layers)
        for i, one in enumerate(seeds):
            (x,) = block.bind(self.add_variable_inputs(f"layer{i}", facts)).call(x, one)
        return self.norm(x) @ table.T


@dataclass
class Program:
    """The values that a host needs."""

    config: Config
    ir: popxl.Ir
    tokens: popxl.HostToDeviceStream
    labels: popxl.HostToDeviceStream
    seeds: popxl.HostToDeviceStream
    losses: popxl.DeviceToHostStream
    variables: NamedTensors
    gradients: NamedTensors = field(default_factory=NamedTensors)


def build(config: Config, rng: np.random.Generator) -> Program:
    """The training program: a run is one update."""
    c, ir = config, popxl.Ir(replication=config.data_parallel)
    np.random.seed(c.seed)  # noqa: NPY002 - layers draw from this state
    ir.options.enable_stochastic_rounding = True
    ir.num_host_transfers = c.gradient_accumulation
    with ir.main_graph, popxl.in_sequence():
        tokens = popxl.h2d_stream((c.tokens,), popxl.int32, "tokens")
        labels = popxl.h2d_stream((c.tokens,), popxl.int32, "labels")
        seeds = popxl.h2d_stream((2,), popxl.uint32, "seeds")
        losses = popxl.d2h_stream((), popxl.float32, "losses")
        facts, model = GPT2(c, rng).create_graph(tokens.spec, seeds.spec)
        variables = facts.init()
        grad_facts, backward = addons.autodiff_with_accumulation(
            model,
            model.args.tensors,
            replica_groupings=NamedReplicaGrouping.build_groups(
                model.args.keys_flat(), ir.replica_grouping(group_size=1)
            ),
        )
        accumulators = grad_facts.init()
        forward, backward_step = model.bind(variables), backward.bind(accumulators)
        for _ in range(c.gradient_accumulation):
            call = forward.call_with_info(ops.host_load(tokens), ops.host_load(seeds))
            scores = ops.cast(call.outputs[0], popxl.float32)
            loss, dscores = addons.cross_entropy_with_grad(scores, ops.host_load(labels))
            backward_step.call(ops.cast(dscores, c.dtype), args=backward.grad_graph_info.inputs_dict(call))
            ops.host_store(losses, loss)
        for name, gradient in accumulators.accum.to_dict().items():
            mean = ops.collectives.replicated_all_reduce(gradient, "mean")
            ops.scaled_add_(variables[name], mean, b=-c.learning_rate)
        ops.var_updates.accumulator_zero_(accumulators.mean_accum_counter)
    return Program(c, ir, tokens, labels, seeds, losses, variables, accumulators)


def batch(config: Config, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Sequences in which each token is followed by three times itself and one: (accumulation, replicas, tokens)."""
    c = config
    start = rng.integers(0, c.vocab, (c.gradient_accumulation, c.data_parallel, c.micro_batch))
    rows = [start]
    for _ in range(c.sequence):
        rows.append((3 * rows[-1] + 1) % c.vocab)
    sequences = np.stack(rows, -1).astype(np.int32)
    shape = (c.gradient_accumulation, c.data_parallel, c.tokens)
    return sequences[..., :-1].reshape(shape), sequences[..., 1:].reshape(shape)


def train(program: Program, steps: int, **session_options: Any) -> list[float]:
    """Mean losses of all updates."""
    c, rng, means = program.config, np.random.default_rng(program.config.seed), []
    with popxl.Session(program.ir, "ipu_hw", **session_options) as session:
        for step in range(steps):
            tokens, labels = batch(c, rng)
            seeds = popxl.create_seeds(c.seed, step, 1, c.gradient_accumulation, c.data_parallel)
            inputs = {program.tokens: tokens, program.labels: labels, program.seeds: seeds}
            shaped = {s: a.reshape(session._full_input_shape(s.shape)) for s, a in inputs.items()}
            means.append(float(np.mean(session.run(shaped)[program.losses])))
    return means


def main() -> None:
    """Train, and print losses."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    config = Config()
    for step, loss in enumerate(train(build(config, np.random.default_rng(0)), args.steps)):
        print(f"{step}: {loss:.4f}")


if __name__ == "__main__":
    main()
