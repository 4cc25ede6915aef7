// AdamW (I. Loshchilov, F. Hutter, 2019) in one pass over memory: a tile of w, g, m and v is widened to the
// compute type and updated there; the roundings are sr_apply's, of w + update and of the new moments.
#include "popsr/kernels/level/convert/convert.h"
#include "popsr/kernels/level/round/sr.h"
#include "popsr/kernels/level/round/sr_tiles-inl.h"

namespace popsr::kernels {
namespace {

constexpr std::int64_t kTile = 512;

/// Scalars in the compute type.
template <class T>
struct Scalars {
  T beta1, one_less_beta1, beta2, one_less_beta2, decay, step_size, root_scale, eps;

  explicit Scalars(const SrAdamw& s)
      : beta1(static_cast<T>(s.beta1)),
        one_less_beta1(static_cast<T>(s.one_less_beta1)),
        beta2(static_cast<T>(s.beta2)),
        one_less_beta2(static_cast<T>(s.one_less_beta2)),
        decay(static_cast<T>(s.decay)),
        step_size(static_cast<T>(s.step_size)),
        root_scale(static_cast<T>(s.root_scale)),
        eps(static_cast<T>(s.eps)) {}
};

template <class T>
inline constexpr FloatFormat kNative = sizeof(T) == sizeof(float) ? FloatFormat::kF32 : FloatFormat::kF64;

[[gnu::always_inline]] inline float square_root(float x) { return __builtin_sqrtf(x); }
[[gnu::always_inline]] inline double square_root(double x) { return __builtin_sqrt(x); }

/// Computes the new m and v, and the increment of w.
template <class T>
void step_tile(const Scalars<T>& s, T* update, const T* w, const T* g, T* m, T* v, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const T new_m = s.beta1 * m[i] + s.one_less_beta1 * g[i];
    const T new_v = s.beta2 * v[i] + (s.one_less_beta2 * g[i]) * g[i];
    const T root = square_root(new_v) * s.root_scale + s.eps;
    update[i] = s.decay * w[i] + (s.step_size * new_m) / root;
    m[i] = new_m;
    v[i] = new_v;
  }
}

/// The numbers of a tile: the array itself where it holds the compute type, else `buffer`.
template <class T>
T* widen_tile(T* buffer, void* in, FloatFormat format, std::int64_t n) {
  if (format == kNative<T>) return static_cast<T*>(in);
  if constexpr (sizeof(T) == sizeof(float)) {
    if (size_of(format) < 4) return widen_floats(format, buffer, in, n), buffer;
  }
  double numbers[kSrTile];
  for (std::int64_t done = 0; done < n; done += kSrTile) {
    const std::int64_t count = n - done < kSrTile ? n - done : kSrTile;
    kSrLoad[format](numbers, static_cast<const char*>(in) + done * size_of(format), count);
    for (std::int64_t i = 0; i < count; ++i) buffer[done + i] = static_cast<T>(numbers[i]);
  }
  return buffer;
}

/// One array of a tile, and the key of its roundings.
struct Part {
  void* data;
  FloatFormat format;
  NoiseKey key;
};

/// part = SR(part + change), or SR(change).
template <class T>
void round_part(const Part& part, SrOp op, const T* change, std::uint64_t first, std::int64_t n) {
  const bool adds = op == SrOp::kAdd;
  SrCall call;
  call.op = op;
  call.rounding.format = part.format;
  call.rounding.key = part.key;
  call.rounding.first = first;
  call.out = part.data;
  call.in[0] = adds ? part.data : change;
  call.formats[0] = adds ? part.format : kNative<T>;
  call.in[1] = adds ? change : nullptr;
  call.formats[1] = kNative<T>;
  call.n = n;
  sr_apply(call);
}

template <class T>
void run(const SrAdamw& step) {
  const Scalars<T> scalars(step);
  alignas(64) T buffers[4][kTile];
  alignas(64) T update[kTile];
  char* const arrays[4] = {static_cast<char*>(step.w), static_cast<char*>(const_cast<void*>(step.g)),
                           static_cast<char*>(step.m), static_cast<char*>(step.v)};
  for (std::int64_t done = 0; done < step.n; done += kTile) {
    const std::int64_t n = step.n - done < kTile ? step.n - done : kTile;
    const std::uint64_t first = step.first + static_cast<std::uint64_t>(done);
    char* at[4];
    T* values[4];
    for (int i = 0; i < 4; ++i) {
      at[i] = arrays[i] + done * size_of(step.formats[i]);
      values[i] = widen_tile(buffers[i], at[i], step.formats[i], n);
    }
    step_tile(scalars, update, values[0], values[1], values[2], values[3], n);
    round_part<T>({at[0], step.formats[0], step.keys[0]}, SrOp::kAdd, update, first, n);
    for (int i = 2; i < 4; ++i) {
      if (step.formats[i] == kNative<T>) continue;
      round_part<T>({at[i], step.formats[i], step.keys[i - 1]}, SrOp::kCast, values[i], first, n);
    }
  }
}

}  // namespace

void sr_adamw(const SrAdamw& step) {
  bool wide = false;
  for (const FloatFormat format : step.formats) wide |= format == FloatFormat::kF64;
  if (wide) {
    run<double>(step);
  } else {
    run<float>(step);
  }
}

}  // namespace popsr::kernels
