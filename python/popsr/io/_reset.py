"""Loading a checkpoint into a session, into as many replicas as it has."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from popsr._program.tensor import Variable
from popsr._session.protocol import Cast, Only, Rename, Reshard, SessionProtocol
from popsr._session.ranks.ranks import Ranks
from popsr._session.rows import Array
from popsr._support.host.arguments import read_flag, read_path
from popsr._support.host.files import bytes_of, shown_name
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError
from popsr.io._digest import Digest
from popsr.io._load.diff import LoadDiff
from popsr.io._load.options import LoadOptions
from popsr.io._load.plan import LoadPlan
from popsr.io._load.sources import open_checkpoint
from popsr.io._stored import StoredFile

__all__ = ["reset_host_weights"]

_WHERE = "reset_host_weights"


@public
def reset_host_weights(
    session: SessionProtocol,
    path: str | os.PathLike[str],
    *,
    ignore_missing: bool = False,
    only: Only = None,
    rename: Rename = None,
    cast: Cast = False,
    reshard: Reshard = None,
    regroup: str = "replicas",
    dry_run: bool = False,
) -> LoadDiff:
    """Set the variables of a session, and its step if the file has one, from a checkpoint.

    Tensors are found by the variables' ids; tensors of other names are ignored, as in PopART. A tensor has the
    variable's ``shape_on_host``: rows of a leading dimension belong to the groups in order. No replication factor need
    be embedded in the file. When one is, groups may differ where that loses nothing:

    - of as many replicas, each group takes the value that its replicas had: it lies inside one group of the file, or
      in several whose rows are bitwise equal;
    - of another number of replicas, one group fits any groups, rows that are bitwise equal fit one group, and as many
      groups fit where both are consecutive, as ``{0,1}{2,3}``, or both interleaved, as ``{0,2}{1,3}``.

    Variables that keep all replicas take a row per group too. Everything is read and checked before anything is
    written; a call that fails has changed nothing. Each of several ranks reads the file, which may have been written by
    another number of them.

    Args:
        session: attached or not; an attached one is uploaded to.
        path: a safetensors file when it ends in ``.safetensors``, one of ``torch.save`` when it ends in ``.pt`` or
            ``.pth``, else an ONNX model.
        ignore_missing: leave variables that the file lacks as they are.
        only: ids of variables to set: a pattern of ``fnmatch``, several, or a predicate. Others, and the step, stay as
            they are.
        rename: ids of variables by the file's names: a mapping (others keep their name), or a function that returns
            None for tensors to leave out.
        cast: True to cast values of other dtypes to the variable's, or the dtypes of the file that may be: floats are
            rounded to nearest even, all other casts must be exact, and no value may leave the range.
        reshard: axes by pattern of ids, or a function of the id that returns an axis or None: the groups' rows are
            shards along that axis, in the order of the groups; they are joined and cut into as many as the program has.
        regroup: "replicas", as above, or "order": rows belong to groups in their order, whatever replicas these have.
        dry_run: change nothing; the diff that is returned also says what does not fit. Data is read where it decides.
    Returns:
        What was done, or would be, of each variable.
    Raises:
        KeyError: the file lacks a variable, or ``only`` or ``rename`` name nothing.
        ShapeError: a tensor of another shape, such as one replica's where there are several groups.
        DTypeError: a tensor of another dtype, or a value that the variable's dtype does not have.
        ReplicaError: the file's groups do not give each group of the program one value.
        OutOfRangeError: a tensor has no such axis.
        CheckpointError: the file is damaged, contradicts itself, exceeds a limit, or is not a checkpoint.
        SessionError: the session is running.
        OSError: it cannot be read.
        RankError: ranks read files that differ.
    """
    if not isinstance(session, SessionProtocol):
        raise ArgumentTypeError(f"{_WHERE}: not a session, got {shown(session)}")
    options = LoadOptions.read(_WHERE, only, rename, cast, reshard, regroup)
    is_dry = read_flag(f"{_WHERE}: dry_run", dry_run)
    with session._access.together(_WHERE):
        return _reset(session, read_path(_WHERE, path), options, ignore_missing, is_dry)


def _reset(
    session: SessionProtocol, target: Path, options: LoadOptions, ignore_missing: bool, is_dry: bool
) -> LoadDiff:
    access = session._access
    with access.hold(_WHERE):
        pass  # a running one is refused before the file is read
    with open_checkpoint(_WHERE, target) as stored:
        plan = LoadPlan(_WHERE, stored, access.variables, options, ignore_missing)
        if is_dry:
            plan.try_data()
            return plan.diff(is_dry=True)
        plan.require()
        arrays = stored.arrays(each.tensor.name for each in plan.steps)
    rows = plan.apply(arrays)
    if access.ranks is not None:
        _agree(access.ranks, stored, rows, ignore_missing)
    # The file is closed and its digests were right: nothing of it can fail any more.
    with access.lock:
        access.set_rows(rows)
        if options.chosen is None and stored.step is not None:
            session.step = stored.step
    return plan.diff(is_dry=False)


def _agree(ranks: Ranks, stored: StoredFile, rows: Mapping[Variable, Array], ignore_missing: bool) -> None:
    ranks.agree(_WHERE, [("ignore_missing", str(ignore_missing)), *_items(stored, rows)])


def _items(stored: StoredFile, rows: Mapping[Variable, Array]) -> Iterator[tuple[str, str]]:
    """Facts of a file that all ranks must see; their paths may differ."""
    yield "the step in the file", str(stored.step)
    yield "the variables in the file", ", ".join(variable.id for variable in rows)
    for variable, array in rows.items():
        digest = Digest()
        digest.update(bytes_of(array))
        yield f"the data of {shown_name(variable.id)} in the file", digest.text()
