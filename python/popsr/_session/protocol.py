"""The protocol of sessions: what rooms above use of one, beside the names that users call.

``io``, ``_tools``, ``addons``, ``compat``, ``testing`` and ``bridge`` take a ``SessionProtocol``. Whatever users do not
call they reach through ``session._access``, a ``SessionAccess``. Results that these rooms give users have types here.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from popsr._program.ir import Ir
from popsr._program.tensor import Tensor, Variable
from popsr._session.host_data import StreamPlan
from popsr._session.options import SessionOptions
from popsr._session.ranks.ranks import Ranks, together
from popsr._session.ranks.rows import one_writer
from popsr._session.rows import Array
from popsr._session.runner import Runner
from popsr._session.state import SessionState
from popsr._session.variables import VariableMirror
from popsr.dtypes import dtype
from popsr.errors import SessionError

if TYPE_CHECKING:
    import threading

    from popsr import _core

__all__ = [
    "Cast",
    "LoadDiff",
    "Only",
    "Rename",
    "Report",
    "Reshard",
    "SessionAccess",
    "SessionProtocol",
    "Trace",
]


class SessionAccess:
    """A session as rooms above see it.

    Attributes:
        core: the compiled program.
        ranks: the other ranks, which make the same calls; None without any.
        variables: the variables that the program had when it was compiled, in the order in which they were made.
        options: of the session.
        lock: for threads that share the session.
        watchers: "record" while the session is recorded, and "trace" while it is traced.
    """

    def __init__(
        self, state: SessionState, mirror: VariableMirror, runner: Runner, options: SessionOptions
    ) -> None:
        """A view of the parts of a session."""
        self._state, self._mirror, self._runner = state, mirror, runner
        self.core: _core.Session = state.core
        self.ranks: Ranks | None = state.ranks
        self.variables: Mapping[Variable, None] = state.variables
        self.options = options
        self.lock: threading.RLock = state.lock
        self.watchers: set[str] = set()

    @property
    def streams(self) -> list[StreamPlan]:
        """The streams in use with the shapes of their data, those to the device first."""
        return [*self._runner.inputs, *self._runner.outputs]

    # Calls

    @contextlib.contextmanager
    def hold(self, where: str) -> Iterator[None]:
        """No run and no other thread changes the session inside.

        Raises:
            SessionError: it is running, and this is a call from what a run calls back.
        """
        with self._state.lock:
            self._state.require_idle(where)
            yield

    def together(self, where: str) -> contextlib.AbstractContextManager[None]:
        """An error inside, on one of several ranks, is raised on all of them."""
        return together(self.ranks, where)

    @contextlib.contextmanager
    def one_writer(self, where: str, path: Path) -> Iterator[bool]:
        """True inside on the one rank that writes a file; all ranks leave the block when it is written."""
        with self.together(where), one_writer(self.ranks, where, path, self.core.step) as is_writer:
            yield is_writer

    def require_idle(self, where: str) -> None:
        """Refuse calls from what a run calls back.

        Raises:
            SessionError: the session is running.
        """
        self._state.require_idle(where)

    def add_watcher(self, where: str) -> None:
        """Note that a recording or a trace begins, and refuse a second one of its kind.

        Args:
            where: the call, which is its kind.
        Raises:
            SessionError: there is one.
        """
        if where in self.watchers:
            raise SessionError(
                f"{where}: the session is watched already, got a {where} in progress, "
                "expected a call after its end"
            )
        self.watchers.add(where)

    def require_own(self, where: str, tensor: Tensor) -> None:
        """Refuse tensors of other programs, and variables that are newer than the session.

        Raises:
            SessionError: it is one.
        """
        self._mirror.require_own(where, tensor)

    # Variables

    def rows(self, variable: Variable) -> Array:
        """The newest value, one row per group, of ``shape_on_host``; callers must not write to it."""
        return self._mirror.current_rows(variable)

    def parts(self, variable: Variable) -> Iterable[Array]:
        """The data of ``rows`` in pieces that are not copied: valid inside ``hold``.

        With other ranks all of them ask for the pieces, and rank 0 has them, each until the next one is asked for.
        """
        return self._mirror.current_parts(variable)

    def set_rows(self, rows: Mapping[Variable, Array]) -> None:
        """Set variables from checked data of ``shape_on_host``, whatever their retrieval mode."""
        self._mirror.set_rows(rows)

    def is_mapped(self, variable: Variable) -> bool:
        """True if the data of a variable is a memory-mapped file of the caller's."""
        return self._mirror.copies.mapped(variable) is not None

    # Attached by hand

    @property
    def depth(self) -> int:
        """Number of ``with session:`` that are entered."""
        return self._state.depth

    @property
    def popped(self) -> int:
        """Number of these that ``_was_attached_stack.pop`` left. Settable."""
        return self._state.popped

    @popped.setter
    def popped(self, value: int) -> None:
        self._state.popped = value

    def detach(self) -> None:
        """Leave all ``with session:`` without downloading variables.

        Raises:
            SessionError: it is running.
        """
        with self.hold("detach"):
            self._state.depth = self._state.popped = 0
            self._mirror.copies.trim()


class SessionProtocol(abc.ABC):
    """A session: what functions of rooms above take."""

    _access: SessionAccess

    @property
    @abc.abstractmethod
    def ir(self) -> Ir:
        """The program."""

    @property
    @abc.abstractmethod
    def step(self) -> int:
        """Number of the next run. Settable."""

    @step.setter
    @abc.abstractmethod
    def step(self, value: int) -> None:
        """Set it."""


# Types of the methods of a session whose code is in rooms above


class Report(Protocol):
    """A program and its runs, as far as they are known: ``str`` is the text; see ``docs/report.md``.

    Attributes:
        title: name of the program.
        html: one page that needs nothing else.
    """

    title: str
    html: str


class Trace(Protocol):
    """A trace in progress."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: object, error: object, trace: object, /) -> None: ...

    def close(self) -> None:
        """Write the file; a second call does nothing."""


class LoadDiff(Protocol):
    """The result of ``reset_host_weights``: see ``popsr.io.LoadDiff``. It is true where it is ``ok``."""

    path: Path
    entries: tuple[Any, ...]
    is_dry: bool
    accepts_missing: bool
    ok: bool
    loaded: tuple[str, ...]
    cast: tuple[str, ...]
    regrouped: tuple[str, ...]
    resharded: tuple[str, ...]
    missing: tuple[str, ...]
    skipped: tuple[str, ...]
    unexpected: tuple[str, ...]
    refused: tuple[str, ...]

    def __bool__(self) -> bool: ...

    def _repr_html_(self) -> str: ...


Only = str | Sequence[str] | Callable[[str], object] | None
"""Names to load: a pattern of ``fnmatch``, several, or a predicate; None for all."""

Rename = Mapping[str, str] | Callable[[str], str | None] | None
"""Names of variables by the file's: a mapping (others keep theirs), or a function (None leaves a tensor out)."""

Cast = bool | dtype | str | Sequence[dtype | str]
"""True for all dtypes of a file that may be cast, or these dtypes."""

Reshard = Mapping[str, int] | Callable[[str], int | None] | None
"""Axes by pattern of names, or a function of the name that returns an axis or None."""
