"""Program of a process that reads a checkpoint of Orbax under limits of memory and processor time.

Compressed chunks and nodes of a key-value store say nothing of the memory that they need; here a limit of the system
bounds it, whatever they are. Requests are lines of JSON on standard input. Answers are lines of JSON on standard
output; that to a chunk is followed by its bytes.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

SLACK = 256 << 20  # bytes for threads, nodes of the key-value store and the metadata
_COPIES = 4  # of a chunk: as it is stored, decoded, in the array, and what decoders need
_SECONDS = 30  # before the first request
_CACHE = 32 << 20  # of nodes of the key-value store
_ARRAYS = ("jax.Array", "np.ndarray", "scalar")
_TEXTS = {"string": "text", "None": "None", "Dict": "dict", "List": "list", "Tuple": "tuple"}


class _Wrong(Exception):
    """Metadata that are not as they must be."""


def main(folder: str) -> None:
    """Answer requests until there are no more."""
    import tensorstore

    start = _virtual_bytes()
    _limit(start, 0, _SECONDS)
    source = _Checkpoint(tensorstore, Path(folder))
    for line in sys.stdin:
        request = json.loads(line)
        _limit(start, request["room"], request["seconds"])
        source.driver = request["driver"]
        data: bytes | memoryview = b""
        answer: dict[str, Any]
        try:
            if "at" in request:
                data = source.chunk(request["name"], request["at"], request["sizes"])
                answer = {"length": len(data)}
            else:
                answer = source.describe()
        except _Wrong as error:
            answer = {"error": str(error)}
        except MemoryError:
            answer = {"error": "needs more memory than its sizes allow"}
        except Exception as error:  # of tensorstore, and whatever damage leads to
            answer = {"error": f"has {type(error).__name__}: {_first_line(error)[:400]}"}
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _virtual_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _limit(start: int, room: int, seconds: int) -> None:
    """Bound memory, and the processor time of the next answer."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limits = {
        resource.RLIMIT_AS: start + SLACK + _COPIES * room,
        resource.RLIMIT_CPU: int(used.ru_utime + used.ru_stime) + seconds,
        resource.RLIMIT_CORE: 0,
    }
    for kind, soft in limits.items():
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _first_line(error: Exception) -> str:
    """Text of an error without what tensorstore was asked for."""
    return str(error).partition("\n")[0].partition(" [tensorstore_spec=")[0]


class _Checkpoint:
    """Arrays of a folder; only files below it are read."""

    def __init__(self, tensorstore: Any, folder: Path) -> None:
        self._tensorstore, self._folder = tensorstore, folder
        self._is_database = (folder / "manifest.ocdbt").exists()
        self.driver = ""
        one = {"limit": 1}
        self._context = tensorstore.Context(
            {
                "cache_pool": {"total_bytes_limit": 0},
                "cache_pool#nodes": {"total_bytes_limit": _CACHE},
                "data_copy_concurrency": one,
                "file_io_concurrency": one,
            }
        )

    def describe(self) -> dict[str, Any]:
        """Arrays by name, the other objects by kind, their form, and if chunks of zeros were written."""
        metadata = json.loads((self._folder / "_METADATA").read_bytes())
        tree = metadata.get("tree_metadata") if isinstance(metadata, dict) else None
        if not isinstance(tree, dict):
            raise _Wrong("has wrong metadata, expected a mapping as tree_metadata")
        self.driver = "zarr3" if metadata.get("use_zarr3") is True else "zarr"
        if not self._is_database and next(self._folder.glob("ocdbt.process_*"), None) is not None:
            raise _Wrong(
                "has no manifest.ocdbt, which joins what processes wrote, expected a whole checkpoint"
            )
        arrays: dict[str, Any] = {}
        left_out: dict[str, int] = {}
        for each in tree.values():
            name, kind = _entry(each)
            if kind not in _ARRAYS:
                kind = _TEXTS.get(kind, "object")
                left_out[kind] = left_out.get(kind, 0) + 1
                continue
            if name in arrays:
                raise _Wrong(f"has two arrays of one name, got {json.dumps(name[:60])} twice, expected once")
            arrays[name] = self._facts(name)
        stores_zeros = metadata.get("store_array_data_equal_to_fill_value") is True
        return {
            "arrays": arrays,
            "left_out": left_out,
            "driver": self.driver,
            "stores_zeros": stores_zeros,
        }

    def _facts(self, name: str) -> dict[str, Any]:
        try:
            store = self._open(name)
        except ValueError as error:
            text = _first_line(error)[:300]
            raise _Wrong(
                f"lacks {json.dumps(name[:60])} or it is damaged, got {text}, expected its array"
            ) from None
        layout = store.chunk_layout
        read, written = (list(each.shape or store.shape) for each in (layout.read_chunk, layout.write_chunk))
        dtype = store.dtype.numpy_dtype
        return {
            "dtype": store.dtype.name,
            "itemsize": 0 if dtype.hasobject else dtype.itemsize,
            "shape": list(store.shape),
            "chunk": [max(1, each) for each in read],
            "written": [max(1, each) for each in written],
        }

    def _open(self, name: str) -> Any:
        files = {"driver": "file", "path": f"{self._folder}/"}
        if self._is_database:
            cache = "cache_pool#nodes"
            stored: Mapping[str, Any] = {
                "driver": "ocdbt",
                "base": files,
                "path": f"{name}/",
                "cache_pool": cache,
            }
        else:
            stored = files | {"path": f"{self._folder}/{name}/"}
        spec = {
            "driver": self.driver,
            "kvstore": stored,
            "fill_missing_data_reads": False,  # else a chunk that is lost reads as zeros
            "recheck_cached_data": False,
            "recheck_cached_metadata": False,
        }
        return self._tensorstore.open(spec, open=True, read=True, context=self._context).result()

    def chunk(self, name: str, at: list[int], sizes: list[int]) -> memoryview:
        """The bytes of a part of an array in the order of C."""
        box = tuple(slice(a, a + n) for a, n in zip(at, sizes, strict=True))
        data = np.ascontiguousarray(self._open(name)[box].read(order="C").result())
        return data.reshape(-1).view(np.uint8).data


def _entry(entry: Any) -> tuple[str, str]:
    """Name and kind of an entry of the tree."""
    try:
        keys = [each["key"] for each in entry["key_metadata"]]
        kind, is_skipped = entry["value_metadata"]["value_type"], entry["value_metadata"]["skip_deserialize"]
    except (KeyError, TypeError) as error:
        raise _Wrong(
            f"has a wrong entry in its tree, got {type(error).__name__}: {str(error)[:80]}"
        ) from None
    name = ".".join(str(key) for key in keys if isinstance(key, (str, int)))
    parts = name.split("/")
    if not isinstance(kind, str) or not all(isinstance(key, (str, int)) for key in keys):
        raise _Wrong("has a wrong entry in its tree, expected texts and numbers as keys")
    if is_skipped is True and kind in _ARRAYS:
        kind = "object"
    if kind in _ARRAYS and ({"", ".", ".."} & set(parts) or "\0" in name or len(name) > 1 << 12):
        raise _Wrong(
            f"has a wrong name of an array, got {json.dumps(name[:60])}, expected one below its folder"
        )
    return name, kind


if __name__ == "__main__":
    main(sys.argv[1])
