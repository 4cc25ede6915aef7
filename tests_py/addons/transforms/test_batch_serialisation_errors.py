"""Serialising a batch: what is refused, before anything is made."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, errors, ops
from popsr.addons.transforms import batch_serialisation as bs
from popsr.addons.transforms.batch_serialisation import (
    BatchSerialResult,
    RemoteHandle,
    batch_serial_buffer,
    batch_serialise,
    batch_serialise_fwd_and_grad,
)
from tests_py.support.helpers import make_variable

STEPS = 4
SPEC = popsr.TensorSpec((2, 4), popsr.float32)
W = np.ones((4, 4), np.float32)


class Layer(addons.Module):
    """``tanh(x @ w)``, and the product."""

    def build(self, x: popsr.Tensor) -> tuple[popsr.Tensor, popsr.Tensor]:
        product = x @ self.add_variable_input("w", lambda: W, popsr.float32)
        return ops.tanh(product), product


class Refusal:
    """A layer, its gradient graph, and handles that fit."""

    def __init__(self) -> None:
        self.ir = popsr.Ir(replication=2)
        with popsr.Ir().main_graph:
            self.foreign_buffer = popsr.remote_buffer((2, 4), popsr.float32, 1)
        with self.ir.main_graph:
            _, self.graph = Layer().create_graph(SPEC)
            self.x, self.w = self.graph.graph.inputs
            self.y, self.product = self.graph.graph.outputs
            self.gradient = addons.autodiff(self.graph, [self.y])
            self.h2d, self.d2h = (
                popsr.h2d_stream((2, 4), popsr.float32),
                popsr.d2h_stream((2, 4), popsr.float32),
            )
            self.narrow = popsr.h2d_stream((2, 3), popsr.float32)
            self.half = popsr.h2d_stream((2, 4), popsr.float16)
            self.buffer = popsr.remote_buffer((2, 4), popsr.float32, 1)
            self.foreign = make_variable(W)

    def one(
        self, loads: Any = None, outs: Any = None, buffers: Any = None, **options: Any
    ) -> BatchSerialResult:
        options = {"graph": self.graph, "steps": STEPS, **options}
        return batch_serialise(
            load_handles=loads or {}, store_streams=outs or {}, store_buffers=buffers or {}, **options
        )

    def both(self, loads: Any = None, buffers: Any = None, **options: Any) -> Any:
        given = {self.gradient.graph.inputs[0]: self.h2d} if loads is None else loads
        options = {"named_inputs_for_grad_graph": self.graph.args, "steps": STEPS, **options}
        options = {"forward_graph": self.graph, "gradient_graph": self.gradient, **options}
        return batch_serialise_fwd_and_grad(
            load_handles=given, store_streams={}, store_buffers=buffers or {}, **options
        )


REFUSED: list[tuple[Callable[[Refusal], Any], type[Exception], str]] = [
    (lambda r: r.one(graph=r.graph.graph), TypeError, "not a GraphWithNamedArgs, got graph"),
    (lambda r: r.one(steps=0), ValueError, "steps: got 0, expected an int from 1"),
    (lambda r: r.one(steps=2.0), TypeError, "steps is not an int, got 2.0"),
    (lambda r: r.one(rows=0), ValueError, "rows: got 0, expected an int from 1"),
    (
        lambda r: r.one(io_mode="fast"),
        ValueError,
        "unknown io_mode, got 'fast', expected one of 'compute', 'io', 'io_overlapped'",
    ),
    (lambda r: r.one([r.x]), TypeError, "load_handles"),
    (lambda r: r.one({"x": r.h2d}), TypeError, "load_handles has no tensor as key, got 'x'"),
    (lambda r: r.one({r.x: r.d2h}), TypeError, "no handle for .*, expected a RemoteHandle or"),
    (lambda r: r.one({r.x: (r.buffer, 1, 2)}), TypeError, "no handle for"),
    (lambda r: r.one({r.x: (r.h2d, 0)}), TypeError, "no handle for"),
    (lambda r: r.one({r.x: (r.buffer, "1")}), TypeError, "row_offset for .* is not an int, got '1'"),
    (
        lambda r: r.one({r.x: r.narrow}),
        errors.ShapeError,
        r"of another shape, got \(2, 3\), expected \(2, 4\)",
    ),
    (lambda r: r.one({r.x: r.half}), errors.DTypeError, "of another dtype, got float16, expected float32"),
    (
        lambda r: r.one({r.w: r.buffer}),
        errors.ShapeError,
        r"of another shape, got \(2, 4\), expected \(4, 4\)",
    ),
    (
        lambda r: r.one({r.x: RemoteHandle(r.buffer, 0, r.ir.replica_grouping())}),
        errors.ShapeError,
        r"of another shape, got \(2, 4\), expected \(4,\)",
    ),
    (lambda r: r.one({r.x: r.foreign_buffer}), errors.GraphError, "is of another Ir"),
    (
        lambda r: r.one({r.foreign: (popsr.remote_buffer((4, 4), popsr.float32), 0)}),
        ValueError,
        "callers of the graph",
    ),
    (
        lambda r: r.one({r.y: r.h2d}),
        ValueError,
        "load_handles has a tensor that callers of the graph do not see",
    ),
    (lambda r: r.one(None, {r.x: r.h2d}), TypeError, "store_streams has no tensor and DeviceToHostStream"),
    (lambda r: r.one(None, {"y": r.d2h}), TypeError, "store_streams has no tensor and DeviceToHostStream"),
    (
        lambda r: r.one(None, {r.gradient.graph.inputs[0]: r.d2h}),
        ValueError,
        "store_streams has a tensor that callers",
    ),
    (lambda r: r.one(None, None, {"y": r.buffer}), TypeError, "a handle is not for a tensor, got 'y'"),
    (lambda r: r.one(None, None, {r.w: r.buffer}), errors.ShapeError, "of another shape"),
    (lambda r: r.one(None, None, {r.y: 3}), TypeError, "no handle for"),
    (lambda r: r.one({r.x: r.ir.replica_grouping()}), TypeError, "no handle for"),
    (
        lambda r: r.one(seed_input=r.y),
        ValueError,
        "seed_input has a tensor that callers of the graph do not see",
    ),
    (lambda r: r.one({r.x: r.h2d}, seed_input=r.x), ValueError, "the seed is loaded as well"),
    (lambda r: r.both({}), ValueError, "a gradient has no load handle, got none for '.*Gradient___"),
    (lambda r: r.both(gradient_graph=r.graph), AttributeError, "is not a gradient graph"),
    (lambda r: r.both(forward_graph=Layer().create_graph(SPEC)[1]), ValueError, "no gradient graph of"),
    (lambda r: r.both(buffers={r.foreign: r.ir.replica_grouping()}), ValueError, "callers of the graph"),
    (
        lambda r: r.both(named_inputs_for_grad_graph=addons.NamedTensors(w=r.foreign)),
        ValueError,
        "is not in the graphs",
    ),
    (lambda r: batch_serial_buffer("t"), TypeError, "t is not a Tensor, got 't'"),  # type: ignore[arg-type]
    (lambda r: batch_serial_buffer(r.x, 0), ValueError, "steps: got 0"),
    (lambda r: batch_serial_buffer(r.x, 1, -1), ValueError, "rows: got -1"),
    (
        lambda r: bs.batch_serialise_overlapped(r.graph, 1, {}, {}, {}),
        ValueError,
        "batch_serialise_overlapped: steps: got 1, expected an int from 2",
    ),
]


@pytest.mark.parametrize(("build", "error", "match"), REFUSED)
def test_wrong_arguments_are_refused_and_nothing_is_made(
    build: Callable[[Refusal], Any], error: type[Exception], match: str
) -> None:
    refusal = Refusal()
    with refusal.ir.main_graph:
        with pytest.raises(error, match=match) as caught:
            build(refusal)
        assert "\n" not in str(caught.value)
        assert not [
            g for g in range(refusal.ir._core.num_graphs) if "batch_serial" in refusal.ir._graph(g).id
        ]
    assert isinstance(caught.value, (popsr.Error, AttributeError))
    assert refusal.buffer.entries == 1


def test_loaded_tensors_are_not_inputs_any_more() -> None:
    refusal = Refusal()
    with refusal.ir.main_graph:
        result = refusal.one({refusal.w: (popsr.remote_buffer((4, 4), popsr.float32), 0)})
    assert [t.name for t in result.graph.graph.inputs] == [
        "row_offset",
        "x",
    ]
    assert not result.graph.args.to_dict()
    with pytest.raises(KeyError, match="no tensor in the place of 'w'"):
        result.remap_tensors(refusal.graph.args)


def test_one_step_does_not_overlap() -> None:
    refusal = Refusal()
    with refusal.ir.main_graph, pytest.warns(UserWarning, match="one step does not overlap with others"):
        refusal.one(steps=1, io_mode="io_overlapped")
    with warnings.catch_warnings(), refusal.ir.main_graph:
        warnings.simplefilter("error")
        refusal.one(steps=2, io_mode="io_overlapped")
