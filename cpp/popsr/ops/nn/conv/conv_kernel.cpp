// Convolution and transposed convolution: packed weights against images (conv_sweep.h).
#include "popsr/ops/nn/conv/conv_kernel.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "popsr/base/threads/thread_pool.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/nn/conv/conv_columns.h"
#include "popsr/ops/nn/conv/image.h"
#include "popsr/ops/nn/conv/scratch.h"
#include "popsr/ops/nn/conv/sweep.h"

namespace popsr {
namespace {

using kernels::ConvArgs;

/// Bytes of packed weights, and of results, that one product handles at a time. Decide speed only.
constexpr std::int64_t kRowBytes = std::int64_t{1} << 18, kResultBytes = std::int64_t{1} << 17;
/// Number of columns from which on weights are packed. Decides speed only.
constexpr std::int64_t kPackColumns = 256;
/// Chains of more steps are cut into blocks, which kernels::ConvLinesArgs does not do.
constexpr std::int64_t kMostLineSteps = 4096;

/// Scratch of a thread.
template <class T>
struct Buffers {
  T* image;
  T* columns;
  T* wide;    ///< Input of a channel, where it needs a conversion.
  T* result;  ///< Result of a product.
  T* box;     ///< Results of all phases, where they need a conversion.
};

/// One tile of positions of one group of one sample, or of some samples.
template <class T>
struct Unit {
  std::int64_t samples;
  const std::byte* in;      ///< Input of the group.
  const T* weights;         ///< Weights of the group.
  std::int64_t weight_row;  ///< Row stride, as ConvArgs::a_row.
  std::byte* out;           ///< Output of the group.
  std::int64_t origin;      ///< First position along the tiled axis,
  std::int64_t begin, end;  ///< its first output, and the one after its last.
  std::int64_t element;     ///< Number of the group's first output in its block.
  double factor;
  const kernels::NoiseKey* key;
};

template <class T>
class Conv {
 public:
  Conv(const EvalSpec& spec, ConvSweep sweep, ConvOptions options)
      : table_(spec.kernels),
        sweep_(std::move(sweep)),
        columns_(conv_columns(sweep_, sizeof(T))),
        options_(std::move(options)),
        tiles_(table_, sweep_.rows),
        in_dtype_(spec.inputs[0]->dtype),
        weight_dtype_(spec.inputs[1]->dtype),
        out_dtype_(spec.outputs[0].dtype),
        stochastic_(spec.stochastic && is_narrow_float(out_dtype_)),
        direct_(has_type<T>(out_dtype_) && !options_.factor),
        inputs_(product(sweep_.in)),
        outputs_(product(sweep_.out)) {
    plan_rows();
  }

  void operator()(const BlockRun& run) const {
    if (sweep_.samples * sweep_.groups * sweep_.rows * outputs_ == 0) return;
    std::vector<double> factors;
    if (options_.factor) {
      for_each_block(run, [&](const Block& block) { factors.push_back(options_.factor(block)); });
    }
    // Blocks of one weight share its packed copy.
    const std::int64_t together = run.in_stride[1] == 0 ? run.blocks : 1;
    for (std::int64_t b = 0; b < run.blocks; b += together) some_blocks(run, b, together, factors);
  }

 private:
  /// Elements between two positions of the tiled axis in the output.
  std::int64_t inner() const {
    std::int64_t elements = 1;
    for (std::size_t d = sweep_.tile.axis + 1; d < kSpatialAxes; ++d) elements *= sweep_.out[d];
    return elements;
  }

