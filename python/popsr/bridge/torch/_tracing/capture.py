"""Tracing of a step to a functional graph of core ATen ops, in two passes.

The first runs the step on fake tensors, with autograd and the optimiser, and records what is called: each op with the
user's line, of backward ops the line of their forward op; lists of tensors and fused updates one tensor at a time;
collectives of ``torch.distributed`` as functional ones. The second runs this graph again without writes and views,
decomposed to ATen's core set.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from popsr.bridge.torch._ranks.same import GraphKey
from popsr.bridge.torch._states.schedules import NewNumbers
from popsr.bridge.torch._tracing.asynchronous import Pending
from popsr.bridge.torch._tracing.choices import Choices, ends_with_error
from popsr.bridge.torch._tracing.collective_calls import noted_reductions
from popsr.bridge.torch._tracing.decompositions import decompositions, in_terms_of_others
from popsr.bridge.torch._tracing.draws import Draws, kept_generator
from popsr.bridge.torch._tracing.generators import Drawn, Generators, state_of
from popsr.bridge.torch._tracing.messages import Messages
from popsr.bridge.torch._tracing.plain import plain_ops
from popsr.bridge.torch._tracing.simplify import return_writes, simplify
from popsr.bridge.torch._tracing.synchronised import synchronised_norms
from popsr.bridge.torch._tracing.watcher import WritesOutside, watcher, writes_constant, written_by
from popsr.bridge.torch._user.locations import (
    Place,
    current_place,
    place_of_error,
    place_of_node,
    shown_place,
)
from popsr.bridge.torch._versions import note_constants
from popsr.errors import Error, UnsupportedError

__all__ = ["Recorded", "WayEnds", "functional", "primitive", "record", "resolve_writes"]


@dataclass
class Recorded:
    """The ops of one rank in a step.

    Attributes:
        module: a graph module whose placeholders are the inputs, in order.
        groups: ranks of each process group that a collective names, by the group's name.
        names: this rank's own name of each group that the functional graph calls by another rank's name.
        functional: the graph of core ops without writes and views; ranks that record the same ops share it.
        key: the key of ``module``.
        messages: calls of communication in their order.
        drawn: draws from generators that ops are given.
        end: state of torch's own generator after the step.
        results: names of what the step returns, after the states.
        outcomes: the ways that Python took where it asked data.
        asked: numbers of the truth values that decided, which the graph returns last.
        scheduled: the schedulers that step, one after the other.
        others: further ways that the step may take.
        common: lines of truth values that must be common to all ranks, which the functional graph returns last.
    """

    module: Any
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    functional: Any = None
    key: GraphKey | None = None
    messages: Messages = field(default_factory=Messages)
    drawn: Drawn | None = None
    end: str = ""
    results: list[str] = field(default_factory=list)
    outcomes: tuple[bool, ...] = ()
    asked: list[int] = field(default_factory=list)
    scheduled: tuple[int, ...] = ()
    others: list[Recorded] = field(default_factory=list)
    common: list[str] = field(default_factory=list)

    @property
    def ways(self) -> list[Recorded]:
        """All ways that the step may take."""
        return [self, *self.others]


class WayEnds(Exception):
    """A way on which the user's own statement raises: no step goes it to its end.

    Args:
        told: the error if the step has no other way.
    """

    def __init__(self, told: Error) -> None:
        """The end of a way."""
        super().__init__(str(told))
        self.told = told


def record(function: Callable[..., Any], inputs: Sequence[Any], choices: Choices) -> Recorded:
    """First pass: the graph of a function of tensors that returns tensors, with its writes.

    Args:
        function: the step.
        inputs: a value for each of its tensors.
        choices: the ways that it takes where Python asks data; the graph returns what was asked for last.
    Raises:
        UnsupportedError: Python's control flow or a shape depends on the data.
    """
    import torch
    import torch.fx.traceback as notes
    from torch.fx._lazy_graph_module import _use_lazy_graph_module as graphs_without_code
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.nn.attention import SDPBackend, sdpa_kernel

    found = Recorded(None)
    generators = Generators(function, getattr(function, "step", function))

    def watched(*args: Any) -> Any:
        # attention and recurrent layers as ops that other models have, too
        with contextlib.ExitStack() as stack:
            pending = Pending()
            stack.callback(pending.close)
            call = stack.enter_context(plain_ops())
            stack.enter_context(watcher(found.groups, pending, found.messages, Draws(generators), call))
            stack.enter_context(noted_reductions())
            stack.enter_context(synchronised_norms())
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            stack.enter_context(_without_onednn())
            stack.enter_context(_storages_of_one_size())
            stack.enter_context(choices.taken())
            made = function(*args)
            return [*made, *(symbol for _, symbol in choices.asked)]

    traced = make_fx(watched, tracing_mode="fake", _allow_non_fake_inputs=True)
    with notes.preserve_node_meta(), graphs_without_code(True), kept_generator(), generators:
        try:
            found.module = traced(*inputs)
            found.drawn, found.end = generators.drawn(), state_of(torch.default_generator)
        except (Error, NewNumbers, WritesOutside):
            raise
        except Exception as error:
            if choices.outcomes and ends_with_error(error):
                raise WayEnds(_told(error)) from error
            raise _told(error) from error
    found.outcomes, found.asked = tuple(choices.outcomes), [number for number, _ in choices.asked]
    _plain_arguments(found.module)
    for node in reversed(list(found.module.graph.nodes)):
        if not node.users and (getattr(node.target, "namespace", "") == "profiler" or node.op == "get_attr"):
            found.module.graph.erase_node(node)
    return found


def resolve_writes(found: Recorded, inputs: Sequence[Any], others: Iterable[Recorded]) -> None:
    """Add the graph without writes, or that of a rank which recorded the same ops, with that rank's names of groups."""
    key = found.key = GraphKey(found.module)
    for other in others:
        if other.key is not None and other.key.rows == key.rows:
            found.functional = other.functional
            called = {own: name for name, own in other.names.items()}
            pairs = zip(other.key.groups, key.groups, strict=True)
            found.names = {called.get(theirs, theirs): own for theirs, own in pairs}
            return
    found.functional = functional(found.module, inputs)


