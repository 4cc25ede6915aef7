"""The objects of PopART that programs for PopXL reach by private names: ``ir._pb_ir``, ``graph._pb_graph`` and so on.

They answer from the program. A name that they do not have is an AttributeError with the nearest one. ``MEMBERS`` is the
table of the private names that popsr's own classes have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from popsr._popart_objects._context import op_settings
from popsr._popart_objects._graph import PopartGraph, create_tensor_id, pb_graph
from popsr._popart_objects._ir import PopartIr
from popsr._popart_objects._op import PopartOp, op_created, type_of_op
from popsr._popart_objects._session import attach_stack, device, pb_session, set_device
from popsr._popart_objects._tensor import PopartTensor, from_pb_tensor, mapped_array, pb_tensor

__all__ = ["MEMBERS", "PopartGraph", "PopartIr", "PopartOp", "PopartTensor"]

MEMBERS: Mapping[str, Mapping[str, Any]] = {
    "Context": {"_get_op_settings": op_settings, "_op_created": op_created},
    "Graph": {"_create_tensor_id": create_tensor_id, "_pb_graph": property(pb_graph)},
    "Op": {"opType": property(type_of_op)},
    "Session": {
        "_device": property(device),
        "_pb_session": property(pb_session),
        "_set_device": set_device,
        "_was_attached_stack": property(attach_stack),
    },
    "Tensor": {"_from_pb_tensor": staticmethod(from_pb_tensor), "_pb_tensor": property(pb_tensor)},
    "Variable": {"_memmap_arr": property(mapped_array)},
}
