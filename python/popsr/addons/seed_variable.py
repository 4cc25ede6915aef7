"""Seeds that stay on the device."""

from __future__ import annotations

from popsr import dtypes
from popsr._program.building.transaction import transactional
from popsr._program.context import _context
from popsr._program.random_seed import create_seeds
from popsr._program.tensor import Tensor, Variable
from popsr._program.variables.variables import variable
from popsr._support.host.arguments import is_a
from popsr._support.text.entry_points import public
from popsr.replicas import ReplicaGrouping

__all__ = ["seed_variable"]


@public
@transactional
def seed_variable(seed: int, replica_grouping: ReplicaGrouping | None = None) -> tuple[Variable, Tensor]:
    """A seed for the random ops of each group of replicas, which stays on the device between runs.

    Args:
        seed: number that all of them are made of, see ``popsr.create_seeds``.
        replica_grouping: replicas of a group have one seed. Default: every replica has its own.
    Returns:
        The variable, for reading and setting through the session, and the tensor for ops, uint32 ``[2]``. Both are the
        same: what ops write to the tensor in place, the session reads, and the next run starts with.
    Raises:
        GraphError: another graph than the main graph is current.
        ArgumentTypeError: ``seed`` is not an int, or ``replica_grouping`` not a ReplicaGrouping.
        AttributeValueError: ``seed`` is negative.
        ReplicaError: groups of another number of replicas.
    """
    grouping = _context.ir.replica_grouping(group_size=1) if replica_grouping is None else replica_grouping
    groups = grouping.num_groups if is_a(grouping, ReplicaGrouping) else 1  # variable() refuses others
    tensor = variable(
        create_seeds(seed, replicas=groups), dtypes.uint32, name="seed", replica_grouping=grouping
    )
    return tensor, tensor
