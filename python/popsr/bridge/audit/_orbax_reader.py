"""Processes that read folders of Orbax under limits: started when they are asked, ended when they are not needed."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, ClassVar

from popsr.bridge.audit._held import Array

__all__ = ["Reader"]

_MOST = 8  # processes at a time: each has tensorstore in memory


class Reader:
    """A process for a folder; it ends with this object, or after others were asked."""

    _live: ClassVar[weakref.WeakValueDictionary[int, Reader]] = weakref.WeakValueDictionary()

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder.resolve())  # the file driver takes no ..
        self._process: subprocess.Popen[bytes] | None = None
        self._stop: Callable[[], object] = int

    def ask(self, request: dict[str, Any]) -> bytes:
        """The line of an answer; empty if the process ended."""
        process = self._process = self._process or self._started()
        with contextlib.suppress(BrokenPipeError):
            _pipe(process.stdin).write(json.dumps(request).encode() + b"\n")
            _pipe(process.stdin).flush()
        return _pipe(process.stdout).readline()

    def fill(self, target: Array) -> bool:
        """Read the bytes after an answer; False if the process ended before."""
        if target.nbytes == 0:
            return True
        assert self._process is not None
        return _pipe(self._process.stdout).readinto(target.data) == target.nbytes  # type: ignore[attr-defined, no-any-return]

    def end(self) -> int:
        """End the process, which is started again when it is asked; its status."""
        process, self._process = self._process, None
        assert process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that crashed is about to end
            process.wait(1)
        self._stop()
        return process.returncode

    def _started(self) -> subprocess.Popen[bytes]:
        for other in [each for each in self._live.values() if each._process is not None][: 1 - _MOST]:
            other._stop()
            other._process = None
        program = Path(__file__).with_name("_orbax_process.py")
        process = subprocess.Popen(
            [sys.executable, "-P", str(program), self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "MALLOC_ARENA_MAX": "1",  # others take address space, which is limited
            },
        )
        self._stop = weakref.finalize(self, _stop, process)
        self._live.pop(id(self), None)
        self._live[id(self)] = self
        return process


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(BrokenPipeError):  # of what was not sent
            _pipe(stream).close()
    process.wait()
