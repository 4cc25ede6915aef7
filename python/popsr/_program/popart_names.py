"""PopART's camelCase spellings of methods that carry another name here."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["POPART_NAMES", "with_popart_names"]

# The one table of spellings, by class.
POPART_NAMES: dict[str, dict[str, str]] = {
    "Graph": {"addVarInit": "add_var_init"},
    "Ir": {
        "addInitializedInput": "add_initialized_input",
        "embedReplicationFactor": "embed_replication_factor",
    },
    "Session": {
        "getCycleCount": "get_cycle_count",
        "readWeights": "read_weights",
        "resetHostWeights": "reset_host_weights",
        "writeWeights": "write_weights",
    },
}

_Class = TypeVar("_Class", bound=type)


def with_popart_names(cls: _Class) -> _Class:
    """Class decorator: the methods of the table can be called by PopART's names too."""
    for popart_name, name in POPART_NAMES.get(cls.__name__, {}).items():
        setattr(cls, popart_name, getattr(cls, name))
    return cls
