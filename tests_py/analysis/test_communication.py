"""Messages between ranks that plans foretell; tests_py/mpi/same_bits.py compares them with what ranks move."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import ops
from popsr._support.host import message_sizes
from popsr.analysis import Communication, Traffic, communication
from popsr.ops import collectives
from tests_py import ROOT
from tests_py.support.helpers import run_python

NONE = Traffic(0, 0, 0, 0)
MESSAGE, CHAINS, OFFERS = 100, (1000, 60), 1 << 12
"""The largest message in bytes; bytes of values from which on they are reduced in a chain, elements of its chunks;
bytes that all ranks may give each other with their agreement."""


@pytest.fixture(autouse=True)
def small_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_sizes, "MESSAGE_BYTES", MESSAGE)
    monkeypatch.setattr(message_sizes, "CHAINS", CHAINS)


def shares(replicas: int, ranks: int) -> list[range]:
    """Consecutive replicas; the first ranks own one more."""
    ends = [0, *itertools.accumulate(replicas // ranks + (rank < replicas % ranks) for rank in range(ranks))]
    return [range(*pair) for pair in itertools.pairwise(ends)]


def add(total: dict[int, Traffic], sender: int, receiver: int, *sizes: int) -> None:
    """Values of these sizes go from one rank to another."""
    moved, messages = sum(sizes), sum(-(-size // MESSAGE) for size in sizes)
    total[sender] = Traffic(*map(sum, zip(total[sender], (moved, messages, 0, 0), strict=True)))
    total[receiver] = Traffic(*map(sum, zip(total[receiver], (0, 0, moved, messages), strict=True)))


def by_blocks(groups: list[list[int]], owned: list[range], size: int) -> dict[int, Traffic]:
    """Each rank is sent the values of the others' members of its groups."""
    total = dict.fromkeys(range(len(owned)), NONE)
    owner = {replica: rank for rank, own in enumerate(owned) for replica in own}
    for receiver, own in enumerate(owned):
        needed = {member for group in groups if set(group) & set(own) for member in group} - set(own)
        for member in sorted(needed):
            add(total, owner[member], receiver, size)
    return total


def by_gather(groups: list[list[int]], owned: list[range], size: int) -> dict[int, Traffic] | None:
    """Each rank gives all others the values that some of them need, padded to the most that a rank gives."""
    needed = {
        member
        for group in groups
        for own in owned
        if set(group) & set(own)
        for member in set(group) - set(own)
    }
    given = max(len(needed & set(own)) for own in owned) * size
    others = len(owned) - 1
    if given > OFFERS // len(owned):
        return None
    return dict.fromkeys(range(len(owned)), Traffic(others * given, others, others * given, others))


def by_chain(groups: list[list[int]], owned: list[range], size: int) -> dict[int, Traffic]:
    """Float32: chunks of partial results to the next rank of the group, results back."""
    total = dict.fromkeys(range(len(owned)), NONE)
    chunks = [min(4 * CHAINS[1], size - begin) for begin in range(0, size, 4 * CHAINS[1])]
    for group in groups:
        ranks = [rank for rank, own in enumerate(owned) if set(group) & set(own)]
        for a, b in itertools.pairwise(ranks):
            add(total, a, b, *chunks)
            add(total, b, a, *chunks)
    return total


def all_reduce(replicas: int, elements: int, **grouping: int) -> tuple[popsr.Ir, list[list[int]]]:
    """A program that reduces a value of each replica, and its groups."""
    ir = popsr.Ir(replication=replicas)
    group = ir.replica_grouping(**grouping)
    with ir.main_graph, popsr.in_sequence():
        value = ops.host_load(popsr.h2d_stream((elements,), popsr.float32))
        collectives.replicated_all_reduce(value, group=group)
    return ir, [np.flatnonzero(np.equal(group.assignment, g)).tolist() for g in range(group.num_groups)]


GROUPINGS: tuple[dict[str, int], ...] = (
    {},
    {"group_size": 2},
    {"stride": 2},
    {"stride": 3, "group_size": 2},
    {"group_size": 1},
)


@pytest.mark.parametrize("elements", [0, 3, 200, 249, 250, 400])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 12])
@pytest.mark.parametrize("grouping", GROUPINGS)
def test_reductions_move_what_their_algorithm_needs(
    grouping: dict[str, int], ranks: int, elements: int
) -> None:
    ir, groups = all_reduce(12, elements, **grouping)
    found = communication(ir, ranks=ranks)
    owned, size = shares(12, ranks), 4 * elements
    expected, algorithm = by_blocks(groups, owned, size), "blocks"
    most = max(each.received_bytes for each in expected.values())
    if size >= CHAINS[0] and most >= 3 * size:  # a few blocks are received at once
        expected, algorithm = by_chain(groups, owned, size), "chain"
    elif most and (gathered := by_gather(groups, owned, size)) is not None:
        expected, algorithm = gathered, "gather"
    if most:
        (exchange,) = found
        assert (exchange.algorithm, exchange.executions, exchange.is_bound) == (algorithm, 1, False)
        assert exchange.value_bytes == size
        assert dict(enumerate(exchange.ranks)) == expected
        assert exchange.most == Traffic(*map(max, zip(*expected.values(), strict=True)))
    for rank, moved in expected.items():
        assert list(found.traffic(rank).values()) == ([moved] if any(moved) else [])


