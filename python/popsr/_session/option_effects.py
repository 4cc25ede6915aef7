"""Session options that have an effect when a session is made."""

from __future__ import annotations

import logging

from popsr._program.ir import Ir
from popsr._session.synthetic_data import SyntheticData

__all__ = ["options_of_session"]

_logger = logging.getLogger("popsr")


def options_of_session(ir: Ir, seed: int) -> SyntheticData | None:
    """The source of synthetic data that the options ask for; logs which options have no effect.

    Args:
        ir: the program.
        seed: seed of the session.
    Returns:
        The source of synthetic data; None where the caller's data is read.
    """
    options = ir.options
    idle = options._without_effect()
    if idle:
        _logger.info("Session: these options were set and have no effect on a simulator: %s", ", ".join(idle))
    mode = options.syntheticDataMode
    if mode.name == "Off":
        return None
    return SyntheticData(mode, seed)