  /// Number of rows that are computed at a time, and their scratch.
  void plan_rows() {
    std::int64_t steps = 1;
    for (const ConvPhase& phase : sweep_.chains.phases)
      steps = std::max<std::int64_t>(steps, std::ssize(phase.offset));
    // Most columns of a product.
    const std::int64_t width = std::max(swept_positions(sweep_.tile.count, sweep_.image.pitch),
                                        columns_.samples * product(sweep_.tile.count));
    constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
    const std::int64_t rows = std::min(kRowBytes / (kSize * steps), kResultBytes / (kSize * width));
    row_step_ = std::clamp<std::int64_t>(rows / table_.conv_rows, 1, std::max<std::int64_t>(tiles_.tiles, 1));
    const std::int64_t most = std::min(sweep_.rows, row_step_ * table_.conv_rows);
    result_ = padded<T>(most * width);
    box_ =
        std::min(sweep_.tile.size * sweep_.chains.out_step[sweep_.tile.axis], sweep_.out[sweep_.tile.axis]) *
        inner();
    boxes_ = direct_ ? 0 : padded<T>(most * box_) * std::max<std::int64_t>(columns_.samples, 1);
    image_ = padded<T>(sweep_.image_elements());
    dense_ = padded<T>(columns_.elements);
    wide_ = has_type<T>(in_dtype_) ? 0 : padded<T>(inputs_);
  }

  std::int64_t own_elements() const { return image_ + dense_ + wide_ + result_ + boxes_; }
  Buffers<T> buffers(T* own) const {
    T* const wide = own + image_ + dense_;
    return {own, own + image_, wide, wide + wide_, wide + wide_ + result_};
  }

  // Weights

  std::int64_t group_weights() const { return sweep_.rows * sweep_.chains.steps; }

  /// True if each row of the weight lies in the order of the steps, so that a product can read it as it is.
  bool in_order() const {
    const auto taps = std::ssize(sweep_.chains.phases.front().taps);
    return has_type<T>(weight_dtype_) && sweep_.chains.phases.size() == 1 && taps == sweep_.weight.kernel &&
           sweep_.weight.channel == taps;
  }

  /// Packs the rows of a tile of a phase.
  void pack_tile(const ConvPhase& phase, std::int64_t tile, const T* weight, T* packed) const {
    const std::int64_t rows = tiles_.size(tile), steps = std::ssize(phase.offset);
    T* to = packed + sweep_.rows * phase.weights + tiles_.first(tile) * steps;
    const T* from = weight + tiles_.first(tile) * sweep_.weight.row;
    const std::int64_t taps = std::ssize(phase.taps);
    if (taps == sweep_.weight.kernel && sweep_.weight.channel == taps)
      return pack(table_, to, rows, from, 1, sweep_.weight.row, steps);
    for (std::int64_t c = 0; c < sweep_.channels; ++c, from += sweep_.weight.channel, to += taps * rows) {
      if (taps == sweep_.weight.kernel) {
        pack(table_, to, rows, from, 1, sweep_.weight.row, taps);
        continue;
      }
      for (std::int64_t i = 0; i < taps; ++i)
        for (std::int64_t r = 0; r < rows; ++r)
          to[i * rows + r] = from[r * sweep_.weight.row + phase.taps[static_cast<std::size_t>(i)]];
    }
  }

  void pack_weights(ThreadPool& pool, const std::byte* weight, T* packed, T* wide) const {
    const std::int64_t elements = sweep_.weight_elements();
    const T* from = reinterpret_cast<const T*>(weight);
    if (!has_type<T>(weight_dtype_)) {
      const auto size = static_cast<std::int64_t>(size_of(weight_dtype_));
      parallel_for(pool, elements, kTile, elements, [&](std::int64_t begin, std::int64_t end) {
        widen(table_, weight_dtype_, wide + begin, weight + begin * size, end - begin);
      });
      from = wide;
    }
    const auto phases = std::ssize(sweep_.chains.phases);
    const std::int64_t units = sweep_.groups * phases * tiles_.tiles;
    const std::int64_t group = sweep_.rows * sweep_.channels * sweep_.weight.kernel;
    parallel_for(pool, units, 1, elements, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t u = begin; u < end; ++u) {
        const std::int64_t g = u / tiles_.tiles / phases;
        pack_tile(sweep_.chains.phases[static_cast<std::size_t>(u / tiles_.tiles % phases)], u % tiles_.tiles,
                  from + g * group, packed + g * group_weights());
      }
    });
  }

  // Images and products

