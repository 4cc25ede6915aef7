"""Random programs over the public interface, of all axes: dtype, shape, rounding, loops with streams, gradients.

A program is a list of steps ``(kind, seed)``. A step draws what it needs from its own seed, so that a list with fewer
steps is a program too. Steps whose operands do not fit are refused with a typed error and leave the program as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

import popsr
from popsr import TensorByRef, errors, ops, transforms
from popsr.ops import collectives, var_updates
from tests_py.support.helpers import FLOAT8, dtype, elementwise
from tests_py.support.programs.random_operands import TRANSFERS, Operands

Step = tuple[str, int]


class RandomProgram(Operands):
    """Appends steps."""

    unary: ClassVar[tuple[str, ...]] = elementwise(operands=1)

    def build(self, steps: Sequence[Step]) -> None:
        """The whole program; GraphError where mode "popart" stops."""
        with self.ir.main_graph, popsr.in_sequence():
            for _ in range(3):
                self.pool.append(self.load(self.rng, self.axes.shape, self.axes.name))
            for _ in range(2):
                self.pool.append(self.variable(self.rng, self.axes.shape, self.axes.name))
            self.buffer = popsr.remote_buffer(self.axes.shape, dtype(self.axes.name), 2)
            for kind, seed in steps:
                self.step(kind, np.random.default_rng(seed))
            for tensor in (*self.pool[-4:], *self.variables):
                self.store(tensor)
        if self.axes.merges:
            transforms.merge_collectives(self.ir)
            transforms.merge_exchange(ir=self.ir)
        if self.axes.by_hand and self.axes.rounding != "off":
            transforms.stochastic_rounding(self.ir)

    def step(self, kind: str, rng: np.random.Generator) -> None:
        try:
            result = getattr(self, f"_{kind}")(rng)
        except errors.InternalError:
            raise
        except popsr.Error:
            self.refused += 1
            return
        for tensor in result if isinstance(result, (list, tuple)) else [result]:
            if tensor is not None:
                self.keep(tensor, rng)

    # Ops that compute

    def _unary(self, rng: np.random.Generator) -> Any:
        return getattr(ops, str(rng.choice(self.unary)))(self.any(rng))

    def _binary(self, rng: np.random.Generator) -> Any:
        x = self.any(rng)
        y: Any = self.like(x, rng) if rng.random() < 0.8 else 0.5
        binary: list[Callable[[], Any]] = [
            lambda: x + y,
            lambda: x - y,
            lambda: x * y,
            lambda: x / y,
            lambda: ops.maximum(x, self.like(x, rng)),
            lambda: ops.greater(x, self.like(x, rng)),
        ]
        return binary[rng.integers(len(binary))]()

    def _axes(self, rng: np.random.Generator) -> Any:
        x = self.floating(rng)
        axis = int(rng.integers(max(x.rank, 1)))
        reductions = ["sum", "mean", "max", "min", "prod", "l2", "logsumexp", "median"]
        if rng.random() < 0.4:
            along_axis: list[Any] = [ops.softmax, ops.cumsum, ops.log_softmax]
            return along_axis[rng.integers(3)](x, axis)
        keeps = bool(rng.random() < 0.7)
        return getattr(ops, str(rng.choice(reductions)))(x, axis=axis, keepdims=keeps)

    def _matmul(self, rng: np.random.Generator) -> Any:
        x = self.matrix(rng)
        y = self.like(x, rng)
        product = ops.matmul(ops.transpose(x), y) if rng.random() < 0.5 else ops.matmul(x, ops.transpose(y))
        then = rng.integers(4)
        if then == 0:
            return collectives.replicated_all_reduce(product, "mean", self.grouping(rng))
        if then == 1:
            collectives.replicated_all_reduce_(product, "add", self.grouping(rng))
        if then == 2:
            fitting = [v for v in self.variables if v.shape == product.shape and v.dtype == product.dtype]
            if fitting:
                return var_updates.accumulate_(fitting[rng.integers(len(fitting))], product, 0.5)
        return product

    def _cast(self, rng: np.random.Generator) -> Any:
        return ops.cast(self.any(rng), dtype(str(rng.choice(["float32", "bfloat16", "float16", "int32"]))))

    def _float8(self, rng: np.random.Generator) -> Any:
        x = self.any(rng)
        scale = popsr.constant(int(rng.integers(-2, 3)), popsr.int32)
        if x.dtype.name in FLOAT8:
            return ops.pow2scale_cast_from_fp8(x, scale, popsr.float16)
        return ops.pow2scale_cast_to_fp8(x, scale, dtype(FLOAT8[rng.integers(2)]))

    def _arrange(self, rng: np.random.Generator) -> Any:
        x = self.any(rng)
        what = rng.integers(5)
        if what == 0:
            return ops.transpose(x)
        if what == 1:
            return ops.flatten(x)
        if what == 2:
            return ops.concat([x, self.like(x, rng)])
        if what == 3:
            return x[: (x.shape[0] + 1) // 2] if x.rank else ops.detach(x)
        return ops.where(ops.greater(x, self.like(x, rng)), x, self.like(x, rng))

    def _random(self, rng: np.random.Generator) -> Any:
        seed, which = self.seed_tensor(rng), rng.integers(4)
        if which == 0:
            return ops.random_normal(seed, self.axes.shape, dtype=dtype(self.axes.name))
        if which == 1:
            return ops.random_uniform(seed, self.axes.shape, dtype=dtype(self.axes.name))
        return ops.dropout(self.floating(rng), seed, 0.5)

    def _nearest(self, rng: np.random.Generator) -> Any:
        with popsr.stochastic_rounding(False):
            return self._binary(rng)

    def _input(self, rng: np.random.Generator) -> Any:
        make = self.load if rng.random() < 0.5 else self.variable
        return make(rng, self.axes.shape, self.axes.name)

    # Replicas

    def _reduce(self, rng: np.random.Generator) -> Any:
        op: Any = str(rng.choice(["add", "mean", "max", "mul", "square_add"]))
        return collectives.replicated_all_reduce(self.any(rng), op, self.grouping(rng))

    def _reduce_(self, rng: np.random.Generator) -> Any:
        op: Any = str(rng.choice(["add", "mean", "min"]))
        return collectives.replicated_all_reduce_(self.any(rng), op, self.grouping(rng))

    def _several(self, rng: np.random.Generator) -> Any:
        """Collectives that can be merged."""
        group, tensors = self.grouping(rng), [self.floating(rng) for _ in range(3)]
        if rng.random() < 0.5:
            return [collectives.replicated_all_reduce_(t, "mean", group) for t in tensors]
        with popsr.in_sequence(False):
            return [collectives.replicated_all_reduce(t, "mean", group) for t in tensors]

    def _move(self, rng: np.random.Generator) -> Any:
        x, group, n = self.any(rng), self.grouping(rng), self.axes.replicas
        what = rng.integers(6)
        if what == 0:
            return collectives.replicated_broadcast(x, int(rng.integers(group.group_size)), group)
        if what == 1:
            return collectives.replicated_permute(
                x, [(r, (r + 1) % n) for r in range(int(rng.integers(2)), n)]
            )
        if what == 2 and x.nelms <= 64:
            return collectives.replicated_all_gather(x, 0, group)
        if what == 3:
            return collectives.replicated_reduce_scatter(x, "add", group)
        if what == 4:
            return collectives.replicated_all_to_all(x, 0, group)
        return collectives.replicated_slice(x, 0, group)

    def _index(self, rng: np.random.Generator) -> Any:
        what: Any = "group" if rng.random() < 0.5 else "index"
        return ops.cast(ops.replica_index(self.grouping(rng), what=what), popsr.float32)

    # Writes

    def _update_(self, rng: np.random.Generator) -> Any:
        x = self.any(rng)
        y = self.like(x, rng)
        updates: list[Callable[[], Any]] = [
            lambda: ops.add_(x, y),
            lambda: ops.scaled_add_(x, y, b=-0.5),
            lambda: var_updates.copy_var_update_(x, y),
            lambda: var_updates.accumulate_(x, y, 0.5),
            lambda: var_updates.accumulate_moving_average_(x, y, 0.75),
            lambda: var_updates.accumulator_scale_(x, float(rng.integers(2))),
            lambda: ops.relu_(x),
        ]
        return updates[rng.integers(len(updates))]()

    def _view(self, rng: np.random.Generator) -> Any:
        x = self.any(rng)
        what = rng.integers(5)
        if what == 0:
            return ops.transpose_(x)
        if what == 1:
            return ops.flatten_(x)
        if what == 2:
            return ops.concat_([x, self.like(x, rng)])
        if what == 3:
            return ops.detach_(x)
        return ops.slice_(x, 0, (x.shape[0] + 1) // 2, 1) if x.rank else x

    def _adam(self, rng: np.random.Generator) -> Any:
        counter = self.variable(rng, (), "float32")
        x = self.floating(rng)
        return var_updates.adam_updater(x, self.like(x, rng), self.like(x, rng), counter, 0.1, 0.5, 0.75)

    def _remote(self, rng: np.random.Generator) -> Any:
        entry: Any = int(rng.integers(2))
        if rng.random() < 0.3:
            entry = self.io.feed(rng.integers(0, 2, TRANSFERS).astype(np.int32), transfers=True)
        what = rng.integers(3)
        x = self.any(rng)
        if what == 0:
            ops.remote_store(self.buffer, entry, x)
            return None
        return ops.remote_load(self.buffer, entry) if what == 1 else ops.remote_load_(self.buffer, entry, x)

    # Graphs

    def _body(
        self, rng: np.random.Generator, steps: Sequence[str], *, group: Any = None
    ) -> Callable[..., Any]:
        """Some elementwise work on two values and a reference, with streams and stores where they are allowed."""

        def body(a: popsr.Tensor, b: popsr.Tensor, total: TensorByRef) -> Any:
            for step in steps:
                if step == "add":
                    a = ops.add(ops.tanh(a), b)
                elif step == "reduce":
                    a = collectives.replicated_all_reduce(a, "mean", group)
                elif step == "reduce_":
                    collectives.replicated_all_reduce_(total, "mean", group)
                elif step == "update":
                    ops.add_(total, ops.tanh(a))
                elif step == "load":
                    b = ops.add(b, self.load(rng, b.shape, b.dtype.name))
                elif step == "dropout":
                    a = ops.dropout(a, self.seed_tensor(rng), 0.5)
                elif step == "store":
                    self.store(a)
                    self.store(total)
            return b, a

        return body

    def _graph(self, rng: np.random.Generator, kinds: str) -> tuple[Callable[..., Any], list[popsr.Tensor]]:
        x = self.floating(rng)
        steps = [str(step) for step in rng.choice(kinds.split(), 4)]
        body = self._body(rng, steps, group=self.grouping(rng))
        variables = [v for v in self.variables if v.shape == x.shape and v.dtype == x.dtype]
        total = variables[-1] if variables else self.variable(rng, x.shape, x.dtype.name)
        return body, [x, self.like(x, rng), total]

    def _call(self, rng: np.random.Generator) -> Any:
        body, args = self._graph(rng, "add reduce reduce_ update load dropout store")
        graph = self.ir.create_graph(body, *args)
        first = ops.call(graph, *args)
        return [*first, *(ops.call(graph, args[1], args[0], args[2]) if rng.random() < 0.5 else [])]

    def _repeat(self, rng: np.random.Generator) -> Any:
        body, args = self._graph(rng, "add reduce reduce_ update load dropout store store load")
        count = int(rng.integers(4))
        inner = self.ir.create_graph(body, *args)
        if rng.random() < 0.3:

            def nested(a: popsr.Tensor, b: popsr.Tensor, total: TensorByRef) -> Any:
                return ops.repeat(inner, 2, a, b, total)

            return ops.repeat(self.ir.create_graph(nested, *args), count, *args)
        return ops.repeat(inner, count, *args)

    def _conditional(self, rng: np.random.Generator) -> Any:
        """Members of a group go together, but for some programs, which end with an error."""
        group = self.grouping(rng)
        flags = self.load(rng, (), "bool")
        if rng.random() < 0.9:
            flags = collectives.replicated_broadcast(flags, 0, group)
        _, args = self._graph(rng, "add")
        kinds = ["add", "reduce", "reduce_", "update", "store", "load"]
        self.branches += 1
        try:
            steps = [[str(step) for step in rng.choice(kinds, 3)] for _ in range(2)]
            then, other = (self.ir.create_graph(self._body(rng, each, group=group), *args) for each in steps)
        finally:
            self.branches -= 1
        return ops.conditional(flags, then, other, args, args)

    def _layer(self, rng: np.random.Generator) -> Any:
        """A graph, and its gradient."""
        x = self.matrix(rng) if rng.random() < 0.5 else self.floating(rng)
        w, group = self.like(x, rng), self.grouping(rng)
        chain = rng.integers(0, 8, 4)

        def layer(x: popsr.Tensor, w: popsr.Tensor) -> popsr.Tensor:
            y = x * w
            for kind in chain:
                if kind == 0 and y.rank == 2:
                    y = ops.matmul(y, ops.transpose(w))
                elif kind == 1:
                    y = ops.softmax(y, 0)
                elif kind == 2:
                    y = ops.gelu(y)
                elif kind == 3:
                    y = collectives.replicated_all_reduce_identical_grad_inputs(y, group=group)
                elif kind == 4:
                    y = collectives.replicated_broadcast(y, 0, group)
                elif kind == 5:
                    y = ops.mean(y, axis=0, keepdims=True) if y.rank else y
                elif kind == 6:
                    y = ops.dropout(y, popsr.constant(popsr.create_seeds(int(chain[0]))), 0.5)
                else:
                    y = ops.tanh(y)
            return y

        graph = self.ir.create_graph(layer, x, w)
        info = ops.call_with_info(graph, x, w)
        grad = transforms.autodiff(graph)
        out = info.outputs[0]
        dy = (
            self.like(out, rng)
            if any(t.shape == out.shape and t.dtype == out.dtype for t in self.pool)
            else out
        )
        return [out, *ops.call(grad.graph, dy, inputs_dict=grad.inputs_dict(info))]


KINDS = (
    *("unary", "binary", "axes", "cast", "float8", "arrange", "nearest", "input", "index", "adam"),
    *2 * ("matmul", "random", "reduce", "reduce_", "several", "move", "update_", "view", "remote"),
    *2 * ("call", "repeat", "conditional", "layer"),
)  # every private method is a kind of step; the more interesting ones are drawn more often


def random_steps(rng: np.random.Generator) -> list[Step]:
    """Six to sixteen."""
    return [(KINDS[rng.integers(len(KINDS))], int(rng.integers(2**31))) for _ in range(rng.integers(6, 17))]


def shrink(steps: list[Step], fails: Callable[[list[Step]], bool]) -> list[Step]:
    """Fewer steps that still fail."""

    def shorter(steps: list[Step]) -> Iterator[list[Step]]:
        for i in range(len(steps)):
            yield steps[:i] + steps[i + 1 :]

    while (found := next((each for each in shorter(steps) if fails(each)), None)) is not None:
        steps = found
    return steps
