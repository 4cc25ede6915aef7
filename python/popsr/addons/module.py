"""Modules: graphs with state, written as classes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, cast

from popsr import dtypes
from popsr._program.building.built import Built, P, R_co
from popsr._program.building.location import warn_user
from popsr._program.building.transaction import transactional
from popsr._program.context import gir, name_scope
from popsr._program.handles import is_retired
from popsr._program.module import Module as BaseModule
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_a, read_choice, read_flag, read_int, read_items, read_text
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons import grad_graph
from popsr.addons.grad_graph import create_grad_graph_info
from popsr.addons.graph import GraphWithNamedArgs
from popsr.addons.graph_cache import IrTable, bound_arguments, call_key, tensor_arguments
from popsr.addons.module_gradients import Aux, VarGrad
from popsr.addons.module_state import State
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.utils import overrides
from popsr.addons.variable_factory import (
    DataIter,
    NamedVariableFactories,
    VariableFactory,
    add_replica_sharded_variable_input,
    add_variable_input,
)
from popsr.errors import (
    ArgumentTypeError,
    AttributeAccessError,
    AttributeValueError,
    GraphError,
    UnsupportedError,
)
from popsr.replicas import ReplicaGrouping

__all__ = ["Module", "NameScopeMeta", "create_grad_graph_info"]


_OF_INIT = ("_own_state", "_submodules", "_cached", "_grad_inlining_error")


class NameScopeMeta(type):
    """Lets ``build`` of a class run in the name scope of the module."""

    def __new__(cls, name: str, bases: tuple[type, ...], dct: dict[str, Any]) -> NameScopeMeta:
        """The class, with its ``build`` wrapped."""
        if "build" in dct:
            dct["build"] = _in_scope(dct["build"])
        return super().__new__(cls, name, bases, dct)


def _in_scope(build: Callable[..., Any]) -> Callable[..., Any]:
    @transactional
    @functools.wraps(build)
    def scoped(self: Module, *args: Any, **kwargs: Any) -> Any:
        if self.__dict__.get("_is_scoped") or "_own_state" not in self.__dict__:  # in build of a base class
            return build(self, *args, **kwargs)
        name = self.__dict__.get("_name_scope")
        self.__dict__["_is_scoped"] = True
        try:
            with contextlib.nullcontext() if name is None else name_scope(name), self._state_kept():
                return build(self, *args, **kwargs)
        finally:
            self.__dict__["_is_scoped"] = False

    return scoped


_stateful: list[list[Module]] = []  # modules that got state, for each graph that is being built


@contextlib.contextmanager
def _watch_state() -> Iterator[list[Module]]:
    """Modules that get state meanwhile, without modules of graphs inside this one."""
    _stateful.append([])
    try:
        yield _stateful[-1]
    finally:
        _stateful.pop()


@public
class Module(BaseModule, metaclass=NameScopeMeta):
    """A graph with state: subclasses write ``build`` and declare in it what variables the graph needs.

    Modules that are assigned to attributes are parts: calling one in ``build`` puts its ops into this graph, and its
    variables are found below the attribute's name.

    Args:
        cache: ``create_graph`` returns the same graph for equal arguments.
        grad_inlining_error: what happens when a module with ``build_grad`` is called inside another ``build``, where
            nobody would call its ``build_grad``.
    Raises:
        ValueError: ``cache`` for a module with ``build_grad``.
    """

    def __init__(
        self, cache: bool = False, grad_inlining_error: Literal["error", "warning", "none"] = "error"
    ) -> None:
        """No state yet."""
        read_choice("Module", "grad_inlining_error", grad_inlining_error, ("error", "warning", "none"))
        cache = read_flag("Module: cache", cache)
        if cache and self.implements_grad_graph():
            raise AttributeValueError(
                f"Module: no cache for modules with build_grad, got cache={shown(cache)} for "
                f"{type(self).__qualname__}, expected cache=False"
            )
        self._own_state = State()
        self._submodules: dict[str, Module] = {}
        self._cached: IrTable[tuple[NamedVariableFactories, GraphWithNamedArgs]] | None = (
            IrTable() if cache else None
        )
        self._grad_inlining_error = grad_inlining_error
        self._name_scope: str | None = None

    def __getattr__(self, name: str) -> Any:
        """Only for what is not there: attributes that ``__init__`` makes.

        Raises:
            AttributeAccessError: there is no such attribute, perhaps since ``super().__init__()`` was not called.
        """
        kind = type(self).__qualname__
        if name in _OF_INIT:
            raise AttributeAccessError(
                f"{kind}: the module is not initialised, expected super().__init__() first"
            )
        raise AttributeAccessError(f"'{kind}' object has no attribute {shown(name)}")

    # For subclasses

    @transactional
    def __call__(self: Built[P, R_co], *args: P.args, **kwargs: P.kwargs) -> R_co:
        """``build`` in the current graph.

        Raises:
            GraphError: the module has ``build_grad``, see ``grad_inlining_error``.
        """
        cast(Module, self)._check_inlining()
        return self.build(*args, **kwargs)

    def _check_inlining(self) -> None:
        if self.implements_grad_graph() and self._grad_inlining_error != "none":
            text = (
                f"{type(self).__qualname__}: build_grad of a module inside another graph is not used, expected "
                "call_module() or grad_inlining_error='none'"
            )
            if self._grad_inlining_error == "error":
                raise GraphError(text)
            warn_user(text)

    def build_grad(self, *args: Any, **kwargs: Any) -> Tensor | Iterable[Tensor] | None:
        """Make the ops of the gradient graph in it and return the gradients of the inputs that are not variables.

        Subclasses may write it, with one parameter for the gradient of each output. ``self.aux["key"]`` is what
        ``build`` stored there, ``self.var_grad["name"] = gradient`` are gradients of variables.
        """
        del args, kwargs
        raise UnsupportedError(f"{type(self).__qualname__} does not define build_grad()")

    def implements_grad_graph(self) -> bool:
        """True if the class defines ``build_grad``."""
        return overrides(type(self), Module, "build_grad")

    @property
    def aux(self) -> Aux:
        """Tensors that ``build`` leaves for ``build_grad``, by key."""
        return self._own_state.aux

    @property
    def var_grad(self) -> VarGrad:
        """Gradients of variables, by their dotted names: for ``build_grad`` to set."""
        return self._own_state.var_grad

    # Graphs

    @transactional
    def create_graph(self, *args: Any, **kwargs: Any) -> tuple[NamedVariableFactories, GraphWithNamedArgs]:
        """Build a graph, as often as wanted; the module keeps nothing of it.

        Tensors and TensorSpecs among the arguments become inputs, in the order of the parameters; then come variables
        in the order in which ``build`` adds them. See ``Ir.create_graph``.

        Args:
            *args: arguments of ``build``.
            **kwargs: arguments of ``build``.
        Returns:
            Factories of the variables, and the graph with the inputs that stand for them by the same names.
        """
        if self._cached is not None:
            known, key = self._cached.of(gir()), call_key(args, kwargs)
            if key not in known or is_retired(known[key][1].graph):
                known[key] = self._build_graph(args, kwargs)
            factories, graph = known[key]
            return factories.copy(), GraphWithNamedArgs(
                graph.graph, graph.args.copy(), None, self, None, graph.called_graphs_grad_info
            )
        return self._build_graph(args, kwargs)

    def _build_graph(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[NamedVariableFactories, GraphWithNamedArgs]:
        with self._fresh_state(), _watch_state() as others:
            graph = gir().create_graph(self, *args, **kwargs)
            state = self._collect()
            self._warn_of_lost_state(others)
        if self.implements_grad_graph():
            graph._is_recursively_differentiable = False
        aux = state.aux if self.implements_grad_graph() else None
        return state.factories, GraphWithNamedArgs(graph, state.inputs, None, self, aux, state.grad_infos)

    @transactional
    def create_grad_graph(
        self,
        fwd_graph: GraphWithNamedArgs,
        grads_provided: Iterable[Tensor] | None = None,
        grads_required: Iterable[Tensor] | None = None,
    ) -> GraphWithNamedArgs:
        """The gradient graph that ``build_grad`` makes.

        Its inputs are the provided gradients, then what ``build_grad`` takes from ``aux``, which become outputs of the
        forward graph; its outputs the gradients of inputs, then of variables.

        Args:
            fwd_graph: a graph of this module that nothing calls yet.
            grads_provided: outputs whose gradients are given. Default: all.
            grads_required: inputs whose gradients are wanted. Default: all.
        Raises:
            ValueError: tensors are not of the graph or there twice; ``build_grad`` returns too few or too many
                gradients, or one of another shape.
            TypeError: ``build_grad`` has other parameters than one for each gradient.
        """
        with self._fresh_state():
            return grad_graph.create(self, fwd_graph, grads_provided, grads_required)

    def call_module(
        self,
        module: Module,
        name: str | None = None,
        autodiff: Literal["auto", "build_grad", "autodiff", "none"] = "auto",
        grads_provided: Callable[[GraphWithNamedArgs], Iterable[Tensor]] | None = None,
        grads_required: Callable[[GraphWithNamedArgs], Iterable[Tensor]] | None = None,
    ) -> Callable[..., tuple[Tensor, ...]]:
        """A function that makes a graph of another module and calls it in this one, with its variables among ours.

        Args:
            module: the other module.
            name: name of its variables here. Default: its class's.
            autodiff: how its gradient graph is made, for gradients of ours: "auto" where it has ``build_grad``; see
                ``GraphWithNamedArgs.autodiff``.
            grads_provided: outputs of its graph whose gradients are given. Default: all.
            grads_required: inputs of its graph whose gradients are wanted. Default: all.
        Returns:
            A function of the arguments of its ``build`` that returns the outputs.
        """
        read_a("call_module: module", module, Module)
        read_choice("call_module", "autodiff", autodiff, ("auto", "build_grad", "autodiff", "none"))

        @transactional
        def call(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
            with self._state_kept():
                return called(*args, **kwargs)

        def called(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
            factories, graph = module.create_graph(*args, **kwargs)
            variables = self.add_variable_inputs(name or type(module).__name__, factories)
            wanted = len(graph.graph.outputs)
            if autodiff in ("build_grad", "autodiff") or (
                autodiff == "auto" and module.implements_grad_graph()
            ):
                gradient = graph.autodiff(
                    None if grads_provided is None else grads_provided(graph),
                    None if grads_required is None else grads_required(graph),
                    method=autodiff,
                )
                self._own_state.grad_infos = {
                    **self._own_state.grad_infos,
                    graph.graph: gradient.grad_graph_info,
                }
            self._own_state.grad_infos = {**graph.called_graphs_grad_info, **self._own_state.grad_infos}
            tensors = tensor_arguments(bound_arguments(module, *args, **kwargs))
            return graph.bind(variables).call(*tensors)[:wanted]

        return call

    # State

    @transactional
    def add_variable_factory(self, variable_f: VariableFactory, name: str | None = None) -> Tensor:
        """An input of the current graph for a factory.

        Args:
            variable_f: the factory.
            name: its name here, with dots for subtrees. Default: the factory's.
        Raises:
            ValueError: the name is taken, or there is none.
        """
        read_a("add_variable_factory: variable_f", variable_f, VariableFactory)
        name = variable_f.name if name is None else name
        if name is None:
            raise AttributeValueError(
                f"add_variable_factory: a factory without a name, got {shown(variable_f)}, expected a name"
            )
        self._check_name(name, False)
        return self._register(name, variable_f, variable_f.create_input(), False)

    @transactional
    def add_variable_input(
        self,
        name: str,
        data_iter: DataIter,
        dtype: dtypes.dtype | None = None,
        by_ref: bool = False,
        replica_grouping: ReplicaGrouping | None = None,
        overwrite: bool = False,
        *,
        replica_group: ReplicaGrouping | None = None,
    ) -> Tensor:
        """An input of the current graph for a variable that is made later.

        Args:
            name: its name here, with dots for subtrees.
            data_iter: initial values: a function that returns one, or an iterable; see ``VariableFactory``.
            dtype: element type. Default: the first value's.
            by_ref: in-place updates in the graph also happen to the variable.
            replica_grouping: groups of replicas with the same value. Default: one group of all.
            overwrite: replace what has the name; needed to add to a subtree that exists.
            replica_group: another name of ``replica_grouping``.
        Returns:
            The input.
        Raises:
            ValueError: the name is taken; see ``VariableFactory``.
        """
        overwrite = read_flag("add_variable_input: overwrite", overwrite)
        self._check_name(name, overwrite)
        made = add_variable_input(
            name, data_iter, dtype, by_ref, replica_grouping, replica_group=replica_group
        )
        return self._register(name, made[1], made[0], overwrite)

    @transactional
    def add_replica_sharded_variable_input(
        self,
        name: str,
        data_iter: DataIter,
        dtype: dtypes.dtype | None = None,
        by_ref: bool = False,
        replica_grouping: ReplicaGrouping | None = None,
        shard_over: int | None = None,
        *,
        replica_group: ReplicaGrouping | None = None,
    ) -> Tensor:
        """As ``add_variable_input``, for a part of the value on each of ``shard_over`` members of a group.

        Args:
            name: as for ``add_variable_input``.
            data_iter: as for ``add_variable_input``; whole values.
            dtype: as for ``add_variable_input``.
            by_ref: as for ``add_variable_input``.
            replica_grouping: as for ``add_variable_input``.
            shard_over: number of parts. Default: the group size.
            replica_group: another name of ``replica_grouping``.
        Returns:
            An input of shape ``(ceil(elements / shard_over),)`` with the meta shape of the value.
        """
        self._check_name(name, False)
        made = add_replica_sharded_variable_input(
            name, data_iter, dtype, by_ref, replica_grouping, shard_over, replica_group=replica_group
        )
        return self._register(name, made[1], made[0], False)

    @transactional
    def add_variable_inputs(
        self, name: str | int, variable_f: NamedVariableFactories, overwrite: bool = False
    ) -> NamedTensors:
        """Inputs of the current graph for the variables of another graph, which it calls.

        Args:
            name: their subtree here.
            variable_f: the factories of the other graph; inputs have their keys as names, below ``name``.
            overwrite: replace what has the name.
        Returns:
            The inputs, with the keys of ``variable_f``: for ``bind``.
        Raises:
            ValueError: the name is taken.
        """
        read_a("add_variable_inputs: variable_f", variable_f, NamedVariableFactories)
        overwrite = read_flag("add_variable_inputs: overwrite", overwrite)
        self._check_name(name, overwrite)
        factories = {
            key: read_a(f"add_variable_inputs: {key} of variable_f", f, VariableFactory)
            for key, f in variable_f.to_dict().items()
        }
        inputs = NamedTensors.from_dict({key: f._input(f"{name}.{key}") for key, f in factories.items()})
        self._insert(name, variable_f.copy(), inputs.copy(), overwrite)
        return inputs

    def set_name_scope(self, name: str) -> None:
        """Let ``build`` make tensors in a name scope.

        Args:
            name: the scope.
        """
        self._name_scope = read_text("set_name_scope: name", name)

    def _check_name(self, name: str | int, overwrite: bool) -> None:
        """Before an input is made."""
        state = self._own_state
        first = state.factories._path(name, "insert")[0]
        if first in state.factories or first in state.inputs:
            state.forget_undone()
        if not overwrite and first in state.factories:
            raise AttributeValueError(
                f"{type(self).__qualname__}: variable {shown(str(name))} already exists, expected another name or "
                "overwrite=True"
            )

    def _register(self, name: str, factory: VariableFactory, tensor: Tensor, overwrite: bool) -> Tensor:
        self._insert(name, factory, tensor, overwrite)
        return tensor

    def _insert(
        self,
        name: str | int,
        factory: VariableFactory | NamedVariableFactories,
        tensor: Tensor | NamedTensors,
        overwrite: bool,
    ) -> None:
        state = self._own_state
        state.factories.insert(name, factory, overwrite)
        state.inputs.insert(name, tensor, overwrite)
        if _stateful:
            _stateful[-1].append(self)

    # Parts

    def __setattr__(self, key: str, value: Any) -> None:
        if isinstance(value, Module):
            if "_submodules" not in self.__dict__:
                raise AttributeAccessError(
                    f"{type(self).__qualname__}: a module is assigned to {shown(key)} before super().__init__()"
                )
            self._add_part(key, value)
            value.set_name_scope(key)
        super().__setattr__(key, value)

    def _add_part(self, key: str, part: Module) -> None:
        if id(self) in part._tree():
            raise AttributeValueError(
                f"{type(self).__qualname__}: a module is a part of itself, got {shown(key)}, expected parts "
                "without this one"
            )
        self._submodules[key] = part

    @classmethod
    def from_list(cls, sub_modules: list[Module]) -> Module:
        """A module of parts "0", "1", …: for ``self.layers = Module.from_list([...])``, then ``self.layers[0](x)``.

        Args:
            sub_modules: the parts.
        Raises:
            TypeError: one is not a Module.
        """
        result = Module()
        for i, part in enumerate(read_items("from_list", "sub_modules", sub_modules, kind="modules")):
            if not isinstance(part, Module):
                raise ArgumentTypeError(f"from_list: not a Module, got {shown(part)}")
            result._add_part(str(i), part)
            part.set_name_scope(str(i))
        result.__dict__["_is_list"] = True
        return result

    @classmethod
    @transactional
    def from_variable_factories(cls, inputs: list[VariableFactory]) -> Module:
        """A module of inputs "0", "1", … of the current graph: for use in ``build``.

        Args:
            inputs: the factories.
        """
        result = Module()
        for i, factory in enumerate(
            read_items("from_variable_factories", "inputs", inputs, kind="factories")
        ):
            result.add_variable_factory(factory, str(i))
        return result

    def get(self, key: str | int) -> Any:
        """A part, or the input of a variable.

        Args:
            key: its name or number.
        Raises:
            KeyError: there is none.
        """
        name = key if isinstance(key, str) else read_int(f"{type(self).__qualname__}: key", key)
        if isinstance(name, int) and name < 0 and self._submodules:
            name += len(self._submodules)
        found = self._submodules.get(str(name))
        return self._own_state.inputs.get(key) if found is None else found

    def __getitem__(self, item: str | int) -> Any:
        return self.get(item)

    def __iter__(self) -> Iterator[Module]:
        if "_is_list" not in self.__dict__:
            raise AttributeAccessError(
                f"{type(self).__qualname__}: not iterable, expected a module of from_list"
            )
        return iter(self._submodules.values())

    def _tree(self) -> dict[int, Module]:
        """The module and its parts, by identity."""
        found: dict[int, Module] = {}
        todo: list[Module] = [self]
        while todo:
            module = todo.pop()
            if id(module) not in found:
                found[id(module)] = module
                todo.extend(module._submodules.values())
        return found

    def _warn_of_lost_state(self, others: list[Module]) -> None:
        """Modules of a plain list, say, leave their variables nowhere."""
        parts = self._tree()
        for module in others:
            if id(module) not in parts:
                warn_user(
                    f"{type(self).__qualname__}: variables of a module outside it have no names here, got "
                    f"{type(module).__qualname__} with {module._own_state.inputs.keys_flat()}, expected an attribute "
                    "or Module.from_list"
                )
                return

    @contextlib.contextmanager
    def _fresh_state(self) -> Iterator[None]:
        """State of a graph of its own; what was there, if a graph around this one is being built, comes back."""
        before = {id_: (module, module._own_state) for id_, module in self._tree().items()}
        for module, _ in before.values():
            module._own_state = State()
        try:
            yield
        finally:
            for id_, module in self._tree().items():
                if id_ not in before:
                    module._own_state = State()
            for module, state in before.values():
                module._own_state = state

    @contextlib.contextmanager
    def _state_kept(self) -> Iterator[None]:
        """If the block fails, what was added to the state in it is gone with the inputs of the graph."""
        before = [(module, module._own_state.copy()) for module in self._tree().values()]
        counts = [len(modules) for modules in _stateful]
        try:
            yield
        except BaseException:
            for module, state in before:
                module._own_state = state
            for modules, count in zip(_stateful, counts, strict=True):
                del modules[count:]
            raise

    def _collect(self) -> State:
        """State, with the state of the parts below their names."""
        result = self._own_state.copy()
        result.forget_undone()
        for name, part in self._submodules.items():
            state = part._collect()
            if state.factories.len_flat():
                result.factories.insert(name, state.factories)
                result.inputs.insert(name, state.inputs)
            result.grad_infos = {**state.grad_infos, **result.grad_infos}
        return result
