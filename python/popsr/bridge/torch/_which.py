"""The questions of ``popsr.prove`` to the package of a framework."""

from __future__ import annotations

import sys
from typing import Any

from popsr._support.host.frameworks import framework
from popsr._support.text.entry_points import public
from popsr.bridge._step.step import BridgedStep
from popsr.bridge.torch._graphs import from_export, from_fx

__all__ = ["accepts", "import_step"]


@public
def accepts(step: Any) -> bool:
    """True for what ``import_step`` reads: programs of ``torch.export`` and graph modules."""
    torch = sys.modules.get("torch")  # while it is not imported, nothing is of its classes
    return torch is not None and isinstance(step, torch.export.ExportedProgram | torch.fx.GraphModule)


@public
def import_step(step: Any, *args: Any, **options: Any) -> BridgedStep:
    """Read a step as ``from_export`` or ``from_fx`` does, by its kind.

    Args:
        step: the program or the graph module.
        args: inputs of a graph module.
        options: of ``from_export`` or ``from_fx``, such as ``replicas``.

    Raises:
        MissingPackageError: PyTorch is not installed, or too old.
    """
    torch = framework("import_step", "torch")
    read: Any = from_fx if isinstance(step, torch.fx.GraphModule) else from_export
    made: BridgedStep = read(step, *args, **options)
    return made
