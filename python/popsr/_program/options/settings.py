"""The settings that session options hold: objects with attributes of their own."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any, ClassVar

from popsr._program.options.kinds import CLASSES, constants
from popsr._program.options.record import Record, Table
from popsr._program.options.table import ALIASES, OPTIONS, OWN, SETTINGS
from popsr._support.host.arguments import read_a, read_int
from popsr.errors import ArgumentTypeError
from popsr.tensorlocation import ReplicatedTensorSharding, TensorStorage
from popsr.tensorlocation import TensorLocation as Location

__all__ = [
    "AccumulateOuterFragmentSettings",
    "AutomaticLossScalingSettings",
    "BatchSerializationSettings",
    "ExecutionPhaseSettings",
    "ExperimentalSettings",
    "NumIOTiles",
    "ReplicatedCollectivesSettings",
    "Settings",
    "TensorLocation",
    "TensorLocationSettings",
    "options_table",
]


def options_table(of_program: Container[str]) -> Table:
    """The table of ``popsr._program.options.options.Options``.

    Args:
        of_program: PopART's names of the options whose defaults depend on the program.
    """
    rows = (*OPTIONS, *OWN)
    names = {row.name: row for row in rows} | {row.key: row for row in rows}
    names |= {alias: names[name] for alias, name in ALIASES.items()}
    return Table(rows, names, constants(row for row in rows if row.name not in of_program))


class NumIOTiles(int):
    """Number of the tiles of an IPU that are set aside for exchange.

    Args:
        numIOTiles: the number.
    """

    def __new__(cls, numIOTiles: int = 0) -> NumIOTiles:
        """A number of tiles.

        Raises:
            ArgumentTypeError: not an int.
            AttributeValueError: negative.
        """
        return int.__new__(cls, read_int("NumIOTiles: numIOTiles", numIOTiles, 0, 2**31 - 1))


class Settings(Record):
    """Settings of an option. They compare by their values.

    Args:
        *args: values of the attributes, in order.
        **kwargs: values of attributes by name.
    """

    __slots__ = ()

    _own_table: ClassVar[Table]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def __init_subclass__(cls) -> None:
        rows = SETTINGS[cls.__name__]
        cls._where = cls.__name__
        CLASSES[cls.__name__] = cls
        cls._own_table = Table(rows, {row.name: row for row in rows}, constants(rows))

    @classmethod
    def _table(cls) -> Table:
        return cls._own_table

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Settings with these values, and defaults for others.

        Raises:
            ArgumentTypeError: too many values, a value of another type, or one twice.
            AttributeAccessError: there is no such attribute.
        """
        super().__init__()
        if len(args) > len(self._own_table.by_name):
            raise ArgumentTypeError(
                f"{self._where}: too many values, got {len(args)}, expected at most {len(self._own_table.by_name)}"
            )
        given = dict(zip(self._own_table.by_name, args, strict=False))
        twice = next((name for name in kwargs if name in given), None)
        if twice is not None:
            raise ArgumentTypeError(
                f"{self._where}: {twice} is given twice, got {len(args)} values and {twice}=, expected one of them"
            )
        for name, value in (given | kwargs).items():
            setattr(self, name, value)

    @classmethod
    def read(cls, where: str, value: Any) -> Settings:
        """``value`` as settings of this class.

        Raises:
            ArgumentTypeError: it is something else.
        """
        return read_a(where, value, cls)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._own_table.by_name)

    __hash__: ClassVar[None]  # type: ignore[assignment]


class AccumulateOuterFragmentSettings(Settings):
    """Schedule outside a gradient accumulation loop."""

    __slots__ = ()


class AutomaticLossScalingSettings(Settings):
    """Automatic loss scaling."""

    __slots__ = ()


class BatchSerializationSettings(Settings):
    """Serialisation of batches."""

    __slots__ = ()


class ExecutionPhaseSettings(Settings):
    """Execution in phases."""

    __slots__ = ()


class ExperimentalSettings(Settings):
    """Settings without promise."""

    __slots__ = ()


class ReplicatedCollectivesSettings(Settings):
    """Merging of collectives."""

    __slots__ = ()


class TensorLocation(Settings):
    """Location of tensors in options, which can be changed; equal to a ``popsr.TensorLocation`` of that content.

    Args:
        *args: storage, tile sets to load with and to store in, sharding, and the replicas that share it; or storage and
            sharding alone.
        **kwargs: values of attributes by name.
    """

    __slots__ = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """A location; errors as of ``Settings``."""
        given = list(args)
        if len(given) == 2 and isinstance(given[1], ReplicatedTensorSharding):
            kwargs["replicatedTensorSharding"] = given.pop()
        if "replicated_tensor_sharding" in kwargs:  # popsr's spelling
            kwargs["replicatedTensorSharding"] = kwargs.pop("replicated_tensor_sharding")
        super().__init__(*given, **kwargs)

    @classmethod
    def read(cls, where: str, value: Any) -> Settings:
        """``value``, a ``popsr.TensorLocation`` or a storage, as location.

        Raises:
            ArgumentTypeError: it is something else.
        """
        if isinstance(value, TensorStorage):
            return cls(value)
        if isinstance(value, Location):
            return cls(storage=value.storage, replicatedTensorSharding=value.replicated_tensor_sharding)
        return read_a(where, value, cls)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Location):
            return super().__eq__(TensorLocation.read("", other))
        return super().__eq__(other)

    __hash__: ClassVar[None]


class TensorLocationSettings(Settings):
    """Location of the tensors of one kind, and the sizes from which it holds."""

    __slots__ = ()
