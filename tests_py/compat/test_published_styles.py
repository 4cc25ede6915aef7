"""Programs in the style of model repositories, unmodified: checked, run, proved, resumed, equal in all modes."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import popsr
from popsr import errors
from popsr.compat._check import check as _check
from tests_py.support.helpers import assert_same_bits, run_python
from tests_py.support.programs import PUBLISHED
from tests_py.support.programs.start_published import CONFIGS, PACKAGES, START, Run, equal_inputs, importable

STEPS = 5


@pytest.fixture(scope="module", autouse=True)
def programs() -> Iterator[None]:
    with importable():
        yield


def start(name: str, config: str, **options: object) -> Run:
    return START[name](config, **options)


@pytest.mark.parametrize("package", PACKAGES)
def test_they_are_programs_of_python_3_8(package: str) -> None:
    files = list((PUBLISHED / package).rglob("*.py"))
    for file in files:
        if file.name != "twin.py":
            ast.parse(file.read_text(), str(file), feature_version=(3, 8))
    lines = [line for file in files if file.name != "twin.py" for line in file.read_text().splitlines()]
    assert package == "model_utils" or len(lines) >= 150


@pytest.mark.parametrize("package", PACKAGES)
def test_check_says_that_they_run(package: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _check.main([str(PUBLISHED / package)]) == 0
    assert capsys.readouterr().out.endswith("runs as far as names go\n")


REGISTERED = """
import runpy, sys
import popsr.compat
popsr.compat.install()
from tests_py.support.programs.start_published import rope
popsr.compat.custom_op("llama.ops", "Rope", 1)(rope)
sys.path.insert(0, {programs!r})
sys.argv[1:] = ["--config", "quantised"]
runpy.run_module("llama.inference", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    "arguments",
    ["bert.pretraining --config half", "gpt.pretraining", "gpt.pretraining --phased 1", "t5.translation"],
)
def test_they_run_as_programs(arguments: str) -> None:
    command = [sys.executable, "-m", "popsr", "run", "-m", *arguments.split(), "--steps", "2"]
    path = ":".join(path for path in sys.path if path)
    done = subprocess.run(
        command,
        cwd=PUBLISHED,
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()[:2]] == ["step   0", "step   1"]


def test_a_program_with_an_operator_of_its_own_runs() -> None:
    text = run_python(REGISTERED.format(programs=str(PUBLISHED)))
    assert [len(line.split()) for line in text.splitlines()] == [13, 13]


@pytest.mark.parametrize(("name", "config"), CONFIGS)
def test_all_replicas_that_share_state_are_proved_to_keep_it(name: str, config: str) -> None:
    run = start(name, config, check=True)
    run.run(0, STEPS)
    facts = popsr.analysis.analyze(run.program.ir, equal=equal_inputs(run))
    for found in (facts, run.session.facts):
        assert [str(lint) for lint in found.warnings if lint.code in ("L1", "L2", "L3", "L7", "L12")] == []
        assert not found.drifting()
    for variable in run.session.state.values_flat() if name in ("gpt", "t5") else ():  # others are shards
        assert facts.is_equal(variable, variable.replica_grouping), variable.name


@pytest.mark.parametrize(("name", "config"), CONFIGS)
def test_results_are_the_same_in_all_modes(name: str, config: str) -> None:
    first = start(name, config, num_threads=1)
    losses, state = first.run(0, STEPS), first.everything()
    for options in ({"num_threads": 2}, {"num_threads": 1, "dedup": False}):
        other = start(name, config, **options)
        for got, wanted in zip(other.run(0, STEPS), losses, strict=True):
            assert_same_bits(got, wanted)
        found = other.everything()
        for key, wanted in state.items():
            assert_same_bits(found[key], wanted, key)


@pytest.mark.parametrize(("name", "config"), CONFIGS)
def test_a_resumed_program_goes_on_with_the_same_bits(name: str, config: str, tmp_path: Path) -> None:
    run = start(name, config)
    run.run(0, STEPS)
    run.session.save_checkpoint(str(tmp_path / "checkpoint"))
    wanted = run.run(STEPS, STEPS)
    later = start(name, config)
    later.session.load_checkpoint(str(tmp_path / "checkpoint"), report_missing="error")
    assert later.session.session_state["steps"] == STEPS
    for got, expected in zip(later.run(STEPS, STEPS), wanted, strict=True):
        assert_same_bits(got, expected)
    found = later.everything()
    for key, expected in run.everything().items():
        assert_same_bits(found[key], expected, key)


@pytest.mark.parametrize(("name", "config"), [each for each in CONFIGS if each[0] != "llama"])
def test_they_learn(name: str, config: str) -> None:
    losses = [step.mean() for step in start(name, config).run(0, 20)]
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 0.05


def test_an_operator_without_an_entry_is_named_with_the_lines_to_add(monkeypatch: pytest.MonkeyPatch) -> None:
    from popsr.compat._objects import custom_ops

    monkeypatch.setattr(custom_ops, "_entries", {})
    with pytest.raises(errors.UnknownNameError, match=r"llama\.ops.*Rope.*@popsr\.compat\.custom_op"):
        start("llama", "whole")


def test_weights_may_be_in_files(tmp_path: Path) -> None:
    run, module = start("llama", "quantised"), import_module("llama.inference")
    program = module.Program(run.config, str(tmp_path))
    session, prompts = program.session(run.state), module.prompts(run.config)
    with run.session, session:
        first, second = (module.Generator(*each) for each in ((run.program, run.session), (program, session)))
        np.testing.assert_array_equal(first.run(prompts), second.run(prompts))
    assert len(list(tmp_path.iterdir())) == len(run.everything())


def test_phases_share_their_state_over_replicas() -> None:
    run = start("bert", "phased")
    weight = run.program.layers.buffers["attention.qkv.weight"]
    assert weight.tensor_shape == (3 * 32 * 32 // 2,)
    assert weight.meta_shape == (32, 96)
    assert run.program.heads.buffers["nsp.classifier.bias"].meta_shape == ()


def test_parts_of_tensors_are_those_of_the_state_dict() -> None:
    run = start("gpt", "deterministic")
    table = run.session.get_tensor_data(run.program.variables["transformer.embeddings.word.weight"])
    assert table.shape == (4, 32, 32)
    assert_same_bits(table.reshape(128, 32), run.state["wte.weight"])
    qkv = run.session.get_tensor_data(
        run.program.variables["transformer.blocks.1.attention.qkv.linear.weight"]
    )
    whole = run.state["h.1.attn.c_attn.weight"].reshape(32, 3, 4, 8)  # queries, keys, values; heads; features
    assert_same_bits(qkv[2].reshape(32, 3, 8), np.ascontiguousarray(whole[:, :, 2]))
