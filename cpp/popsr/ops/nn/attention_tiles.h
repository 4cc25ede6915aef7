// Attention for some queries at a time: extents, the mask, products, weights and gradients of scores.
//
// Only the scores of kQueries queries are in memory, in the compute type of the operands: results are rounded
// once. The gradients of keys and values are sums over queries in blocks of kQueries: the block is part of
// the numeric contract.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>

#include "popsr/base/dtype.h"
#include "popsr/base/layout/shape.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ir/attribute.h"
#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"

namespace popsr {

inline constexpr Attr<bool> kIsCausal{"is_causal"};
inline constexpr Attr<double> kScoreScale{"scale"};

namespace attention {

using kernels::ElementwiseOp;
using kernels::KernelTable;
using kernels::MatmulArgs;

inline constexpr std::size_t kQ = 0, kK = 1, kV = 2, kMask = 3;  ///< Indices of the inputs of attention.
inline constexpr std::size_t kDy = 3, kGradMask = 4;             ///< Indices of the inputs of attention_grad.
inline constexpr std::int64_t kQueries = 64;
/// Largest number of keys in one chain; chains over more keys are cut into blocks, and none are left out.
inline constexpr std::int64_t kWholeChain = 4096;
/// Rows per chunk of a transposed operand: chunks are adjacent in memory, so that products need not copy
/// them again.
inline constexpr std::int64_t kChunk = 128;
/// Columns of a product with scores that are computed at a time: so few that the product does not copy the
/// scores.
inline constexpr std::int64_t kColumns = 32;

/// Extents of a head, and the number of heads.
struct AttentionShape {
  std::int64_t items, queries, keys, size, value_size;

  AttentionShape(const Shape& q, const Shape& k, const Shape& v)
      : items(num_elements(Shape(q.begin(), q.end() - 2))),
        queries(q[q.size() - 2]),
        keys(k[k.size() - 2]),
        size(q.back()),
        value_size(v.back()) {}
  std::int64_t tiles() const { return (queries + kQueries - 1) / kQueries; }
};

/// Addressing of a mask that is broadcast to the scores: offsets of its elements for a query of an item.
class MaskPlace {
 public:
  MaskPlace(const Shape& mask, const Shape& scores) : strides_(scores.size(), 0), extents_(scores) {
    const Shape dense = row_major_strides(mask);
    const std::size_t missing = scores.size() - mask.size();
    for (std::size_t d = 0; d < mask.size(); ++d) {
      if (mask[d] != 1) strides_[missing + d] = dense[d];
    }
  }
  std::int64_t offset(std::int64_t item, std::int64_t query) const {
    std::int64_t at = query * strides_[strides_.size() - 2];
    for (std::size_t d = strides_.size() - 2; d-- > 0; item /= extents_[d]) {
      at += item % extents_[d] * strides_[d];
    }
    return at;
  }
  bool is_one_element() const { return strides_.back() == 0; }

 private:
  Shape strides_, extents_;
};

/// Bytes of an array of T, in whole cache lines.
template <class T>
std::size_t line_bytes(std::int64_t elements) {
  return whole_lines(static_cast<std::size_t>(elements) * sizeof(T));
}
/// Places arrays of T in the calling thread's scratch memory, and after them `bytes` for products.
template <class T>
void share_scratch(std::initializer_list<std::pair<T**, std::int64_t>> arrays, T** products,
                   std::size_t bytes) {
  std::size_t all = bytes;
  for (const auto& [to, elements] : arrays) all += line_bytes<T>(elements);
  auto* at = static_cast<std::byte*>(thread_scratch(all));
  for (const auto& [to, elements] : arrays) {
    *to = reinterpret_cast<T*>(at);
    at += line_bytes<T>(elements);
  }
  *products = reinterpret_cast<T*>(at);
}

/// Constants of a plan, for T the compute type.
template <class T>
class Attention : public AttentionShape {
 public:
  Attention(const EvalSpec& spec, std::size_t mask)
      : AttentionShape(spec.inputs[kQ]->shape, spec.inputs[kK]->shape, spec.inputs[kV]->shape),
        kernels_(spec.kernels),
        dtype_(spec.inputs[kQ]->dtype),
        scale_(spec.op.get(kScoreScale)),
        is_causal_(spec.op.get(kIsCausal)),
        stochastic_(spec.stochastic && is_narrow_float(dtype_)),
        row_(line_elements(keys) + line_elements(1)),
        mask_(mask) {
    if (spec.inputs.size() > mask && spec.inputs[mask]) {
      Shape scores = spec.inputs[kQ]->shape;
      scores.back() = keys;
      place_.emplace(spec.inputs[mask]->shape, scores);
      mask_dtype_ = spec.inputs[mask]->dtype;
    }
    for (std::int64_t tile = 0; tile < tiles(); ++tile) reserve(rows(tile), seen_in(tile));
  }

