"""Data parallelism and gradient accumulation: images of digits, Adam. Written with PopXL's names.

Run it with ``python -m popsr run examples/popxl/mnist.py``; ``--help`` lists the options. Needs popsr[examples].
``POPDIST_NUM_TOTAL_REPLICAS=4 mpiexec -n 2 python -m popsr run examples/popxl/mnist.py`` runs on two ranks of MPI.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import popdist
import popxl
import popxl_addons as addons
from popxl import ops

from popsr.demo import data


@dataclass
class Options:
    """Of the program."""

    micro_batch_size: int = 8
    gradient_accumulation: int = 4
    data_parallel: int = 2
    hidden: int = 512
    learning_rate: float = 1e-3
    reset: str = "zero"  # how the counter of the running mean starts again: "zero" or "scale"

    @property
    def global_batch_size(self) -> int:
        """Samples of one update."""
        return self.micro_batch_size * self.gradient_accumulation * self.data_parallel


class Linear(addons.Module):
    """``gelu(x @ weight + bias)``, or without gelu."""

    def __init__(self, out_features: int, rng: np.random.Generator, gelu: bool = True):
        super().__init__()
        self.out_features, self.rng, self.gelu = out_features, rng, gelu

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """One layer."""
        size, scale = (x.shape[-1], self.out_features), np.sqrt(2 / x.shape[-1])
        weight = self.add_variable_input("weight", lambda: self.rng.normal(0, scale, size), x.dtype)
        bias = self.add_variable_input("bias", lambda: np.zeros(self.out_features), x.dtype)
        y = x @ weight + bias
        return ops.gelu(y) if self.gelu else y


class Net(addons.Module):
    """Four layers."""

    def __init__(self, hidden: int, rng: np.random.Generator):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = (Linear(hidden, rng) for _ in range(3))
        self.fc4 = Linear(10, rng, gelu=False)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """Scores of the ten classes."""
        return self.fc4(self.fc3(self.fc2(self.fc1(x))))


class Adam(addons.Module):
    """An update of one variable, in place, with its state."""

    def build(
        self,
        var: popxl.TensorByRef,
        grad: popxl.Tensor,
        *,
        lr: float,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-5,
    ) -> None:
        """Moments, their corrections, and the step."""
        first = self.add_variable_input(
            "first_order", lambda: np.zeros(var.shape), popxl.float32, by_ref=True
        )
        ops.var_updates.accumulate_moving_average_(first, grad, f=beta1)
        second = self.add_variable_input(
            "second_order", lambda: np.zeros(var.shape), popxl.float32, by_ref=True
        )
        ops.var_updates.accumulate_moving_average_square_(second, grad, f=beta2)
        step = self.add_variable_input("step", lambda: np.zeros(()), popxl.float32, by_ref=True)
        updater = ops.var_updates.adam_updater(
            first, second, var, time_step=step, beta1=beta1, beta2=beta2, epsilon=eps
        )
        ops.scaled_add_(var, updater, b=-lr)


@dataclass
class Program:
    """A session, its streams, and its variables."""

    session: popxl.Session
    images: popxl.HostToDeviceStream
    labels: popxl.HostToDeviceStream
    out: popxl.DeviceToHostStream
    variables: addons.NamedTensors


def reset_counter(counter: popxl.Tensor, how: str) -> None:
    """Let the running mean start again: what the accumulators hold does not count then."""
    if how == "zero":
        ops.var_updates.accumulator_zero_(counter)
    else:
        ops.var_updates.accumulator_scale_(counter, 0.0)


def train_program(opts: Options, pixels: int, rng: np.random.Generator) -> Program:
    """A run of the session is one update: losses of all its micro batches come out."""
    ir = popxl.Ir("popdist") if popdist.isPopdistEnvSet() else popxl.Ir(opts.data_parallel)
    ir.num_host_transfers = opts.gradient_accumulation
    accumulate = opts.gradient_accumulation > 1
    with ir.main_graph:
        images = popxl.h2d_stream((opts.micro_batch_size, pixels), popxl.float32, "images")
        labels = popxl.h2d_stream((opts.micro_batch_size,), popxl.int32, "labels")
        losses = popxl.d2h_stream((), popxl.float32, "losses")
        facts, forward = Net(opts.hidden, rng).create_graph(images.spec)
        required = forward.args.tensors
        if accumulate:
            grad_facts, backward = addons.transforms.autodiff_with_accumulation(forward, required)
            accumulators = grad_facts.init()
        else:  # no memory for accumulators
            backward = addons.autodiff(forward, grads_required=required)
            accumulators = addons.NamedTensors()
        variables = facts.init()
        forward, bound_backward = forward.bind(variables), backward.bind(accumulators)
        optimizer = Adam(cache=True)
        with popxl.in_sequence(True):
            for _ in range(opts.gradient_accumulation):
                call = forward.call_with_info(ops.host_load(images))
                loss, dx = addons.ops.cross_entropy_with_grad(call.outputs[0], ops.host_load(labels))
                activations = backward.grad_graph_info.inputs_dict(call)
                gradients = bound_backward.call(dx, args=activations)
                ops.host_store(losses, loss)
            if accumulate:  # the counter sorts last
                gradients = accumulators.tensors[:-1]
            for gradient in gradients:
                ops.collectives.replicated_all_reduce_(gradient, op="mean")
            for variable, gradient in zip(variables.tensors, gradients, strict=True):
                state, step = optimizer.create_graph(variable, gradient, lr=opts.learning_rate)
                step.bind(state.init(f"{variable.name}.adam")).call(variable, gradient)
            if accumulate:
                reset_counter(accumulators.mean_accum_counter, opts.reset)
    return Program(popxl.Session(ir, "ipu_hw"), images, labels, losses, variables)


def test_program(opts: Options, pixels: int, images_at_once: int) -> Program:
    """A run of the session gives the scores of some images, on one replica."""
    ir = popxl.Ir()
    with ir.main_graph:
        images = popxl.h2d_stream((images_at_once, pixels), popxl.float32, "images")
        labels = popxl.h2d_stream((images_at_once,), popxl.int32, "labels")
        scores = popxl.d2h_stream((images_at_once, 10), popxl.float32, "scores")
        facts, forward = Net(opts.hidden, np.random.default_rng()).create_graph(images.spec)
        variables = facts.init()
        ops.host_store(scores, forward.bind(variables).call(ops.host_load(images))[0])
    return Program(popxl.Session(ir, "ipu_hw"), images, labels, scores, variables)


def batches(opts: Options, number: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers of images: (updates, gradient_accumulation, data_parallel, micro_batch_size)."""
    order = rng.permutation(number)[: number // opts.global_batch_size * opts.global_batch_size]
    return order.reshape(-1, opts.gradient_accumulation, opts.data_parallel, opts.micro_batch_size)


def train(
    program: Program,
    opts: Options,
    x: np.ndarray,
    y: np.ndarray,
    epochs: int,
    seed: int = 0,
    report: Callable[[int, float], None] | None = None,
) -> np.ndarray:
    """Losses by update, micro batch and replica. ``report`` is called with those of the first local replica."""
    rng, losses = np.random.default_rng(seed), []
    first = popdist.getReplicaIndexOffset()
    own = slice(first, first + program.session.ir.instance_replication_factor)  # replicas of this instance
    with program.session as session:
        for epoch in range(epochs):
            for batch in batches(opts, len(x), rng):
                wanted = {
                    stream: session._full_input_shape(stream.shape) for stream in session.expected_inputs()
                }
                data = {program.images: x[batch[:, own]], program.labels: y[batch[:, own]]}
                inputs = {stream: data[stream].reshape(shape) for stream, shape in wanted.items()}
                losses.append(session.run(inputs)[program.out])
            if report is not None:
                report(epoch, float(np.mean(losses[-1].reshape(opts.gradient_accumulation, -1)[:, 0])))
    return np.array(losses)


def accuracy(program: Program, trained: Program, x: np.ndarray, y: np.ndarray) -> float:
    """Share of images that the trained weights put into the right class."""
    weights = trained.session.get_tensors_data(trained.variables.tensors)
    mine = dict(zip(program.variables.tensors, weights.values(), strict=True))
    program.session.write_variables_data(mine)
    at_once, right = program.images.shape[0], 0
    with program.session as session:
        for start in range(0, len(x) - at_once + 1, at_once):
            images = slice(start, start + at_once)
            out = session.run({program.images: x[images]})[program.out]
            right += int(np.sum(out.argmax(axis=1) == y[images]))
    return right / (len(x) // at_once * at_once)


@popdist.execute_on_instances({0})
def log(text: str, end: str = "\n") -> None:
    """Print it once."""
    print(text, end=end)


def main() -> None:
    """Train, test, report."""
    opts = Options()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of IDX files, as fashion-MNIST's; default: digits")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    for name, value in vars(opts).items():
        choices = ("zero", "scale") if name == "reset" else None
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value, choices=choices)
    args = parser.parse_args()
    for name in vars(opts):
        setattr(opts, name, getattr(args, name))
    if popdist.isPopdistEnvSet():
        popdist.init()
        opts.data_parallel = popdist.getNumTotalReplicas()

    log(
        f"global_batch_size = {opts.micro_batch_size} * {opts.gradient_accumulation} * {opts.data_parallel}",
        end="",
    )
    log(f" = {opts.global_batch_size}  # micro_batch_size * gradient_accumulation * data_parallel")
    images = data.digits() if args.data is None else data.idx_folder(args.data, 60_000)
    if len(images.y_train) < opts.global_batch_size:
        parser.error(f"too few images for one update, got {len(images.y_train)}")
    program = train_program(opts, images.x_train.shape[1], np.random.default_rng(args.seed))

    def report(epoch: int, loss: float) -> None:
        log(f"epoch {epoch + 1}: loss {loss:.4f}")

    train(program, opts, images.x_train, images.y_train, args.epochs, args.seed, report)
    tester = test_program(opts, images.x_train.shape[1], min(40, len(images.y_test)))
    log(f"test accuracy: {100 * accuracy(tester, program, images.x_test, images.y_test):.2f} %")


if __name__ == "__main__":
    main()
