"""Session options of PopART: names, types, defaults, and the effects of those that have one."""

from __future__ import annotations

import copy
import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import __main__ as command
from popsr import errors, ops
from popsr._program.options.kinds import class_of
from popsr._program.options.options import Options
from popsr._program.options.page import option_rows
from popsr._program.options.table import ALIASES, OPTIONS, SETTINGS
from popsr.compat import popart
from tests_py import ROOT
from tests_py.support.helpers import run_python

DOCS = ROOT / "docs"
NAMES = [row.name for row in OPTIONS]
# The names of PopART's object, in one list that nothing here is made of.
POPART = (Path(__file__).parent / "popart_session_options.txt").read_text().split()


def _program(replicas: int = 2) -> tuple[popsr.Ir, Any, Any]:
    """x + (an entry of a table that i names), for each replica."""
    ir = popsr.Ir(replicas)
    with ir.main_graph:
        x = popsr.h2d_stream((3,), popsr.float32, "x")
        i = popsr.h2d_stream((1,), popsr.int32, "i")
        y = popsr.d2h_stream((3,), popsr.float32, "y")
        table = popsr.constant(np.zeros(16), popsr.float32)
        ops.host_store(y, ops.host_load(x) + ops.gather(table, ops.host_load(i)))
    return ir, (x, i), y


# Names, types, defaults


@pytest.mark.parametrize("name", POPART)
def test_every_option_can_be_read_and_set_to_what_it_is(name: str) -> None:
    ir = popsr.Ir()
    value = getattr(ir.options, name)
    setattr(ir.options, name, value)
    assert getattr(ir.options, name) == value == getattr(popart.SessionOptions(), name)
    with pytest.raises(errors.Error, match=rf"^options: (?!unknown option)\w*{name.lstrip('_')[1:4]}?"):
        setattr(ir.options, name, object())


def test_the_table_has_no_other_names() -> None:
    known = {"convolutionOptions", "gclOptions", "lstmOptions", "matmulOptions", "reportOptions"}
    assert {*NAMES, *ALIASES} - set(POPART) == known | {"tensorLocationSettingsOverride"}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(name: str) -> None:
    """They take their attributes by place and by name, and compare by them."""
    cls, rows = class_of(name), SETTINGS[name]
    values = [getattr(cls(), row.name) for row in rows]
    assert cls(*values) == cls() == cls(**dict(zip([row.name for row in rows], values, strict=True)))
    with pytest.raises(errors.AttributeAccessError, match=rf"^{name}: unknown attribute, got 'nothing'"):
        cls().nothing = 1
    with pytest.raises(errors.ArgumentTypeError, match=f"{name}: too many values"):
        cls(*values, 1)
    with pytest.raises(errors.ArgumentTypeError, match=f"{name}: {rows[0].name} is given twice"):
        cls(values[0], **{rows[0].name: values[0]})


def test_locations_in_the_ways_that_programs_write_them() -> None:
    """Storage, then tile sets, then sharding and its domain; or storage and sharding, as popsr's own."""
    off, on = popart.TensorStorage.OffChip, popart.ReplicatedTensorSharding.On
    compute, io = popart.TileSet.Compute, popart.TileSet.IO
    pairs = popart.CommGroup(popart.CommGroupType.Consecutive, 2)
    full = popart.TensorLocation(off, io, compute, on, pairs)
    assert (full.storage, full.loadTileSet, full.storageTileSet) == (off, io, compute)
    assert (full.replicatedTensorSharding, full.shardingDomain) == (on, pairs)
    assert popart.TensorLocation(off, on) == popsr.TensorLocation(off, on)
    assert popart.TensorLocation(off, compute, compute) == popart.TensorLocation(storage=off)
    assert popart.TensorLocation(replicated_tensor_sharding=on).replicatedTensorSharding is on
    settings = popart.TensorLocationSettings(off)
    assert settings.location == popart.TensorLocation(off)
    assert popart.TensorLocationSettings(full, 0, 4).minElementsForReplicatedTensorSharding == 4
    opts = popart.SessionOptions()
    opts.weightTensorLocationSettings = settings
    opts.weightTensorLocationSettings.location.replicatedTensorSharding = on
    opts.tensorLocationSettingsOverride = {"w": full}
    with pytest.raises(errors.ArgumentTypeError, match="TensorLocation: loadTileSet is not a member"):
        popart.TensorLocation(off, off)


