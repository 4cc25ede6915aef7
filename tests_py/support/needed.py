"""Packages that a program needs which a test runs: the test is skipped, naming the one that is missing."""

from __future__ import annotations

import importlib.util
import re

import pytest

# Names that popsr makes itself.
_OWN = {"popsr", "popxl", "popxl_addons", "popart", "poptorch", "popdist", "poprun"}
_IMPORTS = re.compile(
    r"^\s*(?:from (\w+)[\w.]* import\b|import (\w+)[\w.]*(?: as \w+)?(?:$|;|,| *#))", re.MULTILINE
)
# What a program calls that needs a package which it does not import itself.
_CALLS = {r"_onnx\(|bridge\.onnx|\.Builder\(": "onnx", "visualize_array_sharding": "rich"}


def need_packages(program: str) -> None:
    """Skip the test where a package is missing that this program imports, or needs for what it calls."""
    names = {name for found in _IMPORTS.findall(program) for name in found if name}
    names |= {package for call, package in _CALLS.items() if re.search(call, program)}
    for name in sorted(names - _OWN):
        written = re.search(rf"\b{name}\.py\b", program)  # a module that the program writes
        if importlib.util.find_spec(name) is None and not written:
            pytest.skip(f"needs {name}")
