"""Tensor and data parallel training with weights and optimiser state in remote memory, a shard on each replica."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons.array_munging import shard, tensor_parallel_input
from popxl_addons.named_replica_grouping import NamedReplicaGrouping
from popxl_addons.named_tensors import NamedTensors
from popxl_addons.ops.replicated_all_reduce_TP import (
    replicated_all_reduce_identical_grad_inputs,
    replicated_all_reduce_identical_inputs,
)
from popxl_addons.optimizers.adam import AdamOptimizerStep
from popxl_addons.remote import load_remote_graph, named_variable_buffers, store_remote_graph
from popxl_addons.rts import all_gather_replica_sharded_graph, reduce_replica_sharded_graph


@dataclass(frozen=True)
class Options:
    """Of the program."""

    tp: int = 2
    dp: int = 4
    gradient_accumulation: int = 2
    micro_batch: int = 3
    features: int = 8
    hidden: int = 16
    classes: int = 8
    learning_rate: float = 0.02

    @property
    def replicas(self) -> int:
        """All of them."""
        return self.tp * self.dp


def initial(opts: Options) -> dict[str, np.ndarray]:
    """Whole weights."""
    rng = np.random.default_rng(0)
    return {
        "wide": rng.normal(0, 0.4, (opts.features, opts.hidden)).astype(np.float32),
        "wide_bias": np.zeros(opts.hidden, np.float32),
        "back": rng.normal(0, 0.3, (opts.hidden, opts.classes)).astype(np.float32),
        "back_bias": np.zeros(opts.classes, np.float32),
    }


class Net(addons.Module):
    """The hidden layer's columns are shared out over the replicas of a tensor parallel group."""

    def __init__(self, opts: Options):
        super().__init__()
        self.opts = opts
        self.parts = popxl.gcg().ir.replica_grouping(stride=opts.tp, group_size=opts.dp)
        self.tp_group = self.parts.transpose()

    def add(self, name: str, axis: int | None) -> popxl.Tensor:
        """A variable; with an axis, a shard on each replica of a tensor parallel group."""
        data = initial(self.opts)[name]
        if axis is None:
            return self.add_variable_input(name, lambda: data, popxl.float32)
        shards: Iterator[np.ndarray] = iter(shard(data, self.opts.tp, axis))
        return self.add_variable_input(name, shards, popxl.float32, replica_grouping=self.parts)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """Scores, the same on all of a tensor parallel group."""
        x = replicated_all_reduce_identical_inputs(x, group=self.tp_group)
        hidden = ops.tanh(x @ self.add("wide", 1) + self.add("wide_bias", 0))
        scores = replicated_all_reduce_identical_grad_inputs(
            hidden @ self.add("back", 0), group=self.tp_group
        )
        return scores + self.add("back_bias", None)


class Program:
    """A run is one update: load, gather, forward and backward, reduce, update, store."""

    def __init__(self, opts: Options):
        self.opts, self.ir = opts, popxl.Ir(replication=opts.replicas)
        self.ir.num_host_transfers = opts.gradient_accumulation
        with self.ir.main_graph:
            self.x = popxl.h2d_stream((opts.micro_batch, opts.features), popxl.float32, "x")
            self.labels = popxl.h2d_stream((opts.micro_batch,), popxl.int32, "labels")
            self.losses = popxl.d2h_stream((), popxl.float32, "losses")
            self.data_parallel = self.ir.replica_grouping(stride=opts.tp, group_size=opts.dp)
            self.graphs()
            self.remote()
            with popxl.in_sequence():
                self.step()

    def graphs(self) -> None:
        """Forward and backward."""
        self.facts, self.forward = Net(self.opts).create_graph(self.x.spec)
        self.groups: NamedReplicaGrouping = self.facts.replica_groupings
        self.grad_facts, self.backward = addons.autodiff_with_accumulation(
            self.forward, self.forward.args.tensors, replica_groupings=self.groups
        )

    def remote(self) -> None:
        """Weights and the optimiser's state, whose shards fit the weights'."""
        self.buffers = named_variable_buffers(self.facts)
        self.variables = self.facts.init_remote(self.buffers, 0, "net")
        load, self.names = load_remote_graph(self.buffers)
        self.load, self.store = load, store_remote_graph(self.buffers)

    def step(self) -> None:
        """The steps of a run."""
        shards = NamedTensors.pack(self.names, self.load.call(0))
        gather, names = all_gather_replica_sharded_graph(shards, replica_groups=self.groups)
        whole = self.whole = NamedTensors.pack(names, gather.bind(shards).call())
        accumulators = self.grad_facts.init("accumulators")
        forward, backward = self.forward.bind(whole), self.backward.bind(accumulators)
        for _ in range(self.opts.gradient_accumulation):
            call = forward.call_with_info(ops.host_load(self.x))
            loss, dscores = addons.ops.cross_entropy_with_grad(call.outputs[0], ops.host_load(self.labels))
            backward.call(dscores, args=self.backward.grad_graph_info.inputs_dict(call))
            ops.host_store(self.losses, loss)
        reduce, names = reduce_replica_sharded_graph(
            accumulators.accum, "mean", shard_groups=self.groups, replica_group=self.data_parallel
        )
        grads = NamedTensors.pack(names, reduce.bind(accumulators.accum).call())
        ops.var_updates.accumulator_zero_(accumulators.mean_accum_counter)
        self.update(shards, grads)
        self.store.bind(shards).call(0)

    def update(self, shards: NamedTensors, grads: NamedTensors) -> None:
        """Adam, on each replica for its shards."""
        optimizer = AdamOptimizerStep(cache=True)
        self.state = NamedTensors()
        for name, var in shards.to_dict().items():
            facts, graph = optimizer.create_graph(
                var,
                grads[name],
                self.groups[name],
                lr=self.opts.learning_rate,
                weight_decay=0.0,
                first_order_dtype=popxl.float32,
            )
            buffers = named_variable_buffers(facts, shard_over_dict={"step": 1})
            self.state.insert(name, facts.init_remote(buffers, 0, f"adam.{name}"))
            state = addons.remote.load_remote(buffers)
            graph.bind(state).call(var, grads[name])
            addons.remote.store_remote(buffers, state)

    def train(
        self, x: np.ndarray, labels: np.ndarray, check: bool = False
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Data (steps, accumulation, dp, ...): losses of all replicas, and weights with a row a shard."""
        found, opts = [], self.opts
        with popxl.Session(self.ir, "ipu_hw", check=check) as session:
            for a, b in zip(x, labels, strict=True):
                shape = (-1, *a.shape[2:])
                images = tensor_parallel_input(a.reshape(shape), opts.tp, opts.replicas)
                classes = tensor_parallel_input(b.reshape(-1, opts.micro_batch), opts.tp, opts.replicas)
                out = session.run({self.x: images, self.labels: classes})
                found.append(out[self.losses].reshape(opts.gradient_accumulation, opts.replicas))
            data = session.get_tensors_data(self.variables.tensors)
        return np.array(found), {key: data[t] for key, t in self.variables.to_dict().items()}


def samples(opts: Options, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Data of all steps: (steps, accumulation, dp, micro batch, ...)."""
    shape = (steps, opts.gradient_accumulation, opts.dp, opts.micro_batch, opts.features)
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    return x, x[..., : opts.classes].argmax(-1).astype(np.int32)


def main() -> None:
    """Train, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    opts = Options()
    losses, _ = Program(opts).train(*samples(opts, parser.parse_args().steps))
    for loss in losses[::5]:
        print(f"{loss.mean():.4f}")


if __name__ == "__main__":
    main()
