#include "popsr/ops/linalg/matmul_integer.h"

#include <optional>
#include <utility>
#include <vector>

#include "popsr/base/threads/thread_pool.h"
#include "popsr/ops/linalg/matmul_shape.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"

namespace popsr {
namespace {

using kernels::IntegerMatmulArgs;

struct IntegerMatmul {
  const kernels::KernelTable& table;
  MatmulGeometry g;
  DType lhs_dtype, rhs_dtype;
  bool has_lhs_zero, has_rhs_zero;
  std::int64_t rhs_zeros;  ///< Their number.

  static bool is_signed(DType dtype) { return dtype == DType::kInt8; }
  static std::int32_t number(DType dtype, std::byte byte) {
    const auto bits = std::to_integer<std::uint8_t>(byte);
    return is_signed(dtype) ? static_cast<std::int8_t>(bits) : bits;
  }

  std::vector<std::int32_t> zeros(const Block& block) const {
    std::vector<std::int32_t> made(static_cast<std::size_t>(rhs_zeros));
    const std::byte* const from = has_rhs_zero ? block.in(kRhsZero) : nullptr;
    for (std::size_t i = 0; from != nullptr && i < made.size(); ++i) made[i] = number(rhs_dtype, from[i]);
    return made;
  }

  IntegerMatmulArgs args(const Block& block, std::size_t item, const std::vector<std::int32_t>& zeros) const {
    return {.m = g.m,
            .n = g.n,
            .k = g.k,
            .a = block.in(0) + g.lhs.offsets[item],
            .b = block.in(1) + g.rhs.offsets[item],
            .a_row = g.lhs.row,
            .a_col = g.lhs.column,
            .b_row = g.rhs.row,
            .b_col = g.rhs.column,
            .a_signed = is_signed(lhs_dtype),
            .b_signed = is_signed(rhs_dtype),
            .a_zero = has_lhs_zero ? number(lhs_dtype, *block.in(kLhsZero)) : 0,
            .b_zero = zeros.data(),
            .one_b_zero = rhs_zeros == 1,
            .c = reinterpret_cast<std::int32_t*>(block.out()) + g.out.offsets[item],
            .c_row = g.out.row};
  }

  /// Products are multiplied much faster than those of floats, so that fewer threads pay.
  static constexpr std::int64_t kFaster = 8;

  void run(const IntegerMatmulArgs& args, ThreadPool& pool) const {
    const std::size_t bytes = whole_lines(table.matmul_integer_scratch(args));
    const std::int64_t work = args.m * args.n * args.k / kFaster;
    const auto parts = static_cast<int>(threads_for(kProductWork, work, pool.threads(), pool.threads()));
    const PartScratch rooms(thread_scratch(bytes));
    pool.run(parts, [&](int part) { table.matmul_integer(args, part, parts, rooms.of_thread(bytes)); });
  }
};

std::optional<MatmulGeometry> geometry_of(const EvalSpec& spec) {
  const StridedView out = spec.writes ? *spec.writes : dense_view(spec.outputs[0].shape);
  return matmul_geometry(spec.read(0), spec.read(1), out, false, false);
}

}  // namespace

bool matmul_integer_supports_views(const EvalSpec& spec) {
  for (const std::size_t zero : {kLhsZero, kRhsZero}) {
    if (zero < spec.reads.size() && spec.reads[zero]) return false;
  }
  return geometry_of(spec).has_value();
}

BlockKernel matmul_integer_kernel(const EvalSpec& spec) {
  const auto has = [&spec](std::size_t i) { return i < spec.inputs.size() && spec.inputs[i].has_value(); };
  IntegerMatmul op{
      .table = spec.kernels,
      .g = *matmul_geometry(spec.read(0), spec.read(1), dense_view(spec.outputs[0].shape), false, false),
      .lhs_dtype = spec.inputs[0]->dtype,
      .rhs_dtype = spec.inputs[1]->dtype,
      .has_lhs_zero = has(kLhsZero),
      .has_rhs_zero = has(kRhsZero),
      .rhs_zeros = has(kRhsZero) ? num_elements(spec.inputs[kRhsZero]->shape) : 1};
  return per_block([op = std::move(op)](const Block& block) {
    if (op.g.m * op.g.n * op.g.items == 0) return;
    const std::vector<std::int32_t> zeros = op.zeros(block);
    for (std::size_t item = 0; item < static_cast<std::size_t>(op.g.items); ++item) {
      op.run(op.args(block, item, zeros), block.run().pool);
    }
  });
}

}  // namespace popsr
