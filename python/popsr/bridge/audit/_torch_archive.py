"""The records of a file of ``torch.save``: its pickle, and which bytes each storage is; nothing is unpickled."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from popsr._support.host.files import shown_name
from popsr._support.text.one_line import one_line
from popsr.errors import CheckpointError
from popsr.io._open_file import OpenFile
from popsr.io._pickle import HashBudget, Named, kind_of, read_pickle

__all__ = ["ITEMSIZES", "STORAGES", "Archive", "Storage", "read_archive"]

_ZIP = b"PK\x03\x04"
_HEADER = 30  # bytes of a local header before its name
_MAGIC = 0x1950A86A20F9469CFC6C
_BEFORE = 3  # pickles before the value, of a file from before zip archives: magic number, protocol, system

ITEMSIZES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,
    "complex32": 4,
    "complex64": 8,
    "complex128": 16,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "bool": 1,
}
"""Bytes of an element of PyTorch's dtypes."""

STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "UntypedStorage": "",
    # Of quantised tensors, which are not compared.
    "QUInt8Storage": "uint8",
    "QInt8Storage": "int8",
    "QInt32Storage": "int32",
    "QUInt4x2Storage": "uint8",
    "QUInt2x4Storage": "uint8",
}
"""The dtype of each class of storages; an untyped one has that of its tensor."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes of a file."""

    begin: int
    length: int


@dataclass(frozen=True, slots=True)
class Archive:
    """A pickle as inert records, and the storages that it names, by key."""

    value: Any
    storages: Mapping[str, Storage]


def read_archive(file: OpenFile) -> Archive:
    """The records of a file, a zip archive or in the form from before.

    Raises:
        CheckpointError: it is damaged, or not of PyTorch.
    """
    if file.size == 0:
        raise file.bad("is empty, expected a checkpoint")
    try:
        return _zipped(file) if file.read(0, min(4, file.size)) == _ZIP else _legacy(file)
    except (CheckpointError, OSError):
        raise
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise file.bad(
            f"is cut off or damaged, got {one_line(str(error), 120)}, expected a zip archive of torch.save"
        ) from None
    except Exception as error:  # of pickle, and whatever damage leads to
        text = one_line(f"{error}" if isinstance(error, pickle.UnpicklingError) else repr(error), 120)
        raise file.bad(f"is not a file of PyTorch or damaged; its pickle has {text}") from None


def _zipped(file: OpenFile) -> Archive:
    with file.path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
        infos = archive.infolist()
    records = {info.filename.partition("/")[2]: info for info in infos}
    if len(records) != len(infos):
        raise file.bad(f"has two records of one name, got {len(infos)} of {len(records)} names")
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise file.bad(
                f"has a compressed record, got {shown_name(info.filename)}, expected an archive of torch.save, which "
                "compresses nothing"
            )
        if info.flag_bits & 1:
            raise file.bad(f"has an encrypted record, got {shown_name(info.filename)}")
    if "data.pkl" not in records:
        raise file.bad("is a zip archive of something else, got no data.pkl, expected one of torch.save")
    if "constants.pkl" in records:  # it has tensors beside those of data.pkl
        raise file.bad("is an archive of TorchScript, expected one of torch.save")
    order = records.get("byteorder")
    if order is not None and _read(file, order) != b"little":
        raise file.bad("has another order of bytes, expected little")
    hashed = HashBudget()
    data = _read(file, records["data.pkl"])
    value = read_pickle(io.BytesIO(data), len(data), Named, hashed)
    storages = {}
    for key, nbytes in _named_storages(hashed).items():
        record = records.get(f"data/{key}")
        if record is None:
            raise file.bad(f"lacks a storage, got no record of {shown_name(key)}")
        place = _place(file, record)
        if nbytes != place.length:
            raise file.bad(
                f"has a storage of another size, got {place.length} bytes of {shown_name(key)}, expected {nbytes}"
            )
        storages[key] = place
    return Archive(value, storages)


def _place(file: OpenFile, info: zipfile.ZipInfo) -> Storage:
    header = file.read(info.header_offset, _HEADER)
    if header[:4] != _ZIP:
        raise file.bad(f"is damaged, got no record at {info.header_offset}")
    lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    begin = info.header_offset + _HEADER + lengths
    if begin + info.file_size > file.size:
        raise file.bad(
            f"is cut off, got {file.size} bytes, expected at least {begin + info.file_size} for "
            f"{shown_name(info.filename)}"
        )
    return Storage(begin, info.file_size)


def _read(file: OpenFile, info: zipfile.ZipInfo) -> bytes:
    place = _place(file, info)
    return file.read(place.begin, place.length)


def _legacy(file: OpenFile) -> Archive:
    """The form before zip archives: pickles, the keys of storages, and after a length of 8 bytes the data of each."""
    with file.path.open("rb") as stream:
        hashed = HashBudget()
        magic, *_ = [read_pickle(stream, file.size, Named, hashed) for _ in range(_BEFORE)]
        if type(magic) is not int or magic != _MAGIC:
            raise file.bad(f"is not a file of PyTorch, got a pickle of {kind_of(magic)}")
        value = read_pickle(stream, file.size, Named, hashed)
        keys = read_pickle(stream, file.size, Named, hashed)
        at = stream.tell()
    lengths = _named_storages(hashed)
    if type(keys) is not list or not all(type(key) is str and key in lengths for key in keys):
        raise pickle.UnpicklingError("wrong keys of storages")
    storages = {}
    for key in keys:
        begin, length = at + 8, lengths[key]
        if begin + length > file.size:
            raise file.bad(f"is cut off, got {file.size} bytes, expected at least {begin + length}")
        storages[key] = Storage(begin, length)
        at = begin + length
    missing = next((key for key in lengths if key not in storages), None)
    if missing is not None:
        raise file.bad(f"lacks a storage, got no data of {shown_name(missing)}")
    return Archive(value, storages)


def _named_storages(hashed: HashBudget) -> dict[str, int]:
    """Bytes of each storage that the persistent ids name."""
    found: dict[str, int] = {}
    for identity in hashed.persistent:
        is_known = type(identity) is tuple and len(identity) in (5, 6) and identity[5:] in ((), (None,))
        parts: tuple[Any, ...] = identity[:5] if is_known else (None,) * 5
        _, kind, key, _, count = parts
        is_known = isinstance(kind, Named) and type(key) is str and type(count) is int and count >= 0
        if not is_known or kind.name not in STORAGES:
            raise pickle.UnpicklingError("a storage without class, key and size")
        nbytes = count * ITEMSIZES.get(STORAGES[kind.name], 1)
        if found.setdefault(key, nbytes) != nbytes:
            raise pickle.UnpicklingError("a storage of two sizes")
    return found
