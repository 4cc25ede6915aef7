// The gradient of a convolution for its weight.
//
// The element of output channel o, input channel c and kernel element k is the sum, over output positions, of
// cotangent[o] times the input of channel c that k meets there. Positions are the steps of the chains:
// cotangents are the packed operand, and the input is copied to images whose last axis is the channel, so
// that channels fill vectors; where neighbours of the last kernel axis are neighbours in the image, they do
// together.
#include <algorithm>
#include <vector>

#include "popsr/base/threads/thread_pool.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/nn/conv/conv_kernel.h"
#include "popsr/ops/nn/conv/image.h"
#include "popsr/ops/nn/conv/scratch.h"

namespace popsr {
namespace {

/// Bytes of images and cotangents that are packed before products run. Decides speed only.
constexpr std::int64_t kPackedBytes = std::int64_t{1} << 22;
/// Sums that are added to over all samples before the next ones: bytes, most tiles of rows, and least lanes.
/// Decide speed only.
constexpr std::int64_t kSumBytes = std::int64_t{1} << 17, kSumTiles = 8, kSumLanes = 64;

template <class T>
class WeightGradient {
 public:
  WeightGradient(const EvalSpec& spec, const ConvShape& shape)
      : table_(spec.kernels),
        s_(shape),
        tiles_(table_, shape.out_channels),
        in_dtype_(spec.inputs[0]->dtype),
        cotangent_dtype_(spec.inputs[1]->dtype),
        out_dtype_(spec.outputs[0].dtype),
        stochastic_(spec.stochastic && is_narrow_float(out_dtype_)),
        inputs_(product(shape.in)),
        outputs_(product(shape.out)),
        kernel_(product(shape.window.kernel)) {
    for (std::size_t d = 0; d < kSpatialAxes; ++d) {
      extent_[d] = (shape.out[d] - 1) * shape.window.stride[d] +
                   (shape.window.kernel[d] - 1) * shape.window.dilation[d] + 1;
      find_lines(d);
    }
    pitch_ = {extent_[1] * extent_[2] * s_.in_channels, extent_[2] * s_.in_channels, s_.in_channels};
    image_ = padded<T>(extent_[0] * pitch_[0]);
    find_taps();
    find_positions();
  }

  void operator()(const BlockRun& run) const {
    if (s_.groups * s_.out_channels * s_.in_channels == 0) return;
    for_each_block(run, [this](const Block& block) { one_block(block); });
  }

 private:
  /// The positions of the image that an axis reads.
  void find_lines(std::size_t d) {
    used_[d].assign(static_cast<std::size_t>(std::max<std::int64_t>(extent_[d], 0)), false);
    for (std::int64_t x = 0; x < s_.out[d]; ++x)
      for (std::int64_t k = 0; k < s_.window.kernel[d]; ++k)
        used_[d][static_cast<std::size_t>(x * s_.window.stride[d] + k * s_.window.dilation[d])] = true;
  }

  /// Elements of the kernel that are computed together lie next to each other in the image.
  void find_taps() {
    together_ = s_.window.dilation[2] == 1 ? s_.window.kernel[2] : 1;
    for (std::int64_t x = 0; x < s_.window.kernel[0]; ++x)
      for (std::int64_t y = 0; y < s_.window.kernel[1]; ++y)
        for (std::int64_t z = 0; z < s_.window.kernel[2]; z += together_)
          taps_.push_back(x * s_.window.dilation[0] * pitch_[0] + y * s_.window.dilation[1] * pitch_[1] +
                          z * s_.window.dilation[2] * pitch_[2]);
  }

  void find_positions() {
    for (std::int64_t x = 0; x < s_.out[0]; ++x)
      for (std::int64_t y = 0; y < s_.out[1]; ++y)
        for (std::int64_t z = 0; z < s_.out[2]; ++z)
          positions_.push_back(x * s_.window.stride[0] * pitch_[0] + y * s_.window.stride[1] * pitch_[1] +
                               z * s_.window.stride[2] * pitch_[2]);
  }

  std::int64_t lanes() const { return together_ * s_.in_channels; }
  std::int64_t num_taps() const { return std::ssize(taps_); }
  /// Elements of the images and of the cotangents of a sample.
  std::int64_t images() const { return s_.groups * image_; }
  std::int64_t cotangents() const { return padded<T>(s_.groups * s_.out_channels * outputs_); }
  std::int64_t blocks() const { return (outputs_ + kWeightBlock - 1) / kWeightBlock; }
  /// Scratch of a thread: a line of the input, or a tile of cotangents.
  std::int64_t own_elements() const {
    if (has_type<T>(in_dtype_)) return 0;
    return std::max(s_.in_channels * s_.in[2], table_.conv_rows * kWeightBlock);
  }

