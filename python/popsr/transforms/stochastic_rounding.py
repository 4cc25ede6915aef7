"""Which random numbers each op rounds with."""

from __future__ import annotations

from typing import Literal

from popsr import _core
from popsr.errors import ArgumentTypeError
from popsr.ir import Ir
from popsr.options import check_mode

__all__ = ["stochastic_rounding"]


def stochastic_rounding(ir: Ir, mode: Literal["partition", "identical"] | None = None) -> None:
    """Give every op that rounds its rule of picking random numbers, and switch stochastic rounding on.

    A session does the same when the option ``enable_stochastic_rounding`` is set. Run by hand it has to be the last
    transform: a session refuses programs with ops that were added later. Running it again is fine.

    Args:
        ir: the program.
        mode: see ``Options.stochastic_rounding_mode``. Default: that option.
    """
    if not isinstance(ir, Ir):
        raise ArgumentTypeError(f"stochastic_rounding: ir is not an Ir, got {ir!r}")
    if mode is not None:
        check_mode(mode)
        ir.options.stochastic_rounding_mode = mode
    ir.options.enable_stochastic_rounding = True
    _core.assign_seeds(ir._core, ir.options.stochastic_rounding_mode)
    ir._seeds_explicit = True
