"""Small checkpoints in the form of Orbax that ask an audit for much, or for files of others."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests_py.bridge.audit.bombs import put
from tests_py.support.limits import Row

_BLOCK = 128 << 10


def between(path: Path) -> None:
    """Compare two jobs; what is damaged is the error."""
    import popsr.bridge.audit

    report = popsr.bridge.audit.between(path / "a", path / "b")
    if report.damaged:
        raise popsr.errors.CheckpointError(report.damaged[0])
    assert report.ok


def frame(nbytes: int, head: bytes = b"") -> bytes:
    """A frame of zstd with bytes and then zeros, in blocks of one repeated byte."""
    blocks = [(0, len(head), head)] * bool(head)
    blocks += [(1, min(_BLOCK, nbytes - at), b"\0") for at in range(0, nbytes, _BLOCK)]
    found = b"\x28\xb5\x2f\xfd\x00\x38"
    for i, (kind, size, data) in enumerate(blocks):
        found += (int(i == len(blocks) - 1) | kind << 1 | size << 3).to_bytes(3, "little") + data
    return found


def crc32c(data: bytes) -> bytes:
    """Checksum of the files of OCDBT."""
    table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    value = 0xFFFFFFFF
    for each in data:
        value = table[(value ^ each) & 255] ^ value >> 8
    return struct.pack("<I", value ^ 0xFFFFFFFF)


def manifest(body: bytes, is_compressed: bool) -> bytes:
    """A file of OCDBT."""
    head = b"\x0c\xdb\x3a\x2a" + struct.pack("<Q", len(body) + 18) + bytes([0, is_compressed])
    return head + body + crc32c(head + body)


def tree(*names: str) -> str:
    """Metadata of arrays."""
    entries = {
        name: {
            "key_metadata": [{"key": name, "key_type": 2}],
            "value_metadata": {"value_type": "jax.Array", "skip_deserialize": False},
        }
        for name in names
    }
    return json.dumps({"tree_metadata": entries, "store_array_data_equal_to_fill_value": True})


def array(shape: list[int], chunks: list[int] | None = None, **others: Any) -> str:
    """Metadata of an array of bytes."""
    fields = {
        "chunks": chunks or shape,
        "compressor": {"id": "zstd", "level": 1},
        "dtype": "|u1",
        "fill_value": None,
        "filters": None,
        "order": "C",
        "shape": shape,
        "zarr_format": 2,
    }
    return json.dumps(fields | others)


def checkpoint(files: Callable[[], Mapping[str, bytes | str]], match: str) -> Row:
    """Equal files of two jobs."""

    def make(path: Path) -> None:
        for name, data in {"_METADATA": tree("w"), **files()}.items():
            for job in ("a", "b"):
                put(path / job / name, data)

    return Row(make, between, match)


def of_array(shape: list[int], data: Callable[[], bytes], match: str, **others: Any) -> Row:
    """An array in a folder, with its first chunk."""
    first = ".".join("0" * len(shape))
    return checkpoint(lambda: {"w/.zarray": array(shape, **others), f"w/{first}": data()}, match)


def outside(name: str) -> Row:
    """A database whose manifest names a file beside its folder, which is there."""

    def make(path: Path) -> None:
        import tensorstore

        for job in ("a", "b"):
            folder = path / job
            put(folder / "_METADATA", tree("w"))
            spec = {
                "driver": "ocdbt",
                "base": {"driver": "file", "path": f"{folder}/"},
                "config": {"compression": None, "max_inline_value_bytes": 0},
            }
            store = tensorstore.KvStore.open(spec).result()
            store.write("w/.zarray", array([40], compressor=None)).result()
            store.write("w/0", b"x" * 40).result()
            data = next(
                each for each in (folder / "d").iterdir() if f"d/{each.name}".encode() in _root(folder)
            )
            new = (name + data.name)[: len(data.name) + 2]
            whole = _root(folder).replace(f"d/{data.name}".encode(), new.encode())
            put(folder / "manifest.ocdbt", whole[:-4] + crc32c(whole[:-4]))
            put((folder / new).resolve(), data.read_bytes())
            data.unlink()

    return Row(make, between, "lacks")


def _root(folder: Path) -> bytes:
    return (folder / "manifest.ocdbt").read_bytes()


def sparse(path: Path) -> None:
    """Chunks of four gigabytes that take no room on a disk."""
    for job in ("a", "b"):
        put(path / job / "_METADATA", tree("w"))
        put(path / job / "w/.zarray", array([4096], compressor=None))
        with (path / job / "w/0").open("wb") as file:
            file.truncate(4 * GIB)


GIB = 1 << 30
ROWS: dict[str, Row] = {
    "zeros": of_array([1 << 20], lambda: frame(1 << 20), ""),
    "bomb": of_array([4096], lambda: frame(4 * GIB), "cannot be read"),
    "bomb-at-the-limit": of_array([48 << 20], lambda: frame(8 * GIB), "cannot be read"),
    "blosc": of_array(
        [4096],
        lambda: b"\x02\x01\x21\x01" + struct.pack("<III", (1 << 31) - 64, 1 << 20, 64) + bytes(48),
        "needs more memory or time",
        compressor={"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 0},
    ),
    "sparse-chunk": Row(sparse, between, "needs more memory or time"),
    "long-chunk": of_array([4096], lambda: frame(8192), "cannot be read"),
    "short-chunk": of_array([4096], lambda: frame(4095), "cannot be read"),
    "huge-shape": of_array([1 << 40], lambda: b"", "claims more than it has"),
    "absurd-shape": of_array([1 << 62], lambda: b"", "Invalid value for dimension 0"),
    "huge-chunk": of_array([1], lambda: b"", "claims more than it has", chunks=[1 << 40]),
    "huge-element": of_array([1], lambda: b"", "not an array of numbers", dtype="|V1000000000"),
    "many-axes": of_array([1] * 40, lambda: b"", "lacks"),
    "small-chunks": of_array([60 << 20], lambda: frame(1), "got 62914560 chunks", chunks=[1]),
    "two-of-one-name": checkpoint(
        lambda: {
            "_METADATA": tree("w", "x").replace('"key": "x"', '"key": "w"'),
            "w/.zarray": array([1]),
            "w/0": frame(1),
        },
        "two arrays of one name",
    ),
    "many-claims": checkpoint(
        lambda: (
            {"_METADATA": tree(*(f"w{i}" for i in range(60)))}
            | {f"w{i}/.zarray": array([60 << 20]) for i in range(60)}
        ),
        "claims more than it has",
    ),
    "metadata-deep": checkpoint(lambda: {"_METADATA": "[" * 200_000}, "has RecursionError"),
    "metadata-lists": checkpoint(
        lambda: {"_METADATA": "[" + "[],[]," * 6_000_000 + "0]"}, "needs more memory"
    ),
    "manifest-bomb": checkpoint(lambda: {"manifest.ocdbt": manifest(frame(8 * GIB, b"\0" * 16), True)}, "w"),
    "manifest-of-zeros": checkpoint(lambda: {"manifest.ocdbt": manifest(bytes(100), False)}, "lacks"),
    "manifest-beside": outside("../"),
    "manifest-above": outside("d/../../"),
    **{
        f"name-{i}": checkpoint(
            partial(dict, {"_METADATA": tree(name), "x/.zarray": array([1])}),
            "has a wrong name of an array",
        )
        for i, name in enumerate(("../x", "/x", "x/../../y", "", "x//y", "a" * 5000))
    },
}