def test_methods_of_options() -> None:
    opts: Any = popart.SessionOptions()  # a type checker keeps what was asserted of its members
    assert opts.getGlobalReplicationFactor() == 1
    opts.enableExplicitIR(True)
    assert opts.useHostCopyOps
    assert opts.enableExplicitMainLoops
    assert opts.explicitRecomputation
    assert opts.aliasZeroCopy
    opts.enableExplicitIR(False)
    assert not opts.useHostCopyOps
    opts.enableReplicatedGraphs, opts.replicatedGraphCount = True, 4
    assert opts.getGlobalReplicationFactor() == 4
    opts.enableDistributedReplicatedGraphs, opts.globalReplicationFactor = True, 8
    assert opts.getGlobalReplicationFactor() == 8
    with pytest.raises(errors.ArgumentTypeError, match="enableExplicitIR: enable"):
        opts.enableExplicitIR(1)


def test_a_published_program() -> None:
    ir = popsr.Ir(2)
    opts = ir._pb_ir.getSessionOptions()
    assert opts is ir.options
    opts.engineOptions = {"debug.allowOutOfMemory": "true"}
    opts._engineOptions["opt.maxCompilationThreads"] = "4"
    opts.numIOTiles = 32
    opts.partialsTypeMatMuls = "half"
    opts.enableExplicitMainLoops = True
    opts.weightTensorLocationSettings.location.storage = popart.TensorStorage.OffChip
    on_chip = popart.TensorLocation(
        popart.TensorStorage.OnChip, replicated_tensor_sharding=popart.ReplicatedTensorSharding.On
    )
    opts.activationTensorLocationSettings = popart.TensorLocationSettings(on_chip, 0, 0)
    opts.batchSerializationSettings.factor = np.int64(4)
    opts.executionPhaseSettings.phases = 2
    opts.automaticLossScalingSettings.enabled = True
    opts.accumulateOuterFragmentSettings.schedule = popart.AccumulateOuterFragmentSchedule.Scheduler
    opts.experimentalSettings.customTransformApplierSettings = {"Fwd0": ["OpToIdentity"]}
    opts.virtualGraphMode = popart.VirtualGraphMode.Manual
    opts.hardwareInstrumentations = {popart.Instrumentation.Inner}

    assert opts.engineOptions == {"debug.allowOutOfMemory": "true", "opt.maxCompilationThreads": "4"}
    assert opts.weightTensorLocationSettings.location == popart.TensorLocation(popart.TensorStorage.OffChip)
    assert opts.activationTensorLocationSettings.location == on_chip
    assert opts.activationTensorLocationSettings.minElementsForOffChip == 0
    assert opts.weightTensorLocationSettings.minElementsForOffChip == 2
    assert opts.batchSerializationSettings.factor == 4
    opts.numIOTiles = popart.NumIOTiles(64)
    assert opts.numIOTiles == 64
    assert "VirtualGraphMode.Manual" in repr(opts)
    assert "aliasZeroCopy" not in repr(opts)
    assert (opts.replicatedGraphCount, opts.enableReplicatedGraphs) == (2, True)


