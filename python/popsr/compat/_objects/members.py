"""All objects of PopART: each of them leads to the others, so they are imported together."""

from popsr.compat._objects.context import op_settings
from popsr.compat._objects.custom_ops import custom_op
from popsr.compat._objects.graph import PopartGraph, create_tensor_id, pb_graph
from popsr.compat._objects.ir import PopartIr, pb_ir
from popsr.compat._objects.op import PopartOp, op_created, type_of_op
from popsr.compat._objects.tensor import PopartTensor, from_pb_tensor, mapped_array, pb_tensor

__all__ = [
    "PopartGraph",
    "PopartIr",
    "PopartOp",
    "PopartTensor",
    "create_tensor_id",
    "custom_op",
    "from_pb_tensor",
    "mapped_array",
    "op_created",
    "op_settings",
    "pb_graph",
    "pb_ir",
    "pb_tensor",
    "type_of_op",
]
