"""Loading a checkpoint into a session, into as many replicas as it has."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from popsr._host.arguments import read_path
from popsr._host.files import bytes_of, shown_name, shown_path, shown_shape
from popsr._session.ranks import together
from popsr._session.rows import Array
from popsr._session.state import HostState
from popsr._text.shown import shown
from popsr.errors import ArgumentTypeError, DTypeError, ReplicaError, ShapeError, UnknownNameError
from popsr.io._checkpoint import close_names
from popsr.io._digest import Digest
from popsr.io._onnx_read import open_onnx
from popsr.io._safetensors_read import open_safetensors
from popsr.io._stored import StoredFile, StoredTensor
from popsr.tensor import Variable

__all__ = ["reset_host_weights"]

_WHERE = "reset_host_weights"


def reset_host_weights(
    session: HostState, path: str | os.PathLike[str], *, ignore_missing: bool = False
) -> None:
    """Set the variables of a session, and its step if the file has one, from a checkpoint.

    Tensors are found by the variables' ids; tensors of other names are ignored, as in PopART. A tensor has the
    variable's ``shape_on_host``: rows of a leading dimension belong to the groups in order. No replication factor need
    be embedded in the file. When one is, it may differ from the program's as long as a variable has the same number of
    groups in both: one group fits any number of replicas. Variables that keep all replicas take a row per group too.

    Everything is read and checked before anything is written; a call that fails has changed nothing. Each of several
    ranks reads the file, which may have been written by another number of them.

    Args:
        session: attached or not; an attached one is uploaded to.
        path: a safetensors file when it ends in ``.safetensors``, else an ONNX model.
        ignore_missing: leave variables that the file lacks as they are.
    Raises:
        KeyError: the file lacks a variable.
        ShapeError: a tensor of another shape, such as one replica's where there are several groups.
        DTypeError: a tensor of another dtype.
        ReplicaError: a variable had another number of groups when it was saved.
        CheckpointError: the file is damaged, contradicts itself, exceeds a limit, or is not a checkpoint.
        SessionError: the session is running.
        OSError: it cannot be read.
        RankError: ranks read files that differ.
    """
    if not isinstance(session, HostState):
        raise ArgumentTypeError(f"{_WHERE}: not a session, got {shown(session)}")
    with together(session._ranks, _WHERE):
        _reset(session, read_path(_WHERE, path), ignore_missing)


def _reset(session: HostState, target: Path, ignore_missing: bool) -> None:
    with session._held(_WHERE):
        pass  # a running one is refused before the file is read
    variables = list(session._variables)
    is_safetensors = target.suffix == ".safetensors"
    with (open_safetensors if is_safetensors else open_onnx)(_WHERE, target) as stored:
        found = {variable: variable.id for variable in variables if variable.id in stored.tensors}
        if len(found) < len(variables) and not ignore_missing:
            _refuse_missing(session, stored)
        for variable, name in found.items():
            _refuse_misfit(variable, stored, stored.tensors[name])
        arrays = stored.arrays(found.values())
    if session._ranks is not None:
        session._ranks.agree(_WHERE, [("ignore_missing", str(ignore_missing)), *_items(stored, arrays)])
    # The file is closed and its digests were right: nothing of it can fail any more.
    session._restore(
        {variable: arrays[name].view(variable.dtype.as_numpy()) for variable, name in found.items()},
        stored.step,
    )


def _items(stored: StoredFile, arrays: Mapping[str, Array]) -> Iterator[tuple[str, str]]:
    """Facts of a file that all ranks must see; their paths may differ."""
    yield "the step in the file", str(stored.step)
    yield "the variables in the file", ", ".join(arrays)
    for name, array in arrays.items():
        digest = Digest()
        digest.update(bytes_of(array))
        yield f"the data of {shown_name(name)} in the file", digest.text()


def _refuse_missing(session: HostState, stored: StoredFile) -> None:
    missing = [variable.id for variable in session._variables if variable.id not in stored.tensors]
    close = close_names(missing[0], stored.tensors)
    hint = f", did you mean {', '.join(close)}" if close else ""
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    raise UnknownNameError(
        f"{_WHERE}: {shown_path(stored.file.path)} lacks variables, got no {shown_name(missing[0])}{more}{hint}, "
        f"expected "
        f"all {len(list(session._variables))} (or ignore_missing=True)"
    )


def _refuse_misfit(variable: Variable, stored: StoredFile, tensor: StoredTensor) -> None:
    name, expected, replication = shown_name(variable.id), variable.shape_on_host, stored.replication
    grouping = variable.replica_grouping
    groups = grouping.num_groups
    dtype = stored.known_dtype(tensor)
    if dtype != variable.dtype.as_ml_dtypes():
        raise DTypeError(
            f"{_WHERE}: dtypes differ for {name}, got {dtype.name}, expected {variable.dtype.name}"
        )
    saved = groups if tensor.settings is None else tensor.settings.groups
    if saved != groups:
        raise ReplicaError(
            f"{_WHERE}: groups of {name} cannot be mapped, got {saved} of {replication} replicas in the file, "
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
    raise ShapeError(
        f"{_WHERE}: shapes differ for {name}, got {shown_shape(tensor.shape)}, expected {shown_shape(expected)}{hint}"
    )
