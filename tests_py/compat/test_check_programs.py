"""``check`` of programs that are spelled in many ways: what it finds in each, and nothing else."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from popsr.compat._check import check as _check
from popsr.compat._check import gone as _gone
from tests_py.compat.checked import CASES, Case
from tests_py.support.unchecked import unchecked

NOTES = ("dataclass", "not installed")


def _write(files: dict[str, str], folder: Path) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _check_paths(capsys: pytest.CaptureFixture[str], *paths: Path) -> tuple[int, dict[str, str]]:
    """Exit status and the JSON object."""
    status = _check.main([*map(str, paths), "--json"])
    return status, json.loads(capsys.readouterr().out)


def _shown(finding: dict[str, str], folder: Path) -> str:
    """As in the table; of a refused value only who refuses it."""
    text = finding["text"]
    if finding["kind"] == "value":
        text = ": ".join(text.split(": ")[:2]) + ": "
    hint = f"; {finding['suggestion']}" if finding["suggestion"] else ""
    path = Path(finding["path"]).relative_to(folder)
    return f"{path}:{finding['line']}:{finding['column']} {finding['kind']} {text}{hint}"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_findings_of_check_in_each_program(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(case.files, tmp_path)
    status, said = _check_paths(capsys, tmp_path / "main.py")
    assert [_shown(unchecked(each), tmp_path) for each in said["findings"]] == list(case.expected)
    assert {unchecked(each)["note"] for each in said["findings"] if unchecked(each)["kind"] in NOTES} <= {
        True
    }
    assert status == int(any(not unchecked(each)["note"] for each in said["findings"]))
    assert unchecked(said["summary"])["runs"] == (status == 0)


def test_names_may_be_made_of_each_other_many_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = "".join(f"y{i + 1} = y{i} + 1\n" for i in range(800))
    text = f"import popxl\ndef f():\n  y800.x, popxl.nopee_q\nclass A:\n  y = y799\ny0 = popxl.constant(1)\n{steps}"
    (tmp_path / "a.py").write_text(text)
    status, said = _check_paths(capsys, tmp_path / "a.py")
    assert (status, [unchecked(each)["text"] for each in said["findings"]]) == (1, ["no popxl.nopee_q"])


# Folders


def test_folders_are_searched_and_others_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = "import popxl\npopxl.no_such_name_q"
    skipped = [".hidden/a.py", "env/lib/b.py", "__pycache__/c.py", "sub/.git/d.py", "node_modules/e.py"]
    _write(dict.fromkeys((*skipped, "sub/x.py", "a.py", "sub/deep/y.py", "notes.txt"), wrong), tmp_path)
    (tmp_path / "env/pyvenv.cfg").write_text("")
    status, said = _check_paths(capsys, tmp_path)
    assert [Path(each).relative_to(tmp_path).as_posix() for each in said["files"]] == [
        "a.py",
        "sub/x.py",
        "sub/deep/y.py",
    ]
    assert status == 1
    assert unchecked(said["summary"]) == {
        "scripts": 3, "names": 1, "missing": 1, "notes": 0, "not_read": 0, "runs": False
    }  # fmt: skip


def test_a_file_is_read_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write({"a.py": "import b", "b.py": "import a, popxl\npopxl.no_such_name_q", "c/d.py": ""}, tmp_path)
    (tmp_path / "link.py").symlink_to(tmp_path / "b.py")
    _, said = _check_paths(capsys, tmp_path / "a.py", tmp_path, tmp_path / "b.py", tmp_path / "c")
    assert sorted(Path(each).name for each in said["files"]) == ["a.py", "b.py", "d.py"]
    assert len(said["findings"]) == 1


@pytest.mark.parametrize("given", ["scripts/train.py", "."])
def test_packages_are_found_from_scripts_below_the_folder(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A package's modules import each other by its name; what a script adds to its path is not a missing package."""
    files = {
        "models/__init__.py": "from models.net import make",
        "models/net.py": "import models.options\nfrom . import options as o\ndef make():\n  return o.IR",
        "models/options.py": "import popxl\nIR = popxl.Ir()",
        "models/tests/test_net.py": "from models import make\nmake().in_test_q",
        "scripts/train.py": "import sys\nsys.path.append('..')\nimport helper\nhelper.IR.in_script_q",
        "scripts/helper.py": "import popxl\nIR = popxl.Ir()\nimport unfound_q",
    }
    _write(files, tmp_path)
    _, said = _check_paths(capsys, tmp_path / given)
    expected = ["helper.py: no module unfound_q: not installed here", "train.py: no popxl.Ir.in_script_q"]
    if given == ".":
        expected.append("test_net.py: no popxl.Ir.in_test_q")
    found = [f"{Path(unchecked(each)['path']).name}: {unchecked(each)['text']}" for each in said["findings"]]
    assert sorted(found) == sorted(expected)


