"""Run with the shim loaded (allocation_shim.cpp): memory runs out in each C++ allocation of many calls, one at a time.

Prints a JSON object: for each call how often memory ran out. What is wrong is an exception. With "dense" each
allocation fails once, else some of calls that have many.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import popsr
from popsr import addons, errors, ops, transforms
from popsr._program.building import transaction
from popsr.addons.transforms.repeat_graph import repeat_graph
from popsr.ops import collectives, var_updates
from tests_py.support.unchanged import assert_unchanged, everything, forget

F32 = popsr.float32
Shim = Any


def shim_at(path: str) -> Shim:
    shim = ctypes.PyDLL(path)
    shim.shim_arm.argtypes = [ctypes.c_int64, ctypes.c_int]
    shim.shim_disarm.restype = ctypes.c_int64
    return shim


class Net(addons.Module):
    """Two layers, one of them a call."""

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        w = self.add_variable_input("w", lambda: np.ones((3, 3), np.float32), F32)
        inner = popsr.gir().create_graph(lambda t: ops.tanh(t) * 2.0, x)
        return ops.call(inner, x @ w)[0]


class World:
    """A program for scenarios to grow."""

    session: popsr.Session

    def __init__(self) -> None:
        self.ir = popsr.Ir(replication=4)
        with self.ir.main_graph:
            self.x = popsr.variable(np.ones((2, 3), np.float32), name="x")
            self.sum = popsr.variable(np.zeros((2, 3), np.float32), name="sum")
            self.row = popsr.variable(np.ones(3, np.float32), name="row")
            self.image = popsr.variable(np.ones((1, 2, 4, 4), np.float32), name="image")
            self.kernel = popsr.variable(np.ones((3, 2, 2, 2), np.float32), name="kernel")
            self.narrow = popsr.variable(np.ones((2, 3)), popsr.bfloat16, "narrow")
            self.flag = popsr.constant(True)
            self.seed = popsr.constant(popsr.create_seeds(7))
            self.reduced = [collectives.replicated_all_reduce(self.x) for _ in range(2)]
            self.graph = self.ir.create_graph(lambda a: ops.tanh(a) * 2.0, self.x)
            self.stream = popsr.h2d_stream((2, 3), F32)
            self.out = popsr.d2h_stream((2, 3), F32)
            self.buffer = popsr.remote_buffer((2, 3), F32, 2)
            self.factories, self.net = Net().create_graph(self.x.spec)
            self.spec = self.x.spec
            self.pairs = self.ir.replica_grouping(1, 2)
            self.slots = popsr.remote_buffer((2, 3), F32, 2)
            self.gradient = addons.autodiff(self.net)
            self.parent = self.ir.create_graph(lambda a: ops.call(self.graph, a)[0], self.x)
            self.narrow * self.narrow
            ops.call(self.parent, self.x)
        self.ir.options.enable_stochastic_rounding = True


def _loads(w: World) -> None:
    ops.host_store(w.out, ops.relu(ops.host_load(w.stream)))


def _conditional(w: World) -> None:
    ops.conditional(w.flag, w.graph, w.graph, [w.x], [w.x])


def _accumulation(w: World) -> None:
    addons.autodiff_with_accumulation(w.net, w.net.args.tensors)


def _pipeline(w: World) -> None:
    """A block is not one call, so here a function around it is."""
    transaction.run(_pipeline_block, w)


def _pipeline_block(w: World) -> None:
    with addons.pipelined_execution(4) as pipeline:
        for stage in range(2):
            with pipeline.stage(stage):
                ops.tanh(w.x)


def _failing_graph(w: World) -> None:
    """Undoing it allocates as well."""

    def build(t: popsr.Tensor) -> popsr.Tensor:
        ops.tanh(t) + 1.0
        popsr.gir().create_empty_graph()
        raise errors.StateError("on purpose")

    with contextlib.suppress(errors.StateError):
        w.ir.create_graph(build, w.x)


MAKING: dict[str, Callable[[World], Any]] = {
    "unary op": lambda w: ops.relu(w.x),
    "product": lambda w: w.x @ np.ones((3, 2), np.float32),
    "literal": lambda w: 2.0 * w.x,
    "getitem": lambda w: w.x[0, ::2],
    "in place": lambda w: ops.add_(w.x, w.x),
    "view": lambda w: w.x.transpose_(),
    "convolution": lambda w: ops.conv(w.image, w.kernel),
    "dropout": lambda w: ops.dropout(w.x, w.seed, 0.5),
    "norm": lambda w: ops.layer_norm(w.x, w.row, w.row),
    "softmax": lambda w: ops.softmax(w.x, 1),
    "concat": lambda w: ops.concat([w.x, w.x, w.x]),
    "topk": lambda w: ops.topk(w.x, 2, 1, True, True),
    "rounding op": lambda w: w.narrow * w.narrow,
    "collective": lambda w: collectives.replicated_all_gather(w.x, group=w.pairs),
    "update": lambda w: var_updates.accumulate_(w.x, w.x),
    "host load": lambda w: ops.host_load(w.stream),
    "host store": lambda w: ops.host_store(w.out, w.x),
    "variable": lambda w: popsr.variable(
        np.arange(8.0).reshape(4, 2), replica_grouping=w.ir.replica_grouping()
    ),
    "constant": lambda w: popsr.constant(np.arange(12)),
    "stream": lambda w: popsr.h2d_stream((4,), F32, "a name that does not fit into a short string"),
    "remote buffer": lambda w: popsr.remote_buffer((2, 3), F32, 3),
    "remote store": lambda w: ops.remote_store(w.buffer, 1, w.x),
    "remote load": lambda w: ops.remote_load(w.buffer, 0),
    "remote variable": lambda w: popsr.remote_variable(np.ones((2, 3), np.float32), w.slots),
    "sharded variable": lambda w: popsr.replica_sharded_variable(np.ones((4, 2), np.float32)),
    "graph": lambda w: w.ir.create_graph(lambda a, b: ops.tanh(a * b) + 1.0, w.x, w.x),
    "graph that fails": _failing_graph,
    "module": lambda w: Net().create_graph(w.spec),
    "init": lambda w: w.factories.init("net"),
    "call": lambda w: ops.call(w.graph, w.x),
    "loop": lambda w: ops.repeat(w.graph, 3, w.x),
    "conditional": _conditional,
    "autodiff": lambda w: transforms.autodiff(w.graph),
    "autodiff of calls": lambda w: addons.autodiff(w.net),
    "accumulation": _accumulation,
    "recomputation": lambda w: addons.recompute_graph(w.gradient),
    "merged collectives": lambda w: transforms.merge_collectives(w.ir),
    "rounding": lambda w: transforms.stochastic_rounding(w.ir, "popart"),
    "repeated graph": lambda w: repeat_graph(w.graph, 3),
    "pipeline": _pipeline,
    "routed tensor": lambda w: addons.route_tensor_into_graph(w.x, w.graph),
    "Ir": lambda w: popsr.Ir(replication=6),
    "groups": lambda w: (
        w.ir.replica_grouping(2, 2).transpose().partition,
        w.ir.replica_grouping_from_assignments([0, 1, 1, 0]),
    ),
    "settings": lambda w: popsr.replicas.VariableSettings(popsr.replicas.CommGroup()).groups(4),
    "Key": lambda w: popsr.sr.Key(7).fold_in("layer").at(3),
    "rounded sum": lambda w: popsr.sr.add(
        np.ones(9, np.float32), np.ones(9, np.float32), key=popsr.sr.Key(1)
    ),
}


def _runnable() -> World:
    w = World()
    with w.ir.main_graph, popsr.in_sequence():
        ops.call(w.graph, w.x)
        _loads(w)
        var_updates.accumulate_(w.sum, collectives.replicated_all_reduce(w.x, group=w.pairs))
        ops.conditional(w.flag, w.graph, w.graph, [w.x], [w.x])
        ops.repeat(w.graph, 3, w.x)
        ops.remote_store(w.buffer, 1, w.x)
        ops.topk(ops.dropout(w.x, w.seed, 0.5), 2, 1, True, True)
        ops.conv(w.image, w.kernel)
        ops.layer_norm(w.x @ np.ones((3, 3), np.float32), w.row, w.row)
    return w


def _running() -> World:
    w = _runnable()
    w.session = popsr.Session(w.ir, num_threads=2)
    w.session.__enter__()
    return w


def _run(w: World) -> None:
    out = w.session.run({w.stream: np.ones((4, 2, 3), np.float32)})[w.out]
    assert float(out.sum()) == 24.0


LOOKING: dict[str, Callable[[World], Any]] = {
    "analyze": lambda w: popsr.analysis.analyze(w.ir).partition(w.x),
    "lints": lambda w: list(popsr.analysis.analyze(w.ir).warnings),
    "explain": lambda w: str(popsr.analysis.analyze(w.ir).explain(w.x, 0, 2)),
    "popart": lambda w: popsr.analysis.analyze(w.ir, mode="popart").partition(w.x),
    "Session": lambda w: popsr.Session(w.ir),
    "text": lambda w: str(w.ir),
}

RUNNING: dict[str, Callable[[World], Any]] = {
    "run": _run,
    "read": lambda w: w.session.get_tensor_data(w.x),
    "write": lambda w: w.session.write_variable_data(w.sum, np.ones((2, 3), np.float32)),
    "numbers": lambda w: (w.session.stats, w.session.memory),
    "plan": lambda w: w.session.plan,
}


NAMED = re.compile(r"[A-Za-z]\w*: not enough memory")


def _inject(
    shim: Shim, world: World, call: Callable[[World], Any], forever: int, is_dense: bool
) -> Iterator[str]:
    """Calls it with each allocation failing until none is left; the texts of what it raised.

    Unless it is dense, numbers of allocations that fail grow ever faster after the first hundred.
    """
    number = 0
    while True:
        before = everything()
        failure: str | None = None
        shim.shim_arm(number, forever)
        try:
            call(world)
        except (MemoryError, errors.Error) as error:
            failure = str(error)
        finally:
            refused = shim.shim_disarm()
        if failure is not None:
            assert_unchanged(before, f"allocation {number}")
            yield failure
        if refused == 0:
            return
        number += 1 if is_dense else 1 + number // 100


def main(shim: Shim, is_dense: bool) -> dict[str, int]:
    counts = {}
    for name, call, make in [
        *((name, call, World) for name, call in MAKING.items()),
        *((name, call, _runnable) for name, call in LOOKING.items()),
        *((name, call, _running) for name, call in RUNNING.items()),
    ]:
        counts[name] = 0
        first = make()
        with first.ir.main_graph:
            call(first)  # what is made once in a process
        for forever in (0, 1):
            forget()
            world = make()
            with world.ir.main_graph:
                for text in _inject(shim, world, call, forever, is_dense):
                    counts[name] += 1
                    assert NAMED.match(text), f"{name}: {text}"
    return counts


if __name__ == "__main__":
    print(json.dumps(main(shim_at(sys.argv[1]), "dense" in sys.argv)))
