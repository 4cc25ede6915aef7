"""Initial values in files of their own, of models that are bytes."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from popsr._support.host.files import file_errors
from popsr._support.text.shown import shown
from popsr.errors import AttributeValueError, CheckpointError
from popsr.io import load_onnx
from popsr.io._onnx.format import require_onnx

__all__ = ["is_elsewhere", "read_elsewhere", "require_new", "write_data"]

_written: dict[str, Path] = {}
"""Files that this process wrote, by their SHA-1, which models name."""


def write_data(path: Path, arrays: Iterable[np.ndarray[Any, Any]]) -> list[dict[str, str]]:
    """Write arrays to a file one after another; returns their places as ONNX names them."""
    places, sha1 = [], hashlib.sha1(usedforsecurity=False)
    with path.open("wb") as file:
        for array in arrays:
            data = np.ascontiguousarray(array).tobytes()
            places.append({"location": path.name, "offset": str(file.tell()), "length": str(len(data))})
            file.write(data)
            sha1.update(data)
    _written[sha1.hexdigest()] = path.absolute()
    return [{**place, "checksum": sha1.hexdigest()} for place in places]


def require_new(where: str, initializers: Iterable[Any]) -> None:
    """Refuse initializers whose data is in a file already.

    Raises:
        AttributeValueError: one is.
    """
    for each in initializers:
        if is_elsewhere(each):
            raise AttributeValueError(
                f"{where}: data in a file already, got {shown(each.name)}, expected one whose data the model holds"
            )


def is_elsewhere(initializer: Any) -> bool:
    """True if the data of an initializer is in another file."""
    return bool(initializer.data_location == require_onnx("Session").TensorProto.EXTERNAL)


def read_elsewhere(where: str, proto: Any) -> Mapping[str, np.ndarray[Any, Any]]:
    """Initializers of a model without a file whose data is in files that this process wrote.

    They are read as of a model that lies beside copies of these files, with all checks.

    Raises:
        CheckpointError: a file is another one than this process wrote, or was changed since.
    """
    given = [each for each in proto.graph.initializer if is_elsewhere(each)]
    if not given:
        return {}
    model = type(proto)(ir_version=proto.ir_version)
    model.graph.name = "weights"
    model.graph.initializer.extend(given)
    with tempfile.TemporaryDirectory() as folder:
        for each in model.graph.initializer:
            keys = {entry.key: entry.value for entry in each.external_data}
            path = _written.get(keys.get("checksum", ""))
            if path is None:
                raise CheckpointError(
                    f"{where}: data of {shown(each.name)} in another file, got bytes, expected the model's file name"
                )
            copy = Path(folder) / "data" / keys["checksum"]
            copy.parent.mkdir(exist_ok=True)
            location = next(entry for entry in each.external_data if entry.key == "location")
            location.value = f"data/{copy.name}"
            if not copy.exists():
                with file_errors(where, "read", path):
                    shutil.copyfile(path, copy)
        file = Path(folder) / "model.onnx"
        file.write_bytes(model.SerializeToString())
        return dict(load_onnx(file).items())
