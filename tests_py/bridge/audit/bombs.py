"""Small files and names that ask an audit, or ``load_torch``, for much."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests_py.support.limits import Row

RANKS = 1 << 20
PROTO = b"\x80\x04"
METADATA = "torch.distributed.checkpoint.metadata"


def safetensors(names: Iterable[str] = ("w",), value: int = 0) -> bytes:
    """Tensors of a byte."""
    entries = {n: {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i, n in enumerate(names)}
    header = json.dumps(entries).encode()
    return len(header).to_bytes(8, "little") + header + bytes([value]) * len(entries)


def put(path: Path, data: bytes | str) -> None:
    """Write a file and its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)


def audit(path: Path, groups: Any = "all", **options: Any) -> None:
    """Audit a folder; what is damaged is the error."""
    import popsr.bridge.audit

    report = popsr.bridge.audit.audit(path, groups, **options)
    if report.damaged:
        raise popsr.errors.CheckpointError(report.damaged[0])


# Ranks in names and logs


def of_rank(*ranks: object, names: Iterable[str] = ("w",)) -> Callable[[Path], None]:
    """Folders of ranks, whose tensors differ."""

    def make(path: Path) -> None:
        for i, rank in enumerate(ranks):
            put(path / f"rank_{rank}/m.safetensors", safetensors(names, i))

    return make


def log(*lines: dict[str, Any]) -> Callable[[Path], None]:
    """A log of hashes."""
    return lambda path: put(path / "a.jsonl", "".join(json.dumps(each) + "\n" for each in lines))


def entry(rank: int, step: int = 0, name: str = "w", text: str = "a") -> dict[str, Any]:
    """A line of a log."""
    return {"step": step, "rank": rank, "name": name, "hash": text}


def audit_log(path: Path, groups: Any = "all") -> None:
    """Audit the logs of a folder."""
    import popsr.bridge.audit

    popsr.bridge.audit.audit_log(path, groups)


def zeros(path: Path) -> Path:
    """A name of a device without an end."""
    path.symlink_to("/dev/zero")
    return path


def fifo(name: str) -> Callable[[Path], None]:
    """A FIFO that nobody writes to, beside two ranks."""

    def make(path: Path) -> None:
        of_rank(0, 1)(path)
        os.mkfifo(path / name)

    return make


def groups_file(name: str, text: str) -> Row:
    """A file of groups of two equal ranks; what is read of it declares nothing for w."""

    def make(path: Path) -> None:
        for rank in range(2):
            put(path / f"rank_{rank}/m.safetensors", safetensors())
        put(path / name, text)

    return Row(make, lambda path: audit(path, str(path / name)), "")


def towers(form: str, levels: int) -> str:
    """Values of YAML that have the one before twice."""
    return "a0: &a0 {stride: 1}\n" + "".join(
        f"a{i}: &a{i} {form.format(a=f'*a{i - 1}')}\n" for i in range(1, levels)
    )


