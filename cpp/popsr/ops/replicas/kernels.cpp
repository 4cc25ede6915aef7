#include "popsr/ops/replicas/kernels.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/exec/exchange_kernel.h"
#include "popsr/exec/product_kernel.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/reduce/integer_mean.h"
#include "popsr/ops/replicas/rules.h"

namespace popsr {
namespace {

using kernels::Compute;
using kernels::ElementwiseFn;
using kernels::ElementwiseOp;
using kernels::KernelTable;

/// The input blocks that the members of each output block's group hold. Groups that read the same blocks
/// share a list.
struct Sources {
  std::vector<std::vector<std::uint32_t>> lists;
  std::vector<std::uint32_t> list;  ///< Per output block.
  std::vector<std::int64_t> index;  ///< Per output block: index of its replica in the group.
  std::vector<Replica> replicas;    ///< Per output block.
};

Sources sources_of(const ExchangeSpec& spec) {
  const ReplicaGrouping group = group_of(spec.ir, spec.op);
  const std::span<const std::uint32_t> labels = spec.in_labels[0];
  const std::vector<std::uint64_t> ids = sequence_ids(group, labels);
  Sources sources;
  for (const Replica replica : spec.out_replicas) {
    const std::uint64_t id = ids[at(group.assignment()[replica])];
    if (id >= sources.lists.size()) sources.lists.resize(id + 1);
    if (sources.lists[id].empty()) {
      for (const Replica member : group.members(replica)) sources.lists[id].push_back(labels[member]);
    }
    sources.list.push_back(static_cast<std::uint32_t>(id));
    sources.index.push_back(group.index_in_group(replica));
    sources.replicas.push_back(replica);
  }
  return sources;
}

ElementwiseFn step_kernel(const KernelTable& table, CollectiveOp op, Compute compute) {
  ElementwiseOp ew = ElementwiseOp::kAdd;
  if (op == CollectiveOp::kMul) ew = ElementwiseOp::kMul;
  if (op == CollectiveOp::kMin) ew = ElementwiseOp::kMinimum;
  if (op == CollectiveOp::kMax) ew = ElementwiseOp::kMaximum;
  return table.elementwise(ew, compute);
}

void fold_bits(std::byte* acc, const std::byte* next, std::size_t bytes, bool is_and) {
  for (std::size_t i = 0; i < bytes; ++i) acc[i] = is_and ? acc[i] & next[i] : acc[i] | next[i];
}

/// acc /= divisor
void divide_tile(const KernelTable& table, Compute compute, std::byte* acc, std::int64_t n,
                 std::int64_t divisor) {
  alignas(64) std::array<double, at(kTile)> divisors;
  const double value = static_cast<double>(divisor);
  if (compute == Compute::kF64) std::fill_n(divisors.begin(), n, value);
  if (compute == Compute::kF32)
    std::fill_n(reinterpret_cast<float*>(divisors.data()), n, static_cast<float>(value));
  const void* in[] = {acc, divisors.data()};
  table.elementwise(ElementwiseOp::kDiv, compute)(acc, nullptr, in, n, nullptr);
}

/// Fold of tiles; everything that does not change between runs.
struct Fold {
  const KernelTable& table;
  CollectiveOp op;
  DType dtype;
  Compute compute;
  ElementwiseFn step, square;
  bool stochastic;
  std::int64_t in_elements, out_elements;
  std::int64_t group_size;
  IntegerMean integers;
  std::int64_t chunk = 0;                 ///< 0: every member receives all.
  std::optional<std::int64_t> root = {};  ///< The only member that receives.
  Receive receive = Receive::kAll;
  Sources sources = {};

