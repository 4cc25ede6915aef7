"""``python -m popsr check`` lists what is missing with file, line and column, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import popsr
from popsr import ops
from popsr.compat._check import check as _check
from popsr.compat._check import values as _values
from popsr.compat._finder import ALIASES
from tests_py import ROOT
from tests_py.support.helpers import run_python
from tests_py.support.programs import PUBLISHED


@pytest.fixture(autouse=True)
def _missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is missing: ``popxl_gone``."""
    monkeypatch.setitem(ALIASES, "popxl_gone", "popsr.no_such_package")  # type: ignore[arg-type]


def _check_program(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str], str]:
    """Exit status, "line: text" of what is found, without packages that are not installed, and the summary."""
    script = folder / "script.py"
    script.write_text(text)
    status = _check.main([str(script), "--json"])
    found = [
        each for each in json.loads(capsys.readouterr().out)["findings"] if each["kind"] != "not installed"
    ]
    assert {each["path"] for each in found} <= {str(script)}
    assert _check.main([str(script)]) == status
    return (
        status,
        [f"{each['line']}: {each['text']}" for each in found],
        capsys.readouterr().out.splitlines()[-1],
    )


# Missing values: programs and their lists

TENSOR = "import popxl\nfrom popxl import ops\nx = popxl.constant(1.0)\n"

