"""Small ONNX models whose numbers ask for much."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests_py.support.limits import Row

HUGE, EXTENT = 1 << 40, (1 << 31) - 1


def model(
    nodes: list[Any],
    shape: tuple[int, ...] = (2, 3),
    outputs: tuple[str, ...] = ("y",),
    known: dict[str, Any] | None = None,
    opset: int = 20,
) -> Any:
    """A model of an input x of float32; ``known`` are initializers."""
    from onnx import helper, numpy_helper

    return helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", 1, shape)],
            [helper.make_empty_tensor_value_info(each) for each in outputs],
            [numpy_helper.from_array(np.asarray(each), name) for name, each in (known or {}).items()],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
    )


def node(kind: str, *inputs: str, outputs: tuple[str, ...] = ("y",), **attributes: Any) -> Any:
    """A node that makes y."""
    from onnx import helper

    return helper.make_node(kind, list(inputs), list(outputs), **attributes)


def numbers(*values: int) -> Any:
    """Numbers of int64."""
    return np.asarray(values, np.int64)


def loop(times: int) -> Any:
    """A loop whose body has no node."""
    from onnx import helper

    info = [helper.make_tensor_value_info(*each) for each in (("i", 7, ()), ("c", 9, ()), ("v", 1, (2, 3)))]
    body = helper.make_graph([], "b", info, [info[1], info[2]])
    return model([node("Loop", "n", "", "x", body=body)], known={"n": np.int64(times)})


def chain(count: int) -> Any:
    """Values that are known, each of 2^18 elements."""
    start = node("ConstantOfShape", "n", outputs=("v0",))
    more = [node("Add", f"v{i}", f"v{i}", outputs=(f"v{i + 1}",)) for i in range(count)]
    return model([start, *more, node("Add", "x", f"v{count}")], (1,), known={"n": numbers(1 << 18)})


MODELS: dict[str, tuple[Callable[[], Any], str]] = {
    "split-num_outputs": (lambda: model([node("Split", "x", num_outputs=HUGE)]), "num_outputs 1099511627776"),
    "split-no-outputs": (lambda: model([node("Split", "x", num_outputs=0)]), "num_outputs 0"),
    "split-negative": (lambda: model([node("Split", "x", num_outputs=-3)]), "num_outputs -3"),
    "split-sizes": (
        lambda: model([node("Split", "x", "n")], (1 << 20, 1), known={"n": np.ones(1 << 20, np.int64)}),
        "elements split in",
    ),
    "split-to-sequence": (
        lambda: model([node("SplitToSequence", "x", outputs=("s",)), node("SequenceLength", "s")], (EXTENT,)),
        "parts",
    ),
    "split-to-sequence-of-one": (
        lambda: model(
            [node("SplitToSequence", "x", "n", outputs=("s",)), node("SequenceLength", "s")],
            (EXTENT,),
            known={"n": np.int64(1)},
        ),
        "parts",
    ),
    "split-to-sequence-of-none": (
        lambda: model(
            [node("SplitToSequence", "x", "n", outputs=("s",)), node("SequenceLength", "s")],
            known={"n": np.int64(0)},
        ),
        "split of 0",
    ),
    "constant-of-shape": (
        lambda: model([node("ConstantOfShape", "n")], known={"n": numbers(HUGE, HUGE)}),
        "tensor is too big",
    ),
    "constant-of-shape-empty": (
        lambda: model([node("ConstantOfShape", "n")], known={"n": numbers(0, 1 << 62)}),
        "array is too big",
    ),
    "constant-of-shape-rank": (
        lambda: model([node("ConstantOfShape", "n")], known={"n": np.ones(10**5, np.int64)}),
        "maximum supported dimension",
    ),
    "range": (
        lambda: model(
            [node("Range", *"abc")], known={"a": np.int64(0), "b": np.int64(HUGE), "c": np.int64(1)}
        ),
        "elements",
    ),
    "range-of-floats": (
        lambda: model(
            [node("Range", *"abc")],
            known={"a": np.float32(0), "b": np.float32(1e30), "c": np.float32(1e-30)},
        ),
        "elements",
    ),
    "expand": (
        lambda: model([node("Expand", "x", "n")], (1,), known={"n": numbers(HUGE, HUGE)}),
        "too large",
    ),
    "tile": (lambda: model([node("Tile", "x", "n")], (1,), known={"n": numbers(HUGE)}), ""),
    "tile-known": (lambda: model([node("Tile", "n", "n")], known={"n": numbers(HUGE)}), ""),
    "one-hot": (
        lambda: model(
            [node("OneHot", "i", "n", "v")],
            known={"i": numbers(1), "n": np.int64(HUGE), "v": np.array([0, 1], np.float32)},
        ),
        "elements that are known",
    ),
    "pad": (lambda: model([node("Pad", "x", "n")], (1,), known={"n": numbers(HUGE, HUGE)}), ""),
    "eye": (lambda: model([node("EyeLike", "x")], (1 << 20, 1 << 20)), "elements that are known"),
    "trilu": (lambda: model([node("Trilu", "x")], (1 << 20, 1 << 20)), "elements that are known"),
    "resize": (
        lambda: model(
            [node("Resize", "x", "", "", "n", mode="linear")], (1, 1), known={"n": numbers(1, HUGE)}
        ),
        "elements that are known",
    ),
    "max-pool": (
        lambda: model([node("MaxPool", "x", kernel_shape=[1 << 30], outputs=("y", "z"))], (1, 1, EXTENT)),
        "elements that are known",
    ),
    "average-pool": (
        lambda: model([node("AveragePool", "x", kernel_shape=[1 << 30], pads=[1, 1])], (1, 1, EXTENT)),
        "",
    ),
    "max-pool-indices": (
        lambda: model([node("MaxPool", "x", kernel_shape=[2], outputs=("y", "z"))], (1, 1, 1 << 28)),
        "elements that are known",
    ),
    "col2im": (
        lambda: model(
            [node("Col2Im", "x", "n", "k")], (1, 4, 9), known={"n": numbers(EXTENT), "k": numbers(4)}
        ),
        "elements that are known",
    ),
    "einsum-diagonal": (
        lambda: model([node("Einsum", "x", equation="ii->i")], (1 << 30, 1 << 30)),
        "elements that are known",
    ),
    "loop": (lambda: loop(HUGE), ""),
    "scan-8": (
        lambda: model([node("Scan", "", "x", num_scan_inputs=1, body=scan_body())], (EXTENT, 2, 3), opset=8),
        "samples, more than",
    ),
    "known-values": (lambda: chain(2000), "bytes of values that are known"),
    "cumsum": (lambda: model([node("CumSum", "x", "n")], (EXTENT,), known={"n": np.int64(0)}), ""),
    "depth-to-space": (
        lambda: model([node("DepthToSpace", "x", blocksize=HUGE)], (1, 4, 2, 2)),
        "extent that is not positive",
    ),
    "hann-window": (lambda: model([node("HannWindow", "n")], known={"n": np.int64(HUGE)}), "elements"),
    "dft": (lambda: model([node("DFT", "x", "n")], (1, 2, 1), known={"n": np.int64(HUGE)}), ""),
    "unsqueeze": (
        lambda: model([node("Unsqueeze", "x", "n")], known={"n": np.arange(10**5, dtype=np.int64)}),
        "too many dimensions",
    ),
    "topk": (
        lambda: model([node("TopK", "x", "n", outputs=("y", "z"))], known={"n": numbers(HUGE)}),
        "elements",
    ),
}


def scan_body() -> Any:
    """A body that gives its row."""
    from onnx import helper

    info = helper.make_tensor_value_info("r", 1, (3,))
    return helper.make_graph([], "b", [info], [info])


def read(path: Path) -> None:
    """Read the model."""
    from popsr.bridge.onnx import load

    load(path / "m.onnx")


def write(make: Callable[[], Any]) -> Callable[[Path], object]:
    """The function that writes the model."""
    return lambda path: (path / "m.onnx").write_bytes(make().SerializeToString())


def unrolled(path: Path) -> None:
    """Read the model with its loops unrolled."""
    from popsr.bridge.onnx import load

    load(path / "m.onnx", unroll=True)


ROWS = {
    "loop-unrolled": Row(write(lambda: loop(HUGE)), unrolled, "passes"),
    "scan-8-unrolled": Row(write(MODELS["scan-8"][0]), unrolled, "samples, more than"),
    **{name: Row(write(make), read, match) for name, (make, match) in MODELS.items()},
}
