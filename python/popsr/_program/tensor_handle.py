"""Tensors without what ops do with them: numbers in the core, names, types."""

from __future__ import annotations

from typing import Any, ClassVar

from popsr._program.handles import Handle, refuse_undone
from popsr._support.text.entry_points import mark, public
from popsr.dtypes import dtype

__all__ = ["TensorHandle"]


@public
class TensorHandle(Handle):
    """Base of ``popsr.Tensor``: what the modules that ``Tensor`` needs know of it."""

    __slots__ = ()

    _known = ("_program", "_name", "_dtype", "_shape", "_meta_shape")

    _id: int
    _graph_id: int
    _name: str
    _dtype: dtype
    _shape: tuple[int, ...]
    _meta_shape: tuple[int, ...]

    _result_type: ClassVar[type[Any]]
    """Class of results of ops: ``popsr.Tensor``."""

    @property
    def _graph(self) -> Any:
        return self._ir._graph(self._graph_id)

    @property
    @mark
    def id(self) -> str:
        """Full name, unique in the Ir: graph, name scopes, name."""
        try:
            return self._name
        except AttributeError:
            refuse_undone(self)

    @property
    @mark
    def dtype(self) -> dtype:
        """Element type."""
        try:
            return self._dtype
        except AttributeError:
            refuse_undone(self)

    @property
    @mark
    def shape(self) -> tuple[int, ...]:
        """Shape on one replica."""
        try:
            return self._shape
        except AttributeError:
            refuse_undone(self)

    @property
    @mark
    def meta_shape(self) -> tuple[int, ...]:
        """Shape before sharding; empty when it is not a shard."""
        try:
            return self._meta_shape
        except AttributeError:
            refuse_undone(self)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def nelms(self) -> int:
        """Number of elements on one replica."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    def _text(self) -> str:
        return f"{type(self).__name__}[{self._name} {self._dtype} {self._shape}]"
