#include "popsr/ops/loops/elementwise_pass.h"

#include <cstring>

#include "popsr/exec/block_kernel.h"

namespace popsr {

using kernels::Compute;
using kernels::NoiseKey;

namespace {

constexpr std::size_t kTileBytes = kTile * sizeof(double);
/// Rows at least this long are walked one by one; shorter ones are gathered into tiles.
constexpr std::int64_t kLongRow = 512;

/// Bytes of a tile of an element that rows repeat. It is short, because it is filled for each row, except for
/// rows of kLongRepetition elements.
constexpr std::int64_t kRepeatedBytes = 512;
constexpr std::int64_t kLongRepetition = 4 * kTile;

}  // namespace

std::size_t ElementwisePass::scratch_bytes(const ElementwiseLoop& loop) {
  return (loop.operands.size() + 3) * kTileBytes;
}

void* ElementwisePass::tile(std::size_t j) { return tiles_ + j * kTileBytes; }

void ElementwisePass::run(const LoopNest& nest, const std::byte* const* in, std::byte* out,
                          std::int64_t begin, std::int64_t end, const double* p, const NoiseKey* key) {
  out_ = out;
  p_ = p;
  key_ = key;
  filled_ = {};
  if (nest.rank() > 1 && nest.extent(0) < kLongRow) {
    gathered(nest, in, begin, end);
  } else {
    rows(nest, in, begin, end);
  }
}

/// Runs row by row without conversions: the kernel writes the output. An element that a row repeats is one
/// number for the kernel, or fills a short tile, which the kernel combines with the row piece by piece.
void ElementwisePass::direct_rows(const LoopNest& nest, const std::byte* const* in, std::int64_t begin,
                                  std::int64_t end) {
  const bool number = loop_.number_loop != nullptr && nest.stride(0, 1) == 0 && nest.stride(0, 0) != 0;
  bool repeats = false;
  for (std::size_t j = 0; j < count(); ++j) repeats = repeats || (nest.stride(0, j) == 0 && !number);
  const auto loop = number ? loop_.number_loop : loop_.loop;
  NestPosition at(nest, begin);
  while (begin < end) {
    const std::int64_t row = nest.extent(0), rows = repeats ? 0 : at.rows_ahead((end - begin) / row);
    const std::int64_t n = rows > 0 ? rows * row : std::min(at.left_in_row(), end - begin);
    if (repeats)
      repeated_pieces(nest, in, at, begin, n);
    else
      some_rows(nest, in, at, begin, std::max<std::int64_t>(rows, 1), rows > 0 ? row : n, loop);
    begin += n;
    rows > 0 ? at.move_to(begin, n) : at.advance(n);
  }
}

/// n elements of rows that are one step apart.
void ElementwisePass::some_rows(const LoopNest& nest, const std::byte* const* in, const NestPosition& at,
                                std::int64_t begin, std::int64_t rows, std::int64_t n,
                                kernels::ElementwiseFn loop) {
  const auto size = static_cast<std::int64_t>(popsr::size_of(loop_.out_dtype));
  std::byte* out = out_ + begin * size;
  std::array<const std::byte*, kMaxOperands> from = {};
  std::array<std::int64_t, kMaxOperands> step = {};
  for (std::size_t j = 0; j < count(); ++j) {
    from[j] = in[j] + at.offset(j);
    step[j] = nest.rank() > 1 ? nest.stride(1, j) : 0;
  }
  for (std::int64_t r = 0; r < rows; ++r, out += n * size) {
    for (std::size_t j = 0; j < count(); ++j) args_[j] = std::exchange(from[j], from[j] + step[j]);
    loop(out, nullptr, args_.data(), n, p_);
  }
}

/// n elements of a row; an element that is repeated fills a tile.
void ElementwisePass::repeated_pieces(const LoopNest& nest, const std::byte* const* in,
                                      const NestPosition& at, std::int64_t begin, std::int64_t n) {
  const auto size = static_cast<std::int64_t>(popsr::size_of(loop_.out_dtype));
  const std::int64_t piece = nest.extent(0) < kLongRepetition ? kRepeatedBytes / size : kTile;
  for (std::size_t j = 0; j < count(); ++j) {
    const std::byte* const src = in[j] + at.offset(j);
    nest.stride(0, j) == 0 ? repeat(j, src, piece) : load(j, src, n);
  }
  for (std::int64_t i = 0; i < n; i += piece) {
    loop_.loop(out_ + (begin + i) * size, nullptr, args_.data(), std::min(piece, n - i), p_);
    for (std::size_t j = 0; j < count(); ++j) {
      if (nest.stride(0, j) != 0) args_[j] = static_cast<const std::byte*>(args_[j]) + piece * size;
    }
  }
}

/// Row by row of the one operand, into the output.
void ElementwisePass::converted_rows(const LoopNest& nest, const std::byte* in, std::int64_t begin,
                                     std::int64_t end) {
  const auto size = static_cast<std::int64_t>(popsr::size_of(loop_.out_dtype));
  NestPosition at(nest, begin);
  while (begin < end) {
    const std::int64_t n = std::min(at.left_in_row(), end - begin);
    convert(0, out_ + begin * size, in + at.offset(0), n);
    begin += n;
    at.advance(n);
  }
}

/// Fills n elements of an operand's tile with one as it is stored.
void ElementwisePass::repeat(std::size_t j, const std::byte* src, std::int64_t n) {
  if (filled_[j] == src) return;
  filled_[j] = src;
  args_[j] = tile(j);
  const auto fill = [&]<class Word>(Word value) {
    std::memcpy(&value, src, sizeof(Word));
    std::fill_n(static_cast<Word*>(tile(j)), n, value);
  };
  switch (loop_.operands[j].size) {
    case 1:
      return fill(std::uint8_t{});
    case 2:
      return fill(std::uint16_t{});
    case 4:
      return fill(std::uint32_t{});
    default:
      return fill(std::uint64_t{});
  }
}

/// Row by row: operands are pointers into rows, or one element for the whole row.
void ElementwisePass::rows(const LoopNest& nest, const std::byte* const* in, std::int64_t begin,
                           std::int64_t end) {
  if (loop_.form.long_ranges) return direct_rows(nest, in, begin, end);
  if (loop_.form.converts && nest.stride(0, 0) == loop_.operands[0].size)
    return converted_rows(nest, in[0], begin, end);
  NestPosition at(nest, begin);
  while (begin < end) {
    const std::int64_t n = std::min({at.left_in_row(), end - begin, kTile});
    for (std::size_t j = 0; j < count(); ++j) {
      const std::byte* src = in[j] + at.offset(j);
      nest.stride(0, j) == 0 ? broadcast(j, src, nest.extent(0)) : load(j, src, n);
    }
    compute(begin, n);
    begin += n;
    at.advance(n);
  }
}

/// Elements of a tile of short rows: whole rows, and if the next dimension is short all of it, so that
/// operands which it repeats are constant throughout.
std::int64_t tile_of(const LoopNest& nest) {
  const std::int64_t row = nest.extent(0), plane = row * nest.extent(1);
  return plane <= kTile && plane >= kTile / 4 ? plane : kTile / row * row;
}

/// Short rows: tiles of several, into which operands that are not in the output's order are gathered.
void ElementwisePass::gathered(const LoopNest& nest, const std::byte* const* in, std::int64_t begin,
                               std::int64_t end) {
  std::array<bool, kMaxOperands> dense = {};
  for (std::size_t j = 0; j < count(); ++j) dense[j] = nest.contiguous(j, loop_.operands[j].size);
  NestPosition at(nest, begin);
  const std::int64_t tile = tile_of(nest);
  for (std::int64_t n = std::min(tile - begin % tile, end - begin); begin < end;) {
    for (std::size_t j = 0; j < count(); ++j) {
      dense[j] ? load(j, in[j] + begin * loop_.operands[j].size, n) : gather(j, nest, in[j], at, n);
    }
    compute(begin, n);
    begin += n;
    at.move_to(begin, n);
    n = std::min(tile, end - begin);
  }
}

void ElementwisePass::gather(std::size_t j, const LoopNest& nest, const std::byte* base,
                             const NestPosition& start, std::int64_t n) {
  const ElementwiseOperand& operand = loop_.operands[j];
  auto* const staged = static_cast<std::byte*>(operand.direct ? tile(j) : tile(count() + 2));
  const std::int64_t step = nest.stride(0, j);
  const std::int64_t left = (nest.extent(1) - start.index(1)) * nest.extent(0);
  const bool regular = start.index(0) == 0 && n <= left;  // one step from row to row
  const bool repeats = regular && nest.stride(1, j) == 0;
  const std::byte* const first = base + start.offset(j);
  if (repeats && filled_[j] == first && filled_size_[j] >= n) return;  // from the tile before
  filled_[j] = repeats ? first : nullptr;
  filled_size_[j] = n;
  if (regular && step == 0 && n % nest.extent(0) == 0) {
    const std::array<std::int64_t, 2> shape = {n / nest.extent(0), nest.extent(0)};
    const std::array<std::int64_t, 2> strides = {nest.stride(1, j) / operand.size, 0};
    loop_.kernels.gather_strided(staged, first, 2, shape.data(), strides.data(),
                                 static_cast<int>(operand.size));
    return load(j, staged, n);
  }
  copy_range(nest, staged, kContiguous, base, j, operand.size, start, n);
  load(j, staged, n);
}

void ElementwisePass::broadcast(std::size_t j, const std::byte* src, std::int64_t row) {
  if (filled_[j] == src) return;
  filled_[j] = src;
  args_[j] = tile(j);
  const std::int64_t n = std::min(kTile, row);
  std::uint64_t value = 0;
  convert(j, &value, src, 1);
  const std::int64_t step = 0;
  loop_.kernels.gather_strided(tile(j), &value, 1, &n, &step,
                               static_cast<int>(popsr::size_of(loop_.compute)));
}

void ElementwisePass::load(std::size_t j, const std::byte* src, std::int64_t n) {
  if (loop_.operands[j].direct) {
    args_[j] = src;
    return;
  }
  convert(j, tile(j), src, n);
  args_[j] = tile(j);
}

/// Elements to the compute type; of truth at most kTile.
void ElementwisePass::convert(std::size_t j, void* dst, const std::byte* src, std::int64_t n) const {
  const ElementwiseOperand& operand = loop_.operands[j];
  if (!operand.truth) return load_tile(loop_.kernels, operand.dtype, loop_.compute, dst, src, n);
  alignas(64) std::array<std::byte, kTile> truth;
  load_tile(loop_.kernels, operand.dtype, Compute::kBool, truth.data(), src, n);
  load_tile(loop_.kernels, DType::kBool, loop_.compute, dst, truth.data(), n);
}

void ElementwisePass::compute(std::int64_t begin, std::int64_t n) {
  std::byte* const out = out_ + begin * static_cast<std::int64_t>(popsr::size_of(loop_.out_dtype));
  const bool in_place = !is_narrow_float(loop_.out_dtype) && compute_of(loop_.out_dtype) == loop_.compute;
  void* const hi = in_place ? static_cast<void*>(out) : tile(count());
  void* const lo = loop_.form.needs_lo ? tile(count() + 1) : nullptr;
  const void* result = hi;
  if (loop_.body != nullptr) {
    loop_.body({loop_.kernels, loop_.compute, hi, lo, {args_.data(), count()}, n, p_});
  } else if (loop_.loop != nullptr) {
    loop_.loop(hi, lo, args_.data(), n, p_);
  } else {
    result = args_[0];
  }
  store_tile(loop_.kernels, loop_.compute, loop_.out_dtype, out, result, static_cast<const float*>(lo), n,
             key_, first_ + static_cast<std::uint64_t>(begin));
}

}  // namespace popsr
