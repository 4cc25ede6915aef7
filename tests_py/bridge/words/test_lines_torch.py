"""Steps of PyTorch that call installed packages: lines are the user's, scopes the paths of modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import popsr.bridge.torch as bridge
from popsr._program.op import Op
from popsr.errors import UnsupportedError, UnsupportedOpsError
from tests_py.bridge.words.library import installed, line_of

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

LIBRARY = """
import torch


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.tanh(self.attn(x))


class Model(torch.nn.Module):
    def __init__(self, own):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList([Layer(), Layer()])
        self.own = own

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.own(x)


class SGD(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad, alpha=0.1)


def odd(x):
    return torch.linalg.eigvals(x)


def asks(x):
    return float(x.sum())
"""


class Own(nn.Module):
    """A module of the user in a model of a library."""

    def forward(self, x: Any) -> Any:
        return (x * x).sum()  # own


def places(step: Any) -> set[str]:
    ops = (Op(step.ir, number) for number in range(step.ir._core.num_ops))
    return {op.location for op in ops if op.kind not in ("copy_var_update_", "host_load", "host_store")}


def scopes(step: Any) -> set[str]:
    names = (Op(step.ir, n).outputs for n in range(step.ir._core.num_ops))
    return {each[0].name.rpartition("/")[0] for each in names if each}


@pytest.mark.parametrize("site", ["site-packages", "dist-packages"])
def test_ops_of_a_library_are_at_the_line_that_calls_it(tmp_path: Path, site: str) -> None:
    library = installed(tmp_path, site, f"torch_{site[:4]}", LIBRARY)

    def step(model: Any, optimizer: Any, x: Any) -> None:
        optimizer.zero_grad()
        loss = model(x)  # forward
        loss.backward()
        optimizer.step()  # step

    made = bridge.trace_step(
        step,
        lambda: library.Model(Own()),
        lambda m: library.SGD(m.parameters()),
        torch.ones(2, 4),
        replicas=2,
    )
    wanted = {line_of(__file__, text) for text in ("forward", "own", "step")}
    assert wanted <= places(made)
    assert not [place for place in places(made) if site in place]
    [text] = made.prove().problems
    assert text.startswith(
        "'layers.*.attn.weight', 'layers.*.attn.bias' (4 values) differ inside groups: declared {0,1}, proved {0}{1}: "
        "in 'layers.*.attn' each replica has a part of its gradient, made at "
        f"{Path(line_of(__file__, 'forward')).name}, used at "
        f"{Path(line_of(__file__, 'step')).name}; replicas differ as "
    )
    assert scopes(made) >= {"layers/0/attn", "layers/0", "layers/1/attn", "own", ""}


def test_an_unsupported_op_names_both_lines(tmp_path: Path) -> None:
    library = installed(tmp_path, "site-packages", "torch_odd", LIBRARY)

    def step(model: Any, x: Any) -> Any:
        return library.odd(x)  # odd

    with pytest.raises(UnsupportedOpsError) as caught:
        bridge.trace_step(step, nn.Linear(2, 2), None, torch.ones(2, 2), replicas=2)
    [note] = [each for each in caught.value.__notes__ if "eig" in each]
    assert note.endswith(f" at {line_of(__file__, 'odd')} (in package/torch_odd.py:39)")


def test_a_refusal_names_both_lines(tmp_path: Path) -> None:
    library = installed(tmp_path, "site-packages", "torch_asks", LIBRARY)

    def step(model: Any, x: Any) -> Any:
        return x * library.asks(x)  # asks

    with pytest.raises(UnsupportedError) as caught:
        bridge.trace_step(step, nn.Linear(2, 2), None, torch.ones(2, 2), replicas=2)
    assert f" at {line_of(__file__, 'asks')} (in package/torch_asks.py:43), got" in str(caught.value)


def test_an_exported_program_has_the_scopes_of_its_modules() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 2)))
    program = torch.export.export(model, (torch.ones(2, 4),))
    assert scopes(bridge.from_export(program, replicas=2)) >= {"0", "1/0", "1/1"}
