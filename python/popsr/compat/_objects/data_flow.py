"""Anchors and patterns of PopART's sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from popsr._support.host.arguments import (
    is_a,
    read_a,
    read_bool,
    read_choice,
    read_int,
    read_items,
    read_text,
)
from popsr._support.host.choices import Choices
from popsr._support.text.shown import shown
from popsr.errors import AttributeValueError, StateError, UnknownNameError
from popsr.tensorlocation import TileSet

__all__ = [
    "AnchorReturnType",
    "AnchorReturnTypeId",
    "DataFlow",
    "ExchangeStrategy",
    "Patterns",
    "PatternsLevel",
]


class AnchorReturnTypeId(Choices):
    """The batches of a step whose value of an anchor is returned."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3


class ExchangeStrategy(Choices):
    """Time at which an input is loaded, or an anchor stored; without effect on a simulator."""

    JustInTime = 0
    OverlapInnerLoop = 1
    OverlapLoops = 2
    OverlapStep = 3


class AnchorReturnType:
    """The batches of a step whose value of an anchor is returned.

    Args:
        name: "Final", "EveryN", "All" or "Sum", in small or capital letters.
        return_period: of EveryN: n. It may be left out before the others.
        tileSet: recorded nowhere.
        exchangeStrategy: recorded nowhere.
    """

    def __init__(
        self,
        name: str,
        return_period: int | TileSet = 0,
        tileSet: TileSet | ExchangeStrategy = TileSet.Compute,
        exchangeStrategy: ExchangeStrategy = ExchangeStrategy.JustInTime,
    ) -> None:
        """A return type.

        Raises:
            ArgumentTypeError: an argument of another type.
            AttributeValueError: an unknown name; a period of another type than EveryN, or none of EveryN.
        """
        where = "AnchorReturnType"
        words = tuple(AnchorReturnTypeId.__members__)
        folded = {each.lower(): each for each in words}
        word = read_choice(where, "name", folded.get(name.lower(), name) if is_a(name, str) else name, words)
        self._id = AnchorReturnTypeId[word]
        period: Any = return_period
        places: tuple[Any, Any] = (tileSet, exchangeStrategy)
        if is_a(period, TileSet):
            strategy = exchangeStrategy if is_a(tileSet, TileSet) else tileSet
            period, places = 0, (period, strategy)
        read_a(f"{where}: tileSet", places[0], TileSet)
        read_a(f"{where}: exchangeStrategy", places[1], ExchangeStrategy)
        self._period = read_int(f"{where}: return_period", period, 0, 2**31 - 1)
        if (self._period > 0) != (self._id is AnchorReturnTypeId.EveryN):
            raise AttributeValueError(
                f"{where}: {word} with period {self._period}, expected EveryN with one of 1 or more, or another without"
            )

    def id(self) -> AnchorReturnTypeId:
        """The member."""
        return self._id

    def rp(self) -> int:
        """The period of EveryN; 0 of others."""
        return self._period

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AnchorReturnType):
            return NotImplemented
        return (self._id, self._period) == (other._id, other._period)

    def __hash__(self) -> int:
        return hash((self._id, self._period))

    def __repr__(self) -> str:
        return f"AnchorReturnType({self._id.name!r}{f', {self._period}' * (self._period > 0)})"


