"""A file that changes while it is read: what is loaded is what was hashed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, io
from tests_py.checkpoints.cases import ONNX, SAFETENSORS, Format, Program, saved, weights
from tests_py.support.helpers import Array, same_bits

onnx = pytest.importorskip("onnx")

SMALL_READ = 1 << 12
CASES = ["safetensors", "onnx", "onnx with external data"]


@pytest.fixture(params=CASES)
def format(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Format:
    """Formats, read in steps of a few KiB."""
    monkeypatch.setattr("popsr.io._open_file._STEP", SMALL_READ)
    monkeypatch.setattr("popsr.io._open_file._BLOCK", 1 << 10)
    monkeypatch.setattr("popsr.io._onnx.wire._WINDOW", 1 << 10)
    if request.param == "onnx with external data":
        monkeypatch.setattr("popsr.io._onnx.write._MAX_FILE", 100)
    return SAFETENSORS if request.param == "safetensors" else ONNX


def program(value: float) -> Program:
    result = Program(2, embed=True)
    for i in range(3):
        result.add(f"v{i}", np.full(3000 + i, value, np.float32))
    result.add("small", np.full(2, value, np.float32), result.ir.replica_grouping(1, 1))
    return result


class Interruption:
    """Does something before the read ``at`` of files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, act: Callable[[], None]) -> None:
        self.reads = 0
        self._at, self._act = at, act
        for name in ("pread", "preadv"):
            monkeypatch.setattr(os, name, self._wrap(getattr(os, name)))

    def _wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if self.reads == self._at:
                self._act()
            self.reads += 1
            return real(*args)

        return call


def loads(format: Format, path: Path) -> Iterator[Callable[[], dict[str, Array]]]:
    """Ways to load a file, each with the result by name."""
    yield lambda: dict(format.load(path))
    session = program(1).session()

    def reset() -> dict[str, Array]:
        before = weights(session)
        try:
            session.reset_host_weights(path)
        except errors.Error:
            assert all(same_bits(array, before[name]) for name, array in weights(session).items())
            raise
        return weights(session)

    yield reset


def outcomes(
    format: Format, path: Path, restore: Callable[[], None], act: Callable[[], None]
) -> Iterator[dict[str, Array] | None]:
    """Contents loaded when ``act`` comes before each read in turn; None where the file is refused."""
    for load in loads(format, path):
        at, more = 0, True
        while more:
            restore()
            with pytest.MonkeyPatch.context() as patch:
                interruption = Interruption(patch, at, act)
                try:
                    yield load()
                except errors.CheckpointError:
                    yield None
            at, more = at + 1, interruption.reads > at
        assert at > 10


def test_a_bit_that_flips_while_a_file_is_read_is_found_or_comes_too_late(
    tmp_path: Path, format: Format
) -> None:
    path = saved(tmp_path, format, program(7).ir)
    expect = dict(format.load(path))
    file = max(tmp_path.iterdir(), key=lambda each: each.stat().st_size)
    good = file.read_bytes()

    def flip() -> None:
        with file.open("r+b") as target:
            target.seek(len(good) * 2 // 3)
            target.write(bytes([good[len(good) * 2 // 3] ^ 1]))

    found = list(outcomes(format, path, lambda: void(file.write_bytes(good)), flip))
    assert None in found
    for arrays in found:
        assert arrays is None or all(same_bits(arrays[name], array) for name, array in expect.items())


def void(_: object) -> None:
    pass


def test_a_file_that_is_overwritten_in_place_is_one_of_the_two_or_refused(
    tmp_path: Path, format: Format
) -> None:
    """Loaded was 13 with the digest of 7."""
    path = saved(tmp_path, format, program(7).ir)
    (tmp_path / "new").mkdir()
    saved(tmp_path / "new", format, program(13).ir)
    old = {file: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}
    others = sorted((tmp_path / "new").iterdir())
    new = {file: other.read_bytes() for file, other in zip(sorted(old), others, strict=True)}
    if len(new) == 2:  # the model keeps the name of its data
        new[path] = new[path].replace(others[1].name.encode(), max(old).name.encode())
    assert [len(data) for data in old.values()] == [len(new[file]) for file in old]

    def restore() -> None:
        for file, data in old.items():
            file.write_bytes(data)

    def overwrite() -> None:
        for file, data in new.items():
            file.write_bytes(data)

    found = list(outcomes(format, path, restore, overwrite))
    assert None in found
    for arrays in found:
        if arrays is not None:
            values = {float(value) for name in ("v0", "v1", "v2", "small") for value in arrays[name].flat}
            assert values in ({7.0}, {13.0})


@pytest.mark.parametrize("suffix", [".onnx", ".safetensors"])
def test_a_file_without_digest_that_was_written_to_meanwhile_is_refused(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = foreign(tmp_path, suffix)
    load = io.load_onnx if suffix == ".onnx" else io.load_safetensors
    os.utime(path, (1, 1))  # the clock of file systems is coarse
    assert load(path)["x"].shape == (50_000,)

    def touch() -> None:
        os.utime(path, (2, 2))

    Interruption(monkeypatch, 2, touch)
    with pytest.raises(errors.CheckpointError, match="was changed while it was read"):
        load(path)


def foreign(folder: Path, suffix: str) -> Path:
    """A file of another writer."""
    path, array = folder / f"w{suffix}", np.arange(50_000, dtype=np.float32)
    if suffix == ".onnx":
        tensors = [onnx.numpy_helper.from_array(array, name) for name in ("x", "y")]
        onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], tensors)), path)
    else:
        pytest.importorskip("safetensors.numpy").save_file({"x": array, "y": array}, path)
    return path


def test_each_byte_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for a block here and there, in which structure and data are neighbours."""
    big = Program(1)
    for i in range(4):
        big.add(f"v{i}", np.ones(1 << 18, np.float32))
    onnx_file, safetensors = (saved(tmp_path, format, big.ir) for format in (ONNX, SAFETENSORS))
    monkeypatch.setattr("popsr.io._onnx.write._MAX_FILE", 100)
    external = saved(tmp_path, ONNX, big.ir, "external")
    total = 0

    def counted(real: Callable[..., Any], size: Callable[[Any], int]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            nonlocal total
            result = real(*args)
            total += size(result)
            return result

        return call

    monkeypatch.setattr(os, "pread", counted(os.pread, len))
    monkeypatch.setattr(os, "preadv", counted(os.preadv, int))
    session = popsr.Session(big.ir)
    for path in (onnx_file, safetensors, external):
        for load in (SAFETENSORS.load if path is safetensors else ONNX.load, session.reset_host_weights):
            total = 0
            load(path)
            assert 4 << 20 <= total <= (4 << 20) + (1 << 20)
