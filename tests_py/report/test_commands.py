"""Commands whose streams are closed or full, files that are none, and a working folder that is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests_py import ROOT
from tests_py.support.helpers import run_python

PROGRAM = (
    "import popxl\n"
    "ir = popxl.Ir(replication=2)\n"
    "with ir.main_graph: popxl.variable(1.0) + 1.0\n"
    "with popxl.Session(ir): pass\n"
)
COMMANDS = {
    "ops": ["ops"],
    "options": ["options"],
    "help": ["help", "L2"],
    "usage": ["help"],
    "version": ["version"],
    "check": ["check", "program.py"],
    "plan": ["plan", "program.py", "--ranks", "2"],
    "report": ["report", "program.py", "--text"],
    "audit": ["audit", "--help"],
    "prove": ["prove", "--help"],
    "diff": ["diff", "--help"],
    "demo": ["demo", "--help"],
}
STREAMS = {">&-": "Bad file descriptor", ">/dev/full": "No space left on device"}


def run(folder: Path, *args: str, redirect: str = "") -> subprocess.CompletedProcess[str]:
    """A command of popsr, with streams as a shell redirects them, that is killed after a minute of processor time."""
    paths = os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])
    return subprocess.run(
        ["sh", "-c", f'ulimit -t 60; exec "$0" -m popsr "$@" {redirect}', sys.executable, *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "first"),
    [("prove", "usage: python -m popsr prove"), ("l6", "# L6: "), ("dtypeerror", "# DTypeError")],
)
def test_help(tmp_path: Path, name: str, first: str) -> None:
    """Names of commands, and names in small letters."""
    assert run(tmp_path, "help", name).stdout.startswith(first)


@pytest.mark.parametrize("redirect", STREAMS)
@pytest.mark.parametrize("command", COMMANDS)
def test_output_that_cannot_be_written_is_told_in_a_line(tmp_path: Path, command: str, redirect: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    result = run(tmp_path, *COMMANDS[command], redirect=redirect)
    name, got = COMMANDS[command][0], STREAMS[redirect]
    line = f"popsr: {name}: cannot write to stdout, got {got}, expected a stream that takes all\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", line)


@pytest.mark.parametrize(("command", "redirect"), [("diff a b", "2>&-"), ("ops", "2>&- >&-")])
def test_errors_go_nowhere_else_where_stderr_is_closed(tmp_path: Path, command: str, redirect: str) -> None:
    result = run(tmp_path, *command.split(), redirect=redirect)
    assert (result.returncode, result.stdout, result.stderr) == (2, "", "")


def test_a_program_has_the_streams_that_python_gives_it(tmp_path: Path) -> None:
    """As without popsr: those that are closed are None."""
    (tmp_path / "program.py").write_text("import sys\nprint(sys.stdout, file=sys.stderr)\n")
    assert run(tmp_path, "run", "program.py", redirect=">&-").stderr == "None\n"


@pytest.mark.parametrize("command", ["diff", "check", "check folder"])
@pytest.mark.parametrize("kind", ["FIFO", "device"])
def test_files_that_never_end_are_refused_at_once(tmp_path: Path, command: str, kind: str) -> None:
    path = tmp_path / "x.py"
    os.mkfifo(path) if kind == "FIFO" else path.symlink_to("/dev/zero")
    args = {"diff": ["diff", "x.py", "x.py"], "check": ["check", "x.py"], "check folder": ["check", "."]}
    result = run(tmp_path, *args[command])
    assert result.returncode == 2
    assert (
        result.stderr == f"popsr: {command.split()[0]}: cannot read 'x.py', got a {kind}, expected a file\n"
    )


GONE = """
import os, popsr, popsr.io
os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
ir = popsr.Ir()
with ir.main_graph: popsr.variable(1.0, name="w") + 1.0
def record(session):
    with popsr.record(session, "r.rec"): session.run()
