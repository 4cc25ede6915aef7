#include "popsr/sr/updates.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "popsr/base/cost.h"
#include "popsr/kernels/loader.h"
#include "popsr/sr/walk.h"

namespace popsr::kernels {
namespace {

/// Elements [begin, begin + n) of a weight, of at most one tile and with consecutive numbers.
struct Tile {
  const SrWeight* weight;
  std::int64_t begin;
  std::int64_t n;
  std::uint64_t first;  ///< Number of the first.

  std::byte* at(std::byte* data, int array) const { return data + begin * size_of(weight->formats[array]); }
  const std::byte* at(const std::byte* data, int array) const {
    return data + begin * size_of(weight->formats[array]);
  }
  float* moment() const { return reinterpret_cast<float*>(at(weight->m, 2)); }
};

/// Calls body(tile) for the tiles of all weights, in equal parts on the threads.
template <class Body>
void for_each_tile(std::span<const SrWeight> weights, int threads, const Body& body) {
  std::vector<std::int64_t> ends;  // numbers of tiles
  std::int64_t tiles = 0;
  std::int64_t elements = 0;
  for (const SrWeight& weight : weights) {
    tiles += (weight.n + kRoundingTile - 1) / kRoundingTile;
    elements += weight.n;
    ends.push_back(tiles);
  }
  const int parts = parts_for(elements, threads);
  const auto part_body = [&](int part) {
    const std::int64_t end = tiles * (part + 1) / parts;
    std::int64_t tile = tiles * part / parts;
    auto index = static_cast<std::size_t>(std::ranges::upper_bound(ends, tile) - ends.begin());
    for (; tile < end; ++tile) {
      while (ends[index] <= tile) ++index;
      const SrWeight& weight = weights[index];
      const std::int64_t begin = (tile - (index == 0 ? 0 : ends[index - 1])) * kRoundingTile;
      const std::int64_t last = std::min(begin + kRoundingTile, weight.n);
      for_each_run(weight.runs, begin, last, [&](std::int64_t i, std::int64_t n, std::uint64_t number) {
        body(Tile{&weight, i, n, weight.first + number});
      });
    }
  };
  using Part = decltype(part_body);
  run_parts(
      parts, [](const void* context, int part) { (*static_cast<const Part*>(context))(part); }, &part_body);
}

/// The numbers of a tile: where they are if they are float32, else in `buffer`.
const float* widened(float* buffer, const std::byte* data, FloatFormat format, std::int64_t n) {
  if (format == FloatFormat::kF32) return reinterpret_cast<const float*>(data);
  kernel_table().widen(format, buffer, data, n);
  return buffer;
}

/// The gradient, with the sign that a step descends along.
const float* gradient(float* buffer, const Tile& tile, bool maximize) {
  const SrWeight& weight = *tile.weight;
  const float* const g = widened(buffer, tile.at(weight.g, 1), weight.formats[1], tile.n);
  if (!maximize) return g;
  std::transform(g, g + tile.n, buffer, std::negate<float>());
  return buffer;
}

/// w = SR(w + alpha * update)
void add_scaled(const Tile& tile, double alpha, const void* update, FloatFormat format) {
  const SrWeight& weight = *tile.weight;
  SrCall call;
  call.op = SrOp::kAxpy;
  call.rounding.format = weight.formats[0];
  call.rounding.key = weight.keys[0];
  call.rounding.first = tile.first;
  call.out = tile.at(weight.w, 0);
  call.in[0] = update;
  call.in[1] = call.out;
  call.formats[0] = format;
  call.formats[1] = weight.formats[0];
  call.scalar = alpha;
  call.n = tile.n;
  kernel_table().sr_apply(call);
}

/// out = d + factor * w
void add_decay(float* out, const float* d, double factor, const Tile& tile) {
  float buffer[kRoundingTile];
  const SrWeight& weight = *tile.weight;
  const float* const w = widened(buffer, tile.at(weight.w, 0), weight.formats[0], tile.n);
  const auto decay = static_cast<float>(factor);
  for (std::int64_t i = 0; i < tile.n; ++i) out[i] = d[i] + decay * w[i];
}

void step_tile(const SrSgd& options, const Tile& tile) {
  const SrWeight& weight = *tile.weight;
  if (options.momentum == 0 && options.weight_decay == 0 && !options.maximize) {
    add_scaled(tile, -options.lr, tile.at(weight.g, 1), weight.formats[1]);
    return;
  }
  float buffer[kRoundingTile];
  float decayed[kRoundingTile];
  const float* d = gradient(buffer, tile, options.maximize);
  if (options.weight_decay != 0) {
    add_decay(decayed, d, options.weight_decay, tile);
    d = decayed;
  }
  if (options.momentum == 0) return add_scaled(tile, -options.lr, d, FloatFormat::kF32);
  const auto momentum = static_cast<float>(options.momentum);
  const auto rest = static_cast<float>(1 - options.dampening);
  float* const m = tile.moment();
  if (weight.is_first) {
    std::copy_n(d, tile.n, m);
  } else {
    for (std::int64_t i = 0; i < tile.n; ++i) m[i] = momentum * m[i] + rest * d[i];
  }
  if (!options.nesterov) return add_scaled(tile, -options.lr, m, FloatFormat::kF32);
  for (std::int64_t i = 0; i < tile.n; ++i) buffer[i] = d[i] + momentum * m[i];
  add_scaled(tile, -options.lr, buffer, FloatFormat::kF32);
}

void step_tile(const SrLion& options, const Tile& tile) {
  float buffer[kRoundingTile];
  float direction[kRoundingTile];
  const float* const g = gradient(buffer, tile, options.maximize);
  const auto beta1 = static_cast<float>(options.beta1);
  const auto rest1 = static_cast<float>(1 - options.beta1);
  const auto beta2 = static_cast<float>(options.beta2);
  const auto rest2 = static_cast<float>(1 - options.beta2);
  float* const m = tile.moment();
  const bool is_first = tile.weight->is_first;
  for (std::int64_t i = 0; i < tile.n; ++i) {
    const float kept = is_first ? 0.0F : m[i];
    const float mixed = beta1 * kept + rest1 * g[i];
    direction[i] = static_cast<float>(static_cast<int>(mixed > 0) - static_cast<int>(mixed < 0));
    m[i] = beta2 * kept + rest2 * g[i];
  }
  if (options.weight_decay != 0) add_decay(direction, direction, options.weight_decay, tile);
  add_scaled(tile, -options.lr, direction, FloatFormat::kF32);
}

/// `step`: of the tile's weight.
void step_tile(SrAdamw step, bool maximize, const Tile& tile) {
  const SrWeight& weight = *tile.weight;
  float buffer[kRoundingTile];
  std::copy_n(weight.formats, 4, step.formats);
  std::copy_n(weight.keys, 3, step.keys);
  step.w = tile.at(weight.w, 0);
  step.g = tile.at(weight.g, 1);
  step.m = tile.at(weight.m, 2);
  step.v = tile.at(weight.v, 3);
  if (maximize) {
    step.g = gradient(buffer, tile, true);
    step.formats[1] = FloatFormat::kF32;
  }
  step.first = tile.first;
  step.n = tile.n;
  kernel_table().sr_adamw(step);
}

/// Bytes of one operand.
struct Interval {
  std::uintptr_t begin;
  std::uintptr_t end;
  bool is_written;
};

}  // namespace

SrAdamw adamw_step(const SrAdamwOptions& options, std::uint64_t step) {
  SrAdamw out;
  const auto count = static_cast<double>(step);
  out.beta1 = options.beta1;
  out.one_less_beta1 = 1 - options.beta1;
  out.beta2 = options.beta2;
  out.one_less_beta2 = 1 - options.beta2;
  out.decay = -options.lr * options.weight_decay;
  out.step_size = -options.lr / (1 - std::pow(options.beta1, count));
  out.root_scale = 1 / std::sqrt(1 - std::pow(options.beta2, count));
  out.eps = options.eps;
  return out;
}

bool are_disjoint(std::span<const SrWeight> weights) {
  std::vector<Interval> intervals;
  for (const SrWeight& weight : weights) {
    const std::byte* const data[] = {weight.w, weight.g, weight.m, weight.v};
    for (int i = 0; i < 4; ++i) {
      if (data[i] == nullptr || weight.n == 0) continue;
      const auto begin = reinterpret_cast<std::uintptr_t>(data[i]);
      const auto nbytes = static_cast<std::uintptr_t>(weight.n * size_of(weight.formats[i]));
      intervals.push_back({begin, begin + nbytes, i != 1});
    }
  }
  std::ranges::sort(intervals, {}, &Interval::begin);
  std::uintptr_t written = 0;  // ends of what came before
  std::uintptr_t any = 0;
  for (const Interval& each : intervals) {
    if (each.begin < (each.is_written ? any : written)) return false;
    any = std::max(any, each.end);
    if (each.is_written) written = std::max(written, each.end);
  }
  return true;
}

void sr_step(const SrSgd& options, std::span<const SrWeight> weights, int threads) {
  for_each_tile(weights, threads, [&](const Tile& tile) { step_tile(options, tile); });
}

void sr_step(const SrLion& options, std::span<const SrWeight> weights, int threads) {
  for_each_tile(weights, threads, [&](const Tile& tile) { step_tile(options, tile); });
}

void sr_step(const SrAdamwOptions& options, std::span<const SrWeight> weights, int threads) {
  std::vector<SrAdamw> steps;  // equal ones are made once: they take powers and roots
  for (const SrWeight& weight : weights) {
    const bool is_same = !steps.empty() && (&weight)[-1].step == weight.step;
    steps.push_back(is_same ? steps.back() : adamw_step(options, weight.step));
  }
  for_each_tile(weights, threads, [&](const Tile& tile) {
    step_tile(steps[static_cast<std::size_t>(tile.weight - weights.data())], options.maximize, tile);
  });
}

}  // namespace popsr::kernels
