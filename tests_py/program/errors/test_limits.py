"""Programs that are too big are refused at once; what is allowed needs memory in proportion and no deep stack."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import ops
from popsr.errors import ReplicaError
from popsr.ops import var_updates
from tests_py.support.helpers import run_python

F32 = popsr.float32

# Graphs that call each other

# Each level runs the graph below it twice: what a leaf does is done 2**levels times.
TREES = """if True:
    import numpy as np
    import popsr
    from popsr import ops
    from popsr.ops import collectives, var_updates

    ones = np.ones(3, np.float32)

    def leaf_of(kind, stream):
        def leaf(x: popsr.TensorByRef):
            if kind == "views":
                var_updates.accumulate_(ops.slice_(x, 0, 2, axis=0), popsr.constant(ones[:2]))
            elif kind == "collectives":
                collectives.replicated_all_reduce_(x, "mean")
            elif kind == "streams":
                var_updates.accumulate_(x, ops.host_load(stream))
            elif kind == "noise":
                var_updates.accumulate_(x, ops.random_normal(popsr.constant(np.array([1, 2], np.uint32)), (3,)))
            else:
                var_updates.accumulate_(x, popsr.constant(ones))
        return leaf

    def twice(kind, below):
        def body(x: popsr.TensorByRef):
            with popsr.in_sequence():
                if kind == "conditionals":
                    ops.conditional(popsr.constant(True), below, below, [x], [x])
                elif kind == "loops":
                    ops.repeat(below, 2, x)
                    ops.repeat(below, 2, x)
                else:
                    ops.call(below, x)
                    ops.call(below, x)
        return body

    def tree(kind, levels, replication=2):
        ir = popsr.Ir(replication=replication)
        with ir.main_graph, popsr.in_sequence():
            groups = ir.replica_grouping(group_size=1) if kind == "private" else None
            v = popsr.variable(ones if groups is None else np.stack([ones] * 2), name="v", replica_grouping=groups)
            graph = ir.create_graph(leaf_of(kind, popsr.h2d_stream((3,), popsr.float32)), v)
            for _ in range(levels):
                graph = ir.create_graph(twice(kind, graph), v)
            ops.call(graph, v)
        return ir, v, graph

    def pure_tree(levels):
        ir = popsr.Ir(replication=2)
        with ir.main_graph, popsr.in_sequence():
            v = popsr.variable(ones, name="v")
            graph = ir.create_graph(lambda x: ops.tanh(x), v)
            for _ in range(levels):
                graph = ir.create_graph(lambda x, below: ops.call(below, ops.call(below, x)[0])[0], v, graph)
            out = popsr.d2h_stream((3,), popsr.float32)
            ops.host_store(out, ops.call(graph, v)[0])
        return ir, v, graph
"""

KINDS = ("private", "shared", "views", "collectives", "streams", "noise", "loops", "conditionals")


@pytest.mark.parametrize("kind", KINDS)
def test_doubling_trees_are_looked_at_once_a_graph(kind: str) -> None:
    """Everything but a session works on 2**31 inlined calls, in 150 MB and not for ever; that is refused."""
    out = run_python(
        TREES
        + f"""
    import resource
    import contextlib, io
    from popsr.addons.performance_utils import evaluate_ir_FLOPs, print_FLOPs
    resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
    before = resource.getrusage(resource.RUSAGE_SELF)
    ir, v, graph = tree("{kind}", 31)
    facts = popsr.analysis.analyze(ir)
    popsr.analysis.analyze(ir, mode="popart")
    facts.warnings, facts.values(v), str(facts), str(facts.explain(v, 0, 1)), facts.contexts(graph)
    str(ir), ir.main_graph._repr_html_(), graph._repr_html_()
    for mode in ("partition", "identical", "popart"):
        popsr._core.SeedRules.of_mode(ir._core, mode).verify(ir._core, True)
    popsr.transforms.merge_exchange(ir=ir)
    popsr.transforms.merge_collectives(ir)
    with contextlib.redirect_stdout(io.StringIO()):
        print_FLOPs(evaluate_ir_FLOPs(ir))
    for options in ({{}}, {{"dedup": False}}, {{"check": True}}):
        try:
            popsr.Session(ir, **options)
        except popsr.errors.GraphError as error:
            print(error)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_maxrss - before.ru_maxrss < 150 * 1024, after.ru_maxrss - before.ru_maxrss
    """
    )
    texts = out.splitlines()
    assert len(texts) == 3
    for text in texts:
        assert text.startswith("session: the plan would have too many ops, got ")
        assert "with calls inlined, expected at most 4194304: graph 'leaf_of.leaf_subgraph(0)' of " in text
        assert text.endswith("times, use `repeat` to run a graph several times")
        assert len(text) < 500


def test_gradients_of_doubling_trees() -> None:
    out = run_python(
        TREES
        + """
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
    for levels in (31, 3):
        ir, v, graph = pure_tree(levels)
        try:
            popsr.transforms.autodiff(graph)
            print("ok")
        except popsr.errors.GraphError as error:
            print(error)
        str(ir)
        popsr.analysis.analyze(ir).warnings
    """
    )
    refused, accepted = out.splitlines()
    assert refused.startswith(
        "autodiff: the graph would have too many ops, got 6442450942 with calls inlined, "
    )
    assert refused.endswith("of 1 ops is inlined 2147483648 times, call it less often")
    assert accepted == "ok"


@pytest.mark.slow
def test_gradients_that_need_too_many_values_are_refused() -> None:
    """A gradient graph takes the values of all calls inside calls: they are counted while it is built."""
    out = run_python(
        TREES
        + """
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
    try:
        popsr.transforms.autodiff(pure_tree(20)[2])
    except popsr.errors.GraphError as error:
        print(error)
    """
    )
    assert out.startswith(
        "autodiff: the gradient graph needs too many values of calls, got more than 262144 in graph "
    )


def test_trees_below_the_limit_run() -> None:
    out = run_python(
        TREES
        + """
    ir, v, _ = tree("shared", 12)
    with popsr.Session(ir) as session:
        session.run()
        print(session.get_tensor_data(v))
    """
    )
    assert out == "[4097. 4097. 4097.]\n"


def test_limit_counts_flat_programs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop is one body, however often it runs; what is written out of it stays below the limit."""
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        v = popsr.variable(np.zeros(2, np.float32), F32, "v")

        def body(x: popsr.TensorByRef) -> None:
            var_updates.accumulate_(x, popsr.constant(np.ones(2, np.float32)))

        ops.repeat(ir.create_graph(body, v), 10**7, v)
    popsr.Session(ir)


