"""Session options that have an effect when a session is made."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from popsr._dot import write_dot_checks

if TYPE_CHECKING:
    from popsr._session.synthetic_data import SyntheticData
    from popsr.ir import Ir

__all__ = ["options_of_session"]

_logger = logging.getLogger("popsr")


def options_of_session(ir: Ir, seed: int) -> SyntheticData | None:
    """Write the files that the options ask for, and log which options have no effect.

    Args:
        ir: the program.
        seed: seed of the session.
    Returns:
        The source of synthetic data; None where the caller's data is read.
    Raises:
        FileError: a file of ``dotChecks`` cannot be written.
        AttributeValueError: a name in ``dotChecks`` cannot be the name of a file.
    """
    options = ir.options
    write_dot_checks(ir)
    idle = options._without_effect()
    if idle:
        _logger.info("Session: these options were set and have no effect on a simulator: %s", ", ".join(idle))
    mode = options.syntheticDataMode
    if mode.name == "Off":
        return None
    from popsr._session.synthetic_data import SyntheticData

    return SyntheticData(mode, seed)
