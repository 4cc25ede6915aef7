#include "popsr/ops/loops/plane_walk.h"

#include <utility>
#include <vector>

#include "popsr/exec/block_kernel.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"

namespace popsr {
namespace {

using kernels::Compute;

class PlaneWalk {
 public:
  PlaneWalk(const EvalSpec& spec, std::int64_t planes, std::int64_t scratch, PlaneBody body)
      : kernels_(spec.kernels),
        body_(std::move(body)),
        planes_(planes),
        dtype_(spec.outputs[0].dtype),
        compute_(compute_of(dtype_)),
        narrow_(is_narrow_float(dtype_)),
        stochastic_(spec.stochastic && narrow_),
        out_(num_elements(spec.outputs[0].shape) / std::max<std::int64_t>(planes, 1)),
        scratch_(scratch * wide_size()) {
    work_ = out_;
    for (const auto& type : spec.inputs) {
      in_.push_back(num_elements(type->shape) / std::max<std::int64_t>(planes, 1));
      work_ += in_.back();
    }
  }

  void operator()(const BlockRun& run) const {
    if (out_ == 0) return;
    for_each_range_with(run, {.units = planes_, .work = planes_ * work_}, [this] {
      return [this, in = std::vector<const std::byte*>(in_.size())](const Block& block, std::int64_t begin,
                                                                    std::int64_t end) mutable {
        planes(block, in, begin, end);
      };
    });
  }

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(size_of(dtype_)); }
  std::int64_t wide_size() const { return static_cast<std::int64_t>(size_of(compute_)); }

  void planes(const Block& block, std::vector<const std::byte*>& in, std::int64_t begin,
              std::int64_t end) const {
    std::int64_t bytes = whole_lines(scratch_) + (narrow_ ? whole_lines(out_ * wide_size()) : 0);
    for (const std::int64_t n : in_) bytes += narrow_ ? whole_lines(n * wide_size()) : 0;
    auto* const start = static_cast<std::byte*>(thread_scratch(static_cast<std::size_t>(bytes)));
    for (std::int64_t plane = begin; plane < end; ++plane) {
      std::byte* next = start + whole_lines(scratch_);
      for (std::size_t j = 0; j < in_.size(); ++j) {
        in[j] = block.in(j) + plane * in_[j] * size();
        if (narrow_)
          in[j] = widened(in[j], std::exchange(next, next + whole_lines(in_[j] * wide_size())), in_[j]);
      }
      std::byte* const out = block.out() + plane * out_ * size();
      body_({.in = in, .out = narrow_ ? next : out, .scratch = start});
      if (!narrow_) continue;
      store_tile(kernels_, compute_, dtype_, out, next, nullptr, out_, block.key(stochastic_),
                 static_cast<std::uint64_t>(plane * out_));
    }
  }

  const std::byte* widened(const std::byte* from, std::byte* to, std::int64_t n) const {
    load_tile(kernels_, dtype_, compute_, to, from, n);
    return to;
  }

  const kernels::KernelTable& kernels_;
  PlaneBody body_;
  std::int64_t planes_;
  DType dtype_;
  Compute compute_;
  bool narrow_, stochastic_;
  std::vector<std::int64_t> in_ = {};  ///< Elements of a plane.
  std::int64_t out_, scratch_, work_ = 0;
};

}  // namespace

BlockKernel plane_kernel(const EvalSpec& spec, std::int64_t planes, std::int64_t scratch, PlaneBody body) {
  return PlaneWalk(spec, planes, scratch, std::move(body));
}

}  // namespace popsr
