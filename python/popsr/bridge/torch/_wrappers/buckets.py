"""Communication hooks of ``DistributedDataParallel``, which reduce gradients bucket by bucket.

Which gradients share a bucket, and in which order, is not known before a step has run, and changes after the first one.
So a hook is called with one gradient at a time, and it must treat all elements of a bucket alike: its ops are on
elements or collectives of whole buckets, and it asks for no places or sizes. Whatever the buckets are, each element is
then what it would be alone.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NoReturn

from popsr._support.text.shown import shown
from popsr.bridge.torch._states.kept import add_plain, captured, is_plain
from popsr.bridge.torch._tracing.promises import callbacks_followed
from popsr.bridge.torch._user.locations import current_place, shown_place
from popsr.errors import UnsupportedError

__all__ = ["Hook", "hook_of"]

_ALIKE = frozenset(
    {
        "copy",
        "_to_copy",
        "alias",
        "detach",
        "view",
        "_unsafe_view",
        "lift_fresh",
        "lift_fresh_copy",
        "barrier",
    }
    | {"empty_like", "zeros_like", "ones_like", "full_like", "fill", "zero", "scalar_tensor", "wait_tensor"}
    | {"all_reduce", "allreduce", "broadcast", "allgather", "reduce"}
)
"""Ops that treat all elements of a bucket alike, beside those that torch calls pointwise."""

_ASKED = ("shape", "size", "numel", "nelement", "__len__", "stride", "nbytes", "dim", "tolist")
"""Questions for the size of a bucket."""


def hook_of(wrapper: Any) -> Hook | None:
    """The communication hook of a wrapper; None without one."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    found = list(wrapper._comm_hooks)
    if found:
        return Hook(*found[0])
    name = str(wrapper._get_ddp_logging_data().get("comm_hook", ""))
    if not name:
        return None
    built_in = {"ALLREDUCE": default_hooks.allreduce_hook, "FP16_COMPRESS": default_hooks.fp16_compress_hook}
    hook = built_in.get(name.rsplit(".", 1)[-1])
    if hook is None:
        raise _unfollowed(name, "it", "a hook of register_comm_hook")
    return Hook(hook, wrapper.process_group)


class Hook:
    """A communication hook.

    Args:
        function: the hook.
        state: what it is given besides the bucket.
    """

    def __init__(self, function: Callable[[Any, Any], Any], state: Any) -> None:
        """With the numbers of Python that the hook may count with, as they are now."""
        self._function, self._state = function, state
        self._before = self._counts()

    @property
    def name(self) -> str:
        """The name of the function."""
        inner = getattr(self._function, "func", self._function)
        return str(getattr(inner, "__qualname__", type(inner).__name__))

    def __call__(self, gradient: Any) -> Any:
        """The gradient as the hook gives it back.

        Args:
            gradient: this rank's, which the hook may write.
        Raises:
            UnsupportedError: the hook asks for more than the elements of a bucket.
        """
        import torch

        flat = gradient.reshape(-1)
        with callbacks_followed(), _alike(self.name, flat):
            made = self._function(self._state, _Bucket(self.name, flat))
            made = made.wait() if hasattr(made, "wait") else made
        if not isinstance(made, torch.Tensor) or made.numel() != gradient.numel():
            raise _unfollowed(
                self.name, f"{type(made).__name__} from it", "a future of a tensor like the bucket's"
            )
        return made.view(gradient.shape)

    def check_end(self) -> None:
        """Refuse a hook that counts in Python: a later step may do something else.

        Raises:
            UnsupportedError: with the name of what changed.
        """
        after = self._counts()
        for name in dict.fromkeys((*self._before, *after)):
            if self._before.get(name) != after.get(name):
                raise _unfollowed(
                    self.name, f"a change of {shown(name)}", "a hook that does the same in each step"
                )

    def _counts(self) -> dict[str, Hashable]:
        found: dict[str, Hashable] = {}
        state = self._state
        add_plain("state.", state if isinstance(state, dict) else getattr(state, "__dict__", {}), found)
        if isinstance(state, list):
            add_plain("state", {"": state}, found)
        function = inspect.unwrap(getattr(self._function, "func", self._function))
        add_plain("", {name: value for name, value in captured([function]) if is_plain(value)}, found)
        return found


class _Bucket:
    """A bucket of one gradient, which does not say that it is one."""

    def __init__(self, name: str, flat: Any) -> None:
        self._name, self._flat = name, flat

    def buffer(self) -> Any:
        """The elements."""
        return self._flat

    def set_buffer(self, t: Any) -> None:
        """Put other elements in their place."""
        self._flat = t

    def __getattr__(self, asked: str) -> NoReturn:
        raise _unfollowed(self._name, f"bucket.{asked}", "bucket.buffer()")


@contextlib.contextmanager
def _alike(name: str, flat: Any) -> Iterator[None]:
    """Refuse ops that depend on the place of an element in its bucket."""
    import torch
    import torch.utils._pytree as trees
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    count = flat.numel()
    own = [flat]

    def is_own(t: Any) -> bool:
        return any(t.untyped_storage()._cdata == each.untyped_storage()._cdata for each in own)

    class Asked(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked = getattr(getattr(func, "__self__", None), "__name__", getattr(func, "__name__", ""))
            if asked in _ASKED:
                raise _unfollowed(name, f"{asked} of a tensor", "a hook that does not ask for sizes")
            return func(*args, **(kwargs or {}))

    class Alike(TorchDispatchMode):
        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            options = kwargs or {}
            if op.namespace == "prim":  # asks for a device
                return op(*args, **options)
            given = [t for t in trees.tree_leaves((args, options)) if isinstance(t, torch.Tensor)]
            packet = str(op).split(".")[1].rstrip("_")
            is_random = torch.Tag.nondeterministic_seeded in op.tags
            if is_random or (torch.Tag.pointwise not in op.tags and packet not in _ALIKE):
                raise _unfollowed(name, f"{op}", "ops on elements, and collectives of whole buckets")
            if any(t.numel() not in (1, count) for t in given):
                raise _unfollowed(name, f"{op} of a tensor of another size", "tensors made of the bucket's")
            written = [
                t
                for argument, value in zip(op._schema.arguments, args, strict=False)
                if argument.alias_info is not None and argument.alias_info.is_write
                for t in trees.tree_leaves(value)
            ]
            if not all(map(is_own, written)):
                raise _unfollowed(
                    name, f"{op} of a tensor from outside", "writes of what is made of the bucket"
                )
            made = op(*args, **options)
            ours = all(map(is_own, (t for t in given if t.numel() == count)))
            own.extend(t for t in trees.tree_leaves(made) if isinstance(t, torch.Tensor) and ours)
            return made

    with Asked(), Alike():
        yield


def _unfollowed(name: str, got: str, expected: str) -> UnsupportedError:
    return UnsupportedError(
        f"trace_step: communication hook {shown(name)} of DistributedDataParallel is not followed at "
        f"{shown_place(current_place())}, got {got}, expected {expected}"
    )
