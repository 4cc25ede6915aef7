"""Phased execution: layers one after the other, for a whole batch each; weights and activations in remote memory."""

import argparse
from dataclasses import dataclass
from functools import partial

import numpy as np
import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons import NamedTensors, batch_serial_buffer, batch_serialise, batch_serialise_fwd_and_grad
from popxl_addons.graph import GraphWithNamedArgs
from popxl_addons.remote import (
    NamedRemoteBuffers,
    load_remote_graph,
    named_variable_buffers,
    store_remote_graph,
)
from popxl_addons.rts import all_gather_replica_sharded_graph, reduce_replica_sharded_graph
from popxl_addons.transforms.batch_serialisation import RemoteHandle
from popxl_addons.variable_factory import NamedVariableFactories


@dataclass(frozen=True)
class Options:
    """Of the program."""

    layers: int = 3
    steps: int = 4  # micro batches of a batch
    micro_batch: int = 2
    data_parallel: int = 2
    vocab: int = 10
    features: int = 6
    hidden: int = 8
    learning_rate: float = 0.2
    recompute: bool = True
    io_mode: str = "io"


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Initial weights."""
    return rng.normal(0, 0.4, shape)


class Embedding(addons.Module):
    """Rows of a table."""

    def __init__(self, opts: Options, rng: np.random.Generator):
        super().__init__()
        self.draw = partial(normal, rng, opts.vocab, opts.features)

    def build(self, tokens: popxl.Tensor) -> popxl.Tensor:
        """``tokens`` (micro_batch,)."""
        return ops.gather(self.add_variable_input("table", self.draw, popxl.float32), tokens)


class Layer(addons.Module):
    """``x + tanh(x @ wide) @ back``."""

    def __init__(self, opts: Options, rng: np.random.Generator):
        super().__init__()
        self.wide = partial(normal, rng, opts.features, opts.hidden)
        self.back = partial(normal, rng, opts.hidden, opts.features)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """``x`` (micro_batch, features)."""
        hidden = ops.tanh(x @ self.add_variable_input("wide", self.wide, popxl.float32))
        return x + hidden @ self.add_variable_input("back", self.back, popxl.float32)


class Scores(addons.Module):
    """Of all tokens."""

    def __init__(self, opts: Options, rng: np.random.Generator):
        super().__init__()
        self.draw = partial(normal, rng, opts.features, opts.vocab)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """``x`` (micro_batch, features)."""
        return x @ self.add_variable_input("weight", self.draw, popxl.float32)


class Head(addons.Module):
    """Scores, loss and gradients in one graph: nothing of it is needed later."""

    def __init__(self, opts: Options, rng: np.random.Generator):
        super().__init__()
        self.scores = Scores(opts, rng)

    def build(self, x: popxl.Tensor, labels: popxl.Tensor) -> tuple[popxl.Tensor, ...]:
        """The gradient of ``x``, and the loss."""
        facts, forward = self.scores.create_graph(x)
        grad_facts, backward = addons.autodiff_with_accumulation(
            forward, forward.args.tensors, grads_required=[forward.graph.inputs[0]]
        )
        variables = self.add_variable_inputs("variables", facts)
        accumulators = self.add_variable_inputs("accumulators", grad_facts)
        call = forward.bind(variables).call_with_info(x)
        loss, dscores = addons.cross_entropy_with_grad(call.outputs[0], labels)
        activations = backward.grad_graph_info.inputs_dict(call)
        (dx,) = backward.bind(accumulators).call(dscores, args=activations)
        return dx, loss


class Phase:
    """Weights of one phase in remote memory, sharded over replicas, a row for each layer."""

    def __init__(
        self, name: str, facts: NamedVariableFactories, grad_facts: NamedVariableFactories, rows: int
    ):
        self.grad_facts, self.groups = grad_facts, facts.replica_groupings
        self.buffers: NamedRemoteBuffers = named_variable_buffers(facts, rows)
        self.variables = [facts.init_remote(self.buffers, row, f"{name}{row}") for row in range(rows)]
        self.load, self.names = load_remote_graph(self.buffers, rows)
        self.store = store_remote_graph(self.buffers, rows)

    def shards(self, row: popxl.Tensor | int) -> NamedTensors:
        """Of this replica."""
        return NamedTensors.pack(self.names, self.load.call(row))

    def whole(self, shards: NamedTensors) -> NamedTensors:
        """Gathered from all replicas."""
        gather, names = all_gather_replica_sharded_graph(shards, replica_groups=self.groups)
        return NamedTensors.pack(names, gather.bind(shards).call())

    def update(self, row: popxl.Tensor | int, shards: NamedTensors, sums: NamedTensors, rate: float) -> None:
        """Reduce gradients, update shards, store."""
        reduce, names = reduce_replica_sharded_graph(sums.accum, "mean", shard_groups=self.groups)
        grads = NamedTensors.pack(names, reduce.bind(sums.accum).call())
        for key, shard in shards.to_dict().items():
            ops.scaled_add_(shard, grads[key], b=-rate)
        self.store.bind(shards).call(row)


class Program:
    """A run is one update."""

    def __init__(self, opts: Options):
        self.opts, self.ir = opts, popxl.Ir(replication=opts.data_parallel)
        self.ir.num_host_transfers = opts.steps
        with self.ir.main_graph:
            self.tokens = popxl.h2d_stream((opts.micro_batch,), popxl.int32, "tokens")
            self.labels = popxl.h2d_stream((opts.micro_batch,), popxl.int32, "labels")
            self.losses = popxl.d2h_stream((), popxl.float32, "losses")
            self.graphs(np.random.default_rng(0))
            with popxl.in_sequence():
                self.forward_phases()
                self.head_phase()
                self.backward_phases()

    def graphs(self, rng: np.random.Generator) -> None:
        """Graphs of all phases, each for a whole batch."""
        opts = self.opts
        layer_facts, layer = Layer(opts, rng).create_graph(
            popxl.TensorSpec((opts.micro_batch, opts.features), popxl.float32)
        )
        x = layer.graph.inputs[0]
        layer_grad_facts, layer_grad = addons.autodiff_with_accumulation(
            layer, layer.args.tensors, grads_required=[x]
        )
        if opts.recompute:
            layer_grad = addons.recompute_graph(layer_grad)
        self.values = batch_serial_buffer(x, opts.steps, opts.layers + 1)  # row n: what layer n takes
        self.grads = batch_serial_buffer(x, opts.steps, opts.layers + 1)
        self.layer, self.layer_grad = batch_serialise_fwd_and_grad(
            layer,
            layer_grad,
            layer.args,
            opts.steps,
            load_handles={
                x: RemoteHandle(self.values, 0),
                layer_grad.graph.inputs[0]: RemoteHandle(self.grads, 1),
            },
            store_streams={},
            store_buffers={
                layer.graph.outputs[0]: RemoteHandle(self.values, 1),
                layer_grad.graph.outputs[0]: RemoteHandle(self.grads, 0),
            },
            rows=opts.layers,
            io_mode=opts.io_mode,
        )
        facts, embed = Embedding(opts, rng).create_graph(self.tokens.spec)
        grad_facts, embed_grad = addons.autodiff_with_accumulation(embed, embed.args.tensors)
        buffer = batch_serial_buffer(embed.graph.inputs[0], opts.steps)
        self.embed, self.embed_grad = batch_serialise_fwd_and_grad(
            embed,
            embed_grad,
            embed.args,
            opts.steps,
            load_handles={embed.graph.inputs[0]: self.tokens, embed_grad.graph.inputs[0]: (self.grads, 0)},
            store_streams={},
            store_buffers={
                embed.graph.inputs[0]: (buffer, 0),
                embed.graph.outputs[0]: (self.values, 0),
            },
            io_mode=opts.io_mode,
        )
        self.phases = {
            "embedding": Phase("embedding", facts, grad_facts, 1),
            "layers": Phase("layer", layer_facts, layer_grad_facts, opts.layers),
        }
        self.head_graph(rng)

    def head_graph(self, rng: np.random.Generator) -> None:
        """Of the head, whose row is the last."""
        opts = self.opts
        spec = popxl.TensorSpec((opts.micro_batch, opts.features), popxl.float32)
        facts, head = Head(opts, rng).create_graph(spec, self.labels.spec)
        x, labels = head.graph.inputs[:2]
        dx, loss = head.graph.outputs
        self.head = batch_serialise(
            head,
            opts.steps,
            {x: RemoteHandle(self.values, opts.layers), labels: self.labels},
            {loss: self.losses},
            {dx: RemoteHandle(self.grads, opts.layers)},
            io_mode=opts.io_mode,
        )
        self.phases["head"] = Phase("head", facts.variables, facts.accumulators, 1)

    def forward_phases(self) -> None:
        """The embedding, then all layers."""
        embedding, layers = self.phases["embedding"], self.phases["layers"]
        self.embed.graph.bind(embedding.whole(embedding.shards(0))).call(0)

        def phase(n: popxl.Tensor) -> popxl.Tensor:
            self.layer.graph.bind(layers.whole(layers.shards(n))).call(n)
            return n + 1

        zero = popxl.constant(0, popxl.int32, "first")
        ops.repeat(self.ir.create_graph(phase, zero), self.opts.layers, zero)

    def head_phase(self) -> None:
        """Loss and first gradients."""
        head = self.phases["head"]
        shards, sums = head.shards(0), head.grad_facts.init_zero()
        both = NamedTensors(variables=head.whole(shards), accumulators=sums)
        self.head.graph.bind(both).call(0)
        head.update(0, shards, sums, self.opts.learning_rate)

    def backward_phases(self) -> None:
        """All layers from the last to the first, then the embedding, with their updates."""

        def back(graph: GraphWithNamedArgs, phase: Phase, row: popxl.Tensor | int) -> None:
            shards, sums = phase.shards(row), phase.grad_facts.init_zero()
            named = phase.whole(shards)
            named.update(sums)
            graph.bind(named).call(row)
            phase.update(row, shards, sums, self.opts.learning_rate)

        @popxl.in_sequence()
        def phase(n: popxl.Tensor) -> popxl.Tensor:
            back(self.layer_grad.graph, self.phases["layers"], n)
            return n - 1

        last = popxl.constant(self.opts.layers - 1, popxl.int32, "last")
        ops.repeat(self.ir.create_graph(phase, last), self.opts.layers, last)
        back(self.embed_grad.graph, self.phases["embedding"], 0)

    def train(self, tokens: np.ndarray, labels: np.ndarray, check: bool = False) -> np.ndarray:
        """Data (runs, steps, replicas, micro_batch): losses (runs, steps, replicas)."""
        losses = []
        with popxl.Session(self.ir, "ipu_hw", check=check) as session:
            shape = session._full_input_shape(self.tokens.shape)
            for a, b in zip(tokens, labels, strict=True):
                inputs = {self.tokens: a.reshape(shape), self.labels: b.reshape(shape)}
                losses.append(session.run(inputs)[self.losses])
        everything = [t for p in self.phases.values() for v in p.variables for t in v.tensors]
        self.trained = {t.name: a for t, a in session.get_tensors_data(everything).items()}
        return np.array(losses)


def samples(opts: Options, runs: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens, and the token that follows each."""
    shape = (runs, opts.steps, opts.data_parallel, opts.micro_batch)
    tokens = np.random.default_rng(1).integers(0, opts.vocab, shape).astype(np.int32)
    return tokens, ((3 * tokens + 1) % opts.vocab).astype(np.int32)


def main() -> None:
    """Train, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-recompute", action="store_true")
    opts = Options(recompute=not parser.parse_args().no_recompute)
    for loss in Program(opts).train(*samples(opts, 40))[::8]:
        print(f"{loss.mean():.4f}")


if __name__ == "__main__":
    main()
