"""The table of rules: how each op of ONNX becomes ops of popsr, and from which opset on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from popsr.errors import Error

__all__ = [
    "MODEL_DOMAIN",
    "OTHERS",
    "RULES",
    "BehindGapError",
    "FunctionBodyError",
    "MisfitError",
    "NotSupportedError",
    "Rule",
    "ValueNeededError",
    "add_rule",
    "axis_in",
    "find_rule",
    "rule",
]

MODEL_DOMAIN = ""
"""The domain of ONNX's own ops; ``ai.onnx`` is another name of it."""


class NotSupportedError(Exception):
    """A node has a rule, but not for these attributes, dtypes or shapes; the text says which. Never seen by users."""


class BehindGapError(NotSupportedError):
    """A node whose operand is the result of one that cannot be read, which is named already. Never seen by users."""


class ValueNeededError(NotSupportedError):
    """A rule needs an operand's value when the model is read; ``inputs`` are those of the model that it depends on."""

    def __init__(self, text: str, inputs: Iterable[str] = ()) -> None:
        """With the names of inputs."""
        super().__init__(text)
        self.inputs = tuple(inputs)


class MisfitError(Exception):
    """A node contradicts what ONNX says of its op; the text goes on after the node, as an error of ``kind``."""

    def __init__(self, text: str, kind: type[Error]) -> None:
        """With what was got, what is expected, and what to do."""
        super().__init__(text)
        self.kind = kind


class FunctionBodyError(Exception):
    """A rule leaves a node, without an op of it, to the function body that ONNX has. Never seen by users."""


RuleFunction = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """The function that makes ops of a node.

    Attributes:
        function: returns the results of a node.
        since: the first opset whose op it is.
        kind: "plain": it takes the operands as tensors, as an op does; "node": the node, then the operands as tensors;
            "raw": the node, then values, which may be known arrays. An operand that is left out is None.
        module: the file of this package that has the rule.
        own_shapes: True if its results have other shapes than ONNX infers, as in onnxruntime, which rounds extents
            otherwise or reads an empty list of axes as all.
    """

    function: RuleFunction
    since: int
    kind: str
    module: str
    own_shapes: bool = False


OTHERS: list[Callable[[str, str, int], Rule | None]] = []
"""Functions that find rules of ops that the table does not have, by domain, op type and version."""

RULES: dict[tuple[str, str], list[Rule]] = {}
"""By domain and op type, the latest opset first. A node without a rule is replaced by its function body, if any."""


def rule(
    *op_types: str, since: int = 1, domain: str = MODEL_DOMAIN, kind: str = "node", own_shapes: bool = False
) -> Callable[[RuleFunction], RuleFunction]:
    """Decorator: the function is the rule of these op types from an opset on."""

    def register(function: RuleFunction) -> RuleFunction:
        for op_type in op_types:
            add_rule(op_type, function, since, kind, domain, function.__module__, own_shapes)
        return function

    return register


def axis_in(axis: int, rank: int) -> int:
    """An axis of so many dimensions, counted from the first.

    Raises:
        ValueError: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} of {rank} dimensions, expected one from {-rank} to {rank - 1}")
    return axis % rank


def add_rule(
    op_type: str,
    function: RuleFunction,
    since: int,
    kind: str = "plain",
    domain: str = MODEL_DOMAIN,
    module: str = "",
    own_shapes: bool = False,
) -> None:
    """Add a row."""
    rows = RULES.setdefault((domain, op_type), [])
    assert all(row.since != since for row in rows), (op_type, since)
    rows.append(Rule(function, since, kind, module.rpartition(".")[2].removeprefix("_"), own_shapes))
    rows.sort(key=lambda row: -row.since)


def find_rule(domain: str, op_type: str, opset: int) -> Rule | None:
    """The rule of an op in a version of its domain.

    Raises:
        NotSupportedError: there are only rules of later versions.
    """
    rows: Sequence[Rule] = RULES.get((domain, op_type), ())
    for row in rows:
        if row.since <= opset:
            return row
    if rows:
        raise NotSupportedError(f"of opset {opset}, expected {rows[-1].since} or later")
    return next((found for find in OTHERS if (found := find(domain, op_type, opset)) is not None), None)
