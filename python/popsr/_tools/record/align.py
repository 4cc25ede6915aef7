"""Two programs side by side: which ops are the same op, and what else differs between them."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

__all__ = ["Alignment", "Program", "align"]

Op = dict[str, Any]
_NUMBER = re.compile(r"_\d+(?=/|$)")


class Program:
    """The table of a recording by numbers.

    Attributes:
        ops: by number.
        producers: the op that makes a tensor.
        callers: ops that run a graph, by its number.
        input_of: graph and index of the inputs of graphs, by tensor.
    """

    def __init__(self, table: dict[str, Any]) -> None:
        """Index the table."""
        self.table = table
        self.tensors: list[Op] = table["tensors"]
        self.graphs: dict[int, Op] = {graph["id"]: graph for graph in table["graphs"]}
        self.ops: dict[int, Op] = {op["id"]: op for op in table["ops"]}
        self.producers: dict[int, tuple[int, int]] = {}
        self.callers: dict[int, list[int]] = {}
        self.input_of: dict[int, tuple[int, int]] = {}
        for op in self.ops.values():
            for k, tensor in enumerate(op["outputs"]):
                self.producers.setdefault(tensor, (op["id"], k))
            for graph in op["graphs"]:
                self.callers.setdefault(graph, []).append(op["id"])
        for graph, row in self.graphs.items():
            for i, tensor in enumerate(row["inputs"]):
                self.input_of[tensor] = graph, i
        self._deep: dict[int, str] = {}

    def leaf(self, tensor: int | None) -> str:
        """A value that no op makes, as "variable 'w'"; else its type."""
        if tensor is None:
            return "-"
        row = self.tensors[tensor]
        if row["kind"] in ("variable", "shard", "remote"):
            return f"{row['kind']} {row['name']!r}"
        if row["kind"] == "constant":
            return f"constant {row['data']}"
        if tensor in self.input_of:
            return f"input {self.input_of[tensor][1]}"
        return self.type(tensor)

    def type(self, tensor: int) -> str:
        """Dtype and shape."""
        row = self.tensors[tensor]
        return f"{row['dtype']}{row['shape']}"

    def deep(self, graph: int) -> list[str]:
        """Of each op of a graph a digest of itself and of all that it is made of in the graph."""
        made = []
        for id_ in self.graphs[graph]["ops"]:
            op = self.ops[id_]
            inputs = [
                f"{self._deep[self.producers[t][0]]}.{self.producers[t][1]}"
                if t in self.producers and self.producers[t][0] in self._deep
                else self.leaf(t)
                for t in op["inputs"]
            ]
            parts = (op["kind"], op["scope"], sorted(op["attributes"].items()), inputs, len(op["graphs"]))
            self._deep[id_] = hashlib.blake2b(repr(parts).encode(), digest_size=12).hexdigest()
            made.append(self._deep[id_])
        return made

    def near(self, op: Op) -> Hashable:
        """The op with its attributes, its types and what it reads of variables and constants."""
        return (self.loose(op), *sorted(op["attributes"].items()), *map(self.leaf, op["inputs"]))

    def loose(self, op: Op) -> Hashable:
        """Kind, scope, name without numbers, and the variables that it reads."""
        reads = [leaf for t in op["inputs"] if (leaf := self.leaf(t)).startswith(("variable", "shard"))]
        return (op["kind"], op["scope"], _NUMBER.sub("", op["name"]), *reads)


@dataclass
class Alignment:
    """``to_b`` and ``to_a``: the ops that both programs have."""

    a: Program
    b: Program
    to_b: dict[int, int] = field(default_factory=dict)
    to_a: dict[int, int] = field(default_factory=dict)

    def add(self, a: int, b: int) -> None:
        """The same op."""
        self.to_b[a], self.to_a[b] = b, a

    def changes(self, a: int) -> list[str]:
        """Attributes of an op of both programs that differ."""
        one, two = self.a.ops[a]["attributes"], self.b.ops[self.to_b[a]]["attributes"]
        return [
            f"{name} is {one.get(name, 'absent')} in a, {two.get(name, 'absent')} in b"
            for name in sorted(one.keys() | two.keys())
            if one.get(name) != two.get(name)
        ]

    def operand_changes(self, a: int) -> list[str]:
        """Operands that are other values in b."""
        one, two = self.a.ops[a], self.b.ops[self.to_b[a]]
        if len(one["inputs"]) != len(two["inputs"]):
            return [f"{len(one['inputs'])} operands in a, {len(two['inputs'])} in b"]
        pairs = list(enumerate(zip(one["inputs"], two["inputs"], strict=True)))
        if not [i for i, (s, t) in pairs if not self._same(s, t)]:
            return []
        if len(pairs) == 2 and all(self._same(pairs[i][1][0], pairs[1 - i][1][1]) for i in (0, 1)):
            return ["its operands are swapped"]
        return [self._change(i, s, t) for i, (s, t) in pairs if not self._same(s, t)]

    def _change(self, index: int, s: int | None, t: int | None) -> str:
        one, two = self._named(self.a, s), self._named(self.b, t)
        if one == two and one.startswith("constant"):
            return f"operand {index}, {one}, has another value"
        return f"operand {index} is {one} in a, {two} in b"

    def _named(self, program: Program, tensor: int | None) -> str:
        if tensor is None:
            return "absent"
        row = program.tensors[tensor]
        kind = "" if row["kind"] == "activation" else f"{row['kind']} "
        return f"{kind}'{row['name']}'"

    def _same(self, s: int | None, t: int | None) -> bool:
        made, other = (
            self.a.producers.get(s) if s is not None else None,
            self.b.producers.get(t) if t is not None else None,
        )
        if made and other:
            return self.to_b.get(made[0]) == other[0] and made[1] == other[1]
        return not made and not other and self.a.leaf(s) == self.b.leaf(t)


def align(a: Program, b: Program) -> Alignment:
    """By number when the programs are equal, else by what ops do and where they stand."""
    result = Alignment(a, b)
    if a.table["program"] == b.table["program"]:
        for op in a.ops:
            result.add(op, op)
        return result
    done: set[tuple[int, int]] = set()
    todo = [(0, 0)]
    while todo:
        pair = todo.pop()
        if pair in done:
            continue
        done.add(pair)
        for s, t in _align_graphs(result, *pair):
            result.add(s, t)
            todo += zip(a.ops[s]["graphs"], b.ops[t]["graphs"], strict=False)
    return result


def _align_graphs(result: Alignment, s: int, t: int) -> list[tuple[int, int]]:
    a, b = result.a, result.b
    one = [op for op in a.graphs[s]["ops"] if op not in result.to_b]
    two = [op for op in b.graphs[t]["ops"] if op not in result.to_a]
    deep = (
        _once(dict(zip(a.graphs[s]["ops"], a.deep(s), strict=True))),
        _once(dict(zip(b.graphs[t]["ops"], b.deep(t), strict=True))),
    )
    keys: list[tuple[Callable[[int], Hashable], Callable[[int], Hashable]]] = [
        (lambda i: deep[0].get(i, (0, i)), lambda i: deep[1].get(i, (1, i))),
        (lambda i: a.near(a.ops[i]), lambda i: b.near(b.ops[i])),
        (lambda i: a.loose(a.ops[i]), lambda i: b.loose(b.ops[i])),
        (lambda i: (a.ops[i]["kind"], a.ops[i]["scope"]), lambda i: (b.ops[i]["kind"], b.ops[i]["scope"])),
        (lambda i: a.ops[i]["kind"], lambda i: b.ops[i]["kind"]),
    ]
    found: list[tuple[int, int]] = []
    gaps: list[tuple[Sequence[int], Sequence[int]]] = [(one, two)]
    for of_a, of_b in keys:
        rest = []
        for left, right in gaps:
            matcher = SequenceMatcher(None, [of_a(i) for i in left], [of_b(i) for i in right], autojunk=False)
            i = j = 0
            for x, y, size in matcher.get_matching_blocks():
                rest.append((left[i:x], right[j:y]))
                found += zip(left[x : x + size], right[y : y + size], strict=True)
                i, j = x + size, y + size
        gaps = [(left, right) for left, right in rest if left and right]
    return found


def _once(digests: dict[int, str]) -> dict[int, str]:
    """Those that no other op has: only these tell where an op of one program stands in the other."""
    counts = Counter(digests.values())
    return {op: digest for op, digest in digests.items() if counts[digest] == 1}
