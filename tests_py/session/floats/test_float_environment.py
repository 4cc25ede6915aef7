"""Host data have the same bits whatever rounding mode or flush-to-zero a library has set in the caller's thread."""

from __future__ import annotations

import functools
import io as text_io
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import popsr
import popsr.io
from popsr import fp8_utils, ops, sr
from popsr._program.options.enums import SyntheticDataMode
from popsr.addons.layers._common import truncated_normal
from popsr.addons.ops import fp8_mse_scale, group_quantize_compress_numpy, trig_tables
from popsr.utils import to_numpy
from tests_py.session.floats.float_modes import AVAILABLE, MODES, float_mode, mxcsr, traps
from tests_py.support.helpers import Array, make_variable, run_python

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="other CPUs and libraries set the modes otherwise")

# Halves, thirds, and numbers that are subnormal in float32, float16 and float8; built in the default environment.
WIDE = np.concatenate(
    [[0.1, -0.1, 1 / 3, 2 / 3, 1e-39, -3e-42, 1e-45], np.linspace(-3, 3, 57) * 1e-5, 0.7 ** np.arange(64)]
)
SINGLE = WIDE.astype(np.float32)
HALF = WIDE.astype(np.float16)
FLOAT8 = fp8_utils.host_pow2scale_cast_to_fp8(WIDE, popsr.float8_143, 3)
# Overflow, underflow and invalid operations wherever they are rounded or become integers.
EXTREME = np.array([1e300, -1e39, 1e5, 1e-300, -1e-39, 1e-7, np.inf, np.nan, 0.0])
with np.errstate(over="ignore", under="ignore"):
    EXTREME_SINGLE = EXTREME.astype(np.float32)
F32, F16, BF16 = popsr.float32, popsr.float16, popsr.bfloat16


def values_of(make: Callable[[], popsr.Variable | popsr.Constant]) -> Array:
    """Report of a session about the tensor that ``make`` makes."""
    ir = popsr.Ir()
    with ir.main_graph:
        t = make()
        ops.print_tensor(popsr.constant(0))
    with popsr.Session(ir) as session:
        return session.get_tensor_data(t)


def of_scalar_operand() -> Array:
    ir = popsr.Ir()
    with ir.main_graph:
        v = popsr.variable(np.ones(2, np.float32))
        out = popsr.d2h_stream((2,), F32)
        ops.host_store(out, v * 0.1 + 1e-39)
    with popsr.Session(ir) as session:
        return session.run()[out]


def of_stream() -> Array:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        stream, out = popsr.h2d_stream(WIDE.shape, F32), popsr.d2h_stream(WIDE.shape, F32)
        ops.host_store(out, ops.host_load(stream))
    with popsr.Session(ir) as session:
        return session.run({stream: WIDE})[out]


def of_groups() -> Array:
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        t = popsr.variable(iter([WIDE, -WIDE]), BF16, replica_grouping=ir.replica_grouping(group_size=1))
        ops.print_tensor(popsr.constant(0))
    with popsr.Session(ir) as session:
        return session.get_tensor_data(t)


def of_written_list() -> Array:
    ir = popsr.Ir()
    with ir.main_graph:
        v = popsr.variable(np.zeros(WIDE.shape, np.float32))
        ops.print_tensor(popsr.constant(0))
    with popsr.Session(ir) as session:
        session.write_variable_data(v, WIDE.tolist())
        return session.get_tensor_data(v)


def of_fp8_mse_scale() -> Array:
    ir = popsr.Ir()
    with ir.main_graph:
        out = popsr.d2h_stream((), popsr.int32)
        ops.host_store(out, fp8_mse_scale(popsr.constant(SINGLE)))
    with popsr.Session(ir) as session:
        return session.run()[out]


def of_gradient() -> Array:
    """A factor that autodiff computes: 1/3."""
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        graph = ir.create_graph(lambda t: ops.mean(t), popsr.TensorSpec((3,), popsr.float64))
        grad = popsr.transforms.autodiff(graph).graph
        out = popsr.d2h_stream((3,), popsr.float64)
        ops.host_store(out, ops.call(grad, popsr.constant(1.0, popsr.float64, downcast=False))[0])
    with popsr.Session(ir) as session:
        return session.run()[out]


def of_adamw() -> Array:
    w, m, v = (np.ones(9, np.float32) for _ in range(3))
    sr.adamw_(w, SINGLE[:9].copy(), m, v, key=sr.Key(0), step=3, lr=0.1, weight_decay=0.3)
    return np.stack([w, m, v])


def of_mapped_file() -> Array:
    with tempfile.TemporaryDirectory() as folder:
        ir = popsr.Ir()
        with ir.main_graph:
            factory = popsr.addons.VariableFactory(lambda: WIDE, F32, "w")
            return np.array(factory.next_memmap(folder, "w"))


