"""State that the parts of a session share: its program, attachment, and runs in progress."""

from __future__ import annotations

import abc
import threading
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager

from popsr import _core
from popsr._program.ir import Ir
from popsr._program.tensor import Variable
from popsr._session.ranks.ranks import Ranks
from popsr._session.rows import Array
from popsr.errors import SessionError

__all__ = ["HostState", "SessionState"]


class HostState(abc.ABC):
    """A session, as far as checkpoints read and write one."""

    _variables: Iterable[Variable]

    @property
    @abc.abstractmethod
    def _ranks(self) -> Ranks | None:
        """The other ranks, which make the same calls; None without any."""

    @property
    @abc.abstractmethod
    def ir(self) -> Ir:
        """The program."""

    @property
    @abc.abstractmethod
    def step(self) -> int:
        """Number of the next run."""

    @abc.abstractmethod
    def _held(self, where: str) -> AbstractContextManager[None]:
        """No run and no other thread changes the session inside.

        Raises:
            SessionError: it is running, and this is a call from what a run calls back.
        """

    @abc.abstractmethod
    def _current_parts(self, variable: Variable) -> Iterable[Array]:
        """The newest value in pieces that are not copied, one row per group: valid inside ``_held``.

        With other ranks all of them ask for the pieces, and rank 0 has them, each until the next one is asked for.
        """

    @abc.abstractmethod
    def _restore(self, rows: Mapping[Variable, Array], step: int | None) -> None:
        """Set variables from checked data of ``shape_on_host``, and the step if there is one."""


class SessionState:
    """State of a session.

    Attributes:
        ir: the program.
        core: its compiled form.
        variables: the variables that the program had when it was compiled.
        lock: for threads that share the session.
        depth: ``with session:`` that are entered.
        popped: of these left by ``_was_attached_stack.pop``.
        stale: the device has newer values than the host.
        running: a run is in progress.
        observer: "record" or "trace" while the session is recorded or traced.
        ranks: the other ranks; None without any.
    """

    def __init__(self, ir: Ir, core: _core.Session, ranks: Ranks | None = None) -> None:
        """Detached."""
        self.ir = ir
        self.core = core
        self.ranks = ranks
        self.variables = dict.fromkeys(ir.main_graph.variables)
        self.lock = threading.RLock()
        self.depth = self.popped = 0
        self.stale = False
        self.running = False
        self.observer: str | None = None
        self._seeds_at = ir._seeds_at

    def restore_seeds(self) -> None:
        """Give the program's ops the seed rules that they had when it was compiled."""
        self.ir._restore_seeds(self._seeds_at)

    def set_stale(self, stale: bool) -> None:
        """Note whether the device has newer values than the host."""
        self.stale = stale
        self.ir._in_sync = not stale

    def require_attached(self, where: str) -> None:
        """Refuse calls outside ``with session:``."""
        if self.depth == 0:
            raise SessionError(f"{where}: the session is detached, expected a call inside `with session:`")

    def require_idle(self, where: str) -> None:
        """Refuse calls from what ``print_tensor`` writes to, in the middle of a run."""
        if self.running:
            raise SessionError(f"{where}: the session is running, expected a call after the run")

    def require_unobserved(self, where: str) -> None:
        """Refuse a second recording or trace at once."""
        if self.observer is not None:
            raise SessionError(
                f"{where}: the session is watched already, got a {self.observer} in progress, "
                "expected a call after its end"
            )
