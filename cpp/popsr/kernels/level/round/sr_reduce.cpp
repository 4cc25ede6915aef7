// Running sums with a rounding at each step: eight chains at a time, because a chain itself is sequential.
#include "popsr/kernels/level/round/exact/sr_exact.h"
#include "popsr/kernels/level/round/exact/sr_expand-inl.h"
#include "popsr/kernels/level/round/sr.h"
#include "popsr/kernels/level/round/sr_tiles-inl.h"

namespace popsr::kernels {
namespace {

constexpr int kLanes = SrReduction::kLanes;

/// One step's operands, lane by lane.
struct Steps {
  double x[kSrTile][kLanes];
  std::uint64_t u[kSrTile][kLanes];
};

/// Conversion of codes to results, equal for every step.
struct Finish {
  SrRule rule;
  FloatFormatInfo layout;
  SrLimits limits;

  explicit Finish(const SrRounding& rounding)
      : rule(rule_of(rounding.mode, rounding.bits)),
        layout(info(rounding.format)),
        limits(limits_of(layout, rounding.mode, rounding.saturate)) {}
};

template <FloatFormat kFormat>
void reduce_steps(double* sums, std::uint64_t* codes, const Steps& steps, std::int64_t n,
                  const SrRounding& rounding) {
  const Finish finish(rounding);
  for (std::int64_t k = 0; k < n; ++k) {
    std::uint64_t hard = 0;
    double before[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      const SrSum s = SrAdd::apply(sums[lane], steps.x[k][lane], 0.0, 0.0);
      const std::uint64_t negative = bits_of(s.hi) >> 63;
      const SrBracket b = bracket_of<kFormat>(s);
      const std::uint64_t code = b.code + away_from_zero(finish.rule, b, negative, steps.u[k][lane]);
      const std::uint64_t beyond = negative != 0 ? finish.limits.overflow[1] : finish.limits.overflow[0];
      before[lane] = sums[lane];
      hard |= magnitude(s.hi) < kInfF64 ? 0 : 1;
      codes[lane] = signed_code(finish.layout, code > finish.limits.max_code ? beyond : code, negative);
      sums[lane] = widen_to_double<kFormat>(codes[lane]);
    }
    for (int lane = 0; hard != 0 && lane < kLanes; ++lane) {
      const double in[3] = {before[lane], steps.x[k][lane], 0.0};
      codes[lane] = round_exactly(SrOp::kAdd, in, 1.0, rounding, steps.u[k][lane]);
      sums[lane] = widen_to_double<kFormat>(codes[lane]);
    }
  }
}

using ReduceStepsFn = void (*)(double* sums, std::uint64_t* codes, const Steps& steps, std::int64_t n,
                               const SrRounding& rounding);
constexpr auto kReduceSteps =
    per_format<ReduceStepsFn>([]<FloatFormat kFormat>() -> ReduceStepsFn { return reduce_steps<kFormat>; });

/// Steps done ... done + n - 1 of every lane.
void load_steps(Steps& steps, const SrReduction& reduction, std::int64_t done, std::int64_t n) {
  double x[kSrTile];
  std::uint64_t u[kSrTile] = {};
  for (int lane = 0; lane < reduction.lanes; ++lane) {
    const char* from = static_cast<const char*>(reduction.x[lane]) + done * size_of(reduction.format);
    kSrLoad[reduction.format](x, from, n);
    uniform_bits(u, n, reduction.rounding.key, reduction.first[lane] + static_cast<std::uint64_t>(done));
    for (std::int64_t k = 0; k < n; ++k) {
      steps.x[k][lane] = x[k];
      steps.u[k][lane] = u[k];
    }
  }
}

}  // namespace

void sr_reduce(SrReduction& reduction) {
  alignas(64) Steps steps = {};
  for (std::int64_t done = 0; done < reduction.n; done += kSrTile) {
    const std::int64_t n = reduction.n - done < kSrTile ? reduction.n - done : kSrTile;
    load_steps(steps, reduction, done, n);
    kReduceSteps[reduction.rounding.format](reduction.sums, reduction.codes, steps, n, reduction.rounding);
  }
}

}  // namespace popsr::kernels