  /// Blocks that have one weight.
  void some_blocks(const BlockRun& run, std::int64_t block, std::int64_t blocks,
                   const std::vector<double>& factors) const {
    const std::int64_t columns = blocks * sweep_.samples * product(sweep_.chains.phases[0].count);
    const bool packs = (columns >= kPackColumns && sweep_.rows > 1) || !in_order();
    const std::int64_t packed = packs ? padded<T>(sweep_.groups * group_weights()) : 0;
    const std::int64_t wide = has_type<T>(weight_dtype_) ? 0 : padded<T>(sweep_.weight_elements());
    T* const weights = scratch<T>(packed + wide + own_elements());
    const std::byte* const given = Block(run, block).in(1);
    if (packs) pack_weights(run.pool, given, weights, weights + packed);
    const T* const used = packs ? weights : reinterpret_cast<const T*>(given);
    const std::int64_t weight_row = packs ? 0 : sweep_.weight.row;
    const std::int64_t together = samples_together(run, blocks);
    const std::int64_t parts = (sweep_.samples + together - 1) / together;
    const std::int64_t units = blocks * parts * sweep_.groups * sweep_.tiles();
    const std::int64_t work =
        blocks * sweep_.samples * sweep_.groups * group_weights() * product(sweep_.chains.phases[0].count);
    split_work(run.pool, units, work, weights + packed + wide, own_elements(),
               [&](std::int64_t begin, std::int64_t end, T* own) {
                 for (std::int64_t u = begin; u < end; ++u)
                   run_unit(make_unit(run, block, u, together, used, weight_row, factors), buffers(own));
               });
  }

  /// Samples of a unit: fewer than fit, where threads would be without.
  std::int64_t samples_together(const BlockRun& run, std::int64_t blocks) const {
    if (columns_.samples <= 1) return 1;
    const std::int64_t all = blocks * sweep_.groups * sweep_.samples;
    return std::clamp<std::int64_t>(all / run.pool.threads(), 1, columns_.samples);
  }

  Unit<T> make_unit(const BlockRun& run, std::int64_t block, std::int64_t number, std::int64_t together,
                    const T* weights, std::int64_t weight_row, const std::vector<double>& factors) const {
    const std::int64_t parts = (sweep_.samples + together - 1) / together;
    const std::int64_t part = number / sweep_.tiles();  // of all groups of all samples of all blocks
    const std::int64_t group = part % sweep_.groups;
    const std::int64_t sample = part / sweep_.groups % parts * together;
    const std::int64_t in_block = sample * sweep_.groups + group;
    const Block own(run, block + part / (parts * sweep_.groups));
    const std::int64_t origin = number % sweep_.tiles() * sweep_.tile.size,
                       step = sweep_.chains.out_step[sweep_.tile.axis];
    const std::int64_t element = in_block * sweep_.rows * outputs_;
    return {std::min(together, sweep_.samples - sample),
            own.in(0) + bytes(in_dtype_, in_block * sweep_.channels * inputs_),
            weights + group * group_weights(),
            weight_row,
            own.out() + bytes(out_dtype_, element),
            origin,
            origin * step,
            std::min((origin + sweep_.tile.size) * step, sweep_.out[sweep_.tile.axis]),
            element,
            factors.empty() ? 1.0 : factors[static_cast<std::size_t>(own.index())],
            own.key(stochastic_)};
  }

  static std::int64_t bytes(DType dtype, std::int64_t elements) {
    return elements * static_cast<std::int64_t>(size_of(dtype));
  }

  /// One sample of a unit.
  Unit<T> sample_of(Unit<T> unit, std::int64_t sample) const {
    const std::int64_t outputs = sample * sweep_.groups * sweep_.rows * outputs_;
    unit.in += bytes(in_dtype_, sample * sweep_.groups * sweep_.channels * inputs_);
    unit.out += bytes(out_dtype_, outputs);
    unit.element += outputs;
    unit.samples = 1;
    return unit;
  }

