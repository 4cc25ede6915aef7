"""Cells of the matrix as steps that a user writes: a model, its parallelism and its optimiser, and a planted bug."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812

from tests_py.bridge.torch.matrix.models import MODELS, Model  # noqa: E402
from tests_py.bridge.torch.matrix.optimizers import OPTIMIZERS, Optimizer  # noqa: E402
from tests_py.bridge.torch.matrix.parallel import PARALLEL, Parallel, module_of  # noqa: E402

__all__ = ["CELLS", "COVERING", "PLANTS", "PUBLISHED", "Cell"]

PLANTS = ("", "left out", "write", "mean of the loss")
"""Bugs: none, a reduction left out, a write that depends on the rank, a loss that is not reduced."""


@dataclass(frozen=True)
class Cell:
    """A step of the table.

    Attributes:
        model: name of its model.
        parallel: name of its parallelism.
        optimizer: name of its optimiser.
        plant: its bug, of ``PLANTS``.
    """

    model: str
    parallel: str
    optimizer: str
    plant: str = ""

    @property
    def kind(self) -> Model:
        """Its model."""
        return MODELS[self.model]

    @property
    def form(self) -> Parallel:
        """Its parallelism."""
        return PARALLEL[self.parallel]

    @property
    def rule(self) -> Optimizer:
        """Its optimiser."""
        return OPTIMIZERS[self.optimizer]

    def make(self) -> Any:
        """The model, in its wrapper."""
        module = self.kind.make()
        module.register_buffer("mean_loss", torch.zeros(()))
        return self.form.wrap(module, self.kind)

    def make_optimizer(self, model: Any) -> Any:
        """The optimiser of a model."""
        return self.rule.made(model)

    def batch(self, rank: int, number: int = 0) -> tuple[Any, Any]:
        """The batch of a rank in a step; gradients of the second step are not finite where a scaler is to skip it."""
        place = rank // self.form.shared
        x, y = self.kind.batch(torch.Generator().manual_seed(100 * number + place))
        overflows = self.rule.scaler and number == 1 and place == 0 and x.is_floating_point()
        return x * 1e30 if overflows else x, y

    def step(self, model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        """One training step."""
        passes, reduce = self.form.passes, self.form.reduce
        if self.plant == "left out" and self.form.forgotten is not None:
            passes, reduce = self.form.forgotten
        optimizer.zero_grad()

        def run(called: Any, part: int, parts: int) -> Any:
            size = len(x) // parts
            rows = slice(part * size, part * size + size)
            made = called(x[rows])
            loss = F.cross_entropy(made.reshape(-1, made.shape[-1]).float(), y[rows].reshape(-1)) / parts
            self.rule.backward(optimizer, loss)
            return loss.detach()

        loss = passes(model, run)
        reduce(model, self.kind)
        self.rule.update(model, optimizer)
        self._finish(model, loss)
        return loss

    def _finish(self, model: Any, loss: Any) -> None:
        """Keep the mean of the loss; bugs that come last."""
        module, mean = module_of(model), loss.clone()
        with torch.no_grad():
            if self.plant != "mean of the loss":
                dist.all_reduce(mean, dist.ReduceOp.AVG)
            module.mean_loss.lerp_(mean, 0.1)
            if self.plant == "write":
                first = next(module.parameters())
                local = first.to_local() if hasattr(first, "to_local") else first
                local.add_(0.001 * dist.get_rank())

    def options(self) -> dict[str, Any]:
        """Arguments of ``trace_step``."""
        world, shared = self.form.world, self.form.shared
        groups: dict[str, Any] = {f"*{name}.*": list(range(world)) for name in self.kind.owned}
        if shared > 1:
            together = [list(range(k, k + shared)) for k in range(0, world, shared)]
            groups |= {"[xy]": together, "random seed": together}
        return {"replicas": world, "groups": groups}


def _covering() -> Iterator[Cell]:
    """Each parallelism with each optimiser, with models by turns: each pair of the three is there."""
    names = list(MODELS)
    for (i, parallel), (j, optimizer) in itertools.product(enumerate(PARALLEL), enumerate(OPTIMIZERS)):
        turns = [Cell(names[(i + j + k) % len(names)], parallel, optimizer) for k in range(len(names))]
        yield next(cell for cell in turns if not _is_mixed(cell))


def _is_mixed(cell: Cell) -> bool:
    """True if torch raises: one call takes plain tensors beside DTensors."""
    return cell.rule.joint and (
        (bool(cell.kind.owned) and cell.form.shards) or (cell.kind.uncut and cell.form.shared > 1)
    )


PUBLISHED = [
    Cell("GPT, dropout", "`DistributedDataParallel`", "AdamW `fused`"),
    Cell("GPT, dropout", "DDP, `no_sync`", "SGD, all of these"),
    Cell("GPT", "`fully_shard` × tensor parallel", "AdamW, clip"),
    Cell("GPT", "sequence parallel", "AdamW `foreach`"),
    Cell("GPT", "`fully_shard`, bf16", "AdamW, clip"),
    Cell("experts, `all_to_all`", "`fully_shard`, nested", "AdamW"),
]
"""Set-ups of published recipes: nanoGPT, torchtitan's Llama, expert parallelism."""

COVERING = list(_covering())
"""Cells of the table, row by row."""


def _missing(cells: Sequence[Cell]) -> Iterator[Cell]:
    """A cell for each pair of a model and a parallelism or an optimiser that none of the cells has."""
    pairs = {pair for c in cells for pair in ((c.model, c.parallel), (c.model, c.optimizer))}
    for model, parallel, optimizer in itertools.product(MODELS, PARALLEL, OPTIMIZERS):
        cell = Cell(model, parallel, optimizer)
        lacking = {(model, parallel), (model, optimizer)} - pairs
        if lacking and not _is_mixed(cell):
            pairs |= lacking
            yield cell


CELLS = list(dict.fromkeys([*COVERING, *PUBLISHED]))
CELLS += _missing(CELLS)
"""Cells of the matrix."""
