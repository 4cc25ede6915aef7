// Transcendental functions beyond those of elementwise.cpp and functions.cpp, each with its gradient.
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/elementwise_walk.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

using kernels::ElementwiseOp;

constexpr double kLogOfTwo = 0.69314718055994530942;
constexpr double kErfSlope = 1.12837916709551257390;

GradValue one(Grad& g) { return g.constant(1, g.out_type(0).dtype); }

template <ElementwiseOp ew>
OpDef transcendental(std::string_view name, InputGradFn grad) {
  return unary_op(name, kFloating, elementwise_op<ew>, grad, Rounding::kOnce);
}

std::vector<OpDef> error_and_exponential_ops() {
  return {
      transcendental<ElementwiseOp::kExpm1>("expm1", [](Grad& g) { return g.dy() * g.call("exp", {g.x()}); }),
      transcendental<ElementwiseOp::kLog1p>("log1p", [](Grad& g) { return g.dy() / (one(g) + g.x()); }),
      transcendental<ElementwiseOp::kExp2>("exp2",
                                           [](Grad& g) { return g.scale(g.dy() * g.y(), kLogOfTwo); }),
      transcendental<ElementwiseOp::kErfc>(
          "erfc",
          // -dy * 2 / sqrt(pi) * e^(-x^2)
          [](Grad& g) { return g.scale(g.dy(), -kErfSlope) * g.call("exp", {-(g.x() * g.x())}); }),
      transcendental<ElementwiseOp::kErfInv>(
          "erf_inv",
          // dy * sqrt(pi) / 2 * e^(y^2)
          [](Grad& g) { return g.scale(g.dy(), 1 / kErfSlope) * g.call("exp", {g.y() * g.y()}); }),
      transcendental<ElementwiseOp::kCbrt>(
          "cbrt",
          // dy / (3 y^2)
          [](Grad& g) { return g.scale(g.dy() / (g.y() * g.y()), 1.0 / 3); }),
  };
}

/// 1 - x^2 without cancellation.
GradValue one_less_square(Grad& g) { return (one(g) - g.x()) * (one(g) + g.x()); }

GradValue one_more_square(Grad& g) { return one(g) + g.x() * g.x(); }

std::vector<OpDef> trigonometric_ops() {
  return {
      transcendental<ElementwiseOp::kTan>("tan", [](Grad& g) { return g.dy() * (one(g) + g.y() * g.y()); }),
      transcendental<ElementwiseOp::kAsin>(
          "asin", [](Grad& g) { return g.dy() * g.call("rsqrt", {one_less_square(g)}); }),
      transcendental<ElementwiseOp::kAcos>(
          "acos", [](Grad& g) { return -(g.dy() * g.call("rsqrt", {one_less_square(g)})); }),
      transcendental<ElementwiseOp::kAtan>("atan", [](Grad& g) { return g.dy() / one_more_square(g); }),
      {.name = "atan2",
       .inputs = {{"y", kFloating}, {"x", kFloating}},
       .infer = broadcast_binary,
       .kernel = elementwise_op<ElementwiseOp::kAtan2>,
       // dy * x / (x^2 + y^2) and -dy * y / (x^2 + y^2)
       .grad = per_input({[](Grad& g) {
                            const GradValue square = g.x(0) * g.x(0) + g.x(1) * g.x(1);
                            return g.sum_to_input(0, g.dy() * (g.x(1) / square));
                          },
                          [](Grad& g) {
                            const GradValue square = g.x(0) * g.x(0) + g.x(1) * g.x(1);
                            return -g.sum_to_input(1, g.dy() * (g.x(0) / square));
                          }}),
       .numerics = kRoundsOnce},
  };
}

std::vector<OpDef> hyperbolic_ops() {
  return {
      transcendental<ElementwiseOp::kSinh>("sinh", [](Grad& g) { return g.dy() * g.call("cosh", {g.x()}); }),
      transcendental<ElementwiseOp::kCosh>("cosh", [](Grad& g) { return g.dy() * g.call("sinh", {g.x()}); }),
      transcendental<ElementwiseOp::kAsinh>(
          "asinh", [](Grad& g) { return g.dy() * g.call("rsqrt", {one_more_square(g)}); }),
      transcendental<ElementwiseOp::kAcosh>("acosh",
                                            // dy / sqrt((x - 1) (x + 1))
                                            [](Grad& g) {
                                              const GradValue square = (g.x() - one(g)) * (g.x() + one(g));
                                              return g.dy() * g.call("rsqrt", {square});
                                            }),
      transcendental<ElementwiseOp::kAtanh>("atanh", [](Grad& g) { return g.dy() / one_less_square(g); }),
  };
}

}  // namespace

std::vector<OpDef> transcendental_ops() {
  std::vector<OpDef> ops = error_and_exponential_ops();
  for (OpDef& op : trigonometric_ops()) ops.push_back(std::move(op));
  for (OpDef& op : hyperbolic_ops()) ops.push_back(std::move(op));
  return ops;
}

}  // namespace popsr
