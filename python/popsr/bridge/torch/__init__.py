"""Training steps of PyTorch as programs of popsr, to be proved and run on simulated replicas.

``trace_step`` reads a whole step with its model and its optimiser; ``from_export`` a ``torch.export`` program and
``from_fx`` a graph of ATen ops. A table of rules, one for each overload of ATen's core set, says what each op becomes.
torch is imported by the functions, not with this package.
"""

from popsr._support.lazy import names_only
from popsr.bridge.torch._graphs import from_export, from_fx
from popsr.bridge.torch._trace import trace_step
from popsr.bridge.torch._which import accepts, import_step

__all__ = ["accepts", "from_export", "from_fx", "import_step", "trace_step"]

__dir__ = names_only(__all__)
