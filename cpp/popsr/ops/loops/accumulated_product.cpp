#include "popsr/ops/loops/accumulated_product.h"

#include <array>
#include <cstddef>

#include "popsr/ops/loops/tiles.h"

namespace popsr {

ProductFusion accumulated_product(const EvalSpec& spec, const AccumulatedProduct& how) {
  const TensorType& type = spec.outputs[0];
  const bool wide = is_float(type.dtype) && !is_narrow_float(type.dtype);
  const auto dtype = [&spec](const ScalarParam& param) {
    return param.input ? spec.inputs[*param.input]->dtype : DType::kFloat64;
  };
  const auto factors = [&table = spec.kernels, how,
                        dtypes = std::array{dtype(how.alpha), dtype(how.beta)}](const std::byte* const* in) {
    const auto read = [&](const ScalarParam& param, DType of) {
      return param.input ? read_scalar(table, of, in[*param.input]) : param.value;
    };
    double p[] = {read(how.alpha, dtypes[0]), read(how.beta, dtypes[1])};
    if (how.prepare != nullptr) how.prepare(p);
    return kernels::AccumulationFactors{
        .alpha = p[0], .beta = p[1], .overwrites = how.zero_overwrites && p[0] == 0};
  };
  return {.product_input = 1,
          .target = 0,
          .symmetric = how.symmetric,
          .in_registers = wide && spec.inputs[0] == type && spec.inputs[1] == type,
          .factors = factors};
}

}  // namespace popsr
