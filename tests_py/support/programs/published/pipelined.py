"""A pipeline over two IPUs, data parallel: activations are stashed, or only inputs, which are used to recompute."""

import argparse
from dataclasses import dataclass
from functools import partial

import numpy as np
import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons.graph import GraphWithNamedArgs
from popxl_addons.named_tensors import NamedTensors
from popxl_addons.variable_factory import NamedVariableFactories


@dataclass
class Options:
    """Of the program."""

    micro_batches: int = 8
    micro_batch: int = 3
    data_parallel: int = 2
    sizes: tuple[int, ...] = (6, 10, 4)
    learning_rate: float = 0.2
    recompute: bool = False


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Initial weights."""
    return rng.normal(0, 0.4, shape)


class Layer(addons.Module):
    """``tanh(x @ weight + bias)``, or without tanh."""

    def __init__(self, out_features: int, rng: np.random.Generator, last: bool):
        super().__init__()
        self.out_features, self.rng, self.last = out_features, rng, last

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """One layer."""
        draw = partial(normal, self.rng, x.shape[-1], self.out_features)
        weight = self.add_variable_input("weight", draw, x.dtype)
        y = x @ weight + self.add_variable_input("bias", partial(np.zeros, self.out_features), x.dtype)
        return y if self.last else ops.tanh(y)


@dataclass
class Stage:
    """A layer's graphs and state."""

    forward: GraphWithNamedArgs
    backward: GraphWithNamedArgs
    facts: NamedVariableFactories
    variables: NamedTensors
    accumulators: NamedTensors


class Program:
    """A run is one update."""

    def __init__(self, opts: Options):
        self.opts, self.ir = opts, popxl.Ir(replication=opts.data_parallel)
        self.ir.num_host_transfers = opts.micro_batches
        with self.ir.main_graph:
            self.x = popxl.h2d_stream((opts.micro_batch, opts.sizes[0]), popxl.float32, "x")
            self.labels = popxl.h2d_stream((opts.micro_batch,), popxl.int32, "labels")
            self.losses = popxl.d2h_stream((), popxl.float32, "losses")
            rng = np.random.default_rng(0)
            self.layers = []
            for i in range(2):
                with popxl.ipu(i):
                    self.layers.append(self.layer(i, rng))
            with popxl.in_sequence():
                self.step()

    def layer(self, i: int, rng: np.random.Generator) -> Stage:
        """Graphs of one layer; the first needs no gradient of its input."""
        opts = self.opts
        spec = popxl.TensorSpec((opts.micro_batch, opts.sizes[i]), popxl.float32)
        facts, forward = Layer(opts.sizes[i + 1], rng, last=i == 1).create_graph(spec)
        grad_facts, backward = addons.autodiff_with_accumulation(
            forward, forward.args.tensors, grads_required=forward.graph.inputs[:1] if i else []
        )
        if opts.recompute:
            backward = addons.recompute_graph(backward)
        return Stage(forward, backward, facts, facts.init(f"layer{i}"), grad_facts.init(f"accumulators{i}"))

    def step(self) -> None:
        """The pipeline, and the update after it."""
        first, last = self.layers
        with addons.pipelined_execution(self.opts.micro_batches) as pipeline:
            with pipeline.stage(0), popxl.ipu(0):
                x = ops.host_load(self.x)
                call0 = first.forward.bind(first.variables).call_with_info(x)
                hidden = call0.outputs[0].copy_to_ipu(1)
            with pipeline.stage(1), popxl.ipu(1):
                call1 = last.forward.bind(last.variables).call_with_info(hidden)
                loss, dscores = addons.cross_entropy_with_grad(call1.outputs[0], ops.host_load(self.labels))
                ops.host_store(self.losses, loss)
                info = last.backward.grad_graph_info
                activations = pipeline.stash_and_restore_activations(call1, info)
                dhidden, *_ = last.backward.bind(last.accumulators).call(dscores, args=activations)
                dhidden = dhidden.copy_to_ipu(0)
            with pipeline.stage(2), popxl.ipu(0):
                info = first.backward.grad_graph_info
                activations = pipeline.stash_and_restore_activations(call0, info)
                first.backward.bind(first.accumulators).call(dhidden, args=activations)
        for i, layer in enumerate(self.layers):
            with popxl.ipu(i):
                self.update(layer)

    def update(self, layer: Stage) -> None:
        """Gradient descent; accumulators hold means over micro batches."""
        for name, gradient in layer.accumulators.accum.to_dict().items():
            mean = ops.collectives.replicated_all_reduce(gradient, "mean")
            ops.scaled_add_(layer.variables[name], mean, b=-self.opts.learning_rate)
        ops.var_updates.accumulator_zero_(layer.accumulators.mean_accum_counter)

    def train(self, x: np.ndarray, labels: np.ndarray, check: bool = False) -> np.ndarray:
        """Data (steps, micro batches, replicas, micro batch, ...): losses of all steps."""
        with popxl.Session(self.ir, "ipu_hw", check=check) as session:
            losses = [
                session.run({self.x: a, self.labels: b})[self.losses] for a, b in zip(x, labels, strict=True)
            ]
            data = session.get_tensors_data([t for s in self.layers for t in s.variables.tensors])
        self.trained = [
            {key: data[t] for key, t in stage.variables.to_dict().items()} for stage in self.layers
        ]
        return np.array(losses)


def samples(opts: Options, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Data of all steps."""
    shape = (steps, opts.micro_batches, opts.data_parallel, opts.micro_batch, opts.sizes[0])
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    return x, x[..., : opts.sizes[-1]].argmax(-1).astype(np.int32)


def main() -> None:
    """Train, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--recompute", action="store_true")
    opts = Options(recompute=parser.parse_args().recompute)
    for loss in Program(opts).train(*samples(opts, 20))[::4]:
        print(f"{loss.mean():.4f}")


if __name__ == "__main__":
    main()
