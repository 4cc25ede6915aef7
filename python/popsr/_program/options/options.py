"""Options of an Ir."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from popsr._program.options.record import Record, Table
from popsr._support.host.arguments import read_bool, read_choice, read_int
from popsr._support.lazy import LazyModule
from popsr._support.text.entry_points import public
from popsr._support.text.suggestions import unknown_name
from popsr.errors import ReplicaError, UnsupportedError

if TYPE_CHECKING:
    from popsr._program.options import settings
    from popsr._program.options.attributes import OptionAttributes
    from popsr._program.options.table import Row
else:
    OptionAttributes = Record
    settings = LazyModule("popsr._program.options.settings")

__all__ = ["Options"]

RoundingMode = Literal["partition", "popart", "identical"]

_HOT = ("enable_stochastic_rounding", "stochastic_rounding_mode")
# Defaults that follow the number of replicas.
_OF_REPLICATION: dict[str, Callable[[int], Any]] = {
    "enableReplicatedGraphs": lambda replicas: replicas > 1,
    "replicatedGraphCount": int,
    "globalReplicationFactor": int,
}


class _Replicated(Protocol):
    """A program, as far as options depend on it."""

    @property
    def replication_factor(self) -> int: ...

    @property
    def _local_replicas(self) -> range: ...


@cache
def _options_table() -> Table:
    return settings.options_table(_OF_REPLICATION)


@public
class Options(OptionAttributes):
    """Options that sessions and analyses read when they are made. PopART's camelCase names work too.

    All session options of PopART can be read and set, and have its defaults. docs/session_options.md,
    ``python -m popsr options``, says which have an effect; those listed here have names of popsr's own.

    Attributes:
        enable_stochastic_rounding: narrow floats are rounded stochastically, not to nearest.
        stochastic_rounding_mode: "partition": replicas that are proved to hold the same value round it the same way;
            "identical": all replicas round with the same random numbers; "popart": an op's do, or none, as
            PopART's own analysis decides. PopART's ``_enableRngStateManagement`` sets it: True is "popart", False is
            "identical", as PopART rounds without it.
        seed: seed of the random numbers, 0 <= seed < 2**64; ``Session(seed=...)`` goes first.
        throw_if_log2_scale_tensor_not_in_range: float8 ops whose ``log2_scale`` is outside [-32, 32) when they run
            raise AttributeValueError; else the scale is clamped to that range.
        enable_floating_point_checks: for debugging: an op with a result that is infinite or NaN although its operands
            are finite, also because it overflows a narrow dtype when it is rounded, raises FloatingPointError. It
            names the op, its line, the replicas, the element and the value; no later op runs, and variables hold what
            was written until then. Loads from the host, memory that nothing was written to, and ops with operands that
            are not finite are exempt. The bits are the same, and runs are slower.
        enable_inplace_ambiguity_checking: ops that modify and use one tensor in an order that neither data nor
            ``in_sequence`` gives are a GraphError when the program is analysed or a session is made; else they run in
            program order, and lint L12 names them.
    """

    # The two that every query of an analysis reads are slots.
    __slots__ = ("_ir", *_HOT)

    _where = "options"
    _ir: _Replicated | None

    enable_stochastic_rounding: bool
    stochastic_rounding_mode: RoundingMode
    seed: int
    throw_if_log2_scale_tensor_not_in_range: bool
    enable_floating_point_checks: bool
    enable_inplace_ambiguity_checking: bool

    def __init__(self) -> None:
        """The defaults: rounding to nearest."""
        super().__init__()
        object.__setattr__(self, "_ir", None)
        object.__setattr__(self, "enable_stochastic_rounding", False)
        object.__setattr__(self, "stochastic_rounding_mode", "partition")

    @classmethod
    def _table(cls) -> Table:
        return _options_table()

    def enableExplicitIR(self, enable: bool) -> None:  # noqa: N802
        """Set the options that PopART's programs set together for an explicit IR; none has an effect here."""
        enable = read_bool("enableExplicitIR: enable", enable)
        for name in ("aliasZeroCopy", "enableExplicitMainLoops", "explicitRecomputation", "useHostCopyOps"):
            setattr(self, name, enable)

    def getGlobalReplicationFactor(self) -> int:  # noqa: N802
        """The number of replicas of all processes."""
        if self.enableDistributedReplicatedGraphs:
            return int(self.globalReplicationFactor)
        return int(self.replicatedGraphCount) if self.enableReplicatedGraphs else 1

    def _bind(self, ir: _Replicated) -> None:
        """Be the options of a program, and answer with its replication."""
        object.__setattr__(self, "_ir", ir)

    @property
    def _enableRngStateManagement(self) -> bool:  # noqa: N802
        """PopART's switch between two of the modes."""
        return self.stochastic_rounding_mode == "popart"

    def _set_attribute(self, name: str, value: Any) -> None:
        if name == "_enableRngStateManagement":
            popart = read_bool(f"options: {name}", value)
            name, value = "stochastic_rounding_mode", "popart" if popart else "identical"
        super()._set_attribute(name, value)
        key = self._row(name).key
        if key in _HOT:
            object.__setattr__(self, key, self._values[key])

    if not TYPE_CHECKING:
        __setattr__ = _set_attribute

    def _default(self, row: Row) -> Any:
        ir = self._ir if row.name in _OF_REPLICATION else None
        return super()._default(row) if ir is None else _OF_REPLICATION[row.name](ir.replication_factor)

    def _read(self, row: Row, value: Any) -> Any:
        if row.name in _OWN_READERS:
            return _OWN_READERS[row.name](value)
        checked = super()._read(row, value)
        if self._ir is not None:
            _refuse_implicit_accumulation(row, checked)
        return checked

    def _unknown(self, name: str) -> Exception:
        rows, names, _ = self._table()
        known = [row.key for row in rows if row.own_name or row.name in _OWN_READERS]
        return unknown_name("options", "option", name, known, names)

    def _shown_rows(self) -> Iterable[Row]:
        were_set = set(self._set_rows())
        return [row for row in self._table().rows if row.is_used or row in were_set]

    def _check_for(self, ir: _Replicated) -> None:
        """Check the options for a session of a program.

        Raises:
            ReplicaError: what they say of replicas contradicts the program.
            UnsupportedError: they ask for accumulation that programs write out.
            ArgumentTypeError: a list or set was changed to hold values of another type.
        """
        if not self._values:
            return
        self._check()
        for row in self._set_rows():
            _refuse_implicit_accumulation(row, self._values[row.key])
        self._check_replication(ir.replication_factor, ir._local_replicas)

    def _check_replication(self, replicas: int, local: range) -> None:
        """Counts of one of several processes may be its own."""
        expected: dict[str, tuple[Any, Any]] = {
            "enableReplicatedGraphs": (True, len(local) > 1) if replicas > 1 else (True, False),
            "replicatedGraphCount": (replicas, len(local)),
            "globalReplicationFactor": (replicas, replicas),
            "globalReplicaOffset": (0, local.start),
        }
        for name, (wanted, also) in expected.items():
            value = self._values.get(name, wanted)
            if value not in (wanted, also):
                fix = f" or Ir(replication={value})" if "Factor" in name or "Count" in name else ""
                raise ReplicaError(
                    f"Session: option {name} contradicts the program, got {value}, expected {wanted} for "
                    f"{replicas} replica{'s' * (replicas != 1)}{fix}"
                )

    def _without_effect(self) -> list[str]:
        """PopART's names of the options that were set and have no effect."""
        return [row.name for row in self._set_rows() if not row.is_used]


def read_mode(value: Any) -> Any:
    """A mode of stochastic rounding.

    Raises:
        AttributeValueError: it is none.
    """
    return read_choice("options", "stochastic_rounding_mode", value, get_args(RoundingMode))


def _refuse_implicit_accumulation(row: Row, value: Any) -> None:
    default = _ACCUMULATION.get(row.name, value)
    if value != default:
        raise UnsupportedError(
            f"options: {row.name} applies to implicit pipelines only, got {value}, expected {default}: PopXL programs "
            "accumulate explicitly, with ops.var_updates.accumulate_"
        )


_OWN_READERS: dict[str, Callable[[Any], Any]] = {
    "stochastic_rounding_mode": read_mode,
    "seed": partial(read_int, "options: seed", least=0, most=2**64 - 1),
}
_ACCUMULATION = {"enableGradientAccumulation": False, "accumulationFactor": 1}
