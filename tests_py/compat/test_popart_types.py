"""popart.DataType and popart.TensorInfo."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors
from popsr.compat._objects.types import DataType, TensorInfo

_NOT_IN_POPART = ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn")


@pytest.mark.parametrize("name", [n for n in popsr.dtypes.dtype._all if n not in _NOT_IN_POPART])
def test_every_dtype_has_a_data_type(name: str) -> None:
    dtype = popsr.dtypes.dtype.from_name(name)
    member = DataType.of(dtype)
    assert member.dtype is dtype
    info = TensorInfo(member, [2, 3])
    assert info.data_type_lcase() == name
    assert info.nbytes() == 6 * dtype.as_numpy().itemsize
    assert TensorInfo(dtype, (2, 3)) == info == TensorInfo(member.name.lower(), [2, 3])


@pytest.mark.parametrize("name", _NOT_IN_POPART)
def test_dtypes_that_popart_lacks(name: str) -> None:
    text = f"PopART does not have this type, got {name}, expected a type of PopART"
    with pytest.raises(errors.DTypeError, match=text):
        DataType.of(popsr.dtypes.dtype.from_name(name))
    with pytest.raises(errors.DTypeError, match=text):
        TensorInfo(popsr.dtypes.dtype.from_name(name), [2])


def test_tensor_info_has_shape_dtype_and_size() -> None:
    info = TensorInfo("FLOAT16", (2, 3))
    assert (info.shape(), info.dataType(), info.data_type()) == ([2, 3], DataType.FLOAT16, "FLOAT16")
    assert (info.rank(), info.nelms(), info.nbytes(), info.dim(1)) == (2, 6, 12, 3)
    assert repr(info) == "TensorInfo(FLOAT16, [2, 3])"
    assert TensorInfo("FLOAT", []).nelms() == 1
    assert TensorInfo(np.zeros((4, 1), np.int32)) == TensorInfo("INT32", [4, 1])
    info.set("BOOL", [4])
    assert info == TensorInfo("BOOL", [4])
    assert len({info, TensorInfo("BOOL", [4])}) == 1


@pytest.mark.parametrize(
    ("args", "error", "text"),
    [
        (("FLOT", [2]), errors.DTypeError, "TensorInfo: unknown data type, got 'FLOT', expected 'FLOAT'"),
        ((9, [2]), errors.DTypeError, "unknown data type, got 9"),
        (("FLOAT", [-1]), errors.ShapeError, "negative extent"),
        (("FLOAT",), errors.ArgumentTypeError, "shape is not a sequence of ints, got None"),
    ],
)
def test_bad_descriptions(args: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        TensorInfo(*args)
    info = TensorInfo("FLOAT", [2])
    with pytest.raises(errors.Error):
        info.set(*(*args, None)[:2])
    assert info == TensorInfo("FLOAT", [2])


def test_types_without_data() -> None:
    with pytest.raises(errors.DTypeError, match="no tensor has it, got UNDEFINED"):
        TensorInfo("UNDEFINED", [2]).nbytes()
    with pytest.raises(errors.OutOfRangeError, match=r"TensorInfo.dim: i out of range"):
        TensorInfo("FLOAT", [2]).dim(1)
