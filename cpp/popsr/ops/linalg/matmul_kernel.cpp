#include "popsr/ops/linalg/matmul_kernel.h"

#include <algorithm>
#include <array>
#include <optional>

#include "popsr/base/threads/thread_pool.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/exec/product_kernel.h"
#include "popsr/ops/linalg/matmul_shape.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/math/pow2scale.h"

namespace popsr {
namespace {

using kernels::Compute;
using kernels::KernelTable;
using kernels::MatmulArgs;

/// Elements of lhs and of the product that are widened at a time when rows are stacked: a usual L2. Each
/// piece of rows copies all of rhs into panels, so that it has kStackRows at least.
constexpr std::int64_t kStackElements = std::int64_t{1} << 18, kStackRows = 256;

struct Matmul {
  const KernelTable& table;
  MatmulGeometry g;
  std::array<DType, 2> in_dtypes;  ///< Dtypes of the operands, of one size.
  DType out_dtype;
  Compute compute;
  bool stochastic;
  bool scaled = false;  ///< True if input kMatmulScale scales the product.

  std::int64_t in_size() const { return static_cast<std::int64_t>(size_of(in_dtypes[0])); }
  std::int64_t out_size() const { return static_cast<std::int64_t>(size_of(out_dtype)); }
  std::size_t element_size() const { return size_of(compute); }
  /// No conversion on the way in or out.
  bool is_direct() const { return !is_narrow_float(in_dtypes[0]) && in_dtypes[0] == out_dtype; }

