"""Lines of cells: wherever a location is shown it is called as IPython calls it, ``Cell In[8], line 2``."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import popsr
from popsr._support.text.frames import file_and_line
from tests_py import ROOT

pytest.importorskip("IPython")

from IPython.core.compilerop import CachingCompiler
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

SETUP = "import numpy as np, popsr\nfrom popsr import ops\nir = popsr.Ir(replication=2)"
DRIFT = """# Drifts.
with ir.main_graph, popsr.in_sequence():
    x = popsr.h2d_stream((66,), popsr.float32, "x")
    w = popsr.variable(np.zeros(66), popsr.float32, "w")
    ops.add_(w, ops.host_load(x))
"""


class FilesOfKernels(CachingCompiler):  # type: ignore[misc, unused-ignore]  # Any where IPython is not installed
    """Names of cells as ipykernel gives them: equal code has one name."""

    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
        return f"/tmp/ipykernel_4711/{hashlib.md5(raw_code.encode()).hexdigest()}.py"


@pytest.fixture(params=[CachingCompiler, FilesOfKernels], ids=["ipython", "ipykernel"])
def shell(request: pytest.FixtureRequest) -> Iterator[InteractiveShell]:
    config = Config()
    config.HistoryManager.enabled = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shell: Any = InteractiveShell.instance(config=config)
    shell.compile = request.param()
    shell.execution_count = 7
    run(shell, SETUP)
    yield shell
    InteractiveShell.clear_instance()


def run(shell: InteractiveShell, cell: str) -> dict[str, Any]:
    """Names of the notebook after a cell, which does not raise."""
    shell.run_cell(cell, store_history=True).raise_error()
    return shell.user_ns


def test_ops_tensors_and_programs(shell: InteractiveShell) -> None:
    names = run(shell, "with ir.main_graph:\n    a = popsr.variable(1.0, name='a')\n    b = ops.relu(a)")
    ir: popsr.Ir = names["ir"]
    assert [op.location for op in ir.main_graph.ops] == ["Cell In[8], line 3"]
    assert str(ir).rstrip().splitlines()[-2].endswith("# Cell In[8], line 3")


def test_functions_of_other_cells(shell: InteractiveShell) -> None:
    run(shell, "# A function.\n\ndef f(t):\n    return ops.relu(t)")
    run(shell, "with ir.main_graph:\n    a = popsr.variable(1.0)")
    names = run(shell, "with ir.main_graph:\n    f(a)")
    assert names["ir"].main_graph.ops[0].location == "Cell In[8], line 4"


def test_a_cell_that_runs_again_has_its_new_number(shell: InteractiveShell) -> None:
    run(shell, "with ir.main_graph:\n    a = popsr.variable(1.0)")
    cell = "with ir.main_graph:\n    ops.relu(a)"
    run(shell, cell)
    names = run(shell, cell)
    assert [op.location for op in names["ir"].main_graph.ops] == ["Cell In[9], line 2", "Cell In[10], line 2"]


def test_errors(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    run(shell, "with ir.main_graph:\n    a = popsr.variable([1.0, 2.0], name='a')")
    result = shell.run_cell("with ir.main_graph:\n    ops.reshape(a, (3,))", store_history=True)
    assert isinstance(result.error_in_exec, popsr.errors.ShapeError)
    assert result.error_in_exec.__notes__[0] == (
        "while emitting reshape(t=<float32[2] 'a'>) at Cell In[9], line 2"
    )
    assert "Cell In[9], line 2" in capsys.readouterr().out


def test_lints_tables_and_explanations(shell: InteractiveShell) -> None:
    run(shell, DRIFT)
    names = run(shell, "facts = popsr.analysis.analyze(ir)")
    facts: popsr.analysis.PartitionAnalysis = names["facts"]
    assert facts.warnings[0].location == "Cell In[8], line 5"
    assert str(facts.warnings[0]).startswith("L2 Cell In[8], line 5: ")
    why = facts.explain(names["w"], 0, 1)
    assert why.root is not None
    assert why.root.location == "Cell In[8], line 5"
    assert "Cell In[8], line 5" in str(why)
    assert "Cell In[8], line 5" in why._repr_html_()
    assert "Cell In[8], line 5" in names["ir"].main_graph._repr_html_()
    assert "Cell In[8], line 5" in facts._repr_html_()


def test_warnings(shell: InteractiveShell) -> None:
    run(shell, DRIFT)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(shell, "session = popsr.Session(ir)")
    assert [(each.filename, each.lineno, each.category) for each in caught] == [
        ("Cell In[8]", 5, popsr.ReplicaWarning)
    ]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("model.py:31", ("model.py", 31)),
        ("/a:b/model.py:31", ("/a:b/model.py", 31)),
        ("Cell In[8], line 2", ("Cell In[8]", 2)),
        ("Cell In[-1], line 2", ("Cell In[-1]", 2)),
        ("", ("", 0)),
    ],
)
def test_texts_of_locations(text: str, place: tuple[str, int]) -> None:
    assert file_and_line(text) == place


def test_files_that_look_like_cells_without_ipython() -> None:
    code = compile("op = ops.relu(a)", "/tmp/ipykernel_4711/abc.py", "exec")
    names: dict[str, Any] = {"ops": popsr.ops}
    ir = popsr.Ir()
    with ir.main_graph:
        names["a"] = popsr.variable(1.0)
        exec(code, names)
    assert ir.main_graph.ops[0].location == "/tmp/ipykernel_4711/abc.py:1"


def test_a_program_does_not_import_ipython() -> None:
    program = "import sys, popsr\nwith popsr.Ir().main_graph: popsr.variable(1.0)\nassert 'IPython' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real one: files of cells, their numbers, and what it prints of an error."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.delenv("POPSR_FULL_TRACEBACK", raising=False)
    cells = [SETUP, "with ir.main_graph:\n    a = popsr.variable([1.0, 2.0])\n    ops.reshape(a, (3,))"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nbclient.NotebookClient(notebook, allow_errors=True, timeout=120).execute()
    text = "\n".join(notebook.cells[1].outputs[0]["traceback"])
    assert "at Cell In[2], line 3" in text
    assert "help: python -m popsr help ShapeError" in text
    assert "python/popsr" not in text
    assert "site-packages/popsr" not in text
