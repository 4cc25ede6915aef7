"""The ops of ai.graphcore as methods of a Builder: the table of their names, inputs, outputs and attributes."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from popsr._support.host.arguments import is_a, read_int, read_items
from popsr.compat.popart._names import TensorRemapType
from popsr.compat.popart._recording.signatures import MANY, REQUIRED, Attribute, Ops, Recorder, Signature

__all__ = ["DOMAIN", "GraphcoreOps", "signatures"]

DOMAIN = "ai.graphcore"

# Method, op type, inputs, outputs, attributes in order: i int, f float, s str, w member of an enumeration, t dtype,
# g group, G graph; upper case: a list. Without "=" it must be given; "=" alone: left out unless it is given.
_TABLE = """
abort                 Abort                 0-1  0    -
atan2                 Atan2                 2    1    -
batchnormalization    BatchNormalization    5    1-5  f:epsilon=1e-5 f:momentum=0.9
bitwiseand            BitwiseAnd            2    1    -
bitwisenot            BitwiseNot            1    1    -
bitwiseor             BitwiseOr             2    1    -
bitwisexnor           BitwiseXnor           2    1    -
bitwisexor            BitwiseXor            2    1    -
bucketize             Bucketize             2    1    i:right=0
call                  Call                  0-*  1-*  G:callee
copyvarupdate         CopyVarUpdate         2    1    -
ctcbeamsearchdecoder  CtcBeamSearchDecoder  2    3    i:blank=0 i:beam_width=100 i:top_paths=1
ctcloss               Ctc                   4    1    w:reduction=Mean i:blank=0 w:outDataType=UNDEFINED
    i:zeroInfinity=0
depthtospace          DepthToSpace          1    1    i:blocksize s:mode=DCR
detach                Detach                1    1    -
dynamicadd            DynamicAdd            3    1    I:axes I:sizes i:noOverlap=0
dynamicslice          DynamicSlice          2-3  1    I:axes I:sizes i:noOverlap=0
dynamicupdate         DynamicUpdate         3    1    I:axes I:sizes i:noOverlap=0
dynamiczero           DynamicZero           2    1    I:axes I:sizes
expm1                 Expm1                 1    1    -
fmod                  Fmod                  2    1    -
gelu                  Gelu                  1    1    -
geluerf               GeluErf               1    1    -
groupedgather         GroupedGather         2    1    i:axis=0 i:group_size=1
groupedscatterreduce  GroupedScatterReduce  2-3  1    i:axis_size i:axis=-1 w:reduction=Sum i:group_size=1
    i:enable_index_broadcast=1
groupnormalization    GroupNormalization    3    3    i:num_groups f:epsilon=1e-5
identityloss          IdentityLoss          1    1    w:reduction=Mean
incrementmod          IncrementMod          1    1    f:increment f:modulus
init                  Init                  0    1    I:shape t:data_type w:init_type i:batch_axis=
l1loss                L1                    1    1    f:lambda w:reduction=Mean
log1p                 Log1p                 1    1    -
lstm                  LSTM                  2-4  2    i:outputFullSequence=1
multiconv             MultiConv             2-*  1-*  II:dilations= II:inDilations= II:pads= II:outPads=
    II:strides= F:availableMemoryProportions= S:partialsTypes= s:planType= i:perConvReservedTiles=
    f:cycleBackOff= I:enableConvDithering= I:convInputs=
nearbyint             NearbyInt             1    1    -
nllloss               Nll                   2    1    w:reduction=Mean i:ignoreIndex= i:inputIsLogProbability=0
nop                   Nop                   1    1    -
normalize_image       NormalizeImage        3    1    f:scale=1.0
packedDataBlock       PackedDataBlock       3-*  1    I:maxSequenceLengths i:resultSize i:callbackBatchSize
    G:callback
printtensor           PrintTensor           1    1    i:print_gradient=1 s:title= i:summariseThreshold=1000
    i:edgeItems=3 i:maxLineWidth=75 i:digits=8 i:floatFormat=0 s:separator= s:openBracket= s:closeBracket=
reducemedian          ReduceMedian          1    2    I:axes= i:keepdims=1
remainder             Remainder             2    1    -
replicatedallreduce   ReplicatedAllReduce   1    1    w:collectiveOperator=Add g:commGroup=
replicatedreducescatter ReplicatedReduceScatter 1 1   w:collectiveOperator=Add g:commGroup=
reshape               Reshape               1    1    I:shape
reverse               Reverse               1    1    I:dimensions
round                 Round                 1    1    -
scale                 Scale                 1    1    f:scale
scaledadd             ScaledAdd             2-4  1    f:scale0=1.0 f:scale1=1.0
scatterreduce         ScatterReduce         2-3  1    i:axis_size i:axis=-1 w:reduction=Sum
    i:enable_index_broadcast=1
