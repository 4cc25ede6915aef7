"""PopART's loggers: popsr's, with PopART's names of levels."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from popsr._support.host.arguments import read_choice, read_text
from popsr._support.text.logs import add_handler

__all__ = ["Logger", "getLogger"]

_LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERR": logging.ERROR,
    "CRITICAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}
_ALL = ("", "all", "popart")
_ROOT = logging.getLogger("popsr")


def _line(level: str) -> Callable[[Logger, Any], None]:
    def log(self: Logger, text: Any) -> None:
        self._logger.log(_LEVELS[level], "%s", text)

    log.__doc__ = f"Log a line of level {level}."
    return log


class Logger:
    """A logger; made by :func:`getLogger`."""

    def __init__(self, name: str = "") -> None:
        """The logger of a part of PopART."""
        name = read_text("getLogger: name", name)
        self._logger = _ROOT if name in _ALL else _ROOT.getChild(name)

    def setLevel(self, level: str) -> None:
        """Show lines of this level and above, on standard error unless the program configures ``logging``.

        Args:
            level: one of TRACE, DEBUG, INFO, WARN, ERR, CRITICAL and OFF.
        Raises:
            AttributeValueError: there is no such level.
        """
        self._logger.setLevel(_LEVELS[read_choice("setLevel", "level", level, tuple(_LEVELS))])
        add_handler()

    trace, debug, info = _line("TRACE"), _line("DEBUG"), _line("INFO")
    warn, error, critical = _line("WARN"), _line("ERR"), _line("CRITICAL")


def getLogger(name: str = "") -> Logger:
    """The logger of a part of PopART; all of popsr's lines are of the one without a name.

    Args:
        name: the part.
    Raises:
        ArgumentTypeError: not a str.
    """
    return Logger(name)
