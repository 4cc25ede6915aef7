"""Facts know the seeds that the options decide, before a session is made and after."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import _core, errors, ops, transforms
from popsr._program.op import Op
from popsr._program.options.options import RoundingMode
from popsr.analysis import analyze
from popsr.ops import collectives
from tests_py.support.helpers import assert_same_bits

BF16 = popsr.bfloat16
MODES = ("partition", "popart", "identical")
STALE = "the program changed since these facts were computed"
TOP, BOTTOM = "{0,1,2,3}", "{0}{1}{2}{3}"


class TwoReductions:
    """The sum over pairs, then over the pairs' partners: equal everywhere unless members round alone."""

    def __init__(self, mode: RoundingMode | None = "popart", core: Any = None) -> None:
        self.ir = popsr.Ir(replication=4)
        if core is not None:
            self.ir._use_core(core)
        if mode is not None:
            self.ir.options.enable_stochastic_rounding = True
            self.ir.options.stochastic_rounding_mode = mode
        with self.ir.main_graph, popsr.in_sequence():
            self.stream = popsr.h2d_stream((65,), BF16)
            pairs = collectives.replicated_all_reduce(
                ops.host_load(self.stream), "add", self.ir.replica_grouping(1, 2)
            )
            self.sum = collectives.replicated_all_reduce(pairs, "add", self.ir.replica_grouping(2, 2))
            self.out = popsr.d2h_stream((65,), BF16)
            ops.host_store(self.out, self.sum)

    @property
    def op(self) -> Op:
        return self.ir.main_graph.ops[2]

    def run(self, session: popsr.Session) -> Any:
        data = np.random.default_rng(1).normal(size=(4, 65)).astype(BF16.as_numpy())
        with session:
            return session.run({self.stream: data})[self.out]


QUESTIONS: dict[str, Callable[[popsr.analysis.PartitionAnalysis, TwoReductions], Any]] = {
    "partition": lambda f, p: str(f.partition(p.sum)),
    "partition after an op": lambda f, p: str(f.partition(p.sum, after=p.op)),
    "values": lambda f, p: str(f.values(p.sum)),
    "is_equal": lambda f, p: f.is_equal(p.sum),
    "is_equal in groups": lambda f, p: f.is_equal(p.sum, p.ir.replica_grouping(1, 2)),
    "contexts": lambda f, p: len(f.contexts(p.ir.main_graph)),
    "explain": lambda f, p: str(f.explain(p.sum, 0, 1)),
    "warnings": lambda f, p: [lint.code for lint in f.warnings],
}


def test_mode_popart_before_the_first_session() -> None:
    """Said {0,1,2,3} of a value that runs hold four of."""
    program = TwoReductions()
    facts = analyze(program.ir)
    assert str(facts.partition(program.sum)) == BOTTOM
    assert len(np.unique(program.run(popsr.Session(program.ir)).view(np.uint16), axis=0)) == 4
    assert str(facts.partition(program.sum)) == BOTTOM
    root = facts.explain(program.sum, 0, 1).root
    assert root is not None
    assert root.kind == "seeds"


@pytest.mark.parametrize("mode", [None, *MODES])
def test_a_session_changes_no_answer(mode: RoundingMode | None) -> None:
    program = TwoReductions(mode)
    facts, popart = analyze(program.ir), analyze(program.ir, mode="popart")
    answers = {name: ask(facts, program) for name, ask in QUESTIONS.items()}
    seeds, method = str(program.op.seed_partition), program.op.stochastic_rounding_method
    page = program.ir.main_graph._repr_html_()
    assert ("seeds {" in page) == (mode is not None)
    program.run(popsr.Session(program.ir))
    for name, ask in QUESTIONS.items():
        assert ask(facts, program) == answers[name], name
        assert ask(analyze(program.ir), program) == answers[name], name
    assert (str(program.op.seed_partition), program.op.stochastic_rounding_method) == (seeds, method)
    assert seeds == {None: "None", "popart": BOTTOM}.get(mode, TOP)
    assert program.ir.main_graph._repr_html_() == page
    assert not popart.is_equal(program.sum)