WRONG = [
    ("numIOTiles", "32", "numIOTiles is not an int, got '32'"),
    ("numIOTiles", -1, "numIOTiles: got -1, expected an int from 0"),
    ("enableOutlining", 1, "enableOutlining is not a bool, got 1"),
    ("outlineThreshold", "x", "outlineThreshold is not a number"),
    ("logDir", 3, "logDir is not a str, got 3"),
    (
        "virtualGraphMode",
        1,
        "virtualGraphMode is not a member of popart.VirtualGraphMode, got 1, expected Off",
    ),
    ("virtualGraphMode", "Auto", "virtualGraphMode is not a member of popart.VirtualGraphMode, got 'Auto'"),
    ("partialsTypeMatMuls", "float8", "unknown type of partials, got 'float8', expected 'float', 'half'"),
    ("engineOptions", {"a": 1}, r"engineOptions\['a'\] is not a str, got 1"),
    ("engineOptions", {1: "a"}, "engineOptions: key is not a str, got 1"),
    ("engineOptions", "a", "engineOptions is not a dict, got 'a'"),
    ("customCodelets", "a.cpp", "customCodelets is not a list, got 'a.cpp'"),
    ("customCodelets", ["a.cpp", 3], r"customCodelets\[1\] is not a str, got 3"),
    ("dotChecks", "Final", "dotChecks is not a set, got 'Final'"),
    ("weightTensorLocationSettings", 3, "weightTensorLocationSettings is not a TensorLocationSettings"),
    ("accumulationFactor", 0, "accumulationFactor: got 0, expected an int from 1"),
    (
        "accumulationFactor",
        4,
        "accumulationFactor applies to implicit pipelines only, got 4.*accumulate explicitly",
    ),
    (
        "enableGradientAccumulation",
        True,
        "enableGradientAccumulation applies to implicit pipelines only, got True",
    ),
    ("syntheticDataMode", None, "syntheticDataMode is not a member of popart.SyntheticDataMode, got None"),
]


@pytest.mark.parametrize(("name", "value", "text"), WRONG)
def test_wrong_values(name: str, value: Any, text: str) -> None:
    options = popsr.Ir().options
    before = repr(options)
    with pytest.raises(errors.Error, match=rf"^options: .*{text}") as caught:
        setattr(options, name, value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 500
    assert repr(options) == before


def test_partials_in_any_case() -> None:
    options = popsr.Ir().options
    for value in ("", "half", "FLOAT", "Half"):
        options.partialsTypeMatMuls = value
        assert options.partialsTypeMatMuls == value


def test_dictionaries_check_what_is_put_into_them() -> None:
    options: Any = popsr.Ir().options
    given = options.engineOptions
    with pytest.raises(errors.ArgumentTypeError, match=r"^options: engineOptions\['b'\] is not a str, got 1"):
        given.update(a="x", b=1)
    with pytest.raises(errors.ArgumentTypeError):
        given["a"] = 1
    with pytest.raises(errors.ArgumentTypeError):
        given |= {"a": 1}
    with pytest.raises(errors.ArgumentTypeError):
        given.setdefault("a", 1)
    with pytest.raises(errors.ArgumentTypeError, match=r"^options: engineOptions: not a dict, got 3"):
        given.update(3)
    assert options.engineOptions == {}
    assert given.setdefault("a", "x") == given.setdefault("a", "y") == "x"


def test_members_of_set_options_are_checked_by_the_session() -> None:
    ir, _, _ = _program()
    options: Any = ir.options
    options.customCodelets.append(3)
    with pytest.raises(errors.ArgumentTypeError, match=r"options: customCodelets\[0\] is not a str, got 3"):
        popsr.Session(ir)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("enableStochasticRoundin", "'enableStochasticRounding'"),
        ("numIoTile", "'numIOTiles'"),
        ("zzz", "one of enable_stochastic_rounding"),
    ],
)
def test_unknown_names(name: str, expected: str) -> None:
    options = popsr.Ir().options
    for call in (lambda: getattr(options, name), lambda: setattr(options, name, 1)):
        with pytest.raises(
            AttributeError, match=f"^options: unknown option, got '{name}', expected {expected}"
        ):
            call()


def test_copies_have_settings_of_their_own() -> None:
    options = popsr.Ir(2).options
    options.engineOptions["a"] = "b"
    options.weightTensorLocationSettings.minElementsForOffChip = 7
    for other in (copy.copy(options), copy.deepcopy(options), pickle.loads(pickle.dumps(options))):
        assert type(other) is Options
        assert other.replicatedGraphCount == 1  # of no program
        assert other.engineOptions == options.engineOptions
        assert other.weightTensorLocationSettings == options.weightTensorLocationSettings
        other.engineOptions["c"] = "d"
        other.weightTensorLocationSettings.minElementsForOffChip = 8
    assert options.engineOptions == {"a": "b"}
    assert options.weightTensorLocationSettings.minElementsForOffChip == 7
    assert options == options
    assert options != copy.copy(options)


