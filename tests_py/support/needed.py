"""Packages that a program needs which a test runs: the test is skipped, naming the one that is missing."""

from __future__ import annotations

import importlib.util
import re

import pytest

_OPTIONAL = {
    *(
        "IPython",
        "jax",
        "matplotlib",
        "mpi4py",
        "onnx",
        "optax",
        "orbax",
        "rich",
        "safetensors",
        "scipy",
        "sklearn",
        "torch",
    ),
    *("tqdm", "treescope", "viztracer", "yaml"),
}
_IMPORTS = re.compile(
    r"^\s*(?:from (\w+)[\w.]* import\b|import (\w+)[\w.]*(?: as \w+)?(?:$|;|,| *#))", re.MULTILINE
)
# Calls that need a package which the program does not import itself.
_CALLS = {r"_onnx\(|bridge\.onnx|\.Builder\(": "onnx", "visualize_array_sharding": "rich"}


def need_packages(program: str) -> None:
    """Skip the test where a package is missing that this program imports, or needs for what it calls."""
    names = {name for found in _IMPORTS.findall(program) for name in found if name}
    names |= {package for call, package in _CALLS.items() if re.search(call, program)}
    for name in sorted(names & _OPTIONAL):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}")
