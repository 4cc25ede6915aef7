"""A file that is replaced keeps its permissions, owner and attributes; names may be as long as the system permits."""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from popsr import errors, io
from popsr.io._new_file import sibling_name
from tests_py.checkpoints.cases import FORMATS, ONNX, Format, Program, saved, small_program

both_formats = pytest.mark.parametrize("format", FORMATS, ids=str)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
ACL = "system.posix_acl_access"


def takes_attributes(path: Path) -> bool:
    """Some file systems have no extended attributes."""
    try:
        os.setxattr(path, "user.popsr", b"1")
    except OSError:
        return False
    return True


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@as_root
@both_formats
def test_the_owner_of_a_replaced_file_stays(tmp_path: Path, format: Format) -> None:
    path = saved(tmp_path, format, small_program().ir)
    os.chown(path, 1234, 5678)
    path.chmod(0o640)
    saved(tmp_path, format, small_program(scale=2).ir)
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1234, 5678, 0o640)
    assert format.load(path)["w"][0, 1] == 2


@as_root
@both_formats
def test_users_who_may_not_give_files_away_still_replace_them(format: Format) -> None:
    with tempfile.TemporaryDirectory() as name:  # not below pytest's folder, which only root may enter
        Path(name).chmod(0o777)
        path = saved(Path(name), format, small_program().ir)
        path.chmod(0o604)
        with unprivileged():
            format.save(small_program(scale=2).ir, path)
        found = path.stat()
        assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (65534, 0o604)
        assert format.load(path)["w"][0, 1] == 2


@both_formats
def test_extended_attributes_of_a_replaced_file_stay(tmp_path: Path, format: Format) -> None:
    path = saved(tmp_path, format, small_program().ir)
    if not takes_attributes(path):
        pytest.skip("the file system has none")
    os.setxattr(path, "user.origin", b"run 7")
    saved(tmp_path, format, small_program(scale=2).ir)
    assert os.getxattr(path, "user.origin") == b"run 7"
    assert format.load(path)["w"][0, 1] == 2


@both_formats
def test_access_control_lists_stay(tmp_path: Path, format: Format) -> None:
    path = saved(tmp_path, format, small_program().ir)
    path.chmod(0o640)
    # Version 2; owner rw, user 1234 r, group r, mask r, others nothing.
    entries = [(1, 6, 2**32 - 1), (2, 4, 1234), (4, 4, 2**32 - 1), (16, 4, 2**32 - 1), (32, 0, 2**32 - 1)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(path, ACL, acl)
    except OSError:
        pytest.skip("the file system has none")
    saved(tmp_path, format, small_program(scale=2).ir)
    assert os.getxattr(path, ACL) == acl
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_new_data_file_is_as_readable_as_what_it_replaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the weights: a private model's are private."""
    program = Program(1)
    program.add("w", np.ones(100))
    path = saved(tmp_path, ONNX, program.ir)
    path.chmod(0o600)
    monkeypatch.setattr("popsr.io._onnx.write._MAX_FILE", 100)
    monkeypatch.setattr("popsr.io._onnx.write._MIN_EXTERNAL", 1)
    saved(tmp_path, ONNX, program.ir)
    (data,) = tmp_path.glob("*.data")
    assert stat.S_IMODE(data.stat().st_mode) == 0o600
    data.chmod(0o640)
    saved(tmp_path, ONNX, program.ir)
    (data,) = tmp_path.glob("*.data")
    assert stat.S_IMODE(data.stat().st_mode) == 0o640
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# Long names


@both_formats
@pytest.mark.parametrize("external", [False, True], ids=["one file", "external data"])
@pytest.mark.parametrize("length", [240, 241, 242, 254, 255])
def test_names_may_be_as_long_as_the_system_permits(
    tmp_path: Path, format: Format, length: int, external: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if external:
        monkeypatch.setattr("popsr.io._onnx.write._MAX_FILE", 100)
        monkeypatch.setattr("popsr.io._onnx.write._MIN_EXTERNAL", 1)
    path = tmp_path / ("x" * (length - len(format.suffix)) + format.suffix)
    for scale in (1, 2):
        format.save(small_program(scale=scale).ir, path)
        assert format.load(path)["w"][0, 1] == scale
        assert len(list(tmp_path.iterdir())) == (2 if external and format is ONNX else 1)
        small_program().session().reset_host_weights(path)


@both_formats
def test_longer_names_are_an_error(tmp_path: Path, format: Format) -> None:
    with pytest.raises(errors.FileError, match=r"cannot write .*, got File name too long"):
        format.save(small_program().ir, tmp_path / ("x" * 256))
    assert not list(tmp_path.iterdir())


def test_only_files_left_by_killed_saves_of_long_names_are_removed(tmp_path: Path) -> None:
    """Names that differ in their last character only are cut at the same place."""
    names = ["x" * 249 + f"{i}.onnx" for i in range(2)]
    left = [tmp_path / f".{sibling_name(Path(name))}.01234567.tmp" for name in names]
    for file in left:
        assert len(file.name) == 255
        file.write_bytes(b"half")
    io.save_onnx(small_program().ir, tmp_path / names[0])
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([names[0], left[1].name])


def test_names_are_cut_between_characters() -> None:
    for name in ("ü" * 127, "x" + "ü" * 127, "\U0001f4a3" * 63, "x" * 255):
        cut = sibling_name(Path(name))
        cut.encode()
        assert len(os.fsencode(cut)) in range(236, 242)
        assert name.startswith(cut[: cut.index("~")])
    assert sibling_name(Path("x" * 241)) == "x" * 241
    names = {sibling_name(Path("x" * 250 + f"{i}")) for i in range(100)}
    assert len(names) == 100
