"""Collectives that write where they read: every member reads all of its group before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import TensorByRef, ops, transforms
from popsr._program.options.options import RoundingMode
from popsr.ops import collectives
from tests_py.support.helpers import assert_same_bits

BF16 = popsr.bfloat16
MODES: tuple[RoundingMode, ...] = ("partition", "popart", "identical")


def rounding_ir(replicas: int, mode: RoundingMode) -> popsr.Ir:
    ir = popsr.Ir(replication=replicas)
    ir.options.enable_stochastic_rounding = True
    ir.options.stochastic_rounding_mode = mode
    return ir


def test_sums_whose_members_round_alone() -> None:
    """Gave 3, 5, 7 and 11: the second member of a pair read what the first had written."""
    ir = rounding_ir(4, "popart")
    with ir.main_graph, popsr.in_sequence():
        stream, out = popsr.h2d_stream((), BF16), popsr.d2h_stream((), BF16)
        x = ops.host_load(stream)
        collectives.replicated_all_reduce_(x, "add", ir.replica_grouping(group_size=2))
        ops.host_store(out, x)
    with popsr.Session(ir) as session:
        result = session.run({stream: np.array([1, 2, 3, 4], BF16.as_numpy())})[out]
    assert result.astype(float).tolist() == [3, 3, 7, 7]


Build = Callable[[popsr.Ir, list[popsr.Tensor], popsr.ReplicaGrouping], Any]


def plain(ir: popsr.Ir, xs: list[popsr.Tensor], group: popsr.ReplicaGrouping) -> None:
    for x in xs:
        collectives.replicated_all_reduce_(x, "mean", group)


def merged(ir: popsr.Ir, xs: list[popsr.Tensor], group: popsr.ReplicaGrouping) -> None:
    plain(ir, xs, group)
    assert transforms.merge_collectives(ir) == len(xs) - 1


def of_views(ir: popsr.Ir, xs: list[popsr.Tensor], group: popsr.ReplicaGrouping) -> None:
    for x in xs:
        collectives.replicated_all_reduce_(ops.slice_(x, 1, 4), "add", group)
        collectives.replicated_all_reduce_(x.reshape_((5, 1)), "max", group)


def in_a_loop(ir: popsr.Ir, xs: list[popsr.Tensor], group: popsr.ReplicaGrouping) -> None:
    def body(x: TensorByRef) -> None:
        collectives.replicated_all_reduce_(x, "add", group)
        ops.scaled_add_(x, x, b=-0.7)

    for x in xs:
        ops.repeat(ir.create_graph(body, x), 3, x)


def in_a_branch(ir: popsr.Ir, xs: list[popsr.Tensor], group: popsr.ReplicaGrouping) -> None:
    def body(x: TensorByRef) -> None:
        collectives.replicated_all_reduce_(x, "square_add", group)

    taken = popsr.variable(np.arange(group.num_groups) % 2 == 0, popsr.bool, "taken", replica_grouping=group)
    for x in xs:
        graph = ir.create_graph(body, x)
        ops.conditional(taken, graph, ir.create_empty_graph(), [x])


def of_products(ir: popsr.Ir, xs: list[popsr.Tensor], group: popsr.ReplicaGrouping) -> None:
    for x in xs:
        square = ops.matmul(x.reshape((5, 1)), x.reshape((1, 5)))
        collectives.replicated_all_reduce_(square, "mean", group)
        ops.var_updates.copy_var_update_(x, ops.sum(square, axis=0))


@pytest.mark.parametrize("build", [plain, merged, of_views, in_a_loop, in_a_branch, of_products])
@pytest.mark.parametrize("mode", MODES)
def test_storing_equal_values_once_changes_no_bit(build: Build, mode: RoundingMode) -> None:
    for replicas, stride, size in [(4, 1, 2), (4, 2, 2), (6, 3, 2), (6, 1, 6), (8, 2, 4), (3, 1, 1)]:
        ir = rounding_ir(replicas, mode)
        group = ir.replica_grouping(stride, size)
        rng = np.random.default_rng(replicas)
        with ir.main_graph, popsr.in_sequence():
            streams = [popsr.h2d_stream((5,), BF16) for _ in range(2)]
            xs = [ops.host_load(stream) for stream in streams]
            build(ir, xs, group)
            outs = [popsr.d2h_stream((5,), BF16) for _ in xs]
            for out, x in zip(outs, xs, strict=True):
                ops.host_store(out, x)
        data = {stream: rng.normal(size=(replicas, 5)).astype(BF16.as_numpy()) for stream in streams}
        results = []
        for options in ({"dedup": False, "num_threads": 1}, {}, {"check": True}, {"num_threads": 3}):
            with popsr.Session(ir, **options) as session:
                results.append([session.run(data) for _ in range(2)])
        for other in results[1:]:
            for got, expect in zip(other, results[0], strict=True):
                for out in outs:
                    assert_same_bits(got[out], expect[out], f"{replicas} {stride} {size}")


def test_values_are_staged_only_where_members_are_blocks_of_their_own() -> None:
    """Reducing in place in a whole group at once needs no second buffer."""
    bytes_of = {}
    for mode in MODES:
        for dedup in (True, False):
            ir = rounding_ir(4, mode)
            with ir.main_graph, popsr.in_sequence():
                x = ops.host_load(popsr.h2d_stream((4096,), BF16))
                collectives.replicated_all_reduce_(x, "mean", ir.replica_grouping(1, 2))
            bytes_of[mode, dedup] = popsr.Session(ir, dedup=dedup).memory()["activations"]
    whole = 4 * 4096 * 2
    assert bytes_of == {
        (mode, dedup): 2 * whole if mode == "popart" or not dedup else whole
        for mode in MODES
        for dedup in (True, False)
    }
