"""``Session(profile=True)`` counts and times each instruction, and changes no bit."""

from __future__ import annotations

import numpy as np
import pytest

import popsr
from popsr import ops
from popsr.errors import SessionError
from popsr.ops import var_updates

REPLICAS, ROWS, WIDTH = 2, 8, 16


BODY = 29  # line of the loop's body


def loop_of_products(ir: popsr.Ir) -> popsr.HostToDeviceStream:
    """A product and an addition in a loop of three iterations, then an update by a product."""
    with ir.main_graph, popsr.in_sequence():
        stream = popsr.h2d_stream((ROWS, WIDTH), popsr.float32, "x")
        x = ops.host_load(stream)
        values = np.stack([np.eye(WIDTH, dtype=np.float32)] * REPLICAS)
        alone = ir.replica_grouping(group_size=1)
        w = popsr.variable(values, name="w", replica_grouping=alone)

        def body(t: popsr.Tensor, w: popsr.Tensor) -> popsr.Tensor:
            return ops.add(ops.matmul(t, w), t)

        (y,) = ops.repeat(ir.create_graph(body, x, w), 3, x, w)
        var_updates.accumulate_(w, ops.matmul(ops.transpose(x), y))
    return stream


def run(profile: bool, times: int = 2) -> tuple[popsr.Session, np.ndarray]:
    ir = popsr.Ir(replication=REPLICAS)
    stream = loop_of_products(ir)
    data = np.random.default_rng(0).normal(size=(REPLICAS, ROWS, WIDTH)).astype(np.float32)
    session = popsr.Session(ir, profile=profile)
    with session:
        for _ in range(times):
            session.run({stream: data})
    (w,) = ir.main_graph.variables
    return session, session.get_tensor_data(w, replicas="all")


def test_counts_of_instructions() -> None:
    session, _ = run(True)
    profile = session.profile()
    assert profile.runs == 2
    rows = {row.name: row for row in profile.kinds}
    assert set(rows) == {"host_load", "matmul", "add", "transpose", "matmul+accumulate_", "copy"}
    assert (rows["matmul"].executions, rows["matmul"].blocks) == (6, 6 * REPLICAS)
    product = 2 * ROWS * WIDTH * WIDTH
    assert rows["matmul"].flops == 6 * REPLICAS * product
    rows_bytes = 4 * ROWS * WIDTH * REPLICAS
    assert rows["add"].bytes == 6 * 3 * rows_bytes
    assert rows["host_load"].flops == 0
    assert "matmul+accumulate_" in str(profile)
    assert "between instructions" in str(profile)


def test_times_are_shares_of_the_runs() -> None:
    profile = run(True)[0].profile()
    assert all(row.seconds > 0 for row in profile)
    total = sum(row.seconds for row in profile)
    assert total <= profile.seconds
    assert profile.between == pytest.approx(profile.seconds - total)
    for rows in (profile.kinds, profile.lines):
        assert sum(row.seconds for row in rows) == pytest.approx(total)
        assert sum(row.executions for row in rows) == sum(row.executions for row in profile)
        assert [row.seconds for row in rows] == sorted((row.seconds for row in rows), reverse=True)


def test_lines_are_of_the_program() -> None:
    profile = run(True)[0].profile()
    copies = {row.location for row in profile if row.name == "copy"}
    assert copies == {""}  # of values that a loop carries
    executions = {row.location.rpartition(":")[0]: 0 for row in profile.lines}
    assert set(executions) == {"", __file__}
    of_body = [row.executions for row in profile.lines if row.name == f"test_profile.py:{BODY}"]
    assert of_body == [12]  # a product and an addition in 3 iterations of 2 runs


def test_no_bit_changes() -> None:
    np.testing.assert_array_equal(run(False)[1], run(True)[1])


def test_before_the_first_run() -> None:
    profile = run(True, 0)[0].profile()
    assert (profile.runs, profile.seconds, profile.instructions) == (0, 0.0, ())
    assert "0 runs" in str(profile)


def test_session_without_profile() -> None:
    session, _ = run(False, 0)
    with pytest.raises(
        SessionError, match=r"^profile: .*got profile=False, expected Session\(..., profile=True\)$"
    ):
        session.profile()


def test_profile_must_be_a_flag() -> None:
    ir = popsr.Ir(replication=REPLICAS)
    loop_of_products(ir)
    with pytest.raises(TypeError, match=r"^Session: profile is not a bool"):
        popsr.Session(ir, profile=np.ones(2))  # type: ignore[arg-type]
