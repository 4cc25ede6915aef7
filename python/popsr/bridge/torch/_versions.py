"""Names and forms that differ between versions of PyTorch, found by what the installed one has."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["entered", "note_constants", "sends_buffers", "update_of_adam", "work_of_fakes"]


def work_of_fakes() -> tuple[Any, bool]:
    """The class of handles of collectives that send nothing, and whether one of its own says that it is done.

    Without that class all handles wait, as do those who call collectives then.
    """
    import torch

    core: Any = getattr(torch._C, "_distributed_c10d")  # noqa: B009
    kind = getattr(core, "FakeWork", None)
    return (core.Work, False) if kind is None else (kind, True)


def update_of_adam(*, decoupled: bool) -> Callable[..., None]:
    """Torch's function of Adam, or AdamW, that updates one tensor after the other."""
    from torch.optim.adam import adam

    if "decoupled_weight_decay" in inspect.signature(adam).parameters:
        return functools.partial(adam, decoupled_weight_decay=decoupled)
    from torch.optim.adamw import adamw

    return adamw if decoupled else adam


def sends_buffers(wrapper: Any) -> bool:
    """Whether a ``DistributedDataParallel`` sends its buffers in forward passes."""
    name = "forward_sync_buffers" if hasattr(wrapper, "forward_sync_buffers") else "broadcast_buffers"
    return bool(getattr(wrapper, name))


def note_constants(module: Any) -> None:
    """Note with the nodes that read attributes of a graph what their values are, where the trace has not."""
    import torch

    for inner in module.modules():
        for node in getattr(getattr(inner, "graph", None), "nodes", ()):
            value = getattr(inner, node.target, None) if node.op == "get_attr" else None
            if type(value) in (torch.Tensor, torch.nn.Parameter):
                node.meta.setdefault("val", value.detach())


@contextlib.contextmanager
def entered(mode: Any) -> Iterator[Any]:
    """Enter a mode that sees branches and loops, too, which some versions show to registered classes alone."""
    import torch

    kind = type(mode)
    with contextlib.ExitStack() as stack:
        if not hasattr(kind.__mro__[1], "supports_higher_order_operators"):
            for op in (torch.ops.higher_order.cond, torch.ops.higher_order.while_loop):
                stack.callback(op.python_key_table.pop, kind)
                op.python_key_table[kind] = functools.partial(_shown, op)
        yield stack.enter_context(mode)


def _shown(op: Any, mode: Any, *args: Any, **options: Any) -> Any:
    return mode.__torch_dispatch__(op, (), args, options)
