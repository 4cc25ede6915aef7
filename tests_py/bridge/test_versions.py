"""The versions of frameworks that are read: the table of docs/bridge.md, and errors about others."""

from __future__ import annotations

import re
import sys
import types

import pytest

from popsr.bridge._versions import OLDEST, framework
from popsr.errors import MissingPackageError
from tests_py import ROOT

PAGE = (ROOT / "docs" / "bridge.md").read_text()
NAMES = {"jax": "JAX", "onnx": "ONNX", "torch": "PyTorch"}


def release(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


@pytest.mark.parametrize("name", OLDEST)
def test_the_table_has_the_oldest_and_the_newest_that_is_tested(name: str) -> None:
    """``nox -s peers`` installs the newest version; where it is newer than the table, the table is to be brought up."""
    row = re.search(rf"^\| {NAMES[name]} \| ([\d.]+) \| ([\d.]+) \|", PAGE, re.MULTILINE)
    assert row is not None
    assert release(row[1]) == OLDEST[name][: len(release(row[1]))]
    package = pytest.importorskip(name)
    assert release(package.__version__) <= release(row[2]), "try the tests with it, and change the table"


@pytest.mark.parametrize("name", OLDEST)
def test_an_older_one_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old = types.ModuleType(name)
    old.__version__ = "0.4.30"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, old)
    with pytest.raises(
        MissingPackageError, match=rf"is too old, got {name} 0\.4\.30, expected \d+\.\d+ or newer"
    ):
        framework.__wrapped__("from_jax", name)


def test_a_missing_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(MissingPackageError, match=r"JAX is not installed, expected `pip install 'jax>="):
        framework.__wrapped__("from_jax", "jax")
