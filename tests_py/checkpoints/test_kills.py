"""A process that is killed while it saves leaves the old checkpoint or the new one, complete.

docs/faults.md has the result of the slow test.
"""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import popsr
from popsr.io._onnx import write as _onnx_write
from tests_py.checkpoints.cases import FORMATS, Format, Program
from tests_py.support.helpers import run_python

CASES = ["onnx", "onnx with external data", "safetensors"]
ELEMENTS = 1 << 20


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_killed_process_leaves_the_old_or_the_new_checkpoint(case: str) -> None:
    result = json.loads(
        run_python(f"from tests_py.checkpoints import test_kills as t; t.main({case!r}, 200)")
    )
    print(case, result)
    assert result["complete"] == result["kills"] == 200
    assert result["while saving"] > 100
    assert result["temporary files at the end"] == 0


def main(case: str, kills: int) -> None:
    """Kill savers and print how often a complete checkpoint was there; in a process of its own, for it forks."""
    format = FORMATS[case == "safetensors"]
    if case == "onnx with external data":
        _onnx_write._MAX_FILE = 1024
    rng = random.Random(0)
    result = dict.fromkeys(["kills", "complete", "while saving", "new", "temporary files at the end"], 0)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, f"w{format.suffix}")
        program = make(1)
        format.save(program, path)
        seconds = time_of_one(format, program, path)
        last = 1
        for _ in range(kills):
            started, finished = kill(format, path, last, rng.uniform(0, 3) * seconds)
            found = value_of(format, path)
            result["kills"] += 1
            result["complete"] += found in (finished, started)
            result["while saving"] += started != finished
            result["new"] += found == started != finished
            last = found
        format.save(program, path)
        result["temporary files at the end"] = sum(file.suffix == ".tmp" for file in Path(name).iterdir())
    print(json.dumps(result))


def make(value: int) -> popsr.Ir:
    """Variables that hold ``value`` everywhere: a mixture of two checkpoints would be seen."""
    program = Program(1)
    for i in range(3):
        program.add(f"w{i}", np.full(ELEMENTS, value, np.float32))
    return program.ir


def time_of_one(format: Format, program: popsr.Ir, path: Path) -> float:
    start = time.perf_counter()
    format.save(program, path)
    return time.perf_counter() - start


def kill(format: Format, path: Path, last: int, seconds: float) -> tuple[int, int]:
    """Kill a process that saves ``last + 1``, ``last + 2``, …; which it had begun and which it had finished."""
    programs = [make(last + i) for i in range(1, 5)]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        for program in programs:
            os.write(write, b"s")
            format.save(program, path)
            os.write(write, b"f")
        signal.pause()
    os.read(read, 1)  # it has begun
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(write)
    log = b"s"
    while more := os.read(read, 64):
        log += more
    os.close(read)
    return last + log.count(b"s"), last + log.count(b"f")


def value_of(format: Format, path: Path) -> int:
    """The value of all elements of all variables; the file is complete, or this is an error."""
    arrays = format.load(path)
    values = {float(value) for i in range(3) for value in np.unique(arrays[f"w{i}"])}
    assert len(values) == 1, values
    assert all(arrays[f"w{i}"].shape == (ELEMENTS,) for i in range(3))
    return int(values.pop())
