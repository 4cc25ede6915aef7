"""Variables by scope: groups, what is proved, bytes and stored copies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from popsr._program.building.placement import shards_of
from popsr._program.tensor import Variable
from popsr._support.text.amounts import bytes_text, plural
from popsr._support.text.replica_sets import short_groups_text
from popsr._tools.report.model import Cell, Section, Table
from popsr._tools.report.source import Source
from popsr.replicas import Partition

__all__ = ["saved_bytes", "variables_section"]

_HEADER = ("variable", "type", "groups", "kept equal by a run", "one copy", "stored")
_MAX_ROWS = 4000  # of all variables
_MAX_DEPTH = 12
_OPEN = 40  # rows that are shown without a click


def variables_section(source: Source) -> Section:
    """Scopes inside of scopes, each with a table of its own variables."""
    pairs = list(zip(source.ir.main_graph.variables, source.storage, strict=True))
    root = _Scope("")
    for variable, storage in pairs[:_MAX_ROWS]:
        root.add(variable, storage)
    tables = _tables(source, root, len(pairs) <= _OPEN)
    total = sum(_stored(source, v, s) for v, s in pairs)
    saved = saved_bytes(source)
    sentence = f"{plural(len(pairs), 'variable')} in {bytes_text(total)}"
    if saved:
        sentence += f", {bytes_text(total + saved)} if each replica had its own: saved {bytes_text(saved)}"
    sentences = [f"{sentence}."]
    if len(pairs) > _MAX_ROWS:
        sentences.append(f"The first {_MAX_ROWS:,} are shown.")
    return Section("variables", "Variables", sentences, tables)


@dataclass
class _Scope:
    """Variables, by the last part of their names, and scopes inside."""

    name: str
    own: list[tuple[str, Variable, Partition]] = field(default_factory=list)
    inner: dict[str, _Scope] = field(default_factory=dict)

    def add(self, variable: Variable, storage: Partition) -> None:
        """To the scope that the name tells."""
        scope = self
        *path, name = _parts(variable.name)
        for part in path:
            scope = scope.inner.setdefault(part, _Scope(part))
        scope.own.append((name, variable, storage))

    def all(self) -> Iterator[tuple[str, Variable, Partition]]:
        """Also those of scopes inside."""
        yield from self.own
        for scope in self.inner.values():
            yield from scope.all()


def _parts(name: str) -> list[str]:
    """Parts of a name, which dots and slashes end; deep ones are one."""
    parts = [part for part in re.split(r"(?<=[./])", name) if part]
    return [*parts[:_MAX_DEPTH], "".join(parts[_MAX_DEPTH:])] if len(parts) > _MAX_DEPTH else parts


def _tables(source: Source, scope: _Scope, is_open: bool) -> list[Table]:
    found = []
    if scope.own:
        rows = [_row(source, *each) for each in scope.own]
        found.append(Table(_HEADER, rows, "", True, frozenset({4})))
    for inner in scope.inner.values():
        name = inner.name
        while len(inner.inner) == 1 and not inner.own:
            (inner,) = inner.inner.values()
            name += inner.name
        members = list(inner.all())
        stored = bytes_text(sum(_stored(source, v, s) for _, v, s in members))
        title = f"{name.rstrip('./')}: {plural(len(members), 'variable')}, {stored}"
        found.append(Table((), (), title, is_open, inner=_tables(source, inner, is_open)))
    return found


def saved_bytes(source: Source) -> int:
    """Bytes of copies that are not stored, as replicas share them."""
    return sum(
        _held(variable) * len(source.replicas) - _stored(source, variable, storage)
        for variable, storage in zip(source.ir.main_graph.variables, source.storage, strict=True)
    )


def _row(source: Source, name: str, variable: Variable, storage: Partition) -> tuple[Cell | str, ...]:
    declared = variable.replica_grouping.partition
    kept = Cell("in shards")
    if shards_of(variable) == 1:
        facts = source.facts.partition(variable)
        kept = Cell(short_groups_text(facts), groups=facts)
    shape = ",".join(map(str, variable.shape))
    return (
        Cell(name, more=variable.name),
        f"{variable.dtype.name}[{shape}]",
        Cell(short_groups_text(declared), groups=declared),
        kept,
        bytes_text(_bytes(variable)),
        Cell(_stored_text(source, variable, storage), groups=storage),
    )


def _stored_text(source: Source, variable: Variable, storage: Partition) -> str:
    copies, replicas = _copies(source, storage), len(source.replicas)
    if shards_of(variable) > 1:
        return f"{copies} shards of {bytes_text(_held(variable))}"
    if copies == replicas:
        return "once" if replicas == 1 else f"{copies} copies"
    saved = bytes_text((replicas - copies) * _held(variable))
    times = "once" if copies == 1 else f"{copies} times"
    return f"stored {times} for {replicas} replicas: saved {saved}"


def _copies(source: Source, storage: Partition) -> int:
    labels = storage.labels
    return len({labels[replica] for replica in source.replicas})


def _stored(source: Source, variable: Variable, storage: Partition) -> int:
    return _copies(source, storage) * _held(variable)


def _held(variable: Variable) -> int:
    """Bytes that a replica holds of it."""
    shards = shards_of(variable)
    return -(-prod(variable.shape) // shards) * variable.dtype.as_numpy().itemsize


def _bytes(variable: Variable) -> int:
    return prod(variable.shape) * variable.dtype.as_numpy().itemsize
