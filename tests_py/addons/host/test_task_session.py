"""popsr.addons.TaskSession: named state, counted runs, and checkpoints that a later session goes on from."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.task_session import TaskSession, initialise_memmap_dir_from_checkpoint, write_variables_pb
from tests_py.addons.host.task_sessions import NAMES, assert_same_state, make, state, train
from tests_py.support.helpers import assert_same_bits, bits, np_dtype

F32 = popsr.float32


# State


def test_state_has_names_and_the_newest_data() -> None:
    session = make(start=1)
    train(session, 0.5, 2)
    data = session.get_named_tensors_data()
    assert data.keys_flat() == session.state.keys_flat() == list(NAMES)
    for i, name in enumerate(NAMES):
        assert_same_bits(data.get(name), np.full((2, 2, 3), 1 + i + 2.5, np.float32), name)
    assert session.session_state == {"steps": 2}
    with session:
        for _ in range(3):
            session.run({session.inputs.x: np.zeros(2, np.float32)})
    assert session.session_state["steps"] == 5


def test_streams_without_names_get_theirs() -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        x, y = popsr.h2d_stream((2,), F32, "x"), popsr.d2h_stream((2,), F32, "y")
        ops.host_store(y, ops.host_load(x))
    session = TaskSession([x], iter([y]), NamedTensors(), 3, ir, "ipu_hw")
    assert (session.inputs.x, session.outputs.y) == (x, y)
    assert session.max_checkpoints == 3
    with session:
        assert_same_bits(session.run({x: np.ones(2, np.float32)})[session.outputs.y], np.ones(2, np.float32))


def test_state_of_another_session_is_copied_where_names_are_common() -> None:
    source, target = make(("a", "b.c"), start=5), make(("b.c", "d"), start=50)
    train(source, 1)
    target.load_from_session(source)
    assert_same_state(target, {"b.c": state(source)["b.c"], "d": np.full((2, 2, 3), 51, np.float32)})
    text = r"^load_from_session: names differ, got \['d'\] that src lacks and \['a'\] that the session lacks$"
    with pytest.warns(UserWarning, match=text):
        target.load_from_session(source, "warn")
    with pytest.raises(errors.SessionError, match=text):
        target.load_from_session(source, report_missing="error")


def test_weights_are_written_under_the_old_name() -> None:
    session = make(("a",))
    write_variables_pb(session, {session.state.a: np.full((2, 2, 3), 7, np.float32)})
    assert_same_state(session, {"a": np.full((2, 2, 3), 7, np.float32)})


# Checkpoints


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16", "int32"])
@pytest.mark.parametrize("attached", [False, True])
def test_a_later_session_goes_on_from_a_checkpoint(kind: str, attached: bool, tmp_path: Path) -> None:
    session, later = make(kind=kind), make(kind=kind, start=9)
    train(session, 1, 2)
    session.add_session_state_info({"epoch": 3, "notes": ["x", None]})
    session.save_checkpoint(tmp_path)
    assert sorted(file.name for file in (tmp_path / "model").iterdir()) == sorted(
        f"{name}.npz" for name in NAMES
    )
    if attached:
        with later:
            later.load_checkpoint(str(tmp_path), "error")
            later.run({later.inputs.x: np.full(2, 3, np_dtype(kind))})
    else:
        later.load_checkpoint(str(tmp_path), "error")
        train(later, 3)
    train(session, 3)
    assert_same_state(later, state(session))
    assert later.session_state == {"steps": 3, "epoch": 3, "notes": ["x", None]}
    assert later.step == session.step == 3


def test_files_are_those_of_numpy_and_json(tmp_path: Path) -> None:
    session = make()
    train(session, 1)
    session.save_checkpoint(tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    for name, data in state(session).items():
        with np.load(folder / "model" / f"{name}.npz") as stored:
            assert stored.files == [name]
            assert_same_bits(stored[name], data)
    assert json.loads((folder / "session_info.json").read_text())["steps"] == 1
    assert sorted(each.name for each in folder.iterdir()) == ["model", "session_info.json"]


def test_stochastic_rounding_goes_on_with_the_same_numbers(tmp_path: Path) -> None:
    def training() -> TaskSession:
        ir = popsr.Ir()
        ir.options.enable_stochastic_rounding = True
        with ir.main_graph, popsr.in_sequence():
            w = popsr.variable(np.ones(64, np.float16), name="w")
            ops.add_(w, ops.cast(popsr.constant(np.full(64, 1.0 + 2**-12, np.float32)), popsr.float16))
        return TaskSession([], [], NamedTensors(w=w), ir=ir)

    def run(session: TaskSession, times: int) -> TaskSession:
        with session:
            for _ in range(times):
                session.run()
        return session

    whole, first, second = run(training(), 6), run(training(), 3), training()
    first.save_checkpoint(tmp_path)
    second.load_checkpoint(tmp_path)
    assert_same_state(run(second, 3), state(whole))
    again = training()
    again.load_from_session(first)
    assert not np.array_equal(bits(state(run(again, 3))["w"]), bits(state(whole)["w"])), (
        "numbers depend on the step"
    )


@pytest.mark.parametrize("kept", [1, 2])
def test_only_the_newest_checkpoints_stay(kept: int, tmp_path: Path) -> None:
    session = make(("a",), max_checkpoints=kept)
    folders = [tmp_path / str(i) for i in range(4)]
    for folder in folders:
        session.save_checkpoint(folder)
    assert [folder.exists() for folder in folders] == [False] * (4 - kept) + [True] * kept
    session.save_checkpoint(folders[4 - kept])  # the oldest is the newest now, and replaces itself
    assert [folder.exists() for folder in folders] == [False] * (4 - kept) + [True] * kept


def test_other_files_beside_an_old_checkpoint_are_left_alone(tmp_path: Path) -> None:
    session = make(("a",))
    session.save_checkpoint(tmp_path / "0")
    (tmp_path / "0" / "config.yml").write_text("mine")
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "config.yml").write_text("mine too")
    session.save_checkpoint(tmp_path / "1")
    assert [each.name for each in (tmp_path / "0").iterdir()] == ["config.yml"]
    assert (tmp_path / "1" / "config.yml").read_text() == "mine too"


class Loader:
    """Counts batches; fails to write when asked to."""

    def __init__(self, fails: bool = False) -> None:
        self.batch, self.fails = 0, fails

    def save(self, path: str) -> None:
        if self.fails:
            raise ArithmeticError
        Path(path).write_text(str(self.batch))

    def resume(self, path: str) -> None:
        self.batch = int(Path(path).read_text())


def test_data_loaders_go_on_too(tmp_path: Path) -> None:
    session, later = make(("a",)), make(("a",))
    session.dataloader = Loader()
    session.dataloader.batch = 17
    session.save_checkpoint(tmp_path)
    with pytest.warns(UserWarning, match="^TaskSession: no dataloader was set$"):
        assert later.dataloader is None
    with pytest.warns(UserWarning, match="^TaskSession: no dataloader was set$"):
        later.load_checkpoint(tmp_path)
    later.dataloader = Loader()
    later.load_checkpoint(tmp_path)
    assert later.dataloader.batch == 17
    make(("a",)).save_checkpoint(tmp_path)
    assert not (tmp_path / "dataloader.bin").exists(), "it belonged to the checkpoint that was replaced"


def test_a_checkpoint_that_cannot_be_completed_leaves_the_old_one(tmp_path: Path) -> None:
    session = make(("a",))
    session.save_checkpoint(tmp_path)
    before = state(session)
    train(session, 1)
    session.dataloader = Loader(fails=True)
    with pytest.raises(ArithmeticError):
        session.save_checkpoint(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model", "session_info.json"]
    later = make(("a",))
    later.load_checkpoint(tmp_path)
    assert_same_state(later, before)
    assert later.session_state == {"steps": 0}


def test_names_that_only_one_side_has_are_reported(tmp_path: Path) -> None:
    make(("a", "b.c"), start=5).save_checkpoint(tmp_path)
    session = make(("b.c", "d"), start=50)
    text = r"^load_checkpoint: names differ, got \['d'\] that the checkpoint lacks and \['a'\] that the session lacks$"
    with pytest.raises(errors.CheckpointError, match=text):
        session.load_checkpoint(tmp_path, "error")
    assert_same_state(
        session, {name: np.full((2, 2, 3), 50 + i, np.float32) for i, name in enumerate(("b.c", "d"))}
    )
    with pytest.warns(UserWarning, match=text):
        session.load_checkpoint(tmp_path)
    assert state(session)["b.c"].min() == 6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.load_checkpoint(tmp_path, report_missing="none")


def test_without_information_nothing_was_run(tmp_path: Path) -> None:
    session = make(("a",))
    train(session, 1)
    session.save_checkpoint(tmp_path)
    (tmp_path / "session_info.json").unlink()
    session.load_checkpoint(tmp_path)
    assert session.session_state == {"steps": 0}


def test_variables_of_every_kind_are_state(tmp_path: Path) -> None:
    """In remote memory, in shards, and read as one value per replica: checkpoints have a row for each group."""

    def session() -> TaskSession:
        ir = popsr.Ir(replication=4)
        with ir.main_graph, popsr.in_sequence():
            pairs, data = ir.replica_grouping(group_size=2), np.ones((2, 4), np.float32)
            whole, parts = popsr.remote_buffer((4,), F32), popsr.replica_sharded_buffer((2, 4), F32, pairs)
            state = NamedTensors(
                all=popsr.variable(data, name="all", replica_grouping=pairs, retrieval_mode="all_replicas"),
                remote=popsr.remote_variable(data, whole, name="remote", replica_grouping=pairs),
                parts=popsr.remote_replica_sharded_variable(
                    data, parts, name="parts", replica_grouping=pairs
                ),
            )
            ops.add_(state.all, popsr.constant(np.float32(1)))
            for buffer in (whole, parts):
                value = ops.remote_load(buffer, 0)
                ops.remote_store(buffer, 0, value + value)
        return TaskSession([], [], state, ir=ir)

    first, second, third = session(), session(), session()
    for _ in range(2):
        with first:
            first.run()
    first.save_checkpoint(tmp_path)
    for name, value in (("all", 3), ("remote", 4), ("parts", 4)):
        with np.load(tmp_path / "model" / f"{name}.npz") as stored:
            assert_same_bits(stored[name], np.full((2, 4), value, np.float32), name)
    second.load_checkpoint(tmp_path, "error")
    third.load_from_session(first, "error")
    for other in (second, third):
        assert_same_state(other, state(first))


# Memory-mapped variables


def test_mapped_variables_are_files_of_checkpoints(tmp_path: Path) -> None:
    maps, moved, checkpoint = tmp_path / "maps", tmp_path / "moved", tmp_path / "checkpoint"
    maps.mkdir()
    session = make(memmap_dir=maps)
    train(session, 1, 2)
    session.save_checkpoint(checkpoint)
    for name, data in state(session).items():
        assert (
            (checkpoint / "model" / f"{name}.npy").read_bytes()
            == data.tobytes()
            == (maps / f"{name}.npy").read_bytes()
        )
    plain = make(start=30)  # of a program whose variables are not mapped
    plain.load_checkpoint(checkpoint, "error")
    assert_same_state(plain, state(session))

    initialise_memmap_dir_from_checkpoint(checkpoint, moved)
    mapped = make(start=40, memmap_dir=moved)
    assert_same_state(mapped, state(session))
    train(session, 1)
    session.save_checkpoint(checkpoint)
    mapped.load_checkpoint(checkpoint, "error", skip_memmap=True)
    assert mapped.session_state["steps"] == 3
    assert state(mapped)["file"].min() == 3, "it was skipped"
    mapped.load_checkpoint(checkpoint, "error")
    assert_same_state(mapped, state(session))
    assert (moved / "file.npy").read_bytes() == state(session)["file"].tobytes()


def test_read_only_files_are_not_written_to(tmp_path: Path) -> None:
    make(("a",), memmap_dir=tmp_path)
    session = make(("a",), memmap_dir=tmp_path, read_only=True)
    other = make(("a",), start=4)
    other.save_checkpoint(tmp_path / "checkpoint")
    with pytest.raises(errors.SessionError, match="'a' is a read-only memory-mapped array"):
        session.load_checkpoint(tmp_path / "checkpoint")
    session.load_checkpoint(tmp_path / "checkpoint", skip_memmap=True)
    assert state(session)["a"].max() == 0
