"""Kinds of ops by how their results depend on an operand, for readers of programs."""

from popsr import _core

__all__ = [
    "ADDITIVE",
    "ELEMENTWISE",
    "EXCHANGES",
    "FOLDS",
    "LINEAR",
    "MOVES",
    "POINTWISE",
    "REDUCTIONS",
    "SCALES",
]

_SCHEMAS = _core.op_schemas()

MOVES = frozenset(each["name"] for each in _SCHEMAS if each["moves"])
"""Ops whose result holds the elements of its operand and no others, in another form."""

LINEAR = frozenset(each["name"] for each in _SCHEMAS if each["linear"])
"""Ops whose result is linear in some of the operands while the others stay."""

SCALES = frozenset(["mul", "div"])
"""Ops that multiply by a number if one of their operands is a constant."""

ADDITIVE = frozenset(["add", "sub", "accumulate_", "concat", "where"])
"""Ops whose result is a multiple of another value only if all their operands are, by the same factor."""

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

FOLDS = frozenset(["max", "min", "sum"])
"""Ops whose result over parts is made of those of the parts by the same op."""

EXCHANGES = frozenset(
    ["replicated_permute", "replicated_all_to_all", "replicated_all_gather", "replicated_broadcast"]
)
"""Ops whose results are parts of what other replicas have."""

ELEMENTWISE = (POINTWISE | {"exp", "tanh"}) - MOVES
"""Ops whose result is at the place of their operand, where all have the shape of one."""
