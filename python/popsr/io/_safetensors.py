"""Checkpoints as safetensors files: the length of a header, the header as JSON, the data without gaps.

popsr writes and checks these files by itself: it neither copies the data nor maps the file, and accepts no hole, no
overlap and no name twice.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import popsr
from popsr._args import read_path
from popsr._host_rows import Array
from popsr._shown import shown
from popsr.errors import AttributeValueError, DTypeError
from popsr.io._checkpoint import (
    MAX_TENSORS,
    Checkpoint,
    Program,
    StoredFile,
    StoredTensor,
    bytes_of,
    saved_program,
)
from popsr.io._digest import Digest
from popsr.io._files import NewFile, OpenFile
from popsr.io._settings import program_text, read_program, read_settings, settings_text
from popsr.tensor import Variable

__all__ = ["load_safetensors", "open_safetensors", "save_safetensors"]

_MAX_HEADER = 100_000_000  # the format's own limit
_METADATA = "__metadata__"
_PREFIX = b'{"__metadata__":{"popsr.digest":"'
_VERSION = "popsr.version"

_TYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(kind)
    for name, kind in {
        "F64": np.float64,
        "F32": np.float32,
        "F16": np.float16,
        "BF16": ml_dtypes.bfloat16,
        "F8_E4M3": ml_dtypes.float8_e4m3fn,
        "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
        "F8_E5M2": ml_dtypes.float8_e5m2,
        "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
        "I64": np.int64,
        "I32": np.int32,
        "I16": np.int16,
        "I8": np.int8,
        "U64": np.uint64,
        "U32": np.uint32,
        "U16": np.uint16,
        "U8": np.uint8,
        "BOOL": np.bool_,
    }.items()
}


# --- saving ---------------------------------------------------------------------------------------------------------


def save_safetensors(source: popsr.Session | popsr.Ir, path: str | os.PathLike[str]) -> None:
    """Save all variables as a safetensors file, one row a group.

    As :func:`popsr.io.save_onnx`, but the replication factor, groups and retrieval modes are always in the metadata:
    other readers of the format ignore what they do not know. The metadata begins with a digest of all that follows.

    Args:
        source: a session (the newest values), or an Ir (the initial data).
        path: the file.
    Raises:
        TypeError: ``source`` is neither, or there is a variable of a dtype that the format lacks.
        ValueError: a variable has the name of the metadata.
        OSError: the file cannot be written; an older file is as it was.
    """
    where = "save_safetensors"
    target = read_path(where, path)
    with saved_program(where, source) as program:
        # The widest elements first: so all are aligned.
        ordered = sorted(program.variables, key=lambda variable: -variable.dtype.as_numpy().itemsize)
        header = _header(program, ordered)
        with NewFile(where, target) as file:
            length = len(header).to_bytes(8, "little")
            start = len(length) + len(_PREFIX) + Digest.LENGTH
            file.digest.update(length)
            file.write_at(0, length + header[: start - 8])
            file.size = start
            file.write(header[start - 8 :])
            for variable in ordered:
                program.write(file, variable)
            file.write_at(start - Digest.LENGTH, file.digest.text().encode())
            file.commit()


def _header(program: Program, variables: list[Variable]) -> bytes:
    """The header, padded, with zeros for the digest."""
    entries: dict[str, Any] = {
        _METADATA: {
            "popsr.digest": "0" * Digest.LENGTH,
            _VERSION: popsr.__version__,
            **program_text(program, with_factor=True),
            **{
                f"{variable.id}/{key}": text
                for variable in variables
                for key, text in settings_text(variable).items()
            },
        }
    }
    end = 0
    for variable in variables:
        if variable.id == _METADATA:
            raise AttributeValueError(
                f"save_safetensors: the format keeps this name for itself, got {shown(_METADATA)}"
            )
        start, end = end, end + program.nbytes(variable)
        entries[variable.id] = {
            "dtype": _type_name(variable),
            "shape": list(variable.shape_on_host),
            "data_offsets": [start, end],
        }
    header = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    assert header.startswith(_PREFIX)
    return header + b" " * (-len(header) % 8)


def _type_name(variable: Variable) -> str:
    for name, kind in _TYPES.items():
        if kind == variable.dtype.as_ml_dtypes():
            return name
    raise DTypeError(
        f"save_safetensors: the format has no such dtype, got {variable.dtype.name} for '{variable.id}'"
    )


# --- loading --------------------------------------------------------------------------------------------------------


def load_safetensors(path: str | os.PathLike[str]) -> Checkpoint:
    """All tensors of a safetensors file, and what it says of replicas.

    As :func:`popsr.io.load_onnx`: everything is checked before memory is allocated.

    Args:
        path: the file, popsr's or another writer's.
    Returns:
        Arrays by name, with ``replication_factor``, ``settings`` and ``step`` where the file has them.
    Raises:
        CheckpointError: the file is damaged, contradicts itself, or is no safetensors file.
        OSError: it cannot be read.
        NotImplementedError: a tensor of a dtype without arrays.
    """
    with open_safetensors("load_safetensors", read_path("load_safetensors", path)) as stored:
        return Checkpoint(stored)


@contextmanager
def open_safetensors(where: str, path: Path) -> Iterator[StoredFile]:
    """The checked contents of a file, for reading inside the block."""
    with OpenFile(where, path) as file:
        header, start = _read_header(file)
        texts = _read_texts(file, header)
        _check_digest(file, texts)
        stored = StoredFile(file, *read_program(file, texts))
        ranges = []
        for name, entry in header.items():
            ranges.append(_read_tensor(stored, start, name, entry, texts))
            stored.add(ranges[-1].tensor)
        _check_ranges(file, start, ranges)
        yield stored


def _read_header(file: OpenFile) -> tuple[dict[str, Any], int]:
    """The header as object, and where the data starts."""
    if file.size == 0:
        raise file.bad("is empty, expected a checkpoint")
    length = int.from_bytes(file.read(0, 8), "little")
    if not 2 <= length <= min(_MAX_HEADER, file.size - 8):
        raise file.bad(
            f"is no safetensors file or cut off, got a header of {length} bytes in a file of {file.size}, expected at "
            f"most {_MAX_HEADER}"
        )
    text = file.read(8, length)
    try:
        header = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise file.bad(f"is no safetensors file or damaged, got a header that is no JSON: {error}") from None
    if text[:1] != b"{" or len(header) > MAX_TENSORS + 1:
        raise file.bad(f"is no safetensors file, expected a JSON object of at most {MAX_TENSORS} tensors")
    return header, 8 + length


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"got {shown(twice)} twice, expected each name once")
    return result


def _refuse_constant(text: str) -> None:
    raise ValueError(f"got {text}")


def _read_texts(file: OpenFile, header: dict[str, Any]) -> dict[str, str]:
    texts = header.pop(_METADATA, {})
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise file.bad("has wrong metadata, expected texts by name")
    return texts


def _check_digest(file: OpenFile, texts: dict[str, str]) -> None:
    """Headers of popsr begin with the digest and have two marks: what changed one left the other."""
    if not any(key.startswith("popsr.") for key in texts):
        return
    start = 8 + len(_PREFIX)
    end = start + Digest.LENGTH
    if (
        file.size < end
        or file.read(8, len(_PREFIX)) != _PREFIX
        or file.read(start, end - start) != file.digest(end, file.size, prefix=file.read(0, 8)).encode()
    ):
        raise file.bad(
            "is damaged, or was changed after popsr wrote it, got another digest than that of its contents (a file "
            "that was changed on purpose must have no metadata that begins with 'popsr.')"
        )


class _Range(NamedTuple):
    begin: int
    end: int
    tensor: StoredTensor


def _read_tensor(stored: StoredFile, start: int, name: str, entry: Any, texts: dict[str, str]) -> _Range:
    """A tensor, and where in the file its data is."""
    file = stored.file
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise file.bad(f"has a wrong entry for {shown(name)}, expected dtype, shape and data_offsets")
    kind, extents, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or not _are_ints(extents) or not _are_ints(offsets) or len(offsets) != 2:
        raise file.bad(f"has a wrong entry for {shown(name)}, got {str(entry)[:200]}")
    shape = stored.check_shape(name, extents)
    begin, end = start + offsets[0], start + offsets[1]
    dtype = _TYPES.get(kind)
    if not start <= begin <= end <= file.size:
        raise file.bad(
            f"has data outside of the file for {shown(name)}, got bytes {begin} to {end} of {file.size}, expected them "
            f"from {start} on"
        )
    if dtype is not None and end - begin != math.prod(shape) * dtype.itemsize:
        raise file.bad(
            f"has data of the wrong size for {shown(name)}, got {end - begin} bytes, expected "
            f"{math.prod(shape) * dtype.itemsize}"
        )
    settings = read_settings(file, stored.replication, name, shape, texts, f"{name}/")
    return _Range(begin, end, StoredTensor(name, kind, dtype, shape, settings, _filler(file, begin)))


def _are_ints(value: Any) -> bool:
    return isinstance(value, list) and all(type(element) is int for element in value)


def _filler(file: OpenFile, begin: int) -> Callable[[Array], None]:
    return lambda array: file.read_into(begin, bytes_of(array))


def _check_ranges(file: OpenFile, start: int, ranges: list[_Range]) -> None:
    """The data fills the file: no holes, no overlaps, nothing behind it."""
    at, before = start, "the header"
    for begin, end, tensor in sorted(ranges, key=lambda item: item[:2]):
        if begin != at:
            what = "overlap" if begin < at else "leave a hole"
            raise file.bad(
                f"has tensors that {what}, got {shown(tensor.name)} at byte {begin} after {shown(before)}, "
                f"expected it at {at}"
            )
        at, before = end, tensor.name
    if at != file.size:
        raise file.bad(f"has more than its tensors, got {file.size} bytes, expected {at}")
