"""``python -m popsr prove``: what a script or module names, proved; output, exit status, errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from popsr.__main__ import main
from tests_py import ROOT

PROGRAM = """
import popsr
from popsr import ops

print("loaded")


def made(mean=True):
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(1.0, name="w")
        x = ops.host_load(popsr.h2d_stream((), popsr.float32, "x"))
        x = ops.collectives.replicated_all_reduce(x, "mean") if mean else x
        ops.var_updates.accumulate_(w, w * x, -0.1)
    return ir


def proof():
    return popsr.prove(made())


class Job:
    drifting = made(False)

    @staticmethod
    def proof():
        return popsr.prove(Job.drifting)


def raising():
    return 1 / 0


def ending():
    raise SystemExit(0)


step_args = 3
listed_options = [3]
listed = made()


def step(x):
    return x


def lonely(x):
    return x


if __name__ == "__main__":
    raise ValueError("run as a program")
"""

JAX = """
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P


def loss_of(w, x, share):
    return lax.psum(jnp.sum((x @ w) ** 2), "data") / share


def step(w, x):
    return w - 0.1 * jax.grad(loss_of)(w, x, x.shape[0] * lax.psum(1, "data"))


def wrong(w, x):
    return w - 0.1 * jax.grad(loss_of)(w, x, x.shape[0])


def reference(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.sum((x @ w) ** 2) / x.shape[0])(w)


def example():
    return np.ones((3, 2), np.float32), np.ones((4, 3), np.float32)


def settings(data):
    return {"mesh": {"data": data}, "in_specs": (P(), P("data")), "out_specs": P()}


step_args, wrong_args = example, example()
step_options, wrong_options, without_mesh = settings(2), settings(2), settings(2)
del without_mesh["mesh"]
"""

TORCH = """
import torch
import torch.distributed as dist


def step(model, optimizer, x):
    optimizer.zero_grad()
    model(x).sum().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad, dist.ReduceOp.AVG)
    optimizer.step()


