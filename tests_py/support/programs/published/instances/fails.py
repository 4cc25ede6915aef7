"""Errors that leave a program on some ranks or on all; the argument names where."""

import sys

import numpy as np
import popdist
import popxl
from popxl import ops

INDEX = popdist.getInstanceIndex()

ir = popxl.Ir("popdist")
with ir.main_graph, popxl.in_sequence():
    x = popxl.h2d_stream((2,), popxl.float32, "x")
    w = popxl.variable(np.zeros(2, np.float32), name="w")
    ops.add_(w, ops.collectives.replicated_all_reduce(ops.host_load(x)))


@popdist.execute_on_instances({0})
def read_alone(session):
    return session.get_tensor_data(w)


@popdist.execute_on_instances({1})
def fail_alone():
    raise KeyError("of a function")


what = sys.argv[1]
if what == "function":
    fail_alone()
with popxl.Session(ir, "ipu_hw") as session:
    session.run({x: np.ones(2, np.float32)})
    if what == "one" and INDEX == 1:
        raise ValueError("of the program")
    if what == "exit" and INDEX == 2:
        sys.exit(5)
    if what == "function of a step":
        fail_alone()
    if what == "collective":
        read_alone(session)
    session.run({x: np.ones(3 if what == "rows" and INDEX == 1 else 2, np.float32)})
if what == "late" and INDEX == 1:
    raise ValueError("after the session")
session.get_tensor_data(w)
