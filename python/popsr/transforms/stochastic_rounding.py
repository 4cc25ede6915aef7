"""Choice of the random numbers that each op rounds with."""

from __future__ import annotations

from typing import Literal

from popsr import _core
from popsr._program.building.transaction import transactional
from popsr._program.ir import Ir
from popsr._program.options.options import read_mode
from popsr._support.text.entry_points import public_call
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, GraphError

__all__ = ["stochastic_rounding"]


@public_call
@transactional
def stochastic_rounding(ir: Ir, mode: Literal["partition", "popart", "identical"] | None = None) -> None:
    """Give every op that rounds its rule of picking random numbers.

    A session does the same when it is made, and so does an analysis. Run by hand it has to be the last transform: a
    session refuses programs with ops that were added later. Running it again changes nothing; with another mode, or
    after the program changed, it gives all ops the rules that it would have given them alone. To set the option
    afterwards changes no rules.

    Args:
        ir: the program; its option ``enable_stochastic_rounding`` has to be on.
        mode: see ``Options.stochastic_rounding_mode``; sets that option. Default: the option as it is.
    Raises:
        GraphError: the option is off; or, in mode "popart", PopART would stop: an op that rounds is in a graph that
            nobody calls or that has no inputs.
    """
    if not isinstance(ir, Ir):
        raise ArgumentTypeError(f"stochastic_rounding: ir is not an Ir, got {shown(ir)}")
    mode_name = ir.options.stochastic_rounding_mode if mode is None else mode
    read_mode(mode_name)
    if not ir.options.enable_stochastic_rounding:
        raise GraphError(
            "stochastic_rounding: the option enable_stochastic_rounding is off, got False, expected True"
        )
    ir._rules_by_hand = _core.SeedRules.of_mode(ir._core, mode_name).for_present_ops(ir._core)
    ir.options.stochastic_rounding_mode = mode_name
