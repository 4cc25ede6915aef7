"""Running programs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, SupportsIndex

import numpy as np

from popsr import _core
from popsr._program.building.gaps import unsupported_ops
from popsr._program.building.location import add_place, noted
from popsr._program.building.transaction import transactional
from popsr._program.graph import Graph
from popsr._program.handles import refuse_copy, refuse_pickle
from popsr._program.ir import Ir
from popsr._program.op import Op
from popsr._program.popart_names import with_popart_names
from popsr._program.streams import DeviceToHostStream, HostToDeviceStream
from popsr._program.tensor import Constant, Variable
from popsr._session.devices import DeviceInfo
from popsr._session.host_data import (
    check_keys,
    output_array,
    require_variable,
)
from popsr._session.lints import GroupLint, check_lints, read_check, read_strict, stream_lints
from popsr._session.option_effects import options_of_session
from popsr._session.plan import Plan
from popsr._session.profile import Profile
from popsr._session.ranks.ranks import Ranks, collective, open_ranks, read_timeout, together
from popsr._session.ranks.rows import one_writer
from popsr._session.runner import Runner
from popsr._session.state import HostState, SessionState
from popsr._session.synthetic_data import SyntheticData
from popsr._session.variables import VariableMirror
from popsr._session.weights_io import PyWeightsIO
from popsr._support.host.arguments import is_a, read_choice, read_flag, read_int, read_mapping, read_path
from popsr._support.lazy import LazyModule, names_only
from popsr._support.records import SessionMemory, SessionStats
from popsr._support.text.entry_points import add_entry_points
from popsr._support.text.replica_sets import groups_text
from popsr._support.text.shown import shown
from popsr._support.text.summary import Groups, Summarised, Summary, line
from popsr._tools.report.source import Source
from popsr._tools.show.dot import write_dot_checks
from popsr.analysis import Lint, PartitionAnalysis, Traffic
from popsr.analysis._communication import PlanSettings
from popsr.compat._objects.session import AttachedByHand
from popsr.errors import ArgumentTypeError, Error, SessionError, StateError
from popsr.replicas import Partition
from popsr.utils import HostScalarTensor

if TYPE_CHECKING:
    from mpi4py import MPI

    from popsr._tools.report import page as _report
    from popsr._tools.report.page import Report
    from popsr._tools.trace import tracing as _trace
    from popsr._tools.trace.tracing import Trace
    from popsr.io import _reset
    from popsr.io._load.diff import LoadDiff
    from popsr.io._load.options import Cast, Only, Rename, Reshard
else:
    _report = LazyModule("popsr._tools.report.page")
    _reset = LazyModule("popsr.io._reset")
    _trace = LazyModule("popsr._tools.trace.tracing")

__all__ = ["Session", "StreamBufferMaps", "d2hStreamBufferMaps", "h2dStreamBufferMaps"]

d2hStreamBufferMaps = Mapping[DeviceToHostStream, np.ndarray[Any, Any]]  # noqa: N816 - PopXL's name
h2dStreamBufferMaps = Mapping[HostToDeviceStream, HostScalarTensor]  # noqa: N816 - PopXL's name
StreamBufferMaps = h2dStreamBufferMaps | d2hStreamBufferMaps


@with_popart_names
class Session(Summarised, HostState, AttachedByHand):
    """A compiled program with its host copy of the variables.

    The host copy starts from the data that the variables were made with. ``with session:`` attaches: variables are
    uploaded on entry and downloaded on exit of the outermost ``with`` unless an exception leaves it.

    Args:
        ir: the program.
        device_desc: "cpu", "ipu_model", "ipu_hw" and a device of PopART's ``DeviceManager`` all run on the simulator.
        weights_to_host_on_exit: download variables on exit.
        seed: seed of stochastic rounding. Default: the seed of ``ir.options``.
        dedup: store and compute values once per block of equal replicas; the bits are the same without it.
        check: compare the claims of the analysis while running (implies ``dedup=False``): True for all of them, or
            the share of executed ops whose claims are compared, from 0 (none, as False) to 1. Which these are is the
            same in every process, and another choice in each run of a session.
        num_threads: threads of this session. Default: ``popsr.set_num_threads``.
        strict: these are errors and not warnings: lints L1 and L2 when the session is made, and L3 when one replica of
            a group is read whose members differ, see ``analysis.PartitionAnalysis.warnings``; "labels", a label that
            an op runs on and that is none of its classes. True for all of these, or some of their codes.
        profile: time each instruction of each run; see ``profile``. The bits are the same.
        optimise: fuse ops, read and write through views and share buffers. Without it each op runs by itself into
            memory of its own; the bits are the same. Every op under ``check=True`` runs so, too.
        comm: communicator of mpi4py, whose ranks run the program together with the bits of one process: each rank
            stores and computes what its ``local_replicas`` need. All ranks make the same session with the same
            arguments, and then the same calls in the same order. Default: ``MPI.COMM_WORLD`` where the environment
            has ``POPSR_COMM=world``, and of a program that popdist's names made for several processes; else none.
        timeout: seconds that a call waits for other ranks before it raises ``RankError``. Default: ``POPSR_TIMEOUT``
            of the environment; without it calls wait as long as the other processes live.
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
        profile: bool = False,
        optimise: bool = True,
        comm: MPI.Intracomm | None = None,
        timeout: float | None = None,
    ) -> None:
        """Verify, analyse and compile the program.

        Raises:
            ReplicaError: with ``strict``, the program has lints L1 or L2.
            UnsupportedOpsError: the program has stand-ins for ops that popsr cannot compute.
            RankError: ranks of ``comm`` differ in program, data, options, arguments or versions; on all of them. Or
                they do not come within ``timeout``.
            ValueError: ``timeout`` is not a positive number of seconds.
            ReplicaError: ``comm`` has more ranks than there are replicas.
            TypeError: ``comm`` is not a communicator of mpi4py inside one group of processes.
        Warns:
            ReplicaWarning: it has them, without; once a program for each of these lints and line of an op.
        """
        ranks = open_ranks(comm, timeout, is_a(ir, Ir) and ir._is_distributed)
        with together(ranks, "Session"):
            read_timeout(timeout)
            if not is_a(ir, Ir):
                hint = (
                    "a graph, expected its Ir: graph.ir"
                    if is_a(ir, Graph)
                    else f"{shown(ir)}, expected an Ir"
                )
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
            if ir._gaps:
                raise unsupported_ops("Session", ir._gaps)
            share, errors = read_check(check), read_strict(strict)
            ir._assign_seeds()
            _core.verify_seeds(ir._core, ir.options.enable_stochastic_rounding)
            if ranks is not None:
                given = {
                    "seed": seed,
                    "dedup": dedup,
                    "check": share,
                    "strict": sorted(errors),
                    "optimise": optimise,
                }
                ranks.begin(ir, {**given, "weights_to_host_on_exit": weights_to_host_on_exit})
            facts = ir._session_facts()
            drifts = check_lints(ir, facts, errors)
            self._ir = ir
            clamp_scales = not ir.options.throw_if_log2_scale_tensor_not_in_range
            self._is_profiled = read_flag("Session: profile", profile)
            self._plan_settings = PlanSettings(
                read_flag("Session: dedup", dedup),
                share,
                ir.options.enable_floating_point_checks,
                read_flag("Session: optimise", optimise),
            )
            self._core = _core.Session(
                ir._core,
                facts,
                seed,
                self._plan_settings.dedup,
                share,
                num_threads or 0,
                clamp_scales,
                "labels" in errors,
                self._plan_settings.check_floats,
                self._is_profiled,
                self._plan_settings.optimise,
                None if ranks is None else ranks.link,
            )
            if ranks is not None:
                ranks.keep(self._core)
            self._to_host_on_exit = read_flag("Session: weights_to_host_on_exit", weights_to_host_on_exit)
            self._state = SessionState(ir, self._core, ranks)
            self._mirror = VariableMirror(self._state, GroupLint(ir, drifts, "L3" in errors))
            self._runner = Runner(self._state, self._mirror, errors, _options_of_session(ir, seed))
            self._facts: PartitionAnalysis | None = None
            ir._prepared = True

    # Running

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
        ranks = self._state.ranks
        if ranks is not None:
            ranks.begin_call("run")
        try:
            if self._state.depth == 0:
                self._state.require_attached("run")
            runner = self._runner
            outputs = runner.empty_outputs()
            runner.run({} if inputs is None else inputs, outputs, downcast_inputs, progress)
        except BaseException as error:
            if isinstance(error, Error):
                add_place(error, "running")
            if ranks is not None:
                ranks.report_error(error)
            raise
        return outputs

    @noted("running")
    @collective
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
        self._state.require_attached("run_with_outputs")
        self._runner.plan_streams()
        plans = self._runner.outputs
        given = read_mapping("run_with_outputs", "outputs", outputs)
        check_keys("run_with_outputs", "outputs", given, plans)
        buffers = {plan.stream: output_array(plan, given[plan.stream]) for plan in plans}
        self._runner.run({} if inputs is None else inputs, buffers, downcast_inputs, progress, given)
        for stream, array in given.items():
            if buffers[stream] is not array:
                array[...] = buffers[stream]

    def stop(self) -> None:
        """End the run that is in progress between two of its instructions: ``run`` raises ``StoppedError``.

        For other threads, handlers of signals, and what a run calls back. Variables hold what the instructions wrote
        that completed, and the next run starts anew. A run that still converts its inputs, or waits for another one's
        thread, ends too. When no run is in progress nothing happens, also not later.
        """
        self._runner.stop()

    def _full_input_shape(self, shape: Iterable[int]) -> tuple[int, ...]:
        """Shape of the data of one run for a stream of that shape; programs for PopXL call it."""
        leading = (self._ir.num_host_transfers, len(self.local_replicas))
        return (*(extent for extent in leading if extent > 1), *shape)

    def expected_inputs(self) -> set[HostToDeviceStream]:
        """The streams that ``run`` needs data for; none when ``syntheticDataMode`` makes it."""
        if self._runner.synthetic is not None:
            return set()
        return {plan.stream for plan in self._runner.inputs if isinstance(plan.stream, HostToDeviceStream)}

    def create_host_outputs(self) -> dict[DeviceToHostStream, np.ndarray[Any, Any]]:
        """Arrays for ``run_with_outputs``."""
        return self._runner.empty_outputs()

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
        return _reset.reset_host_weights(
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

    # Variables

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

    def storage(self, tensor: Variable) -> Partition:
        """Replicas that share one stored copy of a variable."""
        return self._mirror.storage(tensor)

    @property
    def _variables(self) -> Mapping[Variable, None]:  # type: ignore[override] # read-only
        """The variables, in the order in which they were made."""
        return self._state.variables

    @contextlib.contextmanager
    def _held(self, where: str) -> Iterator[None]:
        with self._state.lock:
            self._state.require_idle(where)
            yield

    def _current_rows(self, variable: Variable) -> np.ndarray[Any, Any]:
        return self._mirror.current_rows(variable)

    def _current_parts(self, variable: Variable) -> Iterable[np.ndarray[Any, Any]]:
        return self._mirror.current_parts(variable)

    def _together(self, where: str) -> contextlib.AbstractContextManager[None]:
        """An error inside, on one of several ranks, is raised on all of them."""
        return together(self._state.ranks, where)

    @contextlib.contextmanager
    def _one_writer(self, where: str, path: Path) -> Iterator[bool]:
        """True inside on the one rank that writes a file; all ranks leave the block when it is written."""
        with self._together(where), one_writer(self._state.ranks, where, path, self.step) as is_writer:
            yield is_writer

    def _set_rows(self, arrays: Mapping[Variable, np.ndarray[Any, Any]]) -> None:
        self._mirror.set_rows(arrays)

    def _restore(self, rows: Mapping[Variable, np.ndarray[Any, Any]], step: int | None) -> None:
        with self._state.lock:
            self._mirror.set_rows(rows)
            if step is not None:
                self.step = step

    # State

    @property
    def ir(self) -> Ir:
        """The program."""
        return self._ir

    @property
    def local_replicas(self) -> range:
        """The replicas that this process runs: all of them, or with ``comm`` those of this rank.

        Streams carry the rows of these, of groups the rows of groups that have one of these.
        """
        ranks = self._state.ranks
        return range(self._ir.replication_factor) if ranks is None else ranks.local

    @property
    def _ranks(self) -> Ranks | None:
        return self._state.ranks

    @property
    def is_attached(self) -> bool:
        """True inside ``with session:``."""
        return self._state.depth > 0

    @property
    def step(self) -> int:
        """Number of the next run: part of the key of its random numbers. Settable."""
        return self._core.step

    @step.setter
    def step(self, value: int) -> None:
        value = read_int("Session.step", value, 0, 2**64 - 1)
        with self._state.lock:
            self._state.require_idle("step")
            self._core.step = value

    @property
    def facts(self) -> PartitionAnalysis:
        """The facts of the last run, or of the first one if its streams are fed as assumed.

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
    def plan(self) -> Plan:
        """The compiled program as text: instructions with block counts and bytes.

        ``plan.communication(ranks=...)`` tells which messages a run needs between ranks.
        """
        ranks = self._state.ranks
        return Plan._of(self._ir, self._core, 1 if ranks is None else ranks.size, self._plan_settings)

    @property
    def stats(self) -> SessionStats:
        """``runs``, and per op name ``kernel_calls`` and ``blocks`` computed so far."""
        return self._core.stats()

    def traffic(self) -> dict[Op, Traffic]:
        """Bytes and messages that ops of this rank moved in all runs so far: as ``plan.communication()`` says.

        Empty without other ranks.
        """
        with self._state.lock:
            return {Op(self._ir, id_): Traffic(*moved) for id_, moved in self._core.traffic().items()}

    def memory(self) -> SessionMemory:
        """Bytes of ``variables``, ``constants``, ``activations`` and ``streams``."""
        return self._core.memory()

    def profile(self) -> Profile:
        """Time, memory and floating point operations of all runs so far: per instruction, kind and line.

        Raises:
            SessionError: the session was made without ``profile=True``.
        """
        if not self._is_profiled:
            raise SessionError(
                "profile: the session measures nothing, got profile=False, expected Session(..., profile=True)"
            )
        with self._state.lock:
            return Profile._of(self._ir._core, self._core.stats()["runs"], self._core.profile())

    def trace(self, path: str | os.PathLike[str]) -> Trace:
        """Times of the instructions of the runs that follow, as a file that Perfetto and ``chrome://tracing`` open.

        The file has a track for each thread, and of several ranks those of all of them: runs, loops, iterations,
        instructions, and the parts of instructions that workers take. Arguments are the op's number, name scope and
        line, its bytes and blocks. It is written when the trace ends, and has at most 50 MB (before it is compressed):
        later instructions are counted in 1,000 intervals::

            with session.trace("run.json.gz"):
                session.run(inputs)

        Args:
            path: a file, which is replaced; compressed where it ends in ``.gz``. All ranks make this call, and end the
                trace; rank 0 writes the file.
        Raises:
            TypeError: ``path`` is not a path.
            SessionError: the session is running, or is recorded or traced already.
            FileError: the file cannot be written.
        """
        with self._state.lock:
            return _trace.Trace(self, path)

    def report(self, path: str | os.PathLike[str] | None = None) -> Report:
        """All that is known of the program and its runs: lints, variables, memory, collectives, time, graph.

        Before a run it tells what is proved, what is allocated and what will be exchanged; with ``profile=True`` the
        time of runs so far. See ``docs/report.md``.

        Args:
            path: a file to write: text when it ends in ``.txt``, else one HTML page that needs nothing else. It is
                replaced completely or not at all. Of several ranks, which all make this call, rank 0 writes it.
        Returns:
            The report: ``str`` is the text, ``html`` the page; of several ranks the memory and time of this one.
        Raises:
            TypeError: ``path`` is not a path.
            FileError: the file cannot be written.
            GraphError: the program changed since the session was made.
            SessionError: the session runs in another thread.
        """
        where = None if path is None else read_path("report: path", path)
        with self._held("report"):
            report = _report.report_of(self._report_source())
        if where is not None:
            with self._one_writer("report", where) as is_writer:
                if is_writer:
                    _report.write_report(report, where)
        return report

    def _report_source(self) -> Source:
        ranks, core = self._state.ranks, self._core
        facts = self.facts
        facts._refresh_seeds()
        core.facts.check_fresh()
        return Source.of_core(
            self._ir,
            core,
            facts,
            rank=None if ranks is None else (ranks.rank, ranks.size),
            replicas=self.local_replicas,
            settings=self._plan_settings,
            communication=self.plan.communication(ranks=self._ir.replication_factor),
            traffic=self.traffic(),
            profile=self.profile() if self._is_profiled else None,
        )

    def __enter__(self) -> Session:
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
                if self._state.depth == 1 and exc_type is None and self._to_host_on_exit:
                    if self._mirror.copies.read_only is None:
                        self._mirror.download("exit", may_raise=False)
                    self._mirror.copies.trim()
            finally:
                self._state.depth -= 1

    # Attached by hand, as programs for PopXL do it

    @property
    def _depth(self) -> int:
        return self._state.depth

    @property
    def _popped(self) -> int:
        return self._state.popped

    @_popped.setter
    def _popped(self, value: int) -> None:
        self._state.popped = value

    def _attach(self) -> None:
        with self._state.lock:
            if not self._state.depth:
                self.__enter__()
                self._state.popped = 1

    def _detach(self) -> None:
        with self._state.lock:
            self._state.require_idle("detach")
            self._state.depth = self._state.popped = 0
            self._mirror.copies.trim()

    def __copy__(self) -> Self:
        refuse_copy(self)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        refuse_copy(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        refuse_pickle(self)

    def __repr__(self) -> str:
        return line(
            f"Session[{self._ir!r} {'attached' if self.is_attached else 'detached'} step={self._core.step}]"
        )

    def _summary(self) -> Summary:
        """The variables, with the replicas that hold one copy of each."""
        variables = self._ir.main_graph.variables
        rows = (
            (
                v.name,
                v.dtype.name,
                v.shape,
                _groups(v.replica_grouping.partition),
                _groups(self._core.storage(v._id)),
            )
            for v in variables
        )
        return Summary(
            repr(self), ("variable", "dtype", "shape", "groups", "stored once for"), rows, len(variables)
        )


def _groups(groups: Partition) -> Groups:
    return Groups(groups_text(groups), groups)


def _options_of_session(ir: Ir, seed: int) -> SyntheticData | None:
    """The effects of the options that were set, see ``popsr._session.option_effects``."""
    if not ir.options._values:
        return None
    write_dot_checks(ir)
    return options_of_session(ir, seed)


def _is_device(value: object) -> bool:
    return isinstance(value, DeviceInfo)


__dir__ = names_only(__all__)
add_entry_points(__name__)
