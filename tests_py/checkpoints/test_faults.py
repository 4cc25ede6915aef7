"""Damaged, foreign and hostile checkpoints are refused with a typed error; the session keeps its weights."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import popsr
from popsr import errors, io
from tests_py.checkpoints.cases import (
    FORMATS,
    ONNX,
    SAFETENSORS,
    Format,
    Program,
    saved,
    small_program,
    weights,
)
from tests_py.support.helpers import Array, assert_same_bits

both_formats = pytest.mark.parametrize("format", FORMATS, ids=str)


class Target:
    """A session with weights of its own, into which a bad file must not get anything."""

    def __init__(self) -> None:
        self.session = small_program(embed=True, scale=3).session()
        self.before = weights(self.session)

    def refuses(self, path: Path, kind: type[Exception] = errors.Error, match: str | None = None) -> None:
        with pytest.raises(kind, match=match) as info:
            self.session.reset_host_weights(path)
        assert isinstance(info.value, errors.Error)
        text = str(info.value)
        assert text.startswith("reset_host_weights: ")
        assert "\n" not in text
        self.unchanged()

    def unchanged(self) -> None:
        for name, array in weights(self.session).items():
            assert_same_bits(array, self.before[name], name)
        assert self.session.step == 0


@pytest.fixture
def target() -> Target:
    return Target()


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of more than 100 bytes have external data."""
    monkeypatch.setattr("popsr.io._onnx.write._MAX_FILE", 100)
    monkeypatch.setattr("popsr.io._onnx.write._MIN_EXTERNAL", 1)


def whole_files(folder: Path, format: Format) -> dict[Path, bytes]:
    """The files of a good checkpoint; each is to be damaged."""
    path = saved(folder, format, small_program(embed=True).session())
    Target().session.reset_host_weights(path)
    return {file: file.read_bytes() for file in folder.iterdir()}


# Damage


