"""PopXL's modules by name, and the modules of popsr that hold their names.

``popxl.ir`` is an attribute of this package for programs that say ``import popsr as popxl``, and a module to import
after ``popsr.compat.install()``.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["POPXL_MODULES"]

_IN_PROGRAM = ("context", "graph", "ir", "module", "op", "random_seed", "streams", "typing_")
POPXL_MODULES: Mapping[str, str] = {
    **{name: f"popsr._program.{name}" for name in _IN_PROGRAM},
    "remote_buffer": "popsr._program.variables.remote_buffer",
    "replica_grouping": "popsr.replicas",
    "session": "popsr._session.session",
    "tensor": "popsr._program.tensors",
}
