"""Two transformer blocks, tensor and data parallel, of which one lacks a sum of gradients; advice followed as given."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import ops, transforms
from popsr.ops import collectives
from popsr.testing import check_gradients

F64 = popsr.float64
WIDTH, HIDDEN, POSITIONS = 8, 16, 6
PARTS = ("block0.attention", "block0.mlp", "block1.attention", "block1.mlp")
GROUP = r"ir\.replica_grouping\(stride=(\d+), group_size=(\d+)\)"


@dataclass
class Blocks:
    """The program.

    Attributes:
        forgotten: the part whose split layers take their operand as it is.
        forks: sums of gradients before the norm of a part, by group.
        sums: of the gradient of a variable before its update, by group.
        lines: of the norms, by part.
    """

    forgotten: str | None
    forks: dict[str, tuple[int, int]] = field(default_factory=dict)
    sums: dict[str, tuple[int, int]] = field(default_factory=dict)

    def make(self) -> None:
        """Build it, with the same numbers each time."""
        rng = np.random.default_rng(0)
        self.ir = popsr.Ir(replication=4)
        self.model = self.ir.replica_grouping(group_size=2)
        copies = self.model.transpose()
        weights: dict[str, popsr.Variable] = {}

        def add(name: str, whole: Any, split: int | None = None) -> None:
            data = whole if split is None else np.stack(np.split(whole, 2, axis=split))
            grouping = None if split is None else copies
            weights[name] = popsr.variable(data, F64, name, replica_grouping=grouping)

        with self.ir.main_graph, popsr.in_sequence():
            self.stream = popsr.h2d_stream((POSITIONS, WIDTH), F64, "x", replicated_stream_mode=self.model)
            x = ops.host_load(self.stream)
            for part in PARTS:
                add(f"{part}.scale", 1 + rng.normal(0, 0.1, WIDTH))
                add(f"{part}.shift", rng.normal(0, 0.1, WIDTH))
                columns = ("q", "k", "v") if part.endswith("attention") else ("up",)
                inner = WIDTH if part.endswith("attention") else HIDDEN
                for name in columns:
                    add(f"{part}.{name}", rng.normal(0, 0.3, (WIDTH, inner)), 1)
                add(f"{part}.out", rng.normal(0, 0.3, (inner, WIDTH)), 0)
            names = list(weights)
            graph = self.ir.create_graph(
                lambda x, *w: self._forward(x, dict(zip(names, w, strict=True))), x, *weights.values()
            )
            call = ops.call_with_info(graph, x, *weights.values())
            backward = transforms.autodiff(graph, grads_required=graph.inputs[1:])
            found = ops.call(backward.graph, 1.0, inputs_dict=backward.inputs_dict(call))
            self.loss, self.gradients = call.outputs[0], {}
            for w, gradient in zip(weights.values(), found, strict=True):
                mean = collectives.replicated_all_reduce(gradient, "mean", copies)
                if w.name in self.sums:
                    mean = collectives.replicated_all_reduce(mean, "add", self._group(self.sums[w.name]))
                self.gradients[w] = mean
                ops.scaled_add_(w, mean, b=-0.1)

    def _group(self, numbers: tuple[int, int]) -> popsr.ReplicaGrouping:
        return self.ir.replica_grouping(*numbers)

    def _forward(self, x: popsr.Tensor, w: dict[str, popsr.Tensor]) -> popsr.Tensor:
        for part in PARTS:
            y = x
            if part in self.forks:
                y = collectives.replicated_all_reduce_identical_inputs(x, group=self._group(self.forks[part]))
            with popsr.name_scope(part):
                h = ops.layer_norm(y, w[f"{part}.scale"], w[f"{part}.shift"])
            if part != self.forgotten:
                h = collectives.replicated_all_reduce_identical_inputs(h, group=self.model)
            if part.endswith("attention"):
                q, k, v = (h @ w[f"{part}.{name}"] for name in "qkv")
                h = ops.softmax(q @ k.T * 0.5, axis=-1) @ v
            else:
                h = ops.gelu(h @ w[f"{part}.up"])
            h = h @ w[f"{part}.out"]
            x = x + collectives.replicated_all_reduce_identical_grad_inputs(h, group=self.model)
        return ops.sum(ops.tanh(x))

    def lints(self) -> list[popsr.analysis.Lint]:
        """L2, L10 and L11."""
        found = popsr.analysis.analyze(self.ir).warnings
        return [lint for lint in found if lint.code in ("L2", "L10", "L11")]

    def check(self) -> popsr.testing.GradientCheck:
        """Gradients, which are means over the two models, beside finite differences."""
        data = {self.stream: np.random.default_rng(1).normal(size=(2, POSITIONS, WIDTH))}
        return check_gradients(self.ir, self.loss, self.gradients, data, scale=0.5)


def made(forgotten: str | None) -> Blocks:
    blocks = Blocks(forgotten)
    blocks.make()
    return blocks


def test_all_sums() -> None:
    blocks = made(None)
    assert blocks.lints() == []
    assert blocks.check().ok


@pytest.mark.parametrize("part", PARTS)
def test_a_forgotten_sum_is_found_and_its_advice_is_right(part: str) -> None:
    """Each L10 by a sum at the fork that it names, each L11 by a sum before the update: then all 20 are right."""
    blocks = made(part)
    with pytest.raises(popsr.errors.GradientError):
        blocks.check()
    lints = blocks.lints()
    assert {"L2", "L11"} <= {lint.code for lint in lints}
    for lint in lints:
        advice = lint.text.rpartition("; ")[2]
        group = re.search(GROUP, advice)
        assert group, advice
        numbers = int(group[1]), int(group[2])
        if "identical_inputs(" in advice:
            blocks.forks[part] = numbers
        else:
            assert lint.tensor is not None
            assert advice.startswith("replicated_all_reduce(")
            blocks.sums[lint.tensor.name] = numbers
    assert set(blocks.sums) == {f"{part}.scale", f"{part}.shift"}
    assert bool(blocks.forks) == (part != PARTS[0])  # before the first norm there is no weight
    blocks.make()
    assert blocks.lints() == []
    assert blocks.check().ok
