"""Mode "popart": the analysis as Python shows it, options and transform, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import StochasticRoundingMethod, errors, ops, transforms
from popsr.analysis import PopartAnalysis, analyze
from popsr.ops import collectives, var_updates
from tests_py.support.helpers import make_variable, np_dtype

IDENTICAL, DIFFERING = StochasticRoundingMethod.IdenticalSeeds, StochasticRoundingMethod.DifferingSeeds
TOP, BOTTOM = "{0,1,2,3}", "{0}{1}{2}{3}"


class Four:
    """Four replicas: a tensor that all load, which becomes unequal and equal again."""

    def __init__(self) -> None:
        self.ir = popsr.Ir(replication=4)
        self.pairs = self.ir.replica_grouping(1, 2)
        shape, f32 = (8,), popsr.float32
        with self.ir.main_graph, popsr.in_sequence():
            self.t = ops.host_load(popsr.h2d_stream(shape, f32, replicated_stream_mode="broadcast"))
            self.own = ops.host_load(popsr.h2d_stream(shape, f32))
            ops.add_(self.t, self.own)
            self.after = collectives.replicated_all_reduce_(self.t, "add")
        self.load, self.load_own, self.add, self.reduce = self.ir.main_graph.ops
        self.facts = analyze(self.ir, mode="popart")


def test_values_in_time() -> None:
    four = Four()
    texts = [(time, op, str(partition)) for time, op, partition in four.facts.values(four.t)]
    assert texts == [(0, four.load, TOP), (2, four.add, BOTTOM), (3, four.reduce, TOP)]
    assert four.facts.values(four.after)[-1][2].num_blocks == 1
    assert str(four.facts.partition(four.t)) == TOP
    with four.ir.main_graph:
        c = popsr.constant(np.ones(8, np.float32))
    assert [value[:2] for value in analyze(four.ir, mode="popart").values(c)] == [(-1, None)]


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (lambda four: {"after": four.load}, TOP),
        (lambda four: {"after": four.load_own}, TOP),
        (lambda four: {"before": four.add}, TOP),
        (lambda four: {"after": four.add}, BOTTOM),
        (lambda four: {"before": four.reduce}, BOTTOM),
        (lambda four: {"after": four.reduce}, TOP),
        (lambda four: {"time": 0}, TOP),
        (lambda four: {"time": 2}, BOTTOM),
        (lambda four: {"time": 3}, TOP),
    ],
)
def test_value_at_a_place(place: Callable[[Four], dict[str, Any]], expected: str) -> None:
    four = Four()
    assert str(four.facts.partition(four.t, **place(four))) == expected


def test_operands_and_attributes_of_ops() -> None:
    four = Four()
    assert [four.facts.is_input_equal(four.add, i) for i in (0, 1)] == [True, False]
    assert [four.facts.is_output_equal(op) for op in four.ir.main_graph.ops] == [True, False, False, True]
    assert four.facts.attributes(four.add) == {
        "replEqIn0": "true",
        "replEqIn1": "false",
        "replEqOut0": "false",
    }
    with four.ir.main_graph:
        v = make_variable(np.zeros(8, np.float32))
        var_updates.accumulate_(v, four.own)
    update = four.ir.main_graph.ops[-1]
    assert update.inputs == (v, four.own, None)
    facts = analyze(four.ir, mode="popart")
    assert [facts.is_input_equal(update, i) for i in range(3)] == [False, False, True]
    assert facts.attributes(update) == {
        "replEqIn0": "false",
        "replEqIn1": "false",
        "replEqOut0": "false",
    }


def test_is_equal_knows_no_groups() -> None:
    four = Four()
    with four.ir.main_graph:
        total = collectives.replicated_all_reduce(four.own, "add", four.pairs)
    facts = analyze(four.ir, mode="popart")
    assert not facts.is_equal(total)
    assert not facts.is_equal(total, four.pairs)
    assert facts.is_equal(total, four.ir.replica_grouping(1, 1))
    assert facts.is_equal(four.t, four.pairs)
    assert facts.ir is four.ir
    assert repr(facts) == f"PopartAnalysis[{four.ir!r}]"


def test_one_replica_is_not_an_exception() -> None:
    """With one replica PopART still takes what a replicate stream loads for unequal."""
    ir = popsr.Ir()
    ir.options.enable_stochastic_rounding = True
    ir.options.stochastic_rounding_mode = "popart"
    with ir.main_graph:
        x = ops.host_load(popsr.h2d_stream((8,), popsr.float32))
        ops.cast(x, popsr.bfloat16)
    facts = analyze(ir, mode="popart")
    assert not facts.is_equal(x)
    assert facts.partition(x).blocks == ((0,),)
    transforms.stochastic_rounding(ir)
    assert ir.main_graph.ops[1].stochastic_rounding_method is DIFFERING
    transforms.stochastic_rounding(ir, "partition")
    assert ir.main_graph.ops[1].stochastic_rounding_method is IDENTICAL


def _other() -> Four:
    return Four()


def _inside(four: Four, before: Any = None) -> Any:
    """Asked of a graph that nobody calls."""
    graph = four.ir.create_graph(lambda t: ops.add(t, t), four.t)
    return analyze(four.ir, mode="popart").partition(graph.outputs[0], before=before)


BAD: list[tuple[str, Callable[[Four], Any], type[Exception], str]] = [
    (
        "no-tensor",
        lambda f: f.facts.partition(1),  # type: ignore[arg-type]
        errors.ArgumentTypeError,
        "partition: t is not a Tensor, got 1",
    ),
    (
        "other-tensor",
        lambda f: f.facts.is_equal(_other().t),
        errors.GraphError,
        "is_equal: tensor of another Ir, got",
    ),
    (
        "no-op",
        lambda f: f.facts.attributes(f.t),  # type: ignore[arg-type]
        errors.ArgumentTypeError,
        "attributes: op is not an op, got",
    ),
    (
        "other-op",
        lambda f: f.facts.attributes(_other().add),
        errors.GraphError,
        "attributes: op of another Ir, got",
    ),
    (
        "two-times",
        lambda f: f.facts.partition(f.t, before=f.add, time=1),
        errors.AttributeValueError,
        "partition: more than one time, got before and time, expected one",
    ),
    (
        "time",
        lambda f: f.facts.partition(f.t, time=-2),
        errors.AttributeValueError,
        "partition: time: got -2, expected",
    ),
    (
        "late",
        lambda f: f.facts.partition(f.t, time=4),
        errors.OutOfRangeError,
        "no such time, got 4, expected -1 to 3",
    ),
    (
        "too-early",
        lambda f: f.facts.partition(f.t, before=f.load),
        errors.GraphError,
        "has no value yet, got time -1, expected 0 or later",
    ),
    (
        "other-graph",
        lambda f: _inside(f, f.add),
        errors.GraphError,
        "partition: op of another graph, got",
    ),
    (
        "not-called",
        _inside,
        errors.GraphError,
        "mode 'popart' never looks at graph .*, got no value of .*, expected a graph with inputs that is called",
    ),
    (
        "index",
        lambda f: f.facts.is_input_equal(f.add, 2),
        errors.OutOfRangeError,
        "no such input, got 2, expected 0",
    ),
    (
        "output",
        lambda f: f.facts.is_output_equal(f.add, 1),
        errors.OutOfRangeError,
        "no such output, got 1, expected 0",
    ),
    (
        "groups",
        lambda f: f.facts.is_equal(f.t, popsr.Ir(replication=2).replica_grouping()),
        errors.ReplicaError,
        "is_equal: grouping of another replica count, got 2 replicas, expected 4",
    ),
    (
        "mode",
        lambda f: analyze(f.ir, mode="xla"),  # type: ignore[call-overload]
        errors.AttributeValueError,
        "analyze: unknown mode, got 'xla', expected one of 'partition', 'popart'",
    ),
]


@pytest.mark.parametrize(("use", "error", "match"), [pytest.param(*bad[1:], id=bad[0]) for bad in BAD])
def test_bad_questions(use: Callable[[Four], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        use(Four())


def test_stale_facts_are_refused() -> None:
    four = Four()
    with four.ir.main_graph:
        later = ops.add(four.own, four.own)
    facts = four.facts
    for ask in (
        lambda: facts.is_equal(four.t),
        lambda: facts.partition(later),
        lambda: facts.values(four.t),
        lambda: facts.is_output_equal(four.add),
        lambda: facts.attributes(four.add),
        lambda: facts.warnings,
    ):
        with pytest.raises(errors.GraphError, match="the program changed since these facts were computed"):
            ask()


def test_graphs_without_inputs_are_refused() -> None:
    """Programs on which PopART stops with an internal error."""
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        graph = ir.create_graph(lambda: ops.add(popsr.constant(1.0), popsr.constant(2.0)))
        ops.call(graph)
    with pytest.raises(
        errors.GraphError, match="has no inputs, so mode 'popart' never looks at it, got no value of"
    ):
        analyze(ir, mode="popart")
    ir.options.enable_stochastic_rounding = True
    ir.options.stochastic_rounding_mode = "popart"
    with pytest.raises(errors.GraphError, match="has no inputs, so mode 'popart' never looks at it"):
        popsr.Session(ir)
    ir.options.stochastic_rounding_mode = "partition"
    popsr.Session(ir)


# Options and transform


def test_popart_switch_of_random_states() -> None:
    options: Any = popsr.Ir().options
    assert options._enableRngStateManagement is False
    options._enableRngStateManagement = True
    assert options.stochastic_rounding_mode == "popart"
    assert options._enableRngStateManagement is True
    options._enableRngStateManagement = False
    assert options.stochastic_rounding_mode == "identical"
    options.stochastic_rounding_mode = "partition"
    assert options._enableRngStateManagement is False


@pytest.mark.parametrize(
    "name", ["enable_stochastic_rounding", "enableStochasticRounding", "_enableRngStateManagement"]
)
def test_switches_are_bools(name: str) -> None:
    options = popsr.Ir().options
    before = repr(options)
    with pytest.raises(errors.ArgumentTypeError, match=r"^options: \w+ is not a bool, got 1, expected"):
        setattr(options, name, 1)
    assert repr(options) == before


def _narrow(ir: popsr.Ir) -> popsr.Tensor:
    pairs = make_variable(np.ones((2, 8), np_dtype("bfloat16")), replica_grouping=ir.replica_grouping(1, 2))
    return ops.mul(pairs, ops.cast(ops.host_load(popsr.h2d_stream((8,), popsr.float32)), popsr.bfloat16))


METHODS = {
    "partition": [DIFFERING, DIFFERING, DIFFERING],
    "popart": [IDENTICAL, DIFFERING, DIFFERING],
    "identical": [IDENTICAL] * 3,
}
SEEDS = {
    "partition": ["{0,1}{2,3}", BOTTOM, BOTTOM],
    "popart": [TOP, BOTTOM, BOTTOM],
    "identical": [TOP] * 3,
}


def test_running_again_gives_all_ops_the_new_rules() -> None:
    ir = popsr.Ir(replication=4)
    ir.options.enable_stochastic_rounding = True
    with ir.main_graph:
        w = make_variable(np.ones((2, 8), np_dtype("bfloat16")), replica_grouping=ir.replica_grouping(1, 2))
        ops.mul(w, w)
        x = ops.cast(ops.host_load(popsr.h2d_stream((8,), popsr.float32)), popsr.bfloat16)
        ops.mul(w, x)
    rounding = [op for op in ir.main_graph.ops if op.kind in ("mul", "cast")]

    def methods() -> list[Any]:
        return [op.stochastic_rounding_method for op in rounding]

    assert methods() == METHODS["partition"]  # what the options decide
    for mode in ("partition", "popart", "identical", "popart", "partition"):
        for _ in range(2):
            transforms.stochastic_rounding(ir, mode)
            assert methods() == METHODS[mode]
            assert [str(op.seed_partition) for op in rounding] == SEEDS[mode]
        assert ir.options.stochastic_rounding_mode == mode
        popsr.Session(ir)
    # The option alone changes nothing once the transform was run by hand.
    ir.options.stochastic_rounding_mode = "identical"
    popsr.Session(ir)
    assert methods() == METHODS["partition"]
    transforms.stochastic_rounding(ir)
    assert methods() == METHODS["identical"]


def test_sessions_follow_the_option() -> None:
    ir = popsr.Ir(replication=4)
    ir.options.enable_stochastic_rounding = True
    with ir.main_graph:
        _narrow(ir)
    for mode in ("popart", "identical", "partition"):
        ir.options.stochastic_rounding_mode = mode
        popsr.Session(ir)
        expected = {"partition": DIFFERING, "popart": DIFFERING, "identical": IDENTICAL}[mode]
        assert ir.main_graph.ops[-1].stochastic_rounding_method is expected


def test_refused_transforms_change_nothing() -> None:
    ir = popsr.Ir(replication=4)
    with ir.main_graph:
        t = _narrow(ir)
    graph = ir.create_graph(lambda t: ops.add(t, t), t)
    with pytest.raises(errors.GraphError, match="the option enable_stochastic_rounding is off, got False"):
        transforms.stochastic_rounding(ir, "identical")
    ir.options.enable_stochastic_rounding = True
    rounding = (*ir.main_graph.ops, *graph.ops)
    before = [op.stochastic_rounding_method for op in rounding]
    with pytest.raises(errors.GraphError, match="mode 'popart' never looks at graph"):
        transforms.stochastic_rounding(ir, "popart")
    assert ir.options.stochastic_rounding_mode == "partition"
    assert [op.stochastic_rounding_method for op in rounding] == before
    ir.options.stochastic_rounding_mode = "identical"  # no rules were given by hand
    assert {op.stochastic_rounding_method for op in rounding} == {None, IDENTICAL}
    ir.options.enable_stochastic_rounding = False
    assert [op.stochastic_rounding_method for op in rounding] == [None] * 4


def test_type() -> None:
    assert isinstance(Four().facts, PopartAnalysis)
