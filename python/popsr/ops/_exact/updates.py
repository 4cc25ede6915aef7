"""Updates of variables."""

from __future__ import annotations

from popsr._fields import Numbers
from popsr.ops._exact.registry import Exact, Value, exact

__all__: list[str] = []


@exact("copy_var_update_")
def copy_var_update(_: Exact, t: Value, x: Value) -> Value:
    return x


@exact("accumulate_")
def accumulate(op: Exact, t: Numbers, x: Numbers, f: Numbers | None = None) -> Numbers:
    return t + x * (op.number(op["f"]) if f is None else f.reshape(()))