  bool is_bitwise() const { return op == CollectiveOp::kAnd || op == CollectiveOp::kOr; }
};

/// Temporaries of one tile, on the stack: they stay in the first-level cache.
struct TileBuffers {
  alignas(64) std::array<std::byte, at(kTile) * 8> acc;
  alignas(64) std::array<std::byte, at(kTile) * 8> next;
  alignas(64) std::array<float, at(kTile)> lo;
};

/// The tile of one member in the compute type: in place when it is stored so, else converted into `buffer`.
const void* member_tile(const Fold& fold, const std::byte* src, std::byte* buffer, std::int64_t n) {
  const void* tile = src;
  if (is_narrow_float(fold.dtype)) {
    load_tile(fold.table, fold.dtype, fold.compute, buffer, src, n);
    tile = buffer;
  }
  if (fold.op != CollectiveOp::kSquareAdd) return tile;
  const void* in[] = {tile, tile};
  fold.square(buffer, nullptr, in, n, nullptr);
  return buffer;
}

/// acc = exact means of tiles of n integers, source(m) for each of `members`.
template <class Source>
void integer_means(const IntegerMean& mean, const Source& source, std::size_t members, std::int64_t n,
                   std::byte* acc) {
  void* const sums = thread_scratch(mean.sum_bytes(kTile));
  std::memset(sums, 0, mean.sum_bytes(n));
  for (std::size_t m = 0; m < members; ++m) mean.add(sums, source(m), n, 1, 1);
  mean.store(acc, sums, n);
}

/// acc = fold of tiles of n elements, source(m) for each of `members`; returns whether lo was written.
template <class Source>
bool fold_tile(const Fold& fold, const Source& source, std::size_t members, std::int64_t n,
               TileBuffers& tile) {
  if (fold.op == CollectiveOp::kMean && !is_float(fold.dtype)) {
    integer_means(fold.integers, source, members, n, tile.acc.data());
    return false;
  }
  const std::size_t bytes = at(n) * size_of(fold.compute);
  const void* head = member_tile(fold, source(0), tile.acc.data(), n);
  if (head != tile.acc.data()) std::memcpy(tile.acc.data(), head, bytes);
  const bool adds = fold.op == CollectiveOp::kAdd || fold.op == CollectiveOp::kSquareAdd;
  const bool residual = adds && is_narrow_float(fold.dtype) && members > 1;
  for (std::size_t m = 1; m < members; ++m) {
    if (fold.is_bitwise()) {
      fold_bits(tile.acc.data(), source(m), bytes, fold.op == CollectiveOp::kAnd);
      continue;
    }
    const void* in[] = {tile.acc.data(), member_tile(fold, source(m), tile.next.data(), n)};
    const bool last = m + 1 == members;
    fold.step(tile.acc.data(), residual && last ? tile.lo.data() : nullptr, in, n, nullptr);
  }
  if (fold.op == CollectiveOp::kMean && fold.group_size > 1) {
    divide_tile(fold.table, fold.compute, tile.acc.data(), n, fold.group_size);
  }
  return residual;
}

/// Number of members that the value of a block is made of.
std::size_t members_of(const Fold& fold, std::size_t block) {
  const std::size_t all = fold.sources.lists[fold.sources.list[block]].size();
  if (fold.receive == Receive::kPrefix) return at(fold.sources.index[block]) + 1;
  return fold.receive == Receive::kSuffix ? all - at(fold.sources.index[block]) : all;
}

/// Output elements [begin, begin+n) of one block.
void fold_piece(const Fold& fold, const ExchangeRun& run, std::size_t block, std::int64_t begin,
                std::int64_t n, TileBuffers& tile) {
  const std::int64_t size = static_cast<std::int64_t>(size_of(fold.dtype));
  std::byte* out = out_block(run, 0, block) + begin * size;
  const std::int64_t first = fold.sources.index[block] * fold.chunk + begin;
  const bool receives = !fold.root || *fold.root == fold.sources.index[block];
  const std::int64_t present = receives ? std::clamp<std::int64_t>(fold.in_elements - first, 0, n) : 0;
  if (present > 0) {
    const auto& members = fold.sources.lists[fold.sources.list[block]];
    const bool descends = fold.receive == Receive::kSuffix;
    const auto source = [&](std::size_t m) {
      return in_block(run, 0, members[descends ? members.size() - 1 - m : m]) + first * size;
    };
    const bool has_lo = fold_tile(fold, source, members_of(fold, block), present, tile);
    const kernels::NoiseKey* key = fold.stochastic ? &run.noise[0][block] : nullptr;
    store_tile(fold.table, fold.compute, fold.dtype, out, tile.acc.data(), has_lo ? tile.lo.data() : nullptr,
               present, key, run.first + static_cast<std::uint64_t>(begin));
  }
  if (present < n) std::memset(out + present * size, 0, at((n - present) * size));
}

/// Elements [begin, begin+n) of one block of all outputs of fold_tensors_kernel().
void fold_tensors(const Fold& fold, const Block& block, std::size_t tensors, std::int64_t begin,
                  std::int64_t n, TileBuffers& tile) {
  const std::int64_t offset = begin * static_cast<std::int64_t>(size_of(fold.dtype));
  const auto source = [&](std::size_t t) { return block.in(t) + offset; };
  const auto out = [&](std::size_t t) { return block.out(t) + offset; };
  const bool has_lo = fold_tile(fold, source, tensors, n, tile);
  store_tile(fold.table, fold.compute, fold.dtype, out(0), tile.acc.data(), has_lo ? tile.lo.data() : nullptr,
             n, block.key(fold.stochastic), block.run().first + static_cast<std::uint64_t>(begin));
  for (std::size_t t = 1; t < tensors; ++t) std::memcpy(out(t), out(0), at(n) * size_of(fold.dtype));
}

void copy_pieces(std::byte* to, std::int64_t to_step, const std::byte* from, std::int64_t from_step,
                 std::int64_t pieces, std::int64_t bytes) {
  for (std::int64_t p = 0; p < pieces; ++p) std::memcpy(to + p * to_step, from + p * from_step, at(bytes));
}

Fold fold_of(const EvalSpec& spec, std::int64_t group_size) {
  const DType dtype = spec.outputs[0].dtype;
  const Compute compute = compute_of(dtype);
  const CollectiveOp op = spec.op.get(kReduction);
  return {.table = spec.kernels,
          .op = op,
          .dtype = dtype,
          .compute = compute,
          .step = step_kernel(spec.kernels, op, compute),
          .square = step_kernel(spec.kernels, CollectiveOp::kMul, compute),
          .stochastic = spec.stochastic,
          .in_elements = num_elements(spec.inputs[0]->shape),
          .out_elements = num_elements(spec.outputs[0].shape),
          .group_size = group_size,
          .integers = {dtype, group_size}};
}

}  // namespace

ExchangeKernel fold_kernel(const ExchangeSpec& spec, Receive receive) {
  Fold fold = fold_of(spec, group_size_of(spec.ir, spec.op));
  if (receive == Receive::kChunk) fold.chunk = fold.out_elements;
  if (receive == Receive::kRoot) fold.root = spec.op.get(kRoot);
  fold.receive = receive;
  fold.sources = sources_of(spec);
  return [fold = std::move(fold)](const ExchangeRun& run) {
    if (fold.out_elements == 0) return;
    const auto blocks = static_cast<std::int64_t>(fold.sources.list.size());
    const std::int64_t tiles = (fold.out_elements + kTile - 1) / kTile;
    const std::int64_t work = blocks * fold.out_elements * fold.group_size;
    parallel_for(run.pool, blocks * tiles, 1, work, [&](std::int64_t from, std::int64_t to) {
      TileBuffers tile;
      for (std::int64_t t = from; t < to; ++t) {
        if (!run.active(fold.sources.replicas[at(t / tiles)])) continue;
        const std::int64_t begin = t % tiles * kTile;
        fold_piece(fold, run, at(t / tiles), begin, std::min(kTile, fold.out_elements - begin), tile);
      }
    });
  };
}

BlockKernel fold_tensors_kernel(const EvalSpec& spec) {
  const std::size_t tensors = spec.inputs.size();
  return [fold = fold_of(spec, static_cast<std::int64_t>(tensors)), tensors](const BlockRun& run) {
    if (fold.out_elements == 0) return;
    for_each_tile(run, fold.out_elements, fold.out_elements * fold.group_size,
                  [&](const Block& block, std::int64_t first, std::int64_t n) {
                    TileBuffers tile;
                    fold_tensors(fold, block, tensors, first, n, tile);
                  });
  };
}

std::optional<ProductFusion> all_reduce_fusion(const EvalSpec& spec) {
  const DType dtype = spec.outputs[0].dtype;
  const CollectiveOp op = spec.op.get(kReduction);
  const bool adds = op == CollectiveOp::kAdd || op == CollectiveOp::kMean;
  const double size = static_cast<double>(group_size_of(spec.ir, spec.op));
  return ProductFusion{.product_input = 0,
                       .group = spec.op.find(kGroup),
                       .in_registers = adds && is_float(dtype) && !is_narrow_float(dtype),
                       .divisor = op == CollectiveOp::kMean ? size : 1.0};
}

ExchangeKernel gather_kernel(const ExchangeSpec& spec, GatherLayout layout) {
  const std::int64_t size = static_cast<std::int64_t>(size_of(spec.outputs[0].dtype));
  const std::int64_t total = num_elements(spec.outputs[0].shape) * size;
  return [outer = layout.outer, piece = layout.inner * size, total,
          sources = sources_of(spec)](const ExchangeRun& run) {
    if (total == 0) return;
    const auto blocks = static_cast<std::int64_t>(sources.list.size());
    parallel_for(run.pool, blocks, 1, blocks * total / 4, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t b = from; b < to; ++b) {
        if (!run.active(sources.replicas[at(b)])) continue;
        const auto& members = sources.lists[sources.list[at(b)]];
        const auto row = static_cast<std::int64_t>(members.size()) * piece;
        std::byte* out = out_block(run, 0, b);
        for (std::size_t m = 0; m < members.size(); ++m) {
          const std::int64_t begin = static_cast<std::int64_t>(m) * piece;
          const std::byte* in = in_block(run, 0, members[m]);
          copy_pieces(out + begin, row, in, piece, outer, std::clamp<std::int64_t>(total - begin, 0, piece));
        }
      }
    });
  };
}

