"""The handler of popsr's lines in ``logging``, where the program configures none."""

from __future__ import annotations

import logging
import os

from popsr._support.text.shown import shown
from popsr.errors import AttributeValueError

__all__ = ["add_handler", "follow_environment"]

_VARIABLE = "POPSR_LOG"
_LEVELS = ("debug", "info", "warning", "error")


def add_handler() -> None:
    """Show popsr's lines on standard error unless the program configures ``logging``, now or later."""
    root = logging.getLogger("popsr")
    if root.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s: %(message)s"))
    handler.addFilter(lambda _: not logging.getLogger().handlers)
    root.addHandler(handler)


def follow_environment() -> None:
    """Show the lines of the level that ``POPSR_LOG`` names, and of those above it.

    Raises:
        AttributeValueError: there is no such level.
    """
    level = os.environ.get(_VARIABLE, "").strip().lower()
    if not level:
        return
    if level not in _LEVELS:
        raise AttributeValueError(
            f"{_VARIABLE}: no level of logging, got {shown(level)}, expected one of {', '.join(_LEVELS)}"
        )
    logging.getLogger("popsr").setLevel(level.upper())
    add_handler()
