"""Saving variables as a safetensors file: the length of a header, the header as JSON, the data without gaps."""

from __future__ import annotations

import json
import math
import os
from typing import Any

from popsr import _core
from popsr._program.ir import Ir
from popsr._program.tensor import Variable
from popsr._session.protocol import SessionProtocol
from popsr._support.host.carriers import FLOAT4
from popsr._support.host.files import shown_name
from popsr._support.text.entry_points import public
from popsr.errors import AttributeValueError, DTypeError, ShapeError
from popsr.io._digest import Digest
from popsr.io._hashes import HASH_BYTES, Hashes, hash_texts, read_hashes
from popsr.io._new_file import remove_leftovers
from popsr.io._program import Program, budget_of_save, saved_program
from popsr.io._safetensors.format import DIGEST_PREFIX, METADATA, TYPES
from popsr.io._settings import VERSION, program_text

__all__ = ["save_safetensors"]


@public
def save_safetensors(
    source: SessionProtocol | Ir, path: str | os.PathLike[str], *, hashes: Hashes = None
) -> None:
    """Save all variables as a safetensors file, one row a group.

    As :func:`popsr.io.save_onnx`, but the replication factor, groups and retrieval modes are always in the metadata:
    other readers of the format ignore what they do not know. The metadata begins with a digest of all that follows.

    Args:
        source: a session (the newest values), or an Ir (the initial data).
        path: the file.
        hashes: ``"sha256"`` or ``"blake2b"``: also a hash of each tensor's bytes, as metadata ``NAME/popsr.sha256``,
            with which others can check them by ``hashlib``. They are computed before the file is written.
    Raises:
        TypeError: ``source`` is neither, or there is a variable of a dtype that the format lacks.
        ValueError: a variable has the name of the metadata.
        CheckpointError: the file would exceed a limit of ``load_safetensors``.
        SessionError: the session is running.
        OSError: the file cannot be written; an older file is as it was, unless the error says that the new one took
            its place.
    """
    where = "save_safetensors"
    algorithm = read_hashes(where, hashes)
    with saved_program(where, source, path) as program:
        target = program.path
        # The widest elements first: so all are aligned.
        ordered = sorted(program.variables, key=lambda variable: -variable.dtype.as_numpy().itemsize)
        header = _header(program, ordered, hash_texts(algorithm, program))
        budget = budget_of_save(where, target, len(header) + sum(map(program.nbytes, ordered)))
        budget.check_header(len(header))
        if algorithm is not None:
            budget.take_memory(sum(HASH_BYTES + len(variable.id) for variable in ordered))
        program.check(budget, with_settings=True)
        if program.is_writer:
            remove_leftovers(where, target)
        with program.new_file(where, target) as file:
            length = len(header).to_bytes(8, "little")
            start = len(length) + len(DIGEST_PREFIX) + Digest.LENGTH
            file.digest.update(length)
            file.write_at(0, length + header[: start - 8])
            file.size = start
            file.write(header[start - 8 :])
            for variable in ordered:
                program.write(file, variable)
            file.write_at(start - Digest.LENGTH, file.digest.text().encode())
            file.commit()


def _header(program: Program, variables: list[Variable], hashes: dict[str, str]) -> bytes:
    """The header, padded, with zeros for the digest."""
    entries: dict[str, Any] = {
        METADATA: {
            "popsr.digest": "0" * Digest.LENGTH,
            VERSION: _core.__version__,
            **program_text(program.replication, program.step),
            **{
                f"{variable.id}/{key}": text
                for variable in variables
                for key, text in program.settings(variable).items()
            },
            **hashes,
        }
    }
    end = 0
    for variable in variables:
        if variable.id == METADATA:
            raise AttributeValueError(
                f"save_safetensors: the format keeps this name for itself, got {shown_name(METADATA)}, "
                "expected another name"
            )
        start, end = end, end + program.nbytes(variable)
        entries[variable.id] = {
            "dtype": _type_name(variable),
            "shape": list(program.shape(variable)),
            "data_offsets": [start, end],
        }
    header = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    assert header.startswith(DIGEST_PREFIX)
    return header + b" " * (-len(header) % 8)


def _type_name(variable: Variable) -> str:
    kind = variable.dtype.as_ml_dtypes()
    if kind == FLOAT4 and math.prod(variable.shape_on_host) % 2:
        raise ShapeError(
            f"save_safetensors: the format has whole bytes, got {math.prod(variable.shape_on_host)} elements of 4 bits "
            f"for {shown_name(variable.id)}, expected an even number, or save_onnx"
        )
    for name, known in TYPES.items():
        if known == kind:
            return name
    raise DTypeError(
        f"save_safetensors: the format has no such dtype, got {variable.dtype.name} for {shown_name(variable.id)}, "
        "expected a dtype of the format, or save_onnx"
    )
