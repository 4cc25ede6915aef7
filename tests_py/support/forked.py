"""Python programs as processes of their own that are forked, so that what they import first is imported once.

A server for each list of packages has imported these and forks for each program; nothing of a program's own has run in
it, and it has no more modules than the packages' own import loads.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

__all__ = ["run_program"]

# Packages that servers import, if a program does, with what else its first use imports.
_PACKAGES = {"popsr": ("popsr",), "jax": ("jax",), "torch": ("torch", "torch._dynamo")}
# The child leaves the loop, and runs the program as the module of the interpreter that it is.
_SERVER = """
import importlib, json, os, sys, types, warnings
for name in sys.argv[1:]:
    importlib.import_module(name)
while True:
    request = b""
    while not request.endswith(b"\\n"):
        read = os.read(0, 65536)
        if not read:
            os._exit(0)
        request += read
    with warnings.catch_warnings():  # NumPy's library has threads, which stop before a fork; Python warns from 3.12 on
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        break
    os.write(1, b"%d\\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
wanted = json.loads(request)
for fd, (path, flags) in enumerate(((os.devnull, os.O_RDONLY), *((p, os.O_WRONLY) for p in wanted["streams"]))):
    opened = os.open(path, flags)
    os.dup2(opened, fd)
    os.close(opened)
os.chdir(wanted["folder"])
os.environ.clear()
os.environ.update(wanted["env"])
sys.argv = wanted["argv"]
sys.path[0] = wanted["folder"]
sys.modules["__main__"] = main = types.ModuleType("__main__")
main.__file__ = os.path.join(wanted["folder"], sys.argv[0])
with open(main.__file__, encoding="utf-8") as file:
    code = compile(file.read(), main.__file__, "exec", dont_inherit=True)
exec(code, main.__dict__)
"""


def run_program(
    folder: Path, *options: str, env: dict[str, str] | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run ``program.py`` of a folder there, with options of Python, and wait for its end.

    Raises:
        subprocess.TimeoutExpired: it took too long, and was killed.
    """
    text = (folder / "program.py").read_text()
    packages = [name for name in _PACKAGES if re.search(rf"^\s*(?:import|from) {name}\b", text, re.MULTILINE)]
    server = _server(tuple(options), tuple(packages))
    with tempfile.TemporaryDirectory() as streams:
        paths = [Path(streams, name) for name in ("stdout", "stderr")]
        for path in paths:
            path.touch()
        request = {
            "folder": str(folder),
            "argv": ["program.py"],
            "env": {**os.environ, **(env or {})},
            "streams": [str(path) for path in paths],
        }
        try:
            code = _answer(server, json.dumps(request).encode() + b"\n", timeout)
        finally:
            if server.poll() is not None:
                _server.cache_clear()
        stdout, stderr = (path.read_text() for path in paths)
    return subprocess.CompletedProcess(["python", *options, "program.py"], code, stdout, stderr)


@functools.cache
def _server(options: Sequence[str], packages: Sequence[str]) -> subprocess.Popen[bytes]:
    """A process that has imported these packages; it ends with its input."""
    modules = [module for package in packages for module in _PACKAGES[package]]
    paths = os.pathsep.join(path for path in sys.path if path)
    server = subprocess.Popen(
        [sys.executable, *options, "-c", _SERVER, *modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,
    )
    atexit.register(server.communicate)  # the end of its input
    return server


def _answer(server: subprocess.Popen[bytes], request: bytes, timeout: float) -> int:
    """The exit status that a server answers."""
    stdin, stdout = _stream(server.stdin), _stream(server.stdout)
    stdin.write(request)
    stdin.flush()
    if select.select([stdout], [], [], timeout)[0]:
        line = stdout.readline()
        if line:
            return int(line)
        server.wait()
        raise RuntimeError("the server of programs ended")
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()
    raise subprocess.TimeoutExpired("program.py", timeout)


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
