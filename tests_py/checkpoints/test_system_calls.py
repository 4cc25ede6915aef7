"""Every system call of saves and loads fails in turn, or is the last one before the process dies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors
from popsr.io._onnx import write as _onnx_write
from tests_py.checkpoints.cases import ONNX, SAFETENSORS, Format, Program, saved, small_program, weights
from tests_py.support.helpers import assert_same_bits, run_python

_OS_CALLS = (
    "close fchmod fchown fstat fsync getxattr listdir listxattr open posix_fadvise pread preadv pwrite replace "
    "setxattr stat unlink"
)
CALLS = {**dict.fromkeys(_OS_CALLS.split(), os), "flock": fcntl}
READING = ("close", "fstat", "open", "pread", "preadv")
ERRORS = [errno.EIO, errno.ENOSPC, errno.EACCES, errno.EINTR, errno.ENOENT]
CASES = ["safetensors", "onnx", "onnx with external data"]
PLACED = "cannot synchronise the folder after the new file took its place as"


@pytest.fixture(params=CASES)
def format(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Format:
    monkeypatch.setattr("popsr.io._new_file._WRITE_BACK", 64)  # so that it is called
    return format_of(request.param, monkeypatch.setattr)


def format_of(case: str, patch: Callable[[str, int], None]) -> Format:
    if case == "onnx with external data":
        patch("popsr.io._onnx.write._MAX_FILE", 100)
        patch("popsr.io._onnx.write._MIN_EXTERNAL", 1)
    return SAFETENSORS if case == "safetensors" else ONNX


@contextlib.contextmanager
def failing(name: str, at: int, act: Callable[[], None]) -> Iterator[list[str]]:
    """Calls of that name; before the one with number ``at`` comes ``act``, which raises."""
    log: list[str] = []
    owner = CALLS[name]
    real = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        log.append(name)
        if len(log) - 1 == at:
            if name == "close":  # Linux closes a file whatever it says of it
                real(*args, **kwargs)
            act()
        return real(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, call)
        yield log


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def open_files(folder: Path) -> list[str]:
    """The paths of the files below a folder that this process holds open.

    Those elsewhere are not this test's: what another test of the process left is closed whenever its garbage is found.
    """
    held = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself is closed
            held.append(os.readlink(f"/proc/self/fd/{number}"))
    return sorted(path for path in held if Path(path).is_relative_to(folder))


@pytest.fixture(scope="module")
def sessions() -> list[popsr.Session]:
    return [small_program(embed=True, scale=scale).session() for scale in (1, 2)]


def names_of(folder: Path) -> list[str]:
    return sorted(file.name.split(".")[-1] for file in folder.iterdir())


# Saving


@pytest.mark.parametrize("name", CALLS)
def test_a_save_that_fails_says_which_file_is_there(
    tmp_path: Path,
    format: Format,
    name: str,
    sessions: list[popsr.Session],
    caplog: pytest.LogCaptureFixture,
) -> None:
    old, new = sessions
    path = saved(tmp_path, format, old)
    os.chown(path, 1, 1)  # so that the new file needs it
    with contextlib.suppress(OSError):
        os.setxattr(path, "user.popsr", b"1")
    expect, positions = names_of(tmp_path), 0
    for code in ERRORS:
        at, was_called = 0, True
        while was_called:
            format.save(old, path)
            before = open_files(tmp_path)
            with failing(name, at, raising(OSError(code, os.strerror(code)))) as log:
                refused = refusal(lambda: format.save(new, path))
            assert open_files(tmp_path) == before
            was_called, at = len(log) > at, at + 1
            positions += was_called
            assert refused is None or refused.errno == code
            is_new = refused is None or PLACED in str(refused)
            assert format.load(path)["w"][0, 1] == (2 if is_new else 1), refused
            left = [each for each in names_of(tmp_path) if each not in expect]
            assert left in ([], ["tmp"]), refused
            is_whole = names_of(tmp_path) == expect
            assert is_whole or name == "unlink", (at, refused)
            assert is_whole or "cannot remove the" in caplog.text
            caplog.clear()
            format.save(new, path)
            assert names_of(tmp_path) == expect, (code, at)
    assert positions >= len(ERRORS) or name in ("pread", "preadv", "getxattr", "setxattr", "unlink")


def refusal(call: Callable[[], Any]) -> errors.FileError | None:
    try:
        call()
    except errors.FileError as error:
        return error
    return None


@pytest.mark.parametrize("name", CALLS)
def test_ctrl_c_in_any_call_of_a_save_leaves_the_old_file_or_the_new_one(
    tmp_path: Path, format: Format, name: str, sessions: list[popsr.Session]
) -> None:
    old, new = sessions
    path = saved(tmp_path, format, old)
    expect = names_of(tmp_path)
    at, was_called = 0, True
    while was_called:
        format.save(old, path)
        before = open_files(tmp_path)
        with failing(name, at, raising(KeyboardInterrupt())) as log, contextlib.suppress(KeyboardInterrupt):
            format.save(new, path)
        assert open_files(tmp_path) == before
        was_called, at = len(log) > at, at + 1
        assert format.load(path)["w"][0, 1] in (1, 2)
        format.save(new, path)
        assert names_of(tmp_path) == expect


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("case", CASES)
def test_a_process_that_dies_at_any_call_of_a_save_leaves_nothing_that_stays(
    tmp_path: Path, case: str, after: bool
) -> None:
    """The next save removes the temporary files, and data files that no model needs."""
    result = json.loads(
        run_python(
            f"from tests_py.checkpoints import test_system_calls as t; t.die({case!r}, {after}, {str(tmp_path)!r})"
        )
    )
    assert result["deaths"] > 15
    assert result["values"] == [1, 2]
    assert result["most files left"] >= (2 if "external" in case else 1)


def die(case: str, after: bool, folder: str) -> None:
    """Die at each call in turn, and print what was found; in a process of its own, for it forks."""
    format = format_of(case, lambda name, value: setattr(_onnx_write, name.rpartition(".")[2], value))
    old, new = (small_program(embed=True, scale=scale).session() for scale in (1, 2))
    path = saved(Path(folder), format, old)
    expect = names_of(path.parent)
    values, left, at, was_reached = set(), 0, 0, True
    while was_reached:
        format.save(old, path)
        child = os.fork()
        if child == 0:
            die_at(at, after)
            with contextlib.suppress(BaseException):
                format.save(new, path)
            os._exit(0)
        was_reached, at = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9, at + 1
        values.add(int(format.load(path)["w"][0, 1]))
        left = max(left, len(names_of(path.parent)) - len(expect))
        format.save(new, path)
        assert names_of(path.parent) == expect, (at, names_of(path.parent))
        assert format.load(path)["w"][0, 1] == 2
    print(json.dumps({"deaths": at, "values": sorted(values), "most files left": left}))


def die_at(at: int, after: bool) -> None:
    """Let the process die before or after the call with that number."""
    count = 0

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            is_last = count - 1 == at
            if is_last and not after:
                os._exit(9)
            try:
                return real(*args, **kwargs)
            finally:
                if is_last:
                    os._exit(9)

        return call

    for name, owner in CALLS.items():
        setattr(owner, name, wrap(getattr(owner, name)))


# Loading


@pytest.mark.parametrize("name", READING)
def test_a_load_that_fails_changes_nothing(
    tmp_path: Path, format: Format, name: str, sessions: list[popsr.Session]
) -> None:
    path = saved(tmp_path, format, sessions[1])
    program = small_program(scale=1)
    with program.session() as session:
        before = weights(session)
        positions = 0
        for code in ERRORS:
            for load in (format.load, session.reset_host_weights):
                at, was_called = 0, True
                while was_called:
                    files = open_files(tmp_path)
                    with failing(name, at, raising(OSError(code, os.strerror(code)))) as log:
                        refused = refusal(lambda: load(path))  # noqa: B023
                    assert open_files(tmp_path) == files
                    was_called, at = len(log) > at, at + 1
                    positions += was_called
                    if load is format.load:
                        pass
                    elif refused is None:
                        assert session.get_tensor_data(program.variables["w"])[0, 1] == 2
                        session._access.set_rows(
                            {variable: before[variable.id] for variable in session._access.variables}
                        )
                    else:
                        assert session.step == 0
                        for key, array in weights(session).items():
                            assert_same_bits(array, before[key], key)
                    if name == "close":
                        assert refused is None  # what was read is right
                    elif was_called:
                        assert refused is not None
                        assert refused.errno == code
                        assert "cannot read" in str(refused)
        assert positions >= len(ERRORS) or name == "preadv"


def test_a_short_read_is_not_an_end(tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system may return less than it was asked for."""
    program = Program(1)
    program.add("w", np.arange(100_000, dtype=np.float32))
    path = saved(tmp_path, format, program.ir)
    real, real_v = os.pread, os.preadv
    monkeypatch.setattr(os, "preadv", lambda file, buffers, offset: real_v(file, [buffers[0][:1000]], offset))
    monkeypatch.setattr(os, "pread", lambda file, count, offset: real(file, max(count // 2, 30_000), offset))
    assert_same_bits(format.load(path)["w"], np.arange(100_000, dtype=np.float32))
