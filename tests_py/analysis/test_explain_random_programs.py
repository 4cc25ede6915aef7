"""Random programs: every pair that is not proved equal has a path to a root, and each edge is real dataflow."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr._program.op import Op
from popsr.analysis import Explanation, ExplanationStep, PartitionAnalysis, analyze
from tests_py.analysis.test_soundness import INDEX, KINDS, NARROW, Program, Step
from tests_py.program.conditionals.test_random_programs import Expected
from tests_py.program.test_merge import WRITES
from tests_py.support.programs.branches import STEPS, Data, Emitter

# Kinds of the core.
_VARIABLE, _SHARD, _REMOTE = "variable", "shard", "remote"


def _storage(t: popsr.Tensor) -> popsr.Tensor:
    return t._ir._tensor(t._ir._core.tensor(t._id).storage)


def _kind(t: popsr.Tensor) -> str:
    return t._ir._core.tensor(t._id).kind


def _operands(op: Op) -> set[popsr.Tensor]:
    return {_storage(t) for t in op.inputs if t is not None}


_VIEWS = {"slice_", "reshape_", "flatten_", "transpose_", "detach_", "concat_"}


def _memory(t: popsr.Tensor) -> set[popsr.Tensor]:
    """The tensors whose memory it is, by the ops that make views."""
    storage = _storage(t)
    producer = storage._ir._core.tensor(storage._id).producer
    if producer is None or (op := Op(storage._ir, producer)).kind not in _VIEWS:
        return {storage}
    return {root for operand in op.inputs if operand is not None for root in _memory(operand)}


def _group(step: ExplanationStep, replica: int) -> list[int]:
    """The members of a replica's group of a collective."""
    assert step.op is not None
    labels = (step.op.attributes["group"] or step.tensor._ir.replica_grouping()).assignment
    return [r for r, label in enumerate(labels) if label == labels[replica]]


_OWN_VALUE = {
    "replicated_gather_grad",
    "replicated_slice",
    "replica_sharded_slice",
    "replicated_all_reduce_identical_inputs",
    "replicated_identical_grad",
}


def _members(step: ExplanationStep, next: ExplanationStep) -> None:
    """The pair stays, or moves to those that sent the values."""
    assert step.op is not None
    for replica, sender in zip(step.replicas, next.replicas, strict=True):
        if step.op.kind == "replicated_permute":
            assert step.op.attributes["mapping"][sender] == replica
        elif step.op.kind == "replicated_broadcast":
            assert _group(step, replica)[step.op.attributes["root"]] == sender
        elif "group" in step.op.attributes and step.op.kind not in _OWN_VALUE:
            assert sender in _group(step, replica)
        else:
            assert sender == replica
    if "group" in step.op.attributes:
        places = {_group(step, sender).index(sender) for sender in next.replicas}
        assert len(places) == 1 or step.op.kind in _OWN_VALUE


_GRAPHS = ("graph", "then_branch", "else_branch")


def check_edge(step: ExplanationStep, next: ExplanationStep) -> None:
    """`next` is something that the value of `step` is made of, by the program's text alone."""
    op, target = step.op, next.tensor
    if step.kind in ("op", "write", "store"):
        assert op is not None
        if op.kind in _VIEWS:
            assert target in _memory(step.tensor)
            return None
        left_alone = target == step.tensor and "left alone in part" in step.text
        remote = _kind(target) == _REMOTE and op.kind.startswith("remote_")
        assert target in _operands(op) or remote or left_alone
        if step.kind == "write":
            assert step.tensor in {root for t in op.outputs for root in _memory(t)}
        return None if left_alone else _members(step, next)
    assert next.replicas == step.replicas
    if step.kind == "run":
        assert target == step.tensor
        assert _kind(target) in (_VARIABLE, _SHARD, _REMOTE)
        return None
    assert op is not None
    graphs = [step.tensor._ir._graph(op.attributes[name]) for name in _GRAPHS if name in op.attributes]
    inputs = {t for graph in graphs for t in graph.inputs}
    outputs = {t for graph in graphs for t in graph.outputs}
    remote = _kind(target) == _REMOTE and target == step.tensor
    if step.kind == "call":
        inside = {_storage(t) for t in outputs | inputs} | {
            root for t in outputs | inputs for root in _memory(t)
        }
        left_alone = target == step.tensor
        assert remote or target in inside or left_alone or op.attributes.get("count") == 0
    elif step.kind == "argument":
        assert remote or (step.tensor in inputs and target in _operands(op))
    else:
        assert step.kind == "iteration"
        assert remote or step.tensor in inputs
        assert remote or target in {_storage(t) for t in (*outputs, step.tensor)}
    return None


