"""Saving variables as a state dict of PyTorch."""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Any

import numpy as np

from popsr import _core
from popsr._program.ir import Ir
from popsr._program.tensor import Variable
from popsr._session.protocol import SessionProtocol
from popsr._session.rows import Array
from popsr._support.host.files import bytes_of, shown_name
from popsr._support.host.frameworks import framework
from popsr._support.text.entry_points import public
from popsr.errors import DTypeError
from popsr.io._hashes import Hashes, hash_texts_of, read_hashes
from popsr.io._new_file import NewFile, remove_leftovers
from popsr.io._program import Program, budget_of_save, saved_program
from popsr.io._settings import VERSION, program_text
from popsr.io._torch.read import METADATA

__all__ = ["save_torch"]


@public
def save_torch(source: SessionProtocol | Ir, path: str | os.PathLike[str], *, hashes: Hashes = None) -> None:
    """Save all variables as a state dict that ``torch.load(path, weights_only=True)`` reads, one row a group.

    The file holds nothing but tensors by name, so ``model.load_state_dict`` takes it. The replication factor, groups,
    retrieval modes and step are in the ``_metadata`` that state dicts have, under the key ``popsr``. All data is in
    memory once more while it is written, unless it is on the host. The file is complete or not there.

    Args:
        source: a session (the newest values), or an Ir (the initial data).
        path: the file; ``reset_host_weights`` knows it by ``.pt`` or ``.pth``.
        hashes: ``"sha256"`` or ``"blake2b"``: a hash of each tensor's bytes, which loading checks.
    Raises:
        TypeError: ``source`` is neither, or there is a variable of a dtype that PyTorch lacks.
        SessionError: the session is running.
        ImportError: torch is not installed.
        OSError: the file cannot be written; an older file is as it was, unless the error says that the new one took
            its place.
    """
    where = "save_torch"
    algorithm = read_hashes(where, hashes)
    with saved_program(where, source, path) as program:
        torch, target = framework(where, "torch"), program.path
        state: Any = OrderedDict()
        hashed: dict[str, str] = {}
        for variable in program.variables:
            rows = _rows(program, variable)
            state[variable.id] = _tensor(torch, variable, rows)
            if algorithm is not None:
                found = hash_texts_of(algorithm, [rows])
                hashed |= {f"{variable.id}/{key}": text for key, text in found.items()}
        texts = {VERSION: _core.__version__, **program_text(program.replication, program.step)}
        for variable in program.variables:
            texts |= {f"{variable.id}/{key}": text for key, text in program.settings(variable).items()}
        texts |= hashed
        state._metadata = OrderedDict({METADATA: texts})
        program.check(
            budget_of_save(where, target, sum(map(program.nbytes, program.variables))), with_settings=True
        )
        if program.is_writer:
            remove_leftovers(where, target)
        with program.new_file(where, target) as file:
            if program.is_writer:
                torch.save(state, _Stream(file))
            file.commit()


class _Stream:
    """The file as ``torch.save`` writes it."""

    def __init__(self, file: NewFile) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        """Append bytes."""
        piece = memoryview(data).cast("B")
        self._file.write(piece)
        return len(piece)

    def flush(self) -> None:
        """Nothing: the file is written out when it is committed."""


def _rows(program: Program, variable: Variable) -> Array:
    """The rows of a variable; copied where they come in pieces, each of which is valid until the next."""
    nbytes, at = program.nbytes(variable), 0
    data = np.empty(0, np.uint8)
    for part in program.parts(variable):
        piece = np.frombuffer(bytes_of(part), np.uint8)
        if len(piece) == nbytes:
            data = piece
            continue
        if at == 0:
            data = np.empty(nbytes, np.uint8)
        data[at : at + len(piece)] = piece
        at += len(piece)
    if not program.is_writer:
        data = np.zeros(nbytes, np.uint8)
    return data.view(variable.dtype.as_numpy()).reshape(program.shape(variable))


def _tensor(torch: Any, variable: Variable, rows: Array) -> Any:
    kind = getattr(torch, variable.dtype.as_ml_dtypes().name, None)
    if not isinstance(kind, torch.dtype):
        raise DTypeError(
            f"save_torch: PyTorch has no such dtype, got {variable.dtype.name} for {shown_name(variable.id)}, "
            "expected a dtype of PyTorch, or save_safetensors"
        )
    plain = np.ascontiguousarray(rows)
    if not plain.flags.writeable:  # PyTorch has no read-only tensors and warns
        plain = plain.copy()
    if plain.dtype.kind == "b":
        return torch.from_numpy(plain)
    bits = torch.from_numpy(plain.reshape(-1).view(f"i{plain.itemsize}"))
    return bits.view(kind).reshape(rows.shape)
