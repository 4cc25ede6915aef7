"""Runs of a session: data of streams in, the compiled program, data of streams out."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from popsr._program.op import Op
from popsr._program.streams import DeviceToHostStream, HostToDeviceStream, Stream
from popsr._session.host_data import StreamPlan, check_keys, check_outputs, input_array, unshared
from popsr._session.lints import GroupLint, check_lints, report_break
from popsr._session.printing import print_values
from popsr._session.rows import host_array
from popsr._session.state import SessionState
from popsr._session.synthetic_data import SyntheticData
from popsr._session.variables import VariableMirror
from popsr._support.host.arguments import read_mapping
from popsr._support.host.overlap import own_memory
from popsr._support.host.progress import progress_bar
from popsr._support.text.shown import shown
from popsr.errors import Error, StoppedError

__all__ = ["Runner"]

_logger = logging.getLogger("popsr")


class Runner:
    """Runs the program of a session.

    Args:
        state: the session's.
        mirror: its variables, which a run changes on the device.
        errors: codes of the lints that are errors.
        synthetic: fills the streams to the device in the caller's place.
    Attributes:
        inputs: streams to the device that are in use.
        outputs: streams to the host that are in use.
    """

    def __init__(
        self,
        state: SessionState,
        mirror: VariableMirror,
        errors: frozenset[str],
        synthetic: SyntheticData | None,
    ) -> None:
        """Nothing runs yet."""
        self._state = state
        self._mirror = mirror
        self._errors = errors
        self.synthetic = synthetic
        self._transfers = 0
        self.plan_streams()

    def stop(self) -> None:
        """See :meth:`popsr.Session.stop`."""
        self._state.core.stop()

    def begin(self) -> int:
        """Number of a new run, which ``stop`` ends from here on."""
        return self._state.core.begin_run()

    def empty_outputs(self) -> dict[DeviceToHostStream, np.ndarray[Any, Any]]:
        """Arrays of zeros for what a run stores."""
        if self._transfers != self._state.ir._num_host_transfers:
            self.plan_streams()
        return {plan.stream: np.zeros(plan.shape, plan.numpy) for plan in self.outputs}

    def run(
        self,
        number: int,
        inputs: Mapping[Any, Any],
        outputs: Mapping[Any, Any],
        downcast: bool,
        progress: bool | str,
        given: Mapping[Any, Any] | None = None,
    ) -> None:
        """Run ``number``; arrays ``given``, which are or become the outputs, may share memory with inputs."""
        if type(inputs) is not dict:
            read_mapping("run", "inputs", inputs)
        if self.synthetic is not None:
            inputs = self.synthetic.with_room(inputs, self.inputs)
        if len(inputs) != len(self.inputs):
            check_keys("run", "inputs", inputs, self.inputs)
        arrays = []
        for plan in self._streams:
            if not plan.to_device:
                arrays.append(outputs[plan.stream])
                continue
            data = inputs.get(plan.stream)
            if type(data) is not np.ndarray or data.dtype is not plan.numpy or data.shape != plan.shape:
                check_keys("run", "inputs", inputs, self.inputs)
                data = input_array(plan, data, downcast)
            elif not data.flags.c_contiguous:
                data = np.array(data, order="C")
            arrays.append(data)
        if given is not None and not (own_memory(given.values()) and own_memory(arrays)):
            check_outputs(given)
            arrays = unshared(self._streams, arrays)
        state = self._state
        bar = None if progress is False else progress_bar("run", progress, state.core.iterations)
        with state.lock:
            if state.running:
                state.require_idle("run")
            state.running = True
            try:
                # Stopped while inputs were converted, or another thread was running.
                if state.core.is_stopped(number):
                    raise StoppedError(
                        "run: stopped by Session.stop() before its first op, the variables are unchanged"
                    )
                if self.synthetic is not None:
                    self.synthetic.fill(self._streams, arrays, state.core.step)
                if not state.stale or state.ir._in_sync:
                    state.set_stale(True)
                if not self._mirror.copies.kept:
                    self._mirror.copies.keep()
                self._run_core(number, arrays, bar)
            finally:
                state.running = False

    def _run_core(self, number: int, arrays: list[Any], bar: Any) -> None:
        core = self._state.core
        try:
            if bar is None:
                core.run(number, arrays, self._print, None, self._stray, self._news)
            else:
                with bar as advance:
                    core.run(number, arrays, self._print, advance, self._stray, self._news)
        except Error as error:
            self._note_op(error)
            raise

    def _note_op(self, error: Error) -> None:
        """Note in an error which op the program was at."""
        id_ = self._state.core.failed_op
        if id_ is None:
            return
        op = Op(self._state.ir, id_)
        names = ", ".join("None" if t is None else shown(t.name) for t in op.inputs[:3])
        more = ", …" if len(op.inputs) > 3 else ""
        error.add_note(f"while running {op.kind}({names}{more}) at {op.location or '?'}")

    def _print(
        self, op: int, shown: list[tuple[int, int]], dtype: str, shape: tuple[int, ...], values: list[Any]
    ) -> None:
        print_values(self._state.ir, op, shown, [host_array(data, dtype, shape) for data in values])

    def _stray(self, op: int, text: str) -> None:
        _logger.warning(
            "%s at %s: %s and counts as none of them; an error with Session(strict={'labels'})",
            *(Op(self._state.ir, op).kind, Op(self._state.ir, op).location or "?", text),
        )

    def _news(self, broken: list[tuple[int, int, int, str]]) -> None:
        """Report what a run takes for granted for the first time, before it starts; see ``_core.Session.run``."""
        before = self._mirror.group_lint.drifts
        known = {variable._id for variable in self._state.variables} if broken else before
        drifts = check_lints(self._state.ir, self._state.core.facts, self._errors, known=known)
        report_break(self._state.ir, broken, before, drifts)
        self._mirror.group_lint = GroupLint(self._state.ir, drifts, "L3" in self._errors)

    def plan_streams(self) -> None:
        """Shapes of host data: programs for PopXL set ``session.ir.num_host_transfers`` when they have the session."""
        ir = self._state.ir
        if self._transfers == ir._num_host_transfers:
            return
        self._transfers = ir._num_host_transfers
        self._state.core.set_transfers(self._transfers)
        plans = [self._plan(ir._stream_cache[id_]) for id_ in self._state.core.used_streams()]
        self._streams = plans
        self.inputs = [plan for plan in plans if isinstance(plan.stream, HostToDeviceStream)]
        self.outputs = [plan for plan in plans if isinstance(plan.stream, DeviceToHostStream)]

    def _plan(self, stream: Stream) -> StreamPlan:
        ranks = self._state.ranks
        rows = range(stream.num_rows) if ranks is None else self._state.core.local_rows(stream._id)
        return StreamPlan(self._state.ir, stream, rows)
