"""Keys of arguments and tensors that are equal where type and bits are: what two traces are compared by."""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable
from typing import Any

__all__ = ["key_of"]


def key_of(value: Any, of_node: Callable[[Any], Hashable] = id) -> Hashable:
    """A key that other values have only where their types and bits are the same.

    Args:
        value: an argument of an op, in any structure, or an option of Python.
        of_node: the key of a node of a graph.
    """
    import torch

    if isinstance(value, list | tuple):
        return (type(value).__name__, *(key_of(each, of_node) for each in value))
    if isinstance(value, slice):
        return ("slice", *(key_of(each, of_node) for each in (value.start, value.stop, value.step)))
    if isinstance(value, dict):
        return ("dict", *((key_of(k, of_node), key_of(v, of_node)) for k, v in value.items()))
    if isinstance(value, torch.fx.Node):
        return ("node", of_node(value))
    if isinstance(value, torch.Tensor):
        return _key_of_tensor(value)
    kind = type(value)
    if kind is float:
        return ("float", struct.pack("<d", value))
    if kind is complex:
        return ("complex", struct.pack("<dd", value.real, value.imag))
    if kind in (bool, int, str, bytes, type(None)):
        return (kind.__name__, value)
    if kind in (torch.dtype, torch.device, torch.layout, torch.memory_format):
        return (kind.__name__, str(value))
    return (kind.__qualname__, id(value))


def _key_of_tensor(t: Any) -> Hashable:
    """Element type, shape, strides and bytes; of a tensor without values, such as a fake one, itself."""
    import torch

    layout = (str(t.dtype), tuple(t.shape), tuple(t.stride()) if t.layout is torch.strided else str(t.layout))
    if type(t) not in (torch.Tensor, torch.nn.Parameter) or t.layout is not torch.strided or t.is_meta:
        return ("tensor", *layout, id(t))
    whole = t.detach().cpu().contiguous().reshape(-1)
    return ("tensor", *layout, whole.view(torch.uint8).numpy().tobytes())