def truncations(data: bytes) -> Iterator[bytes]:
    for i in range(16):
        yield data[: len(data) * i // 16]
    for i in range(len(data) - 200, len(data)):
        yield data[:i]
    yield data + b"\0"
    yield data + data


def flips(data: bytes) -> Iterator[bytes]:
    for i in range(len(data)):
        for bit in range(8):
            yield data[:i] + bytes([data[i] ^ 1 << bit]) + data[i + 1 :]


@both_formats
def test_cut_off_files_are_refused(tmp_path: Path, format: Format, target: Target) -> None:
    ((path, data),) = whole_files(tmp_path, format).items()
    for bad in truncations(data):
        path.write_bytes(bad)
        target.refuses(path, errors.CheckpointError)


@pytest.mark.usefixtures("small_files")
def test_cut_off_models_and_external_data_are_refused(tmp_path: Path, target: Target) -> None:
    files = whole_files(tmp_path, ONNX)
    assert len(files) == 2
    for path, data in files.items():
        for bad in truncations(data):
            path.write_bytes(bad)
            target.refuses(tmp_path / "w.onnx", errors.CheckpointError)
        path.write_bytes(data)


@both_formats
def test_every_prefix_and_every_flipped_bit_of_a_tiny_file_is_refused(tmp_path: Path, format: Format) -> None:
    path = saved(tmp_path, format, Program(1).session())
    data = path.read_bytes()
    format.load(path)
    for bad in [*flips(data), *(data[:i] for i in range(len(data)))]:
        path.write_bytes(bad)
        text = refusal(format, path)
        assert text.startswith("load_"), bad
        assert "\n" not in text


def refusal(format: Format, path: Path) -> str:
    """The text of the error; far cheaper than ``pytest.raises`` for thousands of files."""
    try:
        format.load(path)
    except errors.Error as error:
        return str(error)
    return ""


@both_formats
def test_flipped_bits_are_refused(tmp_path: Path, format: Format, target: Target) -> None:
    """Of a file with all kinds of metadata and of data."""
    ((path, data),) = whole_files(tmp_path, format).items()
    for bad in random.Random(1).sample(list(flips(data)), 700):
        path.write_bytes(bad)
        target.refuses(path, errors.CheckpointError)


@pytest.mark.usefixtures("small_files")
def test_flipped_bits_of_models_and_their_external_data_are_refused(tmp_path: Path, target: Target) -> None:
    files = whole_files(tmp_path, ONNX)
    for path, data in files.items():
        for bad in random.Random(2).sample(list(flips(data)), 300):
            path.write_bytes(bad)
            target.refuses(tmp_path / "w.onnx", errors.CheckpointError)
        path.write_bytes(data)


@pytest.mark.parametrize("size", [1, 4 << 20, (4 << 20) + 1, 9 << 20])
def test_digests_see_every_place_and_the_length(size: int) -> None:
    from popsr.io._digest import Digest

    def digest(data: bytes) -> str:
        result = Digest()
        for i in range(0, len(data), 3 << 20):
            result.update(data[i : i + (3 << 20)])
        return result.text()

    data = bytearray(np.random.default_rng(0).bytes(size))
    whole = digest(bytes(data))
    assert len(whole) == Digest.LENGTH
    assert digest(bytes(data[:-1])) != whole != digest(bytes(data) + b"\0")
    for at in {0, size // 2, size - 1}:
        data[at] ^= 1
        assert digest(bytes(data)) != whole
        data[at] ^= 1
    assert digest(bytes(data)) == whole


@both_formats
def test_files_that_are_none_are_refused(tmp_path: Path, format: Format, target: Target) -> None:
    rng = np.random.default_rng(9)
    cases = {
        "empty": (b"", "is empty"),
        "zero": (b"\0", None),
        "zeros": (bytes(5000), None),
        "ones": (b"\xff" * 5000, None),
        "text": (b"not a model\n" * 100, None),
        "pickle": (b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}q\x00.", None),
        "zip": (b"PK\x03\x04" + bytes(100), None),
        **{f"noise{i}": (rng.bytes(300), None) for i in range(50)},
    }
    for name, (data, match) in cases.items():
        path = tmp_path / f"{name}{format.suffix}"
        path.write_bytes(data)
        target.refuses(path, errors.CheckpointError, match)


@both_formats
def test_paths_that_are_not_files_are_refused(tmp_path: Path, format: Format, target: Target) -> None:
    missing, folder, pipe = (tmp_path / f"{name}{format.suffix}" for name in ("missing", "folder", "pipe"))
    folder.mkdir()
    os.mkfifo(pipe)
    target.refuses(missing, OSError, "cannot read .*missing.*, got No such file")
    target.refuses(folder, OSError, "got a folder, expected a file")
    target.refuses(pipe, OSError, "got a FIFO, expected a file")
    for path in (folder, pipe):
        with pytest.raises(errors.FileError, match="got something else under that name, expected a file"):
            format.save(target.session, path)
    with pytest.raises(errors.FileError, match="cannot write") as info:
        format.save(target.session, tmp_path / "no" / f"w{format.suffix}")
    assert info.value.errno == 2
    for bad in (5, None, b"w.onnx", "", "a\0b"):
        with pytest.raises(errors.ArgumentTypeError, match="not the path of a file"):
            format.save(target.session, bad)
        with pytest.raises(errors.ArgumentTypeError, match="not the path of a file"):
            format.load(bad)
    with pytest.raises(errors.ArgumentTypeError, match="neither a session nor an Ir"):
        format.save({"w": np.zeros(3)}, tmp_path / "w")
    with pytest.raises(errors.ArgumentTypeError, match="reset_host_weights: not a session"):
        io.reset_host_weights(target.session.ir, missing)  # type: ignore[arg-type]


def test_a_variable_must_not_have_the_name_of_safetensors_metadata(tmp_path: Path) -> None:
    program = Program(1)
    program.add("__metadata__", np.zeros(1))
    with pytest.raises(errors.AttributeValueError, match="keeps this name for itself, got '__metadata__'"):
        io.save_safetensors(program.ir, tmp_path / "w.safetensors")
    assert not list(tmp_path.iterdir())


# Arguments that do not fit the program


def _other(name: str, data: Array, groups: int = 1, *, replication: int = 4, embed: bool = False) -> Program:
    """A program as ``Target``'s but for one variable."""
    base = small_program(replication, embed=embed)
    program = Program(replication, embed=embed)
    for key, variable in base.variables.items():
        if key not in ("one", name):
            value = base.session().get_tensor_data(variable)
            program.add(key, value, variable.replica_grouping)
    if groups:
        program.add(name, data, program.ir.replica_grouping(1, replication // groups))
    return program


BF16 = popsr.bfloat16.as_numpy()
W, G = np.zeros((2, 3), np.float32), np.zeros((2, 2), BF16)

MISFITS: list[tuple[str, Callable[[], Program], type[Exception], str]] = [
    ("missing", lambda: _other("w", W, 0), errors.UnknownNameError, "got no 'w', expected all 4"),
    ("dtype", lambda: _other("w", W.astype("f8")), errors.DTypeError, "'w', got float64, expected float32"),
    ("shape", lambda: _other("w", W.T), errors.ShapeError, r"'w', got \(3, 2\), expected \(2, 3\)\Z"),
    ("rank", lambda: _other("w", W[None]), errors.ShapeError, r"'w', got \(1, 2, 3\), expected \(2, 3\)"),
    (
        "shape-of-a-replica",
        lambda: _other("g", G[0]),
        errors.ShapeError,
        r"'g', got \(2,\), expected \(2, 2\): this is the shape of one replica, but each of the 2 groups",
    ),
    ("rows", lambda: _other("g", np.zeros((4, 2), BF16), 4), errors.ShapeError, r"'g', got \(4, 2\)"),
    (
        "groups-of-4",
        lambda: _other("g", np.arange(8).reshape(4, 2).astype(BF16), 4, embed=True),
        errors.ReplicaError,
        r"groups of 'g' cannot be mapped, got \{0\}\{1\}\{2\}\{3\} in the file, whose rows 0 and 1 differ at "
        r"element 0, expected \{0,1\}\{2,3\}, or rows of equal bits",
    ),
    (
        "groups-of-other-replicas",
        lambda: _other("g", np.zeros((8, 2), BF16), 8, replication=8, embed=True),
        errors.ReplicaError,
        r"groups of 'g' cannot be mapped, got \{0\}\{1\}\{2\}\{3\}\{4\}\{5\}\{6\}\{7\} of 8 "
        r"replicas in the file, expected as many as "
        r"\{0,1\}\{2,3\} of the program's 4 replicas",
    ),
    (
        "several-groups-of-one",
        lambda: _other("w", np.arange(12, dtype=np.float32).reshape(2, 2, 3), 2, embed=True),
        errors.ReplicaError,
        r"groups of 'w' cannot be mapped, got \{0,1\}\{2,3\} in the file, whose rows 0 and 1 differ at element 0",
    ),
]


@pytest.mark.parametrize(("make", "kind", "match"), [m[1:] for m in MISFITS], ids=[m[0] for m in MISFITS])
def test_checkpoints_that_do_not_fit_the_program_are_refused(
    tmp_path: Path, make: Callable[[], Program], kind: type[Exception], match: str, target: Target
) -> None:
    if kind is not errors.ShapeError:  # of safetensors groups are always known
        target.refuses(saved(tmp_path, SAFETENSORS, make().ir), kind, match)
    target.refuses(saved(tmp_path, ONNX, make().ir), kind, match)


def test_missing_variables_have_close_matches(tmp_path: Path, target: Target) -> None:
    program = Program(4)
    program.add("flag", np.array([True]))
    target.refuses(
        saved(tmp_path, SAFETENSORS, program.ir),
        errors.UnknownNameError,
        r"lacks variables, got no 'w' and 2 more, expected all 4 \(or ignore_missing=True\)",
    )
    other = small_program()
    session = Program(4)
    session.add("flagz", np.array([True, True]))
    with pytest.raises(errors.UnknownNameError, match="got no 'flagz', did you mean 'flags', expected all 2"):
        session.session().reset_host_weights(saved(tmp_path, SAFETENSORS, other.ir))


def test_all_is_checked_before_anything_is_written(tmp_path: Path) -> None:
    """The last variable does not fit; the first would."""
    program, wrong = Program(1), Program(1)
    for i in range(3):
        program.add(f"v{i}", np.zeros(2))
        wrong.add(f"v{i}", np.ones(2 if i < 2 else 3))
    for format in FORMATS:
        with program.session() as session:
            with pytest.raises(errors.ShapeError, match="'v2'"):
                session.reset_host_weights(saved(tmp_path, format, wrong.ir))
            assert not any(session.get_tensor_data(program.variables[f"v{i}"]).any() for i in range(3))


def test_a_program_without_the_shapes_is_not_the_same_as_ignoring(tmp_path: Path, target: Target) -> None:
    """``ignore_missing`` is about names only."""
    with pytest.raises(errors.ShapeError, match="'w'"):
        target.session.reset_host_weights(saved(tmp_path, ONNX, _other("w", W.T).ir), ignore_missing=True)
    target.unchanged()