def test_values_that_are_equal_move_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_sizes, "CHAINS", None)
    ir = popsr.Ir(replication=8)
    pairs = ir.replica_grouping(group_size=2)
    with ir.main_graph:
        w = popsr.variable(np.zeros((4, 1000), np.float32), name="w", replica_grouping=pairs)
        collectives.replicated_all_reduce(w)
    (exchange,) = communication(ir, ranks=8)
    # Replicas 0 and 1 hold one value: the lower rank sends it to the six ranks that do not.
    assert [each.sent_bytes for each in exchange.ranks] == [6 * 4000, 0] * 4
    assert {each.received_bytes for each in exchange.ranks} == {3 * 4000}


def test_loops_multiply_and_conditions_bound() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        stream = popsr.h2d_stream((3,), popsr.float32)
        w = popsr.variable(np.zeros((2, 3), np.float32), replica_grouping=ir.replica_grouping(group_size=1))

        def body(w: popsr.TensorByRef) -> None:
            ops.add_(w, collectives.replicated_all_reduce(w + ops.host_load(stream)))

        ops.repeat(ir.create_graph(body, w), 5, w)
        same = ops.equal(ops.sum(w), popsr.constant(0.0))
        ops.conditional(same, ir.create_graph(body, w), ir.create_graph(lambda w: None, w), [w], [w])
    found = communication(ir, ranks=2)
    rows = [(each.op.kind, each.executions, each.is_bound) for each in found]
    assert rows == [
        ("replicated_all_reduce", 5, False),
        ("conditional", 1, False),
        ("replicated_all_reduce", 1, True),
    ]
    assert found.traffic(1)[found.exchanges[0].op] == Traffic(60, 5, 60, 5)


def test_a_session_plans_with_its_own_facts_and_arguments() -> None:
    ir, _ = all_reduce(4, 6)
    with popsr.Session(ir) as session:
        assert session.traffic() == {}
        assert len(session.plan.communication()) == 0
        session.run({next(iter(session.expected_inputs())): np.zeros((4, 6), np.float32)})
        assert len(session.plan.communication(ranks=4)) == 0  # equal rows were fed
        session.run({next(iter(session.expected_inputs())): np.arange(24, dtype=np.float32).reshape(4, 6)})
        (exchange,) = session.plan.communication(ranks=4)
        assert exchange.most == Traffic(72, 3, 72, 3)
        assert exchange.algorithm == "gather"
        assert isinstance(session.plan, str)


def least(found: Communication, bandwidth: float, latency: float) -> float:
    return found.seconds(bandwidth=bandwidth, latency=latency)


def test_time_is_that_of_the_longest_path() -> None:
    ir, _ = all_reduce(4, 6)
    # Ranks tell each other in two rounds; three values arrive over one link.
    assert least(communication(ir, ranks=4), 24.0, 100.0) == 2 * 100 + 3
    ir, _ = all_reduce(4, 300)
    # The last of five chunks of 60 goes six hops after the first rank has sent it.
    assert least(communication(ir, ranks=4), 1.0, 1e6) == pytest.approx(6e6 + 1200 + 5 * 240)
    # The second rank sends the value forward and the result back, and waits for four hops of the last chunk.
    assert least(communication(ir, ranks=4), 1.0, 1e-6) == pytest.approx(4e-6 + 2400 + 3 * 240)
    (exchange,) = communication(ir, ranks=4)
    assert exchange.limit(bandwidth=1.0, latency=1e6) == "latency"
    assert exchange.limit(bandwidth=1e-6, latency=1.0) == "bandwidth"


def test_tables_have_a_row_for_each_line() -> None:
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        value = ops.host_load(popsr.h2d_stream((1000,), popsr.float64))
        for _ in range(3):
            value = collectives.replicated_all_reduce(value * value, group=ir.replica_grouping(stride=2))
            value = value * ops.host_load(popsr.h2d_stream((1000,), popsr.float64))
        ops.print_tensor(value)
    found = communication(ir, ranks=4)
    assert [len(row) for row in found.lines()] == [3, 1]
    assert repr(found) == "Communication[4 ranks 4 exchanges 32 kB 320 messages sent by a rank]"
    text = found.table(bandwidth=1e9, latency=1e-6)
    assert "2 of 2, stride 2" in text
    assert text.splitlines()[2].split()[0] == "replicated_all_reduce"
    assert str(found).splitlines()[1].split()[:2] == ["op", "line"]


