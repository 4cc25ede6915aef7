"""The facts of the analysis hold bit by bit when programs run: every op, and random programs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import TensorByRef, ops
from popsr._program.options.options import RoundingMode
from popsr.ops import collectives, var_updates
from tests_py.ops.rows.inputs import Case, call_arguments, written_inputs
from tests_py.ops.rows.table import OPS
from tests_py.support.helpers import (
    FLOAT8,
    PUBLIC,
    SCHEMAS,
    Array,
    Streams,
    as_list,
    assert_same_bits,
    bits,
    dtype,
    groupings,
    make_variable,
    python_op,
    random_array,
    rows,
)

# Random programs drift as it happens.
pytestmark = pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")

SIZES = (1, 2, 3, 4, 6, 8)
OPTIONS: tuple[dict[str, Any], ...] = (
    {"dedup": False, "num_threads": 1},
    {"dedup": True, "num_threads": 3},
    {"optimise": False},
    {"check": True},
)
NARROW = ("bfloat16", "float16", *FLOAT8)


def random_grouping(ir: popsr.Ir, rng: np.random.Generator) -> popsr.ReplicaGrouping:
    """Groups of one random size, any members."""
    n = ir.replication_factor
    size = int(rng.choice([k for k in range(1, n + 1) if n % k == 0]))
    labels = np.empty(n, int)
    labels[rng.permutation(n)] = np.arange(n) // size
    order: dict[int, int] = {}
    return ir.replica_grouping_from_assignments(
        [order.setdefault(int(label), len(order)) for label in labels]
    )


def random_input(
    ir: popsr.Ir, io: Streams, rng: np.random.Generator, draw: Callable[[], Array], *, variable: bool
) -> popsr.Tensor:
    """A tensor with a random partition: each class has data of its own."""
    kind = "variable" if variable else rng.choice(["variable", "replicate", "broadcast"])
    n = ir.replication_factor
    if kind == "broadcast" or n == 1:
        return make_variable(draw()) if variable else io.feed(draw())
    if kind == "replicate":
        return io.feed(np.stack([draw() for _ in range(n)]), replicated=True)
    grouping = random_grouping(ir, rng)
    data = np.stack([draw() for _ in range(grouping.num_groups)])
    return make_variable(data if grouping.num_groups > 1 else data[0], replica_grouping=grouping)


def check_claims(
    ir: popsr.Ir, io: Streams, fetched: list[popsr.Tensor], inputs: list[dict[Any, Array]]
) -> int:
    """Runs with and without sharing, and with the runtime's own check; returns how many pairs were claimed equal."""
    n = ir.replication_factor
    facts = popsr.analysis.analyze(ir)
    claims = [facts.partition(tensor) for tensor in fetched]
    expected: list[list[Array]] = []
    for options in OPTIONS:
        with popsr.Session(ir, seed=5, **options) as session:
            initial: Any = session.get_tensors_data(ir.main_graph.variables[::2])
            for i, data in enumerate(inputs):
                io.inputs = data
                if i > 0:  # between runs the host writes some variables
                    session.write_variables_data(initial)
                outputs = io.run(session)
                if len(expected) <= i:
                    expected.append(outputs)
                for tensor, got, expect in zip(fetched, outputs, expected[i], strict=True):
                    assert_same_bits(
                        got, expect, f"{options} differs from dedup=False in run {i}: {tensor}\n{ir}"
                    )
    for i, outputs in enumerate(expected):
        for tensor, claim, output in zip(fetched, claims, outputs, strict=True):
            values = bits(rows(output, n))
            for block in claim.blocks:
                for replica in block[1:]:
                    same = np.array_equal(values[block[0]], values[replica])
                    assert same, f"run {i}: {tensor} differs inside {claim}: {block[0]} and {replica}\n{ir}"
    return sum(len(block) - 1 for claim in claims for block in claim.blocks)


# Every op


def _build(op: str, case: Case, name: str, n: int, rng: np.random.Generator) -> None:
    ir = popsr.Ir(replication=n)
    if name in NARROW:
        ir.options.enable_stochastic_rounding = True
    io = Streams()
    schema, attrs = SCHEMAS[op], call_arguments(case)
    with ir.main_graph, popsr.in_sequence():
        for attr in schema["attrs"]:
            if attr["type"] == "ReplicaGrouping" and not attr["required"]:
                choices = list(groupings(ir))
                attrs[attr["name"]] = choices[rng.integers(len(choices))]
        modified = written_inputs(op, case)

        def one(i: int) -> Array:
            array = case.draw(rng, name)[i]
            return array[0] if case.group else array

        count = len(case.draw(rng, name))
        tensors = [
            random_input(ir, io, rng, functools.partial(one, i), variable=i in modified) for i in range(count)
        ]
        fn = python_op(op)
        results = as_list(case.call(fn, *tensors, **attrs) if case.call else fn(*tensors, **attrs))
        fetched = [*results, *tensors]
        for tensor in fetched:
            io.fetch(tensor)
    check_claims(ir, io, fetched, [io.inputs] * 2)


