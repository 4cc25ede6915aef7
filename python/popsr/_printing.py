"""Text of ``print_tensor``."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from popsr.ir import Ir


def print_value(ir: Ir, op: int, replicas: list[int], value: np.ndarray[Any, Any]) -> None:
    """Write one value, held by these replicas, to standard error."""
    attrs = ir._core.op(op)["attrs"]
    where = f" {{{','.join(str(replica) for replica in replicas)}}}" if ir.replication_factor > 1 else ""
    sys.stderr.write(f"{attrs['title']}{where}: {_text(attrs, value)}\n")


def _text(attrs: dict[str, Any], value: np.ndarray[Any, Any]) -> str:
    if value.dtype.kind == "V":
        value = value.astype(np.float32)
    threshold = attrs["summarise_threshold"]
    aligned = attrs["float_format"] == "auto" and attrs["digits"]
    text = np.array2string(
        value,
        max_line_width=attrs["max_line_width"] or sys.maxsize,
        threshold=threshold or sys.maxsize,
        edgeitems=attrs["edge_items"],
        separator=attrs["separator"],
        formatter=None if aligned else {"float_kind": _float_format(attrs)},
        precision=attrs["digits"] or None,
    )
    return text.translate(str.maketrans({"[": attrs["open_bracket"], "]": attrs["close_bracket"]}))


def _float_format(attrs: dict[str, Any]) -> Any:
    digits = attrs["digits"]
    if attrs["float_format"] == "none" or not digits:
        return str
    code = "e" if attrs["float_format"] == "scientific" else "f"
    return lambda x: f"{x:.{digits}{code}}"
