"""Places: on which device of a replica and on which of its tiles ops and tensors are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops, transforms
from popsr._program.building.placement import check_tensor_ipu_and_tile_set
from popsr._program.context import get_current_context
from popsr.ops import collectives
from popsr.ops.program.code_copy import CODE_LOCATION, code_copy
from tests_py.support.helpers import SCHEMAS
from tests_py.support.unchecked import unchecked

F32 = popsr.float32
Place = tuple[int, str]


def variable(name: str = "v") -> popsr.Variable:
    return popsr.variable(np.ones(2), F32, name)


def place(t: popsr.Tensor) -> Place | None:
    """IPU and tile set; None where both are undefined."""
    try:
        ipu = t.ipu
    except errors.UndefinedValue:
        with pytest.raises(errors.UndefinedValue, match=r"^tile_set: the tensor is nowhere yet, got "):
            t.tile_set  # noqa: B018 - raises
        return None
    return ipu, t.tile_set


# Devices of tensors


def _made() -> Any:
    return ops.relu(variable())


def _made_elsewhere() -> Any:
    x = variable()
    with popsr.ipu(3), popsr.io_tiles():
        y = ops.relu(x)
        with popsr.ipu(1):
            z = ops.relu(y)
    return x, y, z, ops.relu(z)


def _unused() -> Any:
    return variable(), popsr.constant(1.0)


def _used_twice() -> Any:
    x = variable()
    with popsr.ipu(2):
        ops.relu(x)
    ops.relu(x)  # the first use counts
    return x


def _copied() -> Any:
    x = variable()
    y = ops.ipu_copy(x, 2, 1)
    z = y.copy_to_ipu(5)
    return x, y, z, z.copy_to_ipu(0, 4)


def _copied_tiles() -> Any:
    x, c = variable(), popsr.constant([1.0])
    with popsr.ipu(2):
        y = ops.io_tile_copy(x)
    with popsr.io_tiles():
        z = ops.relu(c)
    return x, y, ops.io_tile_copy(y), c, ops.io_tile_copy(z), ops.io_tile_copy(ops.relu(y))


def _in_a_graph() -> Any:
    """Inputs of a graph are where calls say, its results where they are made."""
    inside: list[popsr.Tensor] = []

    def fn(a: popsr.Tensor, b: popsr.Tensor) -> popsr.Tensor:
        inside.extend((a, b))
        with popsr.ipu(7):
            return ops.relu(a)

    ir = popsr.gir()
    graph = ir.create_graph(fn, variable(), variable())
    assert [place(t) for t in inside] == [(7, "compute"), None]
    x, y = variable(), variable()
    with popsr.ipu(2):
        ops.exp(x)
    (out,) = ops.call(graph, x, y)
    return out, *inside, y


def _passed_through() -> Any:
    """A graph that gives back what it is given: it is on the IPU of its first known argument, here of the calls'."""
    graph = popsr.gir().create_graph(lambda a: a, variable())
    x, y = variable(), variable()
    with popsr.ipu(4):
        (once,) = ops.call(graph, x)
        (twice,) = ops.call(graph, once)
    other = popsr.gir().create_graph(lambda a: a, variable())
    with popsr.ipu(5):
        ops.relu(y)
    return x, once, twice, *ops.call(other, y)


def _in_a_loop() -> Any:
    def fn(a: popsr.Tensor) -> popsr.Tensor:
        with popsr.ipu(1):
            return ops.relu(a)

    x = variable()
    return *ops.repeat(popsr.gir().create_graph(fn, x), 3, x), x


def _reduced() -> Any:
    x = variable()
    with popsr.ipu(1):
        y = ops.relu(x)
    with popsr.ipu(2):
        z = ops.exp(variable())
    given = variable("given")
    return *collectives.all_reduce([y, z]), *collectives.all_reduce([given, y], [4, 5]), given


