"""Graphs: what ops are appended to, and what ``call`` and ``repeat`` run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from popsr._program.building.op_hooks import OpHooks
from popsr._program.building.transaction import transactional
from popsr._program.handles import GraphHandle, is_retired
from popsr._program.op import Op
from popsr._program.state import _context
from popsr._program.tensor import Constant, Tensor, Variable
from popsr._program.variables.variables import variable
from popsr._support.extensions import call, member
from popsr._support.host.arguments import is_a
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr._support.text.summary import line
from popsr.errors import ArgumentTypeError
from popsr.replicas import VariableSettings
from popsr.utils import HostScalarTensor

if TYPE_CHECKING:
    from popsr._program.ir import Ir

__all__ = ["Graph"]


@public
class Graph(GraphHandle):
    """A graph of an Ir. ``with graph:`` makes it current; made by ``Ir.create_graph`` and its kin."""

    _ir: Ir
    _hash: int
    _is_recursively_differentiable: bool = (
        True  # False: graphs that call it need to be told its gradient graph
    )

    _create_tensor_id = member("compat", "Graph._create_tensor_id")
    _pb_graph = property(member("compat", "Graph._pb_graph"))
    _repr_html_ = member("_tools", "Graph._repr_html_")
    __treescope_repr__ = member("_tools", "__treescope_repr__")

    def __init__(self) -> None:
        raise ArgumentTypeError("Graph: cannot be constructed, use Ir.create_graph or Ir.create_empty_graph")

    @classmethod
    def _of(cls, ir: Ir, id_: int) -> Graph:
        self = cls.__new__(cls)
        self._program, self._id, self._hash = ir, id_, hash((ir.id, id_))
        return self

    @property
    def name(self) -> str:
        """Name of the graph; the same as ``id``."""
        return self.id

    @property
    def id(self) -> str:
        """Name of the graph, unique in the Ir; empty for the main graph."""
        return self._ir._core.graph_name(self._id)

    @property
    def ir(self) -> Ir:
        """The program that it belongs to."""
        return self._ir

    @property
    def main_graph(self) -> Graph:
        """Main graph of the program."""
        return self._ir.main_graph

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Inputs in order."""
        return self._ir._tensors_of(self._ir._core.graph_inputs(self._id))

    @property
    def inputs_by_name(self) -> dict[str, Tensor]:
        """Inputs by name."""
        return {t.name: t for t in self.inputs}

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Outputs in order."""
        return self._ir._tensors_of(self._ir._core.graph_outputs(self._id))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors, in the order in which they were made."""
        return self._ir._tensors_of(self._ir._core.graph_tensors(self._id))

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Variables among the tensors."""
        variables = self._ir._tensors_of(self._ir._core.graph_variables(self._id))
        return cast("tuple[Variable, ...]", variables)

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Constants among the tensors."""
        return tuple(t for t in self.tensors if isinstance(t, Constant))

    @property
    def called_graphs(self) -> tuple[Graph, ...]:
        """Graphs that ops of this graph run."""
        return tuple(self._ir._graph(id_) for id_ in self._ir._core.called_graphs(self._id))

    @property
    def ops(self) -> tuple[Op, ...]:
        """The ops, in the order in which they were made and run."""
        return tuple(Op(self._ir, id_) for id_ in self._ir._core.graph_ops(self._id))

    def get_tensor(self, tensor_id: str) -> Tensor:
        """The tensor of that id.

        Raises:
            UnknownNameError: there is none; the message has similar ids.
        """
        if not is_a(tensor_id, str):
            raise ArgumentTypeError(f"get_tensor: tensor_id is not a str, got {shown(tensor_id)}")
        return self._ir._tensor(self._ir._core.find_tensor(self._id, tensor_id))

    @transactional
    def add_var_init(
        self, name: str | None, data: HostScalarTensor, settings: VariableSettings | None = None
    ) -> Variable:
        """PopART's name for a variable, see ``popsr.variable``; of the main graph only.

        Args:
            name: its name. Default: "t".
            data: initial value: with several groups, one row a group.
            settings: groups of replicas and retrieval mode. Default: one group of all, one per group.
        """
        with self:
            return variable(data, name=name, variable_settings=settings)

    addVarInit = add_var_init  # noqa: N815 - PopART's name

    def html(self) -> str:
        """A page with all ops by name scope, coloured by which replicas agree, and a picture; stands alone.

        A row an op, with what the replicas agree on after it; name scopes and called graphs open on a click. Of long
        scopes the first ops are shown, of a graph that is called several times its first call. The picture needs
        fast-sugiyama.
        """
        page: str = call("_tools", "Graph.html", self)
        return page

    def register_op_created_hook(self, fn: Callable[[Op], Any]) -> int:
        """Call ``fn`` with each op that a program appends to this graph from now on; returns a handle.

        Not with what transforms add.

        Raises:
            TypeError: ``fn`` cannot be called.
        """
        hooks, handle = self._op_hooks.register(fn)
        self._set_hooks(hooks)
        return handle

    def remove_op_created_hook(self, handle: int) -> None:
        """Remove a hook.

        Raises:
            ValueError: the handle is unknown.
        """
        self._set_hooks(self._op_hooks.remove(handle))

    def _set_hooks(self, hooks: OpHooks) -> None:
        self._ir._op_hooks = {**self._ir._op_hooks, self._id: hooks}

    def __contains__(self, value: Tensor) -> bool:
        if not isinstance(value, Tensor):
            raise ArgumentTypeError(
                f"graph: only tensors can be in a graph, got {shown(value)}, expected a Tensor"
            )
        return value._ir is self._ir and value._graph_id == self._id

    def __eq__(self, value: object) -> bool:
        return self is value

    def __hash__(self) -> int:
        return self._hash

    def __enter__(self) -> Graph:
        _context.push_graph(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _context.pop_graph()

    def _in_words(self) -> str:
        """In texts of errors."""
        return f"graph '{self.id}' of Ir {self._ir.id}" if self._id else f"main graph of Ir {self._ir.id}"

    def _text(self) -> str:
        name = f"id={self.id} name={self.name}" if self.id else "main"  # PopXL's main graph has no name
        return line(f"Graph[{name} inputs={len(self.inputs)} ops={len(self.ops)}]")

    def __str__(self) -> str:
        return repr(self) if is_retired(self) else self._ir._core.print_graph(self._id)
