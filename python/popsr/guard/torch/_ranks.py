"""Collectives of a guard over the job's own process group, each with an end."""

from __future__ import annotations

import datetime
import re
import time
import weakref
from typing import Any

from popsr._support.host.frameworks import framework
from popsr._support.text.one_line import one_line
from popsr.errors import RankError, ReplicaError, StateError
from popsr.guard.torch._hash import WHERE

__all__ = ["Ranks"]

_POLL = 0.001  # seconds between two looks at a collective that has no wait with an end
_SOURCE = re.compile(r"^\[[^]]*\] *")
_guards: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""Number of guards that a process group has had: its ranks count alike, whatever else some of them guard."""


class Ranks:
    """The ranks of a process group, numbered from 0 in it.

    Attributes:
        size: number of ranks.
        rank: number of this one.
        globals: numbers of all in the job.
        device: of the tensors that the group moves.
    """

    def __init__(self, group: Any, timeout: float, device: Any) -> None:
        """Takes all ranks of the job where ``group`` is None.

        Raises:
            StateError: there is no process group.
            ReplicaError: this rank is not in it, or alone.
        """
        dist = self._dist = framework(WHERE, "torch").distributed
        if not dist.is_available() or not dist.is_initialized():
            raise StateError(
                f"{WHERE}: there is no process group, expected torch.distributed.init_process_group"
            )
        self._group = dist.group.WORLD if group is None else group
        self._timeout = timeout
        self.rank = self._member()
        self.size: int = dist.get_world_size(self._group)
        if self.size < 2:
            raise ReplicaError(
                f"{WHERE}: nothing to compare with, got one rank, expected a group of 2 or more"
            )
        self._number, self._count = _guards.get(self._group, 0), 0
        _guards[self._group] = self._number + 1
        self.globals: list[int] = dist.get_process_group_ranks(self._group)
        backend = str(dist.get_backend(self._group))
        torch = framework(WHERE, "torch")
        self._is_gloo = "gloo" in backend
        self.device = torch.device("cpu") if self._is_gloo or "mpi" in backend else device

    def _member(self) -> int:
        try:
            if self._dist.is_initialized():
                rank = int(self._dist.get_rank(self._group))
                if rank >= 0:
                    return rank
                raise ReplicaError(
                    f"{WHERE}: this rank is not in the group, got rank {rank}, expected one of its ranks"
                )
        except (ValueError, RuntimeError) as error:
            if isinstance(error, ReplicaError):
                raise
        raise StateError(
            f"{WHERE}: the process group was destroyed, expected one that lasts as long as the guard"
        )

    def gather(self, row: Any) -> Any:
        """Rows of all ranks, int64 on the CPU; all rows are of one length.

        Raises:
            RankError: a rank does not come, or ended.
            StateError: the group was destroyed.
        """
        torch = framework(WHERE, "torch")
        row = row.to(self.device)
        rows = torch.empty(self.size, len(row), dtype=row.dtype, device=self.device)
        self._wait(lambda: self._dist.all_gather(list(rows), row, group=self._group, async_op=True))
        return rows.cpu()

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Bytes of all ranks, of any lengths."""
        torch = framework(WHERE, "torch")
        lengths = self.gather(torch.tensor([len(data)]))[:, 0].tolist()
        row = torch.zeros(max(*lengths, 1), dtype=torch.uint8)
        row[: len(data)] = torch.frombuffer(bytearray(data or b"\0"), dtype=torch.uint8)[: len(data)]
        rows = self.gather(row)
        return [bytes(each[:length].tolist()) for each, length in zip(rows, lengths, strict=True)]

    def share(self, source: int, data: Any) -> Any:
        """Send one rank's tensor to all; the others give a tensor of the same kind, which is not read."""
        data = data.to(self.device).contiguous()
        place = self.globals[source]
        self._wait(lambda: self._dist.broadcast(data, place, group=self._group, async_op=True))
        return data.cpu()

    def _wait(self, start: Any) -> None:
        self._member()
        self._count += 1
        self._arrive()
        try:
            work = start()
            if self._is_gloo:
                work.wait(datetime.timedelta(seconds=self._timeout))
            else:
                self._poll(work)
        except RuntimeError as error:
            raise RankError(
                f"{WHERE}: a check was not completed in {self._timeout:g} s, got {self._absent()}, expected all "
                f"{self.size} ranks to check at the same steps: {_first_words(error)}"
            ) from None

    def _poll(self, work: Any) -> None:
        end = time.monotonic() + self._timeout
        while not work.is_completed():
            if time.monotonic() > end:
                raise RuntimeError("timed out")
            time.sleep(_POLL)
        work.wait()

    def _arrive(self) -> None:
        """Note for the others that this rank came, so that they can name one that did not."""
        try:
            self._store().set(self._key(self.rank), str(self._count))
        except Exception:  # of its own kinds; nothing depends on the note
            return

    def _absent(self) -> str:
        try:
            store = self._store()
            absent = []
            for rank in range(self.size):
                key = self._key(rank)
                if not store.check([key]) or int(store.get(key)) < self._count:
                    absent.append(str(self.globals[rank]))
        except Exception:  # the process that had the store ended
            absent = []
        if not absent:
            return "an error of a rank"
        return f"nothing of rank{'' if len(absent) == 1 else 's'} {', '.join(absent)}"

    def _key(self, rank: int) -> str:
        return f"popsr.guard/{self._group.group_name}/{self._number}/{rank}"

    def _store(self) -> Any:
        return self._dist.distributed_c10d._get_default_store()


def _first_words(error: RuntimeError) -> str:
    """The sentence of a backend without the place in its sources, and without its advice."""
    return one_line(_SOURCE.sub("", str(error)).split(". ")[0], 160)
