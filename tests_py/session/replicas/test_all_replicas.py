"""``get_tensor_data(v, replicas="all")``: what every replica holds of any variable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.ops import var_updates
from tests_py.support.helpers import assert_same_bits

F32 = popsr.float32
START = np.arange(4, dtype=np.float32)
ROWS = np.stack([START, START + 10])
ADDED = np.arange(1, 5, dtype=np.float32)  # by replica
Make = Callable[[popsr.Ir, Path, popsr.Tensor], popsr.Variable]

# Every variable drifts: each replica adds what it loads.
pytestmark = pytest.mark.filterwarnings("ignore:L2:popsr.ReplicaWarning")


def _plain(data: Any, **settings: Any) -> Make:
    def make(ir: popsr.Ir, folder: Path, x: popsr.Tensor) -> popsr.Variable:
        given = {key: value(ir) if callable(value) else value for key, value in settings.items()}
        v = popsr.variable(data, name="v", **given)
        ops.add_(v, x)
        return v

    return make


def _mapped(ir: popsr.Ir, folder: Path, x: popsr.Tensor) -> popsr.Variable:
    data = np.memmap(folder / "v", np.float32, "w+", shape=(4,))
    data[:] = START
    return _plain(data)(ir, folder, x)


def _sharded(ir: popsr.Ir, folder: Path, x: popsr.Tensor) -> popsr.Variable:
    v, shard = popsr.replica_sharded_variable(START, name="v", shard_over=2)
    ops.add_(shard, x)
    return v


def _remote(ir: popsr.Ir, folder: Path, x: popsr.Tensor) -> popsr.Variable:
    buffer = popsr.remote_buffer((4,), F32, 1)
    v = popsr.remote_variable(START, buffer, name="v")
    ops.remote_store(buffer, 0, ops.remote_load(buffer, 0) + x)
    return v


def _pairs(ir: popsr.Ir) -> popsr.ReplicaGrouping:
    return ir.replica_grouping(group_size=2)


OF_GROUPS = np.repeat(ROWS, 2, axis=0) + ADDED[:, np.newaxis]
OF_ALL = START + ADDED[:, np.newaxis]
CASES: dict[str, tuple[Make, Any]] = {
    "one group": (_plain(START), OF_ALL),
    "groups": (_plain(ROWS, replica_grouping=_pairs), OF_GROUPS),
    "a group each": (
        _plain(np.stack([START] * 4), replica_grouping=lambda ir: ir.replica_grouping(group_size=1)),
        OF_ALL,
    ),
    "all_replicas": (_plain(ROWS, replica_grouping=_pairs, retrieval_mode="all_replicas"), OF_GROUPS),
    "mapped": (_mapped, OF_ALL),
    "remote": (_remote, OF_ALL),
    # Replicas 0 and 1 hold the halves of one array, 2 and 3 of another.
    "sharded": (
        _sharded,
        START + np.array([[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 4, 4], [3, 3, 4, 4]], np.float32),
    ),
}


def program(make: Make, folder: Path) -> tuple[popsr.Ir, popsr.Variable, dict[Any, Any]]:
    """A variable to which each replica adds its number plus one in a run."""
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        stream = popsr.h2d_stream((), F32, "x")
        return ir, make(ir, folder, ops.host_load(stream)), {stream: ADDED}


@pytest.mark.parametrize("options", [{}, {"dedup": False}], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_every_replica_s_value(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    make, after = CASES[name]
    ir, v, data = program(make, tmp_path)
    session = popsr.Session(ir, weights_to_host_on_exit=False, **options)
    before = after - ADDED[:, np.newaxis] if name != "sharded" else np.stack([START] * 4)
    assert_same_bits(session.get_tensor_data(v, replicas="all"), before.astype(np.float32))
    with session:
        session.run(data)
        got = session.get_tensor_data(v, replicas="all")  # no warning L3
        assert_same_bits(got, after.astype(np.float32))
        got[...] = 0
        assert_same_bits(session.get_tensors_data([v], replicas="all")[v], after.astype(np.float32))
        if name not in ("mapped", "remote", "sharded", "one group"):
            session.weights_from_host()  # a read of all leaves the host copy as it was
            assert_same_bits(session.get_tensor_data(v, replicas="all"), before.astype(np.float32))
            session.run(data)
    assert_same_bits(session.get_tensor_data(v, replicas="all"), after.astype(np.float32))


@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")
def test_a_download_keeps_one_value_for_each_group(tmp_path: Path) -> None:
    """The host copy has one value of a group; the replicas keep theirs until it is uploaded."""
    ir, v, data = program(CASES["groups"][0], tmp_path)
    with popsr.Session(ir) as session:
        session.run(data)
    assert_same_bits(session.get_tensor_data(v), OF_GROUPS[::2])
    assert_same_bits(session.get_tensor_data(v, replicas="all"), OF_GROUPS)
    with session:
        assert_same_bits(session.get_tensor_data(v, replicas="all"), np.repeat(OF_GROUPS[::2], 2, axis=0))


def test_written_values_are_held_by_all_replicas(tmp_path: Path) -> None:
    ir, v, data = program(CASES["groups"][0], tmp_path)
    session = popsr.Session(ir)
    session.write_variable_data(v, ROWS + 1)
    assert_same_bits(session.get_tensor_data(v, replicas="all"), np.repeat(ROWS + 1, 2, axis=0))
    del data


@pytest.mark.parametrize("dtype", ["bfloat16", "bool", "float8_143", "int64"])
def test_every_kind_of_element(dtype: str) -> None:
    kind = popsr.dtypes.dtype.from_name(dtype)
    ir = popsr.Ir(replication=3)
    with ir.main_graph:
        raw = np.array([0, 1], np.uint8 if kind.as_numpy().itemsize == 1 else kind.as_numpy())
        v = popsr.variable(raw.view(kind.as_numpy()), kind, downcast=False)
        c = popsr.constant(np.array([3, 4], np.float32))
        ops.print_tensor(v)
    got = popsr.Session(ir).get_tensors_data([v, c], replicas="all")
    assert got[v].shape == got[c].shape == (3, 2)
    assert got[v].dtype == kind.as_numpy()
    assert [row.tobytes() for row in got[v]] == [raw.tobytes()] * 3
    assert got[c].tolist() == [[3, 4]] * 3


def test_one_replica_has_a_row_too() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        v = popsr.variable(1.0)
        ops.add_(v, popsr.constant(1.0))
    session = popsr.Session(ir)
    assert session.get_tensor_data(v, replicas="all").shape == (1,)
    assert session.get_tensor_data(v, replicas="group").shape == ()


@pytest.mark.parametrize("word", ["each", "groups", None, 3])
def test_another_word_is_refused(word: Any) -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        v = popsr.variable(1.0)
        ops.add_(v, popsr.constant(1.0))
    session = popsr.Session(ir)
    for call in (
        lambda: session.get_tensor_data(v, replicas=word),
        lambda: session.get_tensors_data([], replicas=word),
    ):
        with pytest.raises(errors.AttributeValueError) as caught:
            call()
        assert (
            str(caught.value)
            == f"get_tensor_data: unknown replicas, got {word!r}, expected one of 'group', 'all'"
        )


def test_strict_sessions_may_read_all(tmp_path: Path) -> None:
    ir, v, data = program(CASES["groups"][0], tmp_path)
    with popsr.Session(ir, strict=("L3",), weights_to_host_on_exit=False) as session:
        session.run(data)
        with pytest.raises(errors.ReplicaError):
            session.get_tensor_data(v)
        assert_same_bits(session.get_tensor_data(v, replicas="all"), OF_GROUPS)


def test_not_while_the_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        v = popsr.variable(np.zeros(2, np.float32))
        ops.print_tensor(v)
        var_updates.accumulate_(v, popsr.constant(np.ones(2, np.float32)))
    seen: list[Any] = []

    def read(text: str) -> None:
        with pytest.raises(errors.SessionError, match="the session is running"):
            session.get_tensor_data(v, replicas="all")
        seen.append(text)

    monkeypatch.setattr(
        "sys.stderr", type("Writer", (), {"write": staticmethod(read), "flush": lambda self: None})()
    )
    with popsr.Session(ir) as session:
        session.run()
    assert seen
