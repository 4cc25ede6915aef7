"""Collectives whose results are there only after ``wait()``, as in ``dist.all_reduce(t, async_op=True)``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from popsr.bridge.torch._tracing.promises import Promise
from popsr.bridge.torch._tracing.uninitialised import named_memory
from popsr.bridge.torch._user.locations import current_place, shown_place
from popsr.bridge.torch._versions import work_of_fakes
from popsr.errors import UnsupportedError

__all__ = ["Pending", "Write", "flat_tensors"]

Write = tuple[Any, Any]
"""A tensor, and what a collective leaves in it: a tensor, or a function that makes it when the wait ends."""

_REFUSED = (
    "is_completed",
    "is_success",
    "exception",
    "result",
    "get_future_result",
    "block_current_stream",
)


class Pending:
    """The collectives of a step that it has not waited for.

    What they write is uninitialised memory from the call to ``wait()``. If the step writes to what a collective reads
    or writes before then, it stays so afterwards: torch says nothing of the result.
    """

    def __init__(self) -> None:
        """None is pending."""
        self._works: list[Any] = []
        self._kept: list[Any] = []
        self._make: Callable[..., Any] | None = None

    def start(
        self,
        name: str,
        operands: Sequence[Any],
        writes: Sequence[Write],
        waited: Callable[[], None] | None = None,
        keeps: bool = False,
    ) -> Any:
        """The handle of a collective that was called; ``wait()`` writes its results.

        Args:
            name: of the op.
            operands: tensors that it reads.
            writes: its results.
            waited: called when the step waits for it.
            keeps: True if its operands must not be written before that.
        """
        if self._make is None:
            self._make = _work_class()
        work = self._make(self, name, operands, writes, waited, keeps)
        self._kept.append(work)  # torch's own handle finds it as long as it lives
        for t, _ in writes:
            work.spoil(t)
        self._works.append(work)
        return work

    def finished(self, work: Any) -> None:
        """Forget a collective that the step has waited for."""
        self._works = [each for each in self._works if each is not work]

    def note_writes(self, written: Sequence[Any]) -> None:
        """Say which tensors an op writes."""
        for work in self._works:
            if not work.is_spoiled and any(_overlap(t, other) for t in written for other in work.memory):
                work.note_spoiled()

    def __bool__(self) -> bool:
        return bool(self._works)

    def close(self) -> None:
        """Let go of all handles; called when the trace ends."""
        self._works.clear()
        self._kept.clear()


def _work_class() -> Any:
    """The class of handles; made in a function as its base is torch's."""
    import torch

    base: Any = work_of_fakes()[0]

    class Work(base):
        def __init__(
            self,
            pending: Pending,
            name: str,
            operands: Sequence[Any],
            writes: Sequence[Write],
            waited: Callable[[], None] | None,
            keeps: bool,
        ) -> None:
            super().__init__()
            self._pending, self._name, self._waited, self._keeps = pending, name, waited, keeps
            self._writes: list[Write] = list(writes)
            self._results = [t for t, _ in writes]
            self.memory = [*operands, *(t for t, _ in writes)]
            self.is_spoiled = False

        def wait(self, *_timeout: Any) -> bool:
            self._pending.finished(self)
            writes, self._writes = self._writes, []
            waited, self._waited = self._waited, None
            if waited is not None:
                waited()
            with torch._C._AutoDispatchBelowAutograd():  # a leaf may be written, and no version counts it
                for t, new in writes:
                    if self.is_spoiled:
                        self.spoil(t)
                    else:
                        t.copy_(new() if callable(new) else new)
            return True

        def synchronize(self) -> None:
            self.wait()

        def get_future(self) -> Any:
            return Promise(lambda: (self.wait(), self._results)[1])

        getFuture = get_future  # noqa: N815  torch's name

        def note_spoiled(self) -> None:
            """Say that an op writes what this reads or writes."""
            if self._keeps:
                raise UnsupportedError(
                    f"bridge.torch: what {self._name} sends is written at {shown_place(current_place())} before "
                    "wait(), expected a tensor that stays until then"
                )
            self.is_spoiled = True

        def spoil(self, t: Any) -> None:
            """Let a result be what nothing has written."""
            with named_memory(f"result of {self._name} before wait()"):
                t.copy_(torch.empty_like(t))

        def _refuse(self, *_args: Any, **_options: Any) -> NoReturn:
            raise UnsupportedError(
                f"bridge.torch: the handle of {self._name} is asked at {shown_place(current_place())}, expected wait()"
            )

    for name in _REFUSED:
        setattr(Work, name, Work._refuse)
    return Work


def _overlap(a: Any, b: Any) -> bool:
    """True if two tensors may have a byte in common."""
    if a.untyped_storage()._cdata != b.untyped_storage()._cdata:
        return False
    (first, last), (start, stop) = _bytes(a), _bytes(b)
    return first < stop and start < last


def _bytes(t: Any) -> tuple[int, int]:
    extent = sum((n - 1) * abs(step) for n, step in zip(t.shape, t.stride(), strict=True)) + 1
    first = t.storage_offset() * t.element_size()
    return first, first + (extent * t.element_size() if t.numel() else 0)


def flat_tensors(values: Any) -> Iterator[Any]:
    """The tensors in lists of lists."""
    if hasattr(values, "untyped_storage"):
        yield values
    elif isinstance(values, list | tuple):
        for each in values:
            yield from flat_tensors(each)
