// All ops: one explicit list per family.
#pragma once

#include <memory>
#include <vector>

#include "popsr/ir/op_def.h"

namespace popsr {

std::vector<OpDef> elementwise_ops();      ///< elementwise.cpp: arithmetic, and the next three
std::vector<OpDef> activation_ops();       ///< activations.cpp: activations, ops of gradients
std::vector<OpDef> comparison_ops();       ///< comparisons.cpp: comparisons, logic, where
std::vector<OpDef> elementary_ops();       ///< functions.cpp: sin, floor, clip, fmod, ...
std::vector<OpDef> cast_ops();             ///< cast.cpp, and the next one
std::vector<OpDef> fp8_ops();              ///< fp8.cpp: conversion to and from float8
std::vector<OpDef> shape_ops();            ///< shape.cpp: transpose, reshape, flatten, squeeze, slice, detach
std::vector<OpDef> concat_ops();           ///< concat.cpp
std::vector<OpDef> indexing_ops();         ///< indexing.cpp: gather, scatter, scatter_reduce
std::vector<OpDef> dynamic_slice_ops();    ///< dynamic_slices.cpp: dynamic_slice, dynamic_update, subsample
std::vector<OpDef> onehot_ops();           ///< onehot.cpp: onehot, histogram
std::vector<OpDef> reduction_ops();        ///< reductions.cpp: over any axes, and the three below
std::vector<OpDef> softmax_ops();          ///< softmax.cpp: softmax, log_softmax
std::vector<OpDef> scan_ops();             ///< scans.cpp: cumsum
std::vector<OpDef> order_ops();            ///< order.cpp: argmax, argmin, median, topk
std::vector<OpDef> matmul_ops();           ///< matmul.cpp
std::vector<OpDef> conv_ops();             ///< conv.cpp: conv, conv_transpose
std::vector<OpDef> pool_ops();             ///< pool.cpp: average_pool, max_pool
std::vector<OpDef> interpolate_ops();      ///< interpolate.cpp
std::vector<OpDef> roi_align_ops();        ///< roi_align.cpp
std::vector<OpDef> loss_ops();             ///< losses.cpp
std::vector<OpDef> label_check_ops();      ///< label_check.cpp: check_labels
std::vector<OpDef> norm_ops();             ///< norms.cpp: group_norm, layer_norm, batch_norm_inference
std::vector<OpDef> random_ops();           ///< random.cpp: random_uniform, random_normal, and the next two
std::vector<OpDef> random_seed_ops();      ///< random_seeds.cpp: split_random_seed, create_random_seed
std::vector<OpDef> dropout_ops();          ///< dropout.cpp: dropout, shaped_dropout
std::vector<OpDef> lamb_ops();             ///< lamb.cpp: lamb_square
std::vector<OpDef> host_io_ops();          ///< host_io.cpp: host_load, host_store, print_tensor, init
std::vector<OpDef> remote_ops();           ///< remote.cpp: loads from and stores to remote buffers
std::vector<OpDef> control_ops();          ///< control.cpp: call, repeat, conditional
std::vector<OpDef> replica_index_ops();    ///< replica_index.cpp
std::vector<OpDef> collective_ops();       ///< collectives.cpp: reductions, gathers
std::vector<OpDef> collective_move_ops();  ///< collective_moves.cpp: broadcast, all-to-all, permute, slices
std::vector<OpDef> collective_pair_ops();  ///< collective_pairs.cpp: those with a declared gradient
std::vector<OpDef> place_copy_ops();       ///< place_copies.cpp: ipu_copy, io_tile_copy
std::vector<OpDef> merged_ops();           ///< merged.cpp: several exchanges as one op
std::vector<OpDef> var_update_ops();       ///< var_updates.cpp
std::vector<OpDef> optimiser_ops();        ///< optimisers.cpp: adam_updater, adam_var_update, ...
std::vector<OpDef> sparse_update_ops();    ///< sparse_accumulate.cpp

/// The product's registry, built once.
std::shared_ptr<const Registry> default_registry();

}  // namespace popsr
