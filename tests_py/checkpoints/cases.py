"""Programs and formats that the tests of checkpoints share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import popsr
from popsr import io, ops
from tests_py.support.helpers import Array, assert_same_bits, make_variable, np_dtype


@dataclass(frozen=True)
class Format:
    """A format of checkpoints: its functions and suffix."""

    suffix: str
    save: Callable[[Any, Any], None]
    load: Callable[[Any], io.Checkpoint]

    def __str__(self) -> str:
        return self.suffix


ONNX = Format(".onnx", io.save_onnx, io.load_onnx)
SAFETENSORS = Format(".safetensors", io.save_safetensors, io.load_safetensors)
FORMATS = [ONNX, SAFETENSORS]


class Program:
    """An Ir of variables: ``variables(name=(data, options))``; ``one`` grows by 1 each run."""

    def __init__(self, replication: int = 4, *, embed: bool = False) -> None:
        self.ir = popsr.Ir(replication=replication)
        self.variables: dict[str, popsr.Variable] = {}
        self.add("one", np.float32(0))
        with self.ir.main_graph, popsr.in_sequence():
            ops.add_(self.variables["one"], popsr.constant(np.float32(1)))
        if embed:
            self.ir.embed_replication_factor()

    def add(self, name: str, data: Any, grouping: Any = None, mode: str | None = None) -> popsr.Variable:
        with self.ir.main_graph:
            variable = make_variable(np.asarray(data), name, replica_grouping=grouping, retrieval_mode=mode)
        self.variables[name] = variable
        return variable

    def session(self) -> popsr.Session:
        return popsr.Session(self.ir)


def small_program(replication: int = 4, *, embed: bool = False, scale: float = 1) -> Program:
    """Variables ``w`` (one group), ``g`` (two groups), ``flags`` (bool) and ``one``."""
    program = Program(replication, embed=embed)
    program.add("w", (np.arange(6, dtype=np.float32).reshape(2, 3) * scale))
    pairs = program.ir.replica_grouping(1, replication // 2)
    program.add(
        "g", np.arange(4, dtype=np_dtype("bfloat16")).reshape(2, 2) * np_dtype("bfloat16").type(scale), pairs
    )
    program.add("flags", np.array([True, False]))
    return program


def weights(session: popsr.Session) -> dict[str, Array]:
    """Values of all variables."""
    return {variable.id: session.get_tensor_data(variable) for variable in session._access.variables}


def saved(folder: Path, format: Format, source: Any, name: str = "w") -> Path:
    """A checkpoint of ``source``."""
    path = folder / f"{name}{format.suffix}"
    format.save(source, path)
    return path


def assert_same_arrays(got: Any, expect: Any) -> None:
    """Equal names, shapes, dtypes and bits."""
    assert sorted(got) == sorted(expect)
    for name, array in expect.items():
        assert_same_bits(got[name], array, name)
