"""Messages between ranks: each receive has its send, and no rank waits for one that waits for it.

A send may wait until its message is received, as it does on some devices: a step that needs a buffer in between is
refused. ``isend``, ``irecv`` and ``batch_isend_irecv`` wait where their handles do.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from popsr.bridge.torch._tracing.messages import Event
from popsr.bridge.torch._user.locations import shown_place
from popsr.errors import ReplicaError

__all__ = ["Sources", "check_order", "sources_of"]

Sources = dict[tuple[int, int], tuple[int, int]]
"""Rank and number of the message that is sent, by those of the receive."""


def sources_of(events: Sequence[Sequence[Event]], where: str) -> Sources:
    """The send of each receive: messages of two ranks in a process group arrive in the order in which they are sent.

    Args:
        events: those of each rank.
        where: the call, for messages.
    Raises:
        ReplicaError: a message is not received, or nothing is sent, or another tag, shape or type; with both lines.
    """
    sent: dict[tuple[str, int, int], list[Event]] = {}
    received: dict[tuple[str, int, int], list[Event]] = {}
    for rank, own in enumerate(events):
        for event in own:
            if event.kind == "send":
                sent.setdefault((event.group, rank, event.peer), []).append(event)
            elif event.kind == "receive":
                received.setdefault((event.group, event.peer, rank), []).append(event)
    found: Sources = {}
    for channel in dict.fromkeys([*sent, *received]):
        _, source, destination = channel
        last: tuple[Event, Event] | None = None
        for a, b in itertools.zip_longest(sent.get(channel, []), received.get(channel, [])):
            if a is None or b is None:
                alone = a or b
                assert alone is not None
                raise _unmatched(alone, source, destination, last, where)
            if (a.shape, a.tag, a.members) != (b.shape, b.tag, b.members):
                raise ReplicaError(
                    f"{where}: rank {source} sends something else than rank {destination} receives, got "
                    f"{_told(a)} sent at {shown_place(a.place)} and {_told(b)} received at {shown_place(b.place)}, "
                    "expected one type, shape and tag, in the order in which they are sent"
                )
            found[destination, b.call] = source, a.call
            last = a, b
    return found


def _told(event: Event) -> str:
    dtype, shape = event.shape if isinstance(event.shape, tuple) else ("", ())
    return f"{dtype} {list(shape)}" + (f" with tag {event.tag}" if event.tag else "")


def _unmatched(
    event: Event, source: int, destination: int, last: tuple[Event, Event] | None, where: str
) -> ReplicaError:
    """The error of a message that only one of two ranks knows."""
    is_send = event.kind == "send"
    here, there = (source, destination) if is_send else (destination, source)
    verb = "receives" if is_send else "sends"
    before = "at all" if last is None else f"after {shown_place(last[is_send].place)}"
    return ReplicaError(
        f"{where}: a message of two ranks is known to one of them, got {event.name} at {shown_place(event.place)} on "
        f"rank {here}, where rank {there} {verb} nothing {'to' if not is_send else 'from'} rank {here} {before}, "
        f"expected a {'recv' if is_send else 'send'} for each {event.name}: rank {here} waits for ever"
    )


def check_order(events: Sequence[Sequence[Event]], sources: Sources, where: str) -> None:
    """Run the calls of all ranks, with a send that ends when its receive is called.

    Raises:
        ReplicaError: ranks wait for each other, or take part in different collectives; with the lines.
    """
    partner = {**sources, **{send: receive for receive, send in sources.items()}}
    # Numbers of messages are those of one rank, sends and receives alike, so that each has one partner.
    started: set[tuple[int, int]] = set()
    at = [0] * len(events)

    def current(rank: int) -> Event | None:
        return events[rank][at[rank]] if at[rank] < len(events[rank]) else None

    def waits_for(rank: int) -> int | None:
        """A rank that has to go on before this one can; None where this one can."""
        event = current(rank)
        if event is None or event.kind in ("send", "receive"):
            return None
        if event.kind == "wait":
            other = partner[rank, event.call]
            return None if other in started else other[0]
        for member in event.members:
            its = current(member)
            if its is None or its.kind != "collective" or its.members != event.members:
                return member
        return None

    moved = True
    while moved:
        moved = False
        for rank in range(len(events)):
            while (event := current(rank)) is not None and waits_for(rank) is None:
                moved = True
                if event.kind != "collective":
                    if event.kind != "wait":
                        started.add((rank, event.call))
                    at[rank] += 1
                    continue
                _check_alike(event, [(member, current(member)) for member in event.members], where)
                for member in event.members:
                    at[member] += 1
    stuck = next((rank for rank in range(len(events)) if current(rank) is not None), None)
    if stuck is None:
        return
    chain = [stuck]
    while (other := waits_for(chain[-1])) is not None and other not in chain:
        chain.append(other)
    circle = chain[chain.index(other) :] if other is not None else chain
    texts = []
    for rank in sorted(circle):
        event = current(rank)
        texts.append(
            f"rank {rank} has ended"
            if event is None
            else f"{event.name} at {shown_place(event.place)} on rank {rank}"
        )
    raise ReplicaError(
        f"{where}: ranks {', '.join(map(str, sorted(circle)))} may wait for each other, got {' and '.join(texts)}, "
        "expected a receive that is called before its send has to end: isend, irecv or batch_isend_irecv do not wait"
    )


def _check_alike(event: Event, called: Sequence[tuple[int, Event | None]], where: str) -> None:
    """Refuse other collectives of ranks that meet."""
    for rank, its in called:
        if its is not None and its.name != event.name:
            raise ReplicaError(
                f"{where}: ranks take part in different collectives, got {event.name} at {shown_place(event.place)} "
                f"and {its.name} at {shown_place(its.place)} on rank {rank}, expected one collective of all members"
            )
