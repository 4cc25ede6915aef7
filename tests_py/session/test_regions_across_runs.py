"""A variable with one unequal half keeps its equal half from run to run, until the host writes it."""

from __future__ import annotations

import numpy as np
import pytest

import popsr
from popsr import ops
from popsr.ops import var_updates

REPLICAS = 4

pytestmark = pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")


class Halves:
    """A program that writes its own samples into the first half of a variable and reads both halves."""

    def __init__(self, in_call: bool) -> None:
        self.ir = popsr.Ir(replication=REPLICAS)
        with self.ir.main_graph, popsr.in_sequence():
            self.samples = popsr.h2d_stream((65,), popsr.float32, name="samples")
            own_rows = self.ir.replica_grouping(group_size=1)
            zeros = np.zeros((REPLICAS, 130), np.float32)
            self.w = popsr.variable(zeros, name="w", replica_grouping=own_rows)
            own = ops.slice_(self.w, 0, 65)
            self.first = ops.relu(own)
            self.second = ops.relu(ops.slice_(self.w, 65, 130))
            x = ops.host_load(self.samples)
            if in_call:

                def spoil(t: popsr.TensorByRef, x: popsr.Tensor) -> None:
                    var_updates.copy_var_update_(ops.slice_(t, 0, 65), x)

                ops.call(self.ir.create_graph(spoil, self.w, x), self.w, x)
            else:
                var_updates.copy_var_update_(own, x)
            self.out = popsr.d2h_stream((65,), popsr.float32, name="out")
            ops.host_store(self.out, self.second)


def data(run: int) -> np.ndarray:
    return np.arange(REPLICAS * 65, dtype=np.float32).reshape(REPLICAS, 65) + 1000 * run


@pytest.mark.parametrize("in_call", [False, True])
@pytest.mark.parametrize("check", [False, True])
def test_the_equal_half_stays_equal(in_call: bool, check: bool) -> None:
    program = Halves(in_call)
    with popsr.Session(program.ir, check=check, weights_to_host_on_exit=False) as session:
        for run in range(3):
            session.run({program.samples: data(run)})
            facts = session.facts
            assert str(facts.partition(program.first)) == "{0}{1}{2}{3}"
            assert str(facts.partition(program.second)) == "{0,1,2,3}"


def test_rows_that_the_host_writes_are_what_the_next_run_starts_with() -> None:
    program = Halves(in_call=False)
    rows = np.arange(REPLICAS * 130, dtype=np.float32).reshape(REPLICAS, 130) + 1
    with popsr.Session(program.ir, weights_to_host_on_exit=False) as session:
        session.run({program.samples: data(0)})
        assert str(session.facts.partition(program.second)) == "{0,1,2,3}"
        session.write_variable_data(program.w, rows)
        out = session.run({program.samples: data(1)})
        assert str(session.facts.partition(program.second)) == "{0}{1}{2}{3}"
        np.testing.assert_array_equal(out[program.out], rows[:, 65:])
