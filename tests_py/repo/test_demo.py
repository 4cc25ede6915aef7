"""The demo and the examples: they run, print what they promise, and refuse bad files."""

import gzip
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popsr import demo
from popsr.demo.data import idx_folder
from tests_py import ROOT
from tests_py.repo.documentation import test_examples
from tests_py.support.needed import need_packages


@pytest.fixture
def idx(tmp_path: Path) -> Any:
    """A small folder of IDX files, half of them compressed."""
    rng = np.random.default_rng(0)
    for prefix, count, suffix in (("train", 70, ""), ("t10k", 20, ".gz")):
        for what, shape in (("images-idx3", (count, 4, 4)), ("labels-idx1", (count,))):
            values = rng.integers(0, 10, shape, dtype=np.uint8)
            data = struct.pack(f">4B{len(shape)}I", 0, 0, 8, len(shape), *shape) + values.tobytes()
            name = f"{prefix}-{what}-ubyte{suffix}"
            (tmp_path / name).write_bytes(gzip.compress(data) if suffix else data)
    return tmp_path


def needs_examples() -> None:
    for module in ("sklearn", "matplotlib", "tqdm"):
        pytest.importorskip(module)


@pytest.mark.filterwarnings("default")
def test_quick_demo_on_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs_examples()
    figure = tmp_path / "curves.png"
    assert demo.main(["--quick", "--lrs", "0.1", "--tables", "--out", str(figure)]) == 0
    out = capsys.readouterr().out
    assert re.search(r"lr 0\.1 +test accuracy, % +\d+\.\d\d ± \d+\.\d\d", out)
    for line in ("w0: {0,1,2,3} ", "x: {0}{1}{2}{3} ", "dw0: {0}{1}{2}{3} ", "mean_dw0: {0,1,2,3} "):
        assert line in out
    *_, drift, where, advice, kept, _, rates, _ = out.splitlines()
    assert drift.endswith("6 of 6 weights and biases drift")
    at = f"model.py:{model_line('ops.repeat(ir.create_graph(step')}"
    assert f"w0: declared {{0,1,2,3}}, proved {{0}}{{1}}{{2}}{{3}}; written at {at}, since" in where
    assert f"before model.py:{model_line('ops.scaled_add_')}, or 'mean'" in advice
    assert "0 of 6 drift; check: passed" in kept
    assert re.search(r"fp32 [\d.]+ %, bf16 nearest [\d.]+ % \(\w+, [\d.]+x\), bf16 stochastic", rates)
    assert figure.read_bytes().startswith(b"\x89PNG")


def model_line(text: str) -> int:
    """The line of the demo's program that has a text."""
    lines = (ROOT / "python/popsr/demo/model.py").read_text().splitlines()
    return next(i for i, line in enumerate(lines, 1) if text in line)


@pytest.mark.filterwarnings("default")
def test_quick_demo_on_idx_files(idx: Any, capsys: pytest.CaptureFixture[str]) -> None:
    needs_examples()
    out = ["--quick", "--lrs", "0.1", "--out", str(idx / "c.png")]
    assert demo.main(["--data", str(idx), *out]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "70 images to train, 20 to test; 16-128-128-10 network" in lines[0]
    assert len(lines) <= 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "0"], "at least 1"),
        (["--keys", "1,1"], "--keys must differ"),
        (["--lrs", "-1"], "positive"),
        (["--lrs", "nan"], "positive"),
        (["--lrs", "a"], "invalid list of float value"),
        (["--out", "no/such/folder.png"], "there is no folder"),
    ],
)
def test_bad_options(arguments: Any, message: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        demo.main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def broken(data: bytes, *, cut: int = 0, magic: int = 8) -> bytes:
    return (data[:2] + bytes([magic]) + data[3:])[: len(data) - cut]


@pytest.mark.parametrize(
    ("file", "change", "error", "message"),
    [
        ("train-images-idx3-ubyte", None, FileNotFoundError, "no file train-images-idx3-ubyte"),
        ("train-images-idx3-ubyte", {"cut": 1}, ValueError, "ends early, got 1119 bytes, expected 1120"),
        ("train-images-idx3-ubyte", {"cut": 1130}, ValueError, "ends early, got 6 bytes, expected 16"),
        ("train-images-idx3-ubyte", {"magic": 13}, ValueError, "not an IDX file of bytes with 3 axes"),
        ("t10k-labels-idx1-ubyte.gz", {"cut": 4}, ValueError, "not a complete gzip file"),
        ("t10k-labels-idx1-ubyte.gz", {"magic": 0xFF}, ValueError, "gzip|IDX|compress"),
    ],
)
def test_bad_idx_files_are_refused(idx: Any, file: Any, change: Any, error: Any, message: Any) -> None:
    path = idx / file
    if change is None:
        path.unlink()
    else:
        path.write_bytes(broken(path.read_bytes(), **change))
    with pytest.raises(error, match=message):
        idx_folder(idx, 100)


def test_idx_header_cannot_ask_for_all_memory(idx: Any) -> None:
    path = idx / "train-images-idx3-ubyte"
    path.write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, 2**31, 2**31, 2**31))
    with pytest.raises(ValueError, match="more than 2 GiB"):
        idx_folder(idx, 10**9)


EXAMPLES = [
    path for path in sorted((ROOT / "examples").glob("*.py")) if path.name not in test_examples.PRINTED
]
"""Examples that no other test runs without arguments."""
FEWER = dict.fromkeys(("sr_harmonic", "sr_least_squares", "sr_euler"), ("figure.png", "100"))
"""Arguments of figures: by default their computations are long."""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_examples_run(example: Any, tmp_path: Path) -> None:
    need_packages(example.read_text())
    args = FEWER.get(example.stem, ())
    result = subprocess.run(
        [sys.executable, str(example), *args], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout
