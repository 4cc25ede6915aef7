"""Streams whose rows are equal on all replicas: declared, assumed, fed, broken."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import popsr
from popsr import ops
from popsr._program.options.options import RoundingMode
from popsr.errors import ArgumentTypeError, GraphError, ReplicaError
from popsr.ops import collectives, var_updates

REPLICAS = 4
SAMPLES = 80  # values of a replica: more than the 64 up to which rows are compared by default


class Training:
    """A published training loop: learning rate, loss scale and seed of dropout through replicated streams."""

    def __init__(self, mode: Any = "replicate", options: RoundingMode = "partition") -> None:
        self.ir = popsr.Ir(replication=REPLICAS)
        self.ir.options.enable_stochastic_rounding = True
        self.ir.options.stochastic_rounding_mode = options
        with self.ir.main_graph, popsr.in_sequence():
            self.x = popsr.h2d_stream((SAMPLES, 3), popsr.float32, name="x")
            self.lr = popsr.h2d_stream((), popsr.float32, name="lr", replicated_stream_mode=mode)
            self.scale = popsr.h2d_stream((), popsr.float32, name="scale", replicated_stream_mode=mode)
            self.seed = popsr.h2d_stream((2,), popsr.uint32, name="seed", replicated_stream_mode=mode)
            self.w = popsr.variable(np.full((3, 2), 0.5), popsr.bfloat16, name="w")
            x = ops.host_load(self.x)
            h = ops.dropout(ops.cast(x, popsr.bfloat16), ops.host_load(self.seed), p=0.25)
            gradient = h.T @ (h @ self.w)
            mean = collectives.replicated_all_reduce(gradient, "mean")
            step = ops.cast(ops.host_load(self.lr) / ops.host_load(self.scale), popsr.bfloat16)
            self.update = var_updates.accumulate_(self.w, mean * step)

    def feed(self, run: int, lr: float | list[float] = 0.01) -> dict[Any, Any]:
        noise = np.random.default_rng(run)
        rows = np.ones((REPLICAS,), np.float32)
        return {
            self.x: noise.standard_normal((REPLICAS, SAMPLES, 3)).astype(np.float32),
            self.lr: rows * np.asarray(lr, np.float32),
            self.scale: rows * 2,
            self.seed: np.broadcast_to(np.asarray([run, 7], np.uint32), (REPLICAS, 2)).copy(),
        }

    def weights(self, session: popsr.Session) -> np.ndarray[Any, Any]:
        return session.get_tensor_data(self.w, replicas="all").astype(np.float32)


BROKEN = [0.01, 0.01, 0.5, 0.01]


def runs(training: Training, lrs: list[Any], **options: Any) -> list[np.ndarray[Any, Any]]:
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", popsr.ReplicaWarning)
        with popsr.Session(training.ir, seed=3, **options) as session:
            for run, lr in enumerate(lrs):
                session.run(training.feed(run, lr))
                found.append(training.weights(session))
    return found


@pytest.fixture(autouse=True)
def no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", popsr.ReplicaWarning)
        yield


def test_weights_stay_equal_while_small_streams_are_fed_equal_rows() -> None:
    training = Training()
    assert not popsr.analysis.analyze(training.ir).is_equal(training.w)  # it assumes nothing
    with popsr.Session(training.ir, strict=True) as session:
        assert session.storage(training.w).num_blocks == 1
        assert not session.facts.is_equal(training.w)  # before a run they hold for any data
        assert session.facts.drifting()
        for run in range(5):
            session.run(training.feed(run))
            weights = training.weights(session)
            assert (weights == weights[0]).all()
        assert session.facts.is_equal(training.w)
        assert {
            stream.tensor_id: str(rows) for stream, rows in session.equal_streams.items()
        } == dict.fromkeys(("lr", "scale", "seed"), "{0,1,2,3}")
        assert session.memory()["variables"] == training.w.nelms * 2


def test_analyze_answers_under_assumptions() -> None:
    training = Training()
    equal = dict.fromkeys((training.lr, training.scale, training.seed))
    facts = popsr.analysis.analyze(training.ir, equal=equal)
    assert facts.is_equal(training.w)
    assert not facts.drifting()
    pairs = training.ir.replica_grouping(group_size=2)
    facts = popsr.analysis.analyze(training.ir, equal=equal | {training.lr: pairs})
    assert str(facts.partition(training.w)) == "{0,1}{2,3}"
    why = facts.explain(training.w, 0, 2)
    assert why.root is not None
    assert why.root.text == "rows of stream 'lr' are equal inside {0,1},{2,3}"


@pytest.mark.parametrize(
    ("equal", "error", "text"),
    [
        (lambda t, _: {t.w: None}, ArgumentTypeError, "not a stream to the device"),
        (lambda t, _: {"lr": None}, ArgumentTypeError, "not a stream to the device"),
        (lambda t, _: {t.lr: 3}, ArgumentTypeError, "not a grouping"),
        (lambda t, _: [t.lr], ArgumentTypeError, "equal"),
        (lambda _, o: {o.lr: None}, GraphError, "of another Ir"),
        (
            lambda t, _: {t.lr: popsr.Ir(replication=2).replica_grouping()},
            ReplicaError,
            "got 2 replicas, expected 4",
        ),
    ],
)
def test_wrong_assumptions_are_refused(equal: Any, error: type[Exception], text: str) -> None:
    training = Training()
    with pytest.raises(error, match=text):
        popsr.analysis.analyze(training.ir, equal=equal(training, Training()))


def test_declared_streams_refuse_rows_that_differ_before_anything_runs() -> None:
    training = Training("equal")
    assert training.lr.replicated_stream_mode == "equal"
    assert popsr.analysis.analyze(training.ir).is_equal(training.w)
    with popsr.Session(training.ir) as session:
        session.run(training.feed(0))
        before = training.weights(session)
        text = r"'lr' is declared equal, rows of replicas 0 and 2 differ at element 0 of transfer 0, got .* \(bits "
        with pytest.raises(ReplicaError, match=text):
            session.run(training.feed(1, BROKEN))
        assert (training.weights(session) == before).all()
        assert session.step == 1
        nan = np.asarray([0x7FC00000, 0x7FC00001, 0xFFC00000, 0x7FC00000], np.uint32).view(np.float32)
        session.run(training.feed(1) | {training.scale: nan})  # all NaNs are one value
        with pytest.raises(ReplicaError, match="'scale'"):
            session.run(training.feed(1) | {training.scale: np.asarray([0.0, -0.0, 0.0, 0.0], np.float32)})


def test_a_broken_feed_warns_once_and_goes_on() -> None:
    training = Training()
    with popsr.Session(training.ir, seed=3) as session:
        session.run(training.feed(0))
        text = r"rows of stream 'lr' were equal in earlier runs, now rows of replicas 0 and 2 differ .*'w' drifts"
        with pytest.warns(popsr.ReplicaWarning, match=text) as caught:
            session.run(training.feed(1, BROKEN))
        assert len(caught) == 1
        assert not session.facts.is_equal(training.w)
        session.run(training.feed(2, BROKEN))
        weights = training.weights(session)
        assert (weights[0] != weights[2]).any()
        session.run(training.feed(3))  # equal again, but the weights are not
        assert not session.facts.is_equal(training.w)
        assert session.storage(training.w).num_blocks == REPLICAS
        why = session.facts.explain(training.w, 0, 2)
        assert why.root is not None
        assert why.root.text == "an earlier run left replicas 0 and 2 of 'w' unequal"
        session.write_variable_data(training.w, np.ones((3, 2), ml_dtypes.bfloat16))
        session.run(training.feed(4))
        assert session.facts.is_equal(training.w)
        assert session.storage(training.w).num_blocks == 1


def test_a_broken_feed_is_an_error_with_strict() -> None:
    training = Training()
    with popsr.Session(training.ir, strict=True) as session:
        session.run(training.feed(0))
        before = training.weights(session)
        for _ in range(2):  # also when it is tried again
            with pytest.raises(ReplicaError, match="lint L2 is an error with strict"):
                session.run(training.feed(1, BROKEN))
        assert (training.weights(session) == before).all()
        assert session.step == 1
        session.run(training.feed(1))


def test_streams_that_never_were_equal_get_the_ordinary_warning() -> None:
    training = Training()
    session = popsr.Session(training.ir, weights_to_host_on_exit=False)
    with session, pytest.warns(popsr.ReplicaWarning, match="^L2: 'w' drifts"):
        session.run(training.feed(0, BROKEN))


@pytest.mark.parametrize("mode", ["partition", "identical", "popart"])
def test_bits_do_not_depend_on_sharing(mode: RoundingMode) -> None:
    lrs = [0.01, 0.01, BROKEN, 0.01, 0.01, BROKEN]
    expected = runs(Training(options=mode), lrs)
    assert (expected[1] == expected[1][0]).all() or mode == "popart"
    for options in ({"dedup": False}, {"check": True}, {"num_threads": 2}):
        for want, got in zip(expected, runs(Training(options=mode), lrs, **options), strict=True):
            assert np.array_equal(want, got)


def test_a_resumed_run_has_the_same_bits(tmp_path: Any) -> None:
    expected = runs(Training(), [0.01] * 4)
    training = Training()
    with popsr.Session(training.ir, seed=3) as session:
        for run in range(2):
            session.run(training.feed(run))
        popsr.io.save_safetensors(session, tmp_path / "w.safetensors")
    training = Training()
    with popsr.Session(training.ir, seed=3) as session:
        session.reset_host_weights(tmp_path / "w.safetensors")
        for run in range(2, 4):
            session.run(training.feed(run))
        assert np.array_equal(training.weights(session), expected[3])


def test_entering_again_changes_no_bit() -> None:
    expected = runs(Training(), [0.01] * 3)
    training = Training()
    session = popsr.Session(training.ir, seed=3)
    for run in range(3):
        with session:
            session.run(training.feed(run))
    assert np.array_equal(training.weights(session), expected[2])


def test_initial_rows_of_groups_that_are_equal_start_equal() -> None:
    ir = popsr.Ir(replication=REPLICAS)
    with ir.main_graph, popsr.in_sequence():
        own = ir.replica_grouping(group_size=1)
        same = popsr.variable(np.ones((REPLICAS, 2), np.float32), name="same", replica_grouping=own)
        rows = np.arange(REPLICAS * 2, dtype=np.float32).reshape(REPLICAS, 2)
        differ = popsr.variable(rows, name="differ", replica_grouping=own)
        var_updates.accumulate_(same, popsr.constant(np.ones(2, np.float32)))
        ops.var_updates.accumulate_(differ, popsr.constant(np.ones(2, np.float32)))
    with popsr.Session(ir) as session:
        assert session.storage(same).num_blocks == 1
        assert session.storage(differ).num_blocks == REPLICAS
        session.run()
        session.write_variable_data(same, rows)
        assert session.storage(same).num_blocks == REPLICAS
        session.run()
        assert np.array_equal(session.get_tensor_data(same), rows + 1)


def test_lint_of_large_streams_that_were_equal_in_every_run() -> None:
    ir = popsr.Ir(replication=REPLICAS)
    with ir.main_graph, popsr.in_sequence():
        table = popsr.h2d_stream((65,), popsr.float32, name="table")
        w = popsr.variable(np.zeros(65, np.float32), name="w")
        var_updates.accumulate_(w, ops.host_load(table))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", popsr.ReplicaWarning)
        session = popsr.Session(ir, weights_to_host_on_exit=False)
    with session:
        assert not [lint for lint in session.facts.warnings if lint.code == "L13"]
        session.run({table: np.ones((REPLICAS, 65), np.float32)})
        (lint,) = [lint for lint in session.facts.warnings if lint.code == "L13"]
        assert lint.cost == 1
        assert "'table'" in lint.text
        assert "'w' stay equal" in lint.text
        session.run({table: np.arange(REPLICAS * 65, dtype=np.float32).reshape(REPLICAS, 65)})
        assert not [lint for lint in session.facts.warnings if lint.code == "L13"]
        session.run({table: np.ones((REPLICAS, 65), np.float32)})
        assert not [lint for lint in session.facts.warnings if lint.code == "L13"]
    assert not [lint for lint in popsr.analysis.analyze(ir).warnings if lint.code == "L13"]


@pytest.mark.parametrize(
    ("dtype", "shown"),
    [
        ("float16", r"-1\.5 \(bits 0xbe00\) and 5\.9604645e-08 \(bits 0x1\)"),
        ("bfloat16", r"-1\.5 \(bits 0xbfc0\) and 9\.1835e-41 \(bits 0x1\)"),
        ("float32", r"-1\.5 \(bits 0xbfc00000\) and 1e-45 \(bits 0x1\)"),
        ("float64", r"-1\.5 \(bits 0xbff8000000000000\) and 5e-324 \(bits 0x1\)"),
        ("int8", "-2 and 1"),
        ("int16", "-2 and 1"),
        ("int32", "-2 and 1"),
        ("int64", "-2 and 1"),
        ("uint8", "254 and 1"),
        ("uint64", "18446744073709551614 and 1"),
        ("bool", "False and True"),
    ],
)
def test_rows_that_differ_are_shown_as_numbers(dtype: str, shown: str) -> None:
    ir = popsr.Ir(replication=2)
    type_ = popsr.dtypes.dtype.from_name(dtype)
    with ir.main_graph:
        stream = popsr.h2d_stream((), type_, "s", replicated_stream_mode="equal")
        out = popsr.d2h_stream((), type_, "out")
        ops.host_store(out, ops.host_load(stream))
    numpy, is_float = type_.as_numpy(), "float" in dtype
    size = np.dtype(numpy).itemsize
    first = np.array(-1.5 if is_float else 0 if dtype == "bool" else 2 ** (8 * size) - 2)
    first = first.astype(numpy) if is_float else np.array(int(first), f"u{size}").view(numpy)
    rows = np.stack([first, np.array(1, f"u{size}").view(numpy)])
    with popsr.Session(ir) as session, pytest.raises(ReplicaError, match=shown):
        session.run({stream: rows})
