"""Rewriting of programs before their aliases are looked at: what popsr needs none of."""

from __future__ import annotations

from typing import Literal

from popsr._program.ir import Ir
from popsr._support.host.arguments import is_a, read_choice
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError

__all__ = ["apply_pre_alias_patterns"]


@public
def apply_pre_alias_patterns(
    ir: Ir, level: Literal["no_patterns", "minimal", "default", "all"] = "default"
) -> None:
    """Nothing: ops such as ``replicated_all_reduce_identical_inputs`` are complete without patterns.

    Args:
        ir: a program.
        level: "no_patterns", "minimal", "default" or "all".
    Raises:
        ArgumentTypeError: ``ir`` is not an Ir.
        AttributeValueError: unknown level.
    """
    if not is_a(ir, Ir):
        raise ArgumentTypeError(f"apply_pre_alias_patterns: ir is not an Ir, got {shown(ir)}")
    read_choice("apply_pre_alias_patterns", "level", level, ("no_patterns", "minimal", "default", "all"))
