// Convolution kernels for ops of other formats: operands of different dtypes, and a factor
// that is applied before results are rounded.
#include <doctest/doctest.h>

#include <Eigen/Core>
#include <cmath>
#include <cstring>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/nn/conv/conv_kernel.h"
#include "popsr/runtime/session/session.h"
#include "support/program.h"

using namespace popsr;
using popsr::test::Program;

namespace {

constexpr double kLargestScale = 4;

/// 2^scale of a block, from input 2.
double power_of_two(const Block& block) {
  std::int32_t scale = 0;
  std::memcpy(&scale, block.in(2), sizeof scale);
  if (scale > kLargestScale) raise<OutOfRangeError>("scaled: scale is too large, got {}", scale);
  return std::ldexp(1.0, scale);
}

OpDef scaled(std::string_view name, InferFn infer, EvalFn eval, std::vector<AttrDef> attrs) {
  return {.name = name,
          .inputs = {{"t", kFloating}, {"weight", kFloating}, {"scale", {DType::kInt32}}},
          .attrs = std::move(attrs),
          .infer = infer,
          .kernel = {.eval = eval},
          .numerics = kRoundsOnce};
}

ConvShape plain_shape(const Op& op, const Shape& t, const Shape& weight) { return conv_shape(op, t, weight); }

template <auto Rule>
std::vector<OutputDef> infer_scaled(const InferContext& context) {
  return {{{DType::kFloat16, Rule(context.op, context.type(0).shape, context.type(1).shape).output}, {}}};
}

template <auto Rule, auto Kernel>
BlockKernel eval_scaled(const EvalSpec& spec) {
  return Kernel(spec, Rule(spec.op, spec.inputs[0]->shape, spec.inputs[1]->shape), {.factor = power_of_two});
}

std::shared_ptr<const Registry> with_scaled_ops() {
  auto registry = std::make_shared<Registry>(*default_registry());
  registry->add(
      scaled("scaled_conv", infer_scaled<plain_shape>, eval_scaled<plain_shape, conv_kernel>, conv_attrs()));
  registry->add(scaled("scaled_conv_transpose", infer_scaled<conv_transpose_shape>,
                       eval_scaled<conv_transpose_shape, conv_transpose_kernel>, conv_transpose_attrs()));
  return registry;
}

TensorId cast(Program& p, TensorId t, DType dtype) { return p("cast", {t}, {}, {{"data_type", dtype}}); }

StreamId store(Program& p, TensorId t) {
  const StreamId stream =
      p.ir.add_stream("out", {DType::kFloat32, p.ir.tensor(t).type.shape}, false, StreamMode::kReplicate);
  p.emit("host_store", {cast(p, t, DType::kFloat32)}, {{"d2h_stream", stream}});
  return stream;
}

/// Checks few channels, or so many that samples of few positions are convolved together.
void check_scaled(const std::string& op, std::int64_t channels, const Shape& extents) {
  CAPTURE(op);
  CAPTURE(channels);
  Program p(2, with_scaled_ops());
  const auto load = [&](std::string name, StreamMode mode, Shape shape, DType dtype) {
    return cast(p, p.load(std::move(name), mode, {DType::kFloat32, std::move(shape)}), dtype);
  };
  const TensorId t =
      load("t", StreamMode::kReplicate, {3, channels, extents[0], extents[1]}, DType::kFloat16);
  const TensorId weight =
      load("weight", StreamMode::kBroadcast, {channels, channels, 3, 3}, DType::kBFloat16);
  const TensorId scale = load("scale", StreamMode::kReplicate, {}, DType::kInt32);
  const test::Attrs attrs = {{"padding", std::vector<std::int64_t>{1, 0, 1, 0}},
                             {"stride", std::vector<std::int64_t>{2, 1}}};
  const StreamId got = store(p, p("scaled_" + op, {t, weight, scale}, {}, attrs));
  const StreamId exact =
      store(p, p(op, {cast(p, t, DType::kFloat32), cast(p, weight, DType::kFloat32)}, {}, attrs));
  IdVector<StreamId, std::vector<float>> data(p.ir.num_streams());
  IdVector<StreamId, StreamBuffer> buffers(p.ir.num_streams());
  for (const StreamId id : ids<StreamId>(p.ir.num_streams())) {
    const Stream& stream = p.ir.stream(id);
    data[id].resize(static_cast<std::size_t>((stream.mode == StreamMode::kBroadcast ? 1 : 2) *
                                             num_elements(stream.type.shape)));
    for (std::size_t i = 0; i < data[id].size(); ++i)
      data[id][i] = 0.37F * static_cast<float>((i * 7 + id.index() * 3) % 23) - 3;
    buffers[id] = {reinterpret_cast<std::byte*>(data[id].data()), 1};
  }
  data[StreamId(2)] = {-2.0F, 3.0F};
  buffers[StreamId(2)] = {reinterpret_cast<std::byte*>(data[StreamId(2)].data()), 1};
  Session session({std::shared_ptr<const Ir>(), &p.ir}, {});
  session.run(buffers, {});
  const std::size_t half = data[got].size() / 2;
  bool rounds = false;
  for (std::size_t i = 0; i < data[got].size(); ++i) {
    const float expect = data[exact][i] * (i < half ? 0.25F : 8.0F);
    CHECK(data[got][i] == static_cast<float>(Eigen::half(expect)));
    rounds |= data[got][i] != expect;
  }
  CHECK(rounds);
  data[StreamId(2)] = {1.0F, 5.0F};
  CHECK(test::error_of<OutOfRangeError>([&] { session.run(buffers, {}); }) ==
        "scaled: scale is too large, got 5");
}

}  // namespace

TEST_CASE("a convolution takes operands of two dtypes and multiplies before it rounds once") {
  for (const std::string op : {"conv", "conv_transpose"}) {
    check_scaled(op, 4, {9, 7});
    check_scaled(op, 36, {5, 4});
  }
}
