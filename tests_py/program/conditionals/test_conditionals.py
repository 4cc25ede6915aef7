"""``conditional``: PopXL's behaviour, what is proved, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import TensorByRef, errors, ops
from popsr.analysis import analyze
from popsr.ops import collectives
from popsr.ops.program.conditional import ConditionalSiteInfo
from tests_py.support.helpers import Streams, make_variable
from tests_py.support.machines.branches import (
    BOOL,
    F32,
    ONE,
    TAKEN,
    Machine,
    add_ref,
    add_value,
    double,
    negate,
)
from tests_py.support.unchecked import unchecked

# PopXL's behaviour


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("value", [True, False])
def test_condition_of_one_element(shape: tuple[int, ...], value: bool) -> None:
    ir, io = popsr.Ir(), Streams()
    with ir.main_graph:
        x = io.feed(ONE)
        doubled = ir.create_graph(double, x)
        made = ops.conditional(io.feed(np.full(shape, value)), doubled, ir.create_graph(negate, x), [x], [x])
        assert isinstance(made, tuple)
        io.fetch(made[0])
        assert (
            ops.conditional(io.feed(np.array(value)), ir.create_empty_graph(), ir.create_empty_graph()) == ()
        )
    with popsr.Session(ir) as session:
        np.testing.assert_array_equal(io.run(session)[0], 2 * ONE if value else -ONE)


def test_a_shard_of_one_branch_is_one_of_the_result() -> None:
    m = Machine()
    with m.ir.main_graph:
        for branches in ((negate, _shard((2, 4))), (_shard((2, 4)), negate)):
            (y,) = unchecked(ops.conditional)(
                m.taken, *unchecked(m.graph(fn, m.x) for fn in branches), [m.x], [m.x]
            )
            assert y.meta_shape == (2, 4)
            assert collectives.replicated_all_gather(y).shape == (2, 4)


def test_inputs_of_branches() -> None:
    """Iterables are flattened, dictionaries complete them, host data becomes constants."""

    def three(a: popsr.Tensor, b: popsr.Tensor, c: popsr.Tensor) -> popsr.Tensor:
        return ops.add(ops.mul(a, b), c)

    m = Machine()
    with m.ir.main_graph:
        graph, other = m.graph(three, *[m.x] * 3), m.graph(three, *[m.x] * 3)
        (made,) = ops.conditional(
            m.taken,
            graph,
            other,
            [m.x, [[2.0, 3.0], m.x]],
            [m.x],
            None,
            {t: [1.0, 2.0] for t in other.inputs[1:]},
        )
        m.io.fetch(made)
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    expect = np.where(TAKEN[:, None], x * [2, 3] + x, x * [1, 2] + [1, 2])
    np.testing.assert_array_equal(m.run({})[0][0], expect)


def test_site_info() -> None:
    m = Machine()
    with m.ir.main_graph:
        a, b = m.graph(add_value, m.v, m.x), m.graph(negate, m.x)
        info = ops.conditional_with_info(m.taken, a, b, [m.v, m.x], [m.x])
        (y,) = info.outputs
    assert isinstance(info, ConditionalSiteInfo)
    assert info.called_graph == (a, b)
    assert info.inputs == (m.taken, m.v, m.x, m.x)
    assert set(m.ir.main_graph.called_graphs) == {a, b}
    assert [info.graph_to_parent_input_index(i) for i in range(2)] == [1, 2]
    assert info.graph_to_parent_input_index(0, then_branch=False) == 3
    assert [info.parent_to_graph_input_index(i) for i in (1, 2, 3)] == [0, 1, 0]
    assert [info.is_parent_index_in_then_branch(i) for i in (1, 2, 3)] == [True, True, False]
    assert info.graph_to_parent_output_index(0) == info.parent_to_graph_output_index(0, False) == 0
    assert (info.parent_input(0), info.parent_output(0)) == (m.taken, y)
    assert info.graph_to_parent(a.inputs[0]) is m.v
    assert info.graph_to_parent(b.inputs[0]) is m.x
    assert info.graph_to_parent(a.outputs[0]) is info.graph_to_parent(b.outputs[0]) is y
    assert info.parent_to_graph(m.x) is a.inputs[1]  # the then branch first
    assert "conditional(" in repr(info)
    for call in (
        lambda: info.graph_to_parent_input_index(1, False),
        lambda: info.parent_to_graph_input_index(0),
        lambda: info.is_parent_index_in_then_branch(4),
        lambda: info.graph_to_parent_output_index(1),
        lambda: info.parent_to_graph_output_index(-1),
        lambda: info.parent_input(4),
        lambda: info.parent_output(1),
    ):
        with pytest.raises(IndexError, match="index out of range"):
            call()
    with m.ir.main_graph:
        stranger = ops.cast(m.x, F32)
    for refuse in (info.graph_to_parent, info.parent_to_graph, info.set_parent_input_modified):
        with pytest.raises(ValueError, match=rf"^{refuse.__name__}: no input .*of a branch, got .*cast"):
            refuse(stranger)
    with pytest.raises(TypeError, match="index is not an int"):
        info.parent_input(unchecked(1.5))


def test_printed_program_and_plan() -> None:
    m = Machine()
    with m.ir.main_graph:
        ops.conditional(m.taken, m.graph(negate, m.x), m.graph(double, m.x), [m.x], [m.x])
    assert "then_branch='negate_subgraph(0)', else_branch='double_subgraph(1)'" in str(m.ir)
    plan = str(popsr.Session(m.ir).plan).splitlines()
    assert [line.split(" = ")[-1].split()[0] for line in plan[2:]] == [
        "if",
        "negate",
        "copy",
        "}",
        "add",
        "copy",
        "}",
    ]


# Facts


def _facts(m: Machine, condition: popsr.Tensor, x: popsr.Tensor, y: popsr.Tensor) -> list[str]:
    with m.ir.main_graph, popsr.in_sequence():
        graphs = m.graph(double, x), m.graph(negate, y)
        (made,) = ops.conditional(condition, *graphs, [x], [y])
    facts = analyze(m.ir)
    return [str(facts.partition(t)) for t in (made, graphs[0].outputs[0], graphs[1].outputs[0])]


TOP, PAIRS, STRIDED, BOTTOM = "{0,1,2,3}", "{0,1}{2,3}", "{0,2}{1,3}", "{0}{1}{2}{3}"


@pytest.mark.parametrize(
    ("condition", "x", "y", "expect"),
    [
        ("top", "top", "top", [TOP, TOP, TOP]),
        ("top", "pairs", "top", [PAIRS, PAIRS, TOP]),
        ("top", "pairs", "strided", [BOTTOM, PAIRS, STRIDED]),
        ("pairs", "top", "top", [PAIRS, PAIRS, PAIRS]),
        ("pairs", "strided", "top", [BOTTOM, BOTTOM, PAIRS]),
        ("own", "top", "top", [BOTTOM, BOTTOM, BOTTOM]),
    ],
)
def test_results_keep_condition_and_both_branches(condition: str, x: str, y: str, expect: list[str]) -> None:
    m = Machine()
    with m.ir.main_graph:

        def of(kind: str, data: Any) -> popsr.Tensor:
            if kind == "own":
                return m.taken
            group = {"top": m.ir.replica_grouping(), "pairs": m.pairs, "strided": m.strided}[kind]
            rows = np.broadcast_to(data, (group.num_groups, *data.shape)) if group.num_groups > 1 else data
            return make_variable(np.array(rows), replica_grouping=group)

        tensors = of(condition, np.array(True)), of(x, ONE), of(y, ONE)
    assert _facts(m, *tensors) == expect


@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # branches write on some replicas only
def test_facts_of_memory_after_branches() -> None:
    """Facts of tensors that a branch writes meet the condition; others keep theirs."""
    m = Machine()
    with m.ir.main_graph, popsr.in_sequence():
        condition = make_variable(np.array([True, False]), replica_grouping=m.pairs)
        written, read, untouched = (make_variable(ONE, name) for name in ("written", "read", "untouched"))
        buffer = popsr.remote_buffer((2,), F32, 2)

        def body(written: TensorByRef, read: TensorByRef, x: popsr.Tensor) -> None:
            ops.add_(written, x)
            ops.add(read, ops.remote_load(buffer, 0))
            ops.remote_store(buffer, 1, x)

        inputs = [written, read, untouched]
        ops.conditional(condition, m.graph(body, *inputs), m.nothing(), inputs)
        loaded = [ops.remote_load(buffer, i) for i in range(2)]
    facts = analyze(m.ir)
    assert [str(facts.partition(t)) for t in (*inputs, *loaded)] == [PAIRS, TOP, TOP, TOP, PAIRS]
    session = popsr.Session(m.ir)
    assert [str(session.storage(t)) for t in inputs] == [PAIRS, TOP, TOP]


@pytest.mark.parametrize("kind", ["top", "pairs", "own"])
def test_a_broadcast_stream_is_as_equal_as_its_positions(kind: str) -> None:
    m = Machine()
    with m.ir.main_graph, popsr.in_sequence():
        stream = popsr.h2d_stream((), F32, replicated_stream_mode="broadcast")
        pairs = make_variable(np.array([True, False]), replica_grouping=m.pairs)
        condition = {"top": popsr.constant(True, BOOL), "pairs": pairs, "own": m.taken}[kind]
        before = ops.host_load(stream)

        def body() -> None:
            ops.host_load(stream)

        ops.conditional(condition, m.graph(body), m.nothing())
        after = ops.host_load(stream)
    facts = analyze(m.ir)
    assert str(facts.partition(before)) == TOP
    assert str(facts.partition(after)) == {"top": TOP, "pairs": PAIRS, "own": BOTTOM}[kind]


def test_a_loop_carries_what_a_branch_leaves() -> None:
    """The condition falls to the fixpoint with what it depends on."""
    m = Machine()

    def body(x: popsr.Tensor, step: popsr.Tensor) -> popsr.Tensor:
        condition = ops.cast(ops.slice(x, 0, 1), BOOL)
        graphs = m.graph(double, x), m.graph(negate, step)
        return ops.conditional(condition, *graphs, [x], [step])[0]

    with m.ir.main_graph:
        one = make_variable(ONE)
        (equal,) = ops.repeat(m.graph(body, one, one), 3, one, one)
        (parted,) = ops.repeat(m.graph(body, one, m.x), 3, one, m.x)
    facts = analyze(m.ir)
    assert [str(facts.partition(t)) for t in (equal, parted)] == [TOP, BOTTOM]


# Refused


def _two(x: popsr.Tensor) -> Any:
    return x, ops.negate(x)


def _integer(x: popsr.Tensor) -> popsr.Tensor:
    return ops.cast(x, popsr.int32)


def _scalar(x: popsr.Tensor) -> popsr.Tensor:
    return ops.sum(x)


def _shard(shape: tuple[int, ...]) -> Callable[[popsr.Tensor], popsr.Tensor]:
    """A fourth of eight zeros."""

    def shard(x: popsr.Tensor) -> popsr.Tensor:
        return collectives.replica_sharded_slice(ops.init(shape, F32))

    return shard


def _by_ref(total: TensorByRef) -> popsr.Tensor:
    return ops.add_(total, total)


Build = Callable[[Machine, Callable[[Any], popsr.Graph]], Any]
REFUSED: dict[str, tuple[Build, type[Exception], str]] = {
    "no bool": (
        lambda m, g: ops.conditional(m.x, g(negate), g(negate), [m.x], [m.x]),
        errors.DTypeError,
        r"^conditional: input cond has the wrong dtype, got f32\[2\].*expected one of bool$",
    ),
    "two conditions": (
        lambda m, g: ops.conditional(ops.cast(m.x, BOOL), g(negate), g(negate), [m.x], [m.x]),
        errors.ShapeError,
        r"^conditional: cond is not one value, got bool\[2\].*expected one element$",
    ),
    "no tensor": (
        lambda m, g: ops.conditional(True, g(negate), g(negate), [m.x], [m.x]),  # type: ignore[arg-type]
        errors.ArgumentTypeError,
        r"^conditional: cond is not a Tensor, got bool True",
    ),
    "numbers of outputs": (
        lambda m, g: ops.conditional(m.taken, g(negate), g(_two), [m.x], [m.x]),
        errors.GraphError,
        r"^conditional: branches have different numbers of outputs, got 1 of 'negate.*' and 2 of '_two.*'",
    ),
    "dtypes of outputs": (
        lambda m, g: ops.conditional(m.taken, g(negate), g(_integer), [m.x], [m.x]),
        errors.DTypeError,
        r"^conditional: dtypes of output 0 differ, got f32\[2\] '.*' and i32\[2\] '.*', expected the same dtype$",
    ),
    "shapes of outputs": (
        lambda m, g: ops.conditional(m.taken, g(negate), g(_scalar), [m.x], [m.x]),
        errors.ShapeError,
        r"^conditional: shapes of output 0 differ, got f32\[2\] '.*' and f32\[\] '.*', expected the same shape$",
    ),
    "shards of outputs": (
        lambda m, g: ops.conditional(m.taken, g(_shard((2, 4))), g(_shard((8,))), [m.x], [m.x]),
        errors.ShapeError,
        r"^conditional: output 0 is a shard of different shapes, got \[2, 4\] '.*' and \[8\] '.*', expected one$",
    ),
    "too many": (
        lambda m, g: ops.conditional(m.taken, g(negate), g(negate), [m.x], [m.x, m.x]),
        errors.GraphError,
        r"^conditional: Too many inputs have been provided, got 2, expected at most 1$",
    ),
    "not enough": (
        lambda m, g: ops.conditional(m.taken, g(negate), g(negate), [m.x]),
        errors.GraphError,
        r"^conditional: Not enough inputs have been provided, got 0 of 1",
    ),
    "not enough, unchecked": (
        lambda m, g: ops.conditional_with_info(m.taken, g(negate), g(negate), [m.x], check_inputs=False),
        errors.GraphError,
        r"^conditional: wrong number of inputs for graphs 'negate.*' and 'negate.*', got 1, expected 2$",
    ),
    "twice": (
        lambda m, g: ops.conditional(m.taken, (a := g(negate)), g(negate), [m.x], [m.x], {a.inputs[0]: m.x}),
        errors.GraphError,
        r"^conditional: Graph input tensor is specified twice",
    ),
    "another graph's input": (
        lambda m, g: ops.conditional(
            m.taken, (a := g(negate)), g(negate), [m.x], None, None, {a.inputs[0]: m.x}
        ),
        errors.GraphError,
        r"^conditional: .* is not in the called graph",
    ),
    "a tensor for inputs": (
        lambda m, g: ops.conditional(m.taken, g(negate), g(negate), m.x, [m.x]),  # type: ignore[arg-type]
        errors.ArgumentTypeError,
        r"^conditional: then_inputs is not a sequence of tensors",
    ),
    "a tensor for inputs of else": (
        lambda m, g: ops.conditional(m.taken, g(negate), g(negate), [m.x], 3),  # type: ignore[arg-type]
        errors.ArgumentTypeError,
        r"^conditional: else_inputs is not a sequence of tensors, got 3$",
    ),
    "no mapping": (
        lambda m, g: ops.conditional(m.taken, g(negate), g(negate), [m.x], [m.x], [1]),  # type: ignore[arg-type]
        errors.ArgumentTypeError,
        r"^conditional: then_inputs_dict is not a mapping",
    ),
    "no graph": (
        lambda m, g: ops.conditional(m.taken, g(negate), negate, [m.x], [m.x]),  # type: ignore[arg-type]
        errors.ArgumentTypeError,
        r"^conditional: else_branch is not a Graph, got <function negate",
    ),
    "another program": (
        lambda m, g: ops.conditional(m.taken, popsr.Ir().create_empty_graph(), g(negate), None, [m.x]),
        errors.GraphError,
        r"^conditional: then_branch of another Ir",
    ),
    "the main graph": (
        lambda m, g: ops.conditional(m.taken, m.ir.main_graph, m.nothing()),
        errors.GraphError,
        r"^conditional: main graph cannot be called here, got the main graph, expected another graph$",
    ),
    "shape of an input": (
        lambda m, g: ops.conditional(m.taken, g(negate), g(negate), [m.x], [popsr.constant([1.0], F32)]),
        errors.ShapeError,
        r"^conditional: shape of input 'negate.*' differs, got f32\[1\]",
    ),
    "a constant by reference": (
        lambda m, g: ops.conditional(m.taken, g(negate), g(_by_ref), [m.x], [popsr.constant(ONE)]),
        errors.GraphError,
        r"^conditional: input '_by_ref.*': a constant would be modified",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_added(case: str) -> None:
    build, error, match = REFUSED[case]
    m = Machine()
    graphs: list[popsr.Graph] = []

    def graph(fn: Callable[..., Any]) -> popsr.Graph:
        graphs.append(m.graph(fn, m.x))
        return graphs[-1]

    with m.ir.main_graph:
        with pytest.raises(error, match=re.compile(match, re.MULTILINE)):  # notes follow
            build(m, graph)
        assert "conditional" not in {op.kind for op in m.ir.main_graph.ops}
    for each in graphs:
        with each:
            popsr.graph_input((), F32)  # nobody calls it yet


def test_recursion_is_refused() -> None:
    m = Machine()
    with m.ir.main_graph:
        outer = m.ir.create_empty_graph("outer")
        with outer:
            condition = popsr.graph_input((), BOOL)
            with pytest.raises(errors.GraphError, match="cannot be called here, got the calling graph"):
                ops.conditional(condition, m.nothing(), outer, None, [condition])
            inner = m.ir.create_empty_graph("inner")
            ops.conditional(condition, m.nothing(), inner)
        with (
            inner,
            pytest.raises(errors.GraphError, match=r"^conditional: graph 'outer.*' calls graph 'inner"),
        ):
            ops.conditional(ops.init((), BOOL), outer, m.nothing(), [ops.init((), BOOL)])


def test_one_tensor_by_reference_twice_in_a_branch_is_refused() -> None:
    def both(a: TensorByRef, b: TensorByRef) -> None:
        ops.add_(a, popsr.constant(ONE))
        ops.add_(b, popsr.constant(ONE))

    m = Machine()
    with m.ir.main_graph, popsr.in_sequence():
        ops.conditional(m.taken, m.graph(both, m.v, m.v), m.nothing(), [m.v, m.v])
    with pytest.raises(
        errors.GraphError, match=r"^Inplacing ambiguity detected\. conditional: 'v' is passed twice"
    ):
        popsr.Session(m.ir)


def test_order_of_a_branch_that_writes_must_be_given() -> None:
    m = Machine()
    m.ir.options.enable_inplace_ambiguity_checking = True
    with m.ir.main_graph:
        one = popsr.constant(ONE)
        ops.add(m.v, one)
        ops.conditional(m.taken, m.graph(add_ref, m.v, one), m.nothing(), [m.v, one])
    with pytest.raises(
        errors.GraphError, match=r"^Inplacing ambiguity detected\. conditional: 'v' is modified here"
    ):
        popsr.Session(m.ir)
