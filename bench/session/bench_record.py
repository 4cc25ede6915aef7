"""Times of recordings and traces: `nox -s bench -- bench/session/bench_record.py`.

Each step runs by turns plainly, with ``popsr.record`` and with ``Session.trace``, in one process; the files go to a
temporary folder. The GPT-like step is that of bench_compilers.py, the network that of bench_forms.py.
"""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import popsr
from bench.programs import basic, forms
from bench.programs.gpt_step import gpt_step
from bench.record import Recorder, at_most, ratios
from bench.record import times as cells_of
from bench.sides.compare import Times
from bench.training.bench_compilers import GPT

TURNS, STEPS = 9, 4
GOALS = {"recorded": 1.3, "traced": 1.1}

Inputs = dict[popsr.HostToDeviceStream, np.ndarray]
Step = tuple[popsr.Ir, Inputs]


def gpt() -> Step:
    program = gpt_step(GPT, 2, popsr.float32, "op")
    streams = program.tokens, program.labels
    batch = zip(streams, GPT.batch(), strict=True)
    return program.ir, {stream: each.reshape(2, *stream.shape) for stream, each in batch}


def network() -> Step:
    program = forms.FORMS["looped, `accumulate_`"](8)
    batch = basic.batches(8, forms.MICRO_BATCH, forms.ACCUMULATION, program.steps)
    return program.ir, dict(zip(program.inputs, batch, strict=True))


def seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    for _ in range(STEPS):
        run()
    return (time.perf_counter() - begin) / STEPS


@pytest.mark.parametrize("step", [gpt, network], ids=["GPT-like step", "network, R = 8, looped"])
def test_cost(
    step: Callable[[], Step], tmp_path: Path, benchmark: object, request: object, record: Recorder
) -> None:
    """Rows: step, what watches it, best and median time of a step, ratio to plain of both, goal."""
    ir, inputs = step()
    with popsr.Session(ir, num_threads=2) as session:
        watchers = {
            "plain": None,
            "recorded": lambda: popsr.record(session, tmp_path / "a.rec"),
            "traced": lambda: session.trace(tmp_path / "run.json.gz"),
        }
        times: dict[str, list[float]] = {name: [] for name in watchers}
        session.run(inputs)
        for _ in range(TURNS):
            for name, watch in watchers.items():
                time.sleep(0.02)
                if watch is None:
                    times[name].append(seconds(lambda: session.run(inputs)))
                    continue
                watcher = watch()
                times[name].append(seconds(lambda: session.run(inputs)))
                watcher.close()
    benchmark.pedantic(lambda: None)
    taken = {name: Times(min(each), float(np.median(each))) for name, each in times.items()}
    for name, each in taken.items():
        over = {} if name == "plain" else ratios(each, taken["plain"])
        goal = {} if name == "plain" else at_most(GOALS[name], each.best / taken["plain"].best)
        record(
            "A watched step's time over the plain one's",
            request.node.callspec.id,
            name,
            **cells_of(each),
            **over,
            **goal,
        )
