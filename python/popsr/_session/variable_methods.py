"""Reading and writing the variables of a session, as users call it."""

from __future__ import annotations

import abc
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from popsr._program.building.location import noted
from popsr._program.tensor import Constant, Variable
from popsr._session.host_data import require_variable
from popsr._session.protocol import Cast, LoadDiff, Only, Rename, Reshard
from popsr._session.ranks.ranks import Ranks, collective, together
from popsr._session.weights_io import PyWeightsIO
from popsr._support.extensions import call
from popsr._support.text.entry_points import public
from popsr.replicas import Partition
from popsr.utils import HostScalarTensor

if TYPE_CHECKING:
    from popsr._session.options import SessionOptions
    from popsr._session.state import SessionState
    from popsr._session.variables import VariableMirror

__all__ = ["SessionVariables"]


@public
class SessionVariables(abc.ABC):
    """The methods of a session that read and write variables, as attaching and detaching it do."""

    _mirror: VariableMirror
    _options: SessionOptions
    _state: SessionState

    @property
    @abc.abstractmethod
    def _ranks(self) -> Ranks | None:
        """The other ranks, which make the same calls; None without any."""

    @noted("reading variables")
    @collective
    def weights_to_host(self) -> None:
        """Download all variables: the host copies become what the device holds, at no cost where that is possible.

        Writable memory-mapped data is written through and flushed.

        Raises:
            SessionError: not attached, or the data of a variable is a read-only memory-mapped array.
            ReplicaError: with ``strict``, a variable that is read one per group differs inside a group (lint L3).
        Warns:
            ReplicaWarning: one does, without.
        """
        self._mirror.weights_to_host()

    @noted("writing variables")
    @collective
    def weights_from_host(self) -> None:
        """Upload all variables; those that the device holds already cost nothing."""
        self._mirror.weights_from_host()

    def get_tensor_data(
        self, tensor: Variable | Constant, *, replicas: Literal["group", "all"] = "group"
    ) -> np.ndarray[Any, Any]:
        """A copy of the data of a variable or constant; downloads first when the device has newer data.

        Of a variable with memory-mapped data the result is the mapped array itself, unless ``replicas`` is "all".

        Args:
            tensor: the variable or constant.
            replicas: "group": one value per group, or what the variable's retrieval mode says. "all": the value that
                each replica's device holds now, attached or not, however the variable was made; the host copy stays
                as it is.
        Returns:
            ``shape_on_host``; for "all" ``(replicas, *shape)``, of a sharded variable the whole that each replica's
            shards make.
        Raises:
            ValueError: ``replicas`` is another word.
            ReplicaError: with ``strict``, a variable that is read one per group differs inside a group (lint L3).
        Warns:
            ReplicaWarning: it does, without.
        """
        return self.get_tensors_data([tensor], replicas=replicas)[tensor]

    @noted("reading variables")
    @collective
    def get_tensors_data(
        self, tensors: Iterable[Variable | Constant], *, replicas: Literal["group", "all"] = "group"
    ) -> dict[Constant | Variable, np.ndarray[Any, Any]]:
        """Copies of the data of several variables and constants.

        Args:
            tensors: the variables and constants.
            replicas: as for ``get_tensor_data``.
        Raises:
            TypeError: something else than a variable or constant.
            ValueError: ``replicas`` is another word.
            ReplicaError: as for ``get_tensor_data``.
        """
        return self._mirror.get_tensors_data(tensors, replicas=replicas)

    def write_variable_data(self, tensor: Variable, data: HostScalarTensor) -> None:
        """Set a variable on the host, and on the device when attached; other variables keep their values."""
        require_variable("write_variable_data", tensor)
        self.write_variables_data({tensor: data})

    @noted("writing variables")
    @collective
    def write_variables_data(self, tensors: Mapping[Variable, HostScalarTensor]) -> None:
        """Set several variables; nothing is written when one of them does not fit.

        Raises:
            TypeError: not a variable, or data of another dtype.
            ValueError: data of another shape than ``shape_on_host``.
            NotImplementedError: a variable that keeps all replicas.
        """
        self._mirror.write_variables_data(tensors)

    @noted("reading variables")
    @collective
    def read_weights(self, io: PyWeightsIO) -> None:
        """Fill the caller's buffers with the newest values of variables; see ``popsr.io.PyWeightsIO``.

        Downloads first when the device has newer data. All buffers are checked before the first is written to.

        Raises:
            UnknownNameError: no variable has that name.
            TypeError: a buffer is not an array, or of another dtype.
            ShapeError: a buffer of another shape.
            SessionError: a buffer is read-only, or a variable is of another Ir.
            ReplicaError: as for ``get_tensor_data``.
        """
        self._mirror.read_weights(io)

    @noted("writing variables")
    @collective
    def write_weights(self, io: PyWeightsIO) -> None:
        """Set variables from the caller's buffers, as ``write_variables_data`` does; see ``popsr.io.PyWeightsIO``.

        All buffers are checked before the first variable is written to.

        Raises:
            UnknownNameError, TypeError, ShapeError, SessionError: as for ``read_weights``.
            ReplicaError: rows of replicas of one group are not bitwise the same.
        """
        self._mirror.write_weights(io)

    readWeights, writeWeights = read_weights, write_weights  # noqa: N815 - PopART's names

    def storage(self, tensor: Variable) -> Partition:
        """Replicas that share one stored copy of a variable."""
        return self._mirror.storage(tensor)

    def reset_host_weights(
        self,
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
        """Set all variables, and ``step`` if the file has it, from a checkpoint; see ``popsr.io``.

        Nothing is written unless all of it fits.

        Args:
            path: a safetensors file when it ends in ``.safetensors``, one of PyTorch when it ends in ``.pt`` or
                ``.pth``, else an ONNX model.
            ignore_missing: leave variables that the file lacks as they are.
            only: ids of variables to set: a pattern, several, or a predicate.
            rename: ids of variables by the file's names: a mapping or a function.
            cast: True, or the dtypes of the file that may be cast to the variables' own.
            reshard: axes by pattern of ids, or a function: rows are shards that are joined and cut anew.
            regroup: "replicas", or "order" for rows that belong to groups in their order.
            dry_run: change nothing, and return what would be done.
        """
        diff: LoadDiff = call(
            "io",
            "Session.reset_host_weights",
            self,
            path,
            ignore_missing=ignore_missing,
            only=only,
            rename=rename,
            cast=cast,
            reshard=reshard,
            regroup=regroup,
            dry_run=dry_run,
        )
        return diff

    resetHostWeights = reset_host_weights  # noqa: N815 - PopART's name

    def __enter__(self) -> Self:
        with self._state.lock:
            self._state.depth += 1
            if self._state.depth == 1:
                try:
                    self.weights_from_host()
                except BaseException:
                    self._state.depth = 0
                    raise
        return self

    def __exit__(self, exc_type: object, exc_value: BaseException | None, exc_tb: object) -> None:
        ranks = self._state.ranks
        if exc_value is not None and ranks is not None:
            ranks.report_exit(exc_value)  # the others may wait for this rank
        has_ended = ranks is not None and ranks.has_ended
        with together(None if exc_value is not None or has_ended else ranks, "exit"), self._state.lock:
            self._state.require_attached("exit")
            if self._state.depth == 1:
                self._state.require_idle("exit")
            try:
                if exc_value is None and ranks is not None and has_ended:
                    ranks.begin_call("exit")
                if self._state.depth == 1 and exc_type is None and self._options.to_host_on_exit:
                    if self._mirror.copies.read_only is None:
                        self._mirror.download("exit", may_raise=False)
                    self._mirror.copies.trim()
            finally:
                self._state.depth -= 1
