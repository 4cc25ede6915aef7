"""Types of programs, sessions and options."""

from typing import Any, assert_type

import numpy as np

import popsr
from popsr import ops
from popsr.io import PyWeightsIO
from popsr.ops import collectives
from popsr.replicas import Partition

Array = np.ndarray[Any, Any]

ir = popsr.Ir(replication=2)
ir.options.enable_stochastic_rounding = True
ir.options.stochastic_rounding_mode = "identical"
ir.options.enableStochasticRounding = True
ir.options.dotChecks = ["Fwd"]
assert_type(ir.options.dotChecks, set[str])
assert_type(ir.options.seed, int)

with ir.main_graph, popsr.in_sequence():
    w = popsr.variable(np.ones((2, 2)), popsr.float32, "w")
    stream = popsr.h2d_stream((2, 2), popsr.float32, "x")
    out = popsr.d2h_stream((2, 2), popsr.float32, "y")
    x = ops.host_load(stream)
    assert_type(w, popsr.Variable)
    assert_type(x, popsr.Tensor)
    assert_type(x @ w + 1.0, popsr.Tensor)
    assert_type(ops.relu(x), popsr.Tensor)
    assert_type(ops.split(x, 2), list[popsr.Tensor])
    assert_type(collectives.replicated_all_reduce(x, "mean"), popsr.Tensor)
    ops.scaled_add_(w, x, b=-0.5)
    ops.host_store(out, x)

with popsr.Session(ir, "cpu", check=0.5, strict=["L1"]) as session:
    results = session.run({stream: np.zeros((2, 2, 2))}, progress=True)
    assert_type(results, dict[popsr.DeviceToHostStream, Array])
    assert_type(session.get_tensor_data(w, replicas="all"), Array)
    session.read_weights(PyWeightsIO({w: np.zeros((2, 2))}))
    session.read_weights(PyWeightsIO({"w": np.zeros((2, 2))}))

facts = popsr.analysis.analyze(ir)
assert_type(facts.partition(w), Partition)

# Errors

ir.options.enable_stochastic_roundng = True  # E: attr-defined: has no attribute "enable_stochastic_roundng"
ir.options.enableStochasticRoundng = True  # E: attr-defined: has no attribute
ir.options.stochastic_rounding_mode = "same"  # E: assignment: Literal['partition', 'popart', 'identical']
ir.options.seed = "1"  # E: assignment: has type "str", variable has type "int"
ir.options.dotChecks = 3  # E: assignment: has type "int"
ir.options.syntheticDataMode = "Zeros"  # E: assignment: "SyntheticDataMode"
popsr.Ir(replicas=2)  # E: call-arg: Unexpected keyword argument "replicas"
popsr.Ir(replication="2")  # E: arg-type: expected
popsr.Session(ir, "gpu")  # E: arg-type: expected "Literal['ipu_hw', 'ipu_model', 'cpu']
popsr.Session(ir, chek=True)  # E: call-arg: Unexpected keyword argument "chek"
popsr.Session(ir.main_graph)  # E: arg-type: expected "Ir"
session.get_tensor_data(x)  # E: arg-type: expected "Variable | Constant"
session.get_tensor_data(w, replicas="each")  # E: arg-type: expected "Literal['group', 'all']"
session.run({"x": np.zeros(2)})  # E: dict-item: expected "HostToDeviceStream"
session.runs({})  # E: attr-defined: maybe "run"
popsr.variable(np.ones(2), "float32")  # E: arg-type: expected "dtype
popsr.variable(np.ones(2), retrieval_mode="each")  # E: arg-type: Literal[
popsr.h2d_stream((2,), popsr.float32, replicated_stream_mode="same")  # E: arg-type: expected
PyWeightsIO({3: np.zeros(2)})  # E: arg-type: incompatible type "dict[int,
popsr.in_sequence("yes")  # E: arg-type: expected
popsr.analysis.analyze(ir, mode="torch")  # E: call-overload: No overload variant
collectives.replicated_all_reduce(x, "average")  # E: arg-type: Literal['add', 'mean'
ops.relluu(x)  # E: attr-defined: relluu
ops.relu(np.zeros(2))  # E: arg-type: expected "Tensor"
ops.softmax(x, axes=0)  # E: call-arg: Unexpected keyword argument "axes"
ops.nll_loss(x, x, reduction="avg")  # E: arg-type: expected
ops.max_pool(x, (2, 2), auto_pad="full")  # E: arg-type: expected
value: float = ops.mean(x)  # E: assignment: "Tensor"
shown: str = results[out]  # E: assignment: "ndarray
