"""Programs in the style of model repositories on all ranks of a world, beside one process.

``python -m mpi4py -m tests_py.mpi.published NAME CONFIG ...``: names and configurations of ``start_published``.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
from mpi4py import MPI

import popsr
from popsr._support.host import launcher
from tests_py.golden.sources import rounded_host_functions
from tests_py.mpi.same_bits import local, seeded
from tests_py.support.helpers import Array, bits
from tests_py.support.programs import start_published as published
from tests_py.support.programs.bit_judge import quiet

COMM = MPI.COMM_WORLD
STEPS = 2
Outputs = list[tuple[Any, Array]]


@contextlib.contextmanager
def recorded() -> Iterator[Outputs]:
    """Plans of streams, and the data that runs of sessions give of them meanwhile."""
    outputs: Outputs = []
    run: Callable[..., Any] = popsr.Session.run

    def recording(self: popsr.Session, *args: Any, **options: Any) -> Any:
        results = run(self, *args, **options)
        plans = {plan.stream: plan for plan in self._runner.outputs}
        outputs.extend((plans[stream], np.array(array)) for stream, array in results.items())
        return results

    with mock.patch.object(popsr.Session, "run", recording):
        yield outputs


def results(name: str, config: str) -> tuple[int, Outputs, dict[str, Array]]:
    """Number of replicas, outputs and state after some steps."""
    with published.importable(), rounded_host_functions(), seeded(), recorded() as outputs:
        run = published.START[name](config)
        run.run(0, STEPS)
        return run.program.ir.replication_factor, outputs, run.everything()


def compare(name: str, config: str) -> Iterator[str]:
    with mock.patch.object(launcher, "world", return_value=None):
        replicas, outputs, state = results(name, config)
    with mock.patch.dict(os.environ, {"POPDIST_NUM_TOTAL_REPLICAS": str(replicas)}):
        _, own, found = results(name, config)
    where = f"{name} {config} on rank {COMM.rank}"
    if len(own) != len(outputs) or found.keys() != state.keys():
        yield f"{where}: other streams or variables"
    for (plan, array), (_, whole) in zip(own, outputs, strict=True):
        if not np.array_equal(bits(local(plan, whole)), bits(array)):
            yield f"{where}: stream {plan.name} differs"
    for key, array in state.items():
        if not np.array_equal(bits(array), bits(found[key])):
            yield f"{where}: variable {key} differs"


def main() -> None:
    found: list[str] = []
    silent = io.StringIO()
    with quiet(), contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
        for name, config in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
            found += compare(name, config)
    everything = COMM.allgather(found)
    if COMM.rank == 0:
        print("\n".join(each for part in everything for each in part[:8]) or "the same bits")
    sys.exit(any(everything))


if __name__ == "__main__":
    main()
