"""Rules: what each ATen op becomes, in a file for each family of ops, and the tables that they are registered in."""

from popsr.bridge.torch._rules.table import COLLECTIVES, PYTHON_RULES, RULES, Gap, Site

__all__ = ["COLLECTIVES", "PYTHON_RULES", "RULES", "Gap", "Site"]
