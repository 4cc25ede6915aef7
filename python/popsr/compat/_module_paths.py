"""Module paths of PopXL and popxl_addons that are no files here: ``from popxl.ops.add import add``.

popsr has a file for a family of ops. Such a path is a module object that fetches its names from where they are, put
into ``sys.modules`` when ``popxl`` is imported. A finder could not make it later: the import system would then replace
the function ``popxl.ops.add`` by the module.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType

from popsr._support.text.suggestions import unknown_attribute

__all__ = ["MODULE_PATHS", "module_of_path", "register"]

# Ops that have a folder in popxl_addons.
_ADDON_OPS = {
    "cross_entropy_sharded_loss": "cross_entropy_sharded_loss",
    "cross_entropy_sharded_wr_loss": "cross_entropy_sharded_wr_loss handle_ipus",
    "fp8_mse_scale": "CandidateConfig fp8_mse_scale",
    "grad_reduce_square_add": "grad_reduce_square_add",
    "group_quantize_decompress": "group_quantize_compress_numpy group_quantize_decompress "
    "group_quantize_decompress_numpy",
    "layer_norm_distributed": "layer_norm_distributed",
    "linear_layout": "linear_layout",
    "replicated_all_reduce_TP": "replicated_all_reduce replicated_all_reduce_identical_grad_inputs "
    "replicated_all_reduce_identical_inputs",
    "rotary_pos_embed": "rotary_pos_embed trig_table_constants trig_tables",
}


# The path, the modules that hold its names, and the names.
MODULE_PATHS: Mapping[str, Mapping[str, str]] = {
    "popxl.ops.abs": {"popsr.ops": "abs"},
    "popxl.ops.add": {"popsr.ops": "add add_"},
    "popxl.ops.argminmax": {"popsr.ops": "argmax argmin"},
    "popxl.ops.batch_norm": {"popsr.ops": "batch_norm_inference"},
    "popxl.ops.call": {"popsr.ops": "CallSiteInfo call call_with_info"},
    "popxl.ops.cast": {"popsr.ops": "cast pow2scale_cast_from_fp8 pow2scale_cast_to_fp8"},
    "popxl.ops.ceil": {"popsr.ops": "ceil"},
    "popxl.ops.clip": {"popsr.ops": "clamp clip"},
    "popxl.ops.code_copy": {
        "popsr.ops": "remote_code_load",
        "popsr.ops.program.code_copy": "CODE_LOCATION code_copy",
    },
    "popxl.ops.collectives.all_reduce": {
        "popsr.ops.collectives": "all_reduce all_reduce_identical_grad_inputs all_reduce_identical_inputs"
    },
    "popxl.ops.collectives.collectives": {"popsr.ops.collectives": "CollectiveOps to_collective_op"},
    "popxl.ops.collectives.replicated_all_gather": {"popsr.ops.collectives": "replicated_all_gather"},
    "popxl.ops.collectives.replicated_all_reduce": {
        "popsr.ops.collectives": "replicated_all_reduce replicated_all_reduce_"
    },
    "popxl.ops.collectives.replicated_reduce_scatter": {
        "popsr.ops.collectives": "replica_sharded_slice replicated_reduce_scatter replicated_slice"
    },
    "popxl.ops.concat": {"popsr.ops": "concat concat_"},
    "popxl.ops.conditional": {
        "popsr.ops.program.conditional": "ConditionalSiteInfo",
        "popsr.ops": "conditional conditional_with_info",
    },
    "popxl.ops.conv": {
        "popsr.ops": "PadType conv conv_pow2scaled conv_transpose conv_transpose_pow2scaled multi_conv_options"
    },
    "popxl.ops.cos": {"popsr.ops": "cos"},
    "popxl.ops.cumsum": {"popsr.ops": "cumsum"},
    "popxl.ops.detach": {"popsr.ops": "detach detach_"},
    "popxl.ops.div": {"popsr.ops": "div"},
    "popxl.ops.dropout": {"popsr.ops": "dropout"},
    "popxl.ops.dynamic_slice": {"popsr.ops": "dynamic_slice"},
    "popxl.ops.dynamic_update": {"popsr.ops": "dynamic_update dynamic_update_"},
    "popxl.ops.equal": {"popsr.ops": "equal"},
    "popxl.ops.exp": {"popsr.ops": "exp exp_"},
    "popxl.ops.floor": {"popsr.ops": "floor"},
    "popxl.ops.fmod": {"popsr.ops": "fmod"},
    "popxl.ops.gather": {"popsr.ops": "gather groupedgather tied_gather"},
    "popxl.ops.gelu": {"popsr.ops": "gelu gelu_"},
    "popxl.ops.geluerf": {"popsr.ops": "geluerf geluerf_"},
    "popxl.ops.greater": {"popsr.ops": "greater"},
    "popxl.ops.group_norm": {"popsr.ops": "group_norm layer_norm"},
    "popxl.ops.histogram": {"popsr.ops": "histogram", "popsr.ops.indexing.onehot": "check_increment"},
    "popxl.ops.host_load": {"popsr.ops": "host_load"},
    "popxl.ops.host_store": {"popsr.ops": "host_store"},
    "popxl.ops.identity": {"popsr.ops": "identity rename"},
    "popxl.ops.increment_mod": {"popsr.ops": "increment_mod increment_mod_"},
    "popxl.ops.init": {"popsr.ops": "init"},
    "popxl.ops.interpolate": {
        "popsr.ops": "interpolate",
        "popsr.ops.nn.interpolate": "InterpolateCoordinateTransformationType InterpolateNearestType "
        "InterpolateType",
    },
    "popxl.ops.io_tile_copy": {"popsr.ops": "io_tile_copy"},
    "popxl.ops.ipu_copy": {"popsr.ops": "ipu_copy"},
    "popxl.ops.isfinite": {"popsr.ops": "isfinite"},
    "popxl.ops.isinf": {"popsr.ops": "isinf"},
    "popxl.ops.isnan": {"popsr.ops": "isnan"},
    "popxl.ops.l1": {"popsr.ops": "l1"},
    "popxl.ops.l2": {"popsr.ops": "l2"},
    "popxl.ops.lamb": {"popsr.ops": "lamb_square"},
    "popxl.ops.log": {"popsr.ops": "log log2"},
    "popxl.ops.logical_and": {"popsr.ops": "logical_and"},
    "popxl.ops.logical_not": {"popsr.ops": "logical_not"},
    "popxl.ops.logical_or": {"popsr.ops": "logical_or"},
    "popxl.ops.logsum": {"popsr.ops": "logsum"},
    "popxl.ops.logsumexp": {"popsr.ops": "logsumexp"},
    "popxl.ops.matmul": {"popsr.ops": "matmul matmul_pow2scaled"},
    "popxl.ops.max": {"popsr.ops": "max maximum"},
    "popxl.ops.mean": {"popsr.ops": "mean"},
    "popxl.ops.median": {"popsr.ops": "median"},
    "popxl.ops.min": {"popsr.ops": "min"},
    "popxl.ops.mul": {"popsr.ops": "mul"},
    "popxl.ops.negate": {"popsr.ops": "negate"},
    "popxl.ops.negative_log_likelihood": {
        "popsr.ops": "nll_loss nll_loss_with_softmax_grad",
        "popsr.ops.nn.losses": "REDUCTION_TYPE",
    },
    "popxl.ops.onehot": {"popsr.ops": "onehot"},
    "popxl.ops.pool": {"popsr.ops": "average_pool max_pool", "popsr.ops.nn.pool": "receptive_attributes"},
    "popxl.ops.pow": {"popsr.ops": "pow"},
    "popxl.ops.print_tensor": {"popsr.ops": "print_tensor", "popsr.ops.program.host_io": "FloatFormat"},
    "popxl.ops.prod": {"popsr.ops": "prod"},
    "popxl.ops.random_seed": {"popsr.ops": "create_random_seed split_random_seed"},
    "popxl.ops.relu": {"popsr.ops": "relu relu_"},
    "popxl.ops.remote_load": {
        "popsr.ops": "remote_load remote_load_",
        "popsr.ops.program.remote": "multiply_tuple",
    },
    "popxl.ops.remote_store": {"popsr.ops": "remote_store"},
    "popxl.ops.repeat": {"popsr.ops": "repeat repeat_with_info"},
    "popxl.ops.reshape": {
        "popsr.ops": "flatten flatten_ reshape reshape_",
        "popsr.ops.shape.shape": "reshape_handle_negative_axis",
    },
    "popxl.ops.roialign": {"popsr.ops": "roi_align"},
    "popxl.ops.scaled_add": {"popsr.ops": "scaled_add scaled_add_"},
    "popxl.ops.scatter": {"popsr.ops": "scatter"},
    "popxl.ops.scatter_reduce": {
        "popsr.ops": "grouped_scatter_reduce scatter_reduce",
        "popsr.ops.indexing.indexing": "ScatterReduction ScatterReductionType reduction_dict",
    },
    "popxl.ops.shaped_dropout": {"popsr.ops": "shaped_dropout"},
    "popxl.ops.sign": {"popsr.ops": "sign"},
    "popxl.ops.sin": {"popsr.ops": "sin"},
    "popxl.ops.slice": {"popsr.ops": "slice slice_", "popsr.ops.shape.shape": "INT_MAX INT_MIN process_args"},
    "popxl.ops.softmax": {"popsr.ops": "softmax"},
    "popxl.ops.split": {"popsr.ops": "split"},
    "popxl.ops.sqrt": {"popsr.ops": "sqrt"},
    "popxl.ops.squeeze": {"popsr.ops": "squeeze"},
    "popxl.ops.sub": {"popsr.ops": "sub"},
    "popxl.ops.subsample": {"popsr.ops": "subsample"},
    "popxl.ops.sum": {"popsr.ops": "sum"},
    "popxl.ops.sumsquare": {"popsr.ops": "sumsquare"},
    "popxl.ops.swish": {"popsr.ops": "swish swish_"},
    "popxl.ops.tanh": {"popsr.ops": "tanh"},
    "popxl.ops.topk": {"popsr.ops": "topk"},
    "popxl.ops.transpose": {"popsr.ops": "transpose transpose_"},
    "popxl.ops.var_updates.accumulate": {
        "popsr.ops.var_updates": "accumulate_ accumulate_mean_ accumulate_moving_average_ "
        "accumulate_moving_average_square_ accumulate_square_ accumulator_scale_ accumulator_zero_ sparse_accumulate_"
    },
    "popxl.ops.var_updates.adam_updater": {
        "popsr.ops.var_updates": "adam_updater adamax_updater lamb_updater",
        "popsr.ops.update.optimisers": "create_adamupdater weight_decay_is_required",
    },
    "popxl.ops.var_updates.adam_var_update": {"popsr.ops.var_updates": "adam_var_update"},
    "popxl.ops.var_updates.copy_var_update": {"popsr.ops.var_updates": "copy_var_update_"},
    "popxl.ops.var_updates.utils": {"popsr.ops.update.optimisers": "handle_optimizer_value"},
    "popxl.ops.where": {"popsr.ops": "where"},
    "popxl.transforms.merge_exchange": {"popsr.transforms": "io_tile_exchange merge_exchange"},
    **{
        f"popxl_addons.ops.{name}.{name}": {f"popsr.addons.ops.{name}": names}
        for name, names in _ADDON_OPS.items()
    },
}


class _Path(ModuleType):
    """A module whose names are in other modules."""

    def __init__(self, name: str, holders: Mapping[str, str]) -> None:
        """``holders``: the names of each module that has some."""
        homes = {each: holder for holder, names in holders.items() for each in names.split()}
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


def module_of_path(name: str) -> ModuleType:
    """The module of a path of the table."""
    return _Path(name, MODULE_PATHS[name])


def register(package: str) -> None:
    """Make the paths below a package importable; what is loaded already stays what it is.

    Args:
        package: the package: ``"popxl"``.
    """
    for name in MODULE_PATHS:
        if name in sys.modules or not name.startswith(f"{package}."):
            continue
        sys.modules[name] = module = module_of_path(name)
        parent, _, child = name.rpartition(".")
        above = vars(importlib.import_module(parent))  # as ``hasattr`` asks for the nearest name
        above.setdefault("__path__", [])  # to importlib a package, but without a folder
        if child not in above or isinstance(above[child], _Path):  # functions keep their names
            above[child] = module
