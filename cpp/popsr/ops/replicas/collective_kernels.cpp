#include "popsr/ops/replicas/collective_kernels.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/exec/collective_kernel.h"
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

/// Input blocks of the members of each output block's group. Groups that read the same blocks share a list.
struct Sources {
  std::vector<std::vector<std::uint32_t>> lists;
  std::vector<std::uint32_t> list;  ///< List of each output block.
  std::vector<std::int64_t> index;  ///< Index of each output block's replica in the group.
  std::vector<Replica> replicas;    ///< Replica of each output block.
};

Sources sources_of(const CollectiveSpec& spec) {
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

void reduce_bits(std::byte* acc, const std::byte* next, std::size_t bytes, bool is_and) {
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

/// Reduction of tiles; everything that does not change between runs.
struct Reduction {
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
const void* member_tile(const Reduction& reduction, const std::byte* src, std::byte* buffer, std::int64_t n) {
  const void* tile = src;
  if (is_narrow_float(reduction.dtype)) {
    load_tile(reduction.table, reduction.dtype, reduction.compute, buffer, src, n);
    tile = buffer;
  }
  if (reduction.op != CollectiveOp::kSquareAdd) return tile;
  const void* in[] = {tile, tile};
  reduction.square(buffer, nullptr, in, n, nullptr);
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

/// True if the rounding of a result needs the residual of its last addition.
bool needs_residual(const Reduction& reduction) {
  const bool adds = reduction.op == CollectiveOp::kAdd || reduction.op == CollectiveOp::kSquareAdd;
  return adds && is_narrow_float(reduction.dtype);
}

/// acc = reduction of tiles of n elements, source(m) for each of `members`; returns whether lo was written.
template <class Source>
bool reduce_tile(const Reduction& reduction, const Source& source, std::size_t members, std::int64_t n,
                 TileBuffers& tile) {
  if (reduction.op == CollectiveOp::kMean && !is_float(reduction.dtype)) {
    integer_means(reduction.integers, source, members, n, tile.acc.data());
    return false;
  }
  const std::size_t bytes = at(n) * size_of(reduction.compute);
  const void* head = member_tile(reduction, source(0), tile.acc.data(), n);
  if (head != tile.acc.data()) std::memcpy(tile.acc.data(), head, bytes);
  const bool residual = needs_residual(reduction) && members > 1;
  for (std::size_t m = 1; m < members; ++m) {
    if (reduction.is_bitwise()) {
      reduce_bits(tile.acc.data(), source(m), bytes, reduction.op == CollectiveOp::kAnd);
      continue;
    }
    const void* in[] = {tile.acc.data(), member_tile(reduction, source(m), tile.next.data(), n)};
    const bool last = m + 1 == members;
    reduction.step(tile.acc.data(), residual && last ? tile.lo.data() : nullptr, in, n, nullptr);
  }
  if (reduction.op == CollectiveOp::kMean && reduction.group_size > 1) {
    divide_tile(reduction.table, reduction.compute, tile.acc.data(), n, reduction.group_size);
  }
  return residual;
}

/// Number of members that the value of a block is made of.
std::size_t members_of(const Reduction& reduction, std::size_t block) {
  const std::size_t all = reduction.sources.lists[reduction.sources.list[block]].size();
  if (reduction.receive == Receive::kPrefix) return at(reduction.sources.index[block]) + 1;
  return reduction.receive == Receive::kSuffix ? all - at(reduction.sources.index[block]) : all;
}

/// Output elements [begin, begin+n) of one block.
void reduce_piece(const Reduction& reduction, const CollectiveRun& run, std::size_t block, std::int64_t begin,
                  std::int64_t n, TileBuffers& tile) {
  const std::int64_t size = static_cast<std::int64_t>(size_of(reduction.dtype));
  std::byte* out = out_block(run, 0, block) + begin * size;
  const std::int64_t first = reduction.sources.index[block] * reduction.chunk + begin;
  const bool receives = !reduction.root || *reduction.root == reduction.sources.index[block];
  const std::int64_t present = receives ? std::clamp<std::int64_t>(reduction.in_elements - first, 0, n) : 0;
  if (present > 0) {
    const auto& members = reduction.sources.lists[reduction.sources.list[block]];
    const bool descends = reduction.receive == Receive::kSuffix;
    const auto source = [&](std::size_t m) {
      return in_block(run, 0, members[descends ? members.size() - 1 - m : m]) + first * size;
    };
    const bool has_lo = reduce_tile(reduction, source, members_of(reduction, block), present, tile);
    const kernels::NoiseKey* key = reduction.stochastic ? &run.noise[0][block] : nullptr;
    store_tile(reduction.table, reduction.compute, reduction.dtype, out, tile.acc.data(),
               has_lo ? tile.lo.data() : nullptr, present, key,
               run.first + static_cast<std::uint64_t>(begin));
  }
  if (present < n) std::memset(out + present * size, 0, at((n - present) * size));
}

/// Elements [begin, begin+n) of one block of all outputs of reduce_tensors_kernel().
void reduce_tensors(const Reduction& reduction, const Block& block, std::size_t tensors, std::int64_t begin,
                    std::int64_t n, TileBuffers& tile) {
  const std::int64_t offset = begin * static_cast<std::int64_t>(size_of(reduction.dtype));
  const auto source = [&](std::size_t t) { return block.in(t) + offset; };
  const auto out = [&](std::size_t t) { return block.out(t) + offset; };
  const bool has_lo = reduce_tile(reduction, source, tensors, n, tile);
  store_tile(reduction.table, reduction.compute, reduction.dtype, out(0), tile.acc.data(),
             has_lo ? tile.lo.data() : nullptr, n, block.key(reduction.stochastic),
             block.run().first + static_cast<std::uint64_t>(begin));
  for (std::size_t t = 1; t < tensors; ++t) std::memcpy(out(t), out(0), at(n) * size_of(reduction.dtype));
}

void copy_pieces(std::byte* to, std::int64_t to_step, const std::byte* from, std::int64_t from_step,
                 std::int64_t pieces, std::int64_t bytes) {
  for (std::int64_t p = 0; p < pieces; ++p) std::memcpy(to + p * to_step, from + p * from_step, at(bytes));
}

Reduction reduction_of(const EvalSpec& spec, std::int64_t group_size) {
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

CollectiveKernel reduce_kernel(const CollectiveSpec& spec, Receive receive) {
  Reduction reduction = reduction_of(spec, group_size_of(spec.ir, spec.op));
  if (receive == Receive::kChunk) reduction.chunk = reduction.out_elements;
  if (receive == Receive::kRoot) reduction.root = spec.op.get(kRoot);
  reduction.receive = receive;
  reduction.sources = sources_of(spec);
  return [reduction = std::move(reduction)](const CollectiveRun& run) {
    if (reduction.out_elements == 0) return;
    const auto blocks = static_cast<std::int64_t>(reduction.sources.list.size());
    const std::int64_t tiles = (reduction.out_elements + kTile - 1) / kTile;
    const std::int64_t work = blocks * reduction.out_elements * reduction.group_size;
    parallel_for(run.pool, blocks * tiles, 1, work, [&](std::int64_t from, std::int64_t to) {
      TileBuffers tile;
      for (std::int64_t t = from; t < to; ++t) {
        if (!run.active(reduction.sources.replicas[at(t / tiles)])) continue;
        const std::int64_t begin = t % tiles * kTile;
        reduce_piece(reduction, run, at(t / tiles), begin, std::min(kTile, reduction.out_elements - begin),
                     tile);
      }
    });
  };
}

BlockKernel reduce_tensors_kernel(const EvalSpec& spec) {
  const std::size_t tensors = spec.inputs.size();
  return [reduction = reduction_of(spec, static_cast<std::int64_t>(tensors)), tensors](const BlockRun& run) {
    if (reduction.out_elements == 0) return;
    for_each_tile(run, reduction.out_elements, reduction.out_elements * reduction.group_size,
                  [&](const Block& block, std::int64_t first, std::int64_t n) {
                    TileBuffers tile;
                    reduce_tensors(reduction, block, tensors, first, n, tile);
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

namespace {

/// Adds the elements [begin, begin+n) of a chain's step.
void add_tile(const Reduction& reduction, const ChainStep& step, std::int64_t begin, std::int64_t n,
              TileBuffers& tile) {
  const std::size_t bytes = at(n) * size_of(reduction.compute), size = size_of(reduction.compute);
  std::byte* const state = step.state + at(begin) * size;
  const bool has_residual = needs_residual(reduction);
  const auto member = [&](std::size_t m) {
    return step.members[m] + step.offset + at(begin) * size_of(reduction.dtype);
  };
  std::size_t next = 0;
  const void* const head =
      step.continues ? state : member_tile(reduction, member(next++), tile.acc.data(), n);
  if (head != tile.acc.data()) std::memcpy(tile.acc.data(), head, bytes);
  for (; next < step.members.size(); ++next) {
    if (reduction.is_bitwise()) {
      reduce_bits(tile.acc.data(), member(next), bytes, reduction.op == CollectiveOp::kAnd);
      continue;
    }
    const void* in[] = {tile.acc.data(), member_tile(reduction, member(next), tile.next.data(), n)};
    reduction.step(tile.acc.data(), has_residual ? tile.lo.data() : nullptr, in, n, nullptr);
  }
  std::memcpy(state, tile.acc.data(), bytes);
  if (!has_residual) return;
  std::byte* const residuals = step.state + at(step.elements) * size;
  std::memcpy(residuals + at(begin) * sizeof(float), tile.lo.data(), at(n) * sizeof(float));
}

/// Stores the elements [begin, begin+n) of a chain's end.
void finish_tile(const Reduction& reduction, const ChainEnd& end, std::int64_t begin, std::int64_t n,
                 TileBuffers& tile) {
  const std::size_t size = size_of(reduction.compute);
  std::memcpy(tile.acc.data(), end.state + at(begin) * size, at(n) * size);
  if (reduction.op == CollectiveOp::kMean) {
    divide_tile(reduction.table, reduction.compute, tile.acc.data(), n, reduction.group_size);
  }
  const bool has_lo = needs_residual(reduction);
  const std::byte* const residuals = end.state + at(end.elements) * size;
  if (has_lo) {
    std::memcpy(tile.lo.data(), residuals + at(begin) * sizeof(float), at(n) * sizeof(float));
  }
  std::byte* const out = end.out + at(begin) * size_of(reduction.dtype);
  store_tile(reduction.table, reduction.compute, reduction.dtype, out, tile.acc.data(),
             has_lo ? tile.lo.data() : nullptr, n, end.key, end.first + static_cast<std::uint64_t>(begin));
}

/// Calls body(begin, n, tile) for the tiles of so many elements.
template <class Body>
void for_each_tile_of(ThreadPool& pool, std::int64_t elements, std::int64_t work, const Body& body) {
  parallel_for(pool, elements, kTile, work, [&](std::int64_t from, std::int64_t to) {
    TileBuffers tile;
    for (std::int64_t begin = from; begin < to; begin += kTile) {
      body(begin, std::min(kTile, to - begin), tile);
    }
  });
}

}  // namespace

std::optional<ReductionChain> all_reduce_chain(const EvalSpec& spec) {
  const Reduction reduction = reduction_of(spec, group_size_of(spec.ir, spec.op));
  if (reduction.op == CollectiveOp::kMean && !is_float(reduction.dtype)) return std::nullopt;
  const std::size_t size = size_of(reduction.compute);
  return ReductionChain{.message_size = size,
                        .state_size = size + (needs_residual(reduction) ? sizeof(float) : 0),
                        .add =
                            [reduction](const ChainStep& step) {
                              const auto members = static_cast<std::int64_t>(step.members.size());
                              for_each_tile_of(step.pool, step.elements, step.elements * members,
                                               [&](std::int64_t begin, std::int64_t n, TileBuffers& tile) {
                                                 add_tile(reduction, step, begin, n, tile);
                                               });
                            },
                        .finish =
                            [reduction](const ChainEnd& end) {
                              for_each_tile_of(end.pool, end.elements, end.elements,
                                               [&](std::int64_t begin, std::int64_t n, TileBuffers& tile) {
                                                 finish_tile(reduction, end, begin, n, tile);
                                               });
                            }};
}

CollectiveKernel gather_kernel(const CollectiveSpec& spec, GatherLayout layout) {
  const std::int64_t size = static_cast<std::int64_t>(size_of(spec.outputs[0].dtype));
  const std::int64_t total = num_elements(spec.outputs[0].shape) * size;
  return [outer = layout.outer, piece = layout.inner * size, total,
          sources = sources_of(spec)](const CollectiveRun& run) {
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

CollectiveKernel all_to_all_kernel(const CollectiveSpec& spec, GatherLayout layout) {
  const std::int64_t piece = layout.inner * static_cast<std::int64_t>(size_of(spec.outputs[0].dtype));
  return [outer = layout.outer, piece, sources = sources_of(spec)](const CollectiveRun& run) {
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

CollectiveKernel own_part_kernel(const CollectiveSpec& spec, GatherLayout layout) {
  const std::int64_t size = static_cast<std::int64_t>(size_of(spec.outputs[0].dtype));
  const std::int64_t total = num_elements(spec.inputs[0]->shape) * size;
  const ReplicaGrouping group = group_of(spec.ir, spec.op);
  struct Part {
    Replica replica;
    std::uint32_t block;
    std::int64_t index;  ///< Index in the group.
  };
  std::vector<Part> parts;
  for (const Replica replica : spec.out_replicas) {
    parts.push_back({replica, spec.in_labels[0][replica], group.index_in_group(replica)});
  }
  return [outer = layout.outer, piece = layout.inner * size, row = layout.inner * size * group.group_size(),
          total, parts = std::move(parts)](const CollectiveRun& run) {
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