def test_a_module_that_is_in_another_folder_is_not_a_missing_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write({"run/train.py": "import shared_q\nshared_q.x", "lib/shared_q.py": "", "data/x.txt": ""}, tmp_path)
    assert unchecked(_check_paths(capsys, tmp_path)[1]["findings"]) == []


def test_each_place_is_said_once_with_its_hint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "a.py"
    script.write_text("from popxl import ops\nimport unfound_q\nops.softmaxx(ops.softmaxx, ops.gelluu)\n")
    assert _check.main([str(script)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{script}:2:8: note: no module unfound_q: not installed here",
        f"{script}:3:5: no popxl.ops.softmaxx; did you mean 'softmax'?",
        f"{script}:3:32: no popxl.ops.gelluu; did you mean 'gelu' or 'gelu_'?",
        "check: 1 script, 3 names used, 2 missing, 1 note: does not run yet",
    ]


# Modules of the running Python


def test_removed_modules_are_those_that_python_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text("import distutils.core, asyncore, asyncio\n")
    kept = frozenset(sys.stdlib_module_names) | {"distutils", "asyncore"}
    monkeypatch.setattr(sys, "stdlib_module_names", kept)
    assert unchecked(_check_paths(capsys, tmp_path / "a.py")[1]["findings"]) == []
    monkeypatch.setattr(sys, "stdlib_module_names", kept - {"distutils", "asyncore"})
    monkeypatch.setattr(_gone, "is_found", lambda root: root not in ("distutils", "asyncore"))
    texts = [unchecked(each)["text"] for each in _check_paths(capsys, tmp_path / "a.py")[1]["findings"]]
    assert texts == [f"no module {name}: removed in Python 3.12" for name in ("distutils.core", "asyncore")]


def test_installed_packages_are_not_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "poptorch.py").write_text("raise SystemExit('nothing is imported')")
    monkeypatch.syspath_prepend(tmp_path / "installed")
    assert importlib.util.find_spec("poptorch") is not None
    _gone.is_found.cache_clear()
    try:
        (tmp_path / "a.py").write_text("import poptorch, numpy, yaml_q_")
        texts = [unchecked(each)["text"] for each in _check_paths(capsys, tmp_path / "a.py")[1]["findings"]]
    finally:
        _gone.is_found.cache_clear()
    assert texts == ["no module yaml_q_: not installed here"]


@pytest.mark.parametrize("path", sorted(_gone._REMOVED_NAMES))
def test_removed_names_are_those_that_modules_lack(path: str) -> None:
    parent, _, name = path.rpartition(".")
    try:
        code = f"import warnings; warnings.simplefilter('ignore'); import {parent}; {parent}.{name}"
        exec(code, {})
    except ModuleNotFoundError:
        assert _gone.gone_name(path) is None
    except AttributeError:
        assert _gone.gone_name(path) is not None
    else:
        assert _gone.gone_name(path) is None


def test_nothing_of_the_program_is_imported(tmp_path: Path) -> None:
    """Not even where a file has the name of a module of Python whose names are looked up."""
    names = ("cgi", "pkgutil", "configparser", "platform", "helper", "poptorch")
    uses = "".join(f"import {each}\n{each}.escape, {each}.ImpImporter, {each}.dist\n" for each in names)
    files = {f"{each}.py": "raise SystemExit('it was imported')\n" for each in names}
    _write(files | {"train.py": uses}, tmp_path)
    code = "import popsr.__main__ as m, sys; sys.path.insert(0, ''); sys.exit(m.main())"
    result = subprocess.run(
        [sys.executable, "-P", "-c", code, "check", "."],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    assert "it was imported" not in result.stderr
    assert result.stdout.splitlines()[-1].startswith("check: 7 scripts, 0 names used")
