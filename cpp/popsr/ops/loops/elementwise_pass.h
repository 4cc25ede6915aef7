// One pass of an elementwise op over a range of its output: operands are loaded, computed with and stored.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "popsr/base/layout/loop_nest.h"
#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/ops/loops/elementwise_walk.h"

namespace popsr {

struct ElementwiseOperand {
  std::size_t input = 0;
  DType dtype = DType::kFloat32;
  std::int64_t size = 4;  ///< Bytes of an element.
  bool direct = false;    ///< True if the operand has the compute type, so that it needs no conversion.
  bool truth = false;     ///< True if the operand is loaded as 0 or 1.
};

struct ElementwiseForm {
  bool stochastic = false;
  bool needs_lo = false;
  bool long_ranges = true;  ///< True if no tiles are needed except for elements that rows repeat.
  /// True if the result is the operand converted to the output's type, which is the compute type.
  bool converts = false;
};

/// Compiled form of an op for its passes, made with the plan.
struct ElementwiseLoop {
  const kernels::KernelTable& kernels;
  kernels::ElementwiseFn loop = nullptr;
  /// Kernel for the case that operand 1 is one number; may be null.
  kernels::ElementwiseFn number_loop = nullptr;
  /// Body of the op; if there is neither body nor kernel, the operand itself is stored.
  TileFn body = nullptr;
  kernels::Compute compute = {};
  DType out_dtype = DType::kFloat32;
  ElementwiseForm form = {};
  std::vector<ElementwiseOperand> operands = {};
};

/// Pass over a range of the output for one set of base pointers; owns the tiles of one thread.
class ElementwisePass {
 public:
  ElementwisePass(const ElementwiseLoop& loop, void* scratch, std::uint64_t first)
      : loop_(loop), tiles_(static_cast<std::byte*>(scratch)), first_(first) {}

  static std::size_t scratch_bytes(const ElementwiseLoop& loop);

  void run(const LoopNest& nest, const std::byte* const* in, std::byte* out, std::int64_t begin,
           std::int64_t end, const double* p, const kernels::NoiseKey* key);

 private:
  void* tile(std::size_t j);
  std::size_t count() const { return loop_.operands.size(); }
  void rows(const LoopNest& nest, const std::byte* const* in, std::int64_t begin, std::int64_t end);
  void direct_rows(const LoopNest& nest, const std::byte* const* in, std::int64_t begin, std::int64_t end);
  void some_rows(const LoopNest& nest, const std::byte* const* in, const NestPosition& at, std::int64_t begin,
                 std::int64_t rows, std::int64_t n, kernels::ElementwiseFn loop);
  void repeated_pieces(const LoopNest& nest, const std::byte* const* in, const NestPosition& at,
                       std::int64_t begin, std::int64_t n);
  void converted_rows(const LoopNest& nest, const std::byte* in, std::int64_t begin, std::int64_t end);
  void repeat(std::size_t j, const std::byte* src, std::int64_t n);
  void gathered(const LoopNest& nest, const std::byte* const* in, std::int64_t begin, std::int64_t end);
  void gather(std::size_t j, const LoopNest& nest, const std::byte* base, const NestPosition& start,
              std::int64_t n);
  void broadcast(std::size_t j, const std::byte* src, std::int64_t row);
  void load(std::size_t j, const std::byte* src, std::int64_t n);
  void convert(std::size_t j, void* dst, const std::byte* src, std::int64_t n) const;
  void compute(std::int64_t begin, std::int64_t n);

  const ElementwiseLoop& loop_;
  std::byte* tiles_;
  std::uint64_t first_;  ///< Noise index of element 0.
  std::byte* out_ = nullptr;
  const double* p_ = nullptr;
  const kernels::NoiseKey* key_ = nullptr;
  std::array<const void*, kMaxOperands> args_ = {};
  /// Source of the repeated elements in each operand's tile.
  std::array<const std::byte*, kMaxOperands> filled_ = {};
  /// Number of repeated elements in each operand's tile.
  std::array<std::int64_t, kMaxOperands> filled_size_ = {};
};

}  // namespace popsr