  void one_block(const Block& block) const {
    const std::int64_t sums = padded<T>(s_.groups * s_.out_channels * num_taps() * lanes());
    const std::int64_t sample = images() + cotangents();
    const std::int64_t most =
        kPackedBytes / static_cast<std::int64_t>(sizeof(T)) / std::max<std::int64_t>(sample, 1);
    const std::int64_t chunk = std::clamp<std::int64_t>(most, 1, std::max<std::int64_t>(s_.samples, 1));
    const std::int64_t own = std::max(own_elements(), s_.in_channels * kernel_);
    T* const sum = scratch<T>(sums + chunk * sample + padded<T>(own));
    T* const packed = sum + sums;
    T* const mine = packed + chunk * sample;
    const bool nothing = s_.samples * outputs_ == 0;
    if (nothing) std::fill(sum, sum + sums, T{0});
    for (std::int64_t first = 0; first < s_.samples && !nothing; first += chunk) {
      const std::int64_t n = std::min(chunk, s_.samples - first);
      pack_samples(block, first, n, packed, mine);
      multiply(block.run().pool, packed, n, first == 0, sum);
    }
    store(block, sum, mine, own);
  }

  // Packing

  void pack_samples(const Block& block, std::int64_t first, std::int64_t n, T* packed, T* mine) const {
    const std::int64_t sample = images() + cotangents();
    const std::int64_t lines = s_.groups * extent_[0] * extent_[1];
    const std::int64_t pieces = s_.groups * blocks() * tiles_.tiles;
    const std::byte* const t = block.in(0);
    const std::byte* const dy = block.in(1);
    split_work(block.run().pool, n * (lines + pieces), n * sample, mine, own_elements(),
               [&](std::int64_t begin, std::int64_t end, T* own) {
                 for (std::int64_t u = begin; u < end; ++u) {
                   const std::int64_t i = u / (lines + pieces), unit = u % (lines + pieces);
                   T* const to = packed + i * sample;
                   if (unit < lines) {
                     pack_line(t, first + i, unit, to, own);
                   } else {
                     pack_cotangents(dy, first + i, unit - lines, to + images(), own);
                   }
                 }
               });
  }

  /// Line `unit` of the images: groups, then the first two axes.
  void pack_line(const std::byte* t, std::int64_t sample, std::int64_t unit, T* images, T* own) const {
    const std::int64_t y = unit % extent_[1], x = unit / extent_[1] % extent_[0];
    const std::int64_t g = unit / extent_[1] / extent_[0];
    if (!used_[0][static_cast<std::size_t>(x)] || !used_[1][static_cast<std::size_t>(y)]) return;
    T* const to = images + g * image_ + x * pitch_[0] + y * pitch_[1];
    const std::int64_t px = x - s_.window.begin[0], py = y - s_.window.begin[1];
    InsideRange in = inside(-s_.window.begin[2], 1, s_.in[2], extent_[2]);
    if (px < 0 || px >= s_.in[0] || py < 0 || py >= s_.in[1]) in = {0, 0};
    std::fill(to, to + in.begin * pitch_[2], T{0});
    std::fill(to + in.end * pitch_[2], to + pitch_[1], T{0});
    if (in.begin == in.end) return;
    const std::int64_t channel = (sample * s_.groups + g) * s_.in_channels;
    const std::int64_t at =
        channel * inputs_ + (px * s_.in[1] + py) * s_.in[2] + in.begin - s_.window.begin[2];
    transpose(in_dtype_, t, at, inputs_, s_.in_channels, in.end - in.begin, to + in.begin * pitch_[2], own);
  }

  /// Tile of rows and block of positions `unit`.
  void pack_cotangents(const std::byte* dy, std::int64_t sample, std::int64_t unit, T* to, T* own) const {
    const std::int64_t tile = unit % tiles_.tiles, g = unit / tiles_.tiles / blocks();
    const std::int64_t begin = unit / tiles_.tiles % blocks() * kWeightBlock;
    const std::int64_t n = std::min(kWeightBlock, outputs_ - begin);
    const std::int64_t row = g * s_.out_channels + tiles_.first(tile);
    const std::int64_t at = (sample * s_.groups * s_.out_channels + row) * outputs_ + begin;
    T* const block = to + g * s_.out_channels * outputs_ + begin * s_.out_channels;
    transpose(cotangent_dtype_, dy, at, outputs_, tiles_.size(tile), n, block + tiles_.first(tile) * n, own);
  }

  /// to[i * rows + r] = element at + r * pitch + i of `from`, for i < n.
  void transpose(DType dtype, const std::byte* from, std::int64_t at, std::int64_t pitch, std::int64_t rows,
                 std::int64_t n, T* to, T* own) const {
    if (has_type<T>(dtype)) return pack(table_, to, rows, reinterpret_cast<const T*>(from) + at, 1, pitch, n);
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    for (std::int64_t r = 0; r < rows; ++r)
      widen(table_, dtype, own + r * n, from + (at + r * pitch) * size, n);
    pack(table_, to, rows, static_cast<const T*>(own), 1, n, n);
  }