def _enable(options: Any) -> None:
    options.enable_stochastic_rounding = not options.enable_stochastic_rounding


def _mode(options: Any) -> None:
    options.stochastic_rounding_mode = (
        "popart" if options.stochastic_rounding_mode != "popart" else "partition"
    )


def _popart_name(options: Any) -> None:
    options._enableRngStateManagement = not options._enableRngStateManagement


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("change", [_enable, _mode, _popart_name])
def test_facts_of_other_options_are_refused(name: str, change: Callable[[Any], None]) -> None:
    program = TwoReductions()
    facts = analyze(program.ir)
    change(program.ir.options)
    with pytest.raises(errors.GraphError, match=STALE) as caught:
        QUESTIONS[name](facts, program)
    assert "\n" not in str(caught.value)
    QUESTIONS[name](analyze(program.ir), program)


def test_options_that_decide_no_seeds() -> None:
    program = TwoReductions()
    facts = analyze(program.ir)
    program.ir.options.seed = 5
    program.ir.options.throw_if_log2_scale_tensor_not_in_range = False
    assert str(facts.partition(program.sum)) == BOTTOM
    wide = popsr.Ir(replication=2)
    with wide.main_graph:
        t = ops.exp(popsr.constant(1.0, popsr.float32))
    facts = analyze(wide)
    wide.options.enable_stochastic_rounding = True  # nothing rounds
    assert facts.is_equal(t)


def test_rules_given_by_hand_stay() -> None:
    program = TwoReductions("identical")
    facts = analyze(program.ir)
    transforms.stochastic_rounding(program.ir)
    assert str(facts.partition(program.sum)) == TOP  # the same rules
    program.ir.options.stochastic_rounding_mode = "popart"
    assert str(facts.partition(program.sum)) == str(analyze(program.ir).partition(program.sum)) == TOP
    assert str(program.op.seed_partition) == TOP
    transforms.stochastic_rounding(program.ir)
    with pytest.raises(errors.GraphError, match=STALE):
        facts.partition(program.sum)
    assert str(analyze(program.ir).partition(program.sum)) == BOTTOM


@pytest.mark.filterwarnings("ignore::UserWarning")  # the weights are reduced over pairs only
@pytest.mark.parametrize("mode", MODES)
def test_programs_go_on_after_an_analysis(mode: RoundingMode) -> None:
    """Ops, gradients, graphs and merges after an analysis give the program that they give without."""

    def build(analysed: bool) -> tuple[str, list[str], Any]:
        def look() -> None:
            if analysed:
                analyze(ir)
                _ = [op.seed_partition for op in ir.main_graph.ops]

        ir = popsr.Ir(replication=4)
        ir.options.enable_stochastic_rounding = True
        ir.options.stochastic_rounding_mode = mode
        with ir.main_graph, popsr.in_sequence():
            stream, out = popsr.h2d_stream((8, 8), BF16), popsr.d2h_stream((8, 8), BF16)
            w = popsr.variable(np.eye(8), BF16, "w")
            x = ops.host_load(stream)
            look()
            graph = ir.create_graph(lambda x, w: ops.tanh(x @ w), x, w)
            call = ops.call_with_info(graph, x, w)
            look()
            grad = transforms.autodiff(graph)
            dx, dw = ops.call(grad.graph, call.outputs[0], inputs_dict=grad.inputs_dict(call))
            look()
            collectives.replicated_all_reduce_(dw, "mean", ir.replica_grouping(1, 2))
            collectives.replicated_all_reduce_(dx, "mean", ir.replica_grouping(1, 2))
            ops.scaled_add_(w, dw, b=-0.5)
            ops.host_store(out, dx)
        look()
        transforms.merge_collectives(ir)
        look()
        data = np.random.default_rng(2).normal(size=(4, 8, 8)).astype(BF16.as_numpy())
        with popsr.Session(ir, seed=3) as session:
            result = session.run({stream: data})[out]
        return str(ir), [str(op.seed_partition) for op in ir.main_graph.ops], result

    text, seeds, result = build(True)
    plain_text, plain_seeds, plain_result = build(False)
    assert text.replace("\n", "").split() == plain_text.replace("\n", "").split()
    assert seeds == plain_seeds
    assert_same_bits(result, plain_result)


