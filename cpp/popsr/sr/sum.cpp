#include "popsr/sr/sum.h"

#include <algorithm>

#include "popsr/base/cost.h"
#include "popsr/base/layout/loop_nest.h"
#include "popsr/base/threads/thread_pool.h"
#include "popsr/kernels/loader.h"

namespace popsr::kernels {
namespace {

constexpr std::int64_t kMaxItem = 8;

/// One sum: which axes go, and whether the innermost run of x is a run of outputs or of steps of one output.
class Sum {
 public:
  Sum(const SrRounding& rounding, const SrShape& shape, const SrArray& out, const SrArray& x,
      const std::vector<std::size_t>& axes)
      : rounding_(rounding), out_(out), x_(x), nest_(shape, {&x.strides, 1}), n_(nest_.count()) {
    SrShape out_shape;
    std::int64_t step = 1;
    bool inner = true;
    for (std::size_t axis = shape.size(); axis-- > 0; step *= shape[axis]) {
      const bool goes = std::find(axes.begin(), axes.end(), axis) != axes.end();
      if (!goes) out_shape.insert(out_shape.begin(), shape[axis]);
      if (shape[axis] == 1) continue;
      if (inner && run_ > 1) inner = goes == steps_inside_;
      if (inner) {
        steps_inside_ = goes;
        run_ *= shape[axis];
      } else {
        (goes ? reduced_ : kept_).add_outer(shape[axis], step);
      }
    }
    out_nest_ = LoopNest(out_shape, {&out.strides, 1});
  }

  void run(int threads) const {
    const std::int64_t outputs = out_nest_.count();
    if (outputs == 0) return;
    if (n_ == 0) return clear(outputs);
    // One unit: a tile of neighbouring outputs, or eight chains.
    const std::int64_t per_row = (run_ + kRoundingSumTile - 1) / kRoundingSumTile;
    const std::int64_t units =
        steps_inside_ ? (outputs + SrReduction::kLanes - 1) / SrReduction::kLanes : kept_.count() * per_row;
    const int parts = static_cast<int>(std::min<std::int64_t>(units, parts_for(n_, threads)));
    const auto body = [&](int part) {
      for (std::int64_t unit = units * part / parts; unit < units * (part + 1) / parts; ++unit) {
        if (steps_inside_) {
          sum_chains(unit * SrReduction::kLanes, outputs);
        } else {
          sum_tile(unit / per_row, unit % per_row * kRoundingSumTile);
        }
      }
    };
    using Body = decltype(body);
    run_parts(
        parts, [](const void* context, int part) { (*static_cast<const Body*>(context))(part); }, &body);
  }

 private:
  /// Elements begin .. begin + n - 1 of x.
  const std::byte* read(std::byte* buffer, std::int64_t begin, std::int64_t n) const {
    const std::int64_t size = size_of(x_.format);
    if (nest_.contiguous(0, size)) return x_.data + begin * size;
    copy_range(nest_, buffer, kContiguous, x_.data, 0, size, begin, n);
    return buffer;
  }
  void write(const std::byte* values, std::int64_t begin, std::int64_t n) const {
    copy_range(out_nest_, out_.data, 0, values, kContiguous, size_of(out_.format), begin, n);
  }
  void clear(std::int64_t outputs) const {
    const std::byte zero[kMaxItem] = {};
    for (std::int64_t i = 0; i < outputs; ++i) write(zero, i, 1);
  }

  /// Outputs start .. start + kRoundingSumTile - 1 of one run of outputs, all their steps.
  void sum_tile(std::int64_t row, std::int64_t start) const {
    const std::int64_t n = std::min(kRoundingSumTile, run_ - start);
    auto* sums = static_cast<std::byte*>(thread_scratch(2 * kRoundingSumTile * kMaxItem));
    SrCall call;
    call.rounding = rounding_;
    call.n = n;
    call.out = sums;
    const std::int64_t steps = reduced_.count();
    for (std::int64_t step = 0; step < steps; ++step) {
      const std::int64_t begin = kept_.offset(row) + reduced_.offset(step) + start;
      const std::byte* x = read(sums + kRoundingSumTile * kMaxItem, begin, n);
      call.op = step == 0 ? SrOp::kCast : SrOp::kAdd;
      call.in[0] = step == 0 ? x : sums;
      call.in[1] = step == 0 ? nullptr : x;
      call.formats[0] = step == 0 ? x_.format : out_.format;
      call.formats[1] = x_.format;
      call.rounding.first = rounding_.first + static_cast<std::uint64_t>(begin);
      kernel_table().sr_apply(call);
    }
    write(sums, row * run_ + start, n);
  }

  /// Up to eight outputs from `output` on, each a chain of runs.
  void sum_chains(std::int64_t output, std::int64_t outputs) const {
    SrReduction reduction;
    reduction.rounding = rounding_;
    reduction.format = x_.format;
    reduction.lanes = static_cast<int>(std::min<std::int64_t>(SrReduction::kLanes, outputs - output));
    auto* rows = static_cast<std::byte*>(thread_scratch(SrReduction::kLanes * kRoundingSumTile * kMaxItem));
    std::fill(std::begin(reduction.sums), std::end(reduction.sums), -0.0);
    const std::int64_t rows_of_steps = reduced_.count();
    for (std::int64_t row = 0; row < rows_of_steps; ++row) {
      for (std::int64_t done = 0; done < run_; done += kRoundingSumTile) {
        reduction.n = std::min(kRoundingSumTile, run_ - done);
        for (int lane = 0; lane < reduction.lanes; ++lane) {
          const std::int64_t begin = kept_.offset(output + lane) + reduced_.offset(row) + done;
          reduction.x[lane] = read(rows + lane * kRoundingSumTile * kMaxItem, begin, reduction.n);
          reduction.first[lane] = rounding_.first + static_cast<std::uint64_t>(begin);
        }
        kernel_table().sr_reduce(reduction);
      }
    }
    for (int lane = 0; lane < reduction.lanes; ++lane) {
      write(reinterpret_cast<const std::byte*>(&reduction.codes[lane]), output + lane, 1);
    }
  }

  const SrRounding& rounding_;
  const SrArray& out_;
  const SrArray& x_;
  LoopNest nest_;  ///< Nest of x, in bytes; out_nest_ is the nest of out.
  LoopNest out_nest_{1};
  std::int64_t n_;       ///< Elements of x.
  LoopNest kept_{1};     ///< Loops over C-order indices of x, without the inner run.
  LoopNest reduced_{1};  ///< Nest of the axes that are summed.
  std::int64_t run_ = 1;
  bool steps_inside_ = true;
};

}  // namespace

void sr_run_sum(const SrRounding& rounding, const SrShape& shape, const SrArray& out, const SrArray& x,
                const std::vector<std::size_t>& axes, int threads) {
  Sum(rounding, shape, out, x, axes).run(threads);
}

}  // namespace popsr::kernels
