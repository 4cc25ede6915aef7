"""Checkpoints in folders keep every bit of the types that NumPy's files have no names for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import popsr
from popsr.addons._checkpoint_folder import MODEL, read_array, write_array
from tests_py.support.helpers import FLOAT8, assert_same_bits, dtype, np_dtype


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("name", [*FLOAT8, "bfloat16"])
def test_arrays_come_back(tmp_path: Path, name: str, raw: bool) -> None:
    bits = np.arange(256, dtype=np.uint8 if name in FLOAT8 else np.uint16)
    data = bits.view(np_dtype(name)).view(dtype(name).as_numpy()).reshape(16, 16)
    with popsr.Ir().main_graph:
        variable = popsr.variable(data, dtype(name))
    (tmp_path / MODEL).mkdir()
    write_array(tmp_path, "w", data, raw=raw)
    got = read_array("test", tmp_path, "w", variable)
    assert got.dtype == data.dtype
    assert_same_bits(got, data)
