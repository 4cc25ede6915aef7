"""Running programs."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from popsr import _core
from popsr._host_copies import HostCopies
from popsr._host_data import (
    StreamPlan,
    check_keys,
    constant_data,
    input_array,
    output_array,
    variable_data,
)
from popsr._host_rows import Rows, as_rows, host_array, keeps_all_replicas
from popsr._lints import GroupLint, read_check, read_strict, refuse_lints
from popsr._popart_names import with_popart_names
from popsr._printing import print_values
from popsr.errors import ArgumentTypeError, SessionError, StateError
from popsr.ir import Ir
from popsr.streams import DeviceToHostStream, HostToDeviceStream
from popsr.tensor import Constant, Tensor, Variable
from popsr.utils import HostScalarTensor, is_a, read_choice, read_int, read_mapping

if TYPE_CHECKING:
    from popsr.io._weights_io import PyWeightsIO
    from popsr.replicas import Partition

__all__ = ["Session", "StreamBufferMaps", "d2hStreamBufferMaps", "h2dStreamBufferMaps"]

d2hStreamBufferMaps = Mapping[DeviceToHostStream, np.ndarray[Any, Any]]  # noqa: N816 - PopXL's name
h2dStreamBufferMaps = Mapping[HostToDeviceStream, HostScalarTensor]  # noqa: N816 - PopXL's name
StreamBufferMaps = h2dStreamBufferMaps | d2hStreamBufferMaps


@with_popart_names
class Session:
    """A compiled program with its host copy of the variables.

    The host copy starts from the data that the variables were made with. ``with session:`` attaches: variables are
    uploaded on entry and downloaded on exit of the outermost ``with`` unless an exception leaves it.

    Args:
        ir: the program.
        device_desc: "cpu", "ipu_model" and "ipu_hw" all run on the simulator.
        weights_to_host_on_exit: download variables on exit.
        seed: seed of stochastic rounding. Default: that of ``ir.options``.
        dedup: store and compute values once per block of equal replicas; the bits are the same without it.
        check: compare the claims of the analysis while running (implies ``dedup=False``): True for all of them, or
            the share of executed ops whose claims are compared. Which these are is the same in every process, and
            another choice in each run of a session.
        num_threads: threads of this session. Default: ``popsr.set_num_threads``.
        strict: lints are errors, see ``analysis.PartitionAnalysis.warnings``: L1 and L2 when the session is made, L3
            when one replica of a group is read whose members differ. True for all of these, or some of their codes.
    """

    def __init__(
        self,
        ir: Ir,
        device_desc: Literal["ipu_hw", "ipu_model", "cpu"] = "cpu",
        weights_to_host_on_exit: bool = True,
        *,
        seed: int | None = None,
        dedup: bool = True,
        check: bool | float = False,
        num_threads: int | None = None,
        strict: bool | Iterable[str] = False,
    ) -> None:
        """Verify, analyse and compile the program.

        Raises:
            ReplicaError: with ``strict``, the program has lints L1 or L2.
        """
        if not isinstance(ir, Ir):
            raise ArgumentTypeError(f"Session: ir is not an Ir, got {ir!r}")
        read_choice("Session", "device_desc", device_desc, ("cpu", "ipu_model", "ipu_hw"))
        if num_threads is not None:
            num_threads = read_int("num_threads", num_threads, 1, 4096)
        seed = ir.options.seed if seed is None else seed
        seed = read_int("seed", seed, 0, 2**64 - 1)
        if ir._core.num_ops == 0:
            raise StateError("Session: the program has no ops, expected at least one")
        share, errors = read_check(check), read_strict(strict)
        _prepare_seeds(ir)
        refuse_lints(ir, errors)
        self._ir = ir
        clamp_scales = not ir.options.throw_if_log2_scale_tensor_not_in_range
        self._core = _core.Session(ir._core, seed, bool(dedup), share, num_threads or 0, clamp_scales)
        ir._prepared = True
        self._to_host_on_exit = bool(weights_to_host_on_exit)
        self._depth = 0
        self._stale = False
        self._running = False
        self._lock = threading.RLock()  # for threads that share the session
        self._variables = dict.fromkeys(ir.main_graph.variables)  # without those made later
        self._copies = HostCopies(ir, self._core, self._variables)
        self._group_lint = GroupLint("L3" in errors)
        self._transfers = ir.num_host_transfers
        plans = [StreamPlan(ir, ir._stream_cache[id_]) for id_ in self._core.used_streams()]
        self._streams = plans
        self._inputs = [plan for plan in plans if isinstance(plan.stream, HostToDeviceStream)]
        self._outputs = [plan for plan in plans if isinstance(plan.stream, DeviceToHostStream)]

    # --- running ----------------------------------------------------------------------------------------------------

    def run(
        self, inputs: h2dStreamBufferMaps | None = None, downcast_inputs: bool = True
    ) -> dict[DeviceToHostStream, np.ndarray[Any, Any]]:
        """Run the main graph once and return what it stored.

        Replicas that do not store an element, because they take another branch, leave zeros. An error while the
        program runs leaves variables as far as they were written.

        Args:
            inputs: data of each host-to-device stream in use: ``(num_host_transfers, replicas, *shape)`` without the
                first two dimensions where they are 1.
            downcast_inputs: narrow 64-bit input data to 32 bits.
        Raises:
            SessionError: not attached, or data for other streams than those in use.
            ShapeError: data of the wrong shape.
            DTypeError: data of the wrong dtype.
            ReplicaError: a collective in a branch that some members of a group do not take.
        """
        self._require_attached("run")
        outputs = {plan.stream: np.zeros(plan.shape, plan.numpy) for plan in self._outputs}
        self._run(inputs or {}, outputs, downcast_inputs)
        return outputs

    def run_with_outputs(
        self,
        inputs: h2dStreamBufferMaps | None = None,
        outputs: d2hStreamBufferMaps | None = None,
        downcast_inputs: bool = True,
    ) -> None:
        """As ``run``, but into the caller's arrays, which keep what is not stored.

        Args:
            inputs: as in ``run``.
            outputs: an array of each device-to-host stream in use; see ``create_host_outputs``.
            downcast_inputs: narrow 64-bit input data to 32 bits.
        """
        self._require_attached("run_with_outputs")
        given = read_mapping("run_with_outputs", "outputs", outputs)
        check_keys("run_with_outputs", "outputs", given, self._outputs)
        buffers = {plan.stream: output_array(plan, given[plan.stream]) for plan in self._outputs}
        self._run(inputs or {}, buffers, downcast_inputs)
        for stream, array in given.items():
            if buffers[stream] is not array:
                array[...] = buffers[stream]

    def _run(self, inputs: Mapping[Any, Any], outputs: Mapping[Any, Any], downcast: bool) -> None:
        if type(inputs) is not dict:
            read_mapping("run", "inputs", inputs)
        if len(inputs) != len(self._inputs):
            check_keys("run", "inputs", inputs, self._inputs)
        arrays = []
        for plan in self._streams:
            if not plan.to_device:
                arrays.append(outputs[plan.stream])
                continue
            data = inputs.get(plan.stream)
            if type(data) is not np.ndarray or data.dtype is not plan.numpy or data.shape != plan.shape:
                check_keys("run", "inputs", inputs, self._inputs)
                data = input_array(plan, data, downcast)
            elif not data.flags.c_contiguous:
                data = np.array(data, order="C")
            arrays.append(data)
        with self._lock:
            self._require_idle("run")
            self._running = True
            self._set_stale(True)
            if not self._copies.kept:
                self._copies.keep()
            try:
                self._core.run(arrays, self._transfers, self._print)
            finally:
                self._running = False

    def _print(
        self, op: int, shown: list[tuple[int, int]], dtype: str, shape: tuple[int, ...], values: list[Any]
    ) -> None:
        print_values(self._ir, op, shown, [host_array(data, dtype, shape) for data in values])

    def expected_inputs(self) -> set[HostToDeviceStream]:
        """The streams that ``run`` needs data for."""
        return {plan.stream for plan in self._inputs if isinstance(plan.stream, HostToDeviceStream)}

    def create_host_outputs(self) -> dict[DeviceToHostStream, np.ndarray[Any, Any]]:
        """Arrays for ``run_with_outputs``."""
        return {plan.stream: np.zeros(plan.shape, plan.numpy) for plan in self._outputs}

    # --- variables --------------------------------------------------------------------------------------------------

    def weights_to_host(self) -> None:
        """Download all variables: the host copies become what the device holds, at no cost where that is possible.

        Writable memory-mapped data is written through and flushed.

        Raises:
            SessionError: not attached, or the data of a variable is a read-only memory-mapped array.
            ReplicaError: with ``strict``, a variable that is read one per group differs inside a group (lint L3).
        """
        self._require_attached("weights_to_host")
        with self._lock:
            self._require_idle("weights_to_host")
            if self._copies.read_only is not None:
                raise SessionError(
                    f"weights_to_host: '{self._copies.read_only.id}' is a read-only memory-mapped array, "
                    "expected a writable one"
                )
            self._download("weights_to_host", may_raise=True)

    def weights_from_host(self) -> None:
        """Upload all variables; those that the device holds already cost nothing."""
        self._require_attached("weights_from_host")
        with self._lock:
            self._require_idle("weights_from_host")
            self._copies.upload()
            self._set_stale(False)

    def get_tensor_data(self, tensor: Variable | Constant) -> np.ndarray[Any, Any]:
        """A copy of the data of a variable or constant; downloads first when the device has newer data.

        Of a variable with memory-mapped data the result is the mapped array itself.

        Raises:
            ReplicaError: with ``strict``, a variable that is read one per group differs inside a group (lint L3).
        """
        return self.get_tensors_data([tensor])[tensor]

    def get_tensors_data(
        self, tensors: Iterable[Variable | Constant]
    ) -> dict[Constant | Variable, np.ndarray[Any, Any]]:
        """Copies of the data of several variables and constants.

        Raises:
            TypeError: something else than a variable or constant.
            ReplicaError: as for ``get_tensor_data``.
        """
        if not is_a(tensors, Iterable) or is_a(tensors, Tensor):
            raise ArgumentTypeError(f"get_tensors_data: tensors are not a sequence, got {tensors!r}")
        tensors = list(tensors)
        for tensor in tensors:
            if not isinstance(tensor, (Variable, Constant)):
                raise ArgumentTypeError(
                    f"get_tensor_data: no variable or constant, got {tensor!r}, expected a Variable or Constant"
                )
            self._require_own("get_tensor_data", tensor)
        with self._lock:
            variables = [tensor for tensor in tensors if isinstance(tensor, Variable)]
            newest = bool(variables) and self._refresh("get_tensor_data", variables)
            return {tensor: self._data_of(tensor, newest) for tensor in tensors}

    def write_variable_data(self, tensor: Variable, data: HostScalarTensor) -> None:
        """Set a variable on the host, and on the device when attached; other variables keep their values."""
        self.write_variables_data({tensor: data})

    def write_variables_data(self, tensors: Mapping[Variable, HostScalarTensor]) -> None:
        """Set several variables; nothing is written when one of them does not fit.

        Raises:
            TypeError: not a variable, or data of another dtype.
            ValueError: data of another shape than ``shape_on_host``.
            NotImplementedError: a variable that keeps all replicas.
        """
        read_mapping("write_variables_data", "tensors", tensors)
        for tensor in tensors:
            if isinstance(tensor, Variable):
                self._require_own("write_variable_data", tensor)
        arrays = {tensor: variable_data(tensor, data) for tensor, data in tensors.items()}
        self._write("write_variable_data", [(t, as_rows(array, t), False) for t, array in arrays.items()])

    def read_weights(self, io: PyWeightsIO) -> None:
        """Fill the caller's buffers with the newest values of variables; see ``popsr.io.PyWeightsIO``.

        Downloads first when the device has newer data. All buffers are checked before the first is written to.

        Raises:
            UnknownNameError: no variable has that name.
            TypeError: a buffer is no array, or of another dtype.
            ShapeError: a buffer of another shape.
            SessionError: a buffer is read-only, or a variable is of another Ir.
            ReplicaError: as for ``get_tensor_data``.
        """
        buffers = self._buffers("read_weights", io)
        with self._lock:
            newest = self._refresh("read_weights", [variable for variable, _, _ in buffers])
            for variable, rows, per_replica in buffers:
                self._copies.read(variable, rows, per_replica, newest)

    def write_weights(self, io: PyWeightsIO) -> None:
        """Set variables from the caller's buffers, as ``write_variables_data`` does; see ``popsr.io.PyWeightsIO``.

        All buffers are checked before the first variable is written to.

        Raises:
            UnknownNameError, TypeError, ShapeError, SessionError: as for ``read_weights``.
            ReplicaError: rows of replicas of one group are not bitwise the same.
        """
        self._write("write_weights", self._buffers("write_weights", io))

    def reset_host_weights(self, path: str | os.PathLike[str], *, ignore_missing: bool = False) -> None:
        """Set all variables, and ``step`` if the file has it, from a checkpoint; see ``popsr.io``.

        Nothing is written unless all of it fits.

        Args:
            path: a safetensors file when it ends in ``.safetensors``, else an ONNX model.
            ignore_missing: leave variables that the file lacks as they are.
        """
        from popsr.io._reset import reset_host_weights

        reset_host_weights(self, path, ignore_missing=ignore_missing)

    def _current_rows(self, variable: Variable) -> np.ndarray[Any, Any]:
        """The newest value, one row per group, of ``shape_on_host``; callers must not write to it."""
        with self._lock:
            newest = self._refresh("save", [variable], always_one=True)
            rows = None if newest else self._copies.group_rows(variable)
            if rows is None:
                rows = self._copies.room(variable, False)
                self._copies.read(variable, rows, False, newest)
            return np.asarray(rows).reshape(variable.shape_on_host)

    def _current_parts(self, variable: Variable) -> list[np.ndarray[Any, Any]]:
        """The data of ``_current_rows`` in order, never copied: valid while the caller holds the lock."""
        with self._lock:
            newest = self._refresh("save", [variable], always_one=True)
            if newest or self._copies.on_device(variable):
                return self._core.row_views(variable._id)
            return [self._current_rows(variable)]

    def _set_rows(self, arrays: Mapping[Variable, np.ndarray[Any, Any]]) -> None:
        """Set variables from checked data of ``shape_on_host``, whatever their retrieval mode."""
        self._write(
            "load", [(variable, as_rows(array, variable), False) for variable, array in arrays.items()]
        )

    def _data_of(self, tensor: Tensor, newest: bool) -> np.ndarray[Any, Any]:
        if not isinstance(tensor, Variable):
            return constant_data(tensor)
        mapped = self._copies.mapped(tensor)
        if mapped is not None and not (newest and self._core.is_written(tensor._id)):
            return mapped
        per_replica = keeps_all_replicas(tensor)
        rows = self._copies.room(tensor, per_replica)
        self._copies.read(tensor, rows, per_replica, newest)
        return rows if per_replica else rows.reshape(tensor.shape_on_host)

    def _buffers(self, where: str, io: PyWeightsIO) -> list[Rows]:
        from popsr.io._weights_io import PyWeightsIO

        if not isinstance(io, PyWeightsIO):
            raise ArgumentTypeError(f"{where}: io is not a PyWeightsIO, got {io!r}")
        buffers = io._buffers(where, self._variables, reading=where == "read_weights")
        for variable, _, _ in buffers:
            self._require_own(where, variable)
        return buffers

    def _write(self, where: str, rows: list[Rows]) -> None:
        with self._lock:
            self._require_idle(where)
            for variable, _, _ in rows:
                mapped = self._copies.mapped(variable)
                if mapped is not None and not mapped.flags.writeable:
                    raise SessionError(f"{where}: '{variable.id}' is a read-only memory-mapped array")
            self._refresh(where)  # others keep their values
            for variable, array, per_replica in rows:
                self._copies.write(variable, array, per_replica)

    def _download(self, where: str, *, may_raise: bool) -> None:
        unequal = self._copies.unequal()
        for variable, divergence in unequal.items():
            self._group_lint.report(where, variable, divergence, may_raise=may_raise)
        self._copies.download(unequal)
        self._set_stale(False)

    def _refresh(self, where: str, variables: Iterable[Variable] = (), *, always_one: bool = False) -> bool:
        """Download what is newer, and report variables whose groups are not equal.

        Args:
            where: what needs it.
            variables: those that the host wants to see.
            always_one: it wants one value per group also of those that keep all replicas.
        Returns:
            True when the device has newer values that could not be downloaded, and has to be asked.
        """
        newest = False
        if self._stale and self._depth > 0:
            self._require_idle(where)
            newest = self._copies.read_only is not None
            if not newest:
                self._copies.download(self._copies.unequal())
                self._set_stale(False)
        for variable in variables:
            if always_one or not keeps_all_replicas(variable):
                divergence = self._copies.divergence(variable, newest)
                if divergence is not None:
                    self._group_lint.report(where, variable, divergence)
        return newest

    def _set_stale(self, stale: bool) -> None:
        self._stale = stale
        self._ir._in_sync = not stale

    def _require_attached(self, where: str) -> None:
        if self._depth == 0:
            raise SessionError(f"{where}: the session is detached, expected a call inside `with session:`")

    def _require_idle(self, where: str) -> None:
        """Refuse calls from what ``print_tensor`` writes to, in the middle of a run."""
        if self._running:
            raise SessionError(f"{where}: the session is running, expected a call after the run")

    def _require_own(self, where: str, tensor: Tensor) -> None:
        if tensor._ir is not self._ir:
            raise SessionError(
                f"{where}: tensor of another Ir, got {tensor!r} of {tensor._ir!r}, expected {self._ir!r}"
            )
        if isinstance(tensor, Variable) and tensor not in self._variables:
            raise SessionError(
                f"{where}: variable is newer than the session, got {tensor!r}, expected one of its program"
            )

    # --- state ------------------------------------------------------------------------------------------------------

    @property
    def ir(self) -> Ir:
        """The program."""
        return self._ir

    @property
    def is_attached(self) -> bool:
        """Inside ``with session:``?"""
        return self._depth > 0

    @property
    def step(self) -> int:
        """Number of the next run: part of the key of its random numbers. Settable."""
        return self._core.step

    @step.setter
    def step(self, value: int) -> None:
        self._core.step = read_int("step", value, 0, 2**64 - 1)

    @property
    def plan(self) -> str:
        """The compiled program as text: instructions with block counts and bytes."""
        return self._core.plan()

    @property
    def stats(self) -> dict[str, Any]:
        """``runs``, and per op name ``kernel_calls`` and ``blocks`` computed so far."""
        return self._core.stats()

    def memory(self) -> dict[str, int]:
        """Bytes of ``variables``, ``constants``, ``activations`` and ``streams``."""
        return self._core.memory()

    def storage(self, tensor: Variable) -> Partition:
        """Replicas that share one stored copy of a variable."""
        self._require_own("storage", tensor)
        return self._core.storage(tensor._id)

    def __enter__(self) -> Session:
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                try:
                    self.weights_from_host()
                except BaseException:
                    self._depth = 0
                    raise
        return self

    def __exit__(self, exc_type: object, exc_value: object, exc_tb: object) -> None:
        with self._lock:
            self._require_attached("exit")
            try:
                if self._depth == 1 and exc_type is None and self._to_host_on_exit:
                    if self._copies.read_only is None:
                        self._download("exit", may_raise=False)
                    self._copies.trim()
            finally:
                self._depth -= 1

    def __repr__(self) -> str:
        return f"Session[{self._ir!r} {'attached' if self.is_attached else 'detached'}]"


def _prepare_seeds(ir: Ir) -> None:
    """Give ops their seed rules unless the transform was run by hand; then verify."""
    enabled = ir.options.enable_stochastic_rounding
    if not ir._seeds_explicit:
        if enabled:
            _core.assign_seeds(ir._core, ir.options.stochastic_rounding_mode)
        else:
            _core.clear_seeds(ir._core)
    _core.verify_seeds(ir._core, enabled)
