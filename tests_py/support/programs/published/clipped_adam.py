"""Mixed precision: float16 layers, scaled loss, gradients clipped to a global norm, Adam with float32 weights."""

import argparse
from dataclasses import dataclass
from functools import partial

import numpy as np
import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons.named_tensors import NamedTensors
from popxl_addons.optimizers.adam import AdamOptimizerStep


@dataclass(frozen=True)
class Options:
    """Of the program."""

    own: bool = True  # the optimiser of this file, not the library's
    dtype: popxl.dtype = popxl.float16
    features: int = 8
    hidden: int = 8
    classes: int = 4
    batch: int = 6
    loss_scaling: float = 64.0
    max_norm: float = 0.5
    learning_rate: float = 0.01
    weight_decay: float = 0.01


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Initial weights."""
    return rng.normal(0, shape[0] ** -0.5, shape)


class Linear(addons.Module):
    """``x @ weight + bias``, with weights of any dtype that are cast to the dtype of ``x``."""

    def __init__(self, out_features: int, rng: np.random.Generator):
        super().__init__()
        self.out_features, self.rng = out_features, rng

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """One layer."""
        draw = partial(normal, self.rng, x.shape[-1], self.out_features)
        weight = self.add_variable_input("weight", draw, popxl.float32)
        bias = self.add_variable_input("bias", partial(np.zeros, self.out_features), popxl.float32)
        return x @ ops.cast(weight, x.dtype) + ops.cast(bias, x.dtype)


class Net(addons.Module):
    """Three layers."""

    def __init__(self, opts: Options, rng: np.random.Generator):
        super().__init__()
        self.fc1, self.fc2 = Linear(opts.hidden, rng), Linear(opts.hidden, rng)
        self.fc3 = Linear(opts.classes, rng)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """Scores."""
        return self.fc3(ops.tanh(self.fc2(ops.tanh(self.fc1(x)))))


class Adam(addons.Module):
    """Our own update; one graph for all variables of one shape."""

    @popxl.in_sequence()
    def build(
        self,
        var: popxl.TensorByRef,
        grad: popxl.Tensor,
        norm: popxl.Tensor,
        *,
        opts: Options,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-5,
    ) -> None:
        """``norm``: of all gradients, a scalar."""
        limit = popxl.constant(opts.max_norm, popxl.float32)
        grad = grad / opts.loss_scaling * (limit / ops.maximum(norm, limit))
        zeros = partial(np.zeros, var.shape)
        first = self.add_variable_input("first_order", zeros, popxl.float32, by_ref=True)
        second = self.add_variable_input("second_order", zeros, popxl.float32, by_ref=True)
        step = self.add_variable_input("step", partial(np.zeros, ()), popxl.float32, by_ref=True)
        ops.var_updates.accumulate_moving_average_(first, grad, f=beta1)
        ops.var_updates.accumulate_moving_average_square_(second, grad, f=beta2)
        updater = ops.var_updates.adam_updater(
            first,
            second,
            weight=var,
            weight_decay=opts.weight_decay,
            time_step=step,
            beta1=beta1,
            beta2=beta2,
            epsilon=eps,
        )
        ops.scaled_add_(var, updater, b=-opts.learning_rate)


def global_norm(grads: NamedTensors, loss_scaling: float) -> popxl.Tensor:
    """Of all gradients, without the loss's scale."""
    with popxl.in_sequence(False):
        squares = [addons.ops.grad_reduce_square_add(g, loss_scaling) for g in grads.tensors]
    total = squares[0]
    for square in squares[1:]:
        total = total + square
    return ops.sqrt(total)


class Program:
    """A run is one step of training."""

    def __init__(self, opts: Options):
        self.opts, self.ir = opts, popxl.Ir()
        with self.ir.main_graph, popxl.in_sequence():
            self.x = popxl.h2d_stream((opts.batch, opts.features), popxl.float32, "x")
            self.labels = popxl.h2d_stream((opts.batch,), popxl.int32, "labels")
            self.loss = popxl.d2h_stream((), popxl.float32, "loss")
            self.norm = popxl.d2h_stream((), popxl.float32, "norm")
            self.build()

    def build(self) -> None:
        """The main graph."""
        opts = self.opts
        x, labels = ops.cast(ops.host_load(self.x), opts.dtype), ops.host_load(self.labels)
        facts, forward = Net(opts, np.random.default_rng(0)).create_graph(x)
        backward = addons.autodiff(forward, grads_required=forward.args.tensors)
        self.variables = facts.init()
        call = forward.bind(self.variables).call_with_info(x)
        scores = ops.cast(call.outputs[0], popxl.float32)
        loss, dscores = addons.ops.cross_entropy_with_grad(scores, labels, opts.loss_scaling)
        ops.host_store(self.loss, loss)
        gradients = backward.call(
            ops.cast(dscores, opts.dtype), args=backward.grad_graph_info.inputs_dict(call)
        )
        names = {t: name for name, t in forward.args.to_dict().items()}
        grads = NamedTensors.pack([names[t] for t in forward.args.tensors], gradients)
        grads = grads.map(lambda g: ops.cast(g, popxl.float32))
        norm = global_norm(grads, opts.loss_scaling)
        ops.host_store(self.norm, norm)
        self.update(grads, norm)

    def update(self, grads: NamedTensors, norm: popxl.Tensor) -> None:
        """Of all variables; their states are in one tree."""
        self.state, self.graphs = NamedTensors(), set()
        optimizer = Adam(cache=True) if self.opts.own else AdamOptimizerStep(cache=True)
        for name, var in self.variables.named_tensors.items():
            if self.opts.own:
                facts, graph = optimizer.create_graph(var, grads[name], norm, opts=self.opts)
                inputs = [var, grads[name], norm]
            else:
                facts, graph = optimizer.create_graph(
                    var,
                    grads[name],
                    lr=self.opts.learning_rate,
                    weight_decay=self.opts.weight_decay,
                    first_order_dtype=popxl.float32,
                    loss_scaling=self.opts.loss_scaling,
                    global_norm=norm,
                    global_norm_max=self.opts.max_norm,
                )
                inputs = [var, grads[name], norm]
            state = facts.init(f"adam.{name}")
            self.state.insert(name, state, overwrite=True)
            graph.bind(state).call(*inputs)
            self.graphs.add(graph.graph)

    def train(self, x: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Losses and norms of all steps."""
        found = []
        with popxl.Session(self.ir, "ipu_hw") as session:
            for a, b in zip(x, labels, strict=True):
                out = session.run({self.x: a, self.labels: b})
                found.append((out[self.loss], out[self.norm]))
            data = session.get_tensors_data(self.variables.tensors)
        self.trained = {key: data[t] for key, t in self.variables.to_dict().items()}
        losses, norms = np.array(found, np.float64).T
        return losses, norms


def samples(opts: Options, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Data of all steps."""
    x = np.random.default_rng(1).normal(size=(steps, opts.batch, opts.features)).astype(np.float32)
    return x, x[..., : opts.classes].argmax(-1).astype(np.int32)


def main() -> None:
    """Train, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", action="store_true")
    parser.add_argument("--float32", action="store_true")
    args = parser.parse_args()
    opts = Options(own=not args.library, dtype=popxl.float32 if args.float32 else popxl.float16)
    program = Program(opts)
    losses, norms = program.train(*samples(opts, 60))
    print(program.state.keys_flat(), len(program.graphs))
    for loss, norm in list(zip(losses, norms, strict=True))[::6]:
        print(f"loss {loss:.4f} norm {norm:.4f}")


if __name__ == "__main__":
    main()
