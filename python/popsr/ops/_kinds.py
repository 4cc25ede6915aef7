"""Kinds of ops by how their results depend on an operand, for readers of programs."""

__all__ = ["ADDITIVE", "FACTORS", "LINEAR", "MOVES", "PASSING", "POINTWISE", "REDUCTIONS", "SCALES"]

MOVES = frozenset(["identity", "cast", "reshape", "transpose", "squeeze", "flatten", "expand"])
"""Ops whose result holds the elements of its operand and no others, in another form."""

SCALES = frozenset(["mul", "div"])
"""Ops that multiply by a number if one of their operands is a constant."""

ADDITIVE = frozenset(["add", "sub", "accumulate_", "concat", "where"])
"""Ops whose result is a multiple of another value only if all their operands are, by the same factor."""

FACTORS = SCALES | {"matmul", "conv", "where"}
"""Ops whose result is linear in one of its operands while the other one is the same."""

LINEAR = (
    MOVES
    | FACTORS
    | frozenset(
        [
            "slice",
            "concat",
            "pad",
            "negate",
            "scale",
            "add",
            "sub",
            "scaled_add",
            "sum",
            "mean",
            "replicated_all_reduce",
        ]
    )
)
"""Ops whose result is linear in its operands, of ``FACTORS`` in one of them."""

POINTWISE = (
    MOVES
    | SCALES
    | frozenset(
        [
            "negate",
            "add",
            "sub",
            "scaled_add",
            "square",
            "sqrt",
            "rsqrt",
            "where",
            "maximum",
            "minimum",
            "conditional",
        ]
    )
)
"""Ops that an update applies to a gradient, element by element."""

REDUCTIONS = frozenset(["replicated_all_reduce", "replicated_reduce_scatter"])
"""Ops whose result is a reduction over replicas."""

PASSING = frozenset(["copy_var_update_", "call", "repeat", "conditional"])
"""Ops that store a value, or run graphs that are analysed by themselves."""
