"""A program with an operator in C++ for the device, as such repositories have them: files by name."""

from __future__ import annotations

BINDING = """// cppimport
// The comment above lets the import hook compile this file.
/* const popart::OperatorIdentifier Old = {"old.ops", "Old", 7}; */
#include <popart/op.hpp>
#include <pybind11/pybind11.h>

const popart::OperatorIdentifier TurnPairs = {"custom.ops", "TurnPairs", 1};
const popart::OperatorIdentifier TurnPairsGrad = {"custom.ops", "TurnPairsGrad", 1};

class TurnPairsOp : public popart::Op {};
class TurnPairsGradOp : public popart::Op {};

PYBIND11_MODULE(turn_pairs_binding, m) {
  // py::class_<OldOp, popart::Op>(m, "OldOp")
  py::class_<TurnPairsOp, popart::Op, std::shared_ptr<TurnPairsOp>>(m, "TurnPairs")
      .def_static("createOpInGraph",
                  py::overload_cast<popart::Graph &, const popart::InMap &, const popart::OutMap &,
                                    unsigned, const popart::Op::Settings &>(
                      &popart::Graph::createConnectedOp<TurnPairsOp>),
                  py::arg("inputs"), py::arg("outputs"), py::arg("rotary_dim"), py::arg("settings"))
      .def("outTensor", &TurnPairsOp::outTensor);
  py::class_<TurnPairsGradOp, popart::Op, std::shared_ptr<TurnPairsGradOp>> grad(m, "TurnPairsGrad");
  grad.def_static("createOpInGraph", &popart::Graph::createConnectedOp<TurnPairsGradOp>);
}
"""

WRAPPER = """
import cppimport.import_hook
import popxl
from popxl.context import get_current_context, op_debug_context
from popxl.ops.utils import check_in_graph

from . import turn_pairs_binding


@op_debug_context
def turn_pairs(x, sin, cos, rotary_dim):
    ctx = get_current_context()
    g = popxl.get_current_graph()
    pb_g = g._pb_graph
    check_in_graph(g, x=x, sin=sin, cos=cos)
    settings = ctx._get_op_settings("turn_pairs")
    op = turn_pairs_binding.TurnPairs.createOpInGraph(
        pb_g, {0: x.id, 1: sin.id, 2: cos.id}, {0: g._create_tensor_id("turn_pairs_out")}, rotary_dim, settings
    )
    ctx._op_created(op)
    return popxl.Tensor._from_pb_tensor(op.outTensor(0))
"""

# Pairs (2 i, 2 i + 1) of the first features of x [batch, sequence, heads, features] are turned.
ENTRY = """
import popsr.compat
from popsr import ops


@popsr.compat.custom_op("custom.ops", "TurnPairs", 1)
def turn(x, sin, cos, rotary_dim):
    batch, sequence, heads, features = x.shape
    half = rotary_dim // 2
    pairs = ops.reshape(x[:, :, :, :rotary_dim], (batch, sequence, heads, half, 2))
    a, b = (ops.reshape(each, (batch, sequence, heads, half, 1)) for each in ops.split(pairs, 2, -1))
    s, c = (ops.reshape(each, (1, sequence, 1, half, 1)) for each in (sin, cos))
    turned = ops.concat([a * c - b * s, b * c + a * s], -1)
    turned = ops.reshape(turned, (batch, sequence, heads, rotary_dim))
    return ops.concat([turned, x[:, :, :, rotary_dim:]], -1)
"""

# Two replicas; the gradient of sum(w * turned) with respect to x.
MAIN = """
import numpy as np
import popart
import popxl
import popxl.ops as ops
import popxl.transforms as transforms
import entry
from kernels.turn import turn_pairs

popart.load_library("build/libcustom_ops.so")

B, S, H, F, D = 2, 5, 3, 8, 4
rng = np.random.default_rng(0)
angles = rng.normal(size=(S, D // 2)).astype(np.float32)
ir = popxl.Ir(replication=2)
with ir.main_graph, popxl.in_sequence():
    stream = popxl.h2d_stream((B, S, H, F), popxl.float32, "x")
    out, grad = (popxl.d2h_stream((B, S, H, F), popxl.float32, name) for name in ("y", "dx"))
    sin, cos = popxl.variable(np.sin(angles), name="sin"), popxl.variable(np.cos(angles), name="cos")
    weights = popxl.variable(rng.normal(size=(B, S, H, F)).astype(np.float32), name="w")
    x = ops.host_load(stream)
    graph = ir.create_graph(lambda x, sin, cos: turn_pairs(x, sin, cos, D), x, sin, cos)
    grad_info = transforms.autodiff(graph, grads_required=[graph.inputs[0]])
    call = ops.call_with_info(graph, x, sin, cos)
    ops.host_store(out, call.outputs[0])
    (dx,) = ops.call(grad_info.graph, weights, inputs_dict=grad_info.inputs_dict(call))
    ops.host_store(grad, dx)

data = rng.normal(size=(2, B, S, H, F)).astype(np.float32)
with popxl.Session(ir, "ipu_hw") as session:
    results = session.run({stream: data})
    w = session.get_tensor_data(weights)


def turned(x, angles):
    y = x.astype(np.float64).copy()
    s, c = (f(angles.astype(np.float64))[:, None, :] for f in (np.sin, np.cos))
    a, b = x[..., 0:D:2], x[..., 1:D:2]
    y[..., 0:D:2], y[..., 1:D:2] = a * c - b * s, b * c + a * s
    return y


np.testing.assert_allclose(results[out], turned(data, angles), atol=1e-6)
np.testing.assert_allclose(results[grad], np.broadcast_to(turned(w, -angles), data.shape), atol=1e-6)
(op,) = [op for op in graph._pb_graph.getOps()]
print(op.opType, op.outId(0).rpartition("/")[2], op.getDebugInfo().getLocation().rpartition("/")[2])
"""

PACKAGE = {
    "entry.py": ENTRY,
    "kernels/__init__.py": "",
    "kernels/turn/__init__.py": WRAPPER,
    "kernels/turn/turn_pairs_binding.cpp": BINDING,
    "main.py": MAIN,
}