# Replicas


@pytest.mark.parametrize("replication", [2**20 + 1, 10**8, 2**31, 2**62, 2**200])
def test_too_many_replicas_are_refused(replication: int) -> None:
    with pytest.raises(
        ReplicaError, match=rf"^Ir: too many replicas, got replication {replication}, expected 1 to 1048576$"
    ):
        popsr.Ir(replication=replication)
    with pytest.raises(ReplicaError, match="Ir: too many replicas"):
        popsr.Ir().replication_factor = replication


def test_as_many_replicas_as_checkpoints_may_have() -> None:
    assert popsr._core.MAX_REPLICAS == 2**20
    assert popsr.Ir(replication=2**20).replication_factor == 2**20
    grouping = popsr.ReplicaGrouping.from_stride(2**20)
    assert grouping.num_replicas == 2**20
    with pytest.raises(ReplicaError, match="replica count out of range, got 1048577, expected 1 to 1048576"):
        popsr.ReplicaGrouping.from_stride(2**20 + 1)


# Stack

NESTS = """if True:
    import threading
    import warnings
    import numpy as np
    import popsr
    from popsr import ops
    from popsr.ops import var_updates

    DEPTH = 199  # the graphs that the outermost one is nested around

    def leaf(x: popsr.TensorByRef):
        var_updates.accumulate_(x, popsr.constant(np.ones(3, np.float32)))

    def around(kind, below, other):
        def body(x: popsr.TensorByRef):
            with popsr.in_sequence():
                if kind == "call":
                    ops.call(below, x)
                elif kind == "repeat":
                    ops.repeat(below, 1, x)
                else:
                    ops.conditional(popsr.constant(True), below, other, [x], [x])
        return body

    def nest(kinds):
        ir = popsr.Ir(replication=2)
        with ir.main_graph, popsr.in_sequence():
            v = popsr.variable(np.zeros(3, np.float32), name="v")
            graph, other = ir.create_graph(leaf, v), ir.create_graph(leaf, v)
            for i in range(DEPTH - 1):
                graph = ir.create_graph(around(kinds[i % len(kinds)], graph, other), v)
            ops.call(graph, v)
        return ir, v, graph

    def nested_tanh(ir, v):
        graph = ir.create_graph(lambda x: ops.tanh(x), v)
        for _ in range(DEPTH - 1):
            graph = ir.create_graph(lambda x, below: ops.call(below, x)[0], v, graph)
        return graph

    def pure():
        ir = popsr.Ir(replication=2)
        with ir.main_graph, popsr.in_sequence():
            v = popsr.variable(np.zeros(3, np.float32), name="v")
            graph = nested_tanh(ir, v)
            popsr.transforms.autodiff(graph)
            ops.host_store(popsr.d2h_stream((3,), popsr.float32), ops.call(graph, v)[0])
        return ir, v, graph

    def drifting():
        ir = popsr.Ir(replication=2)
        with ir.main_graph, popsr.in_sequence():
            v = popsr.variable(np.zeros(65, np.float32), name="v")
            graph = nested_tanh(ir, v)
            ops.scaled_add_(v, ops.call(graph, ops.host_load(popsr.h2d_stream((65,), popsr.float32)))[0])
        return ir, v, graph

    def warned(ir, v, graph):
        facts = popsr.analysis.analyze(ir)
        len(facts.drifting()), str(facts), facts.drifting()[0].suggestion
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            popsr.Session(ir)
        return [each.category.__name__ for each in found]

    def use(ir, v, graph):
        facts = popsr.analysis.analyze(ir)
        popsr.analysis.analyze(ir, mode="popart")
        facts.warnings, facts.values(v), str(facts.explain(v, 0, 1)), facts.contexts(graph), str(facts)
        str(ir), ir.main_graph._repr_html_(), graph._repr_html_()
        for mode in ("partition", "identical", "popart"):
            popsr._core.SeedRules.of_mode(ir._core, mode).verify(ir._core, True)
        popsr.transforms.merge_exchange(ir=ir)
        popsr.transforms.merge_collectives(ir)
        for options in ({}, {"check": True}, {"dedup": False}):
            with popsr.Session(ir, **options) as session:
                session.run()
                session.run()
                len(session.plan), session.stats, session.memory()
                value = session.get_tensor_data(v).tolist()
        return value

    failures = []

    def in_a_small_thread(function):
        def guarded():
            try:
                print(function())
            except BaseException as error:
                failures.append(error)
        threading.stack_size(256 * 1024)
        thread = threading.Thread(target=guarded)
        thread.start()
        thread.join()
        if failures:
            raise failures[0]
"""


