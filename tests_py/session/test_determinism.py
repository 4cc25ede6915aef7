"""The same program, data and seed give the same bits, however they are run; and equal values are computed once."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import ops
from popsr.ops import collectives
from tests_py.support.helpers import run_python
from tests_py.support.programs.training import (
    BATCH,
    CLASSES,
    FEATURES,
    HIDDEN,
    MICRO_BATCHES,
    Training,
    digest,
    product_free,
)

RUNS = range(3)


def train(*, build: dict[str, Any] | None = None, runs: range = RUNS, **options: Any) -> list[bytes]:
    training = Training(**(build or {}))
    with popsr.Session(training.ir, **{"seed": 11, **options}) as session:
        return training.run(session, runs)


@functools.cache
def reference() -> tuple[bytes, ...]:
    return tuple(train())


@pytest.mark.parametrize(
    "options",
    [
        {"num_threads": 1},
        {"num_threads": 2},
        {"dedup": False},
        {"check": True},
        {"dedup": False, "num_threads": 2},
    ],
    ids=str,
)
def test_same_bits_however_run(options: dict[str, Any]) -> None:
    assert tuple(train(**options)) == reference()


def test_large_program_on_one_and_two_threads() -> None:
    """Large enough that work really is split."""

    def run(threads: int) -> list[bytes]:
        ir = popsr.Ir(replication=2)
        ir.options.enable_stochastic_rounding = True
        rng = np.random.default_rng(0)
        with ir.main_graph, popsr.in_sequence():
            stream = popsr.h2d_stream((96, 256), popsr.float32)
            w = popsr.variable(rng.standard_normal((256, 300)), popsr.float32)
            x = ops.host_load(stream)
            y = ops.gelu(ops.matmul(x, w))
            narrow = ops.cast(ops.mul(y, y), popsr.bfloat16)
            results = [
                y,
                narrow,
                ops.softmax(y, 0),
                ops.sum(narrow, axis=0),
                ops.sum(y),
                collectives.replicated_all_reduce(narrow, "mean"),
                ops.transpose(ops.matmul(ops.transpose(x), y)),
            ]
            outputs = [popsr.d2h_stream(result.shape, result.dtype) for result in results]
            for output, result in zip(outputs, results, strict=True):
                ops.host_store(output, result)
        data = rng.standard_normal((2, 96, 256)).astype(np.float32)
        with popsr.Session(ir, num_threads=threads) as session:
            made = session.run({stream: data})
        return [made[output].tobytes() for output in outputs]

    assert run(1) == run(2)


def test_seeds_and_steps_differ() -> None:
    assert tuple(train(seed=12)) != reference()
    assert train(build={"stochastic": False}) != list(reference())
    training = Training()
    with popsr.Session(training.ir, seed=11) as session:
        session.step = 1
        assert tuple(training.run(session, RUNS)) != reference()


def test_seed_of_the_options() -> None:
    training = Training()
    training.ir.options.seed = 11
    with popsr.Session(training.ir) as session:
        assert tuple(training.run(session, RUNS)) == reference()


def test_ten_runs_twice_are_twenty() -> None:
    whole = Training()
    with popsr.Session(whole.ir, seed=11) as session:
        expected = whole.run(session, range(20))
    first = Training()
    with popsr.Session(first.ir, seed=11) as session:
        made = first.run(session, range(10))[: -len(first.state)]
        weights = session.get_tensors_data(first.state)
        step = session.step
    assert step == 10
    second = Training()
    with popsr.Session(second.ir, seed=11) as session:
        saved = zip(second.state, weights.values(), strict=True)
        session.write_variables_data(dict(saved))
        session.step = step
        made += second.run(session, range(10, 20))
    assert made == expected


def test_a_print_changes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    assert tuple(train(build={"prints": True})) == reference()
    assert "hidden" in capfd.readouterr().err


# Instruction sets and processes


def cpu_has(level: str) -> bool:
    if level == "v2":
        return True
    flags = (
        Path("/proc/cpuinfo").read_text(encoding="utf-8").split() if Path("/proc/cpuinfo").exists() else []
    )
    return {"v3": "avx2", "v4": "avx512vl"}[level] in flags


def in_process(what: str, **env: str) -> str:
    return run_python(f"from tests_py.support.programs import training; training.main({what!r})", **env)


@pytest.mark.parametrize("level", ["v3", "v4"])
def test_instruction_sets(level: str) -> None:
    if not cpu_has(level):
        pytest.skip(f"this CPU has no {level}")
    if cpu_has("v3"):
        assert in_process("training", POPSR_ISA=level) == digest(list(reference()))


@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
def test_instruction_sets_without_products(level: str) -> None:
    if not cpu_has(level):
        pytest.skip(f"this CPU has no {level}")
    assert in_process("product-free", POPSR_ISA=level) == digest(product_free())


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_processes(hash_seed: str) -> None:
    assert in_process("training", PYTHONHASHSEED=hash_seed, POPSR_NUM_THREADS=hash_seed) == digest(
        list(reference())
    )


# Exact counts


def test_equal_values_are_computed_and_stored_once() -> None:
    replicas = 64
    ir = popsr.Ir(replication=replicas)
    with ir.main_graph, popsr.in_sequence():
        stream = popsr.h2d_stream((4, 32), popsr.float32)
        w = popsr.variable(np.ones((32, 64)), popsr.float32, "w")
        x = ops.host_load(stream)
        y = ops.gelu(ops.matmul(x, w))
        scaled = ops.mul(w, popsr.constant(0.5, popsr.float32))
        mean = collectives.replicated_all_reduce(ops.tanh(ops.sum(y, axis=0)), "mean")
        ops.add_(w, mean)
        ops.add_(w, scaled)
        out = popsr.d2h_stream((4, 64), popsr.float32)
        ops.host_store(out, y)
    data = np.random.default_rng(0).standard_normal((replicas, 4, 32)).astype(np.float32)
    with popsr.Session(ir) as session:
        for runs in (1, 2, 3):
            session.run({stream: data})
            blocks = session.stats["blocks"]
            assert session.stats["runs"] == runs
            for op, count in {
                "gelu": replicas,
                "tanh": replicas,
                "matmul": replicas,
                "host_load": replicas,
            }.items():
                assert blocks[op] == runs * count, op
            for op, count in {"mul": 1, "replicated_all_reduce": 1, "add_": 2}.items():
                assert blocks[op] == runs * count, op
        assert session.stats["kernel_calls"]["add_"] == 6
        assert session.storage(w).num_blocks == 1
        memory = session.memory()
        assert memory["variables"] == w.nelms * 4
        assert memory["streams"] == replicas * (4 * 32 + 4 * 64) * 4
    with popsr.Session(ir, dedup=False) as session:
        session.run({stream: data})
        assert session.stats["blocks"]["mul"] == replicas
        assert session.memory()["variables"] == replicas * w.nelms * 4


def test_work_that_is_equal_does_not_grow_with_replicas() -> None:
    def equal_blocks(replicas: int) -> dict[str, int]:
        training = Training(replicas)
        with popsr.Session(training.ir) as session:
            session.run(training.data(0))
            blocks = session.stats["blocks"]
        return {op: blocks[op] for op in ("replicated_all_reduce_", "scaled_add_", "accumulator_zero_")}

    assert equal_blocks(2) == equal_blocks(8) == dict.fromkeys(equal_blocks(2), 2)


def test_weights_stay_equal_while_activations_round_alone() -> None:
    """Replicas of one weight agree after 50 steps; the same values at other replicas round differently."""
    training = Training(4)
    bf16 = popsr.bfloat16.as_numpy()
    differing = 0
    with popsr.Session(training.ir, seed=2) as session:
        previous = None
        for i in range(50):
            data = training.data(i)
            data[training.x][:] = data[training.x][:, :1]  # all replicas get the same samples
            data[training.labels][:] = data[training.labels][:, :1]
            made = session.run(data)
            after = made[training.after][0]
            assert after.shape == (4, FEATURES, HIDDEN)
            for replica in range(1, 4):
                assert after[replica].tobytes() == after[0].tobytes()
                differing += int(np.sum(made[training.hidden][:, replica] != made[training.hidden][:, 0]))
            assert previous is None or after[0].tobytes() != previous
            previous = after[0].tobytes()
    assert made[training.hidden].dtype == bf16
    # Equal inputs in streams of their own are not proved equal, so each replica rounds with its own noise.
    assert differing > 0.2 * 50 * 3 * MICRO_BATCHES * BATCH * HIDDEN


def test_training_learns() -> None:
    """The program above is a real one: its loss falls on a fixed batch."""
    training = Training(4)
    data = training.data(0)
    with popsr.Session(training.ir, seed=2) as session:
        losses = [float(session.run(data)[training.loss].astype(np.float32).mean()) for _ in range(60)]
    assert losses[-1] < 0.7 * losses[0]
    assert losses[0] < 3 * np.log(CLASSES)
