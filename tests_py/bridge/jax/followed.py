"""Things that steps of JAX read and call, and the verdict on each: a table of docs/bridge_jax.md.

``python -m tests_py.bridge.jax.followed`` writes it anew.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import popsr  # noqa: E402
from popsr.errors import UnsupportedError  # noqa: E402
from tests_py import ROOT  # noqa: E402
from tests_py.bridge.page_table import PageTable  # noqa: E402

__all__ = ["ON_PAGE", "table"]

ON_PAGE = PageTable(ROOT / "docs/bridge_jax.md", "followed and refused")
WORLD = 6  # no number of devices that a machine is likely to have
W, X = np.zeros(4, np.float32), np.ones((WORLD * 2, 4), np.float32)
SHAPE = jax.ShapeDtypeStruct(W.shape, W.dtype)


class Kept:
    """Things that a step leaves in Python for its next call."""

    def __init__(self) -> None:
        self.calls, self.seen = 0, W
        self.table, self.random = np.ones(4, np.float32), np.random.default_rng(5)

    def kept(self, w: Any) -> Any:
        return w + self.table

    def counted(self, w: Any) -> Any:
        self.calls += 1
        return w * self.calls

    def signed(self, w: Any) -> Any:
        self.calls += 1
        return w * jnp.float32(0.0 if self.calls % 2 else -0.0)

    def changed(self, w: Any) -> Any:
        self.table = self.table + 1
        return w + self.table

    def left(self, w: Any) -> Any:
        before, self.seen = self.seen, w
        return w + before

    def drawn(self, w: Any) -> Any:
        return w * self.random.uniform(size=4).astype(np.float32)


def on_host(a: Any) -> Any:
    return a


def called_back(w: Any) -> Any:
    return jax.pure_callback(on_host, SHAPE, w)


def printed(w: Any) -> Any:
    print(f"traced at {time.time()}") if time.time() < 0 else None
    jax.debug.print("{}", w)
    return w


def made_reference(w: Any) -> Any:
    r = jax.new_ref(w)
    r[0] = 1.0
    return jax.freeze(r)


def closed_over() -> Callable[[Any], Any]:
    r = jax.new_ref(jnp.asarray(W))

    def body(w: Any) -> Any:
        r[...] = r[...] + w
        return w

    return body


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        text: what the step does.
        make: makes the function of the state, and of the place of the replica if it takes one.
        options: of the reader.
    """

    text: str
    make: Callable[[], Callable[..., Any]]
    options: Mapping[str, Any] = MappingProxyType({})


MAPPED: dict[str, Any] = {
    "mesh": {"data": WORLD},
    "in_specs": (P(), P("data")),
    "out_specs": P(),
    "check_vma": False,
}
WHOLE = dict.fromkeys(MAPPED) | {"check_vma": True}
DECLARED = {"opaque": {"on_host": "deterministic"}}
ROWS = [
    Row("`lax.axis_index`", lambda: lambda w: w + lax.axis_index("data")),
    Row("integers that follow from it: `i % 2`", lambda: lambda w: w + lax.axis_index("data") % 2),
    Row("`i // 3`, overflow", lambda: lambda w: w + (lax.axis_index("data") // 3).astype(np.uint8) * 128),
    Row("a comparison: `i >= 3`", lambda: lambda w: jnp.where(lax.axis_index("data") >= 3, w, 1.0)),
    Row("a branch of some: `lax.cond(i == 0, ...)`", lambda: branch),
    Row("a key of the replica: `jax.random.fold_in(key, i)`", lambda: own_key),
    Row("one key for all", lambda: lambda w: w + jax.random.normal(jax.random.key(0), w.shape)),
    Row("data of the replica", lambda: lambda w, x: w + x[0]),
    Row("their mean, `lax.pmean`", lambda: lambda w, x: w + lax.pmean(x[0], "data")),
    Row("arrays, closures and attributes that stay", lambda: Kept().kept),
    Row("a counter", lambda: Kept().counted),
    Row("a zero that changes its sign: `0.0` and `-0.0`", lambda: Kept().signed),
    Row("an attribute that is assigned anew", lambda: Kept().changed),
    Row("an array of a trace that the step keeps", lambda: Kept().left),
    Row("random numbers of Python", lambda: lambda w: w + random.random()),
    Row("random numbers of NumPy", lambda: Kept().drawn),
    Row("`jax.process_index()`", lambda: lambda w: w + jax.process_index()),
    Row("`jax.process_count()`", lambda: lambda w: w / jax.process_count()),
    Row("`jax.local_devices()`", lambda: lambda w: w + jax.local_devices()[0].id),
    Row("`jax.device_count()`, of another number than replicas", lambda: lambda w: w / jax.device_count()),
    Row("`RANK` of the environment", lambda: lambda w: w + int(os.environ.get("RANK", "0"))),
    Row("`SLURM_PROCID`", lambda: lambda w: w + int(os.getenv("SLURM_PROCID", "0"))),
    Row("`time.time()` in a value", lambda: lambda w: w + time.time()),
    Row("`os.getpid()` in a value", lambda: lambda w: w + os.getpid()),
    Row("`time.time()` in a print, `jax.debug.print`", lambda: printed),
    Row("a callback, a kernel of Pallas, a foreign call", lambda: called_back),
    Row('the same with `unsupported="conservative"`', lambda: called_back, {"unsupported": "conservative"}),
    Row('the same with `opaque={"on_host": "deterministic"}`', lambda: called_back, DECLARED),
    Row("a reference that the step makes: `jax.new_ref`", lambda: made_reference),
    Row("a reference that the step closes over", closed_over, WHOLE),
]


def branch(w: Any) -> Any:
    return lax.cond(lax.axis_index("data") == 0, lambda: w + 1, lambda: w)


def own_key(w: Any) -> Any:
    key = jax.random.fold_in(jax.random.key(0), lax.axis_index("data"))
    return w + jax.random.normal(key, w.shape)


def outcome(row: Row) -> str:
    """The verdict on a step of replicas with data of their own."""
    body = row.make()
    takes_data = body.__code__.co_varnames[1:2] == ("x",) if hasattr(body, "__code__") else False

    def step(w: Any, x: Any) -> Any:
        return body(w, x) if takes_data else body(w)

    try:
        proof = popsr.prove(step, W, X, roles={"w": "state"}, updates={0: 0}, **MAPPED | dict(row.options))
    except UnsupportedError:
        return "refused"
    [state] = proof.states
    groups = state.proved
    return (
        "equal"
        if groups.num_blocks == 1
        else "differs"
        if groups.num_blocks == WORLD
        else f"equal in {groups}"
    )


def table() -> str:
    """The rows for the page."""
    rows = [f"| {each.text} | {outcome(each)} |" for each in ROWS]
    return "\n".join(["| in a step | its state is |", "| --- | --- |", *rows])


if __name__ == "__main__":
    ON_PAGE.write(table())
