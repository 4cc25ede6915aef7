"""Values of a job that a guard looks at: parameters, buffers, states of the optimiser, and what else was asked for."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from popsr._support.host.frameworks import framework
from popsr.errors import UnsupportedError
from popsr.guard.torch._hash import WHERE, require_bytes

__all__ = [
    "OPTIMIZER",
    "Item",
    "gradient_items",
    "is_inner_step",
    "job_items",
    "local_statistics",
    "model_items",
    "plain_model",
    "plain_optimizer",
    "require_plain",
]

OPTIMIZER = "optimizer"
"""Start of the names of states and settings of optimisers."""


@dataclass(frozen=True, slots=True)
class Item:
    """A value on this rank.

    Attributes:
        name: the path of ``popsr.bridge.torch.trace_step``.
        value: the tensor, which may be a DTensor.
        local: its bytes on this rank; a number of Python is a tensor here. None of an object that has no bytes.
        shape: of the whole value.
        offset: of this rank's part in the whole; None where parts are not in one piece.
        of: the value whose groups count where none are declared of this one; empty where there is none.
        missing: says that this rank has no such value; empty where it has.
    """

    name: str
    value: Any
    local: Any
    shape: tuple[int, ...]
    offset: tuple[int, ...] | None
    of: str = ""
    missing: str = ""

    @property
    def kind(self) -> str:
        """Dtype and shape of the whole, as ``float32[2, 3]``."""
        return f"{str(self.local.dtype).removeprefix('torch.')}{list(self.shape)}"

    @property
    def part(self) -> str:
        """Dtype, shape of the part, and its place: common to ranks of a group, beside the bytes."""
        if self.missing:
            return self.missing
        dtype = str(self.local.dtype).removeprefix("torch.")
        return f"{dtype}{list(self.local.shape)} at {None if self.offset is None else list(self.offset)}"

    @property
    def part_hash(self) -> int:
        """64 bits of ``part``."""
        return int.from_bytes(hashlib.sha256(self.part.encode()).digest()[:8], "little", signed=True)


def job_items(model: Any, optimizers: tuple[Any, ...], *, gradients: bool, rng: bool) -> Iterator[Item]:
    """All values in a fixed order: parameters, buffers, gradients, states and settings of optimisers, generators."""
    torch = framework(WHERE, "torch")
    names = {parameter: name for name, parameter in model.named_parameters()}
    yield from model_items(model)
    if gradients:
        yield from (each for each in gradient_items(model) if not each.missing)
    for i, optimizer in enumerate(optimizers):
        yield from _optimizer_items(f"{OPTIMIZER}{i or ''}", optimizer, names)
    if rng:
        yield _item("rng.cpu", torch.get_rng_state())
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            yield _item("rng.cuda", torch.cuda.get_rng_state())


def model_items(model: Any) -> Iterator[Item]:
    """Parameters and buffers."""
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        yield _item(name, value)


def gradient_items(model: Any) -> Iterator[Item]:
    """The gradient of each parameter that may have one, also those that are missing."""
    torch = framework(WHERE, "torch")
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            yield dataclasses.replace(_item(f"{name}.grad", parameter.grad), of=name)
        elif parameter.requires_grad:
            nothing = torch.empty(0, dtype=parameter.dtype)
            yield Item(f"{name}.grad", parameter, nothing, tuple(parameter.shape), None, name, "no gradient")


def _optimizer_items(prefix: str, optimizer: Any, names: Mapping[Any, str]) -> Iterator[Item]:
    for i, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            if key != "params":
                yield from _nested(f"{prefix}.group{i}.{key}", value)
        for j, parameter in enumerate(group["params"]):
            name = names.get(parameter, f"group{i}.{j}")
            for key, value in optimizer.state.get(parameter, {}).items():
                yield from _nested(f"{prefix}.{name}.{key}", value)


def _nested(name: str, value: Any) -> Iterator[Item]:
    torch = framework(WHERE, "torch")
    if isinstance(value, torch.Tensor):
        yield _item(name, value)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _nested(f"{name}.{key}", each)
    elif isinstance(value, (list, tuple)):
        yield _item(f"{name}.length", torch.tensor(len(value)))
        for i, each in enumerate(value):
            yield from _nested(f"{name}.{i}", each)
    elif isinstance(value, bool) or (isinstance(value, int) and -(1 << 63) <= value < 1 << 63):
        yield _item(name, torch.tensor(value))
    elif isinstance(value, float):
        yield _item(name, torch.tensor(value, dtype=torch.float64))
    elif value is None or isinstance(value, (int, complex, str)):
        yield _item(name, torch.frombuffer(bytearray(repr(value).encode()), dtype=torch.uint8))
    else:
        yield Item(name, value, None, (), None)


def _item(name: str, value: Any) -> Item:
    local = require_bytes(f"{WHERE}: '{name}'", value)
    shape = tuple(value.shape)
    if not hasattr(value, "placements"):
        return Item(name, value, local, shape, (0,) * len(shape))
    return Item(name, value, local, shape, _offset(value))


def _offset(value: Any) -> tuple[int, ...] | None:
    """Place of a DTensor's local part; None where parts are not in one piece, as of FSDP over tensor parallelism."""
    if any(type(each).__name__ not in ("Replicate", "Shard") for each in value.placements):
        return None
    try:
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
    except ImportError:
        return None
    shape, offset = compute_local_shape_and_global_offset(value.shape, value.device_mesh, value.placements)
    return tuple(offset) if tuple(shape) == tuple(value.to_local().shape) else None


