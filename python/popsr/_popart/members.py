"""All objects of PopART: each of them leads to the others, so they are imported together."""

from popsr._popart.context import op_settings
from popsr._popart.custom_ops import custom_op
from popsr._popart.graph import PopartGraph, create_tensor_id, pb_graph
from popsr._popart.ir import PopartIr, pb_ir
from popsr._popart.op import PopartOp, op_created, type_of_op
from popsr._popart.tensor import PopartTensor, from_pb_tensor, mapped_array, pb_tensor

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
