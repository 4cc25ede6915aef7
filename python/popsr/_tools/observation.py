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

    A session has one of each kind at most; they begin and end in any order. A subclass opens its file and tells the
    core to watch in ``_start``, writes in ``_finish``, and lets the core watch no more in ``_stop``. All ranks make the
    first two calls, and have the same kinds in progress. ``_file`` is what ``_start`` opened, or stands for no file.
    """

    _kind: str  # of ``SessionAccess.watchers``, and the call in errors
    _file: Any

    def __init__(self, session: SessionProtocol) -> None:
        """Begin.

        Raises:
            SessionError: the session is running, or watched already by one of this kind.
            RankError: ranks make other calls, or have others in progress.
        """
        self._access: SessionAccess = session._access
        self._ranks: Ranks | None = self._access.ranks
        self._is_open = False
        with self._access.hold(self._kind), self._access.together(self._kind):
            self._access.add_watcher(self._kind)
            self._is_open = True
            try:
                self._start()
                self._agree()
            except BaseException:
                self._end()
                raise

    @abc.abstractmethod
    def _start(self) -> None:
        """Open the file, and let the core watch."""

    @abc.abstractmethod
    def _finish(self) -> None:
        """Write the file."""

    @abc.abstractmethod
    def _stop(self) -> None:
        """Let the core watch no more, if it did."""

    def _agree(self) -> None:
        """All ranks are here, with the same in progress: messages of ``_finish`` meet no others."""
        if self._ranks is not None:
            kinds = ", ".join(sorted(self._access.watchers))
            self._ranks.agree(self._kind, [("what is in progress", f"'{kinds}'")])

    def close(self) -> None:
        """Write the file; a second call does nothing. All ranks call it.

        Raises:
            SessionError: inside a run.
            FileError: the file cannot be written.
            RankError: ranks have seen other runs, or make other calls.
        """
        with self._access.hold(self._kind):
            if not self._is_open:
                return
            try:
                with self._access.together(self._kind):
                    self._agree()
                    self._finish()
            finally:
                self._end()

    def _end(self) -> None:
        self._is_open = False
        self._stop()
        self._access.watchers.discard(self._kind)
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
