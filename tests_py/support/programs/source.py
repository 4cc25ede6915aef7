"""Programs given as text, for tests that vary a line of one or that need a file's lines without a file.

Programs with expectations of their own are in ``tests_py.analysis.programs``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import popsr
from popsr import ops, transforms
from popsr.ops import collectives, var_updates

NAMES = {
    "np": np,
    "popsr": popsr,
    "ops": ops,
    "transforms": transforms,
    "collectives": collectives,
    "var_updates": var_updates,
    "F32": popsr.float32,
}


def build(replicas: int, source: str) -> tuple[popsr.Ir, dict[str, Any]]:
    """The program of a source, whose file is called program.py, and what it defined.

    It stands inside the main graph, in sequence, and sees ``ir`` and NAMES.
    """
    ir = popsr.Ir(replication=replicas)
    scope: dict[str, Any] = {**NAMES, "ir": ir}
    with ir.main_graph, popsr.in_sequence():
        exec(compile(source, "program.py", "exec"), scope)
    return ir, scope
