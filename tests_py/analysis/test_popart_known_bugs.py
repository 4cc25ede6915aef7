"""Mode "popart" answers as PopART does, right or wrong; the partition analysis answers what is true.

Programs and answers are in popart_cases.py. Each program is run: replicas that hold the same bits are counted out.
U11, the order of pipelined execution, is not applicable: a program has one schedule here, and it is what runs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import popsr
from popsr import StochasticRoundingMethod, TensorByRef, errors, ops
from popsr._program.op import Op
from popsr._program.options.options import RoundingMode
from popsr.analysis import analyze
from popsr.ops import collectives, var_updates
from popsr.replicas import Partition
from tests_py.analysis.popart_cases import CASES, World, build, call_behind_a_stale_graph
from tests_py.support.helpers import Array, Streams, bits, make_variable, np_dtype

IDENTICAL, DIFFERING = StochasticRoundingMethod.IdenticalSeeds, StochasticRoundingMethod.DifferingSeeds
BF16 = popsr.bfloat16


def partition_of(rows: Array) -> Partition:
    """Replicas of equal bits."""
    seen: dict[bytes, int] = {}
    return Partition.from_labels([seen.setdefault(bits(row).tobytes(), len(seen)) for row in rows])


@pytest.mark.parametrize("name", CASES)
def test_answers_of_popart_and_ours(name: str) -> None:
    w = build(name)
    ours, popart = analyze(w.ir), analyze(w.ir, mode="popart")
    for watched in w.watched:
        assert str(ours.partition(watched.tensor)) == watched.ours
        assert popart.is_equal(watched.tensor) is watched.popart
        assert (popart.partition(watched.tensor).num_blocks == 1) is watched.popart


@pytest.mark.parametrize("name", CASES)
def test_replicas_hold_the_partition_that_is_proved(name: str) -> None:
    w = build(name)
    with popsr.Session(w.ir, check=True) as session:
        runs = [w.io.run(session)]
        w.io.inputs.update(w.changed)
        runs.append(w.io.run(session))
    for index, watched in enumerate(w.watched):
        real = partition_of(runs[0][index]) & partition_of(runs[1][index])
        assert str(real) == watched.ours


def test_every_known_bug_has_a_program() -> None:
    """R1 needs seeds, so it is a test of its own."""
    found = {name.split()[0] for name in CASES}
    assert found >= {f"U{i}" for i in range(1, 11)} | {f"P{i}" for i in range(1, 11)}


def test_call_sites_disagree_with_a_warning() -> None:
    ir = build("P7 call sites of one graph").ir
    facts = analyze(ir, mode="popart")
    (line,) = facts.warnings
    assert (
        line == "analyze: places disagree on '_.body_subgraph(0)/x', got equal and unequal, taken for unequal"
    )
    assert analyze(build("P3 full overwrites").ir, mode="popart").warnings == ()


@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # the collective in a branch is
def test_u4_popart_accepts_a_collective_that_some_replicas_leave_out() -> None:
    """Real replicas deadlock."""
    w = World()
    with w.ir.main_graph, popsr.in_sequence():
        x = w.own()
        total = w.graph(lambda t: collectives.replicated_all_reduce(t, "add"), x)
        (made,) = ops.conditional(w.choice(), total, w.graph(lambda t: ops.add(t, t), x), [x], [w.shared()])
    facts = analyze(w.ir, mode="popart")
    assert facts.is_equal(made)
    assert facts.warnings == ()
    assert analyze(w.ir).partition(made).num_blocks == 4
    with popsr.Session(w.ir) as session, pytest.raises(errors.ReplicaError, match="replicated_all_reduce"):
        w.io.run(session)


# Seeds


class Training:
    """A bf16 variable that takes steps in a program of four replicas with stochastic rounding."""

    def __init__(self, mode: RoundingMode, step: Callable[[popsr.Variable, popsr.Tensor], None]) -> None:
        self.ir = popsr.Ir(replication=4)
        self.ir.options.enable_stochastic_rounding = True
        self.ir.options.stochastic_rounding_mode = mode
        self.io = Streams()
        gradients = np.random.default_rng(3).standard_normal((4, 256)).astype(np.float32) * 2**-6
        with self.ir.main_graph, popsr.in_sequence():
            self.w = make_variable(np.ones(256, np_dtype("bfloat16")), "w", retrieval_mode="all_replicas")
            step(self.w, self.io.feed(gradients, replicated=True))

    def run(self, steps: int) -> Partition:
        """Replicas that hold the same weights after some steps; all claims are checked."""
        with popsr.Session(self.ir, seed=1, check=True) as session:
            for _ in range(steps):
                self.io.run(session)
            return partition_of(session.get_tensor_data(self.w))

    def update(self) -> Op:
        """The op that updates the variable."""
        (op,) = [op for op in self.ir.main_graph.ops if op.kind == "accumulate_"]
        return op


def two_reductions(w: popsr.Variable, g: popsr.Tensor) -> None:
    """P5: reduced over neighbours, then over the others: equal everywhere."""
    ir = popsr.gir()
    g = collectives.replicated_all_reduce(g, "add", ir.replica_grouping(1, 2))
    var_updates.accumulate_(w, collectives.replicated_all_reduce(g, "add", ir.replica_grouping(2, 2)))


def overwritten_buffer(w: popsr.Variable, g: popsr.Tensor) -> None:
    """P3: the buffer of the gradients is overwritten with their sum."""
    total = collectives.replicated_all_reduce(g, "add")
    var_updates.accumulate_(w, var_updates.copy_var_update_(g, total))


def counted_steps(w: popsr.Variable, g: popsr.Tensor) -> None:
    """P2: Adam counts its steps in place."""
    g = collectives.replicated_all_reduce(g, "mean")
    m, v = (make_variable(np.zeros(256, np.float32), name) for name in ("m", "v"))
    counter = make_variable(np.zeros((), np.float32), "counter")
    var_updates.accumulate_moving_average_(m, g, 0.9)
    var_updates.accumulate_moving_average_square_(v, g, 0.99)
    x = var_updates.adam_updater(m, v, None, counter, None, 0.9, 0.99)
    var_updates.accumulate_(w, x, 2.0**-10)


@pytest.mark.parametrize("step", [two_reductions, overwritten_buffer, counted_steps])
@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # the split is what the test is about
def test_popart_seeds_split_weights_that_are_equal(step: Callable[..., None]) -> None:
    """Equal weights taken for unequal get seeds of their own, and then they are unequal."""
    good, bad = Training("partition", step), Training("popart", step)
    assert analyze(bad.ir, mode="popart").is_equal(bad.w) is False
    assert analyze(good.ir).is_equal(good.w)
    assert not analyze(bad.ir).is_equal(bad.w)  # also before there is a session
    assert good.run(20).num_blocks == 1
    assert bad.run(20).num_blocks == 4
    assert (good.update().stochastic_rounding_method, bad.update().stochastic_rounding_method) == (
        IDENTICAL,
        DIFFERING,
    )
    assert str(bad.update().seed_partition) == "{0}{1}{2}{3}"
    assert not analyze(bad.ir).is_equal(bad.w)


def test_r1_seeds_behind_a_loop_without_outputs() -> None:
    """PopART's loop would leave the differing random state where the update expects the identical one."""
    graphs: list[popsr.Graph] = []

    def step(w: popsr.Variable, g: popsr.Tensor) -> None:
        total = make_variable(np.zeros(256, np_dtype("bfloat16")), "total")

        def body(total: TensorByRef, g: popsr.Tensor) -> None:
            ops.add_(total, ops.cast(ops.mul(g, g), BF16))

        graphs.append(popsr.gir().create_graph(body, total, g))
        ops.repeat(graphs[-1], 3, total, g)
        var_updates.accumulate_(w, collectives.replicated_all_reduce(total, "mean"))
        var_updates.accumulator_zero_(total)

    for mode in ("partition", "popart", "identical"):
        training = Training(mode, step)
        assert training.run(50).num_blocks == 1
        assert training.update().stochastic_rounding_method is IDENTICAL
        inside = IDENTICAL if mode == "identical" else DIFFERING
        assert [op.stochastic_rounding_method for op in graphs[-1].ops] == [None, inside, inside]


