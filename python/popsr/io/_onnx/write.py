"""Saving variables as initializers of an ONNX model.

The library makes every message, without the data; the data goes from the arrays to the file. That is possible because
the fields of a message may come in any order: a tensor is its message and one more field, ``raw_data``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from popsr import _core
from popsr._program.ir import Ir
from popsr._program.tensor import Variable
from popsr._session.protocol import SessionProtocol
from popsr._support.host.files import shown_name
from popsr._support.text.entry_points import public
from popsr.errors import CheckpointError, DTypeError
from popsr.io._data_files import OldData, data_file, remove_data
from popsr.io._digest import Digest
from popsr.io._hashes import HASH_BYTES, Hashes, hash_texts_of, read_hashes
from popsr.io._new_file import NewFile
from popsr.io._onnx.format import (
    DATA_BYTES,
    DATA_DIGEST,
    DATA_FILE,
    ONNX_TYPES,
    PRODUCER,
    digest_record,
    metadata,
    require_onnx,
)
from popsr.io._onnx.wire import delimited
from popsr.io._program import Program, budget_of_save, saved_program
from popsr.io._settings import program_text

__all__ = ["save_onnx"]

_MAX_FILE = 2**31 - 1  # of one protobuf message: a larger model has its data in a file beside it
_MIN_EXTERNAL = 1024  # smaller tensors stay in the model
_ALIGNMENT = 4096  # of tensors in a data file, so that readers may map them
_IR_VERSION, _OPSET = 10, 21  # the first with metadata of tensors


@public
def save_onnx(source: SessionProtocol | Ir, path: str | os.PathLike[str], *, hashes: Hashes = None) -> None:
    """Save all variables as initializers of an ONNX model, one row a group.

    A variable of one group has its shape on a replica, others have a leading dimension of ``num_groups`` (their
    ``shape_on_host``), whatever the retrieval mode. After ``ir.embed_replication_factor()`` the file also says how many
    replicas there are and, for each tensor, its groups and retrieval mode. A session's step is saved too. Models of
    more than 2 GiB have their data in a second file, ``<name>.<8 digits>.data``, beside them.

    The file is complete or not there: it is written under another name, synchronised and renamed. It has the older
    file's permissions and, as far as the system permits, its owner and extended attributes. It ends with a digest of
    all that comes before.

    Args:
        source: a session (the newest values; downloads first when the device has them), or an Ir (the initial data).
        path: the file.
        hashes: ``"sha256"`` or ``"blake2b"``: also a hash of each tensor's bytes, as ``popsr.sha256`` in the tensor's
            ``metadata_props``, with which others can check them by ``hashlib``.
    Raises:
        TypeError: ``source`` is neither, or there is a variable of a dtype that ONNX lacks.
        ValueError: ``hashes`` is another name.
        CheckpointError: the file would exceed a limit of ``load_onnx``, or a variable has no name.
        SessionError: the session is running.
        ImportError: onnx is not installed.
        OSError: the file cannot be written; an older file is as it was, unless the error says that the new one took
            its place.
    """
    where = "save_onnx"
    algorithm = read_hashes(where, hashes)
    with saved_program(where, source, path) as program, ExitStack() as files:
        onnx, target = require_onnx(where), program.path
        old = OldData.of(where, onnx, target) if program.is_writer else OldData()
        tensors = [_tensor(onnx, program, variable, algorithm) for variable in program.variables]
        model = _Model(onnx, program, tensors)
        is_large = model.size() > _MAX_FILE
        budget = budget_of_save(where, target, 0 if is_large else model.size())
        if algorithm is not None:
            budget.take_memory(sum(HASH_BYTES + len(variable.id) for variable in program.variables))
        program.check(budget, with_settings=program.is_embedded)
        data = None
        if is_large:
            data = files.enter_context(
                program.new_file(where, data_file(target), owner=target, like=old.like(target))
            )
            model.write_data(data)
        file = files.enter_context(program.new_file(where, target))
        model.write(file)
        if program.is_writer:
            old = old.with_newest(where, onnx, target)
        with old.replaced(where, onnx, file):
            _commit(where, file, data)


def _commit(where: str, file: NewFile, data: NewFile | None) -> None:
    """Data first: there is never a model without its data."""
    try:
        if data is not None:
            data.commit(is_kept=False)
        file.commit()
    except BaseException:
        if data is not None and data.is_committed and not file.is_committed:
            remove_data(where, data.path)
        raise


@dataclass
class _Tensor:
    variable: Variable
    message: Any
    nbytes: int

    def head(self, onnx: Any) -> bytes:
        """All of the initializer's field but the data."""
        message: bytes = self.message.SerializeToString()
        data = b""
        if self.is_inline(onnx):
            data = delimited(onnx.TensorProto.RAW_DATA_FIELD_NUMBER, self.nbytes)
        length = len(message) + len(data) + (self.nbytes if data else 0)
        return delimited(onnx.GraphProto.INITIALIZER_FIELD_NUMBER, length) + message + data

    def is_inline(self, onnx: Any) -> bool:
        """True if the data is in the model."""
        return bool(self.message.data_location != onnx.TensorProto.EXTERNAL)


