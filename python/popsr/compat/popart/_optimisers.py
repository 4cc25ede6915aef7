"""Optimisers as PopART's programs make them: values by name, with one set for all weights and others for some."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, NamedTuple

from popsr._support.host.arguments import (
    is_a,
    read_a,
    read_bool,
    read_items,
    read_mapping,
    read_number,
    read_text,
)
from popsr._support.host.choices import Choices
from popsr._support.text.nearest import nearest
from popsr._support.text.shown import shown
from popsr.compat._objects.types import DataType
from popsr.errors import ArgumentTypeError, AttributeValueError, UnknownNameError

__all__ = [
    "SGD",
    "Adam",
    "AdamMode",
    "Adaptive",
    "AdaptiveMode",
    "ClipNormSettings",
    "ConstSGD",
    "Optimizer",
    "OptimizerValue",
    "SGDAccumulatorAndMomentum",
    "WeightDecayMode",
]


class AdamMode(Choices):
    """Formula of ``Adam``."""

    Adam = 0
    AdamNoBias = 1
    AdaMax = 2
    Lamb = 3
    LambNoBias = 4


class AdaptiveMode(Choices):
    """Formula of ``Adaptive``."""

    AdaGrad = 0
    RMSProp = 1
    CenteredRMSProp = 2
    AdaDelta = 3


class WeightDecayMode(Choices):
    """Decay of weights beside the step, or as a part of the gradient."""

    Decay = 0
    L2Regularization = 1


class SGDAccumulatorAndMomentum(Choices):
    """Storage of gradients and momentum; without effect here: the results are the same."""

    Combined = 0
    Separate = 1


_WITHOUT_EFFECT = ("accumulatorAndMomentum", "accum_type", "accumType", "accl1Type", "scaled_optimizer_state")


class OptimizerValue(NamedTuple):
    """A number, and whether it stays as it is."""

    val: float = 0.0
    isConst: bool = True


class ClipNormSettings:
    """Weights whose gradients are scaled together so that their norm is at most a number."""

    def __init__(self, weightIds: Iterable[str] | None, maxNorm: float) -> None:
        """Settings; without ids all weights."""
        where = "ClipNormSettings"
        given = () if weightIds is None else read_items(where, "weightIds", weightIds, kind="ids")
        self.weightIds = None if weightIds is None else list(given)
        self.maxNorm = read_number(f"{where}: maxNorm", maxNorm)
        if not self.maxNorm > 0:
            raise AttributeValueError(f"{where}: maxNorm: got {self.maxNorm}, expected a number above 0")

    @staticmethod
    def clipAllWeights(maxNorm: float) -> ClipNormSettings:
        """All weights together."""
        return ClipNormSettings(None, maxNorm)

    @staticmethod
    def clipWeights(weightIds: Iterable[str], maxNorm: float) -> ClipNormSettings:
        """These weights together."""
        return ClipNormSettings(weightIds, maxNorm)

    def _key(self) -> tuple[Any, ...]:
        return self.weightIds and tuple(self.weightIds), self.maxNorm


class Optimizer:
    """Values by name for all weights, and other values for some.

    Args:
        values: values by name, such as ``{"defaultLearningRate": (0.1, False)}``: a number, or a pair of a number and
            whether it is constant. Others have the class's defaults.
        clip_norm_settings: see ``ClipNormSettings``.
    """

    _defaults: ClassVar[dict[str, float]] = {}
    """Default values by name in lower camel case, as ``insertSpecific`` takes them."""
    values: Mapping[str, Any]
    clip_norm_settings: Iterable[ClipNormSettings]

    def __init__(
        self, values: Mapping[str, Any], clip_norm_settings: Iterable[ClipNormSettings] = ()
    ) -> None:
        """An optimiser.

        Raises:
            UnknownNameError: a name that it does not have.
            ArgumentTypeError: a value of another type.
            AttributeValueError: a scaling of 0.
        """
        self._where = type(self).__name__
        self._values = {
            name: OptimizerValue(value) for name, value in {**self._defaults, "lossScaling": 1.0}.items()
        }
        names = {f"default{name[0].upper()}{name[1:]}": name for name in self._defaults}
        names |= {name: name for name in ("lossScaling", "maxWeightNorm") if name in self._values}
        for key, value in read_mapping(self._where, "values", values).items():
            if is_a(key, str) and key == "nesterov":
                continue
            name = self._name(key, names)  # first: the key may have no text
            self._values[name] = read = _value(f"{self._where}: {key}", value)
            if read.val == 0 and name in ("lossScaling", "velocityScaling"):  # results are divided by these
                raise AttributeValueError(f"{self._where}: {key}: got 0, expected another number")
        self._specific: dict[str, dict[str, OptimizerValue]] = {}
        self._clips = [
            read_a(f"{self._where}: clip_norm_settings", each, ClipNormSettings)
            for each in read_items(self._where, "clip_norm_settings", clip_norm_settings)
        ]

    def __post_init__(self) -> None:
        """Read the parameters of a subclass, which is a dataclass of them."""
        Optimizer.__init__(self, self.values, self.clip_norm_settings)
        for name, default in self._parameters().items():
            what, value = f"{self._where}: {name}", getattr(self, name)
            is_flag = isinstance(default, bool)
            setattr(self, name, read_bool(what, value) if is_flag else read_a(what, value, type(default)))

    @classmethod
    def _parameters(cls) -> dict[str, Any]:
        """Defaults of the parameters beside the values and their norms."""
        kind: Any = cls  # the base class is none
        known = fields(kind) if is_dataclass(kind) else ()
        return {
            each.name: each.default for each in known if each.name not in ("values", "clip_norm_settings")
        }

    def _form(self) -> tuple[Any, ...]:
        """The parameters that choose a formula, or the type of a state."""
        return tuple(getattr(self, name) for name in self._parameters() if name not in _WITHOUT_EFFECT)

    def _name(self, key: Any, names: Mapping[str, str]) -> str:
        if not is_a(key, str) or key not in names:
            close = nearest(key, names) if is_a(key, str) else ""
            raise UnknownNameError(
                f"{self._where}: unknown value, got {shown(key)}, expected {close or shown(list(names))}"
            )
        return names[key]

    def insertSpecific(self, id: str, values: Mapping[str, Any]) -> None:
        """Values for one weight, by name without ``default``, such as ``{"learningRate": (0.01, True)}``."""
        where = f"{self._where}.insertSpecific"
        names = {name: name for name in self._defaults}
        read = {
            self._name(key, names): _value(f"{where}: {key}", value)
            for key, value in read_mapping(where, "values", values).items()
        }
        self._specific.setdefault(read_text(f"{where}: id", id), {}).update(read)

    def value(self, name: str, id: str) -> OptimizerValue:
        """A value for a weight.

        Raises:
            UnknownNameError: a name that it does not have.
        """
        name = self._name(name, {each: each for each in self._values})
        own = self._specific.get(read_text(f"{self._where}.value: id", id), {})
        return own.get(name, self._values[name])

    def tensor_name(self, name: str, id: str) -> str:
        """Id of the tensor that holds a value which may change.

        Raises:
            ArgumentTypeError: not texts.
        """
        name, id = (read_text(f"{self._where}.tensor_name", each) for each in (name, id))
        if name in self._specific.get(id, {}):
            return f"{name}___specific___FLOAT___{id}"
        return f"{name}___default___FLOAT"

    def numbers(self) -> dict[str, float]:
        """The values that may change, by id of their tensor."""
        found = {f"{n}___default___FLOAT": v.val for n, v in self._values.items() if not v.isConst}
        for id_, values in self._specific.items():
            found |= {self.tensor_name(n, id_): v.val for n, v in values.items() if not v.isConst}
        return found

    def structure(self) -> tuple[Any, ...]:
        """The parts that may not change."""
        scopes = {"": self._values, **self._specific}
        fixed = [
            (id_, n, v.val) for id_, values in scopes.items() for n, v in sorted(values.items()) if v.isConst
        ]
        clips = [each._key() for each in self._clips]
        return self._where, fixed, sorted(self.numbers()), clips, self._form()


@dataclass(eq=False, repr=False)
class SGD(Optimizer):
    """Stochastic gradient descent with momentum.

    For the gradient g, divided by ``lossScaling``: v becomes ``momentum * v + (1 - dampening) * (g + weightDecay *
    w)``, and w ``w - learningRate * v``; with ``nesterov``, ``w - learningRate * (g + weightDecay * w + momentum *
    v)``. Parameters: see ``Optimizer``; ``nesterov`` is a bool, or its pair.
    """

    _defaults: ClassVar[dict[str, float]] = {
        "learningRate": 0.1,
        "weightDecay": 0.0,
        "momentum": 0.0,
        "dampening": 0.0,
        "velocityScaling": 1.0,
    }

    values: Mapping[str, Any]
    clip_norm_settings: Sequence[ClipNormSettings] = ()
    accumulatorAndMomentum: SGDAccumulatorAndMomentum = SGDAccumulatorAndMomentum.Combined
    accum_type: Any = DataType.UNDEFINED
    accl1_type: Any = DataType.UNDEFINED
    accumType: Any = DataType.UNDEFINED  # SGD's own spelling of both
    accl1Type: Any = DataType.UNDEFINED

    def __post_init__(self) -> None:
        """Read the parameters."""
        super().__post_init__()
        if self.accl1Type is not DataType.UNDEFINED:
            self.accl1_type = self.accl1Type
        given: Any = self.values.get("nesterov", False) if self.values else False
        self.nesterov = read_bool("SGD: nesterov", given[0] if is_a(given, (tuple, list)) else given)

    def _form(self) -> tuple[Any, ...]:
        return self.nesterov, *super()._form()


class ConstSGD(SGD):
    """Stochastic gradient descent whose values stay."""

    def __init__(
        self,
        learning_rate: float,
        weight_decay: float = 0.0,
        loss_scaling: float = 1.0,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
    ) -> None:
        """See ``SGD``."""
        given = {
            "defaultLearningRate": learning_rate,
            "defaultWeightDecay": weight_decay,
            "lossScaling": loss_scaling,
        }
        super().__init__(given, clip_norm_settings)


@dataclass(eq=False, repr=False)
class Adam(Optimizer):
    """Adam, AdaMax and LAMB, as ``popsr.ops.var_updates.adam_updater`` and its kin compute them.

    Parameters: see ``Optimizer``.
    """

    _defaults: ClassVar[dict[str, float]] = {
        "learningRate": 1e-3,
        "weightDecay": 0.0,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-6,
        "maxWeightNorm": 10.0,
    }

    values: Mapping[str, Any]
    mode: AdamMode = AdamMode.Adam
    weight_decay_mode: WeightDecayMode = WeightDecayMode.Decay
    accum_type: Any = DataType.UNDEFINED
    accl1_type: Any = DataType.FLOAT
    accl2_type: Any = DataType.FLOAT
    clip_norm_settings: Sequence[ClipNormSettings] = ()
    scaled_optimizer_state: bool = False


@dataclass(eq=False, repr=False)
class Adaptive(Optimizer):
    """AdaGrad, RMSProp with or without centring, and AdaDelta, with momentum where it is not 0.

    Parameters: see ``Optimizer``. With ``rmsprop_tf_variant``, for RMSProp with or without centring, as in TensorFlow:
    the average of squares begins at 1, eps is added under the root, and the momentum is of steps times their rate.
    """

    _defaults: ClassVar[dict[str, float]] = {
        "learningRate": 1e-3,
        "weightDecay": 0.0,
        "alpha": 0.99,
        "momentum": 0.0,
        "eps": 1e-6,
    }

    values: Mapping[str, Any]
    mode: AdaptiveMode = AdaptiveMode.RMSProp
    weight_decay_mode: WeightDecayMode = WeightDecayMode.Decay
    accum_type: Any = DataType.UNDEFINED
    accl1_type: Any = DataType.FLOAT
    accl2_type: Any = DataType.FLOAT
    accl3_type: Any = DataType.FLOAT
    rmsprop_tf_variant: bool = False
    clip_norm_settings: Sequence[ClipNormSettings] = ()

    def __post_init__(self) -> None:
        """Read the parameters."""
        super().__post_init__()
        kinds = (AdaptiveMode.RMSProp, AdaptiveMode.CenteredRMSProp)
        if self.rmsprop_tf_variant and self.mode not in kinds:
            raise AttributeValueError(
                f"Adaptive: rmsprop_tf_variant with another mode, got {self.mode.name}, expected RMSProp or "
                "CenteredRMSProp"
            )


def _value(what: str, value: Any) -> OptimizerValue:
    if is_a(value, (tuple, list)):
        if len(value) != 2:
            raise ArgumentTypeError(
                f"{what} is not a value, got {shown(value)}, expected a number and a bool"
            )
        return OptimizerValue(read_number(what, value[0]), read_bool(what, value[1]))
    return OptimizerValue(read_number(what, value), True)
