"""Modules in modules, inlined or outlined; schedules as text; gradients by name; plain gradient descent."""

import argparse
from collections.abc import Iterator

import numpy as np
import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons.named_tensors import NamedTensors
from popxl_addons.variable_factory import NamedVariableFactories


def normal(*shape: int) -> Iterator[np.ndarray]:
    """Initial weights, without end."""
    rng = np.random.default_rng(0)
    while True:
        yield rng.normal(0, 0.5, shape)


class Dense(addons.Module):
    """``relu(x @ weight + bias)``."""

    def __init__(self, out_features: int, data: Iterator[np.ndarray], relu: bool = True):
        super().__init__()
        self.out_features, self.data, self.relu = out_features, data, relu

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """One layer."""
        weight = self.add_variable_input("weight", self.data, x.dtype)
        bias = self.add_variable_input("bias", lambda: np.zeros(self.out_features), x.dtype)
        y = x @ weight + bias
        return ops.relu(y) if self.relu else y


class Inlined(addons.Module):
    """Each layer is a part of this graph."""

    def __init__(self, data: list[Iterator[np.ndarray]], hidden: int, depth: int, classes: int):
        super().__init__()
        self.layers = addons.Module.from_list([Dense(hidden, data[0]) for _ in range(depth)])
        self.head = Dense(classes, data[1], relu=False)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """Scores."""
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Outlined(addons.Module):
    """All layers are calls of one graph, with variables of their own."""

    def __init__(self, data: list[Iterator[np.ndarray]], hidden: int, depth: int, classes: int):
        super().__init__()
        self.data, self.hidden, self.depth = data, hidden, depth
        self.head = Dense(classes, data[1], relu=False)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """Scores."""
        facts, layer = Dense(self.hidden, self.data[0]).create_graph(x)
        named = NamedVariableFactories()
        for i in range(self.depth):
            named.insert(i, facts)
        variables = self.add_variable_inputs("layers", named)
        for i in range(self.depth):
            (x,) = layer.bind(variables[i]).call(x)
        return self.head(x)


class Program:
    """A run is one step of training."""

    def __init__(self, style: str, hidden: int = 6, depth: int = 3, classes: int = 4, batch: int = 5):
        self.style, self.classes = style, classes
        self.data = [normal(hidden, hidden), normal(hidden, classes)]
        self.shape = (batch, hidden)
        self.ir = popxl.Ir()
        with self.ir.main_graph:
            self.build(Inlined if style == "inlined" else Outlined, hidden, depth)

    def build(self, kind: type[addons.Module], hidden: int, depth: int) -> None:
        """The main graph."""
        self.x = popxl.h2d_stream(self.shape, popxl.float32, "x")
        self.labels = popxl.h2d_stream(self.shape[:1], popxl.int32, "labels")
        self.loss = popxl.d2h_stream((), popxl.float32, "loss")
        with popxl.in_sequence(False):
            x, labels = ops.host_load(self.x), ops.host_load(self.labels)
        facts, forward = kind(self.data, hidden, depth, self.classes).create_graph(x)
        backward = addons.autodiff(forward, grads_required=forward.args.tensors)
        self.variables: NamedTensors = facts.init()
        self.forward, self.backward = forward, backward
        with popxl.in_sequence(True):
            call = forward.bind(self.variables).call_with_info(x)
            loss, dscores = addons.ops.cross_entropy_with_grad(call.outputs[0], labels)
            info = backward.grad_graph_info
            back = backward.call_with_info(dscores, args=info.inputs_dict(call))
            for variable, grad in info.fwd_parent_ins_to_grad_parent_outs(call, back).items():
                ops.scaled_add_(variable, grad, b=-0.1)
            ops.host_store(self.loss, loss)

    def train(self, x: np.ndarray, labels: np.ndarray) -> tuple[list[float], dict[str, np.ndarray]]:
        """Losses of all steps, and weights after them."""
        with popxl.Session(self.ir, "ipu_model") as session:
            losses = [
                float(session.run({self.x: a, self.labels: b})[self.loss])
                for a, b in zip(x, labels, strict=True)
            ]
        found = session.get_tensors_data(self.variables.tensors)
        return losses, {key: found[t] for key, t in self.variables.to_dict().items()}


def samples(steps: int, shape: tuple[int, int], classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Data of all steps: the class is the greatest of the first features."""
    x = np.random.default_rng(1).normal(size=(steps, *shape)).astype(np.float32)
    return x, x[..., :classes].argmax(-1).astype(np.int32)


def main() -> None:
    """Train, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--style", choices=("inlined", "outlined"), default="outlined")
    program = Program(parser.parse_args().style)
    print(program.forward.print_schedule())
    print(program.backward.print_schedule())
    print(program.variables.keys_flat())
    losses, _ = program.train(*samples(30, program.shape, program.classes))
    print(*(f"{loss:.4f}" for loss in losses))


if __name__ == "__main__":
    main()
