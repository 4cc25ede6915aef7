#include "popsr/ops/indexing/indexing_kernels.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/base/layout/loop_nest.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/positions.h"
#include "popsr/ops/loops/tiles.h"

namespace popsr {
namespace {

using kernels::Compute;
using kernels::ElementwiseOp;

constexpr std::int64_t kChunk = 256;  ///< Elements of a run that are reduced at a time.

/// The walk as lines along the axis; each step of a line is a run of contiguous elements of one index.
struct Lines {
  LoopNest starts{3};  ///< The other dimensions: of the loop side, the indices and the indexed side.
  std::int64_t lines = 1, count = 0, run = 1, extent = 0;
  std::int64_t loop_step = 0, index_step = 0, indexed_step = 0;

  struct Line {
    std::int64_t loop = 0, index = 0, indexed = 0;
  };
  Line line(std::int64_t number) const {
    const NestPosition at(starts, number);
    return {.loop = at.offset(0), .index = at.offset(1), .indexed = at.offset(2)};
  }
};

Lines lines_of(const IndexedAxis& walk) {
  const Shape loop = row_major_strides(walk.loop), indexed = row_major_strides(walk.indexed);
  Lines lines;
  lines.count = walk.loop[walk.axis];
  lines.extent = walk.indexed[walk.axis];
  lines.loop_step = loop[walk.axis];
  lines.index_step = walk.index_strides[walk.axis];
  lines.indexed_step = indexed[walk.axis];
  std::size_t end = walk.loop.size();
  while (end > walk.axis + 1 && walk.index_strides[end - 1] == 0 &&
         walk.loop[end - 1] == walk.indexed[end - 1]) {
    lines.run *= walk.loop[--end];
  }
  for (std::size_t d = end; d-- > 0;) {
    if (d == walk.axis) continue;
    lines.starts.add_outer(walk.loop[d], std::array{loop[d], walk.index_strides[d], indexed[d]});
  }
  lines.lines = lines.starts.count();
  return lines;
}

void copy_run(std::byte* to, const std::byte* from, std::int64_t bytes) {
  switch (bytes) {
    case 2:
      std::memcpy(to, from, 2);
      return;
    case 4:
      std::memcpy(to, from, 4);
      return;
    case 8:
      std::memcpy(to, from, 8);
      return;
    default:
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
}

// Take

class Take {
 public:
  Take(const EvalSpec& spec, const IndexedAxis& walk, TakeOptions options)
      : lines_(lines_of(walk)),
        positions_(spec, 1, lines_.extent, {options.zero_out_of_range, options.from_end}),
        last_only_(options.last_only),
        size_(static_cast<std::int64_t>(size_of(spec.outputs[0].dtype))),
        elements_(num_elements(walk.loop)) {}

  void operator()(const BlockRun& run) const {
    const Positions::Loaded positions = positions_.load(run);
    if (elements_ == 0) return;
    const std::int64_t rows = lines_.lines * lines_.count;
    const std::int64_t grain = last_only_ ? lines_.count : 1;
    for_each_range(run, {.units = rows, .grain = grain, .work = elements_},
                   [&](const Block& block, std::int64_t begin, std::int64_t end) {
                     take(block, positions.of(block), begin, end);
                   });
  }

 private:
  void take(const Block& block, const std::int64_t* indices, std::int64_t begin, std::int64_t end) const {
    const std::byte* const in = block.in(0);
    std::byte* const out = block.out();
    std::vector<std::int64_t> last(static_cast<std::size_t>(last_only_ ? lines_.extent : 0));
    const std::int64_t bytes = lines_.run * size_;
    while (begin < end) {
      const std::int64_t number = begin / lines_.count, first = begin % lines_.count;
      const std::int64_t stop = std::min(lines_.count, first + end - begin);
      const Lines::Line line = lines_.line(number);
      const auto index = [&](std::int64_t i) { return indices[line.index + i * lines_.index_step]; };
      for (std::int64_t i = 0; last_only_ && i < lines_.count; ++i)
        last[static_cast<std::size_t>(index(i))] = i;
      for (std::int64_t i = first; i < stop; ++i) {
        std::byte* const to = out + (line.loop + i * lines_.loop_step) * size_;
        const std::int64_t at = index(i);
        if (at < 0 || (last_only_ && last[static_cast<std::size_t>(at)] != i)) {
          std::memset(to, 0, static_cast<std::size_t>(bytes));
        } else {
          copy_run(to, in + (line.indexed + at * lines_.indexed_step) * size_, bytes);
        }
      }
      begin += stop - first;
    }
  }

  Lines lines_;
  Positions positions_;
  bool last_only_;
  std::int64_t size_, elements_;
};

// Scatter

ElementwiseOp kernel_of(IndexReduction reduction) {
  return reduction == IndexReduction::kSum   ? ElementwiseOp::kAdd
         : reduction == IndexReduction::kMul ? ElementwiseOp::kMul
         : reduction == IndexReduction::kMax ? ElementwiseOp::kMaximum
                                             : ElementwiseOp::kMinimum;
}

class Scatter {
 public:
  Scatter(const EvalSpec& spec, const IndexedAxis& walk, ScatterOptions options)
      : kernels_(spec.kernels),
        lines_(lines_of(walk)),
        positions_(spec, options.indices, lines_.extent, {options.skip_out_of_range, options.from_end}),
        options_(options),
        dtype_(spec.outputs[0].dtype),
        compute_(compute_of(dtype_)),
        combine_(options.reduction == IndexReduction::kLast
                     ? nullptr
                     : spec.kernels.elementwise(kernel_of(options.reduction), compute_)),
        widens_(is_narrow_float(dtype_) && options.reduction != IndexReduction::kLast),
        stochastic_(spec.stochastic && is_narrow_float(dtype_)),
        size_(static_cast<std::int64_t>(size_of(dtype_))),
        acc_size_(widens_ ? static_cast<std::int64_t>(size_of(compute_)) : size_),
        elements_(num_elements(walk.indexed)),
        values_(num_elements(walk.loop)) {}

  void operator()(const BlockRun& run) const {
    const Positions::Loaded positions = positions_.load(run);
    if (elements_ == 0) return;
    std::vector<std::byte> wide(static_cast<std::size_t>(widens_ ? elements_ * acc_size_ : 0));
    // Without initial values the first one that comes to a position is taken as it is.
    const bool first_is_taken = !options_.initial && (options_.reduction == IndexReduction::kMax ||
                                                      options_.reduction == IndexReduction::kMin);
    std::vector<std::uint8_t> met;
    for_each_block(run, [&](const Block& block) {
      std::byte* const acc = widens_ ? wide.data() : block.out();
      if (first_is_taken) met.assign(static_cast<std::size_t>(elements_), 0);
      start(block, acc);
      if (values_ > 0) reduce(block, positions.of(block), acc, first_is_taken ? met.data() : nullptr);
      if (widens_) store(block, acc);
    });
  }

 private:
  void start(const Block& block, std::byte* acc) const {
    if (!options_.initial) {
      std::memset(acc, 0, static_cast<std::size_t>(elements_ * acc_size_));
      return;
    }
    const std::byte* const from = block.in(*options_.initial);
    if (widens_) {
      load_tile(kernels_, dtype_, compute_, acc, from, elements_);
    } else if (acc != from) {
      std::memcpy(acc, from, static_cast<std::size_t>(elements_ * size_));
    }
  }

  /// A part is a chunk of the runs of one line: parts reach different positions.
  void reduce(const Block& block, const std::int64_t* indices, std::byte* acc, std::uint8_t* met) const {
    const std::byte* const values = block.in(options_.values);
    const std::int64_t chunks = (lines_.run + kChunk - 1) / kChunk;
    parallel_for(
        block.run().pool, lines_.lines * chunks, 1, values_, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t part = begin; part < end; ++part) {
            const Lines::Line line = lines_.line(part / chunks);
            const std::int64_t offset = part % chunks * kChunk, n = std::min(kChunk, lines_.run - offset);
            if (adds_singly()) {
              add_line(line, indices, acc, values);
              continue;
            }
            for (std::int64_t i = 0; i < lines_.count; ++i) {
              const std::int64_t at = indices[line.index + i * lines_.index_step];
              if (at < 0) continue;
              const std::int64_t to = line.indexed + at * lines_.indexed_step + offset;
              const bool is_first = met != nullptr && std::exchange(met[to], 1) == 0;
              meet(acc + to * acc_size_, values + (line.loop + i * lines_.loop_step + offset) * size_, n,
                   is_first);
            }
          }
        });
  }

