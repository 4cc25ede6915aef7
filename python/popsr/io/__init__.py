"""Weights in and out: NumPy buffers, and checkpoints as safetensors, ONNX and PyTorch files."""

from typing import TYPE_CHECKING

from popsr._session.weights_io import PyWeightsIO
from popsr._support.lazy import names_only
from popsr._support.text.suggestions import unknown_attribute
from popsr.io._checkpoint import Checkpoint
from popsr.io._load.diff import LoadDiff, LoadEntry
from popsr.io._onnx.read import load_onnx
from popsr.io._onnx.write import save_onnx
from popsr.io._reset import reset_host_weights
from popsr.io._safetensors.read import load_safetensors
from popsr.io._safetensors.write import save_safetensors
from popsr.io._torch.read import load_torch
from popsr.io._torch.write import save_torch

__all__ = [
    "Checkpoint",
    "LoadDiff",
    "LoadEntry",
    "PyWeightsIO",
    "load_onnx",
    "load_safetensors",
    "load_torch",
    "reset_host_weights",
    "save_onnx",
    "save_safetensors",
    "save_torch",
]

if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)

__dir__ = names_only(__all__)
