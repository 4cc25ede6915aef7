"""Views of a session: facts, plan, counts and times of its program and runs, and reports of all that."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from popsr._program.op import Op
from popsr._program.streams import DeviceToHostStream, HostToDeviceStream
from popsr._session.lints import stream_lints
from popsr._session.profile import Profile
from popsr._support.extensions import call
from popsr._support.text.entry_points import public
from popsr._support.text.replica_sets import groups_text
from popsr._support.text.summary import Groups, Summarised, Summary, line
from popsr.analysis import Lint, PartitionAnalysis, Traffic
from popsr.analysis._communication import Communication, PlanSettings, communication_of
from popsr.errors import SessionError

if TYPE_CHECKING:
    from popsr import _core
    from popsr._program.ir import Ir
    from popsr._session.options import SessionOptions
    from popsr._session.protocol import Report, Trace
    from popsr._session.runner import Runner
    from popsr._session.state import SessionState
    from popsr._support.records import SessionMemory, SessionStats
    from popsr.replicas import Partition

__all__ = ["Plan", "SessionViews"]


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


@public
class SessionViews(Summarised):
    """The methods of a session that tell what is known, and change nothing."""

    _core: _core.Session
    _facts: PartitionAnalysis | None
    _ir: Ir
    _options: SessionOptions
    _runner: Runner
    _state: SessionState

    @property
    def local_replicas(self) -> range:
        """The replicas that this process runs: all of them, or with ``comm`` those of this rank.

        Streams carry the rows of these, of groups the rows of groups that have one of these.
        """
        ranks = self._state.ranks
        return range(self._ir.replication_factor) if ranks is None else ranks.local

    @property
    def is_attached(self) -> bool:
        """True inside ``with session:``."""
        return self._state.depth > 0

    def _full_input_shape(self, shape: Iterable[int]) -> tuple[int, ...]:
        """Shape of the data of one run for a stream of that shape; programs for PopXL call it."""
        leading = (self._ir.num_host_transfers, len(self.local_replicas))
        return (*(extent for extent in leading if extent > 1), *shape)

    def expected_inputs(self) -> set[HostToDeviceStream]:
        """The streams that ``run`` needs data for; none when ``syntheticDataMode`` makes it."""
        if self._runner.synthetic is not None:
            return set()
        return {plan.stream for plan in self._runner.inputs if isinstance(plan.stream, HostToDeviceStream)}

    def create_host_outputs(self) -> dict[DeviceToHostStream, np.ndarray[Any, Any]]:
        """Arrays for ``run_with_outputs``."""
        return self._runner.empty_outputs()

    @property
    def facts(self) -> PartitionAnalysis:
        """The facts of the last run; before the first one those of ``analyze(ir)``, for any data.

        Other than these, they take small streams as equal whose rows were equal as fed, and start from what the
        replicas really hold of each variable. ``warnings`` has lint L13 too.
        """
        core = self._core.facts
        if self._facts is not None and self._facts._core is core:
            return self._facts
        if self._core.stats()["runs"]:
            self._facts = PartitionAnalysis._of_session(self._ir, core, self._stream_lints)
        elif self._facts is None:  # the core takes small streams as equal until it is fed
            self._facts = PartitionAnalysis(self._ir)
        return self._facts

    def _stream_lints(self) -> list[Lint]:
        equal = [id_ for id_, rows in self._core.small_streams().items() if rows.num_blocks == 1]
        return stream_lints(self._ir, self._core.facts, equal, self._core.large_equal_streams())

    @property
    def equal_streams(self) -> dict[HostToDeviceStream, Partition]:
        """Replicas whose rows are taken as equal, of each stream with rows of at most 64 elements.

        As fed in the last run; before the first run, as assumed of it.
        """
        found = self._core.small_streams().items()
        return {self._ir._stream_cache[id_]: rows for id_, rows in found}

    @property
    def plan(self) -> Plan:
        """The compiled program as text: instructions with block counts and bytes.

        ``plan.communication(ranks=...)`` tells which messages a run needs between ranks.
        """
        ranks = self._state.ranks
        return Plan._of(self._ir, self._core, 1 if ranks is None else ranks.size, self._options.plan_settings)

    @property
    def stats(self) -> SessionStats:
        """``runs``, and per op name ``kernel_calls`` and ``blocks`` computed so far."""
        return self._core.stats()

    def traffic(self) -> dict[Op, Traffic]:
        """Bytes and messages that ops of this rank moved in all runs so far: as ``plan.communication()`` says.

        Empty without other ranks.
        """
        with self._state.lock:
            return {Op(self._ir, id_): Traffic(*moved) for id_, moved in self._core.traffic().items()}

    def memory(self) -> SessionMemory:
        """Bytes of ``variables``, ``constants``, ``activations`` and ``streams``."""
        return self._core.memory()

    def profile(self) -> Profile:
        """Time, memory and floating point operations of all runs so far: per instruction, kind and line.

        Raises:
            SessionError: the session was made without ``profile=True``.
        """
        if not self._options.profile:
            raise SessionError(
                "profile: the session measures nothing, got profile=False, expected Session(..., profile=True)"
            )
        with self._state.lock:
            return Profile._of(self._ir._core, self._core.stats()["runs"], self._core.profile())

    def trace(self, path: str | os.PathLike[str]) -> Trace:
        """Times of the instructions of the runs that follow, as a file that Perfetto and ``chrome://tracing`` open.

        The file has a track for each thread, and of several ranks those of all of them: runs, loops, iterations,
        instructions, and the parts of instructions that workers take. Arguments are the op's number, name scope and
        line, its bytes and blocks. It is written when the trace ends, and has at most 50 MB (before it is compressed):
        later instructions are counted in 1,000 intervals::

            with session.trace("run.json.gz"):
                session.run(inputs)

        A recording of ``popsr.record`` may be in progress, too, and begin and end before or after. No time has its work
        in it: the trace's clock stands still meanwhile. Of several ranks each has a clock of its own, which falls
        behind by the time that its rank's recording takes, and an exchange still waits for ranks that record.

        Args:
            path: a file, which is replaced; compressed where it ends in ``.gz``. All ranks make this call, and end the
                trace; rank 0 writes the file.
        Raises:
            TypeError: ``path`` is not a path.
            SessionError: the session is running, or is traced already.
            FileError: the file cannot be written.
            RankError: ranks make other calls, or differ in whether they record.
        """
        trace: Trace = call("_tools", "Session.trace", self, path)
        return trace

    def report(self, path: str | os.PathLike[str] | None = None) -> Report:
        """All that is known of the program and its runs: lints, variables, memory, collectives, time, graph.

        Before a run it tells what is proved, what is allocated and what will be exchanged; with ``profile=True`` the
        time of runs so far. See ``docs/report.md``.

        Args:
            path: a file to write: text when it ends in ``.txt``, else one HTML page that needs nothing else. It is
                replaced completely or not at all. Of several ranks, which all make this call, rank 0 writes it.
        Returns:
            The report: ``str`` is the text, ``html`` the page; of several ranks the memory and time of this one.
        Raises:
            TypeError: ``path`` is not a path.
            FileError: the file cannot be written.
            GraphError: the program changed since the session was made.
            SessionError: the session runs in another thread.
        """
        report: Report = call("_tools", "Session.report", self, path)
        return report

    def __repr__(self) -> str:
        return line(
            f"Session[{self._ir!r} {'attached' if self.is_attached else 'detached'} step={self._core.step}]"
        )

    def _summary(self) -> Summary:
        """The variables, with the replicas that hold one copy of each."""
        variables = self._ir.main_graph.variables
        rows = (
            (
                v.name,
                v.dtype.name,
                v.shape,
                _groups(v.replica_grouping.partition),
                _groups(self._core.storage(v._id)),
            )
            for v in variables
        )
        return Summary(
            repr(self), ("variable", "dtype", "shape", "groups", "stored once for"), rows, len(variables)
        )


def _groups(groups: Partition) -> Groups:
    return Groups(groups_text(groups), groups)
