"""Cost of ``python -m popsr check``: 40 files of one program, and long files of one kind of statement.

With the start of Python and the import of popsr.
"""

import resource
import subprocess
import sys

import pytest

from bench.record import at_most, duration, times

MODULE = '''
"""A layer of the program, its configuration and how it is trained."""

from dataclasses import dataclass, field
from typing import Dict, Optional

import numpy as np
import popart
import popxl
import popxl_addons as addons
from popxl import ops
from popxl.ops import collectives, var_updates
from popxl_addons import NamedTensors
from popxl_addons.transforms.autodiff import autodiff
{imports}


@dataclass
class Config{i}:
    features: int = 64
    heads: int = 4
    dtype: popxl.dtype = popxl.float16
    rates: Dict[str, float] = field(default_factory=dict)


class Layer{i}(addons.Module):
    def __init__(self, config: Config{i}, replica_grouping: Optional[popxl.ReplicaGrouping] = None):
        super().__init__()
        self.config = config
        self.replica_grouping = replica_grouping

    def build(self, x: popxl.Tensor, seed: Optional[popxl.Tensor] = None) -> popxl.Tensor:
        dtype = self.config.dtype
        w = self.add_variable_input("w", lambda: np.ones((64, 64)), dtype, replica_grouping=self.replica_grouping)
        b = self.add_variable_input("b", lambda: np.zeros((64,)), dtype, replica_grouping=self.replica_grouping)
{body}
        return x


class Trainer{i}:
    def __init__(self, config: Config{i}, replication: int):
        self.config = config
        self.ir = popxl.Ir(replication=replication)
        self.options = self.ir._pb_ir.getSessionOptions()
        configure{i}(self.options)
        self.session = None

    def build(self):
        with self.ir.main_graph, popxl.in_sequence():
            stream = popxl.h2d_stream((4, self.config.features), self.config.dtype, name="x")
            loss = popxl.d2h_stream((), popxl.float32, name="loss")
            args, graph = Layer{i}(self.config).create_graph(stream.spec)
            variables = args.init()
            x = ops.host_load(stream)
            grads = autodiff(graph, grads_required=graph.args.tensors)
            info = graph.bind(variables).call_with_info(x)
            out = info.outputs[0]
            seed = ops.cast(ops.ones_like(out) if hasattr(ops, "ones_like") else out, out.dtype)
            dx = grads.call(seed, args=grads.grad_graph_info.inputs_dict(info))
            for each in dx:
                collectives.replicated_all_reduce_(each, op="mean")
            for name, variable in variables.named_tensors.items():
                var_updates.accumulate_(variable, dx[0])
            ops.host_store(loss, ops.cast(ops.mean(out), popxl.float32))
        self.session = popxl.Session(self.ir, "ipu_hw")

    def run(self, data):
        with self.session:
            outputs = self.session.run(data)
        return {{stream: np.mean(values) for stream, values in outputs.items()}}


def configure{i}(options):
    options.enableStochasticRounding = True
    return options
'''
LINES = (
    "x = ops.add(ops.matmul(x, w), b)",
    "x = ops.gelu(x)",
    "x = ops.dropout(x, seed, p=0.1) if seed is not None else x",
    "mean, deviation = ops.mean(x, axis=-1, keepdims=True), ops.sqrt(ops.mean(x * x))",
    "x = (x - mean) / deviation",
    "x = ops.transpose(ops.reshape(x, (-1, self.config.heads, 16)), (1, 0, 2))",
    "x = ops.reshape(ops.softmax(ops.cast(x, popxl.float32), axis=-1), (-1, 64))",
)


def test_check_of_40_files(benchmark, record, tmp_path):
    for i in range(40):
        body = "\n".join(f"        {LINES[j % len(LINES)]}" for j in range(140))
        imports = f"from module{i - 1} import Config{i - 1}, Trainer{i - 1}" if i else ""
        (tmp_path / f"module{i}.py").write_text(MODULE.format(i=i, imports=imports, body=body))
    command = [sys.executable, "-m", "popsr", "check", str(tmp_path)]

    def check() -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    lines = sum(len(path.read_text().splitlines()) for path in tmp_path.glob("*.py"))
    print(f"\n{check().splitlines()[-1]}")
    benchmark.pedantic(check, rounds=7, iterations=1, warmup_rounds=1)
    stats = benchmark.stats.stats
    record(
        "With the start of Python",
        f"40 files with {lines:,} lines",
        **times(stats),
        **at_most(1, stats.min, duration),
    )


HEAD = "import popxl\nfrom popxl import ops\nir = popxl.Ir()\nx = popxl.constant(1.0)\n"
STATEMENTS = {
    "calls": "x = ops.add(x, 1.0)",
    "plain names": "y{i} = {i}",
    "functions": "def f{i}(a): return ops.add(a, x)",
    "missing names": "ops.name{i}(x)",
    "missing attributes": "x.name{i}",
    "missing options": "ir.options.name{i} = 1",
    "missing modules": "import module{i}",
}


@pytest.mark.parametrize("kind", STATEMENTS)
def test_check_of_long_files(record, kind, tmp_path):
    """Processor time of a statement at three sizes."""
    for count in (5_000, 20_000, 80_000):
        path = tmp_path / f"long{count}.py"
        path.write_text(HEAD + "".join(f"{STATEMENTS[kind].format(i=i)}\n" for i in range(count)))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "popsr", "check", str(path)], check=False, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        cells = {"processor time": duration(spent), "a statement": duration(spent / count)}
        goal = at_most(1e-4, spent / count, duration)
        record("Long files of one kind of statement", f"{count:,} {kind}", **cells, **goal)
