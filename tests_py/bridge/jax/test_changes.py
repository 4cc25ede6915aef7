"""Steps that are other ones when they are traced again or by another process: refused, with the lines."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax import lax, local_devices, process_count, process_index
from jax.sharding import PartitionSpec as P

import popsr
from popsr.errors import UnsupportedError

W, X = np.zeros(4, np.float32), np.ones((8, 4), np.float32)
RNG = np.random.default_rng(5)
CUT: dict[str, Any] = {
    "mesh": {"data": 4},
    "in_specs": (P(), P("data")),
    "out_specs": (P(), P()),
    "check_vma": False,
}


class Kept:
    """Values that a step leaves for its next call."""

    def __init__(self) -> None:
        """As before the first call."""
        self.calls, self.signed, self.table = 0, False, np.zeros(4, np.float32)
        self.seen: Any = None
        self.inner = jax.jit(self.counted)

    def counted(self, w: Any) -> Any:
        self.calls += 1
        return w * self.calls

    def branch(self, w: Any) -> Any:
        self.calls += 1
        return w * 2 if self.calls % 2 else w + 1

    def more(self, w: Any) -> Any:
        self.calls += 1
        return w + 1 if self.calls == 1 else (w + 1) * 2

    def zero(self, w: Any) -> Any:
        self.signed = not self.signed
        return w * jnp.float32(0.0 if self.signed else -0.0)

    def payload(self, w: Any) -> Any:
        self.calls += 1
        return w * np.array(0x7FC00000 + self.calls, np.uint32).view(np.float32)

    def constant(self, w: Any) -> Any:
        self.table = self.table + 1
        return w + self.table

    def in_place(self, w: Any) -> Any:
        self.table += 1
        return w + jnp.asarray(self.table.copy())

    def element_type(self, w: Any) -> Any:
        self.calls += 1
        return w.astype(jnp.float16 if self.calls == 1 else jnp.bfloat16).astype(jnp.float32)

    def deep(self, w: Any) -> Any:
        self.calls += 1
        return lax.fori_loop(0, 3, lambda i, c: lax.cond(i > 0, lambda: c, lambda: c + self.calls), w)

    def mixed(self, w: Any) -> Any:
        before, self.table = self.table, w
        return w + before

    def leaves(self, w: Any) -> Any:
        before, self.seen = self.seen, w
        return w if before is None else w + before


def _of(name: str) -> Callable[[Any], Any]:
    return lambda w: getattr(KEPT[name], name)(w)


KEPT: dict[str, Kept] = {}
NAMES = ["counted", "branch", "more", "zero", "payload", "constant", "in_place", "element_type", "deep"]
CHANGED: dict[str, tuple[Callable[[Any], Any], str]] = {
    **{name: (_of(name), "is another one when it is traced again") for name in NAMES},
    "a jitted function": (
        lambda w: KEPT["jit"].inner(w),
        r"mul\(2.0\) at \S+test_changes.py:(\d+) the second time and mul\(1.0\) at \S+:\1 ",
    ),
    "a leaf": (_of("leaves"), "when it is traced again|cannot be traced a second time"),
    "a leaf in place of an array": (_of("mixed"), "constant 0"),
    "numbers of Python": (
        lambda w: w + __import__("random").random(),
        "is another one when it is traced again",
    ),
    "numbers of NumPy": (lambda w: w * RNG.uniform(size=4).astype(np.float32), "constant 0"),
    "the time": (lambda w: w + time.time(), "is another one when it is traced again"),
    "a counter of time": (lambda w: w + time.perf_counter_ns() // 10**9, "is another one"),
    "the process of the system": (lambda w: w + os.getpid(), "is another one when it is traced again"),
    "the name of the host": (
        lambda w: w + len(socket.gethostname()),
        "is another one when it is traced again",
    ),
    "process_index": (lambda w: w + jax.process_index(), r"got jax.process_index\(\) at .*test_changes.py:"),
    "process_index by its name": (lambda w: w + process_index(), r"got jax.process_index\(\) at"),
    "process_index in a jitted function": (
        lambda w: jax.jit(lambda v: v + process_index())(w),
        "got jax.process_index",
    ),
    "process_count by its name": (lambda w: w / process_count(), r"got jax.process_count\(\) at"),
    "process_indices": (lambda w: w + len(jax._src.xla_bridge.process_indices()), "got jax.process_indices"),
    "local_devices": (lambda w: w + local_devices()[0].id, r"got jax.local_devices\(\) at"),
    "local_device_count": (lambda w: w / jax.local_device_count(), r"got jax.local_device_count\(\) at"),
    "device_count": (
        lambda w: w / jax.device_count(),
        r"lists the devices .* got jax.device_count\(\) at .* there are 8",
    ),
    "devices": (lambda w: w / len(jax.devices()), "lists the devices"),
    "a variable of a launcher": (
        lambda w: w + int(os.environ.get("SLURM_PROCID", "0")),
        r"os.environ\['SLURM_PROCID'\]",
    ),
    "a variable by getenv": (lambda w: w + int(os.getenv("RANK", "0")), r"os.environ\['RANK'\] at"),
    "a variable that is asked for": (
        lambda w: w + ("PMI_RANK" in os.environ),
        r"os.environ\['PMI_RANK'\] at",
    ),
}


def step(change: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda w, x: (change(w), lax.pmean(x.sum(), "data"))


@pytest.fixture(autouse=True)
def anew() -> None:
    KEPT.update({name: Kept() for name in [*NAMES, "jit", "leaves", "mixed"]})
    process_count(), local_devices()  # JAX keeps what they give


@pytest.mark.parametrize("case", CHANGED)
def test_a_step_that_changes_is_refused(case: str) -> None:
    change, text = CHANGED[case]
    with pytest.raises(UnsupportedError, match=text) as error:
        popsr.prove(step(change), W, X, **CUT)
    assert "\n" not in str(error.value)


def printing(w: Any) -> Any:
    began = time.time()
    out = w * 2
    print(f"traced in {time.time() - began} s on {socket.gethostname()}, process {os.getpid()}")
    return out


def many(w: Any) -> Any:
    key = jax.random.fold_in(jax.random.key(0), 3)
    out = lax.scan(lambda c, _: (jax.nn.relu(c) + 1, c), w, None, length=3)[0]
    return out + jax.random.normal(key, w.shape) + jnp.arange(4.0) + jax.grad(lambda a: jnp.tanh(a).sum())(w)


@pytest.mark.parametrize("change", [printing, many, jax.jit(many), jax.checkpoint(many)])
def test_a_step_that_stays_is_proved(change: Callable[[Any], Any]) -> None:
    for _ in range(2):
        assert popsr.prove(step(change), W, X, **CUT).ok


def test_devices_are_listed_where_there_are_as_many_as_replicas() -> None:
    specs: dict[str, Any] = {
        "mesh": {"data": 8},
        "in_specs": (P(), P("data")),
        "out_specs": (P(), P()),
        "check_vma": False,
    }
    assert popsr.prove(step(lambda w: w / len(jax.devices())), W, X, **specs).ok


def test_functions_are_as_before_after_a_step_is_refused() -> None:
    before = jax.process_index.__code__, time.time, os.getpid, type(os.environ).__getitem__
    for case in ("process_index", "process_count by its name", "counted"):
        with pytest.raises(UnsupportedError):
            popsr.prove(step(CHANGED[case][0]), W, X, **CUT)
    assert (jax.process_index.__code__, time.time, os.getpid, type(os.environ).__getitem__) == before
    assert (process_index(), process_count(), len(local_devices())) == (0, 1, len(jax.devices()))
    assert jax.process_count is process_count
