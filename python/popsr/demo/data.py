"""Images of digits: scikit-learn's 1,797 real scans, or a folder of IDX files as MNIST's."""

import gzip
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Dataset:
    """Images in [0, 1], one row each, and their classes 0..9. The split never changes."""

    name: str
    x_train: Floats
    y_train: Ints
    x_test: Floats
    y_test: Ints

    @property
    def features(self) -> int:
        """Pixels of an image."""
        return int(self.x_train.shape[1])


def digits() -> Dataset:
    """Scikit-learn's digits: 8x8 pixels, 1,437 images to train with and 360 to test with."""
    from sklearn.datasets import load_digits

    pixels, classes = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(pixels))
    x = (pixels[order] / 16).astype(np.float32)
    y = classes[order].astype(np.int32)
    return Dataset("digits", x[:1437], y[:1437], x[1437:], y[1437:])


def idx_folder(folder: Path, limit: int) -> Dataset:
    """The first ``limit`` training and test images of a folder with the four files of MNIST.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is not what its name says.
    """
    parts = {}
    for part, prefix in (("train", "train"), ("test", "t10k")):
        images = _read_idx(_find(folder, f"{prefix}-images", 3), 3, limit)
        labels = _read_idx(_find(folder, f"{prefix}-labels", 1), 1, limit)
        if len(images) != len(labels):
            raise ValueError(f"{folder}: {len(images)} {part} images, but {len(labels)} labels")
        if labels.size == 0 or labels.max() > 9:
            raise ValueError(f"{folder}: {part} labels must be 0..9 and at least one")
        parts[part] = (
            images.reshape(len(images), -1).astype(np.float32) / np.float32(255),
            labels.astype(np.int32),
        )
    if parts["train"][0].shape[1] != parts["test"][0].shape[1]:
        raise ValueError(f"{folder}: train and test images differ in size")
    return Dataset(folder.name, *parts["train"], *parts["test"])


def _find(folder: Path, stem: str, rank: int) -> Path:
    for name in (f"{stem}-idx{rank}-ubyte", f"{stem}.idx{rank}-ubyte"):
        for suffix in ("", ".gz"):
            if (path := folder / (name + suffix)).is_file():
                return path
    raise FileNotFoundError(f"{folder}: no file {stem}-idx{rank}-ubyte or {stem}-idx{rank}-ubyte.gz")


def _read_idx(path: Path, rank: int, limit: int) -> npt.NDArray[np.uint8]:
    """The first ``limit`` rows. IDX: 0, 0, type (8 = bytes), rank, big-endian sizes, then the bytes."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            header = _read_exactly(file, 4 + 4 * rank, path)
            if header[:4] != bytes((0, 0, 8, rank)):
                raise ValueError(f"{path}: not an IDX file of bytes with {rank} axes")
            sizes = struct.unpack(f">{rank}I", header[4:])
            shape = (min(sizes[0], limit), *sizes[1:])
            if math.prod(shape) > 2**31:
                raise ValueError(f"{path}: the header asks for {math.prod(shape)} bytes, more than 2 GiB")
            data = np.frombuffer(_read_exactly(file, math.prod(shape), path), np.uint8).reshape(shape)
            if shape[0] == sizes[0] and file.read(1):  # also makes gzip compare its checksum
                raise ValueError(f"{path}: goes on after the {data.size} bytes that its header announces")
            return data
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path}: not a complete gzip file") from error


def _read_exactly(file: Any, size: int, path: Path) -> bytes:
    data: bytes = file.read(size)
    if len(data) != size:
        raise ValueError(f"{path}: ends early, got {len(data)} bytes, expected {size}")
    return data