def test_sessions_keep_the_seeds_that_they_were_made_with() -> None:
    """Options are read when a session is made; neither another session nor an analysis changes what it runs."""

    def alone(mode: RoundingMode) -> list[Any]:
        program = TwoReductions(mode)
        session = popsr.Session(program.ir)
        return [program.run(session) for _ in range(2)]

    program = TwoReductions("partition")
    first = popsr.Session(program.ir, dedup=True)
    program.ir.options.stochastic_rounding_mode = "popart"
    assert str(analyze(program.ir).partition(program.sum)) == BOTTOM
    second = popsr.Session(program.ir)
    results = [(program.run(first), program.run(second)) for _ in range(2)]
    program.ir.options.enable_stochastic_rounding = False
    assert str(analyze(program.ir).partition(program.sum)) == TOP
    for got, expect in zip(results, zip(alone("partition"), alone("popart"), strict=True), strict=True):
        for a, b in zip(got, expect, strict=True):
            assert_same_bits(a, b)


class Trainee:
    """A step that adds rows of a small stream to a variable: how they are fed decides which plan runs."""

    def __init__(self) -> None:
        self.ir = popsr.Ir(replication=4)
        with self.ir.main_graph, popsr.in_sequence():
            self.stream = popsr.h2d_stream((33,), BF16)
            self.w = popsr.variable(np.linspace(1, 2, 33), BF16, "w")
            x = ops.host_load(self.stream)
            ops.var_updates.accumulate_(self.w, ops.mul(x, x))
            pairs = collectives.replicated_all_reduce(x, "add", self.ir.replica_grouping(1, 2))
            self.out = popsr.d2h_stream((33,), BF16)
            ops.host_store(self.out, ops.add(pairs, self.w))

    def session(self, mode: RoundingMode | None) -> popsr.Session:
        self.ir.options.enable_stochastic_rounding = mode is not None
        if mode is not None:
            self.ir.options.stochastic_rounding_mode = mode
        return popsr.Session(self.ir, seed=7, num_threads=1)

    def step(self, session: popsr.Session, number: int) -> list[Any]:
        """A run with rows that are equal on all replicas, on pairs of them or on none, so that plans change."""
        rows = np.random.default_rng(number).normal(size=(4, 33)).astype(BF16.as_numpy())
        first = [[0, 0, 0, 0], [0, 1, 2, 3], [0, 0, 2, 2]][number % 3]
        got = session.run({self.stream: rows[first]})[self.out]
        if number % 4 == 3:
            session.write_variable_data(self.w, got[0])
        return [got, session.get_tensors_data([self.w], replicas="all")[self.w]]


DRIFTS = pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # the weights do
RULES: tuple[RoundingMode | None, ...] = ("partition", "popart", "identical", None)
STEPS = range(12)


def _alone(mode: RoundingMode | None) -> list[list[Any]]:
    program = Trainee()
    with program.session(mode) as session:
        return [program.step(session, number) for number in STEPS]


def _assert_as_alone(got: dict[RoundingMode | None, list[list[Any]]]) -> None:
    expected = {mode: _alone(mode) for mode in RULES}
    for mode in RULES:
        for a, b in zip(got[mode], expected[mode], strict=True):
            for x, y in zip(a, b, strict=True):
                assert_same_bits(x, y)
    bits = [b"".join(x.tobytes() for a in expected[mode] for x in a) for mode in RULES]
    assert len(set(bits)) == len(bits)  # each rounds in a way of its own


