"""The state of a program or session that is saved."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from popsr._program.ir import Ir
from popsr._program.tensor import Variable
from popsr._session.protocol import SessionProtocol
from popsr._session.ranks.rows import one_writer
from popsr._session.rows import Array
from popsr._support.host.arguments import read_path
from popsr._support.host.carriers import FLOAT4, pack, packed_bytes
from popsr._support.host.files import bytes_of, shown_path
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, CheckpointError
from popsr.io._budget import Budget
from popsr.io._new_file import NewFile, NoFile
from popsr.io._settings import settings_text

__all__ = ["Program", "budget_of_save", "saved_program"]

# At most what the loaders count in either format, for a variable or a text of settings.
_FIELDS = 12
_PROGRAM_BYTES = 4 << 10  # of the metadata of all
_SETTINGS_BYTES = 200
_TEXT_BYTES = 2000


@dataclass(frozen=True)
class Program:
    """The variables of a program or session; ``parts`` gives a variable's value, one row a group, in pieces.

    Of several ranks one ``is_writer``, and all of them go through the same variables.
    """

    path: Path
    variables: list[Variable]
    parts: Callable[[Variable], Iterable[Array]]
    replication: int
    is_embedded: bool
    step: int | None
    is_writer: bool = True
    _shapes: dict[Variable, tuple[int, ...]] = field(default_factory=dict)
    _settings: dict[Variable, dict[str, str]] = field(default_factory=dict)

    def shape(self, variable: Variable) -> tuple[int, ...]:
        """Shape of a variable's rows."""
        found = self._shapes.get(variable)
        if found is None:
            found = self._shapes[variable] = variable.shape_on_host
        return found

    def settings(self, variable: Variable) -> dict[str, str]:
        """Metadata of a variable."""
        found = self._settings.get(variable)
        if found is None:
            found = self._settings[variable] = settings_text(variable)
        return found

    def nbytes(self, variable: Variable) -> int:
        """Size of a variable's rows in a file."""
        count, kind = math.prod(self.shape(variable)), variable.dtype.as_numpy()
        return packed_bytes(count) if kind == FLOAT4 else count * kind.itemsize

    def write(self, file: NewFile, variable: Variable) -> None:
        """Write a variable's rows; they are not copied, but where two elements become a byte."""
        end = file.size + self.nbytes(variable)
        parts = self.parts(variable)
        if variable.dtype.as_numpy() == FLOAT4:
            codes = [part.view(np.uint8).reshape(-1) for part in parts]
            parts = [pack(np.concatenate(codes))] if codes else []
        for part in parts:
            file.write(bytes_of(part))
        if not self.is_writer:
            file.size = end
        assert file.size == end, variable

    def new_file(
        self, where: str, path: Path, *, owner: Path | None = None, like: Path | None = None
    ) -> NewFile:
        """A file to write; on other ranks than the one that writes nothing comes of it."""
        kind = NewFile if self.is_writer else NoFile
        return kind(where, path, owner=owner, like=like)

    def check(self, budget: Budget, *, with_settings: bool) -> None:
        """Refuse what could be saved but not loaded again.

        Raises:
            CheckpointError: there are too many variables, or one has a name or shape that loading refuses.
        """
        texts: set[str] = set()
        for variable in self.variables:
            shape = self.shape(variable)
            budget.add_tensor(variable.id, shape)
            budget.take_fields(len(shape) + _FIELDS)
            if with_settings:
                budget.take_memory(sys.getsizeof(variable.id) + _SETTINGS_BYTES)
                texts.update(self.settings(variable).values())
        budget.take_metadata(_PROGRAM_BYTES)
        for text in texts:
            budget.add_text(text)
            budget.take_memory(_TEXT_BYTES)


def budget_of_save(where: str, path: Path, size: int) -> Budget:
    """The limits of a file that is to be written; its errors say that nothing was."""

    def bad(text: str) -> CheckpointError:
        return CheckpointError(
            f"{where}: {shown_path(path)} is not written, for it could not be loaded: it {text}"
        )

    return Budget(bad, size)


@contextlib.contextmanager
def saved_program(where: str, source: Any, path: str | os.PathLike[str]) -> Iterator[Program]:
    """The state of a session, or the initial state of an Ir; no run changes it inside the block.

    An error inside, on one of several ranks, is raised on all of them, and they leave the block together.

    Raises:
        TypeError: it is neither, or the path is not a path.
        SessionError: the session is running, and this is a call from what ``print_tensor`` writes to.
        RankError: ranks save elsewhere.
    """
    if isinstance(source, SessionProtocol):
        access = source._access
        with access.together(where), access.hold(where):
            ir, target = source.ir, read_path(where, path)
            with one_writer(access.ranks, where, target, source.step) as is_writer:
                yield Program(
                    target,
                    list(access.variables),
                    access.parts,
                    ir.replication_factor,
                    ir._embeds_replication,
                    source.step,
                    is_writer,
                )
    elif isinstance(source, Ir):
        yield Program(
            read_path(where, path),
            list(source.main_graph.variables),
            _initial_parts,
            source.replication_factor,
            source._embeds_replication,
            None,
        )
    else:
        raise ArgumentTypeError(f"{where}: neither a session nor an Ir, got {shown(source)}")


def _initial_parts(variable: Variable) -> list[Array]:
    mapped = variable._ir._mapped.get(variable._id)
    if mapped is not None:
        return [mapped]
    data = variable._ir._core.tensor_data(variable._id)
    assert data is not None
    return [data]