  std::int64_t rows(std::int64_t tile) const { return std::min(kQueries, queries - tile * kQueries); }
  /// Number of keys that the queries of a tile may attend to: weights of later keys are 0.
  std::int64_t seen_in(std::int64_t tile) const {
    return is_causal_ && keys <= kWholeChain ? std::min(keys, tile * kQueries + rows(tile)) : keys;
  }
  /// Elements from a row of scores to the next; rows that are 2^n bytes apart would share few cache sets.
  std::int64_t row() const { return row_; }
  std::int64_t element_size() const { return static_cast<std::int64_t>(size_of(dtype_)); }
  std::size_t product_bytes() const { return product_bytes_; }
  /// Elements of workspace for widened operands: none unless they are narrow.
  std::int64_t widened_elements(std::int64_t n) const { return is_narrow_float(dtype_) ? n : 0; }

  /// Elements of an operand as T: in place if possible, otherwise in `room`.
  const T* widened(const Block& block, std::size_t input, std::int64_t first, std::int64_t n, T* room) const {
    return popsr::widened(kernels_, dtype_, block.in(input) + first * element_size(), n, room);
  }
  /// Loads n queries multiplied by `scale`.
  void scaled_queries(const Block& block, std::int64_t first, std::int64_t n, T* to) const {
    const T* const from = widened(block, kQ, first * size, n * size, to);
    apply(ElementwiseOp::kScale, to, {from}, n * size, &scale_);
  }
  void scale(T* x, std::int64_t n) const { apply(ElementwiseOp::kScale, x, {x}, n, &scale_); }
  /// Stores elements first, first + 1, ... of an output.
  void store(const Block& block, std::size_t output, std::int64_t first, const T* from,
             std::int64_t n) const {
    store_tile(kernels_, kComputeOf<T>, dtype_, block.out(output) + first * element_size(), from, nullptr, n,
               block.key(stochastic_, output), static_cast<std::uint64_t>(first));
  }

  /// Transposes keys or values of an item into chunks of columns, `width` x kChunk each. `room` is
  /// workspace for a widened chunk.
  void transpose(const Block& block, std::size_t input, std::int64_t item, std::int64_t width, T* room,
                 T* to) const {
    const auto pack = kComputeOf<T> == kernels::Compute::kF64 ? kernels_.pack_f64 : kernels_.pack_f32;
    for (std::int64_t key = 0; key < keys; key += kChunk) {
      const std::int64_t n = std::min(kChunk, keys - key);
      const T* const from = widened(block, input, (item * keys + key) * width, n * width, room);
      pack(to + key * width, kChunk, from, 1, width, width, n);
    }
  }
  std::int64_t transposed_elements(std::int64_t width) const {
    return (keys + kChunk - 1) / kChunk * kChunk * width;
  }

  /// Computes rows of scores = rows of a times transposed keys or values.
  void by_keys(std::int64_t n, std::int64_t seen, std::int64_t width, const T* a, const T* chunks, T* to,
               T* products) const {
    for (std::int64_t key = 0; key < seen; key += kChunk) {
      multiply(by_keys_args(n, std::min(kChunk, seen - key), width), a, chunks + key * width, to + key,
               products);
    }
  }
  /// Computes n rows = rows of scores times keys or values.
  void over_keys(std::int64_t n, std::int64_t seen, std::int64_t width, const T* scores, const T* b, T* to,
                 T* products) const {
    in_columns(over_keys_args(n, seen, width), scores, b, to, products);
  }
  /// Adds to rows of keys or values transposed scores times n rows; the product is rounded first.
  void over_queries(std::int64_t n, std::int64_t seen, std::int64_t width, const T* scores, const T* b, T* to,
                    T* products) const {
    in_columns(over_queries_args(n, seen, width), scores, b, to, products);
  }

  /// Computes the weights of the queries of a tile: softmax of their scores. `q` is scaled, `line` is
  /// workspace for a row.
  void weights(const Block& block, std::int64_t item, std::int64_t tile, const T* q, const T* chunks, T* to,
               T* line, T* products) const {
    const std::int64_t n = rows(tile), seen = seen_in(tile);
    by_keys(n, seen, size, q, chunks, to, products);
    for (std::int64_t r = 0; r < n; ++r) {
      const std::int64_t query = tile * kQueries + r, own = is_causal_ ? std::min(keys, query + 1) : keys;
      T* const scores = to + r * row_;
      if (place_) {
        load_mask(block.in(mask_), place_->offset(item, query), own, line);
        apply(ElementwiseOp::kAdd, scores, {scores, line}, own);
      }
      softmax(scores, own);
      std::fill(scores + own, scores + seen, T{0});
    }
  }