@DRIFTS
@pytest.mark.parametrize("by_hand", [False, True])
def test_sessions_of_other_options_run_by_turns(by_hand: bool) -> None:
    program = Trainee()
    sessions = {mode: program.session(mode) for mode in RULES}
    got: dict[RoundingMode | None, list[list[Any]]] = {mode: [] for mode in RULES}
    if by_hand:  # for sessions to come
        program.ir.options.enable_stochastic_rounding = True
        transforms.stochastic_rounding(program.ir, "identical")
    with contextlib.ExitStack() as attached:
        for session in sessions.values():
            attached.enter_context(session)
        for number in STEPS:
            for mode, session in sessions.items():
                got[mode].append(program.step(session, number))
            analyze(program.ir)
    _assert_as_alone(got)


@DRIFTS
def test_sessions_of_other_options_run_at_once() -> None:
    program = Trainee()
    sessions = {mode: program.session(mode) for mode in RULES}
    got: dict[RoundingMode | None, list[list[Any]]] = {mode: [] for mode in RULES}
    start = threading.Barrier(len(RULES))

    def run(mode: RoundingMode | None) -> None:
        with sessions[mode] as session:
            start.wait()
            got[mode] += [program.step(session, number) for number in STEPS]

    with concurrent.futures.ThreadPoolExecutor(len(RULES)) as pool:
        for done in [pool.submit(run, mode) for mode in RULES]:
            done.result()
    _assert_as_alone(got)


def test_a_claim_that_fails_after_the_options_changed_is_still_explained() -> None:
    core = _core.Ir.with_defect(4, "replicated_all_reduce", "equal everywhere")
    program = TwoReductions("partition", core)
    session = popsr.Session(program.ir, check=True)
    program.ir.options.stochastic_rounding_mode = "popart"
    analyze(program.ir)
    with pytest.raises(
        errors.ReplicaError, match=r"check: .* expected equal values in \{0,1,2,3\}, derived from"
    ):
        program.run(session)


def test_programs_at_which_popart_stops() -> None:
    ir = popsr.Ir(replication=2)
    ir.options.enable_stochastic_rounding = True
    with ir.main_graph:
        x = popsr.constant(np.ones(2), BF16)
        y = ops.add(x, x)
        ir.create_graph(lambda a: ops.add(a, a), x)  # nothing calls it
    facts = analyze(ir)
    assert facts.is_equal(y)
    ir.options.stochastic_rounding_mode = "popart"
    rounding = ir.main_graph.ops[0]
    for ask in (
        lambda: analyze(ir),
        lambda: facts.partition(y),
        lambda: rounding.seed_partition,
        lambda: rounding.stochastic_rounding_method,
        lambda: popsr.Session(ir),
    ):
        with pytest.raises(errors.GraphError, match="never") as caught:
            ask()
        assert "\n" not in str(caught.value)
    assert "never" in ir.main_graph._repr_html_()
    assert analyze(ir, mode="popart").is_equal(y)
    ir.options.stochastic_rounding_mode = "identical"
    assert analyze(ir).is_equal(y)
    popsr.Session(ir)


@pytest.mark.parametrize("mode", MODES)
def test_a_session_that_failed_left_its_seeds_to_be_chosen(mode: RoundingMode) -> None:
    """A failed call leaves no entry in the undo list."""

    def with_drift() -> TwoReductions:
        program = TwoReductions(mode)
        with program.ir.main_graph, popsr.in_sequence():
            w = popsr.variable(np.zeros(65), BF16, name="w")
            ops.var_updates.accumulate_(w, ops.host_load(program.stream))
        return program

    program, other = with_drift(), with_drift()
    with pytest.raises(errors.ReplicaError, match="Session: lint L2"):
        popsr.Session(program.ir, strict=True)
    assert str(analyze(program.ir).partition(program.sum)) == str(analyze(other.ir).partition(other.sum))
    results = []
    for each in (program, other):
        with pytest.warns(popsr.ReplicaWarning, match="L2"):
            session = popsr.Session(each.ir, weights_to_host_on_exit=False)
        session.ir.num_host_transfers = 2
        data = np.random.default_rng(1).normal(size=(2, 4, 65)).astype(BF16.as_numpy())
        with session:
            results.append(session.run({each.stream: data})[each.out])
    assert_same_bits(results[0], results[1])
    assert len(results) == 2
