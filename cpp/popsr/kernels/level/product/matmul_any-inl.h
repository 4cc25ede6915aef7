// Selection of the path of a product by its shape and epilogue.
#pragma once

#include "popsr/kernels/level/product/matmul_reduced-inl.h"
#include "popsr/kernels/level/product/matmul_steps-inl.h"

namespace popsr::kernels {
namespace {

template <class X>
std::size_t scratch_bytes(const MatmulArgs& args) {
  const Plan plan = make_plan<X>(args);
  const bool in_memory = args.epilogue == MatmulArgs::Epilogue::kSteps && !plan.stepped;
  return static_cast<std::size_t>(in_memory ? steps_scratch<X>(args) : plan.bytes());
}

/// Sum of no products: +0, divided like any other.
template <class T>
void empty_reduction(const MatmulArgs& args, int part, int parts) {
  const Range rows = piece(args.m, 1, part, parts);
  for (std::int64_t r = rows.begin; r < rows.end; ++r)
    for (std::int64_t j = 0; j < args.n; ++j)
      finish_element(static_cast<T*>(args.c) + r * args.c_row + j, T{0}, finish_of<T>(args, true, true));
}

template <class X>
void matmul(const MatmulArgs& args, int part, int parts, void* scratch) {
  if (args.m <= 0 || args.n <= 0) return;
  const Plan plan = make_plan<X>(args);
  if (plan.terms <= 0) return empty_reduction<typename X::T>(args, part, parts);
  Range rows, cols;
  split<X>(plan, part, parts, rows, cols);
  if (plan.stepped) {
    ShortSteps<X>(args, plan, scratch).run(rows, cols);
  } else if (args.epilogue == MatmulArgs::Epilogue::kSteps) {
    SteppedProduct<X>(args, scratch).run(rows, cols);
  } else if (plan.reduced) {
    ReducedProduct<X>(args, plan, scratch).run(rows, cols);
  } else {
    Product<X>(args, plan, scratch).run(rows, cols);
  }
}

}  // namespace
}  // namespace popsr::kernels