MISSING = {
    "a module": ("import popxl.no_such_module", ["1: no module popxl.no_such_module"]),
    "a package and all that is used of it": (
        "import popxl_gone as addons\nclass Net(addons.Module): pass\naddons.transforms.autodiff(Net)",
        ["1: no module popxl_gone", "2: no popxl_gone.Module", "3: no popxl_gone.transforms.autodiff"],
    ),
    "a name of a missing package": (
        "from popxl_gone import Module",
        ["1: no popxl_gone.Module"],
    ),
    "a module of a missing package": (
        "from popxl_gone.transforms import autodiff\nautodiff.x",
        ["1: no popxl_gone.transforms.autodiff", "2: no popxl_gone.transforms.autodiff.x"],
    ),
    "names of popxl_addons": (
        "import popxl_addons as addons\nfrom popxl_addons.transforms.autodiff import autodiff\n"
        "addons.ModuleList\naddons.transforms.autodif\nautodiff(1, grads_require=2)\naddons.NamedTensors().any.thing",
        [
            "3: no popxl_addons.ModuleList",
            "4: no popxl_addons.transforms.autodif",
            "5: no parameter grads_require of popxl_addons.transforms.autodiff.autodiff",
        ],
    ),
    "an imported name, once": ("from popxl.ops import nope\nnope(1).x", ["1: no popxl.ops.nope"]),
    "each line of an import": (
        "from popxl.ops import (\n  add,\n  nope,\n  nope2,\n)",
        ["3: no popxl.ops.nope", "4: no popxl.ops.nope2"],
    ),
    "an alias of a module": (
        "import popxl as px\npx.ops.collectives.nope",
        ["2: no popxl.ops.collectives.nope"],
    ),
    "an alias of a submodule": ("from popxl import ops as o\no.nope.deeper", ["2: no popxl.ops.nope"]),
    "an op by its module": ("import popxl.ops.add as f\nf.nope", ["2: no popxl.ops.add.nope"]),
    "a name of import *": ("from popxl.ops import *\nadd\nno_such_op(abs)", ["3: no popxl.ops.no_such_op"]),
    "a name of popart": ("import popart\npopart.Bilder()", ["2: no popart.Bilder"]),
    "a member of an enum": (
        "from popart import CommGroupType as T\nT.All, T.Nope",
        ["2: no popart.CommGroupType.Nope"],
    ),
    "a name of stochastorch": ("from stochastorch import Adder", ["1: no stochastorch.Adder"]),
    "names of popsr": ("import popsr as popxl\npopxl.ops.nope", ["2: no popsr.ops.nope"]),
    "inside functions and classes": (
        "import popxl\nclass A:\n  def f(self, y=popxl.a):\n    return [popxl.b for _ in y], lambda: popxl.c",
        ["3: no popxl.a", "4: no popxl.b", "4: no popxl.c"],
    ),
    "in arguments of what is missing": (
        "import popxl\npopxl.a(popxl.b)(popxl.c)",
        ["2: no popxl.a", "2: no popxl.b", "2: no popxl.c"],
    ),
    "an attribute of a constructed object": (
        "import popxl\nir = popxl.Ir()\nir.nope",
        ["3: no popxl.Ir.nope"],
    ),
    "through properties": (
        "import popxl\nir = popxl.Ir()\nir.main_graph.nope\nir._pb_ir.logIrr()\n"
        "ir.main_graph._pb_graph.getOpps()\nir._pb_ir.getAllGraphs()",
        [
            "3: no popxl.Graph.nope",
            "4: no popxl.Ir._pb_ir.logIrr",
            "5: no popxl.Graph._pb_graph.getOpps",
        ],
    ),
    "in a with statement": (
        "import popxl\nwith popxl.Session(popxl.Ir()) as s, popxl.Ir().main_graph as g:\n  s.runn()\n  g.nope",
        ["3: no popxl.Session.runn", "4: no popxl.Graph.nope"],
    ),
    "of what functions return": (f"{TENSOR}ops.host_load(x).nope", ["4: no popxl.Tensor.nope"]),
    "of what operators return": (f"{TENSOR}y = x @ x + x\ny.nope", ["5: no popxl.Tensor.nope"]),
    "of annotated parameters": (
        "import popxl\ndef f(x: popxl.Tensor, *, y: popxl.Graph):\n  x.nope, y.nope",
        ["3: no popxl.Tensor.nope", "3: no popxl.Graph.nope"],
    ),
    "of annotated names": ("import popxl\ng: popxl.Graph = make()\ng.nope", ["3: no popxl.Graph.nope"]),
    "of unpacked names": (
        f"{TENSOR}a, (b, c) = x, (1, x)\na.nope, b.nope, c.nope",
        ["5: no popxl.Constant.nope"],
    ),
    "by getattr": (f"{TENSOR}getattr(ops, 'nope')(x)", ["4: no popxl.ops.nope"]),
    "a parameter": (f"{TENSOR}ops.add(x, x, fast=True)", ["4: no parameter fast of popxl.ops.add"]),
    "a parameter of a class": ("import popxl\npopxl.Ir(popdist=1)", ["2: no parameter popdist of popxl.Ir"]),
    "a parameter of a method": (
        "import popxl\ns = popxl.Session(popxl.Ir())\ns.run(\n  inputs={},\n  fast=1)",
        ["5: no parameter fast of popxl.Session.run"],
    ),
    "an option": ("import popxl\npopxl.Ir().options.fooBar = 1", ["2: no option fooBar"]),
    "an option of PopART's object": (
        "import popxl\nir = popxl.Ir()\nopts = ir._pb_ir.getSessionOptions()\n"
        "opts.enableStochasticRounding = True\nopts.fooBar = True\nsetattr(opts, 'barFoo', opts.fooFoo)",
        ["5: no option fooBar", "6: no option barFoo", "6: no option fooFoo"],
    ),
    "a name bound twice to the same": (
        "try:\n  import popxl\nexcept ImportError:\n  import popsr as popxl\npopxl.nope",
        ["5: no popsr.nope"],
    ),
}


