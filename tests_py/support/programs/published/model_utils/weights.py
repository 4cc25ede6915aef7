"""Pretrained weights: a state dict by the names of its library, for the variables of a program."""

from typing import Callable, Dict, List, Tuple, Union

import numpy as np
import popxl
from popxl_addons import NamedTensors
from popxl_addons.utils import WeightsDict

StateDict = Dict[str, np.ndarray]
Rule = Tuple[Union[str, List[str]], Callable[..., np.ndarray]]


def transposed(weight: np.ndarray) -> np.ndarray:
    """Of a dense layer: (out, in) there, (in, out) here."""
    return np.ascontiguousarray(weight.T)


def same(weight: np.ndarray) -> np.ndarray:
    """As it is."""
    return weight


def map_state(variables: NamedTensors, state: StateDict, rules: Dict[str, Rule]) -> WeightsDict:
    """Data by variable; ``rules`` has for each key the names in ``state`` and a function of their arrays."""
    weights = WeightsDict()
    for key, variable in variables.to_dict().items():
        names, function = rules[key]
        arrays = [state[name] for name in ([names] if isinstance(names, str) else names)]
        data = np.asarray(function(*arrays))
        weights[variable] = np.ascontiguousarray(data).astype(variable.dtype.as_numpy())
    return weights


def load_state(session: popxl.Session, weights: WeightsDict) -> None:
    """Write them."""
    session.write_variables_data(dict(weights.items()))


def random_state(shapes: Dict[str, Tuple[int, ...]], seed: int, scale: float = 0.08) -> StateDict:
    """A state dict such as a downloaded checkpoint would be: normal, norms around one."""
    rng = np.random.default_rng(seed)
    state = {}
    for name in sorted(shapes):
        draw = rng.normal(0, scale, shapes[name])
        is_scale = "norm" in name.lower() and name.endswith("weight")
        state[name] = (draw + 1 if is_scale else draw).astype(np.float32)
    return state
