"""PopART's camelCase spellings of methods that carry another name here, and what programs reach through them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from popsr.options import Options

__all__ = ["POPART_NAMES", "PopartIr", "with_popart_names"]

# The one table of spellings, by class.
POPART_NAMES: dict[str, dict[str, str]] = {
    "Graph": {"addVarInit": "add_var_init"},
    "Ir": {
        "addInitializedInput": "add_initialized_input",
        "embedReplicationFactor": "embed_replication_factor",
    },
    "PopartIr": {"getSessionOptions": "get_session_options"},
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
    for popart_name, name in POPART_NAMES[cls.__name__].items():
        setattr(cls, popart_name, getattr(cls, name))
    return cls


@with_popart_names
class PopartIr:
    """What PopXL programs reach as ``ir._pb_ir``: the options, which have no other way there."""

    def __init__(self, options: Options) -> None:
        """``options``: those of the Ir."""
        self._options = options

    def get_session_options(self) -> Options:
        """The same object as ``ir.options``."""
        return self._options