def _in_place() -> Any:
    x = ops.init((2,), F32)
    with popsr.ipu(1):
        y = ops.relu_(x)
    return x, y, y.reshape_((1, 2))


PLACES: dict[str, tuple[Callable[[], Any], list[Place | None]]] = {
    "made": (_made, [(0, "compute")]),
    "made elsewhere": (_made_elsewhere, [(3, "io"), (3, "io"), (1, "io"), (0, "compute")]),
    "unused": (_unused, [None, None]),
    "used twice": (_used_twice, [(2, "compute")]),
    "copied": (_copied, [(1, "compute"), (2, "compute"), (5, "compute"), (0, "compute")]),
    "copied tiles": (
        _copied_tiles,
        [(2, "compute"), (2, "io"), (2, "compute"), (0, "io"), (0, "compute"), (0, "io")],
    ),
    "in a graph": (_in_a_graph, [(7, "compute"), (2, "compute"), None, None]),
    "passed through": (_passed_through, [*[(4, "compute")] * 3, (5, "compute")]),
    "in a loop": (_in_a_loop, [(1, "compute"), (1, "compute")]),
    "reduced": (_reduced, [(ipu, "compute") for ipu in (1, 2, 4, 5, 4)]),
    "in place": (_in_place, [(0, "compute"), (1, "compute"), (0, "compute")]),
}


@pytest.mark.parametrize("what", PLACES)
def test_placements_of_tensors(what: str) -> None:
    build, expected = PLACES[what]
    with popsr.Ir().main_graph:
        made = build()
        assert [place(t) for t in (made if isinstance(made, tuple) else (made,))] == expected


def test_ops_say_where_they_are() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        with popsr.ipu(3), popsr.io_tiles():
            ops.relu(variable())
        ops.exp(variable())
    first, second = ir.main_graph.ops
    assert (first.ipu, first.tile_set, second.ipu, second.tile_set) == (3, "io", 0, "compute")
    assert " on IPU 3 on io tiles" in repr(first)
    assert "IPU" not in repr(second)


def test_merged_ops_keep_places() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        a, b = popsr.h2d_stream((2,), F32), popsr.h2d_stream((2,), F32)
        with transforms.merge_exchange():
            x = ops.host_load(a)
            with popsr.ipu(1):
                y = ops.host_load(b)
    (merged,) = ir.main_graph.ops
    assert [part.ipu for part in merged.parts] == [x.ipu, y.ipu] == [0, 1]


# Gradients


def test_gradients_are_where_their_ops_are() -> None:
    def fn(x: popsr.Tensor, w: popsr.Tensor) -> popsr.Tensor:
        with popsr.ipu(1):
            hidden = ops.exp(x)  # runs elsewhere than its operand may be
            both = ops.mul(hidden, hidden)
        return ops.mul(ops.relu(both), w)

    ir = popsr.Ir()
    with ir.main_graph:
        graph = ir.create_graph(fn, variable(), variable())
        with popsr.ipu(6):  # says nothing about them
            info = transforms.autodiff(graph)
    ipus: dict[str, set[int]] = {op.kind: set() for op in info.graph.ops}
    forward = {op.location: op.ipu for op in graph.ops}
    for op in info.graph.ops:
        ipus[op.kind].add(op.ipu)
        assert op.ipu == forward[op.location]
    assert ipus["add"] == {1}, "the sum of two gradients is where the tensor is"


def test_gradients_do_not_cross_copies() -> None:
    ir = popsr.Ir()
    for copy in (lambda t: ops.ipu_copy(t, 1, 0), ops.io_tile_copy):
        with ir.main_graph:
            graph = ir.create_graph(lambda x: copy(x) * 2.0, variable())  # noqa: B023
            with pytest.raises(errors.GraphError, match="unable to provide required gradient"):
                transforms.autodiff(graph)


