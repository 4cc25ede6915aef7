"""The program: graphs, tensors and streams of a set of replicas."""

from __future__ import annotations

import itertools
import operator
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from popsr import _core
from popsr._program.building.gaps import Gap
from popsr._program.building.op_hooks import OpHooks
from popsr._program.building.transaction import transactional
from popsr._program.create_graph import create_graph
from popsr._program.graph import Graph
from popsr._program.handles import Handle, Undone, is_retired, refuse_copy, retire
from popsr._program.module import Module
from popsr._program.op import Op
from popsr._program.options.options import Options
from popsr._program.streams import DeviceToHostStream, HostToDeviceStream
from popsr._program.tensor import Tensor, Variable
from popsr._program.variables.remote_buffer import RemoteBuffer
from popsr._support.extensions import call, member
from popsr._support.host import launcher
from popsr._support.host.arguments import read_any_int, read_int, read_int64s, read_name
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.dtypes import dtype
from popsr.errors import ArgumentTypeError, GraphError, ReplicaError, StateError
from popsr.replicas import ReplicaGrouping, VariableSettings
from popsr.utils import HostScalarTensor

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Ir"]

# Classes by the core's kind; shards and entries of remote buffers are plain tensors.
_CLASSES = {"variable": "Variable", "constant": "Const"}
_SETTINGS = (
    "_embeds_replication", "_gaps", "_num_host_transfers", "_op_hooks", "_prepared", "_rules_by_hand",
)  # fmt: skip
_settings_of = operator.attrgetter("options.stochastic_rounding_mode", *_SETTINGS)
_TO_NEAREST = _core.SeedRules()  # no op rounds stochastically
_ids = itertools.count()


