"""The versions of frameworks that are read: the table of docs/bridge.md, and errors about others."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable

import pytest

import popsr
from popsr._support.host.frameworks import OLDEST
from popsr.bridge.jax import from_jax
from popsr.bridge.onnx import export, load
from popsr.bridge.torch import from_export, from_fx, import_step, trace_step
from popsr.errors import MissingPackageError
from popsr.io import load_onnx
from tests_py import ROOT
from tests_py.support.helpers import run_python

PAGE = (ROOT / "docs" / "bridge.md").read_text()
MPI_PAGE = (ROOT / "docs" / "mpi.md").read_text()
NAMES = {"jax": "JAX", "onnx": "ONNX", "torch": "PyTorch"}


def release(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


@pytest.mark.parametrize("name", NAMES)
def test_the_table_has_the_oldest_and_the_newest_that_is_tested(name: str) -> None:
    """``nox -s peers`` installs the newest version; where it is newer than the table, the table is to be brought up."""
    row = re.search(rf"^\| {NAMES[name]} \| ([\d.]+) \| ([\d.]+) \|", PAGE, re.MULTILINE)
    assert row is not None
    assert release(row[1]) == OLDEST[name][: len(release(row[1]))]
    package = pytest.importorskip(name)
    assert release(package.__version__) <= release(row[2]), "try the tests with it, and change the table"


def test_the_page_on_mpi_has_the_oldest() -> None:
    stated = re.search(r"mpi4py ([\d.]+) or newer", MPI_PAGE)
    assert stated is not None
    assert release(stated[1]) == OLDEST["mpi4py"][:2]
    assert set(OLDEST) == {"mpi4py", *NAMES}


READERS: dict[str, tuple[str, Callable[[], object]]] = {
    "from_jax": ("jax", lambda: from_jax(abs, 1.0)),
    "from_export": ("torch", lambda: from_export(None, replicas=1)),
    "from_fx": ("torch", lambda: from_fx(None, replicas=1)),
    "import_step": ("torch", lambda: import_step(None)),
    "trace_step": ("torch", lambda: trace_step(abs, None, replicas=1)),
    "bridge.onnx.load": ("onnx", lambda: load("m.onnx")),
    "bridge.onnx.export": ("onnx", lambda: export(popsr.Ir().main_graph)),
    "load_onnx": ("onnx", lambda: load_onnx("m.onnx")),
}


def older(name: str) -> types.ModuleType:
    """A package of a version that is not read."""
    made = types.ModuleType(name)
    made.__version__ = "0.4.30"  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize("where", READERS)
def test_each_reader_refuses_an_older_one(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, read = READERS[where]
    monkeypatch.setitem(sys.modules, name, older(name))
    text = rf"{where}: {NAMES[name]} is too old, got {name} 0\.4\.30, expected \d+\.\d+ or newer"
    with pytest.raises(MissingPackageError, match=text):
        read()


@pytest.mark.parametrize("where", READERS)
def test_each_reader_says_what_is_missing(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, read = READERS[where]
    monkeypatch.setitem(sys.modules, name, None)
    text = rf"{where}: {NAMES[name]} is not installed, expected `pip install '{name}>=\d+\.\d+'`"
    with pytest.raises(MissingPackageError, match=text):
        read()


# Modules and calls that need a package without reading its version: the package, and the line of a program.
NEEDS = {
    "popsr.sr.torch": ("torch", "import popsr.sr.torch"),
    "popsr.sr.jax": ("jax", "import popsr.sr.jax"),
    "popsr.sr.optax": ("optax", "import popsr.sr.optax"),
    "as_torch": ("torch", "popsr.float32.as_torch()"),
}


@pytest.mark.parametrize("where", NEEDS)
def test_what_stands_for_a_package_says_that_it_is_missing(where: str) -> None:
    name, code = NEEDS[where]
    lines = ["import sys", f"sys.modules[{name!r}] = None", "import popsr", "try:", f"    {code}"]
    lines += ["except popsr.errors.MissingPackageError as error:", "    print(error)"]
    text = rf"{re.escape(where)}: \w+ is not installed, expected `pip install '{name}>=[\d.]+'`\n"
    assert re.fullmatch(text, run_python("\n".join(lines)))
