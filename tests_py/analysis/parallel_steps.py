"""Random training steps with tensor and data parallelism, right ones and ones with a mistake in their collectives.

A grid of replicas: replicas of a row share a model (tensor parallel), replicas of a column hold the same parts of it
(data parallel). Rows and columns are any groups of equal size. A step is a chain of layers with its loss, the gradients
that ``autodiff`` makes of them, collectives over columns, and updates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

import popsr
from popsr import ops, transforms
from popsr.ops import collectives

F64 = popsr.float64
BATCH = 2
Reduction = Literal["add", "mean"]
LAYERS = ("scale", "bias", "dense", "mlp", "mlp", "attention", "gathered", "shared", "loss")
MISTAKES = (
    "no sum at a fork",
    "a fork that sums over columns",
    "a fork that sums twice",
    "no sum of a gradient",
    "a gradient averaged where others are summed",
    "a gradient summed twice",
    "a gradient summed over rows",
)
"""At forks (the first three), and of the gradient of one variable."""


@dataclass
class Step:
    """A program, and what it takes for the gradients of its variables."""

    ir: popsr.Ir
    losses: list[popsr.Tensor]
    gradients: dict[popsr.Variable, popsr.Tensor]
    inputs: dict[Any, Any]
    scale: float
    mistake: str | None


@dataclass
class Repairs:
    """Changes that follow advice: of the sum at the fork with the mistake, and of reductions of gradients.

    Attributes:
        fork: source of the grouping of the one sum there; "" for the right groups.
        gradients: by the name of the variable: "before", "in place" or "leave out"; the reduction, and the grouping.
    """

    fork: str | None = None
    gradients: dict[str, tuple[str, Reduction, str]] = field(default_factory=dict)


class ParallelStep:
    """Draws the layers of a step, and makes it.

    Args:
        seed: of everything that is drawn.
        wrong: with one mistake.
        sums: ``autodiff`` sums gradients over replicas, and the step has no collectives for that.
    """

    def __init__(self, seed: int, wrong: bool, sums: bool = False) -> None:
        """Draw the grid, the layers, and the mistake."""
        self.sums = sums
        self.seed, self.rng = seed, np.random.default_rng(seed)
        self.rows, self.columns = (
            int(n) for n in self.rng.choice([(2, 2), (2, 1), (1, 2), (2, 3), (3, 2), (4, 2)])
        )
        # Members of a row: `columns` replicas that split a model. `rows` models.
        grid = np.arange(self.rows * self.columns).reshape(self.rows, self.columns)
        if self.rng.random() < 0.4:
            grid = self.rng.permutation(grid.reshape(-1)).reshape(grid.shape)
        self.grid = grid
        self.width = 2 * self.columns
        self.layers = [str(kind) for kind in self.rng.choice(LAYERS, int(self.rng.integers(1, 6)))]
        self.residual = [bool(r) for r in self.rng.random(len(self.layers)) < 0.6]
        self.mean = bool(self.rng.random() < 0.5)
        self.mistake = self._draw_mistake() if wrong else None
        self.repairs = Repairs()

    def _split(self) -> list[int]:
        return [i for i, kind in enumerate(self.layers) if kind in ("mlp", "attention", "gathered", "shared")]

    def _draw_mistake(self) -> str | None:
        """A mistake that makes some gradient wrong; None if there is no such in this step."""
        weighted = [i for i, kind in enumerate(self.layers) if kind not in ("loss",)]
        forks = [i for i in self._split() if any(j < i for j in weighted)] if self.columns > 1 else []
        kinds: list[str] = []
        if forks:
            kinds += [MISTAKES[0], MISTAKES[2]] + ([MISTAKES[1]] if self.rows > 1 else [])
        if self.rows > 1 and weighted:
            kinds += [MISTAKES[3]] + ([MISTAKES[6]] if self.columns > 1 else [])
            if len(weighted) > 2:
                kinds += [MISTAKES[5]] + ([] if self.mean else [MISTAKES[4]])
        if not kinds:
            return None
        mistake = str(self.rng.choice(kinds))
        self.fork = int(self.rng.choice(forks)) if forks else -1
        self.of_variable = int(self.rng.integers(1 << 16))
        return mistake

    def _grouping(self, of_row: bool) -> popsr.ReplicaGrouping:
        group = np.empty(self.grid.size, np.int64)
        for r in range(self.rows):
            for c in range(self.columns):
                group[self.grid[r, c]] = r if of_row else c
        _, first, number = np.unique(group, return_index=True, return_inverse=True)
        order = np.argsort(np.argsort(first))
        return self.ir.replica_grouping_from_assignments([int(order[n]) for n in number])

    def make(self) -> Step:
        """The program, with the same numbers each time."""
        self.rng = np.random.default_rng((self.seed, 1))
        self.ir = popsr.Ir(replication=self.grid.size)
        self.model, self.data = self._grouping(True), self._grouping(False)
        self.weights: list[popsr.Variable] = []
        with self.ir.main_graph, popsr.in_sequence():
            stream = popsr.h2d_stream((BATCH, self.width), F64, "x", replicated_stream_mode=self.model)
            x = ops.host_load(stream)
            plan = [self._variables(kind) for kind in self.layers]
            self._variable((self.width, self.width), split=None)
            graph = self.ir.create_graph(lambda x, *w: self._forward(x, w, plan), x, *self.weights)
            call = ops.call_with_info(graph, x, *self.weights)
            provided = list(graph.outputs)
            backward = transforms.autodiff(
                graph, provided, graph.inputs[1:], replicas="sum" if self.sums else "own"
            )
            ones = [popsr.constant(1.0, F64) for _ in provided]
            found = ops.call(backward.graph, *ones, inputs_dict=backward.inputs_dict(call))
            gradients = {
                w: self._reduced(g, i) for i, (w, g) in enumerate(zip(self.weights, found, strict=True))
            }
            for w, g in gradients.items():
                ops.scaled_add_(w, g, b=-0.1)
        data = self.rng.normal(size=(self.rows, BATCH, self.width))
        scale = 1 / self.rows if self.mean and not self.sums else 1.0
        return Step(
            self.ir,
            list(call.outputs[: len(provided)]),
            gradients,
            {stream: data[0] if self.rows == 1 else data},
            scale,
            self.mistake,
        )

    def grouping_of(self, source: str) -> popsr.ReplicaGrouping:
        """The grouping of advice, as ``ir.replica_grouping(stride=2, group_size=2)``."""
        name, _, arguments = source.removeprefix("ir.").partition("(")
        numbers = [int(n) for n in re.findall(r"\d+", arguments)]
        if name == "replica_grouping_from_assignments":
            return self.ir.replica_grouping_from_assignments(numbers)
        return self.ir.replica_grouping(*numbers)

    def _reduced(self, gradient: popsr.Tensor, number: int) -> popsr.Tensor:
        """The gradient that a variable is updated with."""
        if self.sums:
            return gradient
        when, how, group = self.repairs.gradients.get(f"w{number}", ("", "add", ""))
        if when == "in place":
            return collectives.replicated_all_reduce(gradient, how, self.grouping_of(group))
        if when == "leave out":
            return collectives.replicated_all_reduce(gradient, "mean" if self.mean else "add", self.data)
        found = self._over_columns(gradient, number)
        if when == "before":
            return collectives.replicated_all_reduce(found, how, self.grouping_of(group))
        return found

    def _over_columns(self, gradient: popsr.Tensor, number: int) -> popsr.Tensor:
        """The reduction of a gradient over the replicas that share a variable, with the mistake."""
        if self.rows == 1:
            return gradient
        how: Reduction = "mean" if self.mean else "add"
        group = self.data
        if self.mistake in MISTAKES[3:] and number == self.of_variable % len(self.weights):
            if self.mistake == MISTAKES[3]:
                return gradient
            if self.mistake == MISTAKES[4]:
                how = "mean"
            if self.mistake == MISTAKES[5]:
                gradient = collectives.replicated_all_reduce(gradient, how, group)
                return collectives.replicated_all_reduce(gradient, "add", group)
            if self.mistake == MISTAKES[6]:
                group = self.model
        return collectives.replicated_all_reduce(gradient, how, group)

    def _variable(self, shape: tuple[int, ...], split: int | None) -> int:
        """A weight of all replicas, or of one whose parts along an axis the replicas of a row hold; its number."""
        whole = self.rng.normal(0, 0.5, shape)
        name = f"w{len(self.weights)}"
        if split is None:
            self.weights.append(popsr.variable(whole, F64, name))
        else:
            order = [int(self.data.assignment[self.grid[0, c]]) for c in range(self.columns)]
            parts = np.empty(
                (self.columns, *(n // self.columns if d == split else n for d, n in enumerate(shape)))
            )
            for c, part in enumerate(np.split(whole, self.columns, axis=split)):
                parts[order[c]] = part
            data = parts[0] if self.columns == 1 else parts
            self.weights.append(popsr.variable(data, F64, name, replica_grouping=self.data))
        return len(self.weights) - 1

    def _variables(self, kind: str) -> list[int]:
        square, width = (self.width, self.width), self.width
        if kind == "scale" or kind == "bias":
            return [self._variable((width,), None)]
        if kind == "dense":
            return [self._variable(square, None)]
        if kind == "mlp":
            return [self._variable(square, 1), self._variable(square, 0)]
        if kind == "attention":
            return [self._variable(square, 1) for _ in range(3)] + [self._variable(square, 0)]
        if kind == "gathered":
            return [self._variable(square, 1)]
        if kind == "shared":
            return [self._variable(square, 1), self._variable(square, 0)]
        return []

    def _forward(
        self, x: popsr.Tensor, weights: tuple[popsr.Tensor, ...], plan: list[list[int]]
    ) -> list[popsr.Tensor]:
        losses = []
        for i, (kind, numbers) in enumerate(zip(self.layers, plan, strict=True)):
            w = [weights[n] for n in numbers]
            if kind == "loss":
                losses.append(ops.mean(x * x))
                continue
            y = getattr(self, f"_{kind}")(x, w, i)
            x = x + y if self.residual[i] else y
        return [*losses, ops.sum(ops.tanh(x @ weights[-1]))]

    def _scale(self, x: popsr.Tensor, w: list[popsr.Tensor], _: int) -> popsr.Tensor:
        return x * w[0]

    def _bias(self, x: popsr.Tensor, w: list[popsr.Tensor], _: int) -> popsr.Tensor:
        return ops.tanh(x + w[0])

    def _dense(self, x: popsr.Tensor, w: list[popsr.Tensor], _: int) -> popsr.Tensor:
        return ops.gelu(x @ w[0])

    def _fork(self, x: popsr.Tensor, i: int) -> popsr.Tensor:
        """The identity, whose gradients are summed over a row."""
        if self.sums:
            return x
        group = self.model
        if self.mistake in MISTAKES[:3] and i == self.fork and self.repairs.fork is not None:
            return collectives.replicated_all_reduce_identical_inputs(
                x, group=self.grouping_of(self.repairs.fork) if self.repairs.fork else group
            )
        if self.mistake in MISTAKES[:3] and i == self.fork:
            if self.mistake == MISTAKES[0]:
                return x
            if self.mistake == MISTAKES[1]:
                group = self.data
            else:
                x = collectives.replicated_all_reduce_identical_inputs(x, group=group)
        return collectives.replicated_all_reduce_identical_inputs(x, group=group)

    def _total(self, y: popsr.Tensor) -> popsr.Tensor:
        if self.sums:
            return collectives.replicated_all_reduce(y, group=self.model)
        return collectives.replicated_all_reduce_identical_grad_inputs(y, group=self.model)

    def _mlp(self, x: popsr.Tensor, w: list[popsr.Tensor], i: int) -> popsr.Tensor:
        return self._total(ops.gelu(self._fork(x, i) @ w[0]) @ w[1])

    def _attention(self, x: popsr.Tensor, w: list[popsr.Tensor], i: int) -> popsr.Tensor:
        x = self._fork(x, i)
        q, k, v = (x @ each for each in w[:3])
        return self._total(ops.softmax(q @ k.T, axis=-1) @ v @ w[3])

    def _gathered(self, x: popsr.Tensor, w: list[popsr.Tensor], i: int) -> popsr.Tensor:
        part = ops.tanh(self._fork(x, i) @ w[0])
        return collectives.replicated_all_gather(part, axis=1, group=self.model)

    def _shared(self, x: popsr.Tensor, w: list[popsr.Tensor], i: int) -> popsr.Tensor:
        """The same weights twice."""
        for _ in range(2):
            x = self._total(ops.gelu(self._fork(x, i) @ w[0]) @ w[1])
        return x
