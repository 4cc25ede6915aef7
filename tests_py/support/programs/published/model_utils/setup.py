"""The Ir of a program and the options of its session."""

import logging
from typing import Any, Dict

import numpy as np
import popart
import popdist
import popxl


def make_ir(
    replicas: int, io_tiles: int = 32, partials: str = "float", stochastic_rounding: bool = False
) -> popxl.Ir:
    """An Ir for all replicas of all instances."""
    if popdist.isPopdistEnvSet():
        popdist.init()
        ir = popxl.Ir(replication="popdist")
        if ir.replication_factor != replicas:
            raise ValueError("popdist has {} replicas, not {}".format(ir.replication_factor, replicas))
    else:
        ir = popxl.Ir()
        ir.replication_factor = replicas
    options = ir._pb_ir.getSessionOptions()
    options.numIOTiles = io_tiles
    options.partialsTypeMatMuls = partials
    options.enableStochasticRounding = stochastic_rounding
    options.enableFloatingPointChecks = False
    options.engineOptions = {"opt.useAutoloader": "true", "target.syncReplicasIndependently": "true"}
    logging.getLogger(__name__).debug("popart %s, %d replicas", popart.versionString(), replicas)
    return ir


def feed(
    session: popxl.Session, data: Dict[popxl.HostToDeviceStream, Any]
) -> Dict[popxl.HostToDeviceStream, Any]:
    """Arrays of each stream with the leading dimensions that the session wants: transfers, then replicas.

    Data of all replicas is cut to those of this instance.
    """
    ir, first = session.ir, popdist.getReplicaIndexOffset()
    inputs = {}
    for stream in session.expected_inputs():
        shape = session._full_input_shape(stream.shape)
        array = np.asarray(data[stream], dtype=stream.dtype.as_numpy())
        if array.size != np.prod(shape, dtype=int):
            array = array.reshape((ir.num_host_transfers, ir.replication_factor, *stream.shape))
            array = array[:, first : first + ir.instance_replication_factor]
        inputs[stream] = array.reshape(shape)
    return inputs


def replicate(value: Any, session: popxl.Session, stream: popxl.HostToDeviceStream) -> np.ndarray:
    """The same value for every transfer and every replica, as for a learning rate."""
    return np.broadcast_to(value, session._full_input_shape(stream.shape)).copy()
