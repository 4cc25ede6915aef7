// Contract between the per-level kernel objects and the rest: plain functions on contiguous buffers.
//
// Each instruction-set level is a shared object of its own that exports one C function returning a
// KernelTable.
// Every function gives the same bits at every level (products: levels v3, v4 and generic-with-FMA).
// Elementwise kernels may be called on any sub-range: a result depends on its own operands only. No kernel
// allocates, throws, or reads the machine (cache sizes, thread count).
#pragma once

#include <cstddef>
#include <cstdint>

#include "popsr/kernels/contract/accumulation.h"
#include "popsr/kernels/contract/elementwise.h"
#include "popsr/kernels/contract/noise_key.h"
#include "popsr/kernels/contract/round.h"

namespace popsr::kernels {

/// Reductions of `rows` rows of n contiguous elements each (row r starts at in + r*row_stride elements).
/// Spec: element i goes to lane i mod 16 in ascending i; lanes reduce as (0..7)+(8..15), (0..3)+(4..7),
/// (0,1)+(2,3), 0+1. hi/lo: last addition's TwoSum (lo may be null; only sums write it). Products reduce
/// alike. Empty: 0 for sum, 1 for product, lowest for max.
enum class Reduce : int { kSum, kMax, kMin, kSumSquare, kProduct, kCount };
inline constexpr int kNumReduces = static_cast<int>(Reduce::kCount);
using ReduceFn = void (*)(void* hi, void* lo, const void* in, std::int64_t rows, std::int64_t n,
                          std::int64_t row_stride);

/// Kernels that reduce the n columns of `rows` rows, which are row_stride elements apart, in ascending
/// order of the rows; for float, double and bfloat16. The table of bfloat16 gives float results.
struct ColumnKernels {
  /// Function that replaces acc[c] by the elementwise kernel's result of acc[c] and the element of each row
  /// in turn.
  using ReduceFn = void (*)(void* acc, const void* in, std::int64_t rows, std::int64_t n,
                            std::int64_t row_stride);
  /// Function that sets best[c] and index[c] to an element and the number of its row, from `first` on, if
  /// it is larger (smaller) than best[c], or NaN and best[c] is not.
  using ArgFn = void (*)(void* best, std::int32_t* index, const void* in, std::int64_t rows, std::int64_t n,
                         std::int64_t row_stride, std::int32_t first);
  ReduceFn sum, max, min;
  ArgFn argmax, argmin;
};

/// Kernels on rows of n contiguous elements, one after another, of a float format as it is stored. The sum
/// of a row is that of exp(x - max) through the 16 lanes. Narrow results are rounded once, to nearest even.
struct SoftmaxKernels {
  using RowsFn = void (*)(void* out, float* lo, const void* in, std::int64_t rows, std::int64_t n,
                          void* room);
  /// Softmax exp(x - max) / sum; lo is not written. Narrow formats need `room` of 4n floats. Wide ones may
  /// have out = in.
  RowsFn softmax;
  /// Logarithm of softmax, (x - max) - log(sum), from float with the residuals of the differences to lo,
  /// which may be null. out is not in.
  RowsFn log_softmax;
};

/// Slopes g of rows: element i is dy[i] * weight[i / run], rounded, or dy[i] without weights. `run` is 1 or
/// a multiple of 16.
struct NormSlopes {
  const void* dy;
  const void* weight = nullptr;  ///< Weights of the first row.
  /// Number of groups of weights: row r has the weights of group (group + r) % groups, each of n / run
  /// weights.
  std::int64_t groups = 1;
  std::int64_t group = 0;
  std::int64_t run = 1;
};

/// Kernels on rows that are normalised, of float or double. `stats` of a row is its mean, sum / n, and its
/// inverse deviation, 1 / sqrt(sum of (x - mean)^2 / n + eps), both sums through the 16 lanes. A unit is (x
/// - mean) * inverse deviation. No multiplication is fused.
struct NormKernels {
  /// Computes stats[2r], stats[2r + 1] of row r, which starts at x + r*n.
  void (*stats)(void* stats, const void* x, std::int64_t rows, std::int64_t n, double eps);
  /// Computes out = unit * scale + shift, with arrays; `all`: with one number each. out may be x.
  void (*each)(void* out, const void* x, const void* stats, const void* scale, const void* shift,
               std::int64_t n);
  void (*all)(void* out, const void* x, const void* stats, const void* scale, const void* shift,
              std::int64_t n);
  /// Computes sums[2r], sums[2r + 1] = sum of g, sum of g * unit, through the 16 lanes, of row r, which
  /// starts at element r*n. Its statistics are pair (first + r) / share.
  void (*sums)(void* sums, const void* x, const NormSlopes& g, const void* stats, std::int64_t rows,
               std::int64_t n, std::int64_t first, std::int64_t share);
  /// Computes one row of out = ((g - sums[0] / n) - unit * (sums[1] / n)) * inverse deviation. out may be x
  /// or dy.
  void (*slope)(void* out, const void* x, const NormSlopes& g, const void* stats, const void* sums,
                std::int64_t n);
  /// Adds scale += dy * unit, shift += dy, with arrays, for one row after another: row r of x and dy starts
  /// at element r*row_stride, its statistics at number r*stats_stride.
  void (*accumulate)(void* scale, void* shift, const void* x, const void* dy, const void* stats,
                     std::int64_t rows, std::int64_t n, std::int64_t row_stride, std::int64_t stats_stride);
};

/// One product, or a sum of products, of float or double matrices.
///   chain_p(i, j) = fma-chain over k = 0..K-1, from +0, of A_p(i, k) * B_p(k, j)
///   (K > 4096: chains over constant blocks of 1024, the partial results added in ascending order)
/// A_p(i,k) = a[p][i*a_row + k*a_col], B_p(k,j) = b[p][k*b_row + j*b_col] with one of each pair of strides 1,
/// C(i,j) = c[i*c_row + j].
struct MatmulArgs {
  enum class Epilogue : int {
    kStore,      ///< C = chain_0                                  (terms == 1)
    kReduce,     ///< C = (chain_0 + chain_1 + ... ) / divisor      ascending, no division when divisor == 1
    kScaledAdd,  ///< C = alpha*C + beta*chain_0 (products rounded, then the sum)  (terms == 1)
    /// Computes C = (t_0 + t_1 + ...) / divisor, ascending, where t_p starts as start_p, which has the
    /// layout of C, and takes `steps` chains, each by its factors. A start may be C; one that the first
    /// chain overwrites may be null.
    kSteps,
  };
  std::int64_t m = 0, n = 0, k = 0;
  /// Operands, `terms` pointers each; for kSteps, `steps` per term, one term after another.
  const void* const* a = nullptr;
  const void* const* b = nullptr;
  std::int64_t a_row = 0, a_col = 0, b_row = 0, b_col = 0;
  void* c = nullptr;
  std::int64_t c_row = 0;
  std::int64_t terms = 1;
  Epilogue epilogue = Epilogue::kStore;
  double divisor = 1.0, alpha = 1.0, beta = 1.0;
  std::int64_t steps = 1;
  const void* const* start = nullptr;            ///< Starts of the terms, `terms` pointers.
  const AccumulationFactors* factors = nullptr;  ///< Factors of each chain, instead of alpha and beta.
};
/// Function that computes part `part` of `parts` (a fixed split that no result depends on). `scratch` is
/// 64-byte aligned and has at least matmul_scratch(args) bytes, one per thread.
using MatmulFn = void (*)(const MatmulArgs& args, int part, int parts, void* scratch);

/// A product of matrices of bytes, modulo 2^32:
///   C(i, j) = sum over k of (A(i, k) - a_zero) * (B(k, j) - b_zero[j])
/// A and B as in MatmulArgs, with any strides.
struct IntegerMatmulArgs {
  std::int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  std::int64_t a_row = 0, a_col = 0, b_row = 0, b_col = 0;
  bool a_signed = false, b_signed = false;
  std::int32_t a_zero = 0;
  const std::int32_t* b_zero = nullptr;  ///< Zero point of each column, or a single one.
  bool one_b_zero = true;
  std::int32_t* c = nullptr;
  std::int64_t c_row = 0;
};
/// Function with parts and scratch as for MatmulFn.
using IntegerMatmulFn = void (*)(const IntegerMatmulArgs& args, int part, int parts, void* scratch);

/// A product whose right operand is addressed step by step: a convolution over an image as it lies in memory.
///   chain(i, j) = fma-chain over k = 0..K-1, from +0, of A(i, k) * x[offset[k] + j]   (K > 4096: as above)
///   C(i, j) = chain(i, j), or C(i, j) + chain(i, j) when `add`
/// A is packed in ceil(m / conv_rows) tiles of rows: tile q holds rows [m*q/tiles, m*(q+1)/tiles) as
/// [k][row], from element first_row * K on; or, with a_row, it is as given: element (i, k) at i*a_row + k.
struct ConvArgs {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t first_tile = 0, last_tile = 0;  ///< Tiles to compute; last_tile is not one of them.
  const void* a = nullptr;                     ///< Packed A with all tiles, or A as given.
  std::int64_t a_row = 0;                      ///< Row stride of A as given; 0: A is packed.
  const void* x = nullptr;
  const std::int64_t* offset = nullptr;
  void* c = nullptr;  ///< Results; row 0 is the first row of first_tile.
  std::int64_t c_row = 0;
  bool add = false;
};
using ConvFn = void (*)(const ConvArgs& args);

/// One row of such a product, of at most 4096 steps, for positions in lines:
///   C(l, j) = fma-chain over k = 0..K-1, from +0, of a[k] * x[offset[k] + l*x_line + j]
struct ConvLinesArgs {
  std::int64_t k = 0, lines = 0, n = 0;
  const void* a = nullptr;
  const void* x = nullptr;
  const std::int64_t* offset = nullptr;
  std::int64_t x_line = 0, c_line = 0;
  void* c = nullptr;
};
using ConvLinesFn = void (*)(const ConvLinesArgs& args);

/// Lines begin .. end-1 of such a product of three by three steps over a dense plane of `lines` by n elements
/// with zeros around it, whose result is as large:
///   C(l, j) = fma-chain over y, z = 0..2, from +0, of a[3*y + z] * X(l + y - 1, j + z - 1)
struct ConvPlaneArgs {
  std::int64_t lines = 0, n = 0, begin = 0, end = 0;
  const void* a = nullptr;
  const void* x = nullptr;
  void* c = nullptr;  ///< Results; line 0 of the plane.
};
using ConvPlaneFn = void (*)(const ConvPlaneArgs& args);

/// Arguments for dense lines of `before` zeros, from[l*from_line + i*step] for i < n, and `after` zeros.
struct FillLinesArgs {
  void* to = nullptr;
  const void* from = nullptr;
  std::int64_t lines = 0, from_line = 0, step = 1;
  std::int64_t before = 0, n = 0, after = 0;
};
using FillLinesFn = void (*)(const FillLinesArgs& args);

/// Function that packs to[k*width + x] = from[k*from_k + x*from_x] for x < cols, 0 up to `width`.
using PackFn = void (*)(void* to, std::int64_t width, const void* from, std::int64_t from_k,
                        std::int64_t from_x, std::int64_t k, std::int64_t cols);

/// Dimensions of KernelTable::gather_strided, after adjacent ones are merged.
inline constexpr std::size_t kMaxGatherRank = 8;

/// Largest number of words that KernelTable::sort_few_words sorts.
inline constexpr std::int64_t kFewWords = 64;

struct KernelTable {
  const char* level;  ///< Name of the level: "v2", "v3", "v4" or "generic".

