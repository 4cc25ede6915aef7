"""Small files that ask for much: each is loaded in a process of its own, whose memory and time are measured.

``measure`` runs rows of ``BOMBS`` and prints a line of JSON for each of ``load_*`` and ``reset_host_weights``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tests_py.support.limits import in_child, outcome

MB = 10**6
FACTOR = 1 << 20  # the greatest replication factor that a file may have


class Bomb(NamedTuple):
    """A file: what makes it, what loading it says ("" when it loads), and whether it takes long."""

    suffix: str
    make: Callable[[Path], None]
    match: str
    is_slow: bool = False


Row = tuple[Callable[[], bytes], str, bool]
"""The bytes of a file, made when they are needed, and the rest of a ``Bomb``."""


# Safetensors


def header(entries: Iterable[bytes]) -> bytes:
    """A file with these entries in its header."""
    text = b"{" + b",".join(entries) + b"}"
    return len(text).to_bytes(8, "little") + text


def empty(name: str) -> bytes:
    return b'"%b":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % name.encode()


def empties(count: int) -> Iterable[bytes]:
    return (empty(f"t{i}") for i in range(count))


def metadata(*texts: tuple[str, str]) -> bytes:
    return b'"__metadata__":{%b}' % b",".join(b'"%b":"%b"' % (k.encode(), v.encode()) for k, v in texts)


def grouped(count: int, settings: Callable[[int], dict[str, str]], factor: int = FACTOR) -> Iterable[bytes]:
    """Tensors, each with settings; one group each, or they would need rows."""
    texts = [("__replicationFactor", str(factor))]
    for i in range(count):
        found = {"__variableRetrievalMode": "OnePerGroup", **settings(i)}
        texts += [(f"t{i}/{key}", text) for key, text in found.items()]
    yield metadata(*texts)
    yield from empties(count)


def damaged(count: int) -> Iterable[bytes]:
    """Tensors of a file with the marks of popsr's and a wrong digest."""
    found = [("popsr.digest", "crc32-4mib:" + "0" * 64), ("popsr.version", "0.1.0")]
    settings = [(f"t{i}/{key}", text) for i in range(count) for key, text in all_replicas(i).items()]
    yield metadata(*found, ("__replicationFactor", "4"), *settings)
    yield from empties(count)


def one_group(_: int) -> dict[str, str]:
    return {"popsr.strideAndGroupSize": f"1,{FACTOR}"}


def all_replicas(_: int) -> dict[str, str]:
    return {"__commGroupType": "All", "__commGroupSize": "0", "__variableRetrievalMode": "OnePerGroup"}


def assignment(replicas: int) -> Callable[[int], dict[str, str]]:
    text = ",".join("0" * replicas)
    return lambda _: {"popsr.assignment": text}


def different_assignments(i: int) -> dict[str, str]:
    return {"popsr.assignment": ",".join(["0"] * 4096) + "," * (i + 1)}


def wide_names(count: int) -> Iterable[bytes]:
    """Four bytes in memory for each character, one in the file."""
    return (empty(f"\U0001f4a3{i:04}" + "x" * 4000) for i in range(count))


