"""The plugin of pytest: the fixture, the marker, steps that are collected, and reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import types
from collections.abc import Sequence
from pathlib import Path

import pytest
from pytest_popsr._steps import identity

import popsr.testing  # noqa: F401  before any run here, as a run is in this process
from popsr.bridge._proof.named import steps_in
from popsr.errors import OutOfStepError
from tests_py import ROOT
from tests_py.report.test_answers import follow_schema

STEPS = """
import popsr
from popsr import ops


def made(mean):
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(1.0, name="w")
        x = ops.host_load(popsr.h2d_stream((), popsr.float32, "x"))
        x = ops.collectives.replicated_all_reduce(x, "mean") if mean else x
        ops.var_updates.accumulate_(w, w * x, -0.1)
    return ir


right, drifting = made(True), made(False)
proof = popsr.prove(right)


def lazy():
    return made(False)


def raising():
    return {}["no such key"]


def unreadable(x):
    return 3


unreadable_args = 3


class Job:
    step = drifting
"""
TESTS = """
import unittest

import pytest
import steps_of_plugin as steps


def test_fixture(in_step):
    assert in_step(steps.right).ok
    in_step(steps.drifting)


def test_proof(in_step):
    assert in_step(steps.proof) is steps.proof


@pytest.mark.in_step
def test_marked():
    return steps.drifting


@pytest.mark.in_step
@pytest.mark.parametrize("mean", [True, False])
def test_marked_with_parameters(mean):
    return (steps.made(mean),)


@pytest.mark.in_step(stochastic_rounding=True)
def test_marker_is_for_the_fixture(in_step):
    assert in_step(steps.made(True)).step.ir.options.enable_stochastic_rounding
    assert not in_step(steps.made(True), stochastic_rounding=False).step.ir.options.enable_stochastic_rounding


@pytest.mark.in_step
def test_nothing():
    steps.made(True)


@pytest.mark.in_step("data")
def test_marker_without_options():
    return steps.right


@pytest.mark.in_step
class TestOld(unittest.TestCase):
    def test_method(self):
        pass


@pytest.mark.in_step
def test_skipped():
    pytest.skip("not here")


@pytest.mark.xfail(raises=AssertionError, strict=True)
def test_expected(in_step):
    in_step(steps.drifting)


def test_refused(in_step):
    in_step(3)


def test_of_the_user(in_step):
    in_step(steps.raising())
