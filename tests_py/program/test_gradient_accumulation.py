"""Products that are accumulated wait until the accumulator is read: that changes plans and memory, but no bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import ops
from tests_py.support.helpers import Array, assert_same_bits
from tests_py.support.unchecked import unchecked

# Accumulators that differ between replicas, and are read so, are the subject.
pytestmark = pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")

REPLICAS, M, N = 4, 66, 72  # rows of streams with at most 64 elements are compared
MICRO_BATCHES = 6
all_reduce_ = ops.collectives.replicated_all_reduce_
updates = ops.var_updates


@dataclass
class Program:
    """Gradients of ``MICRO_BATCHES`` micro batches into two accumulators."""

    ir: popsr.Ir
    accumulators: list[popsr.Tensor]
    counter: popsr.Tensor
    unequal: popsr.Tensor
    out: popsr.DeviceToHostStream
    x_stream: popsr.HostToDeviceStream
    dy_stream: popsr.HostToDeviceStream
    x: list[popsr.Tensor] = field(default_factory=list)
    dy: list[popsr.Tensor] = field(default_factory=list)
    stores: int = 0

    def load(self, batches: int) -> None:
        for _ in range(batches):
            self.x.append(ops.host_load(self.x_stream))
            self.dy.append(ops.host_load(self.dy_stream))

    def read(self, which: int) -> None:
        ops.host_store(self.out, self.accumulators[which])
        self.stores += 1


Action = Callable[[Program], object]


def product(p: Program, batch: int) -> popsr.Tensor:
    return ops.matmul(ops.transpose(p.x[batch]), p.dy[batch])


def accumulate(form: str, batch: int, which: int = 0) -> Action:
    def act(p: Program) -> None:
        t, x = p.accumulators[which], product(p, batch)
        match form:
            case "sum":
                updates.accumulate_(t, x)
            case "scaled":
                updates.accumulate_(t, x, 0.3)
            case "mean":
                updates.accumulate_mean_(t, x, p.counter)
            case "unequal":
                updates.accumulate_mean_(t, x, p.unequal)
            case "average":
                updates.accumulate_moving_average_(t, x, 0.9)
            case "add_":
                ops.add_(t, x)
            case "scaled_add_":
                ops.scaled_add_(t, x, p.counter, -0.3)

    return act


def spelled(form: str, products: list[popsr.Tensor]) -> popsr.Tensor:
    """Their sum in ascending order."""
    match form:
        case "sum of joined":
            return ops.sum(ops.concat([x.reshape((1, M, N)) for x in products]), axis=0)
        case "sum of a joined axis":
            return ops.sum(ops.concat([x.reshape((1, M * N)) for x in products]), axis=0).reshape((M, N))
        case "sum of slices":
            return ops.sum(ops.concat(products).reshape((len(products), M, N)), axis=0)
        case "scaled_add":
            return reduce_pairs(lambda a, b: ops.scaled_add(a, b, 0.5, 2.0), products)
        case "product first":
            return reduce_pairs(lambda a, b: b + a, products)
        case "last first":
            return reduce_pairs(lambda a, b: a + b, products[::-1])
        case "in place":
            return reduce_pairs(ops.add_, products)
    return reduce_pairs(lambda a, b: a + b, products)


def reduce_pairs(
    add: Callable[[popsr.Tensor, popsr.Tensor], popsr.Tensor], values: list[popsr.Tensor]
) -> popsr.Tensor:
    total = values[0]
    for value in values[1:]:
        total = add(total, value)
    return total


def summed(
    form: str, batches: Sequence[int], then: str = "mean", at_once: bool = False, which: int = 0
) -> Action:
    """The sum of products into an accumulator, or its mean; ``at_once``: all products are computed before."""

    def act(p: Program) -> None:
        if at_once or "sum" in form or form == "last first":
            total = spelled(form, [product(p, batch) for batch in batches])
        else:
            total = product(p, batches[0])
            for batch in batches[1:]:
                total = spelled(form, [total, product(p, batch)])
        match then:
            case "mean":
                mean = ops.collectives.replicated_all_reduce(total, "mean")
                ops.scaled_add_(p.accumulators[which], mean, b=0.25)
            case "mean, and the sum":
                mean = ops.collectives.replicated_all_reduce(total, "mean")
                ops.scaled_add_(p.accumulators[which], mean, b=0.25)
                updates.accumulate_(p.accumulators[1], total)
            case "sum":
                updates.accumulate_(p.accumulators[which], total)
            case "squares":
                updates.accumulate_(p.accumulators[which], total * total)

    return act


def count(p: Program) -> None:
    updates.accumulate_(p.counter, popsr.constant(1.0, popsr.float32))


def reduce(op: str = "mean", size: int = REPLICAS, which: int = 0) -> Action:
    return lambda p: all_reduce_(p.accumulators[which], unchecked(op), p.ir.replica_grouping(1, size))


def add_mean(p: Program) -> None:
    """The mean of the first, which keeps its value, to the second."""
    first, second = p.accumulators
    ops.scaled_add_(second, ops.collectives.replicated_all_reduce(first, "mean"), b=0.5)


OTHERS: dict[str, Action] = {
    "add mean": add_mean,
    "count": count,
    "count unequally": lambda p: updates.accumulate_(p.unequal, p.counter),
    "reset": lambda p: updates.accumulator_scale_(p.counter, 0.0),
    "mean": reduce(),
    "sum of pairs": reduce("add", 2),
    "other mean": reduce(which=1),
    "greatest": reduce("max"),
    "read": lambda p: p.read(0),
    "write": lambda p: ops.add_(p.accumulators[0], p.accumulators[1]),
    "write dy": lambda p: ops.add_(p.dy[0], p.dy[1]),
    "zero": lambda p: updates.accumulator_zero_(p.accumulators[0]),
}


def empty() -> Program:
    """Variables and streams."""
    rng = np.random.default_rng(0)
    ir = popsr.Ir(replication=REPLICAS)
    with ir.main_graph, popsr.in_sequence():
        each = ir.replica_grouping(group_size=1)
        return Program(
            ir,
            accumulators=[
                popsr.variable(rng.standard_normal((M, N)), popsr.float32, "first"),
                popsr.variable(
                    rng.standard_normal((REPLICAS, M, N)), popsr.float32, "second", replica_grouping=each
                ),
            ],
            counter=popsr.variable(0.0, popsr.float32, "counter"),
            unequal=popsr.variable(np.arange(REPLICAS), popsr.float32, "unequal", replica_grouping=each),
            out=popsr.d2h_stream((M, N), popsr.float32),
            x_stream=popsr.h2d_stream((1, M), popsr.float32, "x"),
            dy_stream=popsr.h2d_stream((1, N), popsr.float32, "dy"),
        )


READS: list[Action] = [lambda p: p.read(0), lambda p: p.read(1)]


def program(actions: Sequence[Action]) -> Program:
    """The actions in the order given, then both accumulators are stored."""
    p = empty()
    with p.ir.main_graph, popsr.in_sequence():
        p.load(MICRO_BATCHES)
        for action in [*actions, *READS]:
            action(p)
    p.ir.num_host_transfers = max(MICRO_BATCHES, p.stores)
    return p


def results(p: Program, **options: Any) -> dict[str, Array]:
    """Outputs of two runs, and the variables after them."""
    rng = np.random.default_rng(1)
    found: dict[str, Array] = {}
    with popsr.Session(p.ir, **options) as session:
        for run in range(2):
            data = {
                stream: rng.standard_normal((p.ir.num_host_transfers, REPLICAS, *stream.shape)).astype(
                    np.float32
                )
                for stream in (p.x_stream, p.dy_stream)
            }
            found[f"run {run}"] = session.run(data)[p.out]
        for variable, value in session.get_tensors_data(
            [*unchecked(p.accumulators), unchecked(p.counter), unchecked(p.unequal)]
        ).items():
            found[variable.name] = np.asarray(value)
    return found


def assert_unchanged(p: Program) -> None:
    """The same bits as where every product is stored and every replica computed, on any number of threads."""
    expected = results(p, check=True)
    for options in ({}, {"num_threads": 1}, {"dedup": False}, {"check": 0.3}):
        got = results(p, **options)
        for name, value in expected.items():
            assert_same_bits(got[name], value, f"{name} with {options}")


def plan_of(p: Program) -> str:
    return str(popsr.Session(p.ir).plan)


STEPS = [accumulate("mean", 0), count, accumulate("mean", 1), count, accumulate("mean", 2)]
PLANS = {
    "three products wait for the reduction": (
        [*STEPS, reduce()],
        "3 x matmul+accumulate_mean_+replicated_all_reduce_",
    ),
    "reductions in groups": (
        [*STEPS, reduce("add", 2)],
        "3 x matmul+accumulate_mean_+replicated_all_reduce_",
    ),
    "one product waits for the reduction": (
        [*STEPS[:1], reduce()],
        "1 x matmul+accumulate_mean_+replicated_all_reduce_",
    ),
    "without a reduction they wait for the last": (STEPS, "3 x matmul+accumulate_mean_ "),
    "another kind of reduction": ([*STEPS, reduce("max")], "3 x matmul+accumulate_mean_ "),
    "an accumulator that is read between": (
        [*STEPS[:3], OTHERS["read"], *STEPS[4:]],
        "2 x matmul+accumulate_mean_ ",
    ),
    "an operand that is written between": (
        [*STEPS[:3], OTHERS["write dy"], *STEPS[4:], reduce()],
        "2 x matmul+accumulate_mean_ ",
    ),
    "a reduction elsewhere": ([*STEPS, add_mean], "3 x matmul+accumulate_mean_ "),
    "a reduction before zeros": (
        [*STEPS, add_mean, OTHERS["zero"]],
        "3 x matmul+accumulate_mean_+replicated_all_reduce ",
    ),
    "a reduction before a product with zero": (
        [*STEPS, add_mean, lambda p: updates.accumulator_scale_(p.accumulators[0], 0.0)],
        "3 x matmul+accumulate_mean_ ",
    ),
    "a sum": ([summed("plus", [0, 1, 2])], "3 x matmul+add+replicated_all_reduce "),
    "a sum of products computed before": (
        [summed("plus", [0, 1, 2], at_once=True)],
        "3 x matmul+add+replicated_all_reduce ",
    ),
    "a sum of products first": (
        [summed("product first", [0, 1, 2])],
        "3 x matmul+add+replicated_all_reduce ",
    ),
    "a sum in place": ([summed("in place", [0, 1, 2])], "3 x matmul+add_+replicated_all_reduce "),
    "a sum with factors": (
        [summed("scaled_add", [0, 1, 2])],
        "3 x matmul+scaled_add+replicated_all_reduce ",
    ),
    "a sum of joined products": (
        [summed("sum of joined", [0, 1, 2])],
        "3 x matmul+sum+replicated_all_reduce ",
    ),
    "a sum of joined rows": (
        [summed("sum of a joined axis", [0, 1, 2])],
        "3 x matmul+sum+replicated_all_reduce ",
    ),
    "a sum that is read twice": ([summed("plus", [0, 1, 2], "mean, and the sum")], "3 x matmul+add "),
    "a sum without a reduction": ([summed("plus", [0, 1, 2], "squares")], "3 x matmul+add "),
    "several kinds of accumulation": (
        [accumulate("sum", 0), accumulate("average", 1), accumulate("unequal", 2), reduce()],
        "3 x matmul+accumulate_mean_+replicated_all_reduce_",
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_products_wait_and_keep_every_bit(name: str) -> None:
    actions, expected = PLANS[name]
    p = program(actions)
    assert expected in plan_of(p)
    assert_unchanged(p)


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("form", ["plus", "in place", "scaled_add", "sum of joined"])
def test_operations_are_counted_as_where_each_op_runs_by_itself(form: str, batches: int) -> None:
    p = program([summed(form, range(batches))])
    counts = []
    for optimise in (True, False):
        session = popsr.Session(p.ir, profile=True, optimise=optimise)
        with session:
            session.run(
                {
                    stream: np.zeros((p.ir.num_host_transfers, REPLICAS, *stream.shape), np.float32)
                    for stream in (p.x_stream, p.dy_stream)
                }
            )
        counts.append(sum(row.flops for row in session.profile()))
    assert counts[0] == counts[1] > 0


FORMS = st.sampled_from(["sum", "scaled", "mean", "unequal", "average", "add_", "scaled_add_"])
SUMS = st.sampled_from(
    [
        "plus",
        "product first",
        "last first",
        "in place",
        "scaled_add",
        "sum of joined",
        "sum of a joined axis",
        "sum of slices",
    ]
)
ENDS = st.sampled_from(["mean", "mean, and the sum", "sum", "squares"])
ACTIONS = st.one_of(
    st.builds(accumulate, FORMS, st.integers(0, MICRO_BATCHES - 1), st.integers(0, 1)),
    st.builds(
        summed,
        SUMS,
        st.lists(st.integers(0, MICRO_BATCHES - 1), min_size=1, max_size=4),
        ENDS,
        st.booleans(),
        st.integers(0, 1),
    ),
    st.sampled_from(sorted(OTHERS)).map(OTHERS.__getitem__),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(ACTIONS, min_size=2, max_size=12))
def test_random_accumulations_keep_every_bit(actions: list[Action]) -> None:
    assert_unchanged(program(actions))


def looped(iterations: int, inner: Sequence[Action], outer: Sequence[Action]) -> Program:
    """Two times: ``inner`` in a loop that loads two micro batches in each iteration, then ``outer``."""
    p = empty()
    held = [*p.accumulators, p.counter, p.unequal]

    def act(refs: Sequence[popsr.Tensor], actions: Sequence[Action], loads: int) -> None:
        inside = replace(p, accumulators=list(refs[:2]), counter=refs[2], unequal=refs[3], x=[], dy=[])
        inside.load(loads)
        for action in actions:
            action(inside)

    def micro(refs: list[popsr.TensorByRef]) -> None:
        act(refs, inner, 2)

    def step(refs: list[popsr.TensorByRef]) -> None:
        ops.repeat(p.ir.create_graph(micro, refs), iterations, refs)
        act(refs, [*outer, *READS], 0)

    with p.ir.main_graph, popsr.in_sequence():
        ops.repeat(p.ir.create_graph(step, held), 2, held)
    p.ir.num_host_transfers = 4 * iterations
    return p


LOOPS = {
    "one product": ([STEPS[0], count], [reduce()], "4 x matmul+accumulate_mean_+replicated_all_reduce_"),
    "two products": (
        [STEPS[0], count, STEPS[2], count],
        [reduce(), reduce(which=1)],
        "8 x matmul+accumulate_mean_+replicated_all_reduce_",
    ),
    "two accumulators": (
        [accumulate("mean", 0), accumulate("scaled", 1, 1), OTHERS["count unequally"]],
        [reduce("add", 2), OTHERS["other mean"]],
        "4 x matmul+accumulate_+replicated_all_reduce_",
    ),
    "read in the loop": (
        [STEPS[0], lambda p: ops.add_(p.counter, p.accumulators[0][0, 0])],
        [],
        "matmul+accumulate_mean_ ",
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_over_micro_batches_are_written_out(name: str) -> None:
    inner, outer, expected = LOOPS[name]
    p = looped(4, inner, outer)
    assert expected in plan_of(p)
    assert_unchanged(p)


INNER = st.one_of(
    st.builds(accumulate, FORMS, st.integers(0, 1), st.integers(0, 1)),
    st.builds(
        summed,
        SUMS,
        st.lists(st.integers(0, 1), min_size=1, max_size=3),
        ENDS,
        st.booleans(),
        st.integers(0, 1),
    ),
    st.sampled_from(sorted(set(OTHERS) - {"read"})).map(OTHERS.__getitem__),
)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.lists(INNER, min_size=1, max_size=5), st.sampled_from(sorted(OTHERS)))
def test_random_loops_keep_every_bit(iterations: int, inner: list[Action], last: str) -> None:
    outer = [OTHERS[last]] if last not in ("read", "write dy") else []
    assert_unchanged(looped(iterations, inner, outer))


def test_a_long_loop_stays_a_loop() -> None:
    assert "repeat 100 times" in plan_of(looped(100, [STEPS[0]], []))


def test_values_are_those_of_a_running_mean() -> None:
    """In float64, against NumPy."""
    rng = np.random.default_rng(2)
    x, dy = rng.standard_normal((3, REPLICAS, 1, M)), rng.standard_normal((3, REPLICAS, 1, N))
    ir = popsr.Ir(replication=REPLICAS)
    ir.num_host_transfers = 3
    with ir.main_graph, popsr.in_sequence():
        streams = [popsr.h2d_stream((1, n), popsr.float64) for n in (M, N)]
        mean = popsr.variable(rng.standard_normal((M, N)), popsr.float64)
        counter = popsr.variable(0.0, popsr.float64)
        for _ in range(3):
            a, b = (ops.host_load(stream) for stream in streams)
            updates.accumulate_mean_(mean, ops.transpose(a) @ b, counter)
            ops.add_(counter, popsr.constant(1.0, popsr.float64))
        all_reduce_(mean, "mean")
    with popsr.Session(ir) as session:
        assert "3 x matmul+accumulate_mean_+replicated_all_reduce_" in str(session.plan)
        session.run(dict(zip(streams, (x, dy), strict=True)))
        expected = np.einsum("grkm,grkn->mn", x, dy) / (3 * REPLICAS)
        np.testing.assert_allclose(session.get_tensor_data(mean), expected, rtol=1e-13, atol=1e-15)


def test_an_accumulator_that_ends_equal_is_stored_once() -> None:
    """Replicas differ while they accumulate, but nobody sees that."""
    memory = [
        popsr.Session(program(actions).ir).memory()["variables"] for actions in ([*STEPS, reduce()], STEPS)
    ]
    assert memory[1] - memory[0] == (REPLICAS - 1) * M * N * 4


@pytest.mark.parametrize("options", [{}, {"check": True}])
def test_statistics_count_every_product(options: dict[str, Any]) -> None:
    with popsr.Session(program([*STEPS, reduce()]).ir, **options) as session:
        data = {
            s: np.zeros((MICRO_BATCHES, REPLICAS, *s.shape), np.float32) for s in session.expected_inputs()
        }
        session.run(data)
        calls, blocks = session.stats["kernel_calls"], session.stats["blocks"]
    assert (calls["matmul"], calls["accumulate_mean_"], calls["replicated_all_reduce_"]) == (3, 3, 1)
    assert (blocks["matmul"], blocks["accumulate_mean_"]) == (3 * REPLICAS, 3 * REPLICAS)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("reduced", [True, False])
def test_a_mean_that_starts_again_forgets_nan(reduced: bool, dtype: str) -> None:
    """The counter is 0 first, and once more in the middle; what the accumulator held does not count."""
    kind = popsr.dtypes.dtype.from_name(dtype)
    ir = popsr.Ir(replication=REPLICAS)
    ir.num_host_transfers = 4
    with ir.main_graph, popsr.in_sequence():
        x, dy = (popsr.h2d_stream((2, size), popsr.float32) for size in (M, N))
        out = popsr.d2h_stream((M, N), kind)
        t = popsr.variable(np.full((M, N), np.nan), kind)
        counter: Any = popsr.variable(0.0, popsr.float32)
        for batch in range(4):
            if batch == 2:
                updates.accumulator_zero_(counter)
            left, right = (ops.cast(ops.host_load(stream), kind) for stream in (x, dy))
            updates.accumulate_mean_(t, ops.matmul(ops.transpose(left), right), counter)
            counter += 1.0
        if reduced:
            all_reduce_(t, "mean")
        ops.host_store(out, t)
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(4, REPLICAS, 2, size)).astype(np.float32) for size in (M, N))
    a[0, 0, 0, 0] = np.inf  # before the counter is 0 again
    results = []
    for options in ({}, {"dedup": False}, {"check": True}, {"num_threads": 1}):
        with popsr.Session(ir, **options) as session:
            results.append(session.run({x: a, dy: b})[out][0])
    for result in results[1:]:
        assert_same_bits(result, results[0])
    wanted = np.einsum("brki,brkj->rij", a[2:], b[2:]) / 2
    wanted = np.broadcast_to(wanted.mean(axis=0), wanted.shape) if reduced else wanted
    tolerance = 1e-5 if dtype == "float32" else 0.05
    np.testing.assert_allclose(results[0].astype(np.float32), wanted, rtol=tolerance, atol=tolerance)