@pytest.mark.parametrize("program", MISSING)
def test_missing_names_are_listed_with_their_lines(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, expected = MISSING[program]
    status, lines, summary = _check_program(text, tmp_path, capsys)
    assert lines == expected
    assert status == 1
    names = {line.partition(": ")[2] for line in expected}
    assert re.fullmatch(rf"check: 1 script, \d+ names? used, {len(names)} missing: does not run yet", summary)


# Values that are not missing

NOT_MISSING = {
    "an empty file": "",
    "names of other packages": "import numpy as np\nfrom os import nope\nnp.nope, nope.x, undefined",
    "relative imports": "from .popxl import nope\nfrom . import popxl\npopxl.nope",
    "a name that is bound to something else too": "import popxl\nif input():\n  popxl = None\npopxl.nope",
    "a name that a function shadows": "import popxl\ndef f(popxl):\n  popxl.nope",
    "a name that a loop shadows": "import popxl\nfor popxl in []:\n  popxl.nope",
    "a name that a comprehension shadows": "import popxl\n[popxl.nope for popxl in []]",
    "a name that a handler, a pattern or a with shadows": (
        "import popxl, popart, popxl.ops as o\ntry: pass\nexcept E as popxl: popxl.nope\n"
        "with f() as popart: popart.nope\nmatch f():\n  case [*o]: o.nope"
    ),
    "a global that a function sets": "import popxl\ndef f():\n  global popxl\n  popxl = 3\npopxl.nope",
    "an import that may fail": "try:\n  import popxl.nope\n  from popxl import x\nexcept ImportError:\n  pass",
    "a package that may be missing": (
        "try:\n  import popxl_gone as addons\nexcept (KeyError, ModuleNotFoundError):\n  ok = False\n"
        "addons.Module"
    ),
    "an attribute that may be missing": "import popxl\ntry:\n  popxl.nope()\nexcept AttributeError:\n  pass",
    "an attribute that is asked for": "import popxl\nif hasattr(popxl, 'nope'):\n  popxl.nope()",
    "an attribute with a default": "import popxl\ngetattr(popxl, 'nope', None)",
    "for type checkers only": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  import popxl_gone",
    "an attribute that the program sets": "import popxl\nir = popxl.Ir()\nir.mine = 1\nir.mine\npopxl.f = 1\npopxl.f",
    "attributes of subclasses of its own": (
        "import popxl\nclass A(popxl.Module):\n  def build(self): self.nope = self.other\nA().nope"
    ),
    "parameters of wrapped functions": "import popxl\nf(popxl.ops.add, x=1)\npopxl.Module()(x=1)",
    "** of a dictionary": "import popxl\npopxl.ops.add(**{'x': 1})",
    "a name that import * of another package may bind": "from numpy import *\nfrom popxl.ops import *\nnope",
    "a subclass's attribute": f"{TENSOR}t = ops.host_load(x)\nt.shape_on_host",
    "names in place": f"{TENSOR}x += x\nx.shape",
    "a name that is made of itself": f"{TENSOR}y = y.z\nw = w + w\ny.nope, w.nope",
    "an object that is made of another": f"{TENSOR}x = x.T\nx.anything",
}


@pytest.mark.parametrize("program", NOT_MISSING)
def test_nothing_else_is_listed(program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines, summary = _check_program(NOT_MISSING[program], tmp_path, capsys)
    assert lines == []
    assert status == 0
    assert re.fullmatch(r"check: 1 script, \d+ names? used(, \d+ notes?)?: runs as far as names go", summary)


def _with_popxls_names(text: str) -> str:
    return re.sub(
        r"\bfrom popsr\b", "from popxl", re.sub(r"\bimport popsr$", "import popxl as popsr", text, flags=re.M)
    )


# Those in ``published`` are known to need ``popsr run``.
TYPED = ROOT / "tests_py/repo/typed"  # programs with mistakes that mypy finds
SUPPORT = {*(ROOT / "tests_py").rglob("[!_]*.py")} - {*PUBLISHED.rglob("*.py"), *TYPED.rglob("*.py")}
PROGRAMS = [
    *(ROOT / "examples").rglob("*.py"),
    *(ROOT / "bench").rglob("*.py"),
    *sorted(path for path in SUPPORT if not path.name.startswith("test_")),
    *(Path(popsr.__file__).parent / "demo").glob("*.py"),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_nothing_is_listed_of_programs_that_run(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = _with_popxls_names(program.read_text())
    assert _check_program(text, tmp_path, capsys)[:2] == (0, [])


def test_programs_that_run_have_names_to_look_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = _with_popxls_names((ROOT / "examples/train_digits.py").read_text())
    summary = _check_program(text, tmp_path, capsys)[2]
    assert int(re.findall(r"(\d+) names used", summary)[0]) > 15
    broken = text.replace("ops.softmax(", "ops.softmaxx(").replace("grads_required=", "grads_wanted=")
    status, lines, _ = _check_program(broken, tmp_path, capsys)
    assert status == 1
    assert [line.partition(": ")[2] for line in lines] == [
        "no popxl.ops.softmaxx",
        "no parameter grads_wanted of popxl.transforms.autodiff",
    ]


def test_attributes_of_real_objects_are_known() -> None:
    """Attributes that methods set are not missing."""
    ir = popsr.Ir()
    with ir.main_graph:
        stream = popsr.h2d_stream((2,), popsr.float32, "x")
        w = popsr.variable(np.ones(2, np.float32), name="w")
        graph = ir.create_graph(lambda x: x * x, stream.spec)
        grad = popsr.transforms.autodiff(graph)
        info = ops.call_with_info(graph, ops.host_load(stream))
        buffer = popsr.remote_buffer((2,), popsr.float32, 1)
    session = popsr.Session(ir)
    for thing in (ir, ir.options, graph, w, stream, stream.spec, grad, info, buffer, session, popsr.float32):
        known = _values.Instance("thing", type(thing))
        names = {*dir(thing), *getattr(thing, "__dict__", ())}
        missing = {name for name in names if isinstance(_values.attribute(known, name), _values.Missing)}
        assert missing == set(), type(thing)


# Files


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"x = (\n", ":1:5: syntax error: '(' was never closed"),
        (b"import popxl\nwith\n", ":2:5: syntax error: invalid syntax"),
        (b"x = '\xff'\n", ":1:"),
        (b"x = 1\0\n", ":1:1: syntax error: source code string cannot contain null bytes"),
        (b"x = " + b"-" * 100_000 + b"1\n", ":1:1: syntax error: "),
        (b"x = a" + b".b" * 5_000 + b"\n", ":1:1: syntax error: "),
    ],
    ids=["open", "invalid", "encoding", "null", "nested", "chain"],
)
def test_syntax_errors_are_reported_with_their_line(
    source: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    script.write_bytes(source)
    assert _check.main([str(script)]) == 1
    line, summary = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{script}{message}")
    assert summary == "check: 0 scripts, 0 names used, 1 file not read: does not run yet"


def test_programs_are_read_in_their_encoding_and_their_warnings_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    script.write_bytes("# coding: latin-1\nimport popxl\nx = 'é\\d'; x is 3\npopxl.é\n".encode("latin-1"))
    assert _check.main([str(script)]) == 1
    assert capsys.readouterr().out.splitlines()[0] == f"{script}:4:7: no popxl.é"


def test_files_that_cannot_be_read_do_not_hide_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad, absent = (str(tmp_path / name) for name in ("good.py", "bad.py", "absent.py"))
    Path(good).write_text("import popxl\npopxl.Ir")
    Path(bad).write_text("import popxl\npopxl.nope, popxl.nope")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert _check.main([good, absent, bad, str(empty)]) == 2
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        f"{bad}:2:7: no popxl.nope",
        "check: 2 scripts, 2 names used, 1 missing, 2 files not read: does not run yet",
    ]
    assert err.splitlines() == [
        f"popsr: check: cannot read '{absent}', got No such file or directory",
        f"popsr: check: no Python files below '{empty}', expected scripts",
    ]


def test_nothing_is_run(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import popxl\nimport no_such_package\nraise SystemExit(popxl.Ir())\n")
    code = f"import sys; from popsr.__main__ import main; sys.exit(main(['check', {str(script)!r}]))"
    assert run_python(code).splitlines() == [
        f"{script}:2:8: note: no module no_such_package: not installed here",
        "check: 1 script, 1 name used, 1 note: runs as far as names go",
    ]
