"""Programs that import popxl, popart and stochastorch get popsr's own modules, functions and classes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import popsr
from popsr.compat import install, popart, stochastorch, uninstall
from popsr.compat._check import check as _check
from popsr.compat._commands import run as _run
from popsr.compat._finder import ALIASES, STAND_INS
from tests_py.compat.popxl.test_surface import EXPORTS, MODULES
from tests_py.support.helpers import run_python

PATHS = [*EXPORTS, *MODULES]


@pytest.fixture
def installed() -> Iterator[None]:
    install()
    yield
    uninstall()


def _run_command(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """``python -m popsr run`` in a folder."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "popsr", "run", *args],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=300,
        check=False,
    )


# Imports

IMPORT_ALL = """
import importlib, json, sys
import popsr.compat
from popsr.compat._finder import popsr_name
from popsr.compat._module_paths import MODULE_PATHS
before = {{name: dict(vars(module)) for name, module in sys.modules.items() if name.startswith("popsr")}}
popsr.compat.install()
found = {{}}
for path in json.loads({paths!r}):
    module = importlib.import_module(path)
    same = module if path in MODULE_PATHS else importlib.import_module(popsr_name(path))
    found[path] = module is same is sys.modules[path]
changed = [
    f"{{name}}.{{key}}"
    for name, members in before.items()
    for key, value in members.items()
    if getattr(sys.modules[name], key) is not value
]
print(json.dumps([found, changed]))
"""


@pytest.mark.parametrize("paths", [PATHS, PATHS[::-1]], ids=["in order", "children first"])
def test_every_module_path_is_popsrs_module(paths: list[str]) -> None:
    """And no import replaces a function by the module of the same name."""
    found, changed = json.loads(run_python(IMPORT_ALL.format(paths=json.dumps(paths))))
    assert found == dict.fromkeys(paths, True)
    assert changed == []


STATEMENTS = [
    "import popxl; assert popxl is popsr",
    "import popxl.ops.add as f; assert f is popsr.ops.add",
    "import popxl.ops.cast; assert popxl.ops.cast is popsr.ops.cast and callable(popxl.ops.cast)",
    "from popxl.ops.add import add, add_; assert (add, add_) == (popsr.ops.add, popsr.ops.add_)",
    "from popxl.ops import *; assert matmul is popsr.ops.matmul",
    "from popxl.ops.var_updates.accumulate import accumulate_; assert accumulate_ is popsr.ops.var_updates.accumulate_",
    "from popxl import io; assert io is popsr.io",
    "import popxl.io; assert popxl.io is popsr.io",
    "import popxl.typing_, popsr._program.typing_; assert popxl.typing_ is popsr._program.typing_",
    "from popart import CommGroupType; assert CommGroupType is popsr.replicas.CommGroupType",
    "from popart import popart_exception; assert popart_exception is popsr.errors.Error",
    "from stochastorch import StochasticAdder; assert StochasticAdder is popsr.StochasticAdder",
    "import importlib.util as u; assert u.find_spec('popxl.ops').origin == u.find_spec('popsr.ops').origin",
    "import importlib.util as u; assert u.find_spec('popxl.ops.add') and not u.find_spec('popxl.no_such_module')",
    "import popdist.popart; from popsr.compat import popdist as p; assert popdist is p",
    "from popdist.popart import getDevice; import popart; assert type(getDevice()) is popart.DeviceInfo",
    "import popxl.errors, importlib; assert importlib.reload(popxl.errors) is popsr.errors",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_may_be_the_first_import(statement: str) -> None:
    run_python(f"import popsr.compat\npopsr.compat.install()\n{statement}")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "path", ["popxl.no_such_module", "popxl.ops.no_such_op", "popart._internal.no_ir", "stochastorch.nothing"]
)
def test_unknown_paths_are_not_found(path: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=path.rpartition(".")[0].replace("._", "[.]_")):
        importlib.import_module(path)


@pytest.mark.usefixtures("installed")
def test_a_package_that_popsr_lacks_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALIASES, "popxl_addons", "popsr.no_such_addons")  # type: ignore[arg-type]
    for path in ("popxl_addons", "popxl_addons.module"):
        with pytest.raises(ModuleNotFoundError) as raised:
            importlib.import_module(path)
        assert str(raised.value) == "popxl_addons: this version of popsr has no module popsr.no_such_addons"
        assert raised.value.name == "popxl_addons"