with popsr.Session(ir) as session:
    session.run()
    for call in (
        lambda: session.report("r.html"),
        lambda: record(session),
        lambda: popsr.io.save_safetensors(session, "r.safetensors"),
        lambda: popsr.io.save_onnx(session, "r.onnx"),
        lambda: session.reset_host_weights("r.safetensors"),
        lambda: popsr.diff("a.rec", "b.rec"),
    ):
        try: call()
        except popsr.errors.FileError as error: print(error)
"""


def test_programs_run_in_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of a program without a file, as of ``python -c``, have no absolute path."""
    pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    lines = run_python(GONE).splitlines()
    assert len(lines) == 6
    assert all(line.endswith("got No such file or directory") for line in lines), lines


# Time of check

DOUBLED = range(40)
SMALL = {
    "tuples": "x0 = 1, 2\n" + "".join(f"x{i + 1} = x{i}, x{i}\n" for i in DOUBLED),
    "returns": "def f0():\n    return 1\n"
    + "".join(f"def f{i + 1}():\n    return f{i}(), f{i}()\n" for i in DOUBLED)
    + "f40().x\n",
    "parameters": "def f0(a):\n    return a\n"
    + "".join(f"def f{i + 1}(a):\n    return f{i}(f{i}(a)), f{i}((a, a))\n" for i in DOUBLED)
    + "f40(1).x\n",
    "cycles": "".join(f"def f{i}():\n    return f{(i + 1) % 30}(), f{(i + 2) % 30}()\n" for i in range(30))
    + "f0().x\n",
    "attributes": "class A:\n    def m(self):\n        self.x0 = 1\n"
    + "".join(f"        self.x{i + 1} = self.x{i}, self.x{i}\n" for i in DOUBLED)
    + "A().x40.y\n",
    "bases": "class C0:\n    pass\n" + "".join(f"class C{i + 1}(C{i}):\n    pass\n" for i in range(10_000)),
}
REFUSED = "syntax error: names that are made of each other too often"


@pytest.mark.parametrize("name", SMALL)
def test_small_programs_come_to_an_end(name: str, tmp_path: Path) -> None:
    """Each line would double the work of the lines before; what is too much is not read, which is said."""
    (tmp_path / "program.py").write_text(SMALL[name])
    result = run(tmp_path, "check", "program.py")
    assert result.returncode == (1 if REFUSED in result.stdout else 0), result.stdout
    assert ("1 file not read" in result.stdout) == (REFUSED in result.stdout)


HEAD = "import popxl\nfrom popxl import ops\nir = popxl.Ir()\nx = popxl.constant(1.0)\n"
LINES = {
    "calls": "x = ops.add(x, 1.0)",
    "missing names": "ops.name{i}(x)",
    "missing options": "ir.options.name{i} = 1",
    "missing modules": "import module{i}",
    "star imports": "from popxl import *\nname{i}",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LINES)
def test_check_takes_time_in_proportion(name: str, tmp_path: Path) -> None:
    """Time that grew with the square would take minutes; ``bench/analysis/bench_check.py`` has the goal."""
    lines = [LINES[name].format(i=i) for i in range(20_000)]
    (tmp_path / "program.py").write_text(HEAD + "\n".join(lines) + "\n")
    assert "check: 1 script" in run(tmp_path, "check", "program.py").stdout


PROVES = (
    "import popsr\n"
    "ir = popsr.Ir(replication=2)\n"
    "with ir.main_graph:\n"
    "    w = popsr.variable(1.0, name='w')\n"
    "    w + w\n"
    "print(bool(popsr.prove(ir)))\n"
)


def test_a_program_that_only_proves_has_reports_of_its_proofs(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROVES)
    result = run(tmp_path, "report", "program.py")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "True\npopsr: report of proof 1: report.html\n"
    page = (tmp_path / "report.html").read_text()
    assert page.index('id="proof"') < page.index('id="summary"')
    (tmp_path / "program.py").write_text("")
    result = run(tmp_path, "report", "program.py")
    assert result.stderr == "popsr: report: the program made 0 sessions and 0 proofs, expected 1 or more\n"