def primitive(module: Any, inputs: Sequence[Any]) -> Any:
    """A graph of the user with its writes, in which no op depends on strides to make a view or a copy.

    ``reshape`` and others are replaced by what they call, which is known here: without writes strides are lost.
    """
    if not any(_needs_strides(node.target) for node in module.graph.nodes):
        return module
    return _again(module, inputs, lambda run: run)


def _needs_strides(target: Any) -> bool:
    """True for ops that call others, and for those on memory."""
    import torch

    if getattr(target, "namespace", "") != "aten":
        return False
    has_kernel: Any = torch._C._dispatch_has_kernel_for_dispatch_key
    return "as_strided" in str(target) or bool(has_kernel(target.name(), "CompositeImplicitAutograd"))


def functional(module: Any, inputs: Sequence[Any], *, keep_writes: bool = False) -> Any:
    """Second pass: the same graph of core ops without writes and views.

    Args:
        module: the graph.
        inputs: a value for each placeholder.
        keep_writes: return the new values of placeholders that are written, after the others. ``meta["written"]`` has
            their numbers by that of the placeholder, ``meta["returned"]`` the number of the others.
    """
    import torch

    _check_constants(module)
    made = _again(
        module,
        inputs,
        lambda run: torch.func.functionalize(run, remove="mutations_and_views"),
        decomposition_table=decompositions(),
    )
    if keep_writes:
        return_writes(made)
    simplify(made)
    return made


@contextlib.contextmanager
def _without_onednn() -> Iterator[None]:
    import torch

    core: Any = torch._C
    enabled = core._get_mkldnn_enabled()
    core._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        core._set_mkldnn_enabled(enabled)


_FAKES = "torch._subclasses.meta_utils"


@contextlib.contextmanager
def _storages_of_one_size() -> Iterator[None]:
    """Refuse to resize a storage: no op says that its elements are lost."""
    import torch

    storage: Any = torch.UntypedStorage
    plain = storage.resize_

    def resize(*args: Any) -> Any:
        if sys._getframe(1).f_globals.get("__name__") == _FAKES:
            return plain(*args)  # of a fake tensor that stands for a real one
        raise UnsupportedError(
            f"bridge.torch: a storage is resized at {shown_place(current_place())}, expected tensors that keep their "
            "memory"
        )

    storage.resize_ = resize
    try:
        yield
    finally:
        del storage.resize_