def local_statistics(model: Any) -> dict[str, str]:
    """Buffers that each rank computes of its own batch, with the reason; names as of ``named_buffers``."""
    torch = framework(WHERE, "torch")
    found = {}
    for path, module in model.named_modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            if isinstance(module, torch.nn.SyncBatchNorm):
                continue
            for name in ("running_mean", "running_var"):
                found[f"{path}.{name}" if path else name] = "of each rank's own batch, by BatchNorm"
    return found


def plain_model(model: Any) -> tuple[Any, Any]:
    """The module inside wrappers, so that names have no prefixes, and the process group of DistributedDataParallel."""
    torch = framework(WHERE, "torch")
    group = None
    while True:
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            group, model = model.process_group, model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            return model, group


def plain_optimizer(optimizer: Any) -> Any:
    """The optimiser inside Accelerate's wrapper, whose own steps run no hooks and may be no steps."""
    kind = framework(WHERE, "torch").optim.Optimizer
    while isinstance(optimizer, kind) and not hasattr(optimizer, "_optimizer_step_post_hooks"):
        inner = getattr(optimizer, "optimizer", None)
        if not isinstance(inner, kind):
            break
        optimizer = inner
    return optimizer


def is_inner_step(optimizer: Any) -> bool:
    """Whether the step whose hook calls this is one that a step of the same optimiser calls, as a subclass its base's.

    PyTorch runs hooks in each class whose ``step`` it has wrapped, so in a base too, once an optimiser of it was made.
    """
    code = getattr(type(optimizer).step, "__code__", None)  # one for all wrappers
    frame, steps = sys._getframe(1).f_back, 0
    while frame is not None:
        # Frames of others are not looked into: that would keep their values alive.
        steps += frame.f_code is code and frame.f_locals.get("self") is optimizer
        frame = frame.f_back
    return steps > 1


def require_plain(model: Any, optimizers: tuple[Any, ...]) -> None:
    """Refuse wrappers that give each rank values of its own under common names.

    Raises:
        UnsupportedError: there is one.
    """
    for each in (*model.modules(), *optimizers):
        name = type(each).__name__
        if name in ("FullyShardedDataParallel", "ZeroRedundancyOptimizer"):
            raise UnsupportedError(
                f"{WHERE}: ranks hold parts that do not say of what, got a {name}, expected fully_shard, whose tensors "
                "have placements"
            )
