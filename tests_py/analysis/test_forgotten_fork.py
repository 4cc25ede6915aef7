"""Two transformer blocks, tensor and data parallel, of which one lacks a sum of gradients; advice followed as given."""

from __future__ import annotations

import re
from dataclasses import dataclass
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
        fork: the groups of the sum of gradients that is put there after all.
    """

    forgotten: str | None
    fork: tuple[int, int] | None = None

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
                self.gradients[w] = mean
                ops.scaled_add_(w, mean, b=-0.1)

    def _forward(self, x: popsr.Tensor, w: dict[str, popsr.Tensor]) -> popsr.Tensor:
        for part in PARTS:
            with popsr.name_scope(part):
                h = ops.layer_norm(x, w[f"{part}.scale"], w[f"{part}.shift"])
            if part != self.forgotten or self.fork:
                numbers = self.fork if part == self.forgotten else None
                group = self.ir.replica_grouping(*numbers) if numbers else self.model
                h = collectives.replicated_all_reduce_identical_inputs(h, group=group)
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
    """All lints, and the explanation of what drifts, ask for the one sum that serves all weights behind it."""
    blocks = made(part)
    with pytest.raises(popsr.errors.GradientError):
        blocks.check()
    lints = blocks.lints()
    updates = {lint.tensor.name for lint in lints if lint.code == "L11" and lint.tensor is not None}
    assert updates == {f"{part}.scale", f"{part}.shift"}
    # Before the first norm there is no weight whose gradient is added there.
    assert [lint.code for lint in lints].count("L10") == (part != PARTS[0])
    (advice,) = {lint.text.rpartition("; ")[2] for lint in lints}
    found = re.fullmatch(
        rf"replicated_all_reduce_identical_inputs\('.*/{part}/layer_norm_out', group={GROUP}\) after .*:\d+", advice
    )
    assert found, advice
    drifting = popsr.analysis.analyze(blocks.ir).drifting()
    assert {each.suggestion for each in drifting} == {advice}
    blocks.fork = int(found[1]), int(found[2])
    blocks.make()
    assert blocks.lints() == []
    assert blocks.check().ok
