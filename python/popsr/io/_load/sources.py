"""The file formats of checkpoints: which one a file has."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from popsr.io._onnx.read import open_onnx
from popsr.io._safetensors.read import open_safetensors
from popsr.io._stored import StoredFile
from popsr.io._torch.read import TORCH_SUFFIXES, open_torch

__all__ = ["open_checkpoint"]


def open_checkpoint(where: str, path: Path) -> AbstractContextManager[StoredFile]:
    """The checked contents of a file: of safetensors or PyTorch by its suffix, else an ONNX model."""
    if path.suffix == ".safetensors":
        return open_safetensors(where, path)
    if path.suffix in TORCH_SUFFIXES:
        return open_torch(where, path)
    return open_onnx(where, path)
