"""Rows of the table of ops for what moves between replicas: inputs have a row a replica, of four."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import popsr
from tests_py.ops.rows.inputs import Case, Facts, Row, facts_by_group, normal, small, special
from tests_py.support.helpers import ALL_DTYPES, INTS, NUMBERS, Array
from tests_py.support.oracles import ops as oracles

GROUPS = ((1, 4), (1, 2), (2, 2), (1, 1))
Members = list[list[int]]

# Facts by grouping, then by the input's. Members of a group get one value; so do groups whose members agree in order.
SHARED = facts_by_group(
    {
        (1, 4): {"0000": "0000", "0011": "0000", "0101": "0000", "0123": "0000"},
        (1, 2): {"0000": "0000", "0011": "0011", "0101": "0000", "0123": "0011"},
        (2, 2): {"0000": "0000", "0011": "0000", "0101": "0101", "0123": "0101"},
        (1, 1): {"0000": "0000", "0011": "0011", "0101": "0101", "0123": "0123"},
    }
)
# Each member gets a value of its own; members with one index agree where their groups agree in order.
BY_INDEX = facts_by_group(
    {
        (1, 4): {"0000": "0123", "0011": "0123", "0101": "0123", "0123": "0123"},
        (1, 2): {"0000": "0101", "0011": "0123", "0101": "0101", "0123": "0123"},
        (2, 2): {"0000": "0011", "0011": "0011", "0101": "0123", "0123": "0123"},
        (1, 1): {"0000": "0000", "0011": "0011", "0101": "0101", "0123": "0123"},
    }
)


def groups(
    oracle: Callable[..., Any],
    shape: tuple[int, ...],
    attrs: dict[str, Any],
    label: str,
    dtypes: Any,
    **options: Any,
) -> list[Case]:
    """A case for each grouping."""
    draw = normal((4, *shape))
    return [Case(draw, oracle, attrs, f"{label}{g}", dtypes, group=g, **options) for g in GROUPS]


def _by_replica(t: Array, members: Members, value: Callable[[list[int], int], Array]) -> Array:
    """Rows value(group, index of the replica in it)."""
    rows: list[Any] = [None] * len(t)
    for group in members:
        for k, replica in enumerate(group):
            rows[replica] = value(group, k)
    return np.stack(rows)


def _last(t: Array, members: Members) -> Array:
    return _by_replica(t, members, lambda group, _: t[group[-1]])


def _first(t: Array, members: Members, root: int = 0) -> Array:
    return _by_replica(t, members, lambda group, _: t[group[root]])


def _from_last(fn: Any, t: popsr.Tensor, group: Any = None) -> popsr.Tensor:
    size = t.ir.replication_factor if group is None else group.group_size
    return fn(t, size - 1, group)


def _broadcast() -> Row:
    return Row(
        (
            *groups(_first, (2, 3), {}, "", ALL_DTYPES),
            *groups(_last, (2, 3), {}, "last", ALL_DTYPES, call=_from_last, smooth=True),
            *groups(_first, (), {"root": 0}, "scalar", ("float32", "int8")),
            *groups(_last, (0, 3), {}, "empty", ("float32",), call=_from_last),
        ),
        "finite",
        replicas=SHARED,
    )


def _all_to_all(t: Array, members: Members, axis: int = 0) -> Array:
    def value(group: list[int], k: int) -> Array:
        return np.concatenate([np.split(t[r], len(group), axis)[k] for r in group], axis)

    return _by_replica(t, members, value)


def _part(t: Array, members: Members, axis: int = 0) -> Array:
    return _by_replica(t, members, lambda group, k: np.split(t[group[k]], len(group), axis)[k])


def _along_an_axis(oracle: Callable[..., Any], grad: Any) -> Row:
    smooth = {"smooth": grad == "finite"}
    return Row(
        (
            *groups(oracle, (24, 3), {}, "", ALL_DTYPES),
            *groups(oracle, (2, 24, 3), {"axis": 1}, "middle", ("float64", "int8"), **smooth),
            *groups(oracle, (2, 24), {"axis": -1}, "minus-one", ("bfloat16",)),
            *groups(oracle, (0, 24), {"axis": 1}, "no-rows", ("float32",)),
            *groups(oracle, (0, 2), {}, "empty", ("float32",)),
        ),
        grad,
        replicas=BY_INDEX,
    )


def _shard(t: Array, members: Members) -> Array:
    def value(group: list[int], k: int) -> Array:
        flat = t[group[k]].reshape(-1)
        chunk = -(-flat.size // len(group))
        padded = np.concatenate([flat, np.zeros(chunk * len(group) - flat.size, flat.dtype)])
        return padded[k * chunk : (k + 1) * chunk]

    return _by_replica(t, members, value)


def _sharded_slice() -> Row:
    return Row(
        (
            *groups(_shard, (3, 3), {}, "", ALL_DTYPES),
            *groups(_shard, (2, 4), {}, "even", ("float32",)),
            *groups(_shard, (1,), {}, "one", ("float16", "int64")),
            *groups(_shard, (), {}, "scalar", ("float32",)),
            *groups(_shard, (0, 3), {}, "empty", ("float32",)),
        ),
        "stated",
        replicas=BY_INDEX,
    )


def _sends(destinations: Callable[[int, int], int | None], form: Callable[[list[Any]], Any]) -> Any:
    def call(fn: Any, t: popsr.Tensor, group: Any = None) -> popsr.Tensor:
        n = t.ir.replication_factor
        return fn(t, form([destinations(r, n) for r in range(n)]))

    return call


def _received(sources: list[int | None]) -> Callable[..., Array]:
    def oracle(t: Array, members: Members) -> Array:
        return np.stack([np.zeros_like(t[0]) if s is None else t[s] for s in sources])

    return oracle


def _as_pairs(destinations: list[Any]) -> list[tuple[int, int]]:
    return [(source, to) for source, to in enumerate(destinations) if to is not None]


def _permute() -> Row:
    def one(r: int, n: int) -> int:
        return (r + 1) % n

    def half(r: int, n: int) -> int | None:
        return n - 1 - r // 2 if r % 2 == 0 else None

    shifted, halved = _received([3, 0, 1, 2]), _received([None, None, 2, 0])
    back = _received([3, 2, 1, 0])

    def case(
        oracle: Any,
        call: Any,
        label: str,
        dtypes: Any = ("float64", "bool"),
        shape: tuple[int, ...] = (2, 3),
        **options: Any,
    ) -> Case:
        return Case(normal((4, *shape)), oracle, {}, label, dtypes, group=(1, 4), call=call, **options)

    nothing_for_two = case(halved, _sends(half, list), "half", smooth=True)
    return Row(
        (
            case(shifted, _sends(one, list), "", ALL_DTYPES, smooth=True),
            nothing_for_two,
            case(halved, _sends(half, _as_pairs), "pairs", smooth=True),
            case(halved, _sends(half, lambda d: dict(_as_pairs(d))), "mapping", shape=()),
            case(back, _sends(lambda r, n: n - 1 - r, tuple), "empty", ("float32",), (0, 2)),
            case(_received([None] * 4), _sends(lambda r, n: -1, list), "nobody"),
            case(_received([None] * 4), _sends(lambda r, n: None, _as_pairs), "no-pairs"),
        ),
        "finite",
        # Replica r sends to r + 1; where nothing arrives, replicas hold zeros.
        replicas=(
            *(Facts((t,), out) for t, out in (("0000", "0000"), ("0011", "0110"), ("0101", "0101"))),
            *(
                Facts((t,), out, case=nothing_for_two, label=f"{t}-nothing-for-two")
                for t, out in (("0000", "0011"), ("0101", "0011"), ("0011", "0012"), ("0123", "0012"))
            ),
        ),
    )


def _same(t: Array, members: Members, op: str = "add") -> Array:
    return t


def _between_replicas() -> dict[str, Row]:
    def row(oracle: Callable[..., Any], replicas: tuple[Facts, ...] = ()) -> Row:
        return Row(
            (*groups(oracle, (300,), {}, "", NUMBERS), *groups(oracle, (), {"op": "add"}, "scalar", NUMBERS)),
            "stated",
            replicas=replicas,
        )

    return {
        "replicated_all_reduce_identical_inputs": row(_same),
        "replicated_all_reduce_identical_grad_inputs": row(oracles.all_reduce, SHARED),
    }


def _folded(*ts: Array, op: str = "add") -> tuple[Array, ...]:
    return (oracles.fold(np.stack(ts), op),) * len(ts)


def _copied(*ts: Array, op: str = "add") -> tuple[Array, ...]:
    return ts


def _listed(fn: Any, *ts: popsr.Tensor, **attrs: Any) -> Any:
    return fn(list(ts), ipus=range(len(ts)), **attrs)


def _of_tensors(oracle: Any, reductions: tuple[str, ...]) -> Row:
    cases = [
        Case(
            normal(*[(300,)] * count),
            oracle,
            {"op": op},
            f"{op}-{count}",
            (*INTS, "bool") if op in ("and", "or") else NUMBERS,
            call=_listed,
        )
        for op in reductions
        for count in (1, 3)
    ]
    cases.append(Case(normal(*[(2, 0)] * 2), oracle, {}, "empty", ("float32",), call=_listed))
    cases.append(Case(normal(*[()] * 20), oracle, {}, "many", ("bfloat16",), call=_listed))
    if "max" in reductions:
        cases.append(Case(special(2), oracle, {"op": "max"}, "special", call=_listed))
    cases.append(Case(small((2,), (2,)), oracle, {}, "exact", NUMBERS, call=_listed))
    return Row(tuple(cases), "stated", listed=True)


def _index(members: Members, what: str = "index", dtype: str = "uint32") -> Array:
    places = {r: (k, i) for k, group in enumerate(members) for i, r in enumerate(group)}
    return np.array([places[r][what == "index"] for r in sorted(places)], dtype)


def _replica_index() -> Row:
    cases = [
        Case(lambda *_: [], _index, {"what": what, "dtype": name}, f"{what}{g}", (name,), group=g)
        for what in ("index", "group")
        for name in ("int32", "uint32")
        for g in GROUPS
    ]
    cases.append(Case(lambda *_: [], _index, {}, "default", ("uint32",), group=(1, 4)))
    by_group = {"index": ("0123", "0101", "0011", "0000"), "group": ("0000", "0011", "0101", "0123")}
    replicas = [
        Facts((), out, group, case=case, label=f"{what}-of-groups-{group}")
        for what, outs in by_group.items()
        for case in [None if what == "index" else cases[8]]
        for group, out in zip(GROUPS, outs, strict=True)
    ]
    return Row(
        tuple(cases),
        "nothing",
        gives=("int32", "uint32"),
        defaults={"dtype": popsr.uint32},
        replicas=tuple(replicas),
    )


def _scanned(t: Array, members: Members, op: str = "add") -> Array:
    return _by_replica(t, members, lambda group, k: oracles.fold(t[group[: k + 1]], op))


def _reduced_and_gathered() -> dict[str, Row]:
    reduced = [
        case
        for op in oracles.STEPS
        for case in groups(
            oracles.all_reduce, (300,), {"op": op}, op, (*INTS, "bool") if op in ("and", "or") else NUMBERS
        )
    ]
    gathered = [
        *groups(oracles.all_gather, (2, 3), {}, "", ALL_DTYPES),
        *groups(oracles.all_gather, (), {}, "scalar", ALL_DTYPES),
        *groups(oracles.all_gather, (2, 3), {"axis": -1}, "last", ALL_DTYPES),
        *groups(oracles.all_gather, (2, 3), {"axis": 1, "output_shape": "new_axis"}, "new", ALL_DTYPES),
    ]
    scattered = [
        *groups(oracles.reduce_scatter, (5,), {"op": "or"}, "or", (*INTS, "bool")),
        *groups(oracles.reduce_scatter, (7,), {}, "", NUMBERS),
        *groups(oracles.reduce_scatter, (2, 4), {"op": "max"}, "max", NUMBERS),
        *groups(oracles.reduce_scatter, (1,), {"op": "mean"}, "mean", NUMBERS),
    ]
    scanned = [
        case
        for op in oracles.STEPS
        if op != "mean"
        for case in groups(
            _scanned, (30,), {"op": op}, op, (*INTS, "bool") if op in ("and", "or") else NUMBERS
        )
    ]
    return {
        "replicated_scan": Row(
            (
                *scanned,
                *groups(_scanned, (2, 3), {}, "smooth", ("float64",), smooth=True),
                *groups(_scanned, (), {}, "scalar", NUMBERS),
                *groups(_scanned, (0, 3), {}, "empty", ("float32",)),
            ),
            "finite",
            replicas=BY_INDEX,
        ),
        "replicated_all_reduce": Row(tuple(reduced), "stops", replicas=SHARED),
        "replicated_all_reduce_": Row(
            tuple(reduced), "modifies", inplace_of="replicated_all_reduce", replicas=SHARED
        ),
        "replicated_all_gather": Row(tuple(gathered), "own part", replicas=SHARED),
        "replicated_reduce_scatter": Row(tuple(scattered), "throws", replicas=BY_INDEX),
    }


def collective_rows() -> dict[str, Row]:
    """Rows by op."""
    return {
        **_reduced_and_gathered(),
        "replicated_broadcast": _broadcast(),
        "replicated_all_to_all": _along_an_axis(_all_to_all, "finite"),
        "replicated_slice": _along_an_axis(_part, "stated"),
        "replica_sharded_slice": _sharded_slice(),
        "replicated_permute": _permute(),
        "replica_index": _replica_index(),
        **_between_replicas(),
        "all_reduce": _of_tensors(_folded, tuple(oracles.STEPS)),
        "all_reduce_identical_inputs": _of_tensors(_copied, ("add",)),
        "all_reduce_identical_grad_inputs": _of_tensors(_folded, ("add",)),
    }
