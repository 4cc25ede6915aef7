"""Floating point operations of programs, counted from the shapes of their ops by the registry's definitions.

==========================================  ===========================================================================
op                                          counts
==========================================  ===========================================================================
matrix products                             2 for each element of the result and of the contracted axis
convolutions                                2 for each output (of transposed ones: input) element and weight that meets
                                            it, padding included; their gradients likewise
elementwise arithmetic and functions        1 for each element of the result; likewise ``accumulate_``
``scaled_add``                              3 for each element of the result
reductions                                  1 for each element of the operand; 2 where it is squared or its sign dropped
variance                                    4 for each element of the operand: sum, difference, square, sum
softmax                                     5 for each element: maximum, difference, exponential, sum, quotient
group and layer norm                        7 for each element and 5 for each group of each sample
``call``                                    its graph's
``repeat``                                  its graph's, times the number of repetitions
``conditional``                             FLOPs of the branch that has more
others                                      0: copies, comparisons, exchange between replicas, random numbers, steps of
                                            optimisers
==========================================  ===========================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from popsr import _core
from popsr._program.graph import Graph
from popsr._program.ir import Ir
from popsr._program.op import Op
from popsr._support.host.arguments import is_a, read_choice, read_number
from popsr._support.records import OpSchema
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.compat._objects.op_classes import OpView
from popsr.errors import ArgumentTypeError

__all__ = [
    "elementwise_binary_flops",
    "evaluate_FLOPs",
    "evaluate_ir_FLOPs",
    "format_flops_scientific",
    "group_norm_flops",
    "matmul_flops",
    "print_FLOPs",
    "total_FLOPs",
]

Format = Literal["K", "M", "G", "T", "nearest3"]

_EXPONENTS = {"K": 3, "M": 6, "G": 9, "T": 12}


@public
def matmul_flops(op: Op | OpView) -> int:
    """Operations of a matrix product: 2 for each element of the result and of the contracted axis.

    Args:
        op: a ``matmul``, as in ``graph.ops`` or ``graph._pb_graph.getOps()``.
    Raises:
        ArgumentTypeError: another op, or none.
    """
    return _flops_of("matmul_flops", op, lambda schema: bool(schema["family"] == "matmul"))


@public
def elementwise_binary_flops(op: Op | OpView) -> int:
    """Operations of elementwise arithmetic: the number of elements of the result.

    Args:
        op: an op such as ``add`` or ``mul``, as in ``graph.ops`` or ``graph._pb_graph.getOps()``.
    Raises:
        ArgumentTypeError: another op, or none.
    """
    return _flops_of("elementwise_binary_flops", op, _is_binary)


@public
def group_norm_flops(op: Op | OpView) -> int:
    """Operations of a normalisation.

    Of each element: a sum for the mean; a difference, a square and a sum for the variance; two factors and a
    summand. Of each group of each sample: two quotients, ``eps``, a root and its inverse.

    Args:
        op: a ``group_norm`` or ``layer_norm``, as in ``graph.ops`` or ``graph._pb_graph.getOps()``.
    Raises:
        ArgumentTypeError: another op, or none.
    """
    return _flops_of("group_norm_flops", op, lambda schema: schema["family"] == "norms" and schema["flops"])


def _is_binary(schema: OpSchema) -> bool:
    """True for arithmetic of two tensors."""
    row = schema["elementwise"]
    if row is None or schema["internal"]:
        return False
    return bool(row["operands"] == 2 and row["scalars"] == 0 and row["flops"])


def _flops_of(where: str, op: Op | OpView, accepts: Callable[[OpSchema], bool]) -> int:
    kinds = [schema["name"] for schema in _core.op_schemas() if accepts(schema)]
    seen: Any = op._op if isinstance(op, OpView) else op
    if not is_a(seen, Op) or seen.kind not in kinds:
        raise ArgumentTypeError(
            f"{where}: not such an op, got {shown(op)}, expected one of {', '.join(kinds)}"
        )
    flops: int = seen._ir._core.op_flops(seen.id)
    return flops


# Programs


@public
def total_FLOPs(ir: Ir) -> int:  # noqa: N802 - PopXL's name
    """Floating point operations of one run of a program, on all replicas.

    Args:
        ir: the program.
    Raises:
        ArgumentTypeError: not an Ir.
    """
    return int(evaluate_ir_FLOPs(ir)["TOT"])


@public
def evaluate_ir_FLOPs(ir: Ir) -> dict[str, Any]:  # noqa: N802 - PopXL's name
    """Floating point operations of one run of a program, on all replicas, by op.

    Args:
        ir: the program.
    Returns:
        As ``evaluate_FLOPs`` of its main graph, with every number times the number of replicas.
    Raises:
        ArgumentTypeError: not an Ir.
    """
    if not is_a(ir, Ir):
        raise ArgumentTypeError(f"evaluate_ir_FLOPs: not an Ir, got {shown(ir)}")
    return _Counter().evaluate(ir.main_graph, ir.replication_factor)


@public
def evaluate_FLOPs(graph: Graph) -> dict[str, Any]:  # noqa: N802 - PopXL's name
    """Floating point operations of running a graph once, on one replica, by op. The module's table says what counts.

    Args:
        graph: the graph.
    Returns:
        By name and then by ``id`` of an op the number, or for one that runs a graph such a dictionary; ``"TOT"`` is the
        sum. Ops that count 0 are left out.
    Raises:
        ArgumentTypeError: not a Graph.
    """
    if not is_a(graph, Graph):
        raise ArgumentTypeError(f"evaluate_FLOPs: not a Graph, got {shown(graph)}")
    return _Counter().evaluate(graph, 1)


class _Counter:
    """Counts each graph once, however many calls lead to it: equal parts of a result are one dictionary."""

    def __init__(self) -> None:
        self._known: dict[tuple[Graph, int], dict[str, Any]] = {}

    def evaluate(self, graph: Graph, times: int) -> dict[str, Any]:
        """The counts of a graph that runs so often."""
        if (graph, times) in self._known:
            return self._known[graph, times]
        result: dict[str, Any] = {}
        total = 0
        for op in graph.ops:
            count = self._count(op, times)
            flops = count["TOT"] if isinstance(count, dict) else count
            if flops:
                result.setdefault(op.kind, {})[op.id] = count
                total += flops
        self._known[graph, times] = {**result, "TOT": total}
        return self._known[graph, times]

    def _count(self, op: Op, times: int) -> int | dict[str, Any]:
        graphs = op.called_graphs
        if not graphs:
            return times * op._ir._core.op_flops(op.id)
        times *= op.attributes.get("count", 1)
        return max((self.evaluate(graph, times) for graph in graphs), key=lambda each: int(each["TOT"]))


@public
def print_FLOPs(  # noqa: N802 - PopXL's name
    flops_breakdown: dict[str, Any],
    mode: Literal["type", "flat"] = "type",
    numerical_format: Format = "nearest3",
) -> None:
    """Print floating point operations, and their sum last.

    Args:
        flops_breakdown: what ``evaluate_FLOPs`` returned.
        mode: "type": a line for each name of an op, the greatest number first, over all graphs; "flat":
            a line for each op, such as ``call.4/matmul.2``, in program order of each name.
        numerical_format: as for ``format_flops_scientific``.
    Raises:
        AttributeValueError: unknown mode or format.
    """
    _check_breakdown(flops_breakdown)
    read_choice("print_FLOPs", "mode", mode, ("type", "flat"))
    if mode == "type":
        leaves = sorted(_by_kind(flops_breakdown, {}).items(), key=lambda item: -item[1])
    else:
        leaves = list(_leaves(flops_breakdown, ""))
    lines = [*leaves, ("total", flops_breakdown["TOT"])]
    print("\n".join(f"{name}: {format_flops_scientific(flops, numerical_format)}" for name, flops in lines))


def _by_kind(breakdown: dict[str, Any], known: dict[int, dict[str, int]]) -> dict[str, int]:
    """Sums over all graphs; ``known`` has the sums of dictionaries that were met already."""
    if id(breakdown) in known:
        return known[id(breakdown)]
    sums: dict[str, int] = {}
    for kind, counts in breakdown.items():
        for count in counts.values() if kind != "TOT" else ():
            inner = _by_kind(count, known) if isinstance(count, dict) else {kind: count}
            for name, flops in inner.items():
                sums[name] = sums.get(name, 0) + flops
    known[id(breakdown)] = sums
    return sums


def _check_breakdown(breakdown: Any) -> None:
    """Raise ArgumentTypeError unless it is what ``evaluate_FLOPs`` returns."""
    todo, seen = [breakdown], {id(breakdown)}
    while todo:
        each = todo.pop()
        counts = each.get("TOT") if isinstance(each, dict) else None
        if not is_a(counts, int) or not all(is_a(v, dict) for k, v in each.items() if k != "TOT"):
            raise ArgumentTypeError(
                f"print_FLOPs: not a breakdown, got {shown(breakdown)}, expected a result of evaluate_FLOPs"
            )
        for kind, ops in each.items():
            inner = [] if kind == "TOT" else list(ops.values())
            new = {id(v): v for v in inner if not is_a(v, int) and id(v) not in seen}
            todo += new.values()
            seen |= new.keys()


def _leaves(breakdown: dict[str, Any], prefix: str) -> Iterator[tuple[str, int]]:
    for kind, counts in breakdown.items():
        if kind != "TOT":
            for id_, count in counts.items():
                path = f"{prefix}{kind}.{id_}"
                yield from _leaves(count, f"{path}/") if isinstance(count, dict) else [(path, count)]


@public
def format_flops_scientific(val: int | float, format: Format = "nearest3") -> str:
    """A number of floating point operations as text: "1.500 MFLOPs".

    Args:
        val: the number.
        format: "K", "M", "G" or "T": in thousands, millions and so on; "nearest3": in the greatest of these that leaves
            at least 1, or as it is.
    Raises:
        AttributeValueError: unknown format.
    """
    val = val if isinstance(val, int) else read_number("format_flops_scientific: val", val)
    read_choice("format_flops_scientific", "format", format, (*_EXPONENTS, "nearest3"))
    unit: str = format
    if format == "nearest3":
        if val < 1000:
            return f"{val} FLOPs"
        unit = next((name for name, e in _EXPONENTS.items() if round(val / 10**e, 3) < 1000), "T")
    return f"{val / 10 ** _EXPONENTS[unit]:.3f} {unit}FLOPs"