@pytest.mark.parametrize("op", PUBLIC)
def test_claims_of_every_op(op: str) -> None:
    rng = np.random.default_rng(77)
    for n in SIZES:
        cases = OPS[op].cases
        for case in (cases[i] for i in rng.integers(len(cases), size=3)):
            preferred = [name for name in ("bfloat16", "float32") if name in case.dtypes]
            for name in preferred or [case.dtypes[0]]:
                try:
                    _build(op, case, name, n, rng)
                except AssertionError as error:
                    error.add_note(f"{op} {case.label} of {name}, {n} replicas")
                    raise


# Random programs

SHAPE = (4, 4)


def tanh_of(x: popsr.Tensor) -> popsr.Tensor:
    return ops.tanh(x)


Step = tuple[str, int, int, int]


class Program:
    """A random program of tensors of one shape; ``steps`` say what to append, indices are taken modulo what exists."""

    def __init__(self, n: int, name: str, seed: int, mode: RoundingMode = "partition") -> None:
        self.ir = popsr.Ir(replication=n)
        self.name = name
        self.ir.options.enable_stochastic_rounding = name in NARROW
        self.ir.options.stochastic_rounding_mode = mode
        self.rng = np.random.default_rng(seed)
        self.io = Streams()
        self.groups = list(groupings(self.ir))
        self.variables: list[popsr.Tensor] = []
        self.pool: list[popsr.Tensor] = []

    def inputs(self) -> None:
        """Three inputs and two variables, each with a random partition."""

        def draw() -> Array:
            return random_array(self.rng, SHAPE, self.name)

        self.buffer = popsr.remote_buffer(SHAPE, dtype(self.name), 3)
        for i in range(5):
            tensor = random_input(self.ir, self.io, self.rng, draw, variable=i >= 3)
            self.pool.append(tensor)
            if i >= 3:
                self.variables.append(tensor)

        self.counter = random_input(
            self.ir, self.io, self.rng, lambda: np.array(self.rng.integers(3), np.float32), variable=True
        )

    def append(self, step: Step) -> None:
        """One more step."""
        kind, i, j, k = step
        x, y = self.pool[i % len(self.pool)], self.pool[j % len(self.pool)]
        variable, group = self.variables[i % 2], self.groups[k % len(self.groups)]
        result = getattr(self, f"_{kind}")(x, y, variable, group, k)
        if result is not None:
            assert result.shape == SHAPE
            self.pool.append(result)

    def _add(self, x: Any, y: Any, *_: Any) -> Any:
        return ops.add(x, y)

    def _mul(self, x: Any, y: Any, *_: Any) -> Any:
        return ops.tanh(ops.mul(x, y))

    def _matmul(self, x: Any, y: Any, *_: Any) -> Any:
        return ops.matmul(ops.tanh(x), ops.tanh(y))

    def _softmax(self, x: Any, *rest: Any) -> Any:
        return ops.softmax(ops.transpose(x), rest[-1] % 2)

    def _rows(self, x: Any, y: Any, *rest: Any) -> Any:
        return ops.sub(x, ops.mean(y, axis=rest[-1] % 2, keepdims=True))

    def _view(self, x: Any, *_: Any) -> Any:
        return ops.reshape(ops.flatten(x), SHAPE)

    def _zeros(self, x: Any, *_: Any) -> Any:
        return ops.init(SHAPE, dtype(self.name))

    def _undefined(self, x: Any, *_: Any) -> Any:
        # Integers: undefined floats are NaNs, which count as one value.
        return ops.cast(ops.init(SHAPE, popsr.int8, init_type="undef"), dtype(self.name))

    def _reduce(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        return collectives.replicated_all_reduce(x, ("add", "mean", "max", "mul")[k % 4], group)

    def _gather(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        first = 4 * (k % group.group_size)
        return ops.slice(collectives.replicated_all_gather(x, 0, group), first, first + 4)

    def _broadcast(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        return collectives.replicated_broadcast(x, k % group.group_size, group)

    def _permute(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        n = self.ir.replication_factor
        return collectives.replicated_permute(x, [(r, (r * 5 + k) % n) for r in range(k % 2, n) if n % 5])

    def _exchange_rows(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        first = 4 * (k % group.group_size)
        rows = collectives.replicated_all_gather(x, 0, group)
        return ops.slice(collectives.replicated_all_to_all(rows, 0, group), first, first + 4)

    def _own_rows(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        return collectives.replicated_slice(collectives.replicated_all_gather(x, k % 2, group), k % 2, group)

    def _shard(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        return ops.add(y, ops.sum(collectives.replica_sharded_slice(x, group)))

    def _index(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        index = ops.replica_index(group, what="group" if k % 2 else "index")
        return ops.add(x, ops.cast(index, dtype(self.name)))

    def _several(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        return collectives.all_reduce([x, y, x], [0, 0, 0], op=("add", "max")[k % 2])[k % 3]

    def _scatter(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        return ops.add(y, ops.sum(collectives.replicated_reduce_scatter(x, "add", group)))

    def _add_inplace(self, x: Any, y: Any, variable: Any, *_: Any) -> Any:
        ops.add_(variable, y)

    def _accumulate(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        var_updates.accumulate_(variable, y, (0.5, 0.0, 1.0)[k % 3])

    def _copy(self, x: Any, y: Any, variable: Any, *_: Any) -> Any:
        var_updates.copy_var_update_(variable, y)

    def _adam(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        """A step whose counter agrees on other replicas than the moments."""
        counted: dict[str, Any] = {"time_step": self.counter, "beta1": 0.5, "beta2": 0.75} if k % 3 else {}
        moments = ops.tanh(x), ops.mul(y, y)
        return ops.tanh(
            var_updates.adam_updater(*moments, variable, weight_decay=(0.0, 0.1)[k % 2], **counted)
        )

    def _sparse(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        indices = random_input(
            self.ir,
            self.io,
            self.rng,
            lambda: self.rng.integers(0, 4, 3).astype(np.int32),
            variable=k % 2 == 0,
        )
        var_updates.sparse_accumulate_(variable, ops.slice(y, 0, 3, axis=k % 2), indices, k % 2, 0.5)

    def _clear(self, x: Any, y: Any, variable: Any, *_: Any) -> Any:
        var_updates.accumulator_scale_(variable, 0.0)

    def _reduce_inplace(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        collectives.replicated_all_reduce_(variable, ("add", "mean", "min")[k % 3], group)

    def _part_inplace(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        part = ops.slice_(variable, k % 3, k % 3 + 2, axis=k % 2)
        var_updates.accumulate_(part, ops.slice(y, 1, 3, axis=k % 2), 0.7)
        if k % 5 == 0:
            collectives.replicated_all_reduce_(part, "mean", group)
        return ops.transpose_(variable)

    def _side_by_side(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        return ops.concat_([ops.slice_(x, 0, 1 + k % 3), ops.slice_(y, 1 + k % 3, 4)])

    def _store(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        ops.remote_store(self.buffer, k % 3, x)

    def _load(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        return ops.remote_load(self.buffer, k % 3)

    def _offset(self, k: int, count: int = 3) -> Any:
        """An entry that only the run knows, with a random partition."""
        return random_input(
            self.ir,
            self.io,
            self.rng,
            lambda: np.array(self.rng.integers(count), np.int32),
            variable=k % 2 == 0,
        )

    def _store_anywhere(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        ops.remote_store(self.buffer, self._offset(k), x)

    def _load_into(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        ops.remote_load_(self.buffer, self._offset(k), variable)

    def _remote_in_loop(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        def body(a: popsr.Tensor) -> Any:
            ops.remote_store(self.buffer, k % 3, ops.add(a, ops.remote_load(self.buffer, (k + 1) % 3)))
            return ops.tanh(ops.remote_load(self.buffer, k % 2))

        return ops.repeat(self.ir.create_graph(body, x), k % 4, x)[0]

    def _call(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        def body(a: popsr.Tensor, b: popsr.Tensor, total: TensorByRef) -> Any:
            ops.add_(total, ops.tanh(a))
            return ops.add(collectives.replicated_all_reduce(a, "mean", group), ops.mul(b, total))

        graph = self.ir.create_graph(body, x, y, variable)
        first = ops.call(graph, x, y, variable)[0]
        return ops.add(first, ops.call(graph, y, x, self.variables[k % 2])[0])

    def _by_value(self, x: Any, y: Any, variable: Any, *_: Any) -> Any:
        def body(a: popsr.Tensor, total: popsr.Tensor) -> Any:
            return ops.add_(total, a)

        return ops.call(self.ir.create_graph(body, x, variable), x, variable)[0]

    def _repeat(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        def body(a: popsr.Tensor, b: popsr.Tensor, total: TensorByRef) -> Any:
            ops.add_(total, ops.tanh(b))
            return b, ops.tanh(ops.add(a, collectives.replicated_all_reduce(total, "mean", group)))

        graph = self.ir.create_graph(body, x, y, variable)
        return ops.repeat(graph, k % 4, x, y, variable)[k % 2]

    @staticmethod
    def _condition(x: Any) -> Any:
        """Holds for about half of the values."""
        return ops.cast(ops.slice(ops.flatten(ops.relu(x)), 0, 1), popsr.bool)

    def _branch(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        """Every replica for itself, in a loop."""

        def then_branch(a: popsr.Tensor, b: popsr.Tensor, total: TensorByRef) -> Any:
            ops.add_(total, ops.tanh(b))
            ops.remote_store(self.buffer, k % 3, a)
            ops.remote_store(self.buffer, (k + 2) % 3, b)
            return ops.sub(a, ops.mul(b, total))

        def else_branch(a: popsr.Tensor) -> Any:
            first, second = (ops.remote_load(self.buffer, entry % 3) for entry in (k, k + 1))
            return ops.add(ops.tanh(a), ops.sub(first, second))

        def body(a: popsr.Tensor, b: popsr.Tensor, total: TensorByRef) -> Any:
            graphs = self.ir.create_graph(then_branch, a, b, total), self.ir.create_graph(else_branch, b)
            return ops.conditional(self._condition(a), *graphs, [a, b, total], [b])[0]

        return ops.repeat(self.ir.create_graph(body, x, y, variable), 1 + k % 3, x, y, variable)[0]

    def _branch_of_groups(self, x: Any, y: Any, variable: Any, group: Any, k: int) -> Any:
        """Members of a group go together, so that they can exchange values on their way."""

        def then_branch(a: popsr.Tensor, total: TensorByRef) -> Any:
            collectives.replicated_all_reduce_(total, "max", group)
            product = ops.matmul(ops.tanh(a), ops.tanh(total))
            op: Literal["add", "mean"] = "mean" if k % 2 else "add"
            sums = [collectives.replicated_all_reduce(t, op, group) for t in (product, ops.tanh(a))]
            return ops.add(*sums)

        def else_branch(a: popsr.Tensor, b: popsr.Tensor) -> Any:
            inner = self.ir.create_graph(then_branch, a, b), self.ir.create_graph(tanh_of, b)
            return ops.conditional(self._condition(ops.negate(b)), *inner, [a, b], [b])[0]

        shared = collectives.replicated_all_reduce(y, "add", group)
        graphs = self.ir.create_graph(then_branch, x, variable), self.ir.create_graph(else_branch, x, shared)
        return ops.conditional(self._condition(shared), *graphs, [x, variable], [x, shared])[0]

    def check(self, steps: list[Step]) -> int:
        """Builds and runs it."""
        with self.ir.main_graph, popsr.in_sequence():
            self.inputs()
            for step in steps:
                self.append(step)
            for tensor in self.pool:
                self.io.fetch(tensor)
        second = {
            stream: self.rng.permuted(array) if array.ndim else array
            for stream, array in self.io.inputs.items()
        }
        return check_claims(self.ir, self.io, self.pool, [self.io.inputs, second])


KINDS = [
    name[1:]
    for name in vars(Program)
    if name.startswith("_") and not name.startswith("__") and name not in ("_offset", "_condition")
]  # every private method is a kind of step
INDEX = st.integers(0, 59)
PROGRAMS = {
    "n": st.sampled_from([2, 3, 4, 6, 8, 12]),
    "name": st.sampled_from(["float32", "bfloat16"]),
    "mode": st.sampled_from(["partition", "popart", "identical"]),
    "seed": st.integers(0, 999),
    "steps": st.lists(st.tuples(st.sampled_from(KINDS), INDEX, INDEX, INDEX), min_size=5, max_size=15),
}


@given(**PROGRAMS)
@settings(max_examples=200, derandomize=True, deadline=None, database=None)
def test_claims_of_random_programs(
    n: int, name: str, mode: RoundingMode, seed: int, steps: list[Step]
) -> None:
    Program(n, name, seed, mode).check(steps)


@pytest.mark.slow
@given(**PROGRAMS)
@settings(max_examples=10000, derandomize=True, deadline=None, database=None)
def test_claims_of_many_random_programs(
    n: int, name: str, mode: RoundingMode, seed: int, steps: list[Step]
) -> None:
    Program(n, name, seed, mode).check(steps)


def test_random_programs_claim_something() -> None:
    """The property above is not empty: a fixed program of every kind of step claims many equal pairs."""
    steps: list[Step] = [(kind, 3 * i, 5 * i + 1, i) for i, kind in enumerate(KINDS)]
    assert Program(6, "bfloat16", 1).check(steps) > 20
