"""State dicts that torch's own optimisers saved, as those of popsr's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch

from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError

__all__ = ["Decay", "adopted", "as_counter"]

Decay = Literal["decoupled", "L2"]
"""Forms of weight decay: of the weights, or added to the gradient."""

_WITHOUT_EFFECT = ("foreach", "fused", "capturable", "differentiable")
"""Options of torch's optimisers that choose between ways to the same step."""


def adopted(
    name: str,
    groups: list[dict[str, Any]],
    state_dict: dict[str, Any],
    names: Mapping[str, str],
    moments: torch.dtype,
    decay: Decay | None,
) -> dict[str, Any]:
    """A state dict that popsr's optimiser loads; one that it saved is returned as it is.

    Args:
        name: of the optimiser, in errors.
        groups: of the optimiser that loads; they say what torch's do not, as the seed.
        state_dict: what is loaded.
        names: of the tensors of a state in torch, and in popsr.
        moments: dtype of moments here; narrower ones become it, exactly.
        decay: the form of it, where torch has both in one class.
    Raises:
        AttributeValueError: it is of another optimiser of torch, or its groups have options that are missing here.
    """
    saved = state_dict["param_groups"]
    if all("seed" in group for group in saved):
        return state_dict
    new = [
        _group(name, own, group, decay) if "seed" not in group else group
        for own, group in zip(groups, saved, strict=False)
    ]
    states = {
        number: _state(name, state, names, moments) if isinstance(state, dict) else state
        for number, state in state_dict["state"].items()
    }
    return {**state_dict, "param_groups": new + saved[len(new) :], "state": states}


def as_counter(step: Any) -> torch.Tensor:
    """A number of steps as ``step`` of a state, which compiled steps count without compiling again."""
    return torch.tensor(int(step), dtype=torch.int64, device="cpu")


def _group(name: str, own: dict[str, Any], saved: dict[str, Any], decay: Decay | None) -> dict[str, Any]:
    """The options that were saved, and those of this optimiser that were not."""
    if decay is not None and saved.get("weight_decay"):
        got = "decoupled" if saved.get("decoupled_weight_decay", decay == "decoupled") else "L2"
        if got != decay:
            raise AttributeValueError(
                f"{name}.load_state_dict: weight decay is another, got {got}, expected {decay}: load it into "
                f"{'AdamW' if got == 'decoupled' else 'Adam'}"
            )
    taken = {key: value for key, value in saved.items() if key not in _WITHOUT_EFFECT}
    return {key: value for key, value in own.items() if key not in ("params", "param_names")} | taken


def _state(
    name: str, state: dict[str, Any], names: Mapping[str, str], moments: torch.dtype
) -> dict[str, Any]:
    """A parameter's state under popsr's names."""
    found: dict[str, Any] = {}
    for key, value in state.items():
        if key == "step":
            found[key] = as_counter(value)
        elif value is None:
            continue  # torch's SGD without momentum
        elif key not in names:
            raise AttributeValueError(
                f"{name}.load_state_dict: the state of a parameter has {shown(key)}, expected "
                f"{', '.join(['step', *names])}: it is of another optimiser"
            )
        elif not isinstance(value, torch.Tensor):
            raise ArgumentTypeError(
                f"{name}.load_state_dict: {shown(key)} of a state is not a tensor, got {shown(value)}"
            )
        else:
            wide = torch.promote_types(value.dtype, moments) == moments
            found[names[key]] = value.to(moments) if wide else value
    return found
