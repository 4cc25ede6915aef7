"""PopXL's module paths: ``from popsr.ops.add import add`` works although a file here holds a whole family of ops.

A path is a module object in ``sys.modules`` that fetches its names from where they are; the package above it puts it
there. It cannot be a file: importing ``popsr.ops.add`` would then replace the function ``popsr.ops.add`` by a module.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType

from popsr._text.suggestions import unknown_attribute

__all__ = ["MODULE_PATHS", "register"]

# PopXL's module, the modules that hold its names, and the names; all below `popsr`. Paths that are files are not here.
MODULE_PATHS: Mapping[str, Mapping[str, str]] = {
    "ops.abs": {"ops": "abs"},
    "ops.add": {"ops": "add add_"},
    "ops.argminmax": {"ops": "argmax argmin"},
    "ops.batch_norm": {"ops": "batch_norm_inference"},
    "ops.call": {"ops": "CallSiteInfo call call_with_info"},
    "ops.ceil": {"ops": "ceil"},
    "ops.clip": {"ops": "clamp clip"},
    "ops.collectives.all_reduce": {
        "ops.collectives": "all_reduce all_reduce_identical_grad_inputs all_reduce_identical_inputs"
    },
    "ops.collectives.collectives": {"ops.collectives": "CollectiveOps to_collective_op"},
    "ops.collectives.replicated_all_gather": {"ops.collectives": "replicated_all_gather"},
    "ops.collectives.replicated_all_reduce": {
        "ops.collectives": "replicated_all_reduce replicated_all_reduce_"
    },
    "ops.collectives.replicated_reduce_scatter": {
        "ops.collectives": "replica_sharded_slice replicated_reduce_scatter replicated_slice"
    },
    "ops.cos": {"ops": "cos"},
    "ops.cumsum": {"ops": "cumsum"},
    "ops.detach": {"ops": "detach detach_"},
    "ops.div": {"ops": "div"},
    "ops.dynamic_slice": {"ops": "dynamic_slice"},
    "ops.dynamic_update": {"ops": "dynamic_update dynamic_update_"},
    "ops.equal": {"ops": "equal"},
    "ops.exp": {"ops": "exp exp_"},
    "ops.floor": {"ops": "floor"},
    "ops.fmod": {"ops": "fmod"},
    "ops.gather": {"ops": "gather groupedgather tied_gather"},
    "ops.gelu": {"ops": "gelu gelu_"},
    "ops.geluerf": {"ops": "geluerf geluerf_"},
    "ops.greater": {"ops": "greater"},
    "ops.group_norm": {"ops": "group_norm layer_norm"},
    "ops.histogram": {"ops": "histogram", "ops.onehot": "check_increment"},
    "ops.host_load": {"ops": "host_load"},
    "ops.host_store": {"ops": "host_store"},
    "ops.identity": {"ops": "identity rename"},
    "ops.increment_mod": {"ops": "increment_mod increment_mod_"},
    "ops.init": {"ops": "init"},
    "ops.io_tile_copy": {"ops": "io_tile_copy"},
    "ops.ipu_copy": {"ops": "ipu_copy"},
    "ops.isfinite": {"ops": "isfinite"},
    "ops.isinf": {"ops": "isinf"},
    "ops.isnan": {"ops": "isnan"},
    "ops.l1": {"ops": "l1"},
    "ops.l2": {"ops": "l2"},
    "ops.log": {"ops": "log log2"},
    "ops.logical_and": {"ops": "logical_and"},
    "ops.logical_not": {"ops": "logical_not"},
    "ops.logical_or": {"ops": "logical_or"},
    "ops.logsum": {"ops": "logsum"},
    "ops.logsumexp": {"ops": "logsumexp"},
    "ops.max": {"ops": "max maximum"},
    "ops.mean": {"ops": "mean"},
    "ops.median": {"ops": "median"},
    "ops.min": {"ops": "min"},
    "ops.mul": {"ops": "mul"},
    "ops.negate": {"ops": "negate"},
    "ops.negative_log_likelihood": {
        "ops": "nll_loss nll_loss_with_softmax_grad",
        "ops.losses": "REDUCTION_TYPE",
    },
    "ops.pow": {"ops": "pow"},
    "ops.print_tensor": {"ops": "print_tensor", "ops.host_io": "FloatFormat"},
    "ops.prod": {"ops": "prod"},
    "ops.random_seed": {"ops": "create_random_seed split_random_seed"},
    "ops.relu": {"ops": "relu relu_"},
    "ops.remote_load": {"ops": "remote_load remote_load_", "ops.remote": "multiply_tuple"},
    "ops.remote_store": {"ops": "remote_store"},
    "ops.repeat": {"ops": "repeat repeat_with_info"},
    "ops.reshape": {
        "ops": "flatten flatten_ reshape reshape_",
        "ops.shape": "reshape_handle_negative_axis",
    },
    "ops.roialign": {"ops": "roi_align"},
    "ops.scaled_add": {"ops": "scaled_add scaled_add_"},
    "ops.scatter": {"ops": "scatter"},
    "ops.scatter_reduce": {
        "ops": "grouped_scatter_reduce scatter_reduce",
        "ops.indexing": "ScatterReduction ScatterReductionType reduction_dict",
    },
    "ops.shaped_dropout": {"ops": "shaped_dropout"},
    "ops.sign": {"ops": "sign"},
    "ops.sin": {"ops": "sin"},
    "ops.slice": {"ops": "slice slice_", "ops.shape": "INT_MAX INT_MIN process_args"},
    "ops.split": {"ops": "split"},
    "ops.sqrt": {"ops": "sqrt"},
    "ops.squeeze": {"ops": "squeeze"},
    "ops.sub": {"ops": "sub"},
    "ops.subsample": {"ops": "subsample"},
    "ops.sum": {"ops": "sum"},
    "ops.sumsquare": {"ops": "sumsquare"},
    "ops.swish": {"ops": "swish swish_"},
    "ops.tanh": {"ops": "tanh"},
    "ops.topk": {"ops": "topk"},
    "ops.transpose": {"ops": "transpose transpose_"},
    "ops.var_updates.accumulate": {
        "ops.var_updates": "accumulate_ accumulate_mean_ accumulate_moving_average_ "
        "accumulate_moving_average_square_ accumulate_square_ accumulator_scale_ accumulator_zero_ sparse_accumulate_"
    },
    "ops.var_updates.adam_updater": {
        "ops.var_updates": "adam_updater adamax_updater lamb_updater",
        "ops.optimisers": "create_adamupdater weight_decay_is_required",
    },
    "ops.var_updates.adam_var_update": {"ops.var_updates": "adam_var_update"},
    "ops.var_updates.copy_var_update": {"ops.var_updates": "copy_var_update_"},
    "ops.var_updates.utils": {"ops.optimisers": "handle_optimizer_value"},
    "ops.where": {"ops": "where"},
    "transforms.merge_exchange": {"transforms": "io_tile_exchange merge_exchange"},
}


class _Path(ModuleType):
    """A module whose names are in other modules."""

    def __init__(self, name: str, holders: Mapping[str, str]) -> None:
        """``holders``: the names of each module that has some."""
        homes = {each: f"popsr.{holder}" for holder, names in holders.items() for each in names.split()}
        super().__init__(
            name, f"PopXL's module; its names are in {' and '.join(dict.fromkeys(homes.values()))}."
        )
        self.__spec__ = ModuleSpec(name, None, origin=f"names of {', '.join(dict.fromkeys(homes.values()))}")
        self.__package__ = self.__spec__.parent
        self.__all__ = sorted(homes)
        self._homes = homes

    def __getattr__(self, name: str) -> object:
        """Look it up where it is."""
        home = self.__dict__["_homes"].get(name)
        if home is None:
            return unknown_attribute(self.__name__, self.__all__)(name)
        return getattr(importlib.import_module(home), name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})


def register(package: str, paths: Mapping[str, Mapping[str, str]] = MODULE_PATHS) -> None:
    """Make the paths below a package importable, when it is imported; what is a file already stays one.

    Args:
        package: the package: ``"ops"``.
        paths: as ``MODULE_PATHS``.
    """
    for path, holders in paths.items():
        name = f"popsr.{path}"
        if name in sys.modules or not path.startswith(f"{package}."):
            continue
        sys.modules[name] = module = _Path(name, holders)
        parent, _, child = name.rpartition(".")
        above = sys.modules[parent]
        names = vars(above)  # not hasattr, which asks __getattr__ for the nearest name
        if "__path__" not in names:
            above.__path__ = []  # to importlib a package, but without a folder
        if child not in names:  # functions keep their names
            setattr(above, child, module)
