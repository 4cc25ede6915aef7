"""A program with one of everything that popsr makes: what generated calls are made on and with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import popsr
from popsr import addons, analysis, bridge, io, ops, sr, transforms
from popsr._program.context import _context
from popsr.addons import layers
from popsr.addons.dot_tree import DotTree
from popsr.addons.graph_cache import IrTable
from popsr.addons.module_gradients import Aux, VarGrad
from popsr.addons.module_state import State
from popsr.addons.named_replica_grouping import NamedReplicaGrouping
from popsr.addons.named_tensors import NamedTensorData
from popsr.addons.optimizers import AdamOptimizerStep, LambOptimizerStep, LionOptimizerStep, SGDOptimizerStep
from popsr.addons.remote import named_variable_buffers
from popsr.addons.streams import InputStreams, OutputStreams
from popsr.addons.testing_utils import TensorInput
from popsr.addons.transforms.batch_serialisation import batch_serialise
from popsr.addons.transforms.pipeline_bound_graph import PipelineBoundGraph
from popsr.addons.transforms.pipeline_stages import StageContext
from popsr.addons.transforms.pipelining import Pipelining
from popsr.addons.transforms.serial_io import RemoteHandle, StepPlace
from popsr.addons.transforms.stash import Restore, Stash
from popsr.fp8_utils import CandidateConfig, FpDef
from popsr.ops.nn.conv import MultiConvOptions
from popsr.ops.nn.pool import ReceptiveAttributes
from popsr.ops.update.optimisers import OptimizerValue
from popsr.replicas import CommGroup, CommGroupType, VariableSettings

__all__ = ["World"]

F32 = popsr.float32


class Net(addons.Module):
    """Two variables and a product."""

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        w = self.add_variable_input("w", lambda: np.ones((3, 3), np.float32), F32)
        return (x @ w) * self.add_variable_input("scale", lambda: np.full((), 2, np.float32), F32)


class World:
    """A program of two replicas, a session of it, facts about it, and an object of each class around it.

    Args:
        folder: where files are.
    """

    def __init__(self, folder: Path) -> None:
        self.ir = popsr.Ir(replication=2)
        with self.ir.main_graph, popsr.in_sequence():
            self._build()
        self.session = popsr.Session(self.ir)
        self.facts = analysis.analyze(self.ir)
        io.save_safetensors(self.session, folder / "world.safetensors")
        with self.ir.main_graph:
            self.instances = self._instances(folder)
        _context.__init__()  # type: ignore[misc]
        self.instances += self._of_steps()

    def _build(self) -> None:
        self.x_stream = popsr.h2d_stream((2, 3), F32, "x")
        self.y_stream = popsr.d2h_stream((2, 3), F32, "y")
        self.variable = popsr.variable(np.ones((2, 3), np.float32), name="v")
        self.constant = popsr.constant(np.full((2, 3), 0.5, np.float32), name="c")
        self.labels = popsr.constant(np.array([0, 1], np.int32))
        self.seed = popsr.constant(np.array([1, 2], np.uint32))
        self.x = ops.host_load(self.x_stream)
        self.t = self.x + self.variable
        self.graph = self.ir.create_graph(lambda a, b: ops.mul(a, b), self.t, self.t)
        self.call = ops.call_with_info(self.graph, self.t, self.variable)
        self.flag = popsr.constant(True, popsr.bool)
        self.branch = ops.conditional_with_info(
            self.flag, self.graph, self.graph, [self.t, self.t], [self.t, self.t]
        )
        self.net_factories, self.net = Net().create_graph(self.t)
        self.net_variables = self.net_factories.init("net")
        ops.host_store(self.y_stream, self.net.bind(self.net_variables).call(self.t)[0])
        self.free, self.free_net = Net().create_graph(self.t)
        self.grad = transforms.autodiff(self.free_net.graph)
        self.buffer = popsr.remote_buffer((2, 3), F32, 2)
        self.grouping = self.ir.replica_grouping()

    def _instances(self, folder: Path) -> list[Any]:
        return [
            *self._of_the_program(),
            *self._of_facts(),
            *self._of_replicas(),
            *self._values(folder),
            *self._of_addons(),
            *self._modules(),
        ]

    def _of_the_program(self) -> list[Any]:
        return [
            self.ir,
            self.graph,
            self.ir.main_graph,
            self.t,
            self.variable,
            self.constant,
            self.graph.ops[0],
            self.x_stream,
            self.y_stream,
            self.buffer,
            self.session,
            self.ir.options,
            self.call,
            self.branch,
            self.grad,
            self.grad.expected_inputs[0],
            _context,
        ]

    def _of_facts(self) -> list[Any]:
        explanation = self.facts.explain(self.t, 0, 1)
        return [
            self.facts,
            self.facts.contexts(self.graph)[0],
            analysis.analyze(self.ir, "popart"),
            explanation,
            explanation.steps[0],
            explanation.root,
            *self.facts.warnings[:1],
        ]

    def _of_steps(self) -> list[Any]:
        builder = bridge.StepBuilder(2, unsupported="conservative")
        with builder:
            w = builder.state("w", np.ones(3, np.float32), builder.all())
            x = builder.data("x", (3,), F32, builder.each(), example=np.ones((2, 3), np.float32))
            builder.update("w", w * x)
            builder.result("y", x, grouping=builder.all())
            builder.unsupported("op", [x], [])
            step = builder.finish()
        proof = step.prove()
        drifting = proof.drifting[0]
        return [builder, step, *step.arguments, *step.results, *step.gaps, proof, drifting, drifting.cause]

    def _of_replicas(self) -> list[Any]:
        group = CommGroup(CommGroupType.Consecutive, 2)
        return [self.grouping, self.grouping.partition, group, VariableSettings(group)]

    def _values(self, folder: Path) -> list[Any]:
        fp_def = FpDef(5, 2, 16, True, False)
        return [
            sr.Key(7),
            popsr.StochasticAdder("bfloat16", 3),
            popsr.StochasticAdder("float16", 3, "counter"),
            popsr.TensorSpec((2, 3), F32),
            popsr.TensorLocation(),
            F32,
            io.PyWeightsIO({self.variable: np.zeros((2, 3), np.float32)}),
            io.load_safetensors(folder / "world.safetensors"),
            CandidateConfig(popsr.float8_143, fp_def, fp_def, np.float32),
            OptimizerValue(1.0, True),
            MultiConvOptions(),
            ReceptiveAttributes(None, None, None, None, None, "not_set", False),
        ]

    def _of_addons(self) -> list[Any]:
        bound = self.net.bind(self.net_variables)
        state = addons.NamedTensors(v=self.variable)
        streams = InputStreams(a=((2,), F32)), OutputStreams(b=((2,), F32))
        return [
            self.net,
            bound,
            self.net_factories,
            self.net_variables,
            self.net_factories.w,
            DotTree(a=1),
            NamedTensorData(a=np.ones(2)),
            NamedReplicaGrouping(a=self.grouping),
            named_variable_buffers(self.net_factories, shard_over_dict=False),
            addons.OrderedDict(a=1),
            addons.WeightsDict(),
            addons.GraphCache(),
            IrTable(),
            Aux({"a": self.t}, True),
            VarGrad({"a": self.t}),
            State(),
            *streams,
            addons.TaskSession([self.x_stream], [self.y_stream], state, ir=self.ir),
            batch_serialise(self.free_net, 2, {}, {}, {}),
            RemoteHandle(self.buffer),
            StepPlace(self.labels, self.labels, 2, False),
            TensorInput(np.ones(2, np.float32)),
            StageContext(),
            Pipelining(self.graph, 4),
            PipelineBoundGraph(self.graph),
        ]

    def _modules(self) -> list[Any]:
        grouping = self.grouping
        return [
            popsr.Module(),
            Net(),
            addons.Module.from_list([Net(), Net()]),
            Stash(),
            Restore(),
            AdamOptimizerStep(),
            LambOptimizerStep(),
            LionOptimizerStep(),
            SGDOptimizerStep(),
            layers.ColumnParallelLinear(4),
            layers.Conv2D(2, (1, 1)),
            layers.Embedding(F32, 8, 4),
            layers.GroupNorm(1),
            layers.LayerNorm(),
            layers.LayerNormDistributed(grouping),
            layers.Linear(4),
            layers.LinearFP8(4),
            layers.LinearGQ(4),
            layers.ParallelAttention(2, 4),
            layers.ParallelCrossEntropy(),
            layers.ParallelEmbedding(F32, 8, 4),
            layers.RowParallelLinear(4),
        ]
