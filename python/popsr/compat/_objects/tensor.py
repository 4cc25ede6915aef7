"""Tensors as ``tensor._pb_tensor``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from popsr import _core
from popsr._program.op import Op
from popsr._program.tensor import Tensor, Variable
from popsr._support.host.arguments import read_a
from popsr._support.host.choices import Choices
from popsr.compat._objects.base import PopartObject, register_view, view_of
from popsr.compat._objects.types import TensorInfo
from popsr.errors import UndefinedValue
from popsr.tensorlocation import ReplicatedTensorSharding, TensorStorage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["PopartTensor", "TensorLocationInfo", "TensorType", "from_pb_tensor", "mapped_array", "pb_tensor"]


class TensorType(Choices):
    """Kind of a tensor: made by an op, constant, or variable."""

    ActGrad = 0
    Const = 1
    Stream = 2
    Unknown = 3
    Variable = 4


_TYPES = {"Constant": TensorType.Const, "Variable": TensorType.Variable}


class TensorLocationInfo(PopartObject):
    """Location of a tensor between uses."""

    __slots__ = ("_tensor",)
    _where = "tensor._pb_tensor.tensorLocationInfo"

    def __init__(self, tensor: Tensor) -> None:
        """``tensor``: the tensor."""
        self._tensor = tensor

    def is_remote(self) -> bool:
        """True if it is a variable in remote memory."""
        return self._tensor.location_info.storage is TensorStorage.OffChip

    def is_sharded(self) -> bool:
        """True if each replica keeps a part."""
        return self._tensor.location_info.replicated_tensor_sharding is ReplicatedTensorSharding.On

    def get_remote_buffer_info(self) -> tuple[int, int]:
        """Number of the remote buffer, and the entry.

        Raises:
            UndefinedValue: it is not remote.
        """
        for place, variable in self._tensor._ir._residents.items():
            if variable is self._tensor:
                return place
        raise UndefinedValue(f"getRemoteBufferInfo: '{self._tensor.id}' is not a variable of a remote buffer")


class PopartTensor(PopartObject):
    """A tensor by PopART's names."""

    __slots__ = ("_tensor",)
    _where = "tensor._pb_tensor"

    def __init__(self, tensor: Tensor) -> None:
        """``tensor``: of popsr.

        Raises:
            ArgumentTypeError: it is something else.
        """
        self._tensor = read_a("Tensor: tensor", tensor, Tensor)

    @property
    def id(self) -> str:
        """Its id."""
        return self._tensor.id

    def __str__(self) -> str:
        return self._tensor.id

    @property
    def info(self) -> Any:
        """A TensorInfo of its dtype and shape."""
        return TensorInfo(self._tensor.dtype, self._tensor.shape)

    @property
    def tensor_location_info(self) -> TensorLocationInfo:
        """Location between uses."""
        return TensorLocationInfo(self._tensor)

    def tensor_type(self) -> TensorType:
        """Made by an op or a caller, of a fixed value, or kept between runs."""
        return _TYPES.get(type(self._tensor).__name__, TensorType.ActGrad)

    def get_graph(self) -> Any:
        """The graph that it is in."""
        return view_of(self._tensor._graph)

    def get_ir(self) -> Any:
        """The program that it is in."""
        return self.get_graph().get_ir()

    def has_producer(self) -> bool:
        """True if an op makes it."""
        return self._producer() is not None

    def get_producer(self) -> Any:
        """The op that makes it.

        Raises:
            UndefinedValue: none does: it is a variable, a constant or an input.
        """
        producer = self._producer()
        if producer is None:
            raise UndefinedValue(
                f"getProducer: no op makes '{self._tensor.id}', expected a tensor of which hasProducer() is True"
            )
        return view_of(Op(self._tensor._ir, producer))

    def is_aliased(self) -> bool:
        """True if another tensor of its graph is a view of it or is written in its memory, or the other way round."""
        core, tensor = self._tensor._ir._core, self._tensor._id
        pairs = (
            pair
            for op in core.graph_ops(self._tensor._graph_id)
            if (aliases := _aliases().get(core.op_kind(op))) is not None
            for pair in _tensors_of_aliases(core.op_inputs(op), core.op_outputs(op), aliases)
        )
        return any(tensor in pair for pair in pairs)

    def is_graph_input(self) -> bool:
        """True if it is an input of its graph."""
        return self._tensor in self._tensor._graph.inputs

    def is_graph_output(self) -> bool:
        """True if it is an output of its graph."""
        return self._tensor in self._tensor._graph.outputs

    def get_virtual_graph_id(self) -> int:
        """Device of the replica; errors as ``tensor.ipu``."""
        return self._tensor.ipu

    def _producer(self) -> int | None:
        producer: int | None = self._tensor._ir._core.tensor(self._tensor._id).producer
        return producer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PopartTensor) and other._tensor is self._tensor

    def __hash__(self) -> int:
        return hash(self._tensor)

    def __repr__(self) -> str:
        return repr(self._tensor)


@functools.cache
def _aliases() -> dict[str, tuple[tuple[int, int], ...] | None]:
    """By op, inputs and outputs that share memory; an empty tuple: all inputs share the first output's."""
    found: dict[str, tuple[tuple[int, int], ...] | None] = {}
    for schema in _core.op_schemas():
        if schema["view"]:
            found[schema["name"]] = ()
        elif schema["effects"]:
            found[schema["name"]] = tuple(schema["effects"])
    return found


def _tensors_of_aliases(
    inputs: list[int | None], outputs: list[int], aliases: tuple[tuple[int, int], ...]
) -> list[tuple[int | None, int]]:
    if not aliases:
        return [(each, outputs[0]) for each in inputs]
    return [(inputs[i], outputs[o]) for i, o in aliases if i < len(inputs) and o < len(outputs)]


def pb_tensor(tensor: Tensor) -> PopartTensor:
    """The tensor by PopART's names."""
    return PopartTensor(tensor)


def from_pb_tensor(pb_tensor: PopartTensor) -> Tensor:
    """The tensor of PopXL that stands behind one of PopART.

    Raises:
        ArgumentTypeError: it is not one of PopART.
    """
    return read_a("_from_pb_tensor: pb_tensor", pb_tensor, PopartTensor)._tensor


def mapped_array(variable: Variable) -> NDArray[Any] | np.memmap[Any, Any] | None:
    """The memory-mapped array that a variable was made of; None when it was made of other data."""
    return variable._ir._mapped.get(variable._id)


register_view(Tensor, PopartTensor)
