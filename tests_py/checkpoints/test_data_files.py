"""The data files of large ONNX models: when they go, and what is logged when they cannot."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popsr import errors, io
from tests_py.checkpoints.cases import ONNX, Program, saved, small_program

onnx = pytest.importorskip("onnx")


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """All models have external data."""
    monkeypatch.setattr("popsr.io._onnx.write._MAX_FILE", 100)
    monkeypatch.setattr("popsr.io._onnx.write._MIN_EXTERNAL", 1)


def save(folder: Path, scale: float = 1) -> Path:
    return saved(folder, ONNX, small_program(scale=scale).ir)


def data_files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("*.data"))


def warnings_of(caplog: pytest.LogCaptureFixture) -> str:
    assert all(record.name == "popsr" and record.levelname == "WARNING" for record in caplog.records)
    assert all("\n" not in message and len(message) <= 600 for message in caplog.messages)
    return "\n".join(caplog.messages)


def test_nothing_is_logged_when_all_goes_well(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for scale in (1, 2, 3):
        save(tmp_path, scale)
    assert not caplog.messages
    assert len(data_files(tmp_path)) == 1


def test_a_data_file_that_cannot_be_removed_is_named_and_goes_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path)
    (old,) = data_files(tmp_path)
    real = os.unlink

    def unlink(path: Any, **options: Any) -> None:
        if str(path).endswith(".data"):
            raise PermissionError(1, "Operation not permitted")
        real(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", unlink)
        for scale in (2, 3):
            path = save(tmp_path, scale)
            assert io.load_onnx(path)["w"][0, 1] == scale
    text = warnings_of(caplog)
    assert f"save_onnx: cannot remove the data file '{tmp_path}/{old}', got Operation not permitted" in text
    assert len(data_files(tmp_path)) == 3
    assert len(list(tmp_path.glob(".*.tmp"))) == 1
    caplog.clear()
    path = save(tmp_path, 4)
    assert not caplog.messages
    assert len(data_files(tmp_path)) == 1
    assert len(list(tmp_path.iterdir())) == 2
    assert io.load_onnx(path)["w"][0, 1] == 4


def test_a_data_file_that_is_not_there_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save(tmp_path)
    (old,) = data_files(tmp_path)
    (tmp_path / old).unlink()
    save(tmp_path)
    assert f"cannot remove the data file '{tmp_path}/{old}', got No such file" in warnings_of(caplog)


@pytest.mark.parametrize("damage", [b"", b"nonsense", None])
def test_a_model_that_cannot_be_read_leaves_its_data_and_says_so(
    tmp_path: Path, damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = save(tmp_path)
    (old,) = data_files(tmp_path)
    path.write_bytes(path.read_bytes()[:-30] if damage is None else damage)
    save(tmp_path, 2)
    text = warnings_of(caplog)
    assert f"cannot tell which data file belongs to the old '{path}', so these stay: {old} (" in text
    assert len(data_files(tmp_path)) == 2


def test_many_files_that_stay_are_a_short_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for i in range(20):
        (tmp_path / f"w.onnx.{i:08}.data").touch()
    (tmp_path / "w.onnx").write_bytes(b"nonsense")
    save(tmp_path)
    assert "so these stay: w.onnx.00000000.data, w.onnx.00000001.data, w.onnx.00000002.data and 17 more" in (
        warnings_of(caplog)
    )


def test_models_of_others_and_their_data_are_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tensor = onnx.numpy_helper.from_array(np.ones(100), "x")
    onnx.save(
        onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [tensor])),
        tmp_path / "w.onnx",
        save_as_external_data=True,
        location="w.onnx.01234567.data",
        size_threshold=0,
    )
    save(tmp_path)
    assert "w.onnx.01234567.data" in data_files(tmp_path)
    assert not caplog.messages


def test_the_data_of_a_model_that_was_moved_away_stays(tmp_path: Path) -> None:
    """It has the name of the file that is saved, and the moved model needs it."""
    path = save(tmp_path)
    path.rename(tmp_path / "best.onnx")
    for scale in (2, 3):
        save(tmp_path, scale)
    assert io.load_onnx(tmp_path / "best.onnx")["w"][0, 1] == 1
    assert len(data_files(tmp_path)) == 2


def test_a_copy_of_an_old_checkpoint_that_came_back_stays(tmp_path: Path) -> None:
    """As from a backup: its data was removed once, and is needed again."""
    path = save(tmp_path)
    backup = {file: file.read_bytes() for file in tmp_path.iterdir()}
    backup[tmp_path / "best.onnx"] = backup.pop(path)
    save(tmp_path, 2)
    for file, data in backup.items():
        file.write_bytes(data)
    for scale in (3, 4):
        save(tmp_path, scale)
    assert io.load_onnx(tmp_path / "best.onnx")["w"][0, 1] == 1


def test_names_of_other_files_in_a_model_are_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model may say what it likes."""
    (tmp_path / "inner").mkdir()
    victims = ["w.onnx.1.data", "v.onnx.01234567.data", "secret", "inner/w.onnx.01234567.data"]
    for name in victims:
        (tmp_path / name).write_bytes(b"x")
    path = save(tmp_path)
    model = onnx.load(path, load_external_data=False)
    for entry in model.metadata_props:
        if entry.key == "popsr.dataFile":
            entry.value = "../secret"
    model.metadata_props.add(key="popsr.oldDataFiles", value="/".join([*victims, "..", "w.onnx", ""]))
    onnx.save(model, path)
    save(tmp_path)
    assert all((tmp_path / name).read_bytes() == b"x" for name in victims)


def test_a_temporary_file_of_a_killed_save_does_not_take_the_data_of_the_model(tmp_path: Path) -> None:
    """As when a file system lost the rename."""
    path = save(tmp_path)
    shutil.copy(path, tmp_path / ".w.onnx.01234567.tmp")
    monitor = io.load_onnx(path)["w"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", _fail)
        with pytest.raises(errors.FileError):
            save(tmp_path, 2)
    assert np.array_equal(io.load_onnx(path)["w"], monitor)
    assert sorted(file.suffix for file in tmp_path.iterdir()) == [".data", ".onnx"]


def _fail(*_: Any) -> None:
    raise OSError(5, "Input/output error")


def test_processes_that_save_by_turns_leave_one_data_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one comes between the begin of a save and its end."""
    path = save(tmp_path)
    real = sys.modules["popsr.io._onnx.write"]._Model.write

    def write(self: Any, file: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("popsr.io._onnx.write._Model.write", real)
            save(tmp_path, 3)
        real(self, file)

    monkeypatch.setattr("popsr.io._onnx.write._Model.write", write)
    save(tmp_path, 2)
    assert io.load_onnx(path)["w"][0, 1] == 2
    assert len(data_files(tmp_path)) == 1


def test_a_smaller_model_removes_the_data_of_the_larger_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path)
    monkeypatch.setattr("popsr.io._onnx.write._MAX_FILE", 2**31 - 1)
    program = Program(1)
    saved(tmp_path, ONNX, program.ir)
    assert not data_files(tmp_path)