_PARTS = {
    "replicated_reduce_scatter",
    "replicated_gather_grad",
    "replicated_all_to_all",
    "replicated_slice",
    "replica_sharded_slice",
}


def check_divergence(facts: PartitionAnalysis, found: Explanation) -> None:
    """The two may take different branches of a conditional around the value, or else of the one that left it."""
    assert found.root is not None
    last = found.steps[-1]
    r, s = last.replicas
    if _kind(last.tensor) == _REMOTE and last.kind != "call":
        return  # in some graph that a branch runs
    graph = last.tensor._ir._graph(last.tensor._ir._core.tensor(last.tensor._id).graph)
    together = [context.execution.labels for context in facts.contexts(graph)]
    if any(labels[r] != labels[s] for labels in together):
        return
    assert last.op is not None
    assert (last.op.kind, last.op.location) == ("conditional", found.root.location)
    condition = last.op.inputs[0]
    assert condition is not None
    labels = facts.partition(condition, before=last.op).labels
    assert labels[r] != labels[s]


def check_root(facts: PartitionAnalysis, found: Explanation) -> None:
    """The last step is by itself a reason why the two differ."""
    assert found.root is not None
    last = found.steps[-1]
    r, s = last.replicas
    if found.root.kind == "stream":
        assert last.op is not None
        assert last.op.kind == "host_load"
    elif found.root.kind == "uninitialised":
        assert last.op is not None
        assert last.op.attributes["init_type"] == "undef"
    elif found.root.kind == "part":
        assert last.op is not None
        assert last.op.kind in _PARTS
        assert _group(last, r).index(r) != _group(last, s).index(s)
    elif found.root.kind == "zeros":
        assert last.op is not None
        assert last.op.kind == "replicated_permute"
        assert len({r, s} & set(last.op.attributes["mapping"])) == 1
    elif found.root.kind == "own_value":
        assert last.op is not None
        assert last.op.kind == "replica_index"
        same_group = _group(last, r) == _group(last, s)
        same_index = _group(last, r).index(r) == _group(last, s).index(s)
        assert not (same_group if last.op.attributes["what"] == "group" else same_index)
    elif found.root.kind == "seeds":
        assert last.op is not None
        seeds = last.op.seed_partition
        assert seeds is not None
        assert seeds.labels[r] != seeds.labels[s]
    elif found.root.kind == "divergence":
        check_divergence(facts, found)
    elif found.root.kind == "position":
        assert last.op is not None
        stream = last.op.attributes["h2d_stream"]
        assert facts.ir._stream_cache[stream].replicated_stream_mode == "broadcast"
        assert "conditional at" in found.root.text
    else:
        assert found.root.kind == "variable"
        assert isinstance(last.tensor, popsr.Variable)
        labels = last.tensor.replica_grouping.assignment
        assert labels[r] != labels[s]


def check_pairs(facts: PartitionAnalysis, t: popsr.Tensor, roots: Counter[str]) -> None:
    partition = facts.partition(t)
    for r, s in itertools.combinations(range(partition.num_replicas), 2):
        found = facts.explain(t, r, s)
        assert found.equal == (partition.labels[r] == partition.labels[s])
        if found.root is None:
            continue
        for step, next in itertools.pairwise(found.steps):
            assert step.partition.labels[step.replicas[0]] != step.partition.labels[step.replicas[1]]
            check_edge(step, next)
        check_root(facts, found)
        roots[found.root.kind] += 1


MODES: tuple[Literal["partition", "popart", "identical"], ...] = ("partition", "popart", "identical")


def build_program(n: int, name: str, seed: int, steps: list[Step], *, merge: bool = False) -> Program:
    """In which only what modifies tensors is in a fixed order, so that exchanges can be merged."""
    program = Program(n, name, seed)
    with program.ir.main_graph, popsr.in_sequence():
        program.inputs()
        for step in steps:
            with popsr.in_sequence(step[0] in WRITES):
                program.append(step)
    if merge:
        popsr.transforms.merge_collectives(program.ir)
        popsr.transforms.merge_exchange(ir=program.ir)
    if name in NARROW:
        program.ir.options.stochastic_rounding_mode = MODES[seed % 3]
        popsr.transforms.stochastic_rounding(program.ir)
    return program


