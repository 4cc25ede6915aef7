"""Names of values in the words of the user's program: the one home for causes, explanations, lints and reports."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from popsr._program.building.location import short_place
from popsr._program.op import Op
from popsr._program.tensor import Tensor
from popsr.analysis import ExplanationStep
from popsr.analysis._axes import named_groups, shown_axes
from popsr.bridge._step.arguments import Step
from popsr.bridge._step.assigned import variable_at
from popsr.ops._kinds import MOVES

__all__ = ["WORDS", "Names", "producer_of", "scope_of"]

WORDS = {"add": "sum", "square_add": "sum of squares", "mul": "product", "mean": "mean"}
WORDS |= {"min": "minimum", "max": "maximum", "and": "conjunction", "or": "disjunction"}

_REDUCTION = "replicated_all_reduce"

_SCOPE = re.compile(r"(.+)/\w+_out(__t\d+)?$")
"""The name of the result of an op in a scope."""

_MADE = re.compile(r"'([^'\n]+_(?:out|load)(?:__t\d+)?)'")
"""Names that popsr may have given, in a text."""

_SUM = re.compile(
    r"replicated_all_reduce\('(.+)', 'mean' or 'add', "
    r"(?:ir\.replica_grouping\(stride=(\d+), group_size=(\d+)\)|groups ((?:\{[\d,]+\})+))\)"
)
"""A reduction that the analysis suggests."""

_PART = re.compile(r" \(a part of the sum over .*\)$")


def producer_of(t: Tensor) -> Op | None:
    """The op that makes a tensor."""
    producer = t.ir._core.tensor(t._id).producer
    return None if producer is None else Op(t.ir, producer)


def scope_of(op: Op) -> str:
    """Module or named scope that an op is of, as in its name: ``layers/0/attn``; empty outside of all."""
    found = _SCOPE.match(op.outputs[0].name) if op.outputs else None
    return "" if found is None else found[1]


class Names:
    """Names of the values of a step.

    A value has the path of the argument or result that it is, or is "the new" value of a state. Any other value is
    called by its op, by what the op is for and by where it is: ``tanh for 'hidden' at model.py:12 in 'layers.0.mlp'``.
    A line tells for which variable it computes, not which value it has in the end: no value is called by the variable
    alone. Of a program of popsr values keep the names that the user sees when it is printed.

    Args:
        step: the step.
    """

    def __init__(self, step: Step) -> None:
        """No name is made before the first question."""
        self._step, self._core = step, step.ir._core

    def of(self, tensor: Tensor, near: Op | None = None) -> str:
        """The name of a value.

        Args:
            tensor: the value.
            near: an op in whose words it is named: what the two have in common is left out.
        """
        known = self._known.get(tensor._id)
        if known is not None:
            return known
        info = self._core.tensor(tensor._id)
        if info.producer is None:
            return self._constant(tensor) if info.kind == "constant" else f"'{tensor.name}'"
        op = Op(self._step.ir, info.producer)
        if not self._is_unnamed(tensor, op):
            return f"'{tensor.name}'"
        moved = self._moved(op)
        if moved or (near is not None and self._place(op) == self._place(near)):
            return self._kind(op) + moved
        at = f" at {short_place(op.location)}" if op.location else ""
        return self._kind(op) + self._purpose(op) + at + self._within(op)

    def scope(self, op: Op) -> str:
        """The scope of an op as the framework's user writes it: JAX's named scopes, or the path of a module."""
        scope = scope_of(op)
        return scope if self._step.source == "from_jax" else scope.replace("/", ".")

    def text(self, text: str) -> str:
        """A text of the analysis with names of values and of axes in the place of popsr's.

        Args:
            text: the text.
        """
        if self._step.source != "Ir":
            if self._renamed:
                named = re.compile("|".join(map(re.escape, self._renamed)))
                text = named.sub(lambda found: self._renamed[found[0]], text)
            text = _MADE.sub(self._in_text, _SUM.sub(self._suggested, text))
        return named_groups(text, self._step.axes).replace("replica_index gives", f"{self._rank} gives")

    def step(self, step: ExplanationStep) -> str:
        """A step of an explanation in words.

        Args:
            step: the step, with the text of the analysis.
        """
        op = step.op
        if op is None or self._step.source == "Ir" or step.kind not in ("op", "write"):
            return self.text(step.text)
        part = _PART.search(step.text)
        return self._made(step.kind, step.tensor, op) + ("" if part is None else self.text(part[0]))

    def _made(self, kind: str, tensor: Tensor, op: Op) -> str:
        """The work of an op: it makes a value with a name, or one for a purpose, or writes a state."""
        name = self.of(tensor)
        if kind == "write":
            takes = tensor._id in self._new and op.kind == "copy_var_update_"
            return f"{name} takes its new value" if takes else f"{name} is written by {self._call(op)}"
        if not op.inputs and tensor._id in self._known:
            return f"{name} is given to the step"
        if tensor._id in self._known or not self._is_unnamed(tensor, op):
            return f"{name} = {self._call(op)}"
        return self._call(op) + self._purpose(op) + self._within(op)

    def _call(self, op: Op) -> str:
        operands = ", ".join(self.of(each, op) for each in op.inputs if each is not None)
        return f"{self._kind(op)} of {operands}" if op.kind == _REDUCTION else f"{self._kind(op)}({operands})"

    # Parts of a name

    def _kind(self, op: Op) -> str:
        if op.kind == _REDUCTION:
            grouping = op.attributes["group"] or self._step.ir.replica_grouping()
            return f"{WORDS[op.attributes['op']]} over {shown_axes(grouping.partition, self._step.axes)}"
        return self._rank if op.kind == "replica_index" else op.kind.removeprefix("replicated_")

    @property
    def _rank(self) -> str:
        """Own place of a replica, in words of the framework."""
        return {"from_jax": "axis_index", "trace_step": "the rank"}.get(self._step.source, "replica_index")

    def _moved(self, op: Op) -> str:
        """The argument whose elements an op gives another form: ``of 'w'``; empty of other ops."""
        operands = [each for each in op.inputs if each is not None]
        known = self._known.get(operands[0]._id) if len(operands) == 1 and op.kind in MOVES else None
        return f" of {known}" if known else ""

    def _purpose(self, op: Op) -> str:
        """The variable for which the user's line computes; none of a backward pass, which computes its gradient."""
        variable = "" if op.id in self._step.derivatives else variable_at(op.location)
        return f" for '{variable}'" if variable else ""

    def _within(self, op: Op) -> str:
        scope = self.scope(op)
        if op.id in self._step.derivatives:
            return " in the backward pass" + (f" of '{scope}'" if scope else "")
        return f" in '{scope}'" if scope else ""

    def _place(self, op: Op) -> tuple[str, str, bool]:
        return op.location, scope_of(op), op.id in self._step.derivatives

    def _constant(self, tensor: Tensor) -> str:
        data = self._core.tensor_data(tensor._id)
        if tensor.shape or data is None:
            return "a constant"
        value = data.view(tensor.dtype.as_numpy())[0]
        return str(value) if value.dtype.kind in "biu" else f"{float(value):.6g}"

    # Values that have names

    @functools.cached_property
    def _known(self) -> Mapping[int, str]:
        """Names of arguments, then of new values of states, then of results, by number of the tensor."""
        step, found = self._step, dict[int, str]()
        for argument in step.arguments:
            for tensor in (argument.tensor, argument.source):
                if isinstance(tensor, Tensor):
                    found.setdefault(tensor._id, f"'{argument.path}'")
        for state in step.states:
            if state.result is not None:
                found.setdefault(state.result._id, f"the new '{state.path}'")
        for result in (*step.results, *step.expected):
            found.setdefault(result.tensor._id, f"'{result.path}'")
        return found

    @functools.cached_property
    def _renamed(self) -> Mapping[str, str]:
        """Names of arguments as texts have them, that are not their paths, and the names that they have here."""
        found = dict[str, str]()
        for each in self._step.arguments:
            if isinstance(each.source, Tensor) and each.source.name != each.path:
                found[f"'{each.source.name}'"] = self._known[each.source._id]
        return found

    @functools.cached_property
    def _new(self) -> frozenset[int]:
        """States that the step gives a new value."""
        return frozenset(
            each.source._id
            for each in self._step.states
            if isinstance(each.source, Tensor) and each.result is not None
        )

    def _is_unnamed(self, tensor: Tensor, op: Op) -> bool:
        """True for a result with the name that popsr gives it, after its op."""
        made = re.fullmatch(rf"(.+/)?{op.kind}_out(__t\d+)?", tensor.name, re.DOTALL)
        return made is not None and self._step.source != "Ir"

    @functools.cached_property
    def _by_name(self) -> Mapping[str, int | None]:
        """Numbers of tensors by name; None where graphs have one each."""
        found: dict[str, int | None] = {}
        for number in range(self._core.num_tensors):
            name = self._core.tensor(number).name
            found[name] = None if name in found else number
        return found

    def _in_text(self, found: re.Match[str]) -> str:
        number = self._by_name.get(found[1])
        return found[0] if number is None else self.of(self._step.ir._tensor(number))

    def _suggested(self, found: re.Match[str]) -> str:
        """A reduction that is suggested, as the user of a framework says it."""
        name, stride, size, _ = found.groups()
        if stride is None:
            return found[0]
        group = self._step.ir.replica_grouping(stride=int(stride), group_size=int(size))
        over = shown_axes(group.partition, self._step.axes)
        return f"take the mean or the sum over {over} of '{name}'"
