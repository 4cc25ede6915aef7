"""Lines in ``logging`` that torch writes about its own traces, which users of popsr did not start."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

__all__ = ["without_debug_lines"]

_TRACES = "torch.__trace"


@contextlib.contextmanager
def without_debug_lines() -> Iterator[None]:
    """Keep them from handlers such as pytest's, which shows all lines of a test that fails.

    Torch asks for handlers alone, and makes a stack trace for each line where there is one.
    """
    logger = logging.getLogger(_TRACES)
    kept = logger.disabled, logger.handlers
    logger.disabled, logger.handlers = True, []
    try:
        yield
    finally:
        logger.disabled, logger.handlers = kept