"""
TARGETS = (
    "steps_of_plugin.py",
    "steps_of_plugin.py::lazy",
    "steps_of_plugin.py::raising",
    "folder_of_plugin",
    "folder_of_plugin.deeper.more::Job.step",
)

# Items, how they end, and the file and line at which a failure is shown.
OUTCOMES = {
    "test_steps.py::test_fixture": ("failed", "test_steps.py", "in_step(steps.drifting)"),
    "test_steps.py::test_proof": ("passed", "", ""),
    "test_steps.py::test_marked": ("failed", "steps_of_plugin.py", "x = ops.host_load"),
    "test_steps.py::test_marked_with_parameters[True]": ("passed", "", ""),
    "test_steps.py::test_marked_with_parameters[False]": (
        "failed",
        "steps_of_plugin.py",
        "x = ops.host_load",
    ),
    "test_steps.py::test_marker_is_for_the_fixture": ("passed", "", ""),
    "test_steps.py::test_nothing": ("failed", "test_steps.py", "@pytest.mark.in_step"),
    "test_steps.py::test_marker_without_options": ("failed", "", ""),
    "test_steps.py::TestOld::test_method": ("failed", "test_steps.py", "def test_method(self):"),
    "test_steps.py::test_skipped": ("skipped", "", ""),
    "test_steps.py::test_expected": ("skipped", "", ""),
    "test_steps.py::test_refused": ("failed", "test_steps.py", "in_step(3)"),
    "test_steps.py::test_of_the_user": ("failed", "steps_of_plugin.py", 'return {}["no such key"]'),
    "steps_of_plugin.py::right": ("passed", "", ""),
    "steps_of_plugin.py::drifting": ("failed", "steps_of_plugin.py", "x = ops.host_load"),
    "steps_of_plugin.py::proof": ("passed", "", ""),
    "steps_of_plugin.py::unreadable": ("failed", "", ""),
    "steps_of_plugin.py::lazy": ("failed", "steps_of_plugin.py", "x = ops.host_load"),
    "steps_of_plugin.py::raising": ("failed", "steps_of_plugin.py", 'return {}["no such key"]'),
    "folder_of_plugin.deeper.more::right": ("passed", "", ""),
    "folder_of_plugin.deeper.more::drifting": (
        "failed",
        "folder_of_plugin/deeper/more.py",
        "x = ops.host_load",
    ),
    "folder_of_plugin.deeper.more::proof": ("passed", "", ""),
    "folder_of_plugin.deeper.more::unreadable": ("failed", "", ""),
    "folder_of_plugin.deeper.more::Job.step": (
        "failed",
        "folder_of_plugin/deeper/more.py",
        "x = ops.host_load",
    ),
}
DRIFT = "'w' differs inside groups: declared {0,1}, proved {0}{1}"


class Outcomes:
    """A plugin of a run: how each item ended, and what is shown of it."""

    def __init__(self) -> None:
        self.items: list[str] = []
        self.outcomes: dict[str, str] = {}
        self.texts: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.items += [each.nodeid for each in items]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.texts[report.nodeid] = report.longreprtext

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.outcomes[report.nodeid] = report.outcome
            self.texts[report.nodeid] = report.longreprtext


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root folder of runs: a file of tests, a script and a package with steps."""
    root = tmp_path_factory.mktemp("plugin")
    package = root / "folder_of_plugin" / "deeper"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "more.py").write_text(STEPS)
    (package / "__main__.py").write_text("raise ValueError('run as a program')\n")
    (root / "steps_of_plugin.py").write_text(STEPS)
    (root / "test_steps.py").write_text(TESTS)
    (root / "ends_of_plugin.py").write_text("import sys\n\nsys.exit(0)\n")
    (root / "syntax_of_plugin.py").write_text("x = 1\ndef f(:\n")
    (root / "missing_of_plugin.py").write_text("\nimport no_such_module\n")
    (root / "empty_of_plugin.py").write_text("value_args = 3\nvalue = 2\n")
    (root / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    return root


def run(folder: Path, *args: str, targets: Sequence[str] = ()) -> tuple[int, Outcomes]:
    """A run of pytest in this process, with no other plugins, in a folder; what it imported is forgotten."""
    outcomes, before = Outcomes(), {*sys.modules}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        patch.delenv("PYTEST_ADDOPTS", raising=False)
        options = [option for each in targets for option in ("--popsr-prove", each)]
        ways = ["-p", "pytest_popsr", "-p", "no:cacheprovider", "--capture=no"]
        status = pytest.main([*args, *ways, *options], plugins=[outcomes])
    for name in {*sys.modules} - before:
        if "of_plugin" in name or name == "test_steps":
            del sys.modules[name]
    return int(status), outcomes


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> Outcomes:
    """Outcomes of all tests and targets, with reports."""
    status, found = run(folder, "--popsr-report", "reports", targets=TARGETS)
    assert status == 1
    return found


def test_items_end_as_they_should(outcomes: Outcomes) -> None:
    assert outcomes.outcomes == {name: outcome for name, (outcome, *_) in OUTCOMES.items()}
    assert outcomes.items == [*OUTCOMES]


@pytest.mark.parametrize("item", [name for name, (outcome, *_) in OUTCOMES.items() if outcome == "failed"])
def test_failures_are_at_the_line_of_the_user(folder: Path, outcomes: Outcomes, item: str) -> None:
    text, (_, file, source) = outcomes.texts[item], OUTCOMES[item]
    assert "pytest_popsr" not in text
    assert str(ROOT / "python") not in text
    if not file:
        return
    marked = [line for line in text.splitlines() if line.startswith(">")]
    assert marked[-1].lstrip("> ").startswith(source)
    lines = (folder / file).read_text().splitlines()
    places = [number for number, line in enumerate(lines, 1) if source in line]
    assert any(f"{file}:{number}: " in text.splitlines()[-1] for number in places)
    if "drifting" in source or "host_load" in source:
        explained = [line for line in text.splitlines() if line.startswith("E  ")]
        assert DRIFT in explained[0]
        assert any("accumulate_(w, w * x, -0.1)" in line for line in explained)
        assert explained[-1].endswith(f"help: python -m popsr help {OutOfStepError.__name__}")


def test_reports_are_of_each_proof(folder: Path, outcomes: Outcomes) -> None:
    reports = folder / "reports"
    index = json.loads((reports / "index.json").read_text())["proofs"]
    steps = {each["step"]: each for each in index}
    assert len(steps) == len(index) == len({each["json"] for each in index})
    without = (
        "test_skipped",
        "test_nothing",
        "test_method",
        "test_marker_without_options",
        "test_of_the_user",
    )
    proved = {name for name in OUTCOMES if not name.endswith(without)}
    assert {step.partition(" (")[0] for step in steps} >= {
        name for name in proved if "without_options" not in name
    }
    page = (reports / "index.html").read_text()
    for each in index:
        found = json.loads((reports / each["json"]).read_text())
        follow_schema(found)
        assert (found["step"], found["status"]) == (each["step"], each["status"])
        assert (found["status"] == 2) is (each["html"] is None) is (each["verdict"] == "not read")
        assert each["html"] is None or "<html" in (reports / each["html"]).read_text()
        assert each["step"].replace("&", "&amp;") in page
    second = steps["test_steps.py::test_fixture (2)"]
    assert (second["status"], second["verdict"]) == (1, "not ok")
    (finding,) = json.loads((reports / second["json"]).read_text())["findings"]
    assert (finding["rule"], finding["file"]) == ("drift", "steps_of_plugin.py")
    assert steps["steps_of_plugin.py::raising"]["status"] == 2
    files = {path.name for path in reports.iterdir()}
    named = {each[kind] for each in index for kind in ("json", "html") if each[kind]}
    assert files == {*named, "index.json", "index.html"}


BAD_TARGETS = {
    "ends_of_plugin.py": "ends_of_plugin.py raised SystemExit (0) at",
    "syntax_of_plugin.py": 'syntax_of_plugin.py", line 2',
    "missing_of_plugin.py": "missing_of_plugin.py:2: in <module>\n    import no_such_module",
    "empty_of_plugin.py": "no step in empty_of_plugin.py",
    "no_such_module": "no such module, got 'no_such_module'",
    "none.py": "no such script",
    "steps_of_plugin.py::rihgt": "did you mean 'right'?",
    "steps_of_plugin.py::": "no step is named",
}


def test_targets_that_cannot_be_read_are_errors(folder: Path) -> None:
    """No run without its steps is green: none is passed over."""
    status, found = run(folder, "--deselect", "test_steps.py", targets=[*BAD_TARGETS])
    assert status == pytest.ExitCode.INTERRUPTED
    assert {*found.texts} == {*BAD_TARGETS}
    for target, words in BAD_TARGETS.items():
        assert words in found.texts[target]
        assert str(ROOT / "python") not in found.texts[target]


CHOICES: dict[str, tuple[list[str], list[str]]] = {
    "-m": (
        ["-m", "in_step", "--deselect", "test_steps.py", "--popsr-prove", "steps_of_plugin.py::right"],
        ["steps_of_plugin.py::right"],
    ),
    "-k": (
        ["-k", "proof", "--popsr-prove", "steps_of_plugin.py"],
        ["test_steps.py::test_proof", "steps_of_plugin.py::proof"],
    ),
    "ini": (["-k", "right", "-o", "popsr_steps=steps_of_plugin.py::right"], ["steps_of_plugin.py::right"]),
    "twice": (
        ["-k", "lazy", *["--popsr-prove", "steps_of_plugin.py::lazy"] * 2],
        ["steps_of_plugin.py::lazy"],
    ),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_steps_are_chosen_as_tests_are(folder: Path, capsys: pytest.CaptureFixture[str], choice: str) -> None:
    args, expected = CHOICES[choice]
    status, _ = run(folder, "--collect-only", "-q", *args)
    lines = [line for line in capsys.readouterr().out.splitlines() if "::" in line]
    assert (status, lines) == (0, expected)


def process(folder: Path, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)]),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_workers_of_xdist_share_one_index(folder: Path) -> None:
    pytest.importorskip("xdist")
    ways = ["-m", "pytest", "-p", "xdist", "-p", "pytest_popsr", "-p", "no:cacheprovider", "-q", "-n", "1"]
    chosen = ["-k", "right or lazy", "--popsr-report", "workers"]
    targets = ["--popsr-prove", "steps_of_plugin.py", "--popsr-prove", "steps_of_plugin.py::lazy"]
    done = process(folder, *ways, *chosen, *targets, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED steps_of_plugin.py::lazy - popsr.errors.OutOfStepError" in done.stdout
    index = json.loads((folder / "workers" / "index.json").read_text())["proofs"]
    assert {each["step"]: each["status"] for each in index} == {
        "steps_of_plugin.py::right": 0,
        "steps_of_plugin.py::lazy": 1,
    }


def test_a_step_with_other_arguments_is_another() -> None:
    module = types.ModuleType("job")
    first, second = (1,), (2,)
    vars(module).update(step=len, step_args=first, wide=len, wide_args=second, again=len, again_args=first)
    named = {each.name: identity(each) for each in steps_in(module)}
    assert named["step"] == named["again"] != named["wide"]


def test_importing_the_plugin_imports_nothing_of_popsr(folder: Path) -> None:
    heavy = "{'popsr', 'numpy', 'torch', 'jax'}"
    done = process(folder, "-c", f"import pytest_popsr, sys; print({heavy} & {{*sys.modules}})")
    assert (done.stdout, done.stderr) == ("set()\n", "")


INSTALLED = """
import popsr


def test_plugin(request):
    assert request.config.pluginmanager.has_plugin("pytest_popsr")
    assert type(popsr.__loader__).__name__ == "SourceFileLoader"
"""
RUNS = """
import pytest

print(int(pytest.main(["-p", "no:popsr", "--popsr-prove", "job.py"])))
print(int(pytest.main(["-q", "-p", "no:cacheprovider"])))
"""


def test_an_installed_plugin_can_be_left_out_and_leaves_popsr_as_compiled(tmp_path: Path) -> None:
    """pytest rewrites the assertions of all modules of a distribution that has a plugin."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    metadata = tmp_path / "popsr-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: popsr\nVersion: 0\n")
    (metadata / "RECORD").write_text("popsr/__init__.py,,\npytest_popsr/__init__.py,,\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    (tmp_path / "test_installed.py").write_text(INSTALLED)
    done = process(tmp_path, "-c", RUNS)
    assert "unrecognized arguments: --popsr-prove" in done.stderr
    first, *_, last = done.stdout.splitlines()
    assert (int(first), int(last)) == (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.OK), done.stdout