  const ElementwiseKernels* elementwise_kernels[kNumElementwiseOps];
  ElementwiseFn elementwise(ElementwiseOp op, Compute type) const {
    return elementwise_kernels[static_cast<int>(op)]->of[static_cast<int>(type)];
  }
  ElementwiseFn elementwise_bf16(ElementwiseOp op) const {
    return elementwise_kernels[static_cast<int>(op)]->bf16;
  }

  ReduceFn reduce[kNumReduces][kNumComputes];
  /// Reductions of rows of bfloat16, with floats as hi and lo; null except for kSum, kMax, kMin.
  ReduceFn reduce_bf16[kNumReduces];
  const ColumnKernels* columns_f32;
  const ColumnKernels* columns_f64;
  const ColumnKernels* columns_bf16;  ///< Column kernels of bfloat16; sums only.
  const SoftmaxKernels* softmax_f32;
  const SoftmaxKernels* softmax_f64;
  const SoftmaxKernels* softmax_bf16;
  const SoftmaxKernels* softmax_f16;
  NormKernels norm_f32;
  NormKernels norm_f64;

  // Narrow floats: formats of at most 16 bits.
  /// Converts n elements to floats, exactly.
  void (*widen)(FloatFormat format, float* out, const void* in, std::int64_t n);
  /// Rounds hi + lo (lo may be null: 0) once, to nearest even. If the format has no infinity, infinity and
  /// numbers that are too large become its NaN. Zero and NaN keep the sign of hi if the format has both
  /// signs of them. Stochastic: sr_apply with a residual.
  void (*narrow)(FloatFormat format, void* out, const float* hi, const float* lo, std::int64_t n);

