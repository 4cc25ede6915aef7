"""PopXL's module of ReplicaGrouping; the class is in ``popsr.replicas``."""

from popsr.replicas import ReplicaGrouping

__all__ = ["ReplicaGrouping"]
