"""Exit status 0, 1 or 2 of each command, in each form, also of errors: standard output is one document."""

from __future__ import annotations

import functools
import json
import math
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import popsr
from popsr import __main__, ops
from popsr._support.text.answers import FORMATS, Answer, document, plain
from tests_py import ROOT
from tests_py.report.test_formats import DRIFTING, OLD, PLANNED

SCHEMA = ROOT / "docs" / "_static" / "findings.schema.json"
FILES = {
    "job.py": "print('said by the job')\n"
    + DRIFTING
    + "\n\ndef raising():\n    return 1 / 0\n\n\ndef needs(x):\n    return x\n\n\n"
    "def unknown():\n    with popsr.Ir().main_graph:\n        ops.add(1.0, 'two')\n",
    "of {2}.py": "def raising():\n    return 1 / 0\n",
    "syntax.py": "x = 1\ndef f(:\n",
    "missing.py": "\nimport no_such_module_of_the_table\n",
    "ends.py": "import sys\n\nsys.exit(0)\n",
    "old.py": OLD,
    "planned.py": "print('said by the program')\n" + PLANNED,
    "catches.py": "try:\n"
    + "".join(f"    {line}\n" for line in PLANNED.splitlines())
    + "except:\n    pass\n",
    "right.py": "x = 1\n",
}
RANKS = ["--ranks", "2"]


class Row(NamedTuple):
    """A command, its exit status, and the rule, file and words of the line of its first finding or error."""

    arguments: list[str]
    status: int
    rule: str = ""
    file: str = ""
    source: str = ""


