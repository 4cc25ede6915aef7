"""Calls of torch in a step that no op shows: ``.data`` and ``.grad`` set, and tensors of the step before."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from popsr._support.text.shown import shown
from popsr.bridge._step.replaced import replaced
from popsr.bridge.torch._tracing.decompositions import fused_call, in_terms_of_others
from popsr.bridge.torch._user.locations import current_place, shown_place
from popsr.errors import UnsupportedError

__all__ = ["capturable_anywhere", "fake_mode_of", "watched"]

_PLAIN = ("shape", "dtype", "device", "ndim", "requires_grad", "is_leaf", "layout")
_METHODS = ("size", "dim", "numel", "stride", "is_contiguous", "is_floating_point", "element_size")


def fake_mode_of(t: Any) -> Any:
    """The mode that a fake tensor, or the part of a DTensor, is of; None for real ones."""
    return getattr(getattr(t, "_local_tensor", t), "fake_mode", None)


@contextlib.contextmanager
def capturable_anywhere() -> Iterator[None]:
    """Let optimisers that are made for graphs of a GPU step tensors of any device: the ops are the same."""
    import torch

    name = "_get_capturable_supported_devices"
    start = f"{torch.optim.__name__}."
    modules: list[Any] = [
        each for path, each in sys.modules.items() if path.startswith(start) and hasattr(each, name)
    ]

    def on_the_cpu_too(devices: Callable[..., list[str]]) -> Callable[..., list[str]]:
        return lambda *args, **options: ["cpu", *devices(*args, **options)]

    with replaced((each, name, on_the_cpu_too(getattr(each, name))) for each in modules):
        yield


def watched(
    parameters: Mapping[Any, str], traced: Sequence[Any], kept: Any
) -> contextlib.AbstractContextManager[Any]:
    """Inside, ``p.data = x`` is an op, and what is of another step or model is refused.

    Args:
        parameters: the model's own, by their paths; a step has others in their place.
        traced: the tensors of this trace.
        kept: a function of a fake tensor of a trace before that gives what to use in its place.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    tensor: Any = torch.Tensor
    metadata = {getattr(tensor, name).__get__ for name in _PLAIN} | {
        getattr(tensor, name) for name in _METHODS
    }
    gradients = (tensor.grad.__get__, tensor.grad.__set__, tensor.data.__set__)
    factories, numbers = (torch.tensor, torch.as_tensor), (torch.SymFloat, torch.SymInt)
    names = {id(p): name for p, name in parameters.items()}
    mode = next(filter(None, map(fake_mode_of, traced)), None)

    def current(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            of = fake_mode_of(value)
            return kept(value) if of is not None and of is not mode else value
        if type(value) in (list, tuple):
            return type(value)(current(each) for each in value)
        return value

    class Watched(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            options = kwargs or {}
            if func in metadata:
                return func(*args, **options)
            if func in gradients and id(args[0]) in names:
                raise UnsupportedError(
                    f"trace_step: a parameter that is not the model's in this step is used at "
                    f"{shown_place(current_place())}, got {shown(names[id(args[0])])}, expected those of the model "
                    "that the step is given, which the step before has not made anew"
                )
            if mode is not None:
                args = current(tuple(args))
                options = {key: current(value) for key, value in options.items()}
            if func in factories and isinstance(args[0], numbers):
                is_float = isinstance(args[0], torch.SymFloat)
                kind = torch.get_default_dtype() if is_float else torch.int64
                full: Any = torch.full
                return full((), args[0], **{"dtype": kind, **options})
            fused = fused_call(func, options)
            if fused is not None:
                return in_terms_of_others(fused, args, options, func)
            if func == tensor.data.__set__:
                return _set_data(*args)
            return func(*args, **options)

    return Watched()


def _set_data(t: Any, value: Any) -> None:
    """``t.data = value``: the tensor is in the other's memory from here on."""
    import torch

    if hasattr(t, "placements") or hasattr(value, "placements") or t.dtype != value.dtype:
        raise UnsupportedError(
            f"trace_step: .data is set at {shown_place(current_place())}, got {_kind(value)} in place of {_kind(t)}, "
            "expected local tensors of one element type, or copy_"
        )
    autograd: Any = torch.autograd
    with torch.no_grad(), autograd._unsafe_preserve_version_counter(t):
        t.set_(value.detach())


def _kind(t: Any) -> str:
    return f"{type(t).__name__} of {str(t.dtype).removeprefix('torch.')}"
