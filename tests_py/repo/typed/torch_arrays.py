"""Types of torch's tensors."""

from typing import assert_type

import torch

import popsr
from popsr import sr
from popsr.io import PyWeightsIO
from popsr.sr.torch import AdamW

key = sr.Key(1)
t = torch.zeros(3, dtype=torch.bfloat16)
parameter = torch.nn.Parameter(t)

assert_type(sr.add(t, 1.0, key=key), torch.Tensor)
assert_type(sr.add(parameter, t, key=key), torch.Tensor)
assert_type(sr.cast(t, torch.float16, key=key), torch.Tensor)
assert_type(sr.sum(t, torch.float32, key=key), torch.Tensor)
assert_type(sr.bracket(t, t)[0], torch.Tensor)
assert_type(sr.add_(parameter, t, key=key), torch.nn.Parameter)
assert_type(sr.adamw_(t, t, t, t, key=key, step=1), torch.Tensor)
assert_type(popsr.StochasticAdder(torch.bfloat16).add(t, t), torch.Tensor)
AdamW([parameter], lr=0.1, seed=3)
AdamW([parameter], learning_rate=0.1)  # E: call-arg: Unexpected keyword argument "learning_rate"

ir = popsr.Ir()
with ir.main_graph:
    w = popsr.variable(torch.ones(2, 2), popsr.float32)
    x = popsr.h2d_stream((2, 2), popsr.float32)
with popsr.Session(ir) as session:
    session.run({x: torch.zeros(2, 2)})
    session.read_weights(PyWeightsIO({w: torch.zeros(2, 2)}))
