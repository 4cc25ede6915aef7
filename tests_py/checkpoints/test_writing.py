"""Saving replaces a file completely or not at all, whatever the system refuses."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popsr import errors, io
from popsr._session.protocol import SessionAccess
from tests_py.checkpoints.cases import FORMATS, ONNX, Format, Program, saved, small_program

both_formats = pytest.mark.parametrize("format", FORMATS, ids=str)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture(params=["one file", "external data"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX models with their data inside and beside them."""
    if request.param == "external data":
        monkeypatch.setattr("popsr.io._onnx.write._MAX_FILE", 100)
        monkeypatch.setattr("popsr.io._onnx.write._MIN_EXTERNAL", 1)


# System calls that fail

CALLS = ["listdir", "open", "pwrite", "fchmod", "fsync", "replace"]


def failing(real: Callable[..., Any], at: int, log: list[int]) -> Callable[..., Any]:
    """``real``, without space on the disk the time ``at``."""

    def call(*args: Any, **kwargs: Any) -> Any:
        log.append(len(log))
        if len(log) - 1 == at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args, **kwargs)

    return call


def refusal(call: Callable[[], None]) -> errors.FileError | None:
    try:
        call()
    except errors.FileError as error:
        return error
    return None


@both_formats
@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("name", CALLS)
def test_files_are_old_or_new_whatever_call_fails(
    tmp_path: Path, format: Format, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = small_program(scale=1).session(), small_program(scale=2).session()
    failures, at, was_called = 0, 0, True
    while was_called:
        path = saved(tmp_path, format, old)
        before, log = contents(tmp_path), list[int]()
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing(getattr(os, name), at, log))
            refused = refusal(lambda: format.save(new, path))  # noqa: B023 - called at once
        failures += refused is not None
        assert refused is None or refused.errno == errno.ENOSPC
        assert refused is None or str(refused).endswith("', got No space left on device")
        was_called, at = len(log) > at, at + 1
        if format.load(path)["w"][0, 1] == 1:
            assert contents(tmp_path) == before
        else:  # it was the last synchronisation, or what may fail: the old data stays, and a note that has its name
            assert len(contents(tmp_path)) <= len(before) + 2 * (name in ("open", "fsync"))
    assert failures >= 1