def _plain_arguments(module: Any) -> None:
    """Let the placeholders be the arguments, without the structure that torch puts around them."""
    import torch

    note_constants(module)

    module.graph._codegen = torch.fx.graph.CodeGen()
    module.recompile()


def _again(module: Any, inputs: Sequence[Any], changed: Callable[[Any], Any], **options: Any) -> Any:
    """Trace a graph once more, on fake tensors; ops keep their lines."""
    import torch
    import torch.fx.traceback as notes
    from torch.fx._lazy_graph_module import _use_lazy_graph_module as graphs_without_code
    from torch.fx.experimental.proxy_tensor import make_fx

    reader = _reader(module)
    run = changed(reader.run)

    def again(*args: Any) -> Any:
        with plain_ops(options.get("decomposition_table")):
            return run(*args)

    traced = make_fx(again, tracing_mode="fake", _allow_non_fake_inputs=True, **options)
    with notes.preserve_node_meta(), graphs_without_code(True), torch.no_grad():
        try:
            made = traced(*[t.detach() if isinstance(t, torch.Tensor) else t for t in inputs])
        except Error as error:
            error.args = (str(error).split("\n", 1)[0], *error.args[1:])  # torch adds the node
            raise
        except Exception as error:
            raise _told(error, place_of_node(reader.node)) from error
    _plain_arguments(made)
    return made


def _reader(module: Any) -> Any:
    """An interpreter that runs a graph again, with ops that are replaced in terms of others."""
    import torch

    class Reader(torch.fx.Interpreter):
        node: Any = None

        def run_node(self, n: Any) -> Any:
            self.node = n
            name = str(n.target).split(".")[1] if str(n.target).startswith("aten.") else ""
            if name.startswith(("as_strided", "resize_")) and not _is_dense(n.args[0].meta.get("val")):
                raise UnsupportedError(
                    f"bridge.torch: {name.rstrip('_')} of a view at {shown_place(place_of_node(n))}, got elements in "
                    "another order than in memory, expected a contiguous tensor"
                )
            return super().run_node(n)

        def fetch_attr(self, target: Any) -> Any:
            found = super().fetch_attr(target)
            return torch.ops.aten.lift_fresh_copy(found) if isinstance(found, torch.Tensor) else found

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            return in_terms_of_others(target, args, kwargs, super().call_function)

    return Reader(module)


def _check_constants(module: Any) -> None:
    """Refuse a graph that writes a tensor from outside, neither an input nor made by the graph.

    Raises:
        UnsupportedError: with the line that writes.
    """
    constants = {node for node in module.graph.nodes if node.op == "get_attr"}
    for node in module.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is None or node.op != "call_function":
            continue
        if any(each in constants for each in written_by(node.target, node.args)):
            raise writes_constant(node.target, place_of_node(node))
        if (
            schema.returns
            and schema.returns[0].alias_info is not None
            and node.args
            and node.args[0] in constants
        ):
            constants.add(node)


def _is_dense(t: Any) -> bool:
    """True for a tensor whose elements are in memory in their order, from its start on."""
    return t is None or (t.is_contiguous() and not t.storage_offset())


def _told(error: Exception, place: Place | None = None) -> Error:
    """An error of the trace in one line, with the user's."""
    place = place or place_of_error(error.__traceback__)
    where = shown_place(place)
    kind = type(error).__name__
    if kind in ("GuardOnDataDependentSymNode", "DataDependentOutputException", "DynamicOutputShapeException"):
        return UnsupportedError(
            f"bridge.torch: Python needs a value of the data at {where}, got {kind}, expected control flow and shapes "
            "that do not depend on data; torch.where selects by data"
        )
    told = " ".join(str(error).split())
    if "no rule registered for HOP" in told:  # of versions whose modes do not see them
        name = told.split("HOP ")[1].split()[0]
        return UnsupportedError(
            f"bridge.torch: torch.{name} is not read with this PyTorch at {where}, got a version without "
            "TorchDispatchMode.supports_higher_order_operators, expected a newer one, or torch.where"
        )
    return UnsupportedError(f"bridge.torch: the step cannot be traced at {where}, got {kind}: {told:.200}")
