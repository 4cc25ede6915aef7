"""Data of a step: arrays of inputs in, arrays of anchors out."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from popsr._support.host.arguments import is_a, read_bool, read_call, read_mapping
from popsr._support.text.shown import shown
from popsr.compat._objects.data_flow import AnchorReturnTypeId, DataFlow
from popsr.compat.popart._settings import STREAM_MODE, ReplicatedStreamMode
from popsr.errors import ArgumentTypeError, DTypeError, SessionError, ShapeError, UnknownNameError
from popsr.io._onnx.format import entries_of

if TYPE_CHECKING:
    from popsr.compat.popart._program import Program

__all__ = ["PyStepIO", "PyStepIOCallback", "StepArrays"]

Array = np.ndarray[Any, Any]


class PyStepIO:
    """Arrays for a run.

    Args:
        inputs: data by id of input, or name of host-to-device stream.
        outputs: arrays by id of anchor, or name of device-to-host stream; see ``session.initAnchorArrays``.
    """

    def __init__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """Keep the arrays; they are checked when they are used.

        Raises:
            ArgumentTypeError: not mappings.
        """
        self.inputs = dict(read_mapping("PyStepIO", "inputs", inputs))
        self.outputs = dict(read_mapping("PyStepIO", "outputs", outputs))

    def enableRuntimeAsserts(self, on: bool) -> None:
        """Accepted: arrays are always checked."""
        read_bool("enableRuntimeAsserts: on", on)


class PyStepIOCallback:
    """Functions that give and take the data of one micro batch on one replica at a time.

    Args:
        input_callback: ``f(id, prefetch)`` returns the data of an input.
        input_complete_callback: ``f(id)`` is called when it was read.
        output_callback: ``f(id)`` returns an array for an anchor.
        output_complete_callback: ``f(id)`` is called when it is filled.
    """

    def __init__(
        self,
        input_callback: Callable[[str, bool], Any],
        input_complete_callback: Callable[[str], Any],
        output_callback: Callable[[str], Any],
        output_complete_callback: Callable[[str], Any],
    ) -> None:
        """Keep the functions.

        Raises:
            ArgumentTypeError: one cannot be called.
        """
        given = (input_callback, input_complete_callback, output_callback, output_complete_callback)
        self.input, self.input_done, self.output, self.output_done = (
            read_call("PyStepIOCallback", each) for each in given
        )


class StepArrays:
    """Shapes and order of the data of a step.

    Args:
        program: its streams, batches, micro batches and replicas.
        flow: batches and anchors.
        given: the model's inputs. Data for those that nothing reads is ignored.
    """

    def __init__(self, program: Program, flow: DataFlow, given: Iterable[Any]) -> None:
        """Check the return types.

        Raises:
            StateError: the period of an EveryN does not divide the batches.
        """
        self._flow, (self._batches, self._micro, self._replicas) = flow, program.counts
        modes = {each.name: entries_of(each).get(STREAM_MODE) for each in given}
        self._broadcast = {n for n, mode in modes.items() if mode == ReplicatedStreamMode.Broadcast.name}
        self._inputs = _described({n: stream for n, stream in program.inputs.items() if n in modes})
        self._outputs = _described(program.outputs)
        self._unused = modes.keys() - self._inputs.keys()
        flow._check_periods()

    def _shape(self, id_: str) -> tuple[int, ...]:
        """Shape of an anchor's array."""
        kind = self._flow.art(id_)
        leading: tuple[int, ...] = (self._replicas,)
        if kind.id() in (AnchorReturnTypeId.All, AnchorReturnTypeId.EveryN):
            leading = (self._batches // (kind.rp() or 1), self._micro, self._replicas)
        return (*(extent for extent in leading if extent > 1), *self._outputs[id_][0])

    def arrays(self) -> dict[str, Array]:
        """Arrays for all anchors."""
        return {id_: np.zeros(self._shape(id_), self._outputs[id_][1]) for id_ in self._flow.anchors()}

    def rows(self, stepio: Any) -> dict[str, Array]:
        """The data of each input with its dimensions of transfers and replicas, where these are above 1.

        Raises:
            UnknownNameError: data of other inputs than the model's, or arrays of what is not an anchor.
            ShapeError, DTypeError: an array that does not fit.
            ArgumentTypeError: something else than an array.
        """
        if isinstance(stepio, PyStepIOCallback):
            return {id_: self._called(stepio, id_) for id_ in self._inputs}
        given = {id_: data for id_, data in stepio.inputs.items() if id_ not in self._unused}
        _check_ids("inputs", given, self._inputs)
        _check_ids("anchors", stepio.outputs, dict.fromkeys(self._flow.anchors()))
        for id_, array in stepio.outputs.items():
            self._check_anchor(id_, array)
        return {id_: self._row(id_, stepio.inputs[id_]) for id_ in self._inputs}

    def _full(self, id_: str) -> tuple[int, ...]:
        leading = (self._batches * self._micro, self._replicas)
        return (*(extent for extent in leading if extent > 1), *self._inputs[id_][0])

    def _row(self, id_: str, data: Any) -> Array:
        shape, kind = self._inputs[id_]
        array = np.asarray(data)
        if array.dtype != kind:
            raise DTypeError(f"run: dtypes differ for input {shown(id_)}, got {array.dtype}, expected {kind}")
        copies = 1 if id_ in self._broadcast else self._replicas
        wanted = math.prod(shape) * self._batches * self._micro * copies
        if array.size != wanted:
            sizes = f"{self._batches} batches of {self._micro} micro batches on {copies} replicas"
            raise ShapeError(
                f"run: shapes differ for input {shown(id_)}, got {list(array.shape)}, expected {wanted} elements: "
                f"{sizes} of {list(shape)}"
            )
        rows = array.reshape(self._batches * self._micro, copies, *shape)
        whole = np.broadcast_to(rows, (self._batches * self._micro, self._replicas, *shape))
        return np.ascontiguousarray(whole).reshape(self._full(id_))

    def _called(self, stepio: PyStepIOCallback, id_: str) -> Array:
        shape, kind = self._inputs[id_]
        rows = []
        for _ in range(self._batches * self._micro * self._replicas):
            given = np.asarray(stepio.input(id_, False))
            if given.dtype != kind or given.size != math.prod(shape):
                raise ShapeError(
                    f"run: input callback, got {given.dtype} {list(given.shape)} for {shown(id_)}, expected {kind} "
                    f"{list(shape)}"
                )
            rows.append(given.reshape(shape).copy())
            stepio.input_done(id_)
        return np.stack(rows).reshape(self._full(id_))

    def _check_anchor(self, id_: str, array: Any) -> None:
        shape, kind = self._shape(id_), self._outputs[id_][1]
        if not is_a(array, np.ndarray):
            raise ArgumentTypeError(
                f"run: anchor {shown(id_)} is not an array, got {shown(array)}, expected an array"
            )
        if array.dtype != kind:
            raise DTypeError(
                f"run: dtypes differ for anchor {shown(id_)}, got {array.dtype}, expected {kind}"
            )
        if array.size != math.prod(shape):
            raise ShapeError(
                f"run: shapes differ for anchor {shown(id_)}, got {list(array.shape)}, expected {list(shape)}"
            )
        if not array.flags.writeable:
            raise SessionError(
                f"run: anchor {shown(id_)} is read-only, got its array, expected one to write to"
            )

    def put(self, stepio: Any, results: Mapping[str, Array]) -> None:
        """Write what a run returned into the arrays of anchors."""
        for id_ in self._flow.anchors():
            shape = self._outputs[id_][0]
            whole = results[id_].reshape(self._batches, self._micro, self._replicas, *shape)
            value = self._chosen(id_, whole).reshape(self._shape(id_))
            if not isinstance(stepio, PyStepIOCallback):
                array = stepio.outputs[id_]
                array[...] = value.reshape(array.shape)
                continue
            for each in value.reshape(-1, *shape):
                stepio.output(id_)[...] = each
                stepio.output_done(id_)

    def _chosen(self, id_: str, whole: Array) -> Array:
        kind = self._flow.art(id_)
        if kind.id() is AnchorReturnTypeId.Final:
            return np.asarray(whole[-1, -1])
        if kind.id() is AnchorReturnTypeId.Sum:
            return np.asarray(functools.reduce(np.add, whole.reshape(-1, *whole.shape[2:])))
        period = kind.rp() or 1  # counts micro batches
        return np.asarray(whole.reshape(-1, *whole.shape[2:])[period - 1 :: period])


def _described(streams: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Shape and NumPy type of each on a replica."""
    return {name: (tuple(each.shape), each.dtype.as_numpy()) for name, each in streams.items()}


def _check_ids(what: str, given: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    if given.keys() != wanted.keys():
        raise UnknownNameError(
            f"run: {what} are not the session's, got {shown(sorted(given))}, expected {shown(sorted(wanted))}"
        )
