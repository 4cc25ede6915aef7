// Path of a product: a function of its shape and strides only, and no path changes a bit.
#pragma once

#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/kernels/level/product/matmul_vec-inl.h"

namespace popsr::kernels {
namespace {

/// Chains longer than kLongChain are cut into blocks of kBlockK (part of the numeric contract).
constexpr std::int64_t kLongChain = 4096, kBlockK = 1024;
// The constants below decide speed only.

/// Chains longer than kMaxPiece pause after every kPiece steps: a piece of the vec operand stays in cache
/// meanwhile.
constexpr std::int64_t kMaxPiece = 1024, kPiece = 512;
/// From kSwapRows rows on, rows of C fill vectors in products with B^T while k, the price of writing tiles
/// transposed against copying B, is at least kSwapRatio times m.
constexpr std::int64_t kSwapRows = 8, kSwapRatio = 4;
/// A vec operand of up to this many bytes is walked once per tile of rows, so that C streams through once.
constexpr std::int64_t kStreamBytes = 65536;
/// From kPackRows rows on, panels whose rows are so many bytes apart are copied: their lines would share few
/// sets of the caches. The row operand is copied from kPackRowStride on for the same reason.
constexpr std::int64_t kPackRows = 24, kPackStride = 1024, kPackRowStride = 4096;
/// Row operand of one block of rows: a usual L2, or a share of the L3 where the vec operand takes more than
/// kFarBytes, because each block reads and copies all of it.
constexpr std::int64_t kBlockBytes = 1048576, kFarBlockBytes = 8388608, kFarBytes = 4194304;
constexpr std::int64_t kReducedK = 8;  ///< Reductions of chains up to this length are kept in registers.
constexpr std::int64_t kReducedVecBytes = 131072,
                       kReducedRowBytes = 524288;  ///< Bytes of packed operands of such a reduction.
/// Chains of steps up to this length are kept in registers while their packed vec operand takes so many
/// bytes.
constexpr std::int64_t kSteppedK = 32, kSteppedVecBytes = 262144;
/// Rows that each part gets at least when parts are split by rows.
constexpr std::int64_t kSplitRows = 48;

struct Range {
  std::int64_t begin, end;
};

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t at_least(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
constexpr std::int64_t at_most(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

/// Piece `index` of `pieces` nearly equal ones of `extent`, cut at multiples of `unit`.
inline Range piece(std::int64_t extent, std::int64_t unit, std::int64_t index, std::int64_t pieces) {
  const std::int64_t units = ceil_div(extent, unit);
  return {at_most(extent, units * index / pieces * unit),
          at_most(extent, units * (index + 1) / pieces * unit)};
}

/// An operand as a tile sees it: element (k, x) is at ptr[term][k*k_stride + x*x_stride], `extent` values
/// of x.
struct Side {
  const void* const* ptr;
  std::int64_t k_stride, x_stride, extent;
};

/// The path of one product.
struct Plan {
  Side row, vec;
  /// True if columns of C are the row operand and rows of C fill vectors: tiles are written transposed.
  bool swapped;
  /// True for products of short chains that are summed: ReducedProduct, or ShortSteps if `stepped`.
  bool reduced;
  /// True if few rows are multiplied with wide panels, whole chains at a time, which are read as they are.
  bool wide;
  bool stepped;          ///< True for short chains of several steps per term, a chain each: ShortSteps.
  bool pack_vec;         ///< True if panels of the vec operand are copied to scratch.
  bool pack_ahead;       ///< True if the next panel is copied in parts, between tiles of this one.
  bool pack_row;         ///< True if blocks of the row operand are copied to scratch.
  std::int64_t terms;    ///< Number of chains that one pass over C takes.
  std::int64_t block_k;  ///< Steps of a chain at a time: k, a block of a long one, or a piece.
  /// Rows of the row operand that are multiplied with one panel before the next panel is taken.
  std::int64_t block_row;
  std::int64_t term_step;                         ///< Number of terms whose operands are packed at a time.
  std::int64_t vec_bytes, row_bytes, tile_bytes;  ///< Bytes of scratch, each a multiple of 64.

  std::int64_t bytes() const { return vec_bytes + row_bytes + tile_bytes; }
};

constexpr std::int64_t aligned_bytes(std::int64_t bytes) { return ceil_div(bytes, 64) * 64; }

/// Number of chains that are packed at a time, in at most `vec_bytes` bytes.
template <class X>
void plan_reduced(Plan& plan, std::int64_t k, std::int64_t vec_bytes) {
  constexpr std::int64_t kSize = sizeof(typename X::T), kWidth = 2 * X::kLanes;
  const std::int64_t chain = k * kSize;
  plan.term_step = at_least(1, at_most(plan.terms, vec_bytes / (chain * kWidth)));
  const std::int64_t tiles = kReducedRowBytes / (plan.term_step * chain * X::kReducedRows);
  plan.block_row = at_least(1, at_most(tiles, ceil_div(plan.row.extent, X::kReducedRows))) * X::kReducedRows;
  plan.vec_bytes = aligned_bytes(plan.term_step * chain * kWidth);
  plan.row_bytes = aligned_bytes(plan.term_step * chain * plan.block_row);
}

template <class X>
void plan_blocks(Plan& plan, std::int64_t k) {
  constexpr std::int64_t kSize = sizeof(typename X::T), kWidth = 2 * X::kLanes;
  const std::int64_t chain = at_least(k, 1) * kSize;
  const bool long_chain = k > kLongChain, contiguous = plan.vec.x_stride == 1;
  const bool stream = contiguous && chain * plan.vec.extent <= kStreamBytes;
  plan.block_k = long_chain ? kBlockK : k > kMaxPiece && !stream ? kPiece : k;
  const bool far_panels = plan.row.extent >= kPackRows && plan.vec.k_stride * kSize >= kPackStride;
  plan.pack_vec = !contiguous || (far_panels && !stream && plan.terms == 1);
  const bool far_vec = plan.pack_vec && chain * plan.vec.extent > kFarBytes;
  std::int64_t tiles = at_least(4, (far_vec ? kFarBlockBytes : kBlockBytes) / (chain * X::kRows));
  if (plan.terms > 1 || long_chain) tiles = 4;
  if (stream) tiles = 1;
  plan.block_row = at_most(tiles, at_least(1, ceil_div(plan.row.extent, X::kRows))) * X::kRows;
  const bool far_rows = plan.row.k_stride != 1 || plan.row.x_stride * kSize >= kPackRowStride;
  plan.pack_row =
      far_rows && k >= 32 && plan.vec.extent >= 4 * kWidth && plan.terms == 1 && !long_chain && !stream;
  plan.pack_ahead = plan.pack_vec && contiguous;
  plan.wide = contiguous && plan.row.extent <= X::kWideRows && !long_chain &&
              plan.vec.extent >= X::kWideVecs * X::kLanes;
  if (plan.wide) {
    plan.block_k = k;
    plan.pack_vec = plan.pack_ahead = false;
  }
  if (plan.pack_vec)
    plan.vec_bytes = (plan.pack_ahead ? 2 : 1) * aligned_bytes(plan.block_k * kWidth * kSize);
  if (plan.pack_row) plan.row_bytes = aligned_bytes(plan.block_row * chain);
  if (plan.swapped || plan.block_k != k) plan.tile_bytes = aligned_bytes(plan.block_row * kWidth * kSize);
}

template <class X>
Plan make_plan(const MatmulArgs& args) {
  Plan plan = {};
  plan.row = {args.a, args.a_col, args.a_row, args.m};
  plan.vec = {args.b, args.b_row, args.b_col, args.n};
  const std::int64_t chains = args.terms * args.steps;
  plan.stepped =
      args.epilogue == MatmulArgs::Epilogue::kSteps && args.k >= 1 && args.k <= kSteppedK &&
      chains * args.k * 2 * X::kLanes * static_cast<std::int64_t>(sizeof(typename X::T)) <= kSteppedVecBytes;
  plan.terms = plan.stepped ? chains : args.epilogue == MatmulArgs::Epilogue::kReduce ? args.terms : 1;
  plan.reduced = plan.stepped || (plan.terms > 1 && args.k >= 1 && args.k <= kReducedK);
  if (args.n == 1) plan.vec.x_stride = 1;
  plan.swapped = !plan.reduced && args.epilogue != MatmulArgs::Epilogue::kSteps && plan.vec.x_stride != 1 &&
                 args.m >= kSwapRows && args.m * kSwapRatio <= args.k;
  if (plan.swapped) {
    const Side row = plan.row;
    plan.row = plan.vec;
    plan.vec = row;
  }
  if (plan.reduced) {
    plan_reduced<X>(plan, args.k, plan.stepped ? kSteppedVecBytes : kReducedVecBytes);
  } else {
    plan_blocks<X>(plan, args.k);
  }
  return plan;
}

/// Rows and columns of tiles of a part: whole rows while each part gets enough of them, otherwise panels.
template <class X>
void split(const Plan& plan, int part, int parts, Range& rows, Range& cols) {
  rows = {0, plan.row.extent};
  cols = {0, plan.vec.extent};
  if (plan.row.extent >= parts * kSplitRows || plan.vec.extent < parts * X::kLanes) {
    rows = piece(plan.row.extent, plan.swapped ? 4 : 1, part, parts);
  } else {
    cols = piece(plan.vec.extent, X::kLanes, part, parts);
  }
}

}  // namespace
}  // namespace popsr::kernels
