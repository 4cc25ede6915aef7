"""State of a module while one of its graphs is built."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from popsr._program.graph import Graph
from popsr._support.lazy import names_only
from popsr.addons.module_gradients import Aux, VarGrad
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.variable_factory import NamedVariableFactories
from popsr.transforms import GradGraphInfo

__all__ = ["State"]


@dataclass
class State:
    """Of one graph."""

    factories: NamedVariableFactories = field(default_factory=NamedVariableFactories)
    inputs: NamedTensors = field(default_factory=NamedTensors)
    aux: Aux = field(default_factory=Aux)
    var_grad: VarGrad = field(default_factory=VarGrad)
    grad_infos: dict[Graph, GradGraphInfo] = field(default_factory=dict)

    def copy(self) -> State:
        """With trees of its own."""
        return dataclasses.replace(
            self, factories=self.factories.copy(), inputs=self.inputs.copy(), grad_infos=dict(self.grad_infos)
        )


__dir__ = names_only(__all__)