class DataFlow:
    """Batches of a step, and the tensors that it returns.

    Args:
        batchesPerStep: the batches.
        anchorTensors: return types by id of tensor, or ids that all have ``anchorReturnType``.
        anchorReturnType: the return type of a list of ids. Default: "All".
    """

    def __init__(
        self,
        batchesPerStep: int = 0,
        anchorTensors: Mapping[str, AnchorReturnType] | Iterable[str] = (),
        anchorReturnType: AnchorReturnType | None = None,
    ) -> None:
        """A data flow.

        Raises:
            ArgumentTypeError: a value of another type.
            StateError: the period of an EveryN does not divide the batches.
        """
        self.setBatchesPerStep(batchesPerStep)
        if isinstance(anchorTensors, Mapping):
            given = dict(anchorTensors)
        else:
            kind = AnchorReturnType("All") if anchorReturnType is None else anchorReturnType
            ids = read_items("DataFlow", "anchorTensors", anchorTensors, kind="ids")
            given = dict.fromkeys([read_text("DataFlow: anchorTensors", each) for each in ids], kind)
        self._anchors = {
            read_text("DataFlow: anchorTensors", id_): read_a("DataFlow: return type", kind, AnchorReturnType)
            for id_, kind in given.items()
        }
        self._check_periods()

    def _check_periods(self) -> None:
        for id_, kind in self._anchors.items():
            if kind.rp() and self._batches % kind.rp():
                raise StateError(
                    f"DataFlow: period of anchor {shown(id_)}, got EveryN {kind.rp()} of {self._batches} batches, "
                    "expected one that divides them"
                )

    def batchesPerStep(self) -> int:  # noqa: N802
        """The batches of a step."""
        return self._batches

    def setBatchesPerStep(self, batchesPerStep: int) -> None:  # noqa: N802
        """Set the batches of a step."""
        self._batches = read_int("DataFlow: batchesPerStep", batchesPerStep, 0, 2**31 - 1)

    def anchors(self) -> list[str]:
        """Ids of the tensors that are returned."""
        return list(self._anchors)

    def nAnchors(self) -> int:  # noqa: N802
        """Number of the tensors that are returned."""
        return len(self._anchors)

    def isAnchored(self, id: str) -> bool:  # noqa: N802
        """True if a tensor is returned."""
        return read_text("DataFlow.isAnchored: id", id) in self._anchors

    def art(self, id: str) -> AnchorReturnType:
        """Return type of a tensor.

        Raises:
            UnknownNameError: it is not returned.
        """
        if read_text("DataFlow.art: id", id) not in self._anchors:
            raise UnknownNameError(
                f"DataFlow.art: no such anchor, got {shown(id)}, expected one of {shown(self.anchors())}"
            )
        return self._anchors[id]

    def __repr__(self) -> str:
        return f"DataFlow({self._batches}, {self._anchors})"


class PatternsLevel(Choices):
    """The patterns that are on at first."""

    NoPatterns = 0
    Minimal = 1
    Default = 2
    All = 3


class Patterns:
    """PopART's graph rewrites: recorded. A program of popsr is rewritten by its own calls only.

    Args:
        patterns: a level, or names of the patterns that are on.
    """

    def __init__(self, patterns: PatternsLevel | Iterable[str] = PatternsLevel.Default) -> None:
        """A choice of patterns.

        Raises:
            ArgumentTypeError: neither a level nor a list of names.
        """
        names: tuple[Any, ...] = ()
        self._level = PatternsLevel.NoPatterns
        if isinstance(patterns, PatternsLevel):
            self._level = patterns
        else:
            names = read_items("Patterns", "patterns", patterns, kind="names")
        self._switches = {read_text("Patterns: patterns", name): True for name in names}

    def enablePattern(self, pattern: str, value: bool) -> Patterns:  # noqa: N802
        """Switch a pattern on or off."""
        name = read_text("enablePattern: pattern", pattern)
        self._switches[name] = read_bool("enablePattern: value", value)
        return self

    def isPatternEnabled(self, pattern: str) -> bool:  # noqa: N802
        """True if a pattern was switched on, or was not switched and the level is Default or All."""
        name = read_text("isPatternEnabled: pattern", pattern)
        return self._switches.get(name, self._level in (PatternsLevel.Default, PatternsLevel.All))

    if TYPE_CHECKING:  # the switches below

        def __getattr__(self, name: str) -> bool: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def enableRuntimeAsserts(self, value: bool) -> Patterns:  # noqa: N802
        """Accepted: mandatory patterns are not missed."""
        read_bool("enableRuntimeAsserts: value", value)
        return self

    def __repr__(self) -> str:
        return f"Patterns({self._level.name}, {self._switches})"


def _switch(name: str) -> property:
    def read(self: Patterns) -> bool:
        return self.isPatternEnabled(name)

    def write(self: Patterns, value: bool) -> None:
        self.enablePattern(name, value)

    return property(read, write, doc=f"True if the pattern {name} is on.")


_NAMES = (
    "Atan2Arg0GradOp Atan2Arg1GradOp CosGradOp CoshOp DivArg0GradOp DivArg1GradOp ExpGradOp Expm1GradOp "
    "GemmDecomposition InPlace InitAccumulate Log1pGradOp LogGradOp MatMulLhsGradOp MatMulOp MatMulRhsGradOp "
    "MulArgGradOp NegativeOneScale NlllWithSoftMaxGradDirect OpToIdentity PadSum PostNRepl PowArg0GradOp "
    "PowArg1GradOp PreUniRepl ReciprocalGradOp SinGradOp SoftMaxGradDirect SplitGather SqrtGradOp "
    "SubtractArg1GradOp TanToSinOverCos UpdateInplacePrioritiesForIpu"
)
for _name in _NAMES.split():
    setattr(Patterns, _name, _switch(_name))