@pytest.mark.usefixtures("installed")
def test_addons_are_popsrs() -> None:
    assert importlib.import_module("popxl_addons") is importlib.import_module("popsr.addons")


def test_names_of_popart_and_stochastorch_are_there() -> None:
    for module in (popart, stochastorch):
        assert [name for name in module.__all__ if not hasattr(module, name)] == []


# Install and uninstall


def test_installing_twice_is_once_and_uninstalling_forgets() -> None:
    finders, modules = list(sys.meta_path), set(sys.modules)
    for _ in range(2):
        install()
        install()
        assert len(sys.meta_path) == len(finders) + 1
        assert importlib.import_module("popxl") is popsr
        uninstall()
        uninstall()
        assert sys.meta_path == finders
        assert {name for name in set(sys.modules) - modules if name.startswith("popxl")} == set()
        with pytest.raises(ModuleNotFoundError, match="No module named 'popxl'"):
            importlib.import_module("popxl")


@pytest.mark.parametrize("name", sorted(ALIASES.keys() - STAND_INS))
def test_installed_packages_are_shadowed_only_by_force(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("is_real = True")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    with pytest.raises(
        popsr.errors.StateError, match=f"^compat.install: .* got '{name}' in '{tmp_path}/.*force=True$"
    ):
        install()
    assert sys.meta_path == finders
    real = importlib.import_module(name)
    assert real.is_real
    try:
        install(force=True)
        assert name not in sys.modules
        assert not hasattr(importlib.import_module("popxl" if name == "popxl_addons" else name), "is_real")
        uninstall()
        assert importlib.import_module(name) is real
    finally:
        uninstall()
        sys.modules.pop(name, None)


def test_modules_made_by_hand_are_packages_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "popxl", type(sys)("popxl"))
    with pytest.raises(popsr.errors.StateError, match=r"got 'popxl' in 'sys\.modules'"):
        install()


def test_folders_without_code_are_not_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "popxl").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    install()
    try:
        assert importlib.import_module("popxl") is popsr
    finally:
        uninstall()


# Options through PopART's object


def test_session_options_are_the_options_of_the_ir() -> None:
    ir = popsr.Ir()
    options = ir._pb_ir.getSessionOptions()
    assert options is ir.options
    options.enableStochasticRounding = True
    assert ir.options.enable_stochastic_rounding
    untyped: Any = options
    with pytest.raises(AttributeError, match="options: unknown option, got 'enableFancyThings'"):
        untyped.enableFancyThings = True


# Python -m popsr run

# Two replicas fit a line by accumulating gradients; only names of PopXL and PopART.
PROGRAM = """
import sys
import numpy as np
import popart
import popxl
import popxl.ops as ops
from popxl.ops.collectives.replicated_all_reduce import replicated_all_reduce_
from popxl.transforms import autodiff
from batches import batches

ir = popxl.Ir(replication=2)
opts = ir._pb_ir.getSessionOptions()
opts.enableStochasticRounding = False
ir.num_host_transfers = int(sys.argv[1])

class Line(popxl.Module):
    def build(self, x: popxl.Tensor, y: popxl.Tensor, w: popxl.TensorByRef) -> popxl.Tensor:
        error = x @ w - y
        return ops.mean(error * error)

with ir.main_graph, popxl.in_sequence():
    x_stream = popxl.h2d_stream((8, 2), popxl.float32, name="x")
    y_stream = popxl.h2d_stream((8, 1), popxl.float32, name="y")
    loss_stream = popxl.d2h_stream((), popxl.float32, name="loss")
    w = popxl.variable(np.zeros((2, 1)), popxl.float32, name="w")
    graph = ir.create_graph(Line(), x_stream.spec, y_stream.spec, w)
    grad = autodiff(graph, grads_required=[graph.inputs[2]])

    def step(w: popxl.TensorByRef):
        info = ops.call_with_info(graph, ops.host_load(x_stream), ops.host_load(y_stream), w)
        dw, = ops.call(grad.graph, popxl.constant(1, popxl.float32), inputs_dict=grad.inputs_dict(info))
        replicated_all_reduce_(dw, "mean")
        ops.var_updates.accumulate_(w, dw * -0.2)
        ops.host_store(loss_stream, info.outputs[0])

    ops.repeat(ir.create_graph(step, w), ir.num_host_transfers, w)

x, y = batches(ir.num_host_transfers)
try:
    popxl.Session(ir, "ipu_hw").run({x_stream: x[:1]})
except popart.popart_exception as error:
    print("refused:", type(error).__name__)
with popxl.Session(ir, "ipu_hw") as session:
    losses = session.run({x_stream: x, y_stream: y})[loss_stream]
print(session.get_tensor_data(w).ravel().round(2).tolist(), bool(losses[-1].max() < 1e-3))
print(__name__, sys.argv, __file__)
sys.exit(3)
"""

