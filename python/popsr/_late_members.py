"""Members of the classes of a program whose code is in rooms above them: found at their first use.

Drawings and files of programs, and the private names of PopXL that lead to objects of PopART, need much that most
programs never touch, and they need the classes that they are members of. So the package adds them to these classes
when it is imported, by name; asking for one imports its module.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from popsr._program.context import Context
from popsr._program.graph import Graph
from popsr._program.ir import Ir
from popsr._program.op import Op
from popsr._program.tensor import Tensor, Variable
from popsr._support.text.entry_points import entry_point
from popsr.replicas import Partition, ReplicaGrouping, VariableSettings

__all__ = ["add_late_members"]

# Class; name of the member; module and function; what the member is made of the function.
_TABLE: tuple[tuple[type, str, str, Callable[[Any], Any] | None], ...] = (
    (Context, "_get_op_settings", "popsr.compat._objects.members:op_settings", None),
    (Context, "_op_created", "popsr.compat._objects.members:op_created", None),
    (Graph, "_create_tensor_id", "popsr.compat._objects.members:create_tensor_id", None),
    (Graph, "_pb_graph", "popsr.compat._objects.members:pb_graph", property),
    (Graph, "_repr_html_", "popsr._tools.show.graph_html:graph_repr_html", None),
    (Graph, "html", "popsr._tools.show.graph_html:graph_html", None),
    (Ir, "_pb_ir", "popsr.compat._objects.members:pb_ir", property),
    (Ir, "dot_checkpoint", "popsr._tools.show.dot:dot_checkpoint", None),
    (Op, "opType", "popsr.compat._objects.members:type_of_op", property),
    (Tensor, "_from_pb_tensor", "popsr.compat._objects.members:from_pb_tensor", staticmethod),
    (Tensor, "_pb_tensor", "popsr.compat._objects.members:pb_tensor", property),
    (Variable, "_memmap_arr", "popsr.compat._objects.members:mapped_array", property),
)


class _LateMember:
    """Puts the member in its own place when it is asked for."""

    def __init__(self, owner: type, name: str, where: str, kind: Callable[[Any], Any] | None) -> None:
        self._owner, self._name, self._where, self._kind = owner, name, where, kind

    def _found(self) -> Any:
        module, _, name = self._where.partition(":")
        function = entry_point(getattr(importlib.import_module(module), name))
        member = function if self._kind is None else self._kind(function)
        setattr(self._owner, self._name, member)
        return member

    def __get__(self, instance: object, owner: type) -> Any:
        return self._found().__get__(instance, owner)

    def __set__(self, instance: object, value: object) -> None:
        self._found()
        setattr(instance, self._name, value)


# Summaries, of these classes and of those that notebooks show in another way.
_SUMMARISED = (Ir, Tensor, Partition, ReplicaGrouping, VariableSettings)


def add_late_members() -> None:
    """Add them to their classes."""
    summaries = [(cls, "_repr_html_", "popsr._tools.show.summaries:html_of", None) for cls in _SUMMARISED]
    treescope = [
        (cls, "__treescope_repr__", "popsr._tools.show.summaries:treescope_of", None)
        for cls in (*_SUMMARISED, Graph)
    ]
    for owner, name, where, kind in (*_TABLE, *summaries, *treescope):
        setattr(owner, name, _LateMember(owner, name, where, kind))
