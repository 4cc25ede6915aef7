"""Calls in processes of their own, with limits of memory and processor time, and what they took."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests_py.support.helpers import run_python

__all__ = ["Row", "check_row", "in_child", "measured_rows", "outcome", "print_rows", "status"]

_MAX_SECONDS = 20  # of a process; what takes longer is killed: a bomb takes minutes or hours
_ROW_MEMORY = 200 << 20


class Row(NamedTuple):
    """A call in a folder of its own, what makes its files before, and what its error says ("" when it returns)."""

    make: Callable[[Path], object]
    call: Callable[[Path], object]
    match: str


def measured_rows(module: str, imports: str, folder: Path) -> dict[str, Any]:
    """Time and memory of each row of a module, in one process that imports first, as that may take longer than all."""
    code = (
        f"from pathlib import Path; import {imports}; from tests_py.support.limits import print_rows; "
        f"from {module} import ROWS; print_rows(ROWS, Path({str(folder)!r}))"
    )
    lines = map(json.loads, run_python(code, MALLOC_MMAP_THRESHOLD_="65536").splitlines())
    return {line["name"]: line for line in lines}


def print_rows(rows: Mapping[str, Row], folder: Path) -> None:
    """Run each row in a process of its own, and print a line of JSON for it."""
    for number, (name, row) in enumerate(rows.items()):
        path = folder / str(number)
        path.mkdir()
        in_child(lambda: row.make(path) and None)  # noqa: B023 - called at once
        size = sum(each.lstat().st_size for each in path.rglob("*"))
        found = in_child(lambda: outcome(size, lambda: row.call(path)))  # noqa: B023
        print(json.dumps({"name": name, **found}), flush=True)


def check_row(row: Row, found: Mapping[str, Any]) -> None:
    """Refuse a row that took too much, or whose error is another one or of no class of popsr."""
    from popsr import errors

    print({key: value for key, value in found.items() if key != "text"})
    if row.match:
        assert row.match in found["text"], found
        assert issubclass(getattr(errors, found["error"]), errors.Error)
    else:
        assert (found["error"], found["text"]) == ("", "")
    assert len(found["text"]) <= 500
    assert "\n" not in found["text"]
    assert found["memory"] <= _ROW_MEMORY + 2 * found["bytes"]


def outcome(size: int, call: Callable[[], Any]) -> dict[str, Any]:
    """Peak memory beyond what there was, processor time, and the error of a call that reads ``size`` bytes."""
    ctypes.CDLL(None).malloc_trim(0)  # free memory of before would hide what is taken now
    before = status("VmRSS")
    limit = status("VmSize") + min(2 * size, 1 << 30) + (400 << 20)  # so that a row cannot hurt the machine
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (_MAX_SECONDS, _MAX_SECONDS))
    start = time.process_time()
    try:
        call()
        error, text = "", ""
    except Exception as raised:
        error, text = type(raised).__name__, str(raised)
    seconds = time.process_time() - start
    peak = status("VmHWM") - before
    return {"bytes": size, "memory": peak, "seconds": seconds, "error": error, "text": text}


def status(key: str) -> int:
    """A size of this process; the peak is counted from the fork on."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) << 10


def in_child(call: Callable[[], Any]) -> Any:
    """The result of a call in another process, which takes its memory with it."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status_code = 1
        try:
            os.write(write, json.dumps(call()).encode())
            status_code = 0
        finally:
            sys.stderr.flush()
            os._exit(status_code)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        result = file.read()
    if os.waitpid(child, 0)[1] != 0:
        return {"bytes": 0, "memory": 0, "seconds": _MAX_SECONDS, "error": "the process died", "text": ""}
    return json.loads(result)