@pytest.mark.parametrize(
    "kinds", [("call",), ("repeat",), ("conditional",), ("call", "repeat", "conditional"), ()], ids=str
)
def test_deepest_nesting_needs_a_quarter_of_a_megabyte_of_stack(kinds: tuple[str, ...]) -> None:
    """Building, analysing, printing, differentiating, compiling and running, in a thread of that size."""
    build = f"nest({kinds!r})" if kinds else "pure()"
    out = run_python(NESTS + f"\n    in_a_small_thread(lambda: use(*{build}))\n")
    assert out == ("[2.0, 2.0, 2.0]\n" if kinds else "[0.0, 0.0, 0.0]\n")


def test_deepest_nesting_of_what_drifts_needs_no_more() -> None:
    """Making the session crashed in a thread of that size."""
    out = run_python(NESTS + "\n    in_a_small_thread(lambda: warned(*drifting()))\n")
    assert out == "['ReplicaWarning']\n"


def test_one_level_more_is_refused() -> None:
    out = run_python(
        NESTS
        + """
    DEPTH = 200
    nest(("call",))
    DEPTH = 201
    try:
        nest(("call",))
    except popsr.errors.GraphError as error:
        print(error)
    """
    )
    assert out.startswith("call: calls are nested too deeply, got graph ")


# Odds


def many_at_once(n: int) -> popsr.Ir:
    """Sums whose operands all live at once."""
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        x, one = popsr.variable(np.ones(3, np.float32)), popsr.constant(np.ones(3, np.float32))
        terms = [ops.add(x, one) for _ in range(n // 2)]
        total = terms[0]
        for term in terms[1:]:
            total = ops.add(total, term)
        ops.host_store(popsr.d2h_stream((3,), F32), total)
    return ir


@pytest.mark.parametrize("check", [0, 0.0, -0.0, np.float32(0)])
def test_check_of_no_share_compares_nothing(check: Any) -> None:
    ir = many_at_once(8)
    with popsr.Session(ir, check=check) as session, popsr.Session(ir) as plain:
        assert session.plan == plain.plan


@pytest.mark.parametrize("make", ["variable", "temporary"])
def test_memory_errors_name_what_is_too_big(make: str) -> None:
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        if make == "variable":
            buffer = popsr.remote_buffer((2**55,), F32, 1)
            loaded = ops.remote_load(buffer, 0)
        else:
            loaded = ops.random_normal(popsr.constant([1, 2], popsr.uint32), (2**55,))
        ops.host_store(popsr.d2h_stream((), F32), ops.sum(loaded))
    with pytest.raises(
        MemoryError, match=r"^session: not enough memory, got a need of \d+ bytes at once for "
    ) as error:
        popsr.Session(ir)
    assert re.search(
        r" for (variable|temp.*) '.*' f32\[36028797018963968\], stored 1 time, expected less$",
        str(error.value),
    )
