"""L1: a collective or stream that some members of a group may skip.

Programs without a comment ``lint`` are near misses.
"""

from typing import Literal

import numpy as np

import popsr
from popsr import ops, transforms
from popsr.ops import collectives

F32 = popsr.float32


def _condition(name: str, mode: Literal["replicate", "broadcast"]) -> popsr.Tensor:
    """A condition that is loaded."""
    return ops.host_load(popsr.h2d_stream((), popsr.bool, name, replicated_stream_mode=mode))


def _rows(ir: popsr.Ir) -> popsr.Variable:
    """A variable with a value for each pair of replicas."""
    return popsr.variable(
        np.zeros((2, 4), np.float32), name="rows", replica_grouping=ir.replica_grouping(1, 2)
    )


def collective_that_some_members_may_skip(ir: popsr.Ir, w: popsr.Variable) -> None:
    # lint L1, 1 groups: replicated_all_reduce needs all members of a group, but conditional at @conditional parts them
    #     by its condition 'own_load', so that only {0}{1}{2}{3} certainly run it together: 1 of 1 groups may not meet;
    #     take it out of there
    reduce = ir.create_graph(lambda a: collectives.replicated_all_reduce(a, "max"), w)
    same = ir.create_graph(lambda a: ops.relu(a), w)
    own = _condition("own", "replicate")
    # line: conditional
    ops.conditional(own, reduce, same, [w], [w])


def collective_that_all_take_or_none(ir: popsr.Ir, w: popsr.Variable) -> None:
    reduce = ir.create_graph(lambda a: collectives.replicated_all_reduce(a, "max"), w)
    same = ir.create_graph(lambda a: ops.relu(a), w)
    shared = _condition("shared", "broadcast")
    ops.conditional(shared, reduce, same, [w], [w])


def groups_that_may_part_inside_a_call_in_a_branch(ir: popsr.Ir, w: popsr.Variable) -> None:
    pairs = ir.replica_grouping(1, 2).transpose()
    # lint L1, 2 groups: conditional at @conditional parts them by its condition 'cast_out', so that only {0,1}{2,3}
    #     certainly run it together: 2 of 2 groups may not meet
    inner = ir.create_graph(lambda a: collectives.replicated_all_reduce(a, "max", pairs), w)
    outer = ir.create_graph(lambda a: ops.call(inner, a)[0], w)
    c = ops.cast(ops.slice(_rows(ir), 0, 1), popsr.bool)
    # line: conditional
    ops.conditional(c, outer, ir.create_graph(lambda a: ops.relu(a), w), [w], [w])


def groups_that_stay_together(ir: popsr.Ir, w: popsr.Variable) -> None:
    pairs = ir.replica_grouping(1, 2)
    inner = ir.create_graph(lambda a: collectives.replicated_all_reduce(a, "max", pairs), w)
    outer = ir.create_graph(lambda a: ops.call(inner, a)[0], w)
    c = ops.cast(ops.slice(_rows(ir), 0, 1), popsr.bool)
    ops.conditional(c, outer, ir.create_graph(lambda a: ops.relu(a), w), [w], [w])


def part_of_a_merged_collective(ir: popsr.Ir, w: popsr.Variable) -> None:
    same = ir.create_graph(lambda a: ops.relu(a), w)
    own = _condition("own", "replicate")
    both = ir.create_graph(
        lambda a: ops.add(
            # lint L1, 1 groups: replicated_all_reduce needs all members of a group, but conditional at @conditional
            #     parts them
            collectives.replicated_all_reduce(a),
            collectives.replicated_all_reduce(ops.relu(a), "add", ir.replica_grouping(1, 1)),
        ),
        w,
    )
    # line: conditional
    ops.conditional(own, both, same, [w], [w])
    transforms.merge_collectives(ir)


def slice_that_needs_no_other_replica(ir: popsr.Ir, w: popsr.Variable) -> None:
    same = ir.create_graph(lambda a: ops.relu(a), w)
    own = _condition("own", "replicate")
    part = ir.create_graph(lambda a: ops.add(a, collectives.replicated_slice(a)), w)
    ops.conditional(own, part, same, [w], [w])


def stream_that_some_replicas_may_skip(ir: popsr.Ir, w: popsr.Variable) -> None:
    same = ir.create_graph(lambda a: ops.relu(a), w)
    own = _condition("own", "replicate")
    # lint L1, 1 groups: host_load moves on in its stream, but conditional at @conditional parts them by its condition
    #     'own_load', so that only {0}{1}{2}{3} certainly run it together: replicas that skip it stay behind the others
    load = ir.create_graph(lambda a: ops.host_load(popsr.h2d_stream((4,), F32, "y")), w)
    # line: conditional
    ops.conditional(own, load, same, [w], [w])


def stream_that_all_take_or_none(ir: popsr.Ir, w: popsr.Variable) -> None:
    same = ir.create_graph(lambda a: ops.relu(a), w)
    shared = _condition("shared", "broadcast")
    load = ir.create_graph(lambda a: ops.host_load(popsr.h2d_stream((4,), F32, "y")), w)
    ops.conditional(shared, load, same, [w], [w])