ExchangeKernel all_to_all_kernel(const ExchangeSpec& spec, GatherLayout layout) {
  const std::int64_t piece = layout.inner * static_cast<std::int64_t>(size_of(spec.outputs[0].dtype));
  return [outer = layout.outer, piece, sources = sources_of(spec)](const ExchangeRun& run) {
    if (outer * piece == 0) return;
    const auto blocks = static_cast<std::int64_t>(sources.list.size());
    const auto row = static_cast<std::int64_t>(sources.lists[sources.list[0]].size()) * piece;
    parallel_for(run.pool, blocks, 1, blocks * outer * row / 4, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t b = from; b < to; ++b) {
        if (!run.active(sources.replicas[at(b)])) continue;
        const auto& members = sources.lists[sources.list[at(b)]];
        std::byte* out = out_block(run, 0, b);
        for (std::size_t m = 0; m < members.size(); ++m) {
          const std::byte* in = in_block(run, 0, members[m]);
          copy_pieces(out + static_cast<std::int64_t>(m) * piece, row, in + sources.index[at(b)] * piece, row,
                      outer, piece);
        }
      }
    });
  };
}

ExchangeKernel own_part_kernel(const ExchangeSpec& spec, GatherLayout layout) {
  const std::int64_t size = static_cast<std::int64_t>(size_of(spec.outputs[0].dtype));
  const std::int64_t total = num_elements(spec.inputs[0]->shape) * size;
  const ReplicaGrouping group = group_of(spec.ir, spec.op);
  struct Part {
    Replica replica;
    std::uint32_t block;
    std::int64_t index;  ///< In the group.
  };
  std::vector<Part> parts;
  for (const Replica replica : spec.out_replicas) {
    parts.push_back({replica, spec.in_labels[0][replica], group.index_in_group(replica)});
  }
  return [outer = layout.outer, piece = layout.inner * size, row = layout.inner * size * group.group_size(),
          total, parts = std::move(parts)](const ExchangeRun& run) {
    if (outer * piece == 0) return;
    for (std::size_t b = 0; b < parts.size(); ++b) {
      const auto [replica, block, index] = parts[b];
      if (!run.active(replica)) continue;
      std::byte* out = out_block(run, 0, b);
      const std::byte* in = in_block(run, 0, block);
      const std::int64_t present = std::clamp<std::int64_t>(total - index * piece, 0, piece);
      if (present > 0) copy_pieces(out, piece, in + index * piece, row, outer, present);
      if (present < piece) std::memset(out + present, 0, at(piece - present));
    }
  };
}

}  // namespace popsr