@pytest.mark.parametrize("used", [(0, 1, 2), (2,), (0, 2)])
def test_gradients_of_reductions_are_on_the_ipus_of_their_tensors(used: tuple[int, ...]) -> None:
    """Also of tensors whose own result has no gradient."""
    ipus = [5, 3, 4]

    def fn(*ts: popsr.Tensor) -> list[popsr.Tensor]:
        reduced = collectives.all_reduce(ts, ipus)
        return [reduced[k] for k in used]

    ir = popsr.Ir()
    out = []
    with ir.main_graph, popsr.in_sequence():
        graph = ir.create_graph(fn, *[variable(f"v{k}") for k in range(3)])
        info = transforms.autodiff(graph)
        seeds = [popsr.constant([k + 1.0, -k]) for k in used]
        gradients = ops.call(info.graph, *seeds)
        assert [t.ipu for t in gradients] == ipus
        for t in gradients:
            out.append(popsr.d2h_stream((2,), F32))
            ops.host_store(out[-1], t)
    with popsr.Session(ir) as session:
        got = session.run()
    expected = [sum(k + 1.0 for k in used), -sum(used)]
    assert all(got[stream].tolist() == expected for stream in out)


# A program


@pytest.mark.parametrize("options", [{}, {"dedup": False}, {"check": True}], ids=str)
def test_two_ipus_and_four_replicas(options: dict[str, Any]) -> None:
    """Tensor parallel over the IPUs of a replica, data parallel over replicas; weights step by their mean gradient."""
    rng = np.random.default_rng(1)
    w, x = rng.integers(-3, 4, (4, 6)).astype(np.float32), rng.integers(-3, 4, (4, 2, 4)).astype(np.float32)
    ir = popsr.Ir(replication=4)
    data, result = popsr_streams(ir)
    with ir.main_graph, popsr.in_sequence():
        shards = [popsr.variable(w[:2], F32, "w0"), popsr.variable(w[2:], F32, "w1")]
        loaded = ops.host_load(data)
        parts, halves = [], []
        for k in (0, 1):
            half = loaded[:, 2 * k : 2 * k + 2]
            if k == 1:
                half = ops.ipu_copy(half, 1)
            with popsr.ipu(k):
                parts.append(half @ shards[k])
                halves.append(half)
        full = collectives.all_reduce(parts)
        for k in (0, 1):
            with popsr.ipu(k):
                gradient = collectives.replicated_all_reduce_(halves[k].T @ full[k], "mean")
                ops.scaled_add_(shards[k], gradient, b=-0.25)
        ops.host_store(result, full[0])
    assert [t.ipu for t in (*shards, *parts, *full)] == [0, 1] * 3
    with popsr.Session(ir, **options) as session:
        got = session.run({data: x})[result]
        weights = np.concatenate([session.get_tensor_data(t) for t in shards])
    expected = x @ w
    np.testing.assert_array_equal(got, expected)
    step = np.mean([a.T @ b for a, b in zip(x, expected, strict=True)], axis=0)
    np.testing.assert_array_equal(weights, w - np.float32(0.25) * step)


def popsr_streams(ir: popsr.Ir) -> tuple[popsr.HostToDeviceStream, popsr.DeviceToHostStream]:
    with ir.main_graph:
        return popsr.h2d_stream((2, 4), F32), popsr.d2h_stream((2, 6), F32)


# Errors


def _on(ipu: int, tiles: bool = False) -> popsr.Tensor:
    with popsr.ipu(ipu):
        t = ops.init((2,), F32, f"on{ipu}")
        return ops.io_tile_copy(t) if tiles else t


def _used_on(ipu: int) -> popsr.Variable:
    v = variable(f"v{ipu}")
    with popsr.ipu(ipu):
        ops.relu(v)
    return v


def _enter(context: Any) -> None:
    with context:
        raise AssertionError("entered")


