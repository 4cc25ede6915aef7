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
    from popsr._session.session import Session
    from popsr._support.records import MemoryTimeline, ProfiledInstruction, SessionMemory
    from popsr.analysis import Communication, PartitionAnalysis, Traffic
    from popsr.analysis._explanation import Words
    from popsr.replicas import Partition

__all__ = ["Source", "program_name"]


def program_name() -> str:
    """The file name of the script that runs."""
    return os.path.basename(sys.argv[0] if sys.argv else "") or "program"


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
        words: names of values in the words of the user's program; None of a program of popsr.
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
    words: Words | None = None

    def in_words(self, text: str) -> str:
        """A text of the analysis with these names."""
        return text if self.words is None else self.words.text(text)

    @classmethod
    def of_session(cls, session: Session) -> Source:
        """The things that a session knows now, named after the script that runs.

        Raises:
            GraphError: the program changed since the session was made.
        """
        access, ir, facts = session._access, session.ir, session.facts
        core, ranks, options = access.core, access.ranks, access.options
        core.facts.check_fresh()
        facts._check_seeds()
        named = {
            "dedup=False": not options.dedup,
            f"check={options.check:g}": options.check,
            "optimise=False": not options.optimise,
            "profile=True": options.profile,
        }
        return cls(
            title=program_name(),
            ir=ir,
            facts=facts,
            core=core,
            rank=None if ranks is None else (ranks.rank, ranks.size),
            replicas=session.local_replicas,
            settings=[name for name, is_set in named.items() if is_set],
            runs=core.stats()["runs"],
            memory=core.memory(),
            timeline=core.memory_timeline(),
            storage=[core.storage(v._id) for v in ir.main_graph.variables],
            communication=session.plan.communication(ranks=ir.replication_factor),
            traffic=session.traffic(),
            profile=(session.profile(), core.profile()[1]) if options.profile else None,
        )
