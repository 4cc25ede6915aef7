"""Proofs about programs that hold a model of ONNX."""

from __future__ import annotations

import sys
from typing import Any

from popsr._support.text.entry_points import public
from popsr.bridge._proof.proof import Proof
from popsr.bridge._proof.prove import step_of
from popsr.bridge._step.step import BridgedStep
from popsr.bridge.onnx._load import load
from popsr.bridge.onnx._model import OnnxModel
from popsr.bridge.onnx._train.training import OnnxTraining

__all__ = ["accepts", "import_step", "prove"]


@public
def prove(model: Any, *, stochastic_rounding: bool = False, **options: Any) -> Proof:
    """Prove which variables stay bitwise equal on which replicas, with the names of ONNX's nodes as places.

    Args:
        model: a model that ``load`` read, with what was added to its program, or its ``train_step``; or a path or a
            ``ModelProto``, which is read here.
        stochastic_rounding: with the seeds of a program whose narrow floats are rounded stochastically.
        options: of ``load``, for a model that is read here.
    Returns:
        The proof; see ``popsr.prove``.
    Raises:
        Error: as ``load`` raises.
    """
    return import_step(model, **options).prove(stochastic_rounding=stochastic_rounding)


@public
def accepts(step: Any) -> bool:
    """True for a model that ``load`` read, a training step of one, and a ``ModelProto``."""
    onnx = sys.modules.get("onnx")
    return isinstance(step, (OnnxModel, OnnxTraining)) or (
        onnx is not None and isinstance(step, onnx.ModelProto)
    )


@public
def import_step(step: Any, **options: Any) -> BridgedStep:
    """The program of a model as a step: its variables are states, its inputs data."""
    return step_of((step if isinstance(step, (OnnxModel, OnnxTraining)) else load(step, **options)).ir)
