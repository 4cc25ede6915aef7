"""Running programs."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from popsr import _core
from popsr._host.arguments import is_a, read_choice, read_flag, read_int, read_mapping
from popsr._host.overlap import own_memory
from popsr._lazy import LazyModule
from popsr._popart.session import AttachStack, PopartSession, SessionDevice, read_device
from popsr._program.location import add_place, noted
from popsr._program.popart_names import with_popart_names
from popsr._program.transaction import keep_attribute, transactional
from popsr._session.devices import DeviceInfo
from popsr._session.host_copies import HostCopies
from popsr._session.host_data import (
    StreamPlan,
    apart,
    check_keys,
    check_outputs,
    input_array,
    output_array,
)
from popsr._session.lints import GroupLint, check_lints, read_check, read_strict, report_break, stream_lints
from popsr._session.option_effects import options_of_session
from popsr._session.printing import print_values
from popsr._session.progress import progress_bar
from popsr._session.rows import host_array
from popsr._session.synthetic_data import SyntheticData
from popsr._session.variables import SessionVariables
from popsr._show.dot import write_dot_checks
from popsr._text.shown import shown
from popsr.analysis import Lint, PartitionAnalysis
from popsr.errors import ArgumentTypeError, Error, StateError, StoppedError, UnsupportedError
from popsr.graph import Graph
from popsr.ir import Ir
from popsr.op import Op
from popsr.replicas import Partition
from popsr.streams import DeviceToHostStream, HostToDeviceStream
from popsr.utils import HostScalarTensor

if TYPE_CHECKING:
    from popsr.io import _reset
else:
    _reset = LazyModule("popsr.io._reset")

__all__ = ["Session", "StreamBufferMaps", "d2hStreamBufferMaps", "h2dStreamBufferMaps"]

d2hStreamBufferMaps = Mapping[DeviceToHostStream, np.ndarray[Any, Any]]  # noqa: N816 - PopXL's name
h2dStreamBufferMaps = Mapping[HostToDeviceStream, HostScalarTensor]  # noqa: N816 - PopXL's name
StreamBufferMaps = h2dStreamBufferMaps | d2hStreamBufferMaps

_logger = logging.getLogger("popsr")


@with_popart_names
class Session(SessionVariables):
    """A compiled program with its host copy of the variables.

    The host copy starts from the data that the variables were made with. ``with session:`` attaches: variables are
    uploaded on entry and downloaded on exit of the outermost ``with`` unless an exception leaves it.

    Args:
        ir: the program.
        device_desc: "cpu", "ipu_model", "ipu_hw" and a device of PopART's ``DeviceManager`` all run on the simulator.
        weights_to_host_on_exit: download variables on exit.
        seed: seed of stochastic rounding. Default: that of ``ir.options``.
        dedup: store and compute values once per block of equal replicas; the bits are the same without it.
        check: compare the claims of the analysis while running (implies ``dedup=False``): True for all of them, or
            the share of executed ops whose claims are compared, from 0 (none, as False) to 1. Which these are is the
            same in every process, and another choice in each run of a session.
        num_threads: threads of this session. Default: ``popsr.set_num_threads``.
        strict: these are errors and not warnings: lints L1 and L2 when the session is made, and L3 when one replica of
            a group is read whose members differ, see ``analysis.PartitionAnalysis.warnings``; "labels", a label that
            an op runs on and that is none of its classes. True for all of these, or some of their codes.
    """

    @transactional
    def __init__(
        self,
        ir: Ir,
        device_desc: Literal["ipu_hw", "ipu_model", "cpu"] | DeviceInfo = "cpu",
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
        Warns:
            ReplicaWarning: it has them, without; once a program for each of these lints and line of an op.
        """
        if not is_a(ir, Ir):
            hint = "a graph, expected its Ir: graph.ir" if is_a(ir, Graph) else f"{shown(ir)}, expected an Ir"
            raise ArgumentTypeError(f"Session: ir is not an Ir, got {hint}")
        if not _is_device(device_desc):
            read_choice("Session", "device_desc", device_desc, ("cpu", "ipu_model", "ipu_hw"))
        if num_threads is not None:
            num_threads = read_int("Session: num_threads", num_threads, 1, 4096)
        seed = ir.options.seed if seed is None else seed
        seed = read_int("Session: seed", seed, 0, 2**64 - 1)
        ir.options._check_for(ir)
        if ir._core.num_ops == 0:
            raise StateError("Session: the program has no ops, expected at least one")
        share, errors = read_check(check), read_strict(strict)
        ir._assign_seeds()
        _core.verify_seeds(ir._core, ir.options.enable_stochastic_rounding)
        facts = ir._session_facts()
        drifts = check_lints(ir, facts, errors)
        self._ir = ir
        clamp_scales = not ir.options.throw_if_log2_scale_tensor_not_in_range
        self._core = _core.Session(
            ir._core,
            facts,
            seed,
            read_flag("Session: dedup", dedup),
            share,
            num_threads or 0,
            clamp_scales,
            "labels" in errors,
            ir.options.enable_floating_point_checks,
        )
        keep_attribute(ir, ir, "_prepared")
        ir._prepared = True
        self._to_host_on_exit = read_flag("Session: weights_to_host_on_exit", weights_to_host_on_exit)
        self._transfers = 0
        self._depth = self._popped = 0  # `with` entered; of these left by `_was_attached_stack.pop`
        self._stale = False
        self._running = False
        self._stops = 0  # calls of stop
        self._lock = threading.RLock()  # for threads that share the session
        self._variables = dict.fromkeys(ir.main_graph.variables)  # without those made later
        self._copies = HostCopies(ir, self._core, self._variables)
        self._errors = errors
        self._seeds_at = ir._seeds_at
        self._facts: PartitionAnalysis | None = None
        self._group_lint = GroupLint(ir, drifts, "L3" in errors)
        self._plan_streams()
        self._synthetic = _options_of_session(ir, seed)

    # --- running ----------------------------------------------------------------------------------------------------

    def run(
        self,
        inputs: h2dStreamBufferMaps | None = None,
        downcast_inputs: bool = True,
        *,
        progress: bool | str = False,
    ) -> dict[DeviceToHostStream, np.ndarray[Any, Any]]:
        """Run the main graph once and return what it stored.

        Replicas that do not store an element, because they take another branch, leave zeros. An error while the
        program runs leaves variables as far as they were written, and ``step`` as it was. A note of it says at which
        op, and where in your program that is.

        An iteration is one pass of a ``repeat`` that is in no other ``repeat`` and no ``conditional``, also where the
        main graph calls the graph that it is in. Of a program without any it is one element of the stream that moves
        on most often in a run.

        Ctrl-C and ``stop`` end a run between two instructions, wherever it is: variables hold what the instructions
        wrote that completed. The ``StoppedError``, or a note of the ``KeyboardInterrupt``, says after how many
        iterations.

        Args:
            inputs: data of each host-to-device stream in use: ``(num_host_transfers, replicas, *shape)`` without the
                first two dimensions where they are 1.
            downcast_inputs: narrow 64-bit input data to 32 bits.
            progress: show a bar that moves on with each iteration, in terminals (on standard error) and notebooks, if
                there are two or more. A str is written before it. Needs tqdm: ``pip install popsr[progress]``.
        Raises:
            SessionError: not attached, or data for other streams than those in use.
            ShapeError: data of the wrong shape.
            DTypeError: data of the wrong dtype.
            ReplicaError: a collective in a branch that some members of a group do not take; rows that differ of a
                stream that is declared equal; with ``strict``, lints L1 or L2 as rows of a small stream differ.
            FloatingPointError: with ``ir.options.enable_floating_point_checks``, a result is not finite although the
                operands of its op are.
            StoppedError: ``stop`` was called.
            OutOfRangeError: an index or offset out of range; with ``strict``, a label that is none of the classes.
            TypeError: ``progress`` is neither bool nor str.
            ImportError: ``progress`` is asked for and tqdm is not installed.
        """
        try:
            self._require_attached("run")
            self._plan_streams()
            outputs = {plan.stream: np.zeros(plan.shape, plan.numpy) for plan in self._outputs}
            self._run({} if inputs is None else inputs, outputs, downcast_inputs, progress)
        except Error as error:
            add_place(error, "running")
            raise
        return outputs

    @noted("running")
    def run_with_outputs(
        self,
        inputs: h2dStreamBufferMaps | None = None,
        outputs: d2hStreamBufferMaps | None = None,
        downcast_inputs: bool = True,
        *,
        progress: bool | str = False,
    ) -> None:
        """As ``run``, but into the caller's arrays, which keep what is not stored.

        Args:
            inputs: as in ``run``.
            outputs: an array of each device-to-host stream in use; see ``create_host_outputs``.
            downcast_inputs: narrow 64-bit input data to 32 bits.
            progress: as in ``run``.
        Raises:
            SessionError: also if outputs overlap each other or themselves. Inputs that overlap outputs are copied.
        """
        self._require_attached("run_with_outputs")
        self._plan_streams()
        given = read_mapping("run_with_outputs", "outputs", outputs)
        check_keys("run_with_outputs", "outputs", given, self._outputs)
        buffers = {plan.stream: output_array(plan, given[plan.stream]) for plan in self._outputs}
        self._run({} if inputs is None else inputs, buffers, downcast_inputs, progress, given)
        for stream, array in given.items():
            if buffers[stream] is not array:
                array[...] = buffers[stream]

    def _run(
        self,
        inputs: Mapping[Any, Any],
        outputs: Mapping[Any, Any],
        downcast: bool,
        progress: bool | str,
        given: Mapping[Any, Any] | None = None,
    ) -> None:
        """One run; the caller's arrays ``given``, which are or become the outputs, may share memory with inputs."""
        stops = self._stops
        if type(inputs) is not dict:
            read_mapping("run", "inputs", inputs)
        if self._synthetic is not None:
            inputs = self._synthetic.with_room(inputs, self._inputs)
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
        if given is not None and not (own_memory(given.values()) and own_memory(arrays)):
            check_outputs(given)
            arrays = apart(self._streams, arrays)
        bar = None if progress is False else progress_bar("run", progress, self._core.iterations)
        with self._lock:
            self._require_idle("run")
            self._core.forget_stop()
            self._running = True
            try:
                if self._stops != stops:  # while inputs were converted, or another thread was running
                    raise StoppedError(
                        "run: stopped by Session.stop() before its first op, the variables are unchanged"
                    )
                if self._synthetic is not None:
                    self._synthetic.fill(self._streams, arrays, self._core.step)
                self._set_stale(True)
                if not self._copies.kept:
                    self._copies.keep()
                self._run_core(arrays, bar)
            finally:
                self._running = False

    def _run_core(self, arrays: list[Any], bar: Any) -> None:
        self._ir._restore_seeds(self._seeds_at)
        try:
            if bar is None:
                self._core.run(arrays, self._transfers, self._print, None, self._stray, self._news)
            else:
                with bar as advance:
                    self._core.run(arrays, self._transfers, self._print, advance, self._stray, self._news)
        except Error as error:
            self._note_op(error)
            raise

    def stop(self) -> None:
        """End the run that is in progress between two of its instructions: ``run`` raises ``StoppedError``.

        For other threads, handlers of signals, and what a run calls back. Variables hold what the instructions wrote
        that completed, and the next run starts anew. A run that still converts its inputs, or waits for that of another
        thread, ends too. When no run is in progress nothing happens, also not later.
        """
        self._stops += 1
        if self._running:
            self._core.stop()

    def _note_op(self, error: Error) -> None:
        """Note in an error which op the program was at."""
        id_ = self._core.failed_op
        if id_ is None:
            return
        op = Op(self._ir, id_)
        names = ", ".join("None" if t is None else shown(t.name) for t in op.inputs[:3])
        more = ", …" if len(op.inputs) > 3 else ""
        error.add_note(f"while running {op.kind}({names}{more}) at {op.location or '?'}")

    def _print(
        self, op: int, shown: list[tuple[int, int]], dtype: str, shape: tuple[int, ...], values: list[Any]
    ) -> None:
        print_values(self._ir, op, shown, [host_array(data, dtype, shape) for data in values])

    def _stray(self, op: int, text: str) -> None:
        _logger.warning(
            "%s at %s: %s and counts as none of them; an error with Session(strict={'labels'})",
            *(Op(self._ir, op).kind, Op(self._ir, op).location or "?", text),
        )

    def _news(self, broken: list[tuple[int, int, int, str]]) -> None:
        """Report what a run takes for granted for the first time, before it starts; see ``_core.Session.run``."""
        before = self._group_lint.drifts
        known = {variable._id for variable in self._variables} if broken else before
        drifts = check_lints(self._ir, self._core.facts, self._errors, known=known)
        report_break(self._ir, broken, before, drifts)
        self._group_lint = GroupLint(self._ir, drifts, "L3" in self._errors)

    def _plan_streams(self) -> None:
        """Shapes of host data: programs for PopXL set ``session.ir.num_host_transfers`` when they have the session."""
        ir = self._ir
        if self._transfers == ir._num_host_transfers:
            return
        self._transfers = ir._num_host_transfers
        plans = [StreamPlan(ir, ir._stream_cache[id_]) for id_ in self._core.used_streams()]
        self._streams = plans
        self._inputs = [plan for plan in plans if isinstance(plan.stream, HostToDeviceStream)]
        self._outputs = [plan for plan in plans if isinstance(plan.stream, DeviceToHostStream)]

    def _full_input_shape(self, shape: Iterable[int]) -> tuple[int, ...]:
        """Shape of the data of one run for a stream of that shape; programs for PopXL call it."""
        leading = (self._ir.num_host_transfers, self._ir.replication_factor)
        return (*(extent for extent in leading if extent > 1), *shape)

    def expected_inputs(self) -> set[HostToDeviceStream]:
        """The streams that ``run`` needs data for; none when ``syntheticDataMode`` makes it."""
        if self._synthetic is not None:
            return set()
        return {plan.stream for plan in self._inputs if isinstance(plan.stream, HostToDeviceStream)}

    def create_host_outputs(self) -> dict[DeviceToHostStream, np.ndarray[Any, Any]]:
        """Arrays for ``run_with_outputs``."""
        self._plan_streams()
        return {plan.stream: np.zeros(plan.shape, plan.numpy) for plan in self._outputs}

    def reset_host_weights(self, path: str | os.PathLike[str], *, ignore_missing: bool = False) -> None:
        """Set all variables, and ``step`` if the file has it, from a checkpoint; see ``popsr.io``.

        Nothing is written unless all of it fits.

        Args:
            path: a safetensors file when it ends in ``.safetensors``, else an ONNX model.
            ignore_missing: leave variables that the file lacks as they are.
        """
        _reset.reset_host_weights(self, path, ignore_missing=ignore_missing)

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
        value = read_int("Session.step", value, 0, 2**64 - 1)
        with self._lock:
            self._require_idle("step")
            self._core.step = value

    @property
    def facts(self) -> PartitionAnalysis:
        """Which replicas agree in the last run, or in the first one if its streams are fed as assumed.

        Other than ``analyze(ir)`` it takes small streams as equal whose rows were equal as fed, and starts from what
        the replicas really hold of each variable. ``warnings`` has lint L13 too.
        """
        core = self._core.facts
        if self._facts is None or self._facts._core is not core:
            self._facts = PartitionAnalysis._of_session(self._ir, core, self._stream_lints)
        return self._facts

    def _stream_lints(self) -> list[Lint]:
        equal = [id_ for id_, rows in self._core.small_streams().items() if rows.num_blocks == 1]
        return stream_lints(self._ir, self._core.facts, equal, self._core.large_equal_streams())

    @property
    def equal_streams(self) -> dict[HostToDeviceStream, Partition]:
        """Replicas whose rows are taken as equal, of each stream with rows of at most 64 elements.

        As fed in the last run; before the first run, as assumed of it.
        """
        found = self._core.small_streams().items()
        return {self._ir._stream_cache[id_]: rows for id_, rows in found}

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

    def get_cycle_count(self, id: str = "") -> int:
        """PopART's count of a device's cycles, which a simulator does not have.

        Args:
            id: the counter.
        Raises:
            UnsupportedError: always; ``stats`` counts the calls of kernels.
        """
        raise UnsupportedError(
            f"getCycleCount: a simulator does not count cycles, got id {shown(id)}, expected Session.stats: kernel "
            "calls and computed blocks of each op"
        )

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
            if self._depth == 1:
                self._require_idle("exit")
            try:
                if self._depth == 1 and exc_type is None and self._to_host_on_exit:
                    if self._copies.read_only is None:
                        self._download("exit", may_raise=False)
                    self._copies.trim()
            finally:
                self._depth -= 1

    # --- attached by hand, as programs for PopXL do it ---------------------------------------------------------------

    @property
    def _device(self) -> SessionDevice:
        return SessionDevice(self)

    @property
    def _pb_session(self) -> PopartSession:
        return PopartSession(self)

    @property
    def _was_attached_stack(self) -> AttachStack:
        return AttachStack(self)

    def _set_device(self, device: Any) -> None:
        read_device(device)

    def _attach(self) -> None:
        with self._lock:
            if not self._depth:
                self.__enter__()
                self._popped = 1

    def _detach(self) -> None:
        with self._lock:
            self._require_idle("detach")
            self._depth = self._popped = 0
            self._copies.trim()

    def __repr__(self) -> str:
        return f"Session[{self._ir!r} {'attached' if self.is_attached else 'detached'}]"


def _options_of_session(ir: Ir, seed: int) -> SyntheticData | None:
    """The effects of the options that were set, see ``popsr._session.option_effects``."""
    if not ir.options._values:
        return None
    write_dot_checks(ir)
    return options_of_session(ir, seed)


def _is_device(value: object) -> bool:
    return isinstance(value, DeviceInfo)
