"""popdist's helpers for PopART's sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from popsr._program.options.options import Options
from popsr._session.devices import DeviceConnectionType, DeviceInfo, DeviceManager
from popsr._support.host.arguments import read_a
from popsr._support.text.suggestions import unknown_attribute
from popsr.compat import popdist

__all__ = ["configureSessionOptions", "getDevice"]


def configureSessionOptions(opts: Options) -> None:  # noqa: N802
    """Let options say how many replicas there are, and that sessions run on all instances.

    Args:
        opts: the options.
    Raises:
        ArgumentTypeError: not options.
    """
    read_a("popdist.popart.configureSessionOptions: opts", opts, Options)
    local, total = popdist.getNumLocalReplicas(), popdist.getNumTotalReplicas()
    opts.enableReplicatedGraphs = local > 1
    opts.replicatedGraphCount = local
    opts.enableDistributedReplicatedGraphs = popdist.getNumInstances() > 1
    opts.globalReplicationFactor = total
    opts.globalReplicaOffset = popdist.getReplicaIndexOffset()


def getDevice(  # noqa: N802
    connectionType: DeviceConnectionType = DeviceConnectionType.Always,
) -> DeviceInfo:
    """A device with the IPUs of this instance's replicas.

    Args:
        connectionType: recorded.
    """
    ipus = popdist.getNumLocalReplicas() * popdist.getNumIpusPerReplica()
    return DeviceManager().acquireAvailableDevice(ipus, connectionType=connectionType)


if not TYPE_CHECKING:
    __getattr__ = unknown_attribute("popdist.popart", __all__)
