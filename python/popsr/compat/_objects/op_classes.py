"""PopART's classes of ops, made from the registry by one rule.

The class of an op is its name in CamelCase with ``Op``: ``adam_updater`` is ``AdamUpdaterOp``. Of an op in place it
has ``Inplace`` as well: ``relu_`` is ``ReluInplaceOp``, also spelt ``ReluLhsInplaceOp`` and ``ReluRhsInplaceOp``, and
without where there is no other form: ``accumulator_scale_`` is ``AccumulatorScaleOp``. ``_STEMS`` has the exceptions.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from popsr import _core
from popsr._program.handles import Handle
from popsr._support.text.entry_points import public
from popsr.compat._objects.base import PopartObject

__all__ = ["OpClass", "bases", "class_of", "classes", "names_of", "op_type"]

# Stem of the class of an op, where the rule gives another. Several ops may be of one class.
_STEMS: Mapping[str, str] = {
    "add_": "AddLhsInplace",
    "accumulate_mean_": "Accumulate",
    "accumulate_moving_average_": "Accumulate",
    "accumulate_moving_average_square_": "Accumulate",
    "accumulate_square_": "Accumulate",
    "accumulator_zero_": "AccumulatorScale",
    "adamax_updater": "AdamUpdater",
    "argmax": "ArgMax",
    "argmin": "ArgMin",
    "conditional": "If",
    "cumsum": "CumSum",
    "flatten": "Reshape",
    "flatten_": "ReshapeInplace",
    "geluerf": "GeluErf",
    "geluerf_": "GeluErfInplace",
    "geluerf_grad": "GeluErfGrad",
    "groupedgather": "GroupedGather",
    "interpolate": "Resize",
    "interpolate_grad": "ResizeGrad",
    "isfinite": "IsFinite",
    "isinf": "IsInf",
    "isnan": "IsNaN",
    "l1": "ReduceL1",
    "l2": "ReduceL2",
    "lamb_updater": "AdamUpdater",
    "layer_norm": "GroupNorm",
    "logical_and": "And",
    "logical_not": "Not",
    "logical_or": "Or",
    "logsum": "ReduceLogSum",
    "logsumexp": "ReduceLogSumExp",
    "matmul": "MatMul",
    "matmul_pow2scaled": "MatMulPow2Scaled",
    "max": "ReduceMax",
    "maximum": "Max",
    "mean": "ReduceMean",
    "median": "ReduceMedian",
    "median_grad": "ReduceMedianGrad",
    "min": "ReduceMin",
    "nll_loss": "Nll",
    "nll_loss_grad": "NllGrad",
    "nll_loss_with_softmax_grad": "NlllWithSoftmaxGradDirect",
    "pow2scale_cast_from_fp8": "Pow2ScaleThenCast",
    "pow2scale_cast_to_fp8": "CastThenPow2Scale",
    "prod": "ReduceProd",
    "repeat": "Loop",
    "scaled_add_": "ScaledAddLhsInplace",
    "sub": "Subtract",
    "sum": "ReduceSum",
    "sumsquare": "ReduceSumSquare",
    "topk": "TopK",
    "topk_grad": "TopKGrad",
}
# PopART's operator type, where it is not the stem of the class.
_TYPES: Mapping[str, str] = {"Subtract": "Sub", "Negate": "Neg"}

# Further names of classes, by the op's.
_ALSO: Mapping[str, str] = {"batch_norm_inference": "BatchNormOp", "isinf": "IsInf", "isnan": "IsNaN"}

_EXCHANGE = ("host_", "remote_", "multi_exchange")
_COLLECTIVES = ("replicated_", "multi_replicated_", "all_reduce", "replica_sharded_")


bases: dict[str, Any] = {}
"""Classes that the modules above define: "made" of ops of a program, "pending" of operators before they are made."""


class OpView:
    """Base of the classes whose objects stand for an op of the program."""

    __slots__ = ("_op",)
    _op: Any


@public
class OpClass(type):
    """Metaclass of classes of ops: objects of ``graph.ops`` and of ``graph._pb_graph.getOps()`` are told by kind."""

    kinds: frozenset[str] | None
    """Names in the registry; None for the base of all."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """``Op(identifier, settings)`` is an operator of the program's own whose tensors are not connected yet."""
        return type.__call__(bases["pending"] if cls.kinds is None else cls, *args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        if super().__instancecheck__(instance):
            return True
        op = instance._op if isinstance(instance, OpView) else instance
        kind = getattr(op, "kind", None) if isinstance(op, Handle) else None
        return isinstance(kind, str) and (cls.kinds is None or kind in cls.kinds)


class Op(PopartObject, metaclass=OpClass):
    """Base of all classes of ops; see :mod:`popsr.compat._objects.op` for what objects have."""

    __slots__ = ()
    kinds: frozenset[str] | None = None


def _stem(kind: str, known: frozenset[str]) -> str:
    if kind in _STEMS:
        return _STEMS[kind]
    stem = "".join(word.capitalize() for word in kind.split("_"))
    return f"{stem}Inplace" if kind.endswith("_") and kind[:-1] in known else stem


def namespace_of(kind: str) -> str:
    """Below ``_ir.op``: "exchange", "collectives" or nothing."""
    if kind.startswith(_EXCHANGE):
        return "exchange"
    return "collectives" if kind.startswith(_COLLECTIVES) else ""


@functools.cache
def _stems() -> dict[str, str]:
    """Stem of the class of each registered op."""
    known = frozenset(schema["name"] for schema in _core.op_schemas())
    return {kind: _stem(kind, known) for kind in known}


def op_type(kind: str) -> str:
    """PopART's operator type: "MatMul", "Sub"."""
    stem = _stems()[kind]
    return _TYPES.get(stem, stem)


def names_of(kind: str) -> tuple[str, ...]:
    """Names of the class of an op, the usual one first."""
    stem = _stems()[kind]
    if not kind.endswith("_"):
        return (f"{stem}Op", *([_ALSO[kind]] if kind in _ALSO else []))
    base = stem.removesuffix("Inplace").removesuffix("Lhs")
    in_place = (f"{base}{side}InplaceOp" for side in ("", "Lhs", "Rhs"))
    return tuple(dict.fromkeys([f"{stem}Op", *in_place]))


@functools.cache
def _made() -> dict[str, OpClass]:
    """Class of each registered op."""
    by_name: dict[str, set[str]] = {}
    for kind in _stems():
        by_name.setdefault(names_of(kind)[0], set()).add(kind)
    made: dict[str, OpClass] = {}
    for name, kinds in by_name.items():
        members: dict[str, Any] = {
            "__slots__": (),
            "__module__": "popart._internal.ir.op",
            "__doc__": f"Ops of kind {', '.join(sorted(kinds))}.",
            "kinds": frozenset(kinds),
        }
        cls = OpClass(name, (bases["made"],), members)
        made |= dict.fromkeys(kinds, cls)
    return made


def class_of(kind: str) -> Any:
    """The class of the ops of a kind."""
    return _made()[kind]


def classes(namespace: str) -> dict[str, OpClass]:
    """Classes below ``_ir.op`` by all their names.

    Args:
        namespace: "exchange", "collectives", "dynamic" or nothing; dynamic ops are in both of the last two, reductions
            over IPUs in the last too.
    """
    found: dict[str, OpClass] = {}
    for kind in sorted(_stems()):
        also = ("dynamic",) * kind.startswith("dynamic_") + ("",) * (kind == "all_reduce")
        if namespace in (namespace_of(kind), *also):
            for name in names_of(kind):
                found.setdefault(name, class_of(kind))
    return found
