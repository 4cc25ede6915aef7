"""NamedTensors, NamedVariableFactories and NamedReplicaGrouping trees as branches of one another."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, errors
from popsr.addons.dot_tree import DotTree
from popsr.addons.named_replica_grouping import NamedReplicaGrouping
from popsr.addons.named_tensors import NamedTensorData
from popsr.addons.remote import NamedRemoteBuffers, named_variable_buffers
from popsr.addons.variable_factory import NamedVariableFactories, VariableFactory
from tests_py.support.unchecked import unchecked

CLASSES: tuple[Any, ...] = (addons.NamedTensors, NamedVariableFactories, NamedReplicaGrouping)


def leaf(kind: Any) -> Any:
    if kind is addons.NamedTensors:
        return popsr.constant(np.zeros(2, np.float32))
    if kind is NamedVariableFactories:
        return VariableFactory(lambda: np.ones(2, np.float32))
    return popsr.gir().replica_grouping()


@pytest.mark.parametrize(("outer", "inner"), list(itertools.permutations(CLASSES, 2)))
def test_branches_keep_their_class(outer: Any, inner: Any) -> None:
    with popsr.Ir(replication=2).main_graph:
        own, other = leaf(outer), leaf(inner)
        branch = inner(x=other)
        tree = outer(own=own, branch=branch)
        assert tree.branch is branch
        assert tree["branch.x"] is other
        assert tree.to_dict() == {"own": own, "branch.x": other}
        built = outer.from_dict({"own": own, "deep.branch": branch})
        updated = outer(own=own)
        updated.update(outer(branch=branch))
        for each in (tree.copy(), tree.map(lambda t: t), tree.filter_keys(["own", "branch"]), updated):
            assert type(each) is outer
            assert type(each.branch) is inner
            assert each.branch is not branch
            assert each.branch.x is other
        assert type(built.deep) is outer
        assert type(built.deep.branch) is inner
        tree.insert("branch.y", other, overwrite=True)
        assert (type(tree.branch), tree.branch.y) == (inner, other)


def test_trees_of_other_classes_stay_refused() -> None:
    with popsr.Ir().main_graph:
        for kind, other in itertools.product(CLASSES, (DotTree, NamedRemoteBuffers, NamedTensorData)):
            for outer, branch in ((kind, other()), (other, kind())):
                if issubclass(type(branch), outer):
                    continue
                with pytest.raises(errors.ArgumentTypeError, match=r"^insert: a tree of another class, got "):
                    outer(branch=branch)


def test_errors_name_the_leaf_that_is_not_a_factory_or_tensor() -> None:
    with popsr.Ir(replication=2).main_graph:
        factories = NamedVariableFactories(w=leaf(NamedVariableFactories))
        tensors = addons.NamedTensors(t=leaf(addons.NamedTensors))
        mixed = NamedVariableFactories(own=factories, state=unchecked(tensors))
        count = len(popsr.gmg().variables)
        for call in (
            mixed.init,
            mixed.init_zero,
            lambda: mixed.replica_groupings,
            lambda: mixed.init_remote(NamedRemoteBuffers.from_dict({"own.w": 0, "state.t": 0})),
            lambda: named_variable_buffers(mixed),
        ):
            with pytest.raises(
                errors.ArgumentTypeError, match=r"^NamedVariableFactories: 'state\.t' is not a"
            ):
                call()
        with pytest.raises(errors.ArgumentTypeError, match=r"^NamedTensors: 'facts\.w' is not a Tensor"):
            _ = addons.NamedTensors(own=tensors, facts=unchecked(factories)).tensors
        assert len(popsr.gmg().variables) == count
        assert mixed.own.init().to_dict().keys() == {"w"}
        assert addons.NamedTensors(own=tensors, facts=unchecked(factories)).own.tensors == tensors.tensors