def test_importing_popsr_does_not_read_the_table() -> None:
    run_python("import sys, popsr; popsr.Ir(); assert 'popsr._program.options.table' not in sys.modules")


# Making a session


def test_options_without_effect_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    ir, _, _ = _program()
    with caplog.at_level(logging.INFO, "popsr"):
        popsr.Session(ir)
        assert caplog.records == []
        options = ir.options
        options.enable_stochastic_rounding = True
        options.enableEngineCaching, options.cachePath = True, "cache"
        assert (
            options.weightTensorLocationSettings.location.storage is popart.TensorStorage.OnChip
        )  # only read
        popsr.Session(ir)
        assert caplog.records == []
        options.numIOTiles = 32
        options.accumulatorTensorLocationSettings.location.storage = popart.TensorStorage.OffChip
        options.engineOptions["a"] = "b"
        popsr.Session(ir)
    assert [record.getMessage() for record in caplog.records] == [
        "Session: these options were set and have no effect on a simulator: engineOptions, "
        "accumulatorTensorLocationSettings, numIOTiles"
    ]


REPLICATION = [
    ("replicatedGraphCount", 3, r"got 3, expected 2 for 2 replicas or Ir\(replication=3\)"),
    ("globalReplicationFactor", 4, r"got 4, expected 2 for 2 replicas or Ir\(replication=4\)"),
    ("enableReplicatedGraphs", False, "got False, expected True for 2 replicas"),
    ("globalReplicaOffset", 1, "got 1, expected 0 for 2 replicas"),
]


@pytest.mark.parametrize(("name", "value", "text"), REPLICATION)
def test_options_that_contradict_the_replication(name: str, value: Any, text: str) -> None:
    ir, _, _ = _program()
    setattr(ir.options, name, value)
    with pytest.raises(
        errors.ReplicaError, match=f"^Session: option {name} contradicts the program, {text}$"
    ):
        popsr.Session(ir)
    setattr(ir.options, name, getattr(popsr.Ir(2).options, name))
    ir.options.enableDistributedReplicatedGraphs = True
    popsr.Session(ir)


def test_accumulation_of_options_that_were_made_apart() -> None:
    ir, _, _ = _program()
    options = popart.SessionOptions()
    options.accumulationFactor = 4
    ir.options = options
    with pytest.raises(
        errors.UnsupportedError, match="accumulationFactor applies to implicit pipelines only, got 4"
    ):
        popsr.Session(ir)


@pytest.mark.parametrize("value", [True, False])
def test_the_step_is_host_state(value: bool, tmp_path: Path) -> None:
    def session() -> popsr.Session:
        ir = popsr.Ir()
        ir.options.enableLoadAndOffloadRNGState = value
        with ir.main_graph:
            popsr.ops.var_updates.accumulate_(
                popsr.variable(1.0, popsr.float32), popsr.constant(1.0, popsr.float32)
            )
        return popsr.Session(ir)

    first, second = session(), session()
    with first:
        first.run()
    popsr.io.save_safetensors(first, tmp_path / "a.safetensors")
    second.reset_host_weights(tmp_path / "a.safetensors")
    assert (first.step, second.step) == (1, 1)


def test_cycles_are_not_counted() -> None:
    ir, _, _ = _program()
    ir.options.instrumentWithHardwareCycleCounter = True
    with pytest.raises(
        errors.UnsupportedError, match=r"getCycleCount: a simulator does not count.*Session\.stats"
    ):
        popsr.Session(ir).getCycleCount()  # type: ignore[attr-defined]


# Files for Graphviz


def test_dot_checks_write_files(tmp_path: Path) -> None:
    ir, _, _ = _program()
    options = ir.options
    options.dotChecks, options.logDir = {"Fwd0", "Final"}, str(tmp_path)
    popsr.Session(ir)
    ir.dot_checkpoint("expected", tmp_path)
    texts = {path.stem: path.read_text() for path in tmp_path.iterdir()}
    assert texts["Fwd0"] == texts["Final"] == texts["expected"]
    assert set(texts) == {"Fwd0", "Final", "expected"}
    options.firstDotOp, options.finalDotOp, options.dotOpNames = 1, 2, True
    popsr.Session(ir)
    text = (tmp_path / "Final.dot").read_text()
    op = ir.main_graph.ops[1]
    assert f'op{op.id} [label="{op.kind}\\n{op.name}\\n' in text
    assert f"op{ir.main_graph.ops[0].id} [" not in text
    assert f"op{ir.main_graph.ops[2].id} [" not in text


