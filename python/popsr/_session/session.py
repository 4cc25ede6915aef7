"""Running programs: a session owns the compiled program, its runner and the host's copy of its variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, SupportsIndex

import numpy as np

from popsr._program.building.location import add_place, noted
from popsr._program.building.transaction import transactional
from popsr._program.handles import refuse_copy, refuse_pickle
from popsr._program.ir import Ir
from popsr._program.streams import DeviceToHostStream, HostToDeviceStream
from popsr._session.devices import DeviceInfo
from popsr._session.host_data import check_keys, output_array
from popsr._session.lints import GroupLint, check_lints
from popsr._session.options import SessionOptions, apply_program_options, check_device, check_program
from popsr._session.protocol import SessionAccess, SessionProtocol
from popsr._session.ranks.ranks import Ranks, collective, open_ranks, read_timeout, together
from popsr._session.runner import Runner
from popsr._session.state import SessionState
from popsr._session.variable_methods import SessionVariables
from popsr._session.variables import VariableMirror
from popsr._session.views import SessionViews
from popsr._support.extensions import call, member
from popsr._support.host.arguments import is_a, read_int, read_mapping
from popsr._support.text.entry_points import public
from popsr.analysis import PartitionAnalysis
from popsr.errors import Error
from popsr.utils import HostScalarTensor

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Session", "StreamBufferMaps", "d2hStreamBufferMaps", "h2dStreamBufferMaps"]

d2hStreamBufferMaps = Mapping[DeviceToHostStream, np.ndarray[Any, Any]]  # noqa: N816 - PopXL's name
h2dStreamBufferMaps = Mapping[HostToDeviceStream, HostScalarTensor]  # noqa: N816 - PopXL's name
StreamBufferMaps = h2dStreamBufferMaps | d2hStreamBufferMaps


@public
class Session(SessionVariables, SessionViews, SessionProtocol):
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
            check_program(ir)
            check_device(device_desc)
            options = SessionOptions.read(
                ir,
                seed=seed,
                dedup=dedup,
                check=check,
                num_threads=num_threads,
                strict=strict,
                profile=profile,
                optimise=optimise,
                weights_to_host_on_exit=weights_to_host_on_exit,
            )
            ir._seed_rules().verify(ir._core, ir.options.enable_stochastic_rounding)
            if ranks is not None:
                ranks.begin(ir, options.agreed())
            facts = ir._session_facts()
            drifts = check_lints(ir, facts, options.errors)
            self._ir, self._options, self._core = ir, options, options.compile(ir, facts, ranks)
            if ranks is not None:
                ranks.keep(self._core)
            self._state = SessionState(ir, self._core, ranks)
            self._mirror = VariableMirror(self._state, GroupLint(ir, drifts, "L3" in options.errors))
            synthetic = apply_program_options(ir, options.seed)
            self._runner = Runner(self._state, self._mirror, options.errors, synthetic)
            self._access = SessionAccess(self._state, self._mirror, self._runner, options)
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
        runner = self._runner
        number = runner.begin()
        ranks = self._state.ranks
        if ranks is not None:
            ranks.begin_call("run")
        try:
            if self._state.depth == 0:
                self._state.require_attached("run")
            outputs = runner.empty_outputs()
            runner.run(number, {} if inputs is None else inputs, outputs, downcast_inputs, progress)
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
        number = self._runner.begin()
        self._state.require_attached("run_with_outputs")
        self._runner.plan_streams()
        plans = self._runner.outputs
        given = read_mapping("run_with_outputs", "outputs", outputs)
        check_keys("run_with_outputs", "outputs", given, plans)
        buffers = {plan.stream: output_array(plan, given[plan.stream]) for plan in plans}
        self._runner.run(number, {} if inputs is None else inputs, buffers, downcast_inputs, progress, given)
        for stream, array in given.items():
            if buffers[stream] is not array:
                array[...] = buffers[stream]

    def stop(self) -> None:
        """End the run that is in progress between two of its instructions: ``run`` raises ``StoppedError``.

        For other threads, handlers of signals, and what a run calls back. Variables hold what the instructions wrote
        that completed, and the next run starts anew. A run is in progress from when it is called, so one that still
        converts its inputs, or waits for another one's thread, ends too. When no run is in progress nothing happens,
        also not later: a thread that is about to call ``run`` but has not yet is not stopped.
        """
        self._runner.stop()

    # State

    @property
    def ir(self) -> Ir:
        """The program."""
        return self._ir

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
    def _ranks(self) -> Ranks | None:
        return self._state.ranks

    # Names of PopXL and PopART that lead to their objects

    _device = property(member("compat", "Session._device"))
    _pb_session = property(member("compat", "Session._pb_session"))
    _set_device = member("compat", "Session._set_device")
    _was_attached_stack = property(member("compat", "Session._was_attached_stack"))

    def get_cycle_count(self, id: str = "") -> int:
        """PopART's count of a device's cycles, which a simulator does not have.

        Args:
            id: the counter.
        Raises:
            UnsupportedError: always; ``stats`` counts the calls of kernels.
        """
        count: int = call("compat", "Session.get_cycle_count", self, id)
        return count

    getCycleCount = get_cycle_count  # noqa: N815 - PopART's name

    def __copy__(self) -> Self:
        refuse_copy(self)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        refuse_copy(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        refuse_pickle(self)
