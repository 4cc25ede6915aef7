"""Programs run in exact arithmetic instead of floats; ``popsr.ops._exact`` has the meaning of each op."""

from popsr.bridge._exact._unknown import Unknown, first_unknown
from popsr.bridge._exact.run import ExactRun, run_exact

__all__ = ["ExactRun", "Unknown", "first_unknown", "run_exact"]
