"""All ops: what the package ``popsr.ops`` imports at the first use of one of its names. Each family has a line."""

import typing as _typing
from types import ModuleType as _ModuleType

from popsr.ops import collectives as collectives
from popsr.ops import utils as utils
from popsr.ops import var_updates as var_updates
from popsr.ops.indexing.dynamic_slices import *
from popsr.ops.indexing.element_indexing import *
from popsr.ops.indexing.general_indexing import *
from popsr.ops.indexing.indexing import *
from popsr.ops.indexing.onehot import *
from popsr.ops.linalg.fft import *
from popsr.ops.linalg.matmul import *
from popsr.ops.math.activations import *
from popsr.ops.math.bitwise import *
from popsr.ops.math.cast import *
from popsr.ops.math.comparisons import *
from popsr.ops.math.elementwise import *
from popsr.ops.math.functions import *
from popsr.ops.math.quantize import *
from popsr.ops.math.transcendental import *
from popsr.ops.nn.attention import *
from popsr.ops.nn.conv import *
from popsr.ops.nn.dropout import *
from popsr.ops.nn.grid_sample import *
from popsr.ops.nn.interpolate import *
from popsr.ops.nn.losses import *
from popsr.ops.nn.norms import *
from popsr.ops.nn.pool import *
from popsr.ops.nn.resize import *
from popsr.ops.nn.roi_align import *
from popsr.ops.program.code_copy import *
from popsr.ops.program.conditional import *
from popsr.ops.program.control import *
from popsr.ops.program.host_io import *
from popsr.ops.program.place_copies import *
from popsr.ops.program.remote import *
from popsr.ops.program.while_loop import *
from popsr.ops.random.random import *
from popsr.ops.random.random_seeds import *
from popsr.ops.reduce.order import *
from popsr.ops.reduce.reductions import *
from popsr.ops.reduce.scans import *
from popsr.ops.reduce.softmax import *
from popsr.ops.reduce.sort import *
from popsr.ops.replicas.replica_index import *
from popsr.ops.shape.concat import *
from popsr.ops.shape.pad import *
from popsr.ops.shape.shape import *
from popsr.ops.update.lamb import *

if not _typing.TYPE_CHECKING:
    __all__ = ["collectives", "var_updates"]
    __all__ += sorted(
        name
        for name, value in globals().items()
        if not (name.startswith("_") or isinstance(value, _ModuleType))
    )