  // Products

  /// Adds packed samples to the sums, [group][tap][row][lane].
  void multiply(ThreadPool& pool, const T* packed, std::int64_t n, bool first, T* sum) const {
    const std::int64_t units = s_.groups * num_taps() * tiles_.tiles;
    const std::int64_t work = n * outputs_ * s_.groups * s_.out_channels * s_.in_channels * kernel_;
    split_work(pool, units, work, sum, 0, [&](std::int64_t begin, std::int64_t end, T*) {
      for (std::int64_t u = begin; u < end;) {
        const std::int64_t next = std::min({end, (u / tiles_.tiles + 1) * tiles_.tiles, u + kSumTiles});
        Part part{u / tiles_.tiles, u % tiles_.tiles, next - u, 0, 0};
        const std::int64_t fits =
            kSumBytes / static_cast<std::int64_t>(sizeof(T)) / table_.conv_rows / (next - u);
        const std::int64_t width = std::max(fits / kSumLanes * kSumLanes, kSumLanes);
        for (; part.lane < lanes(); part.lane += part.lanes) {
          part.lanes = std::min(width, lanes() - part.lane);
          multiply_part(packed, n, part, first, sum);
        }
        u = next;
      }
    });
  }

  /// Some tiles of rows and some lanes of one group and tap: sums that stay in a cache over the samples.
  struct Part {
    std::int64_t group_and_tap, tile, tiles, lane, lanes;
  };

  void multiply_part(const T* packed, std::int64_t n, const Part& part, bool first, T* sum) const {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t at = 0; at < outputs_; at += kWeightBlock)
        multiply_tap(packed + i * (images() + cotangents()), at, part, !first || i > 0 || at > 0, sum);
  }

  /// A block of positions.
  void multiply_tap(const T* sample, std::int64_t at, const Part& part, bool add, T* sum) const {
    const std::int64_t g = part.group_and_tap / num_taps();
    const std::int64_t tap = taps_[static_cast<std::size_t>(part.group_and_tap % num_taps())];
    const std::int64_t row = part.group_and_tap * s_.out_channels + tiles_.first(part.tile);
    convolve<T>(table_, {.m = s_.out_channels,
                         .n = part.lanes,
                         .k = std::min(kWeightBlock, outputs_ - at),
                         .first_tile = part.tile,
                         .last_tile = part.tile + part.tiles,
                         .a = sample + images() + (g * outputs_ + at) * s_.out_channels,
                         .x = sample + g * image_ + tap + part.lane,
                         .offset = positions_.data() + at,
                         .c = sum + row * lanes() + part.lane,
                         .c_row = lanes(),
                         .add = add});
  }

  /// Rounds the sums, in the order of the weight: [group][row][channel][kernel].
  void store(const Block& block, const T* sum, T* mine, std::int64_t own) const {
    const std::int64_t rows = s_.groups * s_.out_channels, elements = s_.in_channels * kernel_;
    const auto size = static_cast<std::int64_t>(size_of(out_dtype_));
    std::byte* const out = block.out();
    split_work(block.run().pool, rows, rows * elements, mine, own,
               [&](std::int64_t begin, std::int64_t end, T* row) {
                 for (std::int64_t r = begin; r < end; ++r) {
                   gather_row(sum, r / s_.out_channels, r % s_.out_channels, row);
                   store_tile(table_, kComputeOf<T>, out_dtype_, out + r * elements * size, row, nullptr,
                              elements, block.key(stochastic_), static_cast<std::uint64_t>(r * elements));
                 }
               });
  }

  void gather_row(const T* sum, std::int64_t g, std::int64_t o, T* row) const {
    for (std::int64_t tap = 0; tap < num_taps(); ++tap)
      for (std::int64_t z = 0; z < together_; ++z) {
        const T* from = sum + ((g * num_taps() + tap) * s_.out_channels + o) * lanes() + z * s_.in_channels;
        T* const to = row + tap * together_ + z;
        for (std::int64_t c = 0; c < s_.in_channels; ++c) to[c * kernel_] = from[c];
      }
  }

  const kernels::KernelTable& table_;
  ConvShape s_;
  RowTiles tiles_;
  DType in_dtype_, cotangent_dtype_, out_dtype_;
  bool stochastic_;
  std::int64_t inputs_, outputs_, kernel_;
  Spatial extent_{}, pitch_{};  ///< Positions of an image with padding, and elements between them.
  std::array<std::vector<bool>, kSpatialAxes> used_;
  std::int64_t image_ = 0, together_ = 1;
  std::vector<std::int64_t> taps_, positions_;  ///< Offsets in the image.
};

}  // namespace

BlockKernel conv_weight_grad_kernel(const EvalSpec& spec, const ConvShape& shape) {
  if (spec.inputs[0]->dtype == DType::kFloat64) return WeightGradient<double>(spec, shape);
  return WeightGradient<float>(spec, shape);
}

}  // namespace popsr