sequenceslice         SequenceSlice         5    1    i:zeroUnused=0
shapeddropout         ShapedDropout         1    1    I:shape f:ratio=0.5
slice                 Slice                 1    1    I:ends I:starts I:axes=
sort                  Sort                  1    2    i:axis=-1 i:descending=0 i:stable=0
splinebasis           SplineBasis           3    2    i:degree=1
splineweighting       SplineWeighting       4    1    -
subsample             Subsample             1    1    I:strides
swish                 Swish                 1    1    -
tensorremap           TensorRemap           1    1    w:remap_type=FwdBwdReverse
"""

_KINDS = {"i": "INT", "f": "FLOAT", "s": "STRING", "w": "WORD", "t": "DTYPE", "g": "GROUP", "G": "GRAPH"}
_KINDS |= {"I": "INTS", "F": "FLOATS", "S": "STRINGS", "II": "LISTS"}


class GraphcoreOps(Ops):
    """The ops of ai.graphcore: ``builder.aiGraphcore.l1loss([y], 0.1)``; parameters as in ``OnnxOps``."""

    def __init__(self, builder: Recorder) -> None:
        """The methods of a builder."""
        super().__init__(builder, "aiGraphcore", DOMAIN, 1, signatures())

    def init(self, *args: Any, **named: Any) -> str:
        """A new tensor: ``(shape, data_type, init_type, batch_axis, debugContext)``, the last two optional."""
        if len(args) > 3 and not is_a(args[3], (int, np.integer)):
            args = (*args[:3], None, *args[3:])
        return str(self._add("init", args, named))

    def tensorremap(self, args: Any, remap_type: Any = 0, *rest: Any, **named: Any) -> str:
        """The tensor itself: ``(args, remap_type, debugContext)``; the type is a member, its name or its number."""
        if is_a(remap_type, (int, np.integer)):
            remap_type = TensorRemapType(read_int("aiGraphcore.tensorremap: remap_type", remap_type, 0, 2))
        return str(self._add("tensorremap", (args, remap_type, *rest), named))

    def call(self, args: Any, num_outputs: int, callee: Any, debugContext: Any = "") -> list[str]:
        """The results of a graph of ``createSubgraphBuilder``, of values of its inputs.

        Tensors of the graph around it, which it has by ``addInputTensorFromParentGraph``, are among the inputs, in the
        order in which they were added, or are left out, all of them.
        """
        ids = read_items("aiGraphcore.call", "args", args, kind="ids")
        if is_a(callee, type(self._builder)):
            callee = callee._called_with(len(ids))
        return list(self._add("call", (ids, num_outputs, callee, debugContext), {}))

    def multiconv(self, args: Any, *attributes: Any, **named: Any) -> list[str]:
        """Several convolutions: a list of inputs for each of them, then the attributes; a list of ids."""
        where = "aiGraphcore.multiconv"
        lists = [read_items(where, "args", each, kind="ids") for each in read_items(where, "args", args)]
        flat = [id_ for each in lists for id_ in each]
        named["convInputs"] = [len(each) for each in lists]
        made = self._add("multiconv", (flat, len(lists), *attributes), named)
        return [made] if isinstance(made, str) else made


@functools.cache
def signatures() -> dict[str, Signature]:
    """The methods."""
    found = {}
    for row in _TABLE.strip().replace("\n    ", " ").splitlines():
        name, op_type, inputs, outputs, *attributes = row.split()
        made = tuple(_attribute(text) for text in attributes if text != "-")
        found[name] = Signature(f"aiGraphcore.{name}", op_type, made, _extent(inputs), _extent(outputs))
    return found


def _extent(text: str) -> tuple[int, int]:
    least, _, most = text.partition("-")
    return int(least), MANY if most == "*" else int(most or least)


def _attribute(text: str) -> Attribute:
    kind, _, rest = text.partition(":")
    name, has_default, default = rest.partition("=")
    value: Any = (default or None) if has_default else REQUIRED
    if default and kind in "if":
        value = {"i": int, "f": float}[kind](default)
    return Attribute(name, _KINDS[kind], value)