  /// Sums of runs of one element: most of them are so short that calls of a kernel would take the time.
  bool adds_singly() const {
    return lines_.run == 1 && options_.reduction == IndexReduction::kSum && !widens_ &&
           (compute_ == Compute::kF32 || compute_ == Compute::kF64);
  }
  void add_line(const Lines::Line& line, const std::int64_t* indices, std::byte* acc,
                const std::byte* values) const {
    compute_ == Compute::kF64 ? add_typed<double>(line, indices, acc, values)
                              : add_typed<float>(line, indices, acc, values);
  }
  template <class T>
  void add_typed(const Lines::Line& line, const std::int64_t* indices, std::byte* acc,
                 const std::byte* values) const {
    T* const to = reinterpret_cast<T*>(acc) + line.indexed;
    const T* const from = reinterpret_cast<const T*>(values) + line.loop;
    const std::int64_t* const index = indices + line.index;
    for (std::int64_t i = 0; i < lines_.count; ++i) {
      const std::int64_t at = index[i * lines_.index_step];
      if (at >= 0) to[at * lines_.indexed_step] += from[i * lines_.loop_step];
    }
  }

  void meet(std::byte* acc, const std::byte* value, std::int64_t n, bool is_first) const {
    if (options_.reduction == IndexReduction::kLast) return copy_run(acc, value, n * size_);
    if (is_first) return load_tile(kernels_, dtype_, compute_, acc, value, n);
    alignas(64) float tile[kChunk];
    if (widens_) load_tile(kernels_, dtype_, compute_, tile, value, n);
    const void* const in[] = {acc, widens_ ? static_cast<const void*>(tile) : value};
    combine_(acc, nullptr, in, n, nullptr);
  }

