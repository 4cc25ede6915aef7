"""Verdict of ``popsr.prove(..., like="one device")`` on a step of JAX, in the names of the table."""

from __future__ import annotations

import re
import time

import popsr
from tests_py.bridge.same.planted.cases import Program, Said
from tests_py.bridge.same.planted.truth_jax import names_of

__all__ = ["said"]


def name_of(path: str) -> str:
    """A state's name in the table."""
    return "loss" if path.startswith("result") else re.sub(r"\['(\w+)'\]", r".\1", path)


def said(program: Program, exact: bool) -> Said:
    """The verdict about a step; it is of all states and results."""
    start = time.process_time()
    proof = popsr.prove(program.step, *program.args, like="one device", exact=exact, **program.options)
    seconds = time.process_time() - start
    return Said.of(proof, name_of, names_of(program), seconds)
