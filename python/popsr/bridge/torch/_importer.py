"""The walk over a graph of ATen ops: each node becomes ops of popsr by its rule."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from popsr._program.tensor import Tensor, constant
from popsr.bridge._step.builder import StepBuilder
from popsr.bridge._step.reading import floats_are_wide
from popsr.bridge.torch._control import CONTROL, no_seed
from popsr.bridge.torch._dtypes import Scalar, dtype_of, is_float8
from popsr.bridge.torch._ranks.same import DISTRIBUTED, attribute_of
from popsr.bridge.torch._rules import (  # noqa: F401  they register their rules
    bags,
    bits,
    collectives,
    elementwise,
    indexing,
    linear,
    nn,
    pools,
    random,
    reduce,
    resize,
    rounded,
    scalars,
    shape,
)
from popsr.bridge.torch._rules.table import COLLECTIVES, OWN, PYTHON_RULES, RULES, Gap, Site
from popsr.bridge.torch._step_of import RandomSeeds
from popsr.bridge.torch._tracing.draws import draw_of, generator_draw_of, is_uncounted
from popsr.bridge.torch._tracing.uninitialised import EMPTY, memory_of
from popsr.bridge.torch._user.locations import place_of_node, shown_place
from popsr.bridge.torch._user.modules import module_of_node
from popsr.bridge.torch._user.notes import is_backward
from popsr.errors import Error, UnsupportedError

__all__ = ["Importer", "array_of"]


# No value depends on these, or it is known from the type of the result.
_IGNORED = frozenset({"device", "layout", "pin_memory", "memory_format", "non_blocking", "generator"}) | {
    "requires_grad",
    "out_dtype",
    "dtype",
}
# Regions of the graph that change nothing of what is computed: no gradients, another precision of autograd.
_INLINED = frozenset(
    {"wrap_with_set_grad_enabled", "wrap_activation_checkpoint", "tag_activation_checkpoint"}
)


def array_of(t: Any) -> Any:
    """The elements of a tensor of torch, of any element type, as an array of their dtype's."""
    import torch

    t = t.detach().cpu().contiguous()
    if floats_are_wide() and t.dtype.is_floating_point:
        return t.to(torch.float64).numpy()
    kind = dtype_of(t.dtype).as_numpy()
    if t.dtype == torch.bfloat16 or is_float8(dtype_of(t.dtype)):
        bits = torch.int16 if t.dtype == torch.bfloat16 else torch.uint8
        return t.view(bits).numpy().view(kind)
    return t.numpy()


