"""The ops: one function each, in files by family. Most append one op to the current graph and return its output.

A family's ``__all__`` lists its functions; this package exports them all. Examples need ``import numpy as np``,
``import popsr``, ``from popsr import ops`` and ``from popsr.testing import evaluate``, which runs an op on arrays.
"""

import typing
from types import ModuleType as _ModuleType

from popsr import _lazy, _module_paths
from popsr._program import calls as _calls
from popsr._text import suggestions as _suggestions
from popsr.ops import collectives, var_updates
from popsr.ops import utils as utils
from popsr.ops.activations import *
from popsr.ops.attention import *
from popsr.ops.bitwise import *
from popsr.ops.cast import *
from popsr.ops.code_copy import *
from popsr.ops.comparisons import *
from popsr.ops.concat import *
from popsr.ops.conditional import *
from popsr.ops.control import *
from popsr.ops.conv import *
from popsr.ops.dropout import *
from popsr.ops.dynamic_slices import *
from popsr.ops.element_indexing import *
from popsr.ops.elementwise import *
from popsr.ops.fft import *
from popsr.ops.functions import *
from popsr.ops.general_indexing import *
from popsr.ops.grid_sample import *
from popsr.ops.host_io import *
from popsr.ops.indexing import *
from popsr.ops.interpolate import *
from popsr.ops.lamb import *
from popsr.ops.losses import *
from popsr.ops.matmul import *
from popsr.ops.norms import *
from popsr.ops.onehot import *
from popsr.ops.order import *
from popsr.ops.pad import *
from popsr.ops.place_copies import *
from popsr.ops.pool import *
from popsr.ops.quantize import *
from popsr.ops.random import *
from popsr.ops.random_seeds import *
from popsr.ops.reductions import *
from popsr.ops.remote import *
from popsr.ops.replica_index import *
from popsr.ops.resize import *
from popsr.ops.roi_align import *
from popsr.ops.scans import *
from popsr.ops.shape import *
from popsr.ops.softmax import *
from popsr.ops.sort import *
from popsr.ops.transcendental import *
from popsr.ops.while_loop import *

__all__ = ["collectives", "var_updates"]
__all__ += sorted(
    name for name, value in globals().items() if not (name.startswith("_") or isinstance(value, _ModuleType))
)

if not typing.TYPE_CHECKING:
    __getattr__ = _suggestions.unknown_attribute(__name__, __all__)
    __dir__ = _lazy.names_only(__all__)
    _module_paths.register("ops")
    _calls.explain_calls(globals(), __all__)
