"""Random programs of views against a model that knows nothing of them: values, and what the analysis claims."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import errors, ops, transforms
from tests_py.analysis.test_soundness import random_grouping
from tests_py.support.helpers import Array, groupings
from tests_py.support.machines.views import Machine, Value
from tests_py.support.programs import Rounding

# Random programs drift as it happens.
pytestmark = pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")

SHAPES: tuple[tuple[int, ...], ...] = ((4, 6), (24,), (2, 3, 4), (6, 2, 2), (5,))
MODES: tuple[dict[str, Any], ...] = ({"dedup": False}, {}, {"check": True}, {"num_threads": 3})
Step = tuple[str, int, int, int]


class Program:
    """Steps say what to append; indices are taken modulo what exists."""

    def __init__(self, n: int, seed: int, rounding: Rounding = "off") -> None:
        self.ir = popsr.Ir(replication=n)
        if rounding != "off":  # exact numbers round nowhere, but replicas are blocks of their own
            self.ir.options.enable_stochastic_rounding = True
            self.ir.options.stochastic_rounding_mode = rounding
        self.m = Machine(self.ir, "int32" if rounding == "off" else "float16")
        self.rng = np.random.default_rng(seed)
        self.groups = list(groupings(self.ir))
        self.pool: list[Value] = []

    def inputs(self) -> None:
        """Variables and loads, each with a partition of its own."""
        for i, shape in enumerate(SHAPES):
            self.pool.append(self.one(shape, i % 3))

    def draw(self, rows: int, shape: tuple[int, ...]) -> Array:
        return self.rng.integers(-9, 9, (rows, *shape), np.int32)

    def one(self, shape: tuple[int, ...], kind: int) -> Value:
        """A tensor with memory of its own."""
        if kind == 0:
            group = random_grouping(self.ir, self.rng)
            return self.m.variable(self.draw(group.num_groups, shape), group)
        if kind == 1 or self.m.replicas == 1:
            return self.m.load(self.draw(self.m.replicas, shape), replicated=True)
        return self.m.load(self.draw(1, shape)[0], replicated=False)

    def match(self, x: Value, j: int) -> Value:
        """Something of the shape of ``x``."""
        fits = [y for y in self.pool if y.shape == x.shape]
        return fits[j % len(fits)] if fits and j % 4 else self.one(x.shape, j % 3)

    def append(self, step: Step) -> None:
        """One more step."""
        kind, i, j, k = step
        try:
            result = getattr(self, f"_{kind}")(self.pool[i % len(self.pool)], j, k)
        except errors.GraphError as error:
            if "what it is a part of, holds an element twice" in str(error):
                return
            raise
        if result is not None:
            self.pool.append(result)

    # Views

    def _slice(self, x: Value, j: int, k: int) -> Value | None:
        if 0 in x.shape or not x.shape:
            return None
        bounds: list[tuple[int, int | None, int]] = []
        for axis, extent in enumerate(x.shape):
            first = (j >> axis) % extent
            end = first + 1 + (k >> axis) % (extent - first)
            # Going down to element 0 means stopping before it.
            step = 1 + (j + 2 * k + axis) % 11 // 8
            bounds.append(
                (end - 1, first - 1 if first else None, -step)
                if (j + k + axis) % 5 == 0
                else (first, end, step)
            )
        return self.m.slice_(x, bounds)

    def _half(self, x: Value, j: int, k: int) -> Value | None:
        if not x.shape or x.shape[k % len(x.shape)] < 2:
            return None
        axis = k % len(x.shape)
        half = x.shape[axis] // 2
        bounds: list[tuple[int, int | None, int]] = [(0, extent, 1) for extent in x.shape]
        bounds[axis] = (0, half, 1) if j % 2 else (half, x.shape[axis], 1)
        return self.m.slice_(x, bounds)

    def _transpose(self, x: Value, j: int, k: int) -> Value:
        return self.m.transpose_(x, tuple(int(a) for a in np.random.default_rng(k).permutation(len(x.shape))))

    def _reshape(self, x: Value, j: int, k: int) -> Value:
        count = int(np.prod(x.shape))
        divisors = [d for d in range(1, count + 1) if count % d == 0] or [0]
        first = divisors[j % len(divisors)]
        if count == 0 or k % 4 == 0:
            return self.m.flatten_(x)
        rest = count // first
        second = [d for d in range(1, rest + 1) if rest % d == 0][k % 2 - 1]
        return self.m.reshape_(x, (first, second, rest // second) if k % 3 else (first, rest))

    def _detach(self, x: Value, j: int, k: int) -> Value:
        return self.m.detach_(x)

    def _concat(self, x: Value, j: int, k: int) -> Value | None:
        if not x.shape:
            return None
        axis = k % len(x.shape)

        def like(y: Value) -> bool:
            others = [[e for d, e in enumerate(z.shape) if d != axis] for z in (x, y)]
            return len(y.shape) == len(x.shape) and others[0] == others[1]

        fits = [y for y in self.pool if like(y)]
        return self.m.concat_([x, fits[j % len(fits)], *([fits[k % len(fits)]] if k % 3 == 0 else [])], axis)

    # Reads

    def _add(self, x: Value, j: int, k: int) -> Value:
        return self.m.pure(ops.add, lambda a, b: a + b, x, self.match(x, j))

    def _copies(self, x: Value, j: int, k: int) -> Value:
        return self.m.pure(ops.detach, lambda a: a, self.m.transpose_(x, tuple(range(len(x.shape)))[::-1]))

    def _fetch(self, x: Value, j: int, k: int) -> None:
        self.m.fetch(x)

    # Writes

    def _relu(self, x: Value, j: int, k: int) -> Value | None:
        return self.m.relu_(x) if x.writable else None

    def _add_inplace(self, x: Value, j: int, k: int) -> Value | None:
        return self.m.add_(x, self.match(x, j)) if x.writable else None

    def _copy(self, x: Value, j: int, k: int) -> Value | None:
        return self.m.copy_(x, self.match(x, j)) if x.writable else None

    def _double(self, x: Value, j: int, k: int) -> Value | None:
        return self.m.double_(x) if x.writable else None

    def _reduce(self, x: Value, j: int, k: int) -> Value | None:
        return self.m.reduce_(x, self.groups[k % len(self.groups)]) if x.writable else None

    def _loads(self, x: Value, j: int, k: int) -> None:
        """Two halves at once, by one merged op."""
        if not x.writable or not x.shape or x.shape[0] % 2 or not x.shape[0]:
            return
        half = x.shape[0] // 2
        parts = [self.m.slice_(x, [(0, half, 1)]), self.m.slice_(x, [(half, 2 * half, 1)])]
        values = [self.match(part, j + i) for i, part in enumerate(parts)]
        shape = (half, *x.shape[1:])
        buffers = [popsr.remote_buffer(shape, self.m.dtype, 1) for _ in parts]
        # Stored now, loaded later: a value may be one of the parts.
        kept = [self.m.pure(ops.detach, lambda a: a, value) for value in values]
        for buffer, value in zip(buffers, kept, strict=True):
            assert value.tensor is not None
            ops.remote_store(buffer, 0, value.tensor)
        with transforms.merge_exchange():
            for buffer, part, value in zip(buffers, parts, kept, strict=True):
                self.m.inplace(
                    lambda t, _, buffer=buffer: ops.remote_load_(buffer, 0, t), lambda _, b: b, part, value
                )

    # Graphs

    def _body(self, k: int) -> Any:
        """Reads and writes views of its arguments, and gives one."""
        m = self.m

        def body(a: Value, b: Value) -> Value:
            flat = m.flatten_(a)
            count = flat.shape[0]
            half = m.slice_(flat, [(0, (count + 1) // 2, 1)] if k % 2 else [(count // 2, count, 1)])
            if k % 3 == 0:
                m.relu_(half)
            rest = m.slice_(m.flatten_(b), [(0, half.shape[0], 1)])
            m.add_(half, rest)
            if k % 5 == 0:
                m.double_(m.transpose_(a, tuple(range(len(a.shape)))[::-1]))
            if k % 7 == 0:
                m.add_(rest, half)
            backwards: list[tuple[int, int | None, int]] = [(e - 1, None, -1) for e in b.shape]
            return m.slice_(b, backwards) if k % 2 else m.pure(ops.negate, lambda x: -x, b)

        return body

    def _call(self, x: Value, j: int, k: int) -> Value | None:
        return self.m.call(self._body(k), x, self.match(x, j)) if x.writable and x.shape else None

    def _repeat(self, x: Value, j: int, k: int) -> Value | None:
        if not x.writable or not x.shape:
            return None
        return self.m.repeat(self._body(k), k % 4, self.match(x, j), x)

    def _conditional(self, x: Value, j: int, k: int) -> Value | None:
        if not x.shape:
            return None
        condition = self.m.load(self.rng.integers(0, 2, (self.m.replicas,), np.int32), replicated=True)
        y = self.match(x, j)
        if not (x.writable and y.writable):
            return None
        return self.m.conditional(condition, [self._body(k), self._body(k + 1)], x, y)

    # Checks

    def check(self, steps: list[Step]) -> int:
        """Builds and runs it; returns how many pairs of equal replicas were claimed."""
        with self.ir.main_graph, popsr.in_sequence():
            self.inputs()
            for step in steps:
                self.append(step)
            before = len(self.m.fetched)
            for value in self.pool:
                self.m.fetch(value)
        facts = popsr.analysis.analyze(self.ir)
        claims = [facts.partition(value.tensor) for value in self.pool if value.tensor is not None]
        for options in MODES:
            memory = None
            with popsr.Session(self.ir, **options) as session:
                for run in range(2):
                    outputs = self.m.io.run(session)
                    expected, memory = self.m.run(memory)
                    if not self.m.exact:
                        break
                    self.compare(outputs, expected, f"run {run} with {options}")
                    self.compare_claims(claims, expected[before:])
        return sum(len(block) - 1 for claim in claims for block in claim.blocks)

    def compare(self, outputs: list[Array], expected: list[Array], where: str) -> None:
        """Every element of every replica."""
        for k, (got, want) in enumerate(zip(outputs, expected, strict=True)):
            rows = (got if self.m.replicas > 1 else got[None]).astype(np.int32)
            assert np.array_equal(rows, want), (
                f"{where}: output {k}: got\n{rows}\nexpected\n{want}\n{self.ir}"
            )

    def compare_claims(self, claims: list[popsr.replicas.Partition], expected: list[Array]) -> None:
        """Values that are claimed to be equal are."""
        for k, (claim, values) in enumerate(zip(claims, expected, strict=True)):
            for block in claim.blocks:
                for replica in block[1:]:
                    same = np.array_equal(values[block[0]], values[replica])
                    assert same, f"tensor {k} differs inside {claim}: {block[0]} and {replica}\n{self.ir}"


VIEWS = ["slice", "half", "transpose", "reshape", "detach", "concat"]
WRITES = ["relu", "add_inplace", "copy", "double", "reduce", "loads"]
OTHERS = ["add", "copies", "fetch", "call", "repeat", "conditional"]
INDEX = st.integers(0, 99)
PROGRAMS = {
    "n": st.sampled_from([1, 2, 3, 4, 6, 8]),
    "rounding": st.sampled_from(["off", "off", "popart", "partition", "identical"]),
    "seed": st.integers(0, 999),
    "steps": st.lists(
        st.tuples(st.sampled_from([*VIEWS, *VIEWS, *WRITES, *WRITES, *OTHERS]), INDEX, INDEX, INDEX),
        min_size=6,
        max_size=20,
    ),
}


@given(**PROGRAMS)
@settings(max_examples=150, derandomize=True, deadline=None, database=None)
def test_random_programs_of_views(n: int, rounding: Rounding, seed: int, steps: list[Step]) -> None:
    Program(n, seed, rounding).check(steps)


@pytest.mark.slow
@given(**PROGRAMS)
@settings(max_examples=10000, derandomize=True, deadline=None, database=None)
def test_many_random_programs_of_views(n: int, rounding: Rounding, seed: int, steps: list[Step]) -> None:
    Program(n, seed, rounding).check(steps)


def test_random_programs_of_views_claim_something() -> None:
    """The property above is not empty: a fixed program of every kind of step claims many equal pairs."""
    steps: list[Step] = [
        (kind, 3 * i, 5 * i + 1, i) for i, kind in enumerate([*VIEWS, *WRITES, *OTHERS, *VIEWS, *WRITES])
    ]
    assert Program(6, 1).check(steps) > 20