class Importer:
    """Reads graphs into a builder.

    Args:
        builder: the program that ops are added to; its main graph is entered.
        grouping: the replica grouping of a process group's name.
        random_seed: makes a seed that no other op has.
        generator_seed: makes the seed of an op that is given a generator, of the op's number in the trace and of the
            number of its draw.
    """

    def __init__(
        self,
        builder: StepBuilder,
        grouping: Callable[[str], Any],
        random_seed: Callable[[], Tensor],
        generator_seed: Callable[[int, int], Tensor] | None = None,
    ) -> None:
        """An importer for one step."""
        self._builder = builder
        self._grouping = grouping
        self._random_seed = random_seed
        self._generator_seed = generator_seed
        self._drawn: dict[tuple[str, int], Tensor] = {}
        self._draws_of_op: dict[int, int] = {}

    def run(self, module: Any, inputs: Sequence[Any], constants: Mapping[str, Tensor] | None = None) -> Any:
        """Ops of a graph module, for values of its placeholders in order.

        Args:
            module: a functional graph of ATen ops with torch's fake values in ``meta["val"]``.
            inputs: tensors and numbers.
            constants: attributes of the module that are tensors of the program already.
        Returns:
            What the graph returns, with tensors of popsr.
        """
        values: dict[Any, Any] = {}
        given = iter(inputs)
        for node in module.graph.nodes:
            if node.op == "output":
                return self._arguments(node.args[0], values)
            with self._at(node):
                values[node] = self._value(node, module, values, given, constants or {})
        raise UnsupportedError("bridge.torch: a graph without output")

    @contextlib.contextmanager
    def _at(self, node: Any) -> Iterator[None]:
        backward = self._builder.derivative() if is_backward(node) else contextlib.nullcontext()
        with self._builder.at(place_of_node(node), module_of_node(node)), backward:
            yield

    def _value(
        self,
        node: Any,
        module: Any,
        values: Mapping[Any, Any],
        given: Iterator[Any],
        constants: Mapping[str, Tensor],
    ) -> Any:
        if node.op == "placeholder":
            return next(given)
        if node.op == "get_attr":
            return constants[node.target] if node.target in constants else _attribute(module, node)
        args = self._arguments(node.args, values)
        options = {k: self._arguments(v, values) for k, v in node.kwargs.items() if k not in _IGNORED}
        if node.op != "call_function":
            return self._gap(node, f"{node.op} {node.target}", (args, options))
        return self._call(node, args, options)

    def _call(self, node: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        name, table = _named(node.target)
        if name in _INLINED:
            inner = next(i for i, each in enumerate(args) if hasattr(each, "graph"))
            return self.run(args[inner], args[inner + 1 :])
        if name == "getitem" and table is PYTHON_RULES:
            return args[0][args[1]]
        found = table.get(name)
        if getattr(node.target, "namespace", None) == "higher_order" and name in CONTROL:
            found = functools.partial(CONTROL[name], self._inner)
        if found is None:
            return self._gap(node, str(node.target), (args, options))
        seed = functools.partial(self._seed, node)
        site = Site(node.meta.get("val"), self._grouping, seed, memory_of(node), self._builder.note)
        try:
            return found(site, *args, **options)
        except Gap as gap:
            what = f"{gap.name or node.target} ({gap})"
            return self._gap(node, what, (args, options), gap.everywhere, exact=gap.exact)
        except TypeError:
            if not any(isinstance(each, Scalar) for each in _values((args, options))):
                raise
            what = "a number that is known only when the step runs, or differs between ranks"
            return self._gap(node, f"{node.target} ({what})", (args, options))
        except Error as error:
            if self._builder.gaps:  # an operand is a stand-in, of another type than the op's own
                return self._gap(node, f"{node.target} (of an unsupported op)", (args, options))
            error.add_note(f"while reading {node.target} of torch")
            raise

    def _seed(self, node: Any) -> Tensor:
        """The seed of a random op; of ops that torch draws for from the same state of its generator the same."""
        draw, given = draw_of(node), generator_draw_of(node)
        op = given if draw is None else draw[1]
        if op is None:
            return self._random_seed()
        number = self._draws_of_op[op] = self._draws_of_op.get(op, 0) + 1
        if draw is None:
            return no_seed() if self._generator_seed is None else self._generator_seed(op, number)
        state = draw[0]
        if (state, number) not in self._drawn:
            self._drawn[state, number] = self._random_seed()
        return self._drawn[state, number]

    def _inner(self, module: Any, inputs: Sequence[Any]) -> Any:
        """As ``run``, in the graph of a branch or loop, which the seeds of the step do not reach."""
        return Importer(self._builder, self._grouping, no_seed).run(module, inputs)

    def _gap(
        self, node: Any, what: str, operands: Any, everywhere: bool = False, *, exact: bool = False
    ) -> Any:
        """Stand-ins for the results of a node."""
        import torch

        if is_uncounted(node.target) and isinstance(self._random_seed, RandomSeeds):
            self._random_seed.lose_count(str(node.target), shown_place(place_of_node(node)))
        value = node.meta.get("val")
        results = value if isinstance(value, list | tuple) else [value]
        shapes = []
        for each in results:
            if not hasattr(each, "shape") or not all(isinstance(n, int) for n in each.shape):
                raise UnsupportedError(
                    f"bridge.torch: {node.target} at {shown_place(place_of_node(node))} makes a shape or number of the "
                    f"data, got {each!s:.60}, expected results of fixed shapes"
                )
            kind = dtype_of(torch.float32 if each.dtype.is_complex else each.dtype)
            shapes.append((tuple(each.shape), kind))
        if not exact:
            everywhere |= getattr(node.target, "namespace", "") != "aten" or _is_random(node.target)
        made = self._builder.unsupported(what, _tensors(operands), shapes, everywhere=everywhere, exact=exact)
        return list(made) if isinstance(value, list | tuple) else made[0]

    def _arguments(self, args: Any, values: Mapping[Any, Any]) -> Any:
        """Operands with the values of nodes in their place."""
        if isinstance(args, list | tuple):
            return [self._arguments(each, values) for each in args]
        if isinstance(args, dict):
            return {key: self._arguments(each, values) for key, each in args.items()}
        return values[args] if type(args).__name__ == "Node" else args


def _named(target: Any) -> tuple[str, Mapping[str, Any]]:
    """Name of a function and the table of its kind."""
    namespace = getattr(target, "namespace", None)
    if namespace is None:
        return getattr(target, "__name__", str(target)), PYTHON_RULES
    table = (
        COLLECTIVES
        if namespace in (*DISTRIBUTED, "popsr")
        else OWN
        if namespace == "popsr_sr"
        else RULES
        if namespace in ("aten", "prims")
        else {}
    )
    return str(target).split(".", 1)[-1], table


def _attribute(module: Any, node: Any) -> Any:
    value = attribute_of(module, node)
    if not hasattr(value, "dtype"):
        return value
    return constant(array_of(value), dtype_of(value.dtype))


def _is_random(target: Any) -> bool:
    """True for an op that draws, or whose result nothing has written."""
    import torch

    return str(target).removeprefix("aten.") in EMPTY or torch.Tag.nondeterministic_seeded in getattr(
        target, "tags", ()
    )


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in _values(values):
        if isinstance(value, Tensor | Scalar):
            yield value.tensor if isinstance(value, Scalar) else value


def _values(operands: Any) -> Iterator[Any]:
    """Operands that are neither lists nor dicts."""
    if isinstance(operands, dict):
        operands = list(operands.values())
    if isinstance(operands, list | tuple):
        for each in operands:
            yield from _values(each)
    else:
        yield operands
