"""The program: graphs, tensors and streams of a set of replicas."""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from popsr import _core
from popsr._popart_names import PopartIr, with_popart_names
from popsr.dtypes import dtype
from popsr.errors import ArgumentTypeError, AttributeValueError, ReplicaError, StateError
from popsr.graph import Graph
from popsr.options import Options
from popsr.replicas import ReplicaGrouping
from popsr.tensor import Tensor, Variable
from popsr.utils import HostScalarTensor, read_int, read_name

if TYPE_CHECKING:
    from popsr.module import Module
    from popsr.replicas import VariableSettings
    from popsr.streams import DeviceToHostStream, HostToDeviceStream

__all__ = ["Ir"]

# Type of tensor by the core's TensorKind; shards and entries of remote buffers are plain tensors.
_KINDS = ("", "", "Variable", "Const", "", "")
_ids = itertools.count()


@with_popart_names
class Ir:
    """A program that all replicas run.

    Args:
        replication: number of replicas.
    """

    def __init__(self, replication: int = 1) -> None:
        """An empty program."""
        self._core = _core.Ir(_read_replication(replication))
        self._ir_id = next(_ids)
        self._tensor_cache: dict[int, Tensor] = {}
        self._graph_cache: dict[int, Graph] = {}
        self._stream_cache: dict[int, Any] = {}
        self._locations: dict[tuple[str, int], int] = {}
        self._modules: dict[str, str] = {}  # by file of the locations
        self._warned: set[tuple[str, str]] = set()  # lints and lines that were warned of
        self._num_host_transfers = 1
        self._prepared = False
        self._in_sync = True
        self._seeds_explicit = False
        self._embeds_replication = False
        self._mapped: dict[int, np.ndarray[Any, Any]] = {}  # memory-mapped data of variables
        self._residents: dict[tuple[int, int], Variable] = {}  # variables by remote buffer and entry
        self._shard_over: dict[int, int] = {}  # of remote buffers made for shards
        self._facts_at: tuple[int, _core.PartitionAnalysis] | None = None
        self.options = Options()

    @property
    def id(self) -> int:
        """Number of the Ir, unique in the process."""
        return self._ir_id

    @property
    def main_graph(self) -> Graph:
        """The graph that a session runs; it owns variables."""
        return self._graph(0)

    @property
    def num_host_transfers(self) -> int:
        """How many elements each stream carries in one run."""
        return self._num_host_transfers

    @num_host_transfers.setter
    def num_host_transfers(self, value: int) -> None:
        self._num_host_transfers = read_int("num_host_transfers", value, 1)

    @property
    def replication_factor(self) -> int:
        """Number of replicas. Can be set as long as the Ir is empty."""
        return self._core.replication

    @replication_factor.setter
    def replication_factor(self, value: int) -> None:
        core = self._core
        if self._prepared or core.num_tensors or core.num_ops or core.num_streams or core.num_graphs > 1:
            raise StateError(
                f"replication_factor: the Ir is not empty, got {value!r}, expected Ir(replication={value!r}) or "
                "setting it before anything is made"
            )
        self._core = _core.Ir(_read_replication(value))
        self._locations.clear()

    @property
    def instance_replication_factor(self) -> int:
        """Number of replicas of this process: all of them."""
        return self._core.replication

    def create_graph(
        self, fn: Callable[..., Tensor | Iterable[Tensor] | None] | Module, *args: Any, **kwargs: Any
    ) -> Graph:
        """Build a graph by calling a function with an input for each tensor argument.

        Tensors and TensorSpecs, also in lists, tuples, ``*args`` and ``**kwargs``, become inputs named after the
        parameter; other arguments are passed on. A parameter annotated ``TensorByRef`` is an input by reference.

        Args:
            fn: the function, or a Module; what it returns becomes the graph's outputs.
            *args: its arguments.
            **kwargs: its arguments.
        Raises:
            TypeError: ``fn`` is no function, or tensors are mixed with other values in one argument.
            ValueError: the arguments do not fit, or it returned something else than tensors.
        """
        from popsr._create_graph import create_graph

        return create_graph(self, fn, args, kwargs)

    def create_empty_graph(self, name: str | None = None) -> Graph:
        """A graph without inputs and ops, to be filled inside ``with graph:``."""
        return self._graph(self._core.create_graph(read_name("create_empty_graph", name, "graph")))

    def add_initialized_input(
        self, data: HostScalarTensor, settings: VariableSettings | None = None, name: str | None = None
    ) -> Variable:
        """PopART's name for a variable of the main graph; see ``Graph.add_var_init``."""
        return self.main_graph.add_var_init(name, data, settings)

    def embed_replication_factor(self, replication_factor: int | None = None) -> None:
        """Let ONNX checkpoints say how many replicas there are, and each variable's groups and retrieval mode.

        Args:
            replication_factor: that of this Ir, as PopART has it.
        Raises:
            ReplicaError: another number.
        """
        if replication_factor is not None and replication_factor != self.replication_factor:
            raise ReplicaError(
                f"embed_replication_factor: not the Ir's number of replicas, got {replication_factor!r}, "
                f"expected {self.replication_factor}"
            )
        self._embeds_replication = True

    def replica_grouping(self, stride: int = 1, group_size: int | None = None) -> ReplicaGrouping:
        """Groups of replicas at a constant distance.

        Args:
            stride: distance between members of a group.
            group_size: members of a group. Default: as many as fit.
        Raises:
            ReplicaError: the groups do not tile the replicas.
        """
        size = None if group_size is None else _read_int("group_size", group_size)
        return ReplicaGrouping.from_stride(self.replication_factor, _read_int("stride", stride), size)

    def replica_grouping_from_assignments(self, assignment: Sequence[int]) -> ReplicaGrouping:
        """Groups of replicas given by the group of each replica.

        Raises:
            ReplicaError: groups differ in size or are not numbered by first appearance.
        """
        groups = [_read_int("assignment", group) for group in assignment]
        if len(groups) != self.replication_factor:
            raise ReplicaError(
                f"replica_grouping: no group for each replica, got {groups}, expected {self.replication_factor} groups"
            )
        return ReplicaGrouping.from_assignment(groups)

    def dot_checkpoint(self, check: str, save_dir: str | os.PathLike[str] | None = None) -> None:
        """Write the program as it is now to a file for Graphviz: ``dot -Tsvg <check>.dot``.

        The reference writes such files at points of its compilation that have names, of which ``check`` is one. Here
        a program is what was written: ``check`` says what to call the point of your program that this is.

        Args:
            check: name of the file, without ``.dot``.
            save_dir: its folder. Default: the current one.
        Raises:
            ValueError: ``check`` cannot be the name of a file.
            OSError: the file cannot be written.
        """
        from popsr._dot import write_dot

        write_dot(self, check, save_dir)

    def get_all_h2d_streams(self) -> set[HostToDeviceStream]:
        """Host-to-device streams that an op loads."""
        from popsr.streams import HostToDeviceStream

        return {s for s in self._streams_with_ops() if isinstance(s, HostToDeviceStream)}

    def get_all_d2h_streams(self) -> set[DeviceToHostStream]:
        """Device-to-host streams that an op stores."""
        from popsr.streams import DeviceToHostStream

        return {s for s in self._streams_with_ops() if isinstance(s, DeviceToHostStream)}

    def _streams_with_ops(self) -> list[Any]:
        return [self._stream_cache[id_] for id_ in self._core.streams_with_ops()]

    @property
    def _pb_ir(self) -> PopartIr:
        return PopartIr(self.options)

    def _graph(self, id_: int) -> Graph:
        graph = self._graph_cache.get(id_)
        if graph is None:
            graph = self._graph_cache[id_] = Graph._of(self, id_)
        return graph

    def _tensor(self, id_: int) -> Tensor:
        tensor = self._tensor_cache.get(id_)
        if tensor is None:
            name, graph, dtype_name, shape, meta_shape, kind, _, _, _ = self._core.tensor(id_)
            cls = Tensor._by_type.get(_KINDS[kind], Tensor)
            tensor = self._tensor_cache[id_] = cls.__new__(cls)
            tensor._ir, tensor._id, tensor._graph_id, tensor._name = self, id_, graph, name
            tensor._dtype, tensor._shape, tensor._meta_shape = dtype._all[dtype_name], shape, meta_shape
        return tensor

    def _tensors_of(self, ids: Iterable[int]) -> tuple[Tensor, ...]:
        return tuple(self._tensor(id_) for id_ in ids)

    def _facts(self) -> _core.PartitionAnalysis:
        """The analysis of the program as it is now."""
        if self._facts_at is None or self._facts_at[0] != self._core.epoch:
            self._facts_at = (self._core.epoch, _core.PartitionAnalysis(self._core))
        return self._facts_at[1]

    def __hash__(self) -> int:
        return hash(self._ir_id)

    def __eq__(self, value: object) -> bool:
        if not isinstance(value, Ir):
            raise ArgumentTypeError(f"Ir: compares with an Ir only, got {value!r}")
        return self is value

    def __repr__(self) -> str:
        return f"Ir[id={self._ir_id}]"

    def __str__(self) -> str:
        return self._core.print_ir()


def _read_int(name: str, value: Any) -> int:
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise ArgumentTypeError(f"replica_grouping: {name} is not an int, got {value!r}")


def _read_replication(value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise AttributeValueError(f"Ir: replication is not an int, got {value!r}, expected an int >= 1")
    if value < 1:
        raise ReplicaError(f"Ir: too few replicas, got replication {value}, expected an int >= 1")
    return operator.index(value)