  MatmulArgs args(std::int64_t m, const void* const* a, const void* const* b, void* c) const {
    return {.m = m,
            .n = g.n,
            .k = g.k,
            .a = a,
            .b = b,
            .a_row = g.lhs.row,
            .a_col = g.lhs.column,
            .b_row = g.rhs.row,
            .b_col = g.rhs.column,
            .c = c,
            .c_row = g.out.row};
  }
  /// Arguments with operands and result as `Buffers` has them: dense, rows or columns contiguous as in
  /// memory.
  MatmulArgs converted_args(std::int64_t m, const void* const* a, const void* const* b, void* c) const {
    MatmulArgs converted = args(m, a, b, c);
    (g.lhs.column == 1 ? converted.a_row : converted.a_col) = g.lhs.column == 1 ? g.k : m;
    (g.rhs.column == 1 ? converted.b_row : converted.b_col) = g.rhs.column == 1 ? g.n : g.k;
    converted.c_row = g.n;
    return converted;
  }
  std::size_t scratch(const MatmulArgs& args) const {
    return whole_lines(table.matmul_scratch(args, static_cast<int>(element_size())));
  }
  void product(const MatmulArgs& args, int part, int parts, void* scratch) const {
    (compute == Compute::kF64 ? table.matmul_f64 : table.matmul_f32)(args, part, parts, scratch);
  }
  int parts(const MatmulArgs& args, int threads) const {
    const std::int64_t work = args.m * args.n * args.k * args.terms * args.steps;
    return static_cast<int>(threads_for(kProductWork, work, threads, threads));
  }
  /// One product on as many threads as it is worth; this one uses `own` as its scratch.
  void product(const MatmulArgs& args, ThreadPool& pool, void* own) const {
    const std::size_t bytes = scratch(args);
    const int count = parts(args, pool.threads());
    const PartScratch rooms(own);
    pool.run(count, [&](int part) { product(args, part, count, rooms.of_thread(bytes)); });
  }
};

/// One product after another, each on one thread, or each on all of them: whichever keeps the threads busy.
template <class OnOne, class OnAll>
void for_each_product(const Matmul& op, ThreadPool& pool, std::int64_t products, const OnOne& on_one,
                      const OnAll& on_all) {
  const std::int64_t work = op.g.m * op.g.n * std::max<std::int64_t>(op.g.k, 1);
  const bool alone = products >= 2 * pool.threads() || !worth_threads(kProductWork, work);
  if (!alone) {
    for (std::int64_t i = 0; i < products; ++i) on_all(i);
    return;
  }
  // Products are few and big: one for each thread is enough.
  const ThreadCost cost{.least = kProductWork.least};
  parallel_for(
      pool, products, 1, work * products,
      [&](std::int64_t from, std::int64_t to) {
        for (std::int64_t i = from; i < to; ++i) on_one(i);
      },
      cost);
}

/// Address of product i of a run (item i mod items of block i div items).
struct Place {
  const std::byte* a;
  const std::byte* b;
  std::byte* c;
  std::int64_t block, item;
};
Place place(const Matmul& op, const BlockRun& run, std::int64_t i) {
  const std::int64_t block = i / op.g.items;
  const std::int64_t item = i % op.g.items;
  const auto at = static_cast<std::size_t>(item);
  return {in_block(run, 0, block) + op.g.lhs.offsets[at] * op.in_size(),
          in_block(run, 1, block) + op.g.rhs.offsets[at] * op.in_size(),
          out_block(run, 0, block) + op.g.out.offsets[at] * op.out_size(), block, item};
}

/// Blocks are rows of one matrix: rhs is shared, and lhs and output are dense slabs.
bool stacks(const Matmul& op, const BlockRun& run) {
  if (!op.g.stacks()) return false;
  return run.blocks == 1 || (run.in_stride[1] == 0 && run.in_stride[0] == op.g.m * op.g.k * op.in_size() &&
                             run.out_stride[0] == op.g.m * op.g.n * op.out_size());
}

// float32 and float64: straight from and to memory

void run_direct(const Matmul& op, const BlockRun& run) {
  const auto one = [&](const Place& at, std::int64_t m, bool threads) {
    const void* a = at.a;
    const void* b = at.b;
    const MatmulArgs args = op.args(m, &a, &b, at.c);
    void* scratch = thread_scratch(op.scratch(args));
    threads ? op.product(args, run.pool, scratch) : op.product(args, 0, 1, scratch);
  };
  if (stacks(op, run)) return one(place(op, run, 0), run.blocks * op.g.m, true);
  for_each_product(
      op, run.pool, run.blocks * op.g.items, [&](std::int64_t i) { one(place(op, run, i), op.g.m, false); },
      [&](std::int64_t i) { one(place(op, run, i), op.g.m, true); });
}

// With conversions: operands are widened to the compute type, the product is narrowed once

/// Scratch of one thread: lhs, rhs and product in the compute type, then the scratch of the product itself.
struct Buffers {
  std::byte* a;
  std::byte* b;
  std::byte* c;
  void* own;
};
/// For products of `rows` rows and a last one of `tail` rows, which may take another path.
Buffers buffers(const Matmul& op, std::int64_t rows, std::int64_t tail) {
  const auto bytes = [&](std::int64_t elements) {
    return whole_lines(static_cast<std::size_t>(elements) * op.element_size());
  };
  const std::size_t a = bytes(rows * op.g.k);
  const std::size_t b = bytes(op.g.k * op.g.n);
  const std::size_t c = bytes(rows * op.g.n);
  const std::size_t own = std::max(op.scratch(op.converted_args(rows, nullptr, nullptr, nullptr)),
                                   op.scratch(op.converted_args(tail, nullptr, nullptr, nullptr)));
  auto* base = static_cast<std::byte*>(thread_scratch(a + b + c + own));
  return {base, base + a, base + a + b, base + a + b + c};
}

/// body(begin, n) on pieces of [0, total), on several threads when `pool` is given and it pays.
template <class Body>
void pieces(ThreadPool* pool, std::int64_t total, const Body& body) {
  if (pool == nullptr) return body(std::int64_t{0}, total);
  parallel_for(*pool, total, kTile, total,
               [&](std::int64_t from, std::int64_t to) { body(from, to - from); });
}

void widen(const Matmul& op, std::size_t operand, ThreadPool* pool, std::byte* to, const std::byte* from,
           std::int64_t elements) {
  const auto size = static_cast<std::int64_t>(op.element_size());
  pieces(pool, elements, [&](std::int64_t begin, std::int64_t n) {
    load_tile(op.table, op.in_dtypes[operand], op.compute, to + begin * size, from + begin * op.in_size(), n);
  });
}

/// Widens an operand's matrix, of contiguous rows or columns, to a dense one of the same orientation.
void widen_matrix(const Matmul& op, std::size_t operand, ThreadPool* pool, std::byte* to,
                  const std::byte* from, std::int64_t rows, std::int64_t columns) {
  const MatmulSide& side = operand == 0 ? op.g.lhs : op.g.rhs;
  const bool has_rows = side.column == 1;
  const std::int64_t lines = has_rows ? rows : columns, length = has_rows ? columns : rows;
  const std::int64_t distance = has_rows ? side.row : side.column;
  if (lines == 1 || distance == length) return widen(op, operand, pool, to, from, rows * columns);
  const auto size = static_cast<std::int64_t>(op.element_size());
  const auto some = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      widen(op, operand, nullptr, to + i * length * size, from + i * distance * op.in_size(), length);
    }
  };
  pool == nullptr ? some(0, lines) : parallel_for(*pool, lines, 1, lines * length, some);
}

/// Factor of the product of a block, exact in the compute type.
double scale_of(const Matmul& op, const BlockRun& run, std::int64_t block) {
  return op.scaled ? block_scale(Block(run, block), kMatmulScale) : 1.0;
}