SAFETENSORS: dict[str, Row] = {
    "groups-of-100": (lambda: header(grouped(100, one_group)), "", False),
    "groups-of-300": (lambda: header(grouped(300, one_group)), "", False),
    "groups-of-20000": (lambda: header(grouped(20_000, one_group)), "", False),
    "groups-that-need-rows": (
        lambda: header(grouped(300, lambda i: {"popsr.strideAndGroupSize": f"{1 << i % 19},2"})),
        "no row per group",
        False,
    ),
    "assignment-of-500000": (lambda: header(grouped(1, assignment(500_000), 500_000)), "", False),
    "assignment-beyond": (
        lambda: header(grouped(1, assignment(FACTOR))),
        "too many bytes of metadata",
        False,
    ),
    "equal-assignments": (lambda: header(grouped(1000, assignment(4096), 4096)), "", False),
    "different-assignments": (
        lambda: header(grouped(200, different_assignments, 4096)),
        "too many bytes of metadata",
        False,
    ),
    "most-tensors": (lambda: header(empties(65_536)), "", False),
    "most-tensors-in-groups": (lambda: header(grouped(65_536, all_replicas)), "", False),
    "damaged-most-tensors": (lambda: header(damaged(65_536)), "is damaged", True),
    "more-tensors": (lambda: header(empties(65_537)), "too many tensors", False),
    "many-more-tensors": (lambda: header(empties(100_000)), "too many tensors", True),
    "million-tensors": (lambda: header(empties(10**6)), "too many bytes in its header", True),
    "empty-lists": (lambda: header([b'"x":[' + b"[]," * 5_000_000 + b"[]]"]), "wrong entry for 'x'", False),
    "empty-lists-beyond": (
        lambda: header([b'"x":[' + b"[]," * 31 * MB + b"[]]"]),
        "bytes in its header",
        True,
    ),
    "empty-objects": (lambda: header([b'"x":' + b"{}," * 5_000_000 + b"{}"]), "wrong entry for 'x'", False),
    "empty-texts": (lambda: header([b'"x":{"dtype":[' + b'"",' * 5_000_000 + b'""]}']), "wrong entry", False),
    "deep-lists": (lambda: header([b'"x":' + b"[" * 15 * MB]), "wrong entry for 'x'", False),
    "deep-objects": (lambda: header([b'"x":{' * 3_000_000]), "wrong entry for 'x'", False),
    "deep-shape": (
        lambda: header([b'"x":{"shape":' + b"[" * 2000 + b"]" * 2000 + b"}"]),
        "wrong entry",
        False,
    ),
    "spaces": (lambda: header([b" " * 15 * MB + empty("x")]), "", False),
    "spaces-inside": (lambda: header([b'"x":{' + b" " * 15 * MB + b"}"]), "wrong entry for 'x'", False),
    "long-name": (lambda: header([empty("x" * 15 * MB)]), "name is too long", False),
    "escaped-name": (lambda: header([empty("\\n" * 7 * MB)]), "name is too long", False),
    "half-escaped-name": (lambda: header([b'"' + b"\\" * 15 * MB]), "JSON object of tensors", False),
    "surrogates": (lambda: header([empty("\\ud800" * 600)]), "surrogates", False),
    "wide-names": (lambda: header(wide_names(3000)), "", False),
    "wider-names": (lambda: header(wide_names(4000)), "needs too much memory", False),
    "long-dtype": (lambda: header([empty("x").replace(b"U8", b"U" * 4000)]), "without arrays", False),
    "long-number": (
        lambda: header([empty("x").replace(b"[0]", b"[" + b"9" * 4000 + b"]")]),
        "absurd size",
        False,
    ),
    "longer-number": (lambda: header([b'"x":' + b"9" * 15 * MB]), "wrong entry for 'x'", False),
    "one-name": (lambda: header([empty("x")] * 60_000), "got 'x' twice", False),
    "metadata": (lambda: header([metadata(*((f"{i}", "") for i in range(170_000)))]), "", False),
    "metadata-beyond": (
        lambda: header([metadata(*((f"{i}", "") for i in range(250_000)))]),
        "too many bytes of metadata",
        False,
    ),
    "metadata-of-one-key": (lambda: header([metadata(*[("k", "v")] * 60_000)]), "got 'k' twice", False),
    "metadata-of-no-tensors": (
        lambda: header([metadata(*((f"t{i}/__commGroupType", "All") for i in range(400_000)))]),
        "needs too much memory",
        True,
    ),
    "long-metadata": (lambda: header([metadata(("k", "v" * 15 * MB))]), "too many bytes of metadata", False),
    "escaped-metadata": (
        lambda: header([metadata(("k", "\\n" * 7 * MB))]),
        "too many bytes of metadata",
        False,
    ),
    "lists-in-metadata": (
        lambda: header([b'"__metadata__":{"k":[' + b"[]," * 5_000_000]),
        "wrong metadata",
        False,
    ),
    "metadata-twice": (lambda: header([metadata(), metadata()]), "'__metadata__' twice", False),
    "step": (lambda: header([metadata(("popsr.step", "9" * MB))]), "is damaged", False),
}


def sparse(path: Path) -> None:
    """A terabyte that takes no room on the disk."""
    size = 1 << 40
    path.write_bytes(header([b'"x":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}' % (size, size)]))
    os.truncate(path, path.stat().st_size + size)


