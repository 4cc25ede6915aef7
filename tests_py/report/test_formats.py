"""``--format`` of commands: JSON, SARIF and GitHub's annotations say what the text says, at the same lines."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import popsr
from popsr import __main__, ops
from popsr._support.text.annotations import Annotation, github_line, sarif_log
from tests_py import ROOT

DRIFTING = """
import popsr
from popsr import ops


def drifting():
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(1.0, name="w")
        x = ops.host_load(popsr.h2d_stream((), popsr.float32, "x"))
        ops.var_updates.accumulate_(w, w * x, -0.1)
    return ir


def right():
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        popsr.variable(1.0, name="w")
    return ir
"""
OLD = "import popxl\n\nir = popxl.Ir()\npopxl.no_such_name(ir)\n"
PLANNED = """import popxl
from popxl import ops

ir = popxl.Ir(replication=2)
with ir.main_graph:
    x = ops.host_load(popxl.h2d_stream((8,), popxl.float32))
    ops.host_store(popxl.d2h_stream((8,), popxl.float32), ops.collectives.replicated_all_reduce(x))
with popxl.Session(ir):
    pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a step, an old program and the checkpoints of two ranks that differ."""
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "job.py").write_text(DRIFTING)
    (tmp_path / "old.py").write_text(OLD)
    (tmp_path / "planned.py").write_text(PLANNED)
    (tmp_path / "run").mkdir()
    for rank in range(2):
        log = {"step": 1, "rank": rank, "name": "w", "hash": f"{rank:016x}"}
        (tmp_path / "run" / f"rank{rank}.jsonl").write_text(json.dumps(log) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Commands, their exit status, the rule and the place of their first finding.
COMMANDS: dict[str, tuple[list[str], int, str, tuple[str, int] | None]] = {
    "prove": (["prove", "steps/job.py::drifting"], 1, "drift", ("steps/job.py", 10)),
    "check": (["check", "old.py"], 1, "name", ("old.py", 4)),
    "plan": (["plan", "planned.py", "--ranks", "2"], 0, "exchange", ("planned.py", 7)),
}


def run(capsys: pytest.CaptureFixture[str], arguments: list[str], form: str) -> tuple[int, str]:
    status = __main__.main([*arguments, "--format", form])
    return status, capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_sarif(folder: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    arguments, expected, rule, place = COMMANDS[command]
    status, text = run(capsys, arguments, "sarif")
    assert status == expected
    found = json.loads(text)
    (one,) = found["runs"]
    first = one["results"][0]
    assert (found["version"], one["tool"]["driver"]["name"]) == ("2.1.0", "popsr")
    assert one["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == first["ruleId"] == rule
    assert first["level"] == ("error" if expected else "note")
    physical = first["locations"][0]["physicalLocation"]
    found_place = physical["artifactLocation"]["uri"], physical["region"]["startLine"]
    assert found_place == place
    assert physical["artifactLocation"]["uriBaseId"] == "SRCROOT"
    assert one["originalUriBaseIds"]["SRCROOT"]["uri"] == f"{folder.as_uri()}/"


@pytest.mark.parametrize("command", COMMANDS)
def test_github(folder: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    arguments, expected, rule, place = COMMANDS[command]
    status, text = run(capsys, arguments, "github")
    assert status == expected
    assert place is not None
    kind = "error" if expected else "notice"
    first, _, rest = text.partition("\n")
    assert first.startswith(f"::{kind} file={place[0]},line={place[1]},title=popsr {rule}")
    assert rest == run(capsys, arguments, "text")[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_json_is_one_object(folder: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    status, text = run(capsys, COMMANDS[command][0], "json")
    assert status == COMMANDS[command][1]
    assert isinstance(json.loads(text), dict)


def test_plan_has_its_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, text = run(capsys, ["plan", "planned.py", "--ranks", "2", "--latency", "1"], "json")
    found = json.loads(text)
    (plan,) = found["plans"]
    (line,) = plan["lines"]
    assert (found["replicas"], plan["ranks"], line["op"]) == (2, 2, "replicated_all_reduce")
    assert (line["value_bytes"], line["limit"]) == (32, "latency")
    assert plan["seconds"] == line["seconds"] >= 1


def test_audit_has_findings_without_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = run(capsys, ["audit", "run"], "sarif")
    assert status == 1
    (result,) = json.loads(text)["runs"][0]["results"]
    assert (result["ruleId"], result["level"], "locations" in result) == ("drift", "error", False)
    assert run(capsys, ["audit", "run"], "github")[1].startswith("::error title=popsr drift::")
    found = json.loads(run(capsys, ["audit", "run"], "json")[1])
    assert (found["ok"], found["ranks"], [each["name"] for each in found["drifts"]]) == (False, 2, ["w"])


def test_difference_of_recordings(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(folder / f"{factor}.rec") for factor in (1, 2)]
    for path, factor in zip(paths, (1.0, 2.0), strict=True):
        ir = popsr.Ir()
        with ir.main_graph:
            ops.host_store(popsr.d2h_stream((), popsr.float32, "y"), popsr.variable(factor, name="w") + 1.0)
        with popsr.Session(ir) as session, popsr.record(session, path):
            session.run()
    status, text = run(capsys, ["diff", *paths], "json")
    assert (status, json.loads(text)["kind"]) == (1, "variable")
    assert run(capsys, ["diff", *paths], "github")[1].startswith("::error title=popsr difference::")
    assert json.loads(run(capsys, ["diff", paths[0], paths[0]], "sarif")[1])["runs"][0]["results"] == []


def test_nothing_is_found_in_a_right_step(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = run(capsys, ["prove", "steps/job.py::right"], "sarif")
    assert (status, json.loads(text)["runs"][0]["results"]) == (0, [])
    assert not run(capsys, ["prove", "steps/job.py::right"], "github")[1].startswith("::")


def test_what_cannot_be_read_is_marked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["prove", "steps/job.py::none"], ["audit", "nowhere"], ["diff", "a.rec", "b.rec"]):
        status = __main__.main([*arguments, "--format", "github"])
        out, err = capsys.readouterr()
        assert status == 2
        assert out.startswith("::error title=popsr error::")
        assert err.startswith("popsr: ")


LOCATIONS: list[tuple[str, dict[str, Any]]] = [
    ("", {}),
    ("a.py:3", {"file": "a.py", "line": "3"}),
    ("a.py:3:7", {"file": "a.py", "line": "3", "col": "7"}),
    ("C: one, two%.py:3", {"file": "C%3A one%2C two%25.py", "line": "3"}),
    ("no line", {}),
    ("/elsewhere/b.py:1", {"file": "/elsewhere/b.py", "line": "1"}),
]


@pytest.mark.parametrize(("location", "expected"), LOCATIONS)
def test_places_and_texts_are_escaped(location: str, expected: dict[str, str]) -> None:
    found = [Annotation("L1", "100 % sure:\nno", location, "warning")]
    (each,) = found
    text = github_line(each)
    head, _, message = text.splitlines()[0].removeprefix("::warning ").partition("::")
    assert message == "100 %25 sure:%0Ano"
    assert dict(each.split("=", 1) for each in head.split(",")) == {**expected, "title": "popsr L1"}
    (result,) = sarif_log(found, (), 1)["runs"][0]["results"]
    assert ("locations" in result) is bool(expected)


def test_the_action_runs_a_command_as_a_shell_would(folder: Path) -> None:
    """The line of ``action.yml``, with quotes in the command that it is given."""
    yaml = pytest.importorskip("yaml")
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    line = steps[-1]["run"].replace("python -m popsr", f"{shlex.quote(sys.executable)} -m popsr")
    environment = {
        "COMMAND": 'prove "steps/job.py::drifting" --replicas 2',
        "PYTHONPATH": ":".join(filter(None, sys.path)),
    }
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", line],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "::error" in done.stdout + done.stderr
    assert done.returncode != 0


def test_hooks_are_commands() -> None:
    yaml = pytest.importorskip("yaml")
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    for hook in hooks:
        program, option, module, command = hook["entry"].split()
        assert (program, option, module) == ("python", "-m", "popsr")
        assert f"\n  {command} " in __main__.USAGE