def _tensor(onnx: Any, program: Program, variable: Variable, algorithm: str | None) -> _Tensor:
    if not variable.id:
        raise CheckpointError(
            "save_onnx: a variable has no name, got '', expected one for each ONNX initializer"
        )
    kind = variable.dtype.as_ml_dtypes()
    code = next((name for name, known in ONNX_TYPES.items() if known == kind), None)
    if code is None:
        raise DTypeError(
            f"save_onnx: ONNX has no such dtype, got {variable.dtype.name} for {shown_name(variable.id)}, "
            "expected a dtype of ONNX, or save_safetensors"
        )
    message = onnx.TensorProto(
        name=variable.id, dims=program.shape(variable), data_type=onnx.TensorProto.DataType.Value(code)
    )
    if program.is_embedded:
        message.metadata_props.extend(metadata(onnx, program.settings(variable)))
    if algorithm is not None:
        message.metadata_props.extend(metadata(onnx, hash_texts_of(algorithm, program.parts(variable))))
    return _Tensor(variable, message, program.nbytes(variable))


class _Model:
    """The messages of a model; its data stays where it is."""

    def __init__(self, onnx: Any, program: Program, tensors: list[_Tensor]) -> None:
        factor = program.replication if program.is_embedded else None
        self._onnx, self._program, self._tensors = onnx, program, tensors
        self._head = onnx.ModelProto(
            ir_version=_IR_VERSION,
            producer_name=PRODUCER,
            producer_version=_core.__version__,
            opset_import=[onnx.OperatorSetIdProto(domain="", version=_OPSET)],
            metadata_props=metadata(onnx, program_text(factor, program.step)),
        )
        self._graph = onnx.GraphProto(name="variables").SerializeToString()

    def size(self) -> int:
        """Bytes of the file."""
        return sum(len(part) if isinstance(part, bytes) else part.nbytes for part in self._parts()) + len(
            digest_record(self._onnx, "0" * Digest.LENGTH)
        )

    def _parts(self) -> Iterator[bytes | _Tensor]:
        """The file without its last record; tensors stand for their data."""
        heads = [tensor.head(self._onnx) for tensor in self._tensors]
        inline = [tensor for tensor in self._tensors if tensor.is_inline(self._onnx)]
        length = len(self._graph) + sum(map(len, heads)) + sum(tensor.nbytes for tensor in inline)
        yield self._head.SerializeToString()
        yield delimited(self._onnx.ModelProto.GRAPH_FIELD_NUMBER, length) + self._graph
        for tensor, head in zip(self._tensors, heads, strict=True):
            yield head
            if tensor.is_inline(self._onnx):
                yield tensor

    def write(self, file: NewFile) -> None:
        """Write all of the model."""
        for part in self._parts():
            if isinstance(part, bytes):
                file.write(part)
            else:
                self._program.write(file, part.variable)
        file.write(digest_record(self._onnx, file.digest.text()))

    def write_data(self, file: NewFile) -> None:
        """Move the data of all but small tensors to another file."""
        for tensor in self._tensors:
            if tensor.nbytes < _MIN_EXTERNAL:
                continue
            file.write(bytes(-file.size % _ALIGNMENT))
            place = {"location": file.path.name, "offset": str(file.size), "length": str(tensor.nbytes)}
            tensor.message.data_location = self._onnx.TensorProto.EXTERNAL
            tensor.message.external_data.extend(metadata(self._onnx, place))
            self._program.write(file, tensor.variable)
        own = {
            DATA_FILE: file.path.name,
            DATA_BYTES: str(file.size),
            DATA_DIGEST: file.digest.text(),
        }
        self._head.metadata_props.extend(metadata(self._onnx, own))
