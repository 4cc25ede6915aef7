"""Messages between two ranks, ``dist.send`` and ``dist.recv``, while a step is traced.

The graph gets a node where a message is sent and one where the wait for it ends. Who takes part, in which order, is
noted beside the graph, so that ranks that do the same with other peers have one graph.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Literal

from popsr.bridge.torch._tracing.asynchronous import Pending
from popsr.bridge.torch._user.locations import Place, current_place, shown_place
from popsr.errors import UnsupportedError

__all__ = ["Event", "Messages", "call_of", "is_received", "is_sent", "message_ops", "refuse_any_source"]


@dataclass(frozen=True)
class Event:
    """One call of communication on a rank, or the end of a wait for it.

    Attributes:
        kind: "send", "receive", "wait" for one of these, or "collective".
        name: torch's name of the call.
        members: ranks of the process group.
        group: its name on this rank.
        place: the user's line.
        call: number of the message on this rank; -1 of a collective.
        peer: the other rank of a message.
        tag: its tag.
        shape: its shape and element type.
    """

    kind: Literal["send", "receive", "wait", "collective"]
    name: str
    members: tuple[int, ...]
    group: str = field(compare=False)
    place: Place | None = field(compare=False)
    call: int = -1
    peer: int = -1
    tag: int = 0
    shape: Hashable = None


class Messages:
    """The calls of communication of one trace.

    Attributes:
        events: all of them, in order.
    """

    def __init__(self) -> None:
        """None was called."""
        self.events: list[Event] = []
        self._count = 0

    def __bool__(self) -> bool:
        """True if a message is sent or received."""
        return self._count > 0

    @property
    def key(self) -> Hashable:
        """Equal where the same messages are sent, received and waited for."""
        return tuple(each for each in self.events if each.kind != "collective")

    def collective(self, name: str, group: Any) -> None:
        """Note a collective of a process group."""
        self.events.append(Event("collective", name, _members(group), group.group_name, current_place()))

    def called(self, name: str, values: dict[str, Any], group: Any, pending: Pending) -> Any:
        """The handle of a message that is sent, or received into a tensor once the step waits for it.

        Args:
            name: of the op.
            values: its operands.
            group: its process group.
            pending: gets the handle.
        """
        ops = message_ops()
        (t,) = values["tensors"]
        call, self._count = self._count, self._count + 1
        is_send = name == "send"
        peer = _members(group)[values["dst" if is_send else "src"]]
        shown = "send" if is_send else "recv"
        event = Event(
            "send" if is_send else "receive",
            shown,
            _members(group),
            group.group_name,
            current_place(),
            call,
            peer,
            values["tag"],
            (str(t.dtype).removeprefix("torch."), tuple(t.shape)),
        )
        self.events.append(event)
        done = functools.partial(self._waited, event)
        if is_send:
            ops.message_sent(t, call)
            return pending.start(shown, [t], [], done, keeps=True)
        pending.note_writes([t])
        shape, dtype = list(t.shape), t.dtype
        return pending.start(shown, [], [(t, lambda: ops.message_received(shape, dtype, call))], done)

    def _waited(self, event: Event) -> None:
        self.events.append(
            Event("wait", event.name, event.members, event.group, event.place, event.call, event.peer)
        )


def _members(group: Any) -> tuple[int, ...]:
    import torch.distributed as dist

    return tuple(dist.get_process_group_ranks(group))


@functools.cache
def message_ops() -> Any:
    """The ops that stand for messages in a graph."""
    import torch

    library = torch.library.Library("popsr", "FRAGMENT")
    library.define("message_sent(Tensor t, int call) -> Tensor")
    library.define(
        "message_received(SymInt[] shape, ScalarType dtype, int call, *, Device? device=None) -> Tensor"
    )
    library.define("message_moved(Tensor t, int[] destinations) -> Tensor")
    library.impl("message_sent", lambda t, _call: t.clone(), "CompositeExplicitAutograd")
    library.impl("message_moved", lambda t, _destinations: t.clone(), "CompositeExplicitAutograd")
    library.impl(
        "message_received",
        lambda shape, dtype, _call, device=None: torch.empty(shape, dtype=dtype, device=device),
        "CompositeExplicitAutograd",
    )
    found: Any = torch.ops.popsr
    for op in (found.message_sent.default, found.message_received.default):
        torch.fx.node.has_side_effect(op)
    _LIBRARIES.append(library)
    return found


_LIBRARIES: list[Any] = []
"""Libraries of ops, which last as long as the object does."""


def is_sent(node: Any) -> bool:
    """True for a node that sends."""
    return str(node.target) == "popsr.message_sent.default"


def is_received(node: Any) -> bool:
    """True for a node whose result is what was received."""
    return str(node.target) == "popsr.message_received.default"


def call_of(node: Any) -> int:
    """Number of the message that a node sends or receives, on its rank."""
    return int(node.args[-1])


def refuse_any_source() -> UnsupportedError:
    return UnsupportedError(
        f"bridge.torch: a receive from any rank at {shown_place(current_place())}, got no src, expected the rank "
        "that sends: which message arrives first is not known"
    )
