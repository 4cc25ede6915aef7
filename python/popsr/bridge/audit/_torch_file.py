"""Tensors of a file of ``torch.save``, found in its pickle and mapped; no object of the pickle is made."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from popsr._support.host.files import file_errors, shown_name
from popsr._support.text.one_line import one_line
from popsr.bridge.audit._held import Array, Contents, Held
from popsr.bridge.audit._torch_archive import ITEMSIZES, STORAGES, Archive, read_archive
from popsr.io._budget import Budget
from popsr.io._open_file import OpenFile
from popsr.io._pickle import Named, Pairs, Record, kind_of
from popsr.io._torch.read import dtype_of_name

__all__ = ["read_torch_file"]

_MAX_DEPTH = 32
_FEW_VALUES, _MAX_VALUES = 1 << 20, 1 << 24
_MAX_KINDS = 32  # classes that are counted by name
_UTILS = "torch._utils"
# Functions that make a tensor of a storage, and the number of arguments before those that its data do not need.
_REBUILDS = {
    (_UTILS, "_rebuild_tensor"): 4,
    (_UTILS, "_rebuild_tensor_v2"): 6,
    (_UTILS, "_rebuild_tensor_v3"): 7,
}
_WRAPPERS = {(_UTILS, "_rebuild_parameter"), (_UTILS, "_rebuild_parameter_with_state")}
_TYPED = ("torch._tensor", "_rebuild_from_type_v2")
_MAKERS = {"_reconstruct", "_reconstructor", "encode"}
_MAPPINGS = {"OrderedDict", "defaultdict", "Counter"}


def read_torch_file(where: str, path: Path) -> Contents:
    """The tensors of a file, with the keys, indices and attributes on the way joined by dots.

    Objects that are no tensors are counted. A storage that none of the tensors has is in a note: it may be of a
    quantised tensor, or of another class that cannot be compared.

    Raises:
        CheckpointError: the file is damaged, asks for too much, or is not of PyTorch.
        FileError: it cannot be read.
    """
    with OpenFile(where, path) as file:
        archive = read_archive(file)
        try:
            return _Reader(file, archive).contents()
        except pickle.UnpicklingError as error:
            raise file.bad(
                f"is damaged; its pickle has {one_line(str(error), 120)}, expected tensors"
            ) from None


class _Reader:
    """Walk of a pickle."""

    def __init__(self, file: OpenFile, archive: Archive) -> None:
        self._file, self._archive = file, archive
        self._budget = Budget(file.bad, file.size)
        self._left_out: dict[str, int] = {}
        self._tensors: dict[str, Held] = {}
        self._seen: set[str] = set()  # storages of tensors
        self._unread: set[str] = set()
        with file_errors(file.where, "read", file.path):
            self._data: Array = np.memmap(file.path, np.uint8, "r", shape=(file.size,))

    def contents(self) -> Contents:
        """Tensors by name, and what is left out."""
        for name, record in self._values():
            if name in self._tensors:
                raise self._file.bad(f"has two tensors of one name, got {shown_name(name)} twice")
            self._tensors[name] = self._tensor(name, record)
        self._budget.take_memory(
            max(
                0,
                sum(each.nbytes for each in self._tensors.values())
                - sum(self._archive.storages[key].length for key in self._seen),
            )
        )
        unread = len(self._unread.union(set(self._archive.storages) - self._seen))
        notes = (f"{unread} storages are of no plain tensor and were not compared",) if unread else ()
        return Contents(self._tensors, self._left_out, notes, self._archive.value)

    def _values(self) -> Iterator[tuple[str, Record]]:
        """Records of tensors, and their names."""
        waiting: list[Iterator[tuple[str, Any, bool]]] = [iter([("", self._archive.value, True)])]
        names = [""]
        count, limit = 0, min(_FEW_VALUES + self._file.size // 2, _MAX_VALUES)
        while waiting:
            key, each, is_counted = next(waiting[-1], ("", _END, False))
            if each is _END:
                waiting.pop()
                names.pop()
                continue
            count += 1
            if count > limit:
                raise self._file.bad(f"has too many values, got more than {limit}, expected fewer")
            name = f"{names[-1]}.{key}" if names[-1] and key else names[-1] or key
            tensor = _tensor_record(each)
            inner = None if tensor is not None else _children(each, is_counted)
            if isinstance(each, Record) and _is_storage(each):
                self._unread.add(each.arguments[0][2])
            if is_counted and tensor is None and (inner is None or _is_object(each)):
                self._count(_class_of(each))
            if tensor is None and inner is None:
                continue
            self._check_depth(waiting, name)
            if tensor is not None:
                yield name, tensor
            elif inner is not None:
                waiting.append(inner)
                names.append(name)

    def _check_depth(self, waiting: list[Any], name: str) -> None:
        if len(waiting) > _MAX_DEPTH + 1 or len(name) > Budget.NAME:
            raise self._file.bad(
                f"is nested too deeply, got {shown_name(name)}, expected at most {_MAX_DEPTH} names of together "
                f"{Budget.NAME} characters"
            )

    def _count(self, kind: str) -> None:
        known = one_line(kind, 60)
        if known not in self._left_out and len(self._left_out) >= _MAX_KINDS:
            known = "others"
        self._left_out[known] = self._left_out.get(known, 0) + 1

    def _tensor(self, name: str, record: Record) -> Held:
        """A tensor of the arguments that its file passes to the function that makes it."""
        storage, offset, size, stride, *others = record.arguments
        key, kind = _storage(storage)
        if record.made_by.name == "_rebuild_tensor_v3":
            kind = others[2].name if isinstance(others[2], Named) else ""
        if kind not in ITEMSIZES:
            raise pickle.UnpicklingError(f"a tensor {shown_name(name)} of an unknown dtype")
        extents, steps = _numbers(size), _numbers(stride)
        if len(extents) != len(steps) or type(offset) is not int or offset < 0:
            raise pickle.UnpicklingError(f"a tensor {shown_name(name)} of a wrong size")
        shape = self._budget.add_tensor(name, extents)
        itemsize, count = ITEMSIZES[kind], math.prod(shape)
        place = self._archive.storages[key]
        last = offset + sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) if count else offset - 1
        if (last + 1) * itemsize > place.length:
            raise pickle.UnpicklingError(
                f"a tensor {shown_name(name)} that leaves its storage of {place.length} bytes"
            )
        self._seen.add(key)
        data = self._data[place.begin : place.begin + place.length]
        read = partial(_gather, data, offset * itemsize, shape, steps, itemsize)
        return Held(kind, shape, read, count * itemsize, itemsize, dtype_of_name(kind))


_END = object()


def _tensor_record(value: Any) -> Record | None:
    """The call that makes a dense tensor, inside of those that make a parameter or a subclass of it."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(value, Record) or type(value.arguments) is not tuple:
            return None
        made_by, arguments = (value.made_by.module, value.made_by.name), value.arguments
        if made_by in _REBUILDS:
            least = _REBUILDS[made_by]
            is_plain = len(arguments) >= least and not any(arguments[least:])  # no bits that are to be turned
            return value if is_plain and _is_storage(arguments[0]) else None
        if made_by in _WRAPPERS and arguments:
            value = arguments[0]
        elif made_by == _TYPED and len(arguments) == 4 and isinstance(arguments[0], Named):
            if type(arguments[2]) is not tuple:
                return None
            value = Record(arguments[0], arguments[2])
        else:
            return None
    return None