  // Splits x = hi + lo with hi = nearest float; lo is exact or correct in sign and non-zeroness.
  void (*split_f64)(float* hi, float* lo, const double* in, std::int64_t n);
  void (*split_i64)(float* hi, float* lo, const std::int64_t* in, std::int64_t n);
  void (*split_u64)(float* hi, float* lo, const std::uint64_t* in, std::int64_t n);

  /// Conversions cast[from][to] between compute types. Float to integer truncates, saturates, NaN -> 0;
  /// integer to integer wraps; to bool: != 0; from bool: 0 or 1; float64 -> float32 and integer -> float
  /// round to nearest even.
  void (*cast[kNumComputes][kNumComputes])(void* out, const void* in, std::int64_t n);

  /// Sorts n different words, at most kFewWords of them.
  void (*sort_few_words)(std::uint64_t* words, std::int64_t n);

  // Noise itself: U of elements first .. first+n-1 (64 bits each), and one cipher call.
  void (*uniform_bits)(std::uint64_t* out, std::int64_t n, NoiseKey key, std::uint64_t first);
  NoiseKey (*ars7)(std::uint64_t counter_lo, std::uint64_t counter_hi, NoiseKey key);

  /// Computes kept[i] = U of element first + i >= threshold ? 1 : 0. Most elements are decided by the first
  /// word of U.
  void (*keep_mask)(std::uint8_t* kept, std::int64_t n, NoiseKey key, std::uint64_t first,
                    std::uint64_t threshold);
  /// Computes out[i] = kept[i] ? in[i] * scale : +0, with kept[i] 0 or 1. out may be in.
  void (*keep_scaled_f32)(float* out, const float* in, const std::uint8_t* kept, std::int64_t n, float scale);
  void (*keep_scaled_f64)(double* out, const double* in, const std::uint8_t* kept, std::int64_t n,
                          double scale);