BOTH = r"inputs are on different IPUs, got 'on1' on IPU 1 and 'on0' on IPU 0, expected one IPU"
BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "add": (lambda: _on(1) + _on(0), ValueError, f"^add: {BOTH}"),
    "in place": (lambda: ops.add_(_on(1), _on(0)), ValueError, f"^add_: {BOTH}"),
    "concat": (lambda: ops.concat([_on(1), _on(0)]), ValueError, f"^concat: {BOTH}"),
    "select": (
        lambda: ops.where(ops.equal(_on(2), _on(2)), variable(), _on(1)),
        ValueError,
        r"^where: .* 'equal_out' on IPU 0 and",
    ),
    "variables": (
        lambda: _used_on(1) + _used_on(2),
        ValueError,
        r"^add: inputs are on .* 'v1' on IPU 1 and 'v2' on IPU 2",
    ),
    "tiles": (
        lambda: _on(1, True) + _on(1),
        ValueError,
        r"^add: inputs are on different tile sets, got 'io_tile_copy_out' on io tiles and 'on1__t0' on compute "
        "tiles, expected one tile set",
    ),
    "check": (
        lambda: check_tensor_ipu_and_tile_set(_on(1), 3, b=_on(0)),
        ValueError,
        "^check_tensor_ipu_and_tile_set: inputs are on different IPUs",
    ),
    "no ipu": (lambda: _enter(popsr.ipu("1")), TypeError, "^ipu: ipu is not an int, got '1'"),  # type: ignore[arg-type]
    "bool": (lambda: _enter(popsr.ipu(True)), TypeError, "^ipu: ipu is not an int, got True"),
    "negative": (lambda: _enter(popsr.ipu(-1)), ValueError, "^ipu: ipu is not an IPU, got -1, expected 0 to"),
    "too many": (lambda: _enter(popsr.ipu(2**31)), ValueError, "^ipu: ipu is not an IPU, got 2147483648"),
    "copy from nowhere": (
        lambda: ops.ipu_copy(variable(), 1),
        ValueError,
        r"(?m)^ipu_copy: the IPU of the tensor is unknown, got Variable\[v .*, expected source$",
    ),
    "copy to nowhere": (lambda: ops.ipu_copy(_on(0), -1), ValueError, "^ipu_copy: destination is not an IPU"),
    "copy from none": (lambda: _on(0).copy_to_ipu(1, 2.5), TypeError, "^ipu_copy: source is not an int"),  # type: ignore[arg-type]
    "no tensor": (lambda: ops.ipu_copy(3, 1), TypeError, "^ipu_copy: t is not a Tensor, got int 3"),  # type: ignore[arg-type]
    "variable": (lambda: variable().copy_to_ipu(1), TypeError, "missing 1 required .* 'src'"),  # type: ignore[call-arg]
    "constant": (
        lambda: popsr.constant(1).copy_to_ipu(1, None),  # type: ignore[arg-type]
        TypeError,
        "^copy_to_ipu: src is not an int, got None",
    ),
    "reduction from nowhere": (
        lambda: collectives.all_reduce([_on(1), variable()]),
        ValueError,
        r"(?m)^all_reduce: the IPU of a tensor is unknown, got Variable\[v .*, expected ipus$",
    ),
    "too few ipus": (
        lambda: collectives.all_reduce_identical_inputs([_on(1), _on(2)], [1]),
        ValueError,
        "^all_reduce_identical_inputs: not one of ipus for each tensor, got 1, expected 2",
    ),
    "negative ipus": (
        lambda: collectives.all_reduce([_on(1), _on(2)], [1, -2]),
        ValueError,
        "^all_reduce: one of ipus is not an IPU, got -2",
    ),
    "one number": (
        lambda: collectives.all_reduce([_on(1)], 1),  # type: ignore[arg-type]
        TypeError,
        "^all_reduce: ipus is not a list, got 1",
    ),
    "own code": (
        lambda: ops.remote_code_load(popsr.gcg(), "executable"),
        ValueError,
        "^remote_code_load: a graph loads its own code",
    ),
    "code of nothing": (lambda: ops.remote_code_load("g", "executable"), TypeError, "graph is not a Graph"),  # type: ignore[arg-type]
    "other code": (
        lambda: ops.remote_code_load(popsr.Ir().main_graph, "executable"),
        ValueError,
        "^remote_code_load: graph of another Ir",
    ),
    "code to a buffer": (
        lambda: ops.remote_code_load(popsr.gir().create_empty_graph(), "compute_buffer"),
        NotImplementedError,
        "^remote_code_load: destination is not supported, got 'compute_buffer', expected 'executable'",
    ),
    "code to nowhere": (
        lambda: ops.remote_code_load(popsr.gir().create_empty_graph(), "disk"),  # type: ignore[arg-type]
        ValueError,
        "^remote_code_load: unknown destination, got 'disk'",
    ),
    "code from nowhere": (
        lambda: code_copy(popsr.gir().create_empty_graph(), "disk", "executable"),  # type: ignore[arg-type]
        ValueError,
        "^code_copy: unknown source, got 'disk'",
    ),
    "no graph": (lambda: transforms.decompose_sum("g"), TypeError, "^decompose_sum: graph is not a Graph"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", BAD)
def test_errors(what: str) -> None:
    call, error, match = BAD[what]
    with popsr.Ir().main_graph:
        with pytest.raises(error, match=match) as caught:
            call()
        assert get_current_context().ipu_id is None
    if "missing 1 required" not in match:
        assert isinstance(caught.value, popsr.Error)
        assert "\n" not in str(caught.value)


def test_refused_ops_add_nothing() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        a, b = _on(1), _on(0)
        with pytest.raises(errors.GraphError, match=f"^add: {BOTH}"):
            ops.add(a, b)
        assert [op.kind for op in ir.main_graph.ops] == ["init", "init"]
        ops.add(a, ops.ipu_copy(b, 1))


def test_places_are_not_checked_where_they_cannot_clash() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        a, b, c = _on(1), _on(0), _on(1, True)
        graph = ir.create_graph(lambda x, y: ops.relu(x), a, b)
        ops.call(graph, a, b)  # a call takes tensors from everywhere
        ops.add(a, variable())  # one that is nowhere yet
        with popsr.ipu(9):
            ops.add(b, b)  # the op itself may be elsewhere
        check_tensor_ipu_and_tile_set(a, variable(), 3, b=ops.io_tile_copy(c))


# Transforms and code that change nothing


def test_code_is_where_it_is() -> None:
    ir = popsr.Ir()
    graph = ir.create_empty_graph()
    with ir.main_graph:
        ops.remote_code_load(graph, "executable")
        for source in unchecked(CODE_LOCATION).__args__:
            code_copy(graph, source, "executable")
    assert ir.main_graph.ops == graph.ops == ()
    with pytest.raises(errors.StateError, match="no graph is current"):
        ops.remote_code_load(graph, "executable")


def test_there_are_no_sums_to_decompose() -> None:
    """Ops with any number of inputs are known, and none of them adds tensors of one place."""
    several = {
        name
        for name, schema in SCHEMAS.items()
        if any(i["variadic"] for i in schema["inputs"]) and not schema["internal"]
    }
    assert several == {
        *("call", "repeat", "while_loop", "conditional", "concat", "concat_", "maximum", "minimum", "sort"),
        *("all_reduce", "all_reduce_identical_inputs", "all_reduce_identical_grad_inputs"),
    }
    ir = popsr.Ir()
    with ir.main_graph:
        graph = ir.create_graph(lambda x: [x * 2.0, x * 3.0, x * 5.0, x * 7.0], variable())
    info = transforms.autodiff(graph)
    text = str(ir)
    assert transforms.decompose_sum(info.graph) is info.graph
    assert str(ir) == text
    adds = [op for op in info.graph.ops if op.kind == "add"]
    assert [len(op.inputs) for op in adds] == [2, 2, 2]
