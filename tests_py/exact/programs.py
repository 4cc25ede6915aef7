"""A program that is run by its kernels and in exact arithmetic, from the same data."""

from __future__ import annotations

from typing import Any

import numpy as np

import popsr
from popsr.bridge._exact import ExactRun, run_exact
from tests_py.support.helpers import Array, Streams

__all__ = ["exact_outputs", "given_of", "kernel_outputs"]


def _loads(ir: popsr.Ir) -> dict[int, int]:
    """Tensor that a host-load makes, by its stream."""
    return {
        op.attributes["h2d_stream"]: op.outputs[0]._id for op in ir.main_graph.ops if op.kind == "host_load"
    }


def given_of(ir: popsr.Ir, io: Streams) -> dict[int, list[Any]]:
    """Data of the streams for each replica."""
    loads, count = _loads(ir), ir.replication_factor
    given = {}
    for stream, array in io.inputs.items():
        shared = array.ndim == len(stream.shape)
        rows = [array] * count if shared else list(array)
        given[loads[stream._id]] = [np.asarray(row) for row in rows]
    return given


def exact_outputs(ir: popsr.Ir, io: Streams) -> tuple[ExactRun, list[list[Any]]]:
    """The run, and what each output stream got on each replica."""
    run = run_exact(ir, given_of(ir, io))
    return run, [run.stored(stream._id) for stream in io.outputs]


def kernel_outputs(ir: popsr.Ir, io: Streams) -> list[list[Array]]:
    """Return the value of each output stream on each replica."""
    with popsr.Session(ir) as session:
        found = io.run(session)
    count = ir.replication_factor
    return [list(each) if count > 1 else [each] for each in found]
