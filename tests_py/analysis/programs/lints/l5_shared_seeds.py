"""L5: stochastic rounding with fewer seeds than values.

Programs without a comment ``lint`` are near misses.
"""

import popsr
from popsr import ops, transforms

F32 = popsr.float32


def one_seed_for_values_that_differ(ir: popsr.Ir, x: popsr.Tensor) -> None:
    ir.options.enable_stochastic_rounding = True
    ir.options.stochastic_rounding_mode = "identical"
    # lint L5, 3 seeds: cast rounds 'cast_out' with 1 seed, but 4 could differ
    ops.cast(x, popsr.bfloat16)
    transforms.stochastic_rounding(ir)


def one_seed_for_values_that_are_equal(ir: popsr.Ir, w: popsr.Variable) -> None:
    ir.options.enable_stochastic_rounding = True
    ir.options.stochastic_rounding_mode = "identical"
    ops.cast(w, popsr.bfloat16)
    transforms.stochastic_rounding(ir)
