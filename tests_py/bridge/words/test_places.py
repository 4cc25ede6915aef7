"""Lines of the user among frames of installed packages and of frameworks."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig

import pytest

from popsr._support.text.frames import is_inside, library_path
from popsr.bridge._step.places import Place, nearest_place
from tests_py import ROOT

USER, TORCH = "/home/me/train.py", "/opt/lib/torch/nn.py"
SITE, DIST = "/v/lib/python3.11/site-packages/", "/usr/lib/python3/dist-packages/"


@pytest.mark.parametrize(
    ("file", "path"),
    [
        (USER, ""),
        (SITE + "optax/_src/update.py", "optax/_src/update.py"),
        (DIST + "flax/nnx.py", "flax/nnx.py"),
        ("/a/site-packages/b/site-packages/c.py", "c.py"),
        (os.path.join(sysconfig.get_paths()["stdlib"], "functools.py"), "functools.py"),
        (os.path.join(sysconfig.get_paths()["scripts"], "accelerate"), "accelerate"),
        ("/home/me/my-site-packages/train.py", ""),
        ("/home/me/site-packages", ""),
    ],
)
def test_installed_files(file: str, path: str) -> None:
    assert library_path(file) == path


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        ([], None),
        ([(TORCH, 1)], None),
        ([(USER, 3)], Place(USER, 3)),
        ([(TORCH, 1), (USER, 3), (USER, 9)], Place(USER, 3)),
        ([(SITE + "a/b.py", 7), (USER, 3)], Place(USER, 3, "a/b.py:7")),
        (
            [(TORCH, 1), (SITE + "a/b.py", 7), (TORCH, 2), (DIST + "c.py", 8), (USER, 3)],
            Place(USER, 3, "a/b.py:7"),
        ),
        ([(USER, 3), (SITE + "a/b.py", 7), (USER, 9)], Place(USER, 3)),
        ([(TORCH, 1), (SITE + "a/b.py", 7), (SITE + "a/c.py", 8)], Place(SITE + "a/b.py", 7)),
    ],
)
def test_the_nearest_line_of_the_user(frames: list[tuple[str, int]], place: Place | None) -> None:
    assert nearest_place(frames, lambda file: file == TORCH) == place


def test_the_line_of_a_library_stands_beside() -> None:
    assert Place(USER, 3, "a/b.py:7").text == "/home/me/train.py:3 (in a/b.py:7)"
    assert Place(USER, 3).text == "/home/me/train.py:3"


def test_the_start_of_a_program_counts_as_inside() -> None:
    runpy, imports = "<frozen runpy>", "<frozen importlib._bootstrap>"
    own = os.path.join(sysconfig.get_paths()["stdlib"], "runpy.py")
    assert [is_inside(each) for each in (runpy, imports, own, USER, "<stdin>")] == [True] * 3 + [False] * 2


@pytest.mark.parametrize("options", [(), ("-X", "frozen_modules=off")])
def test_batches_of_a_command_come_from_the_step(options: tuple[str, ...]) -> None:
    pytest.importorskip("torch")
    step = ROOT / "examples" / "ci" / "training" / "ddp_wrong.py"
    line = next(i for i, each in enumerate(step.read_text().split("\n"), 1) if each.startswith("def step"))
    command = [sys.executable, *options, "-m", "popsr", "prove", f"{step}::step"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1
    assert f"at ddp_wrong.py:{line}; made at" in done.stdout
