"""The walk over a model's graph: each node becomes ops by its rule, or the nodes of its function body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from popsr import ops
from popsr._program.building.gaps import Gap, merged_gaps
from popsr._program.context import location
from popsr._program.create_graph import graph_input, graph_output
from popsr._program.graph import Graph
from popsr._program.ir import Ir
from popsr._program.tensor import Tensor
from popsr._support.text.shown import shown
from popsr.bridge.onnx._bodies import body_of, require_body
from popsr.bridge.onnx._declared import Declared
from popsr.bridge.onnx._folding import FOLDS, NotFoldedError
from popsr.bridge.onnx._narrow import narrow_results, value_of, without_narrow
from popsr.bridge.onnx._node import Missing, Node, Sequenced, Value, Weight
from popsr.bridge.onnx._places import (
    Depth,
    domain_of,
    function_key,
    graphs_of,
    named,
    opset_of,
    place_of,
)
from popsr.bridge.onnx._rules import (
    RULES,
    BehindGapError,
    FunctionBodyError,
    MisfitError,
    NotSupportedError,
    Rule,
    ValueNeededError,
    find_rule,
)
from popsr.bridge.onnx._schemas import Schemas
from popsr.bridge.onnx._values import Values
from popsr.errors import (
    AttributeValueError,
    DTypeError,
    Error,
    GraphError,
    OutOfMemoryError,
    UnsupportedError,
)
from popsr.replicas import ReplicaGrouping

__all__ = ["MAX_NODES", "NONE", "Importer", "most_nodes", "too_many_nodes"]

_MAX_FOLDED_BYTES = 1 << 27
MAX_NODES = 1 << 16
"""Nodes that are read beside 16 for each node of the graph; those of functions and loops are counted each time."""
_MALFORMED = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RuntimeError)

NONE = Missing()
"""The result of each node that cannot be read."""


def most_nodes(graph: Any) -> int:
    """Number of nodes that are read of a model with this graph."""
    return MAX_NODES + 16 * len(graph.node)


def too_many_nodes(where: str) -> GraphError:
    """The error of a model that is much larger than its message."""
    return GraphError(
        f"{where}: functions and loops of too many nodes, got more than {MAX_NODES} beside 16 for each node of the "
        "graph, expected at most so many"
    )


class Importer(Values):
    """Reads graphs of ONNX into a graph of popsr.

    Args:
        onnx: the onnx package.
        ir: the program.
        graph: the model's graph.
        where: the call of the user, for messages.
        opsets: version of each domain.
        functions: the model's own functions by domain, name and overload.
        unroll: passes of a loop up to which each is read in place, so that gradients go through it; None: any number.
        groups: the replicas that share a weight, by its name.
    """

    def __init__(
        self,
        onnx: Any,
        ir: Ir,
        graph: Graph,
        where: str,
        opsets: Mapping[str, int],
        functions: Mapping[Any, Any],
        *,
        unroll: int | None = 0,
        groups: Mapping[str, ReplicaGrouping],
    ) -> None:
        """Without any node read."""
        super().__init__(ir, graph, groups)
        self._onnx, self._where, self.unroll = onnx, where, unroll
        self._opsets, self._functions = dict(opsets), functions
        self._schemas = Schemas(onnx)
        self._declared = Declared()
        self._attributes: Mapping[str, Any] = {}
        self.learned: Mapping[str, Weight] = {}
        self._left = MAX_NODES
        self._folded_bytes = self._random = 0
        self._stack: list[Any] = []
        self._whole: tuple[Any, int] | None = None  # node and position whose function body of ONNX is read
        self.gaps: list[Gap] = []
        self.needed: list[str] = []

    def run(self, proto: Any, values: dict[str, Value], extents: bool) -> list[Value]:
        """The results of the model's graph, for values of its inputs and initializers.

        With ``extents`` values must have the extents that the graph declares.
        """
        self._left = most_nodes(proto)
        self._schemas.state(values.values())
        declared = Declared(proto.value_info, proto.input, proto.output, extents=extents)
        for each in proto.input:
            self._check_declared(declared, each.name, values, f"input {shown(each.name)}")
        return self._body(proto.node, [each.name for each in proto.output], values, declared)

    def count_random(self) -> int:
        """The number of nodes with random numbers so far, each time a node is read."""
        self._random += 1
        return self._random

    def subgraph(
        self, graph: Any, scope: Mapping[str, Value], inputs: Sequence[Value], *, varies: bool = False
    ) -> list[Value]:
        """The results of a graph of a node, read in place; with ``varies`` of other shapes than it declares."""
        if len(inputs) != len(graph.input):
            raise ValueError(f"a graph of {len(graph.input)} inputs for {len(inputs)} values")
        values = dict(scope)
        values.update(zip((each.name for each in graph.input), inputs, strict=True))
        for each in graph.initializer:
            values[each.name] = value_of(each)
        self._schemas.state(values[each.name] for each in graph.initializer)
        declared = Declared(graph.value_info, graph.input, graph.output, ranks=not varies)
        for each in graph.input:
            self._check_declared(declared, each.name, values, f"input {shown(each.name)}")
        with self._inside("graph"):
            return self._body(graph.node, [each.name for each in graph.output], values, declared)

    def make_graph(
        self,
        name: str,
        values: Sequence[Value],
        body: Callable[[list[Value]], Sequence[Value]],
        *,
        once: bool = False,
    ) -> tuple[Graph, list[Tensor]]:
        """A graph of a function of values: tensors are its inputs, known arrays stay known in it.

        Args:
            name: its name.
            values: the values.
            body: the function.
            once: its inputs have these values alone, as those of a branch.
        Returns:
            The graph, and the tensors to call it with.
        """
        without_narrow(values)
        values = [self.tensor(value) if isinstance(value, Weight) else value for value in values]
        tensors = list(dict.fromkeys(value for value in values if isinstance(value, Tensor)))
        graph = self._ir.create_empty_graph(name)
        with graph:
            inner = {t: graph_input(t.shape, t.dtype, f"in{i}") for i, t in enumerate(tensors)}
            if once:
                self._outer.update((inner[t]._id, t._id) for t in tensors)
            seen: set[Tensor] = set()
            for value in body([inner[v] if isinstance(v, Tensor) else v for v in values]):
                out = self.tensor(value)
                if out in seen or out in graph.inputs or isinstance(value, np.ndarray):
                    out = ops.identity(out)
                seen.add(out)
                graph_output(out)
        return graph, tensors

    def _inside(self, name: Any) -> Depth:
        return Depth(self._stack, name, self._where)

    def _body(
        self, nodes: Sequence[Any], outputs: Sequence[str], values: dict[str, Value], declared: Declared
    ) -> list[Value]:
        before, self._declared = self._declared, declared
        try:
            for position, proto in self._counted(nodes):
                self._node(proto, position, values)
        finally:
            self._declared = before
        for name in outputs:
            self._check_declared(declared, name, values, f"output {shown(name)}")
        try:
            return [values[name] if name else None for name in outputs]
        except KeyError as error:
            raise GraphError(
                f"{self._where}: output that no node makes, got {shown(error.args[0])}, expected a result of a node"
            ) from None

    def _check_declared(self, declared: Declared, name: str, values: Mapping[str, Value], what: str) -> None:
        try:
            declared.check(name, values.get(name))
        except MisfitError as error:
            raise error.kind(f"{self._where}: {what} {error}") from None

    def _counted(self, nodes: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Positions and nodes, until there are too many of the whole model."""
        for numbered in enumerate(nodes, 1):
            self._left -= 1
            if self._left < 0:
                raise too_many_nodes(self._where)
            yield numbered

    def _node(self, proto: Any, position: int, values: dict[str, Value]) -> None:
        """Read one node: its results are added to the values."""
        op_type = proto.op_type
        with location(*self._place(proto, position)):
            try:
                operands = [values[name] if name else None for name in proto.input]
            except KeyError as error:
                raise GraphError(
                    f"{self._where}: {self._named(proto, position)} reads what no earlier node makes, got "
                    f"{shown(error.args[0])}, expected nodes in an order without cycles"
                ) from None
            if any(value is NONE for value in operands):
                results = self._behind_a_gap(proto, position)
            else:
                results = self._results(proto, position, op_type, operands, values)
        names = proto.output
        values.update((name, value) for name, value in zip(names, results, strict=False) if name)
        for name in names[: len(results)]:
            self._check_declared(self._declared, name, values, self._named(proto, position))
        values.update((name, NONE) for name in names[len(results) :] if name)

    def _results(
        self, proto: Any, position: int, op_type: str, operands: list[Value], values: dict[str, Value]
    ) -> list[Value]:
        try:
            return self._read(proto, position, operands, values)
        except ValueNeededError as error:
            self.needed.extend(error.inputs)
            given = f": give values of {', '.join(map(repr, error.inputs))}" if error.inputs else ""
            return self._gap(proto, position, f"{op_type} ({error}{given})")
        except BehindGapError:
            return [NONE] * len(proto.output)
        except MisfitError as error:
            raise error.kind(f"{self._where}: {self._named(proto, position)} {error}") from None
        except NotSupportedError as error:
            return self._not_supported(proto, position, error)
        except Error as error:
            if str(error).startswith(self._where):
                raise
            if isinstance(error, (DTypeError, UnsupportedError)):
                return self._gap(proto, position, f"{op_type} ({str(error).partition(': ')[2]})")
            raise type(error)(f"{self._where}: {self._named(proto, position)}: {error}") from error
        except MemoryError:
            raise OutOfMemoryError(
                f"{self._where}: {self._named(proto, position)} needs too much memory, got shapes of its operands, "
                "expected smaller ones"
            ) from None
        except _MALFORMED as error:
            raise AttributeValueError(
                f"{self._where}: {self._named(proto, position)} is malformed, got {shown(str(error))}, expected a "
                "node as ONNX defines it"
            ) from error

    def _read(
        self, proto: Any, position: int, operands: list[Value], values: dict[str, Value]
    ) -> list[Value]:
        domain = domain_of(proto)
        function = self._function(proto)
        attributes = self._given(proto)
        if function is not None:
            return self._call(function, operands, attributes, proto.output)
        opset = opset_of(proto, self._opsets.get(domain))
        if opset is None:
            raise NotSupportedError(f"of the domain {domain or 'ai.onnx'}, which the model does not import")
        node = Node(proto, position, opset, self, values, attributes)
        found = self._find(domain, proto.op_type, opset)
        symbols = self._schemas.check(node, domain, operands)
        results = None
        if domain == "":
            results = narrow_results(node, operands, lambda plain: self._by_rule(found, node, domain, plain))
        else:
            without_narrow(operands)
        if results is None:
            results = self._by_rule(found, node, domain, operands)
        own_shapes = found is not None and found.own_shapes
        self._schemas.check_results(node, domain, operands, results, symbols, own_shapes)
        return results

    def _find(self, domain: str, op_type: str, opset: int) -> Rule | None:
        """The rule of an op; None of one that is read by its function body."""
        found = find_rule(domain, op_type, opset)
        if found is None:
            require_body(self._onnx, domain, op_type, opset)
        return found

    def _by_rule(self, found: Rule | None, node: Node, domain: str, operands: list[Value]) -> list[Value]:
        op_type = node.proto.op_type
        if found is None:
            return self._expanded(node, domain, operands)
        if op_type == "Constant" and not self._stack and node.proto.output[0] in self.learned:
            return [self.learned[node.proto.output[0]]]
        if domain == "" and (fold := FOLDS.get(op_type)) is not None:
            known = self._folded(fold, node, operands)
            if known is not None:
                if op_type == "Constant":
                    self._schemas.state(known)
                return known
        try:
            return self._emitted(found, node, operands)
        except FunctionBodyError:
            return self._expanded(node, domain, operands)

    def _given(self, proto: Any) -> dict[str, Any]:
        """Attributes by name; those that refer to an attribute of the calling node are that one."""
        found = {}
        for each in proto.attribute:
            if each.name in found:
                raise ValueError(f"attribute {each.name} twice")
            if each.ref_attr_name:
                if each.ref_attr_name in self._attributes:
                    found[each.name] = self._attributes[each.ref_attr_name]
            else:
                found[each.name] = each
        return found

    def _folded(self, fold: Callable[..., Any], node: Node, operands: list[Value]) -> list[Value] | None:
        """Results that are known because all operands are."""
        if not all(value is None or isinstance(value, np.ndarray) for value in operands):
            return None
        try:
            results = fold(node, *operands)
        except NotFoldedError:
            return None
        # Views, as what is computed is another object than what the model states.
        found = [np.asarray(each).view() for each in (results if isinstance(results, list) else [results])]
        # Each is kept to the end: a node of 50 bytes may have many elements.
        self._folded_bytes += sum(each.nbytes for each in found)
        if self._folded_bytes > _MAX_FOLDED_BYTES:
            raise NotSupportedError(
                f"more than {_MAX_FOLDED_BYTES} bytes of values that are known, of all nodes"
            )
        return found

    def _emitted(self, found: Rule, node: Node, operands: list[Value]) -> list[Value]:
        """Results of the ops that a rule appends."""
        if found.kind == "raw":
            results = found.function(node, *operands)
        else:
            tensors = [None if value is None else self.tensor(value) for value in operands]
            results = found.function(*tensors) if found.kind == "plain" else found.function(node, *tensors)
        return (
            list(results)
            if isinstance(results, (list, tuple)) and not isinstance(results, Sequenced)
            else [results]
        )

    # Functions

    def _function(self, proto: Any) -> Any | None:
        """The model's own function that a node calls; None for an op that has a rule."""
        if (domain_of(proto), proto.op_type) in RULES:
            return None
        return self._functions.get(function_key(proto, proto.op_type))

    def _call(
        self, function: Any, operands: Sequence[Value], attributes: Mapping[str, Any], results: Sequence[str]
    ) -> list[Value]:
        """The results that have a name, of a function's nodes, which are read in place."""
        if len(operands) > len(function.input):
            raise ValueError(f"{len(operands)} operands of a function of {len(function.input)} inputs")
        if len(results) > len(function.output):
            raise ValueError(f"{len(results)} results of a function of {len(function.output)} outputs")
        given = {**{each.name: each for each in function.attribute_proto}, **attributes}
        values: dict[str, Value] = dict.fromkeys(function.input)
        values.update(zip(function.input, operands, strict=False))
        before = self._opsets, self._attributes
        imported = {domain_of(each): each.version for each in function.opset_import}
        with self._inside(function_key(function, function.name)):
            self._opsets, self._attributes = {**self._opsets, **imported}, given
            try:
                wanted = [
                    inner if outer else "" for inner, outer in zip(function.output, results, strict=False)
                ]
                infos = getattr(function, "value_info", ())  # older messages have none
                return self._body(function.node, wanted, values, Declared(infos))
            finally:
                self._opsets, self._attributes = before

    def _expanded(self, node: Node, domain: str, operands: Sequence[Value]) -> list[Value]:
        """The results of the function body that ONNX gives for an op."""
        body, attributes = body_of(self._onnx, node, domain, operands)
        before = self._whole
        self._whole = before or (node.proto, node.position)
        try:
            return self._call(body, operands, attributes, node.proto.output)
        finally:
            self._whole = before

    # Gaps

    def _behind_a_gap(self, proto: Any, position: int) -> list[Value]:
        """A node whose operands are missing: no more is asked than whether its op is there, and those inside it."""
        domain, op_type = domain_of(proto), proto.op_type
        function = self._function(proto)
        if function is not None:
            self._look_inside(function, {domain_of(each): each.version for each in function.opset_import})
            return [NONE] * len(proto.output)
        for graph in graphs_of(proto):
            self._look_inside(graph, {})
        opset = self._opsets.get(domain)
        if opset is None:
            return self._gap(
                proto,
                position,
                f"{op_type} (of the domain {domain or 'ai.onnx'}, which the model does not import)",
            )
        try:
            self._find(domain, op_type, opset)
        except NotSupportedError as error:
            return self._not_supported(proto, position, error)
        return [NONE] * len(proto.output)

    def _look_inside(self, part: Any, opsets: Mapping[str, int]) -> None:
        """Name what is missing in a graph or function whose operands are."""
        before = self._opsets
        with self._inside("graph"):
            self._opsets = {**before, **opsets}
            for position, proto in self._counted(part.node):
                with location(place_of(proto), position):
                    self._behind_a_gap(proto, position)
        self._opsets = before

    def _not_supported(self, proto: Any, position: int, error: NotSupportedError) -> list[Value]:
        text = str(error)
        return self._gap(proto, position, f"{proto.op_type} ({text})" if text else proto.op_type)

    def _gap(self, proto: Any, position: int, text: str) -> list[Value]:
        """Note what is missing; nodes that read the results are skipped."""
        place, at = self._place(proto, position)
        self.gaps.append(Gap(text, f"{place}:{at}"))
        return [NONE] * len(proto.output)

    def _place(self, proto: Any, position: int) -> tuple[str, int]:
        """The location of a node; in a function body of ONNX that of the node that the model has."""
        proto, position = self._whole or (proto, position)
        return place_of(proto), position

    def _named(self, proto: Any, position: int) -> str:
        """A node for messages, by the one that the model has."""
        if self._whole is None:
            return named(proto, position)
        return f"{named(*self._whole)} ({proto.op_type} of its function body)"

    def merged(self) -> tuple[Gap, ...]:
        """The gaps, those of one op and place as one."""
        return merged_gaps(self.gaps)
