"""Futures of collectives, as ``work.get_future()`` gives them: their results are there after ``wait()``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from popsr.bridge.torch._user.locations import current_place, shown_place
from popsr.errors import UnsupportedError

__all__ = ["Promise", "callbacks_followed"]

_followed: list[bool] = []


@contextlib.contextmanager
def callbacks_followed() -> Iterator[None]:
    """Let futures have callbacks: whoever runs inside waits for them before anything else happens."""
    _followed.append(True)
    try:
        yield
    finally:
        _followed.pop()


class Promise:
    """A value that is made when it is waited for.

    Args:
        make: makes it, once.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        """Not made yet."""
        self._make, self._is_made, self._value = make, False, None

    def wait(self) -> Any:
        """The value."""
        if not self._is_made:
            self._value, self._is_made = self._make(), True
        return self._value

    def value(self) -> Any:
        """The value, once it has been waited for."""
        if not self._is_made:
            self._refuse("value() before wait()")
        return self._value

    def then(self, callback: Callable[[Promise], Any]) -> Promise:
        """The value that a callback makes of this one."""
        if not _followed:
            self._refuse("a callback, which runs at an unknown time")

        def made() -> Any:
            self.wait()
            return callback(self)

        return Promise(made)

    def done(self) -> NoReturn:
        """Refuse: the answer depends on time."""
        self._refuse("done()")

    def add_done_callback(self, _callback: Any) -> NoReturn:
        """Refuse: a callback runs at an unknown time."""
        self._refuse("a callback, which runs at an unknown time")

    def _refuse(self, got: str) -> NoReturn:
        raise UnsupportedError(
            f"bridge.torch: the future of a collective is used at {shown_place(current_place())}, got {got}, expected "
            "wait()"
        )
