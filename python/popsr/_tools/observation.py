"""Watching the runs of a session: what recordings and traces have in common."""

from __future__ import annotations

import abc
from types import TracebackType
from typing import Any, Self

from popsr._session.protocol import SessionAccess, SessionProtocol
from popsr._session.ranks.ranks import Ranks

__all__ = ["Observation"]


class Observation(abc.ABC):
    """Watches the runs of a session until it is closed, and then writes a file.

    A subclass opens its file and tells the core to watch in ``_start``, and writes in ``_finish``. All ranks make both
    calls. ``_file`` is what ``_start`` opened, or stands for no file.
    """

    _kind: str  # of ``SessionAccess.watcher``, and the call in errors
    _file: Any

    def __init__(self, session: SessionProtocol) -> None:
        """Begin.

        Raises:
            SessionError: the session is running, or watched already.
        """
        self._access: SessionAccess = session._access
        self._ranks: Ranks | None = self._access.ranks
        self._is_open = False
        try:
            with self._access.together(self._kind):
                self._access.require_idle(self._kind)
                self._access.require_unwatched(self._kind)
                self._start()
        except BaseException:
            self._file.__exit__()
            raise
        self._access.watcher = self._kind
        self._is_open = True

    @abc.abstractmethod
    def _start(self) -> None:
        """Open the file, and let the core watch."""

    @abc.abstractmethod
    def _finish(self) -> None:
        """Write the file."""

    def close(self) -> None:
        """Write the file; a second call does nothing. All ranks call it.

        Raises:
            SessionError: inside a run.
            FileError: the file cannot be written.
            RankError: ranks have seen other runs, or make other calls.
        """
        if not self._is_open:
            return
        self._access.require_idle(self._kind)
        try:
            self._finish()
        finally:
            self._end()

    def _end(self) -> None:
        self._is_open = False
        self._access.core.end_observation()
        self._access.watcher = None
        self._file.__exit__()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._ranks is not None:
            self._end()  # the other ranks may not come
        else:
            self.close()
