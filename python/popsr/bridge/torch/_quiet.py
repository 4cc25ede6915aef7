"""Lines in ``logging`` that torch writes about its own traces, which users of popsr did not start."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

__all__ = ["without_debug_lines"]

_TRACES = "torch.__trace"


@contextlib.contextmanager
def without_debug_lines() -> Iterator[None]:
    """Keep them from handlers such as pytest's, which shows all lines of a test that fails."""
    logger = logging.getLogger(_TRACES)
    disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = disabled