/// Stores elements first, first + 1, ... of a block. Multiplies them by `scale` where they are.
void narrow(const Matmul& op, ThreadPool* pool, std::byte* to, std::byte* from, std::int64_t elements,
            const kernels::NoiseKey* key, std::int64_t first, double scale = 1.0) {
  const auto size = static_cast<std::int64_t>(op.element_size());
  const kernels::ElementwiseFn multiply = op.table.elementwise(kernels::ElementwiseOp::kScale, op.compute);
  pieces(pool, elements, [&](std::int64_t begin, std::int64_t n) {
    std::byte* const piece = from + begin * size;
    const void* const in = piece;
    if (scale != 1.0) multiply(piece, nullptr, &in, n, &scale);
    store_tile(op.table, op.compute, op.out_dtype, to + begin * op.out_size(), piece, nullptr, n, key,
               static_cast<std::uint64_t>(first + begin));
  });
}

void multiply(const Matmul& op, ThreadPool* pool, const Buffers& at, std::int64_t rows) {
  const void* a = at.a;
  const void* b = at.b;
  const MatmulArgs args = op.converted_args(rows, &a, &b, at.c);
  pool != nullptr ? op.product(args, *pool, at.own) : op.product(args, 0, 1, at.own);
}

/// All rows of all blocks against one rhs, some rows at a time; a piece of rows may span blocks.
void run_stacked(const Matmul& op, const BlockRun& run) {
  const std::int64_t total = run.blocks * op.g.m;
  const std::int64_t widest = std::max<std::int64_t>({op.g.k, op.g.n, 1});
  const std::int64_t step = std::clamp(kStackElements / widest, kStackRows, std::max(total, kStackRows));
  const Buffers at = buffers(op, std::min(step, total), total % step);
  widen_matrix(op, 1, &run.pool, at.b, place(op, run, 0).b, op.g.k, op.g.n);
  for (std::int64_t row = 0; row < total; row += step) {
    const std::int64_t rows = std::min(step, total - row);
    widen(op, 0, &run.pool, at.a, run.in[0] + row * op.g.k * op.in_size(), rows * op.g.k);
    multiply(op, &run.pool, at, rows);
    for (std::int64_t r = row; r < row + rows;) {
      const std::int64_t block = r / op.g.m;
      const std::int64_t end = std::min((block + 1) * op.g.m, row + rows);
      std::byte* to = run.out[0] + r * op.g.n * op.out_size();
      std::byte* from = at.c + (r - row) * op.g.n * static_cast<std::int64_t>(op.element_size());
      narrow(op, &run.pool, to, from, (end - r) * op.g.n, Block(run, block).key(op.stochastic),
             (r - block * op.g.m) * op.g.n, scale_of(op, run, block));
      r = end;
    }
  }
}

void convert_one(const Matmul& op, const BlockRun& run, ThreadPool* pool, std::int64_t i) {
  const Place from = place(op, run, i);
  const Buffers at = buffers(op, op.g.m, op.g.m);
  widen_matrix(op, 0, pool, at.a, from.a, op.g.m, op.g.k);
  widen_matrix(op, 1, pool, at.b, from.b, op.g.k, op.g.n);
  multiply(op, pool, at, op.g.m);
  const kernels::NoiseKey* const key = Block(run, from.block).key(op.stochastic);
  const double scale = scale_of(op, run, from.block);
  const std::int64_t elements = op.g.m * op.g.n;
  if (op.g.out.row == op.g.n) {
    return narrow(op, pool, from.c, at.c, elements, key, from.item * elements, scale);
  }
  const auto size = static_cast<std::int64_t>(op.element_size());
  for (std::int64_t row = 0; row < op.g.m; ++row) {
    narrow(op, nullptr, from.c + row * op.g.out.row * op.out_size(), at.c + row * op.g.n * size, op.g.n, key,
           from.item * elements + row * op.g.n, scale);
  }
}

void run_converted(const Matmul& op, const BlockRun& run) {
  if (stacks(op, run)) return run_stacked(op, run);
  for_each_product(
      op, run.pool, run.blocks * op.g.items, [&](std::int64_t i) { convert_one(op, run, nullptr, i); },
      [&](std::int64_t i) { convert_one(op, run, &run.pool, i); });
}

// Some rows of one block, for a consumer that takes them slice by slice