@public
class Ir(Handle):
    """A program that all replicas run.

    Args:
        replication: number of replicas. "popdist": as many as there are in all processes that a launcher of MPI
            started, see :func:`popsr.compat.popdist.getNumTotalReplicas`; sessions then run on these processes.
    """

    _pb_ir = property(member("compat", "Ir._pb_ir"))
    _repr_html_ = member("_tools", "_repr_html_")
    __treescope_repr__ = member("_tools", "__treescope_repr__")

    def __init__(self, replication: int | Literal["popdist"] = 1) -> None:
        """An empty program."""
        self._core = _core.Ir(_read_replication(replication))
        self._ir_id = next(_ids)
        self._tensor_cache: dict[int, Tensor] = {}
        self._graph_cache: dict[int, Graph] = {}
        self._stream_cache: dict[int, Any] = {}
        self._remote_cache: dict[int, RemoteBuffer] = {}
        self._undone = Undone()
        self._core.set_owner([], weakref.WeakMethod(self._rolled_back))
        self._op_hooks: dict[int, OpHooks] = {}  # by graph; never changed in place
        self._locations: dict[tuple[str, int], int] = {}
        self._modules: dict[str, str] = {}  # by file of the locations
        self._warned: set[tuple[str, str]] = set()  # lints and lines that were warned of
        self._num_host_transfers = 1
        self._prepared = False
        self._in_sync = True
        self._rules_by_hand: _core.SeedRules | None = None  # of ``transforms.stochastic_rounding``
        self._embeds_replication = False
        self._mapped: dict[int, np.ndarray[Any, Any]] = {}  # memory-mapped data of variables
        self._residents: dict[tuple[int, int], Variable] = {}  # variables by remote buffer and entry
        self._custom_ops: dict[int, Any] = {}  # identifiers of operators of the program's own, by op
        self._gaps: tuple[Gap, ...] = ()  # ops of another framework that stand-ins are for
        self._shard_over: dict[int, int] = {}  # of remote buffers made for shards
        self._rules_at: tuple[tuple[int, str], _core.SeedRules] | None = None  # by epoch and mode
        self._ordered_at: int | None = None  # epoch at which the order of writes was checked
        self._order = _core.OrderCheck()
        self._facts_now: _core.PartitionAnalysis | None = None
        self._session_facts_now: _core.PartitionAnalysis | None = None
        self.options = Options()
        self.options._bind(self)
        self._is_of_popdist = isinstance(replication, str)
        if self._is_distributed and self._world() is not None:
            self.options.enableDistributedReplicatedGraphs = True

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
        """Number of elements that each stream carries in one run."""
        return self._num_host_transfers

    @num_host_transfers.setter
    def num_host_transfers(self, value: int) -> None:
        self._num_host_transfers = read_int("Ir: num_host_transfers", value, 1)

    @property
    def replication_factor(self) -> int:
        """Number of replicas. Can be set as long as the Ir is empty, and to the value that it has at any time."""
        return self._core.replication

    @replication_factor.setter
    def replication_factor(self, value: int) -> None:
        core = self._core
        if read_any_int("Ir: replication", value) == core.replication:
            return
        if self._prepared or core.num_tensors or core.num_ops or core.num_streams or core.num_graphs > 1:
            raise StateError(
                f"replication_factor: the Ir is not empty, got {shown(value)}, expected "
                f"Ir(replication={shown(value)}) or "
                "setting it before anything is made"
            )
        self._use_core(_core.Ir(_read_replication(value)))

    def _use_core(self, core: _core.Ir) -> None:
        """Be another program, while both are empty."""
        core.set_owner([], weakref.WeakMethod(self._rolled_back))
        self._core = core
        self._locations.clear()
        self._rules_at = self._facts_now = self._session_facts_now = self._ordered_at = None
        self._order = _core.OrderCheck()

    @property
    def instance_replication_factor(self) -> int:
        """Number of replicas of this process: all of them, unless sessions run on several processes."""
        return len(self._local_replicas)

    @property
    def _is_distributed(self) -> bool:
        """True if sessions run on all processes of MPI, where there are several."""
        return self._is_of_popdist or bool(self.options._values.get("enableDistributedReplicatedGraphs"))

    @property
    def _num_instances(self) -> int:
        comm = self._world()
        return 1 if comm is None else comm.size

    @property
    def _local_replicas(self) -> range:
        replicas, comm = self._core.replication, self._world()
        return range(replicas) if comm is None else launcher.share(replicas, comm.size, comm.rank)

    def _world(self) -> MPI.Intracomm | None:
        return launcher.world("Ir") if self._is_distributed else None

    @transactional
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
            TypeError: ``fn`` is not a function, or tensors are mixed with other values in one argument.
            ValueError: the arguments do not fit, or it returned something else than tensors.
        """
        before = self._settings()
        try:
            return create_graph(self, fn, args, kwargs)
        except BaseException:
            self._set_back(before)
            raise

    @transactional
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
            replication_factor: this Ir's, as PopART has it.
        Raises:
            ReplicaError: another number.
        """
        if replication_factor is None:
            given = self.replication_factor
        else:
            given = read_int("embed_replication_factor: replication_factor", replication_factor)
        if given != self.replication_factor:
            raise ReplicaError(
                f"embed_replication_factor: not the Ir's number of replicas, got {given}, "
                f"expected {self.replication_factor}"
            )
        self._embeds_replication = True

    addInitializedInput = add_initialized_input  # noqa: N815 - PopART's name
    embedReplicationFactor = embed_replication_factor  # noqa: N815 - PopART's name

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
        call("_tools", "Ir.dot_checkpoint", self, check, save_dir)

    def replica_grouping(self, stride: int = 1, group_size: int | None = None) -> ReplicaGrouping:
        """Groups of replicas at a constant distance.

        Args:
            stride: distance between members of a group.
            group_size: members of a group. Default: as many as fit.
        Raises:
            ReplicaError: the groups do not tile the replicas.
        """
        where = "replica_grouping"
        size = None if group_size is None else read_int(f"{where}: group_size", group_size)
        return ReplicaGrouping.from_stride(
            self.replication_factor, read_int(f"{where}: stride", stride), size
        )

    def replica_grouping_from_assignments(self, assignment: Sequence[int]) -> ReplicaGrouping:
        """Groups of replicas given by the group of each replica.

        Raises:
            ReplicaError: groups differ in size or are not numbered by first appearance.
        """
        groups = read_int64s("replica_grouping_from_assignments", "assignment", assignment)
        if len(groups) != self.replication_factor:
            raise ReplicaError(
                f"replica_grouping: no group for each replica, got {shown(list(groups))}, expected "
                f"{self.replication_factor} groups"
            )
        return ReplicaGrouping.from_assignment(list(groups))

    def get_all_h2d_streams(self) -> set[HostToDeviceStream]:
        """Host-to-device streams that an op loads."""
        return {s for s in self._streams_with_ops() if isinstance(s, HostToDeviceStream)}

    def get_all_d2h_streams(self) -> set[DeviceToHostStream]:
        """Device-to-host streams that an op stores."""
        return {s for s in self._streams_with_ops() if isinstance(s, DeviceToHostStream)}

    def _streams_with_ops(self) -> list[Any]:
        return [self._stream_cache[id_] for id_ in self._core.streams_with_ops()]

    def _graph(self, id_: int) -> Graph:
        graph = self._graph_cache.get(id_)
        if graph is None:
            graph = self._graph_cache[id_] = Graph._of(self, id_)
        return graph

    def _op(self, id_: int) -> Op:
        return Op(self, id_)

    def _tensor(self, id_: int) -> Tensor:
        tensor = self._tensor_cache.get(id_)
        if tensor is None:
            info = self._core.tensor(id_)
            cls = Tensor._by_type.get(_CLASSES.get(info.kind, ""), Tensor)
            tensor = object.__new__(cls)
            tensor._program, tensor._id, tensor._graph_id, tensor._name = self, id_, info.graph, info.name
            tensor._dtype, tensor._shape = dtype._all[info.dtype], info.shape
            tensor._meta_shape = info.meta_shape
            self._tensor_cache[id_] = tensor  # whole: Ctrl-C may come between lines
        return tensor

    def _settings(self) -> tuple[Any, ...]:
        """All that the program is beside its graphs: values."""
        return _settings_of(self)

    def _set_back(self, settings: tuple[Any, ...]) -> None:
        """Let the program have settings that it had."""
        mode, *others = settings
        vars(self).update(zip(_SETTINGS, others, strict=True))
        if self.options.stochastic_rounding_mode != mode:
            self.options.stochastic_rounding_mode = mode

    def _rolled_back(self, _: int, *gone: tuple[int, int]) -> None:
        """A call failed, and what it had made is gone from the core: everything with numbers in these ranges.

        Ctrl-C may come in between: then this is called again.

        Args:
            _: unused.
            *gone: of graphs, tensors, ops, streams and remote buffers: the first number, and the one after the last.
        """
        graphs, tensors, ops, streams, buffers = (range(*numbers) for numbers in gone)
        tables: tuple[tuple[range, tuple[dict[int, Any], ...]], ...] = (
            (graphs, (self._graph_cache, self._op_hooks)),
            (tensors, (self._tensor_cache, self._mapped)),
            (ops, (self._custom_ops,)),
            (streams, (self._stream_cache,)),
            (buffers, (self._remote_cache, self._shard_over)),
        )
        for numbers, by_number in tables:
            for number, table in itertools.product(numbers, by_number):
                if isinstance(handle := table.get(number), Handle):
                    retire(handle)
                table.pop(number, None)
        for place, variable in list(self._residents.items()):
            if is_retired(variable):
                del self._residents[place]
        if graphs:  # tensors that an outline had moved there are where they were
            for number, tensor in self._tensor_cache.items():
                if tensor._graph_id in graphs:
                    info = self._core.tensor(number)
                    tensor._graph_id, tensor._name = info.graph, info.name
        if ops:
            self._undone.add(ops.start)

    def _tensors_of(self, ids: Iterable[int]) -> tuple[Tensor, ...]:
        return tuple(self._tensor(id_) for id_ in ids)

    def _seed_rules(self) -> _core.SeedRules:
        """The rules by which ops round that were given by hand, or else those that the options choose now.

        Raises:
            GraphError: mode "popart", and PopART would stop at the program.
        """
        options = self.options
        if self._rules_by_hand is not None:
            return self._rules_by_hand
        if not options.enable_stochastic_rounding:
            return _TO_NEAREST
        chosen = self._core.epoch, options.stochastic_rounding_mode
        known = self._rules_at
        if known is None or known[0] != chosen:
            known = self._rules_at = chosen, _core.SeedRules.of_mode(self._core, chosen[1])
        return known[1]

    def _facts(self) -> _core.PartitionAnalysis:
        """The analysis of the program as it is now, with the seeds that a session made now would have.

        Raises:
            GraphError: as ``_seed_rules`` or ``_check_program``, or a call modifies one tensor through two inputs.
        """
        self._check_program()
        rules = self._seed_rules()
        known = self._facts_now
        if known is None:
            known = _core.PartitionAnalysis(self._core, rules)
        elif not known.is_fresh(rules):  # for as much work as what was added, if nothing else changed
            known = _core.PartitionAnalysis.after(known, self._core, rules)
        self._facts_now = known
        return known

    def _check_program(self) -> None:
        """Check that ops read values alone, and the order of writes in place: see ``_check_order``.

        Raises:
            GraphError: an op reads an input of the main graph, or as ``_check_order``.
        """
        inputs = set(self._core.graph_inputs(0))
        for op in self.main_graph.ops if inputs else ():
            for t in op.inputs:
                if t is not None and t._id in inputs:
                    raise GraphError(
                        f"{op.kind} at {op.location}: an input of the main graph has no value, got {shown(t)}, "
                        "expected a variable, a constant or what ops.host_load reads"
                    )
        self._check_order()

    def _check_order(self) -> None:
        """Check that data and ``in_sequence`` order all writes in place, if the options ask for it.

        Raises:
            GraphError: they do not.
        """
        if self.options.enable_inplace_ambiguity_checking and self._ordered_at != self._core.epoch:
            self._order.run(self._core)
            self._ordered_at = self._core.epoch

    def _session_facts(self) -> _core.PartitionAnalysis:
        """As ``_facts``, with what a new session takes for granted of small streams and initial values."""
        self._check_program()
        rules = self._seed_rules()
        known = self._session_facts_now
        if known is None or not known.is_fresh(rules):
            known = self._session_facts_now = _core.PartitionAnalysis.of_new_session(self._core, rules)
        return known

    @property
    def _ir(self) -> Ir:
        return self

    def __hash__(self) -> int:
        return hash(self._ir_id)

    def __eq__(self, value: object) -> bool:
        if not isinstance(value, Ir):
            raise ArgumentTypeError(f"Ir: compares with an Ir only, got {shown(value)}, expected an Ir")
        return self is value

    def _in_words(self) -> str:
        """In texts of errors."""
        return f"Ir {self._ir_id}"

    def __enter__(self) -> Graph:
        """Graphs are entered, not programs.

        Raises:
            ArgumentTypeError: always.
        """
        raise ArgumentTypeError(
            f"with: a program is not entered, got {shown(self)}, expected `with ir.main_graph:`"
        )

    def __exit__(self, *exc: object) -> None:
        """Never called: nothing is entered."""

    def __copy__(self) -> Self:
        refuse_copy(self)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        refuse_copy(self)

    def __repr__(self) -> str:
        core = self._core
        counts = f"graphs={core.num_graphs} ops={core.num_ops} variables={len(self.main_graph.variables)}"
        return f"Ir[id={self._ir_id} replicas={core.replication} {counts}]"

    def __str__(self) -> str:
        return self._core.print_ir()


def _read_replication(value: Any) -> int:
    if isinstance(value, str) and value == "popdist":
        value = launcher.instances('Ir("popdist")').replicas
    replication = read_any_int("Ir: replication", value)
    if not 1 <= replication <= _core.MAX_REPLICAS:
        raise ReplicaError(
            f"Ir: too {'few' if replication < 1 else 'many'} replicas, got replication {shown(replication)}, "
            f"expected 1 to {_core.MAX_REPLICAS}"
        )
    return replication