def test_data_is_on_the_disk_before_its_name_and_the_name_before_the_old_data_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("popsr.io._onnx.write._MAX_FILE", 100)
    saved(tmp_path, ONNX, small_program().ir)
    log: list[str] = []

    def fsync(file: int) -> None:
        log.append("fsync folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "fsync file")

    def replace(source: str, target: Path, real: Any = os.replace) -> None:
        log.append(f"rename to {Path(target).suffix}")
        real(source, target)

    def unlink(path: Path, real: Any = os.unlink, **options: Any) -> None:
        log.append(f"remove {Path(path).suffix}")
        real(path, **options)

    for call in (fsync, replace, unlink):
        monkeypatch.setattr(os, call.__name__, call)
    saved(tmp_path, ONNX, small_program().ir)
    each = ["fsync file", "rename to {}", "fsync folder"]
    assert log == [text.format(suffix) for suffix in (".data", ".onnx") for text in each] + [
        "remove .data",
        "remove .tmp",
    ]


@both_formats
def test_no_other_thread_can_run_the_session_meanwhile(
    tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = small_program().session()
    real, was_free = session._access.parts, []

    def try_lock() -> None:
        was_free.append(session._state.lock.acquire(blocking=False))
        if was_free[-1]:
            session._state.lock.release()

    def parts(variable: Any) -> Any:
        thread = threading.Thread(target=try_lock)
        thread.start()
        thread.join()
        return real(variable)

    monkeypatch.setattr(session._access, "parts", parts)
    saved(tmp_path, format, session)
    assert was_free == [False] * 4


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """The system itself refuses to let a file grow."""
    big = Program(1)
    big.add("w", np.zeros(1 << 18, np.float32))
    for format in FORMATS:
        path = saved(tmp_path, format, small_program().session())
        before = contents(tmp_path)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
        try:
            with pytest.raises(errors.FileError, match=r"cannot write .*, got File too large") as info:
                format.save(big.ir, path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert info.value.errno == errno.EFBIG
        assert contents(tmp_path) == before


@contextmanager
def unprivileged() -> Iterator[None]:
    """As root nothing is read-only: be nobody for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@both_formats
@pytest.mark.usefixtures("sizes")
def test_a_read_only_folder_leaves_the_old_file(format: Format) -> None:
    session = small_program().session()
    with tempfile.TemporaryDirectory() as name:  # not below pytest's folder, which only root may enter
        folder = Path(name)
        path = saved(folder, format, session)
        before = contents(folder)
        folder.chmod(0o555)
        try:
            with unprivileged(), pytest.raises(errors.FileError, match="got Permission denied") as info:
                format.save(session, path)
            assert info.value.errno == errno.EACCES
            assert contents(folder) == before
        finally:
            folder.chmod(0o755)


@both_formats
def test_a_file_that_may_not_be_read_is_an_error(format: Format) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = saved(Path(name), format, small_program().session())
        Path(name).chmod(0o755)
        path.chmod(0)
        with unprivileged(), pytest.raises(errors.FileError, match=r"cannot read .*, got Permission denied"):
            format.load(path)


@both_formats
def test_an_exception_between_two_writes_leaves_the_old_file(
    tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = small_program(scale=2).session()
    path = saved(tmp_path, format, small_program().session())
    before = contents(tmp_path)
    monkeypatch.setattr(SessionAccess, "parts", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        format.save(session, path)
    assert contents(tmp_path) == before


def test_a_model_that_cannot_be_renamed_takes_its_data_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("popsr.io._onnx.write._MAX_FILE", 100)
    monkeypatch.setattr("popsr.io._onnx.write._MIN_EXTERNAL", 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing(os.replace, 1, []))
        with pytest.raises(errors.FileError):
            io.save_onnx(small_program().ir, tmp_path / "w.onnx")
    assert not list(tmp_path.iterdir())


# Files of the folder


@both_formats
def test_files_that_a_killed_process_left_are_removed_and_no_others(tmp_path: Path, format: Format) -> None:
    name = f"w{format.suffix}"
    left = [f".{name}.00c0ffee.tmp", f".{name}.01234567.tmp"]
    others = [
        f".{name}.0123456.tmp",
        f".{name}.0123456g.tmp",
        f".x{name}.01234567.tmp",
        f"{name}.01234567.data",
    ]
    in_use = f".{name}.89abcdef.tmp"
    for file in [*left, *others, in_use]:
        (tmp_path / file).write_bytes(b"x")
    with (tmp_path / in_use).open("rb") as other_process:
        fcntl.flock(other_process, fcntl.LOCK_EX)
        saved(tmp_path, format, small_program().session())
        assert sorted(contents(tmp_path)) == sorted([*others, in_use, name])
    saved(tmp_path, format, small_program().session())
    assert sorted(contents(tmp_path)) == sorted([*others, name])


def test_a_link_is_replaced_and_what_it_points_to_is_not(tmp_path: Path) -> None:
    path = saved(tmp_path, ONNX, small_program().session(), "first")
    before = path.read_bytes()
    (tmp_path / "latest.onnx").symlink_to("first.onnx")
    saved(tmp_path, ONNX, small_program(scale=2).session(), "latest")
    assert path.read_bytes() == before
    assert not (tmp_path / "latest.onnx").is_symlink()
    assert io.load_onnx(tmp_path / "latest.onnx")["w"][0, 1] == 2


@both_formats
@pytest.mark.usefixtures("sizes")
def test_threads_that_save_to_one_name_leave_one_complete_checkpoint(tmp_path: Path, format: Format) -> None:
    sessions = [small_program(scale=i).session() for i in range(1, 4)]
    failures: list[BaseException] = []

    def save(session: Any) -> None:
        try:
            for _ in range(20):
                saved(tmp_path, format, session)
        except BaseException as error:  # for the main thread
            failures.append(error)

    threads = [threading.Thread(target=save, args=[session]) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert format.load(tmp_path / f"w{format.suffix}")["w"][0, 1] in (1, 2, 3)
    assert not [name for name in contents(tmp_path) if name.endswith(".tmp")]


def test_paths_may_be_relative_and_names_long_or_strange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("w.onnx", "ü [a-z]*.onnx", "x" * 200 + ".onnx", ".hidden"):
        io.save_onnx(small_program().ir, name)
        assert io.load_onnx(name)["w"].shape == (2, 3)