  /// Computes the gradient of scores from the gradient of weights, by rows: to = weights * (to -
  /// sum(weights * to)).
  void score_gradients(std::int64_t n, std::int64_t seen, const T* weights, T* to, T* line) const {
    for (std::int64_t r = 0; r < n; ++r) {
      const T* const p = weights + r * row_;
      T* const d = to + r * row_;
      apply(ElementwiseOp::kMul, line, {p, d}, seen);
      T sum{0};
      kernels_.reduce[static_cast<std::size_t>(kernels::Reduce::kSum)]
                     [static_cast<std::size_t>(kComputeOf<T>)](&sum, nullptr, line, 1, seen, seen);
      std::fill(line, line + seen, sum);
      apply(ElementwiseOp::kSub, d, {d, line}, seen);
      apply(ElementwiseOp::kMul, d, {p, d}, seen);
    }
  }

 private:
  static std::int64_t line_elements(std::int64_t n) {
    return static_cast<std::int64_t>(line_bytes<T>(n) / sizeof(T));
  }
  MatmulArgs by_keys_args(std::int64_t n, std::int64_t columns, std::int64_t width) const {
    return {.m = n,
            .n = columns,
            .k = width,
            .a_row = width,
            .a_col = 1,
            .b_row = kChunk,
            .b_col = 1,
            .c_row = row_};
  }
  MatmulArgs over_keys_args(std::int64_t n, std::int64_t seen, std::int64_t width) const {
    return {
        .m = n, .n = width, .k = seen, .a_row = row_, .a_col = 1, .b_row = width, .b_col = 1, .c_row = width};
  }
  MatmulArgs over_queries_args(std::int64_t n, std::int64_t seen, std::int64_t width) const {
    return {.m = seen,
            .n = width,
            .k = n,
            .a_row = 1,
            .a_col = row_,
            .b_row = width,
            .b_col = 1,
            .c_row = width,
            .epilogue = MatmulArgs::Epilogue::kScaledAdd};
  }
  /// Runs a product with scores, kColumns columns at a time.
  void in_columns(MatmulArgs args, const T* scores, const T* b, T* to, T* products) const {
    for (std::int64_t x = 0, width = args.n; x < width; x += kColumns) {
      args.n = std::min(kColumns, width - x);
      multiply(args, scores, b + x, to + x, products);
    }
  }
  /// Reserves scratch for all products of n queries.
  void reserve(std::int64_t n, std::int64_t seen) {
    for (const std::int64_t width : {size, value_size}) {
      for (MatmulArgs args : {over_keys_args(n, seen, width), over_queries_args(n, seen, width)}) {
        for (const std::int64_t columns : {std::min(kColumns, width), width % kColumns}) {
          args.n = columns;
          reserve(args);
        }
      }
      for (const std::int64_t columns : {std::min(kChunk, seen), seen % kChunk}) {
        reserve(by_keys_args(n, columns, width));
      }
    }
  }
  void reserve(const MatmulArgs& args) {
    product_bytes_ = std::max(product_bytes_, kernels_.matmul_scratch(args, sizeof(T)));
  }
  void multiply(MatmulArgs args, const void* a, const void* b, T* c, T* products) const {
    args.a = &a;
    args.b = &b;
    args.c = c;
    (kComputeOf<T> == kernels::Compute::kF64 ? kernels_.matmul_f64 : kernels_.matmul_f32)(args, 0, 1,
                                                                                          products);
  }
  void apply(ElementwiseOp op, T* to, std::array<const T*, 2> in, std::int64_t n,
             const double* parameters = nullptr) const {
    const std::array<const void*, 2> operands = {in[0], in[1]};
    kernels_.elementwise(op, kComputeOf<T>)(to, nullptr, operands.data(), n, parameters);
  }
  /// Softmax of a row in place; zeros if every score is -inf.
  void softmax(T* x, std::int64_t n) const {
    constexpr T kHidden = -std::numeric_limits<T>::infinity();
    if (std::all_of(x, x + n, [](T each) { return each == kHidden; })) {
      std::fill(x, x + n, T{0});
      return;
    }
    (kComputeOf<T> == kernels::Compute::kF64 ? kernels_.softmax_f64 : kernels_.softmax_f32)
        ->softmax(x, nullptr, x, 1, n, nullptr);
  }
  /// Loads the summands of the scores of a query: the mask's numbers, or -inf where it is false.
  void load_mask(const std::byte* mask, std::int64_t offset, std::int64_t n, T* line) const {
    const std::int64_t given = place_->is_one_element() ? std::min<std::int64_t>(n, 1) : n;
    if (mask_dtype_ == DType::kBool) {
      std::transform(mask + offset, mask + offset + given, line, [](std::byte seen) {
        return seen == std::byte{0} ? -std::numeric_limits<T>::infinity() : T{0};
      });
    } else {
      load_tile(kernels_, dtype_, kComputeOf<T>, line, mask + offset * element_size(), given);
    }
    if (given < n) std::fill(line, line + n, line[0]);
  }

  const KernelTable& kernels_;
  DType dtype_, mask_dtype_ = DType::kBool;
  double scale_;
  bool is_causal_, stochastic_;
  std::int64_t row_;
  std::size_t mask_;
  std::optional<MaskPlace> place_ = {};
  std::size_t product_bytes_ = 0;
};

}  // namespace attention
}  // namespace popsr
