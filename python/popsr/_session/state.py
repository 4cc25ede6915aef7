"""State that the parts of a session share: its program, attachment, and runs in progress."""

from __future__ import annotations

import threading

from popsr import _core
from popsr._program.ir import Ir
from popsr._session.ranks.ranks import Ranks
from popsr.errors import SessionError

__all__ = ["SessionState"]


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