MANY = [f"w{i}" for i in range(2000)]
NAMES: dict[str, Row] = {
    "rank-of-1e8": Row(of_rank(100_000_000), audit, "too many ranks, got rank 100000000"),
    "rank-of-30-digits": Row(of_rank("9" * 30), audit, "too many ranks, got rank 2**64 or more"),
    "rank-beyond": Row(of_rank(RANKS), audit, f"expected at most {RANKS} ranks"),
    "last-rank": Row(of_rank(0, RANKS - 1), audit, ""),
    "last-rank-of-many": Row(of_rank(0, RANKS - 1, names=MANY), audit, ""),
    "last-rank-in-groups": Row(
        of_rank(0, RANKS - 1, names=MANY), lambda p: audit(p, {"*": {"stride": RANKS // 2}}), ""
    ),
    "last-rank-alone": Row(of_rank(0, RANKS - 1, names=MANY), lambda p: audit(p, "none"), ""),
    "ranks-of-1e9": Row(of_rank(0, 1), lambda p: audit(p, ranks=10**9), "expected an int from 2 to 1048576"),
    "ranks-of-many": Row(of_rank(0, 1), lambda p: audit(p, ranks=RANKS), ""),
    "stride-of-1e30": Row(of_rank(0, 1), lambda p: audit(p, {"*": {"stride": 10**30}}), "wrong groups"),
    "sets-of-digits": Row(of_rank(0, 1), lambda p: audit(p, "{0," + "9" * 5000 + "}"), "not a group"),
    "many-differ": Row(of_rank(*range(200)), audit, ""),
    "log-rank": Row(log(entry((1 << 24) - 1)), audit_log, "has a wrong line 1"),
    "log-rank-of-digits": Row(
        lambda path: put(path / "a.jsonl", '{"step": 0, "rank": ' + "9" * 6000),
        audit_log,
        "has a wrong line 1",
    ),
    "log-nested": Row(lambda path: put(path / "a.jsonl", "[" * 60_000), audit_log, "has a wrong line 1"),
    "log-of-steps": Row(
        log(*(entry(r, s, f"w{s}", str(r)) for s in range(2000) for r in (0, RANKS - 1))), audit_log, ""
    ),
    "log-lacks": Row(log(*(entry(r, 0, f"w{r}") for r in range(1500))), audit_log, ""),
    "fifo-log": Row(fifo("a.jsonl"), audit_log, "got a FIFO, expected a file"),
    "fifo-groups": Row(fifo("g.json"), lambda p: audit(p, str(p / "g.json")), "got a FIFO, expected a file"),
    "fifo-file": Row(fifo("rank_2.safetensors"), audit, ""),
    "device-groups": Row(
        lambda path: (of_rank(0, 1)(path), zeros(path / "g.yaml")),
        lambda path: audit(path, str(path / "g.yaml")),
        "got a device, expected a file",
    ),
    "device-log": Row(lambda path: zeros(path / "a.jsonl"), audit_log, "got a device, expected a file"),
    "device-file": Row(lambda path: (of_rank(0)(path), zeros(path / "rank_1.safetensors")), audit, ""),
    "pattern": Row(of_rank(0, 1), lambda p: audit(p / "**x/{rank}.pt"), "wrong pattern of files"),
    "json-deep": groups_file("g.json", "[" * 500_000)._replace(match="cannot be read"),
    "json-long": groups_file("g.json", " " * (2 << 20))._replace(match="is too long"),
    "json-number": groups_file("g.json", '{"w":{"size":' + "9" * 4000 + "}}")._replace(match="wrong groups"),
    "yaml-merge": groups_file("g.yaml", towers("{{<<: [{a},{a}]}}", 40)),
    "yaml-alias": groups_file("g.yaml", towers("{{stride: {a}, size: {a}}}", 60)),
    "yaml-deep": groups_file("g.yaml", "[" * 65_000)._replace(match="cannot be read"),
    "yaml-long": groups_file("g.yaml", "a: all\n" * 9000),
    "yaml-longer": groups_file("g.yaml", "a: all\n" * 10_000)._replace(match="is too long"),
    "yaml-number": groups_file("g.yaml", "w: {stride: " + "9:" * 30_000 + "9}")._replace(
        match="wrong groups"
    ),
}


# Pickles


def text(value: str) -> bytes:
    """A text of a pickle."""
    return b"X" + len(value.encode()).to_bytes(4, "little") + value.encode()


def tower(levels: int) -> bytes:
    """A tuple that has the one before twice, by DUP; hashing it takes 2^levels steps."""
    return b"K\x01" + b"2\x86" * levels


def memo_tower(levels: int) -> bytes:
    """Tower by the memo, for a reader without DUP; all but the last are in a list that is dropped."""
    steps = b"".join(b"h%ch%c\x86q%c0" % (i, i, i + 1) for i in range(levels))
    return b"K\x01q\x000" + steps + b"h%c" % levels


def named(module: str, name: str) -> bytes:
    """A global."""
    return f"c{module}\n{name}\n".encode()


def dict_of(*pairs: tuple[bytes, bytes]) -> bytes:
    """A dict."""
    return b"}(" + b"".join(key + value for key, value in pairs) + b"u"


def record(name: str, state: bytes, module: str = METADATA) -> bytes:
    """An object with a state."""
    return named(module, name) + b")\x81" + state + b"b"


def size_of(*extents: int) -> bytes:
    """A Size."""
    return named("torch", "Size") + b"(" + b"".join(map(number, extents)) + b"t\x85R"


def number(value: int) -> bytes:
    """A number of any size."""
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def checkpoint(
    shape: tuple[int, ...],
    chunks: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
    span: tuple[int, int] = (0, 1),
    index: Callable[[tuple[int, ...]], bytes] = lambda at: size_of(*at),
    extra: bytes = b"",
) -> bytes:
    """Metadata of a tensor w, with a range for each of its chunks."""
    properties = record("TensorProperties", b"(" + named("torch", "uint8") + b"t")
    parts = (
        b"]("
        + b"".join(
            record(
                "ChunkStorageMetadata",
                dict_of((text("offsets"), size_of(*at)), (text("sizes"), size_of(*size))),
            )
            for at, size in chunks
        )
        + b"e"
    )
    tensor = dict_of(
        (text("properties"), properties), (text("size"), size_of(*shape)), (text("chunks"), parts)
    )
    info = record(
        "_StorageInfo",
        dict_of(
            (text("relative_path"), text("__0_0.distcp")),
            (text("offset"), number(span[0])),
            (text("length"), number(span[1])),
        ),
        "torch.distributed.checkpoint.filesystem",
    )
    stored = [
        (record("MetadataIndex", dict_of((text("fqn"), text("w")), (text("offset"), index(at)))), info)
        for at, _ in chunks
    ]
    whole = dict_of(
        (text("state_dict_metadata"), dict_of((text("w"), record("TensorStorageMetadata", tensor)))),
        (text("storage_data"), dict_of(*stored)),
    )
    return PROTO + extra + record("Metadata", whole) + b"."


def distributed(data: Callable[[], bytes], match: str) -> Row:
    """The metadata of two ranks."""

    def make(path: Path) -> None:
        for rank in range(2):
            put(path / f"rank_{rank}/.metadata", data())
            put(path / f"rank_{rank}/__0_0.distcp", b"x")

    return Row(make, audit, match)


def hashes_that_collide(count: int) -> bytes:
    """Numbers of one hash as keys of a dict."""
    prime = (1 << 61) - 1
    return PROTO + dict_of(*((number(i * prime), b"N") for i in range(count))) + b"."


LONE = [((0,), (1,))]
DISTRIBUTED: dict[str, Row] = {
    "key": distributed(lambda: PROTO + b"}" + tower(45) + b"K\x02s.", "got dict, expected Metadata"),
    "set": distributed(lambda: PROTO + b"\x8f(" + tower(45) + b"\x90.", "got list, expected Metadata"),
    "frozenset": distributed(lambda: PROTO + b"(" + tower(45) + b"\x91.", "got list, expected Metadata"),
    "builtins-set": distributed(
        lambda: PROTO + named("builtins", "set") + b"(](" + tower(45) + b"etR.", "got set, expected Metadata"
    ),
    "ordered-dict": distributed(
        lambda: PROTO + named("collections", "OrderedDict") + b"](" + tower(45) + b"K\x02\x86e\x85R.",
        "got OrderedDict, expected Metadata",
    ),
    "colliding-keys": distributed(lambda: hashes_that_collide(40_000), "got dict, expected Metadata"),
    "lists": distributed(lambda: PROTO + b"]" * 1_500_000 + b".", "opcodes"),
    "marks": distributed(lambda: PROTO + b"(" * 1_500_000 + b".", "opcodes"),
    "nested-lists": distributed(
        lambda: PROTO + b"]" + b"](" * 100_000 + b"e" * 100_000 + b".", "got list, expected Metadata"
    ),
    "memo-index": distributed(lambda: PROTO + b"Nr\xff\xff\xff\x7f.", "got NoneType, expected Metadata"),
    "long-number": distributed(lambda: PROTO + b"\x8b\xff\xff\xff\x7f1.", "damaged"),
    "long-decimal": distributed(lambda: PROTO + b"L" + b"9" * 500_000 + b"L\n.", "damaged"),
    "long-text": distributed(lambda: PROTO + b"\x8d" + b"\xff" * 7 + b"\x7fx.", "damaged"),
    "long-frame": distributed(lambda: PROTO + b"\x95" + b"\xff" * 7 + b"\x7fN.", "expected Metadata"),
    "many-dimensions": distributed(lambda: checkpoint((1,) * 1000, []), "as a size, expected at most 32"),
    "huge-size": distributed(lambda: checkpoint((1 << 61, 1 << 61), []), "absurd size"),
    "size": distributed(lambda: checkpoint((1 << 40,), [((0,), (1 << 40,))]), "claims more than it has"),
    "offset": distributed(lambda: checkpoint((1,), LONE, (1 << 50, 1)), "is cut off"),
    "length": distributed(lambda: checkpoint((1,), LONE, (0, 1 << 50)), "is cut off"),
    "size-of-towers": distributed(lambda: checkpoint((1,), LONE, index=lambda _: tower(45)), "a wrong size"),
    "ranges": distributed(lambda: checkpoint((2000,), [((i,), (1,)) for i in range(2000)]), "overlap"),
    "unread-tower": distributed(lambda: checkpoint((1,), LONE, extra=tower(45) + b"0"), "is damaged at 'w'"),
}


def weights(pickled: bytes, *, compressed: bool = False) -> bytes:
    """A file of torch.save whose pickle is another one."""
    import torch

    made, result = io.BytesIO(), io.BytesIO()
    torch.save({"w": torch.ones(4)}, made)
    kind = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(made) as old, zipfile.ZipFile(result, "w") as new:
        for each in old.namelist():
            own = each.endswith("data.pkl") and pickled
            new.writestr(each, pickled if own else old.read(each), kind)
    return result.getvalue()


def saved(**values: Callable[[], Any]) -> bytes:
    """A file of torch.save."""
    import torch

    made = io.BytesIO()
    torch.save({name: make() for name, make in values.items()}, made)
    return made.getvalue()


def expanded(*shape: int) -> Callable[[], Any]:
    """A tensor of one element that is expanded."""
    import torch

    return lambda: torch.ones(1).expand(shape)


def shared(count: int, elements: int) -> Callable[[], Any]:
    """Tensors of one storage."""
    import torch

    return lambda: [torch.zeros(elements)] * count


def lists(levels: int) -> bytes:
    """Lists that have the one before twice."""
    steps = b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(levels))
    return b"\x80\x02](]q\x00" + steps + b"e."


def legacy(value: bytes) -> bytes:
    """A file of torch.save before zip archives."""
    magic = (0x1950A86A20F9469CFC6C).to_bytes(10, "little")
    return b"\x80\x02\x8a\x0a" + magic + b".\x80\x02M\xe9\x03.\x80\x02}.\x80\x02" + value + b".\x80\x02]."


def load_torch(path: Path) -> None:
    """Load the file of the first rank."""
    import popsr

    popsr.io.load_torch(path / "rank_0/m.pt")


PICKLES: dict[str, tuple[Callable[[], bytes], str]] = {
    "key": (lambda: weights(b"\x80\x02}" + memo_tower(45) + b"K\x02s."), "a nested tuple as a key"),
    "key-of-ordered-dict": (
        lambda: weights(
            b"\x80\x02" + named("collections", "OrderedDict") + b"](" + memo_tower(45) + b"K\x02\x86e\x85R."
        ),
        "its pickle has",
    ),
    "storage-key": (
        lambda: weights(
            b"\x80\x02("
            + text("storage")
            + named("torch", "FloatStorage")
            + memo_tower(45)
            + text("cpu")
            + b"K\x04tQ."
        ),
        "its pickle has",
    ),
    "legacy-key": (lambda: legacy(b"}" + memo_tower(45) + b"K\x02s"), "a nested tuple as a key"),
    "colliding-keys": (lambda: weights(b"\x80\x02" + hashes_that_collide(40_000)[2:]), "its pickle has"),
    "lists": (lambda: weights(lists(30)), "too many values"),
    "bytearray": (
        lambda: weights(b"\x80\x02" + named("builtins", "bytearray") + b"J\xff\xff\xff\x7f\x85R."),
        "a bytearray of a number",
    ),
    "opcodes": (lambda: weights(b"\x80\x02" + b"]" * 1_500_000 + b"."), "opcodes"),
    "compressed": (lambda: weights(b"", compressed=True), "has a compressed record"),
    "zip-bomb": (
        lambda: weights(b"\x80\x02" + b"N" * 50_000_000, compressed=True),
        "has a compressed record",
    ),
    "expanded": (lambda: saved(w=expanded(1 << 29)), "needs too much memory"),
    "expanded-in-dimensions": (lambda: saved(w=expanded(1 << 15, 1 << 14)), "needs too much memory"),
    "expanded-little": (lambda: saved(w=expanded(1 << 20)), ""),
    "shared": (lambda: saved(w=shared(2000, 50_000)), "needs too much memory"),
}


def both(name: str, make: Callable[[], bytes], match: str) -> dict[str, Row]:
    """A file of PyTorch, for an audit of two ranks and for ``load_torch``."""

    def write(path: Path) -> None:
        data = make()
        for rank in range(2):
            put(path / f"rank_{rank}/m.pt", data)

    return {f"audit-{name}": Row(write, audit, match), f"load-{name}": Row(write, load_torch, match)}


def zero_of_many(vectors: int, shapes: int) -> Callable[[Path], None]:
    """A checkpoint of ZeRO-3 whose parameters and vectors are many and small."""

    def make(path: Path) -> None:
        import torch

        one = torch.ones(vectors)
        inner = {"zero_stage": 3, "fp32_flat_groups": [one[i : i + 1] for i in range(vectors)]}
        put(path / "zero_pp_rank_0_mp_rank_00_optim_states.pt", saved(optimizer_state_dict=lambda: inner))
        model = {f"w{i}": (1,) for i in range(shapes)}
        put(path / "zero_pp_rank_0_mp_rank_00_model_states.pt", saved(param_shapes=lambda: [model]))

    return make


def between(path: Path) -> None:
    """Compare a folder with itself, assembled; what is damaged is the error."""
    import popsr.bridge.audit

    report = popsr.bridge.audit.between(path, path, whole=True)
    if report.damaged:
        raise popsr.errors.CheckpointError(report.damaged[0])


SHARDS: dict[str, Row] = {
    "zero-of-many": Row(zero_of_many(8_000, 8_000), between, ""),
    "zero-of-too-many": Row(zero_of_many(100, 70_000), between, "has too many tensors"),
}


ROWS: dict[str, Row] = {
    **NAMES,
    **SHARDS,
    **{f"distributed-{name}": row for name, row in DISTRIBUTED.items()},
    **{key: row for name, (make, match) in PICKLES.items() for key, row in both(name, make, match).items()},
}
