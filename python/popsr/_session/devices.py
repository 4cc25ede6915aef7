"""Devices by PopART's names: each is this simulator."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from popsr._support.host.arguments import read_a, read_int, read_mapping
from popsr._support.host.choices import Choices
from popsr._support.text.entry_points import public

__all__ = [
    "DeviceConnectionType",
    "DeviceInfo",
    "DeviceManager",
    "DeviceSelectionCriterion",
    "DeviceType",
    "SyncPattern",
]

_MAX_IPUS = 2**20
_ids = itertools.count()


class DeviceType(Choices):
    """Number and kind of devices that a program asked for."""

    IpuModel = 0
    Cpu = 1
    Ipu = 2
    OfflineIpu = 3
    Sim = 4


class DeviceConnectionType(Choices):
    """Time at which a session attaches to its device."""

    Always = 0
    OnDemand = 1
    Never = 2


class DeviceSelectionCriterion(Choices):
    """The one of several free devices that is taken."""

    First = 0
    Random = 1


class SyncPattern(Choices):
    """IPUs that wait for each other."""

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


@public
class DeviceInfo:
    """A device; made by :class:`DeviceManager`. Sessions take it as ``device_desc``; they all run on the simulator."""

    def __init__(self) -> None:
        """A device of one IPU."""
        self._id = next(_ids)
        self._type = DeviceType.Cpu
        self._ipus = 1
        self._tiles = 0
        self._connection = DeviceConnectionType.Always
        self._attached = False

    @classmethod
    def _of(
        cls,
        where: str,
        type_: DeviceType,
        ipus: Any = 1,
        tiles: Any = 0,
        connection: Any = DeviceConnectionType.Always,
    ) -> DeviceInfo:
        device = cls()
        device._type = type_
        device._ipus = read_int(f"{where}: numIpus", ipus, 1, _MAX_IPUS)
        device._tiles = read_int(f"{where}: tilesPerIPU", tiles, 0, _MAX_IPUS)
        device._connection = read_a(f"{where}: connectionType", connection, DeviceConnectionType)
        return device

    @property
    def id(self) -> int:
        """Number of the device, unique in the process."""
        return self._id

    @property
    def type(self) -> DeviceType:
        """Number and kind of devices that the program asked for."""
        return self._type

    @property
    def connectionType(self) -> DeviceConnectionType:  # noqa: N802
        """As the program asked for it."""
        return self._connection

    @property
    def numIpus(self) -> int:  # noqa: N802
        """Number of IPUs, as the program asked for them."""
        return self._ipus

    @property
    def tilesPerIPU(self) -> int:  # noqa: N802
        """Tiles of an IPU, as the program asked for them; 0: any."""
        return self._tiles

    @property
    def isAttached(self) -> bool:  # noqa: N802
        """True between ``attach`` and ``detach``."""
        return self._attached

    def attach(self) -> bool:
        """Attach; always possible. Returns True."""
        self._attached = True
        return True

    def tryAttachUntilTimeout(self) -> bool:  # noqa: N802
        """As ``attach``."""
        return self.attach()

    def detach(self) -> None:
        """Undo ``attach``."""
        self._attached = False

    def __enter__(self) -> DeviceInfo:
        self.attach()
        return self

    def __exit__(self, *exc: object) -> None:
        self.detach()

    def __repr__(self) -> str:
        return f"DeviceInfo(id={self._id}, type={self._type.name}, numIpus={self._ipus})"


class DeviceManager:
    """Makes devices. There is always a free one, of as many IPUs as are asked for."""

    def createCpuDevice(self) -> DeviceInfo:  # noqa: N802
        """A device."""
        return DeviceInfo._of("createCpuDevice", DeviceType.Cpu)

    def createIpuModelDevice(self, options: Mapping[str, Any] | None = None) -> DeviceInfo:  # noqa: N802
        """A device.

        Args:
            options: ``numIPUs`` and ``tilesPerIPU``; others are ignored.
        Raises:
            ArgumentTypeError, AttributeValueError: one of these is not an int that can be.
        """
        return self._create("createIpuModelDevice", DeviceType.IpuModel, options)

    def createSimDevice(self, options: Mapping[str, Any] | None = None) -> DeviceInfo:  # noqa: N802
        """As ``createIpuModelDevice``."""
        return self._create("createSimDevice", DeviceType.Sim, options)

    def createOfflineIPUDevice(self, options: Mapping[str, Any] | None = None) -> DeviceInfo:  # noqa: N802
        """As ``createIpuModelDevice``."""
        return self._create("createOfflineIPUDevice", DeviceType.OfflineIpu, options)

    def acquireAvailableDevice(  # noqa: N802
        self,
        numIpus: int = 1,
        tilesPerIPU: int = 0,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        selectionCriterion: DeviceSelectionCriterion = DeviceSelectionCriterion.First,
    ) -> DeviceInfo:
        """An attached device.

        Args:
            numIpus: its IPUs.
            tilesPerIPU: their tiles; 0: any.
            pattern: recorded nowhere: replicas of the simulator wait for each other in collectives only.
            connectionType: recorded.
            selectionCriterion: all devices are alike.
        Raises:
            ArgumentTypeError, AttributeValueError: a value of another type, or a number that cannot be.
        """
        where = "acquireAvailableDevice"
        read_a(f"{where}: pattern", pattern, SyncPattern)
        read_a(f"{where}: selectionCriterion", selectionCriterion, DeviceSelectionCriterion)
        device = DeviceInfo._of(where, DeviceType.Ipu, numIpus, tilesPerIPU, connectionType)
        device._attached = connectionType is DeviceConnectionType.Always
        return device

    tryAcquireAvailableDevice = acquireAvailableDevice  # noqa: N815 - PopART's has None for "no free device"

    def acquireDeviceById(  # noqa: N802
        self,
        id: int,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
    ) -> DeviceInfo:
        """An attached device with that number.

        Args:
            id: the number.
            pattern: as for ``acquireAvailableDevice``.
            connectionType: likewise.
        Raises:
            ArgumentTypeError, AttributeValueError: a value of another type, or a number that cannot be.
        """
        number = read_int("acquireDeviceById: id", id, 0, 2**31 - 1)
        device = self.acquireAvailableDevice(pattern=pattern, connectionType=connectionType)
        device._id = number
        return device

    tryAcquireDeviceById = acquireDeviceById  # noqa: N815

    def enumerateDevices(  # noqa: N802
        self,
        pattern: SyncPattern = SyncPattern.Full,
        numIpus: int = 1,
        deviceType: DeviceType = DeviceType.Ipu,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        tilesPerIPU: int = 0,
    ) -> list[DeviceInfo]:
        """A list of one device, detached.

        Args:
            pattern: as for ``acquireAvailableDevice``.
            numIpus: its IPUs.
            deviceType: recorded.
            connectionType: recorded.
            tilesPerIPU: as for ``acquireAvailableDevice``.
        Raises:
            ArgumentTypeError, AttributeValueError: a value of another type, or a number that cannot be.
        """
        where = "enumerateDevices"
        read_a(f"{where}: pattern", pattern, SyncPattern)
        kind = read_a(f"{where}: deviceType", deviceType, DeviceType)
        return [DeviceInfo._of(where, kind, numIpus, tilesPerIPU, connectionType)]

    def setOnDemandAttachTimeout(self, attachTimeout: int) -> None:  # noqa: N802
        """Accepted: attaching never waits.

        Raises:
            ArgumentTypeError, AttributeValueError: it is not a number of seconds.
        """
        read_int("setOnDemandAttachTimeout: attachTimeout", attachTimeout, 0)

    def _create(self, where: str, kind: DeviceType, options: Mapping[str, Any] | None) -> DeviceInfo:
        given = read_mapping(where, "options", options)
        device = DeviceInfo._of(where, kind, given.get("numIPUs", 1), given.get("tilesPerIPU", 0))
        device._attached = True
        return device
