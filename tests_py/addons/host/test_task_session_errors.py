"""popsr.addons.TaskSession: what is refused, and that nothing changes then."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.task_session import TaskSession, initialise_memmap_dir_from_checkpoint, write_variables_pb
from tests_py.addons.host.task_sessions import Array, assert_same_state, make
from tests_py.support.unchecked import unchecked


def _saved(folder: Path, **options: Any) -> Path:
    make(("a",), **options).save_checkpoint(folder)
    return folder


def _damaged(folder: Path, part: str, data: bytes) -> Path:
    (_saved(folder) / part).write_bytes(data)
    return folder


def _other_array(folder: Path, array: Array) -> Path:
    np.savez(_saved(folder) / "model" / "a.npz", a=array)
    return folder


def _bomb(folder: Path) -> Path:
    """An array of 2**40 bytes by its header, and a member of 64 MB of zeros in 64 kB."""
    path = _saved(folder) / "model" / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as stored, stored.open("a.npy", "w") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (1 << 40,)}
        np.lib.format.write_array_header_1_0(file, header)
        file.write(bytes(64 << 20))
    return folder


def _with_more(folder: Path) -> Path:
    with (
        zipfile.ZipFile(_saved(folder) / "model" / "a.npz", "w") as stored,
        stored.open("a.npy", "w") as file,
    ):
        np.lib.format.write_array(file, np.ones((2, 2, 3), np.float32))
        file.write(b"1")
    return folder


def _raw(folder: Path) -> Path:
    (_saved(folder) / "model" / "a.npz").unlink()
    (folder / "model" / "a.npy").write_bytes(b"123")
    return folder


Case = tuple[Callable[[TaskSession, Path], Any], type[Exception], str]
STATE = NamedTensors()
REFUSED: dict[str, Case] = {
    "wandb": (
        lambda s, d: s.save_checkpoint("wandb://x/y"),
        errors.UnsupportedError,
        "save_checkpoint: Weights & Biases is not",
    ),
    "load-wandb": (
        lambda s, d: s.load_checkpoint("wandb://x/y"),
        errors.UnsupportedError,
        "load_checkpoint: Weights & Biases",
    ),
    "histogram": (
        lambda s, d: s.wandb_histogram("h", 1, np.ones(1)),
        NotImplementedError,
        "wandb_histogram: Weights & Biases",
    ),
    "histograms": (
        lambda s, d: s.wandb_variable_histograms(),
        NotImplementedError,
        "wandb_variable_histograms: Weights &",
    ),
    "no-path": (
        lambda s, d: s.save_checkpoint(unchecked(3)),
        TypeError,
        "save_checkpoint: not the path of a file, got 3",
    ),
    "nothing": (
        lambda s, d: s.load_checkpoint(d),
        OSError,
        "load_checkpoint: no checkpoint, got '.*', expected a folder",
    ),
    "unwritable": (
        lambda s, d: (d.write_text(""), unchecked(s).save_checkpoint(d)),
        OSError,
        "save_checkpoint: cannot write a checkpoint to",
    ),
    "report": (
        lambda s, d: s.load_checkpoint(_saved(d), unchecked("log")),
        ValueError,
        "load_checkpoint: unknown report_missing, got 'log'",
    ),
    "zip": (
        lambda s, d: s.load_checkpoint(_damaged(d, "model/a.npz", b"PK123")),
        errors.CheckpointError,
        "is damaged, got ",
    ),
    "empty": (
        lambda s, d: s.load_checkpoint(_damaged(d, "model/a.npz", b"")),
        errors.CheckpointError,
        "is damaged, got ",
    ),
    "json": (
        lambda s, d: s.load_checkpoint(_damaged(d, "session_info.json", b"{")),
        errors.CheckpointError,
        "expected JSON",
    ),
    "deep": (
        lambda s, d: s.load_checkpoint(_damaged(d, "session_info.json", b"[" * 100_000)),
        errors.CheckpointError,
        "expected JSON",
    ),
    "long": (
        lambda s, d: s.load_checkpoint(_damaged(d, "session_info.json", b" " * ((1 << 20) + 1))),
        errors.CheckpointError,
        "is too long, got more than 1048576 bytes, expected less",
    ),
    "bomb": (
        lambda s, d: s.load_checkpoint(_bomb(d)),
        errors.DTypeError,
        "load_checkpoint: 'a' is of another dtype, got uint8, expected float32",
    ),
    "more": (
        lambda s, d: s.load_checkpoint(_with_more(d)),
        errors.CheckpointError,
        "is damaged, got more than 48 bytes, expected 'a'",
    ),
    "list": (
        lambda s, d: s.load_checkpoint(_damaged(d, "session_info.json", b"[]")),
        errors.CheckpointError,
        r"got \[\], exp",
    ),
    "steps": (
        lambda s, d: s.load_checkpoint(_damaged(d, "session_info.json", b'{"steps": -1}')),
        errors.CheckpointError,
        "expected an object with 'steps'",
    ),
    "step": (
        lambda s, d: s.load_checkpoint(_damaged(d, "session_info.json", b'{"popsr_step": "1"}')),
        ValueError,
        "load_checkpoint: popsr_step is not an int, got '1'",
    ),
    "shape": (
        lambda s, d: s.load_checkpoint(_other_array(d, np.ones((2, 3), np.float32))),
        errors.ShapeError,
        r"load_checkpoint: 'a' is of another shape, got \(2, 3\), expected \(2, 2, 3\)",
    ),
    "dtype": (
        lambda s, d: s.load_checkpoint(_other_array(d, np.ones((2, 2, 3)))),
        errors.DTypeError,
        "load_checkpoint: 'a' is of another dtype, got float64, expected float32",
    ),
    "raw": (
        lambda s, d: s.load_checkpoint(_raw(d)),
        errors.ShapeError,
        "is of another size, got 3 bytes, expected 48",
    ),
    "other-shape": (
        lambda s, d: s.load_from_session(make(("a",), shape=(3, 2))),
        errors.ShapeError,
        r"load_from_session: 'a' is of another shape, got \(2, 3, 2\), expected \(2, 2, 3\)",
    ),
    "other-dtype": (
        lambda s, d: s.load_from_session(make(("a",), kind="float16")),
        errors.DTypeError,
        "got float16, expected",
    ),
    "source": (
        lambda s, d: s.load_from_session(unchecked(3)),
        TypeError,
        "load_from_session: src is not a TaskSession, got 3",
    ),
    "loader": (
        lambda s, d: setattr(s, "dataloader", 3),
        ValueError,
        "TaskSession: dataloader has no method 'save', got 3",
    ),
    "info": (
        lambda s, d: s.add_session_state_info(unchecked(3)),
        TypeError,
        "add_session_state_info: info is not a mapping, got 3",
    ),
    "info-name": (
        lambda s, d: s.add_session_state_info(unchecked({1: 2})),
        TypeError,
        r"a name is not a str, got \[1\]",
    ),
    "info-value": (
        lambda s, d: s.add_session_state_info({"a": {1}}),
        TypeError,
        "JSON has no text for a value, got ",
    ),
    "info-steps": (
        lambda s, d: s.add_session_state_info({"steps": "2"}),
        TypeError,
        "steps is not an int, got '2'",
    ),
    "written": (
        lambda s, d: write_variables_pb(unchecked(3), {}),
        TypeError,
        "write_variables_pb: session is not a Session, got 3",
    ),
    "memmap": (
        lambda s, d: initialise_memmap_dir_from_checkpoint(d, d / "maps"),
        OSError,
        "initialise_memmap_dir_from_checkpoint: no checkpoint, got",
    ),
    "streams": (
        lambda s, d: TaskSession([unchecked(3)], [], STATE, ir=s.ir),
        TypeError,
        "InputStreams.from_streams: not a Host",
    ),
    "no-streams": (
        lambda s, d: TaskSession(unchecked(3), [], STATE, ir=s.ir),
        TypeError,
        "streams is not a sequence of streams, got 3",
    ),
    "outputs": (
        lambda s, d: TaskSession([], unchecked(s.inputs), STATE, ir=s.ir),
        TypeError,
        "OutputStreams.from_streams: not a Device",
    ),
    "state": (
        lambda s, d: TaskSession([], [], unchecked({}), ir=s.ir),
        TypeError,
        "TaskSession: state is not a NamedTensors, got {}",
    ),
    "leaf": (
        lambda s, d: TaskSession([], [], NamedTensors(t=s.ir.main_graph.ops[0].outputs[0]), ir=s.ir),
        TypeError,
        "TaskSession: state 't' is not a Variable, got ",
    ),
    "kept": (
        lambda s, d: TaskSession([], [], STATE, 0, ir=s.ir),
        ValueError,
        "TaskSession: max_checkpoints: got 0, expected",
    ),
    "other-ir": (
        lambda s, d: TaskSession([], [], make(("a",)).state, ir=s.ir),
        ValueError,
        "TaskSession: tensor of another Ir",
    ),
    "other-stream": (
        lambda s, d: TaskSession(make(("a",)).inputs, [], STATE, ir=s.ir),
        ValueError,
        "stream of another Ir, got",
    ),
}


@pytest.mark.parametrize(("call", "error", "match"), REFUSED.values(), ids=REFUSED)
def test_refused(
    call: Callable[[TaskSession, Path], Any], error: type[Exception], match: str, tmp_path: Path
) -> None:
    session = make(("a",), start=8)
    with pytest.raises(error, match=match) as caught:
        call(session, tmp_path / "folder")
    assert isinstance(caught.value, popsr.Error)
    assert "\n" not in str(caught.value)
    assert_same_state(session, {"a": np.full((2, 2, 3), 8, np.float32)})
    assert session.session_state == {"steps": 0}