def test_u8_stale_graph_rounds_with_differing_seeds() -> None:
    """Values that PopART takes for equal behind a graph that it does not analyse again do differ."""
    w = World()
    w.ir.options.enable_stochastic_rounding = True
    w.ir.options.stochastic_rounding_mode = "popart"
    with w.ir.main_graph, popsr.in_sequence():
        first, _, inner = call_behind_a_stale_graph(w, lambda x: ops.cast(ops.gelu(x), BF16), 256)
        w.io.fetch(first)
    with popsr.Session(w.ir, check=True) as session:
        (rows,) = w.io.run(session)
    assert analyze(w.ir, mode="popart").is_equal(first)
    assert [op.stochastic_rounding_method for op in inner.ops] == [None, DIFFERING]
    assert partition_of(rows).num_blocks == 4 == analyze(w.ir).partition(first).num_blocks


def test_merged_ops_have_the_rule_of_the_whole() -> None:
    """Merging makes equal results unequal in PopART's eyes; all parts of the op round by the whole's seeds."""
    methods = []
    w = World()
    w.ir.options.enable_stochastic_rounding = True
    with w.ir.main_graph, popsr.in_sequence():
        for narrow in [ops.cast(x, BF16) for x in (w.own(), w.shared())]:
            collectives.replicated_all_reduce(narrow, "add", w.pairs)
    for merge in (False, True):
        if merge:
            popsr.transforms.merge_collectives(w.ir)
        popsr.transforms.stochastic_rounding(w.ir, "popart")
        methods.append(
            [op.stochastic_rounding_method for op in w.ir.main_graph.ops if "all_reduce" in op.kind]
        )
    assert methods == [[DIFFERING, IDENTICAL], [DIFFERING]]