  /// The image of the unit: the input itself, or a copy.
  const T* image(const Unit<T>& unit, const Buffers<T>& at) const {
    if (sweep_.image.in_place)
      return reinterpret_cast<const T*>(unit.in) + unit.origin * sweep_.image.pitch[sweep_.tile.axis];
    const InsideRange range = tile_input(sweep_, unit.origin);
    std::int64_t line = 1;
    for (std::size_t d = sweep_.tile.axis + 1; d < kSpatialAxes; ++d) line *= sweep_.in[d];
    const std::int64_t length = range.end - range.begin;
    const std::int64_t elements = length == sweep_.in[sweep_.tile.axis] ? inputs_ : length * line;
    const auto size = static_cast<std::int64_t>(size_of(in_dtype_));
    T* to = at.image;
    for (std::int64_t c = 0; c < sweep_.channels; ++c) {
      const std::byte* from = unit.in + c * inputs_ * size;
      if (has_type<T>(in_dtype_)) {
        to = fill_channel(table_, sweep_, reinterpret_cast<const T*>(from), 0, unit.origin, to);
        continue;
      }
      widen(table_, in_dtype_, at.wide, from + range.begin * line * size, elements);
      to = fill_channel(table_, sweep_, static_cast<const T*>(at.wide), range.begin, unit.origin, to);
    }
    return at.image;
  }

  void run_unit(const Unit<T>& unit, const Buffers<T>& at) const {
    if (is_plane()) {
      return convolve_plane<T>(table_, {.lines = sweep_.in[1],
                                        .n = sweep_.in[2],
                                        .begin = unit.begin,
                                        .end = unit.end,
                                        .a = unit.weights,
                                        .x = unit.in,
                                        .c = unit.out});
    }
    const bool is_dense = columns_.samples > 0;
    const T* const x = is_dense ? columns(unit, at) : image(unit, at);
    if (is_by_lines()) return run_lines(unit, x);
    for (std::int64_t tile = 0; tile < tiles_.tiles; tile += row_step_) {
      const std::int64_t last = std::min(tile + row_step_, tiles_.tiles);
      for (std::size_t phase = 0; phase < sweep_.chains.phases.size(); ++phase) {
        if (is_dense) {
          run_dense_phase(unit, phase, x, tile, last, at);
        } else {
          run_phase(unit, sweep_.chains.phases[phase], x, tile, last, at);
        }
      }
      if (direct_) continue;
      for (std::int64_t s = 0; s < unit.samples; ++s) store(sample_of(unit, s), tile, last, box(at, s));
    }
  }

  /// One output channel, as in depthwise convolutions, is computed where it belongs.
  bool is_by_lines() const {
    return sweep_.rows == 1 && direct_ && sweep_.chains.phases.size() == 1 &&
           sweep_.chains.steps <= kMostLineSteps;
  }

  /// One input channel too, and three by three steps with zeros around it, as kernels::ConvPlaneArgs has it.
  bool is_plane() const {
    const ConvImage& image = sweep_.image;
    if (!is_by_lines() || !has_type<T>(in_dtype_) || sweep_.chains.steps != 9 || sweep_.channels != 1)
      return false;
    if (sweep_.in != sweep_.out || sweep_.in[0] != 1 || sweep_.tile.axis != 1) return false;
    const std::vector<std::int64_t>& offset = sweep_.chains.phases.front().offset;
    for (std::int64_t i = 0; i < 9; ++i)
      if (offset[static_cast<std::size_t>(i)] != i / 3 * image.pitch[1] + i % 3) return false;
    return image.step == Spatial{1, 1, 1} && image.base[1] == -1 && image.base[2] == -1;
  }

  void run_lines(const Unit<T>& unit, const T* x) const {
    const ConvPhase& phase = sweep_.chains.phases.front();
    const Spatial count = count_of(unit, phase);
    T* const to = results(unit, 0, nullptr);
    for (std::int64_t plane = 0; plane < count[0]; ++plane) {
      convolve_lines<T>(table_, {.k = std::ssize(phase.offset),
                                 .lines = count[1],
                                 .n = count[2],
                                 .a = unit.weights,
                                 .x = x + plane * sweep_.image.pitch[0],
                                 .offset = phase.offset.data(),
                                 .x_line = sweep_.image.pitch[1],
                                 .c_line = sweep_.out[2],
                                 .c = to + plane * sweep_.out[1] * sweep_.out[2]});
    }
  }

