"""Audit of real jobs: what their ranks saved, compared with the groups that they are declared or proved to be equal in.

``audit`` compares checkpoints of all ranks byte by byte, ``between`` those of two jobs; ``audit_log`` compares hashes
that ``log_hashes`` wrote in the training loop. ``python -m popsr audit`` is the command line of all.
"""

from typing import TYPE_CHECKING

from popsr._support.lazy import names_only
from popsr._support.text.suggestions import unknown_attribute
from popsr.bridge.audit._between import between
from popsr.bridge.audit._compare import audit
from popsr.bridge.audit._findings import AuditReport, Drift
from popsr.bridge.audit._groups import DeclaredGroups
from popsr.bridge.audit._hashes import audit_log, log_hashes

__all__ = ["AuditReport", "DeclaredGroups", "Drift", "audit", "audit_log", "between", "log_hashes"]

if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)

__dir__ = names_only(__all__)