BATCHES = """
import numpy as np

def batches(number):
    x = np.random.default_rng(0).normal(size=(number, 2, 8, 2)).astype(np.float32)
    return x, x @ np.array([[2.0], [-1.0]], np.float32)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "my_programs"
    folder.mkdir()
    (folder / "batches.py").write_text(BATCHES)
    (folder / "line.py").write_text(PROGRAM)
    return folder


def test_a_program_with_popxls_names_runs(program: Path) -> None:
    result = _run_command("my_programs/line.py", "100", "--force", cwd=program.parent)
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        "refused: SessionError",
        "[2.0, -1.0] True",
        "__main__ ['my_programs/line.py', '100', '--force'] my_programs/line.py",
    ]
    assert result.returncode == 3


def test_modules_run_too(program: Path) -> None:
    result = _run_command("-m", "my_programs.show", "-x", cwd=program.parent)
    assert (
        result.stderr
        == "popsr: run: no such module, got 'my_programs.show', expected a module that can run\n"
    )
    assert result.returncode == 2
    (program / "show.py").write_text("import sys, popxl; print(popxl.__name__, __name__, sys.argv[1:])")
    result = _run_command("-m", "my_programs.show", "-x", cwd=program.parent)
    assert (result.stdout, result.returncode) == ("popsr __main__ ['-x']\n", 0)


def test_errors_of_the_program_are_its_own(program: Path) -> None:
    (program / "fails.py").write_text("import popxl\n\npopxl.Ir(replication=0)\n")
    result = _run_command("fails.py", cwd=program)
    assert result.returncode == 1
    assert '"fails.py", line 3, in <module>' in result.stderr
    error, help_ = result.stderr.splitlines()[-2:]
    assert error.startswith("popsr.errors.ReplicaError: Ir: too few replicas")
    assert help_ == "help: python -m popsr help ReplicaError"


def test_errors_of_a_package_above_a_module_are_not_hidden(program: Path) -> None:
    (program / "__init__.py").write_text("import popxl.no_such_module")
    result = _run_command("-m", "my_programs.line", cwd=program.parent)
    assert result.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'popxl.no_such_module'"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["no_such.py"], "popsr: run: no such program, got 'no_such.py', expected a Python script\n"),
        (["."], "popsr: run: no such program, got '.', expected a Python script\n"),
        (
            ["-m", "no_such.module"],
            "popsr: run: no such module, got 'no_such.module', expected a module that can run\n",
        ),
        (
            ["-m", "popsr.ops"],
            "popsr: run: no such module, got 'popsr.ops', expected a module that can run\n",
        ),
        (["-m", ".x"], "popsr: run: no such module, got '.x', expected a module that can run\n"),
    ],
)
def test_missing_programs_are_one_line(
    args: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        assert _run.main(args) == 2
    finally:
        uninstall()
    assert capsys.readouterr().err == message


def test_an_installed_popxl_is_named_and_force_goes_on(program: Path) -> None:
    (program / "popxl.py").write_text("")
    (program / "which.py").write_text("import popxl; print(popxl.__name__)")
    result = _run_command("which.py", cwd=program)
    assert (result.stdout, result.returncode) == ("", 2)
    assert result.stderr.startswith(
        "popsr: compat.install: a package of that name is installed, got 'popxl' in "
    )
    assert result.stderr.count("\n") == 1
    assert _run_command("--force", "which.py", cwd=program).stdout == "popsr\n"


@pytest.mark.parametrize("main", [_run.main, _check.main])
def test_commands_need_a_program(main: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([])  # type: ignore[operator]
    assert "usage: python -m popsr" in capsys.readouterr().err