@pytest.mark.parametrize(
    ("checks", "folder", "error"),
    [
        ({"Final", "a/b"}, ".", errors.AttributeValueError),
        ({"Final"}, "missing", errors.FileError),
    ],
)
def test_dot_checks_that_cannot_be_written(
    checks: set[str], folder: str, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ir, _, _ = _program()
    ir.options.dotChecks, ir.options.logDir = checks, folder
    with pytest.raises(error, match=r"^Session: option dotChecks"):
        popsr.Session(ir)
    assert list(tmp_path.iterdir()) == []


# Synthetic data


def _synthetic(mode: str, seed: int = 5, runs: int = 2, **kwargs: Any) -> np.ndarray[Any, Any]:
    ir, _, y = _program()
    ir.options.syntheticDataMode = popart.SyntheticDataMode[mode]
    with popsr.Session(ir, seed=seed, **kwargs) as session:
        assert session.expected_inputs() == set()
        return np.stack([session.run()[y] for _ in range(runs)])


def test_synthetic_zeros() -> None:
    assert not _synthetic("Zeros").any()


@pytest.mark.parametrize("mode", ["RandomNormal", "RandomUniform"])
def test_synthetic_numbers_depend_on_seed_step_and_stream(mode: str) -> None:
    values = _synthetic(mode)
    np.testing.assert_array_equal(values, _synthetic(mode, num_threads=2, dedup=False))
    assert not np.array_equal(values, _synthetic(mode, seed=6))
    assert len(np.unique(values)) == values.size  # other numbers in each run, replica and element


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "float16", "bfloat16", "float8_143", "float64"])
@pytest.mark.parametrize("mode", ["RandomNormal", "RandomUniform"])
def test_synthetic_data_of_every_kind(dtype: str, mode: str) -> None:
    ir = popsr.Ir()
    ir.options.syntheticDataMode = popart.SyntheticDataMode[mode]
    with ir.main_graph:
        kind = popsr.dtypes.dtype.from_name(dtype)
        stream, out = popsr.h2d_stream((4096,), kind, "x"), popsr.d2h_stream((4096,), kind, "y")
        ops.host_store(out, ops.host_load(stream))
    with popsr.Session(ir) as session:
        values = session.run()[out]
    if dtype == "float8_143":
        values = popsr.fp8_utils.host_pow2scale_cast_from_fp8(values, popsr.float32)
    values = values.astype(np.float64)
    if kind.is_int:
        assert values.min() == 0
        assert values.max() == (0 if mode == "RandomUniform" else np.clip(values.max(), 2, 6))
    else:
        middle = 0.5 if mode == "RandomUniform" or dtype == "bool" else 0
        assert abs(values.mean() - middle) < 0.1


def test_synthetic_data_replaces_what_is_given() -> None:
    ir, (x, i), y = _program()
    ir.options.syntheticDataMode = popart.SyntheticDataMode.Zeros
    with popsr.Session(ir) as session:
        data = {x: np.ones((2, 3), np.float32), i: np.ones((2, 1), np.int32)}
        assert not session.run(data)[y].any()
        outputs = session.create_host_outputs()
        outputs[y][...] = 1
        session.run_with_outputs({x: data[x]}, outputs)
        assert not outputs[y].any()
        with pytest.raises(errors.SessionError, match="do not match the streams in use"):
            session.run({y: data[x]})  # type: ignore[dict-item]


# The page


def test_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Mend it with `python -m popsr options --markdown > docs/session_options.md`."""
    assert command.main(["options", "--markdown"]) == 0
    assert (DOCS / "session_options.md").read_text() == capsys.readouterr().out


def test_text_has_a_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["options"]) == 0
    _, _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ")[0] for line in lines] == [row.name for row in option_rows()]
    assert {row.name.partition(".")[0] for row in option_rows()} == {*NAMES, *SETTINGS}
