"""The random programs that ranks run have what they are there for; this needs no MPI."""

from __future__ import annotations

from collections import Counter

from tests_py.mpi.rank_programs import OWN_KINDS, REPLICAS, of_number, program_of
from tests_py.support.programs.random_operands import ROUNDING
from tests_py.support.programs.random_programs import KINDS

PROGRAMS = range(200)
OPS = """
    accumulate_ adam_updater add_ conditional copy_var_update_ dropout host_load host_store matmul
    random_normal random_uniform remote_load remote_load_ remote_store repeat replica_index replica_sharded_slice
    replicated_all_gather replicated_all_reduce replicated_all_reduce_ replicated_all_reduce_identical_inputs
    replicated_all_to_all replicated_broadcast replicated_permute replicated_reduce_scatter replicated_scan
    replicated_slice scaled_add_ softmax while_loop
"""


def test_each_kind_of_step_is_in_them() -> None:
    kinds: Counter[str] = Counter()
    ops: set[str] = set()
    groups = 0
    for number in PROGRAMS:
        program = of_number(number)
        if program is None:
            continue
        kinds += program.kinds
        ir = program.ir
        ops |= {op.kind for graph in [ir.main_graph, *ir._graph_cache.values()] for op in graph.ops}
        streams = [*ir.get_all_h2d_streams(), *ir.get_all_d2h_streams()]
        groups += sum(not isinstance(stream.replicated_stream_mode, str) for stream in streams)
    assert {kind: kinds[kind] for kind in (*KINDS, *OWN_KINDS) if kinds[kind] < 10} == {}
    assert set(OPS.split()) - ops == set()
    assert groups > 50


def test_they_are_of_all_modes_and_of_numbers_that_ranks_do_not_divide() -> None:
    axes = [program_of(number)[0] for number in PROGRAMS]
    assert {each.rounding for each in axes} == set(ROUNDING)
    assert {each.replicas for each in axes} == set(REPLICAS)
    for ranks in (2, 3, 4):
        assert sum(each.replicas % ranks > 0 for each in axes) > 40
