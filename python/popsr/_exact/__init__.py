"""Programs run in exact arithmetic instead of floats."""

from popsr._exact.run import ExactRun, run_exact

__all__ = ["ExactRun", "run_exact"]
