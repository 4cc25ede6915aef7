"""Pipelines: steps of a program whose ops are in stages.

On hardware the stages of successive steps run at the same time on different devices. What a program computes is what it
computes when its steps run one after the other, and so they do here: the ops become the body of a loop.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

from popsr._program.building.transaction import transactional
from popsr._program.context import _context
from popsr._program.graph import Graph
from popsr._program.handles import is_retired
from popsr._program.op import Op
from popsr._program.outline import outline
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import is_a, read_a, read_int
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons.transforms.pipeline_bound_graph import PipelineBoundGraph
from popsr.addons.transforms.pipeline_stages import (
    StageContext,
    _stage_in,
    get_op_pipeline_stage,
    read_stages,
)
from popsr.addons.transforms.stash import Restore, Stash
from popsr.errors import ArgumentTypeError, AttributeValueError, StateError, UnsupportedError

__all__ = [
    "PipelineBoundGraph",
    "Pipelining",
    "Restore",
    "StageContext",
    "Stash",
    "get_op_pipeline_stage",
    "pipelined_execution",
]


@public
@contextlib.contextmanager
def pipelined_execution(steps: int) -> Iterator[StageContext]:
    """Run the ops made inside several times, as a pipeline of stages.

    Each op of the current graph must be made inside ``with pipeline.stage(i):``. When the context is left, all of them
    become the body of one loop, in the order in which they were made: each step sees what earlier ones wrote to
    variables, and streams move on. Tensors made inside are of the body from then on.

    Args:
        steps: how often the ops run; at least twice the number of stages.
    Returns:
        The context manager, which gives a :class:`StageContext`.
    Raises:
        AttributeValueError: ``steps`` is not an int from 1 on, or, when it is left, less than twice the stages.
        StateError: when it is left, an op is in no stage; the message has its file and line.
        GraphError: when it is left, an op inside makes an output of the current graph.
    """
    graph = _context.graph
    pipeline, transform = StageContext(), Pipelining(graph, steps)
    handle = graph.register_op_created_hook(pipeline.hook)
    try:
        yield pipeline
    finally:
        graph.remove_op_created_hook(handle)
    transform.apply(pipeline.op_dict)


@public
class Pipelining:
    """The transform behind ``pipelined_execution``.

    Args:
        graph: the graph.
        steps: how often its ops run.
    Raises:
        ArgumentTypeError: ``graph`` is not a Graph.
        AttributeValueError: ``steps`` is not an int from 1 on.
    """

    def __init__(self, graph: Graph, steps: int) -> None:
        """Of ops that are there, or are made before ``apply``."""
        if not is_a(graph, Graph):
            raise ArgumentTypeError(f"Pipelining: graph is not a Graph, got {shown(graph)}")
        self.graph = graph
        self.steps = read_int("pipelined_execution: steps", steps, 1)
        self._end = len(graph.ir._core.graph_ops(graph._id))  # ops from here on must be in a stage
        self._first: int | None = None
        self._body: Graph | None = None

    @transactional
    def apply(self, include_ops: Mapping[int, Sequence[Op]] | None = None) -> None:
        """Let the ops run ``steps`` times; without ops nothing is changed.

        Args:
            include_ops: the ops of each stage: the last ones of the graph, all from some point on. Default: all ops,
                in the stages of their devices (``Op.ipu``).
        Raises:
            AttributeValueError: less steps than twice the number of stages.
            StateError: an op of the graph is in no stage; or this was done before.
            GraphError: an op makes an output of the graph.
        """
        self.construct_graphs(include_ops)
        self.build()

    def construct_graphs(self, include_ops: Mapping[int, Sequence[Op]] | None) -> None:
        """Check the stages; the graph of each step is made by ``build``.

        Args:
            include_ops: as for ``apply``.
        Raises:
            AttributeValueError, StateError: as for ``apply``.
        """
        if self._body is not None and not is_retired(self._body):
            raise StateError(f"Pipelining: applied already, got {shown(self.graph)} twice, expected it once")
        every = self.graph.ops
        own = {op: op.ipu for op in every}
        stages = own if include_ops is None else read_stages("Pipelining", include_ops)
        included = [at for at, op in enumerate(every) if op in stages]
        first = min([self._end, *included])
        for op in every[first:]:
            _stage_in(op, stages)
        number = 1 + max(stages.values(), default=-1)
        if self.steps < 2 * number:
            raise AttributeValueError(
                f"pipelined_execution: too few steps for {number} stages, got {self.steps}, "
                f"expected {2 * number} or more"
            )
        self._first = first

    @transactional
    def build(self) -> None:
        """Put the loop into the graph; without ops nothing is changed.

        Raises:
            StateError: before ``construct_graphs``.
            GraphError: as for ``apply``.
        """
        if self._first is None:
            raise StateError(
                "Pipelining: stages are not known, got build first, expected construct_graphs before it"
            )
        if self._first < len(self.graph.ops):
            body, _ = outline(self.graph, self._first, self.steps, "pipeline")
            self._body = body
        self._first = None

    def repeat_graph(self) -> Graph:
        """The graph of one step, which the loop runs.

        Raises:
            StateError: there is none yet.
        """
        if self._body is None:
            raise StateError(
                "Pipelining: no graph of a step, got repeat_graph first, expected apply before it"
            )
        return self._body

    def required_for_host_load(self, op: Op) -> bool:
        """Must the op run before data of the host can be loaded? Here only the load itself is.

        Args:
            op: the op.
        """
        read_a("required_for_host_load: op", op, Op)
        return op.kind == "host_load"

    def move_op_into_graph(self, graph: PipelineBoundGraph, op: Op) -> NoReturn:
        """Not here: graphs of parts of a step are for hardware."""
        del graph, op
        _refuse("move_op_into_graph")

    def cycle(self, start: int, end: int) -> NoReturn:
        """Not here: steps do not overlap."""
        del start, end
        _refuse("cycle")

    def main_cycle(self) -> NoReturn:
        """Not here: steps do not overlap."""
        _refuse("main_cycle")

    def load(self, start: int, end: int) -> NoReturn:
        """Not here: loads are where they were written."""
        del start, end
        _refuse("load")

    def compute(self, start: int, end: int) -> NoReturn:
        """Not here: stages of a step run in the order in which they were written."""
        del start, end
        _refuse("compute")

    def store(self, start: int, end: int) -> NoReturn:
        """Not here: stores are where they were written."""
        del start, end
        _refuse("store")

    def copy(self) -> NoReturn:
        """Not here: all stages share one memory."""
        _refuse("copy")

    def remap_tensors(self, original_ids: Iterable[str], new_outputs: Iterable[Tensor]) -> NoReturn:
        """Not here: tensors stay what they are."""
        del original_ids, new_outputs
        _refuse("remap_tensors")

    def move_copied_tensor_out_of_nested_repeat_graph(
        self, op_in_index: int, original: str, repeat_op: Op
    ) -> NoReturn:
        """Not here: all stages share one memory."""
        del op_in_index, original, repeat_op
        _refuse("move_copied_tensor_out_of_nested_repeat_graph")


def _refuse(method: str) -> NoReturn:
    raise UnsupportedError(
        f"Pipelining: steps run one after the other here, got {method} of an overlapping schedule, expected apply"
    )