ROWS = {
    "prove": Row(["prove", "job.py::right"], 0),
    "prove, drift": Row(["prove", "job.py::drifting"], 1, "drift", "job.py", "host_load("),
    "prove, no file": Row(["prove", "nothing.py::step"], 2, "error"),
    "prove, no module": Row(["prove", "no_such_module_of_the_table::step"], 2, "error"),
    "prove, no name": Row(["prove", "job.py::nothing"], 2, "error"),
    "prove, raises": Row(["prove", "job.py::raising"], 2, "error", "job.py", "1 / 0"),
    "prove, braces": Row(["prove", "of {2}.py::raising"], 2, "error", "of {2}.py", "1 / 0"),
    "prove, popsr refuses": Row(["prove", "job.py::unknown"], 2, "error", "job.py", "ops.add(1.0"),
    "prove, no arguments": Row(["prove", "job.py::needs"], 2, "error", "job.py", "def needs"),
    "prove, syntax": Row(["prove", "syntax.py::f"], 2, "error", "syntax.py", "def f"),
    "prove, import": Row(["prove", "missing.py::f"], 2, "error", "missing.py", "import"),
    "prove, exits": Row(["prove", "ends.py::f"], 2, "error", "ends.py", "exit"),
    "prove, page": Row(["prove", "job.py::right", "--html", "nowhere/page.html"], 2, "error"),
    "prove, option": Row(["prove", "job.py::right", "--mesh", "none"], 2, "error"),
    "check": Row(["check", "right.py"], 0),
    "check, missing": Row(["check", "old.py"], 1, "name", "old.py", "no_such_name"),
    "check, syntax": Row(["check", "syntax.py"], 1, "syntax", "syntax.py", "def f"),
    "check, no file": Row(["check", "nothing.py", "old.py"], 2, "error"),
    "audit": Row(["audit", "equal"], 0),
    "audit, drift": Row(["audit", "run"], 1, "drift"),
    "audit, incomplete": Row(["audit", "equal", "--ranks", "3"], 2, "incomplete"),
    "audit, no file": Row(["audit", "nowhere"], 2, "error"),
    "audit, between": Row(["audit", "--between", "nowhere", "here"], 2, "error"),
    "audit, two": Row(["audit", "nowhere", "here"], 2, "error"),
    "diff": Row(["diff", "1.rec", "1.rec"], 0),
    "diff, differs": Row(["diff", "1.rec", "2.rec"], 1, "difference"),
    "diff, no file": Row(["diff", "1.rec", "nothing.rec"], 2, "error"),
    "diff, another file": Row(["diff", "1.rec", "job.py"], 2, "error"),
    "plan": Row(["plan", "planned.py", *RANKS], 0, "exchange", "planned.py", "all_reduce"),
    "plan, catches all": Row(["plan", "catches.py", *RANKS], 0, "exchange", "catches.py", "all_reduce"),
    "plan, no file": Row(["plan", "nothing.py", *RANKS], 2, "error"),
    "plan, no session": Row(["plan", "right.py", *RANKS], 2, "error"),
    "plan, exits": Row(["plan", "ends.py", *RANKS], 2, "error", "ends.py", "exit"),
    "plan, import": Row(["plan", "missing.py", *RANKS], 2, "error", "missing.py", "import"),
    "plan, no ranks": Row(["plan", "planned.py"], 2, "error"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which commands run."""
    folder = tmp_path_factory.mktemp("answers")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    for name, differ in {"run": True, "equal": False}.items():
        (folder / name).mkdir()
        for rank in range(2):
            log = {"step": 1, "rank": rank, "name": "w", "hash": f"{rank * differ:016x}"}
            (folder / name / f"rank{rank}.jsonl").write_text(json.dumps(log) + "\n")
    for factor in (1.0, 2.0):
        ir = popsr.Ir()
        with ir.main_graph:
            ops.host_store(popsr.d2h_stream((), popsr.float32, "y"), popsr.variable(factor, name="w") + 1.0)
        with popsr.Session(ir) as session, popsr.record(session, folder / f"{factor:.0f}.rec"):
            session.run()
    return folder


def run(arguments: list[str], form: str) -> int:
    try:
        return __main__.main([*arguments, "--format", form])
    except SystemExit as ended:  # of wrong arguments
        return int(ended.code or 0)
    finally:  # as in a process of its own
        for name in FILES:
            sys.modules.pop(name.removesuffix(".py"), None)


def line_of(text: str, words: str) -> int:
    (number,) = [number for number, line in enumerate(text.splitlines(), 1) if words in line]
    return number


@functools.cache
def schema() -> dict[str, Any]:
    return dict(json.loads(SCHEMA.read_text()))


def follow_schema(found: dict[str, Any]) -> None:
    """Assert that the schema describes an answer, and each of its keys."""
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator(schema()).validate(found)
    own = schema()["$defs"][found["command"]]["properties"] if found["status"] != 2 else {}
    known = {*schema()["properties"], *own}
    assert found["status"] == 2 or {*found} <= known


@pytest.mark.parametrize("row", ROWS)
def test_each_form_has_the_status_and_the_place(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], row: str
) -> None:
    monkeypatch.chdir(files)
    monkeypatch.setattr("sys.path", [str(files), *sys.path])
    monkeypatch.setattr("sys.argv", ["popsr"])
    arguments, status, rule, file, source = ROWS[row]
    place = (file, line_of(FILES[file], source)) if file else None
    output = {}
    for form in FORMATS:
        assert run(arguments, form) == status, form
        output[form] = capsys.readouterr()
    found = json.loads(output["json"].out)
    follow_schema(found)
    assert (found["command"], found["status"]) == (arguments[0], status)
    first = next(iter((*found["errors"], *found["findings"])), None)
    assert ("" if first is None else first["rule"]) == rule
    assert first is None or (first["file"], first["line"]) == (place or (None, None))

    (one,) = json.loads(output["sarif"].out)["runs"]
    (call,) = one["invocations"]
    assert (call["exitCode"], call["executionSuccessful"]) == (status, rule != "error")
    assert len(call["toolExecutionNotifications"]) == len(found["errors"])
    assert [each["ruleId"] for each in one["results"]][:1] == ([rule] if rule else [])
    assert ("locations" in one["results"][0] if rule else False) is (place is not None)

    begin = output["github"].out.partition("\n")[0]
    kind = "notice" if status == 0 else "error"
    at = "" if place is None else f"file={place[0]},line={place[1]},"
    assert begin.startswith(f"::{kind} {at}title=popsr {rule}" if rule else "")
    if rule == "error":
        lines = [line for line in output["text"].err.splitlines() if line.startswith("popsr: ")]
        assert lines or "error: " in output["text"].err
    said = "said by the " in output["text"].out
    for form in ("json", "sarif", "github"):
        assert not said or "said by the " in output[form].err


def test_every_command_that_has_forms_is_in_the_table() -> None:
    assert {row.arguments[0] for row in ROWS.values()} == {*schema()["properties"]["command"]["enum"]}
    last = __main__.USAGE.rstrip().splitlines()[-1]
    assert all(f"{command}" in last for command in schema()["properties"]["command"]["enum"])


VALUES: list[tuple[Any, Any]] = [
    (math.inf, None),
    (np.float32(math.nan), None),
    (np.float32(0.5), 0.5),
    (np.int64(3), 3),
    (True, True),
    ({"a": (1, Path("b"))}, {"a": [1, "b"]}),
    (frozenset({1}), [1]),
]


@pytest.mark.parametrize(("value", "expected"), VALUES)
def test_values_of_answers_are_those_of_json(value: Any, expected: Any) -> None:
    assert plain(value) == expected
    assert type(plain(value)) is type(expected)


def test_attributes_do_not_hide_what_all_answers_have() -> None:
    found = document("diff", Answer(0, str, lambda: {"kind": "equal"}, tuple))
    assert {*schema()["required"]} <= {*found}