  /// Results of the first tiles of rows of a sample that need a conversion.
  T* box(const Buffers<T>& at, std::int64_t sample) const {
    return at.box + sample * (boxes_ / std::max<std::int64_t>(columns_.samples, 1));
  }

  /// Elements between the rows of a result.
  std::int64_t row_pitch(const Unit<T>& unit) const {
    return direct_ ? outputs_ : (unit.end - unit.begin) * inner();
  }

  /// The place of a unit's first result of a tile of rows.
  T* results(const Unit<T>& unit, std::int64_t tile, T* box) const {
    if (!direct_) return box;
    return reinterpret_cast<T*>(unit.out) + tiles_.first(tile) * outputs_ + unit.begin * inner();
  }

  /// Positions of a phase in a unit.
  Spatial count_of(const Unit<T>& unit, const ConvPhase& phase) const {
    const std::size_t axis = sweep_.tile.axis;
    Spatial count = phase.count;
    const std::int64_t step = sweep_.chains.out_step[axis];
    count[axis] = std::max<std::int64_t>((unit.end - unit.begin - phase.first[axis] + step - 1) / step, 0);
    return count;
  }

  ConvArgs product_of(const Unit<T>& unit, const ConvPhase& phase, std::int64_t first,
                      std::int64_t last) const {
    return {.m = sweep_.rows,
            .k = std::ssize(phase.offset),
            .first_tile = first,
            .last_tile = last,
            .a = unit.weights + sweep_.rows * phase.weights,
            .a_row = unit.weight_row};
  }

  /// Rows of tiles first .. last-1 of a phase, over the image `x`.
  void run_phase(const Unit<T>& unit, const ConvPhase& phase, const T* x, std::int64_t first,
                 std::int64_t last, const Buffers<T>& at) const {
    const Spatial count = count_of(unit, phase);
    if (*std::ranges::min_element(count) <= 0) return;
    T* const to = results(unit, first, at.box);
    ConvArgs args = product_of(unit, phase, first, last);
    args.x = x;
    args.offset = phase.offset.data();
    args.n = swept_positions(count, sweep_.image.pitch);
    const bool dense = args.n == product(count) && sweep_.chains.phases.size() == 1;
    args.c_row = dense ? row_pitch(unit) : args.n;
    args.c = dense ? to : at.result;
    convolve<T>(table_, args);
    if (dense) return;
    const std::int64_t rows = tiles_.first(last) - tiles_.first(first);
    scatter(phase, count, at.result, sweep_.image.pitch, args.n, rows, to, row_pitch(unit));
  }

  /// The columns of a unit's samples.
  const T* columns(const Unit<T>& unit, const Buffers<T>& at) const {
    for (std::int64_t s = 0; s < unit.samples; ++s) {
      const T* const x = image(sample_of(unit, s), at);
      for (std::size_t p = 0; p < sweep_.chains.phases.size(); ++p) {
        const ConvPhase& phase = sweep_.chains.phases[p];
        const Spatial count = count_of(unit, phase);
        if (columns_.offset[p].empty() || product(count) == 0) continue;
        T* const to = at.columns + columns_.begin[p] + s * product(count);
        fill_columns(phase, count, sweep_.image.pitch, x, columns_.pitch[p], to);
      }
    }
    return at.columns;
  }

