#include "popsr/ops/nn/conv/conv_columns.h"

namespace popsr {
namespace {

/// Bytes of columns: half of a usual L2. Decides speed only, as the numbers below.
constexpr std::int64_t kColumnBytes = 5 << 17;
/// Bytes of a vector of the widest product.
constexpr std::int64_t kPanelBytes = 64;
/// Rows below which copies would cost too much.
constexpr std::int64_t kLeastRows = 32;

std::int64_t rounded_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// Positions of a phase in one tile.
std::int64_t positions(const ConvSweep& sweep, const ConvPhase& phase) {
  Spatial count = phase.count;
  count[sweep.tile.axis] = std::min(count[sweep.tile.axis], sweep.tile.size);
  return product(count);
}

}  // namespace

ConvColumns conv_columns(const ConvSweep& sweep, std::int64_t element_size) {
  ConvColumns columns;
  std::int64_t most = 0, steps = 0;
  for (const ConvPhase& phase : sweep.chains.phases) {
    most = std::max(most, positions(sweep, phase));
    steps += std::ssize(phase.offset) * positions(sweep, phase);
  }
  if (sweep.rows < kLeastRows || steps == 0 || sweep.samples == 0) return columns;
  const std::int64_t fits = std::max<std::int64_t>(kColumnBytes / (steps * element_size), 1);
  const std::int64_t samples = sweep.tiles() > 1 ? 1 : std::min(sweep.samples, fits);
  const std::int64_t panel = kPanelBytes / element_size;
  const std::int64_t as_images =
      samples * rounded_up(swept_positions(sweep.tile.count, sweep.image.pitch), panel);
  if (10 * as_images < 11 * rounded_up(samples * most, panel)) return columns;
  columns.samples = samples;
  for (const ConvPhase& phase : sweep.chains.phases) {
    const std::int64_t pitch = samples * positions(sweep, phase);
    columns.begin.push_back(columns.elements);
    columns.pitch.push_back(pitch);
    std::vector<std::int64_t>& offset = columns.offset.emplace_back();
    for (std::int64_t step = 0; step < std::ssize(phase.offset); ++step) offset.push_back(step * pitch);
    columns.elements += std::ssize(phase.offset) * pitch;
  }
  return columns;
}

}  // namespace popsr
