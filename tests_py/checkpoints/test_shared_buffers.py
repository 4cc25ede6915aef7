"""Buffers that share memory cannot be read into: values would be lost."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from popsr import errors
from popsr._support.host.overlap import first_overlap, overlaps_itself
from popsr.io import PyWeightsIO
from tests_py.checkpoints.cases import Program


def program() -> Program:
    result = Program(1)
    for name in "ab":
        result.add(name, np.ones((3, 2), np.float32))
    return result


BLOCK = np.zeros(64, np.float32)
MATRIX = np.zeros((3, 4), np.float32)

SHARED: dict[str, tuple[dict[str, Any], str]] = {
    "stride-0": (
        {"a": np.broadcast_to(np.zeros(2, np.float32), (3, 2))},
        "read-only",
    ),
    "writable-stride-0": (
        {"a": as_strided(BLOCK, (3, 2), (0, 4))},
        r"'a' has elements that share memory, got strides \(0, 4\) for shape \(3, 2\)",
    ),
    "windows": ({"a": as_strided(BLOCK, (3, 2), (4, 4))}, "'a' has elements that share memory"),
    "one-buffer": ({"a": MATRIX[:, :2], "b": MATRIX[:, :2]}, "share memory, got 'a' and 'b'"),
    "shifted": ({"b": BLOCK[:6].reshape(3, 2), "a": BLOCK[5:11].reshape(3, 2)}, "got 'b' and 'a'"),
    "reversed": ({"a": BLOCK[5::-1].reshape(3, 2), "b": BLOCK[:6].reshape(3, 2)}, "got 'a' and 'b'"),
    "columns": ({"a": MATRIX[:, :2], "b": MATRIX[:, 1:3]}, "got 'a' and 'b'"),
}


@pytest.mark.parametrize(("buffers", "match"), SHARED.values(), ids=SHARED)
def test_memory_that_would_be_written_twice_is_refused(buffers: dict[Any, Any], match: str) -> None:
    session = program().session()
    BLOCK[:], MATRIX[:] = 7, 7
    with pytest.raises(errors.SessionError, match=f"^read_weights: buffer.*{match}"):
        session.read_weights(PyWeightsIO(buffers))
    assert np.all(BLOCK == 7)
    assert np.all(MATRIX == 7)


def test_writing_from_memory_in_common_is_not() -> None:
    run = program()
    session = run.session()
    zeros = np.broadcast_to(np.zeros(2, np.float32), (3, 2))
    session.write_weights(PyWeightsIO({"a": zeros, "b": zeros}))
    assert not session.get_tensor_data(run.variables["a"]).any()


def test_interleaved_buffers_are_read_into() -> None:
    session = program().session()
    MATRIX[:] = 7
    session.read_weights(PyWeightsIO({"a": MATRIX[:, ::2], "b": MATRIX[::-1, 1::2]}))
    assert np.all(MATRIX == 1)
    torch = pytest.importorskip("torch")
    both = torch.zeros(2, 3, 2)
    session.read_weights(PyWeightsIO({"a": both[0], "b": both[1]}))
    assert (both == 1).all()


def cells(array: np.ndarray[Any, Any]) -> list[int]:
    """Address of each element."""
    begin = array.__array_interface__["data"][0]
    return [
        begin + sum(i * stride for i, stride in zip(index, array.strides, strict=True))
        for index in np.ndindex(*array.shape)
    ]


def test_overlaps_are_found_as_by_listing_all_addresses() -> None:
    memory, rng = np.zeros(400, np.uint8), np.random.default_rng(3)
    arrays = []
    for shape in itertools.product((0, 1, 2, 3), repeat=3):
        strides = rng.choice([-9, -4, -1, 0, 1, 2, 3, 6, 12], 3)
        arrays.append(as_strided(memory[int(rng.integers(150, 250)) :], shape, strides))
    found = [overlaps_itself(array) for array in arrays]
    truth = [len(set(cells(array))) < array.size for array in arrays]
    assert sum(truth) > 10
    for array, got, expect in zip(arrays, found, truth, strict=True):
        # Strides as 2 and 3 are refused unseen; no slice of an array has them.
        assert got >= expect, (array.shape, array.strides)
    for a, b in itertools.combinations(arrays, 2):
        expect = bool(set(cells(a)) & set(cells(b)))
        assert (first_overlap([a, b]) is not None) == expect
    separate = [memory[i::7] for i in range(7)]
    assert first_overlap(separate) is None
    assert first_overlap([*separate, memory[20:21]]) == (6, 7)


def test_slices_never_overlap_themselves() -> None:
    base = np.zeros((6, 5, 4), np.int16)
    for array in (
        base,
        base.T,
        base[::-2, 1:, ::3],
        base[:, 2],
        base[1:1],
        base[0, 0, 0:1],
        base.swapaxes(0, 1),
    ):
        assert not overlaps_itself(array)
