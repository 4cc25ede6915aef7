"""Programs that tests share."""

from __future__ import annotations

from typing import Any

import numpy as np

from popsr.compat import popart

__all__ = ["Linear", "options_of", "run_once"]


def options_of(replicas: int = 1, micro: int = 1) -> popart.SessionOptions:
    """Options of a session with replicas and micro batches."""
    options = popart.SessionOptions()
    options.enableReplicatedGraphs, options.replicatedGraphCount = replicas > 1, replicas
    options.enableGradientAccumulation, options.accumulationFactor = micro > 1, micro
    return options


def run_once(model: bytes, outputs: list[str], data: dict[str, Any], loss: str = "") -> dict[str, Any]:
    """Anchors of the first step of a session, which trains if there is a loss; else it has no ``weightsFromHost``."""
    flow, device = popart.DataFlow(1, outputs), popart.DeviceManager().createCpuDevice()
    if loss:
        session: Any = popart.TrainingSession(model, flow, loss, popart.ConstSGD(0.5), device)
    else:
        session = popart.InferenceSession(model, flow, device)
    session.prepareDevice()
    if loss:
        session.weightsFromHost()
    anchors: dict[str, Any] = session.initAnchorArrays()
    session.run(popart.PyStepIO(data, anchors))
    return anchors


class Linear:
    """A weight w whose gradient is x: the loss is the sum of w * x.

    Args:
        initial: initial value of w.
        settings: its groups.
    """

    def __init__(self, initial: Any, settings: Any = None) -> None:
        self.initial = np.asarray(initial)
        rows = () if settings is None else (settings,)
        groups = (
            self.initial.ndim - 1
            if settings is not None and settings.getGroupCount(2) > 1
            else self.initial.ndim
        )
        shape = list(self.initial.shape[self.initial.ndim - groups :])
        self.builder = popart.Builder()
        self.x = self.builder.addInputTensor(popart.TensorInfo(self.initial.dtype, shape), "x")
        self.w = self.builder.addInitializedInputTensor(self.initial, *rows, "w")
        self.product = self.builder.aiOnnx.mul([self.w, self.x])
        self.loss = self.builder.aiGraphcore.identityloss([self.product], popart.ReductionType.Sum)
        self.builder.addOutputTensor(self.loss)

    def session(
        self,
        optimizer: Any = None,
        *,
        anchors: Any = None,
        batches: int = 1,
        replicas: int = 1,
        micro: int = 1,
        options: Any = None,
    ) -> popart.TrainingSession:
        """A session that is ready to run."""
        session = popart.TrainingSession(
            self.builder.getModelProto(),
            popart.DataFlow(batches, [self.loss] if anchors is None else anchors),
            self.loss,
            popart.ConstSGD(0.5) if optimizer is None else optimizer,
            popart.DeviceManager().createCpuDevice(),
            userOptions=options_of(replicas, micro) if options is None else options,
        )
        session.prepareDevice()
        session.weightsFromHost()
        return session

    def step(self, session: popart.TrainingSession, x: Any) -> dict[str, Any]:
        """One step; returns the anchors."""
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({self.x: x}, anchors))
        return anchors

    def weight(self, session: popart.TrainingSession | popart.InferenceSession, name: str = "w") -> Any:
        """A variable of the session."""
        session.weightsToHost()
        buffer = np.zeros(session.getInfo(name).shape(), session.getInfo(name).data_type_lcase())
        session.readWeights(popart.PyWeightsIO({name: buffer}))
        return buffer
