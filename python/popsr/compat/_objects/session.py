"""Sessions of programs that attach and detach by hand."""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence
from typing import TYPE_CHECKING, Any, overload

from popsr._support.host.arguments import read_a, read_bool, read_choice, read_index
from popsr._support.text.shown import shown
from popsr.compat._objects.base import PopartObject
from popsr.errors import OutOfRangeError, UnsupportedError

if TYPE_CHECKING:
    from popsr._session.session import Session

__all__ = [
    "AttachStack",
    "PopartSession",
    "SessionDevice",
    "attach_stack",
    "cycle_count",
    "device_of",
    "pb_session",
    "set_device",
]


class AttachStack(MutableSequence[bool]):
    """For each ``with session:`` that is entered, True if the session was attached before.

    Programs that detach by hand pop the entry of their ``with``. The session stays attached until
    ``session._device.detach()``, as in PopXL.
    """

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        """``session``: the session."""
        self._session = session

    def __len__(self) -> int:
        return self._session._access.depth - self._session._access.popped

    @overload
    def __getitem__(self, index: int) -> bool: ...
    @overload
    def __getitem__(self, index: slice) -> MutableSequence[bool]: ...
    def __getitem__(self, index: int | slice) -> bool | MutableSequence[bool]:
        return self._entries()[index]

    def __delitem__(self, index: int | slice) -> None:
        if isinstance(index, slice) or range(len(self))[index] != len(self) - 1:
            raise OutOfRangeError("_was_attached_stack: only the last entry can be removed")
        self._session._access.popped += 1

    def pop(self, index: int = -1) -> bool:
        """Remove the last entry and return it.

        Raises:
            OutOfRangeError: there is none, or ``index`` is another.
        """
        entries = self._entries()
        read_index("_was_attached_stack.pop: index", index, len(entries), -len(entries))
        del self[index]
        return entries[index]

    def insert(self, index: int, value: bool) -> None:
        """Undo a ``pop``; sessions push entries by themselves.

        Raises:
            OutOfRangeError: nothing was popped, or the place is not the end.
        """
        read_bool("_was_attached_stack: value", value)
        if not self._session._access.popped or index != len(self):
            raise OutOfRangeError(
                "_was_attached_stack: only what was popped can be appended, expected `with session:`"
            )
        self._session._access.popped -= 1

    @overload
    def __setitem__(self, index: int, value: bool) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[bool]) -> None: ...
    def __setitem__(self, index: int | slice, value: bool | Iterable[bool]) -> None:
        raise OutOfRangeError("_was_attached_stack: entries cannot be changed")

    def __eq__(self, other: object) -> bool:
        return self._entries() == (other._entries() if isinstance(other, AttachStack) else other)

    __hash__ = None  # type: ignore[assignment] # as of a list

    def _entries(self) -> list[bool]:
        """The outermost ``with`` found the session detached, unless one was popped and it stayed attached."""
        was_attached = self._session._access.popped > 0
        return [was_attached or i > 0 for i in range(len(self))]

    def __repr__(self) -> str:
        return repr(self._entries())


class SessionDevice(PopartObject):
    """The simulator as the device of a session."""

    __slots__ = ("_session",)
    _where = "session._device"

    def __init__(self, session: Session) -> None:
        """``session``: the session."""
        self._session = session

    @property
    def id(self) -> int:
        """0: there is one device."""
        return 0

    @property
    def is_attached(self) -> bool:
        """True while the session is attached."""
        return self._session.is_attached

    def detach(self) -> None:
        """Detach the session without downloading its variables; nothing happens when it is detached.

        Raises:
            SessionError: it is running.
        """
        self._session._access.detach()

    def attach(self, timeout: int = 0) -> bool:
        """Attach the session if it is not: variables are uploaded, as by ``with session:``.

        Args:
            timeout: read and not used: the simulator is always free.
        Returns:
            True.
        """
        del timeout
        access = self._session._access
        with access.lock:
            if not access.depth:
                self._session.__enter__()
                access.popped = 1
        return True


class PopartSession(PopartObject):
    """A session by PopART's names."""

    __slots__ = ("_session",)
    _where = "session._pb_session"

    def __init__(self, session: Session) -> None:
        """``session``: the session."""
        self._session = session

    def set_engine_is_loaded(self, is_loaded: bool) -> None:
        """Read a flag: a session is compiled as long as it exists, and uploads its variables whenever it attaches.

        Raises:
            ArgumentTypeError: it is not a bool.
        """
        read_bool("setEngineIsLoaded: isLoaded", is_loaded)

    def get_engine_is_loaded(self) -> bool:
        """True while the session is attached."""
        return self._session.is_attached


def device_of(session: Session) -> SessionDevice:
    """``session._device``."""
    return SessionDevice(session)


def pb_session(session: Session) -> PopartSession:
    """``session._pb_session``."""
    return PopartSession(session)


def attach_stack(session: Session) -> AttachStack:
    """``session._was_attached_stack``."""
    return AttachStack(session)


def cycle_count(session: Session, id: str) -> int:
    """See :meth:`popsr.Session.get_cycle_count`."""
    del session
    raise UnsupportedError(
        f"getCycleCount: a simulator does not count cycles, got id {shown(id)}, expected Session.stats: kernel "
        "calls and computed blocks of each op"
    )


def set_device(session: Session, device: Any) -> None:
    """Read a device: each session runs on the simulator.

    Args:
        session: the session.
        device: "cpu", "ipu_model" or "ipu_hw", or an object of a device.
    Raises:
        ArgumentTypeError: it is neither.
        AttributeValueError: another word.
    """
    del session
    if isinstance(device, str):
        read_choice("_set_device", "device", device, ("cpu", "ipu_model", "ipu_hw"))
    elif not callable(getattr(device, "detach", None)):
        read_a("_set_device: device", device, SessionDevice)
