"""Integers of 64 bits that become 32, and numbers of Python that take a stream's type: none wraps unseen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops, utils

LIMITS = {
    name: np.iinfo(name)
    for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
}


def echo(name: str) -> tuple[popsr.Session, Any, Any]:
    ir = popsr.Ir()
    kind = popsr.dtypes.dtype.from_name(name)
    with ir.main_graph:
        x, y = popsr.h2d_stream((2,), kind, "x"), popsr.d2h_stream((2,), kind, "y")
        ops.host_store(y, ops.host_load(x))
    return popsr.Session(ir), x, y


@pytest.mark.parametrize("name", LIMITS)
def test_numbers_of_python_take_the_streams_type_if_they_fit(name: str) -> None:
    limits = LIMITS[name]
    session, x, y = echo(name)
    with session:
        for downcast in (True, False):
            for value in (int(limits.min), int(limits.max)):
                assert session.run({x: [value, value]}, downcast)[y].tolist() == [value, value]
            for wrong in (int(limits.min) - 1, int(limits.max) + 1):
                if name.endswith("64"):
                    continue
                with pytest.raises(
                    errors.AttributeValueError, match=rf"^run: stream 'x': a number does not fit .*{wrong}"
                ):
                    session.run({x: [0, wrong]}, downcast)


@pytest.mark.parametrize(("wide", "narrow"), [("int64", "int32"), ("uint64", "uint32")])
@pytest.mark.parametrize("library", ["numpy", "torch", "swapped"])
def test_arrays_are_narrowed_if_they_fit(wide: str, narrow: str, library: str) -> None:
    limits = LIMITS[narrow]

    def data(value: int) -> Any:
        array = np.array([3, value], wide)
        if library == "torch":
            return pytest.importorskip("torch").from_numpy(array)
        return array.astype(array.dtype.newbyteorder()) if library == "swapped" else array

    session, x, y = echo(narrow)
    with session:
        for value in (limits.min, limits.max):
            assert session.run({x: data(value)})[y].tolist() == [3, value]
        wrong = limits.max + 1
        with pytest.raises(
            errors.AttributeValueError,
            match=rf"^run: stream 'x': a number does not fit into {narrow}, got {wrong} of .* to {limits.max}",
        ) as caught:
            session.run({x: data(wrong)})
        assert len(str(caught.value).splitlines()[0]) < 300


@pytest.mark.parametrize("make", [popsr.constant, popsr.variable, utils.to_numpy])
def test_data_without_dtype_is_narrowed_if_it_fits(make: Any) -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        before = str(ir)
        for wrong in (2**31, [-(2**31) - 1, 0], np.array([2**40]), np.uint64(2**32)):
            with pytest.raises(
                errors.AttributeValueError, match=r"a number does not fit into .*downcast=False"
            ):
                make(wrong)
        assert str(ir) == before
        for right in (2**31 - 1, [-(2**31)], np.uint64(2**32 - 1), np.zeros((0,), np.int64)):
            make(right)
        assert np.dtype(make(2**31, downcast=False).dtype if make is utils.to_numpy else "int64") == np.int64
        make(np.array([2**31]), popsr.uint32)