  /// Copies a strided view to a contiguous row-major buffer. `rank` <= kMaxGatherRank, strides in elements,
  /// sizes 1, 2, 4, 8.
  void (*gather_strided)(void* out, const void* in, int rank, const std::int64_t* shape,
                         const std::int64_t* strides, int element_size);

  // Stochastic rounding of contiguous buffers, see round.h.
  void (*sr_apply)(const SrCall& call);
  /// Variant of sr_apply that never uses a fast kernel, with the same results: for tests.
  void (*sr_apply_tiles)(const SrCall& call);
  void (*sr_adamw)(const SrAdamw& step);
  void (*sr_reduce)(SrReduction& reduction);
  void (*sr_value_add)(const SrValueAdd& call);
  /// U of every pair; call.out is unused.
  void (*sr_value_bits)(std::uint64_t* out, const SrValueAdd& call);

  MatmulFn matmul_f32;
  MatmulFn matmul_f64;
  std::size_t (*matmul_scratch)(const MatmulArgs& args, int element_size);
  IntegerMatmulFn matmul_integer;
  std::size_t (*matmul_integer_scratch)(const IntegerMatmulArgs& args);

  ConvFn conv_f32;
  ConvFn conv_f64;
  ConvLinesFn conv_lines_f32;
  ConvLinesFn conv_lines_f64;
  ConvPlaneFn conv_plane_f32;
  ConvPlaneFn conv_plane_f64;
  FillLinesFn fill_lines_f32;
  FillLinesFn fill_lines_f64;
  PackFn pack_f32;
  PackFn pack_f64;
  std::int64_t conv_rows;  ///< Largest number of rows of a tile of ConvArgs.
};

}  // namespace popsr::kernels