# ONNX


def varint(value: int) -> bytes:
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*result, value])


def field(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def entry(key: str, value: str) -> bytes:
    return field(1, key.encode()) + field(2, value.encode())


def tensor(name: str, *fields: bytes, code: int = 2, dims: bytes = b"\x08\x00") -> bytes:
    """An initializer of uint8 without elements."""
    return field(5, dims + b"\x10" + varint(code) + field(8, name.encode()) + b"".join(fields))


def model(*graph: bytes, props: bytes = b"", rest: bytes = b"") -> bytes:
    return b"\x08\x0a" + props + field(7, b"".join(graph)) + rest


def tensors(count: int) -> bytes:
    return b"".join(tensor(f"t{i}") for i in range(count))


def numbers(count: int, data: bytes, code: int = 7, number: int = 7) -> bytes:
    """A tensor of int64 whose data is varints."""
    return tensor("x", field(number, data), code=code, dims=b"\x08" + varint(count))


def in_groups(count: int) -> bytes:
    texts = (
        field(16, entry("popsr.strideAndGroupSize", f"1,{FACTOR}")),
        field(16, entry("__variableRetrievalMode", "OnePerGroup")),
    )
    return b"".join(tensor(f"t{i}", *texts) for i in range(count))


FACTOR_ENTRY = field(14, entry("__replicationFactor", str(FACTOR)))
EXTERNAL = b"\x70\x01"  # data_location

ONNX: dict[str, Row] = {
    "groups-of-300": (lambda: model(in_groups(300), props=FACTOR_ENTRY), "", False),
    "groups-of-20000": (lambda: model(in_groups(20_000), props=FACTOR_ENTRY), "", False),
    "most-tensors": (lambda: model(tensors(65_536)), "", False),
    "more-tensors": (lambda: model(tensors(65_537)), "too many tensors", False),
    "many-more-tensors": (lambda: model(tensors(100_000)), "too many tensors", True),
    "million-tensors": (lambda: model(tensors(10**6)), "too many tensors", True),
    "unknown-fields": (lambda: model(rest=b"\x7a\x00" * 5 * MB), "too many protobuf fields", True),
    "unknown-fields-beyond": (
        lambda: model(rest=b"\x7a\x00" * 30 * MB),
        "too many protobuf fields",
        True,
    ),
    "unknown-numbers": (lambda: model(rest=b"\x78\x00" * 5 * MB), "too many protobuf fields", True),
    "long-numbers": (lambda: model(rest=b"\x78" + b"\x80" * 9 * MB), "no end of the number", False),
    "nodes": (lambda: model(b"\x0a\x00" * 5 * MB), "too many protobuf fields", True),
    "fields-of-a-tensor": (
        lambda: model(tensor("x", b"\x62\x00" * 5 * MB)),
        "too many protobuf fields",
        False,
    ),
    "groups": (lambda: model(tensor("x", b"\x0b" * 5 * MB)), "wire type 3", False),
    "properties": (
        lambda: model(rest=b"".join(field(14, entry(f"{i}", "")) for i in range(250_000))),
        "too many bytes of metadata",
        True,
    ),
    "properties-of-a-tensor": (
        lambda: model(tensor("x", b"".join(field(16, entry(f"{i}", "")) for i in range(250_000)))),
        "too many bytes of metadata",
        False,
    ),
    "properties-without-key": (lambda: model(rest=field(14, b"") * 2 * MB), "got '' twice", False),
    "long-property": (lambda: model(rest=field(14, entry("k", "v" * 15 * MB))), "bytes of metadata", False),
    "fields-of-a-property": (
        lambda: model(rest=field(14, b"\x1a\x00" * 500_000)),
        "not a key and a value",
        False,
    ),
    "unpacked-dims": (lambda: model(tensor("x", dims=b"\x08\x01" * 5 * MB)), "absurd size", False),
    "packed-dims": (lambda: model(tensor("x", dims=field(1, b"\x01" * 10 * MB))), "of a wrong type", False),
    "long-name": (lambda: model(tensor("x" * 15 * MB)), "name is too long", False),
    "long-producer": (lambda: model(rest=field(2, b"p" * 15 * MB)), "producer_name that is too long", False),
    "names-of-a-tensor": (lambda: model(tensor("x", field(8, b"y") * 2 * MB)), "name twice", False),
    "empty-strings": (
        lambda: model(tensor("x", b"\x32\x00" * 5 * MB, code=8)),
        "too many protobuf fields",
        True,
    ),
    "external-entries": (
        lambda: model(tensor("x", EXTERNAL, field(13, entry("offset", "0")) * MB)),
        "wrong entry of external data",
        False,
    ),
    "long-location": (
        lambda: model(tensor("x", EXTERNAL, field(13, entry("location", "x" * 15 * MB)))),
        "wrong entry of external data",
        False,
    ),
    "many-locations": (
        lambda: model(
            *(tensor(f"t{i}", EXTERNAL, field(13, entry("location", f"x{i}"))) for i in range(20_000))
        ),
        "No such file",
        False,
    ),
    "short-numbers": (lambda: model(numbers(4 * MB, b"\x01" * 4 * MB)), "", False),
    "short-numbers-beyond": (
        lambda: model(numbers(12 * MB, b"\x01" * 12 * MB)),
        "needs too much memory",
        False,
    ),
    "negative-numbers": (lambda: model(numbers(MB, (b"\xff" * 9 + b"\x01") * MB)), "", False),
    "uneven-numbers": (lambda: model(numbers(6 * MB, b"\x01\x81\x01" * 3 * MB)), "", False),
    "more-numbers": (lambda: model(numbers(2, b"\x01" * 15 * MB)), "wrong size", False),
    "unpacked-numbers": (
        lambda: model(tensor("x", b"\x38\x01" * 5 * MB)),
        "int64_data twice or of a wrong",
        False,
    ),
    "endless-number": (lambda: model(numbers(1, b"\x80" * 15 * MB)), "without an end", False),
}


def far_away(path: Path) -> None:
    """Eight bytes at the end of a terabyte that takes no room on the disk."""
    size = 1 << 40
    (path.parent / "data.bin").touch()
    os.truncate(path.parent / "data.bin", size)
    place = field(13, entry("location", "data.bin")) + field(13, entry("offset", str(size - 8)))
    path.write_bytes(model(tensor("x", EXTERNAL, place, dims=b"\x08\x08")))


def bomb(suffix: str, content: Callable[[], bytes], match: str, is_slow: bool) -> Bomb:
    def make(path: Path) -> None:
        path.write_bytes(content())

    return Bomb(suffix, make, match, is_slow)


BOMBS = {
    **{f"safetensors-{name}": bomb(".safetensors", *row) for name, row in SAFETENSORS.items()},
    **{f"onnx-{name}": bomb(".onnx", *row) for name, row in ONNX.items()},
    "safetensors-sparse": Bomb(".safetensors", sparse, "does not fit into memory"),
    "onnx-far-away": Bomb(".onnx", far_away, ""),
}


# Measuring


def measure(names: list[str], folder: str) -> None:
    """Load the files of rows in processes of their own, and print what it took."""
    from popsr import io
    from tests_py.checkpoints.cases import small_program

    loads: dict[str, Callable[[Path], Any]] = {".onnx": io.load_onnx, ".safetensors": io.load_safetensors}
    program = small_program()
    for suffix, load in loads.items():  # modules loaded once do not count for a row
        path = Path(folder, f"warm{suffix}")
        (io.save_onnx if suffix == ".onnx" else io.save_safetensors)(program.ir, path)
        load(path)
    session = program.session()
    for name in names:
        bomb = BOMBS[name]
        path = Path(folder, f"bomb{bomb.suffix}")
        in_child(lambda: bomb.make(path))  # noqa: B023 - called at once
        for what, call in {
            "load": lambda: len(loads[bomb.suffix](path)),  # noqa: B023
            "reset": lambda: session.reset_host_weights(path),  # noqa: B023
        }.items():
            found = in_child(lambda: outcome(path.stat().st_size, call))  # noqa: B023
            print(json.dumps({"name": name, "what": what, **found}), flush=True)
        for file in Path(folder).glob("*"):
            if not file.name.startswith("warm"):
                file.unlink()
