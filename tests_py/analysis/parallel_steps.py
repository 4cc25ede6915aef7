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
from tests_py.analysis import parallel_layers as layers
from tests_py.analysis.parallel_layers import F64, VOCABULARY, Weight

BATCH = 12  # a multiple of 1, 2, 3 and 4
Reduction = Literal["add", "mean"]
LAYERS = (*layers.WHOLE, *layers.SPLIT, "mlp", "attention", "loss")
GRIDS = ((2, 2), (2, 1), (1, 2), (2, 3), (3, 2), (4, 2), (2, 4), (1, 4), (3, 1))
AT_FORKS = ("no sum at a fork", "a fork that sums over columns", "a fork that sums twice")
AT_TOTALS = ("no sum of parts", "gradients of a sum are summed")
OF_VARIABLES = (
    "no sum of a gradient",
    "a gradient averaged where others are summed",
    "a gradient summed twice",
    "a gradient summed over rows",
    "a gradient summed over all replicas",
)
MISTAKES = (*AT_FORKS, *AT_TOTALS, *OF_VARIABLES)
"""At forks, at sums of parts in the forward pass, and of the gradient of one variable."""


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
        total: the sum of parts passes its gradient on, or is there.
        gradients: by the name of the variable: "before", "in place" or "leave out"; the reduction, and the grouping.
    """

    fork: str | None = None
    total: bool = False
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
        self.rows, self.columns = (int(n) for n in self.rng.choice(GRIDS))
        # Members of a row: `columns` replicas that split a model. `rows` models.
        grid = np.arange(self.rows * self.columns).reshape(self.rows, self.columns)
        if self.rng.random() < 0.4:
            grid = self.rng.permutation(grid.reshape(-1)).reshape(grid.shape)
        self.grid = grid
        self.width = 2 * self.columns
        self.layers = [str(kind) for kind in self.rng.choice(LAYERS, int(self.rng.integers(1, 6)))]
        self.residual = [bool(r) for r in self.rng.random(len(self.layers)) < 0.6]
        # The gradient of a weight of one row is a sum over it whatever the others' are.
        self.mean = bool(self.rng.random() < 0.5) and "private" not in self.layers
        self.mistake = self._draw_mistake() if wrong else None
        self.repairs = Repairs()

    def _layers_of(self, kinds: tuple[str, ...]) -> list[int]:
        return [i for i, kind in enumerate(self.layers) if kind in kinds]

    def _variables(self) -> list[Weight]:
        """Of all layers, and of the end."""
        found = [w for kind in self.layers for w in layers.weights_of(kind, self.width)]
        return [*found, Weight((self.width, self.width))]

    def _draw_mistake(self) -> str | None:
        """A mistake that makes some gradient wrong; None if there is no such in this step."""
        # Layers through which a gradient that is wrong reaches a weight.
        weighted = [i for i, kind in enumerate(self.layers) if kind not in ("loss", "classes")]
        forks = [i for i in self._layers_of(layers.FORKED) if any(j < i for j in weighted)]
        forks += self._layers_of(("sequence",))
        totals = self._layers_of(layers.TOTALED)
        before = [i for i in totals if any(j < i for j in weighted)]
        variables = self._variables()
        common = [n for n, w in enumerate(variables) if not w.private]
        kinds: list[str] = []
        if self.columns > 1 and forks:
            kinds += [AT_FORKS[0], AT_FORKS[2]] + ([AT_FORKS[1]] if self.rows > 1 else [])
        if self.columns > 1 and totals:
            kinds.append(AT_TOTALS[0])
        if self.columns > 1 and before and len(variables) > 2:
            kinds.append(AT_TOTALS[1])
        if self.rows > 1:
            kinds.append(OF_VARIABLES[0])
            kinds += [OF_VARIABLES[3]] if self.columns > 1 else []
            if len(variables) > 2:
                kinds += [OF_VARIABLES[2]] + ([] if self.mean else [OF_VARIABLES[1]])
                kinds += [OF_VARIABLES[4]] if self.columns > 1 else []
        if not kinds:
            return None
        mistake = str(self.rng.choice(kinds))
        self.at_fork = int(self.rng.choice(forks)) if forks else -1
        of = before if mistake == AT_TOTALS[1] else totals
        self.at_total = int(self.rng.choice(of)) if of else -1
        self.of_variable = int(self.rng.choice(common))
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
            streams = [
                popsr.h2d_stream(shape, kind, name, replicated_stream_mode=self.model)
                for shape, kind, name in (((BATCH, self.width), F64, "x"), ((BATCH,), popsr.int32, "tokens"))
            ]
            x, tokens = (ops.host_load(stream) for stream in streams)
            for weight in self._variables():
                self._add_variable(weight)
            graph = self.ir.create_graph(self._forward, x, tokens, *self.weights)
            call = ops.call_with_info(graph, x, tokens, *self.weights)
            provided = list(graph.outputs)
            backward = transforms.autodiff(
                graph, provided, graph.inputs[2:], replicas="sum" if self.sums else "own"
            )
            ones = [popsr.constant(1.0, F64) for _ in provided]
            found = ops.call(backward.graph, *ones, inputs_dict=backward.inputs_dict(call))
            gradients = {
                w: self._reduced(g, i) for i, (w, g) in enumerate(zip(self.weights, found, strict=True))
            }
            for w, g in gradients.items():
                ops.scaled_add_(w, g, b=-0.1)
        data = (
            self.rng.normal(size=(self.rows, BATCH, self.width)),
            self.rng.integers(VOCABULARY, size=(self.rows, BATCH), dtype=np.int32),
        )
        scale = 1 / self.rows if self.mean and not self.sums else 1.0
        return Step(
            self.ir,
            list(call.outputs[: len(provided)]),
            gradients,
            {stream: d[0] if self.rows == 1 else d for stream, d in zip(streams, data, strict=True)},
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
        if self._variables()[number].private:
            return gradient
        how: Reduction = "mean" if self.mean else "add"
        group: popsr.ReplicaGrouping | None = self.data
        if self.mistake in OF_VARIABLES and number == self.of_variable:
            if self.mistake == OF_VARIABLES[0]:
                return gradient
            if self.mistake == OF_VARIABLES[1]:
                how = "mean"
            if self.mistake == OF_VARIABLES[2]:
                gradient = collectives.replicated_all_reduce(gradient, how, group)
                return collectives.replicated_all_reduce(gradient, "add", group)
            if self.mistake == OF_VARIABLES[3]:
                group = self.model
            if self.mistake == OF_VARIABLES[4]:
                how, group = "add", None
        return collectives.replicated_all_reduce(gradient, how, group)

    def _add_variable(self, weight: Weight) -> None:
        whole = self.rng.normal(0, 0.7 / self.width**0.5, (self.rows if weight.private else 1, *weight.shape))
        name, same = f"w{len(self.weights)}", None
        data = whole[0]
        if weight.private:
            data, same = (whole[0] if self.rows == 1 else whole), self.model
        elif weight.split is not None:
            parts = layers.parts_of(whole[0], weight.split, self.columns)
            data, same = parts[0], self.data
            if self.columns > 1:
                order = [int(self.data.assignment[self.grid[0, c]]) for c in range(self.columns)]
                data = np.stack([parts[order.index(c)] for c in range(self.columns)])
        self.weights.append(popsr.variable(data, F64, name, replica_grouping=same))

    def _forward(
        self, x: popsr.Tensor, tokens: popsr.Tensor, *weights: popsr.Tensor
    ) -> list[popsr.Tensor]:
        losses: list[popsr.Tensor] = []
        self.tokens, self.head = tokens, weights[-1]
        own = iter(weights)
        for i, kind in enumerate(self.layers):
            w = [next(own) for _ in layers.weights_of(kind, self.width)]
            y = getattr(layers, kind)(self, x, w, i)
            if y.shape == ():
                losses.append(y)
            else:
                x = x + y if self.residual[i] else y
        return [*losses, ops.sum(ops.tanh(x @ self.head)) * (1 / BATCH)]

    def fork(self, x: popsr.Tensor, i: int) -> popsr.Tensor:
        """The identity, whose gradients are summed over a row; with the mistake."""
        if self.sums:
            return x
        group = self.model
        if self.mistake in AT_FORKS and i == self.at_fork and self.repairs.fork is not None:
            return collectives.replicated_all_reduce_identical_inputs(
                x, group=self.grouping_of(self.repairs.fork) if self.repairs.fork else group
            )
        if self.mistake in AT_FORKS and i == self.at_fork:
            if self.mistake == AT_FORKS[0]:
                return x
            if self.mistake == AT_FORKS[1]:
                group = self.data
            else:
                x = collectives.replicated_all_reduce_identical_inputs(x, group=group)
        return collectives.replicated_all_reduce_identical_inputs(x, group=group)

    def total(self, y: popsr.Tensor, i: int) -> popsr.Tensor:
        """The sum over a row, whose gradient is passed on; with the mistake."""
        if self.sums:
            return collectives.replicated_all_reduce(y, group=self.model)
        if self.mistake in AT_TOTALS and i == self.at_total and not self.repairs.total:
            if self.mistake == AT_TOTALS[0]:
                return y
            y = collectives.replicated_all_reduce_identical_grad_inputs(y, group=self.model)
            return collectives.replicated_all_reduce_identical_inputs(y, group=self.model)
        return collectives.replicated_all_reduce_identical_grad_inputs(y, group=self.model)
