"""State of a module while one of its graphs is built."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from popsr._program.graph import Graph
from popsr._program.handles import is_retired
from popsr._support.text.entry_points import public
from popsr.addons.module_gradients import Aux, VarGrad
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.variable_factory import NamedVariableFactories
from popsr.transforms import GradGraphInfo

__all__ = ["State"]


@public
@dataclass
class State:
    """Of one graph."""

    factories: NamedVariableFactories = field(default_factory=NamedVariableFactories)
    inputs: NamedTensors = field(default_factory=NamedTensors)
    aux: Aux = field(default_factory=Aux)
    var_grad: VarGrad = field(default_factory=VarGrad)
    grad_infos: dict[Graph, GradGraphInfo] = field(default_factory=dict)

    def forget_undone(self) -> None:
        """Drop what calls that failed had added: an input that is not in the program any more, or a half of a pair."""
        inputs, factories = self.inputs.to_dict(), self.factories.to_dict()
        keys = [key for key, t in inputs.items() if key in factories and not is_retired(t)]
        if len(keys) != len(inputs) or len(keys) != len(factories):
            self.inputs = NamedTensors.from_dict({key: inputs[key] for key in keys})
            self.factories = NamedVariableFactories.from_dict({key: factories[key] for key in keys})

    def copy(self) -> State:
        """With trees of its own."""
        return dataclasses.replace(
            self, factories=self.factories.copy(), inputs=self.inputs.copy(), grad_infos=dict(self.grad_infos)
        )