def step_args():
    model = torch.nn.Linear(2, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1), torch.ones(4, 2)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the programs, in which the command runs; modules of them are forgotten afterwards."""
    for name, text in {"of_popsr": PROGRAM, "of_jax": JAX, "of_torch": TORCH}.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = {*sys.modules}
    yield tmp_path
    for name in ("of_popsr", "of_jax", "of_torch"):
        if name not in before:
            sys.modules.pop(name, None)


Captured = Any


@pytest.mark.parametrize(
    ("target", "status", "headline"),
    [
        ("of_popsr.py::proof", 0, "ok: 1 state on 2 replicas"),
        ("of_popsr.py:proof", 0, "ok: 1 state on 2 replicas"),
        ("of_popsr::made", 0, "ok: 1 state on 2 replicas"),
        ("of_popsr:Job.drifting", 1, "not ok: 1 state on 2 replicas, 1 drifts"),
        ("./of_popsr.py::Job.proof", 1, "not ok: 1 state on 2 replicas, 1 drifts"),
    ],
)
def test_what_a_name_stands_for(
    folder: Path, capsys: Captured, target: str, status: int, headline: str
) -> None:
    assert main(["prove", target]) == status
    loaded, first, *_ = capsys.readouterr().out.splitlines()
    assert loaded == "loaded"
    assert first.startswith(headline)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["of_popsr.py"], "no step is named, got 'of_popsr.py'"),
        (["of_popsr.py::"], "no step is named"),
        (["nothing.py::step"], "no such script, got 'nothing.py'"),
        (["nothing.at_all:step"], "no such module, got 'nothing.at_all'"),
        ([".of_popsr:step"], "no such module, got '.of_popsr'"),
        (["of_popsr.py::prof"], "did you mean 'proof'?"),
        (["of_popsr.py::Job.nothing"], "no such name, got 'nothing'"),
        (["of_popsr.py::lonely"], "expected a tuple lonely_args beside it"),
        (["of_popsr.py::lonely", "--args", "nothing"], "no such name, got 'nothing'"),
        (["of_popsr.py::step"], "example arguments are no tuple, got 3"),
        (["of_popsr.py::listed"], "options are no dictionary, got [3]"),
        (["of_popsr.py::made", "--replicas", "4"], "arguments beside a step that is read already"),
        (["of_popsr.py::proof", "--like", "one device"], "cannot be read once more"),
        (["of_popsr.py::proof", "--like", "nothing"], "no such name, got 'nothing'"),
        (["of_popsr.py::proof", "--html", "nowhere/page.html"], "nowhere/page.html"),
    ],
)
def test_errors_are_a_line(folder: Path, capsys: Captured, args: list[str], text: str) -> None:
    assert main(["prove", *args]) == 2
    got = capsys.readouterr()
    assert got.out in ("", "loaded\n")
    assert len(got.err.splitlines()) == 1
    assert text in got.err


@pytest.mark.parametrize(
    ("name", "error"), [("raising", "ZeroDivisionError (division by zero)"), ("ending", "SystemExit (0)")]
)
def test_errors_of_the_program_have_its_lines(folder: Path, capsys: Captured, name: str, error: str) -> None:
    assert main(["prove", f"of_popsr.py::{name}"]) == 2
    got = capsys.readouterr().err
    assert f"in {name}\n" in got
    assert got.splitlines()[-1] == f"popsr: prove: of_popsr.py::{name} raised {error}, expected a proof"


@pytest.mark.parametrize("mesh", ["data", "data=0", "data=2,", "data=2,data=2", "=2", "data=x"])
def test_meshes_that_are_none(folder: Path, capsys: Captured, mesh: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["prove", "of_popsr.py::made", "--mesh", mesh])
    assert ended.value.code == 2
    assert "expected axes and sizes as data=4,model=2" in capsys.readouterr().err


def test_json_of_a_process(folder: Path) -> None:
    """Output is JSON alone; what the program prints goes to stderr."""
    paths = os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])
    done = subprocess.run(
        [sys.executable, "-m", "popsr", "prove", "of_popsr.py::Job.drifting", "--json"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "loaded\n"
    found = json.loads(done.stdout)
    place = f"{folder / 'of_popsr.py'}:12"
    (state,) = found.pop("states")
    assert (state["path"], state["declared"], state["proved"]) == ("w", [[0, 1]], [[0], [1]])
    assert (state["drifts"], state["cause"]["location"]) == (True, place)
    assert (found["format"], found["ok"], found["verdict"], found["replicas"]) == (1, False, "not ok", 2)
    assert len(found["problems"]) == 1
    assert (found["results"], found["unsupported"], found["same"]) == ([], [], None)


# Steps of frameworks


def of_jax(*args: str) -> int:
    pytest.importorskip("jax")
    return main(["prove", *args])


@pytest.mark.parametrize(
    ("args", "status"),
    [
        (["step"], 0),
        (["step", "--like", "one device"], 0),
        (["step", "--like", "one device", "--mesh", "data=4"], 0),
        (["step", "--args", "example", "--options", "without_mesh", "--mesh", "data=2"], 0),
        (["step", "--like", "reference"], 0),
        (["step", "--like", "of_jax:reference", "--float64"], 0),
        (["wrong", "--like", "one device"], 1),
        (["wrong", "--like", "of_jax.py::reference"], 1),
    ],
)
def test_steps_of_jax(folder: Path, args: list[str], status: int) -> None:
    assert of_jax(f"of_jax.py::{args[0]}", *args[1:]) == status


def test_a_comparison_is_in_all_forms(folder: Path, capsys: Captured) -> None:
    """Printed, on the page, and as JSON."""
    wrong = ("of_jax.py::wrong", "--like", "one device")
    words = ["w", "differs", "of_jax.py:10", "2 times the value of one device"]
    assert of_jax(*wrong, "--html", "page.html") == 1
    printed, page = capsys.readouterr().out, Path("page.html").read_text()
    assert all(word in printed and word in page for word in words[2:]), printed
    assert "<td>return lax.psum(jnp.sum((x @ w) ** 2), &quot;data&quot;) / share</td>" in page
    assert of_jax(*wrong, "--json") == 1
    same = json.loads(capsys.readouterr().out)["same"]
    assert (same["like"], same["engine"], same["ok"], same["verdict"]) == (
        "one device",
        "exact",
        False,
        "differs",
    )
    assert same["place"]["location"] == f"{folder / 'of_jax.py'}:10"
    assert same["place"]["source"].startswith("return lax.psum(")
    (value,) = same["values"]
    assert (value["path"], value["role"], value["verdict"], value["draws"]) == ("w", "state", "differs", 2)
    assert value["replicas"] == [0, 1]


def test_deviations_that_are_infinite_are_null(folder: Path, capsys: Captured) -> None:
    """JSON has no infinity."""
    source = (folder / "of_jax.py").read_text()
    text = source.replace("w - 0.1 * jax.grad(loss_of)(w, x, x.shape[0])", "w + (lax.psum(1, 'data') - 1)")
    (folder / "of_jax.py").write_text(text)
    assert of_jax("of_jax.py::wrong", "--like", "one device", "--float64", "--json") == 1
    (value,) = json.loads(capsys.readouterr().out)["same"]["values"]
    assert (value["verdict"], value["deviation"]) == ("differs", None)


def test_a_step_of_pytorch(folder: Path, capsys: Captured) -> None:
    pytest.importorskip("torch")
    assert main(["prove", "of_torch.py::step", "--replicas", "2"]) == 0
    assert capsys.readouterr().out.startswith("ok: 2 states on 2 replicas")
    assert main(["prove", "of_torch.py::step"]) == 2
    assert "no number of replicas" in capsys.readouterr().err
