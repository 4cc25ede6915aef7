#include "popsr/ops/loops/strided.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"
#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/ops/loops/tiles.h"

namespace popsr {

namespace {

constexpr std::size_t kMaxRank = 8;  ///< Of gather_strided.
constexpr std::size_t kMaxDims = 24;

/// `out` in C order = the view at `in`; dimensions beyond kMaxRank are loops.
void gather(const kernels::KernelTable& kernels, std::byte* out, const std::byte* in,
            const std::int64_t* shape, const std::int64_t* strides, std::size_t rank, std::int64_t size) {
  if (rank <= kMaxRank) {
    return kernels.gather_strided(out, in, static_cast<int>(rank), shape, strides, static_cast<int>(size));
  }
  std::int64_t step = size;
  for (std::size_t d = 1; d < rank; ++d) step *= shape[d];
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    gather(kernels, out + i * step, in + i * strides[0] * size, shape + 1, strides + 1, rank - 1, size);
  }
}

template <class T>
void scatter_row(std::byte* out, const std::byte* in, std::int64_t n, std::int64_t stride) {
  auto* to = reinterpret_cast<T*>(out);
  const auto* from = reinterpret_cast<const T*>(in);
  for (std::int64_t i = 0; i < n; ++i) to[i * stride] = from[i];
}

void scatter(std::byte* out, const std::byte* in, const std::int64_t* shape, const std::int64_t* strides,
             std::size_t rank, std::int64_t size) {
  if (rank > 1) {
    std::int64_t step = size;
    for (std::size_t d = 1; d < rank; ++d) step *= shape[d];
    for (std::int64_t i = 0; i < shape[0]; ++i) {
      scatter(out + i * strides[0] * size, in + i * step, shape + 1, strides + 1, rank - 1, size);
    }
    return;
  }
  const std::int64_t n = rank == 0 ? 1 : shape[0];
  const std::int64_t stride = rank == 0 ? 1 : strides[0];
  if (stride == 1) {
    std::memcpy(out, in, static_cast<std::size_t>(n * size));
    return;
  }
  switch (size) {
    case 1:
      return scatter_row<std::uint8_t>(out, in, n, stride);
    case 2:
      return scatter_row<std::uint16_t>(out, in, n, stride);
    case 4:
      return scatter_row<std::uint32_t>(out, in, n, stride);
    default:
      return scatter_row<std::uint64_t>(out, in, n, stride);
  }
}

}  // namespace

StridedView collapse(const StridedView& view) {
  StridedView result{.shape = {}, .strides = {}, .offset = view.offset};
  for (std::size_t d = 0; d < view.shape.size(); ++d) {
    const std::int64_t extent = view.shape[d];
    const std::int64_t stride = view.strides[d];
    if (extent == 1) continue;
    if (!result.shape.empty() && result.strides.back() == extent * stride) {
      result.shape.back() *= extent;
      result.strides.back() = stride;
    } else {
      result.shape.push_back(extent);
      result.strides.push_back(stride);
    }
  }
  if (result.shape.empty()) {
    result.shape = {1};
    result.strides = {1};
  }
  return result;
}

namespace {

/// Gathers one view per block; contiguous blocks are one more dimension of the view.
class Gather {
 public:
  Gather(const EvalSpec& spec, const StridedView& view)
      : kernels_(spec.kernels),
        view_(collapse(view)),
        elements_(num_elements(view.shape)),
        size_(static_cast<std::int64_t>(size_of(spec.outputs[0].dtype))) {
    if (view_.shape.size() < kMaxDims) return;
    raise<ShapeError>("{}: too many dimensions, got {}, expected at most {} that cannot be merged",
                      spec.op.def->name, view_.shape.size(), kMaxDims - 1);
  }

  void operator()(const BlockRun& run) const {
    if (elements_ == 0) return;
    const std::byte* const in = run.in[0] + view_.offset * size_;
    const std::size_t rank = view_.shape.size();
    const bool flat = run.out_stride[0] == elements_ * size_ && run.in_stride[0] % size_ == 0;
    if (run.blocks > 1 && flat) {
      std::array<std::int64_t, kMaxDims> shape = {run.blocks};
      std::array<std::int64_t, kMaxDims> strides = {run.in_stride[0] / size_};
      std::ranges::copy(view_.shape, shape.begin() + 1);
      std::ranges::copy(view_.strides, strides.begin() + 1);
      return split(run.pool, run.out[0], in, shape.data(), strides.data(), rank + 1, run.blocks * elements_);
    }
    for (std::int64_t b = 0; b < run.blocks; ++b) {
      split(run.pool, run.out[0] + b * run.out_stride[0], in + b * run.in_stride[0], view_.shape.data(),
            view_.strides.data(), rank, elements_);
    }
  }

 private:
  /// Splits the outermost dimension among threads.
  void split(ThreadPool& pool, std::byte* out, const std::byte* in, const std::int64_t* shape,
             const std::int64_t* strides, std::size_t rank, std::int64_t elements) const {
    const std::int64_t step = elements / shape[0] * size_;
    parallel_for(pool, shape[0], 1, elements, [&](std::int64_t begin, std::int64_t end) {
      std::array<std::int64_t, kMaxDims> part;
      std::copy(shape, shape + rank, part.begin());
      part[0] = end - begin;
      gather(kernels_, out + begin * step, in + begin * strides[0] * size_, part.data(), strides, rank,
             size_);
    });
  }

  const kernels::KernelTable& kernels_;
  StridedView view_;
  std::int64_t elements_;
  std::int64_t size_;
};

}  // namespace

BlockKernel gather_kernel(const EvalSpec& spec, const StridedView& view) { return Gather(spec, view); }

BlockKernel embed_kernel(const EvalSpec& spec, const StridedView& full) {
  const auto size = static_cast<std::int64_t>(size_of(spec.outputs[0].dtype));
  const auto bytes = static_cast<std::size_t>(num_elements(spec.outputs[0].shape) * size);
  const bool empty = num_elements(full.shape) == 0;
  return [view = collapse(full), size, bytes, empty](const BlockRun& run) {
    const auto elements = static_cast<std::int64_t>(bytes) / size;
    parallel_for(run.pool, run.blocks, 1, run.blocks * elements, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end && bytes != 0; ++b) {
        std::byte* const out = run.out[0] + b * run.out_stride[0];
        std::memset(out, 0, bytes);
        if (empty) continue;
        scatter(out + view.offset * size, run.in[0] + b * run.in_stride[0], view.shape.data(),
                view.strides.data(), view.shape.size(), size);
      }
    });
  };
}

}  // namespace popsr
