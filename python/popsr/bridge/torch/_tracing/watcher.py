"""The mode in which ops of a step are recorded: with lines, modules and draws, or refused if no graph can keep them."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from popsr.bridge.torch._tracing.asynchronous import Pending
from popsr.bridge.torch._tracing.collective_calls import functional_collective
from popsr.bridge.torch._tracing.decompositions import in_terms_of_others
from popsr.bridge.torch._tracing.draws import Draws
from popsr.bridge.torch._tracing.generators import given_generator
from popsr.bridge.torch._tracing.messages import Messages
from popsr.bridge.torch._user.locations import Place, called_place, current_place, shown_place, stack_trace
from popsr.bridge.torch._user.modules import current_module, noted_module
from popsr.bridge.torch._user.notes import noted_backward
from popsr.bridge.torch._versions import forget_lookups, lacking_of_dtensors, torch_version
from popsr.errors import Error, UnsupportedError

__all__ = ["WritesOutside", "watcher", "writes_constant", "written_by"]


class WritesOutside(Exception):
    """A step writes a tensor that no input stands for.

    Args:
        tensor: the tensor.
        told: the error if it is found nowhere.
    """

    def __init__(self, tensor: Any, told: Error) -> None:
        """A write."""
        super().__init__(str(told))
        self.tensor, self.told = tensor, told


def written_by(op: Any, args: Sequence[Any]) -> Iterator[Any]:
    """The operands that an op writes."""
    schema = getattr(op, "_schema", None)
    if schema is None or not schema.is_mutable:
        return
    for argument, value in zip(schema.arguments, args, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from value if isinstance(value, list | tuple) else [value]


def writes_constant(op: Any, place: Place | None) -> UnsupportedError:
    return UnsupportedError(
        f"bridge.torch: a tensor from outside of the step is written at {shown_place(place)}, got {op}, expected "
        "parameters, buffers of the model or state of the optimizer"
    )


def _on_the_cpu(options: dict[str, Any]) -> dict[str, Any]:
    """Options with ``cpu`` in place of ``cpu:0``, which for torch is the same and for fake tensors is not."""
    import torch

    device = options.get("device")
    if device is None or device.type != "cpu" or device.index is None:
        return options
    return {**options, "device": torch.device("cpu")}


def _check_operands(op: Any, values: Any, place: Place | None) -> None:
    """Refuse objects of torch's core that a graph cannot keep: they crash the process once it is forgotten.

    Raises:
        UnsupportedError: with the line.
    """
    import torch

    for value in values:
        if isinstance(value, list | tuple):
            _check_operands(op, value, place)
        elif isinstance(value, torch.Generator | torch.Stream | torch.Event | torch.UntypedStorage):
            raise UnsupportedError(
                f"bridge.torch: {op} at {shown_place(place)} is given a {type(value).__name__}, expected tensors and "
                "numbers"
            )


def _is_outside(value: Any) -> bool:
    """True for a tensor that is not traced: of no class that dispatches by itself."""
    import torch

    plain: Any = torch.Tensor.__torch_dispatch__
    return isinstance(value, torch.Tensor) and type(value).__torch_dispatch__ is plain


def watcher(
    groups: dict[str, tuple[int, ...]],
    pending: Pending,
    messages: Messages,
    draws: Draws,
    call: Callable[[Any, Any, Any], Any],
) -> contextlib.AbstractContextManager[Any]:
    """The mode in which ops are recorded.

    Args:
        groups: ranks of process groups by name, to which those of collectives are added.
        pending: collectives that nobody waited for.
        messages: notes calls of communication.
        draws: notes random ops.
        call: calls an op that is recorded as it is.
    """
    made: contextlib.AbstractContextManager[Any] = _mode_class()(groups, pending, messages, draws, call)
    return made


@functools.cache
def _mode_class() -> Any:
    """The class of the mode; made in a function as its base is torch's."""
    import torch
    import torch.fx.traceback as notes
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.distributed.tensor import DTensor
    from torch.utils._python_dispatch import TorchDispatchMode

    core: Any = torch._C
    sequence_number = core._autograd._get_sequence_nr
    running_node = core._current_autograd_node
    device_of = torch.ops.prim.device.default
    collectives = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor")

    class Watcher(TorchDispatchMode):
        supports_higher_order_operators = True  # branches and loops are recorded as they stand

        def __init__(
            self, groups: Any, pending: Pending, messages: Messages, draws: Draws, call: Any
        ) -> None:
            super().__init__()
            self._groups, self._pending, self._messages = groups, pending, messages
            self._draws, self._call = draws, call
            self._places: dict[int, tuple[Place | None, str]] = {}

        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if op is device_of:
                return args[0].fake_device if type(args[0]) is FakeTensor else op(*args)
            options = _on_the_cpu(kwargs or {})
            place, module = self._place()
            if place is not None:
                notes.current_meta["stack_trace"] = stack_trace(place)
            backward = noted_backward() if running_node() is not None else contextlib.nullcontext()
            with backward, noted_module(module):
                return self._recorded(op, types, args, options, place)

        def _recorded(self, op: Any, types: Any, args: Any, options: Any, place: Place | None) -> Any:
            if any(issubclass(each, DTensor) for each in types):
                _check_dtensors(place)
                forget_lookups()
                return NotImplemented  # what it calls on local tensors comes here, too
            if str(op) == "aten.record_stream.default":
                return None  # of memory that is used on two streams, not of values
            generator = None
            if not _takes_plain_operands(op):
                generator, op, args, options = given_generator(op, args, options)
                _check_operands(op, (*args, *options.values()), place)
            written = list(written_by(op, args))
            for each in filter(_is_outside, written):
                raise WritesOutside(each, writes_constant(op, place))
            if self._pending and written and op.namespace != "c10d":
                self._pending.note_writes(written)
            if generator is not None or torch.Tag.nondeterministic_seeded in getattr(op, "tags", ()):
                with self._draws.noted(op, (args, options), generator):
                    return in_terms_of_others(op, args, options, self._call)
            if op.namespace in collectives:
                return functional_collective(op, args, options, self._groups, self._pending, self._messages)
            return in_terms_of_others(op, args, options, self._call)

        def _place(self) -> tuple[Place | None, str]:
            """The line and the module that are running; in a backward pass those whose gradient is computed."""
            node = running_node()
            if node is not None:
                return self._places.get(node._sequence_nr()) or (current_place(), "")
            here = called_place(), current_module()
            if here[0] is not None:
                self._places.setdefault(sequence_number() - 1, here)
            return here

    return Watcher


def _check_dtensors(place: Place | None) -> None:
    lacking = lacking_of_dtensors()
    if lacking:
        raise UnsupportedError(
            f"bridge.torch: DTensors of this PyTorch are not read at {shown_place(place)}, got {torch_version()} "
            f"without {lacking}, expected a newer PyTorch, or DistributedDataParallel"
        )


@functools.cache
def _takes_plain_operands(op: Any) -> bool:
    """True for an op whose schema has nothing but tensors, numbers, texts and devices."""
    plain = ("Tensor", "int", "SymInt", "float", "number", "bool", "str", "Device")
    schema = getattr(op, "_schema", None)
    return schema is not None and all(
        re.sub(r"Optional|List|\W", "", str(each.type)) in plain for each in schema.arguments
    )
