"""The sample repository in ``examples/ci``: its green pipeline passes, its red one marks the lines of planted bugs."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from popsr import __main__
from tests_py import ROOT

EXAMPLE = ROOT / "examples" / "ci"
# Of each wrong step the line that differs, and how it is told from its mended twin.
BUGS = {
    "ddp": ("optimizer.step()", "model(x)", "model.module(x)"),
    "sharded": (
        '"bias": weights["bias"] - 0.1 * bias}',
        'lax.pmean(gradients["bias"], "data")',
        'gradients["bias"]',
    ),
}
NEEDS = {"ddp": "torch", "sharded": "jax"}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, in which commands run."""
    shutil.copytree(EXAMPLE, tmp_path / "ci", ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))
    monkeypatch.chdir(tmp_path / "ci")
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path / "ci"


def steps(name: str) -> list[dict[str, Any]]:
    """Steps of a workflow."""
    yaml = pytest.importorskip("yaml")
    (job,) = yaml.safe_load((EXAMPLE / ".github" / "workflows" / name).read_text())["jobs"].values()
    return [*job["steps"]]


def commands(name: str) -> list[str]:
    """Commands that a workflow gives to the action of this repository."""
    return [
        each["with"]["command"] for each in steps(name) if each.get("uses", "").startswith("OWNER/popsr@")
    ]


def line_of_bug(twin: str) -> int:
    """The line of a wrong step that a finding is at."""
    lines = (EXAMPLE / "training" / f"{twin}_wrong.py").read_text().splitlines()
    (line,) = [number for number, text in enumerate(lines, 1) if BUGS[twin][0] in text]
    return line


@pytest.mark.parametrize("twin", BUGS)
def test_twins_differ_in_the_bug_alone(twin: str) -> None:
    right, wrong = (
        (EXAMPLE / "training" / f"{twin}{ending}.py").read_text().partition("import")[2]
        for ending in ("", "_wrong")
    )
    _, mended, planted = BUGS[twin]
    assert right.partition("# Read by")[0].replace(mended, planted) == wrong.partition("# Read by")[0]


@pytest.mark.parametrize("twin", BUGS)
def test_actions_are_green_and_red(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, twin: str
) -> None:
    """The action's own line is tested beside ``action.yml``; here are the commands that it is given."""
    pytest.importorskip(NEEDS[twin])
    for workflow, status in (("proofs.yml", 0), ("wrong.yml", 1)):
        (command,) = [each for each in commands(workflow) if each.startswith(f"prove training/{twin}")]
        monkeypatch.delitem(sys.modules, twin, raising=False)
        assert __main__.main([*shlex.split(command), "--format", "github"]) == status
        marks = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::")]
        assert len(marks) == status
    place = f"file=training/{twin}_wrong.py,line={line_of_bug(twin)}"
    assert marks[0].startswith(f"::error {place},title=popsr drift::")


@pytest.mark.parametrize(("workflow", "status"), [("proofs.yml", 0), ("wrong.yml", 1)])
def test_lines_of_the_shell_are_green_and_red(repository: Path, workflow: str, status: int) -> None:
    """All lines but those that install, as they stand, with the plugin as if it were installed."""
    pytest.importorskip("jax")
    (line,) = [each["run"] for each in steps(workflow) if "run" in each and each["name"] != "Install"]
    folder = repository.parent / "bin"
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    environment = {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "pytest_popsr",
    }
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", line],
        cwd=repository,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    index = json.loads((repository / "proofs" / "index.json").read_text())["proofs"]
    assert sum(each["status"] for each in index) == status
    assert {"training/sharded.py::step", "tests/test_steps.py::test_step"} <= {each["step"] for each in index}
    assert (f"training/sharded_wrong.py:{line_of_bug('sharded')}: OutOfStepError" in done.stdout) is bool(
        status
    )


def test_hooks_of_the_example_are_ours_and_name_steps() -> None:
    yaml = pytest.importorskip("yaml")
    ours = {each["id"] for each in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    (repository,) = yaml.safe_load((EXAMPLE / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in repository["hooks"]:
        assert hook["id"] in ours
        file, _, step = hook["args"][0].partition("::")
        assert f"def {step}(" in (EXAMPLE / file).read_text()