  /// Rows of tiles first .. last-1 of a phase, over the columns `x`.
  void run_dense_phase(const Unit<T>& unit, std::size_t number, const T* x, std::int64_t first,
                       std::int64_t last, const Buffers<T>& at) const {
    const ConvPhase& phase = sweep_.chains.phases[number];
    const Spatial count = count_of(unit, phase);
    const std::int64_t positions = product(count);
    if (positions == 0) return;
    ConvArgs args = product_of(unit, phase, first, last);
    args.x = x + columns_.begin[number];
    args.offset = columns_.offset[number].data();
    args.n = unit.samples * positions;
    args.c = at.result;
    args.c_row = args.n;
    convolve<T>(table_, args);
    const Spatial pitch = {count[1] * count[2], count[2], 1};
    const std::int64_t rows = tiles_.first(last) - tiles_.first(first);
    for (std::int64_t s = 0; s < unit.samples; ++s) {
      T* const to = results(sample_of(unit, s), first, box(at, s));
      scatter(phase, count, at.result + s * positions, pitch, args.n, rows, to, row_pitch(unit));
    }
  }

  /// Moves the results of a phase to their places, without those between lines.
  void scatter(const ConvPhase& phase, const Spatial& count, const T* result, const Spatial& pitch,
               std::int64_t columns, std::int64_t rows, T* to, std::int64_t row_pitch) const {
    const Spatial &step = sweep_.chains.out_step, &first = phase.first;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t x = 0; x < count[0]; ++x)
        for (std::int64_t y = 0; y < count[1]; ++y) {
          const std::int64_t line = (x * step[0] + first[0]) * sweep_.out[1] + y * step[1] + first[1];
          scatter_strided(to + r * row_pitch + line * sweep_.out[2] + first[2], step[2],
                          result + r * columns + x * pitch[0] + y * pitch[1], count[2]);
        }
  }

  /// Rounds rows of tiles first .. last-1, once.
  void store(const Unit<T>& unit, std::int64_t first, std::int64_t last, T* box) const {
    const std::int64_t rows = tiles_.first(last) - tiles_.first(first);
    const std::int64_t outputs = (unit.end - unit.begin) * inner();
    const std::int64_t start = tiles_.first(first) * outputs_ + unit.begin * inner();
    const T factor = static_cast<T>(unit.factor);
    if (options_.factor) std::for_each(box, box + rows * outputs, [factor](T& x) { x *= factor; });
    const auto size = static_cast<std::int64_t>(size_of(out_dtype_));
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t at = start + r * outputs_;
      store_tile(table_, kComputeOf<T>, out_dtype_, unit.out + at * size, box + r * outputs, nullptr, outputs,
                 unit.key, static_cast<std::uint64_t>(unit.element + at));
    }
  }

  const kernels::KernelTable& table_;
  ConvSweep sweep_;
  ConvColumns columns_;
  ConvOptions options_;
  RowTiles tiles_;
  DType in_dtype_, weight_dtype_, out_dtype_;
  bool stochastic_;
  bool direct_;                                                             ///< Results need no conversion.
  std::int64_t inputs_, outputs_;                                           ///< Positions of one channel.
  std::int64_t row_step_ = 1;                                               ///< Tiles of rows at a time.
  std::int64_t box_ = 0;                                                    ///< Most outputs of a tile.
  std::int64_t image_ = 0, dense_ = 0, wide_ = 0, result_ = 0, boxes_ = 0;  ///< Elements of scratch.
};

template <class T>
BlockKernel make_conv(const EvalSpec& spec, const ConvShape& shape, bool transposed, ConvOptions options) {
  const bool wide = has_type<T>(spec.inputs[0]->dtype);
  const auto make = transposed ? conv_transpose_sweep : conv_sweep;
  return Conv<T>(spec, make(shape, wide, sizeof(T)), std::move(options));
}

BlockKernel either(const EvalSpec& spec, const ConvShape& shape, bool transposed, ConvOptions options) {
  return spec.inputs[0]->dtype == DType::kFloat64
             ? make_conv<double>(spec, shape, transposed, std::move(options))
             : make_conv<float>(spec, shape, transposed, std::move(options));
}

}  // namespace

BlockKernel conv_kernel(const EvalSpec& spec, const ConvShape& shape, ConvOptions options) {
  return either(spec, shape, false, std::move(options));
}

BlockKernel conv_transpose_kernel(const EvalSpec& spec, const ConvShape& shape, ConvOptions options) {
  return either(spec, shape, true, std::move(options));
}

}  // namespace popsr
