"""Reading safetensors files, ours or another writer's.

popsr reads these files by itself: it neither copies the data nor maps the file, and accepts no hole, no overlap and no
name twice. The header is read entry by entry, so what it costs is known before it is made objects of.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from popsr._session.protocol import Only, Rename
from popsr._support.host.arguments import read_path
from popsr._support.host.files import shown_name
from popsr._support.text.entry_points import public
from popsr.errors import CheckpointError
from popsr.io._budget import Budget
from popsr.io._checkpoint import Checkpoint
from popsr.io._digest import Digest
from popsr.io._hashes import HASH_BYTES, HASH_OF_KEY, read_hash
from popsr.io._load.options import loaded_names
from popsr.io._open_file import OpenFile
from popsr.io._safetensors.format import DIGEST_PREFIX, METADATA, TYPES
from popsr.io._settings import (
    NO_SETTINGS,
    SETTINGS_PLACES,
    VERSION,
    SettingsReader,
    SettingsTexts,
    check_version,
    read_program,
    refuse_later,
)
from popsr.io._stored import Seal, StoredFile, StoredTensor

__all__ = ["load_safetensors", "open_safetensors"]

_SPACE = rb"[ \t\n\r]*+"
_TEXT = rb'"([^"\\\x00-\x1f]*+(?:\\[^\x00-\x1f][^"\\\x00-\x1f]*+)*+)"'
_PLAIN = rb'"([^"\\\x00-\x1f]*+)"'
_SEPARATOR = _SPACE + rb"([,}])" + _SPACE
_OPEN = re.compile(rb"\{" + _SPACE)
_NEXT = re.compile(_SEPARATOR)
_NAME = re.compile(_TEXT + _SPACE + b":" + _SPACE)
_ENTRY = re.compile(rb"(\{[^{}]{0,4096}\})" + _SEPARATOR)
_VALUE = re.compile(_TEXT + _SEPARATOR)
_KEYS = b"|".join(re.escape(key).encode() for key in SETTINGS_PLACES)
# The settings of a tensor, where nothing is escaped: most of the header of a file of popsr.
_SETTING = re.compile(rb'"([^"\\\x00-\x1f]*)/(%b)"' % _KEYS + _SPACE + b":" + _SPACE + _PLAIN + _SEPARATOR)

_ESCAPE = 6  # bytes of an escaped character
_NAMED_BYTES = 200  # of an entry of a table by names

_CHANGED = (
    ", or was changed after popsr wrote it, got a digest that does not match its contents (a file that was changed on "
    "purpose must have no metadata that begins with 'popsr.')"
)


@public
def load_safetensors(path: str | os.PathLike[str], *, only: Only = None, rename: Rename = None) -> Checkpoint:
    """All tensors of a safetensors file, and what it says of replicas.

    As :func:`popsr.io.load_onnx`: the structure is checked before memory is taken for data, the digest before data is
    returned.

    Args:
        path: the file, popsr's or another writer's.
        only: names to load, as they are after ``rename``: a pattern of ``fnmatch``, several, or a predicate.
        rename: new names by the file's: a mapping, or a function that returns None for tensors to leave out.
    Returns:
        Arrays by name, with ``replication_factor``, ``settings`` and ``step`` where the file has them.
    Raises:
        CheckpointError: the file is damaged, contradicts itself, exceeds a limit, or is not a safetensors file.
        OSError: it cannot be read.
        NotImplementedError: a tensor of a dtype without arrays.
    """
    with open_safetensors("load_safetensors", read_path("load_safetensors", path)) as stored:
        return Checkpoint(stored, loaded_names("load_safetensors", only, rename, stored.tensors))


@contextmanager
def open_safetensors(where: str, path: Path) -> Iterator[StoredFile]:
    """The checked contents of a file, for reading inside the block."""
    with OpenFile(where, path) as file:
        stored = StoredFile(file, Budget(file.bad, file.size))
        text = _read_header(file, stored.budget)
        stored.seal = _seal(file, text)
        with stored.unless_damaged():
            header = _Header(stored, text)
            header.read()
        texts = header.texts
        if stored.seal is None and any(key.startswith("popsr.") for key in texts):
            if "popsr.digest" in texts:  # perhaps one of another kind
                refuse_later(file, texts.get(VERSION, ""))
            raise file.bad(f"is damaged{_CHANGED}")
        if stored.seal is not None:
            check_version(file, texts.get(VERSION, ""))
        with stored.unless_damaged():
            stored.replication, stored.step = read_program(file, texts)
            header.add_settings()
            _check_ranges(stored, 8 + len(text))
            del header, text
            yield stored


def _read_header(file: OpenFile, budget: Budget) -> bytes:
    if file.size == 0:
        raise file.bad("is empty, expected a checkpoint")
    length = int.from_bytes(file.read(0, 8), "little")
    if not 2 <= length <= file.size - 8:
        raise file.bad(
            f"is not a safetensors file or cut off, got a header of {length} bytes in a file of {file.size}, expected "
            "at least 2 and at most what the file has"
        )
    budget.check_header(length)
    return file.read(8, length)


def _seal(file: OpenFile, text: bytes) -> Seal | None:
    """The digest, with which headers of popsr begin."""
    if not text.startswith(DIGEST_PREFIX):
        return None
    end = len(DIGEST_PREFIX) + Digest.LENGTH
    found = text[len(DIGEST_PREFIX) : end]
    begun = Digest()
    begun.update(len(text).to_bytes(8, "little"))
    begun.update(memoryview(text)[end:])
    return Seal(8 + len(text), file.size, lambda digest: digest.encode() == found, _CHANGED, begun)


class _Header:
    """The entries of a header, one at a time: tensors are added to the file, ``texts`` are its metadata by key."""

    def __init__(self, stored: StoredFile, text: bytes) -> None:
        self._stored, self._file, self._budget = stored, stored.file, stored.budget
        self._text, self._start = text, 8 + len(text)
        self._settings: dict[bytes, SettingsTexts] = {}
        self._more: dict[tuple[SettingsTexts, str, str], SettingsTexts] = {}
        self._values: dict[bytes, str] = {}
        self.texts: dict[str, str] = {}

    def read(self) -> None:
        """Read all entries.

        Raises:
            CheckpointError: the header is not a JSON object of tensors and metadata, or exceeds a limit.
        """
        text, has_metadata = self._text, False
        at, more = self._open(0)
        while more:
            named = _NAME.match(text, at)
            if named is None:
                raise self._wrong(at)
            if named.end(1) - named.start(1) > _ESCAPE * self._budget.NAME:
                raise self._long_name(named)
            name, at = self._decode(named[1], at), named.end()
            if name == METADATA:
                if has_metadata:
                    raise self._file.bad(
                        f"is not a safetensors file or damaged, got {shown_name(METADATA)} twice"
                    )
                has_metadata = True
                at, more = self._read_metadata(at)
                continue
            entry = _ENTRY.match(text, at)
            if entry is None:
                raise self._wrong_entry(name, text[at : at + 100])
            self._add_tensor(name, entry[1])
            at, more = entry.end(), entry[2] == b","
        if text[at:].strip(b" \t\n\r"):
            raise self._wrong(at)

    def add_settings(self) -> None:
        """Give the tensors what the metadata says of their groups."""
        stored = self._stored
        reader = SettingsReader(self._file, self._budget, stored.replication)
        for name, tensor in stored.tensors.items():
            texts = self._settings.get(name.encode())
            if texts is not None:
                settings = reader.read(name, tensor.shape, texts)
                stored.tensors[name] = tensor._replace(settings=settings)

    def _open(self, at: int) -> tuple[int, bool]:
        """The place of the first entry of an object, and True if there is one."""
        opened = _OPEN.match(self._text, at)
        if opened is None:
            raise self._wrong(at)
        at = opened.end()
        return (at + 1, False) if self._text[at : at + 1] == b"}" else (at, True)

    def _read_metadata(self, at: int) -> tuple[int, bool]:
        """The place behind the metadata that begins at ``at``, and True if another entry follows."""
        text = self._text
        if text[at : at + 1] != b"{":
            raise self._wrong_metadata(at)
        at, more = self._open(at)
        end = at
        while more:
            setting = _SETTING.match(text, at)
            if setting is not None:
                raw_name, raw_key, raw_value, separator = setting.groups()
                value_text = self._values.get(raw_value)
                if value_text is None:
                    value_text = self._values[raw_value] = self._value(raw_value, at)
                self._add_setting(raw_name, raw_key.decode(), value_text)
                at, more, end = setting.end(), separator == b",", setting.end(4)
                continue
            named = _NAME.match(text, at)
            value = None if named is None else _VALUE.match(text, named.end())
            if named is None or value is None:
                raise self._wrong_metadata(at)
            self._add_text(named[1], value[1], at)
            at, more = value.end(), value[2] == b","
            end = value.end(2)
        following = _NEXT.match(text, end)
        if following is None:
            raise self._wrong(end)
        return following.end(), following[1] == b","

    def _add_text(self, raw_key: bytes, raw_value: bytes, at: int) -> None:
        if len(raw_key) > self._budget.METADATA:
            self._budget.take_metadata(len(raw_key))
        key, value = self._decode(raw_key, at), self._value(raw_value, at)
        name, slash, kind = key.rpartition("/")
        if slash and kind in SETTINGS_PLACES:
            self._add_setting(name.encode(errors="surrogatepass"), kind, value)
            return
        if slash and kind in HASH_OF_KEY:
            self._add_hash(name, kind, value)
            return
        self._budget.add_entry(key, value)
        if key in self.texts:
            raise self._twice(key)
        self.texts[key] = value

    def _value(self, raw: bytes, at: int) -> str:
        if len(raw) > self._budget.METADATA:
            self._budget.take_metadata(len(raw))
        return self._decode(raw, at)

    def _add_setting(self, name: bytes, key: str, value: str) -> None:
        texts = self._settings.get(name)
        if texts is None:
            self._budget.take_memory(_NAMED_BYTES + len(name))
            texts = NO_SETTINGS
        more = self._more.get((texts, key, value))
        if more is None:
            place = SETTINGS_PLACES[key]
            if texts[place] is not None:
                raise self._twice(f"{name.decode(errors='replace')}/{key}")
            more = (*texts[:place], self._budget.add_text(value), *texts[place + 1 :])
            self._budget.take_memory(_NAMED_BYTES)
            self._more[texts, key, value] = more
        self._settings[name] = more

    def _add_hash(self, name: str, key: str, value: str) -> None:
        algorithm, digits = read_hash(self._file, key, value)
        # Each tensor has its own, so they do not count as texts do.
        self._budget.take_memory(HASH_BYTES + len(name))
        found = self._stored.hashes.setdefault(name, {})
        if algorithm in found:
            raise self._twice(f"{name}/{key}")
        found[algorithm] = digits

    def _twice(self, key: str) -> CheckpointError:
        return self._file.bad(f"has metadata of one key, got {shown_name(key)} twice")

    def _add_tensor(self, name: str, raw: bytes) -> None:
        file = self._file
        if raw.count(b"[") > 2:  # nothing is nested deeper
            raise self._wrong_entry(name, raw)
        try:
            entry = _DECODER.decode(raw.decode())
        except ValueError as error:
            raise file.bad(f"has a wrong entry for {shown_name(name)}: {_first_line(error)}") from None
        if entry.keys() != _ENTRY_KEYS:
            raise self._wrong_entry(name, raw)
        kind, extents, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(kind, str) or not _are_ints(extents) or not _are_ints(offsets) or len(offsets) != 2:
            raise self._wrong_entry(name, raw)
        shape = self._budget.add_tensor(name, extents)
        begin, end = self._start + offsets[0], self._start + offsets[1]
        if not self._start <= begin <= end <= file.size:
            raise file.bad(
                f"has data outside of the file for {shown_name(name)}, got bytes {begin} to {end} of {file.size}, "
                f"expected "
                f"them from {self._start} on"
            )
        dtype = TYPES.get(kind)
        tensor = StoredTensor(
            name, kind if dtype is not None else _type_name(kind), dtype, shape, None, begin, end - begin
        )
        if dtype is not None and tensor.length != tensor.nbytes:
            raise file.bad(
                f"has data of the wrong size for {shown_name(name)}, got {tensor.length} bytes, expected "
                f"{tensor.nbytes}"
            )
        self._stored.add(tensor)

    def _decode(self, raw: bytes, at: int) -> str:
        try:
            if b"\\" not in raw:
                return raw.decode()
            text: str = json.loads(b'"%b"' % raw)
            return text
        except ValueError:
            raise self._wrong(at) from None

    def _long_name(self, named: re.Match[bytes]) -> CheckpointError:
        return self._file.bad(
            f"has a tensor whose name is too long, got {named.end(1) - named.start(1)} bytes, expected at most "
            f"{self._budget.NAME}, for {_fragment(named[1])}"
        )

    def _wrong(self, at: int) -> CheckpointError:
        return self._file.bad(
            f"is not a safetensors file or damaged, got {_fragment(self._text[at : at + 100])} at byte {at} of its "
            "header, expected a JSON object of tensors"
        )

    def _wrong_metadata(self, at: int) -> CheckpointError:
        return self._file.bad(
            f"has wrong metadata, got {_fragment(self._text[at : at + 100])}, expected texts by name"
        )

    def _wrong_entry(self, name: str, raw: bytes) -> CheckpointError:
        return self._file.bad(
            f"has a wrong entry for {shown_name(name)}, got {_fragment(raw)}, expected dtype, shape and data_offsets"
        )


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"got {shown_name(twice)} twice, expected each name once")
    return result


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"got {text}, expected a number")


_DECODER = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
_ENTRY_KEYS = {"dtype", "shape", "data_offsets"}
_INT = {int}  # not its subclass bool


def _type_name(kind: str) -> str:
    """The name of an unknown dtype as errors show it."""
    return kind if kind.isidentifier() and len(kind) <= 20 else shown_name(kind, 20)


def _are_ints(value: Any) -> bool:
    return isinstance(value, list) and {*map(type, value)} <= _INT


def _fragment(raw: bytes) -> str:
    return shown_name(raw[:60].decode(errors="replace"))


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _check_ranges(stored: StoredFile, start: int) -> None:
    """The data fills the file: no holes, no overlaps, nothing behind it."""
    file, at, before = stored.file, start, "the header"
    for tensor in sorted(stored.tensors.values(), key=lambda tensor: (tensor.begin, tensor.length)):
        if tensor.begin != at:
            what = "overlap" if tensor.begin < at else "leave a hole"
            raise file.bad(
                f"has tensors that {what}, got {shown_name(tensor.name)} at byte {tensor.begin} after "
                f"{shown_name(before)}, "
                f"expected it at {at}"
            )
        at, before = at + tensor.length, tensor.name
    if at != file.size:
        raise file.bad(f"has more than its tensors, got {file.size} bytes, expected {at}")
