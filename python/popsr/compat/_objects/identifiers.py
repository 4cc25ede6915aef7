"""PopART's names of graphs and operators, and what it says of how an op was made."""

from __future__ import annotations

from typing import Any

from popsr._program.graph import Graph
from popsr._program.op import Op
from popsr._support.host.arguments import read_a, read_int, read_text
from popsr.compat._objects.base import CallableText, PopartObject, view_class, view_of

__all__ = ["DebugContext", "DebugInfo", "GraphId", "OpSettings", "OperatorIdentifier", "graph_of"]

_MAX_VERSION = 2**31 - 1


class GraphId(PopartObject):
    """The name of a graph; empty for the main graph."""

    __slots__ = ("_name",)
    _where = "GraphId"

    def __init__(self, name: str = "") -> None:
        """An id.

        Raises:
            ArgumentTypeError: ``name`` is not a str.
        """
        self._name = read_text("GraphId: name", name)

    def __str__(self) -> str:
        return self._name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GraphId) and other._name == self._name

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f"GraphId({self._name!r})"


class OperatorIdentifier(PopartObject):
    """An operator: its domain, name and version. Identifiers compare by these.

    Args:
        domain: of the operator.
        type: its name.
        version: its version, from 0.
        num_inputs: how many inputs it has; recorded.
        num_outputs: how many outputs it has; recorded.
    Raises:
        ArgumentTypeError: a domain or name that is not a str, or a version that is not an int.
        AttributeValueError: a negative version.
    """

    __slots__ = ("_inputs", "_key", "_outputs")
    _where = "OperatorIdentifier"

    def __init__(
        self, domain: str, type: str, version: int = 1, num_inputs: Any = 0, num_outputs: Any = 0
    ) -> None:
        """An identifier."""
        self._key = (
            read_text(f"{self._where}: domain", domain),
            read_text(f"{self._where}: type", type),
            read_int(f"{self._where}: version", version, 0, _MAX_VERSION),
        )
        self._inputs, self._outputs = num_inputs, num_outputs

    @property
    def domain(self) -> str:
        """Domain of the operator."""
        return self._key[0]

    @property
    def type(self) -> str:
        """Name of the operator."""
        return self._key[1]

    @property
    def version(self) -> int:
        """Version of the operator."""
        return self._key[2]

    @property
    def num_inputs(self) -> Any:
        """As it was given."""
        return self._inputs

    @property
    def num_outputs(self) -> Any:
        """As it was given."""
        return self._outputs

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OperatorIdentifier) and other._key == self._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        return f"{self.domain}.{self.type}:{self.version}"

    def __repr__(self) -> str:
        return f"OperatorIdentifier({self.domain!r}, {self.type!r}, {self.version})"


class DebugContext(PopartObject):
    """A name for what is made. Here ops have the line of the program instead; it is read and recorded.

    Args:
        name: the name.
    """

    __slots__ = ("_name",)
    _where = "DebugContext"

    def __init__(self, name: str = "") -> None:
        """A context."""
        self._name = read_text("DebugContext: name", name)

    @property
    def name(self) -> str:
        """The name."""
        return self._name

    def get_path_name(self) -> str:
        """The name."""
        return self._name


class DebugInfo(PopartObject):
    """Debug name of an op."""

    __slots__ = ("_op",)
    _where = "op.getDebugInfo()"

    def __init__(self, op: Op) -> None:
        """``op``: the op."""
        self._op = op

    def get_id(self) -> int:
        """Number of the op in the program."""
        return self._op.id

    def get_path_name(self) -> str:
        """The name scopes and the name of the first output, else the op's kind."""
        return self._op.name

    def get_location(self) -> str:
        """``file:line`` of the program."""
        return self._op.location


class OpSettings(PopartObject):
    """Settings that PopXL passes to the constructor of an op: name, graph and placement.

    The op is placed by the contexts that are entered when it is made, which are the ones that this was made in;
    attributes that place it on hardware are accepted and recorded.

    Args:
        graph: the graph that the op will be in, or its ``_pb_graph``.
        name: its name.
    Raises:
        ArgumentTypeError: values of other types.
    """

    __slots__ = (
        "_graph",
        "_name",
        "inferTensorMappingToFrom",
        "recomputeType",
        "schedulePriority",
        "tileSet",
        "vgraphId",
    )
    _where = "op settings"

    def __init__(self, graph: Any, name: str = "") -> None:
        """Settings of an op."""
        self._graph = graph_of("Settings", graph)
        self._name = read_text("Settings: name", name)
        self.inferTensorMappingToFrom: dict[int, int] = {}
        self.recomputeType: object = None
        self.schedulePriority = 0.0
        self.vgraphId: int | None = None
        self.tileSet: object = None

    @property
    def name(self) -> CallableText:
        """Name of the op."""
        return CallableText(self._name)

    @property
    def graph(self) -> Any:
        """The graph that the op will be in."""
        return view_of(self._graph)

    def __repr__(self) -> str:
        return f"Settings({self._name!r})"


def graph_of(where: str, graph: Any) -> Graph:
    """The graph behind ``graph._pb_graph``, or the graph itself.

    Raises:
        ArgumentTypeError: it is neither.
    """
    if isinstance(graph, Graph):
        return graph
    found: Graph = read_a(f"{where}: graph", graph, view_class(Graph))._graph
    return found
