"""The guard in trainings of frameworks, on four gloo ranks, and the functions that write what it found."""

from __future__ import annotations

import importlib
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from popsr.errors import ArgumentTypeError, MissingPackageError  # isort: skip
from popsr.guard import Checked, Finding, log  # isort: skip
from tests_py.bridge.torch import gloo  # isort: skip
from tests_py.guard import training  # isort: skip

DRIFT = ("outer.weight", "{0,1,3}{2}", (0, 11))
TWICE = ("StateError", "used twice, got a train")
UNKNOWN = ("UnknownNameError", "no such option, got 'evry', expected one of [")
CALLBACK = {"again": None, "twice": TWICE, "late": ("StateError", "got no training"), "unknown": UNKNOWN}

# A framework, the step before its first, and what its cases but the first two give: an error's class and words.
FRAMEWORKS = [
    pytest.param(
        "transformers", 0, CALLBACK, marks=pytest.mark.slow
    ),  # each run has the program of docs/guard.md
    ("lightning", 0, CALLBACK),
    ("accelerate", 0, {}),
    (
        "torchtitan",
        100,
        {
            "twice": TWICE,
            "unknown": UNKNOWN,
            "bisect": ("UnsupportedError", "cannot be made once more, got bisect"),
            "stages": ("UnsupportedError", "not one model, got 2 parts"),
            "no trainer": ("ArgumentTypeError", "without train_step, expected torchtitan's Trainer"),
        },
    ),
]


@pytest.mark.share(2)
@pytest.mark.parametrize(("framework", "start", "others"), FRAMEWORKS)
def test_trainings_of_frameworks(framework: str, start: int, others: dict[str, Any]) -> None:
    if framework != "torchtitan":
        pytest.importorskip(framework)
    first, *rest = gloo.run(4, training.outcomes, framework)
    assert rest == [first] * 3
    assert first.pop("right") == [(0, True), (2, True), (4, True), (5, True)]
    assert first.pop("flipped") == ("DriftError", start + 4, start + 2, *DRIFT)
    assert first.keys() == others.keys()
    for name, expected in others.items():
        if expected is None:
            assert first[name] is None
        else:
            assert first[name][0] == expected[0]
            assert expected[1] in first[name][1]


AGREE = Checked(100, 4, ("w", "v"), {})
FOUND = Finding(
    200, 100, "w", "{0,1}", "{0}{1}", (0, 1), ("", ""), (3,), ("0x1 (1)", "0x2 (2)"), 1, 6, ("w", "v")
)
DIFFER = Checked(200, 4, ("w", "v"), {}, FOUND)


def test_writing_to_logging(caplog: pytest.LogCaptureFixture) -> None:
    write = log.to_logging()
    with caplog.at_level(logging.INFO, "popsr.guard"):
        write(100, AGREE)
        write(200, DIFFER)
    assert [(each.name, each.levelname, each.getMessage()) for each in caplog.records] == [
        ("popsr.guard", "INFO", "step 100: hashes agree, 2 values on 4 ranks"),
        ("popsr.guard", "ERROR", str(FOUND)),
    ]


def test_writing_to_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with SummaryWriter(str(tmp_path)) as writer:
        write = log.to_tensorboard(writer)
        write(100, AGREE)
        write(200, DIFFER)
        read = events.EventAccumulator(str(tmp_path)).Reload()  # before the writer is closed
    assert [(each.step, each.value) for each in read.Scalars("guard/differ")] == [(100, 0), (200, 2)]
    [text] = read.Tensors("guard/finding/text_summary")
    assert (text.step, text.tensor_proto.string_val[0].decode()) == (200, str(FOUND))


@pytest.mark.filterwarnings("ignore")  # of its own packages
def test_writing_to_weights_and_biases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    wandb = pytest.importorskip("wandb")
    settings = wandb.Settings(console="off", silent=True)
    run = wandb.init(project="guard", dir=str(tmp_path), mode="offline", settings=settings)
    told: list[Any] = []
    monkeypatch.setattr(run, "alert", lambda **given: told.append(given))
    try:
        write = log.to_wandb(run)
        run.log({"loss": 2.0}, step=100)
        write(100, AGREE)
        run.log({"accuracy": 1.0}, step=100)  # the job's own row is still open
        assert run.step == 100
        write(200, DIFFER)
        run.log({"loss": 1.0}, step=200)
        run.log({}, step=201)
        found = {name: run.summary[name] for name in ("loss", "accuracy", "guard/differ", "guard/step")}
    finally:
        run.finish()
        wandb.teardown()
    assert told == [{"title": "popsr.guard", "text": str(FOUND)}]
    assert found == {"loss": 1, "accuracy": 1, "guard/differ": 2, "guard/step": 200}


@pytest.mark.parametrize("to", [log.to_logging, log.to_tensorboard, log.to_wandb])
def test_writers_that_are_none(to: Any) -> None:
    with pytest.raises(
        ArgumentTypeError, match=f"^{to.__name__}: .* cannot be called, got None, expected a function"
    ):
        to(SimpleNamespace())


@pytest.mark.parametrize(
    ("module", "package"), [("lightning", "lightning"), ("transformers", "transformers")]
)
def test_packages_that_are_missing(module: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, f"popsr.guard.{module}", raising=False)
    for name in (package, "lightning.pytorch", "pytorch_lightning"):  # imported by other tests, maybe
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingPackageError, match=f"popsr.guard.{module}: {package} is not installed"):
        importlib.import_module(f"popsr.guard.{module}")
