// The value form: x + y with a coin that belongs to the pair of values, not to a position.
#include "popsr/kernels/level/round/exact/sr_exact.h"
#include "popsr/kernels/level/round/fast/sr_flush-inl.h"
#include "popsr/kernels/level/round/fast/sr_vector_sums-inl.h"
#include "popsr/kernels/level/round/sr.h"
#include "popsr/kernels/level/round/sr_hash-inl.h"

namespace popsr::kernels {
namespace {

/// Input of a step: the first 16 bits of U, or a coin that is 1 where U < 2^63.
template <class Step, bool kEven>
struct Hashed {
  const typename Step::X::Bits* x;
  const typename Step::Y::Bits* y;
  NoiseKey key;
  const std::uint16_t* words;  ///< of operands of 16 bits, drawn before

  [[gnu::always_inline]] typename Step::Word operator()(std::int64_t i) const {
    constexpr int kLost = kEven ? 15 : 0;
    constexpr unsigned kFlip = kEven ? 1 : 0;
    if constexpr (sizeof(*x) == 8) {
      return (hash_64(x[i], y[i], key) >> 48 >> kLost) ^ kFlip;
    } else if constexpr (sizeof(*x) == 4) {
      return (hash_32(x[i], y[i], key.lo) >> 16 >> kLost) ^ kFlip;
    } else {
      return (static_cast<typename Step::Word>(words[i]) >> kLost) ^ kFlip;
    }
  }
};

inline void draw_words(std::uint16_t* words, const std::uint16_t* x, const std::uint16_t* y, NoiseKey key,
                       std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) words[i] = hash_first(x[i], y[i], key.lo);
}

template <class Step, bool kEven>
[[gnu::noinline]] bool guess_tile(FastTile<Step>& tile, const Hashed<Step, kEven>& hashed, std::int64_t n) {
  bool hard = false;
  if constexpr (sizeof(typename FastTile<Step>::Bits) == 2 && kHasVectorSums<Step>) {
    hard = add_vectors<typename VectorSumsOf<Step>::Sums>(tile.out, hashed.x, hashed.y, 0, hashed.words, n,
                                                          false);
  } else {
    hard = step_tile<Step>(tile.out, hashed.x, hashed.y, 0, hashed, n);
  }
  if (hard) mark_tile<Step>(tile.hard, hashed.x, hashed.y, 0, hashed, n);
  return hard;
}

template <class Step, bool kEven>
[[gnu::noinline]] void round_hard(FastTile<Step>& tile, const Hashed<Step, kEven>& hashed, FloatFormat format,
                                  std::int64_t n) {
  using Bits = typename FastTile<Step>::Bits;
  SrRounding rounding;
  rounding.format = format;
  rounding.mode = kEven ? SrMode::kEqual : SrMode::kProportional;
  for (std::int64_t i = 0; i < n; ++i) {
    if (tile.hard[i] == 0) continue;
    const double in[3] = {Step::X::number(hashed.x[i]), Step::Y::number(hashed.y[i]), 0.0};
    const std::uint64_t u = value_noise(hashed.x[i], hashed.y[i], sizeof(Bits), hashed.key);
    tile.out[i] = static_cast<Bits>(round_exactly(SrOp::kAdd, in, 1.0, rounding, u));
  }
}

template <class Step, bool kEven>
void run(const SrValueAdd& call) {
  using Bits = typename FastTile<Step>::Bits;
  const auto* x = static_cast<const Bits*>(call.x);
  const auto* y = static_cast<const Bits*>(call.y);
  auto* out = static_cast<Bits*>(call.out);
  FastTile<Step> tile;
  alignas(64) std::uint16_t words[sizeof(Bits) == 2 ? tile.kElements : 1];
  std::int64_t n = call.stream ? until_aligned(out, sizeof(Bits)) : 0;
  if (n == 0) n = tile.kElements;
  for (std::int64_t done = 0; done < call.n; done += n, n = tile.kElements) {
    if (n > call.n - done) n = call.n - done;
    const Hashed<Step, kEven> hashed = {x + done, y + done, call.key, words};
    if constexpr (sizeof(Bits) == 2) draw_words(words, x + done, y + done, call.key, n);
    bool hard = false;
    {
      [[maybe_unused]] const typename Step::Mode mode;
      hard = guess_tile<Step, kEven>(tile, hashed, n);
    }
    if (hard) round_hard<Step, kEven>(tile, hashed, call.format, n);
    flush_tile(out + done, tile.out, n * static_cast<std::int64_t>(sizeof(Bits)), call.stream);
  }
  if (call.stream) finish_stream();
}

template <class To, class From, bool kEven>
void run_16(const SrValueAdd& call) {
  run<TruncatedStep<To, From, From, true, kEven>, kEven>(call);
}

/// The formats of 8 bits: numbers first, then the tiles of sr_apply.
void run_8(const SrValueAdd& call) {
  const auto* x = static_cast<const std::uint8_t*>(call.x);
  const auto* y = static_cast<const std::uint8_t*>(call.y);
  std::uint64_t u[kFastTile];
  SrCall part;
  part.op = SrOp::kAdd;
  part.rounding.format = part.formats[0] = part.formats[1] = call.format;
  part.rounding.mode = call.biased ? SrMode::kProportional : SrMode::kEqual;
  part.rounding.uniform = u;
  for (std::int64_t done = 0; done < call.n; done += kFastTile) {
    part.n = call.n - done < kFastTile ? call.n - done : kFastTile;
    for (std::int64_t i = 0; i < part.n; ++i) u[i] = value_noise(x[done + i], y[done + i], 1, call.key);
    part.in[0] = x + done;
    part.in[1] = y + done;
    part.out = static_cast<std::uint8_t*>(call.out) + done;
    sr_apply_tiles(part);
  }
}

template <class Bits>
void all_value_bits(std::uint64_t* out, const SrValueAdd& call) {
  const auto* x = static_cast<const Bits*>(call.x);
  const auto* y = static_cast<const Bits*>(call.y);
  for (std::int64_t i = 0; i < call.n; ++i) out[i] = value_noise(x[i], y[i], sizeof(Bits), call.key);
}

}  // namespace

void sr_value_add(const SrValueAdd& call) {
  switch (call.format) {
    case FloatFormat::kF64:
      return call.biased ? run<PairedStep<ToF64, FromF64, false>, false>(call)
                         : run<PairedStep<ToF64, FromF64, true>, true>(call);
    case FloatFormat::kF32:
      return call.biased ? run<PairedStep<ToF32, FromF32, false>, false>(call)
                         : run<PairedStep<ToF32, FromF32, true>, true>(call);
    case FloatFormat::kF16:
      return call.biased ? run_16<ToScaledF16, FromScaledF16, false>(call)
                         : run_16<ToScaledF16, FromScaledF16, true>(call);
    case FloatFormat::kBf16:
      return call.biased ? run_16<ToBf16, FromBf16, false>(call) : run_16<ToBf16, FromBf16, true>(call);
    default:
      return run_8(call);
  }
}

void sr_value_bits(std::uint64_t* out, const SrValueAdd& call) {
  switch (size_of(call.format)) {
    case 8:
      return all_value_bits<std::uint64_t>(out, call);
    case 4:
      return all_value_bits<std::uint32_t>(out, call);
    case 2:
      return all_value_bits<std::uint16_t>(out, call);
    default:
      return all_value_bits<std::uint8_t>(out, call);
  }
}

}  // namespace popsr::kernels
