// One pass of an elementwise op over a range of its output: how operands come to the kernel and the result to
// memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "popsr/base/loop_nest.h"
#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/ops/loops/elementwise_walk.h"

namespace popsr {

struct ElementwiseOperand {
  std::size_t input = 0;
  DType dtype = DType::kFloat32;
  std::int64_t size = 4;  ///< Bytes of an element.
  bool direct = false;    ///< Of the compute type: no conversion.
  bool truth = false;     ///< Loaded as 0 or 1.
};

struct ElementwiseForm {
  bool stochastic = false;
  bool needs_lo = false;
  bool long_ranges = true;  ///< No tiles are needed except for elements that rows repeat.
  bool converts = false;    ///< The result is the operand as the output's type, which is the compute type.
};

/// An op as its passes need it, known when the plan is compiled.
struct ElementwiseLoop {
  const kernels::KernelTable& kernels;
  kernels::ElementwiseFn loop = nullptr;
  kernels::ElementwiseFn number_loop = nullptr;  ///< The same where operand 1 is one number; may be null.
  TileFn body = nullptr;                         ///< Neither: the operand itself is stored.
  kernels::Compute compute = {};
  DType out_dtype = DType::kFloat32;
  ElementwiseForm form = {};
  std::vector<ElementwiseOperand> operands = {};
};

/// Runs a range of the output for one set of base pointers; owns the tiles of one thread.
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
  std::array<const std::byte*, kMaxOperands> filled_ = {};   ///< What repeats in an operand's tile,
  std::array<std::int64_t, kMaxOperands> filled_size_ = {};  ///< and how many elements of it are there.
};

}  // namespace popsr
