"""Sets of replicas: which agree (Partition), and which talk or share values (ReplicaGrouping)."""

from popsr._core import Partition, ReplicaGrouping

__all__ = ["Partition", "ReplicaGrouping"]
