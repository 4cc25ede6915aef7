"""PopART's loggers: popsr's, with PopART's names of levels."""

from __future__ import annotations

import logging
from typing import Any

from popsr._host.arguments import read_choice, read_text

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
        if not _ROOT.hasHandlers():
            _ROOT.addHandler(_handler())

    def trace(self, text: Any) -> None:
        """Log a line of level TRACE."""
        self._logger.log(_LEVELS["TRACE"], "%s", text)

    def debug(self, text: Any) -> None:
        """Log a line of level DEBUG."""
        self._logger.debug("%s", text)

    def info(self, text: Any) -> None:
        """Log a line of level INFO."""
        self._logger.info("%s", text)

    def warn(self, text: Any) -> None:
        """Log a line of level WARN."""
        self._logger.warning("%s", text)

    def error(self, text: Any) -> None:
        """Log a line of level ERR."""
        self._logger.error("%s", text)

    def critical(self, text: Any) -> None:
        """Log a line of level CRITICAL."""
        self._logger.critical("%s", text)


def getLogger(name: str = "") -> Logger:
    """The logger of a part of PopART; all of popsr's lines are of the one without a name.

    Args:
        name: the part.
    Raises:
        ArgumentTypeError: not a str.
    """
    return Logger(name)


def _handler() -> logging.Handler:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s: %(message)s"))
    # A later logging.basicConfig shows the lines too.
    handler.addFilter(lambda _: not logging.getLogger().handlers)
    return handler