BAD: tuple[tuple[Any, str], ...] = (
    (lambda ir: communication(ir, ranks=0), "communication: ranks: got 0, expected an int from 1 to 4"),
    (lambda ir: communication(ir, ranks=5), "communication: ranks: got 5, expected an int from 1 to 4"),
    (lambda ir: communication(ir.main_graph, ranks=2), "communication: ir is not an Ir, got"),
    (lambda ir: communication(ir, ranks=2).traffic(2), "traffic: rank: got 2, expected an int from 0 to 1"),
    (lambda ir: least(communication(ir, ranks=2), 0.0, 1.0), "seconds: bandwidth is not positive, got 0.0"),
    (
        lambda ir: least(communication(ir, ranks=2), 1.0, float("nan")),
        "seconds: latency is not positive, got nan",
    ),
    (
        lambda ir: popsr.Session(ir).plan.communication(ranks=9),
        "communication: ranks: got 9, expected an int",
    ),
)


@pytest.mark.parametrize(("call", "text"), BAD)
def test_bad_arguments_are_refused(call: Any, text: str) -> None:
    ir, _ = all_reduce(4, 6)
    with pytest.raises(popsr.Error) as error:
        call(ir)
    assert str(error.value).startswith(text)


def plan(*arguments: str) -> tuple[int, str]:
    """Exit status and lines of the command."""
    program = f"""
import sys
from popsr.__main__ import main
sys.stderr = sys.stdout
try:
    status = main({["plan", *arguments]!r})
except SystemExit as end:
    status = end.code
print(status)
"""
    *lines, status = run_python(program).splitlines()
    return int(status), "\n".join(lines)


def test_the_command_plans_a_step_of_gpt_3() -> None:
    example = str(ROOT / "examples/plan_gpt.py")
    status, text = plan(
        example, "gpt3", "--ranks", "1024", "--ranks", "8", "--bandwidth", "25e9", "--latency", "2e-6"
    )
    assert status == 0
    lines = text.splitlines()
    assert lines[0] == "1024 replicas; 25 GB/s in each direction, 2 µs a message"
    # Twice a layer forward, twice backward, of 12 micro batches; and 8 weights of each layer and the words.
    assert lines[1].startswith(f"Communication[1024 ranks {4 * 96 * 12 + 8 * 96 + 1} exchanges ")
    assert sum(line.startswith("Communication[") for line in lines) == 2
    rows = [line.split() for line in lines if "identical_grad_inputs" in line]
    assert rows[0][2:5] == ["128", "of", "8"]
    assert rows[0][7:9] == ["chain", "2304"]
    # A rank in the middle sends partial results of 4 bytes and results of 2: 2048 x 12288 of them, 2304 times.
    assert rows[0][9:11] == [f"{6 * 2048 * 12288 * 2304 / 1e9:.0f}", "GB"]


COMMANDS: tuple[tuple[list[str], str], ...] = (
    (["none.py", "--ranks", "2"], "popsr: run: no such program, got 'none.py', expected a Python script"),
    (["--ranks", "0", "none.py"], "argument --ranks: invalid positive int value: '0'"),
    (["none.py"], "the following arguments are required: --ranks"),
    (
        ["none.py", "--ranks", "2", "--latency", "nan"],
        "argument --latency: invalid positive float value: 'nan'",
    ),
)


@pytest.mark.parametrize(("arguments", "text"), COMMANDS)
def test_the_command_refuses(arguments: list[str], text: str) -> None:
    status, out = plan(*arguments)
    assert status == 2
    assert text in out


def test_the_command_takes_the_session_that_is_asked_for(tmp_path: Any) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        """
import sys
import popsr
from popsr import ops
for replicas in map(int, sys.argv[1:]):
    ir = popsr.Ir(replication=replicas)
    with ir.main_graph:
        ops.collectives.replicated_all_reduce(ops.host_load(popsr.h2d_stream((2,), popsr.float32)))
    with popsr.Session(ir):
        print("a session of", replicas)
"""
    )
    status, out = plan(str(script), "--session", "2", "--ranks", "3", "--", "2", "3")
    assert (status, out.splitlines()[:2]) == (
        0,
        ["a session of 2", "3 replicas; 25 GB/s in each direction, 2 µs a message"],
    )
    status, out = plan(str(script), "--ranks", "3", "--session", "2", "3")
    assert (status, out.splitlines()[-1]) == (
        2,
        "popsr: plan: the program made 1 sessions, expected 2 or more",
    )
    status, out = plan(str(script), "--ranks", "3", "2")
    assert (status, out.splitlines()[-1]) == (
        2,
        "popsr: communication: ranks: got 3, expected an int from 1 to 2",
    )
