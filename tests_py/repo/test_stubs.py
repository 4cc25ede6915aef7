"""The types of the compiled core in python/popsr/_core are those that it has."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from popsr import _core
from popsr._support import records as _records
from tests_py import ROOT

STUBS = ROOT / "python/popsr/_core"
# In a process of its own: classes get other homes for a moment.
GENERATE = """
import json, runpy
print(json.dumps(runpy.run_path("stubs.py")["generate"]()))
"""


def test_types_of_the_core_are_fresh() -> None:
    """After a change of the bindings: `nox -s stubs`."""
    pytest.importorskip("pybind11_stubgen")
    result = subprocess.run(
        [sys.executable, "-c", GENERATE], cwd=ROOT / ".ci", capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    generated = json.loads(result.stdout.splitlines()[-1])
    assert generated == {file.name: file.read_text() for file in STUBS.glob("*.pyi")}


@pytest.mark.parametrize("file", sorted(STUBS.glob("*.pyi")), ids=lambda file: file.name)
def test_types_are_complete(file: Path) -> None:
    text = file.read_text()
    assert "(*args, **kwargs)" not in text, "a function whose types are unknown"
    unknown = [line for line in text.splitlines() if re.search(r"def .*: typing.Any[,)]", line)]
    assert unknown == []


def test_records_are_made_by_the_core() -> None:
    ir = _core.Ir(2)
    graph = ir.create_graph("g")
    tensor = ir.add_input(graph, "x", "float32", [2, 3], [], False)
    info = ir.tensor(tensor)
    assert isinstance(info, _records.TensorInfo)
    assert info == ("g_subgraph(0)/x", graph, "float32", (2, 3), (), "input", False, tensor, None)
    emitted = ir.emit(graph, "relu", [tensor], {}, [], 0, 0, True, 0, False, False)
    assert isinstance(emitted, _records.Emitted)
    assert [type(output) for output in emitted.outputs] == [_records.NewTensor]
    assert ir.tensor(emitted.outputs[0].id).producer == emitted.op
