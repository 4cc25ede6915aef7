"""The messages between ranks of a run, before it happens, and lower bounds of their time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from popsr import _core
from popsr._program.building.location import short_place
from popsr._program.ir import Ir
from popsr._program.op import Op
from popsr._support.host import message_sizes
from popsr._support.host.arguments import read_a, read_int, read_number
from popsr._support.text.amounts import bytes_text, time_text
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr._support.text.summary import Summarised, Summary
from popsr.errors import AttributeValueError

if TYPE_CHECKING:
    from typing import Any

    import numpy as np

    from popsr._program.tensor import Tensor
    from popsr._support.records import PlannedExchange
    from popsr.replicas import ReplicaGrouping

__all__ = ["Communication", "Exchange", "PlanSettings", "Traffic", "communication", "communication_of"]


class Traffic(NamedTuple):
    """Bytes and messages that one rank sends and receives."""

    sent_bytes: int
    sent_messages: int
    received_bytes: int
    received_messages: int


class PlanSettings(NamedTuple):
    """Arguments of a session that decide about messages."""

    dedup: bool = True
    check: float = 0.0
    check_floats: bool = False
    optimise: bool = True


@public
@dataclass(frozen=True, eq=False)
class Exchange:
    """An op for which values move between ranks.

    Attributes:
        op: the op: a collective, an op of a stream whose rows are of several ranks, a condition.
        tensor: the first operand that moves.
        group: the replicas that exchange values; None where rows of a stream or a condition decide.
        algorithm: "blocks": each rank receives the distinct blocks of its groups that it lacks, straight from the
            lowest rank that has them. "gather": each rank gives all others the few bytes that one of them needs, at
            once and with their agreement. "chain": each rank adds its members to the partial results of the rank
            before, chunk by chunk, and the results come back the same way.
        executions: how often a run executes it.
        is_bound: at most so often, as conditions decide.
        value_bytes: bytes of one replica's value of ``tensor``.
    """

    op: Op
    tensor: Tensor | None
    group: ReplicaGrouping | None
    algorithm: Literal["blocks", "gather", "chain"]
    executions: int
    is_bound: bool
    value_bytes: int
    _traffic: np.ndarray[Any, np.dtype[np.uint64]] = field(repr=False)

    @property
    def location(self) -> str:
        """``file:line`` of the op."""
        return self.op.location

    @property
    def ranks(self) -> tuple[Traffic, ...]:
        """Bytes and messages of each rank in one execution."""
        return tuple(Traffic(*row[:4]) for row in self._traffic.tolist())

    @property
    def most(self) -> Traffic:
        """The largest numbers that a rank has in one execution, each for itself."""
        return Traffic(*self._traffic.max(axis=0).tolist()[:4])

    def seconds(self, *, bandwidth: float, latency: float) -> float:
        """Least time of all executions, of the rank that takes longest.

        A rank waits for messages that follow one another, and sends and receives at the same time: LogGP (Alexandrov
        et al., 1995) with overheads and gaps between messages of 0.

        Args:
            bandwidth: bytes per second that a rank can send, and receive at the same time.
            latency: seconds from one rank to another of a message without bytes.
        """
        return self.executions * sum(self._path(bandwidth, latency))

    def limit(self, *, bandwidth: float, latency: float) -> Literal["latency", "bandwidth"]:
        """The larger part of ``seconds``."""
        by_latency, by_bandwidth = self._path(bandwidth, latency)
        return "latency" if by_latency > by_bandwidth else "bandwidth"

    def _path(self, bandwidth: float, latency: float) -> tuple[float, float]:
        """Seconds of one execution by latency and by bandwidth, of the rank that takes longest."""
        times = self._traffic[:, 4:] * [latency, 1 / bandwidth]
        by_latency, by_bandwidth = times[times.sum(axis=1).argmax()]
        return float(by_latency), float(by_bandwidth)


@public
@dataclass(frozen=True, eq=False)
class Communication(Summarised):
    """Messages between ranks in one run; see ``communication`` and ``Session.plan``.

    Values move for ops that need those of other ranks; the ranks' agreement before each of these exchanges, 4 KiB of
    all ranks together and 24 bytes of each, and what reading, writing and comparing of variables moves are not counted.

    Attributes:
        ranks: number of ranks.
        exchanges: a row for each op that moves values, in the order of the plan.
    """

    ranks: int
    exchanges: tuple[Exchange, ...]

    def traffic(self, rank: int) -> dict[Op, Traffic]:
        """Bytes and messages of a rank in one run, by op: as ``Session.traffic`` counts after one run.

        Of exchanges that conditions decide about (``is_bound``) it is the most that a run may move.

        Raises:
            ValueError: ``rank`` is none of the ranks.
        """
        rank = read_int("traffic: rank", rank, 0, self.ranks - 1)
        totals: dict[Op, Traffic] = {}
        for each in self.exchanges:
            row = [count * each.executions for count in each._traffic[rank].tolist()[:4]]
            if any(row):
                before = totals.get(each.op, Traffic(0, 0, 0, 0))
                totals[each.op] = Traffic(*map(sum, zip(before, row, strict=True)))
        return totals

    @property
    def most(self) -> Traffic:
        """The largest numbers that a rank has in one run, each for itself."""
        if not self.exchanges:
            return Traffic(0, 0, 0, 0)
        total = sum(each._traffic[:, :4] * each.executions for each in self.exchanges)
        return Traffic(*total.max(axis=0).tolist())  # type: ignore[union-attr] # not 0

    def seconds(self, *, bandwidth: float, latency: float) -> float:
        """Least time of one run's exchanges, which come one after another; see ``Exchange.seconds``.

        Args:
            bandwidth: bytes per second of a rank in each direction.
            latency: seconds of a message without bytes.
        Raises:
            ValueError: one of them is not a positive number.
        """
        _check_links(bandwidth, latency)
        return sum(each.seconds(bandwidth=bandwidth, latency=latency) for each in self.exchanges)

    def lines(self) -> list[list[Exchange]]:
        """Exchanges of the same line, kind, groups and size, in the order of the plan."""

        def key(each: Exchange) -> tuple[object, ...]:
            group = None if each.group is None else str(each.group)
            return each.location, each.op.kind, group, each.value_bytes, each.algorithm, each.executions

        rows: dict[tuple[object, ...], list[Exchange]] = {}
        for each in self.exchanges:
            rows.setdefault(key(each), []).append(each)
        return list(rows.values())

    def table(self, *, bandwidth: float, latency: float) -> str:
        """A text with a row for each line of the program, the slowest first: the least time, and what limits it.

        Args:
            bandwidth: bytes per second of a rank in each direction.
            latency: seconds of a message without bytes.
        Raises:
            ValueError: one of them is not a positive number.
        """
        _check_links(bandwidth, latency)
        links = {"bandwidth": bandwidth, "latency": latency}
        timed = [(sum(each.seconds(**links) for each in row), row) for row in self.lines()]
        total = sum(time for time, _ in timed)
        header = (*_HEADER, "at least", "share", "limit")
        rows = [
            (*_cells(row), time_text(time), f"{time / total:.1%}", row[0].limit(**links))
            for time, row in sorted(timed, key=lambda each: each[0], reverse=True)
        ]
        title = f"{self!r}, at least {time_text(total)}"
        if total:
            by_latency = sum(each.executions * each._path(**links)[0] for each in self.exchanges)
            title += f": {by_latency / total:.0%} latency, {1 - by_latency / total:.0%} bandwidth"
        return Summary(title, header, rows, len(rows)).text()

    def _summary(self) -> Summary:
        rows = self.lines()
        return Summary(repr(self), _HEADER, map(_cells, rows), len(rows))

    def __iter__(self) -> Iterator[Exchange]:
        return iter(self.exchanges)

    def __len__(self) -> int:
        return len(self.exchanges)

    def __repr__(self) -> str:
        most, count = self.most, sum(each.executions for each in self.exchanges)
        return (
            f"Communication[{self.ranks} ranks {count} exchanges {bytes_text(most.sent_bytes)} "
            f"{most.sent_messages} messages sent by a rank]"
        )


@public
def communication(ir: Ir, *, ranks: int) -> Communication:
    """Messages between ranks in one run of a program, without making a session: of what is proved for all inputs.

    A session moves less where rows of small streams or initial values are equal in more replicas.

    Args:
        ir: the program.
        ranks: number of ranks, of which none is started; from 1 to the number of replicas.
    Raises:
        TypeError: ``ir`` is not an Ir.
        ValueError: there are more ranks than replicas.
    """
    read_a("communication: ir", ir, Ir)
    return communication_of(ir, ir._facts(), ranks, PlanSettings())


def communication_of(
    ir: Ir, facts: _core.PartitionAnalysis, ranks: int, settings: PlanSettings
) -> Communication:
    """As ``communication``, for given facts and arguments of a session."""
    ranks = read_int("communication: ranks", ranks, 1, ir.replication_factor)
    planned = _core.planned_exchanges(
        facts,
        **settings._asdict(),
        ranks=ranks,
        message_bytes=message_sizes.MESSAGE_BYTES,
        chains=message_sizes.CHAINS,
    )
    return Communication(ranks, tuple(_exchange(ir, each) for each in planned))


def _exchange(ir: Ir, each: PlannedExchange) -> Exchange:
    return Exchange(
        Op(ir, each.op),
        None if each.tensor is None else ir._tensor(each.tensor),
        each.groups,
        each.algorithm,
        each.executions,
        each.is_bound,
        each.value_bytes,
        each.traffic,
    )


def _check_links(bandwidth: float, latency: float) -> None:
    for name, value in (("bandwidth", bandwidth), ("latency", latency)):
        if not 0 < read_number(f"seconds: {name}", value) < float("inf"):
            raise AttributeValueError(
                f"seconds: {name} is not positive, got {shown(value)}, expected a number > 0"
            )


_HEADER = ("op", "line", "group", "value", "by", "times", "sent by a rank", "messages")


def _cells(row: list[Exchange]) -> tuple[str, ...]:
    """Cells of exchanges that are alike: of one of them, and how many there are in a run."""
    first = row[0]
    times = sum(each.executions for each in row)
    most = [each.most for each in row]
    return (
        first.op.kind,
        short_place(first.location),
        "" if first.group is None else _group(first.group),
        bytes_text(first.value_bytes),
        first.algorithm,
        f"≤ {times}" if any(each.is_bound for each in row) else str(times),
        bytes_text(sum(each.executions * of.sent_bytes for each, of in zip(row, most, strict=True))),
        str(sum(each.executions * of.sent_messages for each, of in zip(row, most, strict=True))),
    )


def _group(group: ReplicaGrouping) -> str:
    """Groups and their size, as "8 of 128, stride 8"."""
    text = f"{group.num_groups} of {group.group_size}"
    return text if group.stride == 1 else f"{text}, stride {group.stride}"
