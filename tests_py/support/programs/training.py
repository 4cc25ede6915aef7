"""One training program for several tests: bf16 weights, 4 replicas, gradient accumulation by repeat, all-reduce.

``python -m tests_py.support.programs.training`` prints a digest of all bits that it makes.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import numpy as np

import popsr
from popsr import TensorByRef, ops, transforms
from popsr.ops import collectives, var_updates
from tests_py.support.helpers import Array

MICRO_BATCHES, BATCH, FEATURES, HIDDEN, CLASSES = 2, 6, 20, 12, 5
RATE = 0.05


class Training:
    """The program; ``weights`` are bf16 and updated with stochastic rounding."""

    def __init__(self, replication: int = 4, *, stochastic: bool = True, prints: bool = False) -> None:
        self.ir = popsr.Ir(replication=replication)
        self.ir.options.enable_stochastic_rounding = stochastic
        self.ir.num_host_transfers = MICRO_BATCHES
        self.prints = prints
        with self.ir.main_graph, popsr.in_sequence():
            self.x = popsr.h2d_stream((BATCH, FEATURES), popsr.bfloat16, "x")
            self.labels = popsr.h2d_stream((BATCH,), popsr.int32, "labels")
            self.loss = popsr.d2h_stream((), popsr.bfloat16, "loss")
            self.hidden = popsr.d2h_stream((BATCH, HIDDEN), popsr.bfloat16, "hidden")
            self.after = popsr.d2h_stream((FEATURES, HIDDEN), popsr.bfloat16, "after")
            self._build()

    def _build(self) -> None:
        rng = np.random.default_rng(3)
        shapes = {"w1": (FEATURES, HIDDEN), "w2": (HIDDEN, CLASSES)}
        self.weights = [
            popsr.variable(rng.standard_normal(shape) / 4, popsr.bfloat16, name)
            for name, shape in shapes.items()
        ]
        kinds = (popsr.float32, popsr.bfloat16)
        sums = [
            popsr.variable(np.zeros(w.shape), kind, f"{w.name}_sum")
            for w, kind in zip(self.weights, kinds, strict=True)
        ]
        self.state = [*self.weights, *sums]
        x = popsr.TensorSpec((BATCH, FEATURES), popsr.bfloat16)
        self.forward = self.ir.create_graph(
            self._forward, x, *[w.spec for w in self.weights], self.labels.spec
        )
        inputs = self.forward.inputs
        self.gradient = transforms.autodiff(
            self.forward, grads_provided=self.forward.outputs[:1], grads_required=inputs[1:3]
        )
        micro = self.ir.create_graph(self._micro_batch, *sums, *self.weights)
        ops.repeat(micro, MICRO_BATCHES, *sums, *self.weights)
        for weight, total in zip(self.weights, sums, strict=True):
            mean = collectives.replicated_all_reduce_(total, "mean")
            ops.scaled_add_(weight, mean, b=-RATE)
            var_updates.accumulator_zero_(total)
        ops.host_store(self.after, self.weights[0])

    def _forward(self, x: popsr.Tensor, w1: popsr.Tensor, w2: popsr.Tensor, labels: popsr.Tensor) -> Any:
        hidden = ops.gelu(ops.matmul(x, w1))
        if self.prints:
            hidden = ops.print_tensor(hidden, "hidden")
        return ops.nll_loss(ops.softmax(ops.matmul(hidden, w2), axis=-1), labels), hidden

    def _micro_batch(self, s1: TensorByRef, s2: TensorByRef, w1: popsr.Tensor, w2: popsr.Tensor) -> None:
        x, labels = ops.host_load(self.x), ops.host_load(self.labels)
        call = ops.call_with_info(self.forward, x, w1, w2, labels)
        ops.host_store(self.loss, call.outputs[0])
        ops.host_store(self.hidden, call.outputs[1])
        one = popsr.constant(1, popsr.bfloat16)
        gradients = ops.call(self.gradient.graph, one, inputs_dict=self.gradient.inputs_dict(call))
        for total, gradient in zip((s1, s2), gradients, strict=True):
            var_updates.accumulate_(total, gradient)

    def data(self, run: int) -> dict[Any, Array]:
        """Inputs of one run."""
        rng = np.random.default_rng(run)
        rows = (
            (MICRO_BATCHES, self.ir.replication_factor)
            if self.ir.replication_factor > 1
            else (MICRO_BATCHES,)
        )
        return {
            self.x: rng.standard_normal((*rows, BATCH, FEATURES)).astype(popsr.bfloat16.as_numpy()),
            self.labels: rng.integers(0, CLASSES, (*rows, BATCH)).astype(np.int32),
        }

    def run(self, session: popsr.Session, runs: range) -> list[bytes]:
        """All bits that the runs make, and the variables after them."""
        made = [array.tobytes() for i in runs for array in session.run(self.data(i)).values()]
        return [*made, *(session.get_tensor_data(variable).tobytes() for variable in self.state)]


def product_free(replication: int = 4) -> list[bytes]:
    """Bits of a program of all else than products: elementwise functions, reductions, casts, collectives."""
    ir = popsr.Ir(replication=replication)
    ir.options.enable_stochastic_rounding = True
    rng = np.random.default_rng(8)
    with ir.main_graph, popsr.in_sequence():
        stream = popsr.h2d_stream((7, 37), popsr.float32, "x")
        x = ops.host_load(stream)
        results = [ops.exp(x), ops.log(ops.abs(x)), ops.tanh(x), ops.gelu(x), ops.pow(ops.abs(x), x)]
        results += [ops.softmax(x, 1), ops.sum(x, axis=1), ops.mean(x, axis=0), ops.sqrt(ops.relu(x))]
        for kind in (popsr.bfloat16, popsr.float16, popsr.int32, popsr.float64):
            narrow = ops.cast(x, kind)
            results += [narrow, ops.add(narrow, narrow), ops.sum(narrow), ops.div(narrow, ops.abs(narrow))]
            group = ir.replica_grouping(1, 2)
            results += [collectives.replicated_all_reduce(narrow, op, group) for op in ("add", "mean", "max")]
        outputs = []
        for result in results:
            outputs.append(popsr.d2h_stream(result.shape, result.dtype))
            ops.host_store(outputs[-1], result)
    data = rng.standard_normal((replication, 7, 37)).astype(np.float32) * 3
    with popsr.Session(ir, seed=4) as session:
        made = session.run({stream: data})
    return [made[output].tobytes() for output in outputs]


def digest(parts: list[bytes]) -> str:
    """Hash of bits."""
    return hashlib.sha256(b"".join(parts)).hexdigest()


def main(what: str) -> None:
    """Print a digest."""
    if what == "product-free":
        sys.stdout.write(digest(product_free()))
        return
    training = Training()
    with popsr.Session(training.ir, seed=11) as session:
        sys.stdout.write(digest(training.run(session, range(3))))


if __name__ == "__main__":
    main(sys.argv[1])