  void store(const Block& block, const std::byte* acc) const {
    const kernels::NoiseKey* const key = block.key(stochastic_);
    std::byte* const out = block.out();
    parallel_for(block.run().pool, elements_, kTile, elements_, [&](std::int64_t begin, std::int64_t end) {
      store_tile(kernels_, compute_, dtype_, out + begin * size_, acc + begin * acc_size_, nullptr,
                 end - begin, key, static_cast<std::uint64_t>(begin));
    });
  }

  const kernels::KernelTable& kernels_;
  Lines lines_;
  Positions positions_;
  ScatterOptions options_;
  DType dtype_;
  Compute compute_;
  kernels::ElementwiseFn combine_;
  bool widens_, stochastic_;
  std::int64_t size_, acc_size_, elements_, values_;
};

}  // namespace

BlockKernel take_kernel(const EvalSpec& spec, const IndexedAxis& walk, TakeOptions options) {
  return Take(spec, walk, options);
}

BlockKernel scatter_kernel(const EvalSpec& spec, const IndexedAxis& walk, ScatterOptions options) {
  return Scatter(spec, walk, options);
}

BlockKernel clear_kernel(const EvalSpec& spec, const IndexedAxis& walk) {
  const auto size = static_cast<std::int64_t>(size_of(spec.outputs[0].dtype));
  const Lines lines = lines_of(walk);
  return [copy = copy_kernel(spec), positions = Positions(spec, 1, lines.extent, {}), lines, size,
          empty = num_elements(walk.loop) == 0](const BlockRun& run) {
    const Positions::Loaded loaded = positions.load(run);
    copy(run);
    if (empty) return;
    for_each_block(run, [&](const Block& block) {
      for (std::int64_t number = 0; number < lines.lines; ++number) {
        const Lines::Line line = lines.line(number);
        for (std::int64_t i = 0; i < lines.count; ++i) {
          const std::int64_t at = loaded.of(block)[line.index + i * lines.index_step];
          std::memset(block.out() + (line.indexed + at * lines.indexed_step) * size, 0,
                      static_cast<std::size_t>(lines.run * size));
        }
      }
    });
  };
}

}  // namespace popsr