def _is_storage(value: Any) -> bool:
    return isinstance(value, Record) and value.made_by.name == "persistent id"


def _storage(value: Record) -> tuple[str, str]:
    """Key and dtype of a storage, whose persistent id was checked."""
    identity = value.arguments[0]
    return identity[2], STORAGES[identity[1].name]


def _numbers(value: Any) -> tuple[int, ...]:
    found = value.arguments[0] if isinstance(value, Record) and len(value.arguments) == 1 else value
    if type(found) is not tuple or len(found) > Budget.RANK:
        raise pickle.UnpicklingError(f"a {kind_of(found)} as a size, expected at most {Budget.RANK} numbers")
    if not all(type(each) is int and 0 <= each < 1 << 62 for each in found):
        raise pickle.UnpicklingError("a wrong size, expected numbers from 0 to 2**62")
    return found


def _children(value: Any, is_counted: bool) -> Iterator[tuple[str, Any, bool]] | None:
    """Parts of a value, and whether they are counted where they are no tensors; None of one that has no parts."""
    if isinstance(value, Pairs):
        return ((_key(key), each, is_counted) for key, each in value)
    if type(value) in (list, tuple):
        return ((str(i), each, is_counted) for i, each in enumerate(value))
    if not isinstance(value, Record) or _is_storage(value):
        return None
    return _parts(value, is_counted and not _is_object(value))


def _parts(record: Record, is_counted: bool) -> Iterator[tuple[str, Any, bool]]:
    for key, each in record.pairs:
        yield _key(key), each, is_counted
    for i, each in enumerate(record.items):
        yield str(i), each, is_counted
    # Attributes and arguments of a container are settings, which count for nothing; a tensor in them does.
    if record.state is not None:
        yield "" if _is_object(record) else "attributes", record.state, False
    if record.arguments:
        yield "arguments", record.arguments, False


def _is_object(value: Any) -> bool:
    """True of a record that counts as one object, whatever is in it."""
    return isinstance(value, Record) and value.made_by.name not in _MAPPINGS


def _class_of(value: Any) -> str:
    """The class of an object, also of one that a function of NumPy, of pickle or of codecs makes."""
    if isinstance(value, Record) and value.made_by.name in _MAKERS:
        first = next(iter(value.arguments), None)
        if isinstance(first, Named):
            return first.name
        return "bytes"  # of a text that is encoded
    return value.name if isinstance(value, Named) else kind_of(value)


def _key(key: Any) -> str:
    if type(key) is str:
        return key
    if key is None or type(key) in (bool, int, float):
        return str(key)
    if type(key) is tuple and len(key) <= 8:
        return f"({', '.join(map(_key, key))})"
    return key.name if isinstance(key, Named) else kind_of(key)


def _gather(data: Array, begin: int, shape: tuple[int, ...], steps: tuple[int, ...], itemsize: int) -> Array:
    """The bytes of a tensor in the order of its elements; mapped where they lie in it."""
    count = math.prod(shape)
    expected, is_dense = 1, True
    for extent, step in zip(reversed(shape), reversed(steps), strict=True):
        is_dense = is_dense and (extent == 1 or step == expected)
        expected *= extent
    if is_dense or not count:
        return data[begin : begin + count * itemsize]
    bits = data[begin:][: (data.size - begin) // itemsize * itemsize].view(f"V{itemsize}")
    strides = tuple(step * itemsize for step in steps)
    whole = np.lib.stride_tricks.as_strided(bits, shape, strides, writeable=False)
    return np.ascontiguousarray(whole).reshape(-1).view(np.uint8)
