"""The compiled program of a session as a text that also tells what ranks move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from popsr._support.text.entry_points import public
from popsr.analysis._communication import Communication, PlanSettings, communication_of

if TYPE_CHECKING:
    from popsr import _core
    from popsr._program.ir import Ir

__all__ = ["Plan"]


@public
class Plan(str):
    """Instructions with block counts and bytes, a line each; see ``Session.plan``."""

    __slots__ = ("_facts", "_ir", "_ranks", "_settings")

    _facts: _core.PartitionAnalysis
    _ir: Ir
    _ranks: int
    _settings: PlanSettings

    @classmethod
    def _of(cls, ir: Ir, core: _core.Session, ranks: int, settings: PlanSettings) -> Plan:
        self = cls(core.plan())
        self._ir, self._facts, self._ranks, self._settings = ir, core.facts, ranks, settings
        return self

    def communication(self, *, ranks: int | None = None) -> Communication:
        """Messages between ranks in one run, with the facts of the session's last run.

        Args:
            ranks: number of ranks; none of them is started. Default: the number of the session's ranks.
        Raises:
            ValueError: there are more ranks than replicas.
        """
        return communication_of(
            self._ir, self._facts, self._ranks if ranks is None else ranks, self._settings
        )
