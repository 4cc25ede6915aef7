"""Signs of life of calls that may take long: lines in ``logging``, and a bar on a terminal after a second."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

__all__ = ["phase"]

_logger = logging.getLogger("popsr")
_bar: contextvars.ContextVar[_Bar | None] = contextvars.ContextVar("popsr_bar", default=None)
_DELAY = 1.0


@contextlib.contextmanager
def phase(call: str, name: str) -> Iterator[None]:
    """Tell one phase of a call: a line of level INFO with its seconds as it ends, and one of level DEBUG before.

    On a terminal, where tqdm is installed, a call that takes longer than a second shows its phase and takes it away at
    the end. Phases inside of others are on the same bar.

    Args:
        call: the call of the user.
        name: the phase.
    """
    with _around(call) as bar:
        bar.show(name)
        _logger.debug("%s: %s", call, name)
        start = time.perf_counter()
        yield
        _logger.info("%s: %s took %.2f s", call, name, time.perf_counter() - start)


@contextlib.contextmanager
def _around(call: str) -> Iterator[_Bar]:
    """The bar of the phase around, or a new one."""
    found = _bar.get()
    if found is not None:
        yield found
        return
    bar = _Bar(call)
    token = _bar.set(bar)
    try:
        yield bar
    finally:
        _bar.reset(token)
        bar.close()


class _Bar:
    """A line of tqdm's that appears after a second; nothing where there is no terminal or no tqdm."""

    def __init__(self, call: str) -> None:
        """Nothing is shown yet."""
        self._bar: Any = None
        self._name = ""
        self._call = call
        self._timer = threading.Timer(_DELAY, self._appear)
        self._timer.daemon = True
        if sys.stderr is not None and sys.stderr.isatty():
            self._timer.start()

    def show(self, name: str) -> None:
        """Show a phase."""
        self._name = name
        if self._bar is not None:
            self._bar.set_description_str(f"{self._call}: {name}")

    def close(self) -> None:
        """Take the line away."""
        self._timer.cancel()
        if self._timer.ident is not None:
            self._timer.join()  # it may be making the line
        if self._bar is not None:
            self._bar.close()

    def _appear(self) -> None:
        with contextlib.suppress(ImportError):
            from tqdm.auto import tqdm

            self._bar = tqdm(desc=f"{self._call}: {self._name}", bar_format="{desc} [{elapsed}]", leave=False)
            self._bar.start_t -= _DELAY
