"""What the build leaves: objects with names of functions for profilers, of bounded size; sessions that CI runs."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import popsr
from tests_py import ROOT

INSTALLED = Path(popsr._core.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PRESETS = {p["name"]: p for p in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}


def shared_objects():
    return sorted(INSTALLED.glob("*.so"))


@pytest.mark.parametrize("library", shared_objects(), ids=lambda p: p.name.split(".")[0])
def test_profilers_see_names_of_functions(library):
    if shutil.which("nm") is None:
        pytest.skip("needs nm (binutils)")
    names = subprocess.run(
        ["nm", "-C", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout
    functions = re.findall(r"^\w+ [tTwW] (.*\bpopsr::.*)$", names, re.MULTILINE)
    assert len(functions) >= 100, functions


def test_shared_objects_take_at_most_15_mb():
    assert sum(file.stat().st_size for file in shared_objects()) <= 15e6


def test_presets_set_options_that_cmake_declares():
    """The presets are the settings of nox too; a variable that nobody reads would be ignored."""
    text = (ROOT / "CMakeLists.txt").read_text()
    declared = set(re.findall(r"^(?:option|set)\((POPSR_\w+)", text, re.MULTILINE))
    given = {
        name for preset in PRESETS.values() for name in preset["cacheVariables"] if name.startswith("POPSR")
    }
    assert given <= declared
    assert set(PROJECT["tool"]["scikit-build"]["cmake"]["define"]) <= declared


def test_ci_runs_sanitizers_mutants_and_the_check_of_includes():
    text = (ROOT / "noxfile.py").read_text()
    [in_ci] = re.findall(r"^nox\.options\.sessions = .*\*\(\[(.*)\] if IN_CI else \[\]\)", text, re.MULTILINE)
    assert {"asan", "mutants", "includes"} <= set(re.findall(r'"(\w+)"', in_ci))
    sanitized = set(re.findall(r'"(tests_py/\S+)"', text))
    assert len(sanitized) >= 5
    assert all((ROOT / path).exists() for path in sanitized)
    assert PRESETS["asan-ubsan"]["cacheVariables"]["POPSR_SANITIZE"] == "address,undefined"
