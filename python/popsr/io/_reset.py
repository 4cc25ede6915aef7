"""Loading a checkpoint into a session, into as many replicas as it has."""

from __future__ import annotations

import difflib
import os

from popsr._args import read_path
from popsr._shown import shown
from popsr.errors import ArgumentTypeError, DTypeError, ReplicaError, ShapeError, UnknownNameError
from popsr.io._checkpoint import StoredFile, StoredTensor
from popsr.io._onnx_read import open_onnx
from popsr.io._safetensors import open_safetensors
from popsr.session import Session
from popsr.tensor import Variable

__all__ = ["reset_host_weights"]

_WHERE = "reset_host_weights"


def reset_host_weights(
    session: Session, path: str | os.PathLike[str], *, ignore_missing: bool = False
) -> None:
    """Set the variables of a session, and its step if the file has one, from a checkpoint.

    Tensors are found by the variables' ids; tensors of other names are ignored, as in PopART. A tensor has the
    variable's ``shape_on_host``: rows of a leading dimension belong to the groups in order. No replication factor need
    be embedded in the file. When one is, it may differ from the program's as long as a variable has the same number of
    groups in both: one group fits any number of replicas. Variables that keep all replicas take a row per group too.

    Everything is checked before anything is written.

    Args:
        session: attached or not; an attached one is uploaded to.
        path: a safetensors file when it ends in ``.safetensors``, else an ONNX model.
        ignore_missing: leave variables that the file lacks as they are.
    Raises:
        KeyError: the file lacks a variable.
        ShapeError: a tensor of another shape, as that of one replica where there are several groups.
        DTypeError: a tensor of another dtype.
        ReplicaError: a variable had another number of groups when it was saved.
        CheckpointError: the file is damaged, contradicts itself, or is no checkpoint.
        OSError: it cannot be read.
    """
    if not isinstance(session, Session):
        raise ArgumentTypeError(f"{_WHERE}: not a session, got {shown(session)}")
    target = read_path(_WHERE, path)
    is_safetensors = target.suffix == ".safetensors"
    with (open_safetensors if is_safetensors else open_onnx)(_WHERE, target) as stored, session._lock:
        found = {variable: variable.id for variable in session._variables if variable.id in stored.tensors}
        if len(found) < len(session._variables) and not ignore_missing:
            _refuse_missing(session, stored)
        for variable, name in found.items():
            _refuse_misfit(variable, stored.tensors[name], stored.replication)
        arrays = stored.arrays(found.values())
        session._set_rows(
            {variable: arrays[name].view(variable.dtype.as_numpy()) for variable, name in found.items()}
        )
        if stored.step is not None:
            session.step = stored.step


def _refuse_missing(session: Session, stored: StoredFile) -> None:
    missing = [variable.id for variable in session._variables if variable.id not in stored.tensors]
    close = difflib.get_close_matches(missing[0], stored.tensors, n=3)
    hint = f", did you mean {', '.join(map(repr, close))}" if close else ""
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    raise UnknownNameError(
        f"{_WHERE}: '{stored.file.path}' lacks variables, got no {shown(missing[0])}{more}{hint}, expected all "
        f"{len(session._variables)} (or ignore_missing=True)"
    )


def _refuse_misfit(variable: Variable, tensor: StoredTensor, replication: int | None) -> None:
    name, expected = variable.id, variable.shape_on_host
    grouping = variable.replica_grouping
    groups = grouping.num_groups
    dtype = tensor.known_dtype(_WHERE)
    if dtype != variable.dtype.as_ml_dtypes():
        raise DTypeError(
            f"{_WHERE}: dtypes differ for '{name}', got {dtype.name}, expected {variable.dtype.name}"
        )
    saved = groups
    if replication is not None and tensor.settings is not None:
        saved = tensor.settings.group_count(replication)
    if saved != groups:
        raise ReplicaError(
            f"{_WHERE}: groups of '{name}' cannot be mapped, got {saved} of {replication} replicas in the file, "
            f"expected {groups} as of the program's {grouping.num_replicas} replicas"
        )
    if tensor.shape == expected:
        return
    hint = ""
    if groups > 1 and tensor.shape == variable.shape:
        hint = (
            f": this is the shape of one replica, but each of the {groups} groups is initialised individually, "
            "by a row of an outer dimension"
        )
    raise ShapeError(f"{_WHERE}: shapes differ for '{name}', got {tensor.shape}, expected {expected}{hint}")
