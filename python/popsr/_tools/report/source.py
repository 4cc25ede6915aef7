"""The things that a report is made of: a program, its facts, and what a session knows."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from popsr._support.text.entry_points import public

if TYPE_CHECKING:
    from popsr import _core
    from popsr._program.ir import Ir
    from popsr._program.op import Op
    from popsr._session.profile import Profile
    from popsr._support.records import MemoryTimeline, ProfiledInstruction, SessionMemory
    from popsr.analysis import Communication, PartitionAnalysis, Traffic
    from popsr.analysis._communication import PlanSettings
    from popsr.replicas import Partition

__all__ = ["Source"]


@public
@dataclass(frozen=True)
class Source:
    """A program with the facts and counts of its session.

    Attributes:
        title: name of the program.
        ir: the program.
        facts: of the session.
        core: the compiled session.
        rank: this rank and the number of all; None without others.
        replicas: those that this process runs.
        settings: arguments of the session in words.
        runs: number of runs that ended.
        memory: bytes by kind.
        timeline: bytes over time.
        storage: replicas that share a stored copy of each variable, in the order of ``ir.main_graph.variables``.
        communication: messages between ranks of one replica each.
        traffic: bytes and messages that this rank moved.
        profile: cost of all runs, and as recorded with the ids of ops; None without profile.
    """

    title: str
    ir: Ir
    facts: PartitionAnalysis
    core: _core.Session
    rank: tuple[int, int] | None
    replicas: range
    settings: Sequence[str]
    runs: int
    memory: SessionMemory
    timeline: MemoryTimeline
    storage: Sequence[Partition]
    communication: Communication
    traffic: Mapping[Op, Traffic]
    profile: tuple[Profile, Sequence[ProfiledInstruction]] | None

    @classmethod
    def of_core(
        cls,
        ir: Ir,
        core: _core.Session,
        facts: PartitionAnalysis,
        *,
        rank: tuple[int, int] | None,
        replicas: range,
        settings: PlanSettings,
        communication: Communication,
        traffic: Mapping[Op, Traffic],
        profile: Profile | None,
    ) -> Source:
        """The same of a compiled session, named after the script that runs."""
        named = {
            "dedup=False": not settings.dedup,
            f"check={settings.check:g}": settings.check,
            "optimise=False": not settings.optimise,
            "profile=True": profile is not None,
        }
        return cls(
            title=os.path.basename(sys.argv[0] if sys.argv else "") or "program",
            ir=ir,
            facts=facts,
            core=core,
            rank=rank,
            replicas=replicas,
            settings=[name for name, is_set in named.items() if is_set],
            runs=core.stats()["runs"],
            memory=core.memory(),
            timeline=core.memory_timeline(),
            storage=[core.storage(v._id) for v in ir.main_graph.variables],
            communication=communication,
            traffic=traffic,
            profile=None if profile is None else (profile, core.profile()[1]),
        )
