"""Primitives without a rule: whether their results depend on their operands alone."""

from __future__ import annotations

from typing import Any

from popsr.bridge.jax._rules.calls import CALLED, jaxprs_inside, name_of
from popsr.bridge.jax._rules.table import RULES

__all__ = ["LOCAL", "RUNS_OTHERS", "SILENT", "depends_on_operands_alone", "is_silent"]

LOCAL = frozenset(
    {
        "acos",
        "acosh",
        "approx_top_k",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "bessel_i0e",
        "bessel_i1e",
        "bitcast_convert_type",
        "cbrt",
        "cholesky",
        "cholesky_update",
        "clz",
        "complex",
        "conj",
        "conv_general_dilated",
        "cos",
        "cosh",
        "cumlogsumexp",
        "cummax",
        "cummin",
        "cumprod",
        "cumsum",
        "digamma",
        "dot_general",
        "dynamic_slice",
        "dynamic_update_slice",
        "eig",
        "eigh",
        "eq_to",
        "erf",
        "erf_inv",
        "erfc",
        "exp",
        "exp2",
        "expm1",
        "fft",
        "from_edtype",
        "gather",
        "geqp3",
        "geqrf",
        "hessenberg",
        "householder_product",
        "igamma",
        "igamma_grad_a",
        "igammac",
        "imag",
        "iota_2x32_shape",
        "le_to",
        "lgamma",
        "log1p",
        "lt_to",
        "lu",
        "lu_pivots_to_permutation",
        "mulhi",
        "ormqr",
        "pad",
        "philox2x32",
        "philox4x32",
        "polygamma",
        "population_count",
        "qr",
        "ragged_dot_general",
        "random_bits",
        "random_clone",
        "random_fold_in",
        "random_gamma",
        "random_seed",
        "random_split",
        "random_unwrap",
        "random_wrap",
        "real",
        "reduce_precision",
        "reduce_window_max",
        "reduce_window_min",
        "reduce_window_sum",
        "reduce_xor",
        "regularized_incomplete_beta",
        "rem",
        "rng_bit_generator",
        "round",
        "scaled_dot",
        "scatter",
        "scatter-add",
        "scatter-max",
        "scatter-min",
        "scatter-mul",
        "scatter-sub",
        "schur",
        "select_and_gather_add",
        "select_and_scatter_add",
        "shift_left",
        "shift_right_arithmetic",
        "shift_right_logical",
        "sinh",
        "sort",
        "svd",
        "symmetric_product",
        "tan",
        "threefry2x32",
        "threefry4x32",
        "to_edtype",
        "top_k",
        "triangular_solve",
        "tridiagonal",
        "tridiagonal_solve",
        "xor",
        "zeta",
    }
)  # fmt: skip
"""Each replica computes them from its operands, the same way everywhere. Others may exchange or read anything."""

SILENT = frozenset(
    ["debug_print", "debug_callback", "create_token", "after_all", "dce_sink", "inspect_sharding"]
)
"""They change no value of the step."""


RUNS_OTHERS = frozenset(
    ["while", "cond", "scan", "custom_linear_solve", "reduce_window", "select_and_scatter", *CALLED]
)
"""Local where everything is that they run."""

_LOCAL_RULES = frozenset(
    ["bits", "elementwise", "indexing", "linear", "random", "reduce", "shape", "windows"]
)
"""Files whose rules are of local primitives."""


def depends_on_operands_alone(equation: Any) -> bool:
    """True if replicas that agree on all operands agree on the results.

    A primitive that is not known may be a collective, a callback or a kernel that reads anything.
    """
    name = name_of(equation)
    local = name in LOCAL or (name in RULES and RULES[name].module in _LOCAL_RULES)
    if equation.effects or not (local or name in RUNS_OTHERS):
        return False
    return all(depends_on_operands_alone(each) for jaxpr in jaxprs_inside(equation) for each in jaxpr.eqns)


def is_silent(equation: Any) -> bool:
    """True for printing and the like, which the step is read without."""
    return equation.primitive.name in SILENT
