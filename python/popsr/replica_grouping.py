"""PopXL's module of ReplicaGrouping; the class is in ``popsr.replicas``."""

from popsr._lazy import names_only
from popsr.replicas import ReplicaGrouping

__all__ = ["ReplicaGrouping"]

__dir__ = names_only(__all__)
