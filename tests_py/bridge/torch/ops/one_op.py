"""A graph of one op, read and run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popsr
from popsr.bridge import StepBuilder
from popsr.bridge.torch._dtypes import Scalar, dtype_of
from popsr.bridge.torch._importer import Importer, array_of

torch = pytest.importorskip("torch")


def graph_of(op: Any, args: Any, options: Any) -> tuple[Any, list[Any], list[Any]]:
    """A graph module of one op, its inputs, and torch's results."""
    graph, inputs = torch.fx.Graph(), list[Any]()
    fake = torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)

    def placed(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            node = graph.placeholder(f"x{len(inputs)}")
            node.meta["val"] = fake.from_tensor(value)
            inputs.append(value)
            return node
        return type(value)(placed(each) for each in value) if isinstance(value, list | tuple) else value

    node = graph.call_function(
        op, placed(tuple(args)), {key: placed(value) for key, value in options.items()}
    )
    made = op(*args, **options)
    results = list(made) if isinstance(made, list | tuple) else [made]
    fakes = [fake.from_tensor(each) if isinstance(each, torch.Tensor) else each for each in results]
    node.meta["val"] = fakes if isinstance(made, list | tuple) else fakes[0]
    graph.output(node)
    return torch.fx.GraphModule(torch.nn.Module(), graph), inputs, results


def run(op: Any, args: Any, options: Any) -> list[tuple[Any, Any]]:
    """popsr's and torch's results of an op."""
    module, inputs, expected = graph_of(op, args, options)
    builder = StepBuilder(1, where="row")
    with builder:
        given = [
            builder.data(f"x{i}", tuple(t.shape), dtype_of(t.dtype), builder.all(), example=array_of(t))
            for i, t in enumerate(inputs)
        ]
        seed = popsr.constant(np.array([1, 2], np.uint32))
        made = Importer(builder, lambda _: builder.all(), lambda: seed).run(module, given)
        outputs = list(made) if isinstance(made, list | tuple) else [made]
        for i, t in enumerate(outputs):
            if t is not None:
                builder.result(f"y{i}", popsr.ops.identity(t.tensor if isinstance(t, Scalar) else t))
        step = builder.finish()
    rows = step.run()
    return [
        (None if t is None else rows[f"y{i}"], each)
        for i, (t, each) in enumerate(zip(outputs, expected, strict=True))
    ]