def of_checkpoint_cast(target: popsr.dtype) -> Array:
    """Weights of float64 that become another dtype when they are loaded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "w.safetensors"
        path.write_bytes(wide_checkpoint())
        ir = popsr.Ir()
        with ir.main_graph:
            w = popsr.variable(np.zeros(WIDE.shape), target, name="w")
            ops.print_tensor(popsr.constant(0))
        with popsr.Session(ir) as session:
            session.reset_host_weights(path, cast=True)
            return session.get_tensor_data(w)


@functools.cache
def wide_checkpoint() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        ir = popsr.Ir()
        with ir.main_graph:
            popsr.variable(WIDE, popsr.float64, name="w", downcast=False)
            ops.print_tensor(popsr.constant(0))
        with popsr.Session(ir) as session:
            popsr.io.save_safetensors(session, Path(folder) / "w.safetensors")
        return (Path(folder) / "w.safetensors").read_bytes()


def of_synthetic_data() -> Array:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        stream, out = popsr.h2d_stream(WIDE.shape, F16), popsr.d2h_stream(WIDE.shape, F16)
        ops.host_store(out, ops.host_load(stream))
    ir.options.syntheticDataMode = SyntheticDataMode.RandomNormal
    with popsr.Session(ir) as session:
        return session.run()[out]


def of_float_attributes() -> Array:
    """Numbers of ops that are infinite, zero or no numbers in the dtype of their tensors."""
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        x, out = popsr.constant(HALF), popsr.d2h_stream(HALF.shape, F16)
        y = x * 1e39 + 1e-300
        y = ops.detach(ops.where(popsr.constant(np.ones(HALF.shape, bool)), x, y))
        ops.host_store(out, y)
    with popsr.Session(ir) as session:
        return session.run()[out]


def of_print() -> Array:
    ir, text, before = popsr.Ir(), text_io.StringIO(), sys.stderr
    with ir.main_graph:
        ops.print_tensor(popsr.constant(WIDE, BF16))
    with popsr.Session(ir) as session:
        sys.stderr = text
        try:
            session.run()
        finally:
            sys.stderr = before
    return np.frombuffer(text.getvalue().encode(), np.uint8)


@functools.cache
def onnx_model() -> bytes:
    """A model with data in a field of numbers; made at the first call, in the default environment."""
    onnx = pytest.importorskip("onnx")
    model = onnx.ModelProto(ir_version=8)
    tensor = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, SINGLE.shape, SINGLE.tolist())
    model.graph.initializer.append(tensor)
    serialized: bytes = model.SerializeToString()
    return serialized


def of_onnx_numbers() -> Array:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(onnx_model())
        return np.array(popsr.io.load_onnx(path)["w"])


CASES: dict[str, Callable[[], Any]] = {
    "to_numpy": lambda: to_numpy(WIDE, F32),
    "to_numpy bfloat16": lambda: to_numpy(WIDE, BF16),
    "to_numpy float16 of float32": lambda: to_numpy(SINGLE, F16),
    "to_numpy default": lambda: to_numpy(WIDE),
    "to_numpy float8": lambda: to_numpy(WIDE, popsr.float8_152, log2_scale=2),
    "variable": lambda: values_of(lambda: popsr.variable(WIDE, F32)),
    "variable float8": lambda: values_of(lambda: popsr.variable(WIDE, popsr.float8_143, log2_scale=4)),
    "constant": lambda: values_of(lambda: popsr.constant(WIDE, BF16)),
    "scalar operand": of_scalar_operand,
    "stream": of_stream,
    "groups": of_groups,
    "written list": of_written_list,
    "gradient": of_gradient,
    "print": of_print,
    "mapped file": of_mapped_file,
    "onnx numbers": of_onnx_numbers,
    "fp8 encode": lambda: fp8_utils.host_pow2scale_cast_to_fp8(WIDE, popsr.float8_143, 3),
    "fp8 decode": lambda: fp8_utils.host_pow2scale_cast_from_fp8(FLOAT8, F32, -140),
    "fp8 decode float16": lambda: fp8_utils.host_pow2scale_cast_from_fp8(FLOAT8, F16, -13),
    "fp8 host scale": lambda: np.array(fp8_utils.host_fp8_mse_scale(HALF)),
    "fp8 scale": of_fp8_mse_scale,
    "sr cast": lambda: sr.cast(SINGLE, "float16", key=sr.Key(0)),
    "sr add": lambda: sr.add(WIDE, WIDE[::-1].copy(), key=sr.Key(0)),
    "sr bracket": lambda: sr.bracket(SINGLE, SINGLE[::-1].copy())[2],
    "sr adamw": of_adamw,
    "adder": lambda: popsr.StochasticAdder("float32", seed=1).add_biased(SINGLE, SINGLE[::-1].copy()),
    "extremes": lambda: np.concatenate(
        [to_numpy(EXTREME, to).view(np.uint8) for to in (F16, BF16, F32, popsr.float8_143, popsr.float8_e5m2)]
    ),
    "extreme integers": lambda: np.concatenate(
        [to_numpy(EXTREME, to).view(np.uint8) for to in (popsr.int8, popsr.int32, popsr.uint32, popsr.int64)]
    ),
    "extreme variable": lambda: values_of(lambda: popsr.variable(EXTREME, F16)),
    "extreme constant": lambda: values_of(lambda: popsr.constant(EXTREME, F16)),
    "extreme list": lambda: values_of(lambda: popsr.constant(EXTREME.tolist(), F16)),
    "extreme sr": lambda: sr.cast(EXTREME_SINGLE, "float16", key=sr.Key(0)),
    "checkpoint cast": lambda: of_checkpoint_cast(F32),
    "checkpoint cast float16": lambda: of_checkpoint_cast(F16),
    "synthetic data": of_synthetic_data,
    "float attributes": of_float_attributes,
    "trigonometry": lambda: np.stack(trig_tables(20, 8, np_dtype=np.float64)),
    "truncated normal": lambda: (np.random.seed(0), truncated_normal((50,), 1 / 3))[1],  # noqa: NPY002
    "compressed": lambda: np.concatenate(
        [part.reshape(-1).view(np.uint8) for part in group_quantize_compress_numpy(SINGLE, 8, 0)]
    ),
}


def raw(value: Any) -> tuple[Any, ...]:
    array = np.asarray(value)
    return array.dtype, array.shape, array.tobytes()


@pytest.fixture(scope="module")
def expected() -> dict[str, tuple[Any, ...]]:
    """Results in the default environment."""
    return {name: raw(case()) for name, case in CASES.items()}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_bits_do_not_depend_on_the_environment(
    name: str, mode: str, expected: dict[str, tuple[Any, ...]]
) -> None:
    with float_mode(mode) as before:
        got = CASES[name]()
        after = mxcsr()
    assert raw(got) == expected[name]
    assert after == before


def test_subnormals_and_halves_are_kept_in_the_first_place(expected: dict[str, tuple[Any, ...]]) -> None:
    assert expected["to_numpy"][2] == WIDE.astype(np.float32).tobytes()
    assert expected["to_numpy bfloat16"][2] == WIDE.astype(ml_dtypes.bfloat16).tobytes()
    assert np.count_nonzero(SINGLE[:7]) == 7


@pytest.mark.parametrize("mode", MODES)
def test_run_leaves_the_environment_of_its_caller_and_of_what_it_calls_back(mode: str) -> None:
    """A callback that sets a mode changes neither the kernels after it nor, in the end, the caller's mode."""

    class Sets:
        def write(self, text: str) -> int:
            inner.__enter__()
            return len(text)

        def flush(self) -> None:
            pass

    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        v = make_variable(SINGLE)
        ops.print_tensor(v)
        out = popsr.d2h_stream(v.shape, F32)
        ops.host_store(out, v * (1 / 3))
    inner = float_mode(mode)
    with popsr.Session(ir) as session, pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "stderr", text_io.StringIO())
        expect = session.run()[out]
        patched.setattr(sys, "stderr", Sets())
        before = mxcsr()
        got = session.run()[out]
        after = mxcsr()
    assert got.tobytes() == expect.tobytes()
    assert after == before


def test_threads_do_not_share_the_guard() -> None:
    """The guard is the thread's: what another thread does meanwhile is its own affair."""
    results: list[bytes] = []
    with float_mode("flush to zero"):
        threads = [
            threading.Thread(target=lambda: results.append(to_numpy(WIDE, F32).tobytes())) for _ in range(4)
        ]
        for thread in threads:  # they inherit the mode
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [WIDE.astype(np.float32).tobytes()] * 4


def test_traps_end_no_conversion() -> None:
    """NumPy reports what overflows through x87, which has masks of its own."""
    pytest.importorskip("onnx")
    out = run_python("from tests_py.session.floats.test_float_environment import trap; trap()")
    assert out.split("\n")[-2:] == ["all", ""], out


def trap() -> None:
    """Run all cases with traps, in a process of its own, which a trap ends."""
    for name, case in CASES.items():
        print(name, flush=True)
        expect = raw(case())
        with traps():
            got = case()
        assert raw(got) == expect
    print("all")