def explain_all(facts: PartitionAnalysis, pool: list[popsr.Tensor]) -> Counter[str]:
    """Roots of all pairs of the tensors and of those in graphs that run."""
    roots = Counter[str]()
    graphs, inside = [facts.ir.main_graph], list(pool)
    for graph in graphs:
        called = [g for g in graph.called_graphs if g not in graphs and facts.contexts(g)]
        inside += [t for g in called for t in g.tensors]
        graphs += called
    for t in inside:
        for time, _, partition in facts.values(t):
            assert facts.partition(t, time=time) == partition
        check_pairs(facts, t, roots)
    for lint in facts.warnings:
        assert lint.cost > 0
        assert lint.location
        assert "\n" not in str(lint)
    return roots


def check_program(n: int, name: str, seed: int, steps: list[Step]) -> Counter[str]:
    program = build_program(n, name, seed, steps, merge=seed % 2 == 1)
    return explain_all(analyze(program.ir), program.pool)


PROGRAMS = {
    "n": st.sampled_from([2, 3, 4, 6]),
    "name": st.sampled_from(["float32", "bfloat16"]),
    "seed": st.integers(0, 999),
    "steps": st.lists(st.tuples(st.sampled_from(KINDS), INDEX, INDEX, INDEX), min_size=5, max_size=12),
}


@given(**PROGRAMS)
@settings(max_examples=100, derandomize=True, deadline=None, database=None)
def test_every_difference_of_random_programs_is_explained(
    n: int, name: str, seed: int, steps: list[Step]
) -> None:
    check_program(n, name, seed, steps)


@pytest.mark.slow
@given(**PROGRAMS)
@settings(max_examples=5000, derandomize=True, deadline=None, database=None)
@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # they drift as it happens
def test_every_difference_of_many_random_programs_is_explained(
    n: int, name: str, seed: int, steps: list[Step]
) -> None:
    check_program(n, name, seed, steps)


def every_kind(first: int) -> list[Step]:
    indices: list[Step] = [("zeros", 0, 0, 0), ("index", 5, 0, 1)]  # of equal data: only the index differs
    return indices + [(kind, 3 * i + first, 5 * i + 1, i) for i, kind in enumerate(KINDS)]


def test_random_programs_have_roots_of_many_kinds() -> None:
    """The property above is not empty."""
    roots = sum(
        (check_program(6, "bfloat16", first, every_kind(first)) for first in range(3)), Counter[str]()
    )
    assert sum(roots.values()) > 300
    expect = {"stream", "variable", "uninitialised", "part", "zeros", "own_value", "divergence", "seeds"}
    assert expect <= set(roots)


@pytest.mark.parametrize("seed", range(4))
def test_merging_changes_no_explanation(seed: int) -> None:
    """The parts of a merged op are what they were, at their lines."""
    texts, lengths = [], []
    for merge in (False, True):
        program = build_program(6, "float32", seed, every_kind(seed), merge=merge)
        facts = analyze(program.ir)
        texts.append([str(facts.explain(t, 0, s)) for t in program.pool for s in range(1, 6)])
        texts[-1] += sorted(map(str, facts.warnings))
        lengths.append(len(program.ir.main_graph.ops))
    assert lengths[1] < lengths[0]
    assert texts[1] == texts[0]


# Branches

BRANCHES = {"n": st.sampled_from([2, 3, 4]), "seed": st.integers(0, 9999), "steps": STEPS}


def check_branches(n: int, seed: int, steps: list[Any]) -> Counter[str]:
    """Explains everything; a program that gets stuck has a lint that said so."""
    data = Data(n, steps, seed)
    emitter = Emitter(data)
    facts = analyze(emitter.ir)
    roots = explain_all(facts, [*emitter.pool, *emitter.variables])
    parted = [lint for lint in facts.warnings if lint.code == "L1" and "needs all members" in lint.text]
    assert parted or None not in Expected(data).runs
    return roots


@given(**BRANCHES)
@settings(max_examples=75, derandomize=True, deadline=None, database=None)
def test_every_difference_of_branches_is_explained(n: int, seed: int, steps: list[Any]) -> None:
    check_branches(n, seed, steps)


@pytest.mark.slow
@given(**BRANCHES)
@settings(max_examples=4000, derandomize=True, deadline=None, database=None)
def test_every_difference_of_many_branches_is_explained(n: int, seed: int, steps: list[Any]) -> None:
    check_branches(n, seed, steps)


def test_branches_have_roots_of_their_own() -> None:
    """The property above is not empty: conditions part replicas, and streams stand still for some."""
    branch = ("branch", 3, 0, 0, [("load_shared", 0, 0, 0)], [("negate", 0, 0, 0)])
    roots = check_branches(4, 7, [branch, ("load_shared", 0, 0, 0), ("add", 5, 5, 0)])
    assert {"divergence", "position", "stream"} <= set(roots)
