"""The pipeline stage of each op."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from popsr import ops
from popsr._program.building.transaction import transactional
from popsr._program.op import Op
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_a, read_int, read_items, read_mapping
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import AttributeValueError, GraphError, StateError
from popsr.ops.program.control import CallSiteInfo
from popsr.transforms import GradGraphInfo

__all__ = ["StageContext", "get_op_pipeline_stage"]


@public
def get_op_pipeline_stage(op: Op, op_dict: Mapping[int, Sequence[Op]]) -> int:
    """The stage that an op is in.

    Args:
        op: the op; one that does several at once is where the first of them is.
        op_dict: the ops of each stage.
    Raises:
        StateError: it is in none.
    """
    read_a("get_op_pipeline_stage: op", op, Op)
    return _stage_in(op, read_stages("get_op_pipeline_stage", op_dict))


def read_stages(where: str, op_dict: Any) -> dict[Op, int]:
    """The stage of each op.

    Args:
        where: the call, for messages.
        op_dict: the ops of each stage.
    Raises:
        ArgumentTypeError: it is not a mapping of ints to sequences of ops.
    """
    return {
        read_a(f"{where}: an item of a stage", op, Op): read_int(f"{where}: a stage", stage, 0)
        for stage, members in read_mapping(where, "op_dict", op_dict).items()
        for op in read_items(where, "a stage", members, kind="ops")
    }


def _stage_in(op: Op, stages: Mapping[Op, int]) -> int:
    if op in stages:
        return stages[op]
    if op.parts and op.parts[0] in stages:
        return stages[op.parts[0]]
    raise StateError(
        f"pipelined_execution: {op.kind} at {op.location} is in no stage, got {shown(op.name)}, expected "
        "`with pipeline.stage(i):` around it"
    )


@public
class StageContext:
    """Records the stage that each op of a pipeline is made in; ``pipelined_execution`` gives it."""

    def __init__(self) -> None:
        """No stage is entered."""
        self._stages: dict[Op, int] = {}
        self._stage: int | None = None

    def hook(self, op: Op) -> None:
        """Put an op into the stage that is entered; outside of all it is in none.

        Args:
            op: the op, which was just made.
        """
        read_a("hook: op", op, Op)
        if self._stage is not None:
            self._stages[op] = self._stage

    @property
    def op_dict(self) -> dict[int, list[Op]]:
        """The ops of each stage; without those of failed calls."""
        found: dict[int, list[Op]] = {}
        for op, stage in self._stages.items():
            if not op._is_undone:
                found.setdefault(stage, []).append(op)
        return found

    @contextlib.contextmanager
    def stage(self, i: int) -> Iterator[None]:
        """Ops made inside are in a stage of the pipeline.

        Args:
            i: number of the stage; 0 is the first. A stage may be entered several times.
        Raises:
            AttributeValueError: it is not an int from 0 on.
        """
        before, self._stage = self._stage, read_int("stage: i", i, 0)
        try:
            yield
        finally:
            self._stage = before

    @transactional
    def stash_and_restore_tensor(self, t: Tensor, from_stage: int | None = None) -> Tensor:
        """A tensor of an earlier stage for this stage, with the value of the same step.

        Steps run one after the other here, so it is a copy, which does not change with what is written to ``t`` later.

        Args:
            t: the tensor.
            from_stage: the stage that it is taken from. Default: the stage of the op that makes it.
        Returns:
            Tensor of the shape and dtype of ``t``; ``t`` itself when it is taken from this stage.
        Raises:
            StateError: no stage is entered.
            GraphError: no op in a stage makes the tensor, and ``from_stage`` is not given.
            AttributeValueError: it is taken from a later stage, or ``from_stage`` is not an int from 0 on.
        """
        read_a("stash_and_restore_tensor: t", t, Tensor)
        where = "stash_and_restore_tensor"
        if self._stage is None:
            raise StateError(
                f"{where}: no stage is entered, got {shown(t)}, expected a call inside `with stage(i):`"
            )
        begin = self._stage_of(t) if from_stage is None else read_int(f"{where}: from_stage", from_stage, 0)
        if begin is None:
            raise GraphError(
                f"{where}: {shown(t.id)} is made in no stage, got {shown(t)}, expected from_stage"
            )
        if begin > self._stage:
            raise AttributeValueError(
                f"{where}: {shown(t.id)} is of a later stage, got stage {begin}, expected at most {self._stage}"
            )
        return t if begin == self._stage else ops.identity(t)

    @transactional
    def stash_and_restore_activations(
        self, call_info: CallSiteInfo, grad_info: GradGraphInfo
    ) -> dict[Tensor, Tensor]:
        """Forward values of a call in an earlier stage, for a call of its gradient graph in this stage.

        Args:
            call_info: the call of the forward graph.
            grad_info: the gradient graph.
        Returns:
            Inputs of the gradient graph to tensors here: what ops of earlier stages make is restored, everything else,
            as variables, is passed as it is.
        Raises:
            TypeError: it is a call of another graph.
            StateError: no stage is entered.
        """
        read_a("stash_and_restore_activations: grad_info", grad_info, GradGraphInfo)
        activations = grad_info.inputs_dict(call_info)
        restored: dict[Tensor, Tensor] = {}
        for value in activations.values():
            if value not in restored:
                outside = self._stage_of(value) is None
                restored[value] = value if outside else self.stash_and_restore_tensor(value)
        return {theirs: restored[value] for theirs, value in activations.items()}

    def _stage_of(self, t: Tensor) -> int | None:
        producer = t.ir._core.tensor(t._id).producer
        return None if producer is None else self._stages.get(Op(t.ir, producer))
