"""The pass over fully connected layers of PopART: a hint for hardware that has no meaning here."""

from __future__ import annotations

from popsr._program.ir import Ir
from popsr._support.host.arguments import is_a
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError

__all__ = ["disable_fc_pass", "enable_fc_pass"]


@public
def disable_fc_pass(ir: Ir) -> None:
    """Accepted for programs of PopXL; has no effect.

    Args:
        ir: a program.
    Raises:
        ArgumentTypeError: ``ir`` is not an Ir.
    """
    _check("disable_fc_pass", ir)


@public
def enable_fc_pass(ir: Ir) -> None:
    """Accepted for programs of PopXL; has no effect.

    Args:
        ir: a program.
    Raises:
        ArgumentTypeError: ``ir`` is not an Ir.
    """
    _check("enable_fc_pass", ir)


def _check(where: str, ir: Ir) -> None:
    if not is_a(ir, Ir):
        raise ArgumentTypeError(f"{where}: ir is not an Ir, got {shown(ir)}")