void run_rows(const Matmul& op, const RowsRun& run) {
  const std::int64_t rows = run.end - run.begin;
  const auto bytes = [&op](std::int64_t elements) {
    return whole_lines(static_cast<std::size_t>(elements) * op.element_size());
  };
  MatmulArgs args = op.converted_args(rows, nullptr, nullptr, nullptr);
  const std::size_t a = bytes(rows * op.g.k), b = bytes(op.g.k * op.g.n), c = bytes(rows * op.g.n);
  auto* base = static_cast<std::byte*>(thread_scratch(a + b + c + op.scratch(args)));
  widen_matrix(op, 0, nullptr, base, run.lhs + run.begin * op.g.lhs.row * op.in_size(), rows, op.g.k);
  widen(op, 1, nullptr, base + a, run.rhs, op.g.k * op.g.n);
  const void* lhs = base;
  const void* rhs = base + a;
  args.a = &lhs;
  args.b = &rhs;
  args.c = base + a + b;
  op.product(args, 0, 1, base + a + b + c);
  narrow(op, nullptr, run.out, base + a + b, rows * op.g.n, op.stochastic ? run.noise : nullptr,
         run.begin * op.g.n);
}

std::optional<MatmulGeometry> geometry_of(const EvalSpec& spec, bool transpose_lhs, bool transpose_rhs) {
  const StridedView out = spec.writes ? *spec.writes : dense_view(spec.outputs[0].shape);
  return matmul_geometry(spec.read(0), spec.read(1), out, transpose_lhs, transpose_rhs);
}

Matmul make_matmul(const EvalSpec& spec, bool transpose_lhs, bool transpose_rhs) {
  const TensorType& lhs = *spec.inputs[0];
  const TensorType& rhs = *spec.inputs[1];
  const DType out = spec.outputs[0].dtype;
  return {.table = spec.kernels,
          .g = *geometry_of(spec, transpose_lhs, transpose_rhs),
          .in_dtypes = {lhs.dtype, rhs.dtype},
          .out_dtype = out,
          .compute = compute_of(lhs.dtype),
          .stochastic = spec.stochastic && is_narrow_float(out)};
}
Matmul make_matmul(const EvalSpec& spec) {
  return make_matmul(spec, spec.op.get(kTransposeLhs), spec.op.get(kTransposeRhs));
}

}  // namespace

BlockKernel matmul_kernel(const EvalSpec& spec) {
  return [op = make_matmul(spec)](const BlockRun& run) {
    if (op.g.m * op.g.n * op.g.items * run.blocks == 0) return;
    op.is_direct() ? run_direct(op, run) : run_converted(op, run);
  };
}

bool matmul_supports_views(const EvalSpec& spec) {
  return geometry_of(spec, spec.op.get(kTransposeLhs), spec.op.get(kTransposeRhs)).has_value();
}

BlockKernel matmul_pow2scaled_kernel(const EvalSpec& spec) {
  Matmul op = make_matmul(spec, false, false);
  op.scaled = true;
  return with_checked_scale(spec, kMatmulScale, [op = std::move(op)](const BlockRun& run) {
    if (op.g.m * op.g.n * op.g.items * run.blocks > 0) run_converted(op, run);
  });
}

RowsKernel matmul_rows(const EvalSpec& spec) {
  Matmul op = make_matmul(spec);
  const Shape& shape = spec.outputs[0].shape;
  const bool is_column = !shape.empty() && shape.back() != op.g.n;  // matrix times vector
  if (op.g.items != 1 || is_column) return nullptr;
  return [op = std::move(op)](const RowsRun& run) {
    if (run.end > run.begin && op.g.n > 0) run_rows(op, run);
  };
}

ProductKernel matmul_product(const EvalSpec& spec) {
  Matmul op = make_matmul(spec);
  if (!op.is_direct() || op.g.items != 1) return nullptr;
  return [op = std::move(op)](const ProductRun& run) {
    if (op.g.m * op.g.n == 0) return;
    MatmulArgs args = op.args(op.g.m, run.lhs, run.rhs, run.out);
    args.terms = run.terms;
    args.divisor = run.divisor;
    if (run.start != nullptr) {
      args.epilogue = MatmulArgs::Epilogue::kSteps;
      args.steps = run.steps;
      args.start = run.start;
      args.factors = run.factors;
    } else if (run.factors != nullptr && !run.factors->overwrites) {
      args.epilogue = MatmulArgs::Epilogue::kScaledAdd;
      args.alpha = run.factors->alpha;
      args.beta = run.factors->beta;
    } else {
      const bool is_alone = run.terms == 1 && run.divisor == 1.0;  // a group of one: no sum
      args.epilogue = is_alone ? MatmulArgs::Epilogue::kStore : MatmulArgs::Epilogue::kReduce;
    }
    op.product(args, run.pool, thread_scratch(op.scratch(args)));
  };
}

}  // namespace popsr
