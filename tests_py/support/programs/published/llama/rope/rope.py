"""The Python side of the operator."""

import cppimport.import_hook  # noqa: F401 - compiles the binding
import popxl
from popxl.context import get_current_context, op_debug_context
from popxl.tensor import Tensor

from . import rope_binding


@op_debug_context
def rope(x: Tensor, sin: Tensor, cos: Tensor, rotary_dim: int) -> Tensor:
    """Turn the pairs of features ``(i, i + rotary_dim / 2)`` by the angle of their position.

    Args:
        x: (batch, sequence, heads, features).
        sin: (sequence, rotary_dim / 2).
        cos: likewise.
        rotary_dim: how many of the features are turned.
    """
    context = get_current_context()
    graph = context.graph
    settings = context._get_op_settings("rope")
    inputs = {0: x.id, 1: sin.id, 2: cos.id}
    outputs = {0: graph._create_tensor_id("rope_out")}
    op = rope_binding.Rope.createOpInGraph(graph._pb_graph, inputs, outputs, rotary_dim, settings)
    context._op_created(op)
    return popxl.Tensor._from_pb_tensor(op.outTensor(0))
