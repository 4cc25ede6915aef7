"""``torch.load`` with weights only, of files that another wrote: what it would never end with is refused before."""

from __future__ import annotations

import io
import pickle
import warnings
import zipfile
from typing import Any, BinaryIO

from popsr._support.host.files import shown_name
from popsr._support.text.one_line import one_line
from popsr.errors import CheckpointError
from popsr.io._open_file import OpenFile
from popsr.io._pickle import HashBudget, Named, read_pickle

__all__ = ["load_weights", "load_weights_of_bytes"]

_ZIP = b"PK\x03\x04"
_LEGACY = (
    5  # pickles of a file that is not a zip archive: magic number, protocol, system, value, keys of storages
)


def load_weights(torch: Any, file: OpenFile) -> Any:
    """The value of a file; tensors of a zip archive are mapped.

    Raises:
        CheckpointError: the file is damaged, holds more than weights, or is not of PyTorch.
    """
    if file.size == 0:
        raise file.bad("is empty, expected a checkpoint")
    is_zip = file.read(0, min(4, file.size)) == _ZIP
    says = "torch.load says"
    try:
        if is_zip:
            _check_archive(torch, torch._C.PyTorchFileReader(str(file.path)), file.path, file)
        else:
            says = "its pickle has"
            with file.path.open("rb") as stream:
                _check_legacy(stream, file.size)
        says = "torch.load says"
        return _load(torch, file.path, mmap=is_zip)
    except (CheckpointError, OSError):
        raise
    except Exception as error:  # of its own kinds, and whatever damage leads to
        text = one_line(str(error).partition("\n")[0], 160)
        what = "holds more than weights or is damaged"
        if isinstance(error, pickle.UnpicklingError) and "nsupported" not in str(error):
            raise file.bad(f"{what}; its pickle has {text}") from None
        if "nsupported" in str(error) or "eights" in str(error):
            raise file.bad(f"{what}; torch.load says: {text}") from None
        raise file.bad(f"is not a file of PyTorch or damaged; {says}: {text}") from None


def load_weights_of_bytes(torch: Any, data: bytes) -> Any:
    """The value of a file that is in memory.

    Raises:
        Exception: of many kinds, where it is damaged or holds more than weights.
    """
    stream = io.BytesIO(data)
    if data.startswith(_ZIP):
        _check_archive(torch, torch._C.PyTorchFileReader(stream), io.BytesIO(data), None)
        stream.seek(0)
    else:
        _check_legacy(io.BytesIO(data), len(data))
    return _load(torch, stream, mmap=False)


def _load(torch: Any, source: Any, *, mmap: bool) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.load(source, map_location="cpu", weights_only=True, mmap=mmap)


def _check_legacy(stream: BinaryIO, size: int) -> None:
    hashed = HashBudget()
    for _ in range(_LEGACY):
        read_pickle(stream, size, Named, hashed)


def _check_archive(torch: Any, reader: Any, source: Any, file: OpenFile | None) -> None:
    """Refuse compressed records, which mapping would take for data, and storages that are not their records."""

    def bad(text: str) -> Exception:
        return pickle.UnpicklingError(text) if file is None else file.bad(text)

    with zipfile.ZipFile(source) as archive:
        for info in archive.infolist():
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                raise bad(
                    f"has a compressed record, got {shown_name(info.filename)}, expected an archive of torch.save, "
                    "which compresses nothing"
                )
    data = reader.get_record("data.pkl")
    hashed = HashBudget()
    read_pickle(io.BytesIO(data), len(data), Named, hashed)
    for kind, key, count in map(_storage, hashed.persistent):
        size = reader.get_record_size(f"data/{key}")
        is_bytes = kind.name == "UntypedStorage"
        itemsize = 1 if is_bytes else torch.storage._get_dtype_from_pickle_storage_type(kind.name).itemsize
        if count * itemsize != size:
            raise bad(
                f"has a storage of another size, got {size} bytes of {shown_name(key)}, expected {count} elements of "
                f"{kind.name}"
            )


def _storage(identity: Any) -> tuple[Named, str, int]:
    """Class, key and number of elements of a storage."""
    if type(identity) is tuple and len(identity) == 5:
        _, kind, key, _, count = identity
        if isinstance(kind, Named) and type(key) is str and type(count) is int:
            return kind, key, count
    raise pickle.UnpicklingError("a storage without class, key and size")
