"""Output of the examples, and the program of the notebook about replica groupings."""

from __future__ import annotations

import contextlib
import io
import json
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popsr import compat
from tests_py import ROOT
from tests_py.support.needed import need_packages

# Patterns that whole output must have, in order.
PRINTED: dict[str, list[str]] = {
    "sharded_mlp.py": [
        r"float64: loss 0\.6\d+ -> 0\.1\d+",
        "  split by columns, the same bits: True",
        "  trained in parts, relative difference below 1e-12: True",
        r"float32: loss 0\.6\d+ -> 0\.1\d+",
        "  split by columns, the same bits: True",
        "  trained in parts, relative difference below 1e-05: True",
    ],
    "sharded_optimiser.py": [r"loss 0\.6\d+ -> 0\.1\d+", "sharded, the same losses: True"],
    "transformer_parallel.py": [
        "2 replicas: 74 of 74 variables proved, 0 lints",
        "4 replicas: 74 of 74 variables proved, 0 lints",
        r"loss 2\.75\d+ -> 0\.[56]\d+",
        "losses, weights and velocities within 1e-12: True",
    ],
    "popart_builder.py": [
        r"loss \d\.\d\d -> 0\.0000\d\d",
        "group 0: 1.00, -2.00, 3.00",
        "group 1: -1.00, 0.50, 2.00",
        "restored: True",
    ],
    "two_ipus.py": [
        "hidden is on 0 and y on 1",
        r"refused: matmul: .*",
        "the same on all replicas: True",
        re.escape("y: {0}{1}{2}{3} mean: {0,1,2,3}"),
    ],
    "popxl/tensor_parallel.py": [
        re.escape(line)
        for line in (
            "sharded weight shape:  (2, 2)",
            "y shard shape:  (2,)",
            "y full shape:  (4,)",
            "replica groupings in factories: ",
            "NamedReplicaGrouping({",
            "weight: ReplicaGrouping(num_replicas=4, stride=2, group_size=2, num_groups=2),",
            "})",
            "assignment for weight: ",
            "[0, 1, 0, 1]",
        )
    ],
    "popxl/mnist.py": [
        re.escape(
            "global_batch_size = 8 * 4 * 2 = 64  # micro_batch_size * gradient_accumulation * data_parallel"
        ),
        *(rf"epoch {i}: loss \d\.\d{{4}}" for i in range(1, 6)),
        r"test accuracy: 9[5-9]\.\d\d %",
    ],
}

BLOCKS = "".join(
    f"{title}_replica_{replica}: {text}\n\n"
    for title, texts in {
        "w_shards": ["[\n [1.0 1.0]\n [1.0 1.0]\n]", "[\n [2.0 2.0]\n [2.0 2.0]\n]"] * 2,
        "y_shards": ["[2.0 2.0]", "[4.0 4.0]"] * 2,
        "y_full": ["[2.0 2.0 4.0 4.0]"] * 4,
    }.items()
    for replica, text in enumerate(texts)
)


def run(example: str, folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """An example; those with PopXL's names through ``python -m popsr run``."""
    command = ["-m", "popsr", "run"] if example.startswith("popxl/") else []
    return subprocess.run(
        [sys.executable, *command, str(ROOT / "examples" / example), *args],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=300,
    )


@pytest.mark.parametrize("example", PRINTED)
def test_examples_print_what_they_promise(example: str, tmp_path: Path) -> None:
    need_packages((ROOT / "examples" / example).read_text())
    if example == "popxl/mnist.py":  # its module of data imports it
        pytest.importorskip("sklearn")
    result = run(example, tmp_path)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == len(PRINTED[example]), result.stdout
    for line, pattern in zip(lines, PRINTED[example], strict=True):
        assert re.fullmatch(pattern, line), line
    assert result.stderr == (BLOCKS if example == "popxl/tensor_parallel.py" else "")


@pytest.mark.parametrize(
    "options", [["--gradient-accumulation", "1"], ["--data-parallel", "1", "--reset", "scale"]]
)
def test_variants_of_the_training_program(options: list[str], tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    result = run("popxl/mnist.py", tmp_path, "--hidden", "64", "--epochs", "4", *options)
    assert result.returncode == 0, result.stderr
    [percent] = re.findall(r"test accuracy: (\d+\.\d+) %", result.stdout)
    assert float(percent) > 90


def write_idx(folder: Path) -> None:
    """A small data set in the files that fashion-MNIST has."""
    rng = np.random.default_rng(0)
    for prefix, count in (("train", 70), ("t10k", 20)):
        for what, shape in (("images-idx3", (count, 4, 4)), ("labels-idx1", (count,))):
            header = struct.pack(f">4B{len(shape)}I", 0, 0, 8, len(shape), *shape)
            data = rng.integers(0, 10, shape, dtype=np.uint8).tobytes()
            (folder / f"{prefix}-{what}-ubyte").write_bytes(header + data)


def test_the_training_program_takes_idx_files(tmp_path: Path) -> None:
    write_idx(tmp_path)
    options = ["--data", str(tmp_path), "--hidden", "8", "--epochs", "1"]
    result = run("popxl/mnist.py", tmp_path, *options)
    assert result.returncode == 0, result.stderr
    assert re.search(r"epoch 1: loss \d\.\d{4}\ntest accuracy: \d+\.\d\d %\n$", result.stdout)
    result = run("popxl/mnist.py", tmp_path, *options, "--data-parallel", "4")
    assert result.returncode == 2
    assert result.stderr.endswith("error: too few images for one update, got 70\n")


def test_the_notebook_prints_what_it_shows() -> None:
    """Its cells in one process, through ``sys.stdout`` and ``sys.stderr``, against the outputs it was saved with."""
    cells = json.loads((ROOT / "examples/replica_grouping.ipynb").read_text())["cells"]
    names: dict[str, Any] = {}
    try:
        for cell in cells:
            if cell["cell_type"] != "code":
                continue
            saved = {output["name"]: "".join(output["text"]) for output in cell["outputs"]}
            with (
                contextlib.redirect_stdout(io.StringIO()) as out,
                contextlib.redirect_stderr(io.StringIO()) as err,
            ):
                exec("".join(cell["source"]), names)
            assert out.getvalue() == saved.get("stdout", "")
            assert err.getvalue() == saved.get("stderr", "")
    finally:
        compat.uninstall()
    assert names["variables"].weight.shape_on_host == (2, 2, 2)
