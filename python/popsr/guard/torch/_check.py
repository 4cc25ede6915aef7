"""One check: what all ranks say of their values, in rows that are gathered by one collective, and what follows.

A row has a head of fixed length, and two numbers for each value: its hash, and the hash of its dtype, shape and place.
All rows have the length that ranks agreed on, so a rank that has other values than before says so in its head, and
sends zeros. All ranks see all rows and go on alike: nobody waits for a rank that went another way.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from popsr._support.host.frameworks import framework
from popsr._support.text.one_line import one_line
from popsr._support.text.shown import shown
from popsr.errors import RankError
from popsr.guard._finding import Finding, sets_text
from popsr.guard.torch._groups import AgreedGroups, Grouping, Share
from popsr.guard.torch._hash import WHERE, device_hash
from popsr.guard.torch._items import Item
from popsr.guard.torch._locate import locate
from popsr.guard.torch._ranks import Ranks

__all__ = ["Batch", "Checker", "Table"]

_MAGIC = 0x706F707372_01
_HEAD = 7
_STEP, _FAILED, _COUNT, _TABLE, _BATCH, _BATCHES = range(1, _HEAD)


@dataclass(frozen=True, slots=True)
class Batch:
    """Hash of the inputs since the last check, and the number of batches: 0 where none was asked for."""

    hash: int = 0
    count: int = 0


class Table:
    """Values of this rank with the ranks that should agree.

    Attributes:
        items: the values.
        kinds: number of each one's kind of groups.
        shares: kinds of groups.
        left_out: objects without bytes.
        fingerprint: 64 bits of the names, kinds and groups, which all ranks should have in common.
    """

    def __init__(self, items: list[Item], grouping: Grouping) -> None:
        """Looks up the groups of each value."""
        self.items = [each for each in items if each.local is not None]
        self.left_out = {
            each.name: f"an object without bytes: {shown(type(each.value).__name__)}"
            for each in items
            if each.local is None
        }
        numbers: dict[int, int] = {}
        self.shares: list[Share] = []
        self.kinds: list[int] = []
        for item in self.items:
            share = grouping.share(item)
            if id(share) not in numbers:
                numbers[id(share)] = len(self.shares)
                self.shares.append(share)
            self.kinds.append(numbers[id(share)])
        self.fingerprint = int.from_bytes(
            hashlib.sha256("\n".join(self.lines()).encode()).digest()[:8], "little", signed=True
        )

    def lines(self) -> list[str]:
        """A line for each value that all ranks should have in common."""
        return [f"{each.name} {each.kind} {kind}" for each, kind in zip(self.items, self.kinds, strict=True)]


class Checker:
    """Rows of checks, and what ranks agreed on."""

    def __init__(self, ranks: Ranks, kind: int = 0) -> None:
        """Nothing is agreed on yet; checks of another kind are other calls."""
        self._ranks, self._magic = ranks, _MAGIC + kind
        self._length = 0
        self._fingerprint: int | None = None
        self._groups: AgreedGroups | None = None

    def check(
        self, step: int, since: int | None, make: Any, batch: Batch, differing: list[Any] | None
    ) -> Any:
        """The table of this rank, and the first difference or None.

        Args:
            step: number of steps so far.
            since: the last step at which all agreed.
            make: makes the table; what it raises is raised here, and told the other ranks.
            batch: of this rank.
            differing: for each rank the group that is given one batch; None where batches are not compared.
        Raises:
            RankError: ranks are at other steps, have other values, or one failed.
        """
        table, row, failure = None, self._row(step, batch), None
        try:
            table = make()
            row[_COUNT], row[_TABLE] = len(table.items), table.fingerprint
            if table.fingerprint == self._fingerprint:
                self._fill(row, table)
        except Exception as error:
            failure = error
            row[_FAILED] = 1
        rows = self._ranks.gather(row)
        self._require_heads(rows, failure, table)
        assert table is not None
        if table.fingerprint != self._fingerprint:
            rows = self._agree(rows, table, row)
        finding = self._compare(rows, table, step, since)
        if finding is None and differing is not None:
            finding = self._same_batches(rows, differing, step, since)
        return table, finding

    def _row(self, step: int, batch: Batch) -> Any:
        torch = framework(WHERE, "torch")
        row = torch.zeros(_HEAD + 2 * self._length, dtype=torch.int64)
        row[0], row[_STEP] = self._magic, step
        row[_BATCH], row[_BATCHES] = batch.hash, batch.count
        return row

    def _fill(self, row: Any, table: Table) -> None:
        """Write the hashes behind the head."""
        torch = framework(WHERE, "torch")
        count = len(table.items)
        with torch.no_grad():
            by_device: dict[Any, list[int]] = {}
            hashes = [device_hash(each.local) for each in table.items]
            for i, each in enumerate(hashes):
                by_device.setdefault(each.device, []).append(i)
            for places in by_device.values():  # one transfer for each device
                row[[_HEAD + i for i in places]] = torch.stack([hashes[i] for i in places]).cpu()
        row[_HEAD + count :] = torch.tensor([each.part_hash for each in table.items], dtype=torch.int64)

    def _require_heads(self, rows: Any, failure: Exception | None, table: Table | None) -> None:
        heads = rows[:, :_HEAD].tolist()
        if any(head[0] != self._magic for head in heads):
            raise RankError(
                f"{WHERE}: ranks make other calls, got a row that is not of a check, expected all to check at once"
            )
        failed = [rank for rank, head in enumerate(heads) if head[_FAILED]]
        if failed:
            told = self._ranks.gather_bytes(b"" if failure is None else str(failure).encode())
            if failure is not None:
                raise failure
            text = one_line(told[failed[0]].decode(errors="replace"), 300)
            raise RankError(
                f"{WHERE}: rank {self._ranks.globals[failed[0]]} cannot be checked, got its error: {text}, expected "
                "none"
            )
        for place, what in ((_STEP, "steps"), (_BATCHES, "batches")):
            other = next((rank for rank, head in enumerate(heads) if head[place] != heads[0][place]), None)
            if other is not None:
                raise RankError(
                    f"{WHERE}: ranks made other numbers of {what}, got {heads[0][place]} on rank "
                    f"{self._ranks.globals[0]} and {heads[other][place]} on rank {self._ranks.globals[other]}, "
                    "expected the same on all"
                )
        other = next((rank for rank, head in enumerate(heads) if head[_TABLE] != heads[0][_TABLE]), None)
        if other is not None:
            assert table is not None
            self._raise_other_values(table, other)

    def _raise_other_values(self, table: Table, other: int) -> None:
        """Name the first value that two ranks do not have in common."""
        told = [
            each.decode().split("\n") for each in self._ranks.gather_bytes("\n".join(table.lines()).encode())
        ]
        a, b = told[0], told[other]
        i = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        lines = [" ".join(each[i].split(" ")[:-1]) if i < len(each) else "no more values" for each in (a, b)]
        if lines[0] == lines[1]:
            lines = [each[i] for each in (a, b)]
        raise RankError(
            f"{WHERE}: ranks have other values, got {shown(lines[0])} on rank {self._ranks.globals[0]} and "
            f"{shown(lines[1])} on rank {self._ranks.globals[other]}, "
            "expected the same names, dtypes, shapes and groups on all"
        )

    def _agree(self, rows: Any, table: Table, row: Any) -> Any:
        """Agree on new values, which all ranks have, and gather their hashes."""
        self._groups = AgreedGroups(self._ranks, table.shares)
        torch = framework(WHERE, "torch")
        self._length, self._fingerprint = len(table.items), table.fingerprint
        whole = torch.zeros(_HEAD + 2 * self._length, dtype=torch.int64)
        whole[:_HEAD] = row[:_HEAD]
        failure = None
        try:
            self._fill(whole, table)
        except Exception as error:
            failure, whole[_FAILED] = error, 1
        rows = self._ranks.gather(whole)
        self._require_heads(rows, failure, table)
        return rows

    def _names(self, pair: tuple[int, int]) -> tuple[int, int]:
        """Numbers of two ranks in the job."""
        return self._ranks.globals[pair[0]], self._ranks.globals[pair[1]]

    def _compare(self, rows: Any, table: Table, step: int, since: int | None) -> Finding | None:
        assert self._groups is not None
        count = len(table.items)
        hashes, parts = rows[:, _HEAD : _HEAD + count], rows[:, _HEAD + count :]
        alike = ((hashes == hashes[:1]) & (parts == parts[:1])).all(0).tolist()
        names, first = [], None
        for i, item in enumerate(table.items):
            if alike[i]:
                continue
            groups = self._groups.kinds[table.kinds[i]]
            keys = list(zip(hashes[:, i].tolist(), parts[:, i].tolist(), strict=True))
            pair = _differing(groups, keys)
            if pair is not None:
                names.append(item.name)
                first = first or (i, groups, keys, pair)
        if first is None:
            return None
        i, groups, keys, pair = first
        item, places = table.items[i], self._groups.places[table.kinds[i]]
        located = locate(self._ranks, item, pair)
        return Finding(
            step,
            since,
            item.name,
            sets_text(groups, self._ranks.globals),
            sets_text(list(zip(groups, keys, strict=True)), self._ranks.globals),
            self._names(pair),
            (places[pair[0]], places[pair[1]]),
            located.element,
            located.values,
            located.count,
            located.size,
            tuple(names),
        )

    def _same_batches(self, rows: Any, groups: list[Any], step: int, since: int | None) -> Finding | None:
        """Ranks that were given one batch and should not, or should and were not."""
        keys = rows[:, _BATCH].tolist()
        if not all(rows[:, _BATCHES].tolist()):
            absent = rows[:, _BATCHES].tolist().index(0)
            raise RankError(
                f"{WHERE}: no batch since the last check, got none on rank {self._ranks.globals[absent]}, "
                "expected calls of the model"
            )
        declared, found = (sets_text(each, self._ranks.globals) for each in (groups, keys))
        pair = _differing(groups, keys)
        if pair is not None:
            first, other = self._names(pair)
            sentence = f"ranks {first} and {other} were given other batches, and should share one: {declared}"
        else:
            of: dict[int, int] = {}
            pair = next(
                (
                    (of[key], rank)
                    for rank, key in enumerate(keys)
                    if groups[of.setdefault(key, rank)] != groups[rank]
                ),
                None,
            )
            if pair is None:
                return None
            first, other = self._names(pair)
            alike = f"the same batch, as hashes agree on {found}"
            sentence = f"ranks {first} and {other} were given {alike}, expected others"
        nothing = ("", "")
        return Finding(
            step,
            since,
            "batch",
            declared,
            found,
            (first, other),
            nothing,
            None,
            nothing,
            None,
            0,
            ("batch",),
            sentence,
        )


def _differing(groups: list[tuple[int, ...]], keys: list[Any]) -> tuple[int, int] | None:
    """Two ranks of a group whose keys differ."""
    for rank, members in enumerate(groups):
        if members[0] != rank:
            continue
        other = next((each for each in members if keys[each] != keys[rank]), None)
        if other is not None:
            return rank, other
    return None
