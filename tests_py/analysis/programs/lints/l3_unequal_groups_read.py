"""L3: one value of a group is read back, whose members may differ.

Programs without a comment ``lint`` are near misses.
"""

import numpy as np

import popsr
from popsr.ops import var_updates

F32 = popsr.float32


def one_value_of_a_group_is_read(x: popsr.Tensor, w: popsr.Variable) -> None:
    # lint L3, 3 replicas: one value per group is read back, but replicas 0 and 1 of one group of 'w' are not proved
    #     equal; the value of replica 0 stands for its group and 3 of 4 replicas are not seen
    var_updates.accumulate_(w, x)


def all_of_a_group_is_read(x: popsr.Tensor) -> None:
    v = popsr.variable(np.zeros(4, np.float32), name="v", retrieval_mode="all_replicas")
    var_updates.accumulate_(v, x)
